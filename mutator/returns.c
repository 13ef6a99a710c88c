/* SPDX-License-Identifier: MIT */
/*
 * returns.c - which calls do not come back.
 *
 * A function never returns if nothing in it, reached or not, is a return or an
 * indirect jump, if its jumps to other places lead only to functions that never
 * return, and if its last instruction does not run on. That is proved from the
 * linear decode alone; what is not proved may return. Functions of other files
 * are known by name.
 */
#include "mutator/flow_private.h"

#include <stdlib.h>

enum {
	DEPTH_MAX = 8, /* of functions that end by calling each other */
	WAYS_MAX = 32, /* jumps out of a function that are looked at */
};

/* Jumps out of the function, and calls that must not return. */
struct ways {
	vaddr_t targets[WAYS_MAX]; /* of direct ones */
	vaddr_t slots[WAYS_MAX];   /* places through which indirect ones go */
	size_t target_count, slot_count;
	bool unknown; /* something may return, or is too much to look at */
};

static bool may_return(struct freemap *map, vaddr_t v, unsigned depth);

static bool slot_may_return(struct freemap *map, vaddr_t place, unsigned depth)
{
	vaddr_t value;

	switch (image_slot(freemap_image(map), place, &value)) {
	case SLOT_NEVER_RETURNS:
		return false;
	case SLOT_DEFINED:
		return may_return(map, value, depth);
	default:
		return true;
	}
}

/* A linker stub: perhaps a landing pad, then a jump through a slot. */
static bool stub_may_return(struct freemap *map, vaddr_t v, unsigned depth)
{
	size_t size = 0;
	const uint8_t *bytes = image_code(freemap_image(map), v, &size);

	for (unsigned i = 0; bytes && i < 2; i++) {
		struct arch_insn insn;

		if (arch_decode(bytes, size, v, &insn) != ARCH_OK)
			return true;
		if (insn.flow == ARCH_FLOW_JUMP_INDIRECT && insn.flags & ARCH_INSN_PC_RELATIVE)
			return slot_may_return(map, insn.data_ref, depth);
		if (!(insn.flags & ARCH_INSN_LANDING_PAD))
			return true;
		bytes += insn.length;
		size -= insn.length;
		v += insn.length;
	}
	return true;
}

static bool is_own(const struct freemap *map, uint32_t index, vaddr_t v)
{
	const uint32_t *fragments;
	size_t n = freemap_fragments(map, index, &fragments);
	struct image_range r = freemap_primary(map, index);

	if (v >= r.lo && v < r.hi)
		return true;
	for (size_t i = 0; i < n; i++) {
		r = freemap_primary(map, fragments[i]);
		if (v >= r.lo && v < r.hi)
			return true;
	}
	return false;
}

static void add_target(struct ways *w, vaddr_t target)
{
	for (size_t i = 0; i < w->target_count; i++)
		if (w->targets[i] == target)
			return;
	if (w->target_count == WAYS_MAX)
		w->unknown = true;
	else
		w->targets[w->target_count++] = target;
}

static void add_slot(struct ways *w, const struct arch_insn *insn)
{
	if (!(insn->flags & ARCH_INSN_PC_RELATIVE) || w->slot_count == WAYS_MAX)
		w->unknown = true;
	else
		w->slots[w->slot_count++] = insn->data_ref;
}

static void add_way(const struct freemap *map, uint32_t index, const struct arch_insn *insn,
		    struct ways *w)
{
	switch (insn->flow) {
	case ARCH_FLOW_RETURN:
		w->unknown = true;
		break;
	case ARCH_FLOW_JUMP_INDIRECT:
		add_slot(w, insn);
		break;
	case ARCH_FLOW_JUMP:
	case ARCH_FLOW_BRANCH:
		if (!is_own(map, index, insn->target))
			add_target(w, insn->target);
		break;
	default:
		break;
	}
}

/* What runs off the end of a part, whose last instruction but padding is `last`. */
static void add_last(const struct arch_insn *last, struct ways *w)
{
	switch (last->flow) {
	case ARCH_FLOW_CALL:
		add_target(w, last->target);
		break;
	case ARCH_FLOW_CALL_INDIRECT:
		add_slot(w, last);
		break;
	case ARCH_FLOW_JUMP:
	case ARCH_FLOW_JUMP_INDIRECT:
	case ARCH_FLOW_STOP:
		break;
	default:
		w->unknown = true;
	}
}

/*
 * What leads out of the part of function `index` that is function or fragment
 * `part`. Most functions have a return: decoding ends there, and nothing is kept.
 */
static void find_ways(struct freemap *map, uint32_t index, uint32_t part, struct ways *w)
{
	struct image_range r = freemap_primary(map, part);
	struct arch_insn last = {.flow = ARCH_FLOW_NEXT}, insn;
	size_t size = 0;
	const uint8_t *bytes = image_code(freemap_image(map), r.lo, &size);

	for (vaddr_t v = r.lo; !w->unknown && v < r.hi; v += insn.length) {
		if (!bytes || arch_decode(bytes + (v - r.lo), r.hi - v, v, &insn) != ARCH_OK) {
			w->unknown = true;
			return;
		}
		add_way(map, index, &insn, w);
		if (!(insn.flags & ARCH_INSN_PADDING))
			last = insn;
	}
	if (!w->unknown)
		add_last(&last, w);
}

static bool function_may_return(struct freemap *map, uint32_t index, unsigned depth)
{
	const uint32_t *fragments;
	size_t n = freemap_fragments(map, index, &fragments);
	struct ways w = {.unknown = false};
	bool may = false;

	find_ways(map, index, index, &w);
	for (size_t i = 0; i < n && !w.unknown; i++)
		find_ways(map, index, fragments[i], &w);
	for (size_t i = 0; i < w.target_count && !w.unknown && !may; i++)
		may = may_return(map, w.targets[i], depth + 1);
	for (size_t i = 0; i < w.slot_count && !w.unknown && !may; i++)
		may = slot_may_return(map, w.slots[i], depth + 1);
	return may || w.unknown;
}

static bool may_return(struct freemap *map, vaddr_t v, unsigned depth)
{
	const struct image_function *functions;
	long index = freemap_starting_at(map, v);
	enum verdict verdict;
	uint8_t *known;

	image_functions(freemap_image(map), &functions);
	if (index < 0)
		return !image_is_stub(freemap_image(map), v) || stub_may_return(map, v, depth);
	known = freemap_verdict(map, (uint32_t)index);
	/* While it is being looked at, or too deep, it may. */
	if (!known || depth > DEPTH_MAX)
		return true;
	if (*known != VERDICT_UNKNOWN)
		return *known != VERDICT_NEVER;
	if (functions[index].flags & (FUNCTION_STUB | FUNCTION_IFUNC | FUNCTION_COLD)) {
		*known = VERDICT_RETURNS;
		return true;
	}
	*known = VERDICT_ASKED;
	verdict =
		function_may_return(map, (uint32_t)index, depth) ? VERDICT_RETURNS : VERDICT_NEVER;
	*known = (uint8_t)verdict;
	return verdict != VERDICT_NEVER;
}

bool freemap_never_returns(struct freemap *map, const struct arch_insn *insn)
{
	switch (insn->flow) {
	case ARCH_FLOW_CALL:
		/* A call of the next instruction only learns its own address. */
		return insn->target != insn->address + insn->length &&
		       !may_return(map, insn->target, 0);
	case ARCH_FLOW_CALL_INDIRECT:
		return insn->flags & ARCH_INSN_PC_RELATIVE &&
		       !slot_may_return(map, insn->data_ref, 0);
	default:
		return false;
	}
}

bool flow_is_noreturn(const struct flow *f, size_t at)
{
	return freemap_never_returns(f->map, &f->insns.items[at]);
}
