/* SPDX-License-Identifier: MIT */
/*
 * pairing.c - code that keeps per-thread records: what a function's entry and
 * exit execute. What it does, and why it may be interrupted anywhere, is told
 * in arch/pairing.h. Uses integer registers and plain moves; the only locked
 * instructions are in ways that are seldom gone.
 *
 * Snippets do the usual case: the thread has its record, runs on its own
 * stack, and enters below or leaves what it entered last. All else is done by
 * the routines, which find everything anew:
 *
 *	rdx  tag			r9   where to go on, in the snippet
 *	rdi  area, later bounds		rcx  thread pointer, later temporary
 *	rsi  record number, offset	r8   thread id, later bounds
 *	r10  record			rax  temporary
 *
 * A routine returns with CF set where the event is to be counted.
 */
#include "arch/pairing.h"

#include <stddef.h>

#include "arch/x86_64/assembler.h"

/* glibc's and musl's struct pthread begins at the thread pointer; TLS lies below. */
const int64_t arch_thread_block_lo = 0, arch_thread_block_hi = 4096;

bool arch_thread_pointer_is_sane(taddr_t pointer, uint64_t first)
{
	return pointer && first == pointer;
}

enum {
	SAVED = 8, /* registers that a routine changes */
	RED_ZONE = 128,
	ENTRY = sizeof(struct pair_entry),
	HOME = offsetof(struct pair_record, home),
	OTHER = offsetof(struct pair_record, other),
	WORDS = offsetof(struct pair_record, words),
	LO = offsetof(struct pair_record, lo),
	SIZE = offsetof(struct pair_record, size),
	DEPTH = offsetof(struct pair_record, depth),
	TID = offsetof(struct pair_record, tid),
	START = offsetof(struct pair_entry, start),
	OTHER_BYTES = PAIR_OTHER * ENTRY,
};

/* ----------------------------------------------------------- the records */

static struct asm_mem key_at(unsigned area, unsigned number)
{
	return asm_at_index(area, number, 8, (int32_t)pair_keys());
}

static struct asm_mem owner_at(const struct arch_pairing *spec, unsigned area, unsigned number)
{
	return asm_at_index(area, number, 4, (int32_t)pair_owners(spec->shift));
}

/* The next of 2^shift places. */
static void emit_next(struct arch_buf *out, const struct arch_pairing *spec, unsigned reg,
		      int32_t step)
{
	asm_immediate(out, false, ASM_IMM_ADD, step, reg);
	asm_immediate(out, false, ASM_IMM_AND, (1 << spec->shift) - 1, reg);
}

static void emit_hash(struct arch_buf *out, const struct arch_pairing *spec, unsigned from,
		      unsigned to)
{
	asm_multiply(out, PAIR_HASH, from, to);
	asm_shift(out, false, false, to, 32 - spec->shift);
}

static void emit_count_down(struct arch_buf *out, unsigned reg, struct asm_label *again)
{
	asm_immediate(out, false, ASM_IMM_SUB, 1, reg);
	asm_jump(out, ASM_JUMP_NE, again);
}

/* Sets r10 to the record number rsi. */
static void emit_record(struct arch_buf *out, const struct arch_pairing *spec)
{
	asm_move32(out, RSI, R10);
	asm_shift(out, true, true, R10, PAIR_RECORD_SHIFT);
	asm_op_mem(out, true, ASM_LEA, R10,
		   asm_at_index(RDI, R10, 1, (int32_t)pair_records(spec->shift)));
}

/*
 * Claims a record that nobody has: rcx is written as its key. A handler may
 * have claimed another one for the same thread since we looked: then ours goes
 * back, and `found` goes on with that one. Ends in `fresh`, `found` or `none`.
 */
static void emit_claim(struct arch_buf *out, const struct arch_pairing *spec,
		       struct asm_label *fresh, struct asm_label *found, struct asm_label *none)
{
	struct asm_label again = {0}, next = {0}, claimed = {0}, look = {0}, skip = {0},
			 twice = {0};

	asm_number32(out, R10, PAIR_PROBE);
	asm_place(out, &again);
	asm_compare_number(out, true, 0, key_at(RDI, RSI));
	asm_jump(out, ASM_JUMP_NE, &next);
	asm_exchange_if_zero(out, true, RCX, key_at(RDI, RSI));
	asm_jump(out, ASM_JUMP_E, &claimed);
	asm_op_reg(out, true, ASM_CMP_STORE, RCX, RAX);
	asm_jump(out, ASM_JUMP_E, found);
	asm_place(out, &next);
	emit_next(out, spec, RSI, 1);
	emit_count_down(out, R10, &again);
	asm_jump(out, ASM_JUMP_ALWAYS, none);

	asm_place(out, &claimed);
	asm_move32(out, RSI, RAX);
	emit_hash(out, spec, RCX, RSI);
	asm_number32(out, R10, PAIR_PROBE);
	asm_place(out, &look);
	asm_op_reg(out, false, ASM_CMP_STORE, RSI, RAX);
	asm_jump(out, ASM_JUMP_E, &skip);
	asm_op_mem(out, true, ASM_CMP_STORE, RCX, key_at(RDI, RSI));
	asm_jump(out, ASM_JUMP_E, &twice);
	asm_place(out, &skip);
	emit_next(out, spec, RSI, 1);
	emit_count_down(out, R10, &look);
	asm_move32(out, RAX, RSI);
	asm_jump(out, ASM_JUMP_ALWAYS, fresh);

	asm_place(out, &twice);
	asm_move32(out, RAX, R10);
	asm_shift(out, true, true, R10, PAIR_RECORD_SHIFT);
	asm_store_number(out, false, 0,
			 asm_at_index(RDI, R10, 1, (int32_t)pair_records(spec->shift) + TID));
	asm_store_number(out, true, 0, key_at(RDI, RAX));
	asm_jump(out, ASM_JUMP_ALWAYS, found);
}

/* A forked child: the parent counts what is in the record (r10). */
static void emit_inherit(struct arch_buf *out, const struct arch_pairing *spec)
{
	struct asm_label home = {0}, empty = {0}, other = {0};

	asm_load32(out, RAX, asm_at(R10, DEPTH));
	asm_place(out, &home);
	asm_op_reg(out, false, ASM_TEST, RAX, RAX);
	asm_jump(out, ASM_JUMP_E, &empty);
	asm_store_number(out, true, -1, asm_at_index(R10, RAX, 1, HOME - ENTRY + START));
	asm_immediate(out, false, ASM_IMM_SUB, ENTRY, RAX);
	asm_jump(out, ASM_JUMP_ALWAYS, &home);
	asm_place(out, &empty);
	asm_number32(out, RAX, OTHER_BYTES);
	asm_place(out, &other);
	asm_store_number(out, true, -1, asm_at_index(R10, RAX, 1, OTHER - ENTRY + START));
	asm_immediate(out, false, ASM_IMM_SUB, ENTRY, RAX);
	asm_jump(out, ASM_JUMP_NE, &other);
	asm_store32(out, R8, asm_at(R10, TID));
	asm_store32(out, R8, owner_at(spec, RDI, RSI));
}

/* Where the thread's own stack is. Destroys rax and rcx. */
static void emit_bounds(struct arch_buf *out)
{
	struct asm_label main = {0}, done = {0};

	asm_store_number(out, true, 0, asm_at(R10, SIZE));
	asm_op_mem(out, true, ASM_CMP_STORE, RCX,
		   asm_at(RDI, offsetof(struct pair_config, main_pointer)));
	asm_jump(out, ASM_JUMP_E, &main);
	asm_op_mem(out, true, ASM_MOVSXD, RAX,
		   asm_at(RDI, offsetof(struct pair_config, stack_offset)));
	asm_op_reg(out, true, ASM_TEST, RAX, RAX);
	asm_jump(out, ASM_JUMP_E, &done);
	asm_load_thread_at(out, RCX, RAX, 0);
	asm_op_reg(out, true, ASM_TEST, RCX, RCX);
	asm_jump(out, ASM_JUMP_E, &main);
	asm_load_thread_at(out, RAX, RAX, 8);
	asm_shift(out, true, true, RCX, PAIR_ID_BITS);
	asm_shift(out, true, true, RAX, PAIR_ID_BITS);
	asm_store(out, RCX, asm_at(R10, LO));
	asm_store(out, RAX, asm_at(R10, SIZE));
	asm_jump(out, ASM_JUMP_ALWAYS, &done);
	asm_place(out, &main);
	asm_load(out, RAX, asm_at(RDI, offsetof(struct pair_config, main_lo)));
	asm_store(out, RAX, asm_at(R10, LO));
	asm_load(out, RAX, asm_at(RDI, offsetof(struct pair_config, main_size)));
	asm_store(out, RAX, asm_at(R10, SIZE));
	asm_place(out, &done);
}

/* Clears `bytes` of the record from `offset` on, `step` at a time, the last ones first. */
static void emit_clear(struct arch_buf *out, uint32_t offset, uint32_t bytes, uint32_t step)
{
	struct asm_label again = {0};

	asm_number32(out, RAX, bytes);
	asm_place(out, &again);
	asm_store_number(out, true, 0, asm_at_index(R10, RAX, 1, (int32_t)(offset - step)));
	asm_immediate(out, false, ASM_IMM_SUB, (int32_t)step, RAX);
	asm_jump(out, ASM_JUMP_NE, &again);
}

/* Nothing of the thread that had the record before stays in it. */
static void emit_reset(struct arch_buf *out, const struct arch_pairing *spec)
{
	asm_store_number(out, false, 0, asm_at(R10, TID));
	asm_store_number(out, false, 0, asm_at(R10, DEPTH));
	asm_store_number(out, true, -1, asm_at(R10, HOME - ENTRY));
	emit_clear(out, OTHER, OTHER_BYTES, ENTRY);
	emit_clear(out, WORDS, PAIR_WORDS * 8, 8);
	emit_bounds(out);
	asm_store32(out, R8, owner_at(spec, RDI, RSI));
	asm_store32(out, R8, asm_at(R10, TID));
}

/* Sets r10 to the thread's record, made if need be; goes to `none` if there is none. */
static void emit_find(struct arch_buf *out, const struct arch_pairing *spec, struct asm_label *none)
{
	struct asm_label again = {0}, found = {0}, fresh = {0}, reset = {0}, ready = {0};

	asm_number64(out, RDI, spec->area);
	asm_load_thread(out, true, RCX, 0);
	asm_load_thread(out, false, R8, spec->tid_offset);
	asm_op_reg(out, false, ASM_TEST, R8, R8);
	asm_jump(out, ASM_JUMP_E, none);
	emit_hash(out, spec, RCX, RSI);
	asm_number32(out, R10, PAIR_PROBE);
	asm_place(out, &again);
	asm_op_mem(out, true, ASM_CMP_STORE, RCX, key_at(RDI, RSI));
	asm_jump(out, ASM_JUMP_E, &found);
	emit_next(out, spec, RSI, 1);
	emit_count_down(out, R10, &again);
	emit_next(out, spec, RSI, -PAIR_PROBE);
	emit_claim(out, spec, &fresh, &found, none);

	asm_place(out, &found);
	asm_load32(out, RAX, owner_at(spec, RDI, RSI));
	emit_record(out, spec);
	asm_op_reg(out, false, ASM_CMP_STORE, R8, RAX);
	asm_jump(out, ASM_JUMP_E, &ready);
	asm_op_reg(out, false, ASM_TEST, RAX, RAX);
	asm_jump(out, ASM_JUMP_NE, &reset);
	asm_compare_number(out, false, 0, asm_at(R10, TID));
	asm_jump(out, ASM_JUMP_E, &reset);
	emit_inherit(out, spec);
	asm_jump(out, ASM_JUMP_ALWAYS, &ready);
	asm_place(out, &fresh);
	emit_record(out, spec);
	asm_place(out, &reset);
	emit_reset(out, spec);
	asm_place(out, &ready);
}

/* ------------------------------------------------------------- the routines */

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

/*
 * rax: the depth without what is dead, rcx and rsi destroyed. Dead is what was
 * entered below, and at the same stack pointer the same function with all that
 * came after it. (Others there may be alive: two requests for one function.)
 */
static void emit_drop(struct arch_buf *out)
{
	struct asm_label next = {0}, cut = {0}, done = {0};

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
	asm_jump(out, ASM_JUMP_NE, &next);
	/* A gap that an exit left: dead if all above it is. */
	asm_op_mem(out, false, ASM_LEA, RCX, asm_at(RSI, ENTRY));
	asm_op_reg(out, false, ASM_CMP_STORE, RAX, RCX);
	asm_jump(out, ASM_JUMP_NE, &next);
	asm_place(out, &cut);
	asm_move32(out, RSI, RAX);
	asm_jump(out, ASM_JUMP_ALWAYS, &next);
	asm_place(out, &done);
}

static void emit_enter_routine(struct arch_buf *out, const struct arch_pairing *spec)
{
	struct asm_label none = {0}, elsewhere = {0}, again = {0}, full = {0}, look = {0},
			 take = {0}, set = {0};

	emit_find(out, spec, &none);
	emit_is_home(out, &elsewhere);
	emit_limits(out);
	asm_place(out, &again);
	emit_drop(out);
	asm_immediate(out, false, ASM_IMM_CMP, PAIR_HOME * ENTRY, RAX);
	asm_jump(out, ASM_JUMP_NC, &full);
	asm_store(out, RDX, asm_at_index(R10, RAX, 1, HOME));
	asm_immediate(out, false, ASM_IMM_ADD, ENTRY, RAX);
	asm_store32(out, RAX, asm_at(R10, DEPTH));
	/* A handler in between may have had the place for itself. */
	asm_op_mem(out, false, ASM_CMP_STORE, RAX, asm_at(R10, DEPTH));
	asm_jump(out, ASM_JUMP_NE, &again);
	asm_op_mem(out, true, ASM_CMP_STORE, RDX, asm_at_index(R10, RAX, 1, HOME - ENTRY));
	asm_jump(out, ASM_JUMP_NE, &again);
	asm_store_number(out, true, 0, asm_at_index(R10, RAX, 1, HOME - ENTRY + START));
	emit_return(out, true);

	asm_place(out, &elsewhere);
	emit_other(out);
	asm_place(out, &look);
	asm_op_mem(out, true, ASM_CMP_STORE, RDX, asm_at_index(R10, RSI, 1, OTHER));
	asm_jump(out, ASM_JUMP_E, &set);
	emit_other_next(out, 1);
	emit_count_down(out, RCX, &look);
	emit_other_next(out, -PAIR_OTHER_PROBE);
	asm_number32(out, RCX, PAIR_OTHER_PROBE);
	asm_place(out, &take);
	asm_exchange_if_zero(out, false, RDX, asm_at_index(R10, RSI, 1, OTHER));
	asm_jump(out, ASM_JUMP_E, &set);
	emit_other_next(out, 1);
	emit_count_down(out, RCX, &take);
	/* What stands there may be dead, and cannot be alive for ever. */
	emit_other_next(out, -PAIR_OTHER_PROBE);
	asm_store(out, RDX, asm_at_index(R10, RSI, 1, OTHER));
	asm_store_number(out, true, 0, asm_at_index(R10, RSI, 1, OTHER + START));
	asm_place(out, &full);
	emit_statistic(out, spec, offsetof(struct pair_config, overflow));
	emit_return(out, true);
	asm_place(out, &set);
	asm_store_number(out, true, 0, asm_at_index(R10, RSI, 1, OTHER + START));
	emit_return(out, true);
	asm_place(out, &none);
	emit_statistic(out, spec, offsetof(struct pair_config, lost));
	emit_return(out, true);
}

/*
 * Finds the activation and takes it out with all that was entered below. What
 * another request entered at the same stack pointer afterwards stays; then a
 * gap is left. Leaves its start in rcx, or goes to `orphan`.
 */
static void emit_pop(struct arch_buf *out, struct asm_label *orphan, struct asm_label *judge)
{
	struct asm_label next = {0}, hit = {0}, pop = {0};

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
	asm_jump(out, ASM_JUMP_C, &next); /* below */
	asm_jump(out, ASM_JUMP_E, &next); /* a gap */
	asm_op_reg(out, false, ASM_TEST, RAX, RAX);
	asm_jump(out, ASM_JUMP_NE, &next);
	asm_op_mem(out, false, ASM_LEA, RAX, asm_at(RSI, ENTRY));
	asm_jump(out, ASM_JUMP_ALWAYS, &next);
	asm_place(out, &hit);
	asm_load(out, RCX, asm_at_index(R10, RSI, 1, HOME + START));
	asm_op_reg(out, false, ASM_TEST, RAX, RAX);
	asm_jump(out, ASM_JUMP_E, &pop);
	asm_store(out, RDI, asm_at_index(R10, RSI, 1, HOME));
	asm_store32(out, RAX, asm_at(R10, DEPTH));
	asm_jump(out, ASM_JUMP_ALWAYS, judge);
	asm_place(out, &pop);
	asm_store_number(out, true, 0, asm_at_index(R10, RSI, 1, HOME));
	asm_store32(out, RSI, asm_at(R10, DEPTH));
	asm_jump(out, ASM_JUMP_ALWAYS, judge);
}

static void emit_leave_routine(struct arch_buf *out, const struct arch_pairing *spec)
{
	struct asm_label orphan = {0}, elsewhere = {0}, look = {0}, hit = {0}, judge = {0},
			 inherited = {0};

	emit_find(out, spec, &orphan);
	emit_is_home(out, &elsewhere);
	emit_limits(out);
	emit_pop(out, &orphan, &judge);

	asm_place(out, &elsewhere);
	emit_other(out);
	asm_place(out, &look);
	asm_op_mem(out, true, ASM_CMP_STORE, RDX, asm_at_index(R10, RSI, 1, OTHER));
	asm_jump(out, ASM_JUMP_E, &hit);
	emit_other_next(out, 1);
	emit_count_down(out, RCX, &look);
	asm_place(out, &orphan);
	emit_statistic(out, spec, offsetof(struct pair_config, orphans));
	emit_return(out, false);
	asm_place(out, &hit);
	asm_load(out, RCX, asm_at_index(R10, RSI, 1, OTHER + START));
	asm_store_number(out, true, 0, asm_at_index(R10, RSI, 1, OTHER));
	asm_place(out, &judge);
	asm_immediate(out, true, ASM_IMM_CMP, -1, RCX);
	asm_jump(out, ASM_JUMP_E, &inherited);
	emit_return(out, true);
	asm_place(out, &inherited);
	emit_return(out, false);
}

void arch_emit_pairing_routines(struct arch_buf *out, const struct arch_pairing *spec,
				size_t offsets[ARCH_PAIRING_KINDS])
{
	if (spec->shift < PAIR_SHIFT_MIN || spec->shift > PAIR_SHIFT_MAX)
		x86_fail(out, ARCH_OUT_OF_RANGE);
	offsets[ARCH_PAIRING_ENTER] = out->used;
	emit_enter_routine(out, spec);
	offsets[ARCH_PAIRING_LEAVE] = out->used;
	emit_leave_routine(out, spec);
}

/* ------------------------------------------------------------- the snippets */

void arch_pairing_needs(const struct arch_pairing *spec, struct arch_frame *frame)
{
	frame->needs |= ARCH_NEED_FLAGS;
	if (frame->scratch < 4)
		frame->scratch = 4;
	if (spec->count)
		arch_count_needs(spec->count, frame);
}

/* The thread's tag in reg[0] and its record in reg[2]; all others are changed. */
static void emit_usual_record(struct arch_buf *out, const struct arch_pairing *spec,
			      const struct arch_frame *frame, struct asm_label *unusual)
{
	const uint8_t *r = frame->reg;

	asm_op_mem(out, true, ASM_LEA, r[0], asm_at(RSP, frame->pushed + frame->before));
	asm_shift(out, true, true, r[0], PAIR_ID_BITS);
	asm_immediate(out, true, ASM_IMM_OR, (int32_t)spec->function, r[0]);
	asm_load_thread(out, true, r[1], 0);
	asm_number64(out, r[3], spec->area);
	emit_hash(out, spec, r[1], r[2]);
	asm_op_mem(out, true, ASM_CMP_STORE, r[1], key_at(r[3], r[2]));
	asm_jump(out, ASM_JUMP_NE, unusual);
	asm_load_thread(out, false, r[1], spec->tid_offset);
	asm_op_mem(out, false, ASM_CMP_STORE, r[1], owner_at(spec, r[3], r[2]));
	asm_jump(out, ASM_JUMP_NE, unusual);
	asm_shift(out, false, true, r[2], PAIR_RECORD_SHIFT);
	asm_op_mem(out, true, ASM_LEA, r[2],
		   asm_at_index(r[3], r[2], 1, (int32_t)pair_records(spec->shift)));
}

/*
 * The way through a routine, in the cold part: it puts every register back.
 * Returns where it begins; it ends at `counted` or `uncounted`.
 */
static void emit_unusual(struct arch_buf *cold, const struct arch_frame *frame, taddr_t routine,
			 struct asm_label *counted, struct asm_label *uncounted)
{
	static const uint8_t saved[SAVED] = {RAX, RCX, RDX, RSI, RDI, R8, R9, R10};
	const size_t extra = RED_ZONE + sizeof(saved) * 8;
	size_t back;

	arch_note_pushed(cold, frame->pushed);
	asm_op_mem(cold, true, ASM_LEA, RSP, asm_at(RSP, -RED_ZONE));
	for (size_t i = 0; i < sizeof(saved); i++) {
		arch_note_pushed(cold, frame->pushed + RED_ZONE + 8 * i);
		asm_push_pop(cold, 0x50, saved[i]);
	}
	arch_note_pushed(cold, frame->pushed + extra);
	asm_move(cold, frame->reg[0], RDX);
	x86_emit8(cold, 0x4c); /* lea back(%rip),%r9 */
	x86_emit8(cold, ASM_LEA);
	x86_emit8(cold, 0x0d);
	back = cold->used;
	x86_emit_relative(cold, arch_here(cold) + 9);
	arch_emit_jump(cold, routine);
	if (cold->status == ARCH_OK && cold->used != back + 9)
		x86_fail(cold, ARCH_REFUSED);
	for (size_t i = sizeof(saved); i-- > 0;) {
		asm_push_pop(cold, 0x58, saved[i]);
		arch_note_pushed(cold, frame->pushed + RED_ZONE + 8 * i);
	}
	asm_op_mem(cold, true, ASM_LEA, RSP, asm_at(RSP, RED_ZONE));
	arch_note_pushed(cold, frame->pushed);
	asm_jump(cold, ASM_JUMP_NC, uncounted);
	asm_jump(cold, ASM_JUMP_ALWAYS, counted);
}

void arch_emit_enter(const struct arch_pairing *spec, const struct arch_frame *frame,
		     struct arch_buf *out, struct arch_buf *cold)
{
	const unsigned tag = frame->reg[0], a = frame->reg[1], record = frame->reg[2],
		       depth = frame->reg[3];
	struct asm_label unusual = {0}, counted = {0};

	emit_usual_record(out, spec, frame, &unusual);
	asm_move(out, tag, a);
	asm_op_mem(out, true, ASM_SUB_LOAD, a, asm_at(record, LO));
	asm_op_mem(out, true, ASM_CMP_LOAD, a, asm_at(record, SIZE));
	asm_jump(out, ASM_JUMP_NC, &unusual);
	asm_load32(out, depth, asm_at(record, DEPTH));
	asm_op_mem(out, true, ASM_CMP_LOAD, tag, asm_at_index(record, depth, 1, HOME - ENTRY));
	asm_jump(out, ASM_JUMP_NC, &unusual);
	asm_immediate(out, false, ASM_IMM_CMP, PAIR_HOME * ENTRY, depth);
	asm_jump(out, ASM_JUMP_NC, &unusual);
	asm_store(out, tag, asm_at_index(record, depth, 1, HOME));
	asm_immediate(out, false, ASM_IMM_ADD, ENTRY, depth);
	asm_store32(out, depth, asm_at(record, DEPTH));
	asm_op_mem(out, false, ASM_CMP_STORE, depth, asm_at(record, DEPTH));
	asm_jump(out, ASM_JUMP_NE, &unusual);
	asm_op_mem(out, true, ASM_CMP_STORE, tag, asm_at_index(record, depth, 1, HOME - ENTRY));
	asm_jump(out, ASM_JUMP_NE, &unusual);
	asm_store_number(out, true, 0, asm_at_index(record, depth, 1, HOME - ENTRY + START));

	asm_place_at(&unusual, arch_here(cold));
	asm_place_at(&counted, arch_here(out));
	emit_unusual(cold, frame, spec->enter, &counted, &counted);
	if (spec->count)
		arch_emit_count(spec->count, frame, out, cold);
}

void arch_emit_leave(const struct arch_pairing *spec, const struct arch_frame *frame,
		     struct arch_buf *out, struct arch_buf *cold)
{
	const unsigned tag = frame->reg[0], record = frame->reg[2], depth = frame->reg[3];
	struct asm_label unusual = {0}, counted = {0}, uncounted = {0};

	emit_usual_record(out, spec, frame, &unusual);
	asm_load32(out, depth, asm_at(record, DEPTH));
	asm_op_mem(out, true, ASM_CMP_STORE, tag, asm_at_index(record, depth, 1, HOME - ENTRY));
	asm_jump(out, ASM_JUMP_NE, &unusual);
	asm_compare_number(out, true, -1, asm_at_index(record, depth, 1, HOME - ENTRY + START));
	asm_jump(out, ASM_JUMP_E, &unusual);
	asm_store_number(out, true, 0, asm_at_index(record, depth, 1, HOME - ENTRY));
	asm_immediate(out, false, ASM_IMM_SUB, ENTRY, depth);
	asm_store32(out, depth, asm_at(record, DEPTH));

	asm_place_at(&unusual, arch_here(cold));
	asm_place_at(&counted, arch_here(out));
	emit_unusual(cold, frame, spec->leave, &counted, &uncounted);
	if (spec->count)
		arch_emit_count(spec->count, frame, out, cold);
	asm_place_at(&uncounted, arch_here(out));
}
