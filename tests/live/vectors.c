/* SPDX-License-Identifier: MIT */
/*
 * vectors.c - attaching, inserting and removing beside threads that have known
 * values in every register that is not a general one.
 */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "tests/live/harness_session.h"

enum { THREADS = 3, ATTACHES = 6, INSERTS = 40 };

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/*
 * fear B5, D4: zmm0-31, k0-7, the x87 stack, MXCSR and the control word in spinning threads, during
 * attach and detach with an arena made each time, and hundreds of inserts and removals
 */
static void test_spinning(void **state)
{
	struct harness *h = *state;
	unsigned long before = 0, after = 0, components = 0;
	uint64_t end = now_ms() + 10000;

	harness_start(h, "vectors", harness_number(THREADS), NULL);
	harness_send(h, "components\n");
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "components %lx", &components),
			 1);
	print_message("components %#lx of the state are compared\n", components);
	harness_send(h, "rounds\n");
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "rounds %lu", &before), 1);
	/* As many as a busy machine has time for. */
	for (int attach = 0; attach < ATTACHES && (!attach || now_ms() < end); attach++) {
		static const char *const foci[] = {"vector_tick", "vector_*", "/Code/vectors/*"};
		static const enum point_kind kinds[] = {POINT_ENTRY, POINT_EXIT, POINT_INSTRUCTION,
							POINT_BLOCK, POINT_STORE};
		struct session *s = session_begin(h);

		for (int i = 0; i < INSERTS && (i < 5 || now_ms() < end); i++) {
			unsigned id = session_insert_kind(s, foci[i % 3], kinds[i % 5]);

			usleep(500);
			session_remove(s, id);
			if (i % 4 == 0)
				session_flush_all(s);
		}
		/* Per-thread state and clocks, too: rdtsc and what is measured around calls. */
		session_insert(s, "vector_tick");
		usleep(2000);
		session_end(s);
	}
	harness_send(h, "rounds\n");
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "rounds %lu", &after), 1);
	print_message("%lu comparisons\n", after - before);
	assert_true(after - before > 50);
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {CASE(test_spinning)};

	return cmocka_run_group_tests_name("live/vectors", tests, NULL, NULL);
}
