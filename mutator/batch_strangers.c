/* SPDX-License-Identifier: MIT */
/*
 * batch_strangers.c - jumps that somebody else has written into a function that we patch: a
 * program that overwrites its own code (a static key that is on), or another tool. Where they lead
 * the file does not tell, so that a window may have been planned over it. That the
 * window's own bytes are the file's says nothing of that.
 *
 * Reads the target's memory while it runs. What is written after that is not seen.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inject/maps.h"
#include "mutator/batch_private.h"

enum { CODE_PIECE = 1 << 20 }; /* bytes of a function that are read at a time */

struct looking {
	struct batch *b;
	int pagemap;
	const struct patch **own; /* by address */
	size_t own_count;
	taddr_t behind; /* what was written over the file's instructions */
};

static int by_address(const void *a, const void *b)
{
	const struct patch *const *x = a, *const *y = b;

	return (*x)->address < (*y)->address ? -1 : (*x)->address > (*y)->address;
}

/* All that this session may have written. False without memory. */
static bool collect_own(struct looking *l)
{
	const struct session *s = l->b->session;

	if (l->own)
		return true;
	l->own = calloc(2 * s->site_count + 1, sizeof(*l->own));
	for (size_t i = 0; l->own && i < s->site_buckets; i++)
		for (const struct site *site = s->site_hash[i]; site; site = site->next_hash)
			for (unsigned k = 0; k < site->patch_count; k++)
				if (l->own_count < 2 * s->site_count)
					l->own[l->own_count++] = &site->patches[k];
	if (l->own)
		qsort(l->own, l->own_count, sizeof(*l->own), by_address);
	return l->own;
}

/* Takes out of `memory`, a copy of what is at `lo`, what is ours. */
static void forget_own(const struct looking *l, taddr_t lo, uint8_t *memory, size_t size)
{
	size_t from = 0, to = l->own_count;

	while (from < to) {
		const size_t mid = from + (to - from) / 2;

		if (l->own[mid]->address + ARCH_PATCH_MAX <= lo)
			from = mid + 1;
		else
			to = mid;
	}
	for (; from < l->own_count && l->own[from]->address < lo + size; from++) {
		const struct patch *p = l->own[from];
		const size_t skipped = p->address < lo ? lo - p->address : 0;
		const size_t at = p->address + skipped - lo;
		size_t length = p->length > skipped ? p->length - skipped : 0;

		if (length > size - at)
			length = size - at;
		if (!memcmp(memory + at, p->after + skipped, length))
			memcpy(memory + at, p->before + skipped, length);
	}
}

/* Somebody's jump leads to `target`: whose window is that in the middle of? */
static void found_jump(const struct looking *l, taddr_t target)
{
	size_t from = 0, to = l->b->count;
	const struct site *site;

	while (from < to) {
		const size_t mid = from + (to - from) / 2;

		if (l->b->sites[mid]->key.start < target)
			from = mid + 1;
		else
			to = mid;
	}
	if (!from)
		return;
	site = l->b->sites[from - 1];
	if (target - site->key.start < (taddr_t)site->window.length + site->window.padding)
		l->b->foreign[from - 1] = true;
}

/*
 * Finds the jumps that are in memory and not in the file. How many bytes it has looked at: whole
 * instructions, and, unless `last` says that there is nothing behind it, none that might be cut off.
 */
static size_t compare(struct looking *l, taddr_t address, const uint8_t *file,
		      const uint8_t *memory, size_t size, bool last)
{
	const size_t end = last ? size : size - ARCH_INSN_MAX;
	size_t at = 0;

	while (at < end) {
		struct arch_insn was, is;
		size_t length = 1;

		if (arch_decode(file + at, size - at, address + at, &was) == ARCH_OK)
			length = was.length;
		if (address + at >= l->behind && memcmp(file + at, memory + at, length) != 0 &&
		    arch_decode(memory + at, size - at, address + at, &is) == ARCH_OK) {
			l->behind = address + at + is.length;
			if (is.flow == ARCH_FLOW_JUMP || is.flow == ARCH_FLOW_BRANCH ||
			    is.flow == ARCH_FLOW_CALL)
				found_jump(l, is.target);
		}
		at += length;
	}
	return at;
}

/* Pages that nobody has written to are the file's. */
static bool has_copies(const struct looking *l, taddr_t lo, taddr_t hi)
{
	const taddr_t page = (taddr_t)sysconf(_SC_PAGESIZE);

	for (taddr_t at = lo / page * page; at < hi; at += page)
		if (maps_page_is_copy(l->pagemap, at))
			return true;
	return false;
}

static void look_at(struct looking *l, const struct module *m, const struct image_function *fn)
{
	size_t size = 0, piece;
	const uint8_t *file = image_code(m->image, fn->address, &size);
	const taddr_t lo = fn->address + m->bias;
	uint8_t *memory;

	if (size > fn->size)
		size = fn->size;
	if (!file || !size || !has_copies(l, lo, lo + size) || !collect_own(l))
		return;
	memory = malloc(size < CODE_PIECE ? size : CODE_PIECE);
	l->behind = 0;
	for (size_t at = 0; memory && at < size; at += piece) {
		const bool last = size - at <= CODE_PIECE;

		piece = last ? size - at : CODE_PIECE;
		if (target_read_some(l->b->session->target, lo + at, memory, piece) != piece)
			break;
		if (last && !memcmp(memory, file + at, piece))
			break;
		forget_own(l, lo + at, memory, piece);
		piece = compare(l, lo + at, file + at, memory, piece, last);
	}
	free(memory);
}

/*
 * At the functions that sites [first, end) of module m are in, each with all its parts: what is seldom done was
 * moved away, and is jumped to from where it was, and back.
 */
static void look_around(struct looking *l, const struct module *m, size_t first, size_t end)
{
	const struct image_function *functions;
	const size_t count = image_functions(m->image, &functions);
	bool *asked = calloc(count + 1, sizeof(*asked)); /* by function, not by part */

	for (size_t i = first; asked && i < end; i++) {
		const long at = image_function_at(m->image, l->b->sites[i]->window.start);

		if (at >= 0)
			asked[functions[at].parent] = true;
	}
	for (size_t i = 0; asked && i < count; i++)
		if (asked[functions[i].parent])
			look_at(l, m, &functions[i]);
	free(asked);
}

void batch_find_strangers(struct batch *b)
{
	struct looking l = {.b = b};
	size_t end;

	l.pagemap = maps_open_pagemap(target_memory_tid(b->session->target));
	for (size_t first = 0; first < b->count; first = end) {
		const struct module *m = b->sites[first]->module;

		for (end = first + 1; end < b->count && b->sites[end]->module == m;)
			end++;
		if (m->image)
			look_around(&l, m, first, end);
	}
	if (l.pagemap >= 0)
		close(l.pagemap);
	free(l.own);
}
