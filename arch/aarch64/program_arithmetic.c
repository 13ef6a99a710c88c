/* SPDX-License-Identifier: MIT */
/*
 * program_arithmetic.c - operations of programs that compute (DDI 0487, C4.1).
 * Division by 0 gives 0 by itself, and the smallest number by -1 itself. Only
 * comparisons change flags.
 */
#include "arch/aarch64/emitter.h"

enum { SHORT_MAX = 4095, ARGUMENTS = 8 };

/* Three registers, by kind; 0: not so simple. */
static const uint32_t plain[ARCH_OP_KINDS] = {
	[ARCH_OP_ADD] = 0x8b000000, [ARCH_OP_SUB] = 0xcb000000,
	[ARCH_OP_MUL] = 0x9b007c00, [ARCH_OP_MUL_HIGH] = 0x9bc07c00,
	[ARCH_OP_DIV] = 0x9ac00c00, [ARCH_OP_DIV_UNSIGNED] = 0x9ac00800,
	[ARCH_OP_AND] = 0x8a000000, [ARCH_OP_OR] = 0xaa000000,
	[ARCH_OP_XOR] = 0xca000000, [ARCH_OP_SHL] = 0x9ac02000,
	[ARCH_OP_SHR] = 0x9ac02400, [ARCH_OP_SAR] = 0x9ac02800,
};

static bool is_shift(unsigned kind)
{
	return kind == ARCH_OP_SHL || kind == ARCH_OP_SHR || kind == ARCH_OP_SAR;
}

static bool is_rest(unsigned kind)
{
	return kind == ARCH_OP_REM || kind == ARCH_OP_REM_UNSIGNED;
}

bool arithmetic_is_short(const struct arch_op *op)
{
	return !op->b && op->immediate >= -SHORT_MAX && op->immediate <= SHORT_MAX;
}

static bool takes_short(unsigned kind)
{
	return kind == ARCH_OP_ADD || kind == ARCH_OP_SUB || kind == ARCH_OP_TEST ||
	       kind == ARCH_OP_IF;
}

bool arithmetic_wish(const struct arch_op *op, struct register_wish *wish)
{
	if (op->kind > ARCH_OP_PRESERVED && op->kind != ARCH_OP_IF)
		return false;
	if ((program_class(op->kind) & PROGRAM_SECOND) && !(is_shift(op->kind) && !op->b) &&
	    !(takes_short(op->kind) && arithmetic_is_short(op)))
		wish->temps = wish_b(op);
	wish->early = is_rest(op->kind) || op->kind == ARCH_OP_TEST;
	/* Registers of the target's that nobody of ours writes. */
	if (op->kind == ARCH_OP_ARGUMENT && op->number < ARGUMENTS)
		wish->input = (uint8_t)(op->number + 1);
	if (op->kind == ARCH_OP_RESULT && op->number < 2)
		wish->input = (uint8_t)(op->number + 1);
	return true;
}

unsigned arithmetic_condition(unsigned condition)
{
	static const uint8_t codes[] = {
		[ARCH_TEST_EQ] = 0x0,	       [ARCH_TEST_NE] = 0x1,
		[ARCH_TEST_LT] = 0xb,	       [ARCH_TEST_LE] = 0xd,
		[ARCH_TEST_GT] = 0xc,	       [ARCH_TEST_GE] = 0xa,
		[ARCH_TEST_BELOW] = 0x3,       [ARCH_TEST_ABOVE] = 0x8,
		[ARCH_TEST_BELOW_EQUAL] = 0x9, [ARCH_TEST_ABOVE_EQUAL] = 0x2,
	};

	return codes[condition <= ARCH_TEST_ABOVE_EQUAL ? condition : ARCH_TEST_EQ];
}

void arithmetic_compare(struct emitter *e)
{
	const int32_t number = e->op->immediate;
	const unsigned a = emitter_a(e);

	if (!arithmetic_is_short(e->op))
		asm_compare(e->out, a, emitter_b(e));
	else if (number >= 0)
		a64_emit(e->out, 0xf100001f | (unsigned)number << 10 | a << 5); /* subs */
	else
		a64_emit(e->out, 0xb100001f | (unsigned)-number << 10 | a << 5); /* adds */
}

/* Bits of n: ubfm and sbfm. */
static void emit_field(struct emitter *e, bool is_signed, unsigned n, unsigned rotate,
		       unsigned last)
{
	a64_emit(e->out,
		 asm_three(is_signed ? 0x93400000 : 0xd3400000, e->result, n, rotate) | last << 10);
}

static void emit_shift(struct emitter *e)
{
	const unsigned count = (unsigned)e->op->immediate & 63, a = emitter_a(e);

	if (e->op->kind == ARCH_OP_SHL)
		emit_field(e, false, a, (64 - count) & 63, 63 - count);
	else
		emit_field(e, e->op->kind == ARCH_OP_SAR, a, count, 63);
}

/* a - a / b * b, which is a where b is 0. */
static void emit_rest(struct emitter *e)
{
	const unsigned a = emitter_a(e), b = emitter_b(e), r = e->result;
	const bool is_signed = e->op->kind == ARCH_OP_REM;

	a64_emit(e->out, asm_three(plain[is_signed ? ARCH_OP_DIV : ARCH_OP_DIV_UNSIGNED], r, a, b));
	a64_emit(e->out, asm_three(0x9b008000 | a << 10, r, r, b)); /* msub */
	a64_emit(e->out, 0xb5000000 | 2 << 5 | b);		    /* cbnz */
	emitter_move(e->out, r, ZR);
}

static void emit_binary(struct emitter *e)
{
	const unsigned kind = e->op->kind;
	int32_t number = e->op->immediate;
	unsigned a;

	if (is_shift(kind) && !e->op->b) {
		emit_shift(e);
	} else if (is_rest(kind)) {
		emit_rest(e);
	} else if (kind == ARCH_OP_TEST) {
		arithmetic_compare(e);
		a64_emit(e->out, 0x9a9f07e0 | (arithmetic_condition(e->op->condition) ^ 1) << 12 |
					 e->result); /* cset */
	} else if (takes_short(kind) && arithmetic_is_short(e->op)) {
		number = kind == ARCH_OP_SUB ? -number : number;
		a = emitter_a(e);
		a64_emit(e->out, number >= 0 ? a64_add(e->result, a, (unsigned)number)
					     : a64_sub(e->result, a, (unsigned)-number));
	} else {
		a = emitter_a(e);
		a64_emit(e->out, asm_three(plain[kind], e->result, a, emitter_b(e)));
	}
}

/* The highest bit of x | 1 is that of x, and 0 for 0. */
static void emit_log2(struct emitter *e)
{
	const unsigned r = e->result;

	a64_emit(e->out, 0xb2400000 | emitter_a(e) << 5 | r); /* orr #1 */
	a64_emit(e->out, 0xdac01000 | r << 5 | r);	      /* clz */
	a64_emit(e->out, 0xd2401400 | r << 5 | r);	      /* eor #63 */
}

static void emit_extend(struct emitter *e)
{
	const unsigned size = e->op->size;

	if (size == 0 || size >= 8)
		emitter_move(e->out, e->result, emitter_a(e));
	else
		emit_field(e, e->op->is_signed, emitter_a(e), 0, 8 * size - 1);
}

/* False: it is of another kind. */
static bool emit_unary(struct emitter *e)
{
	switch (e->op->kind) {
	case ARCH_OP_CONST:
		a64_emit_constant(e->out, e->result, e->op->number);
		return true;
	case ARCH_OP_COPY:
		emitter_move(e->out, e->result, emitter_a(e));
		return true;
	case ARCH_OP_NEG:
		asm_subtract(e->out, e->result, ZR, emitter_a(e));
		return true;
	case ARCH_OP_NOT:
		a64_emit(e->out, asm_three(0xaa200000, e->result, ZR, emitter_a(e)));
		return true;
	case ARCH_OP_LOG2:
		emit_log2(e);
		return true;
	case ARCH_OP_EXTEND:
		emit_extend(e);
		return true;
	default:
		return false;
	}
}

/* ------------------------------------------------- what the target's thread has */

static void emit_word(struct emitter *e, uint64_t offset)
{
	if (offset % 8 || offset > SHORT_MAX * 8)
		a64_fail(e->out, ARCH_REFUSED);
	a64_emit(e->out, a64_ldr(e->result, SP, (unsigned)offset));
}

/*
 * x30 without the signature that it may carry (paciasp): the instruction that takes it off knows no other
 * register, and does nothing where there are no signatures. Then the two change places, so that
 * x30 holds nothing but a return address meanwhile.
 */
static void emit_caller(struct emitter *e)
{
	const unsigned r = e->result;

	emitter_move(e->out, r, X30);
	a64_emit(e->out, 0xd50320ff); /* xpaclri */
	a64_emit(e->out, asm_three(plain[ARCH_OP_XOR], r, r, X30));
	a64_emit(e->out, asm_three(plain[ARCH_OP_XOR], X30, X30, r));
	a64_emit(e->out, asm_three(plain[ARCH_OP_XOR], r, r, X30));
}

static void emit_of_thread(struct emitter *e)
{
	const struct arch_op *op = e->op;
	const unsigned above = e->frame->pushed + e->frame->before;
	const bool is_float =
		op->kind == ARCH_OP_FLOAT_ARGUMENT || op->kind == ARCH_OP_FLOAT_RESULT;

	if ((op->kind == ARCH_OP_ARGUMENT || is_float) && op->number >= ARGUMENTS)
		a64_fail(e->out, ARCH_REFUSED);
	if ((op->kind == ARCH_OP_RESULT && op->number > 1) || op->kind == ARCH_OP_PRESERVED)
		a64_fail(e->out, ARCH_REFUSED);
	if (is_float)
		a64_emit(e->out,
			 0x9e660000 | (unsigned)(op->number & 7) << 5 | e->result); /* fmov */
	else if (op->kind == ARCH_OP_STACK)
		emit_word(e, above + op->number);
	else if (op->kind == ARCH_OP_STACK_POINTER)
		a64_emit(e->out, a64_add(e->result, SP, above));
	else if (op->kind == ARCH_OP_CALLER)
		emit_caller(e);
	else
		emitter_move(e->out, e->result, (unsigned)op->number & 7);
}

bool arithmetic_emit(struct emitter *e)
{
	if (e->op->kind > ARCH_OP_PRESERVED)
		return false;
	if (e->op->kind >= ARCH_OP_ARGUMENT)
		emit_of_thread(e);
	else if (!emit_unary(e))
		emit_binary(e);
	return true;
}
