/* SPDX-License-Identifier: MIT */
/*
 * cmocka.h - as much of cmocka as the tests need that are also run under qemu,
 * where there is no cmocka. A failure ends the program with 1.
 */
#ifndef DINST_TESTS_UNIT_AARCH64_CMOCKA_H
#define DINST_TESTS_UNIT_AARCH64_CMOCKA_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct CMUnitTest {
	const char *name;
	void (*test)(void **state);
};

#define cmocka_unit_test(function)  \
	{                           \
#function, function \
	}

#define fail_msg(...)                                           \
	do {                                                    \
		fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
		fprintf(stderr, __VA_ARGS__);                   \
		fprintf(stderr, "\n");                          \
		exit(1);                                        \
	} while (0)
#define assert_true(condition)                      \
	do {                                        \
		if (!(condition))                   \
			fail_msg("%s", #condition); \
	} while (0)
#define assert_false(condition) assert_true(!(condition))
#define assert_null(pointer)	assert_true(!(pointer))
#define assert_ptr_equal(a, b)	assert_true((a) == (b))
#define assert_int_equal(a, b)	assert_true((uint64_t)(a) == (uint64_t)(b))
#define print_message(...)	printf(__VA_ARGS__)

#define cmocka_run_group_tests(tests, setup, teardown) \
	run_all(tests, sizeof(tests) / sizeof((tests)[0]), setup)

static inline int run_all(const struct CMUnitTest *tests, size_t count, int (*setup)(void **))
{
	void *state = NULL;

	if (setup(&state))
		return 1;
	for (size_t i = 0; i < count; i++) {
		printf("%s\n", tests[i].name);
		fflush(stdout);
		tests[i].test(&state);
	}
	return 0;
}

#endif
