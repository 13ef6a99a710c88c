/* SPDX-License-Identifier: MIT */
/*
 * image_tails.c - tail calls of pointers that something was done with are exits: what is no part of an address of
 * the function's own leads out of it. The functions are those of tests/live/targets/image-tails.S.
 */
#include "tests/unit/image_flow.h"

static int open_target(void **state)
{
	(void)state;
	return open_named("image-tails");
}

/* fear E5: a pointer that was untagged, counted on from, inverted, put aside or is one of two is called at the end */
static void test_tail_calls(void **state)
{
	static const char *const names[] = {"l_tagged", "l_offset", "l_inverted", "l_slot"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (leaving(names[i]) != 1)
			fail_msg("%s: its tail call is no exit", names[i]);
	assert_int_equal(leaving("l_stack"), 2);
}

/* fear E5, C4: the sum of what is in memory and of nothing is what is in memory */
static void test_summed(void **state)
{
	(void)state;
	assert_int_equal(leaving("l_summed"), 1);
	assert_false(is_unresolved("l_summed"));
	assert_int_equal(leaving("l_summed_moved"), 1);
	assert_false(is_unresolved("l_summed_moved"));
}

/* fear E5: a switch's jump is none of them, also if a pointer comes to it, or its address was put aside */
static void test_switches(void **state)
{
	(void)state;
	assert_int_equal(leaving("s_joined"), 0);
	assert_int_equal(leaving("s_spilled"), 0);
}

/* fear C4: nor is one to the sum of what is in memory and of an entry, or of a multiple, by whichever way */
static void test_entries(void **state)
{
	static const char *const names[] = {"r_entry",	     "r_byte",	       "r_row",
					    "s_summed_base", "s_summed_entry", "s_summed_pieces"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (leaving(names[i]) || !is_unresolved(names[i]))
			fail_msg("%s: it is taken to be left by a jump", names[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tail_calls),
		cmocka_unit_test(test_summed),
		cmocka_unit_test(test_switches),
		cmocka_unit_test(test_entries),
	};

	return cmocka_run_group_tests(tests, open_target, close_target);
}
