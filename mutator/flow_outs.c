/* SPDX-License-Identifier: MIT */
/*
 * flow_outs.c - where a function branches to outside of itself, sorted, while
 * instructions are still being found: see flow_private.h. Who asks for a few bytes
 * does not look at all instructions; a file may have a hundred thousand of both.
 */
#include "mutator/flow_private.h"

#include <stdlib.h>

static int add(struct outs *o, vaddr_t target, struct dinst_error *e)
{
	if (o->count == o->room) {
		size_t room = o->room ? o->room * 2 : 64;
		void *more = reallocarray(o->items, room, sizeof(*o->items));

		if (!more)
			return dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu branches", room);
		o->items = more;
		o->room = room;
	}
	o->items[o->count++] = (struct out){target, o->updates};
	return 0;
}

static int add_from(struct outs *o, const struct flow *f, const struct insn_list *list,
		    size_t *from, struct dinst_error *e)
{
	int r = 0;

	for (; *from < list->count && r == 0; ++*from) {
		const struct arch_insn *insn = &list->items[*from];

		if ((insn->flow == ARCH_FLOW_JUMP || insn->flow == ARCH_FLOW_BRANCH) &&
		    !flow_contains(f, insn->target))
			r = add(o, insn->target, e);
	}
	return r;
}

static int out_order(const void *a, const void *b)
{
	const struct out *x = a, *y = b;

	if (x->target != y->target)
		return x->target < y->target ? -1 : 1;
	return x->found < y->found ? -1 : x->found > y->found;
}

static size_t run_end(const struct outs *o, unsigned run)
{
	return run + 1 < o->run_count ? o->runs[run + 1] : o->count;
}

int outs_update(struct outs *o, const struct flow *f, struct dinst_error *e)
{
	size_t before = o->count, begin;
	int r;

	if (o->insns == f->insns.count && o->odd == f->odd.count)
		return 0;
	o->updates++;
	r = add_from(o, f, &f->insns, &o->insns, e);
	if (r == 0)
		r = add_from(o, f, &f->odd, &o->odd, e);
	if (r < 0 || o->count == before)
		return r;
	/* Runs that are not much longer become one with what is behind them: few are left. */
	for (begin = before; o->run_count; o->run_count--) {
		size_t last = o->runs[o->run_count - 1];

		if (begin - last > 2 * (o->count - begin))
			break;
		begin = last;
	}
	o->runs[o->run_count++] = begin;
	qsort(o->items + begin, o->count - begin, sizeof(*o->items), out_order);
	return 0;
}

bool outs_into(const struct outs *o, vaddr_t lo, vaddr_t hi, uint64_t after,
	       bool (*found)(void *arg, vaddr_t target), void *arg)
{
	for (unsigned run = 0; run < o->run_count; run++) {
		size_t first = o->runs[run], end = run_end(o, run), behind = end;

		while (first < behind) {
			size_t mid = first + (behind - first) / 2;

			if (o->items[mid].target < lo)
				first = mid + 1;
			else
				behind = mid;
		}
		for (; first < end && o->items[first].target < hi; first++)
			if (o->items[first].found > after && found(arg, o->items[first].target))
				return true;
	}
	return false;
}

void outs_release(struct outs *o)
{
	free(o->items);
	*o = (struct outs){0};
}
