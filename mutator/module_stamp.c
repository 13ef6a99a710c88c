/* SPDX-License-Identifier: MIT */
/*
 * module_stamp.c - whether the file of a mapping is still the one that was read. A plugin may be
 * unloaded, written anew into the same file, and loaded again to where it was: then nothing but
 * the time of writing tells, and that nothing of ours is there any more.
 *
 * Reads /proc and the file system, changes nothing.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "inject/mounts.h"
#include "inject/proc.h"
#include "mutator/module_private.h"

static struct file_stamp stamp_of(const struct statx *st)
{
	return (struct file_stamp){
		.inode = st->stx_ino,
		.device = makedev(st->stx_dev_major, st->stx_dev_minor),
		.size = (off_t)st->stx_size,
		.written = {.tv_sec = st->stx_mtime.tv_sec, .tv_nsec = st->stx_mtime.tv_nsec},
		.changed = {.tv_sec = st->stx_ctime.tv_sec, .tv_nsec = st->stx_ctime.tv_nsec}};
}

static bool are_equal(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
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

/* By the account of its pages: 1 where one of them is not the file's any more, else 0; -1 where that is not told. */
static int has_copies(const struct maps_entry *m, int pagemap)
{
	const taddr_t page = (taddr_t)sysconf(_SC_PAGESIZE);
	int copy = 0;

	for (taddr_t at = m->lo; at < m->hi && !copy; at += page)
		copy = maps_page_is_copy(pagemap, at);
	return copy;
}

/* The same by the bytes that the file has now. */
static int differs(const struct target *t, const struct maps_entry *m, int fd)
{
	uint8_t memory[4096], file[sizeof(memory)];

	for (taddr_t at = m->lo; at < m->hi; at += sizeof(memory)) {
		const ssize_t n = pread(fd, file, sizeof(file), (off_t)(m->offset + (at - m->lo)));

		if (n < 0)
			return -1;
		/* What the file has no more cannot be read in memory, either. */
		if (target_read_some(t, at, memory, (size_t)n) == (size_t)n &&
		    memcmp(memory, file, (size_t)n) != 0)
			return 1;
	}
	return 0;
}

/* Of all code of the file that is mapped; by its bytes where `fd` is one, else by the pages. */
static int look_at_code(const struct reading *r, const struct maps_entry *of, int pagemap, int fd)
{
	int found = 0;

	for (size_t i = 0; i < r->maps.count && !found; i++) {
		const struct maps_entry *m = &r->maps.entries[i];

		if (m->inode == of->inode && m->device == of->device && m->protection & PROT_EXEC)
			found = fd >= 0 ? differs(r->target, m, fd) : has_copies(m, pagemap);
	}
	return found;
}

/*
 * 1 where somebody wrote into its code where it is mapped, as we do: a mapping that is new has none of that.
 * Where the kernel has no account of pages, or we no descriptor for it, what is there is
 * compared with the file; -1 where that cannot be had. Nobody who provides the file is waited for.
 */
static int is_written_to(const struct reading *r, const struct maps_entry *of, const char *path,
			 bool served)
{
	const int pagemap = maps_open_pagemap(target_memory_tid(r->target));
	int found = look_at_code(r, of, pagemap, -1);
	bool exact = false;
	int fd;

	if (pagemap >= 0)
		close(pagemap);
	if (found >= 0 || served)
		return found;
	fd = module_file_open(r, of, path, &exact);
	if (fd >= 0 && exact)
		found = look_at_code(r, of, -1, fd);
	if (fd >= 0)
		close(fd);
	return found;
}

bool module_is_no_library(const struct reading *r, taddr_t start)
{
	char magic[SELFMAG];

	return target_read_some(r->target, start, magic, sizeof(magic)) == sizeof(magic) &&
	       memcmp(magic, ELFMAG, sizeof(magic)) != 0;
}

bool file_may_be_rewritten(const struct reading *r, const struct file_image *f,
			   const struct maps_entry *m)
{
	const struct maps_entry *start = maps_file_start(&r->maps, m);

	return f->image || (!f->none && start && !module_is_no_library(r, start->lo));
}

int file_is_rewritten(const struct reading *r, const struct file_stamp *stamp,
		      const struct maps_entry *m, const char *path)
{
	const int tid = target_memory_tid(r->target);
	char name[PATH_MAX_TEXT + 32];
	struct file_stamp now;
	struct statx st;
	/* Whoever loads it anew has asked for its times (fstat(2)), and the kernel knows them since. */
	const int flags = stamp->served ? AT_STATX_DONT_SYNC : 0;
	int written;

	snprintf(name, sizeof(name), "/proc/%d/map_files/%llx-%llx", tid, (unsigned long long)m->lo,
		 (unsigned long long)m->hi);
	if (statx(AT_FDCWD, name, flags, STATX_BASIC_STATS, &st)) {
		snprintf(name, sizeof(name), "/proc/%d/root%s", tid, path);
		if (statx(AT_FDCWD, name, 0, STATX_BASIC_STATS, &st))
			return proc_is_lack(errno) ? -1 : 0;
	}
	now = stamp_of(&st);
	/* Another file has taken its name, and it is mapped still. */
	if (now.inode != stamp->inode || now.device != stamp->device)
		return 0;
	/* One without a name cannot be loaded anew: a package was upgraded, and that is its change. */
	if (now.size == stamp->size && are_equal(&now.written, &stamp->written) &&
	    (are_equal(&now.changed, &stamp->changed) || !st.stx_nlink))
		return 0;
	/* A time alone may change, too (touch(1), chmod(1), another name for it): what we have put into a module says that it stays. */
	written = is_written_to(r, m, path, stamp->served);
	return written < 0 ? -1 : !written;
}
