/* SPDX-License-Identifier: MIT */
/*
 * batch_pairs.c - entries that must not be patched without their exits.
 *
 * Requests with per-thread state go in as a whole. But when a module was loaded
 * anew under them, their windows are patched as ever they can be: what an entry
 * begins, and whose exit still waits, would last until the thread's next event.
 * An exit without its entry changes nothing.
 */
#include <stdlib.h>

#include "mutator/batch_private.h"

enum { LOST_WAITS = 1, LOST_FOREIGN = 2 };

/* Notes for the functions whose exits are at a site what becomes of it. */
static void note_exits(const struct batch *b, size_t n, uint8_t *lost)
{
	for (const struct link *l = b->sites[n]->first_link; l; l = l->next)
		if (l->snippet.pair && l->kind == POINT_EXIT)
			lost[l->snippet.pair & PAIR_ID_MASK] |=
				(b->waits[n] ? LOST_WAITS : 0) | (b->foreign[n] ? LOST_FOREIGN : 0);
}

/* True if the site has more to lose now. */
static bool follow_exits(struct batch *b, size_t n, const uint8_t *lost)
{
	const bool waits = b->waits[n], foreign = b->foreign[n];

	for (const struct link *l = b->sites[n]->first_link; l; l = l->next) {
		if (!l->snippet.pair || l->kind != POINT_ENTRY)
			continue;
		b->waits[n] |= (lost[l->snippet.pair & PAIR_ID_MASK] & LOST_WAITS) != 0;
		b->foreign[n] |= (lost[l->snippet.pair & PAIR_ID_MASK] & LOST_FOREIGN) != 0;
	}
	return waits != b->waits[n] || foreign != b->foreign[n];
}

void batch_share_pairs(struct batch *b, struct stop *stop)
{
	bool more = true;

	/* What waits for one may be the exit of another, or the host of one. */
	while (more) {
		more = false;
		batch_share_fate(b, stop);
		for (size_t n = 0; n < b->count; n++)
			if (b->waits[n] || b->foreign[n]) {
				note_exits(b, n, b->lost);
				more = true;
			}
		/* Mostly there is nothing, and everybody stands still. */
		if (!more)
			return;
		more = false;
		for (size_t n = 0; n < b->count; n++)
			more |= follow_exits(b, n, b->lost);
	}
}
