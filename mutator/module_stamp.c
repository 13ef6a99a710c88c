/* SPDX-License-Identifier: MIT */
/*
 * module_stamp.c - whether the file of a mapping is still the one that was read. A plugin may be
 * unloaded, written anew into the same file, and loaded again to where it was: then nothing but
 * the time of writing tells, and that nothing of ours is there any more.
 *
 * Reads /proc and the file system, changes nothing.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "inject/mounts.h"
#include "mutator/module_private.h"

static struct file_stamp stamp_of(const struct statx *st)
{
	return (struct file_stamp){.inode = st->stx_ino,
				   .device = makedev(st->stx_dev_major, st->stx_dev_minor),
				   .size = (off_t)st->stx_size,
				   .written = {.tv_sec = st->stx_mtime.tv_sec,
					       .tv_nsec = st->stx_mtime.tv_nsec}};
}

struct file_stamp file_stamp(int fd, const char *mounts, const struct maps_entry *m)
{
	struct file_stamp stamp;
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st))
		return (struct file_stamp){0};
	stamp = stamp_of(&st);
	stamp.served = mounts && mounts_may_wait(mounts, m->device);
	return stamp;
}

/* Somebody wrote into its code where it is mapped, as we do: a mapping that is new has none of that. */
static bool has_copies(const struct target *t, const struct maps *maps, const struct maps_entry *of)
{
	const taddr_t page = (taddr_t)sysconf(_SC_PAGESIZE);
	const int pagemap = maps_open_pagemap(target_memory_tid(t));
	bool found = false;

	for (size_t i = 0; i < maps->count && !found; i++) {
		const struct maps_entry *m = &maps->entries[i];

		if (m->inode != of->inode || m->device != of->device ||
		    !(m->protection & PROT_EXEC))
			continue;
		for (taddr_t at = m->lo; at < m->hi && !found; at += page)
			found = maps_page_is_copy(pagemap, at);
	}
	if (pagemap >= 0)
		close(pagemap);
	return found;
}

bool file_is_rewritten(const struct file_stamp *stamp, const struct target *t,
		       const struct maps *maps, const struct maps_entry *m, const char *path)
{
	const int tid = target_memory_tid(t);
	char name[PATH_MAX_TEXT + 32];
	struct file_stamp now;
	struct statx st;
	/* Whoever loads it anew has asked for its times (fstat(2)), and the kernel knows them since. */
	const int flags = stamp->served ? AT_STATX_DONT_SYNC : 0;

	snprintf(name, sizeof(name), "/proc/%d/map_files/%llx-%llx", tid, (unsigned long long)m->lo,
		 (unsigned long long)m->hi);
	if (statx(AT_FDCWD, name, flags, STATX_BASIC_STATS, &st)) {
		snprintf(name, sizeof(name), "/proc/%d/root%s", tid, path);
		if (statx(AT_FDCWD, name, 0, STATX_BASIC_STATS, &st))
			return false;
	}
	now = stamp_of(&st);
	/* Another file has taken its name, and it is mapped still. */
	if (now.inode != stamp->inode || now.device != stamp->device)
		return false;
	if (now.size == stamp->size && now.written.tv_sec == stamp->written.tv_sec &&
	    now.written.tv_nsec == stamp->written.tv_nsec)
		return false;
	/* A time alone may change, too (touch(1)): what we have put into a module says that it stays. */
	return !has_copies(t, maps, m);
}
