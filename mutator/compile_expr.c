/* SPDX-License-Identifier: MIT */
/*
 * compile_expr.c - expressions: names, and what each kind of tree stands for.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/compile_private.h"

static const struct mdl_binding *find_binding(const struct compiler *c, const char *name,
					      unsigned index)
{
	for (size_t i = 0; i < c->binding_count; i++)
		if (c->bindings[i].index == index && !strcmp(c->bindings[i].name, name))
			return &c->bindings[i];
	return NULL;
}

/* The where-value that x names, NULL if it names none. */
static const struct mdl_binding *binding_of(const struct compiler *c, const struct mdl_expr *x)
{
	if (x->kind == MDL_NAME && x->text)
		return find_binding(c, x->text, 0);
	if (x->kind == MDL_CONSTRAINT && x->left && x->left->kind == MDL_INTEGER)
		return find_binding(c, "$constraint", (unsigned)x->left->number);
	return NULL;
}

static bool is_any(const struct compiler *c, const struct mdl_expr *x)
{
	const struct mdl_binding *b = binding_of(c, x);

	return b && b->kind == MDL_BOUND_ANY;
}

bool compile_is_any(const struct compiler *c, const struct mdl_expr *x,
		    const struct mdl_expr **other)
{
	if (x->kind != MDL_BINARY || (x->op != MDL_OP_EQ && x->op != MDL_OP_NE))
		return false;
	if (is_any(c, x->right))
		*other = x->left;
	else if (is_any(c, x->left))
		*other = x->right;
	else
		return false;
	return true;
}

unsigned compile_find_place(struct compiler *c, const struct mdl_expr *key)
{
	const struct variable *table = c->q->vector;
	const unsigned wanted = compile_number(c, key), place = compile_new_value(c);
	struct arch_op *op;
	unsigned found;

	if (!table)
		return compile_fail(
			c, &key->place, DINST_USAGE,
			"this compares with many objects, but there is one value for all");
	op = compile_op(c, ARCH_OP_FIND);
	op->a = (uint16_t)wanted;
	op->result = (uint16_t)place;
	op->number = variable_counter(table, c->q->place);
	op->immediate = 31 - __builtin_clz(table->elements);
	if (!table->keys) {
		/* Any object counts; those that are too many have an element of their own. */
		found = compile_label(c);
		compile_if_constant(c, ARCH_TEST_NE, place, 0, found);
		compile_set(c, place, table->elements + 1);
		compile_put_label(c, found);
	}
	compile_copy(c, c->place, place);
	return place;
}

struct place_known compile_enter_place(struct compiler *c)
{
	const struct place_known before = {c->place, c->place_known};

	/* What a guard that is evaluated here finds out is for what follows. */
	if (c->place && !c->local_name) {
		c->place = compile_new_value(c);
		compile_copy(c, c->place, before.place);
	}
	return before;
}

void compile_leave_place(struct compiler *c, const struct place_known *before)
{
	c->place = before->place;
	c->place_known = before->known;
}

static void compile_binding(struct compiler *c, const struct mdl_expr *x,
			    const struct mdl_binding *b, struct operand *out)
{
	const struct image_function *functions;

	switch (b->kind) {
	case MDL_BOUND_NUMBER:
		*out = operand_constant(b->number);
		break;
	case MDL_BOUND_FUNCTION:
		image_functions(b->function.module->image, &functions);
		*out = operand_constant(
			(int64_t)(functions[b->function.index].address + b->function.module->bias));
		break;
	case MDL_BOUND_TEXT:
		compile_fail(c, &x->place, DINST_USAGE,
			     "'%s' is a text here: in (* *) there are numbers only", b->text);
		break;
	case MDL_BOUND_ANY:
		compile_fail(c, &x->place, DINST_USAGE,
			     "this stands for many objects: it can only be compared with == or !=");
		break;
	}
}

static void compile_name(struct compiler *c, const struct mdl_expr *x, struct operand *out)
{
	const struct mdl_binding *b;
	struct variable *v;

	if (x->kind == MDL_NAME && c->local_name && !strcmp(c->local_name, x->text)) {
		*out = operand_value(compile_local(c));
		return;
	}
	v = x->kind == MDL_NAME ? compile_find_variable(c, x->text) : NULL;
	if (v) {
		compile_variable_read(c, x, v, out);
		return;
	}
	b = binding_of(c, x);
	if (b)
		compile_binding(c, x, b, out);
	else if (x->kind == MDL_NAME)
		compile_fail(c, &x->place, DINST_USAGE,
			     "'%s' is not known here: neither a variable nor a name of the request",
			     x->text);
	else
		compile_fail(c, &x->place, DINST_USAGE, "this has no value in this request");
}

static unsigned compile_now(struct compiler *c)
{
	const enum arch_clock clock = ticks_wall_clock();
	unsigned ns;

	if (clock != ARCH_CLOCK_TICKS)
		return compile_clock(c, ARCH_CLOCK_MONOTONIC);
	ns = compile_ticks_to_ns(c, compile_clock(c, clock));
	/* As the program itself reads that clock. */
	return compile_with(c, ARCH_OP_ADD, ns,
			    ticks_epoch() + target_clock_offset(c->q->session->target));
}

/* ns since this activation's entry; -1 where that is not known. */
static unsigned compile_elapsed(struct compiler *c, const struct mdl_expr *x)
{
	const enum arch_clock clock = ticks_wall_clock();
	unsigned result, known, unknown, since;

	if (c->q->placement->kind != POINT_EXIT)
		return compile_fail(c, &x->place, DINST_USAGE,
				    "$elapsed is known where a function returns, and only there");
	c->activation = c->start = true;
	result = compile_constant(c, -1);
	unknown = compile_label(c);
	known = compile_label(c);
	compile_if_constant(c, ARCH_TEST_EQ, ARCH_VALUE_ACTIVATION, 0, unknown);
	compile_if_constant(c, ARCH_TEST_EQ, ARCH_VALUE_START, 0, unknown);
	compile_if_constant(c, ARCH_TEST_EQ, ARCH_VALUE_START, (int64_t)PAIR_INHERITED, unknown);
	since = compile_binary(c, ARCH_OP_SUB, compile_clock(c, clock), ARCH_VALUE_START);
	compile_set(c, result, 0);
	/* Clocks of two CPUs may differ by a little. */
	compile_if_constant(c, ARCH_TEST_LT, since, 0, known);
	compile_copy(c, result, clock == ARCH_CLOCK_TICKS ? compile_ticks_to_ns(c, since) : since);
	compile_put_label(c, known);
	compile_put_label(c, unknown);
	return result;
}

static unsigned compile_caller(struct compiler *c, const struct mdl_expr *x)
{
	if (c->q->placement->kind != POINT_ENTRY && c->q->placement->kind != POINT_EXIT)
		return compile_fail(c, &x->place, DINST_USAGE,
				    "$caller is known at a function's entry and where it returns, "
				    "and only there");
	return compile_get(c, ARCH_OP_CALLER, 0);
}

/* x ? a : b, where both are made numbers by `number`. */
static unsigned compile_conditional(struct compiler *c, const struct mdl_expr *x,
				    unsigned (*number)(struct compiler *c,
						       const struct mdl_expr *x))
{
	const struct place_known before = compile_enter_place(c);
	const unsigned result = compile_new_value(c), otherwise = compile_label(c),
		       end = compile_label(c);
	bool there;

	compile_branch(c, x->condition, false, otherwise);
	there = c->place_there;
	compile_copy(c, result, number(c, x->left));
	compile_jump(c, end);
	c->place_known = there;
	compile_put_label(c, otherwise);
	compile_copy(c, result, number(c, x->right));
	compile_put_label(c, end);
	compile_leave_place(c, &before);
	return result;
}

/* One step of a path in a text, a member or [number]; gives what follows it. */
static char *compile_step(struct compiler *c, const struct mdl_expr *x, char *path,
			  struct operand *out)
{
	char *end = path, was;
	long long index;

	if (*path == '[') {
		index = strtoll(path + 1, &end, 0);
		if (end == path + 1 || *end != ']') {
			compile_fail(c, &x->place, DINST_USAGE, "'%s': here [NUMBER] is needed",
				     path);
			return NULL;
		}
		compile_element(c, x, index, out);
		return end + 1 + (end[1] == '.');
	}
	end = path + strcspn(path, ".[");
	was = *end;
	*end = 0;
	compile_field(c, x, path, out);
	*end = was;
	return end + (was == '.');
}

static void compile_read_symbol(struct compiler *c, const struct mdl_expr *x, struct operand *out)
{
	const struct mdl_expr *name = x->arg_count ? x->args[0] : NULL;
	struct data_symbol symbol;
	struct dinst_error e = {0};
	char text[512], rest[512], *path;

	if (!name || name->kind != MDL_STRING || !name->text ||
	    snprintf(text, sizeof(text), "%s", name->text) >= (int)sizeof(text)) {
		compile_fail(c, &x->place, DINST_USAGE,
			     "readSymbol takes the name of a variable of the program, in quotes");
		return;
	}
	path = data_symbol_path(c->q->session->modules, text, rest, sizeof(rest));
	if (data_symbol_find(c->q->session->modules, text, &symbol, &e)) {
		compile_fail(c, &name->place, e.code == DINST_REFUSED ? DINST_USAGE : e.code, "%s",
			     e.text);
		return;
	}
	/* Another module than the executable or the code's own may be unloaded one day. */
	c->depends |= !symbol.module->main;
	*out = (struct operand){
		.kind = OPERAND_MEMORY,
		.offset = symbol.address,
		.type = symbol.type,
	};
	while (path && *path && !c->failed)
		path = compile_step(c, name, path, out);
}

static void compile_read_memory(struct compiler *c, const struct mdl_expr *x, struct operand *out)
{
	struct operand bytes;

	if (x->arg_count != 2) {
		compile_fail(c, &x->place, DINST_USAGE,
			     "readMemory takes an address and a number of bytes");
		return;
	}
	*out = (struct operand){.kind = OPERAND_MEMORY, .value = compile_number(c, x->args[0])};
	compile_operand(c, x->args[1], &bytes);
	if (bytes.kind != OPERAND_CONSTANT || bytes.constant < 1 || bytes.constant > 8)
		compile_fail(c, &x->args[1]->place, DINST_USAGE,
			     "readMemory reads 1 to 8 bytes, a number that is known beforehand");
	out->type = (struct type){.kind = TYPE_INTEGER, .size = (uint32_t)bytes.constant};
	*out = operand_value(compile_load_operand(c, out, x));
}

static void compile_function(struct compiler *c, const struct mdl_expr *x, struct operand *out)
{
	switch (x->function) {
	case MDL_DO_CALL:
		compile_call(c, x, out);
		break;
	case MDL_DO_RECORD:
		compile_record(c, x, out);
		break;
	case MDL_DO_READ_SYMBOL:
		compile_read_symbol(c, x, out);
		break;
	case MDL_DO_READ_MEMORY:
		compile_read_memory(c, x, out);
		break;
	default:
		compile_timer(c, x, out);
		break;
	}
}

static void compile_attribute(struct compiler *c, const struct mdl_expr *x, struct operand *out)
{
	const struct mdl_binding *b = binding_of(c, x->left);

	if (b && b->kind == MDL_BOUND_FUNCTION && !strcmp(x->text, "address")) {
		compile_binding(c, x, b, out);
		return;
	}
	if (b) {
		compile_fail(c, &x->place, DINST_USAGE, "'.%s' has no value in (* *)", x->text);
		return;
	}
	compile_operand(c, x->left, out);
	compile_field(c, x, x->text, out);
}

/* What the thread has, besides arguments and results. False if x is something else. */
static bool compile_moment(struct compiler *c, const struct mdl_expr *x, struct operand *out)
{
	switch (x->kind) {
	case MDL_THREAD:
		*out = operand_value(compile_get(c, ARCH_OP_THREAD, 0));
		return true;
	case MDL_PID:
		c->system_calls = true;
		*out = operand_value(compile_get(c, ARCH_OP_PROCESS, 0));
		return true;
	case MDL_CPU:
		*out = operand_value(compile_get(c, ARCH_OP_CPU, 0));
		return true;
	case MDL_NOW:
		*out = operand_value(compile_now(c));
		return true;
	case MDL_ELAPSED:
		*out = operand_value(compile_elapsed(c, x));
		return true;
	case MDL_CALLER:
		*out = operand_value(compile_caller(c, x));
		return true;
	case MDL_STACK:
		*out = operand_value(compile_get(c, ARCH_OP_STACK_POINTER, 0));
		return true;
	case MDL_ARGUMENT:
		compile_argument(c, x, out);
		return true;
	case MDL_RETURN:
		compile_return(c, x, out);
		return true;
	default:
		return false;
	}
}

void compile_operand(struct compiler *c, const struct mdl_expr *x, struct operand *out)
{
	*out = operand_constant(0);
	if (c->failed || compile_moment(c, x, out))
		return;
	switch (x->kind) {
	case MDL_INTEGER:
		*out = operand_constant(x->number);
		break;
	case MDL_NAME:
	case MDL_CONSTRAINT:
		compile_name(c, x, out);
		break;
	case MDL_ATTRIBUTE:
		compile_attribute(c, x, out);
		break;
	case MDL_INDEX:
		compile_index(c, x, out);
		break;
	case MDL_CALL:
		compile_function(c, x, out);
		break;
	case MDL_ASSIGN:
	case MDL_STEP:
		compile_assign(c, x, out);
		break;
	case MDL_ADDRESS:
		compile_address(c, x, out);
		break;
	case MDL_UNARY:
	case MDL_BINARY:
		compile_operator(c, x, out);
		break;
	case MDL_CHOICE:
		*out = operand_value(compile_conditional(c, x, compile_number));
		break;
	default:
		compile_fail(c, &x->place, DINST_USAGE,
			     x->kind == MDL_STRING ? "a text has no place in (* *)"
						   : "this has no value in (* *)");
		break;
	}
}

unsigned compile_number(struct compiler *c, const struct mdl_expr *x)
{
	struct operand o;

	compile_operand(c, x, &o);
	return compile_load_operand(c, &o, x);
}

unsigned compile_place(struct compiler *c, const struct mdl_expr *x)
{
	const struct mdl_expr *other;
	struct place_known before;
	unsigned place;

	if (x->kind == MDL_CHOICE)
		return compile_conditional(c, x, compile_place);
	if (x->op != MDL_OP_EQ || !compile_is_any(c, x, &other))
		return compile_number(c, x);
	before = compile_enter_place(c);
	place = compile_find_place(c, other);
	compile_leave_place(c, &before);
	return place;
}
