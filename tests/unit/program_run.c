/* SPDX-License-Identifier: MIT */
/*
 * program_run.c - the interpreter of programs: every operation against what
 * program.h says of it, written down by hand.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdbool.h>
#include <string.h>
#include <cmocka.h>

#include "arch/program.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* Memory of 64 bytes at address 0x1000. */
struct world {
	uint8_t memory[64];
	unsigned asked;
	struct arch_op last;
	uint64_t last_a, last_b;
};

static bool load(void *arg, taddr_t address, uint64_t *word, size_t size)
{
	struct world *w = arg;

	if (address < 0x1000 || address + size > 0x1000 + sizeof(w->memory))
		return false;
	memcpy(word, w->memory + (address - 0x1000), size);
	return true;
}

static bool store(void *arg, taddr_t address, uint64_t word, size_t size)
{
	struct world *w = arg;

	if (address < 0x1000 || address + size > 0x1000 + sizeof(w->memory))
		return false;
	memcpy(w->memory + (address - 0x1000), &word, size);
	return true;
}

static bool other(void *arg, const struct arch_op *op, uint64_t a, uint64_t b, uint64_t *result,
		  uint64_t *second)
{
	struct world *w = arg;

	w->asked++;
	w->last = *op;
	w->last_a = a;
	w->last_b = b;
	*result = 41;
	*second = 42;
	return op->kind != ARCH_OP_PROCESS;
}

static bool run(struct world *w, struct arch_op *ops, size_t count, uint64_t *values)
{
	const struct arch_program p = {.ops = ops, .count = (uint16_t)count, .values = 15};
	const struct arch_machine m = {w, load, store, other};

	return arch_program_run(&p, &m, values);
}

static uint64_t word_at(const struct world *w, unsigned offset)
{
	uint64_t word;

	memcpy(&word, w->memory + offset, 8);
	return word;
}

/* clang-format off */
static const struct {
	uint8_t kind;
	uint64_t a, b, want;
} arithmetic[] = {
	{ARCH_OP_COPY, 7, 0, 7},
	{ARCH_OP_ADD, UINT64_MAX, 2, 1},
	{ARCH_OP_SUB, 1, 2, UINT64_MAX},
	{ARCH_OP_MUL, 0x100000001, 0x100000001, 0x200000001},
	{ARCH_OP_MUL_HIGH, UINT64_MAX, UINT64_MAX, UINT64_MAX - 1},
	{ARCH_OP_DIV, (uint64_t)-7, 2, (uint64_t)-3},
	{ARCH_OP_DIV, 7, 0, 0},
	{ARCH_OP_DIV, 1ull << 63, UINT64_MAX, 1ull << 63},
	{ARCH_OP_DIV_UNSIGNED, (uint64_t)-7, 2, 0x7ffffffffffffffc},
	{ARCH_OP_DIV_UNSIGNED, 7, 0, 0},
	{ARCH_OP_REM, (uint64_t)-7, 2, (uint64_t)-1},
	{ARCH_OP_REM, 7, 0, 0},
	{ARCH_OP_REM, 1ull << 63, UINT64_MAX, 0},
	{ARCH_OP_REM_UNSIGNED, UINT64_MAX, 10, 5},
	{ARCH_OP_REM_UNSIGNED, 7, 0, 0},
	{ARCH_OP_AND, 12, 10, 8},
	{ARCH_OP_OR, 12, 10, 14},
	{ARCH_OP_XOR, 12, 10, 6},
	{ARCH_OP_SHL, 3, 65, 6},
	{ARCH_OP_SHR, 1ull << 63, 63, 1},
	{ARCH_OP_SAR, 1ull << 63, 63, UINT64_MAX},
	{ARCH_OP_NEG, 5, 0, (uint64_t)-5},
	{ARCH_OP_NOT, 0, 0, UINT64_MAX},
	{ARCH_OP_LOG2, 0, 0, 0},
	{ARCH_OP_LOG2, 1, 0, 0},
	{ARCH_OP_LOG2, UINT64_MAX, 0, 63},
	{ARCH_OP_LOG2, 4096, 0, 12},
};
/* clang-format on */

static void test_arithmetic(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(arithmetic); i++) {
		struct arch_op op = {.kind = arithmetic[i].kind, .a = 1, .b = 2, .result = 3};
		uint64_t values[16] = {0, arithmetic[i].a, arithmetic[i].b};
		char text[96];

		arch_op_format(&op, text, sizeof(text));
		assert_true(run(NULL, &op, 1, values));
		if (values[3] != arithmetic[i].want)
			fail_msg("%s: %#lx", text, (unsigned long)values[3]);
		if ((int64_t)arithmetic[i].b != (int32_t)arithmetic[i].b)
			continue;
		op.b = 0;
		op.immediate = (int32_t)arithmetic[i].b;
		values[3] = 99;
		assert_true(run(NULL, &op, 1, values));
		assert_int_equal(values[3], arithmetic[i].want);
		assert_false(arch_op_has_effect(&op));
	}
}

static void test_extend(void **state)
{
	struct arch_op op = {.kind = ARCH_OP_EXTEND, .a = 1, .result = 2};
	uint64_t values[16] = {0, 0xfedcba98f6d4b291};
	static const uint64_t zeros[] = {[1] = 0x91, [2] = 0xb291, [4] = 0xf6d4b291};

	(void)state;
	for (unsigned size = 1; size <= 4; size *= 2) {
		op.size = (uint8_t)size;
		op.is_signed = false;
		assert_true(run(NULL, &op, 1, values));
		assert_int_equal(values[2], zeros[size]);
		op.is_signed = true;
		assert_true(run(NULL, &op, 1, values));
		assert_int_equal(values[2], zeros[size] | UINT64_MAX << (8 * size));
	}
	op.size = 8;
	assert_true(run(NULL, &op, 1, values));
	assert_int_equal(values[2], values[1]);
}

/* Bit n of the expectation: enum arch_test n. */
static void test_conditions(void **state)
{
	static const struct {
		uint64_t a, b;
		unsigned want;
	} cases[] = {
		{5, 5, 0},
		{5, 6,
		 1 << ARCH_TEST_NE | 1 << ARCH_TEST_LT | 1 << ARCH_TEST_LE | 1 << ARCH_TEST_BELOW |
			 1 << ARCH_TEST_BELOW_EQUAL},
		{UINT64_MAX, 1,
		 1 << ARCH_TEST_NE | 1 << ARCH_TEST_LT | 1 << ARCH_TEST_LE | 1 << ARCH_TEST_ABOVE |
			 1 << ARCH_TEST_ABOVE_EQUAL},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++)
		for (unsigned c = ARCH_TEST_EQ; c <= ARCH_TEST_ABOVE_EQUAL; c++) {
			struct arch_op ops[] = {
				{.kind = ARCH_OP_TEST,
				 .condition = (uint8_t)c,
				 .a = 1,
				 .b = 2,
				 .result = 3},
				{.kind = ARCH_OP_IF,
				 .condition = (uint8_t)c,
				 .a = 1,
				 .b = 2,
				 .label = 1},
				{.kind = ARCH_OP_CONST, .number = 1, .result = 4},
				{.kind = ARCH_OP_LABEL, .label = 1},
			};
			uint64_t values[16] = {0, cases[i].a, cases[i].b};
			const unsigned want = i == 0 ? c == ARCH_TEST_EQ || c == ARCH_TEST_LE ||
							       c == ARCH_TEST_GE ||
							       c == ARCH_TEST_BELOW_EQUAL ||
							       c == ARCH_TEST_ABOVE_EQUAL
						     : cases[i].want >> c & 1;

			assert_true(run(NULL, ops, COUNT(ops), values));
			assert_int_equal(values[3], want);
			assert_int_equal(values[4], !want);
		}
}

static void test_memory(void **state)
{
	struct world w = {.memory = {[0] = 0xff, [8] = 10}};
	struct arch_op ops[] = {
		{.kind = ARCH_OP_LOAD, .size = 1, .is_signed = true, .number = 0x1000, .result = 1},
		{.kind = ARCH_OP_LOAD, .size = 2, .number = 0x1000, .result = 2},
		{.kind = ARCH_OP_CONST, .number = 0x1000, .result = 3},
		{.kind = ARCH_OP_FETCH_ADD, .a = 3, .number = 8, .immediate = -3, .result = 4},
		{.kind = ARCH_OP_ATOMIC_ADD, .a = 3, .number = 8, .b = 4},
		{.kind = ARCH_OP_STORE, .a = 3, .number = 17, .size = 1, .immediate = 0x7f},
		{.kind = ARCH_OP_ATOMIC_MIN, .a = 3, .number = 24, .b = 1},
		{.kind = ARCH_OP_ATOMIC_MAX, .a = 3, .number = 32, .b = 4},
		{.kind = ARCH_OP_ATOMIC_MAX, .a = 3, .number = 32, .b = 1},
		{.kind = ARCH_OP_ATOMIC_STORE, .a = 3, .number = 40, .b = 2},
		{.kind = ARCH_OP_READ, .a = 3, .number = 8, .size = 4, .result = 5, .second = 6},
		{.kind = ARCH_OP_READ, .number = 8, .size = 4, .result = 7, .second = 8},
	};
	uint64_t values[16] = {0, [7] = 9, [8] = 9};

	(void)state;
	assert_true(run(&w, ops, COUNT(ops), values));
	assert_int_equal(values[1], UINT64_MAX);
	assert_int_equal(values[2], 0xff);
	assert_int_equal(values[4], 10);
	assert_int_equal(word_at(&w, 8), 17);
	assert_int_equal(w.memory[17], 0x7f);
	assert_int_equal(w.memory[18], 0);
	assert_int_equal(word_at(&w, 24), UINT64_MAX);
	assert_int_equal(word_at(&w, 32), 10);
	assert_int_equal(word_at(&w, 40), 0xff);
	assert_int_equal(values[5], 17);
	assert_int_equal(values[6], 1);
	assert_int_equal(values[7], 0);
	assert_int_equal(values[8], 0);
	assert_true(arch_op_has_effect(&ops[3]));
	assert_false(arch_op_has_effect(&ops[0]));
	assert_false(arch_op_has_effect(&ops[10]));
	/* An address that is not there ends the run, before anything that follows. */
	ops[0].number = 8;
	assert_false(run(&w, ops, COUNT(ops), values));
}

static void test_others(void **state)
{
	struct world w = {0};
	struct arch_op ops[] = {
		{.kind = ARCH_OP_LEAVE, .number = 12, .result = 1, .second = 2},
		{.kind = ARCH_OP_COUNT, .a = 1, .number = 7, .b = 2},
		{.kind = ARCH_OP_JUMP, .label = 2},
		{.kind = ARCH_OP_PROCESS},
		{.kind = ARCH_OP_LABEL, .label = 1},
		{.kind = ARCH_OP_PROCESS},
		{.kind = ARCH_OP_LABEL, .label = 2},
	};
	uint64_t values[16] = {0};

	(void)state;
	assert_true(run(&w, ops, COUNT(ops), values));
	assert_int_equal(w.asked, 2);
	assert_int_equal(w.last_a, 41);
	assert_int_equal(w.last_b, 42);
	assert_int_equal(values[1], 41);
	assert_int_equal(values[2], 42);
	ops[2].kind = ARCH_OP_NONE;
	assert_false(run(&w, ops, COUNT(ops), values));
	assert_int_equal(w.asked, 5);
	/* A label that is not there. */
	ops[2] = (struct arch_op){.kind = ARCH_OP_JUMP, .label = 9};
	assert_false(run(&w, ops, COUNT(ops), values));
}

static void test_format(void **state)
{
	static const struct {
		struct arch_op op;
		const char *text;
	} cases[] = {
		{{.kind = ARCH_OP_ADD, .result = 3, .a = 1, .immediate = -5}, "v3 = add v1, -5"},
		{{.kind = ARCH_OP_CONST, .result = 3, .number = 7}, "v3 = const 7"},
		{{.kind = ARCH_OP_IF, .a = 3, .condition = ARCH_TEST_LE, .b = 4, .label = 2},
		 "if v3 <= v4 -> L2"},
		{{.kind = ARCH_OP_LABEL, .label = 2}, "label L2"},
		{{.kind = ARCH_OP_LOAD,
		  .size = 4,
		  .is_signed = true,
		  .a = 1,
		  .number = 16,
		  .result = 2},
		 "v2 = load.s32 [v1 + 0x10]"},
		{{.kind = ARCH_OP_ARGUMENT, .number = 2, .result = 5}, "v5 = argument 0x2"},
	};
	char text[96], small[4];

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		arch_op_format(&cases[i].op, text, sizeof(text));
		assert_string_equal(text, cases[i].text);
	}
	arch_op_format(&cases[0].op, small, sizeof(small));
	assert_string_equal(small, "v3 ");
}

/* What was loaded before is there no more where any part of it was written in between. */
static void test_overlap(void **state)
{
	static const struct {
		uint8_t kind, size;
	} writes[] = {
		{ARCH_OP_STORE, 8},	   {ARCH_OP_STORE, 4},	    {ARCH_OP_STORE, 2},
		{ARCH_OP_STORE, 1},	   {ARCH_OP_STORE, 0},	    {ARCH_OP_FETCH_ADD, 8},
		{ARCH_OP_FETCH_ADD, 0},	   {ARCH_OP_ATOMIC_ADD, 8}, {ARCH_OP_ATOMIC_ADD, 0},
		{ARCH_OP_ATOMIC_STORE, 0},
	};

	(void)state;
	for (unsigned n = 0; n < COUNT(writes) * 17 * 4; n++) {
		const uint8_t size = (uint8_t)(1u << n % 4);
		const uint64_t at = n / 4 % 17;
		struct arch_op ops[] = {
			{.kind = ARCH_OP_LOAD, .result = 4, .size = size, .a = 3, .number = at},
			{.kind = ARCH_OP_STORE, .size = 8, .a = 3, .number = 0x28, .b = 4},
			{.kind = writes[n / 68].kind,
			 .size = writes[n / 68].size,
			 .a = 3,
			 .number = 8,
			 .immediate = 0x7f7f7f7f},
			{.kind = ARCH_OP_LOAD, .result = 5, .size = size, .a = 3, .number = at},
			{.kind = ARCH_OP_STORE, .size = 8, .a = 3, .number = 0x30, .b = 5},
		};
		struct arch_program p = {
			.ops = ops, .count = COUNT(ops), .room = COUNT(ops), .values = 5};
		struct world plain = {.memory = {0}}, optimised;
		uint64_t values[16] = {[3] = 0x1000};

		for (unsigned i = 0; i < sizeof(plain.memory); i++)
			plain.memory[i] = (uint8_t)(i * 7 + 1);
		optimised = plain;
		assert_true(run(&plain, ops, COUNT(ops), values));
		arch_program_optimise(&p);
		memset(values, 0, sizeof(values));
		values[3] = 0x1000;
		assert_true(run(&optimised, p.ops, p.count, values));
		assert_memory_equal(optimised.memory, plain.memory, sizeof(plain.memory));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_arithmetic), cmocka_unit_test(test_extend),
		cmocka_unit_test(test_conditions), cmocka_unit_test(test_memory),
		cmocka_unit_test(test_others),	   cmocka_unit_test(test_format),
		cmocka_unit_test(test_overlap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
