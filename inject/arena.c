/* SPDX-License-Identifier: MIT */
/*
 * arena.c - making and removing arenas.
 *
 * Owns the sizes that are tried and in which order. How an arena is mapped is
 * in arena_map.c, where in arena_place.c, how it is taken out in arena_unmap.c.
 */
#include "inject/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "inject/arena_map.h"
#include "inject/arena_place.h"
#include "inject/maps.h"

static const size_t MIB = (size_t)1 << 20;
static const size_t CODE_MOST = (size_t)512 << 20;

enum {
	PAGE = 4096,
	CPU_SHIFT_MIN = 16,
	CODE_PER_TEXT = 128, /* bytes of code half for a byte of text: all of it, several times */
	SHARED_JUMP_ROOM =
		64 << 20, /* bytes kept free around a code half that lies as jumps want it */
};

/*
 * What is tried, one after the other, where there is no room for more. A CPU's block of counters is
 * as large as that, or less where there are so many CPUs that all of them would take more than
 * `data`. It is room only: pages exist once they are used. A distribution takes 15 KiB of a
 * block, a vector 128 KiB.
 */
static const struct sizes {
	size_t code; /* 0: by the size of the text that is served, if that is more than the next */
	size_t block, data;
} sizes[] = {
	{0, (size_t)8 << 20, (size_t)512 << 20},
	{(size_t)64 << 20, (size_t)8 << 20, (size_t)512 << 20},
	{(size_t)64 << 20, (size_t)1 << 20, (size_t)128 << 20},
	{(size_t)16 << 20, (size_t)1 << 20, (size_t)128 << 20},
	{(size_t)4 << 20, (size_t)8 << 20, (size_t)128 << 20},
	{(size_t)4 << 20, (size_t)512 << 10, (size_t)16 << 20},
	{(size_t)4 << 20, (size_t)64 << 10, (size_t)16 << 20},
	{(size_t)1 << 20, (size_t)64 << 10, (size_t)16 << 20},
};

enum {
	SIZES = sizeof(sizes) / sizeof(sizes[0]),
	FIRST_PRIVATE_SIZE = 4,
	FIRST_LOCKED_SIZE = 6, /* memory that is mapped is taken at once */
};

/* ------------------------------------------------------------------ sizes */

/* False if there is no such size. */
static bool choose_sizes(struct arena *a, size_t which, size_t text)
{
	const struct sizes *size = &sizes[which];
	size_t code = size->code;

	if (!code) {
		code = text < CODE_MOST / CODE_PER_TEXT ? text * CODE_PER_TEXT : CODE_MOST;
		code = (code + 16 * MIB - 1) / (16 * MIB) * (16 * MIB);
		if (code <= sizes[which + 1].code)
			return false;
	}
	a->cpus = arena_possible_cpus();
	a->cpu_shift = CPU_SHIFT_MIN;
	while ((size_t)1 << a->cpu_shift < size->block &&
	       ((size_t)a->cpus + 1) << (a->cpu_shift + 1) <= size->data)
		a->cpu_shift++;
	a->code_size = code;
	a->data_size = ((size_t)a->cpus + 1) << a->cpu_shift;
	return true;
}

/* The data half below 2 GiB, with smaller blocks rather than elsewhere. */
static bool choose_low(struct arena *a, const struct maps *m, const struct arena_limits *limits)
{
	for (unsigned shift = a->cpu_shift; shift >= CPU_SHIFT_MIN; shift--) {
		const size_t size = ((size_t)a->cpus + 1) << shift;

		if (!arena_place_low(m, limits, size, a->code, a->code + a->code_size, &a->data))
			continue;
		a->cpu_shift = shift;
		a->data_size = size;
		return true;
	}
	return false;
}

/*
 * Where the jumps lead that share a byte with a call behind them (arch_shared_jump_least): code is
 * handed out from the end of the half down, so that it ends where those of [lo, hi) all reach.
 */
static bool choose_shared(struct arena *a, const struct maps *m, const struct arena_limits *limits,
			  taddr_t lo, taddr_t hi)
{
	const taddr_t end = (lo - arch_shared_jump_least) / PAGE * PAGE;

	if (!arch_shared_jump_most || lo <= arch_shared_jump_most + a->code_size ||
	    hi - (end - a->code_size) > ARENA_REACH ||
	    !arena_place_is_free(m, limits, end, a->code_size, SHARED_JUMP_ROOM))
		return false;
	a->code = end - a->code_size;
	return true;
}

/* Sets the addresses of both halves; false if there is no room for them. */
static bool choose_places(struct arena *a, const struct maps *m, const struct arena_limits *limits,
			  taddr_t lo, taddr_t hi)
{
	if (!choose_shared(a, m, limits, lo, hi) &&
	    !arena_place_near(m, limits, lo, hi, a->code_size, 0, 0, &a->code))
		return false;
	a->low_data = choose_low(a, m, limits);
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
			"the target has no memory left for an arena of %zu KiB (RLIMIT_AS, RLIMIT_DATA?)",
			(a->code_size + a->data_size) >> 10);
	return dinst_fail(e, DINST_NO_MEMORY,
			  "no free %zu KiB of address space within 2 GiB of %#llx-%#llx",
			  a->code_size >> 10, (unsigned long long)lo, (unsigned long long)hi);
}

/* Private memory that is locked is filled at once, by the target. */
static int limit_locked(const struct arena *a, struct arena_limits *limits, struct dinst_error *e)
{
	struct memory_room room = {.bytes = UINT64_MAX};
	int result = DINST_OK;

	if (limits->locks_memory)
		result = target_memory_room(a->target, &room, e);
	if (!result && room.bytes < limits->own_room)
		limits->own_room = room.bytes;
	return result;
}

/* Tries one size after the other; `private` starts with the fallback. */
static int create(struct stop *s, struct arena *a, taddr_t lo, taddr_t hi, size_t text,
		  bool private, struct dinst_error *e)
{
	struct arena_limits limits;
	bool placed = false;
	const struct maps *m;
	int result;

	result = arena_limits_read(target_memory_tid(a->target), &limits, e);
	if (!result)
		result = limit_locked(a, &limits, e);
	if (result)
		return result;
	a->commits = limits.commits;
	a->locks_memory = limits.locks_memory;
	a->locked = limits.locked;
	for (size_t which = limits.locks_memory ? FIRST_LOCKED_SIZE
			    : private		? FIRST_PRIVATE_SIZE
						: 0;
	     which < SIZES; which++) {
		enum arena_attempt outcome;

		result = stop_maps(s, &m, e);
		if (result)
			return result;
		if (!choose_sizes(a, which, text) || !choose_places(a, m, &limits, lo, hi))
			continue;
		placed = true;
		/* What is left is the target's, which may need it at any time. */
		if (a->code_size + a->data_size >
		    (private ? limits.own_room : limits.room) / ARENA_SHARE)
			continue;
		outcome = private ? arena_map_private(s, a, e) : arena_map_shared(s, a, e);
		if (outcome == ARENA_ATTEMPT_PRIVATE) {
			/* Again from the largest private size on; it never says PRIVATE. */
			private = true;
			which = (limits.locks_memory ? FIRST_LOCKED_SIZE : FIRST_PRIVATE_SIZE) - 1;
			continue;
		}
		/* It locks what is mapped, as was seen only now. */
		if (outcome == ARENA_ATTEMPT_SMALLER && a->locks_memory && !limits.locks_memory) {
			limits.locks_memory = true;
			result = limit_locked(a, &limits, e);
			if (result)
				return result;
			which = FIRST_LOCKED_SIZE - 1;
		}
		if (outcome == ARENA_ATTEMPT_SMALLER)
			continue;
		return outcome == ARENA_ATTEMPT_DONE ? DINST_OK
						     : (e && e->code ? e->code : DINST_FAILED);
	}
	return no_room(a, lo, hi, placed, e);
}

/* `private`: why it is to be private from the beginning, or NULL. */
static int create_any(struct stop *s, taddr_t lo, taddr_t hi, size_t text, const char *private,
		      struct arena **out, struct dinst_error *e)
{
	struct arena *a = calloc(1, sizeof(*a));
	int result;

	if (!a)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for an arena");
	a->fd = -1;
	a->target = stop_target(s);
	if (private)
		snprintf(a->note, sizeof(a->note), "%s", private);
	result = create(s, a, lo, hi, text, private != NULL, e);
	if (result)
		free(a);
	else
		*out = a;
	return result;
}

int arena_create(struct stop *s, taddr_t lo, taddr_t hi, size_t text, struct arena **out,
		 struct dinst_error *e)
{
	return create_any(s, lo, hi, text, NULL, out, e);
}

int arena_create_private(struct stop *s, taddr_t lo, taddr_t hi, size_t text, const char *why,
			 struct arena **out, struct dinst_error *e)
{
	return create_any(s, lo, hi, text, why, out, e);
}

/* ------------------------------------------------------------ afterwards */

int arena_destroy(struct stop *s, struct arena *a, struct dinst_error *e)
{
	int result = arena_unmap(s, a, e);

	if (!result)
		arena_release(a);
	return result;
}

int arena_make_pages(const struct arena *a, size_t at, size_t size, struct dinst_error *e)
{
	int status;

	if (!a->commits || a->mode != ARENA_SHARED)
		return DINST_OK;
	do
		status = fallocate(a->fd, 0, (off_t)at, (off_t)size);
	while (status && errno == EINTR);
	if (!status)
		return DINST_OK;
	return dinst_fail(
		e, DINST_NO_MEMORY,
		"no memory for %zu KiB of instrumentation (%s): where vm.overcommit_memory "
		"is 2 it must be there beforehand; insert less, or raise the limit",
		(size + 1023) >> 10, strerror(errno));
}

void arena_close_ours(struct arena *a)
{
	if (a->mode == ARENA_SHARED && a->code_map) {
		munmap(a->code_map, a->code_size + a->data_size);
	} else if (a->code_map) {
		munmap(a->code_map, 2 * a->code_size);
		munmap(a->data_map, 2 * a->data_size);
	}
	if (a->fd >= 0)
		close(a->fd);
	free(a->data_dirty);
	a->data_dirty = NULL;
	a->code_map = a->data_map = a->code_sent = a->data_sent = NULL;
	a->fd = -1;
	a->device = 0;
	a->inode = 0;
}

void arena_release(struct arena *a)
{
	if (!a)
		return;
	arena_close_ours(a);
	free(a);
}

/* Sends the bytes of one page that differ from what was sent. */
static int send_code_page(struct stop *s, struct arena *a, size_t at, struct dinst_error *e)
{
	const uint8_t *map = a->code_map;
	uint8_t *sent = a->code_sent;
	size_t first = at, end = at + PAGE;
	int result;

	if (!memcmp(map + at, sent + at, PAGE))
		return DINST_OK;
	while (map[first] == sent[first])
		first++;
	while (map[end - 1] == sent[end - 1])
		end--;
	result = stop_write(s, a->code + first, map + first, end - first, e);
	if (!result)
		memcpy(sent + first, map + first, end - first);
	return result;
}

/* Sends the words of one page that were written here: what lies between them is the target's. */
static int send_data_page(struct stop *s, struct arena *a, size_t at, struct dinst_error *e)
{
	const size_t word = sizeof(uint64_t), page_end = at + PAGE;
	const uint8_t *map = a->data_map;
	uint8_t *sent = a->data_sent;
	int result = DINST_OK;

	while (!result && at < page_end) {
		size_t end = at;

		while (end < page_end && memcmp(map + end, sent + end, word))
			end += word;
		if (end > at) {
			result = stop_write(s, a->data + at, map + at, end - at, e);
			if (!result)
				memcpy(sent + at, map + at, end - at);
		}
		at = end + word;
	}
	return result;
}

void arena_data_written(struct arena *a, size_t offset, size_t size)
{
	if (a->mode == ARENA_SHARED || !size)
		return;
	for (size_t page = offset / PAGE; page <= (offset + size - 1) / PAGE; page++)
		a->data_dirty[page] = true;
}

int arena_sync(struct stop *s, struct arena *a, struct dinst_error *e)
{
	int result = DINST_OK;

	if (a->mode == ARENA_SHARED)
		return DINST_OK;
	/* Data first: code that is seen may use it. */
	for (size_t page = 0; !result && page < a->data_size / PAGE; page++) {
		if (!a->data_dirty[page])
			continue;
		result = send_data_page(s, a, page * PAGE, e);
		a->data_dirty[page] = result != DINST_OK;
	}
	for (size_t at = 0; !result && at < a->code_size; at += PAGE)
		result = send_code_page(s, a, at, e);
	return result;
}
