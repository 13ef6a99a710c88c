/* SPDX-License-Identifier: MIT */
/*
 * points_memory.c - memory runs out while a program is looked at: what is said of its functions
 * nevertheless is what is said of them with all the memory that it takes, and nothing is lost.
 *
 * MEMORY_TURNS=n of each program's allocations, 0: each one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mutator/cache_plans.h"
#include "mutator/detail.h"
#include "mutator/points.h"

static unsigned long taken, fails_at, fails_to;

static bool is_out(void)
{
	const unsigned long n = ++taken;

	if (n < fails_at || n >= fails_to)
		return false;
	errno = ENOMEM;
	return true;
}

#define WRAP(type, name, ...)            \
	type __real_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__)

WRAP(void *, malloc, size_t size)
{
	return is_out() ? NULL : __real_malloc(size);
}

WRAP(void *, calloc, size_t count, size_t size)
{
	return is_out() ? NULL : __real_calloc(count, size);
}

WRAP(void *, realloc, void *old, size_t size)
{
	return is_out() ? NULL : __real_realloc(old, size);
}

WRAP(void *, reallocarray, void *old, size_t count, size_t size)
{
	return is_out() ? NULL : __real_reallocarray(old, count, size);
}

WRAP(char *, strdup, const char *text)
{
	return is_out() ? NULL : __real_strdup(text);
}

struct plans {
	size_t count;
	struct function_plan **items;
};

static struct image *open_program(const char *name)
{
	struct dinst_error e = {0};
	struct image *img = NULL;
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/tests/live/targets/%s", getenv("DINST_BUILD"), name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	if (image_open(fd, path, NULL, &img, &e)) {
		assert_true(fails_at != ~0ul);
		if (e.code != DINST_NO_MEMORY)
			print_message("%s at %lu: %s\n", name, fails_at, e.text);
	}
	close(fd);
	return img;
}

static struct function_plan *plan(struct image *img, uint32_t function)
{
	struct function_plan *p = NULL;
	struct dinst_error e = {0};

	if (plan_function(img, function, &p, &e) || plan_add_detail(img, p, &e)) {
		assert_int_equal(e.code, DINST_NO_MEMORY);
		if (p)
			plan_free(img, p);
		return NULL;
	}
	return p;
}

static struct image *whole;
static struct plans known;

static void learn(const char *name)
{
	const struct image_function *functions;

	fails_at = fails_to = ~0ul;
	taken = 0;
	whole = open_program(name);
	known.count = image_functions(whole, &functions);
	known.items = __real_calloc(known.count + 1, sizeof(*known.items));
	for (size_t i = 0; i < known.count; i++) {
		known.items[i] = plan(whole, (uint32_t)i);
		assert_non_null(known.items[i]);
	}
}

static void forget(void)
{
	for (size_t i = 0; i < known.count; i++)
		plan_free(whole, known.items[i]);
	free(known.items);
	image_close(whole);
}

static const char *differ(const struct function_plan *a, const struct function_plan *b)
{
	if (a->point_count != b->point_count)
		return "points";
	if (a->window_count != b->window_count)
		return "windows";
	for (size_t i = 0; i < a->point_count; i++) {
		const struct point *x = &a->points[i], *y = &b->points[i];

		if (x->address != y->address || x->callee != y->callee || x->window != y->window ||
		    x->part != y->part || x->insn != y->insn || x->kind != y->kind ||
		    x->tactic != y->tactic || x->refusal != y->refusal || x->place != y->place ||
		    x->late != y->late || x->through_pointer != y->through_pointer)
			return "a point";
		if (x->live != y->live)
			return "what is live at a point";
	}
	for (size_t i = 0; i < a->window_count; i++) {
		const struct window *x = &a->windows[i], *y = &b->windows[i];

		if (x->start != y->start || x->length != y->length || x->padding != y->padding ||
		    x->insn_count != y->insn_count || x->hole_length != y->hole_length ||
		    x->kind != y->kind || x->hole != y->hole || x->host != y->host)
			return "a window";
	}
	return NULL;
}

static size_t compare(const char *name, unsigned long at, unsigned long count)
{
	const struct image_function *functions;
	size_t differences = 0;
	struct image *img;

	taken = 0;
	fails_at = at;
	fails_to = at + count;
	img = open_program(name);
	if (!img)
		return 0;
	if (image_functions(img, &functions) != known.count) {
		print_error("%s at %lu: %zu functions of %zu\n", name, at,
			    image_functions(img, &functions), known.count);
		image_close(img);
		return 1;
	}
	for (size_t i = 0; i < known.count; i++) {
		struct function_plan *p = plan(img, (uint32_t)i);
		const char *what = p ? differ(p, known.items[i]) : NULL;

		if (what)
			print_error("%s at %lu+%lu: %s of %s (%zu) is another one\n", name, at,
				    count, what, functions[i].name, i);
		differences += what != NULL;
		if (p)
			plan_free(img, p);
	}
	image_close(img);
	return differences;
}

static void sweep(const char *name)
{
	const char *setting = getenv("MEMORY_TURNS"), *chosen = getenv("DINST_SEED");
	const unsigned long seed = chosen ? strtoul(chosen, NULL, 10) : 20;
	unsigned long turns = setting ? strtoul(setting, NULL, 10) : 25, all, step;
	size_t differences = 0;

	learn(name);
	all = taken;
	step = turns && turns < all ? all / turns : 1;
	for (unsigned long at = 1 + seed % step, n = 0; at <= all; at += step, n++)
		differences += compare(name, at, n % 4 == 3 ? 5 : 1);
	print_message("%s: %lu allocations, each %luth\n", name, all, step);
	forget();
	assert_int_equal(differences, 0);
}

/* fear C3: branches and labels of a function for which there was no memory are not taken for none */
static void test_flow(void **state)
{
	(void)state;
	sweep("points-flow");
}

/* fear C4: the same of jump tables */
static void test_tables(void **state)
{
	(void)state;
	sweep("points-tables");
}

static void test_tactics(void **state)
{
	(void)state;
	sweep("points-tactics");
}

static void test_jumps(void **state)
{
	(void)state;
	sweep("image-jumps");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_flow),
		cmocka_unit_test(test_tables),
		cmocka_unit_test(test_tactics),
		cmocka_unit_test(test_jumps),
	};

	plan_cache_enable(false);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("unit/points_memory", tests, NULL, NULL);
}
