/* SPDX-License-Identifier: MIT */
/*
 * traps.c - the program's own traps stay its own, at their own addresses; and
 * threads that are cancelled at any instruction, inserted ones included.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/threads.h"
#include "tests/live/harness_session.h"

static void ask(struct harness *h, const char *command)
{
	harness_send(h, command);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
}

static void insert_everything(struct session *s, const char *focus)
{
	for (int kind = POINT_ENTRY; kind <= POINT_STORE; kind++) {
		struct dinst_error e = {0};
		unsigned id, tries = 0;
		int status;

		do {
			dinst_error_clear(&e);
			status = session_try_insert_kind(s, focus, (enum point_kind)kind, &id, &e);
		} while (status == DINST_BUSY && tries++ < 50);
		if (status < 0 && status != DINST_NO_FUNCTION && status != DINST_REFUSED)
			fail_msg("%s: %s", focus, e.text);
	}
}

/*
 * fear A5, C6: int3 and ud2 of the program, and SIGTRAP that it raises, with handlers on an alternate
 * stack: each is called as often as it was, for its own address, with everything instrumented
 */
static void test_own_traps(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned id;

	harness_start(h, "traps", NULL);
	ask(h, "traps 100\n");
	s = session_begin(h);
	id = session_insert_kind(s, "trap_function", POINT_ENTRY);
	insert_everything(s, "/Code/traps/*");
	ask(h, "traps 2000\n");
	assert_int_equal(session_value(s, id), 4000);
	/* In and out while they trap. */
	harness_send(h, "traps 30000\n");
	for (int i = 0; i < 15; i++) {
		unsigned other = session_insert_kind(s, "/Code/libc.so.6/*sig*", POINT_ENTRY);

		session_remove(s, other);
		session_flush_all(s);
	}
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	session_end(s);
	ask(h, "traps 100\n");
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear G5, H4: a function in which a fault is known by the address of the instruction, as JVMs have one, is left
 * alone: with everything instrumented it still tells what can be read
 */
static void test_probes(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct session *s;
	unsigned id;

	harness_start(h, "traps", NULL);
	ask(h, "probe 100\n");
	s = session_begin(h);
	insert_everything(s, "/Code/traps/*");
	ask(h, "probe 100\n");
	assert_true(session_try_insert_kind(s, "SafeFetchN_impl", POINT_ENTRY, &id, &e) < 0);
	session_end(s);
	ask(h, "probe 100\n");
	harness_verify(h);
	harness_end(h, 0);
}

/* fear E1: threads cancelled at any instruction, in inserted code too: each ends, and cleans up */
static void test_cancelled_anywhere(void **state)
{
	struct harness *h = *state;
	struct session *s;

	harness_start(h, "traps", NULL);
	ask(h, "cancel 20\n");
	s = session_begin(h);
	insert_everything(s, "/Code/traps/*");
	session_insert(s, "traps_spin");
	ask(h, "cancel 400\n");
	session_end(s);
	ask(h, "cancel 20\n");
	harness_verify(h);
	harness_end(h, 0);
}

static void cancel(struct harness *h, const char *command)
{
	const char *answer;

	harness_send(h, command);
	answer = harness_line(h, HARNESS_ANSWER_MS);
	/* Few where it takes all of ten seconds. */
	if (strncmp(answer, "done ", 5) != 0 || atol(answer + 5) < 20)
		fail_msg("%s: %s", command, answer);
}

/*
 * fear E1: threads that are cancelled in calls of the C library as any thread may be (deferred): older
 * ones let the signal come at any instruction from shortly before the system call until shortly
 * behind it. With everything of the library inserted each destructor runs, and no FILE stays locked
 */
static void test_cancelled_in_calls(void **state)
{
	struct harness *h = *state;
	struct session *s;

	harness_start(h, "cancelled", NULL);
	cancel(h, "read 20\n");
	s = session_begin(h);
	insert_everything(s, "/Code/cancelled/*");
	for (int kind = POINT_ENTRY; kind <= POINT_AFTER; kind++)
		session_insert_kind(s, "/Code/libc.so.6/*", (enum point_kind)kind);
	insert_everything(s, "/Code/libc.so.6/read");
	session_insert_metric(s, "wall_inclusive", "/Code/libc.so.6/read", NULL);
	cancel(h, "read 2000\n");
	cancel(h, "fgets 2000\n");
	session_end(s);
	cancel(h, "fgets 20\n");
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear E1: a handler of SIGSEGV that throws, through the instruction that faulted
 * (-fnon-call-exceptions): what may fault stays where the tables know it
 */
static void test_thrown_by_faults(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned id;

	harness_start(h, "faulting", NULL);
	ask(h, "go 100\n");
	s = session_begin(h);
	insert_everything(s, "/Code/faulting/*");
	id = session_insert(s, "fault_around");
	ask(h, "go 1000\n");
	assert_int_equal(session_value(s, id), 2000);
	session_end(s);
	ask(h, "go 100\n");
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear B4, B6: a thread that executes itself step by step: each trap in a restartable sequence aborts
 * it, and the thread gets out of the counter all the same, is counted once, with all kinds of points
 */
static void test_own_steps(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned called, leaf;

	harness_start(h, "steps", "commands", NULL);
	ask(h, "call 10\n");
	s = session_begin(h);
	called = session_insert(s, "step_called");
	leaf = session_insert(s, "step_leaf");
	ask(h, "call 20\n");
	assert_int_equal(session_value(s, called), 20);
	insert_everything(s, "step_called");
	insert_everything(s, "step_leaf");
	ask(h, "call 100\n");
	assert_int_equal(session_value(s, called), 120);
	assert_int_equal(session_value(s, leaf), 240);
	session_end(s);
	ask(h, "call 10\n");
	harness_verify(h);
	harness_end(h, 0);
}

/* fear E1: the same where functions of the thread and of the handler are paired, on one stack */
static void test_own_steps_in_pairs(void **state)
{
	struct harness *h = *state;
	struct threads_statistics told;
	const struct instance *called;
	struct session *s;
	uint64_t value;

	harness_start(h, "steps", "commands", NULL);
	ask(h, "call 10\n");
	s = session_begin(h);
	called = session_insert_metric(s, "latency", "step_called", NULL);
	session_insert_metric(s, "latency", "step_leaf", NULL);
	ask(h, "call 20\n");
	assert_int_equal(session_value(s, called->id), 20);
	session_insert_metric(s, "latency", "step_noted", NULL);
	ask(h, "call 20\n");
	/* What cannot be paired is told. Without the handler's function everything is. */
	threads_statistics(s, &told);
	value = session_value(s, called->id);
	assert_in_range(value, 20, 40);
	assert_true(value + told.overflow >= 40);
	session_end(s);
	ask(h, "call 10\n");
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_own_traps),	       CASE(test_probes),
		CASE(test_cancelled_anywhere), CASE(test_cancelled_in_calls),
		CASE(test_thrown_by_faults),   CASE(test_own_steps),
		CASE(test_own_steps_in_pairs)};

	return cmocka_run_group_tests_name("live/traps", tests, NULL, NULL);
}
