/* SPDX-License-Identifier: MIT */
/*
 * image_cold.c - whose a cold part is, by its name, where functions of several files have that name. The functions
 * are those of tests/live/targets/image-cold.c, which are linked in front of the others.
 */
#include "tests/unit/image_flow.h"

#include <string.h>

#include "mutator/points.h"

static int open_target(void **state)
{
	(void)state;
	return open_named("image-cold");
}

/* The first of that name in the program. */
static uint32_t first_of(const char *name)
{
	const struct image_function *functions;
	size_t n = image_functions(img, &functions);

	for (size_t i = 0; i < n; i++)
		if (!strcmp(functions[i].name, name))
			return (uint32_t)i;
	fail_msg("%s: no function", name);
	return 0;
}

static unsigned exits_in(const struct function_plan *plan, const struct image_function *part)
{
	unsigned count = 0;

	for (size_t i = 0; i < plan->point_count; i++)
		count += plan->points[i].kind == POINT_EXIT &&
			 plan->points[i].address - part->address < part->size;
	return count;
}

/* fear F2: a part belongs to the function of its file, or to everybody's, not to whose name is next to its own */
static void test_owners(void **state)
{
	static const char *const names[] = {"of_file", "of_one", "of_all", "of_program"};
	const struct image_function *functions;

	(void)state;
	image_functions(img, &functions);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const uint32_t owner = first_of(names[i]);
		const struct image_function *part;
		struct function_plan *plan;
		struct dinst_error e = {0};
		char name[32];

		snprintf(name, sizeof(name), "%s.cold", names[i]);
		part = &functions[first_of(name)];
		assert_true(part->flags & FUNCTION_COLD);
		if (part->parent != owner)
			fail_msg("%s is another one's", name);
		assert_int_equal(plan_function(img, owner, &plan, &e), 0);
		assert_int_equal(exits_in(plan, part), 1);
		plan_free(img, plan);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_owners)};

	return cmocka_run_group_tests_name("image: cold parts", tests, open_target, close_target);
}
