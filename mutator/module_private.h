/* SPDX-License-Identifier: MIT */
/*
 * module_private.h - what the module*.c files share.
 */
#ifndef DINST_MUTATOR_MODULE_PRIVATE_H
#define DINST_MUTATOR_MODULE_PRIVATE_H

#include <time.h>

#include "inject/maps.h"
#include "mutator/module.h"

enum { PATH_MAX_TEXT = 4096 + 64 };

/* What the kernel appends to the path of a file that has no name any more. */
extern const char path_deleted[11];
bool path_is_deleted(const char *path);

/* What follows the last slash of a path. */
const char *path_base(const char *path);

/* The executable. */
struct main_program {
	uint64_t inode;
	char path[PATH_MAX_TEXT]; /* as the target sees it, "" if unknown */
	char name[64];		  /* by which it was started, or its base name */
};

/* What tells a file from what was written into its place. */
struct file_stamp {
	uint64_t inode;
	dev_t device;
	off_t size;
	struct timespec written;
};

struct file_stamp file_stamp(int fd);

/*
 * True if the file of mapping `m`, one of `maps`, is the stamp's and has been written since,
 * and nothing in its code is ours or another tool's: then it may have been loaded anew, and
 * it does no harm to take it for that.
 */
bool file_is_rewritten(const struct file_stamp *stamp, const struct target *t,
		       const struct maps *maps, const struct maps_entry *m, const char *path);

enum { MAIN_ROOT_TEXT = 64 };

/*
 * "/proc/TID/root" of a thread of `t` that lives into root; "" before the first time. True if it is
 * another one than before.
 */
bool main_root_find(const struct target *t, char root[MAIN_ROOT_TEXT]);

/* Finds out what `t` runs; `root` is main_root_find()'s. */
void main_program_find(const struct target *t, const char *root, struct main_program *p);

/* True if `name` is the module's base name, path or soname. */
bool module_has_name(const struct module *m, const char *name);

#endif
