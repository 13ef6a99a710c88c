/* SPDX-License-Identifier: MIT */
/*
 * count_place.c - where in its window an exit is counted.
 *
 * At a return everything is live, and a counter has to save all that it uses. A
 * few instructions before it the registers that are about to be restored are
 * free, and often the flags. So what does nothing but count is put there, where
 * less is live: in the same window, in front of instructions that lead nowhere
 * else and cannot fault. Whoever stands behind it, and before the return, when
 * the window is patched is counted by us.
 *
 * Never moves anything but unconditional increments, and never over a branch.
 */
#include "mutator/body.h"

/* The counter that the snippet increments, by *number, and does nothing else; 0: it does. */
static taddr_t only_counts(const struct snippet *s, uint64_t *number)
{
	const struct snippet_code *code = s->code;
	const struct arch_op *op;

	*number = 1;
	if (s->kind == SNIPPET_COUNT)
		return s->counter;
	if (s->kind != SNIPPET_PROGRAM || s->pair || !code || code->activation || code->start ||
	    code->per_thread || code->system_calls || code->program.count != 1)
		return 0;
	op = &code->program.ops[0];
	*number = (uint64_t)(int64_t)op->immediate;
	return op->kind == ARCH_OP_COUNT && !op->a && !op->b ? op->number : 0;
}

/* Control goes on to the next instruction, whatever the registers and memory are. */
static bool goes_on(const struct arch_insn *insn)
{
	return insn->flow == ARCH_FLOW_NEXT &&
	       !(insn->flags & (ARCH_INSN_NO_MOVE | ARCH_INSN_LANDING_PAD | ARCH_INSN_DIVIDES)) &&
	       (!(insn->flags & ARCH_INSN_MEMORY) ||
		insn->flags & (ARCH_INSN_PC_RELATIVE | ARCH_INSN_STACK_OPERAND));
}

static unsigned size_of(arch_regset set)
{
	return (unsigned)__builtin_popcountll(set);
}

void count_place_choose(struct link *l)
{
	struct arch_insn insns[WINDOW_INSNS_MAX];
	arch_regset live = l->point_live, reads, writes;
	uint64_t number;

	l->insn = l->point_insn;
	l->live = l->point_live;
	if (l->kind != POINT_EXIT || l->place != PLACE_BEFORE || !l->point_insn ||
	    /* What stands in private memory is the target's alone: we could not count for it. */
	    l->site->place->arena->mode != ARENA_SHARED || !only_counts(&l->snippet, &number) ||
	    site_instructions(l->site, insns) <= l->point_insn)
		return;
	for (unsigned i = l->point_insn; i-- > 0 && goes_on(&insns[i]);) {
		arch_effects(&insns[i], &reads, &writes);
		live = (live & ~writes) | reads | arch_always_live;
		if (size_of(live) >= size_of(l->live))
			continue;
		l->insn = (uint8_t)i;
		l->live = live;
	}
}

void count_place_passed(const struct site *site, taddr_t pc)
{
	struct arch_insn insns[WINDOW_INSNS_MAX];
	const size_t count = site_instructions(site, insns);
	const struct body *b = site->body;
	size_t at = 0;
	uint64_t number;

	while (at < count && insns[at].address != pc)
		at++;
	for (unsigned i = 0; b && at < count && i < b->count; i++) {
		const struct body_piece *p = &b->pieces[i];
		const taddr_t counter = only_counts(&p->snippet, &number);

		if (p->insn < at && at <= p->point_insn && counter)
			heap_add_to_counter(site->place->heap, counter, number);
	}
}
