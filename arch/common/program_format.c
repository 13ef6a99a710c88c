/* SPDX-License-Identifier: MIT */
/*
 * program_format.c - operations as text, for people and test failures. Must
 * never be parsed by anything.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdarg.h>

#include "arch/common/program_common.h"

static const char *const kinds[ARCH_OP_KINDS] = {
	[ARCH_OP_NONE] = "none",
	[ARCH_OP_CONST] = "const",
	[ARCH_OP_COPY] = "copy",
	[ARCH_OP_ADD] = "add",
	[ARCH_OP_SUB] = "sub",
	[ARCH_OP_MUL] = "mul",
	[ARCH_OP_MUL_HIGH] = "mul_high",
	[ARCH_OP_DIV] = "div",
	[ARCH_OP_DIV_UNSIGNED] = "div_unsigned",
	[ARCH_OP_REM] = "rem",
	[ARCH_OP_REM_UNSIGNED] = "rem_unsigned",
	[ARCH_OP_AND] = "and",
	[ARCH_OP_OR] = "or",
	[ARCH_OP_XOR] = "xor",
	[ARCH_OP_SHL] = "shl",
	[ARCH_OP_SHR] = "shr",
	[ARCH_OP_SAR] = "sar",
	[ARCH_OP_NEG] = "neg",
	[ARCH_OP_NOT] = "not",
	[ARCH_OP_LOG2] = "log2",
	[ARCH_OP_EXTEND] = "extend",
	[ARCH_OP_TEST] = "test",
	[ARCH_OP_ARGUMENT] = "argument",
	[ARCH_OP_FLOAT_ARGUMENT] = "float_argument",
	[ARCH_OP_RESULT] = "result",
	[ARCH_OP_FLOAT_RESULT] = "float_result",
	[ARCH_OP_STACK] = "stack",
	[ARCH_OP_STACK_POINTER] = "stack_pointer",
	[ARCH_OP_CALLER] = "caller",
	[ARCH_OP_PRESERVED] = "preserved",
	[ARCH_OP_LOAD] = "load",
	[ARCH_OP_STORE] = "store",
	[ARCH_OP_FETCH_ADD] = "fetch_add",
	[ARCH_OP_ATOMIC_ADD] = "atomic_add",
	[ARCH_OP_ATOMIC_MIN] = "atomic_min",
	[ARCH_OP_ATOMIC_MAX] = "atomic_max",
	[ARCH_OP_ATOMIC_STORE] = "atomic_store",
	[ARCH_OP_READ] = "read",
	[ARCH_OP_COUNT] = "count",
	[ARCH_OP_RECORD] = "record",
	[ARCH_OP_ENTER] = "enter",
	[ARCH_OP_LEAVE] = "leave",
	[ARCH_OP_LEFT] = "left",
	[ARCH_OP_CLOCK] = "clock",
	[ARCH_OP_CPU] = "cpu",
	[ARCH_OP_THREAD] = "thread",
	[ARCH_OP_PROCESS] = "process",
	[ARCH_OP_FIND] = "find",
	[ARCH_OP_RING_OPEN] = "ring_open",
	[ARCH_OP_RING_BYTES] = "ring_bytes",
	[ARCH_OP_RING_CLOSE] = "ring_close",
	[ARCH_OP_LABEL] = "label",
	[ARCH_OP_JUMP] = "jump",
	[ARCH_OP_IF] = "if",
};

static const char *const tests[] = {
	[ARCH_TEST_EQ] = "==",	     [ARCH_TEST_NE] = "!=",
	[ARCH_TEST_LT] = "<",	     [ARCH_TEST_LE] = "<=",
	[ARCH_TEST_GT] = ">",	     [ARCH_TEST_GE] = ">=",
	[ARCH_TEST_BELOW] = "below", [ARCH_TEST_BELOW_EQUAL] = "below or equal",
	[ARCH_TEST_ABOVE] = "above", [ARCH_TEST_ABOVE_EQUAL] = "above or equal",
};

struct text {
	char *bytes;
	size_t size, used;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *t, const char *format, ...)
{
	va_list args;
	int n;

	if (t->used >= t->size)
		return;
	va_start(args, format);
	n = vsnprintf(t->bytes + t->used, t->size - t->used, format, args);
	va_end(args);
	if (n > 0)
		t->used += (size_t)n;
}

static void add_second(struct text *t, const struct arch_op *op)
{
	if (op->b)
		add(t, "v%u", op->b);
	else
		add(t, "%" PRId32, op->immediate);
}

static void add_operands(struct text *t, const struct arch_op *op, unsigned class)
{
	if (class & PROGRAM_ADDRESS)
		add(t, " [v%u + %#" PRIx64 "]", op->a, op->number);
	else if (class & PROGRAM_FIRST)
		add(t, " v%u", op->a);
	if (op->kind == ARCH_OP_TEST || op->kind == ARCH_OP_IF)
		add(t, " %s ",
		    op->condition < sizeof(tests) / sizeof(*tests) ? tests[op->condition] : "?");
	else if (class & PROGRAM_SECOND)
		add(t, ", ");
	if (class & PROGRAM_SECOND)
		add_second(t, op);
	if (op->kind == ARCH_OP_STACK || op->kind == ARCH_OP_CONST)
		add(t, " %" PRId64, (int64_t)op->number);
	else if (!(class & (PROGRAM_PURE | PROGRAM_ADDRESS | PROGRAM_CONTROL)) && op->number)
		add(t, " %#" PRIx64, op->number);
	if (op->kind == ARCH_OP_JUMP || op->kind == ARCH_OP_IF)
		add(t, " ->");
	if (class & PROGRAM_CONTROL)
		add(t, " L%u", op->label);
}

void arch_op_format(const struct arch_op *op, char *text, size_t size)
{
	struct text t = {.bytes = text, .size = size};
	const unsigned class = program_class(op->kind);

	if (size == 0)
		return;
	text[0] = 0;
	if (op->result)
		add(&t, "v%u", op->result);
	if (op->second)
		add(&t, "%sv%u", op->result ? ", " : "-, ", op->second);
	if (op->result || op->second)
		add(&t, " = ");
	add(&t, "%s", op->kind < ARCH_OP_KINDS && kinds[op->kind] ? kinds[op->kind] : "?");
	if (op->size)
		add(&t, "%s%u", op->is_signed ? ".s" : ".u", op->size * 8u);
	add_operands(&t, op, class);
}
