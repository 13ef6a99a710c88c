/* SPDX-License-Identifier: MIT */
/*
 * cfg_hostile.c - functions whose graphs would take all memory, or hours
 * (tests/live/targets/cfg-hostile.S): they have none, and that is said, or they
 * have it soon.
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
#include <sys/resource.h>
#include <unistd.h>

#include "mutator/cfg.h"
#include "mutator/detail.h"

enum { MEMORY_MOST_MB = 3072, HANG_SECONDS = 280 };

static struct image *img;

static int open_target(void **state)
{
	const char *build = getenv("DINST_BUILD");
	struct dinst_error e = {0};
	char path[4096];
	int fd, status;

	(void)state;
	snprintf(path, sizeof(path), "%s/tests/live/targets/cfg-hostile", build ? build : "build");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	status = fd < 0 ? -1 : image_open(fd, path, NULL, &img, &e);
	if (status < 0)
		print_error("%s: %s\n", path, e.text);
	close(fd);
	return status;
}

static int close_target(void **state)
{
	(void)state;
	image_close(img);
	return 0;
}

static uint32_t function_named(const char *name)
{
	const struct image_function *functions;
	size_t count = image_functions(img, &functions), i = 0;

	while (i < count && strcmp(functions[i].name, name) != 0)
		i++;
	assert_true(i < count);
	return (uint32_t)i;
}

static int graph_of(const char *name, struct flow *f, struct cfg *g, struct dinst_error *e)
{
	struct freemap *map;

	assert_int_equal(freemap_of(img, &map, e), 0);
	assert_int_equal(flow_build(f, img, map, function_named(name), e), 0);
	return cfg_build(g, f, e);
}

static void assert_too_complex(int status, const char *name, const char *why,
			       const struct dinst_error *e)
{
	if (status != DINST_UNSUPPORTED || !strstr(e->text, why) || !strstr(e->text, name))
		fail_msg("%s: %d, %s", name, status, e->text);
}

static void refuse_graph(const char *name, const char *why)
{
	struct dinst_error e = {0};
	struct flow f;
	struct cfg g;

	assert_too_complex(graph_of(name, &f, &g, &e), name, why, &e);
	assert_null(g.blocks);
	assert_null(g.edges);
	assert_null(g.bodies);
	flow_release(&f);
}

/* There are no detail points; those that there were stay. */
static void refuse_points(const char *name, const char *why)
{
	struct function_plan *plan = NULL;
	struct dinst_error e = {0};
	size_t points;

	assert_int_equal(plan_function(img, function_named(name), &plan, &e), 0);
	points = plan->point_count;
	assert_too_complex(plan_add_detail(img, plan, &e), name, why, &e);
	assert_int_equal(plan->level, PLAN_BASE);
	assert_int_equal(plan->point_count, points);
	plan_free(img, plan);
}

/* fear L1: loops in loops whose blocks, counted for each, are more than a counter holds */
static void test_nested(void **state)
{
	(void)state;
	refuse_graph("nested", "blocks in loops");
	refuse_points("nested", "blocks in loops");
	/* So many that either bound may be met first. */
	refuse_graph("deep", "more than");
}

/* fear L1: many jumps to many places each: there is an end to the edges */
static void test_tables(void **state)
{
	(void)state;
	refuse_graph("tables", "edges");
}

/* fear L1: branches of which all have to be gone back along for each of them */
static void test_ladder(void **state)
{
	(void)state;
	refuse_graph("ladder", "steps");
}

/* fear L1: a megabyte of loops has its graph and its points soon */
static void test_selves(void **state)
{
	struct function_plan *plan = NULL;
	struct dinst_error e = {0};
	struct flow f;
	struct cfg g;

	(void)state;
	assert_int_equal(graph_of("selves", &f, &g, &e), 0);
	assert_int_equal(g.loop_count, 250000);
	assert_int_equal(g.body_count, 250000);
	cfg_release(&g);
	flow_release(&f);
	assert_int_equal(plan_function(img, function_named("selves"), &plan, &e), 0);
	assert_int_equal(plan_add_detail(img, plan, &e), 0);
	assert_int_equal(plan->level, PLAN_DETAIL);
	plan_free(img, plan);
}

/* Not an enemy's: who constructs thousands of objects in a row, each of which is to be destroyed, has a graph. */
static void test_catches(void **state)
{
	enum { CATCHES = 20000 };
	struct dinst_error e = {0};
	uint32_t found = 0;
	struct flow f;
	struct cfg g;

	(void)state;
	if (graph_of("catches", &f, &g, &e) < 0)
		fail_msg("%s", e.text);
	for (uint32_t i = 0; i < g.blocks[0].out_count; i++) {
		const struct cfg_edge *edge = &g.edges[g.blocks[0].out + i];

		if (edge->kind != EDGE_EXCEPTION)
			continue;
		assert_int_equal(edge->target, g.blocks[0].start + 5 * CATCHES + 1 + found);
		assert_int_not_equal(edge->to, CFG_NONE);
		found++;
	}
	assert_int_equal(found, CATCHES);
	cfg_release(&g);
	flow_release(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nested),	cmocka_unit_test(test_tables),
		cmocka_unit_test(test_ladder),	cmocka_unit_test(test_selves),
		cmocka_unit_test(test_catches),
	};
	const struct rlimit memory = {(rlim_t)MEMORY_MOST_MB << 20, (rlim_t)MEMORY_MOST_MB << 20};

	/* The machine is to live on where there is no end. */
#ifndef __SANITIZE_ADDRESS__
	setrlimit(RLIMIT_AS, &memory);
#else
	(void)memory;
#endif
	alarm(HANG_SECONDS);
	return cmocka_run_group_tests_name("graphs of hostile functions", tests, open_target,
					   close_target);
}
