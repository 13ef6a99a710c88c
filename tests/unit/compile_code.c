/* SPDX-License-Identifier: MIT */
/*
 * compile_code.c - code of MDL is parsed, compiled and run by the interpreter:
 * every construct of the language must give the right values, in the right
 * order, and touch nothing else.
 */
#include "tests/unit/compile_world.h"

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
								.rank.role = MDL_SETS_FLAGS,
								.code = parse(cases[i].code)};
			const struct compile_request request = {.texts = library,
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

static unsigned number_of(const struct arch_program *p, unsigned kind)
{
	unsigned number = 0;

	for (unsigned i = 0; i < p->count; i++)
		number += p->ops[i].kind == kind;
	return number;
}

/*
 * fear K3: what counts hits must not make the clock of threads a system call, in no piece of the instance: each adds to the
 * counter in the same way.
 */
static void test_hits_beside_thread_timer(void **state)
{
	static const struct {
		const char *code;
		unsigned clocks;
	} pieces[] = {
		{"startWallTimer(w);", 1},
		{"stopWallTimer(w);", 1},
		{"t++;", 0},
	};
	const enum arch_clock before = timer.clock;

	(void)state;
	for (unsigned i = 0; i < COUNT(pieces); i++) {
		const struct job job = {
			.code = pieces[i].code, .role = MDL_MEASURES, .hits = &other_total};
		struct dinst_error e = {0};
		struct world w = {0};
		struct compiled c;

		for (unsigned n = 0; n < 2; n++) {
			timer.clock = n ? ARCH_CLOCK_THREAD : ARCH_CLOCK_TICKS;
			assert_int_equal(build(&job, &c, &e), 0);
			assert_int_equal(number_of(&c.program, ARCH_OP_CLOCK), pieces[i].clocks);
			if (n)
				assert_int_equal(number_of(&c.program, ARCH_OP_COUNT), 0);
			else
				assert_true(number_of(&c.program, ARCH_OP_COUNT) > 0);
			free(c.program.ops);
			run_as(&job, &w, 0, 0);
			assert_int_equal(word_at(&w, TOTAL_AT + 0x1000), n + 1);
		}
	}
	timer.clock = before;
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
	/* What the flag was is read before the right side changes it, as of one that is a thread's. */
	for (unsigned i = 0; i < 3; i++) {
		static const char *const codes[] = {
			"t = 1; t = (t + (t = 3)) == 4;",
			"t = 1; t = t != (t = 3);",
			"t = 1; t = ((t = 5) - (t = 3)) == 2;",
		};
		const uint64_t before = word_at(&w, TOTAL_AT);

		guards[1].code = parse(codes[i]);
		run_as(&job, &w, 0, 0);
		assert_int_equal(word_at(&w, TOTAL_AT), before + 1);
	}
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
	/* Of ticks -1 is -1, too, and no time. */
	timer.clock = ARCH_CLOCK_TICKS;
	run_as(&start, &w, 1, 0);
	run_as(&start, &w, 1, 0);
	memset(w.arena, 0, sizeof(w.arena));
	run_as(&stop, &w, 1, 0);
	assert_int_equal(word_at(&w, TOTAL_AT), UINT64_MAX);
	timer.clock = ARCH_CLOCK_MONOTONIC;
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_expressions), cmocka_unit_test(test_divisions),
		cmocka_unit_test(test_statements),  cmocka_unit_test(test_level),
		cmocka_unit_test(test_flags),	    cmocka_unit_test(test_guards),
		cmocka_unit_test(test_timers),	    cmocka_unit_test(test_record),
		cmocka_unit_test(test_elapsed),	    cmocka_unit_test(test_hits_beside_thread_timer),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
