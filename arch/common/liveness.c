/* SPDX-License-Identifier: MIT */
/*
 * liveness.c - which registers and flags may still be needed at a place,
 * proved by the instructions that follow and by nothing else. Wherever the
 * proof ends (a call, a return, a system call, the edge of what is known, the
 * end of patience) everything still undecided is live, and callee-saved
 * registers always are: an instruction that faults may go on in a handler.
 */
#include "arch/common/common.h"

enum { STEPS_MAX = 64, PATHS_MAX = 16 };

/* A place to look at, and what is still undecided on the way there. */
struct path {
	size_t at;
	arch_regset undecided;
};

struct search {
	const struct arch_insn *insns;
	size_t count;
	arch_regset live;
	struct path pending[PATHS_MAX];
	size_t pending_count;
	struct path seen[STEPS_MAX];
	size_t seen_count;
};

/* Index of the instruction at `address`, or count if it is none of these; `near` may be it. */
static size_t find(const struct search *s, taddr_t address, size_t near)
{
	size_t lo = 0, hi = s->count;

	if (near < s->count && s->insns[near].address == address)
		return near;
	while (lo < hi) {
		size_t middle = lo + (hi - lo) / 2;

		if (s->insns[middle].address < address)
			lo = middle + 1;
		else
			hi = middle;
	}
	return lo < s->count && s->insns[lo].address == address ? lo : s->count;
}

static void go_on(struct search *s, taddr_t address, size_t near, arch_regset undecided)
{
	size_t at;

	undecided &= ~s->live;
	if (undecided == 0)
		return;
	at = find(s, address, near);
	if (at == s->count || s->pending_count == PATHS_MAX)
		s->live |= undecided;
	else
		s->pending[s->pending_count++] = (struct path){at, undecided};
}

/* True if at least as much was asked at this instruction before. */
static bool was_seen(const struct search *s, struct path p)
{
	for (size_t i = 0; i < s->seen_count; i++)
		if (s->seen[i].at == p.at && !(p.undecided & ~s->seen[i].undecided))
			return true;
	return false;
}

static void step(struct search *s, struct path p)
{
	const struct arch_insn *insn = &s->insns[p.at];
	taddr_t after = insn->address + insn->length;
	arch_regset reads, writes;

	if (was_seen(s, p))
		return;
	if (s->seen_count == STEPS_MAX) {
		s->live |= p.undecided;
		return;
	}
	s->seen[s->seen_count++] = p;
	arch_effects(insn, &reads, &writes);
	s->live |= reads & p.undecided;
	p.undecided &= ~(reads | writes);
	switch (insn->flow) {
	case ARCH_FLOW_NEXT:
		go_on(s, after, p.at + 1, p.undecided);
		break;
	case ARCH_FLOW_JUMP:
		go_on(s, insn->target, s->count, p.undecided);
		break;
	case ARCH_FLOW_BRANCH:
		go_on(s, after, p.at + 1, p.undecided);
		go_on(s, insn->target, s->count, p.undecided);
		break;
	default:
		s->live |= p.undecided;
	}
}

arch_regset arch_live_before(const struct arch_insn *insns, size_t count, size_t at)
{
	struct search s;

	/* Field by field: zeros for all that could be seen would cost more than the search. */
	s.insns = insns;
	s.count = count;
	s.live = arch_always_live | arch_callee_saved;
	s.pending_count = 0;
	s.seen_count = 0;
	if (at >= count)
		return arch_all_live;
	go_on(&s, insns[at].address, at, arch_all_live);
	while (s.pending_count > 0 && s.live != arch_all_live)
		step(&s, s.pending[--s.pending_count]);
	return s.live;
}
