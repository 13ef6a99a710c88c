/* SPDX-License-Identifier: MIT */
/*
 * plan.c - finds the points of a function, and a window for each.
 *
 * What can be patched in itself goes first, because it needs nobody else's
 * bytes; then the entry, which has only one possible start; then calls and
 * exits, which can choose among the instructions before them; then what costs
 * windows of its own: short jumps into other windows, and points that are
 * reached on every way that leads to them. The rules are window.c's: here is
 * only the order in which windows are tried.
 */
#include "mutator/plan.h"

#include <stdlib.h>

static const struct arch_insn *insn_of(const struct planning *p, const struct wish *wish)
{
	return &p->flow.insns.items[wish->insn];
}

/* ------------------------------------------------------------ collecting */

int plan_add(struct planning *p, const struct point *point, long insn, struct dinst_error *e)
{
	if (p->count == p->room) {
		size_t room = p->room ? p->room * 2 : 32;
		void *more = reallocarray(p->wishes, room, sizeof(*p->wishes));

		if (!more)
			return dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu points", room);
		p->wishes = more;
		p->room = room;
	}
	p->wishes[p->count] =
		(struct wish){.point = *point, .insn = insn, .window = -1, .next = -1};
	p->wishes[p->count++].point.window = -1;
	return 0;
}

/* A conditional jump that leaves is an exit where it is taken only. */
static int add_wish(struct planning *p, enum point_kind kind, vaddr_t address, long insn,
		    vaddr_t callee, struct dinst_error *e)
{
	struct point point = {.kind = kind, .address = address, .callee = callee};

	if (kind == POINT_EXIT && insn >= 0 && p->flow.insns.items[insn].flow == ARCH_FLOW_BRANCH)
		point.place = PLACE_TAKEN;
	if (kind == POINT_EXIT && insn >= 0 && !callee)
		point.through_pointer = flow_is_pointer_jump(&p->flow, (size_t)insn);
	return plan_add(p, &point, insn, e);
}

static int add_exit(struct planning *p, size_t insn, vaddr_t callee, struct dinst_error *e)
{
	return add_wish(p, POINT_EXIT, p->flow.insns.items[insn].address, (long)insn, callee, e);
}

/*
 * Where a function runs into the next one it has an exit behind its last
 * instruction. Behind a system call nothing is: it does not come back.
 */
static int add_falling(struct planning *p, const struct arch_insn *insn, size_t at,
		       struct dinst_error *e)
{
	const struct point point = {.kind = POINT_EXIT,
				    .place = PLACE_FALLS,
				    .address = insn->address,
				    .callee = insn->address + insn->length};

	return plan_add(p, &point, (long)at, e);
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
static bool is_call_point(const struct flow *f, size_t at)
{
	const struct arch_insn *insn = &f->insns.items[at];

	if (flow_begins_thunk(f, at))
		return false;
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

static int by_address(const void *a, const void *b)
{
	const struct wish *x = a, *y = b;

	return x->point.address < y->point.address ? -1 : x->point.address > y->point.address;
}

int plan_collect(struct planning *p, const struct image_function *fn, struct dinst_error *e)
{
	const struct flow *f = &p->flow;
	size_t known;
	int r = add_wish(p, POINT_ENTRY, fn->address, entry_insn(f, fn->address), 0, e);

	for (size_t i = 0; i < f->insns.count && r == 0; i++) {
		const struct arch_insn *insn = &f->insns.items[i];

		if (!(flow_marks(f, insn->address) & MARK_REACHED))
			continue;
		if (is_call_point(f, i))
			r = add_wish(p, POINT_CALL, insn->address, (long)i, flow_callee(f, i), e);
		else if (flow_is_exit(f, i))
			r = add_exit(p, flow_exit_point(f, i), insn->target, e);
		/* A branch may leave either way. */
		if (r == 0 && arch_falls_through(insn) && insn->flow != ARCH_FLOW_SYSCALL &&
		    flow_falls_out(f, i))
			r = add_falling(p, insn, i, e);
	}
	known = p->count;
	if (r == 0)
		r = collect_unknown(p, e);
	if (p->count > known)
		qsort(p->wishes + 1, p->count - 1, sizeof(*p->wishes), by_address);
	return r;
}

void plan_refuse(struct planning *p, enum refusal why)
{
	p->closed = true;
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

/* A window that has the wish's instruction anyway, if a snippet there can serve it. */
static bool served(struct planning *p, struct wish *wish)
{
	int32_t owner = p->windows.owner[wish->insn];
	const struct draft *d;

	if (!owner)
		return false;
	d = &p->windows.items[owner - 1];
	if (d->alone)
		return false;
	switch (wish->point.place) {
	case PLACE_BEFORE:
		if (is_edge_only(&p->windows, d))
			return false;
		break;
	case PLACE_FALLS:
		if (d->kind != ARCH_PATCH_JUMP && d->kind != ARCH_PATCH_SHORT_JUMP)
			return false;
		break;
	default:
		break;
	}
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

	/* What runs behind it has no place in a branch that is only led elsewhere. */
	switch (wish->point.place == PLACE_FALLS ? ARCH_FLOW_NEXT : insn->flow) {
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

/* Windows that end with insns[last] and begin ever further before the wish's. */
static int place_backward(struct planning *p, struct wish *wish, size_t last, bool may_pad,
			  struct dinst_error *e)
{
	size_t first = (size_t)wish->insn;

	for (;;) {
		unsigned count = (unsigned)(last - first) + 1;
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

/* Most instructions that a window has behind, or a short one before, the wish's. */
enum { BEHIND_MAX = 4, SHORT_MAX = 4 };

int plan_each_short(struct planning *p, struct wish *wish, plan_try try, void *arg,
		    struct dinst_error *e)
{
	size_t at = (size_t)wish->insn, first = at;

	for (unsigned count = 1; count <= SHORT_MAX; count++) {
		struct draft d;
		enum refusal why = draft_short_only(&p->windows, first, count, &d);
		int r = 0;

		if (why == REFUSAL_NONE)
			r = try(p, wish, &d, arg, e);
		else
			note(wish, why);
		if (r < 0 || wish->window >= 0)
			return r;
		/* An entry has only one place to begin at: it grows to the other side. */
		if (wish->point.kind == POINT_ENTRY && wish->point.place == PLACE_BEFORE) {
			if (!joins_next(&p->windows, first + count - 1))
				return 0;
			continue;
		}
		if (first == 0 || !joins_next(&p->windows, first - 1))
			return 0;
		first--;
	}
	return 0;
}

static vaddr_t end_of_short(const struct planning *p, const struct draft *d)
{
	return p->flow.insns.items[d->first].address + arch_short_jump_size;
}

/* A short jump to padding of the function. */
static int try_padding(struct planning *p, struct wish *wish, struct draft *d, void *arg,
		       struct dinst_error *e)
{
	(void)arg;
	d->hole = find_hole(&p->windows, end_of_short(p, d));
	return place(p, wish, d->hole ? REFUSAL_NONE : REFUSAL_NO_ROOM, d, e);
}

/* A short jump to the tail of another window of the function. */
static int try_host(struct planning *p, struct wish *wish, struct draft *d, void *arg,
		    struct dinst_error *e)
{
	struct windows *w = &p->windows;
	struct host host;
	int r;

	(void)arg;
	/* One with a hole may be there, and have room for this one, too. */
	if (!windows_are_free(w, d->first, d->count))
		return place(p, wish, REFUSAL_NONE, d, e);
	if (!find_host(w, end_of_short(p, d), d->first, d->count, false, &host))
		return place(p, wish, REFUSAL_NO_ROOM, d, e);
	if (host.index < 0) {
		r = windows_place(w, &host.draft, &host.index, e);
		if (r < 0)
			return r;
	} else {
		/* A longer one is for the same as it was before. */
		host.draft.alone = w->items[host.index].alone;
		w->items[host.index] = host.draft;
		windows_set_owner(w, &host.draft, host.index + 1);
	}
	w->items[host.index].holds = true;
	d->hole = host.hole;
	d->host = host.index;
	return place(p, wish, REFUSAL_NONE, d, e);
}

/*
 * Windows that end behind the wish's instruction, for those whose instruction
 * does not leave: a branch, or one that has to be followed up to its end.
 */
static int place_forward(struct planning *p, struct wish *wish, struct dinst_error *e)
{
	size_t last = (size_t)wish->insn;
	int r = 0;

	for (unsigned i = 0; i < BEHIND_MAX && r == 0 && wish->window < 0; i++) {
		if (!joins_next(&p->windows, last))
			return 0;
		r = place_backward(p, wish, ++last, false, e);
	}
	return r;
}

/*
 * A short indirect call whose window begins far enough before it keeps its
 * place: the copy comes back to it, and its return is the one that the processor
 * foretells. So the window may be a little longer than it must be, and becomes
 * one with those that it meets.
 */
static int place_before_call(struct planning *p, struct wish *wish, struct dinst_error *e)
{
	const struct arch_insn *insns = p->flow.insns.items;
	size_t at = (size_t)wish->insn, first = at;
	struct draft d;

	if (insns[at].flow != ARCH_FLOW_CALL_INDIRECT || wish->point.place != PLACE_BEFORE)
		return 0;
	while (insns[at].address - insns[first].address < arch_jump_size) {
		if (first == 0 || !joins_next(&p->windows, first - 1))
			return 0;
		first--;
	}
	if (draft_jump(&p->windows, first, (unsigned)(at - first) + 1, false, &d) != REFUSAL_NONE)
		return 0;
	return place(p, wish, REFUSAL_NONE, &d, e);
}

/* A wish that could not be patched in itself. */
static int place_around(struct planning *p, struct wish *wish, struct dinst_error *e)
{
	size_t at = (size_t)wish->insn;
	int r;

	if (served(p, wish))
		return 0;
	r = place_before_call(p, wish, e);
	if (r == 0 && wish->window < 0)
		r = place_backward(p, wish, at, false, e);
	if (r == 0 && wish->window < 0)
		r = place_forward(p, wish, e);
	if (r == 0 && wish->window < 0)
		r = place_backward(p, wish, at, true, e);
	if (r == 0 && wish->window < 0)
		r = plan_each_short(p, wish, try_padding, NULL, e);
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

static int place_entry(struct planning *p, struct wish *wish, struct dinst_error *e)
{
	size_t first = (size_t)wish->insn;
	unsigned count = forward(p, first, arch_jump_size);
	enum refusal why;
	struct draft d;
	int r;

	if (served(p, wish))
		return 0;
	why = draft_jump(&p->windows, first, count, true, &d);
	/* Why the line is too short is what a reader wants to know. */
	if (why == REFUSAL_NO_ROOM && first + count < p->flow.insns.count)
		note(wish, barrier(p, first + count));
	r = place(p, wish, why, &d, e);
	if (r == 0 && wish->window < 0)
		r = plan_each_short(p, wish, try_padding, NULL, e);
	return r;
}

int plan_place_one(struct planning *p, size_t at, struct dinst_error *e)
{
	struct wish *wish = &p->wishes[at];
	int r = 0;

	if (!served(p, wish) && wish->point.place != PLACE_FALLS &&
	    insn_of(p, wish)->flow != ARCH_FLOW_NEXT)
		r = place_itself(p, wish, e);
	if (r == 0 && wish->window < 0)
		r = place_around(p, wish, e);
	if (r == 0 && wish->window < 0)
		r = plan_each_short(p, wish, try_host, NULL, e);
	return r;
}

static bool is_refused(const struct wish *wish)
{
	return wish->window < 0 && wish->insn >= 0 && wish->next < 0;
}

int plan_reserve(struct planning *p, struct dinst_error *e)
{
	struct windows *w = &p->windows;

	for (size_t i = 0; i < p->count; i++) {
		if (!is_refused(&p->wishes[i]))
			continue;
		if (!w->reserved)
			w->reserved = calloc(p->flow.insns.count + 1, sizeof(*w->reserved));
		if (!w->reserved)
			return dinst_fail(e, DINST_NO_MEMORY, "no memory for windows");
		w->reserved[p->wishes[i].insn] = true;
	}
	return 0;
}

/* Whoever has a window has it by now: what is left gets what can be made. */
static int place_rest(struct planning *p, struct dinst_error *e)
{
	size_t count = p->count;
	int r = plan_reserve(p, e);

	for (size_t i = 0; i < count && r == 0; i++)
		if (is_refused(&p->wishes[i]) && !served(p, &p->wishes[i]))
			r = plan_each_short(p, &p->wishes[i], try_host, NULL, e);
	for (size_t i = 0; i < count && r == 0; i++)
		if (p->wishes[i].point.kind == POINT_ENTRY) {
			if (p->wishes[i].window >= 0 && !p->wishes[i].point.part &&
			    p->wishes[i].next < 0)
				r = ways_around(p, i, e);
		} else if (is_refused(&p->wishes[i])) {
			r = ways_into(p, i, e);
		}
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
	/* Before others come into the entry's window. */
	if (r == 0 && p->wishes[0].window >= 0)
		r = ways_around(p, 0, e);
	for (size_t i = 0; i < p->count && r == 0; i++)
		if (p->wishes[i].window < 0 && p->wishes[i].insn >= 0 &&
		    p->wishes[i].point.kind != POINT_ENTRY)
			r = place_around(p, &p->wishes[i], e);
	return r < 0 ? r : place_rest(p, e);
}

/* ------------------------------------------------------------- neighbours */

/* A short jump to padding, or to a new host, among the neighbour's windows `arg`. */
static int try_neighbour(struct planning *p, struct wish *wish, struct draft *d, void *arg,
			 struct dinst_error *e)
{
	struct windows *in = arg;
	vaddr_t from = end_of_short(p, d);
	struct window where;
	struct host host;
	int r = 0;

	if (!windows_are_free(&p->windows, d->first, d->count))
		return place(p, wish, REFUSAL_NONE, d, e);
	d->hole = find_hole(in, from);
	if (!d->hole) {
		if (!find_host(in, from, 0, 0, true, &host))
			return 0;
		r = windows_place(in, &host.draft, &host.index, e);
		if (r < 0)
			return r;
		window_of_draft(in->flow, &host.draft, &where);
		r = windows_add_elsewhere(&p->windows, &where, &d->host, e);
		d->hole = host.hole;
	}
	if (r == 0)
		r = windows_use(in, d->hole, e);
	return r < 0 ? r : place(p, wish, REFUSAL_NONE, d, e);
}

int plan_place_in(struct planning *p, struct windows *in, struct dinst_error *e)
{
	int r = 0;

	for (size_t i = 0; i < p->count && r == 0; i++) {
		if (!is_refused(&p->wishes[i]))
			continue;
		/* An entry that was refused for its loops finds its own window. */
		if (!served(p, &p->wishes[i]))
			r = plan_each_short(p, &p->wishes[i], try_neighbour, in, e);
		if (r == 0 && p->wishes[i].point.kind == POINT_ENTRY && p->wishes[i].window >= 0)
			r = ways_around(p, i, e);
	}
	return r;
}

static int try_nothing(struct planning *p, struct wish *wish, struct draft *d, void *arg,
		       struct dinst_error *e)
{
	bool *needy = arg;

	(void)wish;
	(void)e;
	*needy |= windows_are_free(&p->windows, d->first, d->count);
	return 0;
}

bool plan_is_needy(struct planning *p)
{
	bool needy = false;

	for (size_t i = 0; i < p->count && !needy && !p->closed; i++)
		if (is_refused(&p->wishes[i]))
			plan_each_short(p, &p->wishes[i], try_nothing, &needy, NULL);
	return needy;
}
