/* SPDX-License-Identifier: MIT */
/*
 * golang.c - a Go program: its runtime parks program counters on stacks that
 * belong to no thread, moves stacks, and walks them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/live/harness_session.h"

static void start(struct harness *h)
{
	char command[512], path[128];
	const char *argv[] = {path, NULL};

	if (system("command -v go >/dev/null 2>&1") != 0) {
		print_message("SKIP Go programs: go is not installed\n");
		skip();
	}
	snprintf(path, sizeof(path), "%s/goroutines", h->directory);
	snprintf(command, sizeof(command),
		 "HOME='%s' GOFLAGS= GO111MODULE=off go build -o '%s' "
		 "tests/live/targets/goroutines.go",
		 h->directory, path);
	if (system(command) != 0)
		fail_msg("%s failed", command);
	harness_start_argv(h, argv, true);
}

/*
 * Go's frames have no unwind tables, so its stacks are searched word by word,
 * and a stale word on the stack of a thread that sleeps may keep something for
 * as long as it sleeps. That caution is wanted: the windows are the original
 * all the same, the program runs on, and what stays is told (exit status 3,
 * `dinst repair`).
 */
static void flush_once(struct session *s)
{
	struct dinst_error e = {0};
	struct flush_result result;
	int status = removal_flush(s, &result, &e);

	if (status < 0 && e.code != DINST_BUSY)
		fail_msg("flush: %s", e.text);
}

static void end_session(struct session *s)
{
	struct dinst_error e = {0};
	struct detach_result result;
	int status = session_detach(s, 5, &result, &e);

	if (status < 0 && e.code != DINST_BUSY && !result.left)
		fail_msg("detach: %s", e.text);
	if (result.left)
		print_message("detach: %zu things wait for a stale word\n", result.left);
	session_free(s);
}

/* Detaches; what waits for a stale word is taken out when the goroutines have moved on. */
static void end_whole(struct harness *h, struct session *s)
{
	struct dinst_error e = {0};
	struct detach_result result;
	const int status = session_detach(s, 10, &result, &e);

	if (status < 0 && !result.left)
		fail_msg("detach: %s", e.text);
	session_free(s);
	for (int turn = 0; result.left && turn < 20; turn++) {
		struct leftovers found = {0};
		struct target *t;

		session_go(h, 1);
		dinst_error_clear(&e);
		if (target_open(h->pid, &t, &e) < 0)
			fail_msg("open: %s", e.text);
		if (leftovers_clean(t, 2000, &found, &e) >= 0 && !found.arenas_left)
			result.left = 0;
		target_close(t);
	}
	assert_int_equal(result.left, 0);
}

/* Counts the exits of a function; 0 where they are refused, in a named way. */
static unsigned exits_of(struct session *s, const char *function)
{
	struct dinst_error e = {0};
	unsigned id = 0;

	if (session_try_insert_kind(s, function, POINT_EXIT, &id, &e) >= 0)
		return id;
	assert_int_equal(e.code, DINST_REFUSED);
	if (!strstr(e.text, refusal_name(REFUSAL_BRANCH_TARGET)) &&
	    !strstr(e.text, refusal_name(REFUSAL_NO_ROOM)))
		fail_msg("%s", e.text);
	return 0;
}

/*
 * Call sites are single instructions, so they can be had; an entry of several short ones
 * cannot, since a goroutine may have been taken off its thread between two of them.
 *
 * fear H1: exact counts of calls in goroutines on moving stacks, and the text is as before
 */
static void test_counts(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	unsigned calls, exits[2], entries = 0;
	struct session *s;
	uint64_t value;

	start(h);
	s = session_begin(h);
	calls = session_insert_kind(s, "main.spin", POINT_CALL);
	exits[0] = exits_of(s, "main.spin");
	exits[1] = exits_of(s, "main.grow");
	if (session_try_insert_kind(s, "main.leaf", POINT_ENTRY, &entries, &e) < 0)
		assert_int_equal(e.code, DINST_REFUSED);
	session_go(h, 5);
	/* 20000 a call of spin, and now and then the call that lets the stack grow. */
	value = session_value(s, calls);
	assert_in_range(value, 8 * 5 * 20000, 8 * 5 * 20000 + 1000);
	/* One returns where its loop ends, which leaves room for one instruction only. */
	assert_true(exits[0] || exits[1]);
	if (exits[0])
		assert_int_equal(session_value(s, exits[0]), 8 * 5);
	if (exits[1])
		assert_int_equal(session_value(s, exits[1]), 8 * 5 * 101);
	if (!e.code)
		assert_int_equal(session_value(s, entries), 8 * 5 * 20000);
	end_whole(h, s);
	/* Its runtime makes threads and maps memory when it likes. */
	harness_verify_what(h, HARNESS_TEXT);
	session_go(h, 5);
	harness_end(h, 0);
}

/* fear H1: all of a Go program in and out while its runtime preempts, grows stacks and collects */
static void test_churn(void **state)
{
	static const char *const foci[] = {"main.*", "runtime.*", "*", "main.leaf"};
	struct harness *h = *state;
	unsigned inserted = 0;
	struct session *s;

	start(h);
	s = session_begin(h);
	harness_send(h, "go 200\n");
	for (int turn = 0; turn < 24; turn++) {
		struct dinst_error e = {0};
		unsigned id;
		int status = session_try_insert_kind(s, foci[turn % 4], (enum point_kind)(turn % 3),
						     &id, &e);

		if (status < 0 && e.code != DINST_REFUSED && e.code != DINST_BUSY &&
		    e.code != DINST_NO_FUNCTION)
			fail_msg("%s: %s", foci[turn % 4], e.text);
		usleep(20000);
		if (status >= 0) {
			session_remove(s, id);
			inserted++;
		}
		flush_once(s);
	}
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	assert_true(inserted > 0);
	end_session(s);
	harness_verify_what(h, HARNESS_TEXT);
	session_go(h, 5);
	harness_end(h, 0);
}

static int try_deep(struct session *s, unsigned depth, const char *focus, struct dinst_error *e)
{
	struct insert_result result = {0};
	char metric[16];

	snprintf(metric, sizeof(metric), "deep%u", depth);
	dinst_error_clear(e);
	return request_insert(s, metric, &focus, 1, NULL, &result, e);
}

/*
 * fear H1, H5: what takes more stack than a function of Go has for sure is refused, and nothing is
 * inserted that takes some where it does not look whether there is any
 */
static void test_stack(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct session *s;
	unsigned flat;

	start(h);
	s = session_begin(h);
	session_load_deep(s, 4);
	session_load_deep(s, 100);
	if (try_deep(s, 4, "main.grow", &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(try_deep(s, 100, "main.grow", &e), DINST_REFUSED);
	assert_non_null(strstr(e.text, "stack"));
	assert_int_equal(try_deep(s, 4, "main.flat", &e), DINST_REFUSED);
	assert_non_null(strstr(e.text, "stack"));
	flat = session_insert(s, "main.flat");
	session_go(h, 5);
	assert_int_equal(session_value(s, flat), 8 * 5);
	end_whole(h, s);
	harness_verify_what(h, HARNESS_TEXT);
	harness_end(h, 0);
}

/* fear H1, D1: Go's own profiler walks the stacks in signal handlers, from inserted code, too */
static void test_profiled(void **state)
{
	static const enum point_kind kinds[] = {POINT_ENTRY, POINT_EXIT, POINT_CALL};
	struct harness *h = *state;
	struct session *s;
	unsigned exits;

	start(h);
	s = session_begin(h);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		session_insert_kind(s, "main.*", kinds[i]);
		session_insert_kind(s, "runtime.*", kinds[i]);
	}
	exits = exits_of(s, "main.grow");
	harness_send(h, "profile 300\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	if (exits)
		assert_int_equal(session_value(s, exits), 8 * 300 * 101);
	end_session(s);
	harness_verify_what(h, HARNESS_TEXT);
	session_go(h, 5);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_counts),
		CASE(test_churn),
		CASE(test_stack),
		CASE(test_profiled),
	};

	return cmocka_run_group_tests_name("live/golang", tests, NULL, NULL);
}
