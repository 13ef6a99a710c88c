/* SPDX-License-Identifier: MIT */
/*
 * arch_program_random.h - random programs, and what they do to memory, for tests
 * that execute them: arch_program.c on x86-64, aarch64/program.c.
 */
#ifndef DINST_TESTS_UNIT_ARCH_PROGRAM_RANDOM_H
#define DINST_TESTS_UNIT_ARCH_PROGRAM_RANDOM_H

#include <string.h>

#include "arch/program.h"

/* Memory that programs use, in this order in one piece of RANDOM_SIZE bytes; counters are apart. */
enum {
	RANDOM_WORDS = 4096, /* bytes that are loaded and stored */
	RANDOM_RESULTS = RANDOM_WORDS,
	RANDOM_TABLE = RANDOM_RESULTS + 8 * (ARCH_PROGRAM_VALUES + 1),
	RANDOM_TABLE_SHIFT = 5,
	RANDOM_SIZE = 1 << 14,
	RANDOM_COUNTERS = 8,
};

/* Where that is, and what programs may ask for. */
struct random_places {
	taddr_t memory, counters;
	/* Numbers of arguments, vector arguments, results, vector results, words of the stack, and
	 * whether there are the stack's pointer and the caller; registers that calls preserve. */
	uint8_t inputs[8];
};

/* --------------------------------------------------------------- the judge */

static uint8_t random_shadow[RANDOM_SIZE];
static uint64_t random_counts[RANDOM_COUNTERS];

static inline bool random_load(const struct random_places *places, taddr_t address, uint64_t *word,
			       size_t size)
{
	const uint64_t at = address - places->memory;

	*word = 0;
	if (at > RANDOM_SIZE - 8)
		return false;
	memcpy(word, random_shadow + at, size);
	return true;
}

static inline bool random_store(const struct random_places *places, taddr_t address, uint64_t word,
				size_t size)
{
	const uint64_t at = address - places->memory;

	if (at > RANDOM_SIZE - 8)
		return false;
	memcpy(random_shadow + at, &word, size);
	return true;
}

static inline void random_count(const struct random_places *places, taddr_t address, uint64_t by)
{
	random_counts[(address - places->counters) / 8 % RANDOM_COUNTERS] += by;
}

static inline uint64_t random_find(uint64_t key)
{
	struct arch_table *t = (struct arch_table *)(void *)(random_shadow + RANDOM_TABLE);
	uint64_t place = arch_table_hash(key, RANDOM_TABLE_SHIFT);

	for (unsigned i = 0; i < ARCH_TABLE_PROBE && key != UINT64_MAX; i++) {
		if (!t->keys[place])
			t->keys[place] = key + 1;
		if (t->keys[place] == key + 1)
			return place + 1;
		place = (place + 1) & ((1u << RANDOM_TABLE_SHIFT) - 1);
	}
	t->full++;
	return 0;
}

/* ------------------------------------------------------------- the writer */

/* Where chance comes from; set before anything is written. */
static uint64_t (*random_number)(void);

struct writer {
	struct arch_program *p;
	const struct random_places *places;
	unsigned values; /* numbers that may be used */
	bool set[ARCH_PROGRAM_VALUES + 1];
	unsigned left; /* operations still to be written */
	unsigned labels;
};

static unsigned choose(unsigned n)
{
	return (unsigned)(random_number() >> 33) % n;
}

static uint16_t any_set(const struct writer *w)
{
	for (unsigned i = 0; i < 64; i++) {
		unsigned v = 1 + choose(w->values);

		if (w->set[v])
			return (uint16_t)v;
	}
	for (unsigned v = 1; v <= w->values; v++)
		if (w->set[v])
			return (uint16_t)v;
	return 0;
}

static uint16_t any_value(const struct writer *w)
{
	return (uint16_t)(1 + choose(w->values));
}

static int32_t any_number(void)
{
	static const int32_t numbers[] = {0,   1,   -1,	 2,    8,	  63,	     64,
					  127, 128, 255, -128, INT32_MAX, INT32_MIN, 1 << 20};
	const unsigned n = sizeof(numbers) / sizeof(numbers[0]);

	return choose(3) ? numbers[choose(n)] : (int32_t)random_number();
}

static uint64_t any_word(void)
{
	static const uint64_t words[] = {0,	     1,		 UINT64_MAX, INT64_MAX,
					 1ull << 63, 1ull << 32, UINT32_MAX, INT32_MAX};

	switch (choose(3)) {
	case 0:
		return words[choose(8)];
	case 1:
		return (uint64_t)(int64_t)any_number();
	default:
		return random_number() >> choose(64);
	}
}

/* Sets a value by one operation. */
static void write_op(struct writer *w, struct arch_op op)
{
	if (op.result > w->p->values)
		w->p->values = op.result;
	if (op.label > w->p->labels)
		w->p->labels = op.label;
	w->p->ops[w->p->count++] = op;
	if (op.result)
		w->set[op.result] = true;
	if (w->left)
		w->left--;
}

static void write_arithmetic(struct writer *w)
{
	static const uint8_t sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 0};
	struct arch_op op = {
		.kind = (uint8_t)(ARCH_OP_COPY + choose(ARCH_OP_ARGUMENT - ARCH_OP_COPY)),
		.result = any_value(w),
		.a = choose(40) ? any_set(w) : 0,
		.b = choose(2) ? any_set(w) : 0,
		.immediate = any_number(),
		.condition = (uint8_t)choose(ARCH_TEST_ABOVE_EQUAL + 1),
		.is_signed = choose(2),
	};

	op.size = op.kind == ARCH_OP_EXTEND ? sizes[choose(9)] : 0;
	write_op(w, op);
}

static void write_input(struct writer *w)
{
	const unsigned which = choose(8), limit = w->places->inputs[which];
	struct arch_op op = {.kind = (uint8_t)(ARCH_OP_ARGUMENT + which), .result = any_value(w)};

	if (!limit)
		return;
	op.number = op.kind == ARCH_OP_STACK ? 8 * choose(limit) : choose(limit);
	write_op(w, op);
}

static void write_const(struct writer *w)
{
	write_op(w, (struct arch_op){
			    .kind = ARCH_OP_CONST, .result = any_value(w), .number = any_word()});
}

/* An address inside of `size` bytes at `base`: absolute, or by a value. */
static void write_address(struct writer *w, struct arch_op *op, taddr_t base, unsigned size)
{
	uint16_t v;

	op->number = base + 8 * choose(size / 8);
	if (choose(2))
		return;
	v = any_value(w);
	if (choose(2) && any_set(w)) {
		write_op(w, (struct arch_op){.kind = ARCH_OP_AND,
					     .result = v,
					     .a = any_set(w),
					     .immediate = (int32_t)(size - 8)});
		op->number = base;
		op->a = v;
		return;
	}
	write_op(w, (struct arch_op){.kind = ARCH_OP_CONST, .result = v, .number = op->number - 8});
	op->number = 8;
	op->a = v;
	if (op->kind != ARCH_OP_COUNT && choose(4) == 0) { /* a number of more than 32 bits */
		w->p->ops[w->p->count - 1].number -= 1ull << 40;
		op->number += 1ull << 40;
	}
}

static void write_memory(struct writer *w)
{
	static const uint8_t sizes[] = {1, 2, 4, 8};
	struct arch_op op = {
		.kind = (uint8_t)(ARCH_OP_LOAD + choose(ARCH_OP_ATOMIC_STORE + 1 - ARCH_OP_LOAD)),
		.is_signed = choose(2),
		.immediate = any_number()};

	op.size = op.kind == ARCH_OP_LOAD || op.kind == ARCH_OP_STORE ? sizes[choose(4)] : 0;
	write_address(w, &op, w->places->memory, RANDOM_WORDS);
	if (op.kind == ARCH_OP_LOAD || (op.kind == ARCH_OP_FETCH_ADD && choose(2)))
		op.result = any_value(w);
	if (op.kind != ARCH_OP_LOAD && choose(2))
		op.b = any_set(w);
	write_op(w, op);
}

static void write_count(struct writer *w)
{
	struct arch_op op = {.kind = ARCH_OP_COUNT, .immediate = choose(2) ? 1 : any_number()};

	write_address(w, &op, w->places->counters, 8 * RANDOM_COUNTERS);
	if (choose(2))
		op.b = any_set(w);
	write_op(w, op);
}

static void write_find(struct writer *w)
{
	const uint16_t key = any_value(w);

	if (!any_set(w))
		return;
	write_op(w, (struct arch_op){.kind = ARCH_OP_AND,
				     .result = key,
				     .a = any_set(w),
				     .immediate = choose(4) ? 63 : -1});
	write_op(w, (struct arch_op){.kind = ARCH_OP_FIND,
				     .result = choose(8) ? any_value(w) : 0,
				     .a = key,
				     .number = w->places->memory + RANDOM_TABLE,
				     .immediate = RANDOM_TABLE_SHIFT});
}

static void write_block(struct writer *w, unsigned depth);

/* What is set on one way only is not set behind it. */
static void write_branch(struct writer *w, unsigned depth)
{
	const uint16_t other = (uint16_t)++w->labels, end = (uint16_t)++w->labels;
	bool before[ARCH_PROGRAM_VALUES + 1];
	struct arch_op op = {.kind = ARCH_OP_IF,
			     .a = any_set(w),
			     .b = choose(2) ? any_set(w) : 0,
			     .immediate = any_number(),
			     .condition = (uint8_t)choose(ARCH_TEST_ABOVE_EQUAL + 1),
			     .label = other};

	memcpy(before, w->set, sizeof(before));
	write_op(w, op);
	write_block(w, depth + 1);
	memcpy(w->set, before, sizeof(before));
	if (choose(2)) {
		write_op(w, (struct arch_op){.kind = ARCH_OP_JUMP, .label = end});
		write_op(w, (struct arch_op){.kind = ARCH_OP_LABEL, .label = other});
		write_block(w, depth + 1);
		memcpy(w->set, before, sizeof(before));
		write_op(w, (struct arch_op){.kind = ARCH_OP_LABEL, .label = end});
	} else {
		write_op(w, (struct arch_op){.kind = ARCH_OP_LABEL, .label = other});
	}
}

static void write_block(struct writer *w, unsigned depth)
{
	unsigned count = 1 + choose(12);

	while (count-- && w->left > 8) {
		switch (choose(12)) {
		case 0:
			write_const(w);
			break;
		case 1:
			write_input(w);
			break;
		case 2:
			write_memory(w);
			break;
		case 3:
			write_count(w);
			break;
		case 4:
			write_find(w);
			break;
		case 5:
			if (depth < 4 && w->labels + 2 <= ARCH_PROGRAM_LABELS)
				write_branch(w, depth);
			break;
		default:
			write_arithmetic(w);
		}
	}
}

/* Everything that is known at the end goes to memory, where it can be compared. */
static inline void write_program(struct arch_program *p, const struct random_places *places)
{
	static const uint8_t pressures[] = {2, 4, 8, 12, 24, 60};
	struct writer w = {.p = p, .places = places};
	unsigned first;

	w.values = pressures[choose(sizeof(pressures))];
	w.left = 10 + choose(ARCH_PROGRAM_OPS - 2 * w.values - 30);
	first = 1 + choose(w.values);
	write_const(&w);
	for (unsigned i = 0; i < first; i++)
		choose(2) ? write_const(&w) : write_input(&w);
	while (w.left > 20)
		write_block(&w, 0);
	for (unsigned v = 1; v <= w.values; v++)
		if (w.set[v] && choose(4))
			write_op(&w, (struct arch_op){.kind = ARCH_OP_STORE,
						      .size = 8,
						      .b = (uint16_t)v,
						      .number = places->memory + RANDOM_RESULTS +
								8 * v});
}

#endif
