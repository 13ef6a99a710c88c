/* SPDX-License-Identifier: MIT */
/*
 * cgroup.h - what the control groups of a process forbid it
 * (Documentation/admin-guide/cgroup-v1, cgroup-v2.rst).
 *
 * Private to inject/, but for what inject/target.h passes on. Reads /proc and
 * the control groups' own files, as far as they are mounted where we are;
 * nothing is written. What cannot be told is no limit.
 */
#ifndef DINST_INJECT_CGROUP_H
#define DINST_INJECT_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

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

/* True if the process's group, or one above it, is frozen; *group names its directory. */
bool cgroup_is_frozen(pid_t pid, char *group, size_t size);

/*
 * The same for a process that is asked about again and again, and may stand still meanwhile: where its groups' files
 * are is kept until its groups or our mounts change. All zeros at first; given back with
 * cgroup_freezer_release(). cgroup_freezer_find() does beforehand what takes long.
 */
struct cgroup_freezer {
	uint64_t mounts; /* mounts_generation() when it was looked up; 0: it has to be */
	char *groups;	 /* the process's, as /proc says */
	bool has_state, has_events;
	struct cgroup_place state;  /* version 1 */
	struct cgroup_place events; /* version 2 */
};

void cgroup_freezer_find(struct cgroup_freezer *f, pid_t pid);
bool cgroup_freezer_is_frozen(struct cgroup_freezer *f, pid_t pid, char *group, size_t size);
void cgroup_freezer_release(struct cgroup_freezer *f);

/*
 * How many bytes the process and those in its groups may still take before the
 * kernel kills one of them; what it could drop instead (page cache) counts as
 * free. False if there is no limit; *group names the directory with the tightest.
 */
bool cgroup_memory_room(pid_t pid, uint64_t *bytes, char *group, size_t size);

#endif
