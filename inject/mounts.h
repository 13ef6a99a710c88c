/* SPDX-License-Identifier: MIT */
/*
 * mounts.h - what /proc/PID/mountinfo tells of mounts (proc_pid_mountinfo(5)).
 */
#ifndef DINST_INJECT_MOUNTS_H
#define DINST_INJECT_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Field `index` (from 0) of a line that ends at `end` and whose fields have single blanks between
 * them; NULL if it has not so many.
 */
const char *mounts_field(const char *line, const char *end, unsigned index, size_t *length);

/* The type of the file system: the first field behind " - "; NULL if there is none. */
const char *mounts_type(const char *line, const char *end, size_t *length);

/*
 * True if files of `device`, as maps and stat(2) show it, may be read by waiting for somebody: a server in
 * the network, or a program that serves the file system. `mounts` is the text of all lines.
 */
bool mounts_may_wait(const char *mounts, dev_t device);

/*
 * Changes whenever what is mounted where we are does (poll(2) of our own mountinfo tells); 0: that
 * cannot be told.
 */
uint64_t mounts_generation(void);

/* The text for a thread's mount namespace, to be freed; NULL if it cannot be read: errno is why. */
char *mounts_read(pid_t tid);

#endif
