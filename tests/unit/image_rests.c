/* SPDX-License-Identifier: MIT */
/*
 * image_rests.c - what goes on behind a function that lies in another one, where only that one's size says where
 * it begins. The functions are those of tests/live/targets/image-rests.S.
 */
#include "tests/unit/image_flow.h"

static int open_target(void **state)
{
	(void)state;
	return open_named("image-rests");
}

/* From `offset` on nothing of the function may be taken for an instruction; before it everything may. */
static void check_doubted_from(const char *name, unsigned offset)
{
	struct flow f = build(name);
	const vaddr_t start = start_of(name);
	unsigned doubted = 0;

	for (size_t i = 0; i < f.piece_count; i++)
		for (vaddr_t v = f.pieces[i].lo; v < f.pieces[i].hi; v++) {
			const bool is_doubted = flow_marks(&f, v) & MARK_CONFLICT;

			assert_int_equal(is_doubted, v >= start + offset);
			doubted += is_doubted;
		}
	assert_true(offset == UINT16_MAX ? !doubted : doubted);
	flow_release(&f);
}

/* fear C3, F1: what goes on behind functions whose sizes are wrong is not what it looks like from there */
static void test_wrong_sizes(void **state)
{
	(void)state;
	check_doubted_from("a_outer", 6 + 18);
	assert_true(marks_of("a_near", 2) & MARK_TARGET);
	check_doubted_from("b_outer", 6 + 3 + 3 + 4);
	assert_true(marks_of("b_near", 2) & MARK_TARGET);
	check_doubted_from("c_outer", 6 + 3 + 1 + 4);
	assert_true(marks_of("c_outer", 2) & MARK_TARGET);
}

/* And where they are right it is. */
static void test_right_sizes(void **state)
{
	(void)state;
	check_doubted_from("d_outer", UINT16_MAX);
	assert_false(marks_of("d_outer", 2) & MARK_TARGET);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wrong_sizes),
		cmocka_unit_test(test_right_sizes),
	};

	return cmocka_run_group_tests_name("image: rests", tests, open_target, close_target);
}
