/* SPDX-License-Identifier: MIT */
/*
 * module_stamp.c - whether the file of a mapping is still the one that was read. A plugin may be
 * unloaded, written anew into the same file, and loaded again to where it was: then nothing but
 * the time of writing tells.
 *
 * Reads /proc and the file system, changes nothing.
 */
#include <stdio.h>
#include <sys/stat.h>

#include "mutator/module_private.h"

static struct file_stamp stamp_of(const struct stat *st)
{
	return (struct file_stamp){.inode = st->st_ino,
				   .device = st->st_dev,
				   .size = st->st_size,
				   .written = st->st_mtim};
}

struct file_stamp file_stamp(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? (struct file_stamp){0} : stamp_of(&st);
}

bool file_is_rewritten(const struct file_stamp *stamp, const struct target *t,
		       const struct maps_entry *m, const char *path)
{
	const int pid = target_pid(t);
	char name[PATH_MAX_TEXT + 32];
	struct file_stamp now;
	struct stat st;

	snprintf(name, sizeof(name), "/proc/%d/map_files/%llx-%llx", pid, (unsigned long long)m->lo,
		 (unsigned long long)m->hi);
	if (stat(name, &st)) {
		snprintf(name, sizeof(name), "/proc/%d/root%s", pid, path);
		if (stat(name, &st))
			return false;
	}
	now = stamp_of(&st);
	/* Another file has taken its name, and it is mapped still. */
	if (now.inode != stamp->inode || now.device != stamp->device)
		return false;
	return now.size != stamp->size || now.written.tv_sec != stamp->written.tv_sec ||
	       now.written.tv_nsec != stamp->written.tv_nsec;
}
