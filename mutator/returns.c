/* SPDX-License-Identifier: MIT */
/*
 * returns.c - which calls do not come back.
 *
 * A function never returns if nothing in it, reached or not, is a return or an
 * indirect jump, if its jumps to other places lead only to functions that never
 * return, and if its last instruction does not run on. That is proved from the
 * linear decode alone; what is not proved may return, and so may who goes round with others.
 * Functions of other files are known by name.
 */
#include "mutator/flow_private.h"

#include <stdlib.h>

enum { WAYS_MAX = 32 }; /* jumps out of a function that are looked at */

/* Jumps out of the function, and calls that must not return. */
struct ways {
	vaddr_t targets[WAYS_MAX]; /* of direct ones */
	vaddr_t slots[WAYS_MAX];   /* places through which indirect ones go */
	size_t target_count, slot_count;
	bool unknown; /* something may return, or is too much to look at */
};

/* One of the functions that end by calling each other. */
struct asked {
	uint32_t index;
	size_t first; /* of its ways that are still to be looked at */
};

/* Who is being looked at: each but the first is where the one in front of it leads to. */
struct asking {
	struct freemap *map;
	struct asked *functions;
	size_t count, room;
	vaddr_t *ways; /* first those of the first one */
	size_t way_count, way_room;
};

enum answer { ANSWER_RETURNS, ANSWER_NEVER, ANSWER_OPEN };

/* OPEN: it is as *value is. */
static enum answer answer_of_slot(struct freemap *map, vaddr_t place, vaddr_t *value)
{
	switch (image_slot(freemap_image(map), place, value)) {
	case SLOT_NEVER_RETURNS:
		return ANSWER_NEVER;
	case SLOT_DEFINED:
		return ANSWER_OPEN;
	default:
		return ANSWER_RETURNS;
	}
}

/* A linker stub: perhaps a landing pad, then a jump through a slot. */
static enum answer answer_of_stub(struct freemap *map, vaddr_t v, vaddr_t *value)
{
	size_t size = 0;
	const uint8_t *bytes = image_code(freemap_image(map), v, &size);

	for (unsigned i = 0; bytes && i < 2; i++) {
		struct arch_insn insn;

		if (arch_decode(bytes, size, v, &insn) != ARCH_OK)
			return ANSWER_RETURNS;
		if (insn.flow == ARCH_FLOW_JUMP_INDIRECT && insn.flags & ARCH_INSN_PC_RELATIVE)
			return answer_of_slot(map, insn.data_ref, value);
		if (!(insn.flags & ARCH_INSN_LANDING_PAD))
			return ANSWER_RETURNS;
		bytes += insn.length;
		size -= insn.length;
		v += insn.length;
	}
	return ANSWER_RETURNS;
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

/* False without memory. */
static bool add_way_out(struct asking *a, vaddr_t v)
{
	if (a->way_count == a->way_room) {
		size_t room = a->way_room ? a->way_room * 2 : 32;
		void *more = reallocarray(a->ways, room, sizeof(*a->ways));

		if (!more)
			return false;
		a->ways = more;
		a->way_room = room;
	}
	a->ways[a->way_count++] = v;
	return true;
}

static bool add_asked(struct asking *a, uint32_t index)
{
	if (a->count == a->room) {
		size_t room = a->room ? a->room * 2 : 16;
		void *more = reallocarray(a->functions, room, sizeof(*a->functions));

		if (!more)
			return false;
		a->functions = more;
		a->room = room;
	}
	a->functions[a->count++] = (struct asked){index, a->way_count};
	return true;
}

/* The function is looked at next; false: it may return for all that is known. */
static bool ask(struct asking *a, uint32_t index)
{
	const uint32_t *fragments;
	size_t n = freemap_fragments(a->map, index, &fragments);
	struct ways w = {.unknown = false};
	vaddr_t value;

	if (!add_asked(a, index))
		return false;
	*freemap_verdict(a->map, index) = VERDICT_ASKED;
	find_ways(a->map, index, index, &w);
	for (size_t i = 0; i < n && !w.unknown; i++)
		find_ways(a->map, index, fragments[i], &w);
	for (size_t i = 0; i < w.target_count && !w.unknown; i++)
		w.unknown = !add_way_out(a, w.targets[i]);
	for (size_t i = 0; i < w.slot_count && !w.unknown; i++) {
		const enum answer answer = answer_of_slot(a->map, w.slots[i], &value);

		w.unknown = answer == ANSWER_RETURNS ||
			    (answer == ANSWER_OPEN && !add_way_out(a, value));
	}
	return !w.unknown;
}

/* OPEN: function *index has to be asked. */
static enum answer answer_of(struct freemap *map, vaddr_t v, uint32_t *index)
{
	const uint32_t others = FUNCTION_STUB | FUNCTION_IFUNC | FUNCTION_COLD;
	const struct image_function *functions;
	long at = freemap_starting_at(map, v);
	const uint8_t *known;

	image_functions(freemap_image(map), &functions);
	if (at < 0 && image_is_stub(freemap_image(map), v)) {
		const enum answer answer = answer_of_stub(map, v, &v);

		if (answer != ANSWER_OPEN)
			return answer;
		at = freemap_starting_at(map, v);
	}
	known = at < 0 ? NULL : freemap_verdict(map, (uint32_t)at);
	if (!known || functions[at].flags & others)
		return ANSWER_RETURNS;
	*index = (uint32_t)at;
	if (*known == VERDICT_UNKNOWN)
		return ANSWER_OPEN;
	/* Who is being looked at leads back to itself. */
	return *known == VERDICT_NEVER ? ANSWER_NEVER : ANSWER_RETURNS;
}

/* Asks whoever the function leads to, and whoever they do, until one of them may return: then all do. */
static bool all_never_return(struct asking *a, uint32_t index)
{
	if (!ask(a, index))
		return false;
	while (a->count) {
		const struct asked *last = &a->functions[a->count - 1];

		if (a->way_count == last->first) {
			*freemap_verdict(a->map, last->index) = VERDICT_NEVER;
			a->count--;
			continue;
		}
		switch (answer_of(a->map, a->ways[--a->way_count], &index)) {
		case ANSWER_RETURNS:
			return false;
		case ANSWER_OPEN:
			if (!ask(a, index))
				return false;
			break;
		case ANSWER_NEVER:
			break;
		}
	}
	return true;
}

static bool may_return(struct freemap *map, vaddr_t v)
{
	struct asking a = {.map = map};
	uint32_t index;
	enum answer answer = answer_of(map, v, &index);

	if (answer == ANSWER_OPEN)
		answer = all_never_return(&a, index) ? ANSWER_NEVER : ANSWER_RETURNS;
	for (size_t i = 0; i < a.count; i++)
		*freemap_verdict(map, a.functions[i].index) = VERDICT_RETURNS;
	free(a.functions);
	free(a.ways);
	return answer == ANSWER_RETURNS;
}

static bool slot_may_return(struct freemap *map, vaddr_t place)
{
	vaddr_t value;
	const enum answer answer = answer_of_slot(map, place, &value);

	return answer == ANSWER_RETURNS || (answer == ANSWER_OPEN && may_return(map, value));
}

bool freemap_never_returns(struct freemap *map, const struct arch_insn *insn)
{
	switch (insn->flow) {
	case ARCH_FLOW_CALL:
		/* A call of the next instruction only learns its own address. */
		return insn->target != insn->address + insn->length &&
		       !may_return(map, insn->target);
	case ARCH_FLOW_CALL_INDIRECT:
		return insn->flags & ARCH_INSN_PC_RELATIVE && !slot_may_return(map, insn->data_ref);
	default:
		return false;
	}
}

bool flow_is_noreturn(const struct flow *f, size_t at)
{
	return freemap_never_returns(f->map, &f->insns.items[at]);
}
