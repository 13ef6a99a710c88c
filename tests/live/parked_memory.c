/* SPDX-License-Identifier: MIT */
/*
 * parked_memory.c - interrupted program counters that are on no stack that a thread runs on, in memory which
 * the process cannot write to, or has no pages of, just when it is looked for them: as parked.c.
 */
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/live/parked_help.h"

/* Parked in a trampoline, and the stack is locked then: nothing of it is given back before the task has gone on. */
static void run_trampoline(struct harness *h, const char *how, const char *lock, const char *locked)
{
	struct flush_result flushed = {0};
	struct detach_result detached;
	struct dinst_error e = {0};
	struct session *s;
	unsigned id;

	harness_start(h, "parked", how, NULL);
	s = session_begin(h);
	id = session_insert_kind(s, "parked_function", POINT_ENTRY);
	ask(h, "go 100", "done");
	ask(h, "park", "parked");
	ask(h, lock, locked);
	session_remove(s, id);
	assert_int_equal(removal_flush(s, &flushed, &e), 0);
	assert_int_not_equal(flushed.queued, 0);
	assert_false(flushed.unsearched);
	assert_int_equal(session_detach(s, 1, &detached, &e), 0);
	assert_int_not_equal(detached.left, 0);
	ask(h, "rights 3", "set");
	ask(h, "resume", "resumed");
	ask(h, "go 100", "done");
	session_end(s);
	ask(h, "go 100", "done");
	harness_verify(h);
	harness_end(h, 0);
}

/* The same for a window, which is not patched. */
static void run_window(struct harness *h, const char *how, const char *lock, const char *locked)
{
	struct session *s;
	unsigned id;

	harness_start(h, "parked", how, NULL);
	s = session_begin(h);
	ask(h, "park", "parked");
	ask(h, lock, locked);
	id = session_insert_kind(s, "parked_function", POINT_ENTRY);
	assert_int_equal(session_pending(s, id), 1);
	assert_false(s->unsearched);
	ask(h, "rights 3", "set");
	ask(h, "resume", "resumed");
	assert_true(becomes_active(s, id));
	ask(h, "go 100", "done");
	assert_int_equal(session_value(s, id), 100);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear C2, H5: nobody may write to the task's stack just now, as under a collector's write barrier */
static void test_window_locked(void **state)
{
	run_window(*state, "mapped", "rights 1", "set");
}

/* fear C2, H5, J1: the same with the task in a trampoline that is removed */
static void test_trampoline_locked(void **state)
{
	run_trampoline(*state, "mapped", "rights 1", "set");
}

/* fear C2, H5, J1: nobody may even read it */
static void test_trampoline_closed(void **state)
{
	run_trampoline(*state, "mapped", "rights 0", "set");
}

/* fear C2, H5, J1: the same of one that is a private copy of a file's pages */
static void test_trampoline_painted(void **state)
{
	run_trampoline(*state, "painted", "rights 1", "set");
}

/* fear C2, H5, J7, K2: addresses that are reserved, and nothing more, however many: nothing waits for them */
static void test_reserved(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned id;

	harness_start(h, "parked", "mapped", NULL);
	for (int i = 0; i < 4; i++)
		ask(h, "reserve 1000", "reserved");
	s = session_begin(h);
	id = session_insert_kind(s, "parked_function", POINT_ENTRY);
	assert_int_equal(session_pending(s, id), 0);
	assert_false(s->unsearched);
	session_end(s);
	ask(h, "go 100", "done");
	harness_verify_what(h, HARNESS_TEXT | HARNESS_FDS | HARNESS_THREADS);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_window_locked),     CASE(test_trampoline_locked),
		CASE(test_trampoline_closed), CASE(test_trampoline_painted),
		CASE(test_reserved),
	};

	setenv("DINST_POISON", "1", 1);
	return cmocka_run_group_tests_name("live/parked_memory", tests, NULL, NULL);
}
