/* SPDX-License-Identifier: MIT */
/*
 * evaluate.c - mdl_evaluate(): a plan for each focus of a request. Owns the
 * life of plans and the identity of flags.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/evaluate_private.h"

enum { STEPS_MAX = 1 << 24, LOOKS_A_STEP = 4 }; /* a few seconds */

/* ---------------------------------------------------------------- pieces */

int spend(struct evaluation *v, uint64_t steps)
{
	v->steps += steps;
	if (v->steps <= STEPS_MAX)
		return 0;
	return dinst_fail(v->e, DINST_USAGE,
			  "%s asks for too much: its loops would take more than %d steps",
			  v->metric->id, STEPS_MAX);
}

int spend_looks(struct evaluation *v, unsigned parts)
{
	const unsigned looks = v->looks + parts;

	v->looks = looks % LOOKS_A_STEP;
	return spend(v, looks / LOOKS_A_STEP);
}

int plan_skip_once(struct evaluation *v, struct mdl_plan *plan, const char *text)
{
	for (size_t i = 0; i < plan->skipped_count; i++)
		if (!strcmp(plan->skipped[i], text))
			return 0;
	return plan_skip(v, plan, text);
}

int plan_skip(struct evaluation *v, struct mdl_plan *plan, const char *text)
{
	const size_t have = plan->skipped_count;

	/* The room is a power of two: full where the count is one. */
	if (!(have & (have - 1))) {
		char **more = mdl_alloc(v->memory, have ? have * 2 : 1, sizeof(*more), v->e);

		if (!more)
			return DINST_NO_MEMORY;
		if (have)
			memcpy(more, plan->skipped, have * sizeof(*more));
		plan->skipped = more;
	}
	plan->skipped[plan->skipped_count] = mdl_print(v->memory, v->e, "%s", text);
	return plan->skipped[plan->skipped_count++] ? 0 : DINST_NO_MEMORY;
}

static int keep_placements(struct drawing *d, struct mdl_placement **out, size_t *count)
{
	*out = mdl_keep(d->v->memory, d->items, d->count, sizeof(*d->items), d->v->e);
	*count = d->count;
	return *out ? 0 : DINST_NO_MEMORY;
}

/* A focus with many objects in it: the plan's vector. */
static int note_many(struct drawing *d)
{
	const struct focus_resource *r = d->resource;
	struct mdl_plan *plan = d->plan;

	if (!d->uses_any)
		return 0;
	if (plan->many && strcmp(plan->many_of, r->text))
		return dinst_fail(d->v->e, DINST_USAGE,
				  "both %s and %s name many objects: values are told apart by one "
				  "of them only",
				  plan->many_of, r->text);
	plan->many = true;
	plan->many_of = r->text;
	plan->keys = r->keys;
	plan->key_count = r->key_count;
	return 0;
}

/* Before its first instruction a program has no libraries yet. */
static bool is_early(const struct evaluation *v)
{
	size_t libraries = 0, loaders = 0;

	for (size_t i = 0; i < module_count(v->s->modules); i++) {
		const struct module *m = module_get(v->s->modules, i);

		if (m->gone || m->main || m->name[0] == '[')
			continue;
		if (strncmp(m->name, "ld-", 3))
			libraries++;
		else
			loaders++;
	}
	/* One that is linked statically has no loader, and will have no libraries. */
	return v->s->state == SESSION_HELD && loaders && !libraries;
}

/* ----------------------------------------------------------------- flags */

static void mix(uint64_t *hash, const void *bytes, size_t size)
{
	const uint8_t *b = bytes;

	for (size_t i = 0; i < size; i++)
		*hash = (*hash ^ b[i]) * UINT64_C(0x100000001b3);
}

static void mix_number(uint64_t *hash, uint64_t number)
{
	mix(hash, &number, sizeof(number));
}

static void mix_bindings(uint64_t *hash, const struct mdl_binding *bindings, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct mdl_binding *b = &bindings[i];

		mix(hash, b->name, strlen(b->name) + 1);
		mix_number(hash, b->index);
		mix_number(hash, b->kind);
		mix_number(hash, (uint64_t)b->number);
		if (b->text)
			mix(hash, b->text, strlen(b->text) + 1);
		mix_number(hash, (uintptr_t)b->function.module);
		mix_number(hash, b->function.index);
	}
}

/*
 * What makes a flag that flag, as a number: the tree that it came from, and
 * where its code goes. Callees that `.calls` left out show there.
 */
static uint64_t identity(const struct mdl_flag *f, const struct focus_resource *r)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	mix_number(&hash, (uintptr_t)f->constraint);
	for (size_t i = 0; i < f->placement_count; i++) {
		const struct mdl_placement *p = &f->placements[i];

		mix_number(&hash, (uintptr_t)p->function.module);
		mix_number(&hash, p->function.index);
		mix_number(&hash, p->kind);
		mix_number(&hash, (uintptr_t)p->code);
		mix_number(&hash, (uint64_t)p->rank.role << 1 | p->rank.prepend);
		mix_number(&hash, p->addresses ? p->address_count : SIZE_MAX);
		if (p->addresses)
			mix(&hash, p->addresses, p->address_count * sizeof(*p->addresses));
		mix_bindings(&hash, p->bindings, p->binding_count);
	}
	mix_bindings(&hash, f->bindings, f->binding_count);
	if (f->many)
		mix(&hash, r->keys, r->key_count * sizeof(*r->keys));
	return hash;
}

static int make_flag(struct evaluation *v, struct mdl_plan *plan, const struct mdl_constraint *c,
		     const struct focus_resource *r, const struct function_set *excluded,
		     struct mdl_flag *flag)
{
	struct drawing d = {
		.v = v,
		.plan = plan,
		.constraint = c,
		.resource = r,
		.excluded = excluded,
		.flag = c->name,
	};
	int status = draw_statement(&d, c->body);

	if (status >= 0 && d.guard && d.count)
		status = mdl_fail(v->l, v->e, DINST_USAGE, &c->place,
				  "'%s' has code at points and code without a point: one of them",
				  c->name);
	if (status >= 0 && !d.guard && !d.count && !is_early(v) && !v->awaited)
		status = dinst_fail(v->e, DINST_NO_FUNCTION,
				    "%s: nothing in %s tells whether it is so", c->name,
				    target_name(v->s->target));
	if (status >= 0)
		status = draw_extent(&d, c->extent);
	if (status >= 0)
		status = note_many(&d);
	*flag = (struct mdl_flag){
		.constraint = c,
		.resource = r->resource,
		.many = d.uses_any,
		.inline_code = d.guard,
		.bindings = d.guard_bindings,
		.binding_count = d.guard_binding_count,
	};
	if (status >= 0)
		status = keep_placements(&d, &flag->placements, &flag->placement_count);
	if (status >= 0) {
		flag->key = mdl_print(v->memory, v->e, "%s %s %016llx", c->name, r->text,
				      (unsigned long long)identity(flag, r));
		status = flag->key ? 0 : DINST_NO_MEMORY;
	}
	free(d.items);
	return status;
}

static bool bound_number(const struct mdl_flag *f, const struct mdl_expr *x, int64_t *number)
{
	*number = x->number;
	if (x->kind == MDL_INTEGER)
		return true;
	for (size_t i = 0; x->kind == MDL_CONSTRAINT && i < f->binding_count; i++)
		if (!strcmp(f->bindings[i].name, "$constraint") &&
		    (int64_t)f->bindings[i].index == x->left->number) {
			*number = f->bindings[i].number;
			return f->bindings[i].kind == MDL_BOUND_NUMBER;
		}
	return false;
}

/* $pid == NUMBER or $thread == NUMBER, alone or together with other conditions. */
static void note_only(struct mdl_plan *plan, const struct mdl_flag *f, const struct mdl_expr *x)
{
	const struct mdl_expr *who, *is;
	int64_t number;

	if (x->kind == MDL_BINARY && x->op == MDL_OP_BOTH) {
		note_only(plan, f, x->left);
		note_only(plan, f, x->right);
	}
	if (x->kind != MDL_BINARY || x->op != MDL_OP_EQ)
		return;
	is = x->left->kind == MDL_PID || x->left->kind == MDL_THREAD ? x->right : x->left;
	who = is == x->left ? x->right : x->left;
	if (!bound_number(f, is, &number) || number <= 0 || number > INT32_MAX)
		return;
	if (who->kind == MDL_PID)
		plan->only_pid = (pid_t)number;
	else if (who->kind == MDL_THREAD)
		plan->only_tid = (pid_t)number;
}

/* Whom a flag that is asked on the spot lets begin what is measured, where it says so in one assignment. */
static void note_who(struct mdl_plan *plan, const struct mdl_flag *f)
{
	const struct mdl_code *code = f->inline_code;

	while (code && !code->next && code->kind == MDL_CODE_BLOCK)
		code = code->first;
	if (code && !code->next && code->kind == MDL_CODE_EXPR && code->expr->kind == MDL_ASSIGN &&
	    !code->expr->op)
		note_only(plan, f, code->expr->right);
}

/* Cheap and selective ones first: code on the spot, single functions, then more and more. */
static size_t dearness(const struct mdl_flag *f)
{
	if (f->inline_code)
		return 0;
	return 1 + f->placement_count;
}

static void sort_flags(struct mdl_plan *plan)
{
	for (size_t i = 1; i < plan->flag_count; i++)
		for (size_t k = i; k > 0; k--) {
			struct mdl_flag *a = &plan->flags[k - 1], *b = a + 1, swap = *a;

			if (dearness(a) <= dearness(b))
				break;
			*a = *b;
			*b = swap;
		}
}

static int make_flags(struct evaluation *v, struct mdl_plan *plan, const struct selection *s,
		      const struct function_set *excluded)
{
	int status = 0;

	plan->flags = mdl_alloc(v->memory, s->flag_count, sizeof(*plan->flags), v->e);
	if (!plan->flags)
		return DINST_NO_MEMORY;
	for (size_t i = 0; i < s->flag_count && status >= 0; i++) {
		status = make_flag(v, plan, s->flags[i], s->flag_resources[i], excluded,
				   &plan->flags[i]);
		if (status >= 0)
			note_who(plan, &plan->flags[i]);
		plan->flag_count = i + 1;
	}
	sort_flags(plan);
	return status;
}

/* ----------------------------------------------------------------- plans */

/* What is measured: the base, or what replaces it. */
static int make_measure(struct evaluation *v, struct mdl_plan *plan, const struct selection *s,
			const struct function_set *excluded)
{
	const struct mdl_constraint *c = s->replace;
	struct drawing d = {
		.v = v,
		.plan = plan,
		.constraint = c,
		.resource = s->replace_resource,
		.excluded = excluded,
	};
	int status = draw_statement(&d, c ? c->body : v->metric->base);

	if (status >= 0)
		status = draw_extent(&d, c ? c->extent : v->metric->extent);
	if (status >= 0)
		status = note_many(&d);
	if (status >= 0)
		status = keep_placements(&d, &plan->placements, &plan->placement_count);
	/* Where code is `unconstrained` anybody may begin. */
	for (size_t i = 0; i < plan->placement_count; i++)
		if (!plan->placements[i].guarded && code_starts(plan->placements[i].code))
			plan->only_pid = plan->only_tid = 0;
	free(d.items);
	return status;
}

/* Callees that `.calls` leaves out: of the lists that all of this request names. */
static int find_excluded(struct evaluation *v, const struct selection *s, struct function_set *set)
{
	int status;

	v->exclusion++;
	status = excluded_add(v, s->replace ? s->replace->body : v->metric->base, set);
	for (size_t i = 0; i < s->flag_count && status >= 0; i++)
		status = excluded_add(v, s->flags[i]->body, set);
	set_sort(set);
	return status;
}

static const char *awaited(const struct focus *f)
{
	for (size_t i = 0; i < f->count; i++)
		if (f->resources[i]->waits_for)
			return f->resources[i]->waits_for;
	return NULL;
}

static int no_points(struct evaluation *v, const struct mdl_plan *plan)
{
	char text[DINST_ERROR_TEXT / 2] = "";
	size_t used = 0;

	for (size_t i = 0; i < plan->skipped_count && i < 4; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%.50s",
					 i ? ", " : "; it lacks ", plan->skipped[i]);
	return dinst_fail(v->e, DINST_NO_FUNCTION, "%s has nothing to insert in %s for %.120s%s%s",
			  v->metric->id, target_name(v->s->target), plan->focus, text,
			  plan->skipped_count > 4 ? ", ..." : "");
}

/*
 * What is missing now may be in a library that is loaded in a moment, or one
 * day: then nothing is placed until it is.
 */
static int wait_if_needed(struct evaluation *v, struct mdl_plan *plan)
{
	const bool early = is_early(v) && plan->skipped_count;
	bool lacks = !plan->placement_count;

	for (size_t i = 0; i < plan->flag_count; i++)
		lacks |= !plan->flags[i].placement_count && !plan->flags[i].inline_code;
	if (!lacks && !early)
		return 0;
	if (!early && !v->awaited)
		return no_points(v, plan);
	plan->flag_count = plan->placement_count = plan->skipped_count = plan->own_calls = 0;
	plan->many = false;
	plan->many_of = NULL;
	plan->waits_for = early ? mdl_print(v->memory, v->e, "shared objects") : v->awaited;
	return plan->waits_for ? 0 : DINST_NO_MEMORY;
}

static int make_plan(struct evaluation *v, const struct focus *f, struct mdl_plan *plan)
{
	struct function_set excluded = {0};
	struct selection s;
	int status;

	*plan = (struct mdl_plan){.metric = v->metric, .memory = mdl_memory_ref(v->memory)};
	plan->focus = focus_text(v, f);
	status = plan->focus ? selection_make(v, f, &s) : DINST_NO_MEMORY;
	if (status < 0)
		return status;
	plan->replaced_by = s.replace;
	plan->type = s.replace ? s.replace->type : v->metric->type;
	if (awaited(f)) {
		plan->waits_for = (char *)awaited(f);
		return 0;
	}
	status = find_excluded(v, &s, &excluded);
	if (status >= 0)
		status = make_flags(v, plan, &s, &excluded);
	if (status >= 0)
		status = make_measure(v, plan, &s, &excluded);
	set_release(&excluded);
	return status < 0 ? status : wait_if_needed(v, plan);
}

static int no_metric(const struct mdl_library *l, const char *name, struct dinst_error *e)
{
	const char *names[512], *near;
	size_t count = 0;

	for (const struct mdl_metric *m = mdl_metrics(l);
	     m && count < sizeof(names) / sizeof(names[0]); m = m->next)
		names[count++] = m->id;
	near = mdl_nearest(name, names, count);
	return dinst_fail(e, DINST_NO_METRIC, "no metric is called '%.120s'%s%s%s", name,
			  near ? "; did you mean '" : "; `dinst metrics` lists them",
			  near ? near : "", near ? "'?" : "");
}

static int make_plans(struct evaluation *v, const char *const *words, size_t word_count, bool each,
		      struct mdl_plan **plans, size_t *count)
{
	struct focus *foci;
	size_t focus_count;
	int status = foci_parse(v, words, word_count, each, &foci, &focus_count);

	*count = 0;
	if (status < 0)
		return status;
	*plans = calloc(focus_count + 1, sizeof(**plans));
	if (!*plans)
		return no_memory(v->e);
	for (size_t i = 0; i < focus_count && status >= 0; i++) {
		status = make_plan(v, &foci[i], &(*plans)[i]);
		*count = i + 1;
	}
	return status;
}

int mdl_evaluate(struct session *s, const struct mdl_library *l, const char *metric,
		 const char *const *words, size_t word_count, bool each, struct mdl_plan **plans,
		 size_t *count, struct dinst_error *e)
{
	struct evaluation v = {.s = s, .l = l, .e = e};
	struct mdl_plan *made = NULL;
	size_t made_count = 0;
	int status;

	v.metric = mdl_find_metric(l, metric);
	if (!v.metric)
		return no_metric(l, metric, e);
	v.memory = mdl_memory_new(e);
	if (!v.memory)
		return DINST_NO_MEMORY;
	status = make_plans(&v, words, word_count, each, &made, &made_count);
	if (status < 0) {
		mdl_plans_free(made, made_count);
	} else {
		*plans = made;
		*count = made_count;
	}
	set_release(&v.thread_starts);
	callees_free(&v);
	mdl_memory_unref(v.memory);
	return status;
}

void mdl_plans_free(struct mdl_plan *plans, size_t count)
{
	for (size_t i = 0; plans && i < count; i++)
		mdl_memory_unref(plans[i].memory);
	free(plans);
}
