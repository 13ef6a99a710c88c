/* SPDX-License-Identifier: MIT */
/*
 * result_file.h - a file that a command writes its result to. Whether it can be written is found
 * out at the beginning; what it had is lost only when there is a result.
 *
 * Calling sequence:
 *   1. result_file_open() before the target is touched
 *   2. result_file_begin() before the first byte is written to `fd`, or
 *      result_file_settle() every now and then once something may have been
 *   3. without a result: result_file_drop() instead of 2; the caller closes `fd`
 */
#ifndef DINST_DAEMON_RESULT_FILE_H
#define DINST_DAEMON_RESULT_FILE_H

#include <stdbool.h>

struct result_file {
	const char *path; /* the caller's */
	int fd;		  /* the caller's to close */
	bool created;	  /* it was not there before */
	bool begun;	  /* it has a result, and nothing else */
};

/* Returns 0 or -errno. */
int result_file_open(struct result_file *f, const char *path);

/* Forgets what a regular file had; there is nothing to forget of others (a pipe, /dev/null). */
void result_file_begin(struct result_file *f);

/* Where something has been written from the beginning on, what is behind it is forgotten. */
void result_file_settle(struct result_file *f);

/* Takes away what open made, if it is empty still. */
void result_file_drop(const struct result_file *f);

#endif
