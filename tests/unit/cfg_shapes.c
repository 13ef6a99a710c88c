/* SPDX-License-Identifier: MIT */
/*
 * cfg_shapes.c - blocks, edges and loops of the functions in
 * tests/live/targets/cfg-shapes.S, one line a case.
 *
 * A graph is written as its blocks in order: +OFFSET, flags (E entry, X exit,
 * L handler, I entered by others, C cold, S stops), the edges (f fall, b branch, j jump,
 * t table, x exception, with the block's number, or "out"; ! goes round a loop),
 * and then the loops: the header's number, its depth, ? if irreducible, and in
 * brackets the blocks.
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

#include "mutator/cfg.h"

struct shape {
	const char *function, *graph;
};

static const struct shape shapes[] = {
	{"s_line", "+0 EX"},
	{"s_if", "+0 E f1 b2 | +6 f2 | +8 X"},
	{"s_calls", "+0 E f1 b2 | +14 S | +19 X"},
	{"s_self", "+0 E f1 b0! | +5 X; 0.1 [0]"},
	{"s_while", "+0 E j2 | +2 f2! | +5 f3 b1 | +10 X; 2.1 [1 2]"},
	{"s_nested", "+0 E f1 | +2 f2 | +5 f3 b2! | +13 f4 b1! | +18 X; 1.1 [1 2 3] 2.2 [2]"},
	{"s_continue", "+0 E f1 | +1 f2 b4 | +6 f3 b1! | +12 j1! | +17 X; 1.1 [1 2 3]"},
	{"s_irreducible", "+0 E f1 b2 | +5 f2 | +8 f3 b1 | +13 X; 1.1? [1 2]"},
	{"s_next", "+0 E f1 b1 | +4 X"},
	{"s_tail", "+0 EX f1 bout | +8 X jout"},
	{"s_table", "+0 E f1 b5 | +5 t2 t3 t4 | +21 X | +27 X | +33 X | +39 X"},
	{"s_hot", "cold C j3 | +0 E f2 | +3 f3 b0 | +13 f4 b2! | +18 X; 2.1 [0 2 3]"},
	{"s_throws", "+0 E f1 b2 x3 | +9 f2 | +14 X | +15 L j2"},
};

static struct image *open_target(const char *name)
{
	const char *build = getenv("DINST_BUILD");
	struct dinst_error e = {0};
	struct image *img = NULL;
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/tests/live/targets/%s", build ? build : "build", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		fail_msg("%s is not there", path);
	if (image_open(fd, path, NULL, &img, &e) < 0)
		fail_msg("%s: %s", path, e.text);
	close(fd);
	return img;
}

static long function_named(const struct image *img, const char *name)
{
	const struct image_function *functions;
	size_t n = image_functions(img, &functions);

	for (size_t i = 0; i < n; i++)
		if (strcmp(functions[i].name, name) == 0)
			return (long)i;
	return -1;
}

static void put_block(FILE *out, const struct cfg *g, const struct cfg_block *b, vaddr_t base)
{
	static const char letters[] = "EXLI?CS?";
	static const char kinds[] = "fbjt?x";

	if (b->start >= base && b->start - base < 4096)
		fprintf(out, "+%llu", (unsigned long long)(b->start - base));
	else
		fputs("cold", out);
	if (b->flags & ~(uint32_t)(BLOCK_CALLS | BLOCK_SURE))
		fputc(' ', out);
	for (unsigned i = 0; i < 7; i++)
		if (b->flags & 1u << i && !(1u << i == BLOCK_ENTERED && b->flags & BLOCK_ENTRY))
			fputc(letters[i], out);
	for (uint32_t i = b->out; i < b->out + b->out_count; i++) {
		const struct cfg_edge *edge = &g->edges[i];

		fprintf(out, " %c", kinds[edge->kind]);
		if (edge->to == CFG_NONE)
			fputs("out", out);
		else
			fprintf(out, "%d%s", (int)edge->to, edge->back ? "!" : "");
	}
}

static void put_loop(FILE *out, const struct cfg *g, const struct cfg_loop *l)
{
	fprintf(out, " %d.%u%s [", (int)l->header, l->depth, l->irreducible ? "?" : "");
	for (uint32_t i = 0; i < l->body_count; i++)
		fprintf(out, "%s%u", i ? " " : "", g->bodies[l->body + i]);
	fputc(']', out);
}

static void describe(const struct cfg *g, vaddr_t base, char *text, size_t size)
{
	FILE *out = fmemopen(text, size, "w");

	assert_non_null(out);
	for (uint32_t i = 0; i < g->block_count; i++) {
		if (i)
			fputs(" | ", out);
		put_block(out, g, &g->blocks[i], base);
	}
	if (g->loop_count)
		fputc(';', out);
	for (uint32_t i = 0; i < g->loop_count; i++)
		put_loop(out, g, &g->loops[i]);
	fclose(out);
}

static void build(struct image *img, const char *name, struct flow *f, struct cfg *g, vaddr_t *base)
{
	const struct image_function *functions;
	long at = function_named(img, name);
	struct dinst_error e = {0};
	struct freemap *map;

	if (at < 0)
		fail_msg("no function %s", name);
	image_functions(img, &functions);
	*base = functions[at].address;
	assert_int_equal(freemap_of(img, &map, &e), 0);
	assert_int_equal(flow_build(f, img, map, (uint32_t)at, &e), 0);
	assert_int_equal(cfg_build(g, f, &e), 0);
}

static void test_shapes(void **state)
{
	struct image *img = open_target("cfg-shapes");
	unsigned wrong = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		char text[1024] = "";
		struct flow f;
		struct cfg g;
		vaddr_t base;

		build(img, shapes[i].function, &f, &g, &base);
		describe(&g, base, text, sizeof(text));
		if (strcmp(text, shapes[i].graph) != 0) {
			print_error("%s:\n   is %s\n  not %s\n", shapes[i].function, text,
				    shapes[i].graph);
			wrong++;
		}
		cfg_release(&g);
		flow_release(&f);
	}
	image_close(img);
	assert_int_equal(wrong, 0);
}

/* What is jumped into the middle of, and what is behind it, is reached in ways nobody knows. */
static void test_lock_prefix(void **state)
{
	struct image *img = open_target("cfg-shapes");
	struct flow f;
	struct cfg g;
	vaddr_t base;
	int32_t behind;

	(void)state;
	build(img, "s_lock", &f, &g, &base);
	behind = cfg_block_at(&g, base + 7);
	assert_int_not_equal(behind, CFG_NONE);
	assert_int_equal(g.blocks[behind].start, base + 7);
	assert_true(g.blocks[behind].flags & BLOCK_ENTERED);
	cfg_release(&g);
	flow_release(&f);
	image_close(img);
}

static void test_dominators(void **state)
{
	struct image *img = open_target("cfg-shapes");
	struct flow f;
	struct cfg g;
	vaddr_t base;

	(void)state;
	build(img, "s_nested", &f, &g, &base);
	for (int32_t i = 0; i < 5; i++)
		for (int32_t k = 0; k < 5; k++)
			assert_int_equal(cfg_dominates(&g, i, k), i <= k);
	assert_true(cfg_in_loop(&g, 0, 1) && cfg_in_loop(&g, 0, 3) && !cfg_in_loop(&g, 0, 4));
	assert_int_equal(g.loops[1].parent, 0);
	cfg_release(&g);
	flow_release(&f);
	build(img, "s_if", &f, &g, &base);
	assert_true(cfg_dominates(&g, 0, 2));
	assert_false(cfg_dominates(&g, 1, 2));
	cfg_release(&g);
	flow_release(&f);
	image_close(img);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes),
		cmocka_unit_test(test_lock_prefix),
		cmocka_unit_test(test_dominators),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
