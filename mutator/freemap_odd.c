/* SPDX-License-Identifier: MIT */
/*
 * freemap_odd.c - see freemap_odd.h. From each place where somebody jumps to it is read straight on, up to where both
 * readings meet.
 */
#include "mutator/freemap_odd.h"

#include "mutator/hits.h"

enum { ODD_BEFORE = 64 }; /* bytes in front of a part from where it may be run into */

struct odd_search {
	struct image *img;
	const struct sweep *s;
	struct image_range part;
	const struct odd_wish *wish;
	struct odd_reading *found;
};

static bool is_head(const struct sweep *s, vaddr_t v)
{
	const size_t at = freemap_first(s, v);

	return at < s->count && s->insns[at].address == v;
}

/* What is known for sure says more than what is not. */
static bool says_more(vaddr_t root, vaddr_t than)
{
	return !root || root == than;
}

static void add_place(struct odd_search *o, vaddr_t v, vaddr_t root)
{
	struct odd_reading *found = o->found;

	if (v < o->part.lo || v >= o->part.hi || v >= o->s->end || is_head(o->s, v))
		return;
	for (size_t i = 0; i < found->place_count; i++)
		if (found->places[i].at == v && says_more(found->places[i].root, root))
			return;
	if (found->place_count == ODD_MOST)
		found->too_many = true;
	else
		found->places[found->place_count++] = (struct odd_place){v, root};
}

static void add_branch(struct odd_search *o, const struct odd_branch *b)
{
	struct odd_reading *found = o->found;

	for (size_t i = 0; i < found->branch_count; i++)
		if (found->branches[i].from == b->from && found->branches[i].over == b->over &&
		    says_more(found->branches[i].root, b->root))
			return;
	if (found->branch_count == ODD_MOST)
		found->too_many = true;
	else
		found->branches[found->branch_count++] = *b;
}

/*
 * Where addresses are fixed any word may look like one, and any two like a table: within an instruction that a
 * compiler has made that is chance.
 */
static bool words_count(const struct image *img, uint32_t index)
{
	const struct image_function *functions;

	image_functions(img, &functions);
	return !image_is_fixed(img) || functions[index].flags & FUNCTION_NO_FRAME;
}

/* What is known for sure first. */
static void find_places(struct odd_search *o, const struct freemap *map, uint32_t index)
{
	const bool words = words_count(o->img, index);
	const unsigned kinds =
		REFERENCE_LANDING | REFERENCE_SYMBOL | (words ? REFERENCE_ADDRESS : 0);
	const vaddr_t lo = o->part.lo, hi = o->part.hi, *targets;
	size_t first, n = freemap_table_targets(map, lo, hi, &targets);
	unsigned refs;

	for (size_t i = 0; i < n && words; i++)
		add_place(o, targets[i], 0);
	for (vaddr_t v = lo; image_references_next(o->img, &v, hi, &refs); v++)
		if (refs & kinds)
			add_place(o, v, 0);
	/* Its own ones from afar, too: they are no references. */
	for (size_t i = 0; i < o->s->count; i++)
		add_place(o, o->s->insns[i].target, 0);
	n = image_hits_into(o->img, lo, hi, &first);
	for (size_t k = first; k < first + n; k++)
		add_place(o, image_hit(o->img, k)->target, image_hit(o->img, k)->target);
}

/* The last instruction ends at the function's end or behind it. */
static void run_over(struct odd_search *o, const struct arch_insn *insn, vaddr_t root)
{
	const vaddr_t end = o->s->hi, behind = insn->address + insn->length;
	const bool goes_on = !arch_ends_line(insn);
	bool wanted = false;

	for (vaddr_t v = end; v < behind + goes_on && !wanted; v++)
		wanted = o->wish->wanted(o->wish->arg, v);
	if (wanted)
		add_branch(o,
			   &(struct odd_branch){insn->address, goes_on ? behind : end, root, true});
}

/* Straight on, up to where an instruction of the other reading begins. */
static void read_from(struct odd_search *o, const struct odd_place *place)
{
	const vaddr_t root = place->root, end = o->s->hi;
	vaddr_t v = place->at;
	struct arch_insn insn;

	do {
		size_t size = 0;
		const uint8_t *bytes = image_code(o->img, v, &size);

		if (!bytes || arch_decode(bytes, size, v, &insn) != ARCH_OK)
			return;
		if (insn.flow == ARCH_FLOW_JUMP || insn.flow == ARCH_FLOW_BRANCH) {
			add_place(o, insn.target, root);
			if (o->wish->wanted(o->wish->arg, insn.target))
				add_branch(o, &(struct odd_branch){v, insn.target, root, false});
		}
		v += insn.length;
	} while (!arch_ends_line(&insn) && v < end && !is_head(o->s, v));
	if (v >= end)
		run_over(o, &insn, root);
}

void freemap_read_odd(const struct freemap *map, uint32_t index, const struct sweep *s,
		      struct image_range part, const struct odd_wish *wish, struct odd_reading *out)
{
	struct odd_search o = {freemap_image(map), s, part, wish, out};

	out->place_count = out->branch_count = 0;
	out->too_many = false;
	o.part.lo = part.lo > s->lo + ODD_BEFORE ? part.lo - ODD_BEFORE : s->lo;
	find_places(&o, map, index);
	for (size_t i = 0; i < out->place_count; i++)
		read_from(&o, &out->places[i]);
}
