/* SPDX-License-Identifier: MIT */
/*
 * evaluate_memory.c - memory of plans: given out piece by piece, given back all
 * at once when the last plan that uses it is freed.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/evaluate_private.h"

struct chunk {
	struct chunk *next;
	size_t used, size;
	max_align_t bytes[];
};

struct mdl_memory {
	struct chunk *chunks; /* newest first */
	size_t total;
	size_t references;
};

enum { FIRST_CHUNK = 2048, LARGEST_CHUNK = 256 << 10, MEMORY_MAX = 1 << 30 };

struct mdl_memory *mdl_memory_new(struct dinst_error *e)
{
	struct mdl_memory *m = calloc(1, sizeof(*m));

	if (m)
		m->references = 1;
	else
		dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	return m;
}

struct mdl_memory *mdl_memory_ref(struct mdl_memory *m)
{
	m->references++;
	return m;
}

void mdl_memory_unref(struct mdl_memory *m)
{
	if (!m || --m->references)
		return;
	while (m->chunks) {
		struct chunk *next = m->chunks->next;

		free(m->chunks);
		m->chunks = next;
	}
	free(m);
}

static struct chunk *add_chunk(struct mdl_memory *m, size_t least)
{
	size_t size = m->chunks ? m->chunks->size * 2 : FIRST_CHUNK;
	struct chunk *c;

	if (size > LARGEST_CHUNK)
		size = LARGEST_CHUNK;
	if (size < least)
		size = least;
	if (size > MEMORY_MAX - m->total)
		return NULL;
	c = calloc(1, sizeof(*c) + size);
	if (!c)
		return NULL;
	*c = (struct chunk){.next = m->chunks, .size = size};
	m->chunks = c;
	m->total += size;
	return c;
}

void *mdl_alloc(struct mdl_memory *m, size_t count, size_t size, struct dinst_error *e)
{
	struct chunk *c = m->chunks;
	size_t bytes;
	void *p;

	if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 2)
		goto fail;
	bytes = (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
	if (!c || c->size - c->used < bytes)
		c = add_chunk(m, bytes);
	if (!c)
		goto fail;
	p = (char *)c->bytes + c->used;
	c->used += bytes;
	return p;
fail:
	dinst_fail(e, DINST_NO_MEMORY, "out of memory, or the request is too large");
	return NULL;
}

void *mdl_keep(struct mdl_memory *m, const void *from, size_t count, size_t size,
	       struct dinst_error *e)
{
	void *to = mdl_alloc(m, count, size, e);

	if (to && count)
		memcpy(to, from, count * size);
	return to;
}

char *mdl_print(struct mdl_memory *m, struct dinst_error *e, const char *format, ...)
{
	va_list args;
	char *text;
	int length;

	va_start(args, format);
	length = vsnprintf(NULL, 0, format, args);
	va_end(args);
	text = mdl_alloc(m, (size_t)(length < 0 ? 0 : length) + 1, 1, e);
	if (!text || length < 0)
		return text;
	va_start(args, format);
	vsnprintf(text, (size_t)length + 1, format, args);
	va_end(args);
	return text;
}
