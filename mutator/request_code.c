/* SPDX-License-Identifier: MIT */
/*
 * request_code.c - programs for placements, compiled once for all points that
 * can share them.
 *
 * A program knows the addresses of counters, so it is one place's; it is shared
 * by functions where the compiler says that it does not depend on them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/compile.h"
#include "mutator/request.h"

/* Only what code names is bound: of a loop over functions each has code with its own address in it. */
static bool same_bindings(const struct mdl_placement *a, const struct mdl_placement *b)
{
	if (a->bindings == b->bindings)
		return a->binding_count == b->binding_count;
	if (a->binding_count != b->binding_count)
		return false;
	for (size_t n = 0; n < a->binding_count; n++) {
		const struct mdl_binding *x = &a->bindings[n], *y = &b->bindings[n];

		if (x->kind != y->kind || x->index != y->index || strcmp(x->name, y->name) != 0)
			return false;
		if (x->kind == MDL_BOUND_NUMBER && x->number != y->number)
			return false;
		if (x->kind == MDL_BOUND_TEXT && strcmp(x->text, y->text) != 0)
			return false;
		if (x->kind == MDL_BOUND_FUNCTION && (x->function.module != y->function.module ||
						      x->function.index != y->function.index))
			return false;
	}
	return true;
}

/* Of calls it is asked whom they call, and events tell where they are. */
static bool same_addresses(const struct mdl_placement *a, const struct mdl_placement *b)
{
	return !a->addresses == !b->addresses && a->address_count == b->address_count &&
	       (!a->addresses ||
		!memcmp(a->addresses, b->addresses, a->address_count * sizeof(*a->addresses)));
}

static bool is_entry_of(const struct code_entry *c, const struct instance *i,
			const struct mdl_placement *p, const struct place *place,
			enum code_mode mode, bool tail_exit)
{
	const struct mdl_placement *other = c->placement;

	if (c->instance != i || c->place != place || c->mode != mode || c->tail_exit != tail_exit)
		return false;
	if (other->code != p->code || other->kind != p->kind || other->guarded != p->guarded)
		return false;
	if (!c->shared && (c->function.module != p->function.module ||
			   c->function.index != p->function.index || !same_addresses(other, p)))
		return false;
	return same_bindings(other, p);
}

static void forget(struct code_entry *c)
{
	snippet_code_unref(c->code);
	memset(c, 0, sizeof(*c));
}

void request_free_codes(struct request *r)
{
	for (unsigned n = 0; n < CODE_ENTRIES; n++)
		forget(&r->codes[n]);
}

/* ------------------------------------------------------------- compiling */

enum { GUARDS_MAX = 16, VARIABLES_MAX = 64 };

/* Everything that code of the instance may use, for the request and for the references. */
struct surroundings {
	struct compile_guard guards[GUARDS_MAX];
	size_t guard_count;
	struct variable *used[VARIABLES_MAX];
	size_t used_count;
};

static void use(struct surroundings *around, struct variable *v)
{
	if (v && around->used_count < VARIABLES_MAX)
		around->used[around->used_count++] = v;
}

static const struct instance *flag_of(const struct instance *i, const struct mdl_flag *flag)
{
	for (size_t n = 0; n < i->flag_count; n++)
		if (!strcmp(i->flags[n]->focus, flag->key))
			return i->flags[n];
	return NULL;
}

static int add_guards(struct surroundings *around, const struct instance *i, struct dinst_error *e)
{
	for (size_t n = 0; i->plan && n < i->plan->flag_count; n++) {
		const struct mdl_flag *flag = &i->plan->flags[n];
		struct compile_guard *g = &around->guards[around->guard_count++];
		const struct instance *own = flag->inline_code ? NULL : flag_of(i, flag);

		if (around->guard_count == GUARDS_MAX || (!flag->inline_code && !own))
			return dinst_fail(e, DINST_FAILED, "%s has too many constraints",
					  i->metric);
		*g = (struct compile_guard){
			.flag = own ? own->variables[0] : NULL,
			.code = flag->inline_code,
			.bindings = flag->bindings,
			.binding_count = flag->binding_count,
			.name = flag->constraint->name,
			.many = flag->many,
		};
		use(around, own ? own->variables[0] : NULL);
	}
	return 0;
}

static int look_around(struct surroundings *around, const struct instance *i, bool guarded,
		       struct dinst_error *e)
{
	if (i->variable_count + GUARDS_MAX + 2 > VARIABLES_MAX)
		return dinst_fail(e, DINST_REFUSED, "%s has too many variables", i->metric);
	for (size_t n = 0; n < i->variable_count; n++)
		use(around, i->variables[n]);
	use(around, i->table);
	use(around, i->hits);
	return guarded ? add_guards(around, i, e) : 0;
}

/* Where that is not allowed it is about the program, not about one point. */
static int prepare_threads(struct request *r, struct place *place, struct dinst_error *e)
{
	int status = threads_prepare(r->session, place, &r->stop_ns, e);

	if (status == DINST_REFUSED && e)
		e->code = status = DINST_UNSUPPORTED;
	return status;
}

/* Makes sure that the place has all of them. */
static int prepare(struct request *r, const struct surroundings *around, struct place *place,
		   struct dinst_error *e)
{
	int status = 0;

	for (size_t n = 0; n < around->used_count && status >= 0; n++) {
		struct variable *v = around->used[n];

		if (v->form == VARIABLE_FLAG || v->form == VARIABLE_TIMER)
			status = prepare_threads(r, place, e);
		if (status >= 0)
			status = variable_prepare(r->session, v, place, e);
	}
	if (status == DINST_REFUSED && e)
		e->code = status = DINST_UNSUPPORTED;
	return status;
}

static int run_compiler(struct request *r, struct instance *i, const struct mdl_placement *p,
			struct code_entry *entry, struct dinst_error *e)
{
	static const enum compile_mode modes[] = {
		[CODE_POINT] = COMPILE_POINT,
		[CODE_CATCH_UP] = COMPILE_CATCH_UP,
		[CODE_UNDO] = COMPILE_UNDO,
	};
	struct surroundings around = {0};
	struct compiled compiled = {0};
	struct compile_request request = {
		.session = r->session,
		.texts = r->session->library,
		.place = entry->place,
		.placement = p,
		.guards = around.guards,
		.variables = i->variables,
		.variable_count = i->variable_count,
		.vector = i->table,
		.hits = entry->mode == CODE_POINT ? i->hits : NULL,
		.tail_exit = entry->tail_exit,
		.mode = modes[entry->mode],
		.sampled = i->plan && i->plan->metric->style == MDL_SAMPLED_FUNCTION,
	};
	int status = look_around(&around, i, p->guarded, e);

	if (status >= 0)
		status = prepare(r, &around, entry->place, e);
	request.guard_count = around.guard_count;
	if (status >= 0)
		status = compile(&request, &compiled, e);
	if (status >= 0 && (compiled.needs_threads || compiled.per_thread))
		status = prepare_threads(r, entry->place, e);
	if (status >= 0 && ((compiled.clock && !request_may_read_clock(r, e)) ||
			    (compiled.reads && !threads_may_read(r->session, e)) ||
			    (compiled.system_calls && threads_may_call(r->session, e) <= 0)))
		e->code = status = DINST_UNSUPPORTED;
	if (status < 0) {
		free(compiled.program.ops);
		return status;
	}
	entry->shared = compiled.shared;
	if (!compiled.program.count) {
		free(compiled.program.ops);
		return 0;
	}
	entry->code =
		snippet_code_new(r->session, &compiled.program, around.used, around.used_count);
	if (!entry->code) {
		free(compiled.program.ops);
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory for a program");
	}
	entry->code->cost_ps = compiled.cost_ps;
	entry->code->switch_ps = compiled.switch_ps;
	entry->code->activation = compiled.activation;
	entry->code->start = compiled.start;
	entry->code->per_thread = compiled.per_thread;
	entry->code->system_calls = compiled.system_calls;
	i->system_calls |= compiled.system_calls;
	return 0;
}

int request_code(struct request *r, struct instance *i, const struct mdl_placement *p,
		 struct place *place, enum code_mode mode, bool tail_exit,
		 struct snippet_code **code, struct dinst_error *e)
{
	struct code_entry *c = NULL;
	int status = 0;

	*code = NULL;
	for (unsigned n = 0; n < CODE_ENTRIES && !c; n++)
		if (r->codes[n].instance && is_entry_of(&r->codes[n], i, p, place, mode, tail_exit))
			c = &r->codes[n];
	if (!c) {
		c = &r->codes[r->next_code++ % CODE_ENTRIES];
		forget(c);
		c->placement = p;
		c->place = place;
		c->function = p->function;
		c->mode = mode;
		c->tail_exit = tail_exit;
		status = run_compiler(r, i, p, c, e);
		if (status == DINST_REFUSED) {
			snprintf(c->why, sizeof(c->why), "%.190s", e->text);
			dinst_error_clear(e);
			c->refused = true;
			status = 0;
		}
		if (status >= 0)
			c->instance = i;
	}
	if (status < 0)
		return status;
	if (c->refused)
		return dinst_fail(e, DINST_REFUSED, "%s", c->why);
	*code = c->code;
	return 0;
}

bool request_uses_result(const struct snippet_code *code)
{
	for (unsigned k = 0; k < code->program.count; k++)
		if (code->program.ops[k].kind == ARCH_OP_RESULT ||
		    code->program.ops[k].kind == ARCH_OP_FLOAT_RESULT)
			return true;
	return false;
}

int request_refuse_point(struct instance *i, const struct function_ref *f, const struct point *p,
			 bool too_late, struct dinst_error *e)
{
	const char *why = NULL;

	if (p->window >= 0)
		why = too_late
			      ? "there is no room behind the call before what it returns is overwritten"
			      : "the other side of the call cannot be instrumented";
	return request_refuse(i, f, why ? REFUSAL_NONE : p->refusal, why, e);
}
