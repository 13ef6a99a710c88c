/* SPDX-License-Identifier: MIT */
/*
 * program_fold.c - algebra: an operation becomes a cheaper one that gives the
 * same. Each rule takes one operation and leaves one; what would need more (a
 * division by a constant) is the business of who builds programs.
 */
#include "arch/common/program_pass.h"

static bool fits(uint64_t constant)
{
	return (int64_t)constant == (int32_t)constant;
}

static void to_constant(struct arch_op *op, uint64_t constant)
{
	*op = (struct arch_op){.kind = ARCH_OP_CONST, .result = op->result, .number = constant};
}

static void to_copy(struct arch_op *op, unsigned value)
{
	if (value)
		*op = (struct arch_op){
			.kind = ARCH_OP_COPY, .result = op->result, .a = (uint16_t)value};
	else
		to_constant(op, 0);
}

static void to_binary(struct arch_op *op, unsigned kind, int32_t immediate)
{
	op->kind = (uint8_t)kind;
	op->b = 0;
	op->immediate = immediate;
}

static bool second_constant(struct pass *s, const struct arch_op *op, uint64_t *constant)
{
	if (op->b)
		return pass_is_constant(s, pass_number_of(s, op->b), constant);
	*constant = (uint64_t)(int64_t)op->immediate;
	return true;
}

void pass_fold_second(struct pass *s, struct arch_op *op)
{
	uint64_t constant;

	if (op->b && second_constant(s, op, &constant) && fits(constant))
		to_binary(op, op->kind, (int32_t)constant);
}

void pass_fold_address(struct pass *s, struct arch_op *op)
{
	for (unsigned steps = 0; op->a && steps < 8; steps++) {
		const uint16_t number = pass_number_of(s, op->a);
		const struct pass_key *k = &s->numbers[number].key;
		unsigned base;

		if (k->kind == ARCH_OP_CONST) {
			op->number += k->number;
			op->a = 0;
			return;
		}
		if (k->kind != ARCH_OP_ADD || k->b)
			return;
		base = pass_holder(s, k->a);
		if (!base)
			return;
		op->number += (uint64_t)(int64_t)k->immediate;
		op->a = (uint16_t)base;
	}
}

/* x op k for every x: k is known. True if that settled it. */
static bool fold_neutral(struct arch_op *op, uint64_t k)
{
	switch (op->kind) {
	case ARCH_OP_ADD:
	case ARCH_OP_SUB:
	case ARCH_OP_XOR:
		if (k == 0)
			return to_copy(op, op->a), true;
		if (k == UINT64_MAX && op->kind == ARCH_OP_XOR)
			return to_binary(op, ARCH_OP_NOT, 0), true;
		return false;
	case ARCH_OP_OR:
		if (k == 0)
			return to_copy(op, op->a), true;
		return k == UINT64_MAX ? to_constant(op, k), true : false;
	case ARCH_OP_AND:
		if (k == UINT64_MAX)
			return to_copy(op, op->a), true;
		return k == 0 ? to_constant(op, 0), true : false;
	case ARCH_OP_SHL:
	case ARCH_OP_SHR:
	case ARCH_OP_SAR:
		return (k & 63) == 0 ? to_copy(op, op->a), true : false;
	default:
		return false;
	}
}

static bool fold_product(struct pass *s, struct arch_op *op, uint64_t k)
{
	const bool power = k && !(k & (k - 1));
	const int32_t log = power ? 63 - __builtin_clzll(k) : 0;
	const bool small = pass_is_small(s, pass_number_of(s, op->a)) && !(k >> 63);

	switch (op->kind) {
	case ARCH_OP_MUL:
		if (k == 0)
			return to_constant(op, 0), true;
		if (k == 1)
			return to_copy(op, op->a), true;
		if (k == UINT64_MAX)
			return to_binary(op, ARCH_OP_NEG, 0), true;
		return power ? to_binary(op, ARCH_OP_SHL, log), true : false;
	case ARCH_OP_MUL_HIGH:
		if (k < 2)
			return to_constant(op, 0), true;
		return power ? to_binary(op, ARCH_OP_SHR, 64 - log), true : false;
	case ARCH_OP_DIV:
	case ARCH_OP_DIV_UNSIGNED:
		if (k == 0)
			return to_constant(op, 0), true;
		if (k == 1)
			return to_copy(op, op->a), true;
		if (k == UINT64_MAX && op->kind == ARCH_OP_DIV)
			return to_binary(op, ARCH_OP_NEG, 0), true;
		if (power && (small || op->kind == ARCH_OP_DIV_UNSIGNED))
			return to_binary(op, ARCH_OP_SHR, log), true;
		return false;
	case ARCH_OP_REM:
	case ARCH_OP_REM_UNSIGNED:
		if (k < 2 || (k == UINT64_MAX && op->kind == ARCH_OP_REM))
			return to_constant(op, 0), true;
		if (power && fits(k - 1) && (small || op->kind == ARCH_OP_REM_UNSIGNED))
			return to_binary(op, ARCH_OP_AND, (int32_t)(k - 1)), true;
		return false;
	default:
		return false;
	}
}

static void fold_sum(struct pass *s, struct arch_op *op)
{
	const struct pass_key *k;
	int64_t sum = op->immediate;
	unsigned base;

	if (op->kind == ARCH_OP_SUB && !op->b && op->immediate != INT32_MIN) {
		op->kind = ARCH_OP_ADD;
		sum = op->immediate = -op->immediate;
	}
	k = &s->numbers[pass_number_of(s, op->a)].key;
	if (op->kind != ARCH_OP_ADD || op->b || k->kind != ARCH_OP_ADD || k->b)
		return;
	sum += k->immediate;
	base = pass_holder(s, k->a);
	if (!base || !fits((uint64_t)sum))
		return;
	if (sum == 0)
		to_copy(op, base);
	else
		op->a = (uint16_t)base, op->immediate = (int32_t)sum;
}

/* Both operands are one and the same. */
static void fold_equal(struct arch_op *op)
{
	switch (op->kind) {
	case ARCH_OP_SUB:
	case ARCH_OP_XOR:
		to_constant(op, 0);
		break;
	case ARCH_OP_AND:
	case ARCH_OP_OR:
		to_copy(op, op->a);
		break;
	case ARCH_OP_TEST:
		to_constant(op, program_holds(op->condition, 0, 0));
		break;
	default:
		break;
	}
}

static void fold_unary(struct pass *s, struct arch_op *op)
{
	const struct pass_key *k = &s->numbers[pass_number_of(s, op->a)].key;
	const unsigned from = k->size ? k->size : 8;
	unsigned base;

	if (op->kind == ARCH_OP_NEG || op->kind == ARCH_OP_NOT) {
		base = k->kind == op->kind ? pass_holder(s, k->a) : 0;
		if (base)
			to_copy(op, base);
		return;
	}
	if (op->kind != ARCH_OP_EXTEND)
		return;
	if (op->size == 0 || op->size >= 8)
		to_copy(op, op->a);
	else if (k->kind != ARCH_OP_EXTEND && k->kind != ARCH_OP_LOAD && k->kind != ARCH_OP_READ)
		return;
	else if ((from == op->size && k->is_signed == op->is_signed) ||
		 (from < op->size && (!k->is_signed || op->is_signed)))
		to_copy(op, op->a);
}

static bool all_constant(struct pass *s, struct arch_op *op)
{
	const unsigned class = program_class(op->kind);
	uint64_t a = 0, b = 0;

	if (op->kind == ARCH_OP_CONST)
		return false;
	if ((class & PROGRAM_FIRST) && !pass_is_constant(s, pass_number_of(s, op->a), &a))
		return false;
	if ((class & PROGRAM_SECOND) && !second_constant(s, op, &b))
		return false;
	to_constant(op, program_evaluate(op, a, b));
	return true;
}

/* Value 0 is the number 0; as a second operand the constant stands for it. */
static void exchange(struct arch_op *op)
{
	const uint16_t a = op->a;

	op->a = op->b;
	op->b = a;
	if (!a)
		op->immediate = 0;
}

void pass_fold(struct pass *s, struct arch_op *op)
{
	const unsigned class = program_class(op->kind);
	uint64_t k;

	if (all_constant(s, op) || op->kind == ARCH_OP_CONST || op->kind == ARCH_OP_COPY)
		return;
	if (!(class & PROGRAM_SECOND)) {
		fold_unary(s, op);
		return;
	}
	if (op->kind == ARCH_OP_TEST) {
		pass_fold_condition(s, op);
		if (op->b && pass_number_of(s, op->a) == pass_number_of(s, op->b))
			fold_equal(op);
		return;
	}
	if ((class & PROGRAM_COMMUTES) && op->b &&
	    pass_is_constant(s, pass_number_of(s, op->a), &k)) {
		exchange(op);
	}
	pass_fold_second(s, op);
	if (second_constant(s, op, &k)) {
		if (!fold_neutral(op, k) && !fold_product(s, op, k))
			fold_sum(s, op);
	} else if (pass_number_of(s, op->a) == pass_number_of(s, op->b)) {
		fold_equal(op);
	}
}

/* "t != 0" and "t == 0", t being the outcome of a test, become that test. */
static void see_through_test(struct pass *s, struct arch_op *op)
{
	for (unsigned steps = 0; steps < 4 && !op->b; steps++) {
		const struct pass_key *k = &s->numbers[pass_number_of(s, op->a)].key;
		const bool is_true = (op->condition == ARCH_TEST_NE && op->immediate == 0) ||
				     (op->condition == ARCH_TEST_EQ && op->immediate == 1);
		const bool is_false = (op->condition == ARCH_TEST_EQ && op->immediate == 0) ||
				      (op->condition == ARCH_TEST_NE && op->immediate == 1);
		unsigned a, b;

		if (k->kind != ARCH_OP_TEST || (!is_true && !is_false))
			return;
		a = pass_holder(s, k->a);
		b = k->b ? pass_holder(s, k->b) : 0;
		if (!a || (k->b && !b))
			return;
		op->condition = (uint8_t)(is_true ? k->condition : pass_inverse(k->condition));
		op->a = (uint16_t)a;
		op->b = (uint16_t)b;
		op->immediate = b ? 0 : k->immediate;
	}
}

void pass_fold_condition(struct pass *s, struct arch_op *op)
{
	uint64_t k;

	if (op->b && pass_is_constant(s, pass_number_of(s, op->a), &k)) {
		exchange(op);
		op->condition = (uint8_t)pass_mirrored(op->condition);
	}
	pass_fold_second(s, op);
	see_through_test(s, op);
	if (op->b)
		return;
	if (op->condition == ARCH_TEST_BELOW && op->immediate == 1)
		op->condition = ARCH_TEST_EQ, op->immediate = 0;
	else if (op->condition == ARCH_TEST_ABOVE_EQUAL && op->immediate == 1)
		op->condition = ARCH_TEST_NE, op->immediate = 0;
	else if (op->condition == ARCH_TEST_ABOVE && op->immediate == 0)
		op->condition = ARCH_TEST_NE;
	else if (op->condition == ARCH_TEST_BELOW_EQUAL && op->immediate == 0)
		op->condition = ARCH_TEST_EQ;
}
