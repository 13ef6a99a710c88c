/* SPDX-License-Identifier: MIT */
/*
 * detail_windows.c - windows for every instruction that has none: straight runs
 * are covered by as few and long ones as the rules allow. Never touches a
 * window of the base plan.
 */
#include "mutator/detail_private.h"
#include "mutator/settle.h"

#include <stdlib.h>

enum { PAGE = 4096 };

/* ----------------------------------------------------- what is there already */

int detail_adopt(struct detail *d, struct dinst_error *e)
{
	int r = windows_adopt(&d->windows, d->base, e);

	if (r == 0)
		r = windows_respect_claims(&d->windows, e);
	d->base_windows = d->base->window_count;
	for (size_t i = 0; i < d->base->point_count && r == 0; i++) {
		const struct point *p = &d->base->points[i];
		long first;

		/* The branch whose taken side goes round the window that it leads to. */
		if (p->place != PLACE_BYPASS || p->window < 0)
			continue;
		first = flow_insn_at(&d->flow, d->base->windows[p->window].start);
		if (first >= 0 && d->flow.insns.items[first + p->insn].target) {
			vaddr_t to = d->flow.insns.items[first + p->insn].target;
			long at = flow_covering(&d->flow, to);

			/* A landing pad stays where it is: the window begins behind it. */
			if (at >= 0 && d->flow.insns.items[at].flags & ARCH_INSN_LANDING_PAD)
				at++;
			if (at >= 0 && d->windows.owner[at])
				d->bypassed[d->windows.owner[at] - 1] = true;
		}
	}
	return r;
}

/* ---------------------------------------------------------------- covering */

static bool is_free(const struct detail *d, size_t at)
{
	return !d->windows.owner[at];
}

/* Executed for sure: what only an address leads to may be a table in the code. */
static bool is_code(const struct detail *d, size_t at)
{
	int32_t block = d->cfg.block_of[at];

	return block != CFG_NONE && d->cfg.blocks[block].flags & BLOCK_SURE;
}

/* How many instructions from `first` on are one straight line, free, and may move. */
static unsigned straight(const struct detail *d, size_t first)
{
	unsigned count = 1;

	while (count < WINDOW_INSNS_MAX * 4 && joins_next(&d->windows, first + count - 1) &&
	       is_free(d, first + count) && is_code(d, first + count))
		count++;
	return count;
}

static unsigned bytes_of(const struct detail *d, size_t first, unsigned count)
{
	const struct arch_insn *insns = d->flow.insns.items;

	return count ? (unsigned)(insns[first + count - 1].address +
				  insns[first + count - 1].length - insns[first].address)
		     : 0;
}

/* A window may start with insns[at] as far as pages go. */
static bool starts_well(const struct detail *d, size_t at)
{
	vaddr_t v = d->flow.insns.items[at].address;

	return v / PAGE == (v + arch_jump_size - 1) / PAGE;
}

/*
 * How many of the `line` instructions from `first` the first window takes: as
 * many as fit, but what stays behind must be long enough for one of its own.
 */
static unsigned portion(const struct detail *d, size_t first, unsigned line)
{
	unsigned count = line < WINDOW_INSNS_MAX ? line : WINDOW_INSNS_MAX, most;

	while (count > 1 && bytes_of(d, first, count) > WINDOW_BYTES_MAX)
		count--;
	most = count;
	while (count > 1 && count < line &&
	       (bytes_of(d, first + count, line - count) < arch_jump_size ||
		!starts_well(d, first + count)))
		count--;
	return bytes_of(d, first, count) >= arch_jump_size ? count : most;
}

static int enter(struct detail *d, const struct draft *draft, bool *placed, struct dinst_error *e)
{
	int32_t index = -1;
	int r = windows_place(&d->windows, draft, &index, e);

	*placed = r == 0 && index >= 0;
	return r;
}

/* The longest window that starts with insns[first]; *took: instructions that need none any more. */
static int cover_from(struct detail *d, size_t first, unsigned *took, struct dinst_error *e)
{
	unsigned line = straight(d, first);
	struct draft draft;
	enum refusal why = REFUSAL_NO_ROOM;
	bool placed;

	*took = 1;
	for (unsigned count = portion(d, first, line); count; count--) {
		enum refusal r = draft_jump(&d->windows, first, count, true, &draft);

		if (r == REFUSAL_NONE) {
			int status = enter(d, &draft, &placed, e);

			if (placed)
				*took = count;
			d->why[first] = placed ? REFUSAL_NONE : REFUSAL_TAKEN;
			return status;
		}
		if (why == REFUSAL_NO_ROOM)
			why = r;
	}
	d->why[first] = (uint8_t)why;
	return 0;
}

static bool is_returned_to(const struct detail *d, size_t at)
{
	const struct arch_insn *call = at ? &d->flow.insns.items[at - 1] : NULL;

	return call && arch_is_call(call) &&
	       call->address + call->length == d->flow.insns.items[at].address;
}

/* What is too short for a near jump may have a hole in reach: the last resort. */
static int cover_short(struct detail *d, size_t first, struct dinst_error *e)
{
	unsigned line = straight(d, first);
	struct spots unused;
	struct draft draft;
	bool placed;

	if (is_returned_to(d, first))
		placed = detail_after(d, first, &unused) == REFUSAL_NONE;
	else
		placed = detail_before(d, first, &unused) == REFUSAL_NONE;
	if (placed)
		return 0;
	for (unsigned count = portion(d, first, line); count; count--)
		if (draft_short(&d->windows, first, count, &draft) == REFUSAL_NONE)
			return enter(d, &draft, &placed, e);
	return 0;
}

int detail_cover(struct detail *d, struct dinst_error *e)
{
	size_t count = d->flow.insns.count;
	unsigned took = 1;
	int r = 0;

	/* Nobody knows what is code there, and what is jumped to. */
	if (d->flow.unresolved)
		return 0;
	for (size_t i = 0; i < count && r == 0; i += took) {
		took = 1;
		if (is_free(d, i) && is_code(d, i))
			r = cover_from(d, i, &took, e);
	}
	for (size_t i = 0; i < count && r == 0; i++)
		if (is_free(d, i) && is_code(d, i))
			r = cover_short(d, i, e);
	return r;
}
