/* SPDX-License-Identifier: MIT */
/*
 * flow_odd.c - short branches that come in from next door where that is read in two ways. What only looks like a jump
 * there is looked into (flow_hits.c) if it would matter.
 */
#include "mutator/flow_private.h"
#include "mutator/freemap_odd.h"

/* More than are looked at: any byte may begin one, and the last one may lie across the end. */
static void doubt_all(struct flow *f, vaddr_t lo, vaddr_t hi, vaddr_t end)
{
	flow_mark_every_offset(f, lo, end < hi ? end : hi);
	for (vaddr_t v = end; v < end + ARCH_INSN_MAX; v++)
		flow_mark(f, v, MARK_CONFLICT | MARK_FOREIGN);
}

static bool is_inside(const void *arg, vaddr_t v)
{
	return flow_contains(arg, v);
}

int flow_mark_from_odd(struct flow *f, uint32_t index, const struct sweep *s, vaddr_t lo,
		       vaddr_t hi, struct dinst_error *e)
{
	const vaddr_t end = s->hi; /* the sweep may go */
	struct odd_reading odd;
	int r = 0;

	freemap_read_odd(f->map, index, s, (struct image_range){lo, hi},
			 &(struct odd_wish){is_inside, f}, &odd);
	if (odd.too_many)
		doubt_all(f, lo, hi, end);
	for (size_t i = 0; i < odd.branch_count && r == 0; i++) {
		const struct odd_branch *b = &odd.branches[i];
		bool real = true;

		if (b->root)
			r = flow_is_led_to(f, b->root, &real, e);
		if (r == 0 && real)
			r = b->over ? flow_run_over(f, b->from, end, e) : flow_enter(f, b->to, e);
	}
	return r;
}
