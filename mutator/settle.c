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
	NESTED_MAX =
		32, /* functions looked back, whether they have bytes of their own there or not */
	/*
	 * What no compiler makes, and would take hours. In 813 programs and libraries, with
	 * compilers, qemu and node among them, there are at most 167 functions within CLAIM_REACH of
	 * one, found by looking at 233, and to settle one function costs at most 1,600,000.
	 * What is more than 20 times as much is too much.
	 */
	NEAR_MAX = 4096,
	LOOKS_MAX = 1 << 14, /* functions and fragments that are looked at to find those near one */
	COST_MAX = 1 << 26,  /* of settling a function, in bytes of code that have to be planned */
	PART_COST = 1024,    /* what planning any function or fragment costs, besides */
};

/* What is known about a function. */
enum need { UNKNOWN, CONTENT, NEEDY, SETTLED };
enum crowd { CROWD_UNKNOWN, CROWD_FEW, CROWD_MANY };

struct known {
	uint32_t near, before; /* the last list of neighbours, or of those before it, that has it */
	uint32_t cost;	       /* of asking all its neighbours, in bytes of code to be planned */
	uint8_t need;	       /* enum need */
	uint8_t crowd;	       /* enum crowd */
	bool deep;	       /* too much has to be settled before it: it takes nothing */
};

struct claim {
	vaddr_t lo, hi;
	uint32_t by;
};

struct claims {
	struct image *img;
	struct freemap *map;
	const struct image_function *functions;
	size_t function_count;
	struct known *of;	/* each function */
	uint32_t lists, chains; /* how many have been made, for struct known */
	struct claim *items;	/* by address, disjoint */
	size_t count, room;
};

struct index_list {
	uint32_t *items;
	size_t count, room;
};

static void claims_free_all(void *arg)
{
	struct claims *c = arg;

	free(c->of);
	free(c->items);
	free(c);
}

static int claims_of(struct image *img, struct freemap *map, struct claims **out,
		     struct dinst_error *e)
{
	struct claims *c = freemap_extra(map);

	if (!c) {
		c = calloc(1, sizeof(*c));
		if (c) {
			c->function_count = image_functions(img, &c->functions);
			c->of = calloc(c->function_count + 1, sizeof(*c->of));
		}
		if (!c || !c->of) {
			free(c);
			return dinst_fail(e, DINST_NO_MEMORY, "no memory for claims");
		}
		c->img = img;
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

/* A list of the functions near one. */
struct vicinity {
	struct claims *c;
	uint32_t self;
	vaddr_t reach;
	struct index_list list;
	size_t looks;
	bool crowded; /* there are too many, or it would take too long to say */
};

/* Adds the one that function or fragment `k` belongs to, if that goes on behind `lo`. */
static int add_owner(struct vicinity *n, long k, vaddr_t lo, struct dinst_error *e)
{
	struct claims *c = n->c;
	const struct image_function *fn = &c->functions[k];
	const uint32_t owner = fn->flags & FUNCTION_COLD ? fn->parent : (uint32_t)k;

	n->crowded = n->list.count > NEAR_MAX || ++n->looks > LOOKS_MAX;
	if (n->crowded || fn->address + fn->size <= lo || owner == n->self ||
	    owner >= c->function_count || c->of[owner].near == c->lists)
		return 0;
	c->of[owner].near = c->lists;
	return list_add(&n->list, owner, e);
}

/* Adds the functions with code in [lo, hi), `self` left out. */
static int add_near(struct vicinity *n, vaddr_t lo, vaddr_t hi, struct dinst_error *e)
{
	struct claims *c = n->c;
	long first = freemap_before(c->map, lo) - NESTED_MAX;
	int r = 0;

	/* However many others begin between one that goes on behind `lo` and that. */
	for (long k = image_function_at(c->img, lo); k >= 0 && r == 0 && !n->crowded;
	     k = image_function_around(c->img, k))
		r = add_owner(n, k, lo, e);
	for (long k = first < 0 ? 0 : first;
	     r == 0 && !n->crowded && (size_t)k < c->function_count && c->functions[k].address < hi;
	     k++)
		r = add_owner(n, k, lo, e);
	n->crowded |= n->list.count > NEAR_MAX;
	return r;
}

static int add_around(struct vicinity *n, uint32_t part, struct dinst_error *e)
{
	const struct image_function *fn = &n->c->functions[part];
	vaddr_t lo = fn->address > n->reach ? fn->address - n->reach : 0;

	return add_near(n, lo, fn->address + fn->size + n->reach, e);
}

/*
 * The functions with code within `reach` of function `self`'s, each once. Whoever
 * makes the list of n frees it.
 */
static int neighbours(struct vicinity *n, struct claims *c, uint32_t self, vaddr_t reach,
		      struct dinst_error *e)
{
	const uint32_t *fragments;
	size_t count = freemap_fragments(c->map, self, &fragments);
	int r;

	*n = (struct vicinity){.c = c, .self = self, .reach = reach};
	c->lists++;
	r = add_around(n, self, e);
	for (size_t i = 0; i < count && r == 0 && !n->crowded; i++)
		r = add_around(n, fragments[i], e);
	return r;
}

/* Adds what it costs to plan function `index`; false: that is too much. */
static bool add_cost(const struct claims *c, uint32_t index, uint32_t *cost)
{
	const uint32_t *fragments;
	size_t count = freemap_fragments(c->map, index, &fragments);
	uint64_t size = c->functions[index].size;

	for (size_t i = 0; size + PART_COST <= COST_MAX - *cost; i++) {
		*cost += (uint32_t)size + PART_COST;
		if (i == count)
			return true;
		size = c->functions[fragments[i]].size;
	}
	return false;
}

static int count_neighbours(struct claims *c, uint32_t index, struct dinst_error *e)
{
	struct known *known = &c->of[index];
	struct vicinity near;
	int r = neighbours(&near, c, index, CLAIM_REACH, e);

	known->cost = 0;
	if (r == 0 && !near.crowded) {
		free(near.list.items);
		r = neighbours(&near, c, index, HOST_REACH, e);
	}
	for (size_t i = 0; i < near.list.count && !near.crowded; i++)
		near.crowded = !add_cost(c, near.list.items[i], &known->cost);
	free(near.list.items);
	if (r == 0)
		known->crowd = near.crowded ? CROWD_MANY : CROWD_FEW;
	return r;
}

/*
 * A function that has too many neighbours neither takes anything of theirs nor gives them
 * any of its own. That is known from the image alone: its plan does not depend on who is
 * asked when.
 */
static int find_crowd(struct claims *c, uint32_t index, bool *crowded, struct dinst_error *e)
{
	int r = c->of[index].crowd == CROWD_UNKNOWN ? count_neighbours(c, index, e) : 0;

	*crowded = c->of[index].crowd == CROWD_MANY;
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

/* Asks one neighbour for what p still lacks. */
static int ask_one(struct claims *c, struct planning *p, uint32_t index, struct dinst_error *e)
{
	struct planning other;
	bool crowded;
	int r = 0;

	if (c->functions[index].flags & (FUNCTION_STUB | FUNCTION_IFUNC))
		return 0;
	r = find_crowd(c, index, &crowded, e);
	if (r < 0 || crowded)
		return r;
	r = planning_make(&other, c->img, c->map, index, e);
	if (r < 0)
		return r;
	other.windows.claims = c;
	other.windows.claims_below = p->flow.function;
	r = plan_place_in(p, &other.windows, e);
	planning_release(&other);
	return r;
}

/* Asks each neighbour. Everybody before p is settled. */
static int ask(struct claims *c, struct planning *p, struct dinst_error *e)
{
	uint32_t self = p->flow.function;
	size_t first = p->windows.count;
	struct vicinity near;
	int r = neighbours(&near, c, self, HOST_REACH, e);

	p->windows.claims = c;
	p->windows.claims_below = self;
	for (size_t i = 0; i < near.list.count && r == 0 && plan_is_needy(p); i++)
		r = ask_one(c, p, near.list.items[i], e);
	free(near.list.items);
	if (r == 0 && c->of[self].need != SETTLED) {
		r = record(c, p, first, e);
		c->of[self].need = SETTLED;
	}
	return r;
}

/* What the function lacks, if that is not known yet. */
static int look_at(struct claims *c, uint32_t index, struct dinst_error *e)
{
	struct planning p;
	int r;

	if (c->of[index].need != UNKNOWN)
		return 0;
	r = planning_make(&p, c->img, c->map, index, e);
	if (r < 0)
		return r;
	c->of[index].need = plan_is_needy(&p) ? NEEDY : CONTENT;
	planning_release(&p);
	return 0;
}

/* True in *takes if the function may take something of its neighbours. */
static int find_taker(struct claims *c, uint32_t index, bool *takes, struct dinst_error *e)
{
	bool crowded;
	int r = find_crowd(c, index, &crowded, e);

	*takes = false;
	if (r < 0 || crowded)
		return r;
	r = look_at(c, index, e);
	*takes = r == 0 && c->of[index].need != CONTENT;
	return r;
}

/* What has to be settled before a function is: they are added one by one. */
struct chain {
	struct index_list list;
	uint32_t number; /* for struct known */
	uint64_t cost;
	bool deep; /* it costs too much */
};

static int chain_add(struct chain *chain, struct claims *c, uint32_t index, struct dinst_error *e)
{
	c->of[index].before = chain->number;
	chain->cost += c->of[index].cost + PART_COST;
	chain->deep |= c->of[index].deep || chain->cost > COST_MAX;
	return list_add(&chain->list, index, e);
}

/* Adds those near function `at` that take, and have a smaller index. */
static int add_before(struct chain *chain, struct claims *c, uint32_t at, struct dinst_error *e)
{
	struct vicinity near;
	int r = neighbours(&near, c, at, CLAIM_REACH, e);

	for (size_t i = 0; i < near.list.count && r == 0 && !chain->deep; i++) {
		uint32_t index = near.list.items[i];
		bool takes;

		if (index >= at || c->of[index].before == chain->number)
			continue;
		r = find_taker(c, index, &takes, e);
		if (r == 0 && takes)
			r = chain_add(chain, c, index, e);
	}
	free(near.list.items);
	return r;
}

static int index_order(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/*
 * Function `self`, and all that has to be settled before it is, in order. Those that
 * are settled already count, too: whether there are too many depends on the image only.
 */
static int find_before(struct chain *chain, struct claims *c, uint32_t self, struct dinst_error *e)
{
	int r;

	*chain = (struct chain){.number = ++c->chains};
	r = chain_add(chain, c, self, e);
	for (size_t i = 0; i < chain->list.count && r == 0 && !chain->deep; i++)
		r = add_before(chain, c, chain->list.items[i], e);
	if (r == 0 && !chain->deep)
		qsort(chain->list.items, chain->list.count, sizeof(*chain->list.items),
		      index_order);
	return r;
}

/* Function `index`, whose planning is p, or is made. */
static int settle_one(struct claims *c, uint32_t index, struct planning *p, struct dinst_error *e)
{
	struct planning own;
	int r;

	if (p)
		return ask(c, p, e);
	if (c->of[index].need == SETTLED)
		return 0;
	r = planning_make(&own, c->img, c->map, index, e);
	if (r < 0)
		return r;
	r = ask(c, &own, e);
	planning_release(&own);
	return r;
}

/*
 * Settles all that has to be before function `self` is, and the function itself, by `p`
 * if that is its planning.
 */
static int settle(struct claims *c, uint32_t self, struct planning *p, struct dinst_error *e)
{
	struct chain chain = {0};
	bool crowded;
	int r = find_crowd(c, self, &crowded, e);

	if (r == 0 && !crowded)
		r = find_before(&chain, c, self, e);
	if (r == 0 && (crowded || chain.deep)) {
		c->of[self].deep = chain.deep;
		c->of[self].need = SETTLED;
	} else {
		for (size_t i = 0; i < chain.list.count && r == 0; i++)
			r = settle_one(c, chain.list.items[i],
				       chain.list.items[i] == self ? p : NULL, e);
	}
	free(chain.list.items);
	return r;
}

int settle_needs(struct planning *p, struct dinst_error *e)
{
	struct claims *c;
	int r = claims_of(p->flow.img, p->flow.map, &c, e);

	return r < 0 ? r : settle(c, p->flow.function, p, e);
}

/* All that may take something of function `self` has done so. */
static int settle_around(struct claims *c, uint32_t self, struct dinst_error *e)
{
	struct vicinity near;
	bool takes;
	int r = neighbours(&near, c, self, HOST_REACH, e);

	for (size_t i = 0; i < near.list.count && r == 0; i++) {
		uint32_t index = near.list.items[i];

		r = find_taker(c, index, &takes, e);
		if (r == 0 && takes && c->of[index].need == NEEDY)
			r = settle(c, index, NULL, e);
	}
	free(near.list.items);
	return r;
}

int windows_respect_claims(struct windows *w, struct dinst_error *e)
{
	struct claims *c;
	bool crowded = false;
	int r = claims_of(w->flow->img, w->flow->map, &c, e);

	if (r == 0)
		r = find_crowd(c, w->flow->function, &crowded, e);
	if (r == 0 && !crowded)
		r = settle_around(c, w->flow->function, e);
	if (r == 0) {
		w->claims = c;
		w->claims_below = UINT32_MAX;
	}
	return r;
}
