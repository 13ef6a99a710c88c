/* SPDX-License-Identifier: MIT */
/*
 * tables_stores.c - where a function stores whole registers in its frame, by place: for an
 * indirect jump to what was put aside there.
 */
#include "mutator/flow_ways.h"
#include "mutator/tables_private.h"

#include <stdlib.h>

bool flow_frame_place(const struct arch_memory *m)
{
	return m->size == sizeof(vaddr_t) && m->index == ARCH_NO_REGISTER &&
	       bit_of(m->base) & (arch_always_live | arch_callee_saved);
}

static bool may_store(const struct arch_insn *insn)
{
	return insn->flags & ARCH_INSN_MEMORY && insn->flow == ARCH_FLOW_NEXT;
}

/* Fills *s if insns[at] stores a register to a place in the frame. */
static bool is_store(const struct flow *f, size_t at, struct frame_store *s)
{
	const struct arch_insn *insn = &f->insns.items[at];
	struct arch_memory m[ARCH_MEMORY_MAX];
	arch_regset reads, writes;

	if (!may_store(insn) || arch_memory_operands(insn, m) != 1 || !m[0].store || m[0].load ||
	    !flow_frame_place(&m[0]))
		return false;
	arch_effects(insn, &reads, &writes);
	*s = (struct frame_store){m[0].base, m[0].offset, at, reads & ~bit_of(m[0].base)};
	return s->stored;
}

static int by_place(const void *a, const void *b)
{
	const struct frame_store *x = a, *y = b;

	if (x->base != y->base)
		return x->base < y->base ? -1 : 1;
	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return x->at < y->at ? -1 : x->at > y->at;
}

int flow_stores_find(struct flow *f, struct dinst_error *e)
{
	struct flow_ways *w = f->ways;
	struct frame_store s;
	size_t n = 0;

	if (w->stores)
		return 0;
	for (size_t i = 0; i < f->insns.count; i++)
		n += may_store(&f->insns.items[i]);
	w->stores = calloc(n + 1, sizeof(*w->stores));
	if (!w->stores)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for the stores of a function");
	for (size_t i = 0; i < f->insns.count; i++)
		if (is_store(f, i, &s))
			w->stores[w->store_count++] = s;
	qsort(w->stores, w->store_count, sizeof(*w->stores), by_place);
	return 0;
}

size_t flow_stores_to(const struct flow *f, const struct arch_memory *m,
		      const struct frame_store **stores)
{
	const struct flow_ways *w = f->ways;
	const struct frame_store wanted = {.base = m->base, .offset = m->offset, .at = 0};
	size_t lo = 0, hi = w->store_count, n = 0;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (by_place(&w->stores[mid], &wanted) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	*stores = w->stores + lo;
	while (lo + n < w->store_count && w->stores[lo + n].base == m->base &&
	       w->stores[lo + n].offset == m->offset)
		n++;
	return n;
}
