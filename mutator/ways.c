/* SPDX-License-Identifier: MIT */
/*
 * ways.c - points that one place is not enough for.
 *
 * "edges": an instruction that cannot be patched is left alone, and every way
 * that leads to it is a part of the point instead:
 *
 *        jcc A ───────┐ part 1: where it is taken
 *        ...          │
 *        last insn    │ part 0: where it falls through
 *     A: ret ◁────────┘
 *
 * That the ways are known all matters for the counts only: nothing of A itself
 * changes. "bypass": where a function loops back to its first instruction, the
 * loop's jumps are parts of the entry that go round what is inserted there.
 * A point gets all of its parts or none.
 */
#include "mutator/flow_ways.h"
#include "mutator/plan.h"

enum {
	WAYS_MAX = 64,
	/*
	 * Instructions and windows that are put aside, for all tries of one function: a second
	 * or so. What is refused beyond that stays refused. Of 200,000 functions the one that
	 * takes most, in gdb, takes 4,991.
	 */
	COPIED_MOST = 1 << 25,
};

struct way {
	size_t insn;
	enum point_place place;
};

struct way_list {
	struct way items[WAYS_MAX];
	size_t count;
	bool too_many;
};

static void add_way(struct way_list *list, size_t insn, enum point_place place)
{
	if (list->count == WAYS_MAX)
		list->too_many = true;
	else
		list->items[list->count++] = (struct way){insn, place};
}

static bool is_direct(const struct arch_insn *insn)
{
	return insn->flow == ARCH_FLOW_JUMP || insn->flow == ARCH_FLOW_BRANCH;
}

/*
 * All direct branches of the function to v. False if there is one that control
 * does not seem to reach: then something about the function is not understood.
 */
static bool find_branches(const struct flow *f, vaddr_t v, enum point_place place,
			  struct way_list *list)
{
	for (long i = flow_ways_first(f, v); i >= 0; i = flow_ways_next(f, i)) {
		const struct arch_insn *insn = &f->insns.items[i];

		/* A function that calls itself is entered anew. */
		if (insn->flow == ARCH_FLOW_CALL && place == PLACE_BYPASS)
			continue;
		if (!is_direct(insn) || !(flow_marks(f, insn->address) & MARK_REACHED))
			return false;
		add_way(list, (size_t)i, place);
		if (list->too_many)
			return false;
	}
	/* Those that an odd one leads to are marked. */
	for (size_t i = 0; i < f->odd.count && flow_marks(f, v) & MARK_FOREIGN; i++)
		if (f->odd.items[i].target == v)
			return false;
	return true;
}

/* Where control runs into insns[at] from the instruction before it. */
static bool find_fall(const struct flow *f, size_t at, struct way_list *list)
{
	const struct arch_insn *insn = &f->insns.items[at], *before;
	long i = flow_covering(f, insn->address - 1);

	if (i < 0) {
		/* The first of a piece: nothing before it is the function's. */
		return !flow_contains(f, insn->address - 1);
	}
	before = &f->insns.items[i];
	if (before->address + before->length != insn->address)
		return false;
	if (!(flow_marks(f, before->address) & MARK_REACHED) || before->flow == ARCH_FLOW_JUMP ||
	    before->flow == ARCH_FLOW_JUMP_INDIRECT || before->flow == ARCH_FLOW_RETURN ||
	    (before->flow == ARCH_FLOW_STOP && !flow_is_breakpoint(f, before)))
		return true;
	/* What is behind a call, a system call or a trap is come to by returning. */
	if (before->flow != ARCH_FLOW_NEXT && before->flow != ARCH_FLOW_BRANCH)
		return false;
	add_way(list, (size_t)i, PLACE_FALLS);
	return !list->too_many;
}

/* Lets the wish be reached at `way`: by itself, or, if it has a place already, by a new part. */
static int place_way(struct planning *p, size_t wish, const struct way *way, bool itself,
		     struct dinst_error *e)
{
	struct point point = p->wishes[wish].point;
	size_t at = wish, last = wish;
	int r;

	point.place = way->place;
	point.refusal = REFUSAL_NONE;
	if (itself) {
		p->wishes[wish].point = point;
		p->wishes[wish].insn = (long)way->insn;
	} else {
		while (p->wishes[last].next >= 0)
			last = (size_t)p->wishes[last].next;
		point.part = (uint16_t)(p->wishes[last].point.part + 1);
		r = plan_add(p, &point, (long)way->insn, e);
		if (r < 0)
			return r;
		at = p->count - 1;
		p->wishes[last].next = (int32_t)at;
	}
	return plan_place_one(p, at, e);
}

/* True if somebody but the entry and its parts has the window. */
static bool is_shared(const struct planning *p, size_t entry, int32_t window)
{
	for (size_t i = 0; i < p->count; i++)
		if (windows_final(&p->windows, p->wishes[i].window) == window && i != entry &&
		    p->wishes[i].point.kind != POINT_ENTRY)
			return true;
	return false;
}

/*
 * Who goes round a window from another one executes its instructions without
 * any snippet: then nobody else may have a place in it.
 */
static bool keep_alone(struct planning *p, size_t entry)
{
	int32_t window = windows_final(&p->windows, p->wishes[entry].window);
	bool from_outside = false;

	for (int32_t k = p->wishes[entry].next; k >= 0; k = p->wishes[k].next)
		from_outside |= windows_final(&p->windows, p->wishes[k].window) != window;
	if (!from_outside)
		return true;
	p->windows.items[window].alone = true;
	return !is_shared(p, entry, window);
}

/* All ways or none: `first_itself` if the first one is the wish's own place. */
static int place_ways(struct planning *p, size_t wish, const struct way_list *list,
		      bool first_itself, bool *done, struct dinst_error *e)
{
	struct windows_mark mark;
	struct wish before = p->wishes[wish];
	size_t count = p->count;
	int r = windows_save(&p->windows, &mark, e);

	p->copied += p->windows.count + p->flow.insns.count;
	*done = false;
	if (r < 0)
		return r;
	*done = true;
	for (size_t i = 0; i < list->count && r == 0 && *done; i++) {
		bool itself = first_itself && i == 0;

		r = place_way(p, wish, &list->items[i], itself, e);
		*done = r == 0 && p->wishes[itself ? wish : p->count - 1].window >= 0;
	}
	if (*done && !first_itself)
		*done = keep_alone(p, wish);
	if (*done) {
		p->wishes[wish].on_ways = true;
	} else {
		p->count = count;
		p->wishes[wish] = before;
	}
	windows_back(&p->windows, &mark, !*done);
	return r;
}

int ways_into(struct planning *p, size_t at, struct dinst_error *e)
{
	const struct flow *f = &p->flow;
	const struct wish *wish = &p->wishes[at];
	const struct arch_insn *insn = &f->insns.items[wish->insn];
	struct way_list list = {0};
	bool done;
	int r;

	/* Reached in ways that are no jumps of this function: a return, a table, a pointer. */
	if (f->unresolved || wish->point.place != PLACE_BEFORE || (size_t)wish->insn == 0 ||
	    insn->address == p->wishes[0].point.address ||
	    flow_marks(f, insn->address) & (MARK_FOREIGN | MARK_RETURN | MARK_TABLE | MARK_SURE |
					    MARK_REFERRED | MARK_CONFLICT | MARK_RSEQ))
		return 0;
	if (p->copied > COPIED_MOST)
		return 0;
	r = flow_ways_find(&p->flow, e);
	if (r < 0)
		return r;
	if (!find_fall(f, (size_t)wish->insn, &list) ||
	    !find_branches(f, insn->address, PLACE_TAKEN, &list) || list.count == 0)
		return 0;
	return place_ways(p, at, &list, true, &done, e);
}

int ways_around(struct planning *p, size_t entry, struct dinst_error *e)
{
	const struct flow *f = &p->flow;
	struct wish *wish = &p->wishes[entry];
	vaddr_t first = wish->point.address, behind = f->insns.items[wish->insn].address;
	unsigned marks = flow_marks(f, first) | flow_marks(f, behind);
	struct way_list list = {0};
	bool known, done = false;
	int r = 0;

	if (!(marks & (MARK_LOOP | MARK_TABLE)))
		return 0;
	r = flow_ways_find(&p->flow, e);
	if (r < 0)
		return r;
	known = !f->unresolved && !(marks & MARK_TABLE) &&
		find_branches(f, first, PLACE_BYPASS, &list);
	if (known && behind != first)
		known = find_branches(f, behind, PLACE_BYPASS, &list);
	if (known && list.count)
		r = place_ways(p, entry, &list, false, &done, e);
	if (r == 0 && !done) {
		p->wishes[entry].window = -1;
		p->wishes[entry].point.refusal = REFUSAL_LOOP_ENTRY;
	}
	return r;
}
