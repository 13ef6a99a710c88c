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
#include "mutator/cfg.h"

#include <stdlib.h>
#include <string.h>

enum { ROOT = -2, UNSEEN = UINT32_MAX };

struct order {
	const struct cfg *g;
	uint32_t *number; /* of each block in postorder; UNSEEN */
	uint32_t *blocks; /* in postorder */
	uint32_t count;
	uint32_t *stack, *next; /* of the walk: blocks, and the edge to look at */
	bool *open;		/* on the stack now */
	int32_t *dominator;	/* CFG_NONE: unknown yet; ROOT */
	uint32_t *part;		/* 1 + strongly connected part; 0 */
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

static int32_t meet(const struct order *o, int32_t a, int32_t b)
{
	while (a != b) {
		if (a == ROOT || b == ROOT)
			return ROOT;
		if (o->number[a] < o->number[b])
			a = o->dominator[a];
		else
			b = o->dominator[b];
	}
	return a;
}

static int32_t dominator_of(const struct order *o, uint32_t block)
{
	const struct cfg *g = o->g;
	const struct cfg_block *b = &g->blocks[block];
	int32_t best = CFG_NONE;

	if (is_root(b))
		return ROOT;
	for (uint32_t i = b->in; i < b->in + b->in_count; i++) {
		int32_t from = g->edges[g->in[i]].from;

		if (o->number[from] == UNSEEN || o->dominator[from] == CFG_NONE)
			continue;
		best = best == CFG_NONE ? from : meet(o, best, from);
	}
	return best;
}

static void find_dominators(struct order *o)
{
	bool changed = true;

	while (changed) {
		changed = false;
		for (uint32_t i = o->count; i-- > 0;) {
			uint32_t block = o->blocks[i];
			int32_t dominator = dominator_of(o, block);

			if (o->dominator[block] == dominator)
				continue;
			o->dominator[block] = dominator;
			changed = true;
		}
	}
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

/* ---------------------------------------------------------------- loops */

struct looping {
	struct cfg *g;
	struct order *o;
	bool *inside; /* blocks of the loop at hand */
};

static int32_t loop_with(const struct cfg *g, int32_t header)
{
	for (uint32_t i = 0; i < g->loop_count; i++)
		if (g->loops[i].header == header)
			return (int32_t)i;
	return CFG_NONE;
}

static int add_loop(struct cfg *g, int32_t header, bool irreducible, struct dinst_error *e)
{
	int32_t known = loop_with(g, header);

	if (known != CFG_NONE) {
		g->loops[known].irreducible |= irreducible;
		return 0;
	}
	if (g->loop_count == g->loop_room) {
		uint32_t room = g->loop_room ? g->loop_room * 2 : 16;
		void *loops = reallocarray(g->loops, room, sizeof(*g->loops));

		if (!loops)
			return dinst_fail(e, DINST_NO_MEMORY, "no memory for %u loops", room);
		g->loops = loops;
		g->loop_room = room;
	}
	g->loops[g->loop_count++] = (struct cfg_loop){
		.header = header,
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

static int find_headers(struct cfg *g, const struct order *o, struct dinst_error *e)
{
	int r = 0;

	for (uint32_t i = 0; i < g->edge_count && r == 0; i++) {
		struct cfg_edge *edge = &g->edges[i];

		if (!goes_back(o, edge))
			continue;
		edge->back = cfg_dominates(g, edge->to, edge->from);
		r = add_loop(g, edge->to, !edge->back, e);
	}
	return r;
}

/* Marks what reaches `from` without passing the header, within its part. */
static void mark_body(struct looping *l, int32_t header, int32_t from)
{
	const struct order *o = l->o;
	uint32_t depth = 0;

	if (l->inside[from])
		return;
	l->inside[from] = true;
	o->stack[depth++] = (uint32_t)from;
	while (depth) {
		const struct cfg_block *b = &l->g->blocks[o->stack[--depth]];

		for (uint32_t i = b->in; i < b->in + b->in_count; i++) {
			int32_t before = l->g->edges[l->g->in[i]].from;

			if (l->inside[before] || o->part[before] != o->part[header])
				continue;
			l->inside[before] = true;
			o->stack[depth++] = (uint32_t)before;
		}
	}
}

static int store_body(struct looping *l, struct cfg_loop *loop, struct dinst_error *e)
{
	struct cfg *g = l->g;

	loop->body = g->body_count;
	for (uint32_t b = 0; b < g->block_count; b++) {
		if (!l->inside[b])
			continue;
		if (g->body_count == g->body_room) {
			uint32_t room = g->body_room ? g->body_room * 2 : 64;
			void *bodies = reallocarray(g->bodies, room, sizeof(*g->bodies));

			if (!bodies)
				return dinst_fail(e, DINST_NO_MEMORY, "no memory for %u loops",
						  g->loop_count);
			g->bodies = bodies;
			g->body_room = room;
		}
		g->bodies[g->body_count++] = b;
	}
	loop->body_count = g->body_count - loop->body;
	return 0;
}

static int find_bodies(struct looping *l, struct dinst_error *e)
{
	struct cfg *g = l->g;
	int r = 0;

	for (uint32_t i = 0; i < g->loop_count && r == 0; i++) {
		struct cfg_loop *loop = &g->loops[i];
		const struct cfg_block *header = &g->blocks[loop->header];

		memset(l->inside, 0, g->block_count * sizeof(*l->inside));
		l->inside[loop->header] = true;
		for (uint32_t k = header->in; k < header->in + header->in_count; k++)
			if (goes_back(l->o, &g->edges[g->in[k]]))
				mark_body(l, loop->header, g->edges[g->in[k]].from);
		r = store_body(l, loop, e);
	}
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
	};
	struct looping l = {.g = g, .o = &o, .inside = calloc(n, sizeof(bool))};
	int r = 0;

	if (!o.number || !o.blocks || !o.stack || !o.next || !o.open || !o.dominator || !o.part ||
	    !l.inside) {
		r = dinst_fail(e, DINST_NO_MEMORY, "no memory for %u blocks", g->block_count);
		goto out;
	}
	memset(o.number, 0xff, n * sizeof(uint32_t));
	memset(o.dominator, 0xff, n * sizeof(int32_t));
	walk(&o);
	find_dominators(&o);
	for (uint32_t b = 0; b < g->block_count; b++)
		g->blocks[b].dominator = o.dominator[b] == ROOT ? CFG_NONE : o.dominator[b];
	find_parts(&o);
	r = find_headers(g, &o, e);
	if (r == 0)
		r = find_bodies(&l, e);
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
	free(l.inside);
	return r;
}
