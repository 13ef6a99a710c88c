/* SPDX-License-Identifier: MIT */
/*
 * storms.c - many threads at full speed through windows of one-byte
 * instructions, across cache lines and across pages, which are patched and
 * restored all the time. Each instruction changes the result.
 *
 * Environment: STORM_MS, STORM_CHANGES (both at least), STORM_THREADS, STORM_SEED. A stop waits for every thread to
 * get a CPU, so with 32 of them on few CPUs the changes are few.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mutator/request.h"
#include "tests/live/harness_session.h"

static const char *const names[] = {"five", "crossing", "straddle_in", "straddle_out", "padded"};

enum { ALL = 2 * sizeof(names) / sizeof(*names) };

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void ask(struct harness *h, const char *command, const char *answer)
{
	char text[64];

	snprintf(text, sizeof(text), "%s\n", command);
	harness_send(h, text);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), answer);
}

/* Puts a point in or takes it out; what lies across pages may be refused. */
static void change(struct session *s, unsigned which, unsigned *id)
{
	struct dinst_error e = {0};
	int status;

	if (*id) {
		session_remove(s, *id);
		*id = 0;
		return;
	}
	if (which / 2 != 1 && which / 2 != 4) {
		*id = session_insert_kind(s, names[which / 2], (enum point_kind)(which & 1));
		return;
	}
	status = session_try_insert_kind(s, names[which / 2], (enum point_kind)(which & 1), id, &e);
	if (status < 0 && status != DINST_REFUSED && status != DINST_BUSY)
		fail_msg("%s", e.text);
	if (status < 0)
		*id = 0;
}

enum { CHANGES_MIN = 60 };

/*
 * fear C1, C7: 10 threads (hostile/windows.sh: 2 to 32) in windows of one-byte instructions, in
 * windows across a cache line and across a page, with and without code in the second one: inserted and removed in any order, no wrong
 * result, no signal, counts exact in the end
 */
static void test_storm(void **state)
{
	unsigned long ms = harness_setting("STORM_MS", getenv("DINST_SHORT") ? 1000 : 2000);
	unsigned long threads = harness_setting("STORM_THREADS", 10), changes = 0;
	const unsigned long least = harness_setting("STORM_CHANGES", CHANGES_MIN);
	uint64_t until;
	unsigned short seed[3] = {(unsigned short)harness_setting("STORM_SEED", 1), 0, 0};
	struct harness *h = *state;
	unsigned ids[ALL] = {0};
	struct session *s;
	unsigned id;

	harness_limit(HARNESS_SECONDS + (unsigned)(ms / 1000 + least / 20));
	harness_start(h, "windows", harness_number((int64_t)threads), NULL);
	s = session_begin(h);
	assert_int_equal(session_address(s, "straddle_in") % 64, 62);
	assert_int_equal(session_address(s, "straddle_out") % 64, 23);
	assert_int_equal(session_address(s, "padded") % 4096, 4093);
	ask(h, "start all", "started");
	until = now_ms() + ms;
	for (unsigned long turn = 0; now_ms() < until || changes < least; turn++) {
		for (int i = 0; i < 4; i++) {
			unsigned which = (unsigned)(nrand48(seed) % ALL), was = ids[which];

			change(s, which, &ids[which]);
			changes += ids[which] != was;
		}
		if (turn % 3 == 0)
			session_flush_all(s);
		if (turn % 8 == 0)
			request_retry_pending(s);
	}
	for (unsigned which = 0; which < ALL; which++)
		if (ids[which])
			session_remove(s, ids[which]);
	session_flush_all(s);
	ask(h, "end", "ended");
	id = session_insert_kind(s, "straddle_in", POINT_ENTRY);
	ask(h, "go 5000 straddle_in", "done");
	assert_int_equal(session_value(s, id), threads * 5000);
	print_message("%lu changes under %lu threads\n", changes, threads);
	session_end(s);
	ask(h, "go 100 all", "done");
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {CASE(test_storm)};

	return cmocka_run_group_tests_name("live/storms", tests, NULL, NULL);
}
