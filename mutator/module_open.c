/* SPDX-License-Identifier: MIT */
/*
 * module_open.c - the file that is mapped somewhere in a target, by its name and otherwise.
 *
 * Reads /proc and the file system, changes nothing.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inject/files.h"
#include "inject/proc.h"
#include "mutator/module_private.h"
#include "mutator/parks.h"

const char path_deleted[] = " (deleted)";

/* ----------------------------------------------------------------- names */

char *module_plain_path(const char *name)
{
	char *path = strdup(name), *to = path;
	size_t length;

	if (!path)
		return NULL;
	for (const char *p = name; *p; p++) {
		if (!strncmp(p, "\\012", 4)) {
			*to++ = '\n';
			p += 3;
		} else {
			*to++ = *p;
		}
	}
	*to = 0;
	length = to - path;
	if (length > sizeof(path_deleted) - 1 &&
	    !strcmp(to - (sizeof(path_deleted) - 1), path_deleted))
		to[-(ptrdiff_t)(sizeof(path_deleted) - 1)] = 0;
	return path;
}

bool path_is_deleted(const char *name)
{
	size_t length = strlen(name);

	return length > sizeof(path_deleted) - 1 &&
	       !strcmp(name + length - (sizeof(path_deleted) - 1), path_deleted);
}

/* ----------------------------------------------------------------- opening */

/* `device`: 0 if only the inode is to be compared. */
static bool is_file(int fd, uint64_t inode, dev_t device)
{
	struct stat st;

	return !fstat(fd, &st) && st.st_ino == inode && (!device || st.st_dev == device);
}

/* As file_open_regular(). *lack: we have no room for another descriptor, or no memory. */
static int open_one(const char *path, int *lack)
{
	const int fd = file_open_regular(path);

	if (fd < 0)
		proc_note_lack(lack, -errno);
	return fd;
}

/*
 * The kernel's own link to it is exact, but needs
 * privileges; without them it is looked for by its path, in the target's root
 * and in ours, and among what the target runs. *exact tells if it is that file
 * for sure: an overlay or btrfs may tell stat(2) other numbers than the maps,
 * so that one which is not may still be the right one. In our own root only both
 * numbers tell: a container's file system counts its files as ours does. What a name ends with may be
 * its own: a file that is called "x (deleted)" looks in the maps as x does where that has been deleted.
 */
int module_file_open(const struct reading *r, const struct maps_entry *m, const char *path,
		     bool *exact)
{
	int tid = target_memory_tid(r->target), inexact = -1, lack = 0, fd;
	enum { WHOLE_NAME, IN_ITS_ROOT, IN_OURS, PROGRAM, CANDIDATES };
	char candidates[CANDIDATES][PATH_MAX_TEXT];

	*exact = true;
	snprintf(candidates[0], sizeof(candidates[0]), "/proc/%d/map_files/%llx-%llx", tid,
		 (unsigned long long)m->lo, (unsigned long long)m->hi);
	fd = open_one(candidates[0], &lack);
	if (fd >= 0)
		return fd;
	snprintf(candidates[WHOLE_NAME], PATH_MAX_TEXT, "%s%s%s", r->root, path, path_deleted);
	snprintf(candidates[IN_ITS_ROOT], PATH_MAX_TEXT, "%s%s", r->root, path);
	snprintf(candidates[IN_OURS], PATH_MAX_TEXT, "%s", path);
	snprintf(candidates[PROGRAM], PATH_MAX_TEXT, "/proc/%d/exe", tid);
	for (size_t i = path_is_deleted(m->name) ? WHOLE_NAME : IN_ITS_ROOT; i < CANDIDATES; i++) {
		fd = open_one(candidates[i], &lack);
		if (fd >= 0 && is_file(fd, m->inode, i == IN_OURS ? m->device : 0)) {
			if (inexact >= 0)
				close(inexact);
			return fd;
		}
		if (fd >= 0 && inexact < 0 && (i == IN_ITS_ROOT || i == IN_OURS))
			inexact = fd;
		else if (fd >= 0)
			close(fd);
	}
	*exact = false;
	if (lack && inexact >= 0)
		close(inexact);
	if (lack)
		return lack;
	return inexact >= 0 ? inexact : -ENOENT;
}

/* ------------------------------------------------- what cannot be opened */

enum { PIECE = 1 << 16, SEARCHED_MOST = 64 << 20 };

/* True if memory from `lo` on names a switch, or cannot be read. */
static bool names_switch(const struct target *t, taddr_t lo, taddr_t hi, uint8_t *piece)
{
	for (taddr_t at = lo, size; at < hi; at += size - PARKS_NAME_MAX) {
		size = hi - at < PIECE ? hi - at : PIECE;
		if (target_read_some(t, at, piece, size) != size || parks_are_named(piece, size))
			return true;
		if (at + size == hi)
			break;
	}
	return false;
}

/* The names of what it takes from others are mapped with it, wherever they are. */
bool module_may_switch(const struct reading *r, const struct maps_entry *m)
{
	uint64_t left = SEARCHED_MOST;
	uint8_t *piece = malloc(PIECE);
	bool may = !piece;

	for (size_t i = 0; i < r->maps.count && !may; i++) {
		const struct maps_entry *other = &r->maps.entries[i];

		if (other->inode != m->inode || other->device != m->device ||
		    !(other->protection & PROT_READ))
			continue;
		may = other->hi - other->lo > left ||
		      names_switch(r->target, other->lo, other->hi, piece);
		left -= may ? 0 : other->hi - other->lo;
	}
	free(piece);
	return may;
}
