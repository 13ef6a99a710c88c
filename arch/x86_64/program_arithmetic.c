/* SPDX-License-Identifier: MIT */
/*
 * program_arithmetic.c - operations of programs that compute: every one of them
 * is defined for all numbers and faults for none. Writes the result's register,
 * the temporaries, what its wish says, and flags only where the plan allows it.
 */
#include "arch/x86_64/emitter.h"

/* Opcode extensions of the group at 81, 83 (SDM volume 2, A.4.2); the register form is 8n + 1. */
enum group1 { G_ADD = 0, G_OR = 1, G_AND = 4, G_SUB = 5, G_XOR = 6, G_CMP = 7 };
/* Of the groups at c1, d3 and f7. */
enum group2 { G_SHL = 4, G_SHR = 5, G_SAR = 7 };
enum group3 { G_NOT = 2, G_NEG = 3, G_MUL = 4, G_DIV = 6, G_IDIV = 7 };
enum { SETCC = 0x0f90, IMUL = 0x0faf, BSR = 0x0fbd, MOVQ_FROM_XMM = 0x0f7e };

static bool is_division(unsigned kind)
{
	return kind == ARCH_OP_DIV || kind == ARCH_OP_DIV_UNSIGNED || kind == ARCH_OP_REM ||
	       kind == ARCH_OP_REM_UNSIGNED;
}

static bool is_shift(unsigned kind)
{
	return kind == ARCH_OP_SHL || kind == ARCH_OP_SHR || kind == ARCH_OP_SAR;
}

/* Integer arguments by number (psABI x86-64, 3.2.3). */
static const uint8_t arguments[] = {RDI, RSI, RDX, RCX, R8, R9};

/* What stays where it is, as none of our instructions wants that register by name. */
static void wish_argument(const struct arch_op *op, struct register_wish *wish)
{
	if (op->number < sizeof(arguments) && arguments[op->number] != RDX &&
	    arguments[op->number] != RCX)
		wish->input = arguments[op->number] + 1;
}

bool arithmetic_wish(const struct x86_plan *plan, const struct arch_op *op,
		     struct register_wish *wish)
{
	(void)plan;
	if (is_division(op->kind)) {
		wish->destroys = SET(RAX) | SET(RDX);
		wish->early = true;
		wish->a_in = RAX + 1;
		wish->temps = op->b ? 0 : 1;
	} else if (op->kind == ARCH_OP_MUL_HIGH) {
		wish->destroys = SET(RAX) | SET(RDX);
		wish->result_in = RDX + 1;
		wish->a_in = RAX + 1;
		wish->temps = op->b ? 0 : 1;
	} else if (is_shift(op->kind) && op->b) {
		wish->destroys = SET(RCX);
		wish->early = true;
		wish->b_in = RCX + 1;
	} else if (op->kind == ARCH_OP_TEST) {
		wish->early = true;
	} else if (op->kind == ARCH_OP_ARGUMENT) {
		wish_argument(op, wish);
	}
	return op->kind <= ARCH_OP_PRESERVED;
}

unsigned arithmetic_condition(unsigned condition)
{
	static const uint8_t codes[] = {
		[ARCH_TEST_EQ] = 0x4,	       [ARCH_TEST_NE] = 0x5,
		[ARCH_TEST_LT] = 0xc,	       [ARCH_TEST_LE] = 0xe,
		[ARCH_TEST_GT] = 0xf,	       [ARCH_TEST_GE] = 0xd,
		[ARCH_TEST_BELOW] = 0x2,       [ARCH_TEST_ABOVE] = 0x7,
		[ARCH_TEST_BELOW_EQUAL] = 0x6, [ARCH_TEST_ABOVE_EQUAL] = 0x3,
	};

	return codes[condition <= ARCH_TEST_ABOVE_EQUAL ? condition : ARCH_TEST_EQ];
}

void arithmetic_compare(struct emitter *e)
{
	unsigned a;

	if (e->op->a && e->op->a == e->tested && !e->op->b && !e->op->immediate)
		return;
	a = emitter_a(e);
	if (e->op->b)
		asm_op_reg(e->out, true, ASM_CMP_STORE, emitter_b(e), a);
	else if (e->op->immediate)
		asm_immediate(e->out, true, ASM_IMM_CMP, e->op->immediate, a);
	else
		asm_op_reg(e->out, true, ASM_TEST, a, a);
}

/* result = a OP b, where OP writes one of its operands. */
static void emit_two(struct emitter *e, unsigned group)
{
	const unsigned a = emitter_a(e), r = e->result;
	unsigned b;

	if (!e->op->b) {
		emitter_move(e->out, a, r);
		asm_immediate(e->out, true, group, e->op->immediate, r);
		return;
	}
	b = emitter_b(e);
	if (b != r || a == r) {
		emitter_move(e->out, a, r);
		asm_op_reg(e->out, true, 8 * group + 1, b, r);
	} else if (group == G_SUB) {
		asm_op_reg(e->out, true, 0xf7, G_NEG, r);
		asm_op_reg(e->out, true, 8 * G_ADD + 1, a, r);
	} else {
		asm_op_reg(e->out, true, 8 * group + 1, a, r);
	}
}

static void emit_add(struct emitter *e)
{
	const int32_t number =
		e->op->kind == ARCH_OP_SUB ? -(int32_t)e->op->immediate : e->op->immediate;
	unsigned a;

	if (e->op->b && e->op->kind == ARCH_OP_SUB) {
		emit_two(e, G_SUB);
		return;
	}
	a = emitter_a(e);
	if (e->op->b && (!e->plan.flags || (a != e->result && emitter_b(e) != e->result)))
		asm_op_mem(e->out, true, ASM_LEA, e->result, asm_at_index(a, emitter_b(e), 1, 0));
	else if (e->op->b)
		emit_two(e, G_ADD);
	else if (a == e->result && e->plan.flags)
		asm_immediate(e->out, true, G_ADD, number, a);
	else
		asm_op_mem(e->out, true, ASM_LEA, e->result, asm_at(a, number));
}

static void emit_multiply(struct emitter *e)
{
	const unsigned a = emitter_a(e), r = e->result;
	const bool byte = e->op->immediate == (int8_t)e->op->immediate;

	if (!e->op->b) {
		asm_op_reg(e->out, true, byte ? 0x6b : 0x69, r, a);
		if (byte)
			x86_emit8(e->out, (unsigned)e->op->immediate & 0xff);
		else
			x86_emit32(e->out, (uint32_t)e->op->immediate);
		return;
	}
	if (emitter_b(e) == r) {
		asm_op_reg(e->out, true, IMUL, r, a);
		return;
	}
	emitter_move(e->out, a, r);
	asm_op_reg(e->out, true, IMUL, r, emitter_b(e));
}

static void emit_multiply_high(struct emitter *e)
{
	const unsigned b = emitter_b_or(e, e->op->b ? 0 : e->temps[0]);

	/* a may be in rax already, to be used here for the last time; b never is. */
	emitter_move(e->out, emitter_a(e), RAX);
	asm_op_reg(e->out, true, 0xf7, G_MUL, b);
	emitter_move(e->out, RDX, e->result);
}

static void emit_shift(struct emitter *e, unsigned group)
{
	const unsigned r = e->result;

	if (!e->op->b) {
		emitter_move(e->out, emitter_a(e), r);
		if (e->op->immediate & 63) {
			asm_op_reg(e->out, true, 0xc1, group, r);
			x86_emit8(e->out, (unsigned)e->op->immediate & 63);
		}
		return;
	}
	emitter_move(e->out, emitter_b(e), RCX);
	emitter_move(e->out, emitter_a(e), r);
	asm_op_reg(e->out, true, 0xd3, group, r);
}

/* rax by register b, the rest in rdx. */
static void emit_divide_step(struct emitter *e, unsigned b, bool is_signed)
{
	if (is_signed) {
		x86_emit8(e->out, 0x48); /* cqo */
		x86_emit8(e->out, 0x99);
	} else {
		asm_op_reg(e->out, false, ASM_XOR_STORE, RDX, RDX);
	}
	asm_op_reg(e->out, true, 0xf7, is_signed ? G_IDIV : G_DIV, b);
}

/* Divisors that would fault, or might, have ways of their own. */
static void emit_divide(struct emitter *e)
{
	const unsigned kind = e->op->kind, r = e->result;
	const bool is_signed = kind == ARCH_OP_DIV || kind == ARCH_OP_REM;
	const bool rest = kind == ARCH_OP_REM || kind == ARCH_OP_REM_UNSIGNED;
	const unsigned a = emitter_a(e), b = emitter_b_or(e, e->op->b ? 0 : e->temps[0]);
	const bool maybe_zero = e->op->b || e->op->immediate == 0;
	const bool maybe_minus = is_signed && (e->op->b || e->op->immediate == -1);
	struct asm_label done = {0}, zero = {0}, minus = {0};

	if (maybe_zero) {
		asm_op_reg(e->out, true, ASM_TEST, b, b);
		asm_jump(e->out, ASM_JUMP_E, &zero);
	}
	if (maybe_minus) {
		asm_immediate(e->out, true, ASM_IMM_CMP, -1, b);
		asm_jump(e->out, ASM_JUMP_E, &minus);
	}
	emitter_move(e->out, a, RAX);
	emit_divide_step(e, b, is_signed);
	emitter_move(e->out, rest ? RDX : RAX, r);
	if (maybe_zero || maybe_minus)
		asm_place_at(&done, arch_here(e->out));
	if (maybe_zero) {
		asm_place_at(&zero, arch_here(e->cold));
		asm_op_reg(e->cold, false, ASM_XOR_STORE, r, r);
		asm_jump(e->cold, ASM_JUMP_ALWAYS, &done);
	}
	if (maybe_minus) {
		asm_place_at(&minus, arch_here(e->cold));
		emitter_move(e->cold, a, r);
		asm_op_reg(e->cold, true, 0xf7, G_NEG, r);
		if (rest)
			asm_op_reg(e->cold, false, ASM_XOR_STORE, r, r);
		asm_jump(e->cold, ASM_JUMP_ALWAYS, &done);
	}
}

/* The highest bit of x | 1 is that of x, and 0 for 0. */
static void emit_log2(struct emitter *e)
{
	emitter_move(e->out, emitter_a(e), e->result);
	asm_immediate(e->out, true, G_OR, 1, e->result);
	asm_op_reg(e->out, true, BSR, e->result, e->result);
}

static void emit_extend(struct emitter *e)
{
	const unsigned a = emitter_a(e), r = e->result, size = e->op->size;
	const bool is_signed = e->op->is_signed;

	switch (size) {
	case 1:
		/* A prefix makes it sil, dil rather than dh, bh. */
		asm_op_reg(e->out, true, is_signed ? 0x0fbe : 0x0fb6, r, a);
		break;
	case 2:
		asm_op_reg(e->out, true, is_signed ? 0x0fbf : 0x0fb7, r, a);
		break;
	case 4:
		if (is_signed)
			asm_op_reg(e->out, true, ASM_MOVSXD, r, a);
		else
			asm_move32(e->out, a, r);
		break;
	case 3:
	case 5:
	case 6:
	case 7:
		emitter_move(e->out, a, r);
		asm_op_reg(e->out, true, 0xc1, G_SHL, r);
		x86_emit8(e->out, 64 - 8 * size);
		asm_op_reg(e->out, true, 0xc1, is_signed ? G_SAR : G_SHR, r);
		x86_emit8(e->out, 64 - 8 * size);
		break;
	default:
		emitter_move(e->out, a, r);
	}
}

static void emit_test(struct emitter *e)
{
	const unsigned r = e->result;

	e->tested = 0; /* xor comes first */
	asm_op_reg(e->out, false, ASM_XOR_STORE, r, r);
	arithmetic_compare(e);
	x86_emit8(e->out, r >= 8 ? 0x41 : 0x40);
	x86_emit8(e->out, 0x0f);
	x86_emit8(e->out, 0x90 | arithmetic_condition(e->op->condition));
	x86_emit8(e->out, 0xc0 | (r & 7));
}

/* ------------------------------------------------- what the target's thread has */

/* What register `reg` held at the place. */
static void emit_input(struct emitter *e, unsigned reg)
{
	unsigned at;

	if (x86_frame_find(e->frame, reg, &at))
		emitter_move(e->out, at, e->result);
	else
		asm_load(e->out, e->result, asm_at(RSP, (int32_t)at));
}

static void emit_vector(struct emitter *e, unsigned number)
{
	if (number >= 8) {
		x86_fail(e->out, ARCH_REFUSED);
		return;
	}
	x86_emit8(e->out, 0x66);
	asm_op_reg(e->out, true, MOVQ_FROM_XMM, number, e->result);
}

static void emit_of_thread(struct emitter *e)
{
	const struct arch_op *op = e->op;
	const int64_t above = (int64_t)e->frame->pushed + e->frame->before;
	const int64_t word = op->kind == ARCH_OP_STACK ? above + (int64_t)op->number : above;

	switch (op->kind) {
	case ARCH_OP_ARGUMENT:
		if (op->number >= sizeof(arguments))
			x86_fail(e->out, ARCH_REFUSED);
		else
			emit_input(e, arguments[op->number]);
		break;
	case ARCH_OP_RESULT:
		if (op->number > 1)
			x86_fail(e->out, ARCH_REFUSED);
		else
			emit_input(e, op->number ? RDX : RAX);
		break;
	case ARCH_OP_PRESERVED:
		if (op->number >= X86_PRESERVED)
			x86_fail(e->out, ARCH_REFUSED);
		else
			emit_input(e, x86_preserved[op->number]);
		break;
	case ARCH_OP_FLOAT_ARGUMENT:
		emit_vector(e, (unsigned)op->number);
		break;
	case ARCH_OP_FLOAT_RESULT:
		emit_vector(e, op->number > 1 ? UINT32_MAX : (unsigned)op->number);
		break;
	case ARCH_OP_STACK_POINTER:
		asm_op_mem(e->out, true, ASM_LEA, e->result, asm_at(RSP, (int32_t)above));
		break;
	default: /* STACK, CALLER: at a function's entry and exits the return address is on top */
		if (!x86_fits32(word))
			x86_fail(e->out, ARCH_REFUSED);
		asm_load(e->out, e->result, asm_at(RSP, (int32_t)word));
	}
}

/* One operand, or none; false: it is of another kind. */
static bool emit_unary(struct emitter *e)
{
	const unsigned kind = e->op->kind;

	switch (kind) {
	case ARCH_OP_CONST:
		emitter_number(e, e->out, e->result, e->op->number);
		return true;
	case ARCH_OP_COPY:
		emitter_move(e->out, emitter_a(e), e->result);
		return true;
	case ARCH_OP_NEG:
	case ARCH_OP_NOT:
		emitter_move(e->out, emitter_a(e), e->result);
		asm_op_reg(e->out, true, 0xf7, kind == ARCH_OP_NEG ? G_NEG : G_NOT, e->result);
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

static void emit_binary(struct emitter *e)
{
	static const uint8_t groups[ARCH_OP_KINDS] = {
		[ARCH_OP_AND] = G_AND, [ARCH_OP_OR] = G_OR,   [ARCH_OP_XOR] = G_XOR,
		[ARCH_OP_SUB] = G_SUB, [ARCH_OP_SHL] = G_SHL, [ARCH_OP_SHR] = G_SHR,
		[ARCH_OP_SAR] = G_SAR,
	};
	const unsigned kind = e->op->kind;

	if (kind == ARCH_OP_ADD || (kind == ARCH_OP_SUB && e->op->immediate != INT32_MIN))
		emit_add(e);
	else if (kind == ARCH_OP_MUL)
		emit_multiply(e);
	else if (kind == ARCH_OP_MUL_HIGH)
		emit_multiply_high(e);
	else if (is_division(kind))
		emit_divide(e);
	else if (is_shift(kind))
		emit_shift(e, groups[kind]);
	else if (kind == ARCH_OP_TEST)
		emit_test(e);
	else
		emit_two(e, groups[kind]);
	/* These clear CF and OF, as test does. */
	if (kind == ARCH_OP_AND || kind == ARCH_OP_OR || kind == ARCH_OP_XOR)
		e->tested = e->op->result;
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
