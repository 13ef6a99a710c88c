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
	struct timespec written,
		changed; /* what is in it, also by who sets the first back; or what is said of it */
	bool served;	 /* a program or a server provides it, which may hang */
};

/* Of the open file of mapping `m`, `mounts` (mounts_read()) may be NULL; all zero if it cannot be had. */
struct file_stamp file_stamp(int fd, const char *mounts, const struct maps_entry *m);

enum { MAIN_ROOT_TEXT = 64 };

/*
 * "/proc/TID/root" of a thread of `t` that lives into root; "" before the first time. True if it is
 * another one than before.
 */
bool main_root_find(const struct target *t, char root[MAIN_ROOT_TEXT]);

/* Finds out what `t` runs; `root` is main_root_find()'s. */
void main_program_find(const struct target *t, const char *root, struct main_program *p);

/* An image, or why there is none, for one file. */
struct file_image {
	dev_t device;
	uint64_t inode;
	struct image *image;
	struct file_stamp stamp;
	char problem[160];
	bool exact; /* it is the mapped file for sure, not only one of its name */
	bool none;  /* not ELF, and not a file that anybody meant to be: no module */
};

struct entry; /* module.c */

struct module_list {
	struct entry **entries;
	size_t count, capacity;
	struct file_image *files;
	size_t file_count, file_capacity;
	size_t near; /* of the files, the last one that was found */
};

/* One look at the maps. */
struct reading {
	struct module_list *list;
	const struct target *target;
	struct maps maps;
	char root[MAIN_ROOT_TEXT];
	struct main_program main;
	bool main_known; /* by now */
	char *mounts;	 /* mounts_read(), when somebody has asked; freed with it */
	bool changed;
	struct dinst_error *e;
};

/* The path as the target sees it: the maps write a newline as "\012". Malloc'ed. */
char *module_plain_path(const char *name);

/* True for code of a file, but ours. */
bool module_file_is_code(const struct maps_entry *m);

/* What is known of a mapping's file; NULL if nobody has looked at it. */
struct file_image *module_file_find(struct module_list *l, const struct maps_entry *m);

/* Code of no ELF file: a program has made it itself, or it is for another loader. */
bool module_is_no_library(const struct reading *r, taddr_t start);

/*
 * False of a file that no image could be made of, and that will never have one: what a program has made itself may be
 * written to all the time.
 */
bool file_may_be_rewritten(const struct reading *r, const struct file_image *f,
			   const struct maps_entry *m);

/*
 * 1 if the file of mapping `m`, one of r->maps, is the stamp's and has been written since,
 * and nothing in its code is ours or another tool's: then it may have been loaded anew, and
 * it does no harm to take it for that. Else 0; -1 where nobody can tell now. Waits for nobody who provides the file
 * where the mapping itself leads to it (CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE); by its name only whoever
 * provides it can be asked.
 */
int file_is_rewritten(const struct reading *r, const struct file_stamp *stamp,
		      const struct maps_entry *m, const char *path);

/*
 * A descriptor of a mapping's file, or -ENOENT; -EMFILE and the like where there may be one, but
 * nobody can look now. *exact: it is that file for sure.
 */
int module_file_open(const struct reading *r, const struct maps_entry *m, const char *path,
		     bool *exact);

/* The image of a mapping's file, opened once while it is not written. NULL, and why, without memory or descriptors. */
struct file_image *module_file_of(struct reading *r, const struct maps_entry *m, const char *path);

/*
 * True if a library that nobody can read as a file, of which `m` is mapped, may switch between tasks: what is mapped of
 * it names what does (parks.h), or is not to be seen.
 */
bool module_may_switch(const struct reading *r, const struct maps_entry *m);

/* True if its image is what the mapping shows, by what is in memory; not that of a file which has only its name. */
bool module_file_shows(const struct reading *r, const struct file_image *f,
		       const struct maps_entry *m);

/* True if `name` is the module's base name, path or soname. */
bool module_has_name(const struct module *m, const char *name);

#endif
