/* SPDX-License-Identifier: MIT */
/*
 * plan_detail.c - plan_add_detail(): lists the detail points of a function and
 * puts them into its plan. Which windows there are, and where in them a point
 * has its places, is decided elsewhere (detail_windows.c, detail_places.c).
 */
#include "mutator/detail_private.h"

#include <stdlib.h>
#include <string.h>

#include "mutator/plan.h"

struct listing {
	struct detail *d;
	struct point *points; /* the base plan's first; window: index into d->windows.items */
	size_t count, room;
	bool *used; /* windows that a point of the list has had already */
	struct dinst_error *e;
	enum refusal all; /* why nothing of the function can be had, or REFUSAL_NONE */
};

enum plan_level point_kind_level(enum point_kind kind)
{
	return kind < POINT_AFTER ? PLAN_BASE : PLAN_DETAIL;
}

static const struct arch_insn *insn_at(const struct detail *d, size_t at)
{
	return &d->flow.insns.items[at];
}

static size_t last_of(const struct cfg_block *b)
{
	return b->first + b->count - 1;
}

/* -------------------------------------------------------------- the list */

static struct point *add_point(struct listing *l)
{
	if (l->count == l->room) {
		size_t room = l->room ? l->room * 2 : 256;
		void *more = reallocarray(l->points, room, sizeof(*l->points));

		if (!more)
			return NULL;
		l->points = more;
		l->room = room;
	}
	return &l->points[l->count++];
}

static int no_memory(const struct listing *l)
{
	return dinst_fail(l->e, DINST_NO_MEMORY, "no memory for %zu points", l->count);
}

static enum tactic tactic_of(const struct listing *l, const struct spots *s,
			     const struct spot *spot, int32_t window)
{
	const struct draft *w = &l->d->windows.items[window];

	if (s->ways)
		return TACTIC_EDGES;
	if (l->used[window] || (size_t)window < l->d->base_windows || spot->insn != w->first)
		return TACTIC_MERGED;
	if (w->kind == ARCH_PATCH_SHORT_JUMP)
		return TACTIC_SHORT;
	return w->padding ? TACTIC_PADDING : TACTIC_JUMP;
}

/* One refused point. */
static int add_refused(struct listing *l, const struct point *like, enum refusal why)
{
	struct point *p = add_point(l);

	if (!p)
		return no_memory(l);
	*p = *like;
	p->refusal = why;
	p->window = -1;
	p->live = arch_all_live;
	return 0;
}

/* A point with the places `s` as its parts from part `first` on. */
static int add_parts(struct listing *l, const struct point *like, const struct spots *s,
		     unsigned first)
{
	for (unsigned i = 0; i < s->count; i++) {
		const struct spot *spot = &s->items[i];
		int32_t window = l->d->windows.owner[spot->insn] - 1;
		struct point *p = add_point(l);

		if (!p)
			return no_memory(l);
		*p = *like;
		p->part = (uint16_t)(first + i);
		p->place = spot->place;
		p->window = window;
		p->insn = (uint8_t)(spot->insn - l->d->windows.items[window].first);
		p->live = plan_live(&l->d->flow, spot->insn, spot->place);
		p->tactic = tactic_of(l, s, spot, window);
		l->used[window] = true;
	}
	return 0;
}

/* Where nothing else will do, as long as nobody asks for what the call returns. */
static enum refusal after_call(const struct detail *d, size_t at, struct spots *s, bool *late)
{
	enum refusal why = detail_after(d, at, s);

	if (!why)
		return why;
	why = detail_before(d, at, s);
	*late = !why;
	return why;
}

static int add_before(struct listing *l, enum point_kind kind, size_t at, vaddr_t callee)
{
	struct point like = {.kind = kind, .address = insn_at(l->d, at)->address, .callee = callee};
	struct spots s;
	enum refusal why = l->all;

	if (!why && (kind == POINT_LOAD || kind == POINT_STORE))
		why = detail_at_access(l->d, at, &s);
	else if (!why && kind == POINT_AFTER)
		why = after_call(l->d, at, &s, &like.late);
	else if (!why)
		why = detail_before(l->d, at, &s);
	return why ? add_refused(l, &like, why) : add_parts(l, &like, &s, 0);
}

/* ----------------------------------------------------------------- kinds */

/* True if nothing but the return of the call before it leads to insns[at]. */
static bool only_returned_to(const struct detail *d, size_t at)
{
	int32_t block = d->cfg.block_of[at];
	const struct cfg_block *b = &d->cfg.blocks[block];

	return block == d->cfg.block_of[at - 1] ||
	       (b->in_count == 1 && !(b->flags & (BLOCK_ENTERED | BLOCK_LANDING)));
}

static int add_after(struct listing *l, const struct cfg_block *b, size_t call)
{
	struct detail *d = l->d;
	size_t last = last_of(b);
	struct point like = {
		.kind = POINT_AFTER,
		.address = insn_at(d, call)->address + insn_at(d, call)->length,
		.callee = flow_callee(&d->flow, call),
	};

	/* One that does not return has no return point. */
	if (call == last && !b->out_count)
		return 0;
	if (call == last &&
	    (d->cfg.edges[b->out].kind != EDGE_FALL || d->cfg.block_of[call + 1] == CFG_NONE))
		return 0;
	if (!only_returned_to(d, call + 1))
		return add_refused(l, &like, l->all ? l->all : REFUSAL_BRANCH_TARGET);
	return add_before(l, POINT_AFTER, call + 1, like.callee);
}

/*
 * Instructions that the graph takes for calls of the next one, to learn their
 * own address, have no return either.
 */
static bool is_get_pc(const struct arch_insn *insn)
{
	return insn->flow == ARCH_FLOW_CALL && insn->target == insn->address + insn->length;
}

/* One point for an instruction that loads, one for one that stores, however often it does. */
static int add_accesses(struct listing *l, size_t at)
{
	struct arch_memory memory[ARCH_MEMORY_MAX];
	unsigned n = arch_memory_operands(insn_at(l->d, at), memory);
	bool load = false, store = false;
	int r = 0;

	for (unsigned i = 0; i < n; i++) {
		load |= memory[i].load;
		store |= memory[i].store;
	}
	if (load)
		r = add_before(l, POINT_LOAD, at, 0);
	if (r == 0 && store)
		r = add_before(l, POINT_STORE, at, 0);
	return r;
}

static int add_of_insn(struct listing *l, const struct cfg_block *b, size_t at)
{
	const struct arch_insn *insn = insn_at(l->d, at);
	int r = add_before(l, POINT_INSTRUCTION, at, 0);

	if (r == 0)
		r = add_accesses(l, at);
	if (r == 0 && arch_is_call(insn) && !is_get_pc(insn) && !flow_begins_thunk(&l->d->flow, at))
		r = add_after(l, b, at);
	return r;
}

static int add_of_blocks(struct listing *l)
{
	const struct cfg *g = &l->d->cfg;
	int r = 0;

	for (uint32_t i = 0; i < g->block_count && r == 0; i++) {
		const struct cfg_block *b = &g->blocks[i];

		if (b->flags & BLOCK_UNREACHED)
			continue;
		r = add_before(l, POINT_BLOCK, b->first, 0);
		for (size_t at = b->first; at < b->first + b->count && r == 0; at++)
			r = add_of_insn(l, b, at);
	}
	return r;
}

/* A branch to the next instruction: both ways are one edge. */
static bool is_second_way(const struct cfg *g, uint32_t edge)
{
	const struct cfg_edge *e = &g->edges[edge];

	return e->kind == EDGE_BRANCH && edge > 0 && e[-1].kind == EDGE_FALL &&
	       e[-1].from == e->from && e[-1].to == e->to;
}

static struct point edge_point(const struct detail *d, const struct cfg_edge *edge)
{
	const struct cfg_block *from = &d->cfg.blocks[edge->from];

	return (struct point){
		.kind = POINT_EDGE,
		.address = insn_at(d, last_of(from))->address,
		.callee = edge->target,
	};
}

static int add_of_edges(struct listing *l)
{
	const struct cfg *g = &l->d->cfg;
	int r = 0;

	for (uint32_t i = 0; i < g->edge_count && r == 0; i++) {
		const struct cfg_edge *edge = &g->edges[i];
		struct point like = edge_point(l->d, edge);
		enum refusal why = l->all;
		struct spots s;

		if (edge->to == CFG_NONE || edge->kind == EDGE_EXCEPTION || is_second_way(g, i))
			continue;
		if (!why && i + 1 < g->edge_count && is_second_way(g, i + 1))
			why = detail_before(l->d, last_of(&g->blocks[edge->from]), &s);
		else if (!why)
			why = detail_on_edge(l->d, i, &s);
		r = why ? add_refused(l, &like, why) : add_parts(l, &like, &s, 0);
	}
	return r;
}

/* True if an edge of a block of the loop belongs to the loop's point of that kind. */
static bool is_on_side(const struct cfg *g, int32_t loop, enum point_kind kind,
		       const struct cfg_edge *edge)
{
	if (edge->kind == EDGE_EXCEPTION)
		return false;
	if (kind == POINT_LOOP_ENTRY)
		return !cfg_in_loop(g, loop, edge->from);
	if (kind == POINT_LOOP_ROUND)
		return edge->to == g->loops[loop].header;
	return edge->to == CFG_NONE || !cfg_in_loop(g, loop, edge->to);
}

/* What makes a loop's edges not all the ways that its point stands for. */
static enum refusal loop_refusal(const struct cfg *g, int32_t loop, enum point_kind kind)
{
	const struct cfg_loop *l = &g->loops[loop];
	const struct cfg_block *header = &g->blocks[l->header];

	if (g->unresolved)
		return REFUSAL_UNRESOLVED;
	if (l->irreducible)
		return REFUSAL_BRANCH_TARGET;
	if (kind == POINT_LOOP_ENTRY && header->flags & BLOCK_ENTRY)
		return REFUSAL_LOOP_ENTRY;
	if (kind == POINT_LOOP_ENTRY && header->flags & (BLOCK_ENTERED | BLOCK_LANDING))
		return REFUSAL_BRANCH_TARGET;
	return REFUSAL_NONE;
}

/* The point of one kind of one loop, while its parts are found. */
struct side {
	int32_t loop;
	struct point like;
	size_t before; /* points that were there already */
	enum refusal why;
};

/* The edges of one block of the loop that are on this side: parts of the point. */
static int add_of_side(struct listing *l, struct side *side, const struct cfg_block *b)
{
	struct cfg *g = &l->d->cfg;
	bool entry = side->like.kind == POINT_LOOP_ENTRY;
	uint32_t first = entry ? b->in : b->out, count = entry ? b->in_count : b->out_count;
	int r = 0;

	for (uint32_t i = first; i < first + count && r == 0 && !side->why; i++) {
		uint32_t edge = entry ? g->in[i] : i;
		struct spots s;

		if (!cfg_work(g, CFG_LOOK))
			return cfg_too_complex(g, CFG_WORK_MOST, "steps", l->e);
		if (!is_on_side(g, side->loop, side->like.kind, &g->edges[edge]))
			continue;
		side->why = detail_on_edge(l->d, edge, &s);
		if (!side->why && l->count - side->before + s.count > UINT16_MAX)
			side->why = REFUSAL_NO_ROOM;
		if (!side->why)
			r = add_parts(l, &side->like, &s, (unsigned)(l->count - side->before));
	}
	return r;
}

/* All edges of one kind of one loop: the parts of one point, or a refusal. */
static int add_of_loop(struct listing *l, int32_t loop, enum point_kind kind)
{
	const struct cfg *g = &l->d->cfg;
	const struct cfg_loop *of = &g->loops[loop];
	struct side side = {
		.loop = loop,
		.like = {.kind = kind, .address = g->blocks[of->header].start},
		.before = l->count,
		.why = l->all ? l->all : loop_refusal(g, loop, kind),
	};
	int r = 0;

	for (uint32_t i = 0; i < of->body_count && r == 0 && !side.why; i++)
		r = add_of_side(l, &side, &g->blocks[g->bodies[of->body + i]]);
	if (r < 0 || !side.why)
		return r;
	l->count = side.before;
	return add_refused(l, &side.like, side.why);
}

static int add_of_loops(struct listing *l)
{
	int r = 0;

	for (int32_t loop = 0; (uint32_t)loop < l->d->cfg.loop_count && r == 0; loop++)
		for (int kind = POINT_LOOP_ENTRY; kind <= POINT_LOOP_EXIT && r == 0; kind++)
			r = add_of_loop(l, loop, (enum point_kind)kind);
	return r;
}

/* ------------------------------------------------------------ the result */

static int by_address(const void *a, const void *b)
{
	const struct point *x = a, *y = b;

	if ((x->kind == POINT_ENTRY) != (y->kind == POINT_ENTRY))
		return x->kind == POINT_ENTRY ? -1 : 1;
	if (x->address != y->address)
		return x->address < y->address ? -1 : 1;
	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	if (x->kind == POINT_EDGE && x->callee != y->callee)
		return x->callee < y->callee ? -1 : 1;
	return (int)x->part - (int)y->part;
}

static int finish(struct listing *l, struct function_plan *plan)
{
	size_t total = windows_in_use(&l->d->windows);
	struct window *windows = calloc(total + 1, sizeof(*windows));
	int32_t *place_of = calloc(l->d->windows.count + 1, sizeof(*place_of));
	struct point *points;
	int r = 0;

	if (!windows || !place_of) {
		free(windows);
		r = no_memory(l);
		goto out;
	}
	r = windows_emit(&l->d->windows, windows, place_of, l->e);
	if (r < 0) {
		free(windows);
		goto out;
	}
	for (size_t i = 0; i < l->count; i++)
		if (l->points[i].window >= 0)
			l->points[i].window = place_of[l->points[i].window];
	if (l->count)
		qsort(l->points, l->count, sizeof(*l->points), by_address);
	free(plan->points);
	free(plan->windows);
	/* It stays for as long as the session. */
	points = realloc(l->points, (l->count + 1) * sizeof(*points));
	plan->points = points ? points : l->points;
	plan->point_count = l->count;
	plan->windows = windows;
	plan->window_count = total;
	plan->level = PLAN_DETAIL;
	l->points = NULL;
out:
	free(place_of);
	return r;
}

static int list_all(struct listing *l)
{
	const struct function_plan *base = l->d->base;

	for (size_t i = 0; i < base->point_count; i++) {
		struct point *p = add_point(l);

		if (!p)
			return no_memory(l);
		*p = base->points[i];
	}
	return 0;
}

static int make(struct detail *d, struct function_plan *plan, struct dinst_error *e)
{
	struct listing l = {.d = d, .e = e};
	int r;

	if (d->function->flags & FUNCTION_STUB)
		l.all = REFUSAL_STUB;
	else if (d->function->flags & FUNCTION_IFUNC)
		l.all = REFUSAL_IFUNC;
	r = detail_adopt(d, e);
	if (r == 0 && !l.all)
		r = detail_cover(d, e);
	if (r < 0)
		return r;
	l.used = calloc(d->windows.count + 1, sizeof(*l.used));
	if (!l.used)
		return no_memory(&l);
	r = list_all(&l);
	if (r == 0)
		r = add_of_blocks(&l);
	if (r == 0)
		r = add_of_edges(&l);
	if (r == 0)
		r = add_of_loops(&l);
	if (r == 0)
		r = finish(&l, plan);
	free(l.used);
	free(l.points);
	return r;
}

int plan_add_detail(struct image *img, struct function_plan *plan, struct dinst_error *e)
{
	const struct image_function *functions;
	struct detail d = {.img = img, .base = plan};
	struct freemap *map;
	int r;

	if (plan->level == PLAN_DETAIL)
		return 0;
	image_functions(img, &functions);
	d.function = &functions[plan->function];
	if (d.function->flags & FUNCTION_COLD) {
		plan->level = PLAN_DETAIL;
		return 0;
	}
	r = freemap_of(img, &map, e);
	if (r == 0)
		r = flow_build(&d.flow, img, map, plan->function, e);
	if (r < 0)
		return r;
	r = windows_init(&d.windows, &d.flow, e);
	if (r == 0)
		r = cfg_build(&d.cfg, &d.flow, e);
	d.why = calloc(d.flow.insns.count + 1, sizeof(*d.why));
	d.bypassed = calloc(d.flow.insns.count + plan->window_count + 1, sizeof(*d.bypassed));
	if (r == 0 && (!d.why || !d.bypassed))
		r = dinst_fail(e, DINST_NO_MEMORY, "no memory for the details of a function");
	if (r == 0)
		r = make(&d, plan, e);
	free(d.bypassed);
	free(d.why);
	windows_release(&d.windows);
	cfg_release(&d.cfg);
	flow_release(&d.flow);
	return r;
}
