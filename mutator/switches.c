/* SPDX-License-Identifier: MIT */
/*
 * switches.c - how often the target's threads are switched: behind each switch, clocks of
 * threads are a system call once. Read from /proc, by itself no more than once a second, and
 * not while there are more than MOST threads.
 *
 * What threads did that end between two looks is not seen, nor what there was up to the first
 * look that saw all of them: the sum is too small, never too large.
 */
#include <stdlib.h>

#include "inject/proc.h"
#include "inject/tasks.h"
#include "mutator/core.h"

enum { MOST = 2000, PERIOD_NS = 1000000000 };

uint64_t session_switches(struct session *s, bool now)
{
	const uint64_t at = clock_ns();
	uint64_t seen;
	bool saw;
	size_t count;
	pid_t *tids;

	if (s->switches_ns && !now && at - s->switches_ns < PERIOD_NS)
		return s->switches;
	tids = task_list(s->pid, &count);
	/* The list may not be there to be read: then it is empty. What was not seen nothing is more than. */
	saw = count && count <= MOST;
	seen = saw ? 0 : UINT64_MAX;
	for (size_t n = 0; n < count && saw; n++)
		seen += proc_switches(tids[n]);
	free(tids);
	/* Never less than before: threads that ended took their counts with them. */
	if (saw && s->switches_ns && seen > s->switches_seen)
		s->switches += seen - s->switches_seen;
	s->switches_seen = seen;
	s->switches_ns = at;
	return s->switches;
}
