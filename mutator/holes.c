/* SPDX-License-Identifier: MIT */
/*
 * holes.c - where a short jump can lead to: five bytes within its reach that
 * control never comes to. Either padding, or the tail of a near-jump window:
 *
 *     host window                     a short-jump window
 *     | jmp base |  hole  | dead |    | jmp hole | ...
 *       5 bytes    `-- jmp base of the other ---'
 *
 * Only finds them; plan.c and settle.c decide who gets what. Padding behind a
 * piece of a function is that function's; its first bytes are left to windows
 * that padding completes.
 */
#include "mutator/settle.h"
#include "mutator/window.h"

enum { PAGE = 4096 };

static bool leaves(const struct arch_insn *insn)
{
	return insn->flow == ARCH_FLOW_JUMP || insn->flow == ARCH_FLOW_JUMP_INDIRECT ||
	       insn->flow == ARCH_FLOW_RETURN;
}

/*
 * True if the run of padding that insns[at] is a part of is, up to v, used, or does not stand
 * behind what leaves for certain: the handler of a trap may go on there, what has been
 * called may come back, though its name is that of a function that never does, and in
 * front of what nobody is known to come to somebody may come to.
 */
static bool is_needed(const struct flow *f, size_t at, vaddr_t v)
{
	const struct arch_insn *insns = f->insns.items;

	for (; at > 0 && insns[at - 1].address + insns[at - 1].length == insns[at].address; at--)
		if (flow_marks(f, insns[at - 1].address) & MARK_REACHED ||
		    !(insns[at - 1].flags & ARCH_INSN_PADDING)) {
			if (!leaves(&insns[at - 1]))
				return true;
			break;
		}
	/* A short branch of somebody else's is no reference, and where it comes in is not gone on from. */
	for (vaddr_t before = insns[at].address; before < v; before++)
		if (flow_marks(f, before) & MARK_TARGET)
			return true;
	return freemap_is_used(f->map, insns[at].address, v + 1);
}

bool is_dead(const struct windows *w, vaddr_t v)
{
	const struct flow *f = w->flow;
	struct image_range gap;
	long at;

	/* What leads to an earlier byte of the gap runs on through the padding to this one. */
	if (!flow_contains(f, v))
		return !image_references_at(f->img, v) && freemap_gap(f->map, v, &gap) &&
		       !freemap_is_come_to(f->map, gap.lo, v + 1);
	if (flow_marks(f, v) & (MARK_TARGET | MARK_CONFLICT | MARK_RSEQ | MARK_REFERRED))
		return false;
	at = flow_covering(f, v);
	return at >= 0 && f->insns.items[at].flags & ARCH_INSN_PADDING &&
	       !(flow_marks(f, f->insns.items[at].address) & MARK_REACHED) &&
	       !is_needed(f, (size_t)at, v);
}

bool is_in_short_reach(vaddr_t from, vaddr_t hole)
{
	int64_t distance = (int64_t)(hole - from);

	return distance <= arch_short_jump_reach && distance >= -arch_short_jump_reach;
}

/* True if no short jump uses a byte of [hole, hole + arch_jump_size) yet. */
static bool is_unused(const struct windows *w, vaddr_t hole)
{
	for (size_t i = 0; i < w->count; i++) {
		const struct draft *d = &w->items[i];

		if (!d->hole || d->merged_into >= 0)
			continue;
		if (hole < d->hole + arch_jump_size && d->hole < hole + arch_jump_size)
			return false;
	}
	return !w->claims ||
	       claims_are_free(w->claims, hole, hole + arch_jump_size, w->claims_below);
}

static bool one_page(vaddr_t from, vaddr_t hole)
{
	return from / PAGE == hole / PAGE && hole / PAGE == (hole + arch_jump_size - 1) / PAGE;
}

/* --------------------------------------------------------------- padding */

struct hole_search {
	const struct windows *w;
	vaddr_t from; /* end of the short jump */
	vaddr_t best;
};

static void consider(struct hole_search *s, vaddr_t hole)
{
	if (s->best && (one_page(s->from, s->best) || !one_page(s->from, hole)))
		return;
	if (!is_in_short_reach(s->from, hole))
		return;
	for (size_t i = 0; i < arch_jump_size; i++)
		if (!is_dead(s->w, hole + i))
			return;
	if (is_unused(s->w, hole))
		s->best = hole;
}

/* A run of padding: its first bytes are left to the window that ends before it. */
static void search_run(struct hole_search *s, vaddr_t lo, vaddr_t hi)
{
	for (vaddr_t v = lo + arch_jump_size - 1; v + arch_jump_size <= hi; v += arch_jump_size)
		consider(s, v);
}

/* Padding behind the function's pieces. */
static void search_gaps(struct hole_search *s, vaddr_t lo, vaddr_t hi)
{
	const struct flow *f = s->w->flow;

	for (size_t i = flow_piece_behind(f, lo ? lo - 1 : 0);
	     i < f->piece_count && f->pieces[i].hi <= hi; i++) {
		struct image_range gap;

		if (freemap_gap(f->map, f->pieces[i].hi, &gap) && gap.lo == f->pieces[i].hi)
			search_run(s, gap.lo, gap.hi);
	}
}

/* Padding between the blocks of the function itself. */
static void search_own(struct hole_search *s, vaddr_t lo, vaddr_t hi)
{
	const struct insn_list *insns = &s->w->flow->insns;
	size_t at = flow_insn_from(s->w->flow, lo);

	while (at > 0 && insns->items[at - 1].flags & ARCH_INSN_PADDING)
		at--;
	while (at < insns->count && insns->items[at].address < hi) {
		vaddr_t start = insns->items[at].address, end = start;

		if (!(insns->items[at].flags & ARCH_INSN_PADDING)) {
			at++;
			continue;
		}
		for (; at < insns->count && insns->items[at].address == end; at++) {
			if (!(insns->items[at].flags & ARCH_INSN_PADDING))
				break;
			end += insns->items[at].length;
		}
		search_run(s, start, end);
	}
}

vaddr_t find_hole(const struct windows *w, vaddr_t from)
{
	vaddr_t reach = (vaddr_t)arch_short_jump_reach + (vaddr_t)2 * ARCH_INSN_MAX;
	struct hole_search s = {.w = w, .from = from};
	vaddr_t lo = from > reach ? from - reach : 0;

	search_gaps(&s, lo, from + reach);
	if (!w->flow->unresolved)
		search_own(&s, lo, from + reach);
	return s.best;
}

/* ----------------------------------------------------------------- hosts */

/* How much there is to be done for a host: the least is taken. */
enum effort { EFFORT_NONE, EFFORT_LONGER, EFFORT_NEW, EFFORT_CALL, EFFORT_TOO_MUCH };

struct host_search {
	const struct windows *w;
	vaddr_t from;
	size_t first, count; /* instructions of the short jump's own window */
	bool fresh;
	enum effort effort;
	struct host best;
};

/* True if insns[at] is nobody's, and not the short jump's either. */
static bool is_spare(const struct host_search *s, size_t at)
{
	const struct windows *w = s->w;

	return at < w->flow->insns.count && !w->owner[at] && !(w->reserved && w->reserved[at]) &&
	       !(at >= s->first && at < s->first + s->count);
}

static vaddr_t start_of(const struct windows *w, const struct draft *d)
{
	return w->flow->insns.items[d->first].address;
}

/* A free place in the tail of d that the short jump reaches, or 0. */
static vaddr_t hole_in(const struct host_search *s, const struct draft *d)
{
	vaddr_t start = start_of(s->w, d), found = 0;

	for (size_t at = arch_jump_size; at + arch_jump_size <= d->length; at++) {
		vaddr_t hole = start + at;

		if (!is_in_short_reach(s->from, hole) || !is_unused(s->w, hole))
			continue;
		if (one_page(s->from, hole))
			return hole;
		if (!found)
			found = hole;
	}
	return found;
}

/* Takes d if it has a hole and is less effort than what has been found; false: no hole. */
static bool offer(struct host_search *s, const struct draft *d, int32_t index, enum effort effort)
{
	const struct arch_insn *last = &s->w->flow->insns.items[d->first + d->count - 1];
	vaddr_t hole = hole_in(s, d);

	if (!hole)
		return false;
	/* A call that moves returns past what the processor foretells. */
	if (effort == EFFORT_NEW && arch_is_call(last))
		effort = EFFORT_CALL;
	if (effort < s->effort) {
		s->effort = effort;
		s->best = (struct host){.draft = *d, .index = index, .hole = hole};
	}
	return true;
}

/* Near-jump drafts from `first` on, ever longer, until one has a hole. */
static void grow(struct host_search *s, size_t first, unsigned count, int32_t index,
		 enum effort effort)
{
	for (; count <= WINDOW_INSNS_MAX; count++) {
		struct draft d;
		enum refusal r;

		if (!is_spare(s, first + count - 1))
			return;
		r = draft_jump(s->w, first, count, false, &d);
		if (r != REFUSAL_NONE && r != REFUSAL_NO_ROOM)
			return;
		if (r == REFUSAL_NONE && offer(s, &d, index, effort))
			return;
		if (!joins_next(s->w, first + count - 1))
			return;
	}
}

static void try_from(struct host_search *s, size_t at)
{
	int32_t owner = s->w->owner[at];
	const struct draft *d;

	if (!owner) {
		if (s->effort > EFFORT_NEW)
			grow(s, at, 1, -1, EFFORT_NEW);
		return;
	}
	d = &s->w->items[owner - 1];
	if (s->fresh || d->fixed || d->first != at || d->kind != ARCH_PATCH_JUMP)
		return;
	if (!offer(s, d, owner - 1, EFFORT_NONE) && !d->padding && s->effort > EFFORT_LONGER &&
	    joins_next(s->w, at + d->count - 1))
		grow(s, at, d->count + 1, owner - 1, EFFORT_LONGER);
}

bool find_host(const struct windows *w, vaddr_t from, size_t first, unsigned count, bool fresh,
	       struct host *out)
{
	vaddr_t reach = (vaddr_t)arch_short_jump_reach;
	vaddr_t lo = from > reach + WINDOW_BYTES_MAX ? from - reach - WINDOW_BYTES_MAX : 0;
	struct host_search s = {.w = w,
				.from = from,
				.first = first,
				.count = count,
				.fresh = fresh,
				.effort = EFFORT_TOO_MUCH};
	const struct insn_list *insns = &w->flow->insns;

	if (w->flow->single_only)
		return false;
	for (size_t at = flow_insn_from(w->flow, lo);
	     at < insns->count && insns->items[at].address < from + reach && s.effort > EFFORT_NONE;
	     at++)
		try_from(&s, at);
	*out = s.best;
	return s.effort < EFFORT_TOO_MUCH;
}
