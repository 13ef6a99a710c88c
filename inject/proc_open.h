/* SPDX-License-Identifier: MIT */
/*
 * proc_open.h - files of tasks in /proc, for a thread that goes before all others.
 *
 * Looking up a file of a task that has just ended waits until whoever ends it has forgotten its files
 * (shrink_dcache_parent(), fs/dcache.c), and does not sleep meanwhile: a thread of real-time priority that has
 * taken the processor in the midst of that waits for a thread that waits for it, until the kernel limits real-time
 * work after a second (sched(7)), or for good. But the task has no number any more by then (release_task(),
 * kernel/exit.c), so nobody looks for files of a number that nobody has.
 *
 * All of these are as the function that they are named after, and fail with ENOENT where the path is one of a task
 * in /proc that has ended. Other paths are what they are.
 */
#ifndef DINST_INJECT_PROC_OPEN_H
#define DINST_INJECT_PROC_OPEN_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Of "/proc/TID/..." and "/proc/PID/task/TID/..."; then errno is ENOENT. */
bool proc_has_ended(const char *path);

int proc_open(const char *path, int flags); /* O_CLOEXEC is added; nothing is created */
FILE *proc_fopen(const char *path);	    /* to read; closed on exec */
DIR *proc_opendir(const char *path);
int proc_access(const char *path, int mode);
int proc_stat_file(const char *path, struct stat *file);  /* stat() */
int proc_lstat_file(const char *path, struct stat *link); /* lstat() */
ssize_t proc_readlink(const char *path, char *to, size_t size);

#endif
