/* SPDX-License-Identifier: MIT */
/*
 * callgrind.h - a call tree as a profile of callgrind, for KCachegrind and callgrind_annotate.
 *
 * Costs are ns (of its own) and calls of each function; each call from one function to another
 * has its count and the ns with all that was called below. Paths are not kept by the format.
 *
 * Layout: "Callgrind Format Specification" of valgrind's manual.
 */
#ifndef DINST_DAEMON_REPORT_CALLGRIND_H
#define DINST_DAEMON_REPORT_CALLGRIND_H

#include <stdio.h>

#include "daemon/report/tree.h"

/*
 * After call_tree_end(). `command` says what was measured. Returns 0 or DINST_NO_MEMORY;
 * failures of writing are the stream's (ferror()).
 */
int callgrind_write(FILE *out, const struct call_tree *t, const char *command);

#endif
