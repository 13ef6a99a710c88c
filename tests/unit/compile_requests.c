/* SPDX-License-Identifier: MIT */
/*
 * compile_requests.c - code in its surroundings: vectors of many objects,
 * catch-up and undo, points at which something is not to be had, limits.
 */
#include "tests/unit/compile_world.h"

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
	/* A constraint may count in the upper half of its flag. */
	store(&w, RECORD + FLAG_AT, 3ull << 32 | 2, 8);
	run_as(&job, &w, 1, 0);
	assert_int_equal(word_at(&w, TOTAL_AT + 8), 202);
	/* Nothing says for which object. */
	job.guard_count = 0;
	assert_int_equal(build(&job, &c, &e), DINST_USAGE);
	assert_non_null(strstr(e.text, "nothing says"));
	dinst_error_clear(&e);
	job.code = "if ($return > 5 || $return == $constraint[0]) m++;";
	assert_int_equal(build(&job, &c, &e), DINST_USAGE);
	dinst_error_clear(&e);
	job.code = "if ($return == $constraint[0] && $return > 5) m++; else m++;";
	assert_int_equal(build(&job, &c, &e), DINST_USAGE);
	/* One of both is it. */
	memset(w.arena, 0, sizeof(w.arena));
	job.code =
		"if ($return > 9 && ($return == $constraint[0] || $thread == $constraint[0])) m++;";
	w.results[0] = 0x1001;
	run_as(&job, &w, 1, 0);
	assert_int_equal(word_at(&w, TOTAL_AT + 8), 1);
	total.elements = 1;
}

/* Where it is none of the objects, and beside a place that is known already. */
static void test_none(void **state)
{
	static const char *const refused[] = {
		"if ($return != $constraint[0]) m++;",
		"if (!($return == $constraint[0])) m++;",
		"if ($return == $constraint[0]) other++; else m++;",
		"if ($return == $constraint[0] && $thread) other++; else m++;",
		"if ($return != $constraint[0] || $thread) m++;",
		"m += $return == $constraint[0] ? 0 : m++;",
	};
	const struct mdl_binding any = {.name = "$constraint", .kind = MDL_BOUND_ANY};
	const struct compile_guard guard = {.flag = &flag, .name = "f", .many = true};
	struct job job = {.kind = POINT_EXIT,
			  .role = MDL_MEASURES,
			  .bindings = &any,
			  .binding_count = 1,
			  .vector = &table};
	struct world w = {.keys = {0x1000, 0x1001, 0x1002, 0x1003}, .key_count = 4};
	uint64_t none;

	(void)state;
	total.elements = 5;
	table.keys = &none;
	for (size_t i = 0; i < COUNT(refused); i++) {
		struct dinst_error e = {0};
		struct compiled c;

		job.code = refused[i];
		if (build(&job, &c, &e) != DINST_USAGE || !strstr(e.text, "nothing says"))
			fail_msg("%s: %s", job.code, e.text);
		dinst_error_clear(&e);
	}
	/* Where it is not none, it is one. */
	job.code = "if ($return != $constraint[0]) other += 7; else m++;";
	w.results[0] = 0x1002;
	run_as(&job, &w, 1, 0);
	assert_int_equal(word_at(&w, TOTAL_AT + 16), 1);
	assert_int_equal(word_at(&w, TOTAL_AT + 0x1000), 0);
	w.results[0] = 0x2000;
	run_as(&job, &w, 1, 0);
	assert_int_equal(word_at(&w, TOTAL_AT + 0x1000), 7);
	/* A comparison is 1 or 0, which of the objects it is notwithstanding. */
	job.code = "other += 10 * ($return == $constraint[0]);";
	w.results[0] = 0x1003;
	run_as(&job, &w, 1, 0);
	assert_int_equal(word_at(&w, TOTAL_AT + 0x1000), 17);
	/* The flag says for which object this is, whatever is compared in between. */
	job.guards = &guard;
	job.guard_count = 1;
	store(&w, RECORD + FLAG_AT, 2, 8);
	job.code =
		"t = ($return == $constraint[0]); if ($return == $constraint[0]) m += 5; m += 100;";
	run_as(&job, &w, 1, 0);
	assert_int_equal(word_at(&w, TOTAL_AT + 24), 5);
	assert_int_equal(word_at(&w, TOTAL_AT + 8), 100);
	for (unsigned i = 0; i < 5; i += 2)
		assert_int_equal(word_at(&w, TOTAL_AT + 8 * i), i == 2);
	table.keys = NULL;
	total.elements = 1;
}

/* A flag of many objects holds a place: code that would leave another number there is refused. */
static void test_flag_of_many(void **state)
{
	static const struct {
		const char *code;
		int status;
	} codes[] = {
		{"t = ($return == $constraint[0]);", 0},
		{"t = $thread ? ($return == $constraint[0]) : 0;", 0},
		{"if ($thread) t = ($return == $constraint[0]); else t = 0;", 0},
		{"if (t) t += 0x100000000; else t = ($return == $constraint[0]);", 0},
		{"if (t >> 32) t -= 1 << 32; else t = 0;", 0},
		{"t = $thread ? t : 0;", 0},
		{"t = 1;", DINST_USAGE},
		{"t = 1 << 32;", DINST_USAGE},
		{"t = $thread;", DINST_USAGE},
		{"t = $thread == 5;", DINST_USAGE},
		{"t = $thread ? 1 : 0;", DINST_USAGE},
		{"if ($thread) t = ($return == $constraint[0]); else t = 1;", DINST_USAGE},
		{"t--;", DINST_USAGE},
		{"t++;", DINST_USAGE},
		{"t -= 1;", DINST_USAGE},
		{"t += $return;", DINST_USAGE},
		{"t += 0x100000001;", DINST_USAGE},
		{"t += ($return == $constraint[0]);", DINST_USAGE},
		{"t -= ($return == $constraint[0]);", DINST_USAGE},
		{"if (t) t += 1; else t = ($return == $constraint[0]);", DINST_USAGE},
		{"if ($return == $constraint[0]) t++;", DINST_USAGE},
		{"if ($return == $constraint[0]) t = 1;", DINST_USAGE},
		{"if ($return == $constraint[0]) t = 0; else t = 1;", DINST_USAGE},
		{"if ($return != $constraint[0]) t++;", DINST_USAGE},
		{"t = $thread && $return == $constraint[0];", DINST_USAGE},
	};
	const struct mdl_binding any = {.name = "$constraint", .kind = MDL_BOUND_ANY};
	struct job job = {.kind = POINT_EXIT,
			  .role = MDL_SETS_FLAGS,
			  .bindings = &any,
			  .binding_count = 1,
			  .vector = &table};

	(void)state;
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		struct dinst_error e = {0};
		struct compiled c;

		job.code = codes[i].code;
		if (build(&job, &c, &e) != codes[i].status)
			fail_msg("%s: %s", job.code, e.text);
		if (!codes[i].status)
			free(c.program.ops);
	}
}

/* What is done for activations that were there before, and for those that never end. */
static void test_modes(void **state)
{
	struct job job = {
		.code = "m++; t = 7; other += $return; if ($return) t = 9; startWallTimer(w); "
			"t = $caller; t = $stack; t = nobody(1); if (nobody(2)) t = 3;",
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

/* What a forked child has inherited is its parent's to count; what a guard asks only the moment tells. */
static void test_moments(void **state)
{
	struct compile_guard guard = {.name = "t"};
	struct job level = {.code = "m--;",
			    .kind = POINT_EXIT,
			    .role = MDL_MEASURES,
			    .sampled = true},
		   late = {.code = "startWallTimer(w);",
			   .role = MDL_MEASURES,
			   .mode = COMPILE_CATCH_UP,
			   .guards = &guard,
			   .guard_count = 1};
	struct world w = {.arguments = {1}};

	(void)state;
	run_as(&level, &w, 1, PAIR_INHERITED);
	assert_int_equal(word_at(&w, TOTAL_AT), 0);
	run_as(&level, &w, 1, 5);
	assert_int_equal(word_at(&w, TOTAL_AT), UINT64_MAX);
	guard.code = parse("t = $arg[0] != 9;");
	run_as(&late, &w, 1, 0);
	assert_int_equal(word_at(&w, RECORD + TIMER_AT), 0);
	guard.code = parse("t = $thread != 0 || 1;");
	run_as(&late, &w, 1, 0);
	assert_int_equal(word_at(&w, RECORD + TIMER_AT), 1);
}

/* Where what a variable becomes is used, it is one word; where it only grows, a counter. */
static void test_forms(void **state)
{
	static const struct {
		const char *code;
		enum variable_form form;
	} codes[] = {
		{"m++;", VARIABLE_TOTAL},
		{"m += 2; if ($return) m -= $thread;", VARIABLE_TOTAL},
		{"m = 2;", VARIABLE_LEVEL},
		{"t = (m += 2);", VARIABLE_LEVEL},
		{"t = m++;", VARIABLE_LEVEL},
		{"if (m += 1) t = 1;", VARIABLE_LEVEL},
		{"t = m;", VARIABLE_LEVEL},
		{"m += (t = $thread) ? m : 0;", VARIABLE_LEVEL},
		{"record(d, m -= 1);", VARIABLE_LEVEL},
	};
	struct variable *const variables[] = {&total, &temporary, &timer, &distribution};

	(void)state;
	for (size_t i = 0; i < COUNT(codes); i++) {
		struct mdl_placement placement = {.code = parse(codes[i].code)};
		const struct mdl_plan plan = {.metric = mdl_find_metric(library, "m"),
					      .placements = &placement,
					      .placement_count = 1};
		struct dinst_error e = {0};

		assert_int_equal(compile_choose_forms(&plan, variables, COUNT(variables), &e), 0);
		if (total.form != codes[i].form)
			fail_msg("%s: %d", codes[i].code, total.form);
		assert_int_equal(temporary.form, VARIABLE_FLAG);
		assert_int_equal(timer.form, VARIABLE_TIMER);
		assert_int_equal(distribution.form, VARIABLE_DISTRIBUTION);
	}
	total.form = VARIABLE_TOTAL;
}

/*
 * An exclusive flag and more activations than a record keeps: entries beyond are
 * not kept, and nothing of the flag may be left when all have returned.
 */
static void test_depth(void **state)
{
	struct job enter = {.code = "t++;", .kind = POINT_ENTRY, .role = MDL_SETS_FLAGS},
		   leave = {.code = "t--;", .kind = POINT_EXIT, .role = MDL_CLEARS_FLAGS},
		   before = {.code = "t--;", .kind = POINT_CALL, .role = MDL_CLEARS_FLAGS},
		   after = {.code = "t++;", .kind = POINT_AFTER, .role = MDL_SETS_FLAGS};
	const unsigned depth = offsetof(struct pair_record, depth),
		       size = sizeof(struct pair_entry);
	struct world w = {0};

	(void)state;
	for (unsigned n = PAIR_HOME - 3; n < PAIR_HOME + 3; n++) {
		const bool kept = n < PAIR_HOME;

		run_as(&enter, &w, kept, 0);
		store(&w, RECORD + depth, size * (kept ? n + 1 : PAIR_HOME), 4);
		assert_int_equal(word_at(&w, RECORD + TEMPORARY_AT), 1);
		run_as(&before, &w, 0, 0);
		/* Where there is room, the flag is off while something is called. */
		assert_int_equal(word_at(&w, RECORD + TEMPORARY_AT), n + 1 >= PAIR_HOME);
	}
	for (unsigned n = PAIR_HOME + 3; n-- > PAIR_HOME - 3;) {
		run_as(&after, &w, 0, 0);
		assert_int_equal(word_at(&w, RECORD + TEMPORARY_AT), 1);
		run_as(&leave, &w, n < PAIR_HOME, 0);
		if (n < PAIR_HOME)
			store(&w, RECORD + depth, size * n, 4);
	}
	assert_int_equal(word_at(&w, RECORD + TEMPORARY_AT), 0);
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
		{"m += $return.len;", POINT_EXIT, false, DINST_REFUSED, "needs a type"},
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
		cmocka_unit_test(test_many),	     cmocka_unit_test(test_none),
		cmocka_unit_test(test_flag_of_many), cmocka_unit_test(test_moments),
		cmocka_unit_test(test_forms),	     cmocka_unit_test(test_modes),
		cmocka_unit_test(test_refused),	     cmocka_unit_test(test_depth),
		cmocka_unit_test(test_arguments),    cmocka_unit_test(test_too_long),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
