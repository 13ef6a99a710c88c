/* SPDX-License-Identifier: MIT */
/*
 * cfg_loops.c - dominators and loops of a graph of blocks.
 *
 * Dominators by the iteration of Cooper, Harvey and Kennedy ("A simple, fast
 * dominance algorithm", 2001) from one root above all blocks that are entered
 * from outside. An edge that goes against the order without leading to a
 * dominator makes a region irreducible; its body is what reaches the edge's
 * source within the same strongly connected part.
 */
#include "mutator/cfg_private.h"

#include <stdlib.h>
#include <string.h>

enum { ROOT = -2, UNSEEN = UINT32_MAX };

struct order {
	struct cfg *g;
	uint32_t *number; /* of each block in postorder; UNSEEN */
	uint32_t *blocks; /* in postorder */
	uint32_t count;
	uint32_t *stack, *next; /* of the walk: blocks, and the edge to look at */
	bool *open;		/* on the stack now */
	int32_t *dominator;	/* CFG_NONE: unknown yet; ROOT */
	uint32_t *part;		/* 1 + strongly connected part; 0 */
	/* Which blocks of its own part lead to each block: `count` from its `in` on. */
	uint32_t *before, *before_count;
};

static bool is_root(const struct cfg_block *b)
{
	return b->flags & BLOCK_ENTERED && !(b->flags & BLOCK_UNREACHED);
}

/* ------------------------------------------------------------ the order */

static void walk_from(struct order *o, uint32_t root)
{
	const struct cfg *g = o->g;
	uint32_t depth = 0;

	if (o->number[root] != UNSEEN || o->open[root])
		return;
	o->stack[depth] = root;
	o->next[depth++] = 0;
	o->open[root] = true;
	while (depth) {
		uint32_t block = o->stack[depth - 1];
		const struct cfg_block *b = &g->blocks[block];
		int32_t to;

		if (o->next[depth - 1] == b->out_count) {
			o->number[block] = o->count;
			o->blocks[o->count++] = block;
			depth--;
			continue;
		}
		to = g->edges[b->out + o->next[depth - 1]++].to;
		if (to == CFG_NONE || o->open[to])
			continue;
		o->open[to] = true;
		o->stack[depth] = (uint32_t)to;
		o->next[depth++] = 0;
	}
}

/* The entry last, so that it comes first in reverse. */
static void walk(struct order *o)
{
	for (uint32_t b = o->g->block_count; b-- > 0;)
		if (is_root(&o->g->blocks[b]) && !(o->g->blocks[b].flags & BLOCK_ENTRY))
			walk_from(o, b);
	for (uint32_t b = 0; b < o->g->block_count; b++)
		if (is_root(&o->g->blocks[b]))
			walk_from(o, b);
}

/* ----------------------------------------------------------- what is sure */

int cfg_mark_sure(struct cfg *g, struct dinst_error *e)
{
	uint32_t *stack = calloc((size_t)g->block_count + 1, sizeof(*stack)), depth = 0;

	if (!stack)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for %u blocks", g->block_count);
	for (uint32_t b = 0; b < g->block_count; b++)
		if (g->blocks[b].flags & (BLOCK_ENTRY | BLOCK_LANDING) &&
		    !(g->blocks[b].flags & BLOCK_UNREACHED)) {
			g->blocks[b].flags |= BLOCK_SURE;
			stack[depth++] = b;
		}
	while (depth) {
		const struct cfg_block *b = &g->blocks[stack[--depth]];

		for (uint32_t i = b->out; i < b->out + b->out_count; i++) {
			int32_t to = g->edges[i].to;

			if (to == CFG_NONE || g->blocks[to].flags & BLOCK_SURE)
				continue;
			g->blocks[to].flags |= BLOCK_SURE;
			stack[depth++] = (uint32_t)to;
		}
	}
	free(stack);
	return 0;
}

/* ----------------------------------------------------------- dominators */

static int32_t meet(struct order *o, int32_t a, int32_t b)
{
	while (a != b) {
		o->g->work += CFG_LOOK;
		if (a == ROOT || b == ROOT)
			return ROOT;
		if (o->number[a] < o->number[b])
			a = o->dominator[a];
		else
			b = o->dominator[b];
	}
	return a;
}

static int32_t dominator_of(struct order *o, uint32_t block)
{
	const struct cfg *g = o->g;
	const struct cfg_block *b = &g->blocks[block];
	int32_t best = CFG_NONE;

	if (is_root(b))
		return ROOT;
	for (uint32_t i = b->in; i < b->in + b->in_count; i++) {
		int32_t from = g->edges[g->in[i]].from;

		if (!cfg_work(o->g, CFG_LOOK))
			break;
		if (o->number[from] == UNSEEN || o->dominator[from] == CFG_NONE)
			continue;
		best = best == CFG_NONE ? from : meet(o, best, from);
	}
	return best;
}

static int find_dominators(struct order *o, struct dinst_error *e)
{
	bool changed;

	do {
		changed = false;
		for (uint32_t i = o->count; i-- > 0;) {
			uint32_t block = o->blocks[i];
			int32_t dominator = dominator_of(o, block);

			if (o->dominator[block] == dominator)
				continue;
			o->dominator[block] = dominator;
			changed = true;
		}
		if (!cfg_work(o->g, o->count))
			return cfg_too_complex(o->g, CFG_WORK_MOST, "steps", e);
	} while (changed);
	return 0;
}

/* cfg_dominates() while the graph is made: what dominates a block has a higher number. */
static bool dominates(struct order *o, int32_t by, int32_t block)
{
	while (block >= 0 && o->number[block] < o->number[by] && cfg_work(o->g, CFG_LOOK))
		block = o->dominator[block];
	return block == by;
}

bool cfg_dominates(const struct cfg *g, int32_t by, int32_t block)
{
	while (block != CFG_NONE && block != by)
		block = g->blocks[block].dominator;
	return block == by;
}

/* ------------------------------------------------- strongly connected parts */

/* Everything that reaches `block` and is not in a part yet (Kosaraju's second walk). */
static void collect_part(struct order *o, uint32_t block, uint32_t part)
{
	const struct cfg *g = o->g;
	uint32_t depth = 0;

	o->stack[depth++] = block;
	o->part[block] = part;
	while (depth) {
		const struct cfg_block *b = &g->blocks[o->stack[--depth]];

		for (uint32_t i = b->in; i < b->in + b->in_count; i++) {
			int32_t from = g->edges[g->in[i]].from;

			if (o->number[from] == UNSEEN || o->part[from])
				continue;
			o->part[from] = part;
			o->stack[depth++] = (uint32_t)from;
		}
	}
}

static void find_parts(struct order *o)
{
	uint32_t parts = 0;

	for (uint32_t i = o->count; i-- > 0;)
		if (!o->part[o->blocks[i]])
			collect_part(o, o->blocks[i], ++parts);
}

/* The lists of what leads to each block: they are gone through for each loop around it. */
static void list_before(struct order *o)
{
	const struct cfg *g = o->g;

	for (uint32_t block = 0; block < g->block_count; block++) {
		const struct cfg_block *b = &g->blocks[block];

		for (uint32_t i = b->in; i < b->in + b->in_count && o->part[block]; i++) {
			uint32_t from = (uint32_t)g->edges[g->in[i]].from;

			if (o->part[from] == o->part[block])
				o->before[b->in + o->before_count[block]++] = from;
		}
	}
}

/* ---------------------------------------------------------------- loops */

struct looping {
	struct cfg *g;
	struct order *o;
	bool *inside;	 /* blocks of the loop at hand */
	uint32_t lo, hi; /* the first and the last of them */
	struct dinst_error *e;
};

static int add_loop(struct looping *l, uint32_t header, bool irreducible)
{
	struct cfg *g = l->g;
	void *loops = cfg_grow(g->loops, g->loop_count, &g->loop_room, sizeof(*g->loops));

	/* There are no more than blocks. */
	if (!loops)
		return dinst_fail(l->e, DINST_NO_MEMORY, "no memory for %u loops", g->loop_count);
	g->loops = loops;
	g->loops[g->loop_count++] = (struct cfg_loop){
		.header = (int32_t)header,
		.parent = CFG_NONE,
		.irreducible = irreducible,
	};
	return 0;
}

/* An edge that goes against the order: round a loop, or into the middle of one. */
static bool goes_back(const struct order *o, const struct cfg_edge *edge)
{
	return edge->to != CFG_NONE && o->number[edge->from] != UNSEEN &&
	       o->number[edge->to] != UNSEEN && o->number[edge->to] >= o->number[edge->from];
}

static void put_inside(struct looping *l, uint32_t block)
{
	l->inside[block] = true;
	l->lo = block < l->lo ? block : l->lo;
	l->hi = block > l->hi ? block : l->hi;
}

/* Marks what reaches `from` without passing the header, within its part. */
static void mark_body(struct looping *l, uint32_t from)
{
	const struct order *o = l->o;
	uint32_t depth = 0;

	if (l->inside[from])
		return;
	put_inside(l, from);
	o->stack[depth++] = from;
	while (depth) {
		uint32_t block = o->stack[--depth], count = o->before_count[block];
		const uint32_t *before = &o->before[l->g->blocks[block].in];

		/* Too much: what has been found will be thrown away. */
		if (!cfg_work(l->g, count))
			return;
		for (uint32_t i = 0; i < count; i++) {
			if (l->inside[before[i]])
				continue;
			put_inside(l, before[i]);
			o->stack[depth++] = before[i];
		}
	}
}

/* Enters the blocks that are marked, in their order, and takes the marks away. */
static int store_body(struct looping *l)
{
	struct cfg *g = l->g;
	struct cfg_loop *loop = &g->loops[g->loop_count - 1];

	loop->body = g->body_count;
	for (uint32_t b = l->lo; b <= l->hi; b++) {
		void *bodies;

		if (!l->inside[b])
			continue;
		l->inside[b] = false;
		if (g->body_count == CFG_BODIES_MOST)
			return cfg_too_complex(g, CFG_BODIES_MOST, "blocks in loops", l->e);
		bodies = cfg_grow(g->bodies, g->body_count, &g->body_room, sizeof(*g->bodies));
		if (!bodies)
			return dinst_fail(l->e, DINST_NO_MEMORY, "no memory for %u loops",
					  g->loop_count);
		g->bodies = bodies;
		g->bodies[g->body_count++] = b;
	}
	loop->body_count = g->body_count - loop->body;
	return 0;
}

/* The loop of which `block` is the header, if it is one. */
static int find_loop(struct looping *l, uint32_t block)
{
	struct cfg *g = l->g;
	const struct cfg_block *header = &g->blocks[block];
	bool loops = false, irreducible = false;
	int r;

	for (uint32_t i = header->in; i < header->in + header->in_count; i++) {
		struct cfg_edge *edge = &g->edges[g->in[i]];

		if (!goes_back(l->o, edge))
			continue;
		edge->back = dominates(l->o, edge->to, edge->from);
		irreducible |= !edge->back;
		loops = true;
	}
	if (!loops)
		return 0;
	r = add_loop(l, block, irreducible);
	if (r < 0)
		return r;
	l->lo = l->hi = block;
	l->inside[block] = true;
	for (uint32_t i = header->in; i < header->in + header->in_count; i++)
		if (goes_back(l->o, &g->edges[g->in[i]]))
			mark_body(l, (uint32_t)g->edges[g->in[i]].from);
	return cfg_work(g, l->hi - l->lo) ? store_body(l)
					  : cfg_too_complex(g, CFG_WORK_MOST, "steps", l->e);
}

static int find_all_loops(struct looping *l)
{
	int r = 0;

	for (uint32_t i = 0; i < l->o->count && r == 0; i++)
		r = find_loop(l, l->o->blocks[i]);
	return r;
}

bool cfg_in_loop(const struct cfg *g, int32_t loop, int32_t block)
{
	const struct cfg_loop *l = &g->loops[loop];
	uint32_t lo = l->body, hi = l->body + l->body_count;

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		if ((int32_t)g->bodies[mid] < block)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < l->body + l->body_count && (int32_t)g->bodies[lo] == block;
}

/* Larger bodies first: a loop comes behind all that contain it. */
static int by_nesting(const void *a, const void *b)
{
	const struct cfg_loop *x = a, *y = b;

	if (x->body_count != y->body_count)
		return x->body_count > y->body_count ? -1 : 1;
	return x->header < y->header ? -1 : x->header > y->header;
}

static void nest(struct cfg *g)
{
	if (g->loop_count)
		qsort(g->loops, g->loop_count, sizeof(*g->loops), by_nesting);
	for (uint32_t i = 0; i < g->loop_count; i++) {
		struct cfg_loop *loop = &g->loops[i];

		/* So far the blocks know the loops around this one: the last is the nearest. */
		loop->parent = g->blocks[loop->header].loop;
		loop->depth = loop->parent == CFG_NONE ? 1 : g->loops[loop->parent].depth + 1;
		for (uint32_t k = 0; k < loop->body_count; k++)
			g->blocks[g->bodies[loop->body + k]].loop = (int32_t)i;
	}
}

int cfg_find_loops(struct cfg *g, struct dinst_error *e)
{
	size_t n = (size_t)g->block_count + 1;
	struct order o = {
		.g = g,
		.number = malloc(n * sizeof(uint32_t)),
		.blocks = malloc(n * sizeof(uint32_t)),
		.stack = malloc(n * sizeof(uint32_t)),
		.next = malloc(n * sizeof(uint32_t)),
		.open = calloc(n, sizeof(bool)),
		.dominator = malloc(n * sizeof(int32_t)),
		.part = calloc(n, sizeof(uint32_t)),
		.before = malloc(((size_t)g->edge_count + 1) * sizeof(uint32_t)),
		.before_count = calloc(n, sizeof(uint32_t)),
	};
	struct looping l = {
		.g = g,
		.o = &o,
		.inside = calloc(n, sizeof(bool)),
		.e = e,
	};
	int r = 0;

	if (!o.number || !o.blocks || !o.stack || !o.next || !o.open || !o.dominator || !o.part ||
	    !o.before || !o.before_count || !l.inside) {
		r = dinst_fail(e, DINST_NO_MEMORY, "no memory for %u blocks", g->block_count);
		goto out;
	}
	memset(o.number, 0xff, n * sizeof(uint32_t));
	memset(o.dominator, 0xff, n * sizeof(int32_t));
	walk(&o);
	r = find_dominators(&o, e);
	if (r < 0)
		goto out;
	for (uint32_t b = 0; b < g->block_count; b++)
		g->blocks[b].dominator = o.dominator[b] == ROOT ? CFG_NONE : o.dominator[b];
	find_parts(&o);
	list_before(&o);
	r = find_all_loops(&l);
	if (r == 0)
		nest(g);
out:
	free(o.number);
	free(o.blocks);
	free(o.stack);
	free(o.next);
	free(o.open);
	free(o.dominator);
	free(o.part);
	free(o.before);
	free(o.before_count);
	free(l.inside);
	return r;
}
