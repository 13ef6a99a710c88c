/* SPDX-License-Identifier: MIT */
/*
 * journal.h - what may have been patched, written down before it is.
 *
 * The journal lives in the first pages of an arena's code half. It says what
 * may be there; the truth of a process is its bytes: the original, ours, or
 * neither, and then hands off. Everything read from a target's journal is
 * checked field by field: it is outside input.
 *
 * In a private arena an entry is in the target only after arena_sync().
 */
#ifndef DINST_INJECT_JOURNAL_H
#define DINST_INJECT_JOURNAL_H

#include "inject/arena.h"

struct journal; /* opaque; lives as long as its arena */

enum { JOURNAL_SESSION_MAX = ARENA_SESSION_MAX };

/* Formats the header and an empty journal in a fresh arena. */
int journal_create(struct arena *a, const char *session, struct journal **out,
		   struct dinst_error *e);
void journal_destroy(struct journal *j); /* our side only */

/* Bytes at the start of the code half that header and journal take. */
size_t journal_size(const struct arena *a);

/*
 * Says in the header of `a` that below `offset` of the code half, where the journal does not lie, there
 * is no code of ours and never was: before any is written there. For heap.c.
 */
void journal_note_floor(struct arena *a, size_t offset);

struct journal_entry {
	taddr_t address;
	uint8_t length; /* 1 .. ARCH_PATCH_MAX */
	uint8_t original[ARCH_PATCH_MAX];
	uint8_t patched[ARCH_PATCH_MAX];
};

enum { JOURNAL_NO_CHANCE = 3 }; /* so many bytes are not as we wrote them by chance */

/* Records that `entry` may be applied from now on. *index names it. */
int journal_add(struct journal *j, const struct journal_entry *entry, unsigned *index,
		struct dinst_error *e);
/* True if something has found no room since it was last asked. */
bool journal_was_full(struct journal *j);
/* The bytes are the original again and stay so. */
void journal_remove(struct journal *j, unsigned index);

/* For qsort() of pointers to entries that stand in one array: by address, and then as they stand there. */
int journal_by_address(const void *x, const void *y);

/*
 * Valid entries of a journal found in a target (arena_find). *out is malloc'ed,
 * and never NULL on success. Entries that are torn, or whose bytes do not lie
 * in executable memory of a file any more, nor in what the program has put in its place (segments.h), are left
 * out, but for those whose bytes are ours still: the program has put its text there. Entries may overlap.
 */
int journal_read(const struct target *t, const struct arena_found *found,
		 struct journal_entry **out, size_t *count, struct dinst_error *e);

#endif
