/* SPDX-License-Identifier: MIT */
/*
 * batch_pages.c - the pages of text that were ever patched, so that a detach
 * can give their private copies back. A page that is forgotten costs the target
 * its private copy, nothing else.
 */
#include <stdlib.h>

#include "mutator/batch_private.h"

static int by_value(const void *a, const void *b)
{
	taddr_t x = *(const taddr_t *)a, y = *(const taddr_t *)b;

	return x < y ? -1 : x > y;
}

/* A session inserts and removes for days, in the same pages mostly. */
static void forget_duplicates(struct session *s)
{
	size_t kept = 0;

	qsort(s->pages, s->page_count, sizeof(*s->pages), by_value);
	for (size_t i = 0; i < s->page_count; i++)
		if (!kept || s->pages[kept - 1] != s->pages[i])
			s->pages[kept++] = s->pages[i];
	s->page_count = kept;
}

static bool make_page_room(struct session *s)
{
	size_t room = s->page_room ? s->page_room * 2 : 256;
	taddr_t *pages;

	if (s->page_count)
		forget_duplicates(s);
	/* Half of it is free then, so that sorting stays rare. */
	if (s->page_room && s->page_count <= s->page_room / 2)
		return true;
	pages = realloc(s->pages, room * sizeof(*pages));
	if (!pages)
		return s->page_count < s->page_room;
	s->pages = pages;
	s->page_room = room;
	return true;
}

/* Remembers the pages of a site's patches. */
void batch_note_pages(struct session *s, const struct site *site)
{
	for (unsigned k = 0; k < site->patch_count; k++) {
		taddr_t page = site->patches[k].address & ~(taddr_t)4095;

		if (s->page_count && s->pages[s->page_count - 1] == page)
			continue;
		if (s->page_count == s->page_room && !make_page_room(s))
			return; /* costs the target a private page, nothing else */
		s->pages[s->page_count++] = page;
	}
}
