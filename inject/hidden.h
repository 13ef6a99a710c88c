/* SPDX-License-Identifier: MIT */
/*
 * hidden.h - processes that keep themselves from us, and may be forked from the target.
 *
 * A child that makes itself undumpable goes on through our code, and a mutator without privileges
 * may not read its maps; where /proc is mounted with hidepid (proc(5)) not even its names and
 * times, or nothing shows that it is there. Nothing that such a process may run through is freed.
 *
 * Calling sequence: hidden_note() before the first arena is made; hidden_may_share() and
 * hidden_unlisted() whenever the processes that have an arena are looked for; hidden_free().
 */
#ifndef DINST_INJECT_HIDDEN_H
#define DINST_INJECT_HIDDEN_H

#include "inject/arena.h"
#include "inject/proc.h"
#include "inject/target.h"

struct hidden; /* opaque: those that were there before, and so have no arena */

/*
 * Notes all that keep themselves from us now. One that cannot be noted is not known to have been
 * there. DINST_NO_MEMORY, DINST_FAILED if /proc cannot be listed. *out is set on success.
 */
int hidden_note(struct hidden **out, struct dinst_error *e);
void hidden_free(struct hidden *h);

/*
 * False if it can be told that `pid` was not forked from the target after hidden_note(), or if its
 * maps can be read: those tell more.
 */
bool hidden_may_share(const struct hidden *h, pid_t pid, const struct target *t);

/* True if `pid` has the arena, or that cannot be told, for whatever reason. */
bool hidden_may_have(const struct hidden *h, pid_t pid, const struct target *t,
		     const struct arena *a);

/*
 * Adds the processes that /proc does not list and hidden_may_share() cannot rule out. *births:
 * negative for all of them, which takes up to a second where there are many pids; is set to what
 * makes the next call look at those only that were born since. 0, or -ENOMEM.
 */
int hidden_unlisted(const struct hidden *h, const struct target *t, long *births,
		    struct proc_ids *list);

#endif
