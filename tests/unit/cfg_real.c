/* SPDX-License-Identifier: MIT */
/*
 * cfg_real.c - the graphs and the detail points of all functions of real
 * binaries. Blocks and edges are judged by capstone, which decodes every block
 * again; dominators and loops by their definitions; windows by one map of all
 * bytes that any plan claims.
 *
 * With DINST_VERBOSE set it prints the share of each kind that is reached.
 * DINST_CFG_FILE=/usr/bin/node looks at another file.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <capstone/capstone.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mutator/cfg.h"
#include "mutator/detail.h"

enum { CLAIMED = 1, INNER = 2, DOMINATED_MAX = 400 };

struct check {
	const char *path;
	struct image *img;
	const struct image_function *functions;
	size_t count;
	vaddr_t lo, hi;
	uint8_t *map; /* CLAIMED, INNER of every byte in [lo, hi) */
	csh decoder;
	cs_insn *insn;
	unsigned wrong;
	unsigned long blocks, edges, loops, irreducible;
	unsigned long points[POINT_KINDS], refused[POINT_KINDS];
	unsigned long reasons[POINT_KINDS][REFUSAL_COUNT];
	unsigned long tactics[POINT_KINDS][TACTIC_COUNT];
};

static void complain(struct check *c, vaddr_t v, const char *what)
{
	if (c->wrong++ < 20)
		print_error("%s: %#llx: %s\n", c->path, (unsigned long long)v, what);
}

/* ---------------------------------------------------------------- blocks */

static bool decode(struct check *c, vaddr_t v)
{
	size_t size = 0;
	const uint8_t *code = image_code(c->img, v, &size);
	uint64_t address = v;

	return code && cs_disasm_iter(c->decoder, &code, &size, &address, c->insn);
}

static bool in_group(const struct check *c, uint8_t group)
{
	return cs_insn_group(c->decoder, c->insn, group);
}

/* The immediate target of a jump; 0 if it has none. */
static vaddr_t jump_target(const struct check *c)
{
	const cs_x86 *x = &c->insn->detail->x86;

	return x->op_count && x->operands[0].type == X86_OP_IMM ? (vaddr_t)x->operands[0].imm : 0;
}

static bool has_edge(const struct cfg *g, const struct cfg_block *b, vaddr_t target)
{
	for (uint32_t i = b->out; i < b->out + b->out_count; i++)
		if (g->edges[i].target == target && g->edges[i].kind != EDGE_EXCEPTION &&
		    g->edges[i].kind != EDGE_UNKNOWN)
			return true;
	return false;
}

/* The edges that the last instruction, which capstone has just decoded, must have. */
static void check_last(struct check *c, const struct cfg *g, const struct cfg_block *b)
{
	vaddr_t target = in_group(c, CS_GRP_JUMP) ? jump_target(c) : 0;
	bool conditional = target && c->insn->id != X86_INS_JMP;

	if (target && c->insn->id != X86_INS_XBEGIN && !has_edge(g, b, target))
		complain(c, c->insn->address, "a jump without an edge");
	if (conditional && c->insn->id != X86_INS_XBEGIN && !has_edge(g, b, b->end) &&
	    cfg_block_at(g, b->end) != CFG_NONE)
		complain(c, c->insn->address, "a branch that does not fall through");
	if (in_group(c, CS_GRP_RET) && !(b->flags & BLOCK_EXIT))
		complain(c, c->insn->address, "a return that is no exit");
	if (in_group(c, CS_GRP_RET) && b->out_count)
		for (uint32_t i = b->out; i < b->out + b->out_count; i++)
			if (g->edges[i].kind != EDGE_EXCEPTION)
				complain(c, c->insn->address, "a return with an edge");
}

static void check_block(struct check *c, const struct cfg *g, const struct cfg_block *b)
{
	vaddr_t v = b->start;

	while (v < b->end) {
		bool jumps;

		/* What only our own decoder knows is the business of other tests. */
		if (!decode(c, v))
			return;
		jumps = in_group(c, CS_GRP_JUMP) || in_group(c, CS_GRP_RET);
		if (v != b->start && cfg_block_at(g, v) != cfg_block_at(g, b->start))
			complain(c, v, "an instruction of two blocks");
		v += c->insn->size;
		if (v < b->end && jumps && c->insn->id != X86_INS_XBEGIN)
			complain(c, c->insn->address, "a jump inside a block");
		if (v == b->end)
			check_last(c, g, b);
	}
	if (v != b->end)
		complain(c, b->end, "a block that ends inside an instruction");
}

static void check_edge(struct check *c, const struct cfg *g, const struct cfg_edge *edge)
{
	const struct cfg_block *from = &g->blocks[edge->from];

	if (edge->to != CFG_NONE && g->blocks[edge->to].start != edge->target)
		complain(c, from->end, "an edge that does not lead to a block's start");
	if (edge->to == CFG_NONE && edge->kind != EDGE_UNKNOWN && edge->target &&
	    cfg_block_at(g, edge->target) != CFG_NONE &&
	    g->blocks[cfg_block_at(g, edge->target)].start == edge->target)
		complain(c, from->end, "an edge that does not know its block");
	if (edge->to != CFG_NONE && g->blocks[edge->to].flags & BLOCK_UNREACHED)
		complain(c, from->end, "an edge to what is not reached");
	if (edge->kind == EDGE_FALL && edge->target != from->end)
		complain(c, from->end, "a fall elsewhere");
}

static void check_cover(struct check *c, const struct flow *f, const struct cfg *g)
{
	for (size_t i = 0; i < f->insns.count; i++) {
		const struct arch_insn *insn = &f->insns.items[i];
		bool reached = flow_marks(f, insn->address) & MARK_REACHED;
		const struct cfg_block *b;

		if (g->block_of[i] == CFG_NONE) {
			if (reached)
				complain(c, insn->address, "reached, but in no block");
			continue;
		}
		b = &g->blocks[g->block_of[i]];
		if (i < b->first || i >= b->first + b->count || insn->address < b->start ||
		    insn->address + insn->length > b->end)
			complain(c, insn->address, "in a block that does not have it");
		if (reached == (bool)(b->flags & BLOCK_UNREACHED))
			complain(c, insn->address, "reached or not, but not its block");
	}
}

/* ----------------------------------------------------------------- loops */

/* By definition: without `by`, is `block` still reached from what is entered? */
static bool reached_without(const struct cfg *g, int32_t by, int32_t block, uint8_t *seen,
			    uint32_t *stack)
{
	uint32_t depth = 0;

	memset(seen, 0, g->block_count);
	for (uint32_t b = 0; b < g->block_count; b++)
		if (g->blocks[b].flags & BLOCK_ENTERED && !(g->blocks[b].flags & BLOCK_UNREACHED) &&
		    (int32_t)b != by) {
			seen[b] = 1;
			stack[depth++] = b;
		}
	while (depth) {
		const struct cfg_block *b = &g->blocks[stack[--depth]];

		for (uint32_t i = b->out; i < b->out + b->out_count; i++) {
			int32_t to = g->edges[i].to;

			if (to == CFG_NONE || to == by || seen[to])
				continue;
			seen[to] = 1;
			stack[depth++] = (uint32_t)to;
		}
	}
	return seen[block];
}

static void check_loops(struct check *c, const struct cfg *g)
{
	uint8_t *seen = calloc(g->block_count + 1, 1);
	uint32_t *stack = calloc(g->block_count + 1, sizeof(*stack));

	assert_non_null(seen);
	assert_non_null(stack);
	for (uint32_t i = 0; i < g->edge_count && g->block_count < DOMINATED_MAX; i++) {
		const struct cfg_edge *edge = &g->edges[i];

		if (edge->to == CFG_NONE || g->blocks[edge->from].flags & BLOCK_UNREACHED)
			continue;
		if (edge->back &&
		    (edge->to != edge->from) ==
			    reached_without(g, edge->to, edge->from, seen, stack) &&
		    edge->to != edge->from)
			complain(c, g->blocks[edge->from].end, "a round of no loop");
		if (edge->back && !cfg_dominates(g, edge->to, edge->from))
			complain(c, g->blocks[edge->from].end, "a round without a header");
	}
	for (uint32_t i = 0; i < g->loop_count; i++) {
		const struct cfg_loop *l = &g->loops[i];

		if (!cfg_in_loop(g, (int32_t)i, l->header))
			complain(c, g->blocks[l->header].start, "a header outside its loop");
		if (l->parent != CFG_NONE &&
		    (l->parent >= (int32_t)i || !cfg_in_loop(g, l->parent, l->header)))
			complain(c, g->blocks[l->header].start, "a loop outside its parent");
		c->irreducible += l->irreducible;
		for (uint32_t k = 0; k < l->body_count && !l->irreducible; k++)
			if (!cfg_dominates(g, l->header, (int32_t)g->bodies[l->body + k]))
				complain(c, g->blocks[l->header].start,
					 "a body that the header does not dominate");
	}
	free(seen);
	free(stack);
}

static void check_graph(struct check *c, uint32_t index)
{
	struct dinst_error e = {0};
	struct freemap *map;
	struct flow f;
	struct cfg g;

	assert_int_equal(freemap_of(c->img, &map, &e), 0);
	if (flow_build(&f, c->img, map, index, &e) < 0)
		fail_msg("%s: %s", c->path, e.text);
	if (cfg_build(&g, &f, &e) < 0)
		fail_msg("%s: %s", c->path, e.text);
	check_cover(c, &f, &g);
	for (uint32_t i = 0; i < g.block_count; i++)
		if (!(g.blocks[i].flags & BLOCK_UNREACHED) && !g.unresolved)
			check_block(c, &g, &g.blocks[i]);
	for (uint32_t i = 0; i < g.edge_count; i++)
		check_edge(c, &g, &g.edges[i]);
	check_loops(c, &g);
	c->blocks += g.block_count;
	c->edges += g.edge_count;
	c->loops += g.loop_count;
	cfg_release(&g);
	flow_release(&f);
}

/* ---------------------------------------------------------------- points */

static void claim(struct check *c, vaddr_t v, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		if (v + i < c->lo || v + i >= c->hi)
			continue;
		if (c->map[v + i - c->lo] & CLAIMED)
			complain(c, v + i, "claimed twice");
		c->map[v + i - c->lo] |= CLAIMED | (i ? INNER : 0);
	}
}

static void check_points(struct check *c, const struct function_plan *plan)
{
	for (size_t i = 0; i < plan->point_count; i++) {
		const struct point *p = &plan->points[i];

		if (p->part && (i == 0 || p[-1].kind != p->kind || p[-1].address != p->address ||
				p[-1].part + 1 != p->part))
			complain(c, p->address, "a part that does not follow its first");
		if (p->window >= 0 && (p->window >= (int32_t)plan->window_count ||
				       p->insn >= plan->windows[p->window].insn_count))
			complain(c, p->address, "a place outside its window");
		if (p->part)
			continue;
		c->points[p->kind]++;
		c->tactics[p->kind][p->tactic] += p->window >= 0;
		c->refused[p->kind] += p->window < 0;
		c->reasons[p->kind][p->refusal] += p->window < 0;
		if (p->window < 0 && p->refusal == REFUSAL_NONE)
			complain(c, p->address, "refused without a reason");
	}
}

/* The base windows, and nothing else of the base plan, in the order of addresses. */
static bool same_windows(const struct window *base, size_t count, const struct function_plan *plan)
{
	size_t found = 0;

	for (size_t i = 0; i < plan->window_count && found < count; i++) {
		struct window now = plan->windows[i];

		/* Indices change, and nothing else. */
		if (now.host >= 0 && base[found].host >= 0 &&
		    plan->windows[now.host].start == base[base[found].host].start)
			now.host = base[found].host;
		if (!memcmp(&now, &base[found], sizeof(*base)))
			found++;
	}
	return found == count;
}

static void check_plan(struct check *c, uint32_t index)
{
	struct dinst_error e = {0};
	struct function_plan *plan;
	struct window *base;
	size_t count;

	if (plan_function(c->img, index, &plan, &e) < 0)
		fail_msg("%s: %s", c->path, e.text);
	count = plan->window_count;
	base = calloc(count + 1, sizeof(*base));
	assert_non_null(base);
	if (count)
		memcpy(base, plan->windows, count * sizeof(*base));
	if (plan_add_detail(c->img, plan, &e) < 0)
		fail_msg("%s: %s", c->path, e.text);
	assert_int_equal(plan->level, PLAN_DETAIL);
	if (!same_windows(base, count, plan))
		complain(c, c->functions[index].address, "a base window has changed");
	check_points(c, plan);
	for (size_t i = 0; i < plan->window_count; i++) {
		const struct window *w = &plan->windows[i];

		claim(c, w->start, (size_t)w->length + w->padding);
		/* A hole in the tail of a window is claimed by that one. */
		if (w->hole && w->host < 0)
			claim(c, w->hole, w->hole_length);
	}
	free(base);
	plan_free(c->img, plan);
}

/* --------------------------------------------------------------- the file */

static double reached(const struct check *c, enum point_kind kind)
{
	return c->points[kind] ? 100.0 * (double)(c->points[kind] - c->refused[kind]) /
					 (double)c->points[kind]
			       : 100.0;
}

static void print_summary(const struct check *c)
{
	print_message("%s: %zu functions, %lu blocks, %lu edges, %lu loops (%lu irreducible)\n",
		      c->path, c->count, c->blocks, c->edges, c->loops, c->irreducible);
	for (int kind = 0; kind < POINT_KINDS; kind++) {
		if (!c->points[kind])
			continue;
		print_message("  %-12s %8lu  %6.2f %%", point_kind_name(kind), c->points[kind],
			      reached(c, kind));
		for (int t = 0; t < TACTIC_COUNT; t++)
			if (c->tactics[kind][t])
				print_message(" %s:%lu", tactic_name(t), c->tactics[kind][t]);
		for (int r = 0; r < REFUSAL_COUNT; r++)
			if (c->reasons[kind][r])
				print_message(" !%s:%lu", refusal_name(r), c->reasons[kind][r]);
		print_message("\n");
	}
}

static void check_file(const char *path, double blocks, double instructions)
{
	struct check c = {.path = path};
	struct dinst_error e = {0};
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		print_message("skipped: %s is not there\n", path);
		skip();
	}
	if (image_open(fd, path, NULL, &c.img, &e) < 0)
		fail_msg("%s: %s", path, e.text);
	close(fd);
	assert_int_equal(cs_open(CS_ARCH_X86, CS_MODE_64, &c.decoder), CS_ERR_OK);
	cs_option(c.decoder, CS_OPT_DETAIL, CS_OPT_ON);
	c.insn = cs_malloc(c.decoder);
	c.count = image_functions(c.img, &c.functions);
	c.lo = image_lowest(c.img);
	c.hi = image_highest(c.img);
	c.map = calloc(c.hi - c.lo, 1);
	assert_non_null(c.map);
	for (uint32_t i = 0; i < c.count; i++) {
		if (c.functions[i].flags & (FUNCTION_STUB | FUNCTION_IFUNC | FUNCTION_COLD))
			continue;
		check_graph(&c, i);
		check_plan(&c, i);
	}
	if (getenv("DINST_VERBOSE"))
		print_summary(&c);
	free(c.map);
	cs_free(c.insn, 1);
	cs_close(&c.decoder);
	image_close(c.img);
	assert_int_equal(c.wrong, 0);
	assert_true(reached(&c, POINT_BLOCK) >= blocks);
	assert_true(reached(&c, POINT_INSTRUCTION) >= instructions);
}

/* fear C5: what functions have of their neighbours' bytes these use for nothing else, in whatever detail */
static void test_neighbours(void **state)
{
	const char *build = getenv("DINST_BUILD");
	char path[4096];

	(void)state;
	snprintf(path, sizeof(path), "%s/tests/live/targets/points-tactics",
		 build ? build : "build");
	check_file(path, 50.0, 50.0);
}

static void test_libc(void **state)
{
	(void)state;
	check_file("/lib/x86_64-linux-gnu/libc.so.6", 90.0, 90.0);
}

static void test_redis(void **state)
{
	(void)state;
	check_file("/usr/bin/redis-server", 90.0, 90.0);
}

/* Others, by hand. */
static void test_chosen(void **state)
{
	const char *path = getenv("DINST_CFG_FILE");

	(void)state;
	if (path && *path)
		check_file(path, 0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_neighbours),
		cmocka_unit_test(test_libc),
		cmocka_unit_test(test_redis),
	};
	const struct CMUnitTest chosen[] = {cmocka_unit_test(test_chosen)};

	if (getenv("DINST_CFG_FILE"))
		return cmocka_run_group_tests(chosen, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
