/* SPDX-License-Identifier: MIT */
/*
 * image_returns.c - which functions never return, whoever of them is asked about first. The functions are those of
 * tests/live/targets/image-returns.S.
 */
#include "tests/unit/image_flow.h"

enum { LINKS = 3000, NEAR_END = LINKS - 14 };

static int open_target(void **state)
{
	(void)state;
	return open_named("image-returns");
}

static bool never_returns(const char *name)
{
	const struct arch_insn call = {
		.address = 1, .length = 5, .flow = ARCH_FLOW_CALL, .target = start_of(name)};

	return freemap_never_returns(map, &call);
}

static void check_link(unsigned number)
{
	char name[16];

	snprintf(name, sizeof(name), "n_%u", number);
	if (!never_returns(name))
		fail_msg("%s may return", name);
}

/* fear F1: the last one of a chain of fourteen first */
static void test_last_first(void **state)
{
	(void)state;
	for (unsigned i = LINKS; i >= NEAR_END; i--)
		check_link(i);
}

/* fear F1: the first one of them first */
static void test_first_first(void **state)
{
	(void)state;
	for (unsigned i = NEAR_END; i <= LINKS; i++)
		check_link(i);
}

/* fear F1: any number of them, at once */
static void test_long(void **state)
{
	(void)state;
	check_link(0);
	check_link(LINKS / 2);
}

/* fear F1: of those that go round nothing is proved, whoever is asked about first */
static void test_round(void **state)
{
	(void)state;
	assert_false(never_returns("r_two"));
	assert_false(never_returns("r_one"));
	assert_false(never_returns("r_two"));
}

int main(void)
{
	/* What has been found out goes with the image. */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_last_first, open_target, close_target),
		cmocka_unit_test_setup_teardown(test_first_first, open_target, close_target),
		cmocka_unit_test_setup_teardown(test_long, open_target, close_target),
		cmocka_unit_test_setup_teardown(test_round, open_target, close_target),
	};

	return cmocka_run_group_tests_name("image: what never returns", tests, NULL, NULL);
}
