/* SPDX-License-Identifier: MIT */
/*
 * detail_places.c - where a snippet can run as often as an instruction or an
 * edge is executed: at it, or at other places that control passes just as
 * often. Reads the graph and the windows, changes neither.
 *
 * Backwards from an instruction: behind the one before it in its block, or on
 * all edges that lead to the block, if those are all ways in. Forwards: before
 * the next one in the block, or on all edges that lead out of it. Calls and
 * system calls are never crossed, since they need not come back.
 */
#include "mutator/detail_private.h"

enum { WORK_MAX = 200, DEPTH_MAX = 24 };

static const struct arch_insn *insn_at(const struct detail *d, size_t at)
{
	return &d->flow.insns.items[at];
}

static const struct cfg_block *block_of(const struct detail *d, size_t at)
{
	int32_t block = d->cfg.block_of[at];

	return block == CFG_NONE ? NULL : &d->cfg.blocks[block];
}

static size_t last_of(const struct cfg_block *b)
{
	return b->first + b->count - 1;
}

static bool comes_back(const struct arch_insn *insn)
{
	return !arch_is_call(insn) && insn->flow != ARCH_FLOW_SYSCALL;
}

/* Read in two ways, or executed by nobody: no place to count. */
static bool is_doubtful(const struct detail *d, size_t at)
{
	const struct arch_insn *insn = insn_at(d, at);

	for (unsigned i = 0; i < insn->length; i++)
		if (flow_marks(&d->flow, insn->address + i) & MARK_CONFLICT)
			return true;
	return false;
}

static bool is_known_from_everywhere(const struct cfg_block *b)
{
	return !(b->flags & (BLOCK_ENTERED | BLOCK_LANDING | BLOCK_UNREACHED)) && b->in_count;
}

static bool add_spot(struct spots *s, size_t insn, enum point_place place)
{
	if (s->count == SPOTS_MAX)
		return false;
	s->items[s->count++] = (struct spot){insn, place};
	return true;
}

/* --------------------------------------------------------- at an instruction */

/* The window that has insns[at], if what is inserted there runs each time. */
static const struct draft *window_at(const struct detail *d, size_t at)
{
	int32_t owner = d->windows.owner[at];

	if (!owner || d->bypassed[owner - 1])
		return NULL;
	return &d->windows.items[owner - 1];
}

static bool place_before(const struct detail *d, size_t at, struct spots *s)
{
	const struct draft *w = window_at(d, at);

	return w && !is_edge_only(&d->windows, w) && add_spot(s, at, PLACE_BEFORE);
}

static bool place_falls(const struct detail *d, size_t at, struct spots *s)
{
	const struct draft *w = window_at(d, at);

	return w && (w->kind == ARCH_PATCH_JUMP || w->kind == ARCH_PATCH_SHORT_JUMP) &&
	       arch_falls_through(insn_at(d, at)) && add_spot(s, at, PLACE_FALLS);
}

static bool place_taken(const struct detail *d, size_t at, struct spots *s)
{
	const struct draft *w = window_at(d, at);
	const struct arch_insn *insn = insn_at(d, at);

	return w && (insn->flow == ARCH_FLOW_BRANCH || insn->flow == ARCH_FLOW_JUMP) &&
	       add_spot(s, at, PLACE_TAKEN);
}

/* ------------------------------------------------------------- backwards */

static bool back(const struct detail *d, size_t at, unsigned depth, struct spots *s);

/* On the edge itself, at the end of the block that it leaves. */
static bool on_edge(const struct detail *d, const struct cfg_edge *edge, struct spots *s)
{
	size_t last = last_of(&d->cfg.blocks[edge->from]);

	switch (edge->kind) {
	case EDGE_BRANCH:
	case EDGE_JUMP:
		return place_taken(d, last, s);
	case EDGE_FALL:
		return place_falls(d, last, s);
	default:
		return false;
	}
}

/* True if the edge is the only way on from its source, once that is entered. */
static bool is_only_way_out(const struct detail *d, const struct cfg_edge *edge)
{
	const struct cfg_block *from = &d->cfg.blocks[edge->from];
	uint8_t flow = insn_at(d, last_of(from))->flow;

	return (edge->kind == EDGE_JUMP && flow == ARCH_FLOW_JUMP) ||
	       (edge->kind == EDGE_FALL && flow == ARCH_FLOW_NEXT);
}

/* True if the point may be on the other side of insns[at]. */
static bool may_cross(const struct detail *d, size_t at, const struct spots *s)
{
	const struct arch_insn *insn = insn_at(d, at);
	arch_regset reads, writes;

	if (!comes_back(insn) || is_doubtful(d, at) || (s->results && !arch_keeps_results(insn)))
		return false;
	if (!s->keep)
		return true;
	arch_effects(insn, &reads, &writes);
	return !(s->keep & (reads | writes | arch_changes(insn)));
}

/* insns[at] is to be crossed: what is found runs before it. */
static bool cross_back(const struct detail *d, size_t at, unsigned depth, struct spots *s)
{
	return may_cross(d, at, s) && back(d, at, depth, s);
}

static bool back_over_edges(const struct detail *d, const struct cfg_block *b, unsigned depth,
			    struct spots *s)
{
	if (!is_known_from_everywhere(b))
		return false;
	for (uint32_t i = b->in; i < b->in + b->in_count; i++) {
		const struct cfg_edge *edge = &d->cfg.edges[d->cfg.in[i]];

		if (on_edge(d, edge, s))
			continue;
		if (!is_only_way_out(d, edge) ||
		    !cross_back(d, last_of(&d->cfg.blocks[edge->from]), depth, s))
			return false;
	}
	s->ways = true;
	return true;
}

/* Something that runs before insns[at], and only then. */
static bool back(const struct detail *d, size_t at, unsigned depth, struct spots *s)
{
	const struct cfg_block *b = block_of(d, at);
	unsigned known = s->count;
	bool found;

	if (!depth || !s->work || !b)
		return false;
	s->work--;
	if (at > b->first)
		found = place_falls(d, at - 1, s) || cross_back(d, at - 1, depth - 1, s);
	else
		found = back_over_edges(d, b, depth - 1, s);
	if (!found)
		s->count = known;
	return found;
}

/* -------------------------------------------------------------- forwards */

static bool forth(const struct detail *d, size_t at, unsigned depth, struct spots *s);

static bool into(const struct detail *d, const struct cfg_edge *edge, unsigned depth,
		 struct spots *s)
{
	const struct cfg_block *to;

	if (edge->to == CFG_NONE)
		return false;
	to = &d->cfg.blocks[edge->to];
	if (!is_known_from_everywhere(to) || to->in_count != 1)
		return false;
	return place_before(d, to->first, s) || forth(d, to->first, depth, s);
}

static bool forth_over_edges(const struct detail *d, const struct cfg_block *b, unsigned depth,
			     struct spots *s)
{
	uint8_t flow = insn_at(d, last_of(b))->flow;

	if (flow != ARCH_FLOW_NEXT && flow != ARCH_FLOW_JUMP && flow != ARCH_FLOW_BRANCH)
		return false;
	if (!b->out_count || (flow == ARCH_FLOW_BRANCH && b->out_count != 2))
		return false;
	for (uint32_t i = b->out; i < b->out + b->out_count; i++)
		if (d->cfg.edges[i].kind == EDGE_EXCEPTION)
			return false;
		else if (!on_edge(d, &d->cfg.edges[i], s) && !into(d, &d->cfg.edges[i], depth, s))
			return false;
	return true;
}

/* Something that runs behind insns[at], each time and only then. */
static bool forth(const struct detail *d, size_t at, unsigned depth, struct spots *s)
{
	const struct cfg_block *b = block_of(d, at);
	unsigned known = s->count;
	bool found;

	if (!depth || !s->work || !b || !may_cross(d, at, s))
		return false;
	s->work--;
	if (at < last_of(b))
		found = place_before(d, at + 1, s) || forth(d, at + 1, depth - 1, s);
	else
		found = forth_over_edges(d, b, depth - 1, s);
	if (!found)
		s->count = known;
	return found;
}

/* ------------------------------------------------------------- questions */

static void begin(struct spots *s, arch_regset keep, bool results)
{
	s->count = 0;
	s->keep = keep;
	s->results = results;
	s->ways = false;
	s->work = WORK_MAX;
}

/* Why nothing will do, seen from an instruction that has no window. */
static enum refusal why_not(const struct detail *d, size_t at)
{
	int32_t owner = d->windows.owner[at];

	if (owner)
		return REFUSAL_TAKEN;
	if (d->flow.unresolved)
		return REFUSAL_UNRESOLVED;
	if (!block_of(d, at) || !(block_of(d, at)->flags & BLOCK_SURE))
		return REFUSAL_UNDECODED;
	return d->why[at] ? (enum refusal)d->why[at] : REFUSAL_NO_ROOM;
}

static enum refusal search(const struct detail *d, size_t at, arch_regset keep, bool results,
			   struct spots *s)
{
	begin(s, keep, results);
	if (place_before(d, at, s))
		return REFUSAL_NONE;
	if (d->flow.unresolved || is_doubtful(d, at))
		return why_not(d, at);
	if (back(d, at, DEPTH_MAX, s))
		return REFUSAL_NONE;
	begin(s, keep, results);
	return forth(d, at, DEPTH_MAX, s) ? REFUSAL_NONE : why_not(d, at);
}

enum refusal detail_before(const struct detail *d, size_t at, struct spots *s)
{
	return search(d, at, 0, false, s);
}

enum refusal detail_after(const struct detail *d, size_t at, struct spots *s)
{
	return search(d, at, 0, true, s);
}

static arch_regset register_bit(uint8_t reg)
{
	return reg == ARCH_NO_REGISTER ? 0 : (arch_regset)1 << reg;
}

enum refusal detail_at_access(const struct detail *d, size_t at, struct spots *s)
{
	struct arch_memory memory[ARCH_MEMORY_MAX];
	unsigned n = arch_memory_operands(insn_at(d, at), memory);
	arch_regset keep = 0;

	for (unsigned i = 0; i < n; i++) {
		keep |= register_bit(memory[i].base) | register_bit(memory[i].index);
		/* Where the pieces do not tell the address it may depend on anything. */
		if (!memory[i].computable || memory[i].thread_relative)
			keep = arch_all_live;
	}
	return search(d, at, keep, false, s);
}

enum refusal detail_on_edge(const struct detail *d, uint32_t edge, struct spots *s)
{
	const struct cfg_edge *e = &d->cfg.edges[edge];
	size_t last = last_of(&d->cfg.blocks[e->from]);

	begin(s, 0, false);
	if (on_edge(d, e, s))
		return REFUSAL_NONE;
	if (d->flow.unresolved)
		return REFUSAL_UNRESOLVED;
	if (into(d, e, DEPTH_MAX, s))
		return REFUSAL_NONE;
	begin(s, 0, false);
	if (is_only_way_out(d, e)) {
		if (place_before(d, last, s) || cross_back(d, last, DEPTH_MAX, s))
			return REFUSAL_NONE;
	}
	if (e->kind == EDGE_TABLE || !comes_back(insn_at(d, last)))
		return REFUSAL_BRANCH_TARGET;
	return why_not(d, last);
}
