/* SPDX-License-Identifier: MIT */
/*
 * request_plan.c - a plan becomes an instance: its variables, the flags that
 * guard it, and the links of all its functions.
 *
 * Flags are instances of their own, hidden ones: who needs the same flag shares
 * it. They are placed first, so that what they set is there for what tests it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/compile.h"
#include "mutator/request.h"

/* ------------------------------------------------------------- variables */

static int add_variable(struct instance *i, const char *name, enum mdl_vartype type,
			enum variable_form form, unsigned elements, struct dinst_error *e)
{
	struct variable **grown =
		realloc(i->variables, (i->variable_count + 1) * sizeof(struct variable *));

	if (!grown)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	i->variables = grown;
	grown[i->variable_count] = variable_new(name, type, form, elements, e);
	if (!grown[i->variable_count])
		return e && e->code ? e->code : DINST_NO_MEMORY;
	i->variable_count++;
	return 0;
}

static enum variable_form usual_form(enum mdl_vartype type)
{
	if (type == MDL_DISTRIBUTION)
		return VARIABLE_DISTRIBUTION;
	if (type == MDL_STREAM)
		return VARIABLE_STREAM;
	return type == MDL_COUNTER || type == MDL_VOID ? VARIABLE_TOTAL : VARIABLE_TIMER;
}

/*
 * The smallest and the largest of its elements, and their mean, are of the keys that it has met itself: those
 * that others have met, or that were met before it came, are elements of 0.
 */
static bool keeps_own_keys(const struct mdl_plan *plan)
{
	return plan->many && !plan->key_count && plan->metric->aggregate != MDL_SUM;
}

static bool has_table_for(const struct instance *i, const struct mdl_plan *plan, unsigned places)
{
	return i->table && i->plan && i->plan->many && !keeps_own_keys(i->plan) &&
	       i->table->elements == places && !strcmp(i->plan->many_of, plan->many_of);
}

/* The table of one who asked for the same objects, with as many places, or NULL. */
static struct variable *known_table(const struct request *r, const struct mdl_plan *plan,
				    unsigned places)
{
	if (plan->key_count || keeps_own_keys(plan))
		return NULL;
	for (const struct instance *i = r->session->instances; i; i = i->next)
		if (has_table_for(i, plan, places))
			return i->table;
	for (const struct instance *i = r->session->hidden; i; i = i->next)
		if (has_table_for(i, plan, places))
			return i->table;
	for (size_t n = 0; n < r->count; n++)
		if (has_table_for(r->instances[n], plan, places))
			return r->instances[n]->table;
	return NULL;
}

static int make_table(struct request *r, struct instance *i, struct dinst_error *e)
{
	const struct mdl_plan *plan = i->plan;
	const unsigned places = variable_table_places(usual_form(plan->type));
	struct variable *known = known_table(r, plan, places);

	if (known) {
		i->table = variable_ref(known);
		i->base_full = variable_full(known);
		return 0;
	}
	i->table = variable_new(plan->many_of, MDL_COUNTER, VARIABLE_TABLE, places, e);
	if (!i->table)
		return DINST_NO_MEMORY;
	return plan->key_count
		       ? variable_set_keys(r->session, i->table, plan->keys, plan->key_count, e)
		       : 0;
}

/* Hits are worth a counter where somebody asks, or a limit has to be kept. */
static bool counts_hits(const struct request *r)
{
	return r->options && (r->options->cost || r->options->limit > 0);
}

static int make_variables(struct request *r, struct instance *i, struct dinst_error *e)
{
	const struct mdl_plan *plan = i->plan;
	unsigned elements = 1;
	int status = 0;

	if (plan->many) {
		status = make_table(r, i, e);
		elements = status < 0 ? 1 : i->table->elements + 1;
	}
	if (status >= 0)
		status = add_variable(i, plan->metric->id, plan->type, usual_form(plan->type),
				      elements, e);
	for (const struct mdl_variable *v = plan->metric->variables; v && status >= 0; v = v->next)
		status = add_variable(i, v->name, v->type, usual_form(v->type), 1, e);
	if (status >= 0)
		status = compile_choose_forms(plan, i->variables, i->variable_count, e);
	for (size_t n = 0; n < i->variable_count; n++) {
		i->variables[n]->only_pid = plan->only_pid;
		i->variables[n]->only_tid = plan->only_tid;
	}
	if (status >= 0 && counts_hits(r)) {
		i->hits = variable_new("hits", MDL_COUNTER, VARIABLE_TOTAL, 1, e);
		if (!i->hits)
			status = DINST_NO_MEMORY;
	}
	return status;
}

/* ------------------------------------------------------------- functions */

static int by_function(const void *a, const void *b)
{
	const struct mdl_placement *x = *(const struct mdl_placement *const *)a;
	const struct mdl_placement *y = *(const struct mdl_placement *const *)b;

	if (x->function.module != y->function.module)
		return x->function.module < y->function.module ? -1 : 1;
	if (x->function.index != y->function.index)
		return x->function.index < y->function.index ? -1 : 1;
	/* In the order of the text: they are in one array. */
	return x < y ? -1 : x > y;
}

static int place_all(struct request *r, struct instance *i, const struct mdl_placement *placements,
		     size_t count, struct dinst_error *e)
{
	const struct mdl_placement **sorted = calloc(count + 1, sizeof(*sorted));
	size_t end;
	int status = 0;

	if (!sorted)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	for (size_t n = 0; n < count; n++)
		sorted[n] = &placements[n];
	qsort(sorted, count, sizeof(*sorted), by_function);
	for (size_t n = 0; n < count && status >= 0; n = end) {
		struct function_work w = {.function = sorted[n]->function,
					  .placements = &sorted[n]};

		end = n;
		while (end < count && sorted[end]->function.module == w.function.module &&
		       sorted[end]->function.index == w.function.index)
			end++;
		w.count = end - n;
		if (n % 1024 == 0 && count > 1024)
			session_progress(r->session, "preparing functions", n, count);
		status = request_function(r, i, &w, e);
	}
	free(sorted);
	return status;
}

/* ----------------------------------------------------------------- flags */

struct instance *request_find_hidden(const struct request *r, const char *key)
{
	const uint32_t hash = instance_hash(key);

	for (struct instance *i = instances_of_hash(r->session, hash); i;
	     i = instances_next_of_hash(i, hash))
		if (i->has_key && !i->stopped && !strcmp(i->focus, key))
			return i;
	return NULL;
}

/* False if a module of its was unloaded, or loaded anew, under it, or under what says whether it counts. */
static bool is_in_place(const struct session *s, const struct instance *i)
{
	for (const struct link *l = i->links; l; l = l->next_instance)
		if (l->site->dropped || !site_is_in_place(s, l->site))
			return false;
	/* Hooks (hooks.c) are no part of that. */
	for (size_t n = 0; n < i->flag_count; n++)
		if (!i->flags[n]->raw && !is_in_place(s, i->flags[n]))
			return false;
	return true;
}

/* A flag that can be had in common; of many instances each asks for the same few. */
static struct instance *known_flag(struct request *r, const char *key)
{
	struct instance *i = request_find_hidden(r, key);

	for (unsigned n = 0; i && n < REQUEST_FLAGS_SEEN; n++)
		if (r->flags_seen[n] == i)
			return i;
	/* Another one is put where it was, and it runs there again. */
	if (!i || !is_in_place(r->session, i))
		return NULL;
	r->flags_seen[r->next_seen++ % REQUEST_FLAGS_SEEN] = i;
	return i;
}

/* What nothing can be said about, since nothing of it could be placed, is no use. */
static int check_flag(const struct instance *i, struct dinst_error *e)
{
	if (i->link_count)
		return 0;
	if (i->refused_count)
		return dinst_fail(e, DINST_REFUSED, "the constraint %s cannot be kept: %s: %s",
				  i->focus, i->refused[0].where,
				  i->refused[0].why ? i->refused[0].why
						    : refusal_text(i->refused[0].refusal));
	return dinst_fail(e, DINST_NO_FUNCTION, "the constraint %s has no point in this program",
			  i->focus);
}

static int make_flag(struct request *r, const struct mdl_flag *flag, struct variable *table,
		     struct instance **out, struct dinst_error *e)
{
	struct instance *i = instance_new(r->session, flag->constraint->name, "", flag->key, e);
	int status;

	if (!i)
		return DINST_NO_MEMORY;
	i->has_key = true;
	instances_push(&r->hidden, i);
	*out = i;
	i->table = flag->many ? variable_ref(table) : NULL;
	status = add_variable(i, flag->constraint->name, MDL_COUNTER, VARIABLE_FLAG, 1, e);
	if (status >= 0)
		status = place_all(r, i, flag->placements, flag->placement_count, e);
	return status < 0 ? status : check_flag(i, e);
}

static int make_flags(struct request *r, struct instance *i, struct dinst_error *e)
{
	const struct mdl_plan *plan = i->plan;
	int status = 0;

	i->flags = calloc(plan->flag_count + INSTANCE_HOOKS, sizeof(struct instance *));
	if (!i->flags)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	for (size_t n = 0; n < plan->flag_count && status >= 0; n++) {
		const struct mdl_flag *flag = &plan->flags[n];
		struct instance *own;

		if (flag->inline_code)
			continue;
		own = known_flag(r, flag->key);
		/* A flag whose value is a place is one table's. */
		if (own && flag->many && own->table != i->table)
			own = NULL;
		if (own)
			own->references++;
		else
			status = make_flag(r, flag, i->table, &own, e);
		if (own)
			i->flags[i->flag_count++] = own;
	}
	return status;
}

/* ----------------------------------------------------------------- plans */

static bool counts_itself(const struct mdl_plan *plan, const struct mdl_expr *x)
{
	return x->kind == MDL_STEP && x->number == 1 && x->left->kind == MDL_NAME &&
	       !strcmp(x->left->text, plan->metric->id);
}

/* Nothing but bare counts of its own, unguarded: its value says how often it was hit. */
static bool value_is_hits(const struct mdl_plan *plan)
{
	for (size_t n = 0; n < plan->placement_count; n++) {
		const struct mdl_code *code = plan->placements[n].code;

		if (code && code->kind == MDL_CODE_BLOCK && code->first && !code->first->next)
			code = code->first;
		if (!code || code->next || code->kind != MDL_CODE_EXPR ||
		    !counts_itself(plan, code->expr) ||
		    (plan->placements[n].guarded && plan->flag_count))
			return false;
	}
	return plan->type == MDL_COUNTER && plan->placement_count && !plan->many;
}

int request_plan(struct request *r, struct instance *i, struct plan_set *set,
		 const struct mdl_plan *plan, struct dinst_error *e)
{
	int status;

	set->references++;
	i->plans = set;
	i->plan = plan;
	i->limit = r->options ? r->options->limit : 0;
	i->wants_cost = r->options && r->options->cost;
	status = make_variables(r, i, e);
	if (status >= 0)
		status = make_flags(r, i, e);
	if (status >= 0)
		status = place_all(r, i, plan->placements, plan->placement_count, e);
	if (status >= 0 && !i->hits && value_is_hits(plan) &&
	    i->variables[0]->form == VARIABLE_TOTAL)
		i->hits = variable_ref(i->variables[0]);
	return status;
}

/* ---------------------------------------------------------------- sharing */

static bool same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static bool same_bindings(const struct mdl_placement *a, const struct mdl_placement *b)
{
	if (a->binding_count != b->binding_count)
		return false;
	for (size_t n = 0; n < a->binding_count; n++) {
		const struct mdl_binding *x = &a->bindings[n], *y = &b->bindings[n];

		if (strcmp(x->name, y->name) != 0 || x->index != y->index || x->kind != y->kind ||
		    x->number != y->number || !same_text(x->text, y->text) ||
		    x->function.module != y->function.module ||
		    x->function.index != y->function.index)
			return false;
	}
	return true;
}

static bool same_placement(const struct mdl_placement *a, const struct mdl_placement *b)
{
	return a->function.module == b->function.module && a->function.index == b->function.index &&
	       a->kind == b->kind && a->code == b->code && a->rank.role == b->rank.role &&
	       a->rank.prepend == b->rank.prepend && a->guarded == b->guarded &&
	       !a->addresses == !b->addresses && a->address_count == b->address_count &&
	       (!a->addresses ||
		!memcmp(a->addresses, b->addresses, a->address_count * sizeof(*a->addresses))) &&
	       same_bindings(a, b);
}

/*
 * The same words may come to something else by now: a library has been loaded, a
 * file opened anew, a thread of that name begun, a list replaced.
 */
static bool same_plan(const struct mdl_plan *a, const struct mdl_plan *b)
{
	if (a->flag_count != b->flag_count || a->placement_count != b->placement_count ||
	    a->key_count != b->key_count || a->replaced_by != b->replaced_by)
		return false;
	for (size_t n = 0; n < a->flag_count; n++)
		if (strcmp(a->flags[n].key, b->flags[n].key) != 0)
			return false;
	for (size_t n = 0; n < a->key_count; n++)
		if (a->keys[n] != b->keys[n])
			return false;
	for (size_t n = 0; n < a->placement_count; n++)
		if (!same_placement(&a->placements[n], &b->placements[n]))
			return false;
	return true;
}

static bool is_same(const struct request *r, const struct instance *i, const struct mdl_plan *plan)
{
	/* Of its events everybody wants all. One without a point is one of many, and alone it would be refused. */
	if (plan->type == MDL_STREAM || !i->plan || i->source || i->stopped || !i->link_count ||
	    i->plan->metric != plan->metric || strcmp(i->plan->focus, plan->focus) != 0)
		return false;
	/* One that is to be switched off above a limit is its own, and so is what it counts. */
	if (i->limit > 0 || (r->options && r->options->limit > 0) || (!i->hits && counts_hits(r)) ||
	    keeps_own_keys(plan))
		return false;
	return same_plan(i->plan, plan) && is_in_place(r->session, i);
}

struct instance *request_find_same(const struct request *r, const struct mdl_plan *plan)
{
	const uint32_t hash = instance_hash(plan->focus);

	for (struct instance *i = instances_of_hash(r->session, hash); i;
	     i = instances_next_of_hash(i, hash))
		if (is_same(r, i, plan))
			return i;
	return NULL;
}
