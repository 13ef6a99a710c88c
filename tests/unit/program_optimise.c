/* SPDX-License-Identifier: MIT */
/*
 * program_optimise.c - what the optimiser makes of programs: random ones must
 * do the same before and after, in the same order; and what is written in
 * program.h that it does must be seen in small ones.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "arch/program.h"
#include "tests/slower.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* --------------------------------------------------------- random programs */

enum {
	PLAIN = 0x10000,  /* absolute addresses */
	RECORD = 0x80000, /* what ARCH_OP_RECORD gives */
	SPACE = 64,	  /* bytes of each */
	VALUES = 24,
	EVENTS = 512,
};

static uint64_t seed;

static uint64_t draw(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static uint64_t pick(uint64_t n)
{
	return draw() % n;
}

/* Numbers that make trouble, and others. */
static uint64_t constant(void)
{
	static const uint64_t special[] = {
		0,  1,	 2,	     3,		 4,	    7,	       8,	   63,
		64, 255, UINT64_MAX, 1ull << 63, INT32_MAX, INT32_MIN, 1ull << 32,
	};

	switch (pick(3)) {
	case 0:
		return special[pick(COUNT(special))];
	case 1:
		return pick(100);
	default:
		return draw();
	}
}

struct maker {
	struct arch_op ops[ARCH_PROGRAM_OPS];
	struct arch_program p;
	unsigned open[8], open_count; /* labels that are still to come */
};

static uint16_t any_value(void)
{
	return (uint16_t)(1 + pick(VALUES));
}

static struct arch_op *add(struct maker *m, unsigned kind)
{
	struct arch_op *op = &m->ops[m->p.count++];

	*op = (struct arch_op){.kind = (uint8_t)kind};
	return op;
}

static void second_operand(struct arch_op *op)
{
	if (pick(2))
		op->b = any_value();
	else
		op->immediate = (int32_t)constant();
}

static void add_arithmetic(struct maker *m)
{
	struct arch_op *op = add(m, ARCH_OP_CONST + pick(ARCH_OP_TEST - ARCH_OP_CONST + 1));
	static const uint8_t sizes[] = {1, 2, 4, 8};

	op->result = any_value();
	op->a = pick(20) ? any_value() : 0;
	second_operand(op);
	if (op->b)
		op->immediate = (int32_t)draw(); /* means nothing */
	if (op->kind == ARCH_OP_CONST)
		op->number = constant();
	if (op->kind == ARCH_OP_EXTEND) {
		op->size = sizes[pick(4)];
		op->is_signed = pick(2);
	}
	if (op->kind == ARCH_OP_TEST)
		op->condition = (uint8_t)pick(10);
}

/* The base of an access: absolute, the record, or a value that is the address of plain memory. */
static void add_access(struct maker *m)
{
	static const uint8_t kinds[] = {
		ARCH_OP_LOAD,	      ARCH_OP_LOAD,	  ARCH_OP_LOAD,	      ARCH_OP_STORE,
		ARCH_OP_FETCH_ADD,    ARCH_OP_ATOMIC_ADD, ARCH_OP_ATOMIC_MIN, ARCH_OP_ATOMIC_MAX,
		ARCH_OP_ATOMIC_STORE, ARCH_OP_READ,	  ARCH_OP_COUNT};
	static const uint8_t sizes[] = {1, 2, 4, 8, 8, 8};
	const uint16_t base = any_value();
	const unsigned way = (unsigned)pick(4);
	struct arch_op *op;

	if (way == 0) {
		add(m, ARCH_OP_RECORD)->result = base;
	} else if (way == 1) {
		op = add(m, ARCH_OP_CONST);
		op->result = base;
		op->number = PLAIN + 8;
	} else if (way == 2) { /* the same, but nobody can know */
		op = add(m, ARCH_OP_ARGUMENT);
		op->number = 5;
		op->result = base;
	}
	op = add(m, kinds[pick(COUNT(kinds))]);
	op->size = sizes[pick(COUNT(sizes))];
	if (op->kind != ARCH_OP_LOAD && op->kind != ARCH_OP_READ && op->kind != ARCH_OP_STORE)
		op->size = 8;
	op->is_signed = pick(2);
	op->number = pick(7) * 4;
	if (way < 3)
		op->a = base;
	else
		op->number += PLAIN;
	if (op->kind == ARCH_OP_ATOMIC_MIN || op->kind == ARCH_OP_ATOMIC_MAX)
		op->b = any_value();
	else if (op->kind != ARCH_OP_LOAD && op->kind != ARCH_OP_READ)
		second_operand(op);
	if (op->kind == ARCH_OP_LOAD || op->kind == ARCH_OP_FETCH_ADD || op->kind == ARCH_OP_READ)
		op->result = any_value();
	if (op->kind == ARCH_OP_READ && pick(2))
		op->second = op->result % VALUES + 1;
}

static void add_other(struct maker *m)
{
	static const uint8_t kinds[] = {ARCH_OP_ARGUMENT, ARCH_OP_RESULT, ARCH_OP_STACK,
					ARCH_OP_CALLER,	  ARCH_OP_ENTER,  ARCH_OP_LEAVE,
					ARCH_OP_CLOCK,	  ARCH_OP_CPU,	  ARCH_OP_THREAD,
					ARCH_OP_FIND,	  ARCH_OP_RECORD, ARCH_OP_LEFT};
	struct arch_op *op = add(m, kinds[pick(COUNT(kinds))]);

	op->result = any_value();
	op->number = pick(3);
	if (op->kind == ARCH_OP_FIND)
		op->a = any_value();
	if (op->kind == ARCH_OP_LEAVE)
		op->second = op->result % VALUES + 1;
}

static void add_control(struct maker *m)
{
	struct arch_op *op;

	if (m->open_count == COUNT(m->open) || (m->open_count && pick(2))) {
		const unsigned which = (unsigned)pick(m->open_count);

		add(m, ARCH_OP_LABEL)->label = (uint16_t)m->open[which];
		m->open[which] = m->open[--m->open_count];
		return;
	}
	if (m->p.labels == ARCH_PROGRAM_LABELS)
		return;
	op = add(m, pick(6) ? ARCH_OP_IF : ARCH_OP_JUMP);
	if (m->open_count && pick(3) == 0) {
		op->label = (uint16_t)m->open[pick(m->open_count)];
	} else {
		op->label = ++m->p.labels;
		m->open[m->open_count++] = op->label;
	}
	if (op->kind == ARCH_OP_IF) {
		op->a = pick(20) ? any_value() : 0;
		op->condition = (uint8_t)pick(10);
		second_operand(op);
		if (pick(2) && !op->b)
			op->immediate = (int32_t)pick(3);
	}
}

static void make(struct maker *m)
{
	const unsigned length = 5 + (unsigned)pick(pick(2) ? 40 : 200);

	*m = (struct maker){.p = {.room = ARCH_PROGRAM_OPS, .values = VALUES}};
	m->p.ops = m->ops;
	while (m->p.count < length) {
		const uint64_t what = pick(10);

		if (what < 4)
			add_arithmetic(m);
		else if (what < 6)
			add_access(m);
		else if (what < 7)
			add_other(m);
		else
			add_control(m);
	}
	while (m->open_count)
		add(m, ARCH_OP_LABEL)->label = (uint16_t)m->open[--m->open_count];
}

/* ---------------------------------------------------------------- running */

struct event {
	uint64_t what, a, b;
};

struct world {
	uint8_t plain[SPACE], record[SPACE];
	struct event events[EVENTS];
	unsigned count, reads;
	const uint64_t *values;
};

static uint8_t *memory_at(struct world *w, taddr_t address, size_t size)
{
	if (address >= PLAIN && address + size <= PLAIN + SPACE)
		return w->plain + (address - PLAIN);
	if (address >= RECORD && address + size <= RECORD + SPACE)
		return w->record + (address - RECORD);
	return NULL;
}

static void note(struct world *w, uint64_t what, uint64_t a, uint64_t b)
{
	if (w->count < EVENTS)
		w->events[w->count] = (struct event){what, a, b};
	w->count++;
}

static bool load(void *arg, taddr_t address, uint64_t *word, size_t size)
{
	struct world *w = arg;
	const uint8_t *from = memory_at(w, address, size);

	w->reads++;
	if (from)
		memcpy(word, from, size);
	return from != NULL;
}

static bool store(void *arg, taddr_t address, uint64_t word, size_t size)
{
	struct world *w = arg;
	uint8_t *to = memory_at(w, address, size);

	if (size < 8)
		word &= (1ull << 8 * size) - 1;
	note(w, 1000 + size, address, word);
	if (to)
		memcpy(to, &word, size);
	return to != NULL;
}

/* What a function of the target, or the routines, do to memory. */
static void stir(struct world *w)
{
	for (unsigned i = 0; i < SPACE; i++) {
		w->plain[i] = (uint8_t)(w->plain[i] * 5 + w->count);
		w->record[i] = (uint8_t)(w->record[i] * 7 + w->count);
	}
}

static bool other(void *arg, const struct arch_op *op, uint64_t a, uint64_t b, uint64_t *result,
		  uint64_t *second)
{
	struct world *w = arg;
	const uint64_t told = (op->kind * 31 + op->number) * 0x9e3779b97f4a7c15ull >> 3;

	*result = told;
	switch (op->kind) {
	case ARCH_OP_RECORD:
		*result = RECORD;
		break;
	case ARCH_OP_ARGUMENT:
		if (op->number == 5)
			*result = PLAIN + 8;
		break;
	case ARCH_OP_COUNT:
		if (b) /* nothing counted is nothing done */
			note(w, op->kind, a + op->number, b);
		break;
	case ARCH_OP_FIND: /* again and again the same is one and the same */
		for (unsigned i = 0; i < w->count && i < EVENTS; i++)
			if (w->events[i].what == op->kind && w->events[i].a == a &&
			    w->events[i].b == op->number)
				return true;
		note(w, op->kind, a, op->number);
		break;
	case ARCH_OP_ENTER:
	case ARCH_OP_LEAVE:
	case ARCH_OP_LEFT:
		note(w, op->kind, op->number, 0);
		stir(w);
		*result = told + w->count;
		*second = w->count % 3;
		break;
	default:
		break;
	}
	return true;
}

static bool run(const struct arch_program *p, struct world *w, const uint64_t *initial)
{
	const struct arch_machine m = {w, load, store, other};
	uint64_t values[ARCH_PROGRAM_VALUES + 1];

	memcpy(values, initial, sizeof(values));
	memset(w, 0, sizeof(*w));
	for (unsigned i = 0; i < SPACE; i++)
		w->plain[i] = (uint8_t)(i * 17), w->record[i] = (uint8_t)(255 - i);
	w->values = values;
	return arch_program_run(p, &m, values);
}

static void print_program(const char *title, const struct arch_program *p)
{
	char text[128];

	print_message("%s\n", title);
	for (unsigned i = 0; i < p->count; i++) {
		arch_op_format(&p->ops[i], text, sizeof(text));
		print_message("    %s\n", text);
	}
}

static void test_random(void **state)
{
	const unsigned rounds = getenv("DINST_SHORT") ? 20000 : 100000;
	static struct maker m;
	static struct world before, after;
	struct arch_op copy[ARCH_PROGRAM_OPS];
	struct arch_program p;
	uint64_t ops = 0, left = 0;

	(void)state;
	for (unsigned round = 0; round < rounds; round++) {
		uint64_t initial[ARCH_PROGRAM_VALUES + 1] = {0};
		bool x, y;

		seed = 0x1234567 + round * 0x9e3779b97f4a7c15ull;
		for (unsigned i = 0; i < 8; i++)
			draw();
		make(&m);
		assert_true(m.p.count <= ARCH_PROGRAM_OPS);
		memcpy(copy, m.ops, sizeof(copy));
		p = m.p;
		p.ops = copy;
		arch_program_optimise(&p);
		assert_true(p.count <= m.p.count);
		ops += m.p.count;
		left += p.count;
		for (unsigned again = 0; again < 4; again++) {
			for (unsigned i = 1; i <= VALUES; i++)
				initial[i] = constant();
			x = run(&m.p, &before, initial);
			y = run(&p, &after, initial);
			if (x && y && before.count == after.count && after.reads <= before.reads &&
			    !memcmp(before.events, after.events, sizeof(before.events)) &&
			    !memcmp(before.plain, after.plain, SPACE) &&
			    !memcmp(before.record, after.record, SPACE))
				continue;
			print_program("before", &m.p);
			print_program("after", &p);
			fail_msg("round %u: ends %d %d, events %u %u, reads %u %u", round, x, y,
				 before.count, after.count, before.reads, after.reads);
		}
	}
	print_message("%u programs: %.1f operations before, %.1f after\n", rounds,
		      (double)ops / rounds, (double)left / rounds);
}

/* -------------------------------------------------------------- small ones */

/* The text of what is left, a line each. */
static void expect(const char *name, const struct arch_op *ops, size_t count, const char *want)
{
	struct arch_op copy[64];
	struct arch_program p = {.ops = copy, .count = (uint16_t)count, .values = 40, .labels = 20};
	char text[2048] = "", line[128];

	assert_true(count <= COUNT(copy));
	memcpy(copy, ops, count * sizeof(*ops));
	arch_program_optimise(&p);
	for (unsigned i = 0; i < p.count; i++) {
		const size_t used = strlen(text);

		arch_op_format(&p.ops[i], line, sizeof(line));
		snprintf(text + used, sizeof(text) - used, "%s\n", line);
	}
	if (strcmp(text, want))
		fail_msg("%s:\n%swanted:\n%s", name, text, want);
}

#define OP(k, ...)                               \
	{                                        \
		.kind = ARCH_OP_##k, __VA_ARGS__ \
	}
#define EXPECT(name, want, ...)                             \
	do {                                                \
		const struct arch_op ops[] = {__VA_ARGS__}; \
		expect(name, ops, COUNT(ops), want);        \
	} while (0)

static void test_arithmetic(void **state)
{
	(void)state;
	EXPECT("constants", "count [v0 + 0x40], 14\n", OP(CONST, .result = 3, .number = 5),
	       OP(CONST, .result = 4, .number = 9), OP(ADD, .result = 5, .a = 3, .b = 4),
	       OP(COUNT, .number = 0x40, .b = 5));
	EXPECT("common subexpressions",
	       "v3 = argument\nv4 = mul v3, 10\ncount [v0 + 0x40], v4\ncount [v0 + 0x48], v4\n",
	       OP(ARGUMENT, .result = 3), OP(MUL, .result = 4, .a = 3, .immediate = 10),
	       OP(COUNT, .number = 0x40, .b = 4), OP(ARGUMENT, .result = 5),
	       OP(CONST, .result = 6, .number = 10), OP(MUL, .result = 7, .a = 6, .b = 5),
	       OP(COUNT, .number = 0x48, .b = 7));
	EXPECT("powers of two",
	       "v3 = argument\nv4 = shl v3, 3\nv5 = shr v4, 4\nv6 = and v5, 31\n"
	       "count [v0 + 0x40], v6\n",
	       OP(ARGUMENT, .result = 3), OP(MUL, .result = 4, .a = 3, .immediate = 8),
	       OP(DIV_UNSIGNED, .result = 5, .a = 4, .immediate = 16),
	       OP(REM_UNSIGNED, .result = 6, .a = 5, .immediate = 32),
	       OP(COUNT, .number = 0x40, .b = 6));
	EXPECT("a division of what has no sign",
	       "v3 = load.u32 [v0 + 0x80]\nv4 = shr v3, 3\ncount [v0 + 0x40], v4\n",
	       OP(LOAD, .result = 3, .size = 4, .number = 0x80),
	       OP(DIV, .result = 4, .a = 3, .immediate = 8), OP(COUNT, .number = 0x40, .b = 4));
	EXPECT("nothing to do", "", OP(ARGUMENT, .result = 3),
	       OP(MUL, .result = 4, .a = 3, .immediate = 3), OP(COUNT, .number = 0x40));
	EXPECT("sums of an address", "v3 = argument\ncount [v3 + 0x48], 1\n",
	       OP(ARGUMENT, .result = 3), OP(ADD, .result = 4, .a = 3, .immediate = 16),
	       OP(SUB, .result = 5, .a = 4, .immediate = 8),
	       OP(COUNT, .a = 5, .number = 0x40, .immediate = 1));
}

/* Two pieces of code with the same guards, as they are merged at one point. */
static void test_guards(void **state)
{
	(void)state;
	EXPECT("one record, one look at each flag",
	       "v3 = record\nif v3 == 0 -> L2\nv4 = load.u64 [v3 + 0x80]\nif v4 == 0 -> L2\n"
	       "count [v0 + 0x40], 1\ncount [v0 + 0x48], 1\nlabel L2\n",
	       OP(RECORD, .result = 3), OP(IF, .a = 3, .label = 1),
	       OP(LOAD, .result = 4, .size = 8, .a = 3, .number = 0x80), OP(IF, .a = 4, .label = 1),
	       OP(COUNT, .number = 0x40, .immediate = 1), OP(LABEL, .label = 1),
	       OP(RECORD, .result = 5), OP(IF, .a = 5, .label = 2),
	       OP(LOAD, .result = 6, .size = 8, .a = 5, .number = 0x80), OP(IF, .a = 6, .label = 2),
	       OP(COUNT, .number = 0x48, .immediate = 1), OP(LABEL, .label = 2));
	EXPECT("a flag that is set just before",
	       "v3 = record\nif v3 == 0 -> L2\nstore.u64 [v3 + 0x80], 1\ncount [v0 + 0x48], 1\n"
	       "label L2\n",
	       OP(RECORD, .result = 3), OP(IF, .a = 3, .label = 1),
	       OP(STORE, .size = 8, .a = 3, .number = 0x80, .immediate = 1), OP(LABEL, .label = 1),
	       OP(RECORD, .result = 5), OP(IF, .a = 5, .label = 2),
	       OP(LOAD, .result = 6, .size = 8, .a = 5, .number = 0x80), OP(IF, .a = 6, .label = 2),
	       OP(COUNT, .number = 0x48, .immediate = 1), OP(LABEL, .label = 2));
	EXPECT("a flag that something may have changed",
	       "v3 = record\nv4 = load.u64 [v3 + 0x80]\ncount [v0 + 0x40], v4\nenter v0 0x7\n"
	       "v4 = load.u64 [v3 + 0x80]\ncount [v0 + 0x40], v4\n",
	       OP(RECORD, .result = 3), OP(LOAD, .result = 4, .size = 8, .a = 3, .number = 0x80),
	       OP(COUNT, .number = 0x40, .b = 4), OP(ENTER, .number = 7),
	       OP(LOAD, .result = 4, .size = 8, .a = 3, .number = 0x80),
	       OP(COUNT, .number = 0x40, .b = 4));
	EXPECT("a neighbour that was changed",
	       "v3 = record\nv4 = load.u64 [v3 + 0x80]\nstore.u64 [v3 + 0x88], 5\n"
	       "count [v0 + 0x40], v4\n",
	       OP(RECORD, .result = 3), OP(LOAD, .result = 4, .size = 8, .a = 3, .number = 0x80),
	       OP(STORE, .size = 8, .a = 3, .number = 0x88, .immediate = 5),
	       OP(LOAD, .result = 5, .size = 8, .a = 3, .number = 0x80),
	       OP(COUNT, .number = 0x40, .b = 5));
	EXPECT("a number plus the record's address may be what is changed",
	       "v3 = argument\nv4 = record\nv5 = add v3, v4\nv6 = read.u8 [v5 + 0]\n"
	       "count [v0 + 0x40], v6\nstore.u8 [v4 + 0x80], 7\nv6 = read.u8 [v5 + 0]\n"
	       "count [v0 + 0x48], v6\n",
	       OP(ARGUMENT, .result = 3), OP(RECORD, .result = 4),
	       OP(ADD, .result = 5, .a = 3, .b = 4), OP(READ, .result = 6, .size = 1, .a = 5),
	       OP(COUNT, .number = 0x40, .b = 6),
	       OP(STORE, .size = 1, .a = 4, .number = 0x80, .immediate = 7),
	       OP(READ, .result = 6, .size = 1, .a = 5), OP(COUNT, .number = 0x48, .b = 6));
}

static void test_control(void **state)
{
	(void)state;
	EXPECT("a branch that is decided", "count [v0 + 0x48], 1\n",
	       OP(CONST, .result = 3, .number = 1),
	       OP(IF, .a = 3, .condition = ARCH_TEST_NE, .label = 1),
	       OP(COUNT, .number = 0x40, .immediate = 1), OP(LABEL, .label = 1),
	       OP(COUNT, .number = 0x48, .immediate = 1));
	EXPECT("a test and its branch", "if v1 < v2 -> L1\ncount [v0 + 0x40], 1\nlabel L1\n",
	       OP(TEST, .result = 3, .a = 1, .b = 2, .condition = ARCH_TEST_GE),
	       OP(IF, .a = 3, .label = 1), OP(COUNT, .number = 0x40, .immediate = 1),
	       OP(LABEL, .label = 1));
	EXPECT("a branch over a jump", "if v1 != 0 -> L2\ncount [v0 + 0x40], 1\nlabel L2\n",
	       OP(IF, .a = 1, .label = 1), OP(JUMP, .label = 2), OP(LABEL, .label = 1),
	       OP(COUNT, .number = 0x40, .immediate = 1), OP(LABEL, .label = 2));
	EXPECT("what was asked before",
	       "if v1 <= 7 -> L1\ncount [v0 + 0x40], 1\ncount [v0 + 0x48], 1\nlabel L1\n",
	       OP(IF, .a = 1, .condition = ARCH_TEST_LE, .immediate = 7, .label = 1),
	       OP(COUNT, .number = 0x40, .immediate = 1),
	       OP(IF, .a = 1, .condition = ARCH_TEST_EQ, .immediate = 7, .label = 1),
	       OP(COUNT, .number = 0x48, .immediate = 1), OP(LABEL, .label = 1));
	EXPECT("jumps to jumps, and to what follows", "", OP(JUMP, .label = 1),
	       OP(COUNT, .immediate = 1), OP(LABEL, .label = 1), OP(JUMP, .label = 2),
	       OP(LABEL, .label = 2), OP(IF, .a = 1, .label = 3), OP(LABEL, .label = 3));
}

/* What is not as program.h says is not touched. */
static void test_unsound(void **state)
{
	struct arch_op ops[] = {OP(LABEL, .label = 1), OP(CONST, .result = 3),
				OP(JUMP, .label = 1)};
	struct arch_program p = {.ops = ops, .count = 3, .values = 3, .labels = 1};

	(void)state;
	arch_program_optimise(&p);
	assert_int_equal(p.count, 3);
	ops[2].label = 9;
	arch_program_optimise(&p);
	assert_int_equal(p.count, 3);
	p.values = 2;
	ops[2].kind = ARCH_OP_NONE;
	arch_program_optimise(&p);
	assert_int_equal(p.count, 3);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Three microseconds for thirty operations is what planning can afford; told, and bounded loosely
 * because machines that test are busy. */
static void test_speed(void **state)
{
	enum { PROGRAMS = 200, ROUNDS = 30 };
	static struct maker made[PROGRAMS];
	struct arch_op copy[ARCH_PROGRAM_OPS];
	uint64_t ops = 0, best = UINT64_MAX;

	(void)state;
	seed = 77;
	for (unsigned i = 0; i < PROGRAMS; ops += made[i++].p.count)
		do
			make(&made[i]);
		while (made[i].p.count < 15 || made[i].p.count > 45);
	for (unsigned round = 0; round < ROUNDS; round++) {
		const uint64_t from = now_ns();
		uint64_t ns;

		for (unsigned i = 0; i < PROGRAMS; i++) {
			struct arch_program p = made[i].p;

			memcpy(copy, made[i].ops, p.count * sizeof(copy[0]));
			p.ops = copy;
			arch_program_optimise(&p);
		}
		ns = now_ns() - from;
		best = ns < best ? ns : best;
	}
	print_message("%.0f ns for 30 operations\n", 30.0 * (double)best / (double)ops);
	assert_true(best / ops < 5000 * SLOWER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_arithmetic), cmocka_unit_test(test_guards),
		cmocka_unit_test(test_control),	   cmocka_unit_test(test_unsound),
		cmocka_unit_test(test_random),	   cmocka_unit_test(test_speed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
