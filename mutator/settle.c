/* SPDX-License-Identifier: MIT */
/*
 * settle.c - what functions take of their neighbours' bytes: see settle.h. It
 * knows who is near whom and in which order they are asked; how a window is
 * found is plan.c's.
 */
#include "mutator/settle.h"

#include "mutator/plan.h"

#include <stdlib.h>
#include <string.h>

enum {
	/* Bytes from a function in which a host may lie: a short jump's reach, and a window. */
	HOST_REACH = 256,
	/* Two functions that are further apart than this never want the same byte. */
	CLAIM_REACH = 3 * HOST_REACH,
	NESTED_MAX = 32, /* functions looked back for one that reaches over others */
};

/* What is known about a function. */
enum { UNKNOWN, CONTENT, NEEDY, SETTLED };

struct claim {
	vaddr_t lo, hi;
	uint32_t by;
};

struct claims {
	struct freemap *map;
	uint8_t *state;	     /* of each function */
	struct claim *items; /* by address, disjoint */
	size_t count, room;
};

struct index_list {
	uint32_t *items;
	size_t count, room;
};

static void claims_free_all(void *arg)
{
	struct claims *c = arg;

	free(c->state);
	free(c->items);
	free(c);
}

static int claims_of(struct image *img, struct freemap *map, struct claims **out,
		     struct dinst_error *e)
{
	const struct image_function *functions;
	struct claims *c = freemap_extra(map);

	if (!c) {
		c = calloc(1, sizeof(*c));
		if (c)
			c->state = calloc(image_functions(img, &functions) + 1, 1);
		if (!c || !c->state) {
			free(c);
			return dinst_fail(e, DINST_NO_MEMORY, "no memory for claims");
		}
		c->map = map;
		freemap_set_extra(map, c, claims_free_all);
	}
	*out = c;
	return 0;
}

/* Index of the first claim that ends behind v. */
static size_t claim_behind(const struct claims *c, vaddr_t v)
{
	size_t lo = 0, hi = c->count;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (c->items[mid].hi <= v)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

bool claims_are_free(const struct claims *c, vaddr_t lo, vaddr_t hi, uint32_t below)
{
	for (size_t i = claim_behind(c, lo); i < c->count && c->items[i].lo < hi; i++)
		if (c->items[i].by < below)
			return false;
	return true;
}

static int add_claim(struct claims *c, vaddr_t lo, vaddr_t hi, uint32_t by, struct dinst_error *e)
{
	size_t i = claim_behind(c, lo);

	if (c->count == c->room) {
		size_t room = c->room ? c->room * 2 : 64;
		void *more = reallocarray(c->items, room, sizeof(*c->items));

		if (!more)
			return dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu claims", room);
		c->items = more;
		c->room = room;
	}
	memmove(&c->items[i + 1], &c->items[i], (c->count - i) * sizeof(*c->items));
	c->items[i] = (struct claim){lo, hi, by};
	c->count++;
	return 0;
}

/* ------------------------------------------------------------- neighbours */

static int list_add(struct index_list *list, uint32_t index, struct dinst_error *e)
{
	for (size_t i = 0; i < list->count; i++)
		if (list->items[i] == index)
			return 0;
	if (list->count == list->room) {
		size_t room = list->room ? list->room * 2 : 16;
		void *more = reallocarray(list->items, room, sizeof(*list->items));

		if (!more)
			return dinst_fail(e, DINST_NO_MEMORY, "no memory for neighbours");
		list->items = more;
		list->room = room;
	}
	list->items[list->count++] = index;
	return 0;
}

/* Adds the functions with code in [lo, hi), `self` left out. */
static int add_near(struct index_list *list, struct image *img, struct freemap *map, vaddr_t lo,
		    vaddr_t hi, uint32_t self, struct dinst_error *e)
{
	const struct image_function *functions;
	size_t n = image_functions(img, &functions);
	long k = freemap_before(map, lo) - NESTED_MAX;
	int r = 0;

	for (k = k < 0 ? 0 : k; (size_t)k < n && functions[k].address < hi && r == 0; k++) {
		const struct image_function *fn = &functions[k];
		uint32_t owner = fn->flags & FUNCTION_COLD ? fn->parent : (uint32_t)k;

		if (fn->address + fn->size > lo && owner != self && owner < n)
			r = list_add(list, owner, e);
	}
	return r;
}

static int add_around(struct index_list *list, struct image *img, struct freemap *map,
		      const struct image_function *fn, vaddr_t reach, uint32_t self,
		      struct dinst_error *e)
{
	vaddr_t lo = fn->address > reach ? fn->address - reach : 0;

	return add_near(list, img, map, lo, fn->address + fn->size + reach, self, e);
}

/* The functions with code within `reach` of function `self`'s. */
static int neighbours(struct index_list *list, struct image *img, struct freemap *map,
		      uint32_t self, vaddr_t reach, struct dinst_error *e)
{
	const struct image_function *functions;
	const uint32_t *fragments;
	size_t n = freemap_fragments(map, self, &fragments);
	int r;

	list->count = 0;
	image_functions(img, &functions);
	r = add_around(list, img, map, &functions[self], reach, self, e);
	for (size_t i = 0; i < n && r == 0; i++)
		r = add_around(list, img, map, &functions[fragments[i]], reach, self, e);
	return r;
}

/* --------------------------------------------------------------- settling */

static int record(struct claims *c, const struct planning *p, size_t first, struct dinst_error *e)
{
	uint32_t by = p->flow.function;
	int r = 0;

	for (size_t i = first; i < p->windows.count && r == 0; i++) {
		const struct draft *d = &p->windows.items[i];
		struct window w;

		window_of_draft(&p->flow, d, &w);
		r = add_claim(c, w.start, w.start + w.length + w.padding, by, e);
		if (r == 0 && d->hole && d->host < 0)
			r = add_claim(c, d->hole, d->hole + arch_jump_size, by, e);
	}
	return r;
}

/* Asks each neighbour for what p still lacks. Everybody before p is settled. */
static int ask(struct claims *c, struct planning *p, struct dinst_error *e)
{
	struct image *img = p->flow.img;
	const struct image_function *functions;
	uint32_t self = p->flow.function;
	size_t first = p->windows.count;
	struct index_list near = {0};
	int r = neighbours(&near, img, c->map, self, HOST_REACH, e);

	image_functions(img, &functions);
	p->windows.claims = c;
	p->windows.claims_below = self;
	for (size_t i = 0; i < near.count && r == 0 && plan_is_needy(p); i++) {
		struct planning other;

		if (functions[near.items[i]].flags & (FUNCTION_STUB | FUNCTION_IFUNC))
			continue;
		r = planning_make(&other, img, c->map, near.items[i], e);
		if (r < 0)
			break;
		other.windows.claims = c;
		other.windows.claims_below = self;
		r = plan_place_in(p, &other.windows, e);
		planning_release(&other);
	}
	free(near.items);
	if (r == 0 && c->state[self] != SETTLED) {
		r = record(c, p, first, e);
		c->state[self] = SETTLED;
	}
	return r;
}

/* What the function lacks, if that is not known yet. */
static int look_at(struct claims *c, struct image *img, uint32_t index, struct dinst_error *e)
{
	struct planning p;
	int r;

	if (c->state[index] != UNKNOWN)
		return 0;
	r = planning_make(&p, img, c->map, index, e);
	if (r < 0)
		return r;
	c->state[index] = plan_is_needy(&p) ? NEEDY : CONTENT;
	planning_release(&p);
	return 0;
}

/* Puts on the stack who has to be settled before `self`: one with a smaller index, or none. */
static int push_before(struct claims *c, struct image *img, uint32_t self, struct index_list *stack,
		       bool *pushed, struct dinst_error *e)
{
	struct index_list near = {0};
	int r = neighbours(&near, img, c->map, self, CLAIM_REACH, e);

	*pushed = false;
	for (size_t i = 0; i < near.count && r == 0 && !*pushed; i++) {
		if (near.items[i] >= self)
			continue;
		r = look_at(c, img, near.items[i], e);
		if (r < 0 || c->state[near.items[i]] != NEEDY)
			continue;
		r = list_add(stack, near.items[i], e);
		*pushed = r == 0;
	}
	free(near.items);
	return r;
}

/*
 * Settles all that has to be before function `self` is, and, unless `p` is its
 * planning, the function itself. Each step either finds one with a smaller index
 * that is not settled, or settles the last that was found.
 */
static int settle(struct claims *c, struct image *img, uint32_t self, struct planning *p,
		  struct dinst_error *e)
{
	struct index_list stack = {0};
	int r = list_add(&stack, self, e);

	while (r == 0 && stack.count) {
		uint32_t top = stack.items[stack.count - 1];
		struct planning other;
		bool pushed;

		r = push_before(c, img, top, &stack, &pushed, e);
		if (r < 0 || pushed)
			continue;
		stack.count--;
		if (top == self && p) {
			r = ask(c, p, e);
			continue;
		}
		r = planning_make(&other, img, c->map, top, e);
		if (r < 0)
			break;
		r = ask(c, &other, e);
		planning_release(&other);
	}
	free(stack.items);
	return r;
}

int settle_needs(struct planning *p, struct dinst_error *e)
{
	struct claims *c;
	int r = claims_of(p->flow.img, p->flow.map, &c, e);

	if (r == 0)
		r = settle(c, p->flow.img, p->flow.function, p, e);
	return r;
}

int windows_respect_claims(struct windows *w, struct dinst_error *e)
{
	struct image *img = w->flow->img;
	struct index_list near = {0};
	struct claims *c;
	int r = claims_of(img, w->flow->map, &c, e);

	if (r == 0)
		r = neighbours(&near, img, c->map, w->flow->function, HOST_REACH, e);
	for (size_t i = 0; i < near.count && r == 0; i++) {
		r = look_at(c, img, near.items[i], e);
		if (r == 0 && c->state[near.items[i]] == NEEDY)
			r = settle(c, img, near.items[i], NULL, e);
	}
	free(near.items);
	if (r == 0) {
		w->claims = c;
		w->claims_below = UINT32_MAX;
	}
	return r;
}
