/* SPDX-License-Identifier: MIT */
/*
 * files.h - opening files that somebody else has named.
 *
 * Opening a device may do something (a tape rewinds, a watchdog starts), and a target may have
 * a name lead to one, where we may open what it may not: what a name leads to is looked at before.
 */
#ifndef DINST_INJECT_FILES_H
#define DINST_INJECT_FILES_H

#include <stdbool.h>

/* Opens a regular file to read, and nothing else; -1 if it is none, or cannot be opened: errno is why. */
int file_open_regular(const char *path);

/* The same of a descriptor of O_PATH, which it closes. `stored`: only one that file_is_stored(). */
int file_reopen_regular(int found, bool stored);

/*
 * False of a file of /proc or /sys, whose bytes may be registers, and of a hole with little around it,
 * which takes as long to read as what it seems to be; and where a file system does not tell.
 */
bool file_is_stored(int fd);

#endif
