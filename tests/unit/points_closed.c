/* SPDX-License-Identifier: MIT */
/*
 * points_closed.c - windows that nobody would leave: what moves away ends with a jump to its own beginning, and
 * no other way leads out. A thread in the copy would be in it for ever, and nothing could be taken out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mutator/detail.h"

static struct image *open_target(const char *name)
{
	const char *build = getenv("DINST_BUILD");
	struct dinst_error e = {0};
	struct image *img = NULL;
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/tests/live/targets/%s", build ? build : "build", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	if (image_open(fd, path, NULL, &img, &e) < 0)
		fail_msg("%s: %s", path, e.text);
	close(fd);
	return img;
}

/* True if whoever comes into the window stays in it. */
static bool is_closed(const struct image *img, const struct window *w)
{
	struct arch_insn insn = {0};
	size_t size = 0;
	const uint8_t *code = image_code(img, w->start, &size);

	assert_non_null(code);
	for (unsigned at = 0; at < w->length; at += insn.length) {
		assert_int_equal(arch_decode(code + at, size - at, w->start + at, &insn), ARCH_OK);
		if (insn.flow != ARCH_FLOW_NEXT && insn.flow != ARCH_FLOW_BRANCH &&
		    insn.flow != ARCH_FLOW_JUMP)
			return false;
		if (insn.flow != ARCH_FLOW_NEXT && insn.target - w->start >= w->length)
			return false;
	}
	return insn.flow == ARCH_FLOW_JUMP;
}

static void expect_ways_out(const struct image *img, const struct function_plan *plan,
			    const char *name)
{
	for (size_t i = 0; i < plan->window_count; i++)
		if (is_closed(img, &plan->windows[i]))
			fail_msg("%s: nobody leaves the window at %#llx, %u bytes", name,
				 (unsigned long long)plan->windows[i].start,
				 plan->windows[i].length);
}

/* None of the function's windows is such a one. Returns why its entry is refused, REFUSAL_NONE if it is not. */
static enum refusal check(struct image *img, uint32_t function, const char *name)
{
	struct function_plan *plan = NULL;
	struct dinst_error e = {0};
	enum refusal refusal;

	if (plan_function(img, function, &plan, &e) < 0)
		fail_msg("%s: %s", name, e.text);
	expect_ways_out(img, plan, name);
	refusal = plan->point_count && plan->points[0].window < 0 ? plan->points[0].refusal
								  : REFUSAL_NONE;
	if (plan_add_detail(img, plan, &e) < 0)
		fail_msg("%s: %s", name, e.text);
	expect_ways_out(img, plan, name);
	plan_free(img, plan);
	return refusal;
}

/* Returns how many functions of that name there were. */
static unsigned check_named(struct image *img, const char *name, enum refusal *refusal)
{
	const struct image_function *functions;
	const size_t count = image_functions(img, &functions);
	unsigned found = 0;

	for (size_t i = 0; i < count; i++)
		if (!strcmp(functions[i].name, name)) {
			*refusal = check(img, (uint32_t)i, name);
			found++;
		}
	return found;
}

/* fear J3: who comes into code that ends in a jump to its own beginning, and has no other way out, would never leave its copy: there is no such window, and where the jump is to itself, so that there is no other, the point is refused */
static void test_no_way_out(void **state)
{
	static const struct {
		const char *function;
		enum refusal refusal;
	} cases[] = {
		{"loop_self", REFUSAL_UNMOVABLE}, {"loop_near", REFUSAL_UNMOVABLE},
		{"loop_pause", REFUSAL_NONE},	  {"loop_work", REFUSAL_NONE},
		{"loop_twice", REFUSAL_NONE},	  {"loop_behind", REFUSAL_NONE},
		{"way_out", REFUSAL_NONE},	  {"way_down", REFUSAL_NONE},
	};
	struct image *img = open_target("closed-loops");

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		enum refusal refusal = REFUSAL_NONE;

		assert_int_equal(check_named(img, cases[i].function, &refusal), 1);
		if (refusal != cases[i].refusal)
			fail_msg("%s: %s, not %s", cases[i].function, refusal_name(refusal),
				 refusal_name(cases[i].refusal));
	}
	image_close(img);
}

/* fear J3: no window of all those functions that are there to be difficult is one that nobody would leave */
static void test_all(void **state)
{
	static const char *const programs[] = {"closed-loops", "points-flow", "points-layout",
					       "points-tactics"};

	(void)state;
	for (size_t i = 0; i < sizeof(programs) / sizeof(*programs); i++) {
		struct image *img = open_target(programs[i]);
		const struct image_function *functions;
		const size_t count = image_functions(img, &functions);

		assert_true(count > 10);
		for (size_t k = 0; k < count; k++)
			check(img, (uint32_t)k, functions[k].name);
		image_close(img);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_way_out),
		cmocka_unit_test(test_all),
	};

	return cmocka_run_group_tests_name("unit/points_closed", tests, NULL, NULL);
}
