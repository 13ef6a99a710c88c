/* SPDX-License-Identifier: MIT */
/*
 * cache_pack.h - rows of plain structures in few bytes.
 *
 * An item is stored as its difference to the one before it: of every eight bytes
 * a mask of those that differ, and those. Which fields there are need not be
 * known. Sizes of items are multiples of eight bytes.
 */
#ifndef DINST_MUTATOR_CACHE_PACK_H
#define DINST_MUTATOR_CACHE_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Grows as it is written; `bad` is sticky: no memory. The owner frees `bytes`. */
struct pack_buffer {
	uint8_t *bytes;
	size_t size, room;
	bool bad;
};

void pack_put_bytes(struct pack_buffer *b, const void *bytes, size_t size);
void pack_put_zeroes(struct pack_buffer *b, size_t size);
void pack_put(struct pack_buffer *b, uint64_t number);
void pack_put_items(struct pack_buffer *b, const void *items, size_t count, size_t size);

/* `bad` is sticky: the bytes ended, or were never written by the above. */
struct pack_reader {
	const uint8_t *p, *end;
	bool bad;
};

uint64_t pack_take(struct pack_reader *r);
/* Bytes that an item of `size` takes at least: so many of them fit into what is there. */
static inline size_t pack_least(size_t size)
{
	return size / 8;
}

void pack_take_items(struct pack_reader *r, void *items, size_t count, size_t size);

#endif
