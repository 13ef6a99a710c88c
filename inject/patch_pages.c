/* SPDX-License-Identifier: MIT */
/*
 * patch_pages.c - private copies of text pages: is there room for them, and giving them back.
 *
 * When a page of text is patched the kernel makes a private copy of it, which
 * stays when the bytes are the original again. Dropping it (MADV_DONTNEED) is
 * right only if it equals the file, so that is what is proved here, page by
 * page. Never drops a page that anybody else has changed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "inject/control.h"
#include "inject/files.h"
#include "inject/maps.h"
#include "inject/mounts.h"
#include "inject/patch.h"
#include "inject/remote.h"

enum {
	PAGE = 4096,
	CALLS = 4,	     /* of one remote program */
	BUDGET_NS = 4000000, /* for all of it, in the stop */
	FILES_MAX = 256,     /* open at a time */
	GAP_MAX = 64,	     /* pages between two that may be dropped along with them */
	LOOK = 64,	     /* entries of pagemap that are read at once */
};

/*
 * Files that are mapped where the pages are, mapped here, too, before the stop: in it no file is
 * read. Somebody may have to allow that (fanotify's FAN_ACCESS_PERM, which reading a mapping does not
 * ask for), and it may be the target.
 */
struct patch_files {
	struct patch_file {
		dev_t device;
		uint64_t inode;
		const uint8_t *map; /* NULL: cannot be read */
		size_t size;	    /* of the file */
	} * at;
	size_t count;
};

struct run {
	taddr_t lo, hi;
	size_t pages; /* of the caller's, in it */
};

struct drop {
	struct stop *s;
	const struct maps *maps;
	taddr_t *pages; /* sorted, each once */
	size_t count;
	int pagemap; /* -1 if it cannot be read */
	struct run *runs;
	size_t run_count;
	uint64_t deadline;
	const struct patch_files *files;
	bool in_tail; /* the program that does it is in the tail of some module */
};

/* ------------------------------------------------------- before the stop */

/* Pages of it may be given back: it shows a file, as that is. */
static bool shows_file(const struct maps_entry *entry)
{
	return entry->inode && !entry->shared && !(entry->protection & PROT_WRITE);
}

/*
 * The file of a mapping, only if it is still the file that is mapped. Through
 * map_files where we may (it works for deleted files and in containers), else
 * by its name in the target's own root. Known by its inode: on btrfs, and of an overlay in
 * older kernels, stat(2) tells another device than the maps.
 */
static int open_mapped(pid_t tid, const struct maps_entry *entry)
{
	char path[4400];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/map_files/%llx-%llx", (int)tid,
		 (unsigned long long)entry->lo, (unsigned long long)entry->hi);
	fd = file_open_regular(path);
	if (fd < 0 && entry->name[0] == '/') {
		snprintf(path, sizeof(path), "/proc/%d/root%s", (int)tid, entry->name);
		fd = file_open_regular(path);
	}
	if (fd < 0)
		return -1;
	if (!fstat(fd, &st) && st.st_ino == entry->inode)
		return fd;
	close(fd);
	return -1;
}

/* NULL: nobody has tried to open what `entry` shows. */
static const struct patch_file *find_file(const struct patch_files *files,
					  const struct maps_entry *entry)
{
	for (size_t i = 0; files && i < files->count; i++)
		if (files->at[i].inode == entry->inode && files->at[i].device == entry->device)
			return &files->at[i];
	return NULL;
}

/* Whoever provides it may be the target, which is about to stand still: such a file is not opened. */
static void add_file(struct patch_files *files, pid_t tid, const char *mounts,
		     const struct maps_entry *entry)
{
	struct patch_file *grown = NULL;
	struct patch_file file = {.device = entry->device, .inode = entry->inode};
	struct stat st;
	void *map;
	int fd = -1;

	if (files->count < FILES_MAX)
		grown = realloc(files->at, (files->count + 1) * sizeof(*grown));
	if (!grown)
		return;
	files->at = grown;
	if (!mounts_may_wait(mounts, entry->device))
		fd = open_mapped(tid, entry);
	if (fd >= 0 && !fstat(fd, &st) && st.st_size > 0) {
		map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (map != MAP_FAILED) {
			file.map = map;
			file.size = (size_t)st.st_size;
		}
	}
	if (fd >= 0)
		close(fd);
	files->at[files->count++] = file;
}

/* What the file shows at `page`. False if it cannot be read; a file that was cut off is no SIGBUS. */
static bool read_file_page(const struct patch_file *file, const struct maps_entry *entry,
			   taddr_t page, uint8_t *bytes)
{
	const uint64_t offset = entry->offset + (page - entry->lo);
	const struct iovec to = {bytes, PAGE};
	struct iovec from = {NULL, PAGE};

	if (!file->map || offset >= file->size)
		return false;
	from.iov_base = (void *)(file->map + offset);
	return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == PAGE;
}

struct patch_files *patch_files_open(const struct target *t, const taddr_t *pages, size_t count)
{
	const pid_t tid = target_memory_tid(t);
	struct patch_files *files = count ? calloc(1, sizeof(*files)) : NULL;
	char *mounts = files ? mounts_read(tid) : NULL;
	uint8_t bytes[PAGE];
	struct maps maps;

	if (mounts && !maps_read(target_pid(t), &maps, NULL)) {
		for (size_t i = 0; i < count; i++) {
			const struct maps_entry *entry = maps_find(&maps, pages[i]);
			const struct patch_file *file;

			if (!entry || !shows_file(entry))
				continue;
			if (!find_file(files, entry))
				add_file(files, tid, mounts, entry);
			file = find_file(files, entry);
			if (file) /* a disk is waited for here, not in the stop */
				read_file_page(file, entry, pages[i] / PAGE * PAGE, bytes);
		}
		maps_release(&maps);
	}
	free(mounts);
	return files;
}

void patch_files_close(struct patch_files *files)
{
	for (size_t i = 0; files && i < files->count; i++)
		if (files->at[i].map)
			munmap((void *)files->at[i].map, files->at[i].size);
	if (files)
		free(files->at);
	free(files);
}

bool patch_files_read(const struct patch_files *files, const struct maps *maps, taddr_t address,
		      uint8_t *bytes, size_t size)
{
	const struct maps_entry *entry = maps_find(maps, address);
	const struct patch_file *file = entry && shows_file(entry) ? find_file(files, entry) : NULL;
	uint8_t page[PAGE];
	size_t at, part;

	for (size_t done = 0; done < size; done += part) {
		at = (address + done) % PAGE;
		part = size - done < PAGE - at ? size - done : PAGE - at;
		if (!file || address + done >= entry->hi ||
		    !read_file_page(file, entry, address + done - at, page))
			return false;
		memcpy(bytes + done, page + at, part);
	}
	return size > 0;
}

/* ------------------------------------------------------------ in the stop */

static int by_value(const void *a, const void *b)
{
	taddr_t x = *(const taddr_t *)a, y = *(const taddr_t *)b;

	return x < y ? -1 : x > y;
}

static bool sort_pages(struct drop *d, const taddr_t *pages, size_t count)
{
	d->pages = malloc((count + 1) * sizeof(*d->pages));
	d->runs = calloc(count + 1, sizeof(*d->runs));
	if (!d->pages || !d->runs)
		return false;
	for (size_t i = 0; i < count; i++)
		d->pages[i] = pages[i] / PAGE * PAGE;
	qsort(d->pages, count, sizeof(*d->pages), by_value);
	d->count = 0;
	for (size_t i = 0; i < count; i++)
		if (!d->count || d->pages[d->count - 1] != d->pages[i])
			d->pages[d->count++] = d->pages[i];
	return true;
}

static bool equals_file(const struct drop *d, const struct patch_file *from,
			const struct maps_entry *entry, taddr_t page)
{
	uint8_t memory[PAGE], file[PAGE];

	return target_read_some(stop_target(d->s), page, memory, PAGE) == PAGE &&
	       read_file_page(from, entry, page, file) && !memcmp(memory, file, PAGE);
}

/* Pages between two of ours may be dropped along if none is anybody's copy. */
static bool gap_is_clean(const struct drop *d, taddr_t lo, taddr_t hi)
{
	if (hi - lo > (taddr_t)GAP_MAX * PAGE || (lo < hi && d->pagemap < 0))
		return false;
	for (; lo < hi; lo += PAGE)
		if (maps_page_is_copy(d->pagemap, lo))
			return false;
	return true;
}

static void add_page(struct drop *d, const struct maps_entry *entry, taddr_t page)
{
	struct run *next = d->runs + d->run_count;

	if (d->run_count && next[-1].lo >= entry->lo && gap_is_clean(d, next[-1].hi, page)) {
		next[-1].hi = page + PAGE;
		next[-1].pages++;
		return;
	}
	*next = (struct run){page, page + PAGE, 1};
	d->run_count++;
}

/* Goes through the pages of one mapping from index `at` on; returns the index behind them. */
static size_t check_mapping(struct drop *d, const struct maps_entry *entry, size_t at, int *kept)
{
	const bool fits = shows_file(entry);
	const struct patch_file *file = fits ? find_file(d->files, entry) : NULL;

	for (; at < d->count && d->pages[at] < entry->hi; at++) {
		taddr_t page = d->pages[at];

		if (fits && !maps_page_is_copy(d->pagemap, page))
			continue;
		/* The program that drops pages may stand in the tail of this one. */
		if (d->in_tail && page + PAGE == entry->hi) {
			++*kept;
			continue;
		}
		if (file && clock_ns() < d->deadline && equals_file(d, file, entry, page))
			add_page(d, entry, page);
		else
			++*kept;
	}
	return at;
}

static void find_runs(struct drop *d, int *kept)
{
	size_t at = 0;

	while (at < d->count) {
		const struct maps_entry *entry = maps_find(d->maps, d->pages[at]);

		/* What is not mapped any more is no copy of anything. */
		if (entry)
			at = check_mapping(d, entry, at, kept);
		else
			at++;
	}
}

static int drop_some(struct drop *d, const struct run *runs, size_t count, taddr_t scratch,
		     void *scratch_map, int *kept, struct dinst_error *e)
{
	struct arch_remote_call calls[CALLS];
	struct arch_remote_program program = {.calls = calls, .count = count};
	long results[CALLS];
	int result;

	memset(calls, 0, sizeof(calls));
	for (size_t i = 0; i < count; i++) {
		calls[i].number = SYS_madvise;
		calls[i].args[0].value = runs[i].lo;
		calls[i].args[1].value = runs[i].hi - runs[i].lo;
		calls[i].args[2].value = MADV_DONTNEED;
		calls[i].always = true;
		results[i] = -ECANCELED;
	}
	result = remote_run(d->s, &program, scratch, scratch_map, NULL, NULL, results, e);
	for (size_t i = 0; !result && i < count; i++)
		if (results[i])
			*kept += (int)runs[i].pages; /* locked memory, for one */
	return result;
}

static int drop_runs(struct drop *d, taddr_t scratch, void *scratch_map, int *kept,
		     struct dinst_error *e)
{
	int result = DINST_OK;

	for (size_t at = 0; at < d->run_count && !result; at += CALLS) {
		size_t count = d->run_count - at < CALLS ? d->run_count - at : CALLS;

		if (at && clock_ns() >= d->deadline) {
			for (; at < d->run_count; at++)
				*kept += (int)d->runs[at].pages;
			break;
		}
		result = drop_some(d, d->runs + at, count, scratch, scratch_map, kept, e);
	}
	return result;
}

int patch_drop_private_pages(struct stop *s, const taddr_t *pages, size_t count,
			     const struct patch_files *files, taddr_t scratch, void *scratch_map,
			     struct dinst_error *e)
{
	struct drop d = {.s = s,
			 .pagemap = -1,
			 .deadline = clock_ns() + BUDGET_NS,
			 .files = files,
			 .in_tail = !scratch};
	int kept = 0, result;

	if (!count)
		return 0;
	result = stop_maps(s, &d.maps, e);
	if (result)
		return result;
	if (!sort_pages(&d, pages, count)) {
		result = dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu pages", count);
		goto out;
	}
	d.pagemap = maps_open_pagemap(target_memory_tid(stop_target(s)));
	find_runs(&d, &kept);
	result = drop_runs(&d, scratch, scratch_map, &kept, e);
out:
	if (d.pagemap >= 0)
		close(d.pagemap);
	free(d.pages);
	free(d.runs);
	return result ? result : kept;
}

/* ------------------------------------------------------------- is there room */

/* Entries of pagemap from `first` (a page's number) on. */
struct look {
	int pagemap;
	uint64_t first;
	size_t count;
	uint64_t entries[LOOK];
};

/* What cannot be looked at may be. */
static bool is_inherited(struct look *l, taddr_t page)
{
	const uint64_t number = page / PAGE;
	ssize_t got;

	if (number < l->first || number - l->first >= l->count) {
		l->first = number / LOOK * LOOK;
		got = l->pagemap < 0 ? -1
				     : pread(l->pagemap, l->entries, sizeof(l->entries),
					     (off_t)(l->first * sizeof(uint64_t)));
		l->count = got < 0 ? 0 : (size_t)got / sizeof(uint64_t);
		if (number - l->first >= l->count)
			return true;
	}
	return maps_is_inherited(l->entries[number - l->first]);
}

int patch_check_room(struct stop *s, const struct patch *patches, size_t count,
		     struct dinst_error *e)
{
	const struct target *t = stop_target(s);
	struct look l = {.pagemap = t->hold.pagemap};
	struct memory_room room;
	uint64_t wanted = 0;
	taddr_t page = 0;
	int result;

	for (size_t i = 0; i < count; i++) {
		if (page == patches[i].address / PAGE * PAGE)
			continue;
		page = patches[i].address / PAGE * PAGE;
		wanted += is_inherited(&l, page) ? PAGE : 0;
	}
	if (!wanted)
		return DINST_OK;
	result = target_memory_room(t, &room, e);
	if (result)
		return result;
	return target_check_room(t, &room, wanted,
				 "of its own for what it has in common with others by fork()",
				 ", or try again when some of them have ended", e);
}
