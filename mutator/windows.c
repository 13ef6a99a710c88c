/* SPDX-License-Identifier: MIT */
/*
 * windows.c - all windows of one function while it is planned: who has which
 * instruction, what becomes of windows that touch, and how they go into a plan
 * and come from one. The rules are window.c's.
 */
#include "mutator/window.h"

#include <stdlib.h>
#include <string.h>

int windows_init(struct windows *w, struct flow *f, struct dinst_error *e)
{
	*w = (struct windows){.flow = f};
	w->owner = calloc(f->insns.count + 1, sizeof(*w->owner));
	if (!w->owner)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for windows");
	return 0;
}

void windows_release(struct windows *w)
{
	free(w->items);
	free(w->owner);
	free(w->reserved);
	*w = (struct windows){0};
}

void windows_set_owner(struct windows *w, const struct draft *d, int32_t owner)
{
	for (unsigned i = 0; i < d->count; i++)
		w->owner[d->first + i] = owner;
}

static int reserve(struct windows *w, struct dinst_error *e)
{
	size_t room = w->room ? w->room * 2 : 16;
	void *more;

	if (w->count < w->room)
		return 0;
	more = reallocarray(w->items, room, sizeof(*w->items));
	if (!more)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu windows", room);
	w->items = more;
	w->room = room;
	return 0;
}

/* There is room (reserve()). */
static int32_t enter(struct windows *w, const struct draft *d)
{
	w->items[w->count++] = *d;
	windows_set_owner(w, d, (int32_t)w->count);
	return (int32_t)w->count - 1;
}

/* Widens [*first, *last] to the windows that it touches; how many there are. */
static unsigned touching(const struct windows *w, size_t *first, size_t *last, int32_t *one)
{
	unsigned n = 0;
	int32_t previous = 0;

	for (size_t i = *first; i <= *last; i++) {
		int32_t owner = w->owner[i];
		const struct draft *d;

		if (!owner || owner == previous)
			continue;
		previous = owner;
		*one = owner - 1;
		n++;
		d = &w->items[owner - 1];
		if (d->first < *first)
			*first = d->first;
		if (d->first + d->count - 1 > *last)
			*last = d->first + d->count - 1;
	}
	return n;
}

bool is_edge_only(const struct windows *w, const struct draft *d)
{
	return d->kind == ARCH_PATCH_RETARGET &&
	       w->flow->insns.items[d->first].flow == ARCH_FLOW_BRANCH;
}

bool windows_are_free(const struct windows *w, size_t first, unsigned count)
{
	for (size_t i = first; i < first + count; i++)
		if (w->owner[i])
			return false;
	return true;
}

/* What the windows in [first, last] are, together. */
struct crowd {
	bool fixed;		     /* one of them is not to be changed */
	bool holds;		     /* one has somebody's near jump in its tail */
	const struct draft *distant; /* the last whose near jump is somewhere else */
};

static struct crowd crowd_of(const struct windows *w, size_t first, size_t last)
{
	struct crowd c = {0};

	for (size_t i = first; i <= last; i++) {
		const struct draft *d = w->owner[i] ? &w->items[w->owner[i] - 1] : NULL;

		if (!d)
			continue;
		c.fixed |= d->fixed || d->alone;
		c.holds |= d->holds;
		if (d->hole)
			c.distant = d;
	}
	return c;
}

/* Says that the windows in [first, last] have become window `into`, or -1: not after all. */
static void become(struct windows *w, size_t first, size_t last, int32_t into)
{
	for (size_t i = first; i <= last; i++)
		if (w->owner[i])
			w->items[w->owner[i] - 1].merged_into = into;
}

/* A short jump to the same hole, with more instructions. */
static enum refusal draft_again(const struct windows *w, size_t first, unsigned count,
				const struct draft *before, struct draft *out)
{
	vaddr_t from = w->flow->insns.items[first].address + arch_short_jump_size;
	enum refusal r = before ? draft_short_only(w, first, count, out) : REFUSAL_NO_ROOM;

	if (r != REFUSAL_NONE)
		return r;
	if (!is_in_short_reach(from, before->hole))
		return REFUSAL_NO_ROOM;
	out->hole = before->hole;
	out->host = before->host;
	return REFUSAL_NONE;
}

/* Makes the windows in [first, last] and everything between them one window. */
static int32_t merge(struct windows *w, size_t first, size_t last)
{
	unsigned count = (unsigned)(last - first + 1);
	struct crowd crowd = crowd_of(w, first, last);
	struct draft all;
	enum refusal r;

	if (crowd.fixed)
		return -1;
	/* The holes of those that are merged are free for what they become. */
	become(w, first, last, (int32_t)w->count);
	r = draft_jump(w, first, count, true, &all);
	if (r != REFUSAL_NONE && !crowd.holds)
		r = draft_again(w, first, count, crowd.distant, &all);
	if (r != REFUSAL_NONE && !crowd.holds)
		r = draft_short(w, first, count, &all);
	if (r != REFUSAL_NONE) {
		become(w, first, last, -1);
		return -1;
	}
	all.holds = crowd.holds;
	return enter(w, &all);
}

int windows_place(struct windows *w, const struct draft *d, int32_t *index, struct dinst_error *e)
{
	size_t first = d->first, last = d->first + d->count - 1;
	int32_t one = -1;
	unsigned n = touching(w, &first, &last, &one);
	int r = reserve(w, e);

	if (r < 0)
		return r;
	if (n == 0) {
		*index = enter(w, d);
		return 0;
	}
	if (n == 1 && w->items[one].first == first &&
	    w->items[one].first + w->items[one].count - 1 == last &&
	    (is_edge_only(w, d) || !is_edge_only(w, &w->items[one])))
		*index = w->items[one].alone ? -1 : one;
	else
		*index = merge(w, first, last);
	return 0;
}

int32_t windows_final(const struct windows *w, int32_t index)
{
	while (index >= 0 && w->items[index].merged_into >= 0)
		index = w->items[index].merged_into;
	return index;
}

/* ------------------------------------------------------- from and to plans */

int windows_add_elsewhere(struct windows *w, const struct window *where, int32_t *index,
			  struct dinst_error *e)
{
	struct draft d = {
		.kind = where->kind, .where = *where, .host = -1, .merged_into = -1, .fixed = true};
	int r = reserve(w, e);

	if (r == 0)
		*index = enter(w, &d);
	return r;
}

int windows_use(struct windows *w, vaddr_t hole, struct dinst_error *e)
{
	struct draft d = {.hole = hole, .host = -1, .merged_into = -1, .fixed = true};
	int r = reserve(w, e);

	if (r == 0)
		enter(w, &d);
	return r;
}

static int adopt(struct windows *w, const struct window *have, struct dinst_error *e)
{
	long first = flow_insn_at(w->flow, have->start);
	struct draft d = {.first = (size_t)first,
			  .count = have->insn_count,
			  .length = have->length,
			  .padding = have->padding,
			  .kind = have->kind,
			  .hole = have->hole,
			  .host = have->host,
			  .merged_into = -1,
			  .fixed = true};
	int r = reserve(w, e);

	if (r < 0)
		return r;
	if ((size_t)first + d.count > w->flow->insns.count ||
	    !windows_are_free(w, d.first, d.count))
		return dinst_fail(e, DINST_FAILED, "a plan that is not that of its code");
	enter(w, &d);
	return 0;
}

int windows_adopt(struct windows *w, const struct function_plan *plan, struct dinst_error *e)
{
	int r = 0;

	for (size_t i = 0; i < plan->window_count && r == 0; i++) {
		const struct window *have = &plan->windows[i];
		int32_t index;

		if (flow_insn_at(w->flow, have->start) < 0)
			r = windows_add_elsewhere(w, have, &index, e);
		else
			r = adopt(w, have, e);
	}
	return r;
}

static bool is_in_use(const struct draft *d)
{
	return (d->count || d->where.insn_count) && d->merged_into < 0;
}

size_t windows_in_use(const struct windows *w)
{
	size_t n = 0;

	for (size_t i = 0; i < w->count; i++)
		n += is_in_use(&w->items[i]);
	return n;
}

static vaddr_t start_of(const struct windows *w, const struct draft *d)
{
	return d->count ? w->flow->insns.items[d->first].address : d->where.start;
}

static int by_start(const void *a, const void *b, void *arg)
{
	const struct windows *w = arg;
	vaddr_t x = start_of(w, &w->items[*(const int32_t *)a]);
	vaddr_t y = start_of(w, &w->items[*(const int32_t *)b]);

	return x < y ? -1 : x > y;
}

int windows_emit(const struct windows *w, struct window *out, int32_t *place_of,
		 struct dinst_error *e)
{
	int32_t *order = calloc(w->count + 1, sizeof(*order));
	size_t n = 0;

	if (!order)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu windows", w->count);
	for (size_t i = 0; i < w->count; i++)
		if (is_in_use(&w->items[i]))
			order[n++] = (int32_t)i;
	qsort_r(order, n, sizeof(*order), by_start, (void *)(uintptr_t)w);
	for (size_t i = 0; i < n; i++)
		place_of[order[i]] = (int32_t)i;
	for (size_t i = 0; i < w->count; i++)
		if (!is_in_use(&w->items[i]))
			place_of[i] = place_of[windows_final(w, (int32_t)i)];
	for (size_t i = 0; i < n; i++) {
		const struct draft *d = &w->items[order[i]];

		window_of_draft(w->flow, d, &out[i]);
		out[i].host = d->host < 0 ? -1 : place_of[windows_final(w, d->host)];
	}
	free(order);
	return 0;
}

void window_of_draft(const struct flow *f, const struct draft *d, struct window *out)
{
	if (!d->count) {
		*out = d->where;
		return;
	}
	*out = (struct window){
		.start = f->insns.items[d->first].address,
		.length = (uint8_t)d->length,
		.padding = (uint8_t)d->padding,
		.insn_count = (uint8_t)d->count,
		.kind = d->kind,
		.hole = d->hole,
		.hole_length = d->hole ? (uint8_t)arch_jump_size : 0,
		.host = -1,
	};
}

int windows_save(const struct windows *w, struct windows_mark *mark, struct dinst_error *e)
{
	size_t insns = w->flow->insns.count + 1;

	*mark = (struct windows_mark){.count = w->count};
	mark->items = calloc(w->count + 1, sizeof(*mark->items));
	mark->owner = calloc(insns, sizeof(*mark->owner));
	if (!mark->items || !mark->owner) {
		free(mark->items);
		free(mark->owner);
		return dinst_fail(e, DINST_NO_MEMORY, "no memory to try %zu windows", w->count);
	}
	if (w->count)
		memcpy(mark->items, w->items, w->count * sizeof(*mark->items));
	memcpy(mark->owner, w->owner, insns * sizeof(*mark->owner));
	return 0;
}

void windows_back(struct windows *w, struct windows_mark *mark, bool undo)
{
	if (undo) {
		if (mark->count)
			memcpy(w->items, mark->items, mark->count * sizeof(*mark->items));
		w->count = mark->count;
		free(w->owner);
		w->owner = mark->owner;
	} else {
		free(mark->owner);
	}
	free(mark->items);
	*mark = (struct windows_mark){0};
}
