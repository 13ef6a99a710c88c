/* SPDX-License-Identifier: MIT */
/*
 * arch_pairing.h - the code that pairs entries with exits, ready to be run on
 * stacks of a test's own making; for arch_pairing*.c only.
 */
#ifndef DINST_TESTS_UNIT_ARCH_PAIRING_H
#define DINST_TESTS_UNIT_ARCH_PAIRING_H

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "arch/pairing.h"

#ifdef __aarch64__
enum { HAS_OPERATIONS = false };
#else
enum { HAS_OPERATIONS = true };
#endif

enum {
	SHIFT = 6,
	FUNCTIONS = 12, /* 1 .., that programs have */
	MANY = 110,	/* for threads: each counts by itself */
	CODE_SIZE = 1 << 18,
	COLD_AT = 1 << 17,
	STACK_BYTES = 1 << 20,
	STACKS = 4, /* the first is the thread's own */
	TRAP_FLAG = 0x100,
	NOT_CODE = 0x06,
};

static uint8_t *code, *area;
static struct pair_shared *shared;
static uint64_t (*counters)[2]; /* entries, exits; by function */
/*
 * By function: entries that were kept, their exits, and those that were undone;
 * of the last one that was undone the moment and the start word.
 */
static struct {
	uint64_t kept, found, undone, dropped_at, dropped_start, result, second;
} truth[MANY + 1];
static uint64_t undo_table[1 << PAIR_UNDO_SHIFT];
static uint64_t seen[MANY + 1][2]; /* of those, what events counted that came to their end */
static size_t code_used, cold_used;
static taddr_t enter_code[MANY + 1], leave_code[MANY + 1];
static taddr_t enter_routine, leave_routine;
static uint64_t statistics[3];
static int32_t tid_offset;
static uint8_t *stacks[STACKS];

/* xorshift64*: the same numbers in every run. */
static inline uint64_t next_random(void)
{
	static uint64_t seed = 0x9e3779b97f4a7c15ull;

	seed ^= seed >> 12;
	seed ^= seed << 25;
	seed ^= seed >> 27;
	return seed * 0x2545f4914f6cdd1dull;
}

static inline struct pair_config *config(void)
{
	return (struct pair_config *)(void *)area;
}

static inline uint64_t *keys(void)
{
	return (uint64_t *)(void *)(area + pair_keys());
}

static inline uint32_t *owners(void)
{
	return (uint32_t *)(void *)(area + pair_owners(SHIFT));
}

static inline struct pair_record *records(void)
{
	return (struct pair_record *)(void *)(area + pair_records(SHIFT));
}

static inline uint64_t own_pointer(void)
{
	return (uint64_t)(uintptr_t)__builtin_thread_pointer();
}

static inline struct pair_record *own_record(void)
{
	for (unsigned i = 0; i < 1u << SHIFT; i++)
		if (keys()[i] == own_pointer())
			return &records()[i];
	return NULL;
}

/* As it was made; only what was used is cleared. */
static inline void clear_area(void)
{
	for (unsigned i = 0; i < 1u << SHIFT; i++)
		if (keys()[i] || owners()[i] || records()[i].tid)
			memset(&records()[i], 0, sizeof(records()[i]));
	memset(area + pair_keys(), 0, pair_records(SHIFT) - pair_keys());
	memset(statistics, 0, sizeof(statistics));
	memset(truth, 0, sizeof(truth));
}

/* The last two functions may be alive at one stack pointer. */
static inline uint32_t id_of(unsigned function)
{
	return function == FUNCTIONS || function == FUNCTIONS - 1 ? PAIR_RAW | function : function;
}

static inline unsigned in_record(unsigned function)
{
	const struct pair_record *r = own_record();
	unsigned count = 0;

	for (unsigned i = 0; r && i < r->depth / sizeof(struct pair_entry); i++)
		count += (r->home[i].tag & PAIR_ID_MASK) == id_of(function);
	for (unsigned i = 0; r && i < PAIR_OTHER; i++)
		count += (r->other[i].tag & PAIR_ID_MASK) == id_of(function);
	return count;
}

/*
 * Every activation that was kept was left, or undone, or is still there, each
 * once: returns how many were not.
 */
static inline uint64_t count_untrue(void)
{
	uint64_t count = 0;

	for (unsigned f = 1; f <= FUNCTIONS && HAS_OPERATIONS; f += 2) {
		const uint64_t ended = truth[f].found + truth[f].undone + in_record(f);

		count += truth[f].kept > ended ? truth[f].kept - ended : ended - truth[f].kept;
	}
	return count;
}

/* The thread's own stack is stacks[0]. */
static inline void claim_stack(uint8_t *stack, size_t size)
{
	config()->main_pointer = own_pointer();
	config()->main_lo = (uint64_t)(uintptr_t)stack << PAIR_ID_BITS;
	config()->main_size = (uint64_t)size << PAIR_ID_BITS;
}

/* ------------------------------------------------------------------- code */

#ifdef __aarch64__
#include "arch/aarch64/a64.h"

static inline void open_frame(struct arch_frame *frame, unsigned number, struct arch_buf *out)
{
	/* One register, or several, are dead. */
	frame->live = SET_ALL & ~(number & 1 ? SET(17) | SET(16) | SET(15) : SET(3));
	arch_frame_open(out, frame);
}

static inline void end_run(const struct arch_frame *frame, struct arch_buf *out)
{
	arch_frame_close(out, frame);
	a64_emit(out, 0xd61f0380); /* br x28 */
}

static inline void emit_operation(const struct arch_pairing *spec, unsigned function, bool is_leave,
				  struct arch_buf *out, struct arch_buf *cold)
{
	(void)spec, (void)function, (void)is_leave, (void)out, (void)cold;
}

static inline void emit_undo(unsigned function, struct arch_buf *out)
{
	(void)function, (void)out;
}

/* Runs a snippet with that stack pointer. */
void run_at(taddr_t pc, uint64_t sp, uint64_t trap);
__asm__(".text\n"
	"run_at:\n\t"
	"stp x29, x30, [sp, #-96]!\n\t"
	"stp x19, x20, [sp, #16]\n\tstp x21, x22, [sp, #32]\n\t"
	"stp x23, x24, [sp, #48]\n\tstp x25, x26, [sp, #64]\n\tstp x27, x28, [sp, #80]\n\t"
	"mov x27, sp\n\tadr x28, 1f\n\tmov sp, x1\n\tbr x0\n"
	"1:\tmov sp, x27\n\t"
	"ldp x19, x20, [sp, #16]\n\tldp x21, x22, [sp, #32]\n\t"
	"ldp x23, x24, [sp, #48]\n\tldp x25, x26, [sp, #64]\n\tldp x27, x28, [sp, #80]\n\t"
	"ldp x29, x30, [sp], #96\n\t"
	"ret\n");
#else
#include "arch/x86_64/assembler.h"

/* Frames of all kinds: the snippets run with whatever registers they are given. */
static const uint8_t register_sets[][4] = {
	{RAX, RCX, RDX, RSI}, {R11, R10, R9, R8},  {R12, RBP, RDI, RBX},
	{RDX, R9, RAX, R12},  {R8, RDX, R12, RAX}, {RBP, R12, R11, RCX},
};

/* The snippet finds these registers, and the run ends behind it. */
static inline void open_frame(struct arch_frame *frame, unsigned number, struct arch_buf *out)
{
	const unsigned sets = sizeof(register_sets) / sizeof(register_sets[0]);

	(void)out;
	assert_true(frame->scratch == 4 && (frame->needs & ARCH_NEED_FLAGS));
	memcpy(frame->reg, register_sets[number % sets], 4);
}

static inline void end_run(const struct arch_frame *frame, struct arch_buf *out)
{
	static const uint8_t jump_r14[] = {0x41, 0xff, 0xe6};

	(void)frame;
	x86_emit(out, jump_r14, sizeof(jump_r14));
}

static inline struct asm_mem at_address(struct arch_buf *out, unsigned reg, const void *address)
{
	asm_number64(out, reg, (uint64_t)(uintptr_t)address);
	return asm_at(reg, 0);
}

static inline void add_one(struct arch_buf *out, unsigned reg, const void *word)
{
	asm_op_mem(out, true, 0xff, 0, at_address(out, reg, word)); /* incq */
}

/* As behind all that an exit does: what was found goes. */
static inline void emit_left(const struct arch_pairing *spec, const struct arch_state_code *leave,
			     struct arch_buf *out, struct arch_buf *cold)
{
	const struct arch_state_code state = {
		.result = ARCH_NO_REGISTER,
		.second = ARCH_NO_REGISTER,
		.record = leave->record,
		.temps = {leave->second, leave->result,
			  leave->record == ARCH_NO_REGISTER ? R13 : ARCH_NO_REGISTER},
		.pushed = leave->pushed,
	};
	const size_t hot_used = out->used, cold_used = cold->used;
	struct asm_label none = {0};

	asm_op_reg(out, true, ASM_TEST, leave->result, leave->result);
	asm_jump(out, ASM_JUMP_E, &none);
	arch_emit_left_op(spec, &state, out, cold);
	asm_place(out, &none);
	assert_true(out->used - hot_used <= ARCH_STATE_HOT);
	assert_true(cold->used - cold_used <= ARCH_STATE_COLD);
}

/*
 * The same event as an operation of programs: it finds the record itself or is
 * given it. Exits are counted where they find an entry that is not inherited.
 */
static inline void emit_operation(const struct arch_pairing *spec, unsigned function, bool is_leave,
				  struct arch_buf *out, struct arch_buf *cold)
{
	const uint8_t *set = register_sets[function % 6];
	struct arch_state_code state = {
		.result = set[0],
		.second = set[1],
		.record = function % 4 == 1 ? R13 : ARCH_NO_REGISTER,
		.temps = {set[2], set[3], R13},
		.pushed = 128,
	};
	const struct arch_state_code record = {
		.result = R13, .temps = {set[0], set[1], ARCH_NO_REGISTER}, .pushed = 128};
	struct asm_label uncounted = {0};
	const unsigned temp = set[2];
	size_t hot_used, cold_before;

	/* What is not needed is not there. */
	if (function % 4 == 1)
		memset(&state.temps[is_leave ? 0 : 1], ARCH_NO_REGISTER,
		       sizeof(state.temps) - (is_leave ? 0 : 1));
	asm_op_mem(out, true, ASM_LEA, RSP, asm_at(RSP, -128));
	if (function % 4 == 1)
		arch_emit_record_op(spec, &record, out, cold);
	hot_used = out->used;
	cold_before = cold->used;
	if (is_leave)
		arch_emit_leave_op(spec, &state, out, cold);
	else
		arch_emit_enter_op(spec, &state, out, cold);
	assert_true(out->used - hot_used <= ARCH_STATE_HOT);
	assert_true(cold->used - cold_before <= ARCH_STATE_COLD);
	asm_store(out, state.result, at_address(out, temp, &truth[function].result));
	if (is_leave)
		asm_store(out, state.second, at_address(out, temp, &truth[function].second));
	/* Entries are always counted, as snippets count them. */
	if (!is_leave)
		add_one(out, temp, &counters[function][0]);
	asm_op_reg(out, true, ASM_TEST, state.result, state.result);
	asm_jump(out, ASM_JUMP_E, &uncounted);
	add_one(out, temp, is_leave ? &truth[function].found : &truth[function].kept);
	if (is_leave) {
		asm_immediate(out, true, ASM_IMM_CMP, -1, state.second);
		asm_jump(out, ASM_JUMP_E, &uncounted);
		add_one(out, temp, &counters[function][1]);
	}
	asm_place(out, &uncounted);
	if (is_leave)
		emit_left(spec, &state, out, cold);
	asm_op_mem(out, true, ASM_LEA, RSP, asm_at(RSP, 128));
}

/* Uses all that it may, and writes down what it was told. */
static inline void emit_undo(unsigned function, struct arch_buf *out)
{
	add_one(out, RAX, &truth[function].undone);
	asm_load(out, RCX, asm_at(arch_undo_record, offsetof(struct pair_record, dropped_at)));
	asm_store(out, RCX, at_address(out, RSI, &truth[function].dropped_at));
	asm_load(out, RDI, asm_at(arch_undo_record, offsetof(struct pair_record, dropped_start)));
	asm_store(out, RDI, at_address(out, RSI, &truth[function].dropped_start));
	asm_store_number(out, true, function,
			 asm_at(arch_undo_record, offsetof(struct pair_record, moments)));
	arch_emit_undo_return(out);
}

/*
 * Runs a snippet with that stack pointer. With `trap` in the flags every
 * instruction of it raises SIGTRAP.
 */
void run_at(taddr_t pc, uint64_t sp, uint64_t trap);
__asm__(".text\n"
	"run_at:\n\t"
	"push %rbx\n\tpush %rbp\n\tpush %r12\n\tpush %r13\n\tpush %r14\n\tpush %r15\n\t"
	"mov %rsp, %r15\n\tlea 1f(%rip), %r14\n\t"
	"mov %rsi, %rbx\n\tmov %rdi, %rax\n\t"
	"pushf\n\tor %rdx, (%rsp)\n\tpopf\n\t"
	"mov %rbx, %rsp\n\tjmp *%rax\n"
	"1:\tmov %r15, %rsp\n\t"
	"pushf\n\tandq $-257, (%rsp)\n\tpopf\n\t"
	"pop %r15\n\tpop %r14\n\tpop %r13\n\tpop %r12\n\tpop %rbp\n\tpop %rbx\n\t"
	"ret\n");
#endif

/* Every other function's events are operations. */
static inline bool is_operation(unsigned function)
{
	return HAS_OPERATIONS && function % 2;
}

static inline taddr_t emit_event(const struct arch_pairing *base, unsigned function, bool leave)
{
	const struct arch_counter counter = {
		.mode = ARCH_COUNT_LOCKED,
		.counter_address = (taddr_t)(uintptr_t)&counters[function][leave],
	};
	struct arch_buf out = {.bytes = code, .size = COLD_AT, .pc = (taddr_t)(uintptr_t)code};
	struct arch_buf cold = {.bytes = code, .size = CODE_SIZE, .pc = out.pc};
	struct arch_frame frame = {.red_zone = true};
	struct arch_pairing spec = *base;
	taddr_t entry;

	spec.function = id_of(function);
	spec.count = &counter;
	arch_pairing_needs(&spec, &frame);
	out.used = code_used;
	cold.used = cold_used;
	entry = arch_here(&out);
	open_frame(&frame, function + leave, &out);
	if (is_operation(function))
		emit_operation(&spec, function, leave, &out, &cold);
	else if (leave)
		arch_emit_leave(&spec, &frame, &out, &cold);
	else
		arch_emit_enter(&spec, &frame, &out, &cold);
	assert_true(is_operation(function) ||
		    out.used - code_used <= ARCH_PAIRING_HOT + ARCH_COUNT_HOT);
	assert_true(is_operation(function) ||
		    cold.used - cold_used <= ARCH_PAIRING_COLD + ARCH_COUNT_COLD);
	end_run(&frame, &out);
	assert_int_equal(out.status, ARCH_OK);
	assert_int_equal(cold.status, ARCH_OK);
	code_used = out.used;
	cold_used = cold.used;
	return entry;
}

static inline int32_t find_tid(void)
{
	const pid_t tid = (pid_t)syscall(SYS_gettid);
	int32_t found = 0;

	for (int64_t at = arch_thread_block_lo; at < arch_thread_block_hi; at += 4) {
		pid_t word;

		memcpy(&word, (const uint8_t *)__builtin_thread_pointer() + at, 4);
		if (word == tid) {
			assert_int_equal(found, 0);
			found = (int32_t)at;
		}
	}
	return found;
}

static inline int setup(void **state)
{
	struct arch_pairing spec = {.shift = SHIFT};
	struct arch_buf out;
	size_t offsets[ARCH_PAIRING_KINDS];

	(void)state;
	assert_true(
		arch_thread_pointer_is_sane(own_pointer(), *(uint64_t *)(uintptr_t)own_pointer()));
	assert_false(arch_thread_pointer_is_sane(0, 0));
	tid_offset = spec.tid_offset = find_tid();
	code = mmap(NULL, CODE_SIZE + 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	area = mmap(NULL, pair_area_size(SHIFT), PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (code == MAP_FAILED || area == MAP_FAILED ||
	    madvise(area + pair_owners(SHIFT), pair_owners_size(SHIFT), MADV_WIPEONFORK))
		return -1;
	for (unsigned i = 0; i < STACKS; i++) {
		stacks[i] = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (stacks[i] == MAP_FAILED)
			return -1;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return -1;
	config()->shared = (uint64_t)(uintptr_t)shared;
	config()->shift = SHIFT;
	config()->lost = (uint64_t)(uintptr_t)&statistics[0];
	config()->overflow = (uint64_t)(uintptr_t)&statistics[1];
	config()->orphans = (uint64_t)(uintptr_t)&statistics[2];
	/* Within reach of the code. */
	counters = (uint64_t(*)[2])(void *)(code + CODE_SIZE);
	memset(code, NOT_CODE, CODE_SIZE);
	spec.area = (taddr_t)(uintptr_t)area;
	out = (struct arch_buf){.bytes = code, .size = CODE_SIZE, .pc = (taddr_t)(uintptr_t)code};
	arch_emit_pairing_routines(&out, &spec, offsets);
	if (out.status != ARCH_OK || out.used > ARCH_PAIRING_ROUTINES)
		return -1;
	spec.record = out.pc + offsets[ARCH_PAIRING_RECORD];
	spec.enter = enter_routine = out.pc + offsets[ARCH_PAIRING_ENTER];
	spec.leave = leave_routine = out.pc + offsets[ARCH_PAIRING_LEAVE];
	spec.leaving = out.pc + offsets[ARCH_PAIRING_LEAVING];
	for (unsigned f = 1; f <= MANY && HAS_OPERATIONS; f++) {
		undo_table[f] = arch_here(&out);
		emit_undo(f, &out);
	}
	shared->undo[0] = shared->undo[PAIR_RAW >> PAIR_UNDO_SHIFT] =
		(uint64_t)(uintptr_t)undo_table;
	code_used = out.used;
	cold_used = COLD_AT;
	for (unsigned f = 1; f <= MANY; f++) {
		enter_code[f] = emit_event(&spec, f, false);
		leave_code[f] = emit_event(&spec, f, true);
	}
	return 0;
}

/* Runs the event; true if it was counted. */
static inline bool event(bool is_leave, unsigned function, uint64_t sp, uint64_t trap)
{
	const uint64_t counted = counters[function][is_leave], nested = seen[function][is_leave];
	uint64_t own;

	run_at((is_leave ? leave_code : enter_code)[function], sp, trap);
	own = counters[function][is_leave] - counted - (seen[function][is_leave] - nested);
	assert_true(own <= 1);
	seen[function][is_leave] += own;
	return own;
}

static inline bool enter(unsigned function, uint64_t sp)
{
	return event(false, function, sp, 0);
}

static inline bool leave(unsigned function, uint64_t sp)
{
	return event(true, function, sp, 0);
}

#endif
