/* SPDX-License-Identifier: MIT */
/*
 * image_sums.c - who leads into the middle of another function by an address that it has changed, or by a table of
 * its own in the code. The functions are those of tests/live/targets/image-sums.S and image-sums-fixed.S.
 */
#include "tests/unit/image_flow.h"

static int open_target(void **state)
{
	(void)state;
	return open_named("image-sums");
}

static int open_fixed(void **state)
{
	(void)state;
	return open_named("image-sums-fixed");
}

/* The instruction 2 bytes from the start may be jumped to, and what is behind it may not. */
static void check_led(const char *name)
{
	if (!(marks_of(name, 2) & MARK_TARGET))
		fail_msg("%s: nobody leads into it", name);
	if (marks_of(name, 6) & MARK_TARGET)
		fail_msg("%s: too much leads into it", name);
}

/* fear C3: an address of code that a constant is added to before somebody jumps there */
static void test_sums(void **state)
{
	static const char *const names[] = {"s_lea", "s_add", "s_moved", "s_far", "s_called"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		check_led(names[i]);
	assert_false(marks_of("s_kept", 2) & MARK_TARGET);
	assert_true(marks_of("s_own", 4) & MARK_TARGET);
	assert_int_equal(marks_of("s_read", 0) & MARK_CONFLICT, 0);
	assert_int_equal(marks_of("s_read", 2) & (MARK_TARGET | MARK_CONFLICT), 0);
}

/* fear C4: a table in the code of another function, one of eight bytes an entry, one that leads to code without a name */
static void test_tables(void **state)
{
	static const char *const names[] = {"t_code", "t_long", "t_long_code", "t_gap"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		check_led(names[i]);
}

/* fear C4: a table within its function is data, and what is behind it is none */
static void test_table_is_data(void **state)
{
	enum { TABLE = 16, ENTRY = 8 };

	(void)state;
	assert_false(is_unresolved("t_data"));
	for (unsigned i = 0; i < ENTRY; i++)
		assert_true(marks_of("t_data", TABLE + i) & MARK_CONFLICT);
	assert_false(marks_of("t_data", TABLE - 1) & MARK_CONFLICT);
	assert_false(marks_of("t_data", TABLE + ENTRY) & MARK_CONFLICT);
}

/* fear C4: a table whose entries count from a place in the code, which it does not begin at */
static void test_foreign_base(void **state)
{
	(void)state;
	assert_true(is_unresolved("b_foreign"));
	assert_true(is_unresolved("b_own"));
	assert_false(is_unresolved("b_usual"));
}

/* fear C4: a jump to what is computed from an address in another function leads to any byte of that one */
static void test_led_into(void **state)
{
	(void)state;
	assert_true(is_unresolved("to_jumped"));
	assert_true(is_unresolved("r_jumped"));
	assert_true(is_unresolved("r_summed"));
	assert_true(is_unresolved("r_unnamed"));
	assert_false(is_unresolved("r_told"));
}

/* fear C3, C4: the same where addresses are fixed */
static void test_fixed(void **state)
{
	static const char *const names[] = {"s_short", "s_wide", "t_whole"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		check_led(names[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sums),	      cmocka_unit_test(test_tables),
		cmocka_unit_test(test_table_is_data), cmocka_unit_test(test_foreign_base),
		cmocka_unit_test(test_led_into),
	};
	const struct CMUnitTest fixed[] = {
		cmocka_unit_test(test_fixed),
	};
	int failed = cmocka_run_group_tests_name("image: sums", tests, open_target, close_target);

	return failed +
	       cmocka_run_group_tests_name("image: sums, fixed", fixed, open_fixed, close_target);
}
