/* SPDX-License-Identifier: MIT */
/*
 * points_order.c - a plan depends on the image only: of whole files the functions are planned from the last to the
 * first, and in orders of chance. No windows and no near jumps of theirs have a byte in common, unless it is the same window
 * or a near jump in the tail of its host, and there are as many whatever the order.
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
#include "mutator/points.h"

enum { LAST_FIRST = 0, SEEDS = 2, COMPLAINTS = 10 };

/* Bytes that a plan has. */
struct taken {
	vaddr_t lo, hi;
	struct window window; /* `hole` 0: these bytes are the window's own */
	uint32_t function;
};

struct all {
	struct image *img;
	const struct image_function *functions;
	struct taken *items;
	size_t count, room;
	unsigned wrong;
};

static void add(struct all *a, vaddr_t lo, size_t size, const struct window *w, uint32_t function)
{
	if (a->count == a->room) {
		a->room = a->room ? a->room * 2 : 1024;
		a->items = reallocarray(a->items, a->room, sizeof(*a->items));
		assert_non_null(a->items);
	}
	a->items[a->count++] = (struct taken){lo, lo + size, *w, function};
}

static void add_plan(struct all *a, uint32_t function, bool detail)
{
	struct function_plan *plan;
	struct dinst_error e = {0};

	assert_int_equal(plan_function(a->img, function, &plan, &e), 0);
	if (detail)
		assert_int_equal(plan_add_detail(a->img, plan, &e), 0);
	for (size_t i = 0; i < plan->window_count; i++) {
		const struct window *w = &plan->windows[i];
		const struct window *host = w->host < 0 ? NULL : &plan->windows[w->host];

		add(a, w->start, (size_t)w->length + w->padding, w, function);
		/* Those of one host are among themselves. */
		if (w->hole)
			add(a, w->hole, w->hole_length, w, function);
		if (host && (w->hole < host->start + arch_jump_size ||
			     w->hole + w->hole_length > host->start + host->length))
			a->wrong++;
	}
	plan_free(a->img, plan);
}

static int by_address(const void *a, const void *b)
{
	const struct taken *x = a, *y = b;

	return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static bool is_hole(const struct taken *t)
{
	return t->window.hole && t->lo == t->window.hole;
}

static bool is_same(const struct window *a, const struct window *b)
{
	return a->start == b->start && a->length == b->length && a->padding == b->padding &&
	       a->insn_count == b->insn_count && a->kind == b->kind && a->hole == b->hole;
}

/* Two plans have the same bytes, and may. */
static bool may_be(const struct taken *a, const struct taken *b)
{
	if (is_hole(a) == is_hole(b))
		return is_same(&a->window, &b->window);
	if (is_hole(b))
		return may_be(b, a);
	/* add_plan() has looked whether it is in the host's tail. */
	return a->window.host >= 0 && a->lo >= b->lo && a->hi <= b->hi;
}

static void look(struct all *a)
{
	qsort(a->items, a->count, sizeof(*a->items), by_address);
	for (size_t i = 0; i < a->count; i++)
		for (size_t k = i + 1; k < a->count && a->items[k].lo < a->items[i].hi; k++) {
			const struct taken *x = &a->items[i], *y = &a->items[k];

			if (may_be(x, y))
				continue;
			if (a->wrong++ < COMPLAINTS)
				print_error("%#llx of %s and %#llx of %s\n",
					    (unsigned long long)x->lo,
					    a->functions[x->function].name,
					    (unsigned long long)y->lo,
					    a->functions[y->function].name);
		}
}

static uint32_t chance(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

/* Seed LAST_FIRST: from the last to the first. */
static uint32_t *order_of(size_t count, unsigned seed)
{
	uint32_t *order = calloc(count + 1, sizeof(*order));
	uint64_t state = seed;

	assert_non_null(order);
	for (size_t i = 0; i < count; i++)
		order[i] = (uint32_t)(count - 1 - i);
	for (size_t i = count; seed != LAST_FIRST && i > 1; i--) {
		const size_t with = chance(&state) % i;
		const uint32_t one = order[i - 1];

		order[i - 1] = order[with];
		order[with] = one;
	}
	return order;
}

/* How many windows and near jumps there are, of the plans of all functions in this order. */
static size_t plan_all(const char *path, unsigned seed, bool detail)
{
	struct dinst_error e = {0};
	struct all a = {0};
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint32_t *order;
	size_t count;

	assert_true(fd >= 0);
	assert_int_equal(image_open(fd, path, NULL, &a.img, &e), 0);
	close(fd);
	count = image_functions(a.img, &a.functions);
	order = order_of(count, seed);
	for (size_t i = 0; i < count; i++)
		add_plan(&a, order[i], detail);
	look(&a);
	if (a.wrong)
		fail_msg("%s, order %u: %u times", path, seed, a.wrong);
	count = a.count;
	free(order);
	free(a.items);
	image_close(a.img);
	return count;
}

static void check(const char *path, bool detail)
{
	const size_t count = plan_all(path, LAST_FIRST, detail);

	for (unsigned seed = 1; seed <= SEEDS; seed++)
		assert_int_equal(plan_all(path, seed, detail), count);
}

static void check_target(const char *name)
{
	const char *build = getenv("DINST_BUILD");
	char path[4096];

	snprintf(path, sizeof(path), "%s/tests/live/targets/%s", build ? build : "build", name);
	check(path, false);
	check(path, true);
}

/*
 * fear C3: a function goes on behind a hundred others, and takes what one of them has, whichever is planned
 * first: their windows do not meet
 */
static void test_nested(void **state)
{
	(void)state;
	check_target("points-nested");
}

static void test_targets(void **state)
{
	(void)state;
	check_target("points-layout");
	check_target("points-flow");
	check_target("points-tactics");
	check_target("image-rests");
	check_target("tactics");
}

static void test_libc(void **state)
{
	static const char libc[] = "/lib/x86_64-linux-gnu/libc.so.6";

	(void)state;
	if (access(libc, R_OK) != 0)
		skip();
	check(libc, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nested),
		cmocka_unit_test(test_targets),
		cmocka_unit_test(test_libc),
	};

	return cmocka_run_group_tests_name("points: any order", tests, NULL, NULL);
}
