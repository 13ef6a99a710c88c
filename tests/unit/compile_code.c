/* SPDX-License-Identifier: MIT */
/*
 * compile_code.c - code of MDL is parsed, compiled and run by the interpreter:
 * every construct of the language must give the right values, in the right
 * order, and touch nothing else.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "mutator/compile.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

enum {
	RECORD = 0x700000, /* the thread's record */
	RECORD_SIZE = 0x400,
	ARENA = 0x100000, /* counters, words */
	ARENA_SIZE = 0x20000,
	PLAIN = 0x900000, /* the target's own memory */
	PLAIN_SIZE = 0x100,
	FLAG_AT = 0x80, /* in the record */
	TEMPORARY_AT = 0x88,
	TIMER_AT = 0x90,
	TOTAL_AT = ARENA,
	OTHER_AT = ARENA + 0x8000,
	LEVEL_AT = ARENA + 0x10000,
	TABLE_AT = ARENA + 0x18000,
};

/* ---------------------------------------------------------------- a world */

struct world {
	uint8_t record[RECORD_SIZE], arena[ARENA_SIZE], plain[PLAIN_SIZE];
	bool no_record;
	uint64_t arguments[6], floats[8], results[2], stack[16];
	uint64_t clock, step; /* each look at the clock moves it */
	uint64_t keys[4];     /* of the table */
	unsigned key_count, asked_clock;
};

static uint8_t *at(struct world *w, taddr_t address, size_t size)
{
	if (address >= RECORD && address + size <= RECORD + RECORD_SIZE)
		return w->record + (address - RECORD);
	if (address >= ARENA && address + size <= ARENA + ARENA_SIZE)
		return w->arena + (address - ARENA);
	if (address >= PLAIN && address + size <= PLAIN + PLAIN_SIZE)
		return w->plain + (address - PLAIN);
	return NULL;
}

static bool load(void *arg, taddr_t address, uint64_t *word, size_t size)
{
	const uint8_t *from = at(arg, address, size);

	if (from)
		memcpy(word, from, size);
	return from != NULL;
}

static bool store(void *arg, taddr_t address, uint64_t word, size_t size)
{
	uint8_t *to = at(arg, address, size);

	if (to)
		memcpy(to, &word, size);
	return to != NULL;
}

static uint64_t find(struct world *w, uint64_t key)
{
	for (unsigned i = 0; i < w->key_count; i++)
		if (w->keys[i] == key)
			return i + 1;
	if (w->key_count == COUNT(w->keys))
		return 0;
	w->keys[w->key_count++] = key;
	return w->key_count;
}

static bool other(void *arg, const struct arch_op *op, uint64_t a, uint64_t b, uint64_t *result,
		  uint64_t *second)
{
	struct world *w = arg;
	uint64_t word = 0;

	*second = 0;
	switch (op->kind) {
	case ARCH_OP_COUNT:
		return load(w, a + op->number, &word, 8) && store(w, a + op->number, word + b, 8);
	case ARCH_OP_RECORD:
		*result = w->no_record ? 0 : RECORD;
		return true;
	case ARCH_OP_ARGUMENT:
		*result = w->arguments[op->number];
		return true;
	case ARCH_OP_FLOAT_ARGUMENT:
		*result = w->floats[op->number];
		return true;
	case ARCH_OP_RESULT:
		*result = w->results[op->number];
		return true;
	case ARCH_OP_FLOAT_RESULT:
		*result = w->floats[op->number];
		return true;
	case ARCH_OP_STACK:
		*result = w->stack[op->number / 8];
		return op->number % 8 == 0;
	case ARCH_OP_CALLER:
		*result = 0x4242;
		return true;
	case ARCH_OP_CLOCK:
		*result = w->clock;
		w->clock += w->step;
		w->asked_clock++;
		return true;
	case ARCH_OP_CPU:
		*result = 3;
		return true;
	case ARCH_OP_THREAD:
		*result = 1234;
		return true;
	case ARCH_OP_PROCESS:
		*result = 1200;
		return true;
	case ARCH_OP_FIND:
		*result = find(w, a);
		return true;
	default:
		return false;
	}
}

static uint64_t word_at(struct world *w, taddr_t address)
{
	uint64_t word = 0;

	assert_true(load(w, address, &word, 8));
	return word;
}

/* -------------------------------------------------------------- compiling */

static struct mdl_library *library;
static struct place place;
static struct variable total = {.name = "m"}, other_total = {.name = "other"},
		       temporary = {.name = "t",
				    .form = VARIABLE_FLAG,
				    .record_offset = TEMPORARY_AT},
		       timer = {.name = "w",
				.type = MDL_WALL_TIMER,
				.form = VARIABLE_TIMER,
				.elements = 1,
				.record_offset = TIMER_AT},
		       distribution = {.name = "d",
				       .type = MDL_DISTRIBUTION,
				       .form = VARIABLE_DISTRIBUTION,
				       .elements = 1,
				       .word = LEVEL_AT + 0x100},
		       flag = {.name = "f", .form = VARIABLE_FLAG, .record_offset = FLAG_AT},
		       table = {.name = "table",
				.form = VARIABLE_TABLE,
				.elements = 4,
				.word = TABLE_AT};

static void counter_of(struct variable *v, taddr_t counter)
{
	v->in[0].place = &place;
	v->in[0].counter = counter;
	v->place_count = 1;
}

static int set_up(void **state)
{
	struct dinst_error e = {0};

	(void)state;
	assert_int_equal(mdl_library_create(&library, &e), 0);
	total.elements = other_total.elements = temporary.elements = flag.elements = 1;
	counter_of(&total, TOTAL_AT);
	counter_of(&other_total, TOTAL_AT + 0x1000);
	counter_of(&timer, TOTAL_AT + 0x2000);
	counter_of(&distribution, OTHER_AT);
	total.word = LEVEL_AT;
	timer.clock = ARCH_CLOCK_MONOTONIC;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	mdl_library_free(library);
	return 0;
}

/* The code between (* and *) of the only insert of a metric. */
static const struct mdl_code *parse(const char *code)
{
	const struct mdl_metric *m;
	struct dinst_error e = {0};
	char text[2048];
	int size;

	/* Only a constraint knows $constraint: then it is one of the metric's own. */
	size = snprintf(
		text, sizeof(text),
		"metric m { name \"m\"; counter t; wallTimer w; distribution d; counter other; "
		"%s { foreach p in $procedures append preInsn p.return (* %s *) } %s }",
		strstr(code, "$constraint") ? "constraint c /SyncObject/Mutex/* is replace counter"
					    : "base is counter",
		code, strstr(code, "$constraint") ? "base is counter { }" : "");
	if (mdl_load_text(library, "test.mdl", text, (size_t)size, &e))
		fail_msg("%s", e.text);
	m = mdl_find_metric(library, "m");
	return (m->uses ? m->uses->constraint->body : m->base)->first->then->code;
}

struct job {
	const char *code;
	enum point_kind kind;
	enum mdl_role role;
	enum compile_mode mode;
	bool tail, sampled;
	const struct compile_guard *guards;
	size_t guard_count;
	const struct mdl_binding *bindings;
	size_t binding_count;
	const struct variable *vector, *hits;
};

static int build(const struct job *job, struct compiled *out, struct dinst_error *e)
{
	struct variable *const variables[] = {&total, &other_total, &temporary, &timer,
					      &distribution};
	const struct mdl_placement placement = {.kind = job->kind,
						.role = job->role,
						.code = parse(job->code),
						.bindings = job->bindings,
						.binding_count = job->binding_count};
	const struct compile_request request = {.library = library,
						.place = &place,
						.placement = &placement,
						.guards = job->guards,
						.guard_count = job->guard_count,
						.variables = variables,
						.variable_count = COUNT(variables),
						.vector = job->vector,
						.hits = job->hits,
						.tail_exit = job->tail,
						.sampled = job->sampled,
						.mode = job->mode};

	return compile(&request, out, e);
}

/* Compiles and runs; `values` 1 and 2 are given. */
static void run_as(const struct job *job, struct world *w, uint64_t activation, uint64_t start)
{
	const struct arch_machine machine = {w, load, store, other};
	uint64_t values[ARCH_PROGRAM_VALUES + 1] = {0};
	struct dinst_error e = {0};
	struct compiled c;

	if (build(job, &c, &e))
		fail_msg("%s: %s", job->code, e.text);
	values[ARCH_VALUE_ACTIVATION] = activation;
	values[ARCH_VALUE_START] = start;
	assert_true(c.program.count == 0 || arch_program_run(&c.program, &machine, values));
	free(c.program.ops);
}

static void run(const char *code, struct world *w)
{
	run_as(&(struct job){.code = code, .kind = POINT_EXIT, .role = MDL_MEASURES}, w, 1, 0);
}

/* What an expression gives, by way of the total. */
static int64_t evaluate(const char *expression, struct world *w)
{
	char code[512];

	memset(w->arena, 0, sizeof(w->arena));
	snprintf(code, sizeof(code), "m += %s;", expression);
	run(code, w);
	return (int64_t)word_at(w, TOTAL_AT);
}

/* -------------------------------------------------------------- the tests */

static void test_expressions(void **state)
{
	static const struct {
		const char *text;
		int64_t want;
	} cases[] = {
		{"1 + 2 * 3", 7},
		{"(1 + 2) * 3", 9},
		{"10 - 4 - 3", 3},
		{"7 / 2", 3},
		{"-7 / 2", -3},
		{"-7 % 3", -1},
		{"1 << 4 | 1", 17},
		{"0xff & ~0xf", 0xf0},
		{"6 ^ 3", 5},
		{"-16 >> 2", -4},
		{"!5", 0},
		{"!0", 1},
		{"1 < 2", 1},
		{"2 <= 1", 0},
		{"1 == 1 != 0", 1},
		{"3 > 2 && 2 > 1", 1},
		{"3 > 2 && 2 < 1", 0},
		{"0 || 0", 0},
		{"0 || 7", 1},
		{"1 ? 10 : 20", 10},
		{"0 ? 10 : 1 ? 20 : 30", 20},
		{"$return", 100},
		{"-$return / 7", -14},
		{"$return / 7", 14},
		{"$return / -7", -14},
		{"$return % 7", 2},
		{"-$return % 7", -2},
		{"-$return / 8", -12},
		{"-$return % 8", -4},
		{"$return % ($return - 100)", 0},
		{"$return / ($return - 100)", 0},
		{"$return * 3", 300},
		{"$return > 99", 1},
		{"$return > 99 ? $return : 0", 100},
		{"!($return == 100) || $return < 0", 0},
		{"($return == 100) + ($return != 100) * 2", 1},
		{"$thread", 1234},
		{"$pid", 1200},
		{"$cpu", 3},
		{"$caller", 0x4242},
		{"readMemory(0x900008, 4)", 0xfeed},
		{"readMemory(0x900008, 1)", 0xed},
		{"readMemory(8, 8)", 0},
		{"readMemory(readMemory(0x900010, 8), 2)", 0xfeed},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct world w = {.results = {100},
				  .plain = {[8] = 0xed, [9] = 0xfe, [16] = 8, [18] = 0x90}};
		const int64_t got = evaluate(cases[i].text, &w);

		if (got != cases[i].want)
			fail_msg("%s is %lld, not %lld", cases[i].text, (long long)got,
				 (long long)cases[i].want);
	}
}

/* Divisions by constants against the processor's, at numbers that make trouble. */
static void test_divisions(void **state)
{
	static const int64_t divisors[] = {2,
					   3,
					   4,
					   5,
					   6,
					   7,
					   9,
					   10,
					   11,
					   12,
					   25,
					   60,
					   64,
					   100,
					   641,
					   1000,
					   1000000,
					   1000000007,
					   1000000000000,
					   INT64_MAX,
					   INT64_MAX - 1,
					   1ll << 62,
					   (1ll << 62) + 1};

	(void)state;
	for (size_t i = 0; i < COUNT(divisors); i++)
		for (unsigned sign = 0; sign < 2; sign++)
			for (unsigned j = 0; j < 40; j++) {
				const int64_t d = sign ? -divisors[i] : divisors[i];
				const int64_t near[] = {0,
							1,
							-1,
							INT64_MAX,
							INT64_MIN,
							INT64_MIN + 1,
							divisors[i],
							-divisors[i],
							divisors[i] - 1,
							1 - divisors[i]};
				const int64_t a = j < COUNT(near)
							  ? near[j]
							  : (int64_t)(0x9e3779b97f4a7c15ull *
								      (j + 3) * (i + 7)) >>
								    (j % 50);
				struct world w = {.results = {(uint64_t)a}};
				char text[64];

				snprintf(text, sizeof(text), "$return / (%lld)", (long long)d);
				if (evaluate(text, &w) != a / d)
					fail_msg("%lld / %lld", (long long)a, (long long)d);
				snprintf(text, sizeof(text), "$return %% (%lld)", (long long)d);
				if (evaluate(text, &w) != a % d)
					fail_msg("%lld %% %lld", (long long)a, (long long)d);
			}
}

static void test_statements(void **state)
{
	struct world w = {.results = {5}};

	(void)state;
	run("if ($return > 3) { m++; m += 10; } else m += 100; if ($return == 4) m += 1000;", &w);
	assert_int_equal(word_at(&w, TOTAL_AT), 11);
	run("if ($return < 3) m += 7; else if ($return == 5 && $thread) m -= 1; else m += 50;", &w);
	assert_int_equal(word_at(&w, TOTAL_AT), 10);
	run("m--; m += t = 5; m += t;", &w);
	assert_int_equal(word_at(&w, TOTAL_AT), 19);
	assert_int_equal(word_at(&w, RECORD + TEMPORARY_AT), 5);
	run("m += t++; m += t--; m += (t += 2);", &w);
	assert_int_equal(word_at(&w, TOTAL_AT), 19 + 5 + 6 + 5 + 2 - 2 + 0 + 2);
	assert_int_equal(word_at(&w, RECORD + TEMPORARY_AT), 7);
	/* Temporaries go below 0. */
	run("t = 0; t--;", &w);
	assert_int_equal(word_at(&w, RECORD + TEMPORARY_AT), UINT64_MAX);
}

static void test_level(void **state)
{
	struct world w = {.results = {5}};

	(void)state;
	total.form = VARIABLE_LEVEL;
	run("m = $return; m += 2; if (m == 7) m -= 4; m++;", &w);
	assert_int_equal(word_at(&w, LEVEL_AT), 4);
	assert_int_equal(word_at(&w, TOTAL_AT), 0);
	total.form = VARIABLE_TOTAL;
}

/* A flag of a constraint counts down to 0 and not further. */
static void test_flags(void **state)
{
	struct variable *const only = &flag;
	const struct arch_machine m = {NULL, load, store, other};
	static const struct {
		const char *code;
		uint64_t from, to;
	} cases[] = {
		{"t++;", 0, 1},	   {"t--;", 2, 1},
		{"t--;", 0, 0},	   {"t -= 3;", 2, 0},
		{"t -= 3;", 5, 2}, {"t = 0;", 9, 0},
		{"t += 4;", 1, 5}, {"t = $thread == 1234;", 0, 1},
	};

	(void)state;
	flag.name = "t";
	for (size_t i = 0; i < COUNT(cases); i++)
		for (unsigned alive = 0; alive < 2; alive++) {
			const struct mdl_placement placement = {.kind = POINT_ENTRY,
								.role = MDL_SETS_FLAGS,
								.code = parse(cases[i].code)};
			const struct compile_request request = {.library = library,
								.place = &place,
								.placement = &placement,
								.variables = &only,
								.variable_count = 1};
			uint64_t values[ARCH_PROGRAM_VALUES + 1] = {0, alive ? 0x7770 : 0};
			struct arch_machine machine = m;
			struct dinst_error e = {0};
			struct compiled c;
			struct world w = {0};

			machine.arg = &w;
			store(&w, RECORD + FLAG_AT, cases[i].from, 8);
			assert_int_equal(compile(&request, &c, &e), 0);
			assert_true(c.activation && c.per_thread && c.shared);
			assert_true(arch_program_run(&c.program, &machine, values));
			/* An entry that was not kept changes nothing. */
			assert_int_equal(word_at(&w, RECORD + FLAG_AT),
					 alive ? cases[i].to : cases[i].from);
			free(c.program.ops);
		}
	flag.name = "f";
}

static void test_guards(void **state)
{
	const struct mdl_binding thread = {.name = "$constraint", .number = 1234};
	const struct mdl_code *same = parse("t = $thread == 1234;");
	struct compile_guard guards[] = {
		{.flag = &flag, .name = "f"},
		{.code = same, .name = "t", .bindings = &thread, .binding_count = 1},
	};
	const struct job job = {.code = "m++;",
				.role = MDL_MEASURES,
				.guards = guards,
				.guard_count = 2,
				.hits = &other_total};
	struct compiled c;
	struct dinst_error e = {0};
	struct world w = {0};

	(void)state;
	same = guards[1].code;
	run_as(&job, &w, 0, 0);
	assert_int_equal(word_at(&w, TOTAL_AT), 0);
	store(&w, RECORD + FLAG_AT, 3, 8);
	run_as(&job, &w, 0, 0);
	assert_int_equal(word_at(&w, TOTAL_AT), 1);
	w.no_record = true;
	run_as(&job, &w, 0, 0);
	assert_int_equal(word_at(&w, TOTAL_AT), 1);
	/* It was reached three times, whatever the guards said. */
	assert_int_equal(word_at(&w, TOTAL_AT + 0x1000), 3);
	w.no_record = false;
	guards[1].code = parse("t = $thread == 99;");
	run_as(&job, &w, 0, 0);
	assert_int_equal(word_at(&w, TOTAL_AT), 1);
	/* Looking at a flag does not pair the function. */
	assert_int_equal(build(&job, &c, &e), 0);
	assert_false(c.activation);
	assert_true(c.per_thread);
	assert_true(c.cost_ps > 0);
	free(c.program.ops);
}

static void test_timers(void **state)
{
	const struct job start = {.code = "startWallTimer(w);", .role = MDL_MEASURES},
			 stop = {.code = "m += stopWallTimer(w);",
				 .kind = POINT_EXIT,
				 .role = MDL_MEASURES};
	struct world w = {.clock = 1000, .step = 7};

	(void)state;
	run_as(&start, &w, 1, 0); /* at 1000 */
	run_as(&start, &w, 1, 0); /* runs already: the clock is not read */
	assert_int_equal(w.asked_clock, 1);
	assert_int_equal(word_at(&w, RECORD + TIMER_AT), 2);
	run_as(&stop, &w, 1, 0);
	assert_int_equal(word_at(&w, TOTAL_AT), UINT64_MAX); /* -1: it goes on */
	w.clock = 1500;
	run_as(&stop, &w, 1, 0);
	assert_int_equal(word_at(&w, TOTAL_AT), 499);
	assert_int_equal(word_at(&w, TOTAL_AT + 0x2000), 500);
	assert_int_equal(word_at(&w, RECORD + TIMER_AT), 1ull << 32);
	/* A stop without a start, and activations that were not found. */
	run_as(&stop, &w, 1, 0);
	assert_int_equal(word_at(&w, TOTAL_AT), 498);
	run_as(&start, &w, 0, 0);
	assert_int_equal(word_at(&w, RECORD + TIMER_AT), 1ull << 32);
	assert_int_equal(word_at(&w, TOTAL_AT + 0x2000), 500);
	/* A clock that goes back adds nothing. */
	run_as(&start, &w, 1, 0);
	w.clock = 3;
	run_as(&stop, &w, 1, 0);
	assert_int_equal(word_at(&w, TOTAL_AT + 0x2000), 500);
	assert_int_equal(word_at(&w, RECORD + TIMER_AT), 2ull << 32);
}

static void test_record(void **state)
{
	struct world w = {0};

	(void)state;
	store(&w, LEVEL_AT + 0x100, INT64_MAX, 8);
	store(&w, LEVEL_AT + 0x108, (uint64_t)INT64_MIN, 8);
	for (unsigned i = 0; i < 62; i++) {
		for (int64_t d = -1; d <= 1; d++) {
			const int64_t v = (1ll << i) + d;
			unsigned bucket = 0;

			memset(w.arena + (OTHER_AT - ARENA), 0, 8 * VARIABLE_ROW);
			w.results[0] = (uint64_t)v;
			run("record(d, $return);", &w);
			for (unsigned b = 0; b < VARIABLE_BUCKETS; b++)
				if (word_at(&w, OTHER_AT + 8 * b)) {
					assert_int_equal(word_at(&w, OTHER_AT + 8 * b), 1);
					bucket = b;
				}
			assert_true(variable_bucket_start(bucket) <= (uint64_t)v);
			assert_true((uint64_t)v < variable_bucket_start(bucket + 1));
			assert_int_equal(word_at(&w, OTHER_AT + 8 * VARIABLE_BUCKETS), v);
		}
	}
	assert_int_equal(word_at(&w, LEVEL_AT + 0x100), 0);
	assert_int_equal(word_at(&w, LEVEL_AT + 0x108), (1ll << 61) + 1);
	memset(w.arena, 0, sizeof(w.arena));
	w.results[0] = (uint64_t)-5;
	run("record(d, $return);", &w);
	for (unsigned i = 0; i < sizeof(w.arena); i++)
		assert_int_equal(w.arena[i], 0);
}

static void test_elapsed(void **state)
{
	const struct job job = {.code = "m += $elapsed;", .kind = POINT_EXIT, .role = MDL_MEASURES};
	const bool ticks = ticks_wall_clock() == ARCH_CLOCK_TICKS;
	const uint64_t ns = ticks ? ticks_to_ns(500000) : 500000;
	struct world w = {.clock = 700000};
	struct compiled c;
	struct dinst_error e = {0};

	(void)state;
	run_as(&job, &w, 1, 200000);
	assert_int_equal(word_at(&w, TOTAL_AT), ns);
	run_as(&job, &w, 1, 0);
	assert_int_equal(word_at(&w, TOTAL_AT), ns - 1);
	run_as(&job, &w, 1, PAIR_INHERITED);
	assert_int_equal(word_at(&w, TOTAL_AT), ns - 2);
	run_as(&job, &w, 0, 200000);
	assert_int_equal(word_at(&w, TOTAL_AT), ns - 3);
	run_as(&job, &w, 1, 800000);
	assert_int_equal(word_at(&w, TOTAL_AT), ns - 3);
	assert_int_equal(build(&job, &c, &e), 0);
	assert_true(c.activation && c.start);
	free(c.program.ops);
}

/* One vector for many objects: an element for each key, the last for those without a place. */
static void test_many(void **state)
{
	const struct mdl_binding any = {.name = "$constraint", .kind = MDL_BOUND_ANY};
	const struct compile_guard guard = {.flag = &flag, .name = "f", .many = true};
	struct job job = {.code = "if ($return == $constraint[0]) m += 2;",
			  .kind = POINT_EXIT,
			  .role = MDL_MEASURES,
			  .bindings = &any,
			  .binding_count = 1,
			  .vector = &table};
	const struct job set = {.code = "t = ($return == $constraint[0]);",
				.kind = POINT_EXIT,
				.role = MDL_MEASURES,
				.bindings = &any,
				.binding_count = 1,
				.vector = &table};
	struct compiled c;
	struct dinst_error e = {0};
	struct world w = {0};
	uint64_t none;

	(void)state;
	total.elements = 5;
	for (unsigned i = 0; i < 6; i++) {
		w.results[0] = 0x1000 + i;
		run_as(&job, &w, 1, 0);
	}
	w.results[0] = 0x1002;
	run_as(&job, &w, 1, 0);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(word_at(&w, TOTAL_AT + 8 * i), i == 2 || i == 4 ? 4 : 2);
	/* Only these keys, and no others. */
	table.keys = &none;
	w.results[0] = 0x2000;
	run_as(&job, &w, 1, 0);
	assert_int_equal(word_at(&w, TOTAL_AT + 32), 4);
	w.results[0] = 0x1003;
	run_as(&set, &w, 1, 0);
	assert_int_equal(word_at(&w, RECORD + TEMPORARY_AT), 4);
	w.results[0] = 0x2000;
	run_as(&set, &w, 1, 0);
	assert_int_equal(word_at(&w, RECORD + TEMPORARY_AT), 0);
	table.keys = NULL;
	run_as(&set, &w, 1, 0);
	assert_int_equal(word_at(&w, RECORD + TEMPORARY_AT), 5);
	/* By a flag; what is not a place goes to the last element. */
	job.code = "m += 100;";
	job.guards = &guard;
	job.guard_count = 1;
	store(&w, RECORD + FLAG_AT, 2, 8);
	run_as(&job, &w, 1, 0);
	assert_int_equal(word_at(&w, TOTAL_AT + 8), 102);
	store(&w, RECORD + FLAG_AT, 0x123456789, 8);
	run_as(&job, &w, 1, 0);
	assert_int_equal(word_at(&w, TOTAL_AT + 32), 104);
	/* Nothing says for which object. */
	job.guard_count = 0;
	assert_int_equal(build(&job, &c, &e), DINST_USAGE);
	assert_non_null(strstr(e.text, "nothing says"));
	total.elements = 1;
}

/* What is done for activations that were there before, and for those that never end. */
static void test_modes(void **state)
{
	struct job job = {
		.code = "m++; t = 7; other += $return; if ($return) t = 9; startWallTimer(w);",
		.kind = POINT_EXIT,
		.role = MDL_MEASURES,
		.mode = COMPILE_CATCH_UP};
	struct compiled c;
	struct dinst_error e = {0};
	struct world w = {.clock = 50, .results = {1}};

	(void)state;
	run_as(&job, &w, 1, 0);
	assert_int_equal(word_at(&w, TOTAL_AT), 0);
	assert_int_equal(word_at(&w, TOTAL_AT + 0x1000), 0);
	assert_int_equal(word_at(&w, RECORD + TEMPORARY_AT), 7);
	assert_int_equal(word_at(&w, RECORD + TIMER_AT), 1);
	job.mode = COMPILE_UNDO;
	job.code = "record(d, stopWallTimer(w)); m += 5; t = 0;";
	w.clock = 80;
	run_as(&job, &w, 1, 0);
	assert_int_equal(word_at(&w, TOTAL_AT), 0);
	assert_int_equal(word_at(&w, TOTAL_AT + 0x2000), 30);
	assert_int_equal(word_at(&w, RECORD + TEMPORARY_AT), 0);
	assert_int_equal(word_at(&w, OTHER_AT + 8 * 30), 0);
	/* Nothing of a thread's: nothing to do. */
	job.code = "m++;";
	assert_int_equal(build(&job, &c, &e), 0);
	assert_int_equal(c.program.count, 0);
	/* But what tells how many there are now is undone and caught up. */
	job.sampled = true;
	job.code = "m--;";
	run_as(&job, &w, 1, 0);
	assert_int_equal(word_at(&w, TOTAL_AT), UINT64_MAX);
	run_as(&job, &w, 0, 0);
	assert_int_equal(word_at(&w, TOTAL_AT), UINT64_MAX);
	job.mode = COMPILE_POINT;
	assert_int_equal(build(&job, &c, &e), 0);
	assert_true(c.activation);
	free(c.program.ops);
}

static void test_refused(void **state)
{
	static const struct {
		const char *code;
		enum point_kind kind;
		bool tail;
		int want;
		const char *text;
	} cases[] = {
		{"m += $return;", POINT_EXIT, true, DINST_REFUSED, "jump to another"},
		{"m += $arg[0];", POINT_EXIT, false, DINST_REFUSED, "not there any more"},
		{"m += $return;", POINT_CALL, false, DINST_USAGE, "$return"},
		{"m += $elapsed;", POINT_ENTRY, false, DINST_USAGE, "$elapsed"},
		{"m += $caller;", POINT_CALL, false, DINST_USAGE, "$caller"},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		const struct job job = {.code = cases[i].code,
					.kind = cases[i].kind,
					.role = MDL_MEASURES,
					.tail = cases[i].tail};
		struct dinst_error e = {0};
		struct compiled c;
		const int got = build(&job, &c, &e);

		if (got != cases[i].want || !strstr(e.text, cases[i].text))
			fail_msg("%s: %d %s", cases[i].code, got, e.text);
	}
}

/* At a jump to another function the arguments are there again. */
static void test_arguments(void **state)
{
	struct world w = {.arguments = {11, 22, 33, 44, 55, 66}, .stack = {0xdead, 77, 88}};
	struct job job = {.code = "m += $arg[0] + $arg[5] + $arg[6] + $arg[7];",
			  .kind = POINT_EXIT,
			  .role = MDL_MEASURES,
			  .tail = true};

	(void)state;
	run_as(&job, &w, 0, 0);
	assert_int_equal(word_at(&w, TOTAL_AT), 11 + 66 + 77 + 88);
	job.kind = POINT_ENTRY;
	job.tail = false;
	run_as(&job, &w, 0, 0);
	assert_int_equal(word_at(&w, TOTAL_AT), 2 * (11 + 66 + 77 + 88));
}

/* A program that is too long is refused, wherever that is noticed. */
static void test_too_long(void **state)
{
	char code[1800] = "";
	struct dinst_error e = {0};
	struct compiled c;

	(void)state;
	for (unsigned i = 0; i < 120; i++)
		strncat(code, "t = t * t + 3;", sizeof(code) - strlen(code) - 1);
	assert_int_equal(build(&(struct job){.code = code, .role = MDL_MEASURES}, &c, &e),
			 DINST_USAGE);
	assert_non_null(strstr(e.text, "too much code"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_expressions), cmocka_unit_test(test_divisions),
		cmocka_unit_test(test_statements),  cmocka_unit_test(test_level),
		cmocka_unit_test(test_flags),	    cmocka_unit_test(test_guards),
		cmocka_unit_test(test_timers),	    cmocka_unit_test(test_record),
		cmocka_unit_test(test_elapsed),	    cmocka_unit_test(test_many),
		cmocka_unit_test(test_modes),	    cmocka_unit_test(test_refused),
		cmocka_unit_test(test_arguments),   cmocka_unit_test(test_too_long),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
