/* SPDX-License-Identifier: MIT */
/*
 * plan.c - finds the points of a function, and a window for each.
 *
 * What can be patched in itself goes first, because it needs nobody else's
 * bytes; then the entry, which has only one possible start; then calls and
 * exits, which can choose among the instructions before them. The rules are
 * window.c's: here is only the order in which windows are tried.
 */
#include "mutator/plan.h"

#include <stdlib.h>

static const struct arch_insn *insn_of(const struct planning *p, const struct wish *wish)
{
	return &p->flow.insns.items[wish->insn];
}

/* ------------------------------------------------------------ collecting */

static int add_wish(struct planning *p, enum point_kind kind, vaddr_t address, long insn,
		    vaddr_t callee, struct dinst_error *e)
{
	if (p->count == p->room) {
		size_t room = p->room ? p->room * 2 : 32;
		void *more = reallocarray(p->wishes, room, sizeof(*p->wishes));

		if (!more)
			return dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu points", room);
		p->wishes = more;
		p->room = room;
	}
	p->wishes[p->count++] = (struct wish){
		.point = {.kind = kind, .address = address, .window = -1, .callee = callee},
		.insn = insn,
		.window = -1,
	};
	return 0;
}

/* The first instruction that may be overwritten: behind a landing pad. */
static long entry_insn(const struct flow *f, vaddr_t address)
{
	long at = flow_insn_at(f, address);
	const struct arch_insn *insn;

	if (at < 0)
		return -1;
	insn = &f->insns.items[at];
	if (insn->flags & ARCH_INSN_LANDING_PAD)
		at = flow_insn_at(f, address + insn->length);
	return at;
}

/* A call of the next instruction that only learns its own address is no call. */
static bool is_call_point(const struct flow *f, const struct arch_insn *insn)
{
	if (insn->flow == ARCH_FLOW_CALL_INDIRECT)
		return true;
	return insn->flow == ARCH_FLOW_CALL && (insn->target != insn->address + insn->length ||
						freemap_starting_at(f->map, insn->target) >= 0);
}

/*
 * Where control comes to something that cannot be decoded, the function may go
 * on to exits that nobody sees: one refused exit stands for them.
 */
static int collect_unknown(struct planning *p, struct dinst_error *e)
{
	const struct flow *f = &p->flow;
	int r = 0;

	for (size_t i = 0; i < f->piece_count; i++) {
		const struct piece *piece = &f->pieces[i];

		for (vaddr_t v = piece->lo; v < piece->hi && r == 0; v++) {
			size_t at = piece->base + (v - piece->lo);

			if (f->marks[at] & MARK_REACHED && !(f->marks[at] & MARK_COVER))
				r = add_wish(p, POINT_EXIT, v, -1, 0, e);
		}
	}
	return r;
}

int plan_collect(struct planning *p, const struct image_function *fn, struct dinst_error *e)
{
	const struct flow *f = &p->flow;
	int r = add_wish(p, POINT_ENTRY, fn->address, entry_insn(f, fn->address), 0, e);

	for (size_t i = 0; i < f->insns.count && r == 0; i++) {
		const struct arch_insn *insn = &f->insns.items[i];

		if (!(flow_marks(f, insn->address) & MARK_REACHED))
			continue;
		if (is_call_point(f, insn))
			r = add_wish(p, POINT_CALL, insn->address, (long)i, insn->target, e);
		else if (flow_is_exit(f, i))
			r = add_wish(p, POINT_EXIT, insn->address, (long)i, insn->target, e);
	}
	return r < 0 ? r : collect_unknown(p, e);
}

void plan_refuse(struct planning *p, enum refusal why)
{
	for (size_t i = 0; i < p->count; i++)
		p->wishes[i].point.refusal = why;
}

/* --------------------------------------------------------------- placing */

/*
 * Keeps the first reason, since the best tactic is tried first; but that there
 * is no room says less than any other.
 */
static void note(struct wish *wish, enum refusal why)
{
	if (wish->point.refusal == REFUSAL_NONE || wish->point.refusal == REFUSAL_NO_ROOM)
		wish->point.refusal = why;
}

/* Places the draft for the wish, if there is one and its bytes are free. */
static int place(struct planning *p, struct wish *wish, enum refusal why, const struct draft *d,
		 struct dinst_error *e)
{
	int r;

	if (why != REFUSAL_NONE) {
		note(wish, why);
		return 0;
	}
	r = windows_place(&p->windows, d, &wish->window, e);
	if (r == 0 && wish->window < 0)
		note(wish, REFUSAL_TAKEN);
	return r;
}

/* A window that has the wish's instruction anyway, if its slot can serve it. */
static bool served(struct planning *p, struct wish *wish)
{
	int32_t owner = p->windows.owner[wish->insn];
	const struct draft *d;

	if (!owner)
		return false;
	d = &p->windows.items[owner - 1];
	/* A slot before a conditional jump runs on both of its sides. */
	if (d->edge_only || insn_of(p, wish)->flow == ARCH_FLOW_BRANCH)
		if (wish->point.kind != POINT_ENTRY || d->edge_only)
			return false;
	wish->window = owner - 1;
	return true;
}

/* Tactics that change only the point's own instruction. */
static int place_itself(struct planning *p, struct wish *wish, struct dinst_error *e)
{
	const struct arch_insn *insn = insn_of(p, wish);
	size_t at = (size_t)wish->insn;
	struct draft d;
	enum refusal why;

	switch (insn->flow) {
	case ARCH_FLOW_CALL:
	case ARCH_FLOW_JUMP:
	case ARCH_FLOW_BRANCH:
		why = draft_in_place(&p->windows, at, ARCH_PATCH_RETARGET, &d);
		break;
	case ARCH_FLOW_CALL_INDIRECT:
		why = draft_in_place(&p->windows, at, ARCH_PATCH_CALL, &d);
		break;
	default:
		why = draft_jump(&p->windows, at, 1, false, &d);
		break;
	}
	return place(p, wish, why, &d, e);
}

/* Why the instruction before insns[at] cannot be in a window with it. */
static enum refusal barrier(const struct planning *p, size_t at)
{
	const struct arch_insn *insns = p->flow.insns.items;
	const struct arch_insn *before;

	if (at == 0 || freemap_starting_at(p->flow.map, insns[at].address) >= 0)
		return REFUSAL_NO_ROOM;
	if (flow_marks(&p->flow, insns[at].address) & MARK_TARGET)
		return REFUSAL_BRANCH_TARGET;
	before = &insns[at - 1];
	return before->flow == ARCH_FLOW_SYSCALL ? REFUSAL_UNMOVABLE : REFUSAL_NO_ROOM;
}

/* Windows that end with the point's instruction and begin ever further before it. */
static int place_backward(struct planning *p, struct wish *wish, bool may_pad,
			  struct dinst_error *e)
{
	size_t at = (size_t)wish->insn, first = at;

	for (;;) {
		unsigned count = (unsigned)(at - first) + 1;
		struct draft d;
		enum refusal why = draft_jump(&p->windows, first, count, may_pad, &d);
		int r = place(p, wish, why, &d, e);

		if (r < 0 || wish->window >= 0)
			return r;
		if (first == 0 || !joins_next(&p->windows, first - 1)) {
			note(wish, barrier(p, first));
			return 0;
		}
		if (count == WINDOW_INSNS_MAX || why == REFUSAL_UNMOVABLE ||
		    why == REFUSAL_UNDECODED || why == REFUSAL_RSEQ || why == REFUSAL_UNRESOLVED)
			return 0;
		first--;
	}
}

static int place_short(struct planning *p, struct wish *wish, struct dinst_error *e)
{
	size_t at = (size_t)wish->insn, first = at;

	for (;;) {
		unsigned count = (unsigned)(at - first) + 1;
		struct draft d;
		enum refusal why = draft_short(&p->windows, first, count, &d);
		int r = place(p, wish, why, &d, e);

		if (r < 0 || wish->window >= 0)
			return r;
		if (count == 4 || first == 0 || !joins_next(&p->windows, first - 1))
			return 0;
		first--;
	}
}

/* A call or an exit that could not be patched in itself. */
static int place_around(struct planning *p, struct wish *wish, struct dinst_error *e)
{
	int r;

	if (served(p, wish) || insn_of(p, wish)->flow == ARCH_FLOW_BRANCH)
		return 0;
	r = place_backward(p, wish, false, e);
	if (r == 0 && wish->window < 0)
		r = place_backward(p, wish, true, e);
	if (r == 0 && wish->window < 0)
		r = place_short(p, wish, e);
	return r;
}

/* How many instructions from `first` on make `bytes`, as far as they are one line. */
static unsigned forward(const struct planning *p, size_t first, size_t bytes)
{
	unsigned count = 1;
	size_t length = p->flow.insns.items[first].length;

	while (length < bytes && count < WINDOW_INSNS_MAX &&
	       joins_next(&p->windows, first + count - 1)) {
		length += p->flow.insns.items[first + count].length;
		count++;
	}
	return count;
}

/*
 * Takes back the windows of conditional tail jumps that stand in the way of the
 * entry: calls of the function are worth more than one of its exits.
 */
static bool evict_edges(struct planning *p, size_t first, unsigned count)
{
	bool any = false;

	for (size_t i = 0; i < p->count; i++) {
		struct wish *other = &p->wishes[i];

		if (other->window < 0 || !p->windows.items[other->window].edge_only)
			continue;
		if ((size_t)other->insn < first || (size_t)other->insn >= first + count)
			continue;
		windows_drop(&p->windows, other->window);
		other->window = -1;
		other->point.refusal = REFUSAL_TAKEN;
		any = true;
	}
	return any;
}

static bool loops_to_entry(const struct planning *p, const struct wish *wish)
{
	return (flow_marks(&p->flow, wish->point.address) |
		flow_marks(&p->flow, insn_of(p, wish)->address)) &
	       MARK_LOOP;
}

static int place_entry(struct planning *p, struct wish *wish, struct dinst_error *e)
{
	size_t first = (size_t)wish->insn;
	unsigned count = forward(p, first, arch_jump_size);
	enum refusal why;
	struct draft d;
	int r;

	if (loops_to_entry(p, wish)) {
		wish->point.refusal = REFUSAL_LOOP_ENTRY;
		return 0;
	}
	if (served(p, wish))
		return 0;
	why = draft_jump(&p->windows, first, count, true, &d);
	/* Why the line is too short is what a reader wants to know. */
	if (why == REFUSAL_NO_ROOM && first + count < p->flow.insns.count)
		note(wish, barrier(p, first + count));
	r = place(p, wish, why, &d, e);
	if (r == 0 && wish->window < 0) {
		struct draft small;
		enum refusal no = draft_short(&p->windows, first,
					      forward(p, first, arch_short_jump_size), &small);

		r = place(p, wish, no, &small, e);
	}
	if (r == 0 && wish->window < 0 && why == REFUSAL_NONE && evict_edges(p, first, count))
		r = place(p, wish, why, &d, e);
	return r;
}

int plan_place(struct planning *p, struct dinst_error *e)
{
	int r = 0;

	for (size_t i = 0; i < p->count && r == 0; i++)
		if (p->wishes[i].insn < 0)
			p->wishes[i].point.refusal = REFUSAL_UNDECODED;
		else if (p->wishes[i].point.kind != POINT_ENTRY)
			r = place_itself(p, &p->wishes[i], e);
	for (size_t i = 0; i < p->count && r == 0; i++)
		if (p->wishes[i].point.kind == POINT_ENTRY && p->wishes[i].insn >= 0)
			r = place_entry(p, &p->wishes[i], e);
	for (size_t i = 0; i < p->count && r == 0; i++)
		if (p->wishes[i].window < 0 && p->wishes[i].insn >= 0 &&
		    p->wishes[i].point.kind != POINT_ENTRY)
			r = place_around(p, &p->wishes[i], e);
	return r;
}
