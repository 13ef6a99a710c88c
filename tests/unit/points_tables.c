/* SPDX-License-Identifier: MIT */
/*
 * points_tables.c - a function whose jump tables would take hours to read
 * (tests/live/targets/points-tables.S) is left with what is safe for any; and
 * tables of whole addresses that lead into another function, and constants among
 * code (points-fixed.S); and jumps of which it is not sure where they lead (points-chosen.S), and calls
 * that do not look like one (image-jumps.S).
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

#include "arch/x86_64/x86.h"
#include "mutator/detail.h"

static struct image *open_target(const char *name)
{
	struct dinst_error e = {0};
	struct image *img = NULL;
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/tests/live/targets/%s", getenv("DINST_BUILD"), name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(image_open(fd, path, NULL, &img, &e), 0);
	close(fd);
	return img;
}

static struct function_plan *plan_of(struct image *img, const char *name, vaddr_t *start)
{
	const struct image_function *functions;
	size_t count = image_functions(img, &functions), i = 0;
	struct function_plan *plan = NULL;
	struct dinst_error e = {0};

	while (i < count && strcmp(functions[i].name, name) != 0)
		i++;
	assert_true(i < count);
	*start = functions[i].address;
	assert_int_equal(plan_function(img, (uint32_t)i, &plan, &e), 0);
	return plan;
}

/* fear L1: a function that is made of jump tables inside of one another does not hold an insert up */
static void test_endless_tables(void **state)
{
	struct image *img = open_target("points-tables");
	vaddr_t start;
	struct function_plan *plan = plan_of(img, "endless", &start);

	(void)state;
	assert_int_equal(plan->point_count, 2);
	/* The first instruction alone is in its window, whatever else may be led to. */
	assert_int_equal(plan->points[0].tactic, TACTIC_JUMP);
	assert_int_equal(plan->windows[plan->points[0].window].length, 7);
	assert_int_equal(plan->points[1].refusal, REFUSAL_UNRESOLVED);
	plan_free(img, plan);
	image_close(img);
}

/* fear C4: a jump table of another function has addresses of four bytes, where those are fixed */
static void test_whole_addresses(void **state)
{
	static const char *const names[] = {"x_whole", "x_whole_moved", "x_whole_near"};
	struct image *img = open_target("points-fixed");

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		vaddr_t start;
		struct function_plan *plan = plan_of(img, names[i], &start);
		const struct point *last = &plan->points[plan->point_count - 1];

		/* The table leads to the subtraction at 18, the return is at 21. */
		assert_int_equal(last->address, start + 21);
		for (size_t k = 0; k < plan->window_count; k++) {
			const struct window *w = &plan->windows[k];

			assert_false(w->start < start + 18 &&
				     w->start + w->length + w->padding > start + 18);
		}
		plan_free(img, plan);
	}
	image_close(img);
}

/* fear C4: constants among the code of a function, in front of what looks like an exit, are overwritten */
static void test_constants(void **state)
{
	struct image *img = open_target("points-fixed");
	vaddr_t start;
	struct function_plan *plan = plan_of(img, "x_constants", &start);

	(void)state;
	for (size_t i = 0; i < plan->window_count; i++) {
		const struct window *w = &plan->windows[i];

		/* The call ends at 23, two constants of eight bytes follow. */
		assert_true(w->start + w->length + w->padding <= start + 23 ||
			    w->start >= start + 39);
	}
	plan_free(img, plan);
	image_close(img);
}

/*
 * fear C4: an indirect jump goes into a row of equal pieces, or by a table, on a condition only, or
 * by a number of which a part has been changed: then it may lead elsewhere
 */
static void test_chosen(void **state)
{
	static const char *const names[] = {"row_chosen", "row_in_part", "sum_chosen"};
	struct image *img = open_target("points-chosen");

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		vaddr_t start;
		struct function_plan *plan = plan_of(img, names[i], &start);

		/* The first instruction alone is in its window. */
		assert_int_equal(plan->points[0].tactic, TACTIC_JUMP);
		assert_int_equal(plan->windows[plan->points[0].window].length, 7);
		for (size_t k = 1; k < plan->point_count; k++)
			assert_int_equal(plan->points[k].window, -1);
		plan_free(img, plan);
	}
	image_close(img);
}

/*
 * fear D2: what is read at code that the program overwrites one day, or at another tool's probe, is
 * overwritten in front of it, for nothing in the file reads it
 */
static void test_meddled(void **state)
{
	static const char *const names[] = {"keyed", "probed"};
	struct image *img = open_target("points-chosen");

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		vaddr_t start;
		struct function_plan *plan = plan_of(img, names[i], &start);

		assert_int_equal(plan->points[0].tactic, TACTIC_JUMP);
		assert_true(plan->points[0].live & SET(RDX));
		for (size_t k = 0; k < plan->window_count; k++)
			assert_false(plan->windows[k].start < start + 8 &&
				     plan->windows[k].start + plan->windows[k].length > start + 7);
		plan_free(img, plan);
	}
	image_close(img);
}

/*
 * fear D2: behind a call what it returns is looked at where it has already been overwritten, be it
 * there that it costs least
 */
static void test_after(void **state)
{
	static const char *const names[] = {"after_number", "after_float"};
	struct image *img = open_target("points-chosen");
	struct dinst_error e = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct arch_insn insns[WINDOW_INSNS_MAX];
		vaddr_t start;
		struct function_plan *plan = plan_of(img, names[i], &start);
		unsigned found = 0;

		assert_int_equal(plan_add_detail(img, plan, &e), 0);
		for (size_t k = 0; k < plan->point_count; k++) {
			const struct point *p = &plan->points[k];

			if (p->kind != POINT_AFTER)
				continue;
			found++;
			assert_int_equal(p->address, start + 9);
			/* That is known to who looks at what it returns. */
			if (p->window < 0 || p->late)
				continue;
			assert_true(window_instructions(img, &plan->windows[p->window], insns));
			assert_true(insns[p->insn].address == p->address);
			assert_int_equal(p->place, PLACE_BEFORE);
		}
		assert_int_equal(found, 1);
		plan_free(img, plan);
	}
	image_close(img);
}

/* fear E5: an indirect call that is made of calls and a return (against speculation) is one call, of nobody knows whom */
static void test_thunk(void **state)
{
	struct image *img = open_target("image-jumps");
	struct dinst_error e = {0};
	vaddr_t start;
	struct function_plan *plan = plan_of(img, "t_call_by_thunk", &start);
	unsigned calls = 0, exits = 0, after = 0;

	(void)state;
	assert_int_equal(plan_add_detail(img, plan, &e), 0);
	for (size_t i = 0; i < plan->point_count; i++) {
		const struct point *p = &plan->points[i];

		calls += p->kind == POINT_CALL;
		exits += p->kind == POINT_EXIT;
		after += p->kind == POINT_AFTER;
		if (p->kind == POINT_CALL || p->kind == POINT_AFTER)
			assert_int_equal(p->callee, 0);
		/* The call ends at 30; behind the sum and a pop is the return. */
		if (p->kind == POINT_CALL)
			assert_int_equal(p->address, start + 25);
		if (p->kind == POINT_AFTER)
			assert_int_equal(p->address, start + 30);
	}
	assert_int_equal(calls, 1);
	assert_int_equal(exits, 1);
	assert_int_equal(after, 1);
	plan_free(img, plan);
	image_close(img);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_endless_tables), cmocka_unit_test(test_whole_addresses),
		cmocka_unit_test(test_constants),      cmocka_unit_test(test_chosen),
		cmocka_unit_test(test_after),	       cmocka_unit_test(test_meddled),
		cmocka_unit_test(test_thunk),
	};

	alarm(60); /* without a bound it takes minutes */
	return cmocka_run_group_tests_name("points: tables", tests, NULL, NULL);
}
