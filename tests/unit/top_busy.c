/* SPDX-License-Identifier: MIT */
/*
 * top_busy.c - what dinst top does where something cannot be inserted: now, or at all.
 */
#include "tests/unit/top_scene.h"

/* ------------------------------------------------------------------ refusals */

/* The whole survey is made again, and nobody is to blame: nobody is looked for either. */
static void a_survey_while_it_is_busy(void **state)
{
	struct view *v = begin(FEW, 0, 0);

	(void)state;
	target.busy_to = 1;
	survey(v);
	assert_int_equal(target.inserts, 1);
	assert_false(v->surveyed);
	assert_int_equal(lost(v), 0);
	assert_non_null(strstr(t->message, "try again later"));
	survey(v);
	assert_true(v->surveyed);
	assert_int_equal(v->counts.count, FEW);
	assert_string_equal(t->message, "");
	end();
}

/* What was left out when it was to be counted on goes in with the next refresh. */
static void left_out_while_it_is_busy(void **state)
{
	struct view *v = begin(FEW, 0, 0);

	(void)state;
	target.busy_from = 1;
	target.busy_to = 3;
	survey(v);
	assert_true(v->surveyed);
	assert_int_equal(v->counts.count, 0);
	count(v);
	assert_int_equal(v->counts.count, 0);
	count(v);
	assert_int_equal(v->counts.count, FEW);
	assert_false(v->counts.missing);
	assert_int_equal(lost(v), 0);
	end();
}

/* Some are counted already, and others were to come beside them. */
static void some_are_in_already(void **state)
{
	struct view *v = begin(FEW, 0, 0);

	(void)state;
	survey(v);
	for (size_t n = 0; n < 10; n++)
		v->functions[n].counted = v->functions[n].seen = false;
	v->counts.count -= 10;
	for (size_t n = 0; n < v->counts.count; n++)
		v->counts.list[n].function = &v->functions[10 + n];
	for (size_t n = 0; n < 10; n++)
		v->functions[n].seen = true;
	target.busy_from = target.inserts;
	target.busy_to = target.inserts + 2;
	count(v);
	assert_int_equal(v->counts.count, FEW - 10);
	count(v);
	assert_int_equal(v->counts.count, FEW);
	end();
}

/* Those that are sampled are sampled again, and go on to be timed. */
static void samples_while_it_is_busy(void **state)
{
	struct view *v = begin(FEW, 0, 0);
	uint64_t rated;

	(void)state;
	t->limit = 0.1;
	survey(v);
	rated = v->functions[FEW - 1].rated_ns;
	assert_false(v->functions[FEW - 1].counted);
	target.busy_from = target.inserts;
	target.busy_to = target.inserts + 1;
	count(v);
	assert_int_equal(lost(v), 0);
	assert_true(v->functions[FEW - 1].rated_ns == rated);
	count(v);
	assert_true(v->functions[FEW - 1].rated_ns > rated);
	end();
}

/* All of them are called, and on the screen. */
static struct view *begin_called(void)
{
	struct view *v = begin(FEW, 0, 0);

	survey(v);
	for (size_t n = 0; n < FEW; n++)
		v->functions[n].rate = 10;
	t->rows = FEW;
	lines_make(t, v);
	return v;
}

static void times_after(struct view *v, unsigned refreshes, size_t count)
{
	for (unsigned n = 0; n < refreshes; n++)
		assert_int_equal(times_take(t, v, 0, &e), 0);
	assert_int_equal(v->latencies.count, count);
	assert_int_equal(lost(v), 0);
}

static void times_while_it_is_busy(void **state)
{
	struct view *v = begin_called();

	(void)state;
	target.busy_from = target.inserts;
	target.busy_to = target.inserts + 1;
	times_after(v, 1, 0);
	times_after(v, 1, FEW);
	end();
}

/* A thread stays in one of them: the others are timed soon, and that one is tried again, but not at every refresh. */
static void one_is_occupied(void **state)
{
	struct view *v = begin_called();

	(void)state;
	target.occupied = v->functions[41].focus;
	times_after(v, 2, 0);
	times_after(v, 1, FEW - 1);
	assert_true(v->functions[41].late_ns > 0);
	target.occupied = NULL;
	v->functions[41].late_ns = 0;
	times_after(v, 1, FEW);
	end();
}

/* The target is busy for long: looking for one that is to blame takes a few requests, now and then. */
static void busy_for_long(void **state)
{
	struct view *v = begin_called();

	(void)state;
	target.busy_from = target.inserts = 0;
	target.busy_to = 1000;
	times_after(v, 16, 0);
	assert_true(target.inserts <= 16 + 8);
	target.busy_to = 0;
	v->functions[0].late_ns = 0;
	times_after(v, 1, FEW);
	end();
}

/* One is refused: all others are counted; what it did before is not shown on and on; `z` tries it again. */
static void one_is_refused(void **state)
{
	struct view *v = begin(FEW, 0, 0);

	(void)state;
	t->limit = 0.1;
	survey(v);
	assert_true(v->functions[7].rate > 0);
	target.refused = v->functions[7].focus;
	count(v);
	assert_int_equal(lost(v), 1);
	assert_true(v->functions[7].uncountable);
	assert_true(v->functions[7].rate < 0);
	target.refused = NULL;
	survey(v);
	assert_int_equal(lost(v), 0);
	assert_true(v->functions[7].rate > 0);
	end();
}

/* A signal while it is looked for who is to blame: no more is inserted. */
static void over_while_it_is_looked_for(void **state)
{
	struct view *v = begin(FEW, 0, 0);

	(void)state;
	target.fails = true;
	target.over_after = 3;
	survey(v);
	assert_int_equal(target.inserts, 3);
	assert_int_equal(lost(v), 0);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_survey_while_it_is_busy),
		cmocka_unit_test(left_out_while_it_is_busy),
		cmocka_unit_test(some_are_in_already),
		cmocka_unit_test(samples_while_it_is_busy),
		cmocka_unit_test(times_while_it_is_busy),
		cmocka_unit_test(one_is_occupied),
		cmocka_unit_test(busy_for_long),
		cmocka_unit_test(one_is_refused),
		cmocka_unit_test(over_while_it_is_looked_for),
	};

	return cmocka_run_group_tests_name("top_busy", tests, NULL, NULL);
}
