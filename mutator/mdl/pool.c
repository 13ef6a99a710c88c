/* SPDX-License-Identifier: MIT */
/*
 * pool.c - memory that is given back at once.
 *
 * Owns the blocks that trees lie in. What is taken is zeroed and never moves.
 */
#include "mutator/mdl/private.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

/* The address sanitizer watches what lies in a block of its own. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WATCHED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define WATCHED
#endif

#ifdef WATCHED
enum { BLOCK_SIZE = 1 };
#else
enum { BLOCK_SIZE = 16 * 1024 };
#endif

struct pool_block {
	struct pool_block *next;
	size_t size;
	alignas(max_align_t) char bytes[];
};

void *pool_take(struct pool *p, size_t size)
{
	struct pool_block *b;
	size_t room;

	if (size > SIZE_MAX / 2)
		return NULL;
	size = (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
	if (size <= p->left) {
		p->left -= size;
		return p->blocks->bytes + p->left;
	}
	room = size > BLOCK_SIZE ? size : BLOCK_SIZE;
	b = calloc(1, sizeof(*b) + room);
	if (!b)
		return NULL;
	b->size = room;
	b->next = p->blocks;
	p->blocks = b;
	p->left = room - size;
	return b->bytes + p->left;
}

char *pool_copy(struct pool *p, const char *bytes, size_t size)
{
	char *copy = size < SIZE_MAX / 2 ? pool_take(p, size + 1) : NULL;

	if (copy && size)
		memcpy(copy, bytes, size);
	return copy;
}

bool pool_has(const struct pool *p, const void *at)
{
	const char *byte = at;

	for (const struct pool_block *b = p->blocks; b; b = b->next)
		if (byte >= b->bytes && byte < b->bytes + b->size)
			return true;
	return false;
}

void pool_free(struct pool *p)
{
	struct pool_block *b, *next;

	for (b = p->blocks; b; b = next) {
		next = b->next;
		free(b);
	}
	p->blocks = NULL;
	p->left = 0;
}
