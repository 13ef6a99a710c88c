/* SPDX-License-Identifier: MIT */
/*
 * evaluate_extent.c - what `exclusive` adds to a body: calls made from a
 * procedure do not belong to it.
 *
 * For each pair of `append preInsn F.entry (A)` and `prepend preInsn F.return
 * (B)` B runs before each call in F, and A again when the call has returned. A
 * call whose return cannot be seen gets neither. One that never returns gets B
 * only, where F cannot be come back into in another way.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/evaluate_private.h"
#include "mutator/exceptions.h"

enum { PROGRESS_EVERY = 256 };

/* Entries and exits of a body by function, in the order of the body. */
struct side {
	struct function_ref function;
	size_t at; /* in the drawing */
	bool is_exit;
};

struct sides {
	struct side *items;
	size_t count;
};

static int by_function(const void *a, const void *b)
{
	const struct side *x = a, *y = b;

	if (x->function.module != y->function.module)
		return x->function.module < y->function.module ? -1 : 1;
	if (x->function.index != y->function.index)
		return x->function.index < y->function.index ? -1 : 1;
	return x->at < y->at ? -1 : x->at > y->at;
}

static int collect(const struct drawing *d, struct sides *s)
{
	s->items = calloc(d->count + 1, sizeof(*s->items));
	if (!s->items)
		return no_memory(d->v->e);
	for (size_t i = 0; i < d->count; i++) {
		const struct mdl_placement *p = &d->items[i];
		const bool entry = p->kind == POINT_ENTRY && !p->rank.prepend;
		const bool exit = p->kind == POINT_EXIT && p->rank.prepend;

		if (entry || exit)
			s->items[s->count++] = (struct side){p->function, i, exit};
	}
	if (s->count)
		qsort(s->items, s->count, sizeof(*s->items), by_function);
	return 0;
}

static int tell_left_out(struct drawing *d, const struct function_ref *f, vaddr_t call)
{
	const struct image_function *functions;
	char name[512], *text;

	d->plan->own_calls++;
	image_functions(f->module->image, &functions);
	function_text(f, name, sizeof(name));
	text = mdl_print(d->v->memory, d->v->e,
			 "%s: the call at +0x%llx counts as the function's own: its return cannot "
			 "be seen",
			 name, (unsigned long long)(call - functions[f->index].address));
	return text ? plan_skip(d->v, d->plan, text) : DINST_NO_MEMORY;
}

/*
 * A call that comes back more than once: the code behind it would start once more what runs
 * already (a longjmp out of a signal's handler or a callee, a vfork child that ends by _exit).
 */
static int returns_twice(struct evaluation *v, const struct site_ref *site, bool *twice)
{
	static const char *const names[] = {"setjmp", "_setjmp", "sigsetjmp", "__sigsetjmp",
					    "vfork",  "__vfork", "getcontext"};
	const struct image_function *functions;
	struct function_ref callee;
	bool known = false;
	int status = callee_of(v, site, &callee, &known);

	*twice = false;
	if (status < 0 || !known)
		return status;
	image_functions(callee.module->image, &functions);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		*twice |= !strcmp(functions[callee.index].name, names[i]);
	return 0;
}

/* Of a function: calls that can be left and come back from, and those that can only be left. */
struct sorted_calls {
	vaddr_t *both, *one_way;
	size_t both_count, one_way_count;
	bool caught; /* a longjmp or an exception may come back into it */
};

/*
 * A call without a point behind it, of what the module itself has: a loop that serves, or libc's
 * way to main(). What another module's do, that are known by name, is to end or to jump out.
 */
static bool never_returns(const struct function_ref *f, const struct function_ref *callee,
			  const struct site_ref *site)
{
	const struct image_function *functions;

	image_functions(f->module->image, &functions);
	return site->usable && site->callee && callee->module == f->module &&
	       !(functions[callee->index].flags & FUNCTION_STUB) &&
	       functions[callee->index].address == site->callee;
}

/* For image_handlers(). */
static void found_handler(void *arg, vaddr_t lo, vaddr_t hi, vaddr_t pad)
{
	bool *caught = arg;

	(void)lo;
	(void)hi;
	*caught |= pad != 0;
}

static void look_for_handlers(const struct function_ref *f, bool *caught)
{
	const struct image_function *functions;
	struct image_range code;

	image_functions(f->module->image, &functions);
	image_handlers(f->module->image, functions[f->index].address, &code, found_handler, caught);
}

static int sort_call(struct drawing *d, const struct site_ref *site, bool usable, bool has,
		     struct sorted_calls *s)
{
	struct function_ref callee;
	bool known = false, twice;
	int status = returns_twice(d->v, site, &twice);

	if (status < 0 || twice) {
		s->caught |= twice;
		return status;
	}
	if (usable)
		s->both[s->both_count++] = site->address;
	else if (has)
		return tell_left_out(d, &site->function, site->address);
	else
		status = callee_of(d->v, site, &callee, &known);
	if (status >= 0 && known && never_returns(&site->function, &callee, site))
		s->one_way[s->one_way_count++] = site->address;
	return status;
}

static int sort_calls(struct drawing *d, const struct function_ref *f, struct sorted_calls *s)
{
	struct value one = {.kind = VALUE_FUNCTIONS, .functions = f, .count = 1}, sites = {0};
	bool *usable = NULL, *has = NULL;
	int status = calls_of(d, &one, &sites);

	if (status < 0)
		return status;
	s->both = calloc(sites.count + 1, sizeof(*s->both));
	s->one_way = calloc(sites.count + 1, sizeof(*s->one_way));
	usable = calloc(sites.count + 1, sizeof(*usable));
	has = calloc(sites.count + 1, sizeof(*has));
	status = s->both && s->one_way && usable && has ? 0 : no_memory(d->v->e);
	for (size_t i = 0; i < sites.count && status >= 0; i++)
		s->both[i] = sites.sites[i].address;
	if (status >= 0 && sites.count)
		status = after_usable(d->v, f, s->both, sites.count, usable, has);
	for (size_t i = 0; i < sites.count && status >= 0; i++)
		status = sort_call(d, &sites.sites[i], usable[i], has[i], s);
	if (s->one_way_count)
		look_for_handlers(f, &s->caught);
	if (s->caught)
		s->one_way_count = 0;
	free(usable);
	free(has);
	return status;
}

static int add_around(struct drawing *d, size_t like, enum point_kind kind, vaddr_t *calls,
		      size_t count, bool one_way)
{
	struct mdl_placement p = d->items[like];

	if (!count)
		return 0;
	p.kind = kind;
	p.addresses = calls;
	p.address_count = count;
	p.one_way = one_way;
	return draw_placement(d, &p);
}

/* One function's sides: the nth entry belongs to the nth exit. */
static int add_pairs(struct drawing *d, const struct side *sides, size_t count)
{
	struct sorted_calls s = {.both = NULL};
	size_t entry = 0, exit = 0;
	int status = 0;

	while (status >= 0) {
		while (entry < count && sides[entry].is_exit)
			entry++;
		while (exit < count && !sides[exit].is_exit)
			exit++;
		if (entry == count || exit == count)
			break;
		if (!s.both)
			status = sort_calls(d, &sides[0].function, &s);
		if (status < 0 || (!s.both_count && !s.one_way_count))
			break;
		status =
			add_around(d, sides[exit].at, POINT_CALL, s.one_way, s.one_way_count, true);
		if (status >= 0)
			status = add_around(d, sides[exit++].at, POINT_CALL, s.both, s.both_count,
					    false);
		if (status >= 0)
			status = add_around(d, sides[entry++].at, POINT_AFTER, s.both, s.both_count,
					    false);
	}
	free(s.both);
	free(s.one_way);
	return status;
}

int draw_extent(struct drawing *d, enum mdl_extent extent)
{
	struct sides s = {0};
	int status;

	if (extent != MDL_EXCLUSIVE)
		return 0;
	status = collect(d, &s);
	for (size_t i = 0, next; i < s.count && status >= 0; i = next) {
		for (next = i + 1;
		     next < s.count && function_is(&s.items[i].function, &s.items[next].function);)
			next++;
		if (s.count > PROGRESS_EVERY && i % PROGRESS_EVERY == 0)
			session_progress(d->v->s, "looking for calls", i, s.count);
		status = add_pairs(d, s.items + i, next - i);
	}
	free(s.items);
	return status;
}
