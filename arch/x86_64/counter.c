/* SPDX-License-Identifier: MIT */
/*
 * counter.c - counter cells: mini trampolines that count in a restartable
 * sequence. The kernel may look at a cell's descriptor, and abort its
 * sequence, at any time and long after the cell was last used: geometry and
 * descriptor never change, whatever the cell does (registers, saves, mode).
 *
 *	  0  struct rseq_cs: version, flags, start_ip, post_commit_offset, abort_ip
 *	 32  signature, as registered
 *	 36  abort_ip: jmp back to 64
 *	 38  locked path: lock incq; jmp to the commit point      (11 bytes)
 *	 50  where the code is entered, and what it saves         (2 bytes, data)
 *	 52  saves, right-aligned: they end at 64                 (at most 12 bytes)
 *	 64  lea descriptor(%rip),%r; mov %r,%fs:rseq_cs          (16 bytes)
 *	 80  start_ip: mov cpu_id; cmp; jae locked; shl; incq     (29 bytes)
 *	109  commit point: restores, then the slot                (at most 19 bytes)
 *	128
 *
 * With a dead register and dead flags the hot code is one cache line. A cell
 * of mode ARCH_COUNT_LOCKED never executes the sequence: its code lies in
 * front of it and jumps to the commit point.
 */
#include <string.h>

#include "arch/x86_64/x86.h"

enum {
	CELL_SIGNATURE = 32,
	CELL_ABORT = 36,
	CELL_LOCKED = 38,
	CELL_ENTRY_BYTE = 50,
	CELL_SAVES_BYTE = 51,
	CELL_CODE = 52,
	CELL_RESTART = 64,
	CELL_START = 80,
	CELL_COMMIT = 109,
	CELL_SLOT = 124,

	/* struct rseq (include/uapi/linux/rseq.h): offsets of its members */
	RSEQ_CPU_ID = 4,
	RSEQ_CS = 8,

	RED_ZONE = 128,
};

/* What a cell saves and restores, also written into the cell for arch_cell_pushed(). */
enum cell_saves {
	SAVE_RED_ZONE = 1 << 0, /* steps over the red zone */
	SAVE_SCRATCH = 1 << 1,	/* pushes the scratch register */
	SAVE_RAX = 1 << 2,	/* pushes rax, which carries the flags */
	SAVE_FLAGS = 1 << 3,	/* lahf ... sahf */
	SAVE_OVERFLOW = 1 << 4, /* seto ... add */
	SAVE_LOCKED = 1 << 5,	/* mode ARCH_COUNT_LOCKED */
};

struct cell_plan {
	unsigned saves;	  /* enum cell_saves */
	unsigned scratch; /* register number */
};

/* Never rsp; not r12, whose ModRM form is a byte longer. Callee-saved registers last. */
static unsigned choose_scratch(arch_regset live, bool not_rax, bool *dead)
{
	static const uint8_t order[] = {R11, R10, RAX, RCX, RDX, RSI, RDI,
					R8,  R9,  RBX, RBP, R13, R14, R15};

	*dead = true;
	for (size_t i = 0; i < sizeof(order); i++)
		if (!(live & SET(order[i])) && !(not_rax && order[i] == RAX))
			return order[i];
	*dead = false;
	return R11;
}

static struct cell_plan make_plan(const struct arch_counter *spec)
{
	struct cell_plan plan = {0};
	bool dead;

	if (spec->live & SET_FLAGS & ~FLAG_OF)
		plan.saves |= SAVE_FLAGS;
	if (spec->live & FLAG_OF)
		plan.saves |= SAVE_FLAGS | SAVE_OVERFLOW;
	if ((plan.saves & SAVE_FLAGS) && (spec->live & SET(RAX)))
		plan.saves |= SAVE_RAX;
	if (spec->mode == ARCH_COUNT_LOCKED) {
		plan.saves |= SAVE_LOCKED;
	} else {
		plan.scratch = choose_scratch(spec->live, plan.saves & SAVE_FLAGS, &dead);
		if (!dead)
			plan.saves |= SAVE_SCRATCH;
	}
	if (spec->red_zone && (plan.saves & (SAVE_SCRATCH | SAVE_RAX)))
		plan.saves |= SAVE_RED_ZONE;
	return plan;
}

static void emit_push_pop(struct arch_buf *out, unsigned opcode, unsigned reg)
{
	if (reg >= 8)
		x86_emit8(out, 0x41);
	x86_emit8(out, opcode | (reg & 7));
}

static void emit_saves(struct arch_buf *out, const struct cell_plan *plan)
{
	static const uint8_t step_over[] = {0x48, 0x8d, 0x64, 0x24, 0x80}; /* lea -128(%rsp),%rsp */
	static const uint8_t seto[] = {0x0f, 0x90, 0xc0};

	if (plan->saves & SAVE_RED_ZONE)
		x86_emit(out, step_over, sizeof(step_over));
	if (plan->saves & SAVE_SCRATCH)
		emit_push_pop(out, 0x50, plan->scratch);
	if (plan->saves & SAVE_RAX)
		x86_emit8(out, 0x50);
	if (plan->saves & SAVE_FLAGS)
		x86_emit8(out, 0x9f);
	if (plan->saves & SAVE_OVERFLOW)
		x86_emit(out, seto, sizeof(seto));
}

static void emit_restores(struct arch_buf *out, const struct cell_plan *plan)
{
	static const uint8_t step_back[] = {0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0};
	static const uint8_t overflow[] = {0x04, 0x7f}; /* add $127,%al: OF if al is 1 */

	if (plan->saves & SAVE_OVERFLOW)
		x86_emit(out, overflow, sizeof(overflow));
	if (plan->saves & SAVE_FLAGS)
		x86_emit8(out, 0x9e);
	if (plan->saves & SAVE_RAX)
		x86_emit8(out, 0x58);
	if (plan->saves & SAVE_SCRATCH)
		emit_push_pop(out, 0x58, plan->scratch);
	if (plan->saves & SAVE_RED_ZONE)
		x86_emit(out, step_back, sizeof(step_back));
}

/* mov between a register and %fs:disp32, always nine bytes. */
static void emit_thread_move(struct arch_buf *out, unsigned opcode, bool wide, unsigned reg,
			     int64_t offset)
{
	if (!x86_fits32(offset))
		x86_fail(out, ARCH_OUT_OF_RANGE);
	x86_emit8(out, 0x64);
	x86_emit8(out, 0x40 | (wide ? REX_W : 0) | (reg >= 8 ? REX_R : 0));
	x86_emit8(out, opcode);
	x86_emit8(out, (reg & 7) << 3 | 4);
	x86_emit8(out, 0x25);
	x86_emit32(out, offset);
}

static void emit_short_jump(struct arch_buf *out, unsigned opcode, size_t to)
{
	x86_emit8(out, opcode);
	x86_emit8(out, to - (out->used + 1));
}

static void emit_descriptor(struct arch_buf *out, const struct arch_counter *spec)
{
	x86_emit32(out, 0); /* version */
	x86_emit32(out, 0); /* flags */
	x86_emit64(out, out->pc + CELL_START);
	x86_emit64(out, CELL_COMMIT - CELL_START);
	x86_emit64(out, out->pc + CELL_ABORT);
	x86_emit32(out, spec->rseq_signature);
	emit_short_jump(out, 0xeb, CELL_RESTART);
}

static taddr_t locked_slot(const struct arch_counter *spec)
{
	return spec->counter_address + ((uint64_t)spec->cpus << spec->cpu_shift);
}

/* lock incq: by its absolute address below 2 GiB, else relative to the program counter. */
static void emit_locked_increment(struct arch_buf *out, const struct arch_counter *spec)
{
	static const uint8_t absolute[] = {0xf0, 0x48, 0xff, 0x04, 0x25};
	static const uint8_t relative[] = {0xf0, 0x48, 0xff, 0x05};
	taddr_t slot = locked_slot(spec);

	if (slot <= INT32_MAX) {
		x86_emit(out, absolute, sizeof(absolute));
		x86_emit32(out, slot);
	} else {
		x86_emit(out, relative, sizeof(relative));
		x86_emit_relative(out, slot);
	}
}

/* From CELL_RESTART to CELL_COMMIT. Always the same length, whatever the register. */
static void emit_sequence(struct arch_buf *out, const struct arch_counter *spec, unsigned r)
{
	const unsigned rex_b = r >= 8 ? REX_B : 0;

	x86_emit8(out, 0x48 | (r >= 8 ? REX_R : 0)); /* lea descriptor(%rip),%r */
	x86_emit8(out, 0x8d);
	x86_emit8(out, (r & 7) << 3 | 5);
	x86_emit_relative(out, out->pc + ARCH_CELL_DESCRIPTOR);
	emit_thread_move(out, 0x89, true, r, spec->rseq_offset + RSEQ_CS);

	emit_thread_move(out, 0x8b, false, r, spec->rseq_offset + RSEQ_CPU_ID);
	x86_emit8(out, 0x40 | rex_b); /* cmp $cpus,%r32: negative is above, too */
	x86_emit8(out, 0x81);
	x86_emit8(out, 0xf8 | (r & 7));
	x86_emit32(out, spec->cpus);
	emit_short_jump(out, 0x73, CELL_LOCKED);
	x86_emit8(out, 0x40 | rex_b); /* shl $cpu_shift,%r32 */
	x86_emit8(out, 0xc1);
	x86_emit8(out, 0xe0 | (r & 7));
	x86_emit8(out, spec->cpu_shift);
	x86_emit8(out, 0x48 | rex_b); /* incq counter(%r) */
	x86_emit8(out, 0xff);
	x86_emit8(out, 0x80 | (r & 7));
	x86_emit32(out, spec->counter_address);
}

/* Bytes that are never executed: each of them faults where control gets there by mistake. */
static void emit_unused(struct arch_buf *out, size_t until)
{
	while (out->status == ARCH_OK && out->used < until)
		x86_emit8(out, 0x06);
}

static size_t saves_size(const struct cell_plan *plan)
{
	uint8_t bytes[16];
	struct arch_buf probe = {.bytes = bytes, .size = sizeof(bytes)};

	emit_saves(&probe, plan);
	return probe.used;
}

/* The code between CELL_CODE and CELL_COMMIT; returns where it is entered. */
static size_t emit_per_cpu(struct arch_buf *out, const struct arch_counter *spec,
			   const struct cell_plan *plan)
{
	size_t entry = CELL_RESTART - saves_size(plan);

	if (locked_slot(spec) > INT32_MAX)
		x86_fail(out, ARCH_OUT_OF_RANGE);
	emit_unused(out, entry);
	emit_saves(out, plan);
	emit_sequence(out, spec, plan->scratch);
	return entry;
}

static size_t emit_locked(struct arch_buf *out, const struct arch_counter *spec,
			  const struct cell_plan *plan)
{
	size_t increment = locked_slot(spec) <= INT32_MAX ? 9 : 8;
	size_t entry = CELL_START - 2 - increment - saves_size(plan);

	emit_unused(out, entry);
	emit_saves(out, plan);
	emit_locked_increment(out, spec);
	emit_short_jump(out, 0xeb, CELL_COMMIT);
	emit_unused(out, CELL_COMMIT);
	return entry;
}

static void emit_cell(struct arch_buf *out, const struct arch_counter *spec, taddr_t next,
		      struct arch_cell *cell)
{
	struct cell_plan plan = make_plan(spec);
	size_t entry;

	emit_descriptor(out, spec);
	emit_locked_increment(out, spec);
	emit_short_jump(out, 0xeb, CELL_COMMIT);
	emit_unused(out, CELL_CODE);
	entry = plan.saves & SAVE_LOCKED ? emit_locked(out, spec, &plan)
					 : emit_per_cpu(out, spec, &plan);
	emit_restores(out, &plan);
	cell->slot = arch_emit_slot(out, next);
	emit_unused(out, ARCH_CELL_SIZE);
	cell->entry = entry;
	cell->code_begin = CELL_ABORT;
	cell->code_end = cell->slot + 4;
	if (out->status == ARCH_OK) {
		out->bytes[CELL_ENTRY_BYTE] = entry;
		out->bytes[CELL_SAVES_BYTE] = plan.saves;
	}
}

void arch_emit_counter_cell(struct arch_buf *out, const struct arch_counter *spec, taddr_t next,
			    struct arch_cell *cell)
{
	uint8_t bytes[ARCH_CELL_SIZE];
	struct arch_buf own = {.bytes = bytes, .size = sizeof(bytes), .pc = arch_here(out)};
	struct arch_cell made = {0};

	emit_cell(&own, spec, next, &made);
	if (own.status != ARCH_OK) {
		x86_fail(out, own.status);
		return;
	}
	x86_emit(out, bytes, sizeof(bytes));
	*cell = made;
}

/* One instruction of the saves or of the restores. */
struct cell_step {
	unsigned save; /* enum cell_saves: it is there only where this is set */
	unsigned length;
	unsigned bytes; /* of stack */
};

/* The bytes of stack that the steps up to `offset` have taken or given back. */
static size_t steps_done(const struct cell_step *steps, size_t count, unsigned saves, size_t at,
			 size_t offset)
{
	size_t bytes = 0;

	for (size_t i = 0; i < count; i++) {
		if (!(saves & steps[i].save))
			continue;
		at += steps[i].length;
		if (offset >= at)
			bytes += steps[i].bytes;
	}
	return bytes;
}

size_t arch_cell_pushed(const uint8_t *cell, size_t offset)
{
	const unsigned saves = cell[CELL_SAVES_BYTE];
	const size_t entry = cell[CELL_ENTRY_BYTE];
	const size_t push = entry + (saves & SAVE_RED_ZONE ? 5 : 0);
	unsigned scratch;

	if (entry < CELL_CODE || entry >= CELL_START || offset >= ARCH_CELL_SIZE)
		return 0;
	scratch = cell[push] == 0x41 ? 2 : 1;
	const struct cell_step in[] = {
		{SAVE_RED_ZONE, 5, RED_ZONE},
		{SAVE_SCRATCH, scratch, 8},
		{SAVE_RAX, 1, 8},
	};
	const struct cell_step out[] = {
		{SAVE_OVERFLOW, 2, 0},	    {SAVE_FLAGS, 1, 0},		  {SAVE_RAX, 1, 8},
		{SAVE_SCRATCH, scratch, 8}, {SAVE_RED_ZONE, 8, RED_ZONE},
	};

	/* The abort handler and the locked path lie in front: all saves are done there. */
	if (offset < CELL_CODE)
		offset = CELL_START;
	return steps_done(in, sizeof(in) / sizeof(in[0]), saves, entry, offset) -
	       steps_done(out, sizeof(out) / sizeof(out[0]), saves, CELL_COMMIT, offset);
}
