/* SPDX-License-Identifier: MIT */
/*
 * pprof.h - a call tree as a profile of pprof (`go tool pprof FILE`, pprof -http, speedscope).
 *
 * A sample for each path: its calls, and the ns of its last function itself; what pprof calls
 * cumulative is then the time with all that was called.
 *
 * Layout: profile.proto of github.com/google/pprof, as Protocol Buffers (wire format of
 * developers.google.com/protocol-buffers/docs/encoding), compressed as gzip.
 */
#ifndef DINST_DAEMON_REPORT_PPROF_H
#define DINST_DAEMON_REPORT_PPROF_H

#include <stdio.h>

#include "daemon/report/tree.h"

/*
 * After call_tree_end(). `realtime_ns`: when it began (CLOCK_REALTIME), `duration_ns`: for how long
 * it was counted. Returns 0, DINST_NO_MEMORY, or DINST_FAILED if the data cannot be compressed;
 * failures of writing are the stream's (ferror()).
 */
int pprof_write(FILE *out, const struct call_tree *t, uint64_t realtime_ns, uint64_t duration_ns);

#endif
