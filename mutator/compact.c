/* SPDX-License-Identifier: MIT */
/*
 * compact.c - moving code of sites out of pages that are nearly empty.
 *
 * A body is never changed; to move it is to write the same once more and to turn
 * the switch, while threads run through it:
 *
 *     window --> [switch] old head                window --> [switch] old head
 *                   |                    then                   |
 *                   +--> old body                               +--> [switch] new head
 *
 * From then on the window may lead to either head, and the switch of each head that there was before
 * leads to the new one. The flush's stop leads it to
 * the new one; the journal has both ways before that. Where some process cannot be
 * written the move stays as it is, is right, and is tried again at each flush.
 *
 * Not moved: routines for per-thread state and tables of it (few, and known by
 * address to all bodies), gates, data, sites that are about to go anyway, and heads
 * whose window's jump lies in two pages: it cannot be turned by one write.
 */
#include "mutator/compact.h"

#include <stdlib.h>

#include "mutator/body.h"
#include "mutator/removal.h"

enum { HEADS_MAX = 2000 }; /* in one stop */

static bool leaves(const struct body *b)
{
	const struct heap *heap = b->site->place->heap;

	return heap_is_leaving(heap, b->code) || (b->cold && heap_is_leaving(heap, b->cold));
}

/* In use, and known to do so until somebody removes it. */
static bool is_movable(const struct site *site)
{
	return site->state == SITE_PATCHED && site->links && site->body && !site->queued &&
	       !site->gated && !site->gate && !site->move;
}

static int move_body(struct session *s, struct site *site, struct dinst_error *e)
{
	struct body *copy;
	int status = body_write_copy(s, site->body, false, &copy, e);

	if (status >= 0)
		site_lead_to_body(s, site, copy);
	return status;
}

/*
 * Whoever still stands in front of the switch of a head from before goes on from there, however long
 * that takes: no switch leads to a head that goes itself.
 */
static void turn_heads_before(const struct session *s, struct site *site, taddr_t to)
{
	for (const struct body *b = site->spent ? s->spent : NULL; b; b = b->next)
		if (b->is_head && b->site == site)
			site_turn_head(site, b, to);
}

/* What runs there now becomes the head: the body behind the old one goes, too. */
static int move_head(struct session *s, struct site *site, struct dinst_error *e)
{
	struct site_move *m = calloc(1, sizeof(*m));
	struct body *head, *body = site->body;
	int status;

	if (!m)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	status = body_write_copy(s, body, true, &head, e);
	if (status < 0)
		goto free_move;
	status = site_move_to(site, head->code, m, e);
	if (status < 0)
		goto free_head;
	m->old = site->head;
	m->next = s->moves;
	s->moves = m;
	s->queue_length++;
	site->move = m;
	site->head = site->body = head;
	site_turn_head(site, m->old, head->code);
	turn_heads_before(s, site, head->code);
	if (body != m->old)
		removal_spend(s, body);
	return 0;

free_head:
	body_free(head);
free_move:
	free(m);
	return status;
}

/* Nothing leads to the base of a site in use, but a thread may have been led there before. */
static int move_base(struct session *s, struct site *site, struct dinst_error *e)
{
	struct spent_code *old = calloc(1, sizeof(*old));
	const taddr_t base = site->base;
	const size_t size = site->base_size;
	int status;

	if (!old)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	status = base_write(s, site, e);
	if (status < 0) {
		site->base = base;
		site->base_size = size;
		free(old);
		return status;
	}
	*old = (struct spent_code){.place = site->place,
				   .code = base,
				   .size = size,
				   .site = site,
				   .next = s->spent_codes};
	s->spent_codes = old;
	site->spent++;
	s->queue_length++;
	return 0;
}

/* *heads: how many more may move. What cannot be moved stays. */
static int move_site(struct session *s, struct site *site, unsigned *heads, struct dinst_error *e)
{
	int status = 0;

	if (heap_is_leaving(site->place->heap, site->base))
		status = move_base(s, site, e);
	if (status >= 0 && leaves(site->head) && *heads) {
		--*heads;
		status = move_head(s, site, e);
	} else if (status >= 0 && site->body != site->head && leaves(site->body)) {
		status = move_body(s, site, e);
	}
	return status == DINST_REFUSED ? 0 : status;
}

void compact_begin(struct session *s)
{
	struct dinst_error ignored = {0};
	unsigned heads = HEADS_MAX;
	bool wanted = false;
	int status = 0;

	for (struct place *p = s->places; p; p = p->next)
		if (!p->unmapped && heap_wants_compaction(p->heap)) {
			heap_begin_compaction(p->heap);
			wanted = true;
		}
	/* Out of memory: what has not moved yet stays where it is. */
	for (size_t b = 0; wanted && b < s->site_buckets; b++)
		for (struct site *site = s->site_hash[b]; site && status >= 0;
		     site = site->next_hash)
			if (is_movable(site))
				status = move_site(s, site, &heads, &ignored);
}

void compact_settle(struct session *s)
{
	struct site_move **p = &s->moves, *m;

	while ((m = *p)) {
		if (m->failed) {
			p = &m->next;
			continue;
		}
		*p = m->next;
		for (unsigned k = 0; k < m->patch_count; k++)
			journal_remove(m->site->place->journal, m->journal[k]);
		m->site->move = NULL;
		s->queue_length--;
		removal_spend(s, m->old);
		free(m);
	}
}

void compact_end(struct session *s)
{
	for (struct place *p = s->places; p; p = p->next)
		heap_end_compaction(p->heap);
}
