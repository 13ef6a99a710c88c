/* SPDX-License-Identifier: MIT */
/*
 * parked.c - interrupted program counters that are on no stack that a thread
 * runs on: in signal frames of tasks that a program switches between by itself,
 * and in contexts that it has copied to its heap. A window that one leads into
 * waits, and a trampoline that one leads into stays.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inject/control.h"
#include "mutator/evaluate.h"
#include "mutator/request.h"
#include "tests/live/harness_session.h"
#include "tests/live/harness_thread.h"
#include "tests/live/mdl_help.h"
#include "tests/live/parked_help.h"

/*
 * Parked in the window: it is not patched before the task has gone on. `unknown`:
 * as if nothing told that the program switches.
 */
static void run_window(struct harness *h, const char *program, const char *how, bool unknown)
{
	uint8_t before[16], after[16];
	struct session *s;
	taddr_t at;
	unsigned id;

	harness_start(h, program, how, NULL);
	s = session_begin(h);
	assert_true(target_parks(s->target));
	s->target->parks = !unknown;
	at = session_address(s, "parked_function");
	thread_peek(h->pid, at, before, sizeof(before));
	ask(h, "park", "parked");
	id = session_insert_kind(s, "parked_function", POINT_ENTRY);
	assert_int_equal(session_pending(s, id), 1);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(request_retry_pending(s), 0);
		usleep(20000);
	}
	thread_peek(h->pid, at, after, sizeof(after));
	assert_memory_equal(before, after, sizeof(after));
	ask(h, "resume", "resumed");
	assert_true(becomes_active(s, id));
	ask(h, "go 100", "done");
	assert_int_equal(session_value(s, id), 100);
	session_end(s);
	ask(h, "go 100", "done");
	harness_verify(h);
	harness_end(h, 0);
}

/* The same for a request that is done as a whole or not at all: who asks is told what it waits for. */
static void run_whole(struct harness *h, const char *how, bool large, const char *message)
{
	const char *pid;
	int status;

	harness_start(h, "parked", how, NULL);
	pid = harness_number(h->pid);
	mdl_attach(h, NULL);
	large ? ask(h, "fill 200", "filled") : ask(h, "park", "parked");
	status = harness_dinst(h, NULL, "insert", "wall_inclusive", "/Code/parked/parked_function",
			       "-p", pid);
	assert_int_equal(status, 1);
	if (!strstr(h->messages, message))
		fail_msg("%s", h->messages);
	large ? ask(h, "fill 0", "filled") : ask(h, "resume", "resumed");
	mdl_insert(h, "wall_inclusive", "/Code/parked/parked_function");
	ask(h, "go 100", "done");
	mdl_end(h);
}

/* Parked in a trampoline: nothing of it is given back before the task has gone on. */
static void run_trampoline(struct harness *h, const char *program, const char *how, bool unknown)
{
	struct flush_result flushed = {0};
	struct detach_result detached;
	struct dinst_error e = {0};
	struct session *s;
	unsigned id;

	harness_start(h, program, how, NULL);
	s = session_begin(h);
	s->target->parks = !unknown;
	id = session_insert_kind(s, "parked_function", POINT_ENTRY);
	ask(h, "go 100", "done");
	ask(h, "park", "parked");
	assert_int_equal(session_value(s, id), 101);
	session_remove(s, id);
	assert_int_equal(removal_flush(s, &flushed, &e), 0);
	assert_int_not_equal(flushed.queued, 0);
	/* What comes next into the same arena must not lie there. */
	for (int i = 0; i < 20; i++)
		session_remove(s, session_insert_kind(s, "serve", POINT_INSTRUCTION));
	removal_flush(s, &flushed, &e);
	assert_int_equal(session_detach(s, 1, &detached, &e), 0);
	assert_int_not_equal(detached.left, 0);
	ask(h, "resume", "resumed");
	ask(h, "go 100", "done");
	session_end(s);
	ask(h, "go 100", "done");
	harness_verify(h);
	harness_end(h, 0);
}

/* fear C2, H5: the handler gave way to another stack; the frame is on the stack that was left */
static void test_window_away(void **state)
{
	run_window(*state, "parked", "away", false);
}

/* fear C2, H5: the same with a switch that is not known: the stack that the thread was given is seen */
static void test_window_left(void **state)
{
	run_window(*state, "parked", "away", true);
}

/* fear C2, H5: the interrupted task lies on a stack from the heap that no thread is on */
static void test_window_fiber(void **state)
{
	run_window(*state, "parked", "fiber", false);
}

/* fear C2, H5: the same with a stack that forked children would share */
static void test_window_shared(void **state)
{
	run_window(*state, "parked", "shared", false);
}

/* fear C2, H5: the interrupted context was copied to the heap, its frame is gone */
static void test_window_copied(void **state)
{
	run_window(*state, "parked", "copied", false);
}

/* fear C2, H5: a request that is all or nothing waits for a thread that has left its stack, and names it */
static void test_whole_away(void **state)
{
	run_whole(*state, "away", false, "in parked_function of parked");
}

/* fear C2, H5: the same for a task on a stack from the heap, and where there is too much memory to look for it */
static void test_whole_fiber(void **state)
{
	run_whole(*state, "fiber", false, "in parked_function of parked");
	run_whole(*state, "fiber", true, "its memory is too large to be searched");
}

/* fear C2, H5, J1: the same three with the task in a trampoline that is removed */
static void test_trampoline_away(void **state)
{
	run_trampoline(*state, "parked", "away", false);
}

/* fear C2, H5, J1: the same with a switch that is not known: the stack that the thread was given is seen */
static void test_trampoline_left(void **state)
{
	run_trampoline(*state, "parked", "own", true);
}

/* fear C2, H5, J1: the same where other memory follows upon that stack, in one mapping */
static void test_trampoline_within(void **state)
{
	run_trampoline(*state, "parked", "within", true);
}

/* fear C2, H5, J1: the same where that mapping is one that forked children would share */
static void test_trampoline_lent(void **state)
{
	run_trampoline(*state, "parked", "lent", true);
}

/* fear C2, H5, J1: on a stack from the heap */
static void test_trampoline_fiber(void **state)
{
	run_trampoline(*state, "parked", "fiber", false);
}

/* fear C2, H5, J1: on a stack that forked children would share */
static void test_trampoline_shared(void **state)
{
	run_trampoline(*state, "parked", "shared", false);
}

/* A task is parked in what was inserted before the library came, and is removed now. */
static struct session *park_after_loading(struct harness *h, const char *library)
{
	struct session *s;
	char command[1024];
	unsigned id;

	harness_start(h, "parked", "fiber", NULL);
	s = session_begin(h);
	s->target->parks = false;
	id = session_insert_kind(s, "parked_function", POINT_ENTRY);
	snprintf(command, sizeof(command), "load %s\n", harness_path(library));
	harness_send(h, command);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "loaded");
	ask(h, "park", "parked");
	session_remove(s, id);
	return s;
}

/* fear C2, H5, J1: that the program switches is to be seen since something was inserted, and not before */
static void test_trampoline_loaded(void **state)
{
	struct harness *h = *state;
	struct detach_result detached;
	struct dinst_error e = {0};
	struct session *s;

	s = park_after_loading(h, "tests/live/targets/libplugin.so");
	assert_int_equal(session_detach(s, 1, &detached, &e), 0);
	assert_int_not_equal(detached.left, 0);
	ask(h, "resume", "resumed");
	ask(h, "go 100", "done");
	session_end(s);
	harness_end(h, 0);
}

/*
 * fear C2, H5, J1: the library that switches has come since the modules were last looked at, and a flush
 * in the middle of a request does not look again
 */
static void test_trampoline_unknown(void **state)
{
	struct harness *h = *state;
	struct flush_result flushed = {0};
	struct dinst_error e = {0};
	struct session *s;

	s = park_after_loading(h, "tests/live/targets/libswitches.so");
	for (int i = 0; i < 2; i++) {
		assert_int_equal(removal_flush(s, &flushed, &e), 0);
		assert_int_not_equal(flushed.queued, 0);
		/* Nothing was too large for anybody. */
		assert_false(flushed.unsearched);
	}
	assert_true(target_parks(s->target));
	ask(h, "resume", "resumed");
	ask(h, "go 100", "done");
	session_flush_all(s);
	session_end(s);
	harness_end(h, 0);
}

/*
 * fear C2, H5, J1, J7: a program that maps code of its own making all the time, each time of a new file: that
 * switches between no tasks, and nothing waits for it
 */
static void test_code_of_its_own(void **state)
{
	struct harness *h = *state;
	struct flush_result flushed = {0};
	struct dinst_error e = {0};
	struct session *s;
	unsigned id;

	harness_start(h, "parked", "fiber", NULL);
	s = session_begin(h);
	ask(h, "code", "begun");
	id = session_insert_kind(s, "parked_function", POINT_ENTRY);
	ask(h, "go 100", "done");
	session_remove(s, id);
	/* As if it had no switch. */
	s->target->parks = false;
	assert_int_equal(removal_flush(s, &flushed, &e), 0);
	assert_int_equal(flushed.queued, 0);
	session_end(s);
	ask(h, "go 100", "done");
	harness_end(h, 0);
}

/* fear C2, H5, J1: copied to the heap */
static void test_trampoline_copied(void **state)
{
	run_trampoline(*state, "parked", "copied", false);
}

/* fear C2, H5: libucontext has names of its own for what it does */
static void test_named(void **state)
{
	struct harness *h = *state;
	struct session *s;

	harness_start(h, "parked-named", NULL);
	s = session_begin(h);
	assert_true(target_parks(s->target));
	session_end(s);
	harness_end(h, 0);
}

/* fear C2, H5: a signal handler of the program's gives way in the middle of one of OpenSSL's jobs */
static void test_window_job(void **state)
{
	run_window(*state, "parked-jobs", NULL, false);
}

/* fear C2, H5, J1: the same with the job in a trampoline that is removed */
static void test_trampoline_job(void **state)
{
	run_trampoline(*state, "parked-jobs", NULL, false);
}

/*
 * Parked before one of every STRIDE instructions of a pairing at an entry and an exit: in its bodies, and in
 * the routines that they share, whose way back is in a register. What is freed is filled (DINST_POISON):
 * the task does not come back from there.
 */
static void run_routines(struct harness *h, const char *how)
{
	enum { STRIDE = 23 };
	static const struct raw_metric pairs = {
		.name = "pairs",
		.unit = "activations",
		.constraints = "/Code",
		.kind = POINT_ENTRY,
		.snippet = SNIPPET_ENTER,
	};
	const struct instance *pair, *stays;
	struct flush_result flushed = {0};
	struct dinst_error e = {0};
	struct session *s;
	char command[1024];
	long steps = 0;

	/* A trap in a restartable sequence begins it anew, for ever. */
	setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0", 1);
	harness_start(h, "parked", how, NULL);
	unsetenv("GLIBC_TUNABLES");
	s = session_begin(h);
	assert_true(target_parks(s->target));
	/* The routines stay, and the arena does. */
	stays = session_insert_raw(s, &pairs, "serve");
	for (bool parks = true; parks; steps += STRIDE) {
		pair = session_insert_raw(s, &pairs, "parked_function");
		assert_int_equal(session_pending(s, pair->id), 0);
		snprintf(command, sizeof(command), "step %ld\n", steps + 1);
		harness_send(h, command);
		parks = !strcmp(harness_line(h, HARNESS_ANSWER_MS), "parked");
		session_remove(s, pair->id);
		assert_int_equal(removal_flush(s, &flushed, &e), 0);
		assert_true(!parks || flushed.queued);
		if (parks)
			ask(h, "resume", "resumed");
		ask(h, "go 100", "done");
		session_flush_all(s);
	}
	assert_true(steps > STRIDE);
	session_remove(s, stays->id);
	session_end(s);
	ask(h, "go 100", "done");
	harness_verify(h);
	harness_end(h, 0);
}

/* fear C2, H5, J1: instructions of a pairing, its task on the thread's stack */
static void test_routines_away(void **state)
{
	run_routines(*state, "away");
}

/* fear C2, H5, J1: instructions of a pairing, its task on a stack from the heap */
static void test_routines_fiber(void **state)
{
	run_routines(*state, "fiber");
}

/* fear C2, H5, J1: the same with the context copied to the heap */
static void test_routines_copied(void **state)
{
	run_routines(*state, "copied");
}

/* A window of a program that switches and has so much memory, and a trampoline of it. */
static void run_large(struct harness *h, const char *fill)
{
	struct flush_result flushed = {0};
	struct detach_result detached;
	struct dinst_error e = {0};
	struct session *s;
	unsigned id;

	harness_start(h, "parked", "fiber", NULL);
	ask(h, fill, "filled");
	s = session_begin(h);
	id = session_insert_kind(s, "parked_function", POINT_ENTRY);
	assert_int_equal(session_pending(s, id), 1);
	assert_true(s->unsearched);
	/* Nothing ever led to what was written: it can go. */
	assert_int_equal(session_detach(s, 1, &detached, &e), 0);
	assert_int_equal(detached.left, 0);
	session_free(s);
	ask(h, "fill 0", "filled");
	harness_verify(h);
	ask(h, fill, "filled");
	s = session_begin(h);
	id = session_insert_kind(s, "parked_function", POINT_ENTRY);
	ask(h, "fill 0", "filled");
	assert_true(becomes_active(s, id));
	assert_false(s->unsearched);
	ask(h, fill, "filled");
	ask(h, "go 100", "done");
	assert_int_equal(session_value(s, id), 100);
	session_remove(s, id);
	assert_int_equal(removal_flush(s, &flushed, &e), 0);
	assert_int_not_equal(flushed.queued, 0);
	ask(h, "fill 0", "filled");
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear C2, H5: too much memory to be searched in a stop for what is parked: windows and trampolines wait, and say so */
static void test_large(void **state)
{
	run_large(*state, "fill 100");
}

/* fear C2, H5: so much that nothing of it is read */
static void test_very_large(void **state)
{
	run_large(*state, "fill 200");
}

/* fear C2, H5, K2: terabytes that are mapped and empty, as the shadow of a sanitizer */
static void test_empty(void **state)
{
	run_large(*state, "fill 4000000");
}

/* fear C2, H5, K2: others that stand still, too, have taken all the time that there is for such a search */
static void test_spent(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned id;

	harness_start(h, "parked", "fiber", NULL);
	s = session_begin(h);
	target_spend_parks(s->target, SIZE_MAX);
	id = session_insert_kind(s, "parked_function", POINT_ENTRY);
	assert_int_equal(session_pending(s, id), 1);
	assert_true(s->unsearched);
	target_spend_parks(s->target, 0);
	end_when_active(h, s, id);
}

/* fear C2, H5, J7: a guard that is no mapping cannot be read; nothing is in it, and nothing waits for it */
static void test_guard(void **state)
{
	struct harness *h = *state;
	const char *answer;
	struct session *s;
	unsigned id;

	harness_start(h, "parked", "fiber", NULL);
	harness_send(h, "guard\n");
	answer = harness_line(h, HARNESS_ANSWER_MS);
	if (strcmp(answer, "guarded") != 0) {
		print_message("SKIP %s: the kernel knows no such guards, or does not tell\n",
			      answer);
		skip();
	}
	s = session_begin(h);
	id = session_insert_kind(s, "parked_function", POINT_ENTRY);
	assert_int_equal(session_pending(s, id), 0);
	assert_false(s->unsearched);
	session_end(s);
	ask(h, "go 100", "done");
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_window_away),
		CASE(test_window_left),
		CASE(test_window_fiber),
		CASE(test_window_shared),
		CASE(test_window_copied),
		CASE(test_trampoline_away),
		CASE(test_trampoline_left),
		CASE(test_trampoline_within),
		CASE(test_trampoline_lent),
		CASE(test_trampoline_fiber),
		CASE(test_trampoline_shared),
		CASE(test_trampoline_copied),
		CASE(test_trampoline_loaded),
		CASE(test_trampoline_unknown),
		CASE(test_code_of_its_own),
		CASE(test_routines_away),
		CASE(test_routines_fiber),
		CASE(test_routines_copied),
		CASE(test_whole_away),
		CASE(test_whole_fiber),
		CASE(test_named),
		CASE(test_window_job),
		CASE(test_trampoline_job),
		CASE(test_large),
		CASE(test_very_large),
		CASE(test_empty),
		CASE(test_guard),
		CASE(test_spent),
	};

	setenv("DINST_POISON", "1", 1);
	return cmocka_run_group_tests_name("live/parked", tests, NULL, NULL);
}
