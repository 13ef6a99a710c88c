/* SPDX-License-Identifier: MIT */
/*
 * heirs.c - processes that have what a mutator made, where both it and its target have ended.
 *
 * They were forked by the target, and nothing leads to them any more but what they have: the
 * header of an arena says who made it. It is their own word; what is done with it is what any
 * repair of them would do.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inject/arena.h"
#include "inject/pid_space.h"
#include "inject/proc.h"
#include "mutator/core.h"

enum { LISTINGS = 64 }; /* of all processes, until one finds nobody */

/* 1, 0, or why nobody can tell. */
static int has_from(const struct target *t, pid_t maker, uint64_t start, struct dinst_error *e)
{
	struct arena_found found[ARENAS_MOST];
	int count = arena_find(t, found, ARENAS_MOST, e);

	for (int i = 0; i < count; i++)
		if (found[i].owner == maker && found[i].owner_start == start &&
		    (!found[i].owner_space || found[i].owner_space == pid_space_own()))
			return 1;
	return count < 0 ? count : 0;
}

/* Whatever it had by then: so may a child that it has left behind. */
static bool has_ended(pid_t pid)
{
	struct proc_stat stat;

	return proc_stat_read(pid, &stat) < 0 || strchr("ZXx", stat.state);
}

struct progress {
	bool more; /* some may have left a child behind since they were listed */
	bool lost; /* one that may have had something ended before it was taken out, and none was caught since */
};

/*
 * Its whole family, then, is taken care of with it. 1: it had something, or ended while it was looked at; negative: it
 * may have, and nobody can look now.
 */
static int clean_one(pid_t pid, pid_t maker, uint64_t start, unsigned milliseconds,
		     struct progress *p, struct leftovers *result, struct dinst_error *e)
{
	struct dinst_error ignored = {0}, why = {0};
	struct leftovers own = {0};
	struct target *t;
	int has, status = arena_may_be_in(pid, e);

	if (status <= 0)
		return status ? status : has_ended(pid);
	status = target_open(pid, &t, &why);
	/* Want of descriptors or memory passes; who may not be touched, or has ended, stays so. */
	if (status == DINST_BUSY || status == DINST_NO_MEMORY)
		return dinst_fail_text(e, DINST_BUSY, why.text);
	if (status < 0) {
		has = has_ended(pid);
		p->lost |= has;
		return has;
	}
	has = has_from(t, maker, start, &why);
	if (has > 0) {
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
		p->lost = status < 0 && !target_alive(t);
	} else if (has < 0) {
		has = has != DINST_GONE && target_alive(t)
			      ? dinst_fail_text(e, DINST_BUSY, why.text)
			      : 1;
		p->lost |= has > 0;
	}
	target_close(t);
	return has;
}

/* Those that have not been looked at. */
static int clean_new(struct proc_looks *looks, pid_t maker, uint64_t start, unsigned milliseconds,
		     struct progress *p, struct leftovers *result, struct dinst_error *e)
{
	int status = 0, one;
	pid_t pid;

	p->more = false;
	if (proc_looks_begin(looks))
		return dinst_fail(e, DINST_FAILED, "cannot list /proc");
	/* One that cannot be looked at is no reason to leave the others. */
	while ((pid = proc_looks_next(looks)) > 0) {
		one = clean_one(pid, maker, start, milliseconds, p, result, e);
		p->more |= one > 0;
		if (one < 0)
			status = DINST_BUSY;
	}
	if (pid)
		status = dinst_fail_errno(e, DINST_BUSY, -pid, "cannot list all processes");
	return status;
}

int leftovers_clean_heirs(pid_t maker, uint64_t start, unsigned milliseconds,
			  struct leftovers *result, struct dinst_error *e)
{
	struct proc_looks looks = {0};
	struct progress p = {.more = true};
	int status = 0;

	*result = (struct leftovers){0};
	for (unsigned n = 0; n < LISTINGS && p.more && !status; n++)
		status = clean_new(&looks, maker, start, milliseconds, &p, result, e);
	proc_looks_release(&looks);
	/* Somebody ends all the time on some machines: that alone says nothing. */
	return p.more && p.lost && !status
		       ? dinst_fail(
				 e, DINST_BUSY,
				 "processes are born and end faster than they can be looked at; try again later")
		       : status;
}
