/* SPDX-License-Identifier: MIT */
/*
 * evaluate_statements.c - statements are carried out: each insert becomes
 * placements, one for each function it reaches, in the order of the text.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/evaluate_private.h"

enum {
	FOREACH_DEPTH = 16, /* loops inside of each other */
	/* Placements of one request: more is a mistake in a loop, not a wish. */
	PLACEMENTS_MAX = 1 << 20,
	PROGRESS_EVERY = 1024,
	LOOK_BACK = 8, /* placements that an address may be added to */
};

static int fail(const struct drawing *d, const struct mdl_place *place, const char *what)
{
	return mdl_fail(d->v->l, d->v->e, DINST_USAGE, place, "%s", what);
}

/* ------------------------------------------------------------- bindings */

struct binder {
	struct drawing *d;
	const struct function_ref *function; /* where the code goes; NULL: nowhere */
	struct mdl_binding items[32];
	size_t count;
	bool local; /* something depends on where it goes, or on a loop */
};

static bool is_bound(const struct binder *b, const char *name, unsigned index)
{
	for (size_t i = 0; i < b->count; i++)
		if (b->items[i].index == index && !strcmp(b->items[i].name, name))
			return true;
	return false;
}

/* Of several procedures that are taken for one: that which the code goes to. */
static int bind_functions(struct binder *b, const struct mdl_expr *x, const struct value *v,
			  struct mdl_binding *to)
{
	to->kind = MDL_BOUND_FUNCTION;
	if (v->count == 1) {
		to->function = v->functions[0];
		return 0;
	}
	b->local = true;
	for (size_t i = 0; b->function && i < v->count; i++)
		if (function_is(&v->functions[i], b->function)) {
			to->function = *b->function;
			return 0;
		}
	return mdl_fail(b->d->v->l, b->d->v->e, DINST_USAGE, &x->place,
			"this stands for %zu procedures: code can name one only", v->count);
}

static int bind_value(struct binder *b, const struct mdl_expr *x, const struct value *v,
		      struct mdl_binding *to)
{
	switch (v->kind) {
	case VALUE_NUMBER:
		to->kind = MDL_BOUND_NUMBER;
		to->number = v->number;
		return 0;
	case VALUE_TEXT:
		to->kind = MDL_BOUND_TEXT;
		to->text = v->text;
		return 0;
	case VALUE_ANY:
		to->kind = MDL_BOUND_ANY;
		b->d->uses_any = true;
		return 0;
	case VALUE_FUNCTIONS:
		return bind_functions(b, x, v, to);
	case VALUE_MODULES:
		to->kind = MDL_BOUND_TEXT;
		to->text = v->count ? v->modules[0]->name : "";
		return 0;
	case VALUE_CALLS:
		to->kind = MDL_BOUND_NUMBER;
		if (v->count == 1) {
			to->number =
				(int64_t)(v->sites[0].address + v->sites[0].function.module->bias);
			return 0;
		}
		/* fallthrough */
	default:
		return mdl_fail(b->d->v->l, b->d->v->e, DINST_USAGE, &x->place,
				"%s is nothing that code could compute with",
				value_kind_name(v->kind));
	}
}

static int bind(struct binder *b, const struct mdl_expr *x, const char *name, unsigned index,
		const struct value *v)
{
	struct mdl_binding *to = &b->items[b->count];

	if (is_bound(b, name, index))
		return 0;
	if (b->count == sizeof(b->items) / sizeof(b->items[0]))
		return fail(b->d, &x->place, "this code names too many things from outside of it");
	*to = (struct mdl_binding){.name = name, .index = index};
	b->count++;
	return bind_value(b, x, v, to);
}

static int bind_name(void *arg, const struct mdl_expr *x)
{
	struct binder *b = arg;
	struct value v;
	int status;

	if (x->kind == MDL_NAME) {
		for (const struct scope *s = b->d->scope; s; s = s->outer)
			if (!strcmp(s->name, x->text)) {
				b->local = true;
				return bind(b, x, s->name, 0, &s->value);
			}
		return 0; /* a variable: the compiler's */
	}
	status = value_of(b->d, x->left, &v);
	if (status >= 0 && (v.kind != VALUE_NUMBER || v.number < 0 || v.number > MDL_PATH_MAX))
		status = fail(b->d, &x->place, "the index of $constraint is a small number");
	if (status < 0)
		return status;
	{
		const unsigned index = (unsigned)v.number;

		status = value_of(b->d, x, &v);
		return status < 0 ? status : bind(b, x, "$constraint", index, &v);
	}
}

/* The bindings of `code` where it goes to `f`. Those of loops over thousands are mostly the same. */
static int bindings_for(struct drawing *d, const struct mdl_code *code,
			const struct function_ref *f, const struct mdl_binding **out, size_t *count)
{
	struct binder b = {.d = d, .function = f};
	int status;

	for (unsigned i = 0; i < BOUND_KEPT; i++)
		if (d->bound[i].code == code) {
			*out = d->bound[i].items;
			*count = d->bound[i].count;
			return 0;
		}
	status = spend_looks(d->v, code_parts(code));
	if (status >= 0)
		status = code_names(code, bind_name, &b);
	if (status < 0)
		return status;
	*count = b.count;
	*out = NULL;
	if (b.count) {
		*out = mdl_keep(d->v->memory, b.items, b.count, sizeof(b.items[0]), d->v->e);
		if (!*out)
			return DINST_NO_MEMORY;
	}
	if (!b.local)
		d->bound[d->next_bound++ % BOUND_KEPT] = (struct bound_code){code, *out, *count};
	return 0;
}

/* ----------------------------------------------------------- placements */

static int add(struct drawing *d, const struct mdl_placement *p)
{
	if (d->count == PLACEMENTS_MAX)
		return dinst_fail(d->v->e, DINST_USAGE, "%s would insert at more than %d places",
				  d->v->metric->id, PLACEMENTS_MAX);
	if (d->count == d->room) {
		size_t room = d->room ? d->room * 2 : 16;
		void *more = reallocarray(d->items, room, sizeof(*d->items));

		if (!more)
			return no_memory(d->v->e);
		d->items = more;
		d->room = room;
	}
	d->items[d->count++] = *p;
	return 0;
}

/* Calls of one function come one by one, in a loop, sorted: they are one run. */
static bool joins(const struct mdl_placement *a, const struct mdl_placement *b)
{
	return a->addresses && a->kind == b->kind && function_is(&a->function, &b->function) &&
	       a->code == b->code && a->rank.role == b->rank.role &&
	       a->rank.prepend == b->rank.prepend && a->guarded == b->guarded &&
	       a->one_way == b->one_way && a->bindings == b->bindings &&
	       a->addresses[a->address_count - 1] < b->addresses[0];
}

/* Room for addresses is a power of two. */
static vaddr_t *room_for(const struct drawing *d, const vaddr_t *from, size_t have, size_t want)
{
	vaddr_t *to;
	size_t room = 1;

	while (room < want)
		room *= 2;
	to = mdl_alloc(d->v->memory, room, sizeof(*to), d->v->e);
	if (to)
		memcpy(to, from, have * sizeof(*to));
	return to;
}

static int join(struct drawing *d, struct mdl_placement *to, vaddr_t address)
{
	const size_t have = to->address_count;

	if (!(have & (have - 1)))
		to->addresses = room_for(d, to->addresses, have, have + 1);
	if (!to->addresses)
		return DINST_NO_MEMORY;
	to->addresses[to->address_count++] = address;
	return 0;
}

int draw_placement(struct drawing *d, const struct mdl_placement *p)
{
	struct mdl_placement copy = *p;

	for (size_t i = 1; p->addresses && p->address_count == 1 && i <= LOOK_BACK && i <= d->count;
	     i++)
		if (joins(&d->items[d->count - i], p))
			return join(d, &d->items[d->count - i], p->addresses[0]);
	if (p->addresses) {
		copy.addresses = room_for(d, p->addresses, p->address_count, p->address_count);
		if (!copy.addresses)
			return DINST_NO_MEMORY;
	}
	return add(d, &copy);
}

/* -------------------------------------------------------------- inserts */

static struct mdl_placement placement_of(const struct drawing *d, const struct mdl_statement *st)
{
	struct mdl_placement p = {
		.code = st->code,
		.rank.prepend = st->prepend,
		.guarded = !d->flag && !st->unconstrained,
		.rank.role = MDL_MEASURES,
	};

	if (d->flag)
		p.rank.role = code_clears(st->code, d->flag) ? MDL_CLEARS_FLAGS : MDL_SETS_FLAGS;
	return p;
}

/* Where a thread's start has come back from what it was started for. */
static int insert_at_ways_out(struct drawing *d, const struct mdl_placement *p)
{
	struct mdl_placement way = *p;
	struct value ways;
	int status = start_ways_out(d->v, &way.function, &ways);

	for (size_t i = 0; i < ways.count && status >= 0; i++) {
		way.kind = ways.sites[i].callee ? POINT_CALL : POINT_AFTER;
		way.addresses = (vaddr_t *)&ways.sites[i].address;
		way.address_count = 1;
		status = draw_placement(d, &way);
	}
	return status;
}

static int insert_at_places(struct drawing *d, const struct mdl_statement *st,
			    const struct value *at)
{
	struct mdl_placement p = placement_of(d, st);
	int status = 0;

	status = spend(d->v, at->count);
	for (size_t i = 0; i < at->count && status >= 0; i++) {
		p.function = at->functions[i];
		p.kind = at->point;
		p.addresses = NULL;
		p.address_count = 0;
		status = bindings_for(d, st->code, &p.function, &p.bindings, &p.binding_count);
		if (status < 0)
			break;
		if (at->point == POINT_EXIT && set_has(&d->v->thread_starts, &p.function))
			status = insert_at_ways_out(d, &p);
		else
			status = draw_placement(d, &p);
	}
	return status;
}

static int insert_at_sites(struct drawing *d, const struct mdl_statement *st,
			   const struct value *at)
{
	struct mdl_placement p = placement_of(d, st);
	int status = 0;

	if (st->post_insn && at->point != POINT_CALL)
		return fail(d, &st->expr->place, "postInsn goes with calls only");
	p.kind = st->post_insn ? POINT_AFTER : at->point;
	for (size_t i = 0; i < at->count && status >= 0; i++) {
		p.function = at->sites[i].function;
		p.addresses = (vaddr_t *)&at->sites[i].address;
		p.address_count = 1;
		status = bindings_for(d, st->code, &p.function, &p.bindings, &p.binding_count);
		if (status >= 0)
			status = draw_placement(d, &p);
	}
	return status;
}

static int draw_insert(struct drawing *d, const struct mdl_statement *st)
{
	struct value at;
	int status = value_of(d, st->expr, &at);

	/* What it does to a flag is looked for in all of it. */
	if (status >= 0 && d->flag)
		status = spend_looks(d->v, code_parts(st->code));
	if (status < 0)
		return status;
	switch (at.kind) {
	case VALUE_PLACES:
		if (st->post_insn && at.point == POINT_EXIT)
			return fail(
				d, &st->expr->place,
				"behind a return nothing of the procedure is left: use preInsn");
		if (st->post_insn)
			return fail(d, &st->expr->place, "postInsn goes with calls only");
		return insert_at_places(d, st, &at);
	case VALUE_CALLS:
		return insert_at_sites(d, st, &at);
	default:
		return mdl_fail(d->v->l, d->v->e, DINST_USAGE, &st->expr->place,
				"%s is no point; .entry, .return and .calls of a procedure are",
				value_kind_name(at.kind));
	}
}

/* ------------------------------------------------------------ statements */

static int draw_foreach(struct drawing *d, const struct mdl_statement *st)
{
	struct scope scope = {.name = st->variable, .outer = d->scope};
	struct value list;
	unsigned depth = 0;
	int status;

	for (const struct scope *s = d->scope; s; s = s->outer)
		depth++;
	if (depth == FOREACH_DEPTH)
		return fail(d, &st->place, "too many loops inside of each other");
	status = value_of(d, st->expr, &list);
	if (status < 0)
		return status;
	if (list.kind == VALUE_NUMBER || list.kind == VALUE_TEXT || list.kind == VALUE_ANY ||
	    list.kind == VALUE_PLACES)
		return mdl_fail(d->v->l, d->v->e, DINST_USAGE, &st->expr->place,
				"%s cannot be looped over; lists, .funcs, .calls, .callers, "
				"$procedures and $modules can",
				value_kind_name(list.kind));
	for (size_t i = 0; i < list.count && status >= 0; i++) {
		if (list.count > PROGRESS_EVERY && i % PROGRESS_EVERY == 0)
			session_progress(d->v->s, "looking at functions", i, list.count);
		scope.value = value_element(&list, i);
		d->scope = &scope;
		status = draw_statement(d, st->then);
		d->scope = scope.outer;
	}
	return status;
}

static int draw_if(struct drawing *d, const struct mdl_statement *st)
{
	bool truth;
	int status = value_truth(d, st->expr, &truth);

	if (status < 0)
		return status;
	return draw_statement(d, truth ? st->then : st->otherwise);
}

/* What is asked at each guarded piece of the metric. */
static int draw_guard(struct drawing *d, const struct mdl_statement *st)
{
	if (!d->flag)
		return fail(d, &st->place, "code without a point belongs to constraints");
	if (d->guard)
		return fail(d, &st->place, "a constraint has one piece of code without a point");
	d->guard = st->code;
	return bindings_for(d, st->code, NULL, &d->guard_bindings, &d->guard_binding_count);
}

int draw_statement(struct drawing *d, const struct mdl_statement *st)
{
	int status;

	if (!st)
		return 0;
	status = spend(d->v, 1);
	if (status < 0)
		return status;
	switch (st->kind) {
	case MDL_BLOCK:
		for (st = st->first; st && status >= 0; st = st->next)
			status = draw_statement(d, st);
		return status;
	case MDL_FOREACH:
		return draw_foreach(d, st);
	case MDL_IF:
		return draw_if(d, st);
	case MDL_GUARD:
		return draw_guard(d, st);
	case MDL_INSERT:
		break;
	}
	return draw_insert(d, st);
}
