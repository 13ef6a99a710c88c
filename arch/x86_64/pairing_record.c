/* SPDX-License-Identifier: MIT */
/*
 * pairing_record.c - code that finds a thread's record: claims one for a new
 * thread, clears what an ended one has left, and makes a forked child's its own.
 * What it does, and why it may be interrupted anywhere, is told in arch/pairing.h.
 */
#include <sys/syscall.h>
#include <time.h>

#include "arch/program.h"
#include "arch/x86_64/pairing_private.h"

/* ----------------------------------------------------------- the records */

/* The next of 2^shift places. */
static void emit_next(struct arch_buf *out, const struct arch_pairing *spec, unsigned reg,
		      int32_t step)
{
	asm_immediate(out, false, ASM_IMM_ADD, step, reg);
	asm_immediate(out, false, ASM_IMM_AND, (1 << spec->shift) - 1, reg);
}

void pairing_emit_hash(struct arch_buf *out, const struct arch_pairing *spec, unsigned from,
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
	asm_compare_number(out, true, 0, pairing_key_at(RDI, RSI));
	asm_jump(out, ASM_JUMP_NE, &next);
	asm_exchange_if_zero(out, true, RCX, pairing_key_at(RDI, RSI));
	asm_jump(out, ASM_JUMP_E, &claimed);
	asm_op_reg(out, true, ASM_CMP_STORE, RCX, RAX);
	asm_jump(out, ASM_JUMP_E, found);
	asm_place(out, &next);
	emit_next(out, spec, RSI, 1);
	emit_count_down(out, R10, &again);
	asm_jump(out, ASM_JUMP_ALWAYS, none);

	asm_place(out, &claimed);
	asm_move32(out, RSI, RAX);
	pairing_emit_hash(out, spec, RCX, RSI);
	asm_number32(out, R10, PAIR_PROBE);
	asm_place(out, &look);
	asm_op_reg(out, false, ASM_CMP_STORE, RSI, RAX);
	asm_jump(out, ASM_JUMP_E, &skip);
	asm_op_mem(out, true, ASM_CMP_STORE, RCX, pairing_key_at(RDI, RSI));
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
	asm_store_number(out, true, 0, pairing_key_at(RDI, RAX));
	asm_jump(out, ASM_JUMP_ALWAYS, found);
}

/*
 * rax: now, by CLOCK_MONOTONIC in ns. Where a filter of system calls has come that nobody has looked
 * at yet: later than all that ever comes, so that a timer which starts there ends with nothing, even
 * if its end may read the clock (the vdso's needs no system call). rdi: the area. Keeps all other
 * registers but r11.
 */
static void emit_monotonic(struct arch_buf *out)
{
	static const uint8_t syscall_insn[] = {0x0f, 0x05};
	static const uint8_t saved[] = {RCX, RDX, RSI, RDI};
	struct asm_label forbidden = {0};

	for (size_t i = 0; i < sizeof(saved); i++)
		asm_push_pop(out, 0x50, saved[i]);
	asm_op_mem(out, true, ASM_LEA, RSP, asm_at(RSP, -16));
	asm_number64(out, RAX, INT64_MAX);
	asm_load(out, RCX, asm_at(RDI, offsetof(struct pair_config, filters_begun)));
	asm_op_mem(out, true, ASM_CMP_STORE, RCX,
		   asm_at(RDI, offsetof(struct pair_config, filters_seen)));
	asm_jump(out, ASM_JUMP_NE, &forbidden);
	asm_number32(out, RAX, SYS_clock_gettime);
	asm_number32(out, RDI, CLOCK_MONOTONIC);
	asm_move(out, RSP, RSI);
	x86_emit(out, syscall_insn, sizeof(syscall_insn));
	asm_number32(out, RDX, 1000000000);
	asm_load(out, RAX, asm_at(RSP, 0));
	asm_op_reg(out, true, 0x0faf, RAX, RDX); /* imul */
	asm_load(out, RDX, asm_at(RSP, 8));
	asm_op_reg(out, true, ASM_ADD_STORE, RDX, RAX);
	asm_place(out, &forbidden);
	asm_op_mem(out, true, ASM_LEA, RSP, asm_at(RSP, 16));
	for (size_t i = sizeof(saved); i-- > 0;)
		asm_push_pop(out, 0x58, saved[i]);
}

/*
 * A forked child's timers start anew: those of CPU time at 0, as its clocks did.
 * Destroys rax, rcx and r11.
 */
static void emit_timers(struct arch_buf *out)
{
	static const uint8_t rdtsc[] = {0x0f, 0x31};
	struct asm_label chunk = {0}, ticks = {0}, monotonic = {0}, set = {0}, timer = {0},
			 skip = {0}, done = {0};

	asm_push_pop(out, 0x50, RDX);
	asm_load(out, RAX, asm_at(RDI, offsetof(struct pair_config, shared)));
	asm_op_reg(out, true, ASM_TEST, RAX, RAX);
	asm_jump(out, ASM_JUMP_E, &done);
	asm_load32(out, RCX, asm_at(RAX, offsetof(struct pair_shared, words)));
	asm_shift(out, false, false, RCX, 9);
	asm_place(out, &chunk);
	asm_immediate(out, false, ASM_IMM_SUB, 1, RCX);
	asm_jump(out, ASM_JUMP_C, &done);
	asm_load(out, RAX, asm_at(RDI, offsetof(struct pair_config, shared)));
	asm_op_mem(out, false, 0x0fb6, RAX, /* movzbl */
		   asm_at_index(RAX, RCX, 1, offsetof(struct pair_shared, clocks)));
	asm_op_reg(out, false, ASM_TEST, RAX, RAX);
	asm_jump(out, ASM_JUMP_E, &chunk);
	asm_immediate(out, false, ASM_IMM_CMP, 1 + ARCH_CLOCK_TICKS, RAX);
	asm_jump(out, ASM_JUMP_E, &ticks);
	asm_immediate(out, false, ASM_IMM_CMP, 1 + ARCH_CLOCK_MONOTONIC, RAX);
	asm_jump(out, ASM_JUMP_E, &monotonic);
	asm_op_reg(out, false, ASM_XOR_STORE, RAX, RAX);
	asm_place(out, &set);
	asm_move32(out, RCX, RDX);
	asm_shift(out, false, true, RDX, 9);
	asm_place(out, &timer);
	asm_compare_number(out, false, 0, asm_at_index(R10, RDX, 1, WORDS));
	asm_jump(out, ASM_JUMP_E, &skip);
	asm_store(out, RAX, asm_at_index(R10, RDX, 1, WORDS + 8));
	asm_place(out, &skip);
	asm_immediate(out, false, ASM_IMM_ADD, 16, RDX);
	asm_op_reg(out, false, 0xf7, 0, RDX); /* test $number,%edx */
	x86_emit32(out, PAIR_CHUNK * 8 - 1);
	asm_jump(out, ASM_JUMP_NE, &timer);
	asm_jump(out, ASM_JUMP_ALWAYS, &chunk);

	asm_place(out, &ticks);
	x86_emit(out, rdtsc, sizeof(rdtsc));
	asm_shift(out, true, true, RDX, 32);
	asm_op_reg(out, true, ASM_OR_STORE, RDX, RAX);
	asm_jump(out, ASM_JUMP_ALWAYS, &set);
	asm_place(out, &monotonic);
	emit_monotonic(out);
	asm_jump(out, ASM_JUMP_ALWAYS, &set);
	asm_place(out, &done);
	asm_push_pop(out, 0x58, RDX);
}

/* A forked child: the parent counts what is in the record (r10). */
static void emit_inherit(struct arch_buf *out, const struct arch_pairing *spec)
{
	struct asm_label home = {0}, empty = {0}, other = {0};

	asm_store_number(out, true, 0, asm_at(R10, offsetof(struct pair_record, cpu_offset)));
	asm_store_number(out, true, 0, asm_at(R10, offsetof(struct pair_record, out_ticks)));
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
	emit_timers(out);
	asm_store32(out, R8, asm_at(R10, TID));
	asm_store32(out, R8, pairing_owner_at(spec, RDI, RSI));
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

/* Clears rax bytes, a multiple of `step` and not 0, of the record from `offset` on. */
static void emit_clear(struct arch_buf *out, uint32_t offset, uint32_t step)
{
	struct asm_label again = {0};

	asm_place(out, &again);
	asm_store_number(out, true, 0, asm_at_index(R10, RAX, 1, (int32_t)(offset - step)));
	asm_immediate(out, false, ASM_IMM_SUB, (int32_t)step, RAX);
	asm_jump(out, ASM_JUMP_NE, &again);
}

/* Nothing of the thread that had the record before stays in it. */
static void emit_reset(struct arch_buf *out, const struct arch_pairing *spec)
{
	struct asm_label clean = {0};

	asm_store_number(out, false, 0, asm_at(R10, TID));
	asm_store_number(out, false, 0, asm_at(R10, DEPTH));
	asm_store_number(out, true, 0, asm_at(R10, offsetof(struct pair_record, cpu_offset)));
	asm_store_number(out, true, 0, asm_at(R10, offsetof(struct pair_record, out_ticks)));
	asm_store_number(out, true, -1, asm_at(R10, HOME - ENTRY));
	asm_number32(out, RAX, OTHER_BYTES);
	emit_clear(out, OTHER, ENTRY);
	asm_load(out, RAX, asm_at(RDI, offsetof(struct pair_config, shared)));
	asm_op_reg(out, true, ASM_TEST, RAX, RAX);
	asm_jump(out, ASM_JUMP_E, &clean);
	asm_load32(out, RAX, asm_at(RAX, offsetof(struct pair_shared, words)));
	asm_op_reg(out, false, ASM_TEST, RAX, RAX);
	asm_jump(out, ASM_JUMP_E, &clean);
	emit_clear(out, WORDS, 8);
	asm_place(out, &clean);
	emit_bounds(out);
	asm_store32(out, R8, pairing_owner_at(spec, RDI, RSI));
	asm_store32(out, R8, asm_at(R10, TID));
}

void pairing_emit_find(struct arch_buf *out, const struct arch_pairing *spec,
		       struct asm_label *none)
{
	struct asm_label again = {0}, found = {0}, fresh = {0}, reset = {0}, ready = {0};

	asm_number64(out, RDI, spec->area);
	asm_load_thread(out, true, RCX, 0);
	asm_load_thread(out, false, R8, spec->tid_offset);
	asm_op_reg(out, false, ASM_TEST, R8, R8);
	asm_jump(out, ASM_JUMP_E, none);
	pairing_emit_hash(out, spec, RCX, RSI);
	asm_number32(out, R10, PAIR_PROBE);
	asm_place(out, &again);
	asm_op_mem(out, true, ASM_CMP_STORE, RCX, pairing_key_at(RDI, RSI));
	asm_jump(out, ASM_JUMP_E, &found);
	emit_next(out, spec, RSI, 1);
	emit_count_down(out, R10, &again);
	emit_next(out, spec, RSI, -PAIR_PROBE);
	emit_claim(out, spec, &fresh, &found, none);

	asm_place(out, &found);
	asm_load32(out, RAX, pairing_owner_at(spec, RDI, RSI));
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
