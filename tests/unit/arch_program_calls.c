/* SPDX-License-Identifier: MIT */
/*
 * arch_program_calls.c - operations of programs that make system calls, and those
 * that ask who and where the thread is: their results, and that all that may be
 * live is kept, vector registers included.
 */
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>

#include "tests/slower.h"
#include "tests/unit/arch_program.h"

enum { PAGE = 4096, ROUNDS = 400 };

static uint8_t *pages; /* readable, then one that is not there */

static int setup(void **state)
{
	(void)state;
	find_tid();
	pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED || !tid_offset || munmap(pages + PAGE, PAGE) != 0)
		return -1;
	run_fill(pages, PAGE);
	return map_all();
}

static uint64_t result_at(unsigned n)
{
	uint64_t word;

	memcpy(&word, data + 8 * n, 8);
	return word;
}

/* Value v goes to word n of the data. */
static void keep(struct made *m, unsigned v, unsigned n)
{
	add_op(m, (struct arch_op){.kind = ARCH_OP_STORE,
				   .b = (uint16_t)v,
				   .size = 8,
				   .number = address_of(data) + 8 * n});
}

static arch_regset random_live(void)
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

/* What the vector state has beyond what run_differs() looks at: AVX, masks, ZMM. */
static bool vectors_kept(void)
{
	for (unsigned i = 2; i < 8; i++) {
		unsigned size, offset, c, d;

		if (!(run_engine.features & 0xe7 & 1u << i) ||
		    !__get_cpuid_count(0xd, i, &size, &offset, &c, &d) ||
		    offset + size > run_engine.extended_size)
			continue;
		if (memcmp(run_in.extended + offset, run_out.extended + offset, size) != 0)
			return false;
	}
	return true;
}

static void start(struct made *m)
{
	begin_program(m, ARCH_COUNT_LOCKED);
	m->frame.live = random_live();
	m->frame.red_zone = run_random() & 1;
	m->frame.before = run_random() & 1 ? 8 : 0;
	m->env.pairing.tid_offset = tid_offset;
	memset(data, 0xa5, 512);
}

static void run_it(struct made *m)
{
	const char *what;

	emit_program(m);
	check_trace(m);
	random_state();
	what = run_program(m);
	if (!what && !vectors_kept())
		what = "a vector register";
	if (what) {
		show_program(m);
		fail_msg("%s is not kept", what);
	}
}

/* ------------------------------------------------------------------- reads */

struct read_case {
	uint64_t address;
	unsigned size;
	bool readable;
};

static uint64_t expected(const struct read_case *c, bool is_signed)
{
	uint64_t word = 0;
	const unsigned shift = 64 - 8 * c->size;

	if (!c->readable)
		return 0;
	memcpy(&word, (const void *)(uintptr_t)c->address, c->size);
	return is_signed ? (uint64_t)((int64_t)(word << shift) >> shift) : word;
}

/* By a value and by number, near and far from each other, with what else lives then. */
static void check_read(const struct read_case *c)
{
	for (unsigned i = 0; i < 8; i++) {
		static struct made m;
		const bool by_value = i & 1, is_signed = i & 2;
		const uint64_t number = i & 4 ? 1ull << 44 : 24;
		const uint16_t second = i % 3 ? 3 : 1;

		start(&m);
		add_op(&m, (struct arch_op){.kind = ARCH_OP_CONST,
					    .result = 1,
					    .number = c->address - number});
		add_op(&m, (struct arch_op){.kind = ARCH_OP_ARGUMENT, .result = 4, .number = 3});
		add_op(&m, (struct arch_op){.kind = ARCH_OP_READ,
					    .result = 2,
					    .second = second,
					    .size = (uint8_t)c->size,
					    .is_signed = is_signed,
					    .a = by_value ? 1 : 0,
					    .number = by_value ? number : c->address});
		keep(&m, 2, 0);
		keep(&m, second, 1);
		keep(&m, 4, 2);
		run_it(&m);
		assert_int_equal(result_at(0), expected(c, is_signed));
		assert_int_equal(result_at(1), c->readable);
		assert_int_equal(result_at(2), run_in.r[RCX]);
	}
}

static void test_read(void **state)
{
	const uint64_t end = address_of(pages) + PAGE;

	(void)state;
	run_init();
	for (unsigned size = 1; size <= 8; size++) {
		const struct read_case cases[] = {
			{address_of(pages) + 100, size, true},
			{address_of(pages) + 101, size, true},
			{end - size, size, true},
			{end - size + 1, size, false}, /* the last byte is not there */
			{end, size, false},
			{0, size, false},
			{UINT64_MAX - 3, size, false},
			{1ull << 63, size, false},
			{1ull << 47, size, false},
			{address_of(code), size, true},
		};

		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
			check_read(&cases[i]);
	}
}

/* Only one of the two results, or none, is wanted. */
static void test_read_parts(void **state)
{
	static struct made m;

	(void)state;
	run_init();
	for (unsigned wanted = 1; wanted < 4; wanted++) {
		start(&m);
		add_op(&m, (struct arch_op){.kind = ARCH_OP_READ,
					    .result = wanted & 1 ? 1 : 0,
					    .second = wanted & 2 ? 2 : 0,
					    .size = 8,
					    .number = address_of(pages)});
		if (wanted & 1)
			keep(&m, 1, 0);
		if (wanted & 2)
			keep(&m, 2, 1);
		run_it(&m);
		assert_true(!(wanted & 1) || memcmp(data, pages, 8) == 0);
		assert_true(!(wanted & 2) || result_at(1) == 1);
	}
}

/* ------------------------------------------------------------------ clocks */

static uint64_t now(unsigned clock)
{
	static const clockid_t ids[] = {0, CLOCK_MONOTONIC, CLOCK_THREAD_CPUTIME_ID,
					CLOCK_PROCESS_CPUTIME_ID};
	struct timespec t;

	if (clock == ARCH_CLOCK_TICKS)
		return arch_clock_ticks();
	clock_gettime(ids[clock], &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* fear K4: each clock that inserted code reads lies between two readings of the true one */
static void test_clocks(void **state)
{
	static struct made m;

	(void)state;
	run_init();
	for (unsigned i = 0; i < ROUNDS; i++) {
		const unsigned clock = i % 4;
		uint64_t before, after;

		start(&m);
		add_op(&m, (struct arch_op){.kind = ARCH_OP_ARGUMENT, .result = 1, .number = 2});
		add_op(&m, (struct arch_op){.kind = ARCH_OP_CLOCK, .result = 2, .number = clock});
		add_op(&m, (struct arch_op){.kind = ARCH_OP_CLOCK, .result = 3, .number = clock});
		keep(&m, 1, 0);
		keep(&m, 2, 1);
		keep(&m, 3, 2);
		emit_program(&m);
		before = now(clock);
		run_it(&m);
		after = now(clock);
		assert_int_equal(result_at(0), run_in.r[RDX]);
		assert_true(before <= result_at(1) && result_at(1) <= result_at(2) &&
			    result_at(2) <= after);
	}
}

/* fear K4: the processor's word that its clock goes on at one rate is read as the kernel reads it */
static void test_steady(void **state)
{
	FILE *f = fopen("/proc/cpuinfo", "r");
	char line[8192];
	bool nonstop = false;

	(void)state;
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		nonstop =
			nonstop || (strstr(line, "flags") == line && strstr(line, " nonstop_tsc"));
	fclose(f);
	/* The kernel takes it from the same bit; what it adds for old models is not ours. */
	assert_true(arch_clock_is_steady() || !nonstop);
	/* The other way round, times would be wrong. */
	assert_true(nonstop || !arch_clock_is_steady());
}

/* --------------------------------------------------------- who and where */

static void test_who_and_where(void **state)
{
	static struct made m;
	cpu_set_t before, one;

	(void)state;
	run_init();
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	for (unsigned i = 0; i < 40; i++) {
		const bool known = __rseq_size && i % 4;

		CPU_ZERO(&one);
		for (int cpu = 0, n = (int)i; cpu < CPU_SETSIZE; cpu++)
			if (CPU_ISSET(cpu, &before) && n-- % CPU_COUNT(&before) == 0)
				CPU_SET(cpu, &one);
		/* One of them. */
		for (int cpu = 0; CPU_COUNT(&one) > 1; cpu++)
			CPU_CLR(cpu, &one);
		sched_setaffinity(0, sizeof(one), &one);
		start(&m);
		if (!known)
			m.env.counter.rseq_offset = 0;
		add_op(&m, (struct arch_op){.kind = ARCH_OP_CPU, .result = 1});
		add_op(&m, (struct arch_op){.kind = ARCH_OP_THREAD, .result = 2});
		add_op(&m, (struct arch_op){.kind = ARCH_OP_PROCESS, .result = 3});
		keep(&m, 1, 0);
		keep(&m, 2, 1);
		keep(&m, 3, 2);
		run_it(&m);
		assert_int_equal(result_at(2), getpid());
		assert_int_equal(result_at(0), known ? (uint64_t)sched_getcpu() : UINT64_MAX);
		assert_int_equal(result_at(1), syscall(SYS_gettid));
	}
	sched_setaffinity(0, sizeof(before), &before);
}

/* ------------------------------------------------------------ forbidden calls */

/* fear A9: once the process has begun to put a filter on itself, nothing makes a system call in it */
static void test_filter_begun(void **state)
{
	static struct made m;
	static struct pair_config config;

	(void)state;
	run_init();
	for (unsigned i = 0; i < 16; i++) {
		const bool forbidden = i & 1;

		config.filters_seen = i / 2;
		config.filters_begun = config.filters_seen + forbidden;
		start(&m);
		m.env.pairing.area = address_of(&config);
		add_op(&m, (struct arch_op){.kind = ARCH_OP_READ,
					    .result = 1,
					    .second = 2,
					    .size = 8,
					    .number = address_of(pages)});
		for (uint16_t clock = ARCH_CLOCK_MONOTONIC; clock <= ARCH_CLOCK_PROCESS; clock++)
			add_op(&m, (struct arch_op){.kind = ARCH_OP_CLOCK,
						    .result = (uint16_t)(2 + clock),
						    .number = clock});
		add_op(&m, (struct arch_op){.kind = ARCH_OP_PROCESS, .result = 6});
		for (unsigned v = 1; v <= 6; v++)
			keep(&m, v, v);
		memset(pages, 0x5a, 8);
		run_it(&m);
		for (unsigned v = 1; v <= 6; v++)
			assert_int_equal(result_at(v) == 0, forbidden);
		assert_int_equal(result_at(2), !forbidden);
	}
}

/* ----------------------------------------------------------------- records */

/* The usual ways and the routines': records are made, entries found, or none of it. */
static void test_records(void **state)
{
	static struct made m;

	(void)state;
	run_init();
	for (unsigned i = 0; i < ROUNDS; i++) {
		const bool with_record = i & 1;
		struct pair_entry *entry;

		start(&m);
		make_area(&m);
		if (i % 8 == 0)
			memset(area + pair_keys(), 0, pair_records(SHIFT) - pair_keys());
		for (unsigned n = 0; n < 6; n++)
			add_op(&m, (struct arch_op){.kind = ARCH_OP_ARGUMENT,
						    .result = (uint16_t)(n + 10),
						    .number = n});
		add_op(&m, (struct arch_op){.kind = ARCH_OP_RECORD, .result = 1});
		add_op(&m, (struct arch_op){.kind = ARCH_OP_ENTER,
					    .result = 2,
					    .a = with_record,
					    .number = 3 + i % 3});
		add_op(&m, (struct arch_op){.kind = ARCH_OP_IF, .a = 2, .label = 1});
		add_op(&m, (struct arch_op){
				   .kind = ARCH_OP_STORE, .a = 2, .number = 8, .b = 10, .size = 8});
		add_op(&m, (struct arch_op){.kind = ARCH_OP_LABEL, .label = 1});
		for (unsigned n = 0; n < 3; n++) {
			add_op(&m, (struct arch_op){.kind = ARCH_OP_LEAVE,
						    .result = (uint16_t)(3 + 2 * n),
						    .second = (uint16_t)(4 + 2 * n),
						    .a = with_record,
						    .number = 3 + i % 3});
			if (n == 1)
				add_op(&m, (struct arch_op){.kind = ARCH_OP_LEFT,
							    .a = with_record,
							    .number = 3 + i % 3});
		}
		for (unsigned v = 1; v < 16; v++)
			if (v != 9)
				keep(&m, v, v);
		run_it(&m);
		entry = (struct pair_entry *)(uintptr_t)result_at(2);
		assert_true(result_at(1) != 0 && entry != NULL);
		assert_int_equal(result_at(3), 1);
		assert_int_equal(result_at(4), run_in.r[RDI]);
		assert_int_equal(result_at(5), 1); /* it is being left yet */
		assert_int_equal(result_at(6), run_in.r[RDI]);
		assert_int_equal(result_at(7), 0); /* it has been left */
		assert_int_equal(result_at(15), run_in.r[R9]);
	}
}

/* ---------------------------------------------------------------- refusals */

static void test_refusals(void **state)
{
	static const struct arch_op ops[] = {
		{.kind = ARCH_OP_READ, .result = 2, .a = 1, .size = 9},
		{.kind = ARCH_OP_THREAD, .result = 2},
		{.kind = ARCH_OP_RECORD, .result = 2},
		{.kind = ARCH_OP_ENTER, .result = 2, .number = 1},
		{.kind = ARCH_OP_CLOCK, .result = 2, .number = 9},
		{.kind = ARCH_OP_ARGUMENT, .result = 2, .number = 6},
		{.kind = ARCH_OP_RESULT, .result = 2, .number = 2},
		{.kind = ARCH_OP_LOAD, .result = 2, .a = 1, .size = 3},
		{.kind = ARCH_OP_FIND, .result = 2, .a = 1},
		{.kind = ARCH_OP_JUMP, .label = 3},
		{.kind = ARCH_OP_ADD, .result = 2, .a = 3},
		{.kind = ARCH_OP_ADD, .result = 2, .a = 9999},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		uint8_t hot_bytes[1024], cold_bytes[1024];
		struct arch_buf hot = {.bytes = hot_bytes, .size = sizeof(hot_bytes)};
		struct arch_buf cold = {.bytes = cold_bytes, .size = sizeof(cold_bytes)};
		static struct made m;

		begin_program(&m, ARCH_COUNT_LOCKED);
		add_op(&m, (struct arch_op){.kind = ARCH_OP_CONST, .result = 1});
		add_op(&m, ops[i]);
		add_op(&m,
		       (struct arch_op){.kind = ARCH_OP_STORE, .b = 1, .size = 8, .number = 4096});
		m.p.values = 20;
		arch_program_needs(&m.p, &m.env, &m.frame);
		arch_frame_open(&hot, &m.frame);
		arch_emit_program(&m.p, &m.env, &m.frame, &hot, &cold);
		if (hot.status != ARCH_REFUSED)
			fail_msg("case %zu: %d", i, hot.status);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read),	     cmocka_unit_test(test_read_parts),
		cmocka_unit_test(test_clocks),	     cmocka_unit_test(test_steady),
		cmocka_unit_test(test_filter_begun), cmocka_unit_test(test_who_and_where),
		cmocka_unit_test(test_refusals),     cmocka_unit_test(test_records),
	};

	alarm(100 * SLOWER);
	return cmocka_run_group_tests(tests, setup, NULL);
}
