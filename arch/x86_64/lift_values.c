/* SPDX-License-Identifier: MIT */
/*
 * lift_values.c - arithmetic of instructions that are lifted, and what the flags
 * hold behind it. Flags of which it is not known what they hold are never asked.
 */
#include "arch/common/program_common.h"
#include "arch/x86_64/lift.h"

enum operation { ADD, OR, ADC, SBB, AND, SUB, XOR, CMP };

/* What struct lift_flags.kind says of a and b. */
enum flags {
	FLAGS_UNKNOWN,
	FLAGS_COMPARED, /* a was compared with b, all six are known */
	FLAGS_SUM,	/* a is the sum of b and something */
	FLAGS_RESULT,	/* zero and sign are those of a; nothing else is known */
	FLAGS_CARRY,	/* carry is whether a is not 0; nothing else is known */
};

static void set_flags(struct x86_step *t, enum flags kind, unsigned size, unsigned a, unsigned b)
{
	t->s->flags = (struct lift_flags){
		.kind = kind,
		.size = (uint8_t)size,
		.a = (uint16_t)(kind == FLAGS_UNKNOWN ? 0 : lift_keep(t->l, a)),
		.b = (uint16_t)(b ? lift_keep(t->l, b) : 0),
	};
}

/* ------------------------------------------------------------- conditions */

/* Conditions by their number in the opcode (SDM volume 1, appendix B). */
enum {
	BELOW = 2,
	AT_LEAST,
	EQUAL,
	NOT_EQUAL,
	BELOW_OR_EQUAL,
	ABOVE,
	NEGATIVE,
	POSITIVE,
	LESS = 12
};

static bool compare(struct x86_step *t, unsigned a, unsigned b, unsigned test, bool is_signed,
		    struct x86_question *q)
{
	const unsigned size = t->s->flags.size;

	q->test = (uint8_t)test;
	q->a = lift_extend(t->l, a, size, is_signed);
	q->b = b ? lift_extend(t->l, b, size, is_signed) : lift_constant(t->l, 0);
	return true;
}

/* Zero and sign of a value. */
static bool ask_result(struct x86_step *t, unsigned condition, unsigned value,
		       struct x86_question *q)
{
	switch (condition) {
	case EQUAL:
		return compare(t, value, 0, ARCH_TEST_EQ, false, q);
	case NOT_EQUAL:
		return compare(t, value, 0, ARCH_TEST_NE, false, q);
	case NEGATIVE:
		return compare(t, value, 0, ARCH_TEST_LT, true, q);
	case POSITIVE:
		return compare(t, value, 0, ARCH_TEST_GE, true, q);
	default:
		lift_refuse(t->l, "it asks for a flag that is not known here");
		return false;
	}
}

static bool ask_comparison(struct x86_step *t, unsigned condition, struct x86_question *q)
{
	static const uint8_t tests[16] = {
		[BELOW] = ARCH_TEST_BELOW,
		[AT_LEAST] = ARCH_TEST_ABOVE_EQUAL,
		[EQUAL] = ARCH_TEST_EQ,
		[NOT_EQUAL] = ARCH_TEST_NE,
		[BELOW_OR_EQUAL] = ARCH_TEST_BELOW_EQUAL,
		[ABOVE] = ARCH_TEST_ABOVE,
		[LESS] = ARCH_TEST_LT,
		[LESS + 1] = ARCH_TEST_GE,
		[LESS + 2] = ARCH_TEST_LE,
		[LESS + 3] = ARCH_TEST_GT,
	};
	const struct lift_flags *f = &t->s->flags;

	if (condition == NEGATIVE || condition == POSITIVE)
		return ask_result(t, condition, lift_op(t->l, ARCH_OP_SUB, f->a, f->b), q);
	if (condition >= BELOW && condition < sizeof(tests) / sizeof(tests[0]) &&
	    (condition < NEGATIVE || condition >= LESS))
		return compare(t, f->a, f->b, tests[condition], condition >= LESS, q);
	lift_refuse(t->l, "it asks for overflow or parity");
	return false;
}

bool x86_lift_ask(struct x86_step *t, unsigned condition, struct x86_question *q)
{
	const struct lift_flags *f = &t->s->flags;

	*q = (struct x86_question){0};
	switch (f->kind) {
	case FLAGS_COMPARED:
		return ask_comparison(t, condition, q);
	case FLAGS_SUM:
		/* It went over the end where it is less than what was added to. */
		if (condition == BELOW || condition == AT_LEAST)
			return compare(t, f->a, f->b,
				       condition == BELOW ? ARCH_TEST_BELOW : ARCH_TEST_ABOVE_EQUAL,
				       false, q);
		return ask_result(t, condition, f->a, q);
	case FLAGS_RESULT:
		return ask_result(t, condition, f->a, q);
	case FLAGS_CARRY:
		if (condition == BELOW || condition == AT_LEAST)
			return compare(t, f->a, 0, condition == BELOW ? ARCH_TEST_NE : ARCH_TEST_EQ,
				       false, q);
		break;
	default:
		break;
	}
	lift_refuse(t->l, "it asks for a flag that is not known here");
	return false;
}

int x86_lift_decide(const struct x86_step *t, const struct x86_question *q)
{
	uint64_t a, b;

	if (!lift_is_constant(t->l, q->a, &a) || !lift_is_constant(t->l, q->b, &b))
		return -1;
	return program_holds(q->test, a, b);
}

unsigned x86_lift_truth(struct x86_step *t, unsigned condition)
{
	struct x86_question q;
	struct arch_op *op;
	int holds;

	if (!x86_lift_ask(t, condition, &q))
		return 0;
	holds = x86_lift_decide(t, &q);
	if (holds >= 0)
		return lift_constant(t->l, (uint64_t)holds);
	op = t->l->op(t->l->arg, ARCH_OP_TEST);
	op->condition = q.test;
	op->a = (uint16_t)q.a;
	op->b = (uint16_t)q.b;
	op->result = (uint16_t)t->l->value(t->l->arg);
	return op->result;
}

/* -------------------------------------------------------------- arithmetic */

static void with_carry(struct x86_step *t, unsigned operation, const struct x86_operand *to,
		       unsigned a, unsigned b)
{
	const unsigned carry = x86_lift_truth(t, BELOW);
	const unsigned kind = operation == ADC ? ARCH_OP_ADD : ARCH_OP_SUB;
	const unsigned value = lift_op(t->l, kind, lift_op(t->l, kind, a, b), carry);

	x86_lift_put(t, to, value, UINT64_MAX);
	set_flags(t, FLAGS_UNKNOWN, 0, 0, 0);
}

static uint64_t most_of_and(enum operation operation, uint64_t most)
{
	return operation == AND ? most : UINT64_MAX;
}

/* `most`: b is not greater. */
static void combine(struct x86_step *t, unsigned operation, const struct x86_operand *to,
		    unsigned a, unsigned b, uint64_t most)
{
	static const uint8_t kinds[] = {
		[ADD] = ARCH_OP_ADD, [OR] = ARCH_OP_OR,	  [AND] = ARCH_OP_AND,
		[SUB] = ARCH_OP_SUB, [XOR] = ARCH_OP_XOR,
	};
	unsigned first, value;

	if (operation == ADC || operation == SBB) {
		with_carry(t, operation, to, a, b);
		return;
	}
	if (operation == CMP) {
		set_flags(t, FLAGS_COMPARED, to->size, a, b);
		return;
	}
	first = operation == ADD || operation == SUB ? lift_keep(t->l, a) : 0;
	value = lift_op(t->l, kinds[operation], a, b);
	if (operation == SUB)
		set_flags(t, FLAGS_COMPARED, to->size, first, b);
	else if (operation == ADD)
		set_flags(t, FLAGS_SUM, to->size, value, first);
	else
		set_flags(t, FLAGS_COMPARED, to->size, value, 0);
	x86_lift_put(t, to, value, most_of_and(operation, most));
}

static bool is_register(const struct x86_operand *a, const struct x86_operand *b)
{
	return !a->memory && !b->memory && a->place.word == b->place.word && a->at == b->at;
}

void x86_lift_combine(struct x86_step *t, unsigned operation, struct x86_operand *to,
		      struct x86_operand *from)
{
	unsigned a, b;

	if (is_register(to, from) && to->size >= 4 && (operation == XOR || operation == SUB)) {
		/* Whatever was in it. */
		lift_set_number(t->l, to->place, 0);
		set_flags(t, FLAGS_COMPARED, 8, *to->place.value, 0);
		return;
	}
	if (is_register(to, from) && to->size >= 4 && operation == SBB) {
		b = lift_op(t->l, ARCH_OP_NEG, x86_lift_truth(t, BELOW), 0);
		x86_lift_put(t, to, b, UINT64_MAX);
		set_flags(t, FLAGS_UNKNOWN, 0, 0, 0);
		return;
	}
	a = x86_lift_get(t, to);
	b = x86_lift_get(t, from);
	if (!*t->l->why)
		combine(t, operation, to, a, b, UINT64_MAX);
}

void x86_lift_combine_number(struct x86_step *t, unsigned operation, struct x86_operand *to,
			     int64_t number)
{
	const uint64_t bits = (uint64_t)number & lift_most(to->size);
	unsigned a;

	/* The stack pointer, and addresses that are known. */
	if (to->size == 8 && !to->memory && (operation == ADD || operation == SUB) &&
	    lift_move(t->l, to->place, operation == ADD ? number : -number)) {
		set_flags(t, FLAGS_UNKNOWN, 0, 0, 0);
		return;
	}
	if (to->size == 8 && !to->memory && operation == AND && lift_align(to->place, number)) {
		set_flags(t, FLAGS_UNKNOWN, 0, 0, 0);
		return;
	}
	if (operation == OR && number == -1 && !to->memory && to->size >= 4) {
		lift_set_number(t->l, to->place, bits);
		set_flags(t, FLAGS_COMPARED, to->size, *to->place.value, 0);
		return;
	}
	a = x86_lift_get(t, to);
	if (!*t->l->why)
		combine(t, operation, to, a, lift_constant(t->l, bits), bits);
}

static void test_values(struct x86_step *t, unsigned size, unsigned a, unsigned b)
{
	if (!*t->l->why)
		set_flags(t, FLAGS_COMPARED, size, lift_op(t->l, ARCH_OP_AND, a, b), 0);
}

void x86_lift_test(struct x86_step *t, unsigned size)
{
	struct x86_operand rm = x86_lift_rm(t, size);
	struct x86_operand reg = x86_lift_register(t, x86_reg(&t->x), size);
	const unsigned a = x86_lift_get(t, &rm);

	test_values(t, size, a, x86_lift_get(t, &reg));
}

void x86_lift_test_number(struct x86_step *t, struct x86_operand *o, int64_t number)
{
	const unsigned a = x86_lift_get(t, o);

	test_values(t, o->size, a, lift_constant(t->l, (uint64_t)number));
}

void x86_lift_negate(struct x86_step *t, struct x86_operand *o)
{
	const unsigned a = x86_lift_get(t, o);

	if (*t->l->why)
		return;
	set_flags(t, FLAGS_COMPARED, o->size, lift_constant(t->l, 0), a);
	x86_lift_put(t, o, lift_op(t->l, ARCH_OP_NEG, a, 0), UINT64_MAX);
}

/* inc, dec: carry stays what it was, and is not known any more. */
void x86_lift_step(struct x86_step *t, struct x86_operand *o, bool down)
{
	const unsigned a = x86_lift_get(t, o);
	unsigned value;

	if (*t->l->why)
		return;
	value = lift_op_number(t->l, ARCH_OP_ADD, a, down ? UINT64_MAX : 1);
	set_flags(t, FLAGS_RESULT, o->size, value, 0);
	x86_lift_put(t, o, value, UINT64_MAX);
}

/* ------------------------------------------------------------------ shifts */

enum shift { ROL, ROR, RCL, RCR, SHL, SHR, SAL, SAR };

static unsigned rotate(struct x86_step *t, unsigned value, unsigned size, unsigned left)
{
	const unsigned bits = 8 * size;
	unsigned up, down;

	value = lift_extend(t->l, value, size, false);
	left %= bits;
	up = lift_op_number(t->l, ARCH_OP_SHL, value, left);
	down = left ? lift_op_number(t->l, ARCH_OP_SHR, value, bits - left) : value;
	return lift_op(t->l, ARCH_OP_OR, up, down);
}

static void shift_by_number(struct x86_step *t, struct x86_operand *o, enum shift how,
			    unsigned count)
{
	const bool is_signed = how == SAR, left = how == SHL || how == SAL;
	const unsigned size = o->size;
	unsigned value = x86_lift_get(t, o);
	uint64_t most = lift_most(size) >> count;

	if (how <= ROR) {
		value = rotate(t, value, size, how == ROL ? count : 8 * size - count % (8 * size));
		x86_lift_put(t, o, value, UINT64_MAX);
		set_flags(t, FLAGS_UNKNOWN, 0, 0, 0);
		return;
	}
	value = left ? lift_op_number(t->l, ARCH_OP_SHL, value, count)
		     : lift_op_number(t->l, is_signed ? ARCH_OP_SAR : ARCH_OP_SHR,
				      lift_extend(t->l, value, size, is_signed), count);
	/* Of no bits at all: the flags stay, and are not known any more. */
	if (count)
		set_flags(t, FLAGS_RESULT, size, value, 0);
	else
		set_flags(t, FLAGS_UNKNOWN, 0, 0, 0);
	x86_lift_put(t, o, value, left || is_signed ? UINT64_MAX : most);
}

/* By cl: bits above five, or six, are not looked at. */
static void shift_by_register(struct x86_step *t, struct x86_operand *o, enum shift how)
{
	struct x86_operand cl = x86_lift_register(t, RCX, 1);
	unsigned count = x86_lift_get(t, &cl), value = x86_lift_get(t, o);

	if (how <= ROR) {
		lift_refuse(t->l, "it turns bits by a number that is not known");
		return;
	}
	if (*t->l->why)
		return;
	count = lift_op_number(t->l, ARCH_OP_AND, count, o->size == 8 ? 63 : 31);
	if (how == SHR || how == SAR)
		value = lift_op(t->l, how == SAR ? ARCH_OP_SAR : ARCH_OP_SHR,
				lift_extend(t->l, value, o->size, how == SAR), count);
	else
		value = lift_op(t->l, ARCH_OP_SHL, value, count);
	x86_lift_put(t, o, value, UINT64_MAX);
	set_flags(t, FLAGS_UNKNOWN, 0, 0, 0);
}

void x86_lift_shift(struct x86_step *t, unsigned size)
{
	const enum shift how = x86_extension(&t->x);
	const unsigned mask = size == 8 ? 63 : 31;
	struct x86_operand o = x86_lift_rm(t, size);

	if (how == RCL || how == RCR)
		lift_refuse(t->l, "it turns bits through the carry");
	else if (t->x.opcode >= 0xd2)
		shift_by_register(t, &o, how);
	else if (t->x.opcode >= 0xd0)
		shift_by_number(t, &o, how, 1);
	else
		shift_by_number(t, &o, how, t->insn->bytes[t->x.imm_offset] & mask);
}

enum { BT = 4, BTS, BTR, BTC };

/* bts, btr, btc by a number */
static void change_bit(struct x86_step *t, struct x86_operand *o, unsigned how, unsigned count)
{
	const uint64_t bit = 1ull << (count % (8 * o->size));
	const unsigned value = x86_lift_get(t, o);

	if (*t->l->why)
		return;
	if (how == BTR)
		x86_lift_put(t, o, lift_op(t->l, ARCH_OP_AND, value, lift_constant(t->l, ~bit)),
			     UINT64_MAX);
	else
		x86_lift_put(t, o,
			     lift_op(t->l, how == BTS ? ARCH_OP_OR : ARCH_OP_XOR, value,
				     lift_constant(t->l, bit)),
			     UINT64_MAX);
}

/* Of registers: in memory it may be far away. What bt sets is asked of what was there before. */
void x86_lift_bit(struct x86_step *t, unsigned size)
{
	const bool by_number = t->x.opcode == 0xba;
	struct x86_operand o = x86_lift_rm(t, size), n;
	unsigned count, value;

	if ((by_number && x86_extension(&t->x) < BT) || o.memory) {
		lift_refuse(t->l, "it uses bits of memory, or changes them");
		return;
	}
	n = x86_lift_register(t, x86_reg(&t->x), size);
	count = by_number ? lift_constant(t->l, t->insn->bytes[t->x.imm_offset])
			  : x86_lift_get(t, &n);
	value = x86_lift_get(t, &o);
	if (*t->l->why)
		return;
	count = lift_op_number(t->l, ARCH_OP_AND, count, 8 * size - 1);
	value = lift_op(t->l, ARCH_OP_SHR, lift_extend(t->l, value, size, false), count);
	set_flags(t, FLAGS_CARRY, 8, lift_op_number(t->l, ARCH_OP_AND, value, 1), 0);
	if (by_number && x86_extension(&t->x) != BT)
		change_bit(t, &o, x86_extension(&t->x), t->insn->bytes[t->x.imm_offset]);
}

/* shrd by a number: what is shifted in comes from another register. */
void x86_lift_shift_double(struct x86_step *t, unsigned size)
{
	const unsigned count = t->insn->bytes[t->x.imm_offset] & 63;
	struct x86_operand o = x86_lift_rm(t, size);
	struct x86_operand high = x86_lift_register(t, x86_reg(&t->x), size);
	const unsigned low = x86_lift_get(t, &o), up = x86_lift_get(t, &high);

	if (size != 8 || !count)
		lift_refuse(t->l, "this shift is not one of those that are known for sure");
	if (*t->l->why)
		return;
	x86_lift_put(t, &o,
		     lift_op(t->l, ARCH_OP_OR, lift_op_number(t->l, ARCH_OP_SHR, low, count),
			     lift_op_number(t->l, ARCH_OP_SHL, up, 64 - count)),
		     UINT64_MAX);
	set_flags(t, FLAGS_UNKNOWN, 0, 0, 0);
}

/* ---------------------------------------------------------------- products */

void x86_lift_multiply(struct x86_step *t, unsigned size, bool by_number, int64_t number)
{
	struct x86_operand rm = x86_lift_rm(t, size);
	struct x86_operand to = x86_lift_register(t, x86_reg(&t->x), size);
	unsigned value = x86_lift_get(t, &rm);

	if (by_number)
		value = lift_op_number(t->l, ARCH_OP_MUL, value, (uint64_t)number);
	else
		value = lift_op(t->l, ARCH_OP_MUL, value, x86_lift_get(t, &to));
	x86_lift_put(t, &to, value, UINT64_MAX);
	set_flags(t, FLAGS_UNKNOWN, 0, 0, 0);
}

/* The upper half of a product of 64-bit numbers. */
static unsigned high_half(struct x86_step *t, unsigned a, unsigned b, bool is_signed)
{
	unsigned high = lift_op(t->l, ARCH_OP_MUL_HIGH, a, b), less;

	if (!is_signed)
		return high;
	/* Each that is negative counted 2^64 too much, times the other. */
	less = lift_op(t->l, ARCH_OP_AND, lift_op_number(t->l, ARCH_OP_SAR, a, 63), b);
	high = lift_op(t->l, ARCH_OP_SUB, high, less);
	less = lift_op(t->l, ARCH_OP_AND, lift_op_number(t->l, ARCH_OP_SAR, b, 63), a);
	return lift_op(t->l, ARCH_OP_SUB, high, less);
}

/* rdx:rax = rax times the operand */
void x86_lift_multiply_wide(struct x86_step *t, struct x86_operand *o, bool is_signed)
{
	const unsigned size = o->size;
	struct x86_operand rax = x86_lift_register(t, RAX, size);
	struct x86_operand rdx = x86_lift_register(t, RDX, size);
	unsigned a = x86_lift_get(t, &rax), b = x86_lift_get(t, o), low, high;

	if (size < 4)
		lift_refuse(t->l, "this product is not one of those that are known for sure");
	if (*t->l->why)
		return;
	a = lift_extend(t->l, a, size, is_signed);
	b = lift_extend(t->l, b, size, is_signed);
	low = lift_op(t->l, ARCH_OP_MUL, a, b);
	high = size == 8 ? high_half(t, a, b, is_signed)
			 : lift_op_number(t->l, ARCH_OP_SHR, low, 32);
	x86_lift_put(t, &rax, low, UINT64_MAX);
	x86_lift_put(t, &rdx, high, UINT64_MAX);
	set_flags(t, FLAGS_UNKNOWN, 0, 0, 0);
}

/* Neighbours of `bits` bits change places. */
static unsigned swap(struct x86_step *t, unsigned value, unsigned bits, uint64_t mask)
{
	const unsigned down = lift_op_number(t->l, ARCH_OP_AND,
					     lift_op_number(t->l, ARCH_OP_SHR, value, bits), mask);
	const unsigned up = lift_op_number(t->l, ARCH_OP_SHL,
					   lift_op_number(t->l, ARCH_OP_AND, value, mask), bits);

	return lift_op(t->l, ARCH_OP_OR, up, down);
}

void x86_lift_swap_bytes(struct x86_step *t, unsigned reg, unsigned size)
{
	struct x86_operand o = x86_lift_register(t, reg, size);
	unsigned value = x86_lift_get(t, &o);

	if (size < 4)
		lift_refuse(t->l, "what this does is not defined");
	if (*t->l->why)
		return;
	value = swap(t, value, 8, 0x00ff00ff00ff00ff);
	value = swap(t, value, 16, 0x0000ffff0000ffff);
	if (size == 8)
		value = swap(t, value, 32, 0x00000000ffffffff);
	x86_lift_put(t, &o, value, UINT64_MAX);
}

unsigned x86_lift_result(struct x86_step *t)
{
	const struct lift_place rax = lift_register(t->l, t->s, RAX);
	const struct lift_word *w = rax.word;

	/* As a bool does it: bytes that mean nothing are what the processor has in them. */
	if (w->bytes && (w->kind == LIFT_NUMBER || w->kind == LIFT_VARIABLE) &&
	    !(w->lost & ~w->bytes))
		return *rax.value;
	/* It returns nothing. */
	if (w->kind == LIFT_ENTRY && w->which == RAX)
		return lift_constant(t->l, 0);
	lift_refuse(t->l, w->kind == LIFT_STACK ? "it returns the address of its own frame"
						: "it returns what was not set before, or an "
						  "argument that is not given");
	return 0;
}
