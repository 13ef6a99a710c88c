/* SPDX-License-Identifier: MIT */
/*
 * maps.h - the mappings of a process, as /proc/PID/maps tells them (proc_pid_maps(5)).
 *
 * A plain copy of what was true at one moment: while the target runs it may be
 * out of date when it is returned, and mappings that were changed between two
 * reads of the kernel's text may be seen twice or not at all. In a stop it is
 * exact. Entries are sorted by address and do not overlap.
 *
 * Calling sequence: maps_read(), look, maps_release().
 */
#ifndef DINST_INJECT_MAPS_H
#define DINST_INJECT_MAPS_H

#include <sys/types.h>

#include "arch/arch.h"
#include "inject/error.h"

struct maps_entry {
	taddr_t lo, hi;	 /* [lo, hi) */
	uint64_t offset; /* of lo in the file */
	uint64_t inode;	 /* 0: no file */
	dev_t device;	 /* as stat(2) gives it, 0: no file */
	int protection;	 /* PROT_READ, PROT_WRITE, PROT_EXEC */
	bool shared;
	const char *name; /* "" if none; owned by struct maps; a newline is "\012" in it */
};

struct maps {
	struct maps_entry *entries;
	size_t count;
	char *text; /* what the names point into */
};

/*
 * Reads the mappings of `pid` (through any thread that still has them, where
 * the leader has exited). On failure *m is empty and needs no release.
 */
int maps_read(pid_t pid, struct maps *m, struct dinst_error *e);

/*
 * Parses `size` bytes of a maps file; takes over `text`, which must be
 * malloc'ed with room for one byte more. Lines that are not as they should be
 * are an error (DINST_BAD_FILE).
 */
int maps_parse(char *text, size_t size, struct maps *m, struct dinst_error *e);

void maps_release(struct maps *m);

/* The entry that contains `address`, or NULL. */
const struct maps_entry *maps_find(const struct maps *m, taddr_t address);

/* Index of the first entry that ends above `address`; m->count if there is none. */
size_t maps_index(const struct maps *m, taddr_t address);

/*
 * Where the stack ends that `entry`, one of m's, is a part of: in itself, or in the mapping that is called
 * [stack] or has `pointer`, the thread's, in it, where nothing but anonymous memory lies between.
 */
const struct maps_entry *maps_stack_end(const struct maps *m, const struct maps_entry *entry,
					taddr_t pointer);

/*
 * The mapping of the start of the file that `entry`, one of m's, shows: at or below it, and not
 * behind a thousand others. NULL if there is none.
 */
const struct maps_entry *maps_file_start(const struct maps *m, const struct maps_entry *entry);

/* True if nothing is mapped in [lo, hi). */
bool maps_is_free(const struct maps *m, taddr_t lo, taddr_t hi);

/*
 * 0 if what is at `page` is a file's as it stands there, or nothing yet; 1 if it is a private copy; -1 where
 * that cannot be told, so that it may be one. By a descriptor of /proc/PID/pagemap; with -1 nothing is known.
 */
int maps_page_is_copy(int pagemap, taddr_t page);
/* The same of what was read there for a page. */
bool maps_is_copy(uint64_t entry);
/* It is a copy that another process may have, too, by fork(): who writes to it gets one for itself. */
bool maps_is_inherited(uint64_t entry);
/* Opens it; -1 if it cannot be. */
int maps_open_pagemap(pid_t tid);
/*
 * Behind the pages from `address` on that are guards (MADV_GUARD_INSTALL), at most `end`; `address` if there
 * are none, or none that this kernel tells.
 */
taddr_t maps_skip_guards(int pagemap, taddr_t address, taddr_t end);
extern const uint64_t MAPS_PAGEMAP_GUARD; /* in an entry of a page: it is one */
extern const uint64_t MAPS_PAGEMAP_THERE; /* ... it is present, or swapped out, or a guard */
/*
 * The first page of [address, end) that there is, or that is swapped out; `end` if there is none. However much is
 * mapped: where nothing is, the kernel does not look. `address` itself where it does not tell (before Linux 6.7).
 */
taddr_t maps_first_page(int pagemap, taddr_t address, taddr_t end);
/* True if it tells (PAGEMAP_SCAN, Linux 6.7). */
bool maps_finds_pages(int pagemap);
/* True if no byte of [address, address + length), length > 0, lies in what may be a copy: nobody wrote there. */
bool maps_is_untouched(int pagemap, taddr_t address, size_t length);

/* True if what is shared there is memory and no file, as children are to share it, or who knows its key or name. */
bool maps_shares_memory(const struct maps_entry *entry);

/* The first entry with that exact name ("[stack]", "[heap]", a path), or NULL. */
const struct maps_entry *maps_named(const struct maps *m, const char *name);

#endif
