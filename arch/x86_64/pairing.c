/* SPDX-License-Identifier: MIT */
/*
 * pairing.c - the routines that keep per-thread records: all of what a
 * function's entry and exit execute that is not the usual case, and what
 * happens to activations that end without an exit. What it does, and why it may
 * be interrupted anywhere, is told in arch/pairing.h. Uses integer registers
 * and plain moves; the only locked instructions are in ways that are seldom
 * gone. The usual case is in pairing_snippets.c.
 */
#include "arch/pairing.h"

#include <stddef.h>

#include "arch/x86_64/pairing_private.h"

const uint32_t arch_rseq_signature = 0x53053053;

/* glibc's and musl's struct pthread begins at the thread pointer; TLS lies below. */
const int64_t arch_thread_block_lo = 0, arch_thread_block_hi = 4096;
const int64_t arch_musl_links = 16, arch_musl_id = 48;

bool arch_thread_pointer_is_sane(taddr_t pointer, uint64_t first)
{
	return pointer && first == pointer;
}

/* The routines find everything anew behind an undo routine, but these. */
const uint8_t arch_undo_record = R10;
const arch_regset arch_undo_live =
	SET_ALL & ~(SET_FLAGS | SET(RAX) | SET(RCX) | SET(RSI) | SET(RDI));

void arch_emit_undo_return(struct arch_buf *out)
{
	x86_emit8(out, 0xc3);
}

/* ------------------------------------------------------------- the pieces */

/* Goes to `elsewhere` unless the tag is on the thread's own stack. Destroys rax. */
static void emit_is_home(struct arch_buf *out, struct asm_label *elsewhere)
{
	asm_move(out, RDX, RAX);
	asm_op_mem(out, true, ASM_SUB_LOAD, RAX, asm_at(R10, LO));
	asm_op_mem(out, true, ASM_CMP_LOAD, RAX, asm_at(R10, SIZE));
	asm_jump(out, ASM_JUMP_NC, elsewhere);
}

/* r8: the highest tag of this stack pointer, rdi: the lowest, which is no function's. */
static void emit_limits(struct arch_buf *out)
{
	asm_move(out, RDX, R8);
	asm_immediate(out, true, ASM_IMM_OR, (int32_t)PAIR_ID_MASK, R8);
	asm_move(out, RDX, RDI);
	asm_immediate(out, true, ASM_IMM_AND, (int32_t)~PAIR_ID_MASK, RDI);
}

/* rsi: offset of the first place of the tag in `other`; rcx: how many there are. */
static void emit_other(struct arch_buf *out)
{
	asm_move(out, RDX, RAX);
	asm_shift(out, true, false, RAX, PAIR_ID_BITS + 3);
	asm_multiply(out, PAIR_HASH, RAX, RSI);
	asm_shift(out, false, false, RSI, 32 - 7);
	asm_shift(out, false, true, RSI, 4);
	asm_number32(out, RCX, PAIR_OTHER_PROBE);
}

static void emit_other_next(struct arch_buf *out, int32_t step)
{
	asm_immediate(out, false, ASM_IMM_ADD, step * ENTRY, RSI);
	asm_immediate(out, false, ASM_IMM_AND, OTHER_BYTES - ENTRY, RSI);
}

/* Looks for the tag in `other`; falls through where it is not there. */
static void emit_look(struct arch_buf *out, struct asm_label *hit)
{
	struct asm_label look = {0};

	emit_other(out);
	asm_place(out, &look);
	asm_op_mem(out, true, ASM_CMP_STORE, RDX, asm_at_index(R10, RSI, 1, OTHER));
	asm_jump(out, ASM_JUMP_E, hit);
	emit_other_next(out, 1);
	asm_immediate(out, false, ASM_IMM_SUB, 1, RCX);
	asm_jump(out, ASM_JUMP_NE, &look);
}

static void emit_statistic(struct arch_buf *out, const struct arch_pairing *spec, size_t offset)
{
	asm_number64(out, RDI, spec->area);
	asm_load(out, RCX, asm_at(RDI, (int32_t)offset));
	x86_emit8(out, 0xf0);
	asm_op_mem(out, true, 0xff, 0, asm_at(RCX, 0)); /* lock incq */
}

static void emit_return(struct arch_buf *out, bool count)
{
	static const uint8_t notrack_jump_r9[] = {0x3e, 0x41, 0xff, 0xe1};

	x86_emit8(out, count ? 0xf9 : 0xf8); /* stc, clc */
	x86_emit(out, notrack_jump_r9, sizeof(notrack_jump_r9));
}

static void emit_is_mark(struct arch_buf *out, unsigned reg)
{
	asm_op_reg(out, false, 0xf7, 0, reg); /* test $PAIR_ID_MASK,%reg */
	x86_emit32(out, (uint32_t)PAIR_ID_MASK);
}

/* --------------------------------------------------------------- dropping */

/*
 * What activations of other code that was interrupted here are to be undone
 * with: it goes on as if nothing had been. push or pop of each.
 */
static void emit_keep_moments(struct arch_buf *out, bool back)
{
	const int32_t first = offsetof(struct pair_record, dropped_at);
	const int32_t words = 2 + PAIR_CLOCKS;

	for (int32_t i = 0; i < words; i++) {
		const int32_t at = first + 8 * (back ? words - 1 - i : i);

		asm_op_mem(out, false, back ? 0x8f : 0xff, back ? 0 : 6, asm_at(R10, at));
	}
}

/*
 * Runs the undo routine of the activation with tag rax and start rcx, which is
 * not in the record any more, then goes to `next`. Keeps rdx and r8 to r11.
 */
static void emit_undo(struct arch_buf *out, const struct arch_pairing *spec, struct asm_label *next)
{
	static const uint8_t notrack_call_rdi[] = {0x3e, 0xff, 0xd7};

	asm_number64(out, RDI, spec->area);
	asm_load(out, RDI, asm_at(RDI, offsetof(struct pair_config, shared)));
	asm_op_reg(out, true, ASM_TEST, RDI, RDI);
	asm_jump(out, ASM_JUMP_E, next);
	asm_immediate(out, false, ASM_IMM_AND, (int32_t)PAIR_ID_MASK, RAX);
	asm_move32(out, RAX, RSI);
	asm_shift(out, false, false, RSI, PAIR_UNDO_SHIFT);
	asm_load(out, RDI, asm_at_index(RDI, RSI, 8, offsetof(struct pair_shared, undo)));
	asm_op_reg(out, true, ASM_TEST, RDI, RDI);
	asm_jump(out, ASM_JUMP_E, next);
	asm_immediate(out, false, ASM_IMM_AND, (1 << PAIR_UNDO_SHIFT) - 1, RAX);
	asm_load(out, RDI, asm_at_index(RDI, RAX, 8, 0));
	asm_op_reg(out, true, ASM_TEST, RDI, RDI);
	asm_jump(out, ASM_JUMP_E, next);
	emit_keep_moments(out, false);
	asm_store(out, R11, asm_at(R10, offsetof(struct pair_record, dropped_at)));
	asm_store(out, RCX, asm_at(R10, offsetof(struct pair_record, dropped_start)));
	x86_emit(out, notrack_call_rdi, sizeof(notrack_call_rdi));
	emit_keep_moments(out, true);
	asm_jump(out, ASM_JUMP_ALWAYS, next);
}

/* Makes the entry nobody's: by one instruction, so that only one of us and a handler undoes it. */
static void emit_claim(struct arch_buf *out, int32_t table, struct asm_label *taken)
{
	asm_op_reg(out, false, ASM_XOR_STORE, RDI, RDI);
	asm_op_mem(out, true, 0x0fb1, RDI, asm_at_index(R10, RSI, 1, table)); /* cmpxchg */
	asm_jump(out, ASM_JUMP_NE, taken);
}

/*
 * Takes out of `home` what lies behind r8, all of which is dead; then goes to
 * `done`. What is somebody's is first made nobody's, what is nobody's goes. A
 * mark's time becomes r11.
 */
static void emit_drop(struct arch_buf *out, const struct arch_pairing *spec, struct asm_label *done)
{
	struct asm_label next = {0}, mark = {0}, empty = {0};

	asm_place(out, &next);
	asm_load32(out, RSI, asm_at(R10, DEPTH));
	asm_op_reg(out, false, ASM_CMP_STORE, R8, RSI);
	asm_jump(out, ASM_JUMP_BE, done);
	asm_load(out, RCX, asm_at_index(R10, RSI, 1, HOME - ENTRY + START));
	asm_load(out, RAX, asm_at_index(R10, RSI, 1, HOME - ENTRY));
	emit_is_mark(out, RAX);
	asm_jump(out, ASM_JUMP_E, &mark);
	emit_claim(out, HOME - ENTRY, &next);
	emit_undo(out, spec, &next);

	asm_place(out, &mark);
	asm_op_reg(out, true, ASM_TEST, RAX, RAX);
	asm_jump(out, ASM_JUMP_E, &empty);
	asm_op_mem(out, true, ASM_LEA, RAX, asm_at(RCX, 1)); /* 0 or PAIR_INHERITED: no time */
	asm_immediate(out, true, ASM_IMM_CMP, 1, RAX);
	asm_jump(out, ASM_JUMP_BE, &empty);
	asm_move(out, RCX, R11);
	asm_place(out, &empty);
	asm_move32(out, RSI, RAX);
	asm_immediate(out, false, ASM_IMM_SUB, ENTRY, RSI);
	asm_op_mem(out, false, 0x0fb1, RSI, asm_at(R10, DEPTH));
	asm_jump(out, ASM_JUMP_ALWAYS, &next);
}

/*
 * Leaves a mark on the last entry, which ends at rax, with time r11; what is
 * on top of it already is used. rax: the mark's end. Goes to `none` where there
 * is nothing to mark, or no room. Destroys rcx.
 */
static void emit_mark(struct arch_buf *out, struct asm_label *none)
{
	struct asm_label there = {0};

	asm_op_reg(out, false, ASM_TEST, RAX, RAX);
	asm_jump(out, ASM_JUMP_E, none);
	asm_load(out, RCX, asm_at_index(R10, RAX, 1, HOME - ENTRY));
	emit_is_mark(out, RCX);
	asm_jump(out, ASM_JUMP_E, &there);
	asm_immediate(out, false, ASM_IMM_CMP, HOME_BYTES, RAX);
	asm_jump(out, ASM_JUMP_NC, none);
	asm_immediate(out, true, ASM_IMM_AND, (int32_t)~PAIR_ID_MASK, RCX);
	asm_store(out, RCX, asm_at_index(R10, RAX, 1, HOME));
	asm_store(out, R11, asm_at_index(R10, RAX, 1, HOME + START));
	asm_immediate(out, false, ASM_IMM_ADD, ENTRY, RAX);
	asm_store32(out, RAX, asm_at(R10, DEPTH));
	asm_place(out, &there);
	asm_store(out, R11, asm_at_index(R10, RAX, 1, HOME - ENTRY + START));
}

/* --------------------------------------------------------------- entering */

/*
 * r8: the depth without what is dead; rax, rcx, rsi and rdi destroyed. Dead is
 * what was entered below, and at the same stack pointer the same function with
 * all that came after it, and others but where one of the two is PAIR_RAW.
 */
static void emit_scan(struct arch_buf *out)
{
	struct asm_label next = {0}, cut = {0}, gap = {0}, done = {0};

	asm_load32(out, RSI, asm_at(R10, DEPTH));
	asm_move32(out, RSI, RAX);
	asm_place(out, &next);
	asm_load(out, RCX, asm_at_index(R10, RSI, 1, HOME - ENTRY));
	asm_op_reg(out, true, ASM_CMP_STORE, R8, RCX);
	asm_jump(out, ASM_JUMP_A, &done);
	asm_immediate(out, false, ASM_IMM_SUB, ENTRY, RSI);
	asm_op_reg(out, true, ASM_CMP_STORE, RDX, RCX);
	asm_jump(out, ASM_JUMP_E, &cut);
	asm_op_reg(out, true, ASM_CMP_STORE, RDI, RCX);
	asm_jump(out, ASM_JUMP_C, &cut);
	asm_jump(out, ASM_JUMP_E, &gap);
	asm_op_reg(out, false, ASM_OR_STORE, RDX, RCX);
	asm_op_reg(out, false, 0xf7, 0, RCX); /* test $PAIR_RAW,%ecx */
	x86_emit32(out, PAIR_RAW);
	asm_jump(out, ASM_JUMP_E, &cut);
	asm_jump(out, ASM_JUMP_ALWAYS, &next);
	/* A gap that an exit left, or a mark: dead if all above it is. */
	asm_place(out, &gap);
	asm_op_mem(out, false, ASM_LEA, RCX, asm_at(RSI, ENTRY));
	asm_op_reg(out, false, ASM_CMP_STORE, RAX, RCX);
	asm_jump(out, ASM_JUMP_NE, &next);
	asm_place(out, &cut);
	asm_move32(out, RSI, RAX);
	asm_jump(out, ASM_JUMP_ALWAYS, &next);
	asm_place(out, &done);
	asm_move32(out, RAX, R8);
}

enum { ENTER_TRIES = 16 };

/* How often it is tried yet is on top of the stack: no register is left for it. */
static void emit_tries(struct arch_buf *out)
{
	x86_emit8(out, 0x6a); /* push $ENTER_TRIES */
	x86_emit8(out, ENTER_TRIES);
}

static void emit_forget_tries(struct arch_buf *out)
{
	asm_op_mem(out, true, ASM_LEA, RSP, asm_at(RSP, 8));
}

/*
 * On the thread's own stack. A handler in between may have had the place for itself; one that
 * comes at each instruction, because the thread executes itself step by step, has it each time.
 * So that is tried a number of times, and then there is no room.
 */
static void emit_enter_home(struct arch_buf *out, const struct arch_pairing *spec,
			    struct asm_label *full, struct asm_label *none)
{
	struct asm_label again = {0}, clean = {0}, push = {0}, mark = {0};
	struct asm_label disturbed = {0}, no_room = {0};

	emit_tries(out);
	asm_place(out, &again);
	emit_limits(out);
	emit_scan(out);
	emit_drop(out, spec, &clean);

	/* What a mark said of those that were dropped is true of those that may be dead, too. */
	asm_place(out, &clean);
	asm_move32(out, R8, RAX);
	emit_is_mark(out, RDX);
	asm_jump(out, ASM_JUMP_E, &mark);
	asm_op_reg(out, true, ASM_TEST, R11, R11);
	asm_jump(out, ASM_JUMP_E, &push);
	emit_mark(out, &push);
	asm_place(out, &push);
	asm_immediate(out, false, ASM_IMM_CMP, HOME_BYTES, RAX);
	asm_jump(out, ASM_JUMP_NC, &no_room);
	asm_store(out, RDX, asm_at_index(R10, RAX, 1, HOME));
	asm_immediate(out, false, ASM_IMM_ADD, ENTRY, RAX);
	asm_store32(out, RAX, asm_at(R10, DEPTH));
	asm_op_mem(out, true, ASM_CMP_STORE, RDX, asm_at_index(R10, RAX, 1, HOME - ENTRY));
	asm_jump(out, ASM_JUMP_NE, &disturbed);
	asm_store_number(out, true, 0, asm_at_index(R10, RAX, 1, HOME - ENTRY + START));
	asm_op_mem(out, true, ASM_LEA, RAX, asm_at_index(R10, RAX, 1, HOME - ENTRY));
	emit_forget_tries(out);
	emit_return(out, true);

	asm_place(out, &disturbed);
	asm_op_mem(out, false, 0xff, 1, asm_at(RSP, 0)); /* decl */
	asm_jump(out, ASM_JUMP_NE, &again);
	asm_place(out, &no_room);
	emit_forget_tries(out);
	asm_jump(out, ASM_JUMP_ALWAYS, full);

	asm_place(out, &mark);
	emit_forget_tries(out);
	emit_mark(out, none);
	asm_op_mem(out, true, ASM_LEA, RAX, asm_at_index(R10, RAX, 1, HOME - ENTRY));
	emit_return(out, true);
}

/* On another stack. */
static void emit_enter_elsewhere(struct arch_buf *out, const struct arch_pairing *spec,
				 struct asm_label *none)
{
	struct asm_label again = {0}, take = {0}, set = {0}, drop = {0}, mark = {0};

	emit_is_mark(out, RDX);
	asm_jump(out, ASM_JUMP_E, &mark);
	asm_place(out, &again);
	emit_look(out, &drop);
	emit_other(out);
	asm_place(out, &take);
	asm_exchange_if_zero(out, false, RDX, asm_at_index(R10, RSI, 1, OTHER));
	asm_jump(out, ASM_JUMP_E, &set);
	emit_other_next(out, 1);
	asm_immediate(out, false, ASM_IMM_SUB, 1, RCX);
	asm_jump(out, ASM_JUMP_NE, &take);
	/* What stands there may be dead, and cannot be alive for ever. */
	emit_statistic(out, spec, offsetof(struct pair_config, overflow));
	emit_other(out);
	/* The same activation once more: it was left without an exit. */
	asm_place(out, &drop);
	asm_load(out, RCX, asm_at_index(R10, RSI, 1, OTHER + START));
	asm_load(out, RAX, asm_at_index(R10, RSI, 1, OTHER));
	emit_claim(out, OTHER, &again);
	emit_undo(out, spec, &again);

	asm_place(out, &set);
	asm_store_number(out, true, 0, asm_at_index(R10, RSI, 1, OTHER + START));
	asm_op_mem(out, true, ASM_LEA, RAX, asm_at_index(R10, RSI, 1, OTHER));
	emit_return(out, true);

	asm_place(out, &mark);
	asm_load32(out, RAX, asm_at(R10, DEPTH));
	emit_mark(out, none);
	asm_op_mem(out, true, ASM_LEA, RAX, asm_at_index(R10, RAX, 1, HOME - ENTRY));
	emit_return(out, true);
}

static void emit_enter_routine(struct arch_buf *out, const struct arch_pairing *spec)
{
	struct asm_label none = {0}, elsewhere = {0}, full = {0}, nothing = {0};

	pairing_emit_find(out, spec, &none);
	asm_op_reg(out, false, ASM_XOR_STORE, R11, R11);
	emit_is_home(out, &elsewhere);
	emit_enter_home(out, spec, &full, &nothing);
	asm_place(out, &elsewhere);
	emit_enter_elsewhere(out, spec, &nothing);

	asm_place(out, &none);
	emit_statistic(out, spec, offsetof(struct pair_config, lost));
	asm_jump(out, ASM_JUMP_ALWAYS, &nothing);
	asm_place(out, &full);
	emit_statistic(out, spec, offsetof(struct pair_config, overflow));
	asm_place(out, &nothing);
	asm_op_reg(out, false, ASM_XOR_STORE, RAX, RAX);
	emit_return(out, true);
}

/* ---------------------------------------------------------------- leaving */

/*
 * Finds the activation, drops what was entered below it, and takes it out unless it `stays`.
 * What another function entered at the same stack pointer afterwards stays; then a
 * gap is left. Leaves its start in rcx, or goes to `orphan`.
 */
static void emit_leave_home(struct arch_buf *out, const struct arch_pairing *spec, bool stays,
			    struct asm_label *orphan, struct asm_label *judge)
{
	struct asm_label again = {0}, next = {0}, hit = {0}, last = {0}, take = {0}, pop = {0};

	asm_place(out, &again);
	emit_limits(out);
	asm_load32(out, RSI, asm_at(R10, DEPTH));
	asm_op_reg(out, false, ASM_XOR_STORE, RAX, RAX);
	asm_place(out, &next);
	asm_load(out, RCX, asm_at_index(R10, RSI, 1, HOME - ENTRY));
	asm_op_reg(out, true, ASM_CMP_STORE, R8, RCX);
	asm_jump(out, ASM_JUMP_A, orphan);
	asm_immediate(out, false, ASM_IMM_SUB, ENTRY, RSI);
	asm_op_reg(out, true, ASM_CMP_STORE, RDX, RCX);
	asm_jump(out, ASM_JUMP_E, &hit);
	asm_op_reg(out, true, ASM_CMP_STORE, RDI, RCX);
	asm_jump(out, ASM_JUMP_BE, &next); /* below, or a gap or mark */
	asm_op_reg(out, false, ASM_TEST, RAX, RAX);
	asm_jump(out, ASM_JUMP_NE, &next);
	asm_op_mem(out, false, ASM_LEA, RAX, asm_at(RSI, ENTRY));
	asm_jump(out, ASM_JUMP_ALWAYS, &next);

	/* r8: the end of what is alive. */
	asm_place(out, &hit);
	asm_op_mem(out, false, ASM_LEA, R8, asm_at(RSI, ENTRY));
	asm_op_reg(out, false, ASM_TEST, RAX, RAX);
	asm_jump(out, ASM_JUMP_E, &last);
	asm_move32(out, RAX, R8);
	asm_place(out, &last);
	asm_op_mem(out, false, ASM_CMP_STORE, R8, asm_at(R10, DEPTH));
	asm_jump(out, ASM_JUMP_E, &take);
	emit_drop(out, spec, &again);

	asm_place(out, &take);
	asm_load(out, RCX, asm_at_index(R10, RSI, 1, HOME + START));
	if (stays) {
		asm_jump(out, ASM_JUMP_ALWAYS, judge);
		return;
	}
	asm_op_reg(out, false, ASM_TEST, RAX, RAX);
	asm_jump(out, ASM_JUMP_E, &pop);
	asm_store_number(out, true, 0, asm_at_index(R10, RSI, 1, HOME + START));
	asm_store(out, RDI, asm_at_index(R10, RSI, 1, HOME));
	asm_jump(out, ASM_JUMP_ALWAYS, judge);
	asm_place(out, &pop);
	asm_store_number(out, true, 0, asm_at_index(R10, RSI, 1, HOME));
	asm_store32(out, RSI, asm_at(R10, DEPTH));
	asm_jump(out, ASM_JUMP_ALWAYS, judge);
}

static void emit_leave_routine(struct arch_buf *out, const struct arch_pairing *spec, bool stays)
{
	struct asm_label orphan = {0}, elsewhere = {0}, hit = {0}, judge = {0}, inherited = {0};

	pairing_emit_find(out, spec, &orphan);
	asm_op_reg(out, false, ASM_XOR_STORE, R11, R11);
	emit_is_home(out, &elsewhere);
	emit_leave_home(out, spec, stays, &elsewhere, &judge);

	/* What was entered before it could be known (catch-up) may be there, too. */
	asm_place(out, &elsewhere);
	emit_look(out, &hit);
	asm_place(out, &orphan);
	emit_statistic(out, spec, offsetof(struct pair_config, orphans));
	asm_op_reg(out, false, ASM_XOR_STORE, RAX, RAX);
	asm_op_reg(out, false, ASM_XOR_STORE, RDX, RDX);
	emit_return(out, false);
	asm_place(out, &hit);
	asm_load(out, RCX, asm_at_index(R10, RSI, 1, OTHER + START));
	if (!stays)
		asm_store_number(out, true, 0, asm_at_index(R10, RSI, 1, OTHER));
	asm_place(out, &judge);
	asm_number32(out, RAX, 1);
	asm_move(out, RCX, RDX);
	asm_immediate(out, true, ASM_IMM_CMP, -1, RCX);
	asm_jump(out, ASM_JUMP_E, &inherited);
	emit_return(out, true);
	asm_place(out, &inherited);
	emit_return(out, false);
}

/* ----------------------------------------------------------- the routines */

static void emit_record_routine(struct arch_buf *out, const struct arch_pairing *spec)
{
	struct asm_label none = {0};

	pairing_emit_find(out, spec, &none);
	asm_move(out, R10, RAX);
	emit_return(out, true);
	asm_place(out, &none);
	emit_statistic(out, spec, offsetof(struct pair_config, lost));
	asm_op_reg(out, false, ASM_XOR_STORE, RAX, RAX);
	emit_return(out, true);
}

void arch_emit_pairing_routines(struct arch_buf *out, const struct arch_pairing *spec,
				size_t offsets[ARCH_PAIRING_KINDS])
{
	if (spec->shift < PAIR_SHIFT_MIN || spec->shift > PAIR_SHIFT_MAX)
		x86_fail(out, ARCH_OUT_OF_RANGE);
	offsets[ARCH_PAIRING_RECORD] = out->used;
	emit_record_routine(out, spec);
	offsets[ARCH_PAIRING_ENTER] = out->used;
	emit_enter_routine(out, spec);
	offsets[ARCH_PAIRING_LEAVE] = out->used;
	emit_leave_routine(out, spec, false);
	offsets[ARCH_PAIRING_LEAVING] = out->used;
	emit_leave_routine(out, spec, true);
}
