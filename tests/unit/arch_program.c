/* SPDX-License-Identifier: MIT */
/*
 * arch_program.c - random programs of all operations that compute, branch and
 * use memory, executed natively in a frame on random states, and judged by
 * arch_program_run(): results, memory, counters, and whatever the frame promises
 * to keep. Then what has a reason of its own.
 */
#include "tests/slower.h"
#include "tests/unit/arch_program.h"
#include "tests/unit/arch_program_random.h"

enum { ROUNDS = 12000 };

static struct random_places places = {.inputs = {6, 8, 2, 2, 16, 1, 1, 6}};
static unsigned long runs;

static int setup(void **state)
{
	(void)state;
	if (map_all() < 0)
		return -1;
	random_number = run_random;
	places.memory = address_of(data);
	places.counters = counter_at(0);
	return 0;
}

/* ------------------------------------------------------------ the judge */

static bool judge_load(void *arg, taddr_t address, uint64_t *word, size_t size)
{
	(void)arg;
	return random_load(&places, address, word, size);
}

static bool judge_store(void *arg, taddr_t address, uint64_t word, size_t size)
{
	(void)arg;
	return random_store(&places, address, word, size);
}

static bool judge_other(void *arg, const struct arch_op *op, uint64_t a, uint64_t b,
			uint64_t *result, uint64_t *second)
{
	static const uint8_t arguments[] = {RDI, RSI, RDX, RCX, R8, R9};
	static const uint8_t preserved[] = {RBP, RBX, R12, R13, R14, R15};
	const struct made *m = arg;
	const uint64_t sp = run_in.r[RSP] + m->frame.before;

	(void)second;
	switch (op->kind) {
	case ARCH_OP_ARGUMENT:
		*result = run_in.r[arguments[op->number]];
		return true;
	case ARCH_OP_PRESERVED:
		*result = run_in.r[preserved[op->number]];
		return true;
	case ARCH_OP_RESULT:
		*result = run_in.r[op->number ? RDX : RAX];
		return true;
	case ARCH_OP_FLOAT_ARGUMENT:
	case ARCH_OP_FLOAT_RESULT:
		memcpy(result, run_in.extended + 160 + 16 * op->number, 8);
		return true;
	case ARCH_OP_STACK_POINTER:
		*result = sp;
		return true;
	case ARCH_OP_STACK:
	case ARCH_OP_CALLER:
		memcpy(result,
		       stack_before + (sp - address_of(stack)) +
			       (op->kind == ARCH_OP_STACK ? op->number : 0),
		       8);
		return true;
	case ARCH_OP_COUNT:
		random_count(&places, a + op->number, b);
		return true;
	case ARCH_OP_FIND:
		*result = random_find(a);
		return true;
	default:
		return false;
	}
}

static arch_regset random_live(void)
{
	switch (choose(4)) {
	case 0:
		return SET_ALL;
	case 1:
		return SET_ALL & ~SET_FLAGS;
	case 2:
		return SET(RSP) | (run_random() & SET_ALL);
	default:
		return SET(RSP) | (run_random() & run_random() & SET_ALL);
	}
}

static void fail_run(const struct made *m, const char *what)
{
	show_program(m);
	fail_msg("%s differs in run %lu", what, runs);
}

static void judge(struct made *m)
{
	static uint64_t values[ARCH_PROGRAM_VALUES + 1];
	const struct arch_machine machine = {
		.arg = m, .load = judge_load, .store = judge_store, .other = judge_other};

	memset(values, 0, sizeof(values));
	memset(random_counts, 0, sizeof(random_counts));
	assert_true(arch_program_run(&m->p, &machine, values));
}

/* The words that differ, then the program. */
static void fail_memory(const struct made *m)
{
	for (unsigned at = 0; at < DATA_SIZE; at += 8) {
		uint64_t want, got;

		memcpy(&want, random_shadow + at, 8);
		memcpy(&got, data + at, 8);
		if (want != got)
			print_message("at %#x: %#llx, not %#llx\n", at, (unsigned long long)got,
				      (unsigned long long)want);
	}
	fail_run(m, "memory");
}

/*
 * Where the program looks for one key twice, optimised code looks once: so often is what has no place
 * counted as the optimised program says. All else is as the program itself says.
 */
static void optimise(struct made *m)
{
	static uint8_t shadow[sizeof(random_shadow)];
	uint64_t *full =
		(uint64_t *)(void *)(shadow + RANDOM_TABLE + offsetof(struct arch_table, full));
	uint64_t counts[RANDOM_COUNTERS], most;

	memcpy(shadow, random_shadow, sizeof(shadow));
	memcpy(counts, random_counts, sizeof(counts));
	arch_program_optimise(&m->p);
	memcpy(random_shadow, data, DATA_SIZE);
	judge(m);
	most = *full;
	memcpy(full, random_shadow + ((uint8_t *)full - shadow), sizeof(*full));
	if (*full > most || !*full != !most)
		fail_run(m, "what has no place");
	memcpy(random_shadow, shadow, sizeof(shadow));
	memcpy(random_counts, counts, sizeof(counts));
}

static void check(struct made *m, bool optimised)
{
	const char *what;

	runs++;
	random_state();
	run_fill(data, RANDOM_WORDS);
	memset(data + RANDOM_RESULTS, 0, DATA_SIZE - RANDOM_RESULTS);
	memcpy(random_shadow, data, DATA_SIZE);
	clear_counters();
	judge(m);
	if (optimised)
		optimise(m);
	emit_program(m);
	check_trace(m);
	what = run_program(m);
	if (what)
		fail_run(m, what);
	if (memcmp(random_shadow, data, DATA_SIZE) != 0)
		fail_memory(m);
	for (unsigned i = 0; i < COUNTERS; i++)
		if (random_counts[i] != counted(i))
			fail_run(m, "counter");
}

/* What went into `programs` programs. */
struct sum {
	unsigned long slots, flagless, bytes;
};

static void check_random(unsigned programs, bool optimised, struct sum *sum)
{
	static struct made m;

	run_init();
	for (unsigned i = 0; i < programs; i++) {
		begin_program(&m,
			      __rseq_size && choose(2) ? ARCH_COUNT_PER_CPU : ARCH_COUNT_LOCKED);
		m.frame.live = random_live();
		m.frame.red_zone = choose(2);
		m.frame.before = choose(2) ? 8 : 0;
		write_program(&m.p, &places);
		check(&m, optimised);
		sum->slots += m.frame.slots > 0;
		sum->flagless += !(m.frame.needs & ARCH_NEED_FLAGS);
		sum->bytes += m.hot_size;
	}
	print_message("%u programs, %lu with values on the stack, %lu without flags, %lu bytes\n",
		      programs, sum->slots, sum->flagless, sum->bytes);
}

/*
 * fear D2, D5: random programs on random registers and flags, at any alignment of the stack pointer:
 * what is live is kept, the red zone too
 */
static void test_random(void **state)
{
	struct sum sum = {0};

	(void)state;
	check_random(ROUNDS, false, &sum);
	assert_true(sum.slots > 100 && sum.flagless > 100);
}

/*
 * fear D1, D2: the same where each addition is one of those whose sequence was aborted: the flags are kept
 * there too
 */
static void test_aborted(void **state)
{
	struct sum sum = {0};

	(void)state;
	no_processor = true;
	check_random(ROUNDS, true, &sum);
	no_processor = false;
	assert_true(sum.flagless > 100);
}

/* fear D1, D2: likewise where arguments are added and the flags are live */
static void test_aborted_arguments(void **state)
{
	static struct made m;

	(void)state;
	run_init();
	no_processor = true;
	for (unsigned i = 0; i < 1000; i++) {
		begin_program(&m, ARCH_COUNT_PER_CPU);
		m.frame.live = random_live() | SET_FLAGS;
		m.frame.red_zone = choose(2);
		add_op(&m, (struct arch_op){.kind = ARCH_OP_ARGUMENT, .result = 1});
		add_op(&m, (struct arch_op){.kind = ARCH_OP_ARGUMENT, .result = 2, .number = 1});
		add_op(&m,
		       (struct arch_op){.kind = ARCH_OP_COUNT, .b = 1, .number = counter_at(0)});
		add_op(&m,
		       (struct arch_op){.kind = ARCH_OP_COUNT, .b = 2, .number = counter_at(1)});
		check(&m, false);
		assert_false(m.frame.needs & ARCH_NEED_FLAGS);
	}
	no_processor = false;
}

/*
 * fear D1, D2: likewise with a number, or a counter's place, that the program has made in a register that
 * is dead: rax among them, in which the flags are kept there
 */
static void test_aborted_in_dead_registers(void **state)
{
	static struct made m;

	(void)state;
	run_init();
	no_processor = true;
	for (unsigned i = 0; i < 4000; i++) {
		const bool place = choose(2);

		begin_program(&m, ARCH_COUNT_PER_CPU);
		m.frame.live = (random_live() & ~SET(RAX)) | SET_FLAGS;
		m.frame.red_zone = choose(2);
		m.frame.before = choose(2) ? 8 : 0;
		add_op(&m, (struct arch_op){.kind = ARCH_OP_CONST,
					    .result = 1,
					    .number = place ? 8 * choose(COUNTERS) : run_random()});
		add_op(&m, (struct arch_op){.kind = ARCH_OP_COUNT,
					    .a = place ? 1 : 0,
					    .b = place ? 0 : 1,
					    .immediate = 3,
					    .number = counter_at(0)});
		check(&m, false);
		assert_false(m.frame.needs & ARCH_NEED_FLAGS);
	}
	no_processor = false;
}

/* The same judge for what the optimiser has made of them. */
static void test_optimised(void **state)
{
	struct sum sum = {0};

	(void)state;
	check_random(ROUNDS, true, &sum);
	assert_true(sum.slots > 100);
}

/* -------------------------------------------------- several in one frame */

static void write_marker(struct made *m, unsigned n)
{
	m->p.count = m->p.values = 0;
	add_op(m, (struct arch_op){.kind = ARCH_OP_ARGUMENT, .result = 1, .number = n % 6});
	add_op(m, (struct arch_op){.kind = ARCH_OP_RESULT, .result = 2, .number = n % 2});
	if (n % 3 == 0)
		add_op(m, (struct arch_op){.kind = ARCH_OP_DIV, .result = 1, .a = 1, .b = 2});
	if (n % 3 == 1)
		add_op(m, (struct arch_op){.kind = ARCH_OP_SHL, .result = 1, .a = 1, .b = 2});
	if (n % 3 == 2)
		add_op(m, (struct arch_op){.kind = ARCH_OP_ADD, .result = 1, .a = 1, .b = 2});
	add_op(m, (struct arch_op){.kind = ARCH_OP_STORE,
				   .size = 8,
				   .b = 1,
				   .number = address_of(data) + 8 * n});
}

/* Programs and a plain counter share a frame: what one has changed the next does not see. */
static void test_shared_frame(void **state)
{
	enum { SHARING = 7 };
	static struct made m;
	const uint64_t base = address_of(code);

	(void)state;
	run_init();
	for (unsigned i = 0; i < 2000; i++) {
		struct arch_buf hot = {.bytes = code, .size = COLD_AT, .pc = base};
		struct arch_buf cold = {
			.bytes = code + COLD_AT, .size = EXIT_AT - COLD_AT, .pc = base + COLD_AT};
		struct arch_counter counter = environment(ARCH_COUNT_PER_CPU).counter;
		const char *what;

		counter.mode = __rseq_size ? ARCH_COUNT_PER_CPU : ARCH_COUNT_LOCKED;
		counter.counter_address = counter_at(0);
		begin_program(&m, counter.mode);
		m.frame.live = random_live();
		m.frame.red_zone = choose(2);
		leave_descriptor();
		arch_count_needs(&counter, &m.frame);
		for (unsigned n = 0; n < SHARING; n++) {
			write_marker(&m, n + i % 6);
			arch_program_needs(&m.p, &m.env, &m.frame);
		}
		arch_frame_open(&hot, &m.frame);
		for (unsigned n = 0; n < SHARING; n++) {
			write_marker(&m, n + i % 6);
			arch_emit_program(&m.p, &m.env, &m.frame, &hot, &cold);
			arch_emit_count(&counter, &m.frame, &hot, &cold);
		}
		arch_frame_close(&hot, &m.frame);
		arch_emit_jump(&hot, base + EXIT_AT);
		assert_int_equal(hot.status, ARCH_OK);
		m.hot_size = hot.used;
		m.cold_size = cold.used;
		random_state();
		memset(data, 0, DATA_SIZE);
		clear_counters();
		what = run_program(&m);
		if (what)
			fail_run(&m, what);
		assert_int_equal(counted(0), SHARING);
		memset(random_shadow, 0, DATA_SIZE);
		for (unsigned n = 0; n < SHARING; n++) {
			write_marker(&m, n + i % 6);
			judge(&m);
		}
		if (memcmp(random_shadow, data, DATA_SIZE) != 0)
			fail_memory(&m);
	}
}

/* ------------------------------------------------------ among processors */

/* A race that is lost is seldom seen; so it is looked at what the code is made of. */
static void test_locked(void **state)
{
	static const struct {
		uint8_t kind;
		unsigned locked;
	} cases[] = {
		{ARCH_OP_ATOMIC_ADD, 1}, {ARCH_OP_ATOMIC_MIN, 1}, {ARCH_OP_ATOMIC_MAX, 1},
		{ARCH_OP_FIND, 2},	 {ARCH_OP_COUNT, 1},	  {ARCH_OP_FETCH_ADD, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		static struct made m;
		unsigned locked = 0;

		begin_program(&m, ARCH_COUNT_LOCKED);
		add_op(&m, (struct arch_op){.kind = ARCH_OP_ARGUMENT, .result = 1});
		add_op(&m, (struct arch_op){.kind = cases[i].kind,
					    .result = 2,
					    .a = cases[i].kind == ARCH_OP_FIND,
					    .b = cases[i].kind != ARCH_OP_FIND,
					    .immediate = RANDOM_TABLE_SHIFT,
					    .number = address_of(data)});
		emit_program(&m);
		for (unsigned part = 0; part < 2; part++) {
			const size_t from = part ? COLD_AT : 0;
			const size_t size = part ? m.cold_size : m.hot_size;
			struct arch_insn insn;

			for (size_t at = 0; at < size; at += insn.length) {
				assert_int_equal(arch_decode(code + from + at, 16, from + at,
							     &insn),
						 ARCH_OK);
				locked += (insn.flags & ARCH_INSN_LOCKED) != 0;
			}
		}
		assert_int_equal(locked, cases[i].locked);
	}
}

/* ----------------------------------------------------------- one counter */

/* A program that only counts is what arch_emit_count() emits. */
static void test_plain_count(void **state)
{
	static const arch_regset lives[] = {0, SET_FLAGS, SET_ALL & ~SET_FLAGS, SET_ALL};
	static struct made m;

	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		const taddr_t base = 0x20000000;
		uint8_t bytes[4][512];
		struct arch_frame frames[2] = {{.live = lives[i / 2], .red_zone = true},
					       {.live = lives[i / 2], .red_zone = true}};
		struct arch_buf out[4];
		struct arch_counter counter;

		for (unsigned n = 0; n < 4; n++)
			out[n] = (struct arch_buf){.bytes = bytes[n],
						   .size = sizeof(bytes[n]),
						   .pc = base + 0x1000 * (n / 2)};
		begin_program(&m, i & 1 ? ARCH_COUNT_PER_CPU : ARCH_COUNT_LOCKED);
		add_op(&m, (struct arch_op){.kind = ARCH_OP_NONE});
		add_op(&m, (struct arch_op){
				   .kind = ARCH_OP_COUNT, .number = counter_at(1), .immediate = 1});
		counter = m.env.counter;
		counter.counter_address = counter_at(1);
		arch_count_needs(&counter, &frames[0]);
		arch_program_needs(&m.p, &m.env, &frames[1]);
		arch_frame_open(&out[0], &frames[0]);
		arch_frame_open(&out[1], &frames[1]);
		arch_emit_count(&counter, &frames[0], &out[0], &out[2]);
		arch_emit_program(&m.p, &m.env, &frames[1], &out[1], &out[3]);
		arch_frame_close(&out[0], &frames[0]);
		arch_frame_close(&out[1], &frames[1]);
		for (unsigned n = 0; n < 4; n += 2) {
			assert_int_equal(out[n].status, ARCH_OK);
			assert_int_equal(out[n + 1].status, ARCH_OK);
			assert_int_equal(out[n].used, out[n + 1].used);
			assert_memory_equal(bytes[n], bytes[n + 1], out[n].used);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_optimised),
		cmocka_unit_test(test_shared_frame),
		cmocka_unit_test(test_locked),
		cmocka_unit_test(test_plain_count),
		cmocka_unit_test(test_aborted),
		cmocka_unit_test(test_aborted_arguments),
		cmocka_unit_test(test_aborted_in_dead_registers),
	};

	alarm(100 * SLOWER);
	return cmocka_run_group_tests(tests, setup, NULL);
}
