/* SPDX-License-Identifier: MIT */
/*
 * sequences.c - restartable sequences of the program's own, in more threads than
 * there are CPUs, while everything that can be instrumented in and around them
 * is, again and again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/live/harness_session.h"
#include "tests/live/harness_thread.h"

enum { THREADS = 6, KINDS = POINT_STORE + 1 };

static const char *const foci[] = {"add_listed", "add_unlisted", "burst", "/Code/sequences/*"};

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static unsigned long ask(struct harness *h, const char *command)
{
	unsigned long added = 0;

	harness_send(h, command);
	sscanf(harness_line(h, HARNESS_ANSWER_MS), "ended %lu", &added);
	return added;
}

/* False where the C library has no rseq. */
static bool begin(struct harness *h)
{
	char text[32];

	snprintf(text, sizeof(text), "%d", THREADS);
	harness_start_argv(
		h, (const char *const[]){harness_path("tests/live/targets/sequences"), text, NULL},
		false);
	/* It says "ready", or it ends. */
	for (int i = 0; i < 100; i++) {
		if (harness_status(h->pid, h->pid, "State:")[0] == 'Z')
			return false;
		usleep(1000);
	}
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ready");
	return true;
}

/* Points strictly inside of a sequence cannot be had, whatever names it. */
static void check_refused(struct session *s, const char *function)
{
	unsigned id = session_insert_kind(s, function, POINT_INSTRUCTION);
	const struct instance *i = session_instance(s, id);
	size_t refused = 0;

	for (size_t n = 0; n < i->refused_count; n++)
		refused += i->refused[n].refusal == REFUSAL_RSEQ;
	if (refused < 9)
		fail_msg("%s: only %zu of its instructions are refused as rseq", function, refused);
	session_remove(s, id);
}

/* fear B6: sequences are known by the section __rseq_cs, and without it by what a handler looks like */
static void test_known(void **state)
{
	struct harness *h = *state;
	struct session *s;

	if (!begin(h)) {
		print_message("SKIP: no restartable sequences here\n");
		skip();
	}
	s = session_begin(h);
	check_refused(s, "add_listed");
	check_refused(s, "add_unlisted");
	session_end(s);
	harness_end(h, 0);
}

/*
 * fear B6: six threads add in sequences of their own while all kinds of points in them and around
 * them are inserted and removed at random, with attaches in between: sums are exact
 */
static void test_sums(void **state)
{
	unsigned long ms = getenv("DINST_SHORT") ? 1500 : 4000;
	unsigned short seed[3] = {5, 0, 0};
	struct harness *h = *state;
	unsigned long changes = 0, additions;

	if (!begin(h)) {
		print_message("SKIP: no restartable sequences here\n");
		skip();
	}
	for (uint64_t until = now_ms() + ms; now_ms() < until || !changes;) {
		struct session *s;

		ask(h, "start\n");
		s = session_begin(h);
		for (int i = 0; i < 12; i++) {
			unsigned what = (unsigned)nrand48(seed);
			struct dinst_error e = {0};
			unsigned id = 0;

			if (session_try_insert_kind(s, foci[what % 4], what / 4 % KINDS, &id, &e) <
			    0)
				continue;
			changes++;
			usleep(2000);
			if (i % 3)
				session_remove(s, id);
			if (i % 4 == 0)
				session_flush_all(s);
		}
		session_end(s);
		ask(h, "end\n");
	}
	additions = ask(h, "end\n");
	print_message("%lu changes, %lu additions\n", changes, additions);
	assert_true(additions > 0);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {CASE(test_known), CASE(test_sums)};

	return cmocka_run_group_tests_name("live/sequences", tests, NULL, NULL);
}
