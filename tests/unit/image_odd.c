/* SPDX-License-Identifier: MIT */
/*
 * image_odd.c - code next door that is read in two ways, and leads into the function. The functions are those of
 * tests/live/targets/image-odd.S.
 */
#include "tests/unit/image_flow.h"

static int open_target(void **state)
{
	(void)state;
	return open_named("image-odd");
}

/* fear C3, C5: a short branch from behind data next door, where only somebody else's jump leads to */
static void test_led_to(void **state)
{
	(void)state;
	assert_true(marks_of("o_near", 2) & MARK_TARGET);
	assert_true(marks_of("o_near", 2) & MARK_FOREIGN);
}

/* fear C3, C5: an instruction that only somebody's jump leads to, whose last bytes are the function's first */
static void test_runs_over(void **state)
{
	enum { BYTES = 3 };

	(void)state;
	for (unsigned i = 0; i < BYTES; i++)
		assert_true(marks_of("r_near", i) & MARK_CONFLICT);
	assert_true(marks_of("r_near", BYTES) & MARK_FOREIGN);
	assert_false(marks_of("r_near", BYTES) & MARK_CONFLICT);
}

/* And where nobody jumps there, or what looks like it is chance, none is. */
static void test_chance(void **state)
{
	(void)state;
	assert_false(marks_of("c_near", 2) & MARK_TARGET);
	assert_false(marks_of("n_near", 2) & MARK_TARGET);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_led_to),
		cmocka_unit_test(test_runs_over),
		cmocka_unit_test(test_chance),
	};

	return cmocka_run_group_tests_name("image: odd", tests, open_target, close_target);
}
