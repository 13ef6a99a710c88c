/* SPDX-License-Identifier: MIT */
/*
 * evaluate_extent.c - what `exclusive` adds to a body: calls made from a
 * procedure do not belong to it.
 *
 * For each pair of `append preInsn F.entry (A)` and `prepend preInsn F.return
 * (B)` B runs before each call in F, and A again when the call has returned. A
 * call whose return cannot be seen gets neither.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/evaluate_private.h"

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
		const bool entry = p->kind == POINT_ENTRY && !p->prepend;
		const bool exit = p->kind == POINT_EXIT && p->prepend;

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

/* The calls of f that can be left and come back from: *count of calls[]. */
static int usable_calls(struct drawing *d, const struct function_ref *f, vaddr_t **calls,
			size_t *count)
{
	struct value one = {.kind = VALUE_FUNCTIONS, .functions = f, .count = 1}, sites = {0};
	bool *usable = NULL, *has = NULL;
	int status = calls_of(d, &one, &sites);
	vaddr_t *list = NULL;

	*count = 0;
	if (status < 0)
		return status;
	list = calloc(sites.count + 1, sizeof(*list));
	usable = calloc(sites.count + 1, sizeof(*usable));
	has = calloc(sites.count + 1, sizeof(*has));
	status = list && usable && has ? 0 : no_memory(d->v->e);
	for (size_t i = 0; i < sites.count && status >= 0; i++)
		list[i] = sites.sites[i].address;
	if (status >= 0 && sites.count)
		status = after_usable(d->v, f, list, sites.count, usable, has);
	for (size_t i = 0; i < sites.count && status >= 0; i++) {
		bool twice;

		status = returns_twice(d->v, &sites.sites[i], &twice);
		if (status < 0 || twice)
			continue;
		if (usable[i])
			list[(*count)++] = list[i];
		else if (has[i])
			status = tell_left_out(d, f, list[i]);
	}
	free(usable);
	free(has);
	*calls = list;
	return status;
}

static int add_around(struct drawing *d, size_t like, enum point_kind kind, vaddr_t *calls,
		      size_t count)
{
	struct mdl_placement p = d->items[like];

	p.kind = kind;
	p.addresses = calls;
	p.address_count = count;
	return draw_placement(d, &p);
}

/* One function's sides: the nth entry belongs to the nth exit. */
static int add_pairs(struct drawing *d, const struct side *sides, size_t count)
{
	size_t entry = 0, exit = 0, call_count = 0;
	vaddr_t *calls = NULL;
	int status = 0;

	while (status >= 0) {
		while (entry < count && sides[entry].is_exit)
			entry++;
		while (exit < count && !sides[exit].is_exit)
			exit++;
		if (entry == count || exit == count)
			break;
		if (!calls)
			status = usable_calls(d, &sides[0].function, &calls, &call_count);
		if (status < 0 || !call_count)
			break;
		status = add_around(d, sides[exit++].at, POINT_CALL, calls, call_count);
		if (status >= 0)
			status = add_around(d, sides[entry++].at, POINT_AFTER, calls, call_count);
	}
	free(calls);
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
