/* SPDX-License-Identifier: MIT */
/*
 * vectors.c - attaching, inserting and removing beside threads that have known
 * values in every register that is not a general one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mutator/request.h"
#include "tests/live/harness_session.h"

enum { THREADS = 3, ATTACHES = 6, INSERTS = 40 };

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void insert_stream(struct session *s)
{
	static const char text[] =
		"metric ticks { name \"ticks\"; units events; style EventCounter;\n"
		"	base is stream { foreach f in functions {\n"
		"		append preInsn f.entry (* record(ticks, $arg[0]); *)\n"
		"		append preInsn f.return (* record(ticks, $return); *) } } }\n"
		"list functions is procedure { items { \"vector_tick\" }; }\n";
	struct insert_result result;
	struct dinst_error e = {0};

	if (session_load_mdl(s, "ticks.mdl", text, strlen(text), &e) < 0 ||
	    request_insert(s, "ticks", NULL, 0, NULL, &result, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(result.count, 1);
	harness_until(session_value(s, result.instances[0]->id) > 0);
	free(result.instances);
}

/* Per-thread state, clocks and events, too: rdtsc, system calls, and what is measured around calls. */
static void insert_state(struct session *s)
{
	static const char *const metrics[] = {"latency", "wall_inclusive", "cpu", "active"};

	for (size_t i = 0; i < sizeof(metrics) / sizeof(*metrics); i++) {
		const struct instance *m =
			session_insert_metric(s, metrics[i], "vector_tick", NULL);

		if (strcmp(metrics[i], "active"))
			harness_until(session_value(s, m->id) > 0);
	}
	if (harness_has_clock(false))
		insert_stream(s);
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
		insert_state(s);
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
