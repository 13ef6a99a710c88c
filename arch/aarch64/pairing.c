/* SPDX-License-Identifier: MIT */
/*
 * pairing.c - code that keeps per-thread records: what a function's entry and
 * exit execute. What it does, and why it may be interrupted anywhere, is told
 * in arch/pairing.h. (A thread sees its own stores in order, and so do its
 * handlers; a handler's return clears the exclusive monitor.)
 *
 * Snippets save what the routines change and leave everything to them:
 *
 *	x2  tag			x9  where to go on, in the snippet
 *	x3  area, then the lowest tag of the stack pointer
 *	x1  thread pointer, then a temporary
 *	x4  record number, offset	x5  thread id, then the highest tag
 *	x6  record		x0, x7, x8  temporaries
 *
 * A routine returns with 1 in x0 where the event is to be counted, else 0.
 */
#include "arch/pairing.h"

#include <stddef.h>

#include "arch/aarch64/assembler.h"

/* glibc's and musl's struct pthread ends where the thread pointer points to. */
const int64_t arch_thread_block_lo = -2048, arch_thread_block_hi = 0;
const int64_t arch_musl_links = 0, arch_musl_id = 0;

bool arch_thread_pointer_is_sane(taddr_t pointer, uint64_t first)
{
	(void)first;
	return pointer != 0;
}

enum {
	FRAME = 96,
	FLAGS_AT = 80,
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

	TAG = 2,
	AREA = 3,
	LOWEST = 3,
	POINTER = 1,
	NUMBER = 4,
	OFFSET = 4,
	ID = 5,
	HIGHEST = 5,
	RECORD = 6,
	BACK = 9,
	A = 0,
	B = 7,
	C = 8,
};

/* ----------------------------------------------------------- the records */

/* The entry at `offset` of the record: base + index + offset, in C. */
static void entry_at(struct arch_buf *out, unsigned index, unsigned offset)
{
	asm_add(out, C, RECORD, index, 0);
	if (offset > 4095) {
		a64_emit(out, a64_add(C, C, offset >> 12) | 1 << 22);
		offset &= 4095;
	}
	a64_emit(out, a64_add(C, C, offset));
}

/* The address of the keys or owners in B. */
static void table(struct arch_buf *out, size_t offset)
{
	a64_emit_constant(out, B, offset);
	asm_add(out, B, B, AREA, 0);
}

static void load_owner(struct arch_buf *out, const struct arch_pairing *spec, unsigned reg)
{
	table(out, pair_owners(spec->shift));
	a64_emit(out, asm_three(0xb8607800, reg, B, NUMBER));
}

static void store_owner(struct arch_buf *out, const struct arch_pairing *spec, unsigned reg)
{
	table(out, pair_owners(spec->shift));
	a64_emit(out, asm_three(0xb8207800, reg, B, NUMBER));
}

/* The place that follows. */
static void next(struct arch_buf *out, const struct arch_pairing *spec)
{
	a64_emit(out, a64_add(NUMBER, NUMBER, 1));
	asm_cut(out, NUMBER, spec->shift);
}

static void emit_hash(struct arch_buf *out, const struct arch_pairing *spec)
{
	a64_emit_constant(out, B, PAIR_HASH);
	a64_emit(out, asm_three(0x1b007c00, NUMBER, POINTER, B)); /* mul w, w, w */
	asm_shift_right(out, NUMBER, NUMBER, 32 - spec->shift);
}

static void emit_record(struct arch_buf *out, const struct arch_pairing *spec)
{
	a64_emit_constant(out, RECORD, pair_records(spec->shift));
	asm_add(out, RECORD, RECORD, AREA, 0);
	asm_add(out, RECORD, RECORD, NUMBER, PAIR_RECORD_SHIFT);
}

/* As in the other architecture: ends in `fresh`, `found` or `none`. */
static void emit_claim(struct arch_buf *out, const struct arch_pairing *spec,
		       struct asm_label *fresh, struct asm_label *found, struct asm_label *none)
{
	struct asm_label again = {0}, try = {0}, taken = {0}, claimed = {0}, look = {0}, skip = {0},
			 twice = {0};

	a64_emit_constant(out, A, PAIR_PROBE);
	asm_place(out, &again);
	table(out, pair_keys());
	asm_add(out, B, B, NUMBER, 3);
	asm_place(out, &try);
	a64_emit(out, 0xc85ffc00 | B << 5 | C); /* ldaxr */
	asm_branch(out, ASM_NOT_ZERO | C, &taken);
	a64_emit(out, asm_three(0xc800fc00, POINTER, B, C)); /* stlxr */
	asm_branch(out, ASM_ZERO | C, &claimed);
	asm_branch(out, ASM_ALWAYS, &try);
	asm_place(out, &taken);
	a64_emit(out, 0xd5033f5f); /* clrex */
	asm_compare(out, C, POINTER);
	asm_branch(out, ASM_EQ, found);
	next(out, spec);
	asm_count_down(out, A, 1, &again);
	asm_branch(out, ASM_ALWAYS, none);

	asm_place(out, &claimed);
	asm_move(out, RECORD, NUMBER);
	emit_hash(out, spec);
	a64_emit_constant(out, A, PAIR_PROBE);
	asm_place(out, &look);
	asm_compare(out, RECORD, NUMBER);
	asm_branch(out, ASM_EQ, &skip);
	table(out, pair_keys());
	asm_load_at(out, C, B, NUMBER, true);
	asm_compare(out, C, POINTER);
	asm_branch(out, ASM_EQ, &twice);
	asm_place(out, &skip);
	next(out, spec);
	asm_count_down(out, A, 1, &look);
	asm_move(out, NUMBER, RECORD);
	asm_branch(out, ASM_ALWAYS, fresh);

	/* A handler has claimed another one: ours goes back. */
	asm_place(out, &twice);
	a64_emit_constant(out, C, pair_records(spec->shift));
	asm_add(out, C, C, AREA, 0);
	asm_add(out, C, C, RECORD, PAIR_RECORD_SHIFT);
	a64_emit(out, a64_str_w(ZR, C, TID));
	table(out, pair_keys());
	asm_store_at(out, ZR, B, RECORD, true);
	asm_branch(out, ASM_ALWAYS, found);
}

/* A forked child: the parent counts what is in the record. */
static void emit_inherit(struct arch_buf *out, const struct arch_pairing *spec)
{
	struct asm_label home = {0}, empty = {0}, other = {0};

	a64_emit(out, 0x92800000 | B); /* mov B, #-1 */
	a64_emit(out, a64_ldr_w(A, RECORD, DEPTH));
	asm_place(out, &home);
	asm_branch(out, ASM_ZERO | A, &empty);
	a64_emit(out, a64_sub(A, A, ENTRY));
	entry_at(out, A, HOME);
	a64_emit(out, a64_str(B, C, START));
	asm_branch(out, ASM_ALWAYS, &home);
	asm_place(out, &empty);
	a64_emit_constant(out, A, OTHER_BYTES);
	asm_place(out, &other);
	entry_at(out, A, OTHER - ENTRY);
	a64_emit(out, a64_str(B, C, START));
	asm_count_down(out, A, ENTRY, &other);
	a64_emit(out, a64_str_w(ID, RECORD, TID));
	store_owner(out, spec, ID);
}

/* Where the thread's own stack is. */
static void emit_bounds(struct arch_buf *out)
{
	struct asm_label main = {0}, done = {0};

	a64_emit(out, a64_str(ZR, RECORD, SIZE));
	a64_emit(out, a64_ldr(A, AREA, offsetof(struct pair_config, main_pointer)));
	asm_compare(out, A, POINTER);
	asm_branch(out, ASM_EQ, &main);
	a64_emit(out, 0xb9800000 | offsetof(struct pair_config, stack_offset) / 4 << 10 |
			      AREA << 5 | A); /* ldrsw */
	asm_branch(out, ASM_ZERO | A, &done);
	asm_add(out, A, A, POINTER, 0);
	a64_emit(out, a64_ldr(B, A, 0));
	a64_emit(out, a64_ldr(C, A, 8));
	asm_branch(out, ASM_ZERO | B, &main);
	asm_shift_left(out, B, PAIR_ID_BITS);
	asm_shift_left(out, C, PAIR_ID_BITS);
	a64_emit(out, a64_str(B, RECORD, LO));
	a64_emit(out, a64_str(C, RECORD, SIZE));
	asm_branch(out, ASM_ALWAYS, &done);
	asm_place(out, &main);
	a64_emit(out, a64_ldr(B, AREA, offsetof(struct pair_config, main_lo)));
	a64_emit(out, a64_ldr(C, AREA, offsetof(struct pair_config, main_size)));
	a64_emit(out, a64_str(B, RECORD, LO));
	a64_emit(out, a64_str(C, RECORD, SIZE));
	asm_place(out, &done);
}

/* Clears A bytes, a multiple of `step` and not 0, of the record from `offset` on. */
static void emit_clear(struct arch_buf *out, unsigned offset, unsigned step)
{
	struct asm_label again = {0};

	asm_place(out, &again);
	entry_at(out, A, offset - step);
	a64_emit(out, a64_str(ZR, C, 0));
	asm_count_down(out, A, step, &again);
}

static void emit_reset(struct arch_buf *out, const struct arch_pairing *spec)
{
	struct asm_label clean = {0};

	a64_emit(out, a64_str_w(ZR, RECORD, TID));
	a64_emit(out, a64_str_w(ZR, RECORD, DEPTH));
	a64_emit(out, 0x92800000 | B); /* mov B, #-1 */
	a64_emit(out, a64_str(B, RECORD, HOME - ENTRY));
	a64_emit_constant(out, A, OTHER_BYTES);
	emit_clear(out, OTHER, ENTRY);
	/* Words that may be in use. */
	a64_emit(out, a64_ldr(B, AREA, offsetof(struct pair_config, shared)));
	asm_branch(out, ASM_ZERO | B, &clean);
	a64_emit(out, a64_ldr_w(A, B, offsetof(struct pair_shared, words)));
	asm_branch(out, ASM_ZERO | A, &clean);
	emit_clear(out, WORDS, 8);
	asm_place(out, &clean);
	emit_bounds(out);
	store_owner(out, spec, ID);
	a64_emit(out, a64_str_w(ID, RECORD, TID));
}

/* Sets RECORD to the thread's record, made if need be; goes to `none` if there is none. */
static void emit_find(struct arch_buf *out, const struct arch_pairing *spec, struct asm_label *none)
{
	struct asm_label again = {0}, found = {0}, fresh = {0}, reset = {0}, ready = {0};

	a64_emit_constant(out, AREA, spec->area);
	a64_emit(out, 0xd53bd040 | POINTER); /* mrs tpidr_el0 */
	asm_branch(out, ASM_ZERO | POINTER, none);
	a64_emit_constant(out, B, (uint64_t)(int64_t)spec->tid_offset);
	a64_emit(out, asm_three(0xb8606800, ID, POINTER, B));
	asm_branch(out, ASM_ZERO | ID, none);
	emit_hash(out, spec);
	a64_emit_constant(out, A, PAIR_PROBE);
	asm_place(out, &again);
	table(out, pair_keys());
	asm_load_at(out, C, B, NUMBER, true);
	asm_compare(out, C, POINTER);
	asm_branch(out, ASM_EQ, &found);
	next(out, spec);
	asm_count_down(out, A, 1, &again);
	emit_hash(out, spec);
	emit_claim(out, spec, &fresh, &found, none);

	asm_place(out, &found);
	emit_record(out, spec);
	load_owner(out, spec, A);
	asm_compare(out, A, ID);
	asm_branch(out, ASM_EQ, &ready);
	asm_branch(out, ASM_NOT_ZERO | A, &reset);
	a64_emit(out, a64_ldr_w(A, RECORD, TID));
	asm_branch(out, ASM_ZERO | A, &reset);
	emit_inherit(out, spec);
	asm_branch(out, ASM_ALWAYS, &ready);
	asm_place(out, &fresh);
	emit_record(out, spec);
	asm_place(out, &reset);
	emit_reset(out, spec);
	asm_place(out, &ready);
}

/* ------------------------------------------------------------- the routines */

static void emit_is_home(struct arch_buf *out, struct asm_label *elsewhere)
{
	a64_emit(out, a64_ldr(A, RECORD, LO));
	asm_subtract(out, A, TAG, A);
	a64_emit(out, a64_ldr(B, RECORD, SIZE));
	asm_compare(out, A, B);
	asm_branch(out, ASM_HS, elsewhere);
}

static void emit_limits(struct arch_buf *out)
{
	a64_emit_constant(out, A, PAIR_ID_MASK);
	a64_emit(out, asm_three(0xaa000000, HIGHEST, TAG, A)); /* orr */
	a64_emit(out, asm_three(0x8a200000, LOWEST, TAG, A));  /* bic */
}

/* OFFSET: of the first place of the tag in `other`; A: how many there are. */
static void emit_other(struct arch_buf *out)
{
	asm_shift_right(out, A, TAG, PAIR_ID_BITS + 3);
	a64_emit_constant(out, B, PAIR_HASH);
	a64_emit(out, asm_three(0x1b007c00, OFFSET, A, B));
	asm_shift_right(out, OFFSET, OFFSET, 32 - 7);
	asm_shift_left(out, OFFSET, 4);
	a64_emit_constant(out, A, PAIR_OTHER_PROBE);
}

static void emit_other_next(struct arch_buf *out)
{
	a64_emit(out, a64_add(OFFSET, OFFSET, ENTRY));
	asm_cut(out, OFFSET, 11);
}

static void emit_statistic(struct arch_buf *out, const struct arch_pairing *spec, size_t offset)
{
	struct asm_label again = {0};

	a64_emit_constant(out, AREA, spec->area);
	a64_emit(out, a64_ldr(B, AREA, (unsigned)offset));
	asm_place(out, &again);
	a64_emit(out, 0xc85ffc00 | B << 5 | C); /* ldaxr */
	a64_emit(out, a64_add(C, C, 1));
	a64_emit(out, asm_three(0xc800fc00, C, B, A)); /* stlxr */
	asm_branch(out, ASM_NOT_ZERO | A, &again);
}

static void emit_return(struct arch_buf *out, bool count)
{
	a64_emit_constant(out, A, count);
	a64_emit(out, 0xd61f0000 | BACK << 5); /* br */
}

/* A: the depth without what is dead; arch/x86_64/pairing.c has the reasons. */
static void emit_drop(struct arch_buf *out)
{
	struct asm_label again = {0}, dead = {0}, done = {0};

	a64_emit(out, a64_ldr_w(OFFSET, RECORD, DEPTH));
	asm_move(out, A, OFFSET);
	asm_place(out, &again);
	entry_at(out, OFFSET, HOME - ENTRY);
	a64_emit(out, a64_ldr(B, C, 0));
	asm_compare(out, B, HIGHEST);
	asm_branch(out, ASM_HI, &done);
	a64_emit(out, a64_sub(OFFSET, OFFSET, ENTRY));
	asm_compare(out, B, TAG);
	asm_branch(out, ASM_EQ, &dead);
	asm_compare(out, B, LOWEST);
	asm_branch(out, ASM_LO, &dead);
	asm_branch(out, ASM_NE, &again);
	a64_emit(out, a64_add(B, OFFSET, ENTRY));
	asm_compare(out, A, B);
	asm_branch(out, ASM_NE, &again);
	asm_place(out, &dead);
	asm_move(out, A, OFFSET);
	asm_branch(out, ASM_ALWAYS, &again);
	asm_place(out, &done);
}

/* The tag becomes the last entry; a handler in between may have had its place. */
static void emit_push(struct arch_buf *out, struct asm_label *again)
{
	entry_at(out, A, HOME);
	a64_emit(out, a64_str(TAG, C, 0));
	a64_emit(out, a64_add(A, A, ENTRY));
	a64_emit(out, a64_str_w(A, RECORD, DEPTH));
	a64_emit(out, a64_ldr_w(B, RECORD, DEPTH));
	asm_compare(out, A, B);
	asm_branch(out, ASM_NE, again);
	a64_emit(out, a64_ldr(B, C, 0));
	asm_compare(out, B, TAG);
	asm_branch(out, ASM_NE, again);
	a64_emit(out, a64_str(ZR, C, START));
}

/* Takes a free place in `other`; goes to `full` if there is none. */
static void emit_take(struct arch_buf *out, struct asm_label *set, struct asm_label *full)
{
	struct asm_label again = {0}, try = {0}, taken = {0};

	emit_other(out);
	asm_place(out, &again);
	entry_at(out, OFFSET, OTHER);
	asm_place(out, &try);
	a64_emit(out, 0xc85ffc00 | C << 5 | B);
	asm_branch(out, ASM_NOT_ZERO | B, &taken);
	a64_emit(out, asm_three(0xc800fc00, TAG, C, B));
	asm_branch(out, ASM_ZERO | B, set);
	asm_branch(out, ASM_ALWAYS, &try);
	asm_place(out, &taken);
	a64_emit(out, 0xd5033f5f);
	emit_other_next(out);
	asm_count_down(out, A, 1, &again);
	/* What stands there may be dead, and cannot be alive for ever. */
	emit_other(out);
	entry_at(out, OFFSET, OTHER);
	a64_emit(out, a64_str(TAG, C, 0));
	a64_emit(out, a64_str(ZR, C, START));
	asm_branch(out, ASM_ALWAYS, full);
}

/* Looks for the tag in `other`: C is its entry at `hit`. */
static void emit_look(struct arch_buf *out, struct asm_label *hit)
{
	struct asm_label look = {0};

	emit_other(out);
	asm_place(out, &look);
	entry_at(out, OFFSET, OTHER);
	a64_emit(out, a64_ldr(B, C, 0));
	asm_compare(out, B, TAG);
	asm_branch(out, ASM_EQ, hit);
	emit_other_next(out);
	asm_count_down(out, A, 1, &look);
}

static void emit_enter_routine(struct arch_buf *out, const struct arch_pairing *spec)
{
	struct asm_label none = {0}, elsewhere = {0}, again = {0}, full = {0}, set = {0};

	emit_find(out, spec, &none);
	emit_is_home(out, &elsewhere);
	emit_limits(out);
	asm_place(out, &again);
	emit_drop(out);
	a64_emit_constant(out, B, PAIR_HOME * ENTRY);
	asm_compare(out, A, B);
	asm_branch(out, ASM_HS, &full);
	emit_push(out, &again);
	emit_return(out, true);

	asm_place(out, &elsewhere);
	emit_look(out, &set);
	emit_take(out, &set, &full);
	asm_place(out, &full);
	emit_statistic(out, spec, offsetof(struct pair_config, overflow));
	emit_return(out, true);
	asm_place(out, &set);
	a64_emit(out, a64_str(ZR, C, START));
	emit_return(out, true);
	asm_place(out, &none);
	emit_statistic(out, spec, offsetof(struct pair_config, lost));
	emit_return(out, true);
}

/* Finds the activation on the thread's own stack; leaves its start in B. */
static void emit_pop(struct arch_buf *out, struct asm_label *orphan, struct asm_label *judge)
{
	struct asm_label again = {0}, hit = {0}, pop = {0};

	a64_emit(out, a64_ldr_w(OFFSET, RECORD, DEPTH));
	a64_emit_constant(out, A, 0);
	asm_place(out, &again);
	entry_at(out, OFFSET, HOME - ENTRY);
	a64_emit(out, a64_ldr(B, C, 0));
	asm_compare(out, B, HIGHEST);
	asm_branch(out, ASM_HI, orphan);
	a64_emit(out, a64_sub(OFFSET, OFFSET, ENTRY));
	asm_compare(out, B, TAG);
	asm_branch(out, ASM_EQ, &hit);
	asm_compare(out, B, LOWEST);
	asm_branch(out, ASM_LS, &again); /* below, or a gap */
	asm_branch(out, ASM_NOT_ZERO | A, &again);
	a64_emit(out, a64_add(A, OFFSET, ENTRY));
	asm_branch(out, ASM_ALWAYS, &again);
	asm_place(out, &hit);
	a64_emit(out, a64_ldr(B, C, START));
	asm_branch(out, ASM_ZERO | A, &pop);
	a64_emit(out, a64_str(LOWEST, C, 0));
	a64_emit(out, a64_str_w(A, RECORD, DEPTH));
	asm_branch(out, ASM_ALWAYS, judge);
	asm_place(out, &pop);
	a64_emit(out, a64_str(ZR, C, 0));
	a64_emit(out, a64_str_w(OFFSET, RECORD, DEPTH));
	asm_branch(out, ASM_ALWAYS, judge);
}

static void emit_leave_routine(struct arch_buf *out, const struct arch_pairing *spec)
{
	struct asm_label orphan = {0}, elsewhere = {0}, hit = {0}, judge = {0}, inherited = {0};

	emit_find(out, spec, &orphan);
	emit_is_home(out, &elsewhere);
	emit_limits(out);
	emit_pop(out, &orphan, &judge);

	asm_place(out, &elsewhere);
	emit_look(out, &hit);
	asm_place(out, &orphan);
	emit_statistic(out, spec, offsetof(struct pair_config, orphans));
	emit_return(out, false);
	asm_place(out, &hit);
	a64_emit(out, a64_ldr(B, C, START));
	a64_emit(out, a64_str(ZR, C, 0));
	asm_place(out, &judge);
	a64_emit(out, a64_add(B, B, 1));
	asm_branch(out, ASM_ZERO | B, &inherited);
	emit_return(out, true);
	asm_place(out, &inherited);
	emit_return(out, false);
}

void arch_emit_pairing_routines(struct arch_buf *out, const struct arch_pairing *spec,
				size_t offsets[ARCH_PAIRING_KINDS])
{
	if (spec->shift < PAIR_SHIFT_MIN || spec->shift > PAIR_SHIFT_MAX)
		a64_fail(out, ARCH_OUT_OF_RANGE);
	/* Programs have no per-thread state here: nothing goes there. */
	offsets[ARCH_PAIRING_RECORD] = offsets[ARCH_PAIRING_LEAVING] = out->used;
	a64_emit(out, 0); /* udf */
	offsets[ARCH_PAIRING_ENTER] = out->used;
	emit_enter_routine(out, spec);
	offsets[ARCH_PAIRING_LEAVE] = out->used;
	emit_leave_routine(out, spec);
}

/* ------------------------------------------------------------- the snippets */

void arch_pairing_needs(const struct arch_pairing *spec, struct arch_frame *frame)
{
	if (spec->count)
		arch_count_needs(spec->count, frame);
}

static uint32_t pair(uint32_t opcode, unsigned first, unsigned offset)
{
	return opcode | (offset / 8 & 127) << 15 | (first + 1) << 10 | SP << 5 | first;
}

/* x0 to x9, which the routines change; the flags are behind them. */
static void emit_saves(struct arch_buf *out, const struct arch_frame *frame)
{
	a64_emit(out, pair(0xa9800000, 0, -(unsigned)FRAME));
	arch_note_pushed(out, frame->pushed + FRAME);
	for (unsigned i = 2; i < 10; i += 2)
		a64_emit(out, pair(0xa9000000, i, 8 * i));
	a64_emit(out, 0xd53b4200 | A); /* mrs nzcv */
	a64_emit(out, a64_str(A, SP, FLAGS_AT));
}

static void emit_restores(struct arch_buf *out, const struct arch_frame *frame)
{
	a64_emit(out, a64_ldr(A, SP, FLAGS_AT));
	a64_emit(out, 0xd51b4200 | A);
	for (unsigned i = 2; i < 10; i += 2)
		a64_emit(out, pair(0xa9400000, i, 8 * i));
	a64_emit(out, pair(0xa8c00000, 0, FRAME));
	arch_note_pushed(out, frame->pushed);
}

/* Both kinds: the routine says in x0 whether to count. */
static void emit_event(const struct arch_pairing *spec, const struct arch_frame *frame,
		       taddr_t routine, struct arch_buf *out, struct arch_buf *cold)
{
	struct asm_label uncounted = {0}, end = {0};

	emit_saves(out, frame);
	a64_emit(out, a64_add(TAG, SP, FRAME + frame->pushed + frame->before));
	asm_shift_left(out, TAG, PAIR_ID_BITS);
	a64_emit_constant(out, A, spec->function);
	a64_emit(out, asm_three(0xaa000000, TAG, TAG, A));
	a64_emit_address(out, BACK, arch_here(out) + 2 * A64_SIZE);
	arch_emit_jump(out, routine);
	asm_branch(out, ASM_ZERO | A, &uncounted);
	emit_restores(out, frame);
	if (spec->count)
		arch_emit_count(spec->count, frame, out, cold);
	asm_branch(out, ASM_ALWAYS, &end);
	asm_place(out, &uncounted);
	arch_note_pushed(out, frame->pushed + FRAME);
	emit_restores(out, frame);
	asm_place(out, &end);
}

void arch_emit_enter(const struct arch_pairing *spec, const struct arch_frame *frame,
		     struct arch_buf *out, struct arch_buf *cold)
{
	emit_event(spec, frame, spec->enter, out, cold);
}

void arch_emit_leave(const struct arch_pairing *spec, const struct arch_frame *frame,
		     struct arch_buf *out, struct arch_buf *cold)
{
	emit_event(spec, frame, spec->leave, out, cold);
}
