/* SPDX-License-Identifier: MIT */
/*
 * flow_sequences.c - code that must be executed where it is, with nothing of ours in between: up to
 * a system call whose pc somebody compares, behind a prefix that is an instruction of its own, and from
 * a load-exclusive to its store-exclusive. Marks only; decodes nothing, and knows every instruction of the function already.
 */
#include "mutator/flow_private.h"

#include <stdlib.h>

static void mark_insn(struct flow *f, const struct arch_insn *insn)
{
	for (unsigned i = 0; i < insn->length; i++)
		flow_mark(f, insn->address + i, MARK_RSEQ);
	f->compared = true;
}

/*
 * A handler may compare the pc that a signal has interrupted with the labels
 * around a system call, to know whether it has begun (cancellation of musl, and
 * of newer glibcs). Its return point is known elsewhere then, and the straight
 * line up to there must be executed where it is.
 */
void flow_mark_compared(struct flow *f)
{
	for (size_t i = 0; i < f->insns.count; i++) {
		const struct arch_insn *insn = &f->insns.items[i];
		vaddr_t end = insn->address + insn->length;

		if (insn->flow != ARCH_FLOW_SYSCALL ||
		    !(image_references_at(f->img, end) & ~(unsigned)REFERENCE_RSEQ))
			continue;
		for (const struct arch_insn *at = insn;; at--) {
			mark_insn(f, at);
			if (at == f->insns.items || at[-1].address + at[-1].length != at->address ||
			    (at[-1].flow != ARCH_FLOW_NEXT && at[-1].flow != ARCH_FLOW_BRANCH))
				break;
		}
	}
}

/*
 * Between a prefix and its instruction nothing else may be executed: what comes of it is not defined
 * (Arm ARM, C8.2, MOVPRFX). The prefix itself is one that does not move.
 */
void flow_mark_prefixed(struct flow *f)
{
	for (size_t i = 1; i < f->insns.count; i++) {
		const struct arch_insn *insn = &f->insns.items[i];

		if (insn[-1].flags & ARCH_INSN_PREFIX &&
		    insn[-1].address + insn[-1].length == insn->address)
			mark_insn(f, insn);
	}
}

/* -------------------------------------------------------------- exclusives */

enum { SUCCESSORS = 2, ROUNDS = 64 };

/* Of one instruction: control may come here from a load-exclusive, and on to a store-exclusive. */
enum between { AHEAD = 1, LEADS = 2 };

struct exclusives {
	const struct flow *f;
	uint8_t *between; /* enum between of every instruction */
	uint32_t *stack;  /* instructions to go on from: each at most once */
	size_t depth;
};

static bool is_exclusive(const struct arch_insn *insn)
{
	return insn->flags & (ARCH_INSN_EXCLUSIVE_LOAD | ARCH_INSN_EXCLUSIVE_END);
}

/* Where control may go on inside the function: calls come back, of other jumps nothing is known. */
static unsigned find_successors(const struct flow *f, size_t at, size_t next[SUCCESSORS])
{
	const struct arch_insn *insn = &f->insns.items[at];
	unsigned n = 0;
	long to;

	if (!arch_ends_line(insn)) {
		to = flow_insn_at(f, insn->address + insn->length);
		if (to >= 0)
			next[n++] = (size_t)to;
	}
	if (insn->flow == ARCH_FLOW_JUMP || insn->flow == ARCH_FLOW_BRANCH) {
		to = flow_insn_at(f, insn->target);
		if (to >= 0)
			next[n++] = (size_t)to;
	}
	return n;
}

static void go_on(struct exclusives *x, size_t from)
{
	size_t next[SUCCESSORS];
	const unsigned n = find_successors(x->f, from, next);

	for (unsigned i = 0; i < n; i++) {
		if (x->between[next[i]] || is_exclusive(&x->f->insns.items[next[i]]))
			continue;
		x->between[next[i]] = AHEAD;
		x->stack[x->depth++] = (uint32_t)next[i];
	}
}

static void find_ahead(struct exclusives *x)
{
	for (size_t i = 0; i < x->f->insns.count; i++)
		if (x->f->insns.items[i].flags & ARCH_INSN_EXCLUSIVE_LOAD) {
			go_on(x, i);
			while (x->depth)
				go_on(x, x->stack[--x->depth]);
		}
}

static bool leads_on(const struct exclusives *x, size_t at)
{
	size_t next[SUCCESSORS];
	const unsigned n = find_successors(x->f, at, next);

	for (unsigned i = 0; i < n; i++)
		if (x->between[next[i]] & LEADS ||
		    x->f->insns.items[next[i]].flags & ARCH_INSN_EXCLUSIVE_END)
			return true;
	return false;
}

/* True if there was something new. Backwards: one round does, but for jumps back. */
static bool find_leading(struct exclusives *x)
{
	bool is_new = false;

	for (size_t i = x->f->insns.count; i-- > 0;)
		if (x->between[i] == AHEAD && leads_on(x, i)) {
			x->between[i] |= LEADS;
			is_new = true;
		}
	return is_new;
}

/*
 * Whatever stores, enters the kernel or takes long between a load-exclusive and its store-exclusive
 * may end the reservation (Arm ARM, B2.12, "use of exclusives"): the store fails then, and the target
 * tries again, each time in vain. So nothing is inserted on any way from one to the other. What leads
 * out of it, and to no store, is free again.
 */
int flow_mark_exclusives(struct flow *f, struct dinst_error *e)
{
	struct exclusives x = {.f = f};
	size_t loads = 0;
	unsigned rounds = 0;

	for (size_t i = 0; i < f->insns.count; i++)
		loads += (f->insns.items[i].flags & ARCH_INSN_EXCLUSIVE_LOAD) != 0;
	if (!loads)
		return 0;
	x.between = calloc(f->insns.count, sizeof(*x.between));
	x.stack = calloc(f->insns.count, sizeof(*x.stack));
	if (!x.between || !x.stack) {
		free(x.between);
		free(x.stack);
		return dinst_fail(e, DINST_NO_MEMORY,
				  "no memory for the exclusives of %zu instructions",
				  f->insns.count);
	}
	find_ahead(&x);
	while (find_leading(&x) && rounds < ROUNDS)
		rounds++;
	for (size_t i = 0; i < f->insns.count; i++)
		if (x.between[i] & LEADS || (x.between[i] && rounds == ROUNDS))
			mark_insn(f, &f->insns.items[i]);
	free(x.between);
	free(x.stack);
	return 0;
}
