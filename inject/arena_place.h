/* SPDX-License-Identifier: MIT */
/*
 * arena_place.h - where in a target's address space an arena may go; for arena.c.
 *
 * Pure but for arena_limits_read(). Addresses that are returned are free in
 * the maps given, outside of what the target's heap and stack may grow into.
 */
#ifndef DINST_INJECT_ARENA_PLACE_H
#define DINST_INJECT_ARENA_PLACE_H

#include "inject/maps.h"

/* How far apart two bytes may be that lead to each other: 2 GiB less a margin. */
#define ARENA_REACH (((taddr_t)1 << 31) - ((taddr_t)16 << 20))

/* What the maps do not say. */
struct arena_limits {
	taddr_t bottom;	     /* nothing may be mapped below */
	taddr_t brk_start;   /* where the brk heap begins, 0 if not known */
	taddr_t stack_limit; /* bytes that the main stack may grow to */
	bool locks_memory;   /* new mappings may be populated at once (mlockall) */
	uint64_t room;	     /* bytes that it may map (RLIMIT_AS) */
	uint64_t own_room;   /* the same, private and to be written to (RLIMIT_DATA) */
	bool commits;	     /* arena_commits() */
	uint64_t locked;     /* arena_locked_bytes() */
};

/* What an arena may take of the room that is left to a target: a part in so many. */
enum { ARENA_SHARE = 4 };

/*
 * DINST_BUSY where we have no descriptor or memory to look. What cannot be read for another reason is no limit, or
 * is replaced by a cautious value.
 */
int arena_limits_read(pid_t pid, struct arena_limits *limits, struct dinst_error *e);

/* RLIMIT_AS, DATA, STACK or MEMLOCK of a process; UINT64_MAX: none, or it is kept from us; 0 where we have no descriptor to look. */
uint64_t arena_limit(pid_t pid, int resource);

/* Bytes of locked memory, as the kernel counts mappings. DINST_BUSY as arena_limits_read(); 0 bytes where nobody tells. */
int arena_locked_bytes(pid_t pid, uint64_t *bytes, struct dinst_error *e);

/*
 * True where the kernel promises no more memory than there is (vm.overcommit_memory is 2), by the
 * text of that file. A page of shared memory counts when it comes to exist there: whoever is first
 * to touch it, when nothing is left, gets SIGBUS.
 */
bool arena_commits(const char *overcommit);

/*
 * Bytes of private memory that a process may map where arena_commits(), by the text of that file and
 * of /proc/meminfo; UINT64_MAX elsewhere. What is left is everybody's, and each child takes as much
 * once more.
 */
uint64_t arena_commit_room(const char *overcommit, const char *meminfo);

/*
 * What is used in `other`, too, counts as used in *m; for the functions below only: entries may overlap
 * then. Of the names those stay that say what may grow. False without memory: *m is as it was.
 */
bool arena_place_add(struct maps *m, const struct maps *other);

/*
 * A place for `size` bytes such that each of them is at most ARENA_REACH from
 * each byte of [lo, hi), with as much room above and below as possible.
 * [avoid_lo, avoid_hi) counts as used. False if there is none.
 */
bool arena_place_near(const struct maps *m, const struct arena_limits *limits, taddr_t lo,
		      taddr_t hi, size_t size, taddr_t avoid_lo, taddr_t avoid_hi, taddr_t *out);

/* True if `size` bytes that end at `end` are free, with `room` free bytes below and above. */
bool arena_place_is_free(const struct maps *m, const struct arena_limits *limits, taddr_t end,
			 size_t size, size_t room);

/*
 * The highest place for `size` bytes that ends below 2 GiB, with room for a stack between it and what
 * lies above. False if there is none, or if it took too much of what is left there (ARENA_SHARE).
 */
bool arena_place_low(const struct maps *m, const struct arena_limits *limits, size_t size,
		     taddr_t avoid_lo, taddr_t avoid_hi, taddr_t *out);

/* Possible CPUs: one more than the highest id that any CPU can ever have. */
unsigned arena_possible_cpus(void);

/* Parses a list of the kernel ("0-3,8"): one more than the highest number, 0 if malformed. */
unsigned arena_parse_cpus(const char *list);

#endif
