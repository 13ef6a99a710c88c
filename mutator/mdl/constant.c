/* SPDX-License-Identifier: MIT */
/*
 * constant.c - the value of an expression of numbers.
 *
 * Computes as code does: 64 bits, signed, wrapping; a division by zero gives 0,
 * and of what is shifted by, the low six bits count.
 */
#include "mutator/mdl/tree.h"

static int64_t divided(int op, int64_t left, int64_t right)
{
	if (!right)
		return 0;
	/* the one quotient that does not fit */
	if (right == -1)
		return op == MDL_OP_DIV ? (int64_t)(0 - (uint64_t)left) : 0;
	return op == MDL_OP_DIV ? left / right : left % right;
}

static bool binary(int op, int64_t left, int64_t right, int64_t *value)
{
	uint64_t a = (uint64_t)left, b = (uint64_t)right;

	switch ((enum mdl_operator)op) {
	case MDL_OP_MUL:
		*value = (int64_t)(a * b);
		return true;
	case MDL_OP_DIV:
	case MDL_OP_REM:
		*value = divided(op, left, right);
		return true;
	case MDL_OP_ADD:
		*value = (int64_t)(a + b);
		return true;
	case MDL_OP_SUB:
		*value = (int64_t)(a - b);
		return true;
	case MDL_OP_SHL:
		*value = (int64_t)(a << (b & 63));
		return true;
	case MDL_OP_SHR:
		*value = left >> (b & 63);
		return true;
	case MDL_OP_LT:
		*value = left < right;
		return true;
	case MDL_OP_LE:
		*value = left <= right;
		return true;
	case MDL_OP_GT:
		*value = left > right;
		return true;
	case MDL_OP_GE:
		*value = left >= right;
		return true;
	case MDL_OP_EQ:
		*value = left == right;
		return true;
	case MDL_OP_NE:
		*value = left != right;
		return true;
	case MDL_OP_AND:
		*value = (int64_t)(a & b);
		return true;
	case MDL_OP_XOR:
		*value = (int64_t)(a ^ b);
		return true;
	case MDL_OP_OR:
		*value = (int64_t)(a | b);
		return true;
	case MDL_OP_BOTH:
		*value = left && right;
		return true;
	case MDL_OP_EITHER:
		*value = left || right;
		return true;
	}
	return false;
}

bool mdl_constant(const struct mdl_expr *e, int64_t *value)
{
	return constant_value(e, value);
}

bool constant_value(const struct mdl_expr *e, int64_t *value)
{
	int64_t left, right;

	switch (e->kind) {
	case MDL_INTEGER:
		*value = e->number;
		return true;
	case MDL_UNARY:
		if (!constant_value(e->left, &left))
			return false;
		*value = e->op == '!'	? !left
			 : e->op == '~' ? ~left
					: (int64_t)(0 - (uint64_t)left);
		return true;
	case MDL_BINARY:
		return constant_value(e->left, &left) && constant_value(e->right, &right) &&
		       binary(e->op, left, right, value);
	case MDL_CHOICE:
		return constant_value(e->condition, &left) &&
		       constant_value(left ? e->left : e->right, value);
	default:
		return false;
	}
}
