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

/* fear C3, C5: the same, which is a branch into the function, too: both its bytes and where it leads to are kept */
static void test_branches_and_runs_over(void **state)
{
	enum { TARGET = 4 };

	(void)state;
	assert_true(marks_of("x_near", 0) & MARK_CONFLICT);
	assert_true(marks_of("x_near", TARGET) & MARK_TARGET);
	assert_true(marks_of("x_near", TARGET) & MARK_FOREIGN);
}

/* fear C3, C5: the same from where the function next door itself jumps to, from afar */
static void test_own_jump(void **state)
{
	(void)state;
	assert_true(marks_of("w_near", 2) & MARK_TARGET);
	assert_true(marks_of("w_near", 2) & MARK_FOREIGN);
}

/* fear C3, C5: into code between the functions that nobody has named, and from there into the next one */
static void test_through_gap(void **state)
{
	(void)state;
	assert_true(marks_of("g_near", 2) & MARK_TARGET);
	assert_false(marks_of("gn_near", 2) & MARK_TARGET);
}

/* The padding behind the function. */
static struct image_range padding_behind(const char *name)
{
	const vaddr_t end = freemap_primary(map, find(name)).hi;
	struct image_range gap;

	return freemap_gap(map, end, &gap) ? gap : (struct image_range){end, end};
}

static bool is_come_to(const char *name)
{
	const vaddr_t end = freemap_primary(map, find(name)).hi;

	return freemap_is_come_to(map, end, end + 8);
}

/* fear C3, C5: padding that a short branch from such code leads into is no free space */
static void test_into_padding(void **state)
{
	(void)state;
	assert_true(is_come_to("p_odd"));
	assert_false(is_come_to("pn_odd"));
	assert_true(padding_behind("pn_odd").hi > padding_behind("pn_odd").lo);
}

/* fear C3, C5: nor is padding whose first bytes belong to an instruction in front of it, in the other reading */
static void test_over_padding(void **state)
{
	(void)state;
	assert_true(freemap_runs_off(map, find("q_odd")));
	assert_true(padding_behind("q_odd").hi == padding_behind("q_odd").lo);
	assert_false(freemap_runs_off(map, find("qn_odd")));
	assert_true(padding_behind("qn_odd").hi > padding_behind("qn_odd").lo);
}

/* And where nobody jumps there, or what looks like it is chance, none is. */
static void test_chance(void **state)
{
	(void)state;
	assert_false(marks_of("c_near", 2) & MARK_TARGET);
	assert_false(marks_of("n_near", 2) & MARK_TARGET);
}

/* fear C3: what looks like a jump to what looks like one is told from chance alike, whichever is asked for first */
static void test_in_any_order(void **state)
{
	unsigned last, middle = marks_of("f_middle", 2);

	(void)state;
	last = marks_of("f_last", 2);
	assert_int_equal(marks_of("b_last", 2), last);
	assert_int_equal(marks_of("b_middle", 2), middle);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_led_to),
		cmocka_unit_test(test_runs_over),
		cmocka_unit_test(test_branches_and_runs_over),
		cmocka_unit_test(test_own_jump),
		cmocka_unit_test(test_through_gap),
		cmocka_unit_test(test_into_padding),
		cmocka_unit_test(test_over_padding),
		cmocka_unit_test(test_chance),
		cmocka_unit_test(test_in_any_order),
	};

	return cmocka_run_group_tests_name("image: odd", tests, open_target, close_target);
}
