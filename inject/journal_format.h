/* SPDX-License-Identifier: MIT */
/*
 * journal_format.h - the layout of an arena's first pages; for journal.c,
 * arena*.c and tests only.
 *
 *     offset 0        struct journal_header       one page
 *     offset 4096     struct journal_slot [capacity], 64 bytes each
 *
 * All numbers are in the byte order of the machine: the journal never leaves
 * it. A reader believes nothing that journal_check_header() and
 * journal_check_slot() have not accepted.
 */
#ifndef DINST_INJECT_JOURNAL_FORMAT_H
#define DINST_INJECT_JOURNAL_FORMAT_H

#include "inject/arena.h"
#include "inject/journal.h"

enum {
	JOURNAL_HEADER_SIZE = 4096,
	JOURNAL_VERSION = 1,
	JOURNAL_CAPACITY_MAX = 1024 * 1024,
	JOURNAL_LIVE = 0x4556494c, /* "LIVE": the slot's state word; anything else is no entry */
};

#define JOURNAL_MAGIC "dinst\0\1\n"

struct journal_header {
	char magic[8];
	uint32_t version, header_size, slot_size, capacity;
	char session[JOURNAL_SESSION_MAX]; /* ends with a zero */
	uint64_t code, code_size, data, data_size;
	uint32_t mode, cpus, cpu_shift, low_data;
	uint32_t checksum; /* of everything above */
	uint32_t unused;
	/* Slots at and above this index were never used: the index, and its complement above it. */
	uint64_t high;
	/* The private part (arena.h), written before it is mapped; the complement of their sum. */
	uint64_t threads, threads_size, threads_check;
	/* The mutator: its pid, and its start time, which tells it from a later one; 0: not told. */
	uint64_t owner, owner_start;
	/* Pages of the code half below this one never held code: the number, and its complement above it. */
	uint64_t floor;
	/* The pid namespace in which the mutator has that pid: its inode (pid_space.h); 0: not told. */
	uint64_t owner_space;
};

struct journal_slot {
	uint64_t address;
	uint8_t original[ARCH_PATCH_MAX];
	uint8_t patched[ARCH_PATCH_MAX];
	uint8_t length;
	uint8_t unused[15];
	uint32_t checksum; /* of everything above, started with the header's */
	uint32_t state;	   /* written last */
};

_Static_assert(sizeof(struct journal_slot) == 64, "a slot is one cache line");
_Static_assert(sizeof(struct journal_header) <= JOURNAL_HEADER_SIZE, "the header is one page");

/* Entries that a code half of that size has room for. */
size_t journal_capacity(size_t code_size);

uint32_t journal_header_checksum(const struct journal_header *h);
uint32_t journal_slot_checksum(const struct journal_slot *slot, uint32_t header_checksum);

/*
 * Fills *found from a header that was read at `code`, the start of a mapping of
 * `mapped` bytes. False, with *found untouched, if any field is wrong.
 */
bool journal_check_header(const struct journal_header *h, taddr_t code, size_t mapped,
			  struct arena_found *found);

/* The number of slots that can hold entries, never more than the capacity. */
size_t journal_high(const struct journal_header *h);

/* The bytes at the start of the code half that never held code; 0 where that is not told. */
size_t journal_floor(const struct journal_header *h);

/* Fills *entry from a slot; false if it is empty, torn or wrong. Knows no maps. */
bool journal_check_slot(const struct journal_slot *slot, uint32_t header_checksum,
			struct journal_entry *entry);

#endif
