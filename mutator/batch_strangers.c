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

enum { CODE_MOST = 1 << 20 }; /* bytes of a function that are looked at */

struct looking {
	struct batch *b;
	int pagemap;
	const struct patch **own; /* by address */
	size_t own_count;
	size_t first, count; /* the sites whose windows are asked for */
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
	size_t from = l->first, to = l->first + l->count;
	const struct site *site;

	while (from < to) {
		const size_t mid = from + (to - from) / 2;

		if (l->b->sites[mid]->key.start < target)
			from = mid + 1;
		else
			to = mid;
	}
	if (from == l->first)
		return;
	site = l->b->sites[from - 1];
	if (target - site->key.start < (taddr_t)site->window.length + site->window.padding)
		l->b->foreign[from - 1] = true;
}

static void compare(const struct looking *l, taddr_t address, const uint8_t *file,
		    const uint8_t *memory, size_t size)
{
	size_t at = 0, behind = 0; /* of what was written over the file's instructions */

	while (at < size) {
		struct arch_insn was, is;
		size_t length = 1;

		if (arch_decode(file + at, size - at, address + at, &was) == ARCH_OK)
			length = was.length;
		if (at >= behind && memcmp(file + at, memory + at, length) != 0 &&
		    arch_decode(memory + at, size - at, address + at, &is) == ARCH_OK) {
			behind = at + is.length;
			if (is.flow == ARCH_FLOW_JUMP || is.flow == ARCH_FLOW_BRANCH ||
			    is.flow == ARCH_FLOW_CALL)
				found_jump(l, is.target);
		}
		at += length;
	}
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
	size_t size = 0;
	const uint8_t *file = image_code(m->image, fn->address, &size);
	const taddr_t lo = fn->address + m->bias;
	uint8_t *memory;

	if (size > fn->size)
		size = fn->size;
	if (size > CODE_MOST)
		size = CODE_MOST;
	if (!file || !size || !has_copies(l, lo, lo + size) || !collect_own(l))
		return;
	memory = malloc(size);
	if (memory && target_read_some(l->b->session->target, lo, memory, size) == size &&
	    memcmp(memory, file, size) != 0) {
		forget_own(l, lo, memory, size);
		compare(l, lo, file, memory, size);
	}
	free(memory);
}

void batch_find_strangers(struct batch *b)
{
	struct looking l = {.b = b};

	l.pagemap = maps_open_pagemap(target_memory_tid(b->session->target));
	for (; l.first < b->count; l.first += l.count) {
		const struct site *site = b->sites[l.first];
		const struct module *m = site->module;
		const struct image_function *functions;
		long at = m->image ? image_function_at(m->image, site->window.start) : -1;
		taddr_t hi;

		l.count = 1;
		if (at < 0)
			continue;
		image_functions(m->image, &functions);
		hi = functions[at].address + functions[at].size + m->bias;
		while (l.first + l.count < b->count && b->sites[l.first + l.count]->key.start < hi)
			l.count++;
		look_at(&l, m, &functions[at]);
		/* What is seldom done was moved away, and is jumped to from where it was. */
		if (functions[at].parent != (uint32_t)at)
			look_at(&l, m, &functions[functions[at].parent]);
	}
	if (l.pagemap >= 0)
		close(l.pagemap);
	free(l.own);
}
