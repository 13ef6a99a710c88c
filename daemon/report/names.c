/* SPDX-License-Identifier: MIT */
/*
 * names.c - texts that are kept once each: a table with open addressing.
 */
#include "daemon/report/names.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_FIRST = 256 }; /* places, a power of two */

static uint64_t hash_text(const char *text)
{
	uint64_t hash = 0xcbf29ce484222325ull;

	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 0x100000001b3ull;
	return hash;
}

static char **name_place(const struct names *n, const char *text)
{
	size_t i = hash_text(text) & (n->size - 1);

	while (n->places[i] && strcmp(n->places[i], text) != 0)
		i = (i + 1) & (n->size - 1);
	return &n->places[i];
}

static bool names_grow(struct names *n)
{
	struct names larger = {.size = n->size ? n->size * 2 : NAMES_FIRST, .used = n->used};

	if (n->used * 2 < n->size)
		return true;
	larger.places = calloc(larger.size, sizeof(*larger.places));
	if (!larger.places)
		return false;
	for (size_t i = 0; i < n->size; i++)
		if (n->places[i])
			*name_place(&larger, n->places[i]) = n->places[i];
	free(n->places);
	*n = larger;
	return true;
}

const char *name_of(struct names *n, const char *text)
{
	char **place;

	if (!names_grow(n))
		return NULL;
	place = name_place(n, text);
	if (!*place) {
		*place = strdup(text);
		n->used += *place != NULL;
	}
	return *place;
}

void names_release(struct names *n)
{
	for (size_t i = 0; i < n->size; i++)
		free(n->places[i]);
	free(n->places);
	*n = (struct names){0};
}
