/* SPDX-License-Identifier: MIT */
/*
 * arch_program.h - programs emitted into memory of the test's own and run there
 * on given states; for arch_program*.c only. Code, data and counters lie below
 * 2 GiB, as in an arena.
 */
#ifndef DINST_TESTS_UNIT_ARCH_PROGRAM_H
#define DINST_TESTS_UNIT_ARCH_PROGRAM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "arch/program.h"
#include "arch/x86_64/x86.h"
#include "tests/unit/arch_run.h"

enum {
	CPUS = 64,
	CPU_SHIFT = 12,
	BLOCKS = (CPUS + 1) << CPU_SHIFT,
	COUNTER_OFFSET = 128, /* of CPU 0's block */
	COUNTERS = 8,	      /* in a row */
	TABLE_OFFSET = 1024,  /* CPU 0's word of cpu_table */
	CODE_SIZE = 1 << 18,
	COLD_AT = 1 << 17,
	EXIT_AT = CODE_SIZE - 64,
	STACK_SIZE = 1 << 16,
	STACK_AT = STACK_SIZE - 1024,
	DATA_SIZE = 1 << 14,
};

static uint8_t *code, *counters, *stack, *data;

/* Below 2 GiB, as an arena. */
static inline uint8_t *map_low(size_t size, int protection)
{
	for (uintptr_t at = 0x10000000; at < 0x60000000; at += 0x1000000) {
		void *p = mmap((void *)at, size, protection,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

		if (p == (void *)at)
			return p;
		if (p != MAP_FAILED)
			munmap(p, size);
	}
	return NULL;
}

static inline uint64_t address_of(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

static inline int map_all(void)
{
	code = map_low(CODE_SIZE, PROT_READ | PROT_WRITE | PROT_EXEC);
	counters = map_low(BLOCKS, PROT_READ | PROT_WRITE);
	data = map_low(DATA_SIZE, PROT_READ | PROT_WRITE);
	stack = map_low(STACK_SIZE, PROT_READ | PROT_WRITE);
	if (!code || !counters || !data || !stack)
		return -1;
	memset(code, RUN_END, CODE_SIZE);
	for (uint64_t cpu = 0; cpu < CPUS; cpu++) {
		uint64_t word = (cpu << CPU_SHIFT) + 1;

		memcpy(counters + TABLE_OFFSET + 8 * cpu, &word, 8);
	}
	return 0;
}

/* In the place of the thread's struct rseq, as long as `no_processor`: additions go to the locked slot. */
static __thread struct {
	int32_t start, cpu;
	uint64_t sequence;
} unregistered __attribute__((unused)) = {.cpu = -1};
static bool no_processor;

static inline struct arch_environment environment(enum arch_count_mode mode)
{
	return (struct arch_environment){
		.counter = {.mode = mode,
			    .cpu_shift = CPU_SHIFT,
			    .cpus = CPUS,
			    .rseq_offset =
				    no_processor ? (int64_t)(address_of(&unregistered) -
							     address_of(__builtin_thread_pointer()))
						 : __rseq_offset,
			    .rseq_signature = RSEQ_SIG,
			    .cpu_table = address_of(counters) + TABLE_OFFSET},
	};
}

static inline taddr_t counter_at(unsigned n)
{
	return address_of(counters) + COUNTER_OFFSET + 8 * n;
}

/* All slots of counter n. */
static inline uint64_t counted(unsigned n)
{
	uint64_t sum = 0, word;

	for (unsigned cpu = 0; cpu <= CPUS; cpu++) {
		memcpy(&word, counters + COUNTER_OFFSET + 8 * n + ((size_t)cpu << CPU_SHIFT), 8);
		sum += word;
	}
	return sum;
}

static inline void clear_counters(void)
{
	for (unsigned cpu = 0; cpu <= CPUS; cpu++)
		memset(counters + COUNTER_OFFSET + ((size_t)cpu << CPU_SHIFT), 0, 8 * COUNTERS);
}

/* --------------------------------------------------------------- programs */

struct made {
	struct arch_op ops[ARCH_PROGRAM_OPS];
	struct arch_program p;
	struct arch_environment env;
	struct arch_frame frame;
	size_t hot_size, cold_size;
	struct arch_trace hot_trace, cold_trace;
	struct arch_mark hot_marks[512], cold_marks[512];
};

static inline void begin_program(struct made *m, enum arch_count_mode mode)
{
	memset(m, 0, sizeof(*m));
	m->p.ops = m->ops;
	m->p.room = ARCH_PROGRAM_OPS;
	m->env = environment(mode);
}

static inline struct arch_op *add_op(struct made *m, struct arch_op op)
{
	assert_true(m->p.count < m->p.room);
	if (op.result > m->p.values)
		m->p.values = op.result;
	if (op.second > m->p.values)
		m->p.values = op.second;
	if (op.label > m->p.labels)
		m->p.labels = op.label;
	m->ops[m->p.count] = op;
	return &m->ops[m->p.count++];
}

/* Before a descriptor is overwritten no thread may point to it. */
static inline void leave_descriptor(void)
{
	if (__rseq_size)
		memset((uint8_t *)__builtin_thread_pointer() + __rseq_offset + 8, 0, 8);
}

/* At code + at; twice, the first time elsewhere: sizes must be the same. */
static inline void emit_program_at(struct made *m, size_t at, taddr_t exit)
{
	const struct arch_frame wanted = m->frame;
	size_t most_hot, most_cold, sizes[2] = {0};

	leave_descriptor();
	arch_program_sizes(&m->p, &most_hot, &most_cold);
	for (unsigned pass = 0; pass < 2; pass++) {
		const taddr_t far = pass ? 0 : 0x40000;
		struct arch_buf hot = {.bytes = code + at,
				       .size = COLD_AT - at,
				       .pc = address_of(code) + at + far,
				       .trace = &m->hot_trace};
		struct arch_buf cold = {.bytes = code + COLD_AT + at,
					.size = EXIT_AT - COLD_AT - at,
					.pc = address_of(code) + COLD_AT + at + far,
					.trace = &m->cold_trace};
		size_t start;

		m->hot_trace = (struct arch_trace){.marks = m->hot_marks, .room = 512};
		m->cold_trace = (struct arch_trace){.marks = m->cold_marks, .room = 512};
		m->frame = wanted;
		arch_program_needs(&m->p, &m->env, &m->frame);
		arch_frame_open(&hot, &m->frame);
		start = hot.used;
		arch_emit_program(&m->p, &m->env, &m->frame, &hot, &cold);
		assert_int_equal(hot.status, ARCH_OK);
		assert_int_equal(cold.status, ARCH_OK);
		assert_true(hot.used - start <= most_hot);
		assert_true(cold.used <= most_cold);
		arch_frame_close(&hot, &m->frame);
		m->hot_size = hot.used;
		arch_emit_jump(&hot, exit + far);
		assert_int_equal(hot.status, ARCH_OK);
		m->cold_size = cold.used;
		if (pass)
			assert_true(sizes[0] == m->hot_size && sizes[1] == m->cold_size);
		sizes[0] = m->hot_size;
		sizes[1] = m->cold_size;
	}
}

static inline void emit_program(struct made *m)
{
	emit_program_at(m, 0, address_of(code) + EXIT_AT);
}

/* The program and its code, for people. */
static inline void show_program(const struct made *m)
{
	for (unsigned i = 0; i < m->p.count; i++) {
		char text[160];

		arch_op_format(&m->ops[i], text, sizeof(text));
		print_message("  %3u %s\n", i, text);
	}
	print_message("live %#llx red zone %d scratch %u slots %u pushed %u\n",
		      (unsigned long long)m->frame.live, m->frame.red_zone, m->frame.scratch,
		      m->frame.slots, m->frame.pushed);
	for (unsigned part = 0; part < 2; part++) {
		const size_t from = part ? COLD_AT : 0, size = part ? m->cold_size : m->hot_size;

		print_message("%s\n", part ? "cold" : "hot");
		for (size_t at = 0; at < size;) {
			struct arch_insn insn;
			char text[160];

			if (arch_decode(code + from + at, 16, address_of(code) + from + at,
					&insn) != ARCH_OK) {
				at++;
				continue;
			}
			arch_format(&insn, text, sizeof(text));
			print_message("  %4zx %s\n", at, text);
			at += insn.length;
		}
	}
}

/* How far an instruction moves the stack pointer down. */
static inline long moves_stack(const struct arch_insn *insn)
{
	const uint8_t *b = insn->bytes[0] == 0x41 ? insn->bytes + 1 : insn->bytes;
	int32_t disp;

	/* Neither pushf nor popf: a debugger that steps leaves the trap flag with them. */
	assert_true(*b != 0x9c && *b != 0x9d);
	if ((*b & 0xf0) == 0x50)
		return *b & 8 ? -8 : 8;
	if (b[0] != 0x48 || b[1] != 0x8d || (b[2] & 0x3f) != 0x24 || b[3] != 0x24)
		return 0;
	if (b[2] == 0x64)
		return -(int8_t)b[4];
	memcpy(&disp, b + 4, 4);
	return -(long)disp;
}

/* The trace of the hot part says what its instructions do. */
static inline void check_trace(const struct made *m)
{
	long pushed = 0;

	for (size_t at = 0; at < m->hot_size;) {
		struct arch_insn insn;

		assert_int_equal(arch_decode(code + at, 16, address_of(code) + at, &insn), ARCH_OK);
		if ((long)arch_pushed_at(&m->hot_trace, at) != pushed) {
			show_program(m);
			fail_msg("at %#zx %ld bytes are pushed, not %zu", at, pushed,
				 arch_pushed_at(&m->hot_trace, at));
		}
		pushed += moves_stack(&insn);
		at += insn.length;
	}
	assert_int_equal(pushed, 0);
	assert_true(m->hot_trace.count <= m->hot_trace.room);
}

/* ----------------------------------------------------------------- records */

enum { SHIFT = 8, ROUTINES_AT = 1 << 16 };

static int32_t tid_offset; /* where the C library keeps the thread's id */

static inline void find_tid(void)
{
	const pid_t tid = (pid_t)syscall(SYS_gettid);

	for (int32_t at = 0; at < 4096 && !tid_offset; at += 4)
		if (memcmp((uint8_t *)__builtin_thread_pointer() + at, &tid, 4) == 0)
			tid_offset = at;
	assert_int_not_equal(tid_offset, 0);
}

/* Per-thread state for the program, whose routines lie behind its code. */
static uint8_t *area;
static struct pair_shared *shared;
static uint64_t statistics[3];

static inline void make_area(struct made *m)
{
	struct pair_config *config;
	struct arch_buf out = {.bytes = code + ROUTINES_AT,
			       .size = COLD_AT - ROUTINES_AT,
			       .pc = address_of(code) + ROUTINES_AT};
	size_t offsets[ARCH_PAIRING_KINDS];

	if (!area) {
		area = mmap(NULL, pair_area_size(SHIFT), PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		assert_true(area != MAP_FAILED && shared != MAP_FAILED);
	}
	config = (struct pair_config *)(void *)area;
	config->shared = address_of(shared);
	config->shift = SHIFT;
	config->lost = address_of(&statistics[0]);
	config->overflow = address_of(&statistics[1]);
	config->orphans = address_of(&statistics[2]);
	shared->words = 64 * 8;
	shared->start_ip = address_of(&shared->never[1]);
	shared->post_commit_offset = 8;
	shared->abort_ip = address_of(shared->never);
	shared->signature = RSEQ_SIG;
	m->env.pairing = (struct arch_pairing){
		.area = address_of(area), .shift = SHIFT, .tid_offset = tid_offset};
	arch_emit_pairing_routines(&out, &m->env.pairing, offsets);
	assert_int_equal(out.status, ARCH_OK);
	m->env.pairing.record = out.pc + offsets[ARCH_PAIRING_RECORD];
	m->env.pairing.enter = out.pc + offsets[ARCH_PAIRING_ENTER];
	m->env.pairing.leave = out.pc + offsets[ARCH_PAIRING_LEAVE];
	m->env.pairing.leaving = out.pc + offsets[ARCH_PAIRING_LEAVING];
}

/* ------------------------------------------------------------------- runs */

static struct run_state run_in, run_out;
static uint8_t stack_before[STACK_SIZE];

/* A state in which the program starts at code. */
static inline void random_state(void)
{
	run_random_extended(&run_in);
	for (unsigned i = 0; i < 16; i++)
		run_in.r[i] = run_random();
	/* Aligned or not: who computes with rsp may have put it anywhere. */
	run_in.r[RSP] = address_of(stack) + STACK_AT + run_random() % 16;
	run_in.flags = run_random() & RUN_FLAGS;
	run_in.pc = address_of(code);
	run_fill(stack_before, STACK_SIZE);
}

/* What is not as the frame promises; NULL: all is. */
static inline const char *run_differs(const struct arch_frame *frame)
{
	const size_t sp = run_in.r[RSP] - address_of(stack);
	uint64_t flags = 0x400;

	for (unsigned i = 0; i < 16; i++)
		if ((frame->live & SET(i) || i == RSP) && run_in.r[i] != run_out.r[i])
			return "register";
	flags |= frame->live & FLAG_CF ? 0x001 : 0;
	flags |= frame->live & FLAG_PF ? 0x004 : 0;
	flags |= frame->live & FLAG_AF ? 0x010 : 0;
	flags |= frame->live & FLAG_ZF ? 0x040 : 0;
	flags |= frame->live & FLAG_SF ? 0x080 : 0;
	flags |= frame->live & FLAG_OF ? 0x800 : 0;
	if ((run_in.flags ^ run_out.flags) & flags)
		return "flag";
	if (memcmp(stack + sp, stack_before + sp, STACK_SIZE - sp) != 0)
		return "stack";
	if (frame->red_zone && memcmp(stack + sp - 128, stack_before + sp - 128, 128) != 0)
		return "red zone";
	return memcmp(run_in.extended, run_out.extended, 464) ? "vector state" : NULL;
}

static inline const char *run_program(const struct made *m)
{
	const char *what;

	memcpy(stack, stack_before, STACK_SIZE);
	run_code(&run_in, &run_out);
	what = run_differs(&m->frame);
	if (!what && run_out.pc != address_of(code) + EXIT_AT)
		what = "pc";
	return what;
}

#endif
