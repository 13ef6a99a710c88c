/* SPDX-License-Identifier: MIT */
/*
 * compile_build.c - operations are put into a row, with the limits of a program
 * kept. Knows no tree.
 */
#include <stdarg.h>
#include <stdio.h>

#include "mutator/compile_private.h"

unsigned compile_fail(struct compiler *c, const struct mdl_place *at, int code, const char *format,
		      ...)
{
	char text[256];
	va_list args;

	if (c->failed)
		return 0;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	c->failed = code;
	/* What is about one point is told beside it, on a line. */
	if (at && at->file && code == DINST_REFUSED)
		dinst_fail(c->e, code, "%s (%s:%u:%u)", text, at->file, at->line, at->column);
	else if (at && c->q->texts)
		mdl_fail(c->q->texts, c->e, code, at, "%s", text);
	else
		dinst_fail(c->e, code, "%s", text);
	return 0;
}

static void too_long(struct compiler *c)
{
	compile_fail(c, c->at, DINST_USAGE,
		     "this is too much code for one point: more than %d operations on %d values",
		     ARCH_PROGRAM_OPS, ARCH_PROGRAM_VALUES);
}

struct arch_op *compile_op(struct compiler *c, unsigned kind)
{
	struct arch_op *op = &c->nowhere;

	if (!c->failed && c->count == ARCH_PROGRAM_OPS)
		too_long(c);
	if (!c->failed)
		op = &c->ops[c->count++];
	*op = (struct arch_op){.kind = (uint8_t)kind};
	return op;
}

unsigned compile_new_value(struct compiler *c)
{
	if (c->values == ARCH_PROGRAM_VALUES) {
		too_long(c);
		return c->values;
	}
	return ++c->values;
}

static unsigned set_result(struct compiler *c, struct arch_op *op)
{
	op->result = (uint16_t)compile_new_value(c);
	return op->result;
}

void compile_set(struct compiler *c, unsigned value, int64_t number)
{
	struct arch_op *op = compile_op(c, ARCH_OP_CONST);

	op->result = (uint16_t)value;
	op->number = (uint64_t)number;
}

unsigned compile_constant(struct compiler *c, int64_t number)
{
	const unsigned value = compile_new_value(c);

	compile_set(c, value, number);
	return value;
}

void compile_copy(struct compiler *c, unsigned value, unsigned from)
{
	struct arch_op *op = compile_op(c, ARCH_OP_COPY);

	op->result = (uint16_t)value;
	op->a = (uint16_t)from;
}

unsigned compile_unary(struct compiler *c, unsigned kind, unsigned a)
{
	struct arch_op *op = compile_op(c, kind);

	op->a = (uint16_t)a;
	return set_result(c, op);
}

unsigned compile_binary(struct compiler *c, unsigned kind, unsigned a, unsigned b)
{
	struct arch_op *op = compile_op(c, kind);

	op->a = (uint16_t)a;
	op->b = (uint16_t)b;
	return set_result(c, op);
}

unsigned compile_with(struct compiler *c, unsigned kind, unsigned a, int64_t constant)
{
	struct arch_op *op;

	if (constant != (int32_t)constant)
		return compile_binary(c, kind, a, compile_constant(c, constant));
	op = compile_op(c, kind);
	op->a = (uint16_t)a;
	op->immediate = (int32_t)constant;
	return set_result(c, op);
}

unsigned compile_extend(struct compiler *c, unsigned a, unsigned size, bool is_signed)
{
	struct arch_op *op;

	if (size == 0 || size >= 8)
		return a;
	op = compile_op(c, ARCH_OP_EXTEND);
	op->a = (uint16_t)a;
	op->size = (uint8_t)size;
	op->is_signed = is_signed;
	return set_result(c, op);
}

unsigned compile_load(struct compiler *c, unsigned base, uint64_t number, unsigned size,
		      bool is_signed)
{
	struct arch_op *op = compile_op(c, ARCH_OP_LOAD);

	op->a = (uint16_t)base;
	op->number = number;
	op->size = (uint8_t)size;
	op->is_signed = is_signed;
	return set_result(c, op);
}

void compile_store(struct compiler *c, unsigned base, uint64_t number, unsigned value)
{
	struct arch_op *op = compile_op(c, ARCH_OP_STORE);

	op->a = (uint16_t)base;
	op->number = number;
	op->size = 8;
	op->b = (uint16_t)value;
}

unsigned compile_get(struct compiler *c, unsigned kind, uint64_t number)
{
	struct arch_op *op = compile_op(c, kind);

	op->number = number;
	return set_result(c, op);
}

unsigned compile_clock(struct compiler *c, enum arch_clock clock)
{
	struct arch_op *op = compile_op(c, ARCH_OP_CLOCK);

	op->number = clock;
	if (clock == ARCH_CLOCK_THREAD)
		op->a = (uint16_t)c->record;
	if (clock != ARCH_CLOCK_TICKS)
		c->system_calls = true;
	return set_result(c, op);
}

unsigned compile_label(struct compiler *c)
{
	if (c->labels == ARCH_PROGRAM_LABELS) {
		too_long(c);
		return c->labels;
	}
	return ++c->labels;
}

void compile_put_label(struct compiler *c, unsigned label)
{
	compile_op(c, ARCH_OP_LABEL)->label = (uint16_t)label;
}

void compile_jump(struct compiler *c, unsigned label)
{
	compile_op(c, ARCH_OP_JUMP)->label = (uint16_t)label;
}

void compile_if(struct compiler *c, unsigned condition, unsigned a, unsigned b, unsigned label)
{
	struct arch_op *op = compile_op(c, ARCH_OP_IF);

	op->condition = (uint8_t)condition;
	op->a = (uint16_t)a;
	op->b = (uint16_t)b;
	op->label = (uint16_t)label;
}

void compile_if_constant(struct compiler *c, unsigned condition, unsigned a, int64_t constant,
			 unsigned label)
{
	const bool fits = constant == (int32_t)constant;
	const unsigned b = fits ? 0 : compile_constant(c, constant);

	compile_if(c, condition, a, b, label);
	if (fits && !c->failed)
		c->ops[c->count - 1].immediate = (int32_t)constant;
}
