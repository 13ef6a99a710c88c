/* SPDX-License-Identifier: MIT */
/*
 * arch_program.c - random programs of all operations that compute, branch and
 * use memory, executed natively in a frame on random states, and judged by
 * arch_program_run(): results, memory, counters, and whatever the frame promises
 * to keep. Then what has a reason of its own.
 */
#include "tests/unit/arch_program.h"

enum {
	WORDS = 512, /* of data that programs load and store */
	RESULTS_AT = WORDS * 8,
	TABLE_AT = RESULTS_AT + 8 * ARCH_PROGRAM_VALUES,
	TABLE_SHIFT = 5,
	ROUNDS = 12000,
};

static uint8_t shadow[DATA_SIZE];
static uint64_t shadow_counts[COUNTERS];
static unsigned long runs;

static int setup(void **state)
{
	(void)state;
	return map_all();
}

/* ------------------------------------------------------------ the judge */

static bool judge_load(void *arg, taddr_t address, uint64_t *word, size_t size)
{
	const uint64_t at = address - address_of(data);

	(void)arg;
	*word = 0;
	if (at > DATA_SIZE - 8)
		return false;
	memcpy(word, shadow + at, size);
	return true;
}

static bool judge_store(void *arg, taddr_t address, uint64_t word, size_t size)
{
	const uint64_t at = address - address_of(data);

	(void)arg;
	if (at > DATA_SIZE - 8)
		return false;
	memcpy(shadow + at, &word, size);
	return true;
}

static uint64_t judge_find(uint64_t key)
{
	struct arch_table *t = (struct arch_table *)(void *)(shadow + TABLE_AT);
	uint64_t place = arch_table_hash(key, TABLE_SHIFT);

	if (key == UINT64_MAX)
		return 0;
	for (unsigned i = 0; i < ARCH_TABLE_PROBE; i++) {
		if (!t->keys[place])
			t->keys[place] = key + 1;
		if (t->keys[place] == key + 1)
			return place + 1;
		place = (place + 1) & ((1u << TABLE_SHIFT) - 1);
	}
	t->full++;
	return 0;
}

static bool judge_other(void *arg, const struct arch_op *op, uint64_t a, uint64_t b,
			uint64_t *result, uint64_t *second)
{
	static const uint8_t arguments[] = {RDI, RSI, RDX, RCX, R8, R9};
	const struct made *m = arg;
	const uint64_t sp = run_in.r[RSP] + m->frame.before;

	(void)second;
	switch (op->kind) {
	case ARCH_OP_ARGUMENT:
		*result = run_in.r[arguments[op->number]];
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
		shadow_counts[(a + op->number - counter_at(0)) / 8 % COUNTERS] += b;
		return true;
	case ARCH_OP_FIND:
		*result = judge_find(a);
		return true;
	default:
		return false;
	}
}

/* ----------------------------------------------------- random programs */

struct writer {
	struct made *m;
	unsigned values; /* numbers that may be used */
	bool set[ARCH_PROGRAM_VALUES + 1];
	unsigned left; /* operations still to be written */
	bool zeros;    /* first operands that are not there, too */
	unsigned labels;
};

static unsigned choose(unsigned n)
{
	return (unsigned)(run_random() >> 33) % n;
}

static uint16_t any_set(const struct writer *w)
{
	for (unsigned i = 0; i < 64; i++) {
		unsigned v = 1 + choose(w->values);

		if (w->set[v])
			return (uint16_t)v;
	}
	for (unsigned v = 1; v <= w->values; v++)
		if (w->set[v])
			return (uint16_t)v;
	return 0;
}

static uint16_t any_value(const struct writer *w)
{
	return (uint16_t)(1 + choose(w->values));
}

static int32_t any_number(void)
{
	static const int32_t numbers[] = {0,   1,   -1,	 2,    8,	  63,	     64,
					  127, 128, 255, -128, INT32_MAX, INT32_MIN, 1 << 20};
	const unsigned n = sizeof(numbers) / sizeof(numbers[0]);

	return choose(3) ? numbers[choose(n)] : (int32_t)run_random();
}

static uint64_t any_word(void)
{
	static const uint64_t words[] = {0,	     1,		 UINT64_MAX, INT64_MAX,
					 1ull << 63, 1ull << 32, UINT32_MAX, INT32_MAX};

	switch (choose(3)) {
	case 0:
		return words[choose(8)];
	case 1:
		return (uint64_t)(int64_t)any_number();
	default:
		return run_random() >> choose(64);
	}
}

/* Sets a value by one operation. */
static void write_op(struct writer *w, struct arch_op op)
{
	add_op(w->m, op);
	if (op.result)
		w->set[op.result] = true;
	if (w->left)
		w->left--;
}

static void write_arithmetic(struct writer *w)
{
	static const uint8_t sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 0};
	struct arch_op op = {
		.kind = (uint8_t)(ARCH_OP_COPY + choose(ARCH_OP_ARGUMENT - ARCH_OP_COPY)),
		.result = any_value(w),
		.a = w->zeros && choose(40) == 0 ? 0 : any_set(w),
		.b = choose(2) ? any_set(w) : 0,
		.immediate = any_number(),
		.condition = (uint8_t)choose(ARCH_TEST_ABOVE_EQUAL + 1),
		.is_signed = choose(2),
	};

	op.size = op.kind == ARCH_OP_EXTEND ? sizes[choose(9)] : 0;
	write_op(w, op);
}

static void write_input(struct writer *w)
{
	static const uint8_t limits[] = {6, 8, 2, 2, 0, 1, 1};
	const unsigned which = choose(7);
	struct arch_op op = {.kind = (uint8_t)(ARCH_OP_ARGUMENT + which), .result = any_value(w)};

	op.number = which == 4 ? 8 * choose(16) : choose(limits[which]);
	write_op(w, op);
}

static void write_const(struct writer *w)
{
	write_op(w, (struct arch_op){
			    .kind = ARCH_OP_CONST, .result = any_value(w), .number = any_word()});
}

/* An address inside of `size` bytes at `base`: absolute, or by a value. */
static void write_address(struct writer *w, struct arch_op *op, taddr_t base, unsigned size)
{
	uint16_t v;

	op->number = base + 8 * choose(size / 8);
	if (choose(2))
		return;
	v = any_value(w);
	if (choose(2) && any_set(w)) {
		write_op(w, (struct arch_op){.kind = ARCH_OP_AND,
					     .result = v,
					     .a = any_set(w),
					     .immediate = (int32_t)(size - 8)});
		op->number = base;
		op->a = v;
		return;
	}
	write_op(w, (struct arch_op){.kind = ARCH_OP_CONST, .result = v, .number = op->number - 8});
	op->number = 8;
	op->a = v;
	if (op->kind != ARCH_OP_COUNT && choose(4) == 0) { /* a number of more than 32 bits */
		w->m->ops[w->m->p.count - 1].number -= 1ull << 40;
		op->number += 1ull << 40;
	}
}

static void write_memory(struct writer *w)
{
	static const uint8_t sizes[] = {1, 2, 4, 8};
	struct arch_op op = {
		.kind = (uint8_t)(ARCH_OP_LOAD + choose(ARCH_OP_ATOMIC_STORE + 1 - ARCH_OP_LOAD)),
		.is_signed = choose(2),
		.immediate = any_number()};

	op.size = op.kind == ARCH_OP_LOAD || op.kind == ARCH_OP_STORE ? sizes[choose(4)] : 0;
	write_address(w, &op, address_of(data), WORDS * 8);
	if (op.kind == ARCH_OP_LOAD || (op.kind == ARCH_OP_FETCH_ADD && choose(2)))
		op.result = any_value(w);
	if (op.kind != ARCH_OP_LOAD && choose(2))
		op.b = any_set(w);
	write_op(w, op);
}

static void write_count(struct writer *w)
{
	struct arch_op op = {.kind = ARCH_OP_COUNT, .immediate = choose(2) ? 1 : any_number()};

	write_address(w, &op, counter_at(0), 8 * COUNTERS);
	if (choose(2))
		op.b = any_set(w);
	write_op(w, op);
}

static void write_find(struct writer *w)
{
	const uint16_t key = any_value(w);

	if (!any_set(w))
		return;
	write_op(w, (struct arch_op){.kind = ARCH_OP_AND,
				     .result = key,
				     .a = any_set(w),
				     .immediate = choose(4) ? 63 : -1});
	write_op(w, (struct arch_op){.kind = ARCH_OP_FIND,
				     .result = choose(8) ? any_value(w) : 0,
				     .a = key,
				     .number = address_of(data) + TABLE_AT,
				     .immediate = TABLE_SHIFT});
}

static void write_block(struct writer *w, unsigned depth);

/* What is set on one way only is not set behind it. */
static void write_branch(struct writer *w, unsigned depth)
{
	const uint16_t other = (uint16_t)++w->labels, end = (uint16_t)++w->labels;
	bool before[ARCH_PROGRAM_VALUES + 1];
	struct arch_op op = {.kind = ARCH_OP_IF,
			     .a = any_set(w),
			     .b = choose(2) ? any_set(w) : 0,
			     .immediate = any_number(),
			     .condition = (uint8_t)choose(ARCH_TEST_ABOVE_EQUAL + 1),
			     .label = other};

	memcpy(before, w->set, sizeof(before));
	write_op(w, op);
	write_block(w, depth + 1);
	memcpy(w->set, before, sizeof(before));
	if (choose(2)) {
		write_op(w, (struct arch_op){.kind = ARCH_OP_JUMP, .label = end});
		write_op(w, (struct arch_op){.kind = ARCH_OP_LABEL, .label = other});
		write_block(w, depth + 1);
		memcpy(w->set, before, sizeof(before));
		write_op(w, (struct arch_op){.kind = ARCH_OP_LABEL, .label = end});
	} else {
		write_op(w, (struct arch_op){.kind = ARCH_OP_LABEL, .label = other});
	}
}

static void write_block(struct writer *w, unsigned depth)
{
	unsigned count = 1 + choose(12);

	while (count-- && w->left > 8) {
		switch (choose(12)) {
		case 0:
			write_const(w);
			break;
		case 1:
			write_input(w);
			break;
		case 2:
			write_memory(w);
			break;
		case 3:
			write_count(w);
			break;
		case 4:
			write_find(w);
			break;
		case 5:
			if (depth < 4 && w->labels + 2 <= ARCH_PROGRAM_LABELS)
				write_branch(w, depth);
			break;
		default:
			write_arithmetic(w);
		}
	}
}

/* Everything that is known at the end goes to memory, where it can be compared. */
static void write_program(struct made *m, bool zeros)
{
	struct writer w = {.m = m, .zeros = zeros};
	static const uint8_t pressures[] = {2, 4, 8, 12, 24, 60};
	unsigned first;

	w.values = pressures[choose(sizeof(pressures))];
	w.left = 10 + choose(ARCH_PROGRAM_OPS - 2 * w.values - 30);
	first = 1 + choose(w.values);
	for (unsigned i = 0; i < first; i++)
		choose(2) ? write_const(&w) : write_input(&w);
	while (w.left > 20)
		write_block(&w, 0);
	for (unsigned v = 1; v <= w.values; v++)
		if (w.set[v] && choose(4))
			add_op(m,
			       (struct arch_op){.kind = ARCH_OP_STORE,
						.b = (uint16_t)v,
						.number = address_of(data) + RESULTS_AT + 8 * v});
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
	memset(shadow_counts, 0, sizeof(shadow_counts));
	assert_true(arch_program_run(&m->p, &machine, values));
}

/* The words that differ, then the program. */
static void fail_memory(const struct made *m)
{
	for (unsigned at = 0; at < DATA_SIZE; at += 8) {
		uint64_t want, got;

		memcpy(&want, shadow + at, 8);
		memcpy(&got, data + at, 8);
		if (want != got)
			print_message("at %#x: %#llx, not %#llx\n", at, (unsigned long long)got,
				      (unsigned long long)want);
	}
	fail_run(m, "memory");
}

static void check(struct made *m, bool optimised)
{
	const char *what;

	runs++;
	random_state();
	run_fill(data, WORDS * 8);
	memset(data + RESULTS_AT, 0, DATA_SIZE - RESULTS_AT);
	memcpy(shadow, data, DATA_SIZE);
	clear_counters();
	judge(m);
	if (optimised)
		arch_program_optimise(&m->p);
	emit_program(m);
	check_trace(m);
	what = run_program(m);
	if (what)
		fail_run(m, what);
	if (memcmp(shadow, data, DATA_SIZE) != 0)
		fail_memory(m);
	for (unsigned i = 0; i < COUNTERS; i++)
		if (shadow_counts[i] != counted(i))
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
		write_program(&m, !optimised);
		check(&m, optimised);
		sum->slots += m.frame.slots > 0;
		sum->flagless += !(m.frame.needs & ARCH_NEED_FLAGS);
		sum->bytes += m.hot_size;
	}
	print_message("%u programs, %lu with values on the stack, %lu without flags, %lu bytes\n",
		      programs, sum->slots, sum->flagless, sum->bytes);
}

static void test_random(void **state)
{
	struct sum sum = {0};

	(void)state;
	check_random(ROUNDS, false, &sum);
	assert_true(sum.slots > 100 && sum.flagless > 100);
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
		memset(shadow, 0, DATA_SIZE);
		for (unsigned n = 0; n < SHARING; n++) {
			write_marker(&m, n + i % 6);
			judge(&m);
		}
		if (memcmp(shadow, data, DATA_SIZE) != 0)
			fail_memory(&m);
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
		cmocka_unit_test(test_plain_count),
	};

	alarm(100);
	return cmocka_run_group_tests(tests, setup, NULL);
}
