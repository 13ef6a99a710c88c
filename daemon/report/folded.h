/* SPDX-License-Identifier: MIT */
/*
 * folded.h - a call tree as folded stacks, the input of flamegraph.pl, speedscope and their like:
 * a line for each path, its functions from the outermost with ';' between them, a
 * blank, and the time that was spent in the last one itself, in ns.
 */
#ifndef DINST_DAEMON_REPORT_FOLDED_H
#define DINST_DAEMON_REPORT_FOLDED_H

#include <stdio.h>

#include "daemon/report/tree.h"

/* After call_tree_end(). Failures of writing are the stream's (ferror()). */
void folded_write(FILE *out, const struct call_tree *t);

#endif
