/* SPDX-License-Identifier: MIT */
/*
 * owners.c - which processes have an arena that a dead mutator left, or a
 * living one uses. Reads /proc only.
 */
#include <dirent.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "inject/proc.h"
#include "mutator/owners.h"

enum { LISTINGS = 64 }; /* of all processes, until nobody has gone meanwhile (proc_looks) */

static int add_sharer(struct owners *o, pid_t pid, struct dinst_error *e)
{
	if (o->count == o->room) {
		size_t room = o->room ? o->room * 2 : 16;
		pid_t *sharers = realloc(o->sharers, room * sizeof(*sharers));

		if (!sharers)
			return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		o->sharers = sharers;
		o->room = room;
	}
	o->sharers[o->count++] = pid;
	return 0;
}

bool owners_writes(const struct maps_entry *entry)
{
	return !entry->offset && (entry->protection & PROT_WRITE);
}

bool owners_inherited(pid_t pid, pid_t target, bool runs)
{
	return runs || proc_descends(pid, target);
}

/* Of one without memory: false where it is seen to come of nobody who comes of the target. */
static bool may_have_left(pid_t pid, pid_t target)
{
	struct proc_stat stat;

	return proc_stat_read(pid, &stat) || stat.parent <= 1 || proc_descends(pid, target) ||
	       proc_descends(target, stat.parent);
}

static int look_at_process(struct owners *o, pid_t pid, pid_t target, bool *gone,
			   struct dinst_error *e)
{
	struct dinst_error why = {0};
	bool runs = false, shows = false, writes = false;
	struct maps m;
	int status = maps_read(pid, &m, &why);

	/* Others' processes are none of ours; for want of descriptors nobody can be known. */
	*gone = *gone || (status == DINST_GONE && may_have_left(pid, target));
	if (status == DINST_GONE || status == DINST_NOT_PERMITTED)
		return 0;
	if (status)
		return dinst_fail(e, DINST_BUSY, "%s; try again later", why.text);
	for (size_t i = 0; i < m.count; i++) {
		const struct maps_entry *entry = &m.entries[i];

		if (entry->inode != o->found->inode || entry->device != o->found->device)
			continue;
		writes = writes || owners_writes(entry);
		/* One half alone counts, too: arena_is_in(). */
		if (!arena_is_half(entry, o->found->code, o->found->code_size, o->found->data,
				   o->found->data_size))
			continue;
		shows = true;
		runs = runs || (entry->protection & PROT_EXEC);
	}
	maps_release(&m);
	if (writes)
		o->mutator = pid;
	return shows && owners_inherited(pid, target, runs) ? add_sharer(o, pid, e) : 0;
}

/* Looks at whoever has not been looked at. *gone: some had ended by then. */
static int look_at_all(struct owners *o, pid_t target, struct proc_looks *looks, bool *gone,
		       struct dinst_error *e)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	int status = 0, error = 0;

	if (!proc)
		return dinst_fail(e, DINST_FAILED, "cannot list /proc");
	*gone = false;
	proc_looks_begin(looks);
	while (status >= 0 && (entry = proc_next(proc, &error))) {
		const pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (pid <= 0 || pid == getpid() || pid == target)
			continue;
		status = proc_looks_note(looks, entry);
		if (status < 0)
			status = dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		else if (status > 0)
			status = look_at_process(o, pid, target, gone, e);
	}
	closedir(proc);
	if (error)
		status = dinst_fail_errno(e, DINST_BUSY, -error, "cannot list all processes");
	return status;
}

int find_owners(struct owners *o, pid_t target, struct dinst_error *e)
{
	struct proc_looks looks = {0};
	bool gone = true;
	int status = 0;

	o->count = 0;
	/* Also where the maps of that process may not be seen: it is another user's. */
	o->mutator = arena_owner(o->found);
	if (o->found->mode != ARENA_SHARED)
		return 0;
	for (unsigned n = 0; status >= 0 && gone; n++)
		status = n < LISTINGS
				 ? look_at_all(o, target, &looks, &gone, e)
				 : dinst_fail(e, DINST_BUSY,
					      "processes are born and end faster than they can "
					      "be looked at; try again later");
	proc_looks_release(&looks);
	return status < 0 ? status : 0;
}
