/* SPDX-License-Identifier: MIT */
/*
 * flame.h - a call tree as a drawing that can be walked through: one SVG file, which every
 * browser opens, without anything from elsewhere. Callers are above, what they call is
 * below them, as wide as its time.
 *
 * With a browser's script: a click makes a function as wide as the window, its callers stay above
 * it; the field (or '/') searches and says how much of the time was found; Escape or the
 * button goes back; the pointer shows count, times and shares. Without one it is still a drawing.
 */
#ifndef DINST_DAEMON_REPORT_FLAME_H
#define DINST_DAEMON_REPORT_FLAME_H

#include <stdio.h>

#include "daemon/report/tree.h"

struct flame_options {
	const char *title;    /* what was measured */
	const char *subtitle; /* when, how much; may be NULL */
};

/* Boxes beyond this number are left out, the narrowest first; the subtitle says so. */
enum { FLAME_BOXES = 20000 };

/*
 * After call_tree_end(). Returns 0 or DINST_NO_MEMORY; failures of writing are the stream's
 * (ferror()).
 */
int flame_write(FILE *out, const struct call_tree *t, const struct flame_options *options);

#endif
