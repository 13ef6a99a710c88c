/* SPDX-License-Identifier: MIT */
/*
 * arena.c - making and removing arenas.
 *
 * Owns the sizes that are tried and in which order. How an arena is mapped is
 * in arena_map.c, where in arena_place.c, how it is taken out in arena_unmap.c.
 */
#include "inject/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inject/arena_map.h"
#include "inject/arena_place.h"
#include "inject/maps.h"

static const size_t MIB = (size_t)1 << 20;
static const size_t DATA_MOST = (size_t)128 << 20; /* bytes of a data half, if the CPUs allow */
static const size_t CODE_MOST = (size_t)512 << 20;

enum {
	CPU_SHIFT_MIN = 16,
	CODE_PER_TEXT = 12, /* bytes of code half for a byte of text: all of it instrumented */
	BLOCK_SHARE = 64,   /* of the code half's size: a CPU's block of counters */
};

/* What is tried, one after the other, where there is no room for more. */
static const size_t code_sizes[] = {
	0, /* by the size of the text that is served, if that is more than the next */
	(size_t)64 << 20,
	(size_t)16 << 20,
	(size_t)4 << 20,
	(size_t)1 << 20,
};

enum { SIZES = sizeof(code_sizes) / sizeof(code_sizes[0]), FIRST_SMALL_SIZE = 3 };

/* ------------------------------------------------------------------ sizes */

/* False if there is no such size. */
static bool choose_sizes(struct arena *a, size_t which, size_t text)
{
	size_t code = code_sizes[which];

	if (!code) {
		code = text < CODE_MOST / CODE_PER_TEXT ? text * CODE_PER_TEXT : CODE_MOST;
		code = (code + 16 * MIB - 1) / (16 * MIB) * (16 * MIB);
		if (code <= code_sizes[which + 1])
			return false;
	}
	a->cpus = arena_possible_cpus();
	a->cpu_shift = CPU_SHIFT_MIN;
	while ((size_t)1 << a->cpu_shift < code / BLOCK_SHARE &&
	       ((size_t)a->cpus + 1) << (a->cpu_shift + 1) <= DATA_MOST)
		a->cpu_shift++;
	a->code_size = code;
	a->data_size = ((size_t)a->cpus + 1) << a->cpu_shift;
	return true;
}

/* Sets the addresses of both halves; false if there is no room for them. */
static bool choose_places(struct arena *a, const struct maps *m, const struct arena_limits *limits,
			  taddr_t lo, taddr_t hi)
{
	if (!arena_place_near(m, limits, lo, hi, a->code_size, 0, 0, &a->code))
		return false;
	a->low_data =
		arena_place_low(m, limits, a->data_size, a->code, a->code + a->code_size, &a->data);
	if (!a->low_data &&
	    !arena_place_near(m, limits, a->code, a->code + a->code_size, a->data_size, a->code,
			      a->code + a->code_size, &a->data))
		return false;
	a->reach_lo =
		a->code + a->code_size > ARENA_REACH ? a->code + a->code_size - ARENA_REACH : 0;
	a->reach_hi = a->code + ARENA_REACH;
	return true;
}

/* --------------------------------------------------------------- creation */

static int no_room(const struct arena *a, taddr_t lo, taddr_t hi, bool placed,
		   struct dinst_error *e)
{
	if (placed)
		return dinst_fail(
			e, DINST_NO_MEMORY,
			"the target has no memory left for an arena of %zu KiB (RLIMIT_AS?)",
			(a->code_size + a->data_size) >> 10);
	return dinst_fail(e, DINST_NO_MEMORY,
			  "no free %zu KiB of address space within 2 GiB of %#llx-%#llx",
			  a->code_size >> 10, (unsigned long long)lo, (unsigned long long)hi);
}

/* Tries one size after the other; `private` starts with the fallback. */
static int create(struct stop *s, struct arena *a, taddr_t lo, taddr_t hi, bool private,
		  struct dinst_error *e)
{
	struct arena_limits limits;
	bool placed = false;
	struct maps m;
	int result;

	result = maps_read(target_pid(a->target), &m, e);
	if (result)
		return result;
	arena_limits_read(target_pid(a->target), &limits);
	for (size_t which = private || limits.locks_memory ? FIRST_SMALL_SIZE : 0; which < SIZES;
	     which++) {
		enum arena_attempt outcome;

		if (!choose_sizes(a, which, hi - lo) || !choose_places(a, &m, &limits, lo, hi))
			continue;
		placed = true;
		outcome = private ? arena_map_private(s, a, e) : arena_map_shared(s, a, e);
		if (outcome == ARENA_ATTEMPT_PRIVATE) {
			/* Again from the largest private size on; it never says PRIVATE. */
			private = true;
			which = FIRST_SMALL_SIZE - 1;
			continue;
		}
		if (outcome == ARENA_ATTEMPT_SMALLER)
			continue;
		result = outcome == ARENA_ATTEMPT_DONE ? DINST_OK
						       : (e && e->code ? e->code : DINST_FAILED);
		goto out;
	}
	result = no_room(a, lo, hi, placed, e);
out:
	maps_release(&m);
	return result;
}

static int create_any(struct stop *s, taddr_t lo, taddr_t hi, bool private, struct arena **out,
		      struct dinst_error *e)
{
	struct arena *a = calloc(1, sizeof(*a));
	int result;

	if (!a)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for an arena");
	a->fd = -1;
	a->target = stop_target(s);
	if (private)
		snprintf(a->note, sizeof(a->note), "a private arena was asked for");
	result = create(s, a, lo, hi, private, e);
	if (result)
		free(a);
	else
		*out = a;
	return result;
}

int arena_create(struct stop *s, taddr_t lo, taddr_t hi, struct arena **out, struct dinst_error *e)
{
	return create_any(s, lo, hi, false, out, e);
}

int arena_create_private(struct stop *s, taddr_t lo, taddr_t hi, struct arena **out,
			 struct dinst_error *e)
{
	return create_any(s, lo, hi, true, out, e);
}

/* ------------------------------------------------------------ afterwards */

int arena_destroy(struct stop *s, struct arena *a, struct dinst_error *e)
{
	int result = arena_unmap(s, a, e);

	if (!result)
		arena_release(a);
	return result;
}

void arena_release(struct arena *a)
{
	if (!a)
		return;
	arena_close_ours(a);
	free(a);
}

/* Sends the bytes of one half that differ from what was sent, page by page. */
static int send_half(struct stop *s, taddr_t address, const uint8_t *map, uint8_t *sent,
		     size_t size, struct dinst_error *e)
{
	const size_t page = 4096;

	for (size_t at = 0; at < size; at += page) {
		size_t first = at, end = at + page;
		int result;

		if (!memcmp(map + at, sent + at, page))
			continue;
		while (map[first] == sent[first])
			first++;
		while (map[end - 1] == sent[end - 1])
			end--;
		result = stop_write(s, address + first, map + first, end - first, e);
		if (result)
			return result;
		memcpy(sent + first, map + first, end - first);
	}
	return DINST_OK;
}

int arena_sync(struct stop *s, struct arena *a, struct dinst_error *e)
{
	int result;

	if (a->mode == ARENA_SHARED)
		return DINST_OK;
	/* Data first: code that is seen may use it. */
	result = send_half(s, a->data, a->data_map, a->data_sent, a->data_size, e);
	if (!result)
		result = send_half(s, a->code, a->code_map, a->code_sent, a->code_size, e);
	return result;
}
