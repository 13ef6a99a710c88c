/* SPDX-License-Identifier: MIT */
/*
 * program_memory.c - operations of programs on memory of ours: words, counters,
 * tables. What is not one instruction is written so that a signal handler of the
 * thread, or another thread, may come in between anywhere.
 */
#include "arch/x86_64/emitter.h"

enum { MOVZX8 = 0x0fb6, MOVZX16 = 0x0fb7, MOVSX8 = 0x0fbe, MOVSX16 = 0x0fbf, XADD = 0x0fc1 };
enum { CMPXCHG = 0x0fb1, LOCK = 0xf0, JUMP_L = 0xc, JUMP_G = 0xf };

enum {
	KEYS = 16, /* offset of struct arch_table's keys */
	FULL = 8,
	TABLE_SHIFT_MAX = 30,
};

static bool is_extreme(unsigned kind)
{
	return kind == ARCH_OP_ATOMIC_MIN || kind == ARCH_OP_ATOMIC_MAX;
}

/* rcx is the register of the sequence that does not touch the flags; rax of compare-exchange. */
bool memory_wish(const struct x86_plan *plan, const struct arch_op *op, struct register_wish *wish)
{
	const unsigned far = emitter_far(op) ? 1 : 0;

	switch (op->kind) {
	case ARCH_OP_LOAD:
	case ARCH_OP_STORE:
	case ARCH_OP_ATOMIC_ADD:
	case ARCH_OP_ATOMIC_STORE:
		wish->temps = far;
		return true;
	case ARCH_OP_FETCH_ADD:
		wish->temps = far;
		wish->early = true;
		return true;
	case ARCH_OP_ATOMIC_MIN:
	case ARCH_OP_ATOMIC_MAX:
		wish->temps = far + (op->b ? 0 : 1);
		wish->destroys = SET(RAX);
		return true;
	case ARCH_OP_COUNT:
		wish->temps = 1;
		wish->destroys = plan->flags ? 0 : SET(RCX);
		return true;
	case ARCH_OP_FIND:
		wish->temps = op->number + KEYS <= INT32_MAX ? 2 : 3;
		wish->destroys = SET(RAX);
		wish->early = true;
		return true;
	default:
		return false;
	}
}

/* ------------------------------------------------------------ plain words */

static void emit_load(struct emitter *e)
{
	const struct asm_mem m = emitter_address(e, e->temps[0]);
	const bool is_signed = e->op->is_signed;

	switch (e->op->size) {
	case 1:
		asm_op_mem(e->out, is_signed, is_signed ? MOVSX8 : MOVZX8, e->result, m);
		break;
	case 2:
		asm_op_mem(e->out, is_signed, is_signed ? MOVSX16 : MOVZX16, e->result, m);
		break;
	case 4:
		asm_op_mem(e->out, is_signed, is_signed ? ASM_MOVSXD : ASM_LOAD, e->result, m);
		break;
	case 0:
	case 8:
		asm_load(e->out, e->result, m);
		break;
	default:
		x86_fail(e->out, ARCH_REFUSED);
	}
}

static void emit_store_number(struct emitter *e, unsigned size, struct asm_mem m)
{
	const uint32_t number = (uint32_t)e->op->immediate;

	if (size == 2)
		x86_emit8(e->out, 0x66);
	asm_op_mem(e->out, size == 8, size == 1 ? 0xc6 : 0xc7, 0, m);
	for (unsigned i = 0; i < size && i < 4; i++)
		x86_emit8(e->out, number >> (8 * i) & 0xff);
}

static void emit_store(struct emitter *e)
{
	const unsigned size = e->op->kind == ARCH_OP_STORE && e->op->size ? e->op->size : 8;
	const struct asm_mem m = emitter_address(e, e->temps[0]);
	unsigned b;

	if (size != 1 && size != 2 && size != 4 && size != 8) {
		x86_fail(e->out, ARCH_REFUSED);
		return;
	}
	if (!e->op->b) {
		emit_store_number(e, size, m);
		return;
	}
	b = emitter_b(e);
	if (size == 2)
		x86_emit8(e->out, 0x66);
	/* spl to dil are told from ah to bh by a prefix, which REX.W is, and does nothing else to. */
	asm_op_mem(e->out, size == 8 || size == 1, size == 1 ? 0x88 : ASM_STORE, b, m);
}

/* add to memory, `locked` among processors. */
static void emit_add(struct emitter *e, bool locked, struct asm_mem m)
{
	const int32_t number = e->op->immediate;
	const bool byte = number == (int8_t)number;
	const unsigned b = e->op->b ? emitter_b(e) : 0;

	if (locked)
		x86_emit8(e->out, LOCK);
	if (e->op->b) {
		asm_op_mem(e->out, true, ASM_ADD_STORE, b, m);
		return;
	}
	asm_op_mem(e->out, true, byte ? 0x83 : 0x81, ASM_IMM_ADD, m);
	if (byte)
		x86_emit8(e->out, (unsigned)number & 0xff);
	else
		x86_emit32(e->out, (uint32_t)number);
}

/* One instruction, so whole for the thread's own handlers. */
static void emit_fetch_add(struct emitter *e)
{
	const struct asm_mem m = emitter_address(e, e->temps[0]);

	if (!e->op->result) {
		emit_add(e, false, m);
		return;
	}
	if (e->op->b)
		emitter_move(e->out, emitter_b(e), e->result);
	else
		emitter_number(e, e->out, e->result, (uint64_t)(int64_t)e->op->immediate);
	asm_op_mem(e->out, true, XADD, e->result, m);
}

/* Seldom does a word get a new extreme: the exchange, and its repetition, are in the cold part. */
static void emit_extreme(struct emitter *e)
{
	const unsigned far = emitter_far(e->op) ? 1 : 0;
	const struct asm_mem m = emitter_address(e, e->temps[0]);
	const unsigned b = emitter_b_or(e, e->op->b ? 0 : e->temps[far]);
	const unsigned better = e->op->kind == ARCH_OP_ATOMIC_MIN ? JUMP_L : JUMP_G;
	struct asm_label exchange = {0}, again = {0}, done = {0};

	asm_load(e->out, RAX, m);
	asm_op_reg(e->out, true, ASM_CMP_STORE, RAX, b);
	asm_jump(e->out, better, &exchange);
	asm_place(e->out, &done);

	asm_place_at(&exchange, arch_here(e->cold));
	asm_place(e->cold, &again);
	x86_emit8(e->cold, LOCK);
	asm_op_mem(e->cold, true, CMPXCHG, b, m);
	asm_jump(e->cold, ASM_JUMP_E, &done);
	asm_op_reg(e->cold, true, ASM_CMP_STORE, RAX, b);
	asm_jump(e->cold, better, &again);
	asm_jump(e->cold, ASM_JUMP_ALWAYS, &done);
}

/* --------------------------------------------------------------- counters */

static void emit_count(struct emitter *e)
{
	const struct arch_op *op = e->op;
	struct arch_counter spec = e->env->counter;
	struct x86_count count = {
		.r = e->temps[0],
		.b = e->temps[0],
		.index = ARCH_NO_REGISTER,
		.addend = ARCH_NO_REGISTER,
		.number = op->immediate,
		.flags = e->plan.flags,
		.red_zone = e->frame->red_zone,
		.pushed = e->frame->pushed,
	};

	spec.counter_address = op->number;
	if (op->a)
		count.index = (uint8_t)emitter_a(e);
	if (op->b)
		count.addend = (uint8_t)emitter_b(e);
	x86_emit_count(&spec, &count, e->out, e->cold);
}

/* ----------------------------------------------------------------- tables */

struct find {
	unsigned place, key, left; /* place in the table, key + 1, places yet to look at */
	struct asm_mem slot;
	struct asm_mem full;
	int32_t mask;
};

/*
 * All but the first place: the key, or an empty one, which is claimed. `first`
 * leads here for the first place, too, which may be empty.
 */
static void emit_probe(struct emitter *e, const struct find *f, struct asm_label *first,
		       struct asm_label *none, struct asm_label *found, struct asm_label *done)
{
	struct arch_buf *cold = e->cold;
	struct asm_label look = {0}, next = {0};

	asm_place_at(first, arch_here(cold));
	asm_number32(cold, f->left, ARCH_TABLE_PROBE);
	asm_place(cold, &look);
	asm_load(cold, RAX, f->slot);
	asm_op_reg(cold, true, ASM_CMP_STORE, f->key, RAX);
	asm_jump(cold, ASM_JUMP_E, found);
	asm_op_reg(cold, true, ASM_TEST, RAX, RAX);
	asm_jump(cold, ASM_JUMP_NE, &next);
	/* rax is 0: it is still empty, or somebody else has been quicker. */
	x86_emit8(cold, LOCK);
	asm_op_mem(cold, true, CMPXCHG, f->key, f->slot);
	asm_jump(cold, ASM_JUMP_E, found);
	asm_op_reg(cold, true, ASM_CMP_STORE, f->key, RAX);
	asm_jump(cold, ASM_JUMP_E, found);
	asm_place(cold, &next);
	asm_immediate(cold, false, ASM_IMM_ADD, 1, f->place);
	asm_immediate(cold, false, ASM_IMM_AND, f->mask, f->place);
	asm_immediate(cold, false, ASM_IMM_SUB, 1, f->left);
	asm_jump(cold, ASM_JUMP_NE, &look);
	asm_place_at(none, arch_here(cold));
	x86_emit8(cold, LOCK);
	asm_op_mem(cold, true, 0xff, 0, f->full); /* incq */
	asm_op_reg(cold, false, ASM_XOR_STORE, f->place, f->place);
	asm_jump(cold, ASM_JUMP_ALWAYS, done);
}

static void emit_find(struct emitter *e)
{
	const unsigned shift = (unsigned)e->op->immediate, a = emitter_a(e);
	const bool near = e->op->number + KEYS <= INT32_MAX;
	struct asm_label first = {0}, none = {0}, found = {0}, done = {0};
	struct find f = {.place = e->result, .key = e->temps[0], .left = e->temps[1]};

	if (shift < 1 || shift > TABLE_SHIFT_MAX) {
		x86_fail(e->out, ARCH_REFUSED);
		return;
	}
	f.mask = (1 << shift) - 1;
	f.slot = (struct asm_mem){near ? ASM_NO_BASE : e->temps[2], (int)f.place, 8,
				  near ? (int32_t)e->op->number + KEYS : KEYS};
	f.full = near ? asm_absolute((int32_t)e->op->number + FULL) : asm_at(e->temps[2], FULL);
	emitter_number(e, e->out, f.place, 0x9e3779b97f4a7c15ull); /* arch_table_hash() */
	asm_op_reg(e->out, true, 0x0faf, f.place, a);
	asm_shift(e->out, true, false, f.place, 64 - shift);
	if (!near)
		emitter_number(e, e->out, e->temps[2], e->op->number);
	emitter_move(e->out, a, f.key);
	asm_immediate(e->out, true, ASM_IMM_ADD, 1, f.key);
	asm_jump(e->out, ASM_JUMP_C, &none);
	asm_op_mem(e->out, true, ASM_CMP_STORE, f.key, f.slot);
	asm_jump(e->out, ASM_JUMP_NE, &first);
	asm_place(e->out, &found);
	asm_immediate(e->out, false, ASM_IMM_ADD, 1, f.place);
	asm_place(e->out, &done);
	emit_probe(e, &f, &first, &none, &found, &done);
}

bool memory_emit(struct emitter *e)
{
	switch (e->op->kind) {
	case ARCH_OP_LOAD:
		emit_load(e);
		return true;
	case ARCH_OP_STORE:
	case ARCH_OP_ATOMIC_STORE: /* an aligned store is whole */
		emit_store(e);
		return true;
	case ARCH_OP_FETCH_ADD:
		emit_fetch_add(e);
		return true;
	case ARCH_OP_ATOMIC_ADD:
		emit_add(e, true, emitter_address(e, e->temps[0]));
		return true;
	case ARCH_OP_COUNT:
		emit_count(e);
		return true;
	case ARCH_OP_FIND:
		emit_find(e);
		return true;
	default:
		if (!is_extreme(e->op->kind))
			return false;
		emit_extreme(e);
		return true;
	}
}
