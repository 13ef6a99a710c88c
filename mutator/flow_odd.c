/* SPDX-License-Identifier: MIT */
/*
 * flow_odd.c - short branches that come in from next door where that is read in another way than from its first
 * byte to its last: somebody jumps into the middle of what is an instruction there, behind data mostly.
 *
 * From each such place it is read up to where both readings meet. What only looks like a jump there is looked
 * into (flow_hits.c) if it would matter.
 */
#include "mutator/flow_private.h"
#include "mutator/hits.h"

enum {
	ODD_MOST = 64,	 /* places, and branches from them; with more any byte may begin one */
	ODD_BEFORE = 64, /* bytes in front of a stretch from where it may be run into */
};

/* `root`: what is led to by hits alone, any of which may be chance; 0: for sure. */
struct odd_place {
	vaddr_t at, root;
};

struct odd_search {
	const struct flow *f;
	const struct sweep *s;
	vaddr_t lo, hi;
	struct odd_place places[ODD_MOST];
	/* Into the function; or an instruction in front of it that its first bytes are part of. */
	struct odd_place branches[ODD_MOST];
	size_t place_count, branch_count;
	bool too_many;
};

static void add(struct odd_search *o, struct odd_place *list, size_t *count, vaddr_t at,
		vaddr_t root)
{
	for (size_t i = 0; i < *count; i++)
		if (list[i].at == at && (!list[i].root || list[i].root == root))
			return;
	if (*count == ODD_MOST)
		o->too_many = true;
	else
		list[(*count)++] = (struct odd_place){at, root};
}

static bool is_head(const struct sweep *s, vaddr_t v)
{
	const size_t at = freemap_first(s, v);

	return at < s->count && s->insns[at].address == v;
}

static void add_place(struct odd_search *o, vaddr_t v, vaddr_t root)
{
	if (v >= o->lo && v < o->hi && v < o->s->end && !is_head(o->s, v))
		add(o, o->places, &o->place_count, v, root);
}

/*
 * Where addresses are fixed any word may look like one, and any two like a table: within an instruction that a
 * compiler has made that is chance.
 */
static bool words_count(const struct odd_search *o, uint32_t index)
{
	const struct image_function *functions;

	image_functions(o->f->img, &functions);
	return !image_is_fixed(o->f->img) || functions[index].flags & FUNCTION_NO_FRAME;
}

/* What is known for sure first. */
static void find_places(struct odd_search *o, uint32_t index)
{
	const bool words = words_count(o, index);
	const unsigned kinds =
		REFERENCE_LANDING | REFERENCE_SYMBOL | (words ? REFERENCE_ADDRESS : 0);
	const vaddr_t *targets;
	size_t first, n = freemap_table_targets(o->f->map, o->lo, o->hi, &targets);
	unsigned refs;

	for (size_t i = 0; i < n && words; i++)
		add_place(o, targets[i], 0);
	for (vaddr_t v = o->lo; image_references_next(o->f->img, &v, o->hi, &refs); v++)
		if (refs & kinds)
			add_place(o, v, 0);
	for (size_t i = freemap_first(o->s, o->lo);
	     i < o->s->count && o->s->insns[i].address < o->hi; i++)
		add_place(o, o->s->insns[i].target, 0);
	n = image_hits_into(o->f->img, o->lo, o->hi, &first);
	for (size_t k = first; k < first + n; k++)
		add_place(o, image_hit(o->f->img, k)->target, image_hit(o->f->img, k)->target);
}

/* Straight on, up to where an instruction of the other reading begins. */
static void read_from(struct odd_search *o, const struct odd_place *place)
{
	vaddr_t v = place->at, root = place->root;
	struct arch_insn insn;

	do {
		size_t size = 0;
		const uint8_t *bytes = image_code(o->f->img, v, &size);

		if (!bytes || arch_decode(bytes, size, v, &insn) != ARCH_OK)
			return;
		if (insn.flow == ARCH_FLOW_JUMP || insn.flow == ARCH_FLOW_BRANCH) {
			add_place(o, insn.target, root);
			if (flow_contains(o->f, insn.target))
				add(o, o->branches, &o->branch_count, insn.target, root);
		}
		v += insn.length;
	} while (!ends_line(&insn) && v < o->s->hi && !is_head(o->s, v));
	if (v > o->s->hi && flow_contains(o->f, o->s->hi))
		add(o, o->branches, &o->branch_count, insn.address, root);
}

/* More than are looked at: any byte may begin one, and the last one may lie across the end. */
static void doubt_all(struct flow *f, vaddr_t lo, vaddr_t hi, vaddr_t end)
{
	flow_mark_every_offset(f, lo, end < hi ? end : hi);
	for (vaddr_t v = end; v < end + ARCH_INSN_MAX; v++)
		flow_mark(f, v, MARK_CONFLICT | MARK_FOREIGN);
}

int flow_mark_from_odd(struct flow *f, uint32_t index, const struct sweep *s, vaddr_t lo,
		       vaddr_t hi, struct dinst_error *e)
{
	struct odd_search o = {.f = f, .s = s, .hi = hi};
	const vaddr_t end = s->hi; /* the sweep may go */
	int r = 0;

	o.lo = lo > s->lo + ODD_BEFORE ? lo - ODD_BEFORE : s->lo;
	find_places(&o, index);
	for (size_t i = 0; i < o.place_count; i++)
		read_from(&o, &o.places[i]);
	if (o.too_many)
		doubt_all(f, lo, hi, end);
	for (size_t i = 0; i < o.branch_count && r == 0; i++) {
		bool real = true;

		if (o.branches[i].root)
			r = flow_is_led_to(f, o.branches[i].root, &real, e);
		if (r == 0 && real)
			r = o.branches[i].at < end && !flow_contains(f, o.branches[i].at)
				    ? flow_run_over(f, o.branches[i].at, end, e)
				    : flow_enter(f, o.branches[i].at, e);
	}
	return r;
}
