/* SPDX-License-Identifier: MIT */
/*
 * owners.h - which processes have an arena that was found; for leftovers.c.
 */
#ifndef DINST_MUTATOR_OWNERS_H
#define DINST_MUTATOR_OWNERS_H

#include "inject/maps.h"
#include "mutator/core.h"

/* True for a mapping of an arena by a mutator: only that writes to the start of the file, the code half. */
bool owners_writes(const struct maps_entry *entry);

/*
 * True if a process that shows an arena where the target has it, and its code (`runs`) or not, was forked with it.
 * Anybody may be given the file, and map it; but nobody runs what he was given. Where it is
 * not known to be code the process has to be one of the target's.
 */
bool owners_inherited(pid_t pid, pid_t target, bool runs);

struct owners {
	const struct arena_found *found;
	pid_t mutator;		 /* has it mapped to write code into it; 0: none */
	struct proc_ids sharers; /* have it, or a half of it; but for the target */
	struct proc_ids
		earlier; /* had it when they were asked for before: what they make may have it still */
};

/*
 * Looks at all processes but us and the target; o->found is set. A private
 * arena has no sharers. o->sharers is replaced by the next call.
 */
int find_owners(struct owners *o, pid_t target, struct dinst_error *e);
void owners_release(struct owners *o);

/* True if `pid`, which has no memory any more, may have had it, and made one that has it still. */
bool owners_may_have_had(const struct owners *o, pid_t pid, pid_t target);

#endif
