/* SPDX-License-Identifier: MIT */
/*
 * program_evaluate.c - what each operation of a program uses, does and
 * computes: the one place that says so for the interpreter and for the
 * optimiser. The emitters of the architectures are tested against it. Never
 * knows how anything is encoded.
 */
#include "arch/common/program_common.h"

enum {
	UNARY = PROGRAM_PURE | PROGRAM_RESULT | PROGRAM_FIRST,
	BINARY = UNARY | PROGRAM_SECOND,
	COMMUTATIVE = BINARY | PROGRAM_COMMUTES,
	FIXED = PROGRAM_FIXED | PROGRAM_RESULT,
	UPDATE = PROGRAM_FIRST | PROGRAM_SECOND | PROGRAM_EFFECT | PROGRAM_ADDRESS,
};

static const uint16_t classes[ARCH_OP_KINDS] = {
	[ARCH_OP_CONST] = PROGRAM_PURE | PROGRAM_RESULT,
	[ARCH_OP_COPY] = UNARY,
	[ARCH_OP_ADD] = COMMUTATIVE,
	[ARCH_OP_SUB] = BINARY,
	[ARCH_OP_MUL] = COMMUTATIVE,
	[ARCH_OP_MUL_HIGH] = COMMUTATIVE,
	[ARCH_OP_DIV] = BINARY,
	[ARCH_OP_DIV_UNSIGNED] = BINARY,
	[ARCH_OP_REM] = BINARY,
	[ARCH_OP_REM_UNSIGNED] = BINARY,
	[ARCH_OP_AND] = COMMUTATIVE,
	[ARCH_OP_OR] = COMMUTATIVE,
	[ARCH_OP_XOR] = COMMUTATIVE,
	[ARCH_OP_SHL] = BINARY,
	[ARCH_OP_SHR] = BINARY,
	[ARCH_OP_SAR] = BINARY,
	[ARCH_OP_NEG] = UNARY,
	[ARCH_OP_NOT] = UNARY,
	[ARCH_OP_LOG2] = UNARY,
	[ARCH_OP_EXTEND] = UNARY,
	[ARCH_OP_TEST] = BINARY,
	[ARCH_OP_ARGUMENT] = FIXED,
	[ARCH_OP_FLOAT_ARGUMENT] = FIXED,
	[ARCH_OP_RESULT] = FIXED,
	[ARCH_OP_FLOAT_RESULT] = FIXED,
	[ARCH_OP_STACK] = FIXED,
	[ARCH_OP_STACK_POINTER] = FIXED,
	[ARCH_OP_CALLER] = FIXED,
	[ARCH_OP_PRESERVED] = FIXED,
	[ARCH_OP_LOAD] = PROGRAM_RESULT | PROGRAM_FIRST | PROGRAM_ADDRESS,
	[ARCH_OP_STORE] = UPDATE | PROGRAM_WRITES,
	[ARCH_OP_FETCH_ADD] = UPDATE | PROGRAM_WRITES | PROGRAM_RESULT,
	[ARCH_OP_ATOMIC_ADD] = UPDATE | PROGRAM_WRITES,
	[ARCH_OP_ATOMIC_MIN] = UPDATE | PROGRAM_WRITES,
	[ARCH_OP_ATOMIC_MAX] = UPDATE | PROGRAM_WRITES,
	[ARCH_OP_ATOMIC_STORE] = UPDATE | PROGRAM_WRITES,
	[ARCH_OP_READ] = PROGRAM_RESULT | PROGRAM_FIRST | PROGRAM_ADDRESS,
	[ARCH_OP_COUNT] = UPDATE,
	[ARCH_OP_RECORD] = FIXED,
	[ARCH_OP_ENTER] = PROGRAM_RESULT | PROGRAM_FIRST | PROGRAM_EFFECT,
	[ARCH_OP_LEAVE] = PROGRAM_RESULT | PROGRAM_FIRST | PROGRAM_EFFECT,
	[ARCH_OP_LEFT] = PROGRAM_FIRST | PROGRAM_EFFECT,
	[ARCH_OP_CLOCK] = PROGRAM_RESULT | PROGRAM_FIRST,
	[ARCH_OP_CPU] = FIXED,
	[ARCH_OP_THREAD] = FIXED,
	[ARCH_OP_PROCESS] = FIXED,
	[ARCH_OP_FIND] = PROGRAM_RESULT | PROGRAM_FIRST | PROGRAM_EFFECT,
	[ARCH_OP_RING_OPEN] = PROGRAM_RESULT | PROGRAM_EFFECT,
	[ARCH_OP_RING_BYTES] = PROGRAM_FIRST | PROGRAM_SECOND | PROGRAM_EFFECT,
	[ARCH_OP_RING_CLOSE] = PROGRAM_FIRST | PROGRAM_EFFECT,
	[ARCH_OP_LABEL] = PROGRAM_EFFECT | PROGRAM_CONTROL,
	[ARCH_OP_JUMP] = PROGRAM_EFFECT | PROGRAM_CONTROL,
	[ARCH_OP_IF] = PROGRAM_FIRST | PROGRAM_SECOND | PROGRAM_EFFECT | PROGRAM_CONTROL,
};

unsigned program_class(unsigned kind)
{
	return kind < ARCH_OP_KINDS ? classes[kind] : 0;
}

bool arch_op_has_effect(const struct arch_op *op)
{
	return program_class(op->kind) & PROGRAM_EFFECT;
}

uint64_t program_extend(uint64_t word, unsigned size, bool is_signed)
{
	unsigned shift;

	if (size == 0 || size >= 8)
		return word;
	shift = 64 - 8 * size;
	word <<= shift;
	return is_signed ? (uint64_t)((int64_t)word >> shift) : word >> shift;
}

bool program_holds(unsigned condition, uint64_t a, uint64_t b)
{
	const int64_t x = (int64_t)a, y = (int64_t)b;

	switch (condition) {
	case ARCH_TEST_EQ:
		return a == b;
	case ARCH_TEST_NE:
		return a != b;
	case ARCH_TEST_LT:
		return x < y;
	case ARCH_TEST_LE:
		return x <= y;
	case ARCH_TEST_GT:
		return x > y;
	case ARCH_TEST_GE:
		return x >= y;
	case ARCH_TEST_BELOW:
		return a < b;
	case ARCH_TEST_BELOW_EQUAL:
		return a <= b;
	case ARCH_TEST_ABOVE:
		return a > b;
	default:
		return a >= b;
	}
}

static uint64_t divide(uint64_t a, uint64_t b, bool remainder)
{
	if (b == 0)
		return 0;
	if (b == UINT64_MAX) /* -1: the one quotient that has no place is made by negation */
		return remainder ? 0 : 0 - a;
	return remainder ? (uint64_t)((int64_t)a % (int64_t)b)
			 : (uint64_t)((int64_t)a / (int64_t)b);
}

static uint64_t binary(unsigned kind, uint64_t a, uint64_t b)
{
	switch (kind) {
	case ARCH_OP_ADD:
		return a + b;
	case ARCH_OP_SUB:
		return a - b;
	case ARCH_OP_MUL:
		return a * b;
	case ARCH_OP_MUL_HIGH:
		return (uint64_t)((unsigned __int128)a * b >> 64);
	case ARCH_OP_DIV:
		return divide(a, b, false);
	case ARCH_OP_REM:
		return divide(a, b, true);
	case ARCH_OP_DIV_UNSIGNED:
		return b ? a / b : 0;
	case ARCH_OP_REM_UNSIGNED:
		return b ? a % b : 0;
	case ARCH_OP_AND:
		return a & b;
	case ARCH_OP_OR:
		return a | b;
	case ARCH_OP_XOR:
		return a ^ b;
	case ARCH_OP_SHL:
		return a << (b & 63);
	case ARCH_OP_SHR:
		return a >> (b & 63);
	default: /* ARCH_OP_SAR */
		return (uint64_t)((int64_t)a >> (b & 63));
	}
}

uint64_t program_evaluate(const struct arch_op *op, uint64_t a, uint64_t b)
{
	switch (op->kind) {
	case ARCH_OP_CONST:
		return op->number;
	case ARCH_OP_COPY:
		return a;
	case ARCH_OP_NEG:
		return 0 - a;
	case ARCH_OP_NOT:
		return ~a;
	case ARCH_OP_LOG2:
		return a ? 63 - (uint64_t)__builtin_clzll(a) : 0;
	case ARCH_OP_EXTEND:
		return program_extend(a, op->size, op->is_signed);
	case ARCH_OP_TEST:
		return program_holds(op->condition, a, b);
	default:
		return binary(op->kind, a, b);
	}
}
