/* SPDX-License-Identifier: MIT */
/*
 * program_memory.c - operations of programs on memory of ours: words, counters,
 * tables. What must be whole is done with exclusive loads and stores, of which
 * any interruption makes the store fail.
 */
#include "arch/aarch64/emitter.h"

enum {
	KEYS = 16, /* offset of struct arch_table's keys */
	FULL = 8,
	TABLE_SHIFT_MAX = 30,
	OFFSETS = 4096, /* of an access, in units of its size */
};

static unsigned size_of(const struct arch_op *op)
{
	const bool any = op->kind == ARCH_OP_LOAD || op->kind == ARCH_OP_STORE;

	return any && op->size ? op->size : 8;
}

/* log2 of 1, 2, 4, 8; refused else. */
static unsigned scale_of(struct emitter *e)
{
	switch (size_of(e->op)) {
	case 1:
		return 0;
	case 2:
		return 1;
	case 4:
		return 2;
	case 8:
		return 3;
	default:
		a64_fail(e->out, ARCH_REFUSED);
		return 3;
	}
}

/* The offset has room in the instruction. */
static bool is_near(const struct arch_op *op)
{
	return op->a && op->number % size_of(op) == 0 &&
	       op->number < (uint64_t)OFFSETS * size_of(op);
}

static bool stores_zero(const struct arch_op *op)
{
	return (op->kind == ARCH_OP_STORE || op->kind == ARCH_OP_ATOMIC_STORE) && !op->b &&
	       !op->immediate;
}

static void wish_update(const struct arch_op *op, struct register_wish *wish)
{
	const bool is_short = op->kind != ARCH_OP_ATOMIC_MIN && op->kind != ARCH_OP_ATOMIC_MAX &&
			      arithmetic_is_short(op);

	/* The address, the constant, the old word where nobody wants it, the new one, success. */
	wish->temps =
		wish_address(op) + (is_short ? 0 : wish_b(op)) + (registers_result(op) ? 2 : 3);
	wish->early = true;
}

bool memory_wish(const struct arch_op *op, struct register_wish *wish)
{
	switch (op->kind) {
	case ARCH_OP_LOAD:
		wish->temps = is_near(op) ? 0 : 1;
		return true;
	case ARCH_OP_STORE:
	case ARCH_OP_ATOMIC_STORE:
		wish->temps = (is_near(op) ? 0 : 1) + (stores_zero(op) ? 0 : wish_b(op));
		return true;
	case ARCH_OP_FETCH_ADD:
	case ARCH_OP_ATOMIC_ADD:
	case ARCH_OP_ATOMIC_MIN:
	case ARCH_OP_ATOMIC_MAX:
		wish_update(op, wish);
		return true;
	case ARCH_OP_COUNT:
		wish->temps = 3 + (arithmetic_is_short(op) && op->immediate >= 0 ? 0 : wish_b(op));
		return true;
	case ARCH_OP_FIND:
		wish->temps = 4;
		wish->early = true;
		return true;
	default:
		return false;
	}
}

/* ------------------------------------------------------------ plain words */

/* An access: `opcode` is that with an offset in the instruction, unscaled size bits left out. */
static void emit_access(struct emitter *e, uint32_t opcode, unsigned reg)
{
	const unsigned scale = scale_of(e);
	const uint32_t sized = opcode | scale << 30;
	unsigned temp;

	if (is_near(e->op)) {
		a64_emit(e->out, sized | (uint32_t)(e->op->number >> scale) << 10 |
					 emitter_a(e) << 5 | reg);
		return;
	}
	temp = emitter_temp(e);
	a64_emit_constant(e->out, temp, e->op->number);
	if (e->op->a) /* [a, temp] */
		a64_emit(e->out,
			 asm_three((sized & ~0x01000000u) | 0x00206800, reg, emitter_a(e), temp));
	else
		a64_emit(e->out, sized | temp << 5 | reg);
}

static void emit_load(struct emitter *e)
{
	const bool is_signed = e->op->is_signed && size_of(e->op) < 8;

	emit_access(e, is_signed ? 0x39800000 : 0x39400000, e->result);
}

static void emit_store(struct emitter *e)
{
	emit_access(e, 0x39000000, stores_zero(e->op) ? ZR : emitter_b(e));
}

/* --------------------------------------------------------- exclusive ones */

static void emit_load_exclusive(struct arch_buf *out, unsigned reg, unsigned address)
{
	a64_emit(out, 0xc85f7c00 | address << 5 | reg);
}

static void emit_store_exclusive(struct arch_buf *out, unsigned success, unsigned reg,
				 unsigned address)
{
	a64_emit(out, 0xc8007c00 | success << 16 | address << 5 | reg);
}

static void emit_update(struct emitter *e)
{
	const struct arch_op *op = e->op;
	const bool is_add = op->kind == ARCH_OP_FETCH_ADD || op->kind == ARCH_OP_ATOMIC_ADD;
	const bool is_short = is_add && arithmetic_is_short(op);
	const unsigned address = emitter_address(e), b = is_short ? ZR : emitter_b(e);
	const unsigned old =
		op->kind == ARCH_OP_FETCH_ADD && op->result ? e->result : emitter_temp(e);
	const unsigned new = emitter_temp(e), failed = emitter_temp(e);
	struct asm_label again = {0}, done = {0};

	asm_place(e->out, &again);
	emit_load_exclusive(e->out, old, address);
	if (is_short) {
		a64_emit(e->out, op->immediate >= 0 ? a64_add(new, old, (unsigned)op->immediate)
						    : a64_sub(new, old, (unsigned)-op->immediate));
	} else if (is_add) {
		asm_add(e->out, new, old, b, 0);
	} else {
		asm_compare(e->out, b, old);
		asm_branch(e->out, op->kind == ARCH_OP_ATOMIC_MIN ? 0xa : 0xd, &done);
	}
	emit_store_exclusive(e->out, failed, is_add ? new : b, address);
	asm_branch(e->out, ASM_NOT_ZERO | failed, &again);
	asm_place(e->out, &done);
}

/* --------------------------------------------------------------- counters */

static void emit_count(struct emitter *e)
{
	const struct arch_op *op = e->op;
	struct arch_counter spec = e->env->counter;
	struct a64_count count = {
		.index = ARCH_NO_REGISTER,
		.addend = ARCH_NO_REGISTER,
		.pushed = e->frame->pushed,
	};

	for (unsigned i = 0; i < 3; i++)
		count.reg[i] = (uint8_t)emitter_temp(e);
	spec.counter_address = op->number;
	if (op->a)
		count.index = (uint8_t)emitter_a(e);
	if (arithmetic_is_short(op) && op->immediate >= 0)
		count.number = (unsigned)op->immediate;
	else
		count.addend = (uint8_t)emitter_b(e);
	a64_emit_count(&spec, &count, e->out, e->cold);
}

/* ----------------------------------------------------------------- tables */

struct find {
	unsigned place, key, left, at, word;
};

/* Counts that there was no place. */
static void emit_full(struct emitter *e, const struct find *f)
{
	struct asm_label again = {0};

	a64_emit_constant(e->out, f->at, e->op->number + FULL);
	asm_place(e->out, &again);
	emit_load_exclusive(e->out, f->word, f->at);
	a64_emit(e->out, a64_add(f->word, f->word, 1));
	emit_store_exclusive(e->out, f->key, f->word, f->at);
	asm_branch(e->out, ASM_NOT_ZERO | f->key, &again);
}

static void emit_find(struct emitter *e)
{
	const unsigned shift = (unsigned)e->op->immediate, a = emitter_a(e);
	struct asm_label look = {0}, again = {0}, next = {0}, none = {0}, found = {0}, done = {0};
	struct arch_buf *out = e->out;
	struct find f = {.place = e->result};

	if (shift < 1 || shift > TABLE_SHIFT_MAX) {
		a64_fail(out, ARCH_REFUSED);
		return;
	}
	f.key = emitter_temp(e);
	f.left = emitter_temp(e);
	f.at = emitter_temp(e);
	f.word = emitter_temp(e);
	a64_emit_constant(out, f.place, 0x9e3779b97f4a7c15ull); /* arch_table_hash() */
	a64_emit(out, asm_three(0x9b007c00, f.place, f.place, a));
	asm_shift_right(out, f.place, f.place, 64 - shift);
	a64_emit(out, a64_add(f.key, a, 1));
	asm_branch(out, ASM_ZERO | f.key, &none);
	a64_emit_constant(out, f.left, ARCH_TABLE_PROBE);
	asm_place(out, &look);
	a64_emit_constant(out, f.at, e->op->number + KEYS);
	asm_add(out, f.at, f.at, f.place, 3);
	asm_place(out, &again);
	emit_load_exclusive(out, f.word, f.at);
	asm_compare(out, f.word, f.key);
	asm_branch(out, ASM_EQ, &found);
	asm_branch(out, ASM_NOT_ZERO | f.word, &next);
	emit_store_exclusive(out, f.word, f.key, f.at);
	asm_branch(out, ASM_NOT_ZERO | f.word, &again);
	asm_branch(out, ASM_ALWAYS, &found);
	asm_place(out, &next);
	a64_emit(out, a64_add(f.place, f.place, 1));
	asm_cut(out, f.place, shift);
	asm_count_down(out, f.left, 1, &look);
	asm_place(out, &none);
	emit_full(e, &f);
	emitter_move(out, f.place, ZR);
	asm_branch(out, ASM_ALWAYS, &done);
	asm_place(out, &found);
	a64_emit(out, a64_add(f.place, f.place, 1));
	asm_place(out, &done);
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
	case ARCH_OP_ATOMIC_ADD:
	case ARCH_OP_ATOMIC_MIN:
	case ARCH_OP_ATOMIC_MAX:
		emit_update(e);
		return true;
	case ARCH_OP_COUNT:
		emit_count(e);
		return true;
	case ARCH_OP_FIND:
		emit_find(e);
		return true;
	default:
		return false;
	}
}
