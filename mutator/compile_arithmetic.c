/* SPDX-License-Identifier: MIT */
/*
 * compile_arithmetic.c - operators of expressions, on signed 64-bit numbers; and
 * divisions by constants, which need no division.
 */
#include "mutator/compile_private.h"

bool compile_condition_of(int operator, unsigned * condition)
{
	switch (operator) {
	case MDL_OP_LT:
		*condition = ARCH_TEST_LT;
		return true;
	case MDL_OP_LE:
		*condition = ARCH_TEST_LE;
		return true;
	case MDL_OP_GT:
		*condition = ARCH_TEST_GT;
		return true;
	case MDL_OP_GE:
		*condition = ARCH_TEST_GE;
		return true;
	case MDL_OP_EQ:
		*condition = ARCH_TEST_EQ;
		return true;
	case MDL_OP_NE:
		*condition = ARCH_TEST_NE;
		return true;
	default:
		return false;
	}
}

static unsigned kind_of(int operator)
{
	static const uint8_t kinds[] = {
		[MDL_OP_MUL] = ARCH_OP_MUL, [MDL_OP_DIV] = ARCH_OP_DIV, [MDL_OP_REM] = ARCH_OP_REM,
		[MDL_OP_ADD] = ARCH_OP_ADD, [MDL_OP_SUB] = ARCH_OP_SUB, [MDL_OP_SHL] = ARCH_OP_SHL,
		[MDL_OP_SHR] = ARCH_OP_SAR, [MDL_OP_AND] = ARCH_OP_AND, [MDL_OP_XOR] = ARCH_OP_XOR,
		[MDL_OP_OR] = ARCH_OP_OR,
	};

	return operator>= 0 && operator<(int) sizeof(kinds) ? kinds[operator] : 0;
}

/* A quotient towards 0 by a power of two: negative numbers get what rounds them up. */
static unsigned divide_by_power(struct compiler *c, unsigned a, unsigned log)
{
	const unsigned sign = compile_with(c, ARCH_OP_SAR, a, 63);
	const unsigned more = compile_with(c, ARCH_OP_SHR, sign, 64 - log);

	return compile_with(c, ARCH_OP_SAR, compile_binary(c, ARCH_OP_ADD, a, more), log);
}

/*
 * A quotient towards 0 by any d > 2: with s = floor(log2(d - 1)) and m =
 * floor(2^(64+s) / d) + 1 the upper half of m * a, shifted by s, is the quotient of every
 * a >= 0 below 2^63 (Granlund and Montgomery, Division by Invariant Integers
 * using Multiplication, 1994). The product is one of unsigned numbers: for a < 0
 * it is too large by m * 2^64, and the quotient then is one too small.
 */
static unsigned divide_by(struct compiler *c, unsigned a, uint64_t d)
{
	const unsigned shift = 63 - (unsigned)__builtin_clzll(d - 1);
	const unsigned __int128 power = (unsigned __int128)1 << (64 + shift);
	const unsigned m = compile_constant(c, (int64_t)(uint64_t)(power / d + 1));
	const unsigned sign = compile_with(c, ARCH_OP_SAR, a, 63);
	unsigned high = compile_binary(c, ARCH_OP_MUL_HIGH, a, m);

	high = compile_binary(c, ARCH_OP_SUB, high, compile_binary(c, ARCH_OP_AND, sign, m));
	/* As a sum of a signed m, whose highest bit is always set here, and a. */
	high = compile_with(c, ARCH_OP_SAR, high, shift);
	return compile_binary(c, ARCH_OP_SUB, high, sign);
}

static unsigned divide(struct compiler *c, unsigned a, int64_t constant, bool remainder)
{
	const uint64_t d = constant < 0 ? 0 - (uint64_t)constant : (uint64_t)constant;
	unsigned quotient;

	if (d < 2 || d >> 63)
		return compile_with(c, remainder ? ARCH_OP_REM : ARCH_OP_DIV, a, constant);
	if (d & (d - 1))
		quotient = divide_by(c, a, d);
	else
		quotient = divide_by_power(c, a, 63 - (unsigned)__builtin_clzll(d));
	if (remainder)
		return compile_binary(c, ARCH_OP_SUB, a,
				      compile_with(c, ARCH_OP_MUL, quotient, (int64_t)d));
	return constant < 0 ? compile_unary(c, ARCH_OP_NEG, quotient) : quotient;
}

/* What is known of operators of constants, so that they can be divisors and sizes. */
static bool fold(int operator, int64_t a, int64_t b, int64_t *result)
{
	const uint64_t x = (uint64_t)a, y = (uint64_t)b;

	switch (operator) {
	case MDL_OP_ADD:
		*result = (int64_t)(x + y);
		return true;
	case MDL_OP_SUB:
		*result = (int64_t)(x - y);
		return true;
	case MDL_OP_MUL:
		*result = (int64_t)(x * y);
		return true;
	case MDL_OP_SHL:
		*result = (int64_t)(x << (y & 63));
		return true;
	case MDL_OP_AND:
		*result = (int64_t)(x & y);
		return true;
	case MDL_OP_OR:
		*result = (int64_t)(x | y);
		return true;
	default:
		return false;
	}
}

/* The truth of x as a number: 1 or 0. */
static void compile_truth(struct compiler *c, const struct mdl_expr *x, struct operand *out)
{
	const struct place_known before = compile_enter_place(c);
	const unsigned result = compile_constant(c, 0), end = compile_label(c);

	compile_branch(c, x, false, end);
	compile_set(c, result, 1);
	compile_put_label(c, end);
	compile_leave_place(c, &before);
	*out = operand_value(result);
}

static void compile_compared(struct compiler *c, const struct mdl_expr *x, unsigned condition,
			     struct operand *out)
{
	const struct mdl_expr *other;
	struct arch_op *op;
	unsigned a, b;

	if (compile_is_any(c, x, &other)) {
		compile_truth(c, x, out);
		return;
	}
	a = compile_number(c, x->left);
	b = compile_number(c, x->right);
	op = compile_op(c, ARCH_OP_TEST);
	op->condition = (uint8_t)condition;
	op->a = (uint16_t)a;
	op->b = (uint16_t)b;
	op->result = (uint16_t)compile_new_value(c);
	*out = operand_value(op->result);
}

static void compile_sign(struct compiler *c, const struct mdl_expr *x, struct operand *out)
{
	struct operand o;

	if (x->op == '!') {
		compile_truth(c, x, out);
		return;
	}
	compile_operand(c, x->left, &o);
	if (o.kind == OPERAND_CONSTANT)
		*out = operand_constant(x->op == '-' ? (int64_t)(0 - (uint64_t)o.constant)
						     : ~o.constant);
	else
		*out = operand_value(compile_unary(c, x->op == '-' ? ARCH_OP_NEG : ARCH_OP_NOT,
						   compile_load_operand(c, &o, x->left)));
}

void compile_operator(struct compiler *c, const struct mdl_expr *x, struct operand *out)
{
	struct operand left, right;
	unsigned condition, a;
	int64_t constant;

	if (x->kind == MDL_UNARY) {
		compile_sign(c, x, out);
		return;
	}
	if (x->op == MDL_OP_BOTH || x->op == MDL_OP_EITHER) {
		compile_truth(c, x, out);
		return;
	}
	if (compile_condition_of(x->op, &condition)) {
		compile_compared(c, x, condition, out);
		return;
	}
	compile_operand(c, x->left, &left);
	/* What is in memory is read now, before the right side can change it. */
	if (left.kind != OPERAND_CONSTANT)
		left = operand_value(compile_load_operand(c, &left, x->left));
	compile_operand(c, x->right, &right);
	if (left.kind == OPERAND_CONSTANT && right.kind == OPERAND_CONSTANT &&
	    fold(x->op, left.constant, right.constant, &constant)) {
		*out = operand_constant(constant);
		return;
	}
	a = compile_load_operand(c, &left, x->left);
	if (right.kind == OPERAND_CONSTANT && (x->op == MDL_OP_DIV || x->op == MDL_OP_REM))
		*out = operand_value(divide(c, a, right.constant, x->op == MDL_OP_REM));
	else if (right.kind == OPERAND_CONSTANT)
		*out = operand_value(compile_with(c, kind_of(x->op), a, right.constant));
	else
		*out = operand_value(compile_binary(c, kind_of(x->op), a,
						    compile_load_operand(c, &right, x->right)));
}

unsigned compile_ticks_to_ns(struct compiler *c, unsigned ticks)
{
	uint64_t multiplier;
	unsigned shift, high;

	ticks_factor(&multiplier, &shift);
	high = compile_binary(c, ARCH_OP_MUL_HIGH, ticks, compile_constant(c, (int64_t)multiplier));
	return compile_with(c, ARCH_OP_SHL, high, shift);
}
