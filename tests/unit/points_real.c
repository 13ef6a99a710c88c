/* SPDX-License-Identifier: MIT */
/*
 * points_real.c - plans of all functions of real binaries, every rule of
 * windows checked again by other means: a full decode by capstone, one map of
 * all bytes that any plan of the file claims, and the file's own bytes.
 *
 * With DINST_VERBOSE set it prints how many points each tactic has reached, and
 * if that begins with a 2 every refused one. DINST_POINTS_FILE names one file to
 * look at instead of those of the test.
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

#include "mutator/points.h"
#include "tests/unit/points_constants.h"

enum { HEAD = 1, TARGET = 2, CLAIMED = 4, BASE = 8, RETURN = 16, OTHER = 32, HOLE = 64 };

/* A direct branch, or an instruction that goes on, and where that leads. */
struct step {
	vaddr_t to, from;
	bool falls;
};

struct check {
	const char *path;
	struct image *img;
	const struct image_function *functions;
	size_t count;
	vaddr_t lo, hi;
	uint8_t *map;	    /* HEAD.. of every byte in [lo, hi) */
	struct step *steps; /* sorted */
	size_t step_count, step_room;
	struct function_plan **plans;
	csh decoder;
	unsigned wrong;
	bool list; /* print every point that is refused */
	unsigned long points[3], refused[3], ifuncs[3];
	unsigned long tactics[3][TACTIC_MERGED + 1], refusals[3][REFUSAL_COUNT];
};

static void complain(struct check *c, vaddr_t v, const char *what)
{
	if (c->wrong++ < 20)
		print_error("%s: %#llx: %s\n", c->path, (unsigned long long)v, what);
}

static void set(struct check *c, vaddr_t v, uint8_t bits)
{
	if (v >= c->lo && v < c->hi)
		c->map[v - c->lo] |= bits;
}

static uint8_t get(const struct check *c, vaddr_t v)
{
	return v >= c->lo && v < c->hi ? c->map[v - c->lo] : 0;
}

static bool in_text(const struct check *c, vaddr_t v)
{
	const struct image_range *text;
	size_t n = image_text(c->img, &text);

	for (size_t i = 0; i < n; i++)
		if (v >= text[i].lo && v < text[i].hi)
			return true;
	return false;
}

/* ------------------------------------------------- what jumps where */

static void add_step(struct check *c, vaddr_t from, vaddr_t to, bool falls)
{
	if (c->step_count == c->step_room) {
		c->step_room = c->step_room ? c->step_room * 2 : 4096;
		c->steps = reallocarray(c->steps, c->step_room, sizeof(*c->steps));
		assert_non_null(c->steps);
	}
	c->steps[c->step_count++] = (struct step){to, from, falls};
}

static void note_insn(struct check *c, const cs_insn *insn)
{
	const cs_x86 *x = &insn->detail->x86;
	vaddr_t end = insn->address + insn->size;
	bool goes_on = insn->id != X86_INS_JMP && insn->id != X86_INS_HLT &&
		       insn->id != X86_INS_UD2 && insn->id != X86_INS_INT3;

	set(c, insn->address, HEAD);
	for (unsigned i = 0; i < insn->detail->groups_count; i++) {
		uint8_t group = insn->detail->groups[i];
		vaddr_t to;

		if (group == CS_GRP_CALL || group == CS_GRP_INT)
			set(c, end, TARGET | RETURN);
		goes_on &= group != CS_GRP_RET && group != CS_GRP_IRET && group != CS_GRP_CALL;
		if ((group != CS_GRP_JUMP && group != CS_GRP_CALL) || !x->op_count ||
		    x->operands[x->op_count - 1].type != X86_OP_IMM)
			continue;
		to = (vaddr_t)x->operands[x->op_count - 1].imm;
		set(c, to, group == CS_GRP_CALL ? TARGET | OTHER : TARGET);
		if (group == CS_GRP_JUMP)
			add_step(c, insn->address, to, false);
	}
	if (goes_on)
		add_step(c, insn->address, end, true);
	if (insn->id == X86_INS_SYSCALL)
		set(c, end, TARGET | RETURN);
	if (insn->id == X86_INS_LEA && x->operands[1].mem.base == X86_REG_RIP) {
		vaddr_t at = end + (vaddr_t)x->operands[1].mem.disp;

		set(c, at, in_text(c, at) ? TARGET | OTHER | BASE : BASE);
	}
}

static void decode_function(struct check *c, const struct image_function *fn)
{
	size_t size = 0;
	const uint8_t *code = image_code(c->img, fn->address, &size);
	uint64_t address = fn->address;
	cs_insn *insn = cs_malloc(c->decoder);

	if (size > fn->size)
		size = fn->size;
	while (code && size && cs_disasm_iter(c->decoder, &code, &size, &address, insn))
		note_insn(c, insn);
	cs_free(insn, 1);
}

/* A table of 32-bit offsets ends at the first that leaves the text, or at the next base. */
static void read_table(struct check *c, vaddr_t base)
{
	size_t size = 0;
	const uint8_t *data = image_data(c->img, base, &size);

	if (in_text(c, base))
		return;
	for (size_t i = 0; data && (i + 1) * 4 <= size; i++) {
		int32_t offset;
		vaddr_t target;

		memcpy(&offset, data + i * 4, sizeof(offset));
		target = base + (vaddr_t)(int64_t)offset;
		if (!in_text(c, target) || (i && get(c, base + i * 4) & BASE))
			return;
		set(c, target, TARGET | OTHER);
	}
}

static int step_order(const void *a, const void *b)
{
	const struct step *x = a, *y = b;

	return x->to < y->to ? -1 : x->to > y->to;
}

static void find_targets(struct check *c)
{
	for (size_t i = 0; i < c->count; i++) {
		bool part = c->functions[i].flags & FUNCTION_COLD;

		set(c, c->functions[i].address, part ? TARGET : TARGET | OTHER);
		decode_function(c, &c->functions[i]);
	}
	for (vaddr_t v = c->lo; v < c->hi; v++)
		if (get(c, v) & BASE)
			read_table(c, v);
	if (c->step_count)
		qsort(c->steps, c->step_count, sizeof(*c->steps), step_order);
}

/* ---------------------------------------------------------- windows */

static void claim(struct check *c, vaddr_t v, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		if (get(c, v + i) & CLAIMED)
			complain(c, v + i, "claimed twice");
		set(c, v + i, CLAIMED);
	}
}

static size_t patch_size(const struct window *w)
{
	if (w->kind == ARCH_PATCH_SHORT_JUMP)
		return arch_short_jump_size;
	return w->kind == ARCH_PATCH_JUMP ? arch_jump_size : w->length;
}

/* Bytes that are not instructions of a window must be dead. */
static void check_dead(struct check *c, vaddr_t v, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		size_t room = 0;
		const uint8_t *code = image_code(c->img, v + i, &room);

		if (get(c, v + i) & TARGET || (image_references_at(c->img, v + i)))
			complain(c, v + i, "padding that is referred to");
		if (!code)
			complain(c, v + i, "padding outside the code");
	}
}

/*
 * True if something names the address. Where addresses are fixed any word and any
 * constant may look like one: in the middle of an instruction that is chance.
 */
static bool is_referred(struct check *c, vaddr_t v)
{
	unsigned references = image_references_at(c->img, v);

	if (image_is_fixed(c->img) && !(get(c, v) & HEAD)) {
		if (references & REFERENCE_BRANCH && named_as_constant(c->img, v))
			references &= ~(unsigned)REFERENCE_BRANCH;
		if (references == REFERENCE_ADDRESS)
			return false;
	}
	return references != 0;
}

static void check_insns(struct check *c, const struct window *w, const struct arch_insn *insns)
{
	vaddr_t v = w->start;

	for (unsigned i = 0; i < w->insn_count; i++) {
		const struct arch_insn *insn = &insns[i];
		bool last = i + 1 == w->insn_count;
		bool call = insn->flow == ARCH_FLOW_CALL || insn->flow == ARCH_FLOW_CALL_INDIRECT;
		size_t size = 0;
		const uint8_t *code = image_code(c->img, v, &size), *at = code;
		uint64_t address = v;
		cs_insn *other = cs_malloc(c->decoder);

		if (insn->address != v || !code || size < insn->length ||
		    memcmp(code, insn->bytes, insn->length) != 0)
			complain(c, v, "not the file's instruction");
		else if (cs_disasm_iter(c->decoder, &at, &size, &address, other) &&
			 other->size != insn->length)
			complain(c, v, "a length that capstone does not agree with");
		if (!last && (call || !arch_falls_through(insn)))
			complain(c, v, "control leaves in the middle of a window");
		if (insn->flow == ARCH_FLOW_SYSCALL || insn->flow == ARCH_FLOW_STOP ||
		    insn->flags & (ARCH_INSN_NO_MOVE | ARCH_INSN_LANDING_PAD))
			complain(c, v, "an instruction that must not move");
		cs_free(other, 1);
		v += insn->length;
	}
	if (v != w->start + w->length)
		complain(c, w->start, "the length is not that of its instructions");
}

/* A hole in padding is claimed; one in a window is in its tail, and nobody else's. */
static void check_hole(struct check *c, const struct function_plan *plan, const struct window *w)
{
	int64_t distance = (int64_t)(w->hole - (w->start + arch_short_jump_size));
	const struct window *host = w->host < 0 ? NULL : &plan->windows[w->host];

	if (!w->hole || w->hole_length < arch_jump_size || distance < -128 || distance > 127)
		complain(c, w->start, "a hole out of reach");
	for (size_t i = 0; i < w->hole_length; i++) {
		if (get(c, w->hole + i) & HOLE)
			complain(c, w->hole + i, "two near jumps in one place");
		set(c, w->hole + i, HOLE);
	}
	if (!host) {
		check_dead(c, w->hole, w->hole_length);
		claim(c, w->hole, w->hole_length);
	} else if ((size_t)w->host >= plan->window_count || host == w ||
		   host->kind != ARCH_PATCH_JUMP || host->host >= 0 ||
		   w->hole < host->start + arch_jump_size ||
		   w->hole + w->hole_length > host->start + host->length) {
		complain(c, w->hole, "not in the tail of its host");
	}
}

static void check_window(struct check *c, const struct function_plan *plan, const struct window *w)
{
	size_t patch = patch_size(w), live = patch < w->length ? patch : w->length;
	struct arch_insn insns[WINDOW_INSNS_MAX];
	const struct arch_insn *last;

	if (!w->insn_count || window_instructions(c->img, w, insns) != w->insn_count) {
		complain(c, w->start, "instructions that are not there");
		return;
	}
	last = &insns[w->insn_count - 1];
	check_insns(c, w, insns);
	if ((size_t)w->length + w->padding < patch)
		complain(c, w->start, "shorter than its patch");
	if (w->padding && (arch_falls_through(last) || last->flow == ARCH_FLOW_CALL ||
			   last->flow == ARCH_FLOW_CALL_INDIRECT))
		complain(c, w->start, "padding behind what goes on");
	for (size_t i = 1; i < (size_t)w->length + w->padding; i++)
		if (get(c, w->start + i) & TARGET || is_referred(c, w->start + i))
			complain(c, w->start + i, "a target inside a window");
	if (w->kind != ARCH_PATCH_RETARGET && w->start / 4096 != (w->start + live - 1) / 4096)
		complain(c, w->start, "across a page");
	check_dead(c, w->start + w->length, w->padding);
	claim(c, w->start, (size_t)w->length + w->padding);
	if (w->kind == ARCH_PATCH_SHORT_JUMP)
		check_hole(c, plan, w);
	else if (w->hole || w->host >= 0)
		complain(c, w->start, "a hole for nothing");
}

/* Where a part is: insn number p->insn of its window, checked against what p says of it. */
static void check_place(struct check *c, const struct point *p, const struct window *w,
			const struct arch_insn *insn)
{
	vaddr_t to = p->kind == POINT_EXIT && p->tactic != TACTIC_EDGES ? p->callee : p->address;
	bool branch = insn->flow == ARCH_FLOW_BRANCH;

	switch (p->place) {
	case PLACE_BEFORE:
		if (insn->address != p->address &&
		    !(p->kind == POINT_ENTRY && p->insn == 0 && w->start - p->address <= 4))
			complain(c, p->address, "a point at another instruction than its own");
		if (p->kind == POINT_EXIT && branch)
			complain(c, p->address, "a conditional exit that counts both sides");
		if (w->kind == ARCH_PATCH_RETARGET && branch)
			complain(c, p->address, "a branch that counts one side only");
		break;
	case PLACE_TAKEN:
		if ((!branch && insn->flow != ARCH_FLOW_JUMP) || insn->target != to)
			complain(c, p->address, "a way that leads elsewhere");
		break;
	case PLACE_FALLS:
		if (!arch_falls_through(insn) || insn->address + insn->length != to ||
		    (w->kind != ARCH_PATCH_JUMP && w->kind != ARCH_PATCH_SHORT_JUMP))
			complain(c, p->address, "not the instruction before the point");
		break;
	case PLACE_BYPASS:
		if (p->kind != POINT_ENTRY || insn->target - p->address > 4)
			complain(c, p->address, "a way round something else");
		break;
	}
}

/* The first byte of a cold part is no function, but has a frame of its own. */
static bool is_part(struct check *c, vaddr_t v)
{
	long i = image_function_at(c->img, v);

	return i >= 0 && c->functions[i].address == v && c->functions[i].flags & FUNCTION_COLD;
}

/* Nops that align the point: they end where it begins, but nobody comes to them. */
static bool is_unreached_padding(struct check *c, vaddr_t v)
{
	struct arch_insn insn;
	size_t size = 0;
	const uint8_t *code = image_code(c->img, v, &size);

	return code && arch_decode(code, size, v, &insn) == ARCH_OK &&
	       insn.flags & ARCH_INSN_PADDING;
}

/* True if one of the parts of the point at `p` is at that step. */
static bool has_part(struct check *c, const struct function_plan *plan, const struct point *p,
		     const struct step *step)
{
	for (const struct point *part = p; part < plan->points + plan->point_count; part++) {
		const struct window *w = &plan->windows[part->window];
		struct arch_insn insns[WINDOW_INSNS_MAX];

		if (part->kind != p->kind || part->address != p->address)
			break;
		if (window_instructions(c->img, w, insns) != w->insn_count)
			continue;
		if (insns[part->insn].address == step->from &&
		    step->falls == (part->place == PLACE_FALLS))
			return true;
	}
	return false;
}

/* Every way to the point that capstone finds has its part, and there is no other one. */
static void check_ways(struct check *c, const struct function_plan *plan, const struct point *p)
{
	size_t lo = 0, hi = c->step_count;
	bool bypass = p->kind == POINT_ENTRY;
	unsigned others;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (c->steps[mid].to < p->address)
			lo = mid + 1;
		else
			hi = mid;
	}
	/* Branches are looked at one by one. */
	others = image_references_at(c->img, p->address) & ~(unsigned)REFERENCE_BRANCH;
	if (!bypass &&
	    (get(c, p->address) & (RETURN | OTHER) || (others && !is_part(c, p->address))))
		complain(c, p->address, "a point with ways that are no jumps");
	for (; lo < c->step_count && c->steps[lo].to == p->address; lo++) {
		const struct step *step = &c->steps[lo];
		vaddr_t from = step->from;

		/* Jumps from other functions are entries, and padding is not reached. */
		if (bypass && (step->falls || image_function_at(c->img, from) !=
						      image_function_at(c->img, p->address)))
			continue;
		if (!has_part(c, plan, p, step) && !is_unreached_padding(c, from))
			complain(c, from, "a way to a point that is not known");
	}
}

static void check_point(struct check *c, const struct function_plan *plan, const struct point *p)
{
	struct arch_insn insns[WINDOW_INSNS_MAX];
	const struct window *w;

	c->points[p->kind] += !p->part;
	c->tactics[p->kind][p->tactic] += !p->part;
	if (p->window < 0) {
		c->refused[p->kind]++;
		if (c->list)
			print_message("refused %s %s %#llx %s\n", refusal_name(p->refusal),
				      point_kind_name(p->kind), (unsigned long long)p->address,
				      c->functions[plan->function].name);
		c->refusals[p->kind][p->refusal]++;
		c->ifuncs[p->kind] += p->refusal == REFUSAL_IFUNC;
		if (p->refusal == REFUSAL_NONE || p->tactic != TACTIC_NONE || p->part)
			complain(c, p->address, "refused without a reason");
		return;
	}
	if (p->part && (p == plan->points || p[-1].address != p->address || p[-1].kind != p->kind ||
			p[-1].part + 1 != p->part))
		complain(c, p->address, "a part that does not follow");
	w = &plan->windows[p->window];
	if ((size_t)p->window >= plan->window_count || p->insn >= w->insn_count ||
	    window_instructions(c->img, w, insns) != w->insn_count)
		complain(c, p->address, "a point outside its window");
	else
		check_place(c, p, w, &insns[p->insn]);
	if (!p->part && (p->tactic == TACTIC_EDGES || p->tactic == TACTIC_BYPASS))
		check_ways(c, plan, p);
}

static void print_summary(const struct check *c)
{
	print_message("%s\n", c->path);
	for (int k = POINT_ENTRY; k <= POINT_CALL; k++) {
		print_message("%-6s %6lu, %.2f %%:", point_kind_name(k), c->points[k],
			      c->points[k] ? 100.0 - 100.0 * c->refused[k] / c->points[k] : 100.0);
		for (int t = TACTIC_RETARGET; t <= TACTIC_MERGED; t++)
			if (c->tactics[k][t])
				print_message(" %s %lu", tactic_name(t), c->tactics[k][t]);
		print_message("; refused:");
		for (int r = 0; r < REFUSAL_COUNT; r++)
			if (c->refusals[k][r])
				print_message(" %s %lu", refusal_name(r), c->refusals[k][r]);
		print_message("\n");
	}
}

/* The share of points that are reached, resolvers left out. */
static double reached(const struct check *c, enum point_kind kind)
{
	double all = (double)(c->points[kind] - c->ifuncs[kind]);

	return all > 0 ? 100.0 * (all - (double)(c->refused[kind] - c->ifuncs[kind])) / all : 100.0;
}

static void make_plans(struct check *c)
{
	c->plans = calloc(c->count, sizeof(*c->plans));
	assert_non_null(c->plans);
	for (size_t i = 0; i < c->count; i++) {
		struct dinst_error e = {0};

		if (plan_function(c->img, (uint32_t)i, &c->plans[i], &e) < 0)
			fail_msg("%s: %s: %s", c->path, c->functions[i].name, e.text);
		if (c->functions[i].flags & FUNCTION_STUB)
			continue;
		for (size_t k = 0; k < c->plans[i]->point_count; k++)
			check_point(c, c->plans[i], &c->plans[i]->points[k]);
		for (size_t k = 0; k < c->plans[i]->window_count; k++)
			check_window(c, c->plans[i], &c->plans[i]->windows[k]);
	}
}

static void check_file(const char *path, double entries, double exits, double calls)
{
	const char *verbose = getenv("DINST_VERBOSE");
	struct check c = {.path = path, .list = verbose && verbose[0] == '2'};
	struct dinst_error e = {0};
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		print_message("skipped: %s is not there\n", path);
		skip();
	}
	if (image_open(fd, path, NULL, &c.img, &e) < 0 || image_references(c.img, &e) < 0)
		fail_msg("%s: %s", path, e.text);
	close(fd);
	assert_int_equal(cs_open(CS_ARCH_X86, CS_MODE_64, &c.decoder), CS_ERR_OK);
	cs_option(c.decoder, CS_OPT_DETAIL, CS_OPT_ON);
	c.count = image_functions(c.img, &c.functions);
	c.lo = image_lowest(c.img);
	c.hi = image_highest(c.img);
	c.map = calloc(c.hi - c.lo, 1);
	assert_non_null(c.map);
	find_targets(&c);
	make_plans(&c);
	if (verbose)
		print_summary(&c);
	for (size_t i = 0; i < c.count; i++)
		plan_free(c.img, c.plans[i]);
	free(c.plans);
	free(c.map);
	free(c.steps);
	cs_close(&c.decoder);
	image_close(c.img);
	assert_int_equal(c.wrong, 0);
	assert_true(reached(&c, POINT_ENTRY) >= entries);
	assert_true(reached(&c, POINT_EXIT) >= exits);
	assert_true(reached(&c, POINT_CALL) >= calls);
	/* But for those that the program's own sequences forbid. */
	c.refused[POINT_CALL] -= c.refusals[POINT_CALL][REFUSAL_RSEQ];
	assert_true(reached(&c, POINT_CALL) >= 99.9 || calls < 99.0);
}

/* fear C3, C8: each rule of windows checked by other means on all functions of libc */
static void test_libc(void **state)
{
	(void)state;
	/* Sixty calls are made where its threads may be cancelled at any instruction (references_cancelled.h). */
	check_file("/lib/x86_64-linux-gnu/libc.so.6", 99.9, 99.8, 99.5);
}

static void test_loader(void **state)
{
	(void)state;
	check_file("/lib64/ld-linux-x86-64.so.2", 99.5, 99.5, 99.9);
}

static void test_redis(void **state)
{
	(void)state;
	check_file("/usr/bin/redis-server", 99.9, 99.9, 99.9);
}

static void test_libstdcxx(void **state)
{
	(void)state;
	check_file("/usr/lib/x86_64-linux-gnu/libstdc++.so.6", 99.9, 99.9, 99.9);
}

static void test_fixture(void **state)
{
	static const char *const names[] = {"layout", "flow", "tactics", "fixed"};
	static const double least[][2] = {{80.0, 80.0}, {90.0, 90.0}, {90.0, 80.0}, {90.0, 90.0}};
	const char *build = getenv("DINST_BUILD");
	char path[4096];

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(path, sizeof(path), "%s/tests/live/targets/points-%s",
			 build ? build : "build", names[i]);
		check_file(path, least[i][0], least[i][1], least[i][1]);
	}
}

/* Others, by hand: DINST_POINTS_FILE=/usr/bin/node. */
static void test_chosen(void **state)
{
	const char *path = getenv("DINST_POINTS_FILE");

	(void)state;
	if (path && *path)
		check_file(path, 0, 0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fixture),	  cmocka_unit_test(test_libc),
		cmocka_unit_test(test_loader),	  cmocka_unit_test(test_redis),
		cmocka_unit_test(test_libstdcxx), cmocka_unit_test(test_chosen),
	};
	const char *chosen = getenv("DINST_POINTS_FILE");

	if (chosen && *chosen)
		cmocka_set_test_filter("test_chosen");
	return cmocka_run_group_tests_name("points: real binaries", tests, NULL, NULL);
}
