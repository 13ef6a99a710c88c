/* SPDX-License-Identifier: MIT */
/*
 * lift.c - x86-64 instructions become operations (arch/lift.h). A list of those
 * that are known to the last bit; all others are refused. What the flags hold is
 * kept as what was compared, and looked at when a condition asks. What leads
 * elsewhere is in lift_control.c.
 *
 * Semantics: Intel SDM volume 2; where a register goes, psABI x86-64, 3.2.
 */
#include "arch/x86_64/lift.h"

#include <string.h>

#define UNKNOWN "this instruction is not one of those that are known for sure"

static const uint8_t argument_registers[] = {RDI, RSI, RDX, RCX, R8, R9};

int arch_lift_begin(struct lift *l, struct lift_state *s, const struct lift_argument *arguments,
		    unsigned count)
{
	if (count > sizeof(argument_registers))
		return lift_refuse(l, "it is given too many arguments");
	lift_begin(l, s, 16, RSP);
	lift_hold(l, lift_register(l, s, RAX));
	for (unsigned i = 0; i < sizeof(argument_registers); i++)
		s->registers[argument_registers[i]].bytes = 0;
	for (unsigned i = 0; i < count; i++)
		lift_pass(l, lift_register(l, s, argument_registers[i]), &arguments[i], i);
	return ARCH_OK;
}

/* ---------------------------------------------------------------- operands */

static struct lift_place place_of(struct x86_step *t, unsigned reg)
{
	return lift_register(t->l, t->s, reg);
}

struct x86_operand x86_lift_register(struct x86_step *t, unsigned reg, unsigned size)
{
	struct x86_operand o = {.size = size};

	/* ah, ch, dh, bh (volume 1, 3.4.1.1) */
	if (size == 1 && !t->x.rex && reg >= 4) {
		reg -= 4;
		o.at = 1;
	}
	o.place = place_of(t, reg);
	return o;
}

struct x86_operand x86_lift_rm(struct x86_step *t, unsigned size)
{
	struct x86_operand o = {.size = size, .memory = true};
	const struct arch_memory m = x86_explicit_address(t->insn, &t->x, 1);

	if (!x86_is_memory(&t->x))
		return x86_lift_register(t, x86_rm(&t->x), size);
	lift_where(t->l, t->s, &m, &o.where);
	return o;
}

unsigned x86_lift_get(struct x86_step *t, const struct x86_operand *o)
{
	if (*t->l->why)
		return 0;
	return o->memory ? lift_load(t->l, t->s, &o->where, o->size)
			 : lift_get(t->l, o->place, o->at, o->size);
}

void x86_lift_put(struct x86_step *t, const struct x86_operand *o, unsigned value, uint64_t most)
{
	if (*t->l->why)
		return;
	if (o->memory) {
		lift_store(t->l, t->s, &o->where, o->size, value);
		return;
	}
	if (o->size != 4) {
		lift_set(t->l, o->place, o->at, o->size, value, most);
		return;
	}
	/* The upper half becomes 0. */
	if (most > UINT32_MAX)
		most = UINT32_MAX;
	lift_set(t->l, o->place, 0, 8, lift_extend(t->l, value, 4, false), most);
}

/* The greatest number that the operand may be. */
static uint64_t most_of(const struct x86_operand *o)
{
	const uint64_t most = lift_most(o->size);

	if (o->memory || o->at || o->place.word->most > most || o->place.word->bytes != 0xff ||
	    o->place.word->kind != LIFT_NUMBER)
		return most;
	return o->place.word->most;
}

/* ------------------------------------------------------------------- moves */

static unsigned operand_size(const struct x86_layout *x)
{
	if (x->attributes & OP_BYTE)
		return 1;
	return x->rex & REX_W ? 8 : x->prefixes & PREFIX_66 ? 2 : 4;
}

static int64_t immediate_of(const struct x86_step *t)
{
	return x86_read_signed(t->insn->bytes + t->x.imm_offset, t->x.imm_size);
}

/* Eight bytes keep what they are: an address of the frame, a register to be put back. */
static void move_word(struct x86_step *t, struct x86_operand *to, struct x86_operand *from)
{
	if (from->memory && !lift_frame_word(t->l, t->s, &from->where, &from->place)) {
		x86_lift_put(t, to, x86_lift_get(t, from), UINT64_MAX);
		return;
	}
	if (to->memory && !lift_frame_word(t->l, t->s, &to->where, &to->place)) {
		x86_lift_put(t, to, x86_lift_get(t, from), UINT64_MAX);
		return;
	}
	if (!*t->l->why)
		lift_copy(t->l, to->place, from->place);
}

static void move(struct x86_step *t, struct x86_operand *to, struct x86_operand *from)
{
	if (to->size == 8 && !*t->l->why)
		move_word(t, to, from);
	else
		x86_lift_put(t, to, x86_lift_get(t, from), most_of(from));
}

static void move_number(struct x86_step *t, const struct x86_operand *to, uint64_t number)
{
	number &= lift_most(to->size);
	if (!to->memory && to->size >= 4)
		lift_set_number(t->l, to->place, number);
	else
		x86_lift_put(t, to, lift_constant(t->l, number), number);
}

struct x86_operand x86_lift_top(struct x86_step *t, int64_t before, int64_t after)
{
	struct x86_operand o = {.memory = true, .size = 8};
	const struct arch_memory m = {.base = RSP, .index = ARCH_NO_REGISTER, .computable = true};
	const struct lift_place sp = place_of(t, RSP);

	if (sp.word->kind != LIFT_STACK || sp.word->bytes != 0xff)
		lift_refuse(t->l, "its stack pointer is not known");
	if (before)
		lift_move(t->l, sp, before);
	lift_where(t->l, t->s, &m, &o.where);
	if (after)
		lift_move(t->l, sp, after);
	return o;
}

static void lift_push(struct x86_step *t, unsigned reg)
{
	struct x86_operand from, to;

	/* Its value before the push: SDM, PUSH. */
	if (reg == RSP) {
		lift_refuse(t->l, UNKNOWN);
		return;
	}
	/* Of a word that is not known nothing is kept. */
	from = x86_lift_register(t, reg, 8);
	to = x86_lift_top(t, -8, 0);
	move_word(t, &to, &from);
}

static void lift_pop(struct x86_step *t, unsigned reg)
{
	struct x86_operand from = x86_lift_top(t, 0, 8), to = x86_lift_register(t, reg, 8);

	move_word(t, &to, &from);
}

static void lift_leave(struct x86_step *t)
{
	lift_copy(t->l, place_of(t, RSP), place_of(t, RBP));
	lift_pop(t, RBP);
}

static void lift_lea(struct x86_step *t)
{
	const struct arch_memory m = x86_explicit_address(t->insn, &t->x, 1);
	struct x86_operand to = x86_lift_register(t, x86_reg(&t->x), operand_size(&t->x));
	struct lift_place whole, scratch;
	struct lift_word word;
	struct lift_where w;
	uint16_t value = 0;

	if (!lift_where(t->l, t->s, &m, &w))
		return;
	whole = to.place;
	if (to.size == 8) {
		lift_address(t->l, whole, &w);
		return;
	}
	/* Computed as a whole, then cut. */
	memset(&word, 0, sizeof(word));
	scratch = (struct lift_place){&word, &value};
	lift_address(t->l, scratch, &w);
	x86_lift_put(t, &to, lift_get(t->l, scratch, 0, 8), word.most);
}

static void lift_extending_move(struct x86_step *t, unsigned from_size, bool is_signed)
{
	struct x86_operand from = x86_lift_rm(t, from_size);
	struct x86_operand to = x86_lift_register(t, x86_reg(&t->x), operand_size(&t->x));
	const uint64_t most = is_signed ? UINT64_MAX : most_of(&from);

	x86_lift_put(t, &to, lift_extend(t->l, x86_lift_get(t, &from), from_size, is_signed), most);
}

/* cbw, cwde, cdqe; cdq, cqo */
static void lift_widen(struct x86_step *t, bool into_rdx)
{
	const unsigned size = operand_size(&t->x);
	struct x86_operand rax = x86_lift_register(t, RAX, into_rdx ? size : size / 2);
	struct x86_operand to = x86_lift_register(t, into_rdx ? RDX : RAX, size);
	unsigned value = lift_extend(t->l, x86_lift_get(t, &rax), rax.size, true);

	if (into_rdx)
		value = lift_op_number(t->l, ARCH_OP_SAR, value, 63);
	x86_lift_put(t, &to, value, UINT64_MAX);
}

static void lift_set_byte(struct x86_step *t)
{
	struct x86_operand to = x86_lift_rm(t, 1);

	x86_lift_put(t, &to, x86_lift_truth(t, t->x.opcode & 15), 1);
}

/* to = to ^ ((to ^ from) & -truth) */
static void lift_conditional_move(struct x86_step *t)
{
	struct x86_operand from = x86_lift_rm(t, operand_size(&t->x));
	struct x86_operand to = x86_lift_register(t, x86_reg(&t->x), from.size);
	const unsigned mask = lift_op(t->l, ARCH_OP_NEG, x86_lift_truth(t, t->x.opcode & 15), 0);
	const unsigned old = x86_lift_get(t, &to);
	unsigned value = lift_op(t->l, ARCH_OP_XOR, old, x86_lift_get(t, &from));

	value = lift_op(t->l, ARCH_OP_AND, value, mask);
	x86_lift_put(t, &to, lift_op(t->l, ARCH_OP_XOR, old, value), UINT64_MAX);
}

/* ------------------------------------------------------------------ opcodes */

/* 00 to 3d: all forms of add, or, adc, sbb, and, sub, xor, cmp. */
static void lift_two(struct x86_step *t)
{
	const unsigned operation = t->x.opcode >> 3, form = t->x.opcode & 7;
	const unsigned size = operand_size(&t->x);
	struct x86_operand rm, reg;

	if (form > 5) {
		lift_refuse(t->l, UNKNOWN);
		return;
	}
	if (form >= 4) {
		reg = x86_lift_register(t, RAX, size);
		x86_lift_combine_number(t, operation, &reg, immediate_of(t));
		return;
	}
	rm = x86_lift_rm(t, size);
	reg = x86_lift_register(t, x86_reg(&t->x), size);
	if (form & 2)
		x86_lift_combine(t, operation, &reg, &rm);
	else
		x86_lift_combine(t, operation, &rm, &reg);
}

/* f6, f7 */
static void lift_group_3(struct x86_step *t)
{
	struct x86_operand rm = x86_lift_rm(t, operand_size(&t->x));
	unsigned value;

	switch (x86_extension(&t->x)) {
	case 0:
	case 1:
		x86_lift_test_number(t, &rm, immediate_of(t));
		break;
	case 2:
		value = lift_op(t->l, ARCH_OP_NOT, x86_lift_get(t, &rm), 0);
		x86_lift_put(t, &rm, value, UINT64_MAX);
		break;
	case 3:
		x86_lift_negate(t, &rm);
		break;
	case 4:
	case 5:
		x86_lift_multiply_wide(t, &rm, x86_extension(&t->x) == 5);
		break;
	default:
		lift_refuse(t->l, "a division may trap");
		break;
	}
}

static void lift_group_5(struct x86_step *t)
{
	struct x86_operand rm = x86_lift_rm(t, operand_size(&t->x));

	if (x86_extension(&t->x) > 1)
		lift_refuse(t->l, UNKNOWN);
	else
		x86_lift_step(t, &rm, x86_extension(&t->x) == 1);
}

static void lift_moves(struct x86_step *t)
{
	const unsigned size = operand_size(&t->x);
	struct x86_operand rm = x86_lift_rm(t, size);
	struct x86_operand reg = x86_lift_register(t, x86_reg(&t->x), size);

	if (t->x.opcode >= 0xc6 && x86_extension(&t->x)) /* xabort */
		lift_refuse(t->l, UNKNOWN);
	else if (t->x.opcode >= 0xc6)
		move_number(t, &rm, (uint64_t)immediate_of(t));
	else if (t->x.opcode & 2)
		move(t, &reg, &rm);
	else
		move(t, &rm, &reg);
}

/* b0 to bf: mov with a number, of 64 bits with REX.W */
static void lift_move_number(struct x86_step *t)
{
	const unsigned reg = (t->x.opcode & 7) | (t->x.rex & REX_B ? 8 : 0);
	const struct x86_operand to =
		x86_lift_register(t, reg, t->x.opcode < 0xb8 ? 1 : operand_size(&t->x));

	move_number(t, &to, (uint64_t)immediate_of(t));
}

static void lift_push_number(struct x86_step *t)
{
	struct x86_operand to = x86_lift_top(t, -8, 0);

	x86_lift_put(t, &to, lift_constant(t->l, (uint64_t)immediate_of(t)), UINT64_MAX);
}

/* Those that have a number in them. False: none of them. */
static bool lift_with_number(struct x86_step *t)
{
	struct x86_operand o;

	switch (t->x.opcode) {
	case 0x68:
	case 0x6a:
		lift_push_number(t);
		return true;
	case 0x69:
	case 0x6b:
		x86_lift_multiply(t, operand_size(&t->x), true, immediate_of(t));
		return true;
	case 0x80:
	case 0x81:
	case 0x83:
		o = x86_lift_rm(t, operand_size(&t->x));
		x86_lift_combine_number(t, x86_extension(&t->x), &o, immediate_of(t));
		return true;
	case 0xa8:
	case 0xa9:
		o = x86_lift_register(t, RAX, operand_size(&t->x));
		x86_lift_test_number(t, &o, immediate_of(t));
		return true;
	case 0xb0 ... 0xbf:
		lift_move_number(t);
		return true;
	default:
		return false;
	}
}

static void lift_one_byte(struct x86_step *t)
{
	const unsigned low = (t->x.opcode & 7) | (t->x.rex & REX_B ? 8 : 0);
	switch (t->x.opcode) {
	case 0x00 ... 0x3f:
		lift_two(t);
		break;
	case 0x50 ... 0x57:
		lift_push(t, low);
		break;
	case 0x58 ... 0x5f:
		lift_pop(t, low);
		break;
	case 0x63:
		lift_extending_move(t, 4, true);
		break;
	case 0x84:
	case 0x85:
		x86_lift_test(t, operand_size(&t->x));
		break;
	case 0x88 ... 0x8b:
	case 0xc6 ... 0xc7:
		lift_moves(t);
		break;
	case 0x8d:
		lift_lea(t);
		break;
	case 0x98:
	case 0x99:
		lift_widen(t, t->x.opcode & 1);
		break;
	case 0xc0 ... 0xc1:
	case 0xd0 ... 0xd3:
		x86_lift_shift(t, operand_size(&t->x));
		break;
	case 0xc9:
		lift_leave(t);
		break;
	case 0xf6 ... 0xf7:
		lift_group_3(t);
		break;
	case 0xfe ... 0xff:
		lift_group_5(t);
		break;
	default:
		if (!lift_with_number(t))
			lift_refuse(t->l, UNKNOWN);
		break;
	}
}

/* edx:eax; rdtscp says in ecx where it was read, too. */
static void lift_ticks(struct x86_step *t, bool processor)
{
	const struct x86_operand low = x86_lift_register(t, RAX, 4);
	const struct x86_operand high = x86_lift_register(t, RDX, 4);
	struct arch_op *op = t->l->op(t->l->arg, ARCH_OP_CLOCK);
	const unsigned ticks = t->l->value(t->l->arg);

	op->number = ARCH_CLOCK_TICKS_ORDERED;
	op->fresh = true;
	op->result = (uint16_t)ticks;
	x86_lift_put(t, &low, ticks, UINT32_MAX);
	x86_lift_put(t, &high, lift_op_number(t->l, ARCH_OP_SHR, ticks, 32), UINT32_MAX);
	if (processor)
		lift_lose(place_of(t, RCX));
}

/* What only clocks do. False: none of it. */
static bool lift_clock(struct x86_step *t)
{
	const uint8_t modrm = t->x.modrm;

	if (!t->l->clock || t->x.map != 1)
		return false;
	if (t->x.opcode == 0x31)
		lift_ticks(t, false);
	else if (t->x.opcode == 0x01 && modrm == 0xf9)
		lift_ticks(t, true);
	else
		/* lfence: ticks are read in their order */
		return t->x.opcode == 0xae && modrm == 0xe8;
	return true;
}

static void lift_two_byte(struct x86_step *t)
{
	const unsigned size = operand_size(&t->x);

	switch (t->x.opcode) {
	case 0x40 ... 0x4f:
		lift_conditional_move(t);
		break;
	case 0x90 ... 0x9f:
		lift_set_byte(t);
		break;
	case 0xa3:
	case 0xba:
		x86_lift_bit(t, size);
		break;
	case 0xac:
		x86_lift_shift_double(t, size);
		break;
	case 0xaf:
		x86_lift_multiply(t, size, false, 0);
		break;
	case 0xb6:
	case 0xb7:
	case 0xbe:
	case 0xbf:
		lift_extending_move(t, t->x.opcode & 1 ? 2 : 1, t->x.opcode & 8);
		break;
	case 0xc8 ... 0xcf:
		x86_lift_swap_bytes(t, (t->x.opcode & 7) | (t->x.rex & REX_B ? 8 : 0), size);
		break;
	default:
		lift_refuse(t->l, UNKNOWN);
		break;
	}
}

/* ---------------------------------------------------------------- contract */

/* What no instruction may be or have. */
static const char *forbidden(const struct x86_layout *x)
{
	const unsigned op = x->opcode;

	if (x->prefixes & PREFIX_LOCK)
		return "it is atomic: somebody else's memory";
	if (x->prefixes & (PREFIX_FSGS | PREFIX_67))
		return x->prefixes & PREFIX_67 ? "it computes an address with 32 bits"
					       : "it uses what belongs to its thread";
	if (x->encoding != X86_LEGACY || x->map > 1)
		return "it uses vector registers, or is not one of those that are known for sure";
	if (x->map == 0 && op >= 0xd8 && op <= 0xdf)
		return "it uses floating point";
	if (x->map == 0 && ((op >= 0xa4 && op <= 0xa7) || (op >= 0xaa && op <= 0xaf)))
		return "it goes through memory, as long as it takes";
	if (x->map == 0 && ((op >= 0x6c && op <= 0x6f) || (op >= 0xe4 && op <= 0xe7) ||
			    (op >= 0xec && op <= 0xef) || op == 0xfa || op == 0xfb))
		return "it is privileged";
	if (x->map == 1 && ((op >= 0x10 && op <= 0x17) || (op >= 0x28 && op <= 0x2f) ||
			    (op >= 0x50 && op <= 0x7f) || op >= 0xd0 || op == 0xc2))
		return "it uses vector registers";
	if (x->prefixes & (PREFIX_F2 | PREFIX_F3))
		return UNKNOWN;
	if ((x->prefixes & PREFIX_66) && x->map == 0 &&
	    ((op >= 0x50 && op <= 0x5f) || op == 0x68 || op == 0x6a || op == 0xc9))
		return "it moves the stack pointer by two";
	return NULL;
}

bool x86_lift_begin(struct x86_step *t, struct lift *l, struct lift_state *s,
		    const struct arch_insn *insn)
{
	*t = (struct x86_step){.l = l, .s = s, .insn = insn};
	l->why[0] = 0;
	if (x86_layout_read(insn->bytes, insn->length, &t->x) != ARCH_OK)
		lift_refuse(l, "it is not an instruction that is known for sure");
	return !*l->why;
}

int arch_lift(struct lift *l, struct lift_state *s, const struct arch_insn *insn)
{
	struct x86_step t;
	const char *why;

	if (!x86_lift_begin(&t, l, s, insn))
		return ARCH_REFUSED;
	if (insn->flags & (ARCH_INSN_NOP | ARCH_INSN_LANDING_PAD))
		return ARCH_OK;
	if (insn->flow == ARCH_FLOW_NEXT && !t.x.prefixes && lift_clock(&t))
		return *l->why ? ARCH_REFUSED : ARCH_OK;
	why = insn->flow == ARCH_FLOW_NEXT ? forbidden(&t.x) : "it leads elsewhere";
	if (why)
		return lift_refuse(l, why);
	if (t.x.map == 0)
		lift_one_byte(&t);
	else
		lift_two_byte(&t);
	return *l->why ? ARCH_REFUSED : ARCH_OK;
}
