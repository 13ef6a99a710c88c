/* SPDX-License-Identifier: MIT */
/*
 * owners.c - which processes have an arena that a dead mutator left, or a
 * living one uses. Reads /proc only.
 */
#include <errno.h>
#include <sys/mman.h>

#include "inject/proc.h"
#include "mutator/owners.h"

enum { LISTINGS = 64 }; /* of all processes, until nobody has gone meanwhile (proc_looks) */

bool owners_writes(const struct maps_entry *entry)
{
	return !entry->offset && (entry->protection & PROT_WRITE);
}

bool owners_inherited(pid_t pid, pid_t target, bool runs)
{
	return runs || proc_descends(pid, target);
}

bool owners_may_have_had(const struct owners *o, pid_t pid, pid_t target)
{
	struct proc_stat stat;

	return proc_stat_read(pid, &stat) || proc_ids_have(&o->earlier, stat.parent) ||
	       proc_may_descend(pid, target);
}

static int look_at_process(struct owners *o, pid_t pid, pid_t target, bool *gone,
			   struct dinst_error *e)
{
	struct dinst_error why = {0};
	bool runs = false, shows = false, writes = false;
	struct maps m;
	int status = maps_read(pid, &m, &why);

	/* Others' processes are none of ours; for want of descriptors nobody can be known. */
	*gone = *gone || (status == DINST_GONE && owners_may_have_had(o, pid, target));
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
	if (shows && owners_inherited(pid, target, runs) && proc_ids_add(&o->sharers, pid))
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	return 0;
}

/* Looks at whoever has not been looked at. *gone: some had ended by then. */
static int look_at_all(struct owners *o, pid_t target, struct proc_looks *looks, bool *gone,
		       struct dinst_error *e)
{
	int status = proc_looks_begin(looks) ? DINST_FAILED : 0;
	pid_t pid;

	if (status)
		return dinst_fail(e, status, "cannot list /proc");
	*gone = false;
	while (!status && (pid = proc_looks_next(looks))) {
		if (pid == -ENOMEM)
			return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		if (pid < 0)
			return dinst_fail_errno(e, DINST_BUSY, -pid, "cannot list all processes");
		if (pid != target)
			status = look_at_process(o, pid, target, gone, e);
	}
	return status;
}

int find_owners(struct owners *o, pid_t target, struct dinst_error *e)
{
	struct proc_looks looks = {0};
	bool gone = true;
	int status = 0;

	for (size_t i = 0; i < o->sharers.count; i++)
		if (proc_ids_add(&o->earlier, o->sharers.ids[i]))
			return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	o->sharers.count = 0;
	/* Also where the maps of that process may not be seen: it is another user's. */
	status = arena_owner(o->found, target, &o->mutator, e);
	if (status < 0 || o->found->mode != ARENA_SHARED)
		return status;
	for (unsigned n = 0; status >= 0 && gone; n++)
		status = n < LISTINGS
				 ? look_at_all(o, target, &looks, &gone, e)
				 : dinst_fail(e, DINST_BUSY,
					      "processes are born and end faster than they can "
					      "be looked at; try again later");
	proc_looks_release(&looks);
	return status < 0 ? status : 0;
}

void owners_release(struct owners *o)
{
	proc_ids_release(&o->sharers);
	proc_ids_release(&o->earlier);
}
