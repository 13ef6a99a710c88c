/* SPDX-License-Identifier: MIT */
/*
 * loading.c - attaching to threads that are in the loader and in malloc nearly
 * all the time. Nothing of either is used in the target, so nobody waits for a lock
 * that is held by a stopped thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/live/harness_session.h"

/* As many as there is time for, and no fewer. */
enum { THREADS = 4, ATTACHES = 10 };

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void read_turns(struct harness *h, pid_t turns[THREADS])
{
	const char *line;

	harness_send(h, "turns\n");
	line = harness_line(h, HARNESS_ANSWER_MS);
	assert_int_equal(strncmp(line, "turns ", 6), 0);
	for (int i = 0; i < THREADS; i++) {
		line = strchr(line, ' ') + 1;
		turns[i] = atoi(line);
	}
}

/* True when each thread has done another turn. */
static void expect_progress(struct harness *h, pid_t turns[THREADS])
{
	for (uint64_t end = now_ms() + 30000; now_ms() < end;) {
		const struct timespec tick = {.tv_nsec = 2000000};
		pid_t now[THREADS];
		bool all = true;

		read_turns(h, now);
		for (int i = 0; i < THREADS; i++)
			all &= now[i] > turns[i];
		if (all) {
			memcpy(turns, now, sizeof(now));
			return;
		}
		nanosleep(&tick, NULL);
	}
	fail_msg("a thread is stuck");
}

/*
 * fear B1, B2, G4: four threads in dlopen, dlclose, malloc and free all the time, attached to at least
 * ten times with arenas made and code of libc and the loader patched: each goes on after each
 */
static void test_locks(void **state)
{
	static const char *const foci[] = {"/Code/libc.so.6/*alloc*",
					   "/Code/ld-linux-x86-64.so.2/*", "/Code/libc.so.6/*dl*"};
	uint64_t end = now_ms() + (getenv("DINST_SHORT") ? 2000 : 6000);
	pid_t turns[THREADS] = {0};
	struct harness *h = *state;
	unsigned attaches = 0;

	harness_start(h, "loading", harness_number(THREADS), NULL);
	expect_progress(h, turns);
	while (now_ms() < end || attaches < ATTACHES) {
		struct session *s = session_begin(h);

		session_insert_kind(s, foci[attaches++ % 3], POINT_ENTRY);
		session_end(s);
		expect_progress(h, turns);
	}
	print_message("%u attaches\n", attaches);
	harness_end(h, 0);
}

/*
 * fear B1: the same a hundred times (hostile/longer.sh: a thousand), with little that is inserted:
 * system calls are made in threads that hold those locks, code comes and goes; all go on
 */
static void test_often(void **state)
{
	pid_t turns[THREADS] = {0};
	const uint64_t attaches = harness_setting("LOADING_ATTACHES", 100);
	struct harness *h = *state;

	harness_limit(HARNESS_SECONDS + (unsigned)attaches);
	harness_start(h, "loading", harness_number(THREADS), NULL);
	expect_progress(h, turns);
	for (uint64_t i = 0; i < attaches; i++) {
		struct session *s = session_begin(h);

		session_insert(s, "work");
		session_end(s);
		if (i % 10 == 9)
			expect_progress(h, turns);
	}
	harness_verify_what(h, HARNESS_TEXT | HARNESS_THREADS | HARNESS_SIGNALS | HARNESS_FDS);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

/* loading [CASES]: those whose names it fits */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {CASE(test_locks), CASE(test_often)};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("live/loading", tests, NULL, NULL);
}
