/* SPDX-License-Identifier: MIT */
/*
 * arena_map.h - one attempt to map an arena of given size and place; for arena.c.
 *
 * The caller has set code, data, both sizes, cpus, cpu_shift and target; fd is
 * -1. After ARENA_ATTEMPT_DONE everything in *a is valid; after anything else
 * the target has none of it, and neither have we.
 */
#ifndef DINST_INJECT_ARENA_MAP_H
#define DINST_INJECT_ARENA_MAP_H

#include "inject/arena.h"

/* What a new memfd is tried with (and its inode number), in its first bytes: zero again soon. */
#define ARENA_PROBE 0x64696e7374000000u

enum arena_attempt {
	ARENA_ATTEMPT_DONE,
	ARENA_ATTEMPT_SMALLER, /* no memory, or the place was taken: try a smaller one */
	ARENA_ATTEMPT_PRIVATE, /* a shared arena is not to be had here: a->note says why */
	ARENA_ATTEMPT_ERROR,   /* the machinery failed: *e is filled */
};

/*
 * Where the target locks all that it maps, and may lock so much only (RLIMIT_MEMLOCK): what is ours
 * takes nothing of that. As good as can be. Two ranges; the second one may be empty.
 */
void arena_unlock(struct stop *s, taddr_t at, size_t size, taddr_t other, size_t other_size);

enum arena_attempt arena_map_shared(struct stop *s, struct arena *a, struct dinst_error *e);

/* Never ARENA_ATTEMPT_PRIVATE. */
enum arena_attempt arena_map_private(struct stop *s, struct arena *a, struct dinst_error *e);

/* Gives back our mappings and the descriptor; the target keeps its own. */
void arena_close_ours(struct arena *a);

#endif
