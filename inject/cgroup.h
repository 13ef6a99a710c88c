/* SPDX-License-Identifier: MIT */
/*
 * cgroup.h - what the control groups of a process forbid it
 * (Documentation/admin-guide/cgroup-v1, cgroup-v2.rst).
 *
 * Private to inject/, but for what inject/target.h passes on. Reads /proc and
 * the control groups' own files, as far as they are mounted where we are;
 * nothing is written. What is kept from us for good is no limit.
 */
#ifndef DINST_INJECT_CGROUP_H
#define DINST_INJECT_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "inject/error.h"

enum { CGROUP_PATH_MAX = 512 };

/* Where the files of a process's group are. */
struct cgroup_place {
	char directory[CGROUP_PATH_MAX];
	size_t root; /* bytes of it that are the mount point: no group is above that */
};

/*
 * Finds the group of a process for `controller` ("memory", "freezer") in version 1, or
 * where that is NULL in version 2. `mounts` is the text of /proc/self/mountinfo,
 * `groups` that of /proc/PID/cgroup. False if there is none, or none is mounted here.
 */
bool cgroup_locate(const char *mounts, const char *groups, const char *controller,
		   struct cgroup_place *place);

/*
 * True if the process's group, or one above it, is frozen; *group names its directory. Where the
 * files are that tell is looked up once, until somebody of other groups is asked about, or our mounts change:
 * cgroup_find_freezer() does that beforehand for a process that is about to stand still.
 */
bool cgroup_is_frozen(pid_t pid, char *group, size_t size);
void cgroup_find_freezer(pid_t pid);

/*
 * How many bytes the process and those in its groups may still take before the
 * kernel kills one of them, or makes them sleep whenever they take more (memory.high);
 * what it could drop instead (page cache) counts as free; *limit names the file with the tightest limit.
 * UINT64_MAX, and *limit as it was, if there is none.
 * DINST_BUSY where we have no descriptor or memory to look.
 */
int cgroup_memory_room(pid_t pid, uint64_t *bytes, char *limit, size_t size, struct dinst_error *e);

/* The same out of the texts that cgroup_locate() takes; *lack as proc_note_lack(). */
uint64_t cgroup_least_room(const char *mounts, const char *groups, char *limit, size_t size,
			   int *lack);

#endif
