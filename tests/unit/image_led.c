/* SPDX-License-Identifier: MIT */
/*
 * image_led.c - indirect jumps of which what is next to them does not tell where they lead. The functions are
 * those of tests/live/targets/image-led.S.
 */
#include "tests/unit/image_flow.h"

static int open_target(void **state)
{
	(void)state;
	return open_named("image-led");
}

/* fear C4: pieces of code that are entered in their middle: a constant comes to the sum */
static void test_row(void **state)
{
	(void)state;
	assert_true(is_unresolved("l_row"));
}

/* fear C4: a jump to a computed address beside a switch, whose table tells nothing of it */
static void test_besides(void **state)
{
	(void)state;
	assert_true(is_unresolved("l_besides"));
}

/* fear C4: a table that is found by its distance from another one, for a jump after another one's */
static void test_led_on(void **state)
{
	(void)state;
	assert_true(is_unresolved("l_led_on"));
}

/*
 * fear C4: the same over calls, joins, copies, the frame and sixty instructions, on one way of several, from the
 * number of a row
 */
static void test_led_on_from_afar(void **state)
{
	static const char *const names[] = {"l_rows",	 "l_called", "l_joined", "l_chosen",
					    "l_one_way", "l_kept",   "l_twice",	 "l_far",
					    "l_apart",	 "l_given",  "l_before"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!is_unresolved(names[i]))
			fail_msg("%s counts as resolved", names[i]);
}

/* fear C4: a displacement that leads out of the table that has been read */
static void test_beyond(void **state)
{
	static const char *const names[] = {"l_beyond", "l_in_front", "l_half", "l_beyond_loop"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!is_unresolved(names[i]))
			fail_msg("%s counts as resolved", names[i]);
}

/* fear C4: another way to the sum, past the load of the entry, brings what has not been read */
static void test_other_way(void **state)
{
	(void)state;
	assert_true(is_unresolved("l_other_way"));
	assert_true(is_unresolved("l_other_case"));
	assert_false(is_unresolved("l_same_way"));
}

/* fear C4: where nothing of the function's own is computed the address is put aside all the same, or comes by two ways */
static void test_without_bases(void **state)
{
	(void)state;
	assert_true(is_unresolved("l_aside"));
	assert_true(is_unresolved("l_stepped"));
	assert_true(is_unresolved("l_led_aside"));
	assert_true(is_unresolved("l_led_way"));
}

/* fear C4: another function jumps to where a table is read, and has the address of a different one */
static void test_led_on_by_others(void **state)
{
	(void)state;
	assert_true(is_unresolved("l_shared"));
	assert_true(is_unresolved("l_shared_below"));
}

/* A table whose address is computed above a loop, or before a switch, is the one that is meant. */
static void test_computed_above(void **state)
{
	(void)state;
	assert_false(is_unresolved("l_hoisted"));
	assert_false(is_unresolved("l_no_more"));
}

/* fear C4: a jump whose register was made before another one stays in the function, if that is of its own table */
static void test_both(void **state)
{
	(void)state;
	assert_false(is_unresolved("l_both"));
	assert_int_equal(leaving("l_both"), 0);
	assert_false(is_unresolved("l_handed"));
	assert_int_equal(leaving("l_handed"), 1);
}

/* fear C4: a jump whose register was computed before a switch, be that a jump, one through a thunk, or a return */
static void test_before_switch(void **state)
{
	(void)state;
	assert_true(is_unresolved("l_plain"));
	assert_true(is_unresolved("l_thunk"));
	assert_true(is_unresolved("l_push"));
	assert_true(is_unresolved("l_replaced"));
	assert_true(is_unresolved("l_fenced"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_row),
		cmocka_unit_test(test_besides),
		cmocka_unit_test(test_led_on),
		cmocka_unit_test(test_both),
		cmocka_unit_test(test_before_switch),
		cmocka_unit_test(test_led_on_from_afar),
		cmocka_unit_test(test_computed_above),
		cmocka_unit_test(test_without_bases),
		cmocka_unit_test(test_beyond),
		cmocka_unit_test(test_other_way),
		cmocka_unit_test(test_led_on_by_others),
	};

	return cmocka_run_group_tests(tests, open_target, close_target);
}
