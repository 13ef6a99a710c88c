/* SPDX-License-Identifier: MIT */
/*
 * counter.c - counter cells: mini trampolines that count in a restartable
 * sequence. The kernel may look at a cell's descriptor, and abort its
 * sequence, at any time and long after the cell was last used: geometry and
 * descriptor never change, whatever the cell does (registers, saves, mode).
 * Three registers a, b, c are used: dead ones, or saved on the stack.
 *
 *	  0  struct rseq_cs: version, flags, start_ip, post_commit_offset, abort_ip
 *	 32  signature, as registered
 *	 36  abort_ip, locked path:
 *	     1: ldxr a,[c]; add a,a,#1; stxr b,a,[c]; cbnz b,1b; b commit point
 *	 56  right-aligned, entered at its beginning: saves; mrs a,tpidr_el0;
 *	     sub a,a,#pages; adr b,descriptor; str b,[a,#rseq_cs];
 *	     c = address of the locked slot (movz, movk)
 *	 88  start_ip: ldr b,[a,#cpu_id]; sub a,b,#cpus; tbz a,#63,locked;
 *	     add b,c,a,lsl #cpu_shift; ldr a,[b]; add a,a,#1; str a,[b]
 *	116  commit point: restores, then the slot
 *	128
 *
 * The slot of a CPU is addressed from the locked one, by cpu - cpus, which is
 * negative just where the thread has a CPU id; so c is good for both paths and
 * an aborted sequence may go on in the locked one. No flag is touched. With
 * all three registers dead the hot code is one cache line. A cell of mode
 * ARCH_COUNT_LOCKED never executes the sequence.
 */
#include <string.h>

#include "arch/aarch64/a64.h"

enum {
	CELL_SIGNATURE = 32,
	CELL_ABORT = 36,
	CELL_BEFORE = 56, /* the room in front of the sequence */
	CELL_START = 88,
	CELL_COMMIT = 116,

	/* struct rseq (include/uapi/linux/rseq.h): offsets of its members */
	RSEQ_CPU_ID = 4,
	RSEQ_CS = 8,

	SCRATCH = 3,
	IMMEDIATE_MAX = 4095,
	SHIFTED = 1 << 22, /* add, sub: the number is shifted left by 12 */
};

#define PUSH_PAIR 0xa9800000u /* stp x, x, [n, #imm]! */
#define POP_PAIR  0xa8c00000u /* ldp x, x, [n], #imm */

/* Registers a, b, c: the `saved` ones stand first. */
struct cell_plan {
	unsigned reg[SCRATCH];
	unsigned saved;
};

/* Never sp, x29, x30, nor the platform's x18. Callee-saved registers last. */
static struct cell_plan make_plan(arch_regset live)
{
	static const uint8_t order[] = {17, 16, 15, 14, 13, 12, 11, 10, 9,  8,	7,  6,	5,  4,
					3,  2,	1,  0,	19, 20, 21, 22, 23, 24, 25, 26, 27, 28};
	struct cell_plan plan = {.saved = 0};
	unsigned dead[SCRATCH], count = 0;

	for (size_t i = 0; i < sizeof(order) && count < SCRATCH; i++)
		if (!(live & SET(order[i])))
			dead[count++] = order[i];
	for (size_t i = 0; i < sizeof(order) && plan.saved + count < SCRATCH; i++)
		if (live & SET(order[i]))
			plan.reg[plan.saved++] = order[i];
	for (unsigned i = 0; i < count; i++)
		plan.reg[plan.saved + i] = dead[i];
	return plan;
}

static uint32_t pair(uint32_t opcode, const unsigned *reg, int bytes)
{
	return opcode | (uint32_t)(bytes / 8 & 127) << 15 | reg[1] << 10 | SP << 5 | reg[0];
}

static void emit_saves(struct arch_buf *out, const struct cell_plan *plan)
{
	if (plan->saved == 1)
		a64_emit(out, a64_push(plan->reg[0], 16));
	if (plan->saved == 2)
		a64_emit(out, pair(PUSH_PAIR, plan->reg, -16));
	if (plan->saved == 3) {
		a64_emit(out, pair(PUSH_PAIR, plan->reg, -32));
		a64_emit(out, a64_str(plan->reg[2], SP, 16));
	}
}

static void emit_restores(struct arch_buf *out, const struct cell_plan *plan)
{
	if (plan->saved == 1)
		a64_emit(out, a64_pop(plan->reg[0], 16));
	if (plan->saved == 2)
		a64_emit(out, pair(POP_PAIR, plan->reg, 16));
	if (plan->saved == 3) {
		a64_emit(out, a64_ldr(plan->reg[2], SP, 16));
		a64_emit(out, pair(POP_PAIR, plan->reg, 32));
	}
}

static void emit64(struct arch_buf *out, uint64_t value)
{
	a64_emit(out, (uint32_t)value);
	a64_emit(out, value >> 32);
}

static void emit_descriptor(struct arch_buf *out, const struct arch_counter *spec)
{
	emit64(out, 0); /* version and flags */
	emit64(out, out->pc + CELL_START);
	emit64(out, CELL_COMMIT - CELL_START);
	emit64(out, out->pc + CELL_ABORT);
	a64_emit(out, spec->rseq_signature);
}

static taddr_t locked_slot(const struct arch_counter *spec)
{
	return spec->counter_address + ((uint64_t)spec->cpus << spec->cpu_shift);
}

static void emit_locked_path(struct arch_buf *out, const struct cell_plan *plan)
{
	unsigned a = plan->reg[0], b = plan->reg[1], c = plan->reg[2];

	a64_emit(out, 0xc85f7c00 | c << 5 | a); /* ldxr */
	a64_emit(out, a64_add(a, a, 1));
	a64_emit(out, 0xc8007c00 | b << 16 | c << 5 | a); /* stxr */
	a64_emit(out, a64_cbnz_w(b, -3));
	arch_emit_jump(out, out->pc + CELL_COMMIT);
}

/*
 * The pages of an offset into a register, in at most one word; the two accesses
 * carry what is left, which is returned.
 */
static unsigned emit_pages(struct arch_buf *out, unsigned reg, int64_t offset)
{
	unsigned left = (unsigned)(offset & 4095);
	int64_t pages = (offset - left) / 4096;

	if (pages > IMMEDIATE_MAX || pages < -IMMEDIATE_MAX || (left & 7))
		a64_fail(out, ARCH_OUT_OF_RANGE);
	else if (pages > 0)
		a64_emit(out, a64_add(reg, reg, (unsigned)pages) | SHIFTED);
	else if (pages < 0)
		a64_emit(out, a64_sub(reg, reg, (unsigned)-pages) | SHIFTED);
	return left;
}

/*
 * From the entry to start_ip. Returns what is left of the distance from a to
 * struct rseq, for the two accesses to carry.
 */
static unsigned emit_before(struct arch_buf *out, const struct arch_counter *spec,
			    const struct cell_plan *plan, taddr_t cell)
{
	unsigned a = plan->reg[0], b = plan->reg[1], c = plan->reg[2];
	unsigned left;

	emit_saves(out, plan);
	a64_emit(out, 0xd53bd040 | a); /* mrs a, tpidr_el0 */
	left = emit_pages(out, a, spec->rseq_offset);
	a64_emit_address(out, b, cell + ARCH_CELL_DESCRIPTOR);
	a64_emit(out, a64_str(b, a, left + RSEQ_CS));
	a64_emit_constant(out, c, locked_slot(spec));
	return left;
}

static void emit_sequence(struct arch_buf *out, const struct arch_counter *spec,
			  const struct cell_plan *plan, unsigned left)
{
	unsigned a = plan->reg[0], b = plan->reg[1], c = plan->reg[2];
	int64_t back = (int64_t)CELL_ABORT - (CELL_START + 2 * A64_SIZE);

	if (spec->cpus > IMMEDIATE_MAX || spec->cpu_shift > 31)
		a64_fail(out, ARCH_OUT_OF_RANGE);
	a64_emit(out, a64_ldr_w(b, a, left + RSEQ_CPU_ID)); /* zero-extended: -1 is large */
	a64_emit(out, a64_sub(a, b, spec->cpus & IMMEDIATE_MAX));
	a64_emit(out, 0xb6f80000 | a64_field(back, 5, 14) | a); /* tbz a, #63 */
	a64_emit(out, 0x8b000000 | a << 16 | (spec->cpu_shift & 31) << 10 | c << 5 | b);
	a64_emit(out, a64_ldr(a, b, 0));
	a64_emit(out, a64_add(a, a, 1));
	a64_emit(out, a64_str(a, b, 0));
}

/* Words that are never executed: each of them is udf. */
static void emit_unused(struct arch_buf *out, size_t until)
{
	while (out->status == ARCH_OK && out->used < until)
		a64_emit(out, 0);
}

/* The code between CELL_BEFORE and CELL_COMMIT; returns where it is entered. */
static size_t emit_per_cpu(struct arch_buf *out, const struct arch_counter *spec,
			   const struct cell_plan *plan)
{
	uint8_t bytes[CELL_START - CELL_BEFORE];
	struct arch_buf probe = {.bytes = bytes, .size = sizeof(bytes), .pc = out->pc};
	size_t entry;
	unsigned left;

	/* Wherever in the cell: the descriptor is in reach of adr. */
	emit_before(&probe, spec, plan, out->pc);
	if (probe.status != ARCH_OK || locked_slot(spec) > INT32_MAX)
		a64_fail(out, ARCH_OUT_OF_RANGE);
	entry = CELL_START - probe.used;
	emit_unused(out, entry);
	left = emit_before(out, spec, plan, out->pc);
	emit_sequence(out, spec, plan, left);
	return entry;
}

static size_t emit_locked(struct arch_buf *out, const struct arch_counter *spec,
			  const struct cell_plan *plan)
{
	emit_saves(out, plan);
	a64_emit_address(out, plan->reg[2], locked_slot(spec));
	arch_emit_jump(out, out->pc + CELL_ABORT);
	if (out->used > CELL_START)
		a64_fail(out, ARCH_NO_ROOM);
	emit_unused(out, CELL_COMMIT);
	return CELL_BEFORE;
}

static void emit_cell(struct arch_buf *out, const struct arch_counter *spec, taddr_t next,
		      struct arch_cell *cell)
{
	struct cell_plan plan = make_plan(spec->live);

	emit_descriptor(out, spec);
	emit_locked_path(out, &plan);
	cell->entry = spec->mode == ARCH_COUNT_LOCKED ? emit_locked(out, spec, &plan)
						      : emit_per_cpu(out, spec, &plan);
	emit_restores(out, &plan);
	cell->slot = arch_emit_slot(out, next);
	emit_unused(out, ARCH_CELL_SIZE);
	cell->code_begin = CELL_ABORT;
	cell->code_end = cell->slot + A64_SIZE;
}

void arch_emit_counter_cell(struct arch_buf *out, const struct arch_counter *spec, taddr_t next,
			    struct arch_cell *cell)
{
	uint8_t bytes[ARCH_CELL_SIZE];
	struct arch_buf own = {.bytes = bytes, .size = sizeof(bytes), .pc = arch_here(out)};
	struct arch_cell made = {0};

	emit_cell(&own, spec, next, &made);
	if (own.status != ARCH_OK) {
		a64_fail(out, own.status);
		return;
	}
	a64_emit_bytes(out, bytes, sizeof(bytes));
	*cell = made;
}

/* The bytes that a word takes from the stack (a save) or gives back to it (a restore). */
static size_t stack_bytes(uint32_t w, bool is_save)
{
	int64_t moved;

	if ((w & 0xffc003e0) == ((is_save ? PUSH_PAIR : POP_PAIR) | SP << 5))
		moved = 8 * a64_signed(w, 15, 7);
	else if ((w & 0xffe00fe0) == (is_save ? 0xf8000fe0 : 0xf84007e0))
		moved = a64_signed(w, 12, 9);
	else
		return 0;
	return is_save ? -moved : moved;
}

size_t arch_cell_pushed(const uint8_t *cell, size_t offset)
{
	size_t save, restore = CELL_COMMIT, bytes = 0;

	for (save = CELL_BEFORE; save < CELL_START; save += A64_SIZE)
		if ((bytes = stack_bytes(a64_load(cell + save), true)))
			break;
	if (!bytes)
		return 0;
	if (!stack_bytes(a64_load(cell + restore), false))
		restore += A64_SIZE;
	/* The abort handler and the locked path lie in front: all saves are done there. */
	if (offset < CELL_BEFORE)
		return offset >= CELL_ABORT ? bytes : 0;
	return offset > save && offset <= restore ? bytes : 0;
}
