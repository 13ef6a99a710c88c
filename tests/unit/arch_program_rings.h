/* SPDX-License-Identifier: MIT */
/*
 * arch_program_rings.h - rings of the test's own, and programs that write into them; for
 * arch_program_rings.c and arch_program_storm.c only.
 */
#ifndef DINST_TESTS_UNIT_ARCH_PROGRAM_RINGS_H
#define DINST_TESTS_UNIT_ARCH_PROGRAM_RINGS_H

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>

#include "tests/unit/arch_program.h"

enum {
	RING_SHIFT = 12,
	RING_BYTES = 1 << RING_SHIFT,
	BLOCK_SHIFT = 14,
	RING_BLOCKS = (CPUS + 1) << BLOCK_SHIFT,
	RING_GUARD = 256, /* in front of each block's rings, and behind them */
	PAGE = 4096,
	SECOND_AT = 4096, /* of a second program in code */
};

static uint8_t *low_area, *far_area;
static uint8_t *pages; /* readable, then one that is not there */

static inline int setup(void **state)
{
	(void)state;
	find_tid();
	low_area = map_low(RING_BLOCKS, PROT_READ | PROT_WRITE);
	far_area =
		mmap(NULL, RING_BLOCKS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!low_area || far_area == MAP_FAILED || pages == MAP_FAILED ||
	    munmap(pages + PAGE, PAGE) != 0)
		return -1;
	run_fill(pages, PAGE);
	return map_all();
}

/* ------------------------------------------------------------------- rings */

static inline struct arch_stream stream_in(const uint8_t *area)
{
	return (struct arch_stream){.rings = address_of(area) + RING_GUARD,
				    .cpus = CPUS,
				    .cpu_shift = BLOCK_SHIFT,
				    .shift = RING_SHIFT,
				    .spread = CPUS};
}

static inline struct arch_ring *ring_at(const struct arch_stream *s, unsigned block, unsigned n)
{
	return (struct arch_ring *)(uintptr_t)arch_ring_at(s, block, n);
}

static inline struct arch_ring *any_ring(const struct arch_stream *s, unsigned number)
{
	return ring_at(s, number / ARCH_RINGS_EACH, number % ARCH_RINGS_EACH);
}

enum { ALL_RINGS = ARCH_RINGS_EACH * (CPUS + 1) };

static inline void clear_rings(uint8_t *area)
{
	const struct arch_stream s = stream_in(area);

	memset(area, 0x5a, RING_BLOCKS);
	for (unsigned n = 0; n < ALL_RINGS; n++)
		memset(any_ring(&s, n), 0, ARCH_RING_HEADER);
}

/* What lies around the rings is as it was. */
static inline void check_guards(const uint8_t *area)
{
	const size_t used = RING_GUARD + ARCH_RINGS_EACH * (ARCH_RING_HEADER + RING_BYTES);

	for (unsigned block = 0; block <= CPUS; block++) {
		const uint8_t *from = area + ((size_t)block << BLOCK_SHIFT);

		for (size_t at = 0; at < 1u << BLOCK_SHIFT; at++)
			if ((at < RING_GUARD || at >= used) && from[at] != 0x5a)
				fail_msg("block %u is changed at %zu", block, at);
	}
}

/* -------------------------------------------------------------- programs */

static unsigned next_value;

/* An event of `words` words: the first argument, then what it is times 2, 3 ... */
static inline void add_event(struct made *m, uint32_t id, unsigned words)
{
	const uint16_t record = (uint16_t)next_value++, ring = (uint16_t)next_value++;
	const uint16_t value = (uint16_t)next_value++;
	const int32_t size = (int32_t)(sizeof(struct arch_record) + 8 * words);

	add_op(m, (struct arch_op){.kind = ARCH_OP_ARGUMENT, .result = value, .number = 0});
	add_op(m, (struct arch_op){.kind = ARCH_OP_RING_OPEN,
				   .result = record,
				   .second = ring,
				   .number = id,
				   .immediate = size});
	add_op(m, (struct arch_op){.kind = ARCH_OP_IF,
				   .condition = ARCH_TEST_EQ,
				   .a = record,
				   .label = (uint16_t)id});
	for (unsigned n = 0; n < words; n++) {
		const uint16_t times = (uint16_t)next_value++;

		add_op(m, (struct arch_op){.kind = ARCH_OP_MUL,
					   .result = times,
					   .a = value,
					   .immediate = (int32_t)n + 1});
		add_op(m, (struct arch_op){.kind = ARCH_OP_STORE,
					   .size = 8,
					   .a = record,
					   .b = times,
					   .number = offsetof(struct arch_record, fields) + 8 * n});
	}
	add_op(m, (struct arch_op){.kind = ARCH_OP_RING_CLOSE, .a = ring, .immediate = size});
	add_op(m, (struct arch_op){.kind = ARCH_OP_LABEL, .label = (uint16_t)id});
}

static inline arch_regset random_live(void)
{
	switch (run_random() % 3) {
	case 0:
		return SET_ALL;
	case 1:
		return SET_ALL & ~SET_FLAGS;
	default:
		return SET(RSP) | (run_random() & SET_ALL);
	}
}

static inline void start(struct made *m, const uint8_t *area)
{
	begin_program(m, ARCH_COUNT_LOCKED);
	m->frame.live = random_live() | SET(RDI);
	m->frame.red_zone = run_random() & 1;
	m->env.pairing.tid_offset = tid_offset;
	m->env.stream = stream_in(area);
	next_value = 1;
}

static inline void run_it(const struct made *m)
{
	const char *what;

	random_state();
	what = run_program(m);
	if (what) {
		show_program(m);
		fail_msg("%s is not kept", what);
	}
}

static inline void stay_here(unsigned *cpu)
{
	cpu_set_t set;

	*cpu = (unsigned)sched_getcpu();
	CPU_ZERO(&set);
	CPU_SET(*cpu, &set);
	assert_int_equal(sched_setaffinity(0, sizeof(set), &set), 0);
}

static inline void go_anywhere(void)
{
	cpu_set_t set;

	memset(&set, 0xff, sizeof(set));
	sched_setaffinity(0, sizeof(set), &set);
}

#endif
