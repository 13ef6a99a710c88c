/* SPDX-License-Identifier: MIT */
/*
 * compile_call.c - calls of the target's functions: which function is meant, what
 * it is given, what it returns. What it does is taken apart by callee.c; nothing
 * of it is executed.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/callee.h"
#include "mutator/compile_private.h"
#include "mutator/core.h"

/* A call that is being compiled. */
struct call {
	struct compiler *c;
	const struct mdl_expr *x;
	struct function_ref f;
	const struct image_function *function;
	struct type_function types;
	struct lift_argument arguments[ARCH_LIFT_ARGUMENTS];
};

static void refuse(struct call *call, const char *why)
{
	compile_fail(call->c, &call->x->place, DINST_USAGE, "'%.60s' cannot be called: %s",
		     call->x->text, why);
}

/* ------------------------------------------------------------ which function */

/* Of several the executable's, which is the one that the program itself would call. */
static bool choose(struct call *call, const struct function_ref *found, size_t count)
{
	size_t main_count = 0;

	for (size_t i = 0; i < count; i++)
		if (found[i].module->main && !main_count++)
			call->f = found[i];
	if (count == 1)
		call->f = found[0];
	if (count == 1 || main_count == 1)
		return true;
	if (found[0].module == found[1].module)
		compile_fail(
			call->c, &call->x->place, DINST_USAGE,
			"%s has several functions named '%.60s': which is meant cannot be told",
			found[0].module->name, call->x->text);
	else
		compile_fail(call->c, &call->x->place, DINST_USAGE,
			     "'%.60s' is in %s and in %s: say which, as in Call(\"%s:%.60s\", ...)",
			     call->x->text, found[0].module->name, found[1].module->name,
			     found[0].module->name, call->x->text);
	return false;
}

static bool find_callee(struct call *call)
{
	struct compiler *c = call->c;
	const struct image_function *functions;
	struct function_ref *found = NULL;
	struct dinst_error e = {0};
	bool chosen = false;
	size_t count = 0;

	if (!c->q->session || (strpbrk(call->x->text, "*?[") &&
			       !find_is_name(c->q->session->modules, call->x->text))) {
		refuse(call, "here the name of one function is needed");
		return false;
	}
	if (find_functions(c->q->session->modules, call->x->text, &found, &count, &e))
		compile_fail(c, &call->x->place, e.code == DINST_REFUSED ? DINST_USAGE : e.code,
			     "%s", e.text);
	else
		chosen = choose(call, found, count);
	free(found);
	dinst_error_clear(&e);
	if (!chosen)
		return false;
	image_functions(call->f.module->image, &functions);
	call->function = &functions[call->f.index];
	return true;
}

/* ------------------------------------------------------- is it what it seems */

/* Bytes of the target that are ours to change. */
static bool is_patched(const struct session *s, taddr_t address)
{
	for (size_t b = 0; b < s->site_buckets; b++)
		for (const struct site *site = s->site_hash[b]; site; site = site->next_hash)
			for (unsigned i = 0; i < site->patch_count; i++)
				if (address - site->patches[i].address < ARCH_PATCH_MAX)
					return true;
	return false;
}

/* True if what runs there is what the file says, but for what we patched. */
static bool is_as_in_file(const struct call *call)
{
	const struct session *s = call->c->q->session;
	const taddr_t address = call->function->address + call->f.module->bias;
	uint8_t memory[512];
	size_t done = 0, size, part;
	const uint8_t *file = image_code(call->f.module->image, call->function->address, &size);

	if (!file || size < call->function->size || call->f.module->gone)
		return false;
	for (; done < call->function->size; done += part) {
		part = call->function->size - done;
		if (part > sizeof(memory))
			part = sizeof(memory);
		if (target_read(s->target, address + done, memory, part, NULL))
			return false;
		for (size_t i = 0; i < part; i++)
			if (memory[i] != file[done + i] && !is_patched(s, address + done + i))
				return false;
	}
	return true;
}

static bool is_number_type(const struct type *t)
{
	return t->kind == TYPE_UNKNOWN ||
	       ((t->kind == TYPE_INTEGER || t->kind == TYPE_POINTER) && t->size && t->size <= 8);
}

static bool check_types(struct call *call)
{
	const struct type_function *t = &call->types;

	if (!t->known)
		return true;
	if (t->is_changed) {
		refuse(call, "the compiler has changed how it is called");
		return false;
	}
	if (t->variadic || t->argument_count != call->x->arg_count) {
		compile_fail(call->c, &call->x->place, DINST_USAGE,
			     t->variadic ? "'%.60s' cannot be called: it takes any number of "
					   "arguments"
					 : "'%.60s' takes %zu argument%s, not %zu",
			     call->x->text, t->argument_count, t->argument_count == 1 ? "" : "s",
			     call->x->arg_count);
		return false;
	}
	for (size_t i = 0; i < t->argument_count; i++)
		if (!is_number_type(&t->arguments[i])) {
			compile_fail(call->c, &call->x->args[i]->place, DINST_USAGE,
				     "'%.60s' cannot be called: its argument %zu is no integer "
				     "and no pointer",
				     call->x->text, i);
			return false;
		}
	if (t->result.kind == TYPE_VOID || is_number_type(&t->result))
		return true;
	refuse(call, "what it returns is no integer and no pointer");
	return false;
}

static bool check(struct call *call)
{
	const uint32_t flags = call->function->flags;

	if (call->x->arg_count > ARCH_LIFT_ARGUMENTS)
		refuse(call, "a function can be given six arguments at most");
	else if (flags & FUNCTION_IFUNC)
		refuse(call,
		       "its name stands for a resolver, which chooses one of several (IFUNC)");
	else if (flags & (FUNCTION_STUB | FUNCTION_COLD))
		refuse(call, "it is no function of its own");
	else if (image_is_go(call->f.module->image))
		refuse(call, "Go passes arguments in a way of its own, which is not known here");
	else if (compile_is_changed(&call->f))
		refuse(call, "the compiler has changed how it is called");
	else if (!is_as_in_file(call))
		refuse(call, "its bytes in memory are not the file's: somebody has changed it");
	else
		return true;
	return false;
}

/* ---------------------------------------------------------------- arguments */

static unsigned as_type(struct compiler *c, const struct type *t, unsigned value)
{
	if (t->kind != TYPE_INTEGER && t->kind != TYPE_POINTER)
		return value;
	return compile_extend(c, value, t->size, t->is_signed);
}

/* What callers pass: of a narrow type the whole register, as compilers take for granted. */
static void pass_arguments(struct call *call)
{
	struct compiler *c = call->c;

	for (size_t i = 0; i < call->x->arg_count && !c->failed; i++) {
		const struct mdl_expr *x = call->x->args[i];
		const unsigned value = compile_new_value(c);
		unsigned given = compile_number(c, x);

		if (call->types.known)
			given = as_type(c, &call->types.arguments[i], given);
		/* What comes behind it may change the variable that it is. */
		compile_copy(c, value, given);
		call->arguments[i] = (struct lift_argument){
			.value = (uint16_t)value,
			.variable = x->kind == MDL_ADDRESS,
		};
	}
}

/* A word that the function has filled with a narrower number. */
static void widen_variables(struct call *call)
{
	struct type t;

	for (size_t i = 0; i < call->x->arg_count && call->types.known; i++) {
		if (!call->arguments[i].variable)
			continue;
		type_target(&call->types.arguments[i], &t);
		if (t.kind == TYPE_INTEGER && t.size && t.size < 8)
			compile_store(call->c, call->arguments[i].value, 0,
				      compile_load(call->c, call->arguments[i].value, 0, t.size,
						   t.is_signed));
	}
}

/* ------------------------------------------------------------------ the call */

static struct arch_op *new_op(void *arg, unsigned kind)
{
	return compile_op(((struct call *)arg)->c, kind);
}

static unsigned new_value(void *arg)
{
	return compile_new_value(((struct call *)arg)->c);
}

static unsigned new_label(void *arg)
{
	return compile_label(((struct call *)arg)->c);
}

static unsigned lift_callee(struct call *call)
{
	const bool is_void = call->types.known && call->types.result.kind == TYPE_VOID;
	const unsigned result = is_void ? 0 : compile_new_value(call->c);
	struct lift lift = {.arg = call, .op = new_op, .value = new_value};
	const taddr_t start = call->function->address + call->f.module->bias;
	size_t size = 0;
	const struct callee_request q = {
		.code = image_code(call->f.module->image, call->function->address, &size),
		.size = call->function->size,
		.start = start,
		.entry = start,
		.arguments = call->arguments,
		.argument_count = (unsigned)call->x->arg_count,
		.lift = &lift,
		.label = new_label,
		.result = result,
	};
	struct dinst_error e = {0};

	if (callee_lift(&q, &e))
		compile_fail(call->c, &call->x->place,
			     e.code == DINST_REFUSED ? DINST_USAGE : e.code,
			     "'%.60s' cannot be called: %s (functions that only compute can)",
			     call->x->text, e.text);
	dinst_error_clear(&e);
	return result;
}

void compile_call(struct compiler *c, const struct mdl_expr *x, struct operand *out)
{
	struct call call = {.c = c, .x = x};
	unsigned result;

	*out = operand_constant(0);
	if (!find_callee(&call) || !check(&call))
		return;
	types_of_function(call.f.module->image, call.f.index, &call.types);
	if (!check_types(&call))
		return;
	pass_arguments(&call);
	if (c->failed)
		return;
	result = lift_callee(&call);
	widen_variables(&call);
	if (result)
		*out = operand_value(call.types.known ? as_type(c, &call.types.result, result)
						      : result);
}
