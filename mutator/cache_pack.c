/* SPDX-License-Identifier: MIT */
/*
 * cache_pack.c - packs and unpacks rows of structures: see cache_pack.h. Reads
 * any bytes without harm.
 */
#include "mutator/cache_pack.h"

#include <stdlib.h>
#include <string.h>

enum { WORD = 8, ITEM_MAX = 256 };

static uint8_t *reserve(struct pack_buffer *b, size_t size)
{
	if (b->bad)
		return NULL;
	if (b->room - b->size < size) {
		size_t room = b->room + b->room / 2 + size + 4096;
		uint8_t *more = realloc(b->bytes, room);

		if (!more) {
			b->bad = true;
			return NULL;
		}
		b->bytes = more;
		b->room = room;
	}
	return b->bytes + b->size;
}

void pack_put_bytes(struct pack_buffer *b, const void *bytes, size_t size)
{
	uint8_t *to = reserve(b, size);

	if (!to || !size)
		return;
	memcpy(to, bytes, size);
	b->size += size;
}

void pack_put_zeroes(struct pack_buffer *b, size_t size)
{
	uint8_t *to = reserve(b, size);

	if (!to || !size)
		return;
	memset(to, 0, size);
	b->size += size;
}

/* LEB128 */
void pack_put(struct pack_buffer *b, uint64_t number)
{
	uint8_t *to = reserve(b, 10);

	if (!to)
		return;
	do {
		*to++ = (uint8_t)((number & 127) | (number > 127 ? 128 : 0));
		number >>= 7;
	} while (number);
	b->size = (size_t)(to - b->bytes);
}

void pack_put_items(struct pack_buffer *b, const void *items, size_t count, size_t size)
{
	const uint8_t *item = items;
	uint8_t before[ITEM_MAX] = {0};

	if (size % WORD || size > ITEM_MAX)
		b->bad = true;
	for (size_t i = 0; i < count && !b->bad; i++, item += size) {
		uint8_t *to = reserve(b, size + size / WORD);

		if (!to)
			return;
		for (size_t at = 0; at < size; at += WORD) {
			uint8_t *mask = to++;
			uint64_t now, then;

			*mask = 0;
			memcpy(&now, item + at, sizeof(now));
			memcpy(&then, before + at, sizeof(then));
			for (uint64_t rest = now ^ then; rest;) {
				unsigned k = (unsigned)__builtin_ctzll(rest) / 8;

				*mask |= (uint8_t)(1u << k);
				*to++ = (uint8_t)(rest >> k * 8);
				rest &= ~(UINT64_C(0xff) << k * 8);
			}
		}
		memcpy(before, item, size);
		b->size = (size_t)(to - b->bytes);
	}
}

uint64_t pack_take(struct pack_reader *r)
{
	uint64_t number = 0;

	for (unsigned shift = 0; shift < 64; shift += 7) {
		uint8_t byte;

		if (r->bad || r->p == r->end)
			break;
		byte = *r->p++;
		number |= (uint64_t)(byte & 127) << shift;
		if (!(byte & 128))
			return number;
	}
	r->bad = true;
	return 0;
}

/*
 * One word: a mask of the bytes that differ from the word `before`, and each of
 * them. Read and written as a whole, and the place handed on by value: memory
 * that has just been written in pieces is slow to read.
 */
static inline const uint8_t *take_word(const uint8_t *p, const uint8_t *before, uint8_t *to)
{
	uint64_t word;

	memcpy(&word, before, sizeof(word));
	for (uint8_t mask = *p++; mask; mask &= (uint8_t)(mask - 1))
		word ^= (uint64_t)*p++ << (unsigned)__builtin_ctz(mask) * 8;
	memcpy(to, &word, sizeof(word));
	return p;
}

void pack_take_items(struct pack_reader *r, void *items, size_t count, size_t size)
{
	const uint8_t *p = r->p, *end = r->end;
	const uint8_t *before = items; /* the first counts from what is there: zeroes */
	uint8_t *item = items;

	if (size % WORD)
		r->bad = true;
	for (size_t i = 0; i < count && !r->bad; i++, before = item, item += size) {
		/* One look at the end for the longest that an item can be. */
		bool near = (size_t)(end - p) < size + size / WORD;

		for (size_t at = 0; at < size; at += WORD) {
			if (near && (p == end || end - p < 1 + __builtin_popcount(*p)))
				goto bad;
			p = take_word(p, before + at, item + at);
		}
	}
	r->p = p;
	return;
bad:
	r->bad = true;
}
