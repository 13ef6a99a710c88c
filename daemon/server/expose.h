/* SPDX-License-Identifier: MIT */
/*
 * expose.h - the values of all sessions, and what we cost, as an exposition.
 *
 * What is called how is in docs/fleet.md. Takes what snapshots have; asks nobody.
 */
#ifndef DINST_DAEMON_EXPOSE_H
#define DINST_DAEMON_EXPOSE_H

#include "daemon/server/exposition.h"
#include "daemon/server/server.h"

/* Everything there is. NULL: no memory. The caller frees it. */
struct exposition *expose(struct server *s);

/*
 * The distribution in a row of `read` (or in an element of one). Fills *d, whose buckets are
 * malloc'ed; false: there is none, or no memory. Its count is that of its buckets.
 */
bool expose_distribution(json_t *row, struct distribution *d);

/* CPU seconds and resident bytes of a process; false if it is not there. */
bool expose_process(pid_t pid, double *cpu_seconds, int64_t *resident_bytes);

#endif
