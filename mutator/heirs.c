/* SPDX-License-Identifier: MIT */
/*
 * heirs.c - processes that have what a mutator made, where both it and its target have ended.
 *
 * They were forked by the target, and nothing leads to them any more but what they have: the
 * header of an arena says who made it. It is their own word; what is done with it is what any
 * repair of them would do.
 */
#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#include "inject/arena.h"
#include "inject/pid_space.h"
#include "inject/proc.h"
#include "mutator/core.h"

static bool has_from(const struct target *t, pid_t maker, uint64_t start)
{
	struct arena_found found[ARENAS_MOST];
	struct dinst_error ignored = {0};
	int count = arena_find(t, found, ARENAS_MOST, &ignored);

	for (int i = 0; i < count; i++)
		if (found[i].owner == maker && found[i].owner_start == start &&
		    (!found[i].owner_space || found[i].owner_space == pid_space_own()))
			return true;
	return false;
}

/* Its whole family, then, is taken care of with it. Negative: it may have something, and nobody can look now. */
static int clean_one(pid_t pid, pid_t maker, uint64_t start, unsigned milliseconds,
		     struct leftovers *result, struct dinst_error *e)
{
	struct dinst_error ignored = {0}, why = {0};
	struct leftovers own = {0};
	struct target *t;
	int status = arena_may_be_in(pid, e);

	if (status <= 0)
		return status;
	status = target_open(pid, &t, &why);
	/* Want of descriptors or memory passes; who may not be touched, or has ended, stays so. */
	if (status == DINST_BUSY || status == DINST_NO_MEMORY)
		return dinst_fail_text(e, DINST_BUSY, why.text);
	if (status < 0)
		return 0;
	if (has_from(t, maker, start)) {
		status = leftovers_clean(t, milliseconds, &own, &ignored);
		result->patches += own.patches;
		result->restored += own.restored;
		result->arenas += own.arenas;
		result->unknown_tails += own.unknown_tails;
		if (own.others && target_alive(t))
			result->others = own.others;
		if (own.stop_ns > result->stop_ns)
			result->stop_ns = own.stop_ns;
		if (target_alive(t))
			result->arenas_left += status < 0 ? 1 : own.arenas_left;
	}
	target_close(t);
	return 0;
}

int leftovers_clean_heirs(pid_t maker, uint64_t start, unsigned milliseconds,
			  struct leftovers *result, struct dinst_error *e)
{
	struct dirent *entry;
	DIR *proc = opendir("/proc");
	int status = 0, error = 0;

	*result = (struct leftovers){0};
	if (!proc)
		return dinst_fail(e, DINST_FAILED, "cannot list /proc");
	while ((entry = proc_next(proc, &error))) {
		const pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

		/* One that cannot be looked at is no reason to leave the others. */
		if (pid > 0 && pid != getpid() &&
		    clean_one(pid, maker, start, milliseconds, result, e) < 0)
			status = DINST_BUSY;
	}
	closedir(proc);
	if (error)
		status = dinst_fail_errno(e, DINST_BUSY, -error, "cannot list all processes");
	return status;
}
