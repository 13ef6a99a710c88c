/* SPDX-License-Identifier: MIT */
/*
 * batch_pages.c - the pages of text that were ever patched, so that a detach
 * can give their private copies back. A page that is forgotten costs the target
 * its private copy, nothing else.
 *
 * A private copy is the target's memory, and its control group pays for it:
 * where there is no room the kernel would kill it for what we write, or make it sleep. So room is
 * looked for before.
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

size_t session_text_pages(struct session *s)
{
	if (s->page_count)
		forget_duplicates(s);
	return s->page_count;
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

/* ------------------------------------------------------ is there room for more */

enum {
	PAGE = 4096,
	PRIVATE_CODE = 1024, /* bytes of a private arena for a site, more than most take */
};

/* Pages of the patches that have no private copy yet, as far as is known; 0 without memory. */
static size_t count_new_pages(struct session *s, struct site *const *sites, size_t count)
{
	taddr_t *pages = calloc(2 * count + 1, sizeof(*pages));
	size_t used = 0, fresh = 0;

	for (size_t i = 0; pages && i < count; i++)
		for (unsigned k = 0; k < sites[i]->patch_count; k++)
			pages[used++] = sites[i]->patches[k].address & ~(taddr_t)(PAGE - 1);
	if (pages)
		qsort(pages, used, sizeof(*pages), by_value);
	if (s->page_count)
		forget_duplicates(s);
	for (size_t i = 0; i < used; i++)
		if ((!i || pages[i] != pages[i - 1]) &&
		    (!s->page_count ||
		     !bsearch(&pages[i], s->pages, s->page_count, sizeof(*s->pages), by_value)))
			fresh++;
	free(pages);
	return fresh;
}

static bool has_private_arena(const struct session *s)
{
	for (const struct place *p = s->places; p; p = p->next)
		if (p->arena->mode == ARENA_PRIVATE)
			return true;
	return false;
}

int batch_check_room(struct session *s, struct site *const *sites, size_t count,
		     struct dinst_error *e)
{
	struct memory_room room;
	uint64_t wanted;
	int status;

	if (!count)
		return 0;
	status = target_memory_room(s->target, &room, e);
	if (status)
		return status;
	wanted = (uint64_t)count_new_pages(s, sites, count) * PAGE;
	if (has_private_arena(s))
		wanted += (uint64_t)count * PRIVATE_CODE;
	return target_check_room(s->target, &room, wanted, "for what is written into its code",
				 ", or insert less", e);
}
