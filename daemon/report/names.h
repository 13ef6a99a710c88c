/* SPDX-License-Identifier: MIT */
/*
 * names.h - texts that are kept once each, so that equal texts are equal pointers.
 *
 * A struct names of zeros is empty; names_release() frees all texts.
 */
#ifndef DINST_DAEMON_REPORT_NAMES_H
#define DINST_DAEMON_REPORT_NAMES_H

#include <stddef.h>

struct names {
	char **places;
	size_t size, used; /* size: a power of two, or 0 */
};

/* The one copy of the text, which lives as long as the table; NULL without memory. */
const char *name_of(struct names *n, const char *text);
void names_release(struct names *n);

#endif
