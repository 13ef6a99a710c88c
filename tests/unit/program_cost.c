/* SPDX-License-Identifier: MIT */
/*
 * program_cost.c - the predicted time of a program is that of its longest way, and of what its
 * operations do to each other.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdbool.h>
#include <cmocka.h>

#include "arch/program.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static uint64_t cost(const struct arch_op *ops, size_t count, const struct arch_environment *env)
{
	const struct arch_program p = {.ops = (struct arch_op *)ops, .count = (uint16_t)count};

	return arch_program_cost(&p, env);
}

static void test_longest_way(void **state)
{
	static const struct arch_op read = {.kind = ARCH_OP_READ, .size = 8},
				    count = {.kind = ARCH_OP_COUNT, .immediate = 1},
				    branch = {.kind = ARCH_OP_IF, .label = 1},
				    jump = {.kind = ARCH_OP_JUMP, .label = 2};
	const struct arch_op short_first[] = {branch, count,
					      jump,   {.kind = ARCH_OP_LABEL, .label = 1},
					      read,   {.kind = ARCH_OP_LABEL, .label = 2}};
	const struct arch_op long_first[] = {branch, read,
					     jump,   {.kind = ARCH_OP_LABEL, .label = 1},
					     count,  {.kind = ARCH_OP_LABEL, .label = 2}};
	const uint64_t of_read = cost(&read, 1, NULL), of_count = cost(&count, 1, NULL),
		       of_branch = cost(&branch, 1, NULL), of_jump = cost(&jump, 1, NULL);

	(void)state;
	assert_true(of_count > 0 && of_read > 10 * of_count);
	assert_int_equal(cost(short_first, COUNT(short_first), NULL), of_branch + of_read);
	assert_int_equal(cost(long_first, COUNT(long_first), NULL), of_branch + of_read + of_jump);
	assert_int_equal(cost(NULL, 0, NULL), 0);
}

static void test_surroundings(void **state)
{
	const struct arch_op count = {.kind = ARCH_OP_COUNT, .immediate = 1},
			     ticks = {.kind = ARCH_OP_CLOCK, .number = ARCH_CLOCK_TICKS},
			     cpu = {.kind = ARCH_OP_CLOCK, .number = ARCH_CLOCK_THREAD};
	/* A tick of a nanosecond: 2^63 * 2 / 2^64. */
	struct arch_environment env = {.ticks_multiplier = 1ull << 63, .ticks_shift = 1};
	uint64_t by_call;

	(void)state;
	by_call = cost(&cpu, 1, &env);
	assert_true(cost(&count, 1, &env) < 5000);
	env.counter.mode = ARCH_COUNT_LOCKED;
	assert_true(cost(&count, 1, &env) > 5000);
	env.thread_clock_by_rseq = true;
	assert_true(cost(&cpu, 1, &env) < by_call);
	/* Measured here, the same each time. */
	assert_true(cost(&ticks, 1, &env) > 0);
	assert_int_equal(cost(&ticks, 1, &env), cost(&ticks, 1, &env));
}

/*
 * fear K3: a counter per CPU changes the word by which a thread knows that its clock still holds: whichever stands
 * first, the program that comes next pays. One that is locked does not.
 */
static void test_thread_clock_beside_counter(void **state)
{
	const struct arch_op count = {.kind = ARCH_OP_COUNT, .immediate = 1},
			     whole = {.kind = ARCH_OP_ATOMIC_ADD, .immediate = 1},
			     cpu = {.kind = ARCH_OP_CLOCK, .number = ARCH_CLOCK_THREAD};
	const struct arch_op before[] = {count, cpu}, behind[] = {cpu, count},
			     beside[] = {whole, cpu};
	struct arch_environment env = {.ticks_multiplier = 1ull << 63, .ticks_shift = 1};
	uint64_t by_call;

	(void)state;
	by_call = cost(&cpu, 1, &env);
	env.thread_clock_by_rseq = true;
	assert_true(cost(&cpu, 1, &env) < by_call);
	assert_int_equal(cost(before, COUNT(before), &env), by_call + cost(&count, 1, &env));
	assert_int_equal(cost(behind, COUNT(behind), &env), by_call + cost(&count, 1, &env));
	assert_int_equal(cost(beside, COUNT(beside), &env),
			 cost(&cpu, 1, &env) + cost(&whole, 1, &env));
	env.counter.mode = ARCH_COUNT_LOCKED;
	assert_int_equal(cost(before, COUNT(before), &env),
			 cost(&cpu, 1, &env) + cost(&count, 1, &env));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_longest_way),
		cmocka_unit_test(test_surroundings),
		cmocka_unit_test(test_thread_clock_beside_counter),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
