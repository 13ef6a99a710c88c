/* SPDX-License-Identifier: MIT */
/*
 * removal_inside.c - removing while a thread is in the functions, or in the very
 * code, that is removed for as long as it likes: blocked in a system call, below a
 * signal handler on another stack. Removing does not wait for it; the text is the
 * original at once; memory is kept until the thread has left, and no longer.
 */
#include "tests/live/harness_session.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inject/remote.h"

/* On a busy machine; a wait for the call would take as long as that does. */
enum { MOST_MS = 5000 };

static uint64_t now_ms(void)
{
	return clock_ns() / 1000000;
}

static void ask(struct harness *h, const char *command, const char *answer)
{
	harness_send(h, command);
	assert_non_null(strstr(harness_line(h, HARNESS_ANSWER_MS), answer));
}

static void remove_quickly(struct session *s, unsigned id)
{
	const uint64_t begun = now_ms();

	session_remove(s, id);
	print_message("removed in %llu ms\n", (unsigned long long)(now_ms() - begun));
	assert_true(now_ms() - begun < MOST_MS);
}

static size_t flush(struct session *s)
{
	struct flush_result flushed;
	struct dinst_error e = {0};
	int status;

	do
		status = removal_flush(s, &flushed, &e);
	while (status == DINST_BUSY);
	if (status < 0)
		fail_msg("%s", e.text);
	return flushed.queued;
}

static void expect_text(struct harness *h)
{
	char text[1024];

	if (harness_differences(h->before, HARNESS_TEXT, text, sizeof(text)))
		fail_msg("the text is not the original: %s", text);
}

/*
 * fear J1, J7: a thread is blocked in a call, without end, in functions that are instrumented:
 * removing does not wait for it, and even the memory is given back at once, since no system call
 * is ever moved and no return address is ours
 */
static void test_blocked(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned around, call;

	harness_start(h, "fragments", "2", NULL);
	s = session_begin(h);
	around = session_insert_kind(s, "wait_for_byte", POINT_CALL);
	call = session_insert(s, "/Code/libc.so.6/read");
	ask(h, "wake\n", "awake");
	while (session_value(s, call) == 0)
		usleep(1000);
	assert_true(session_value(s, around) > 0);
	remove_quickly(s, call);
	remove_quickly(s, around);
	session_flush_all(s);
	expect_text(h);
	assert_int_equal(session_heap_bytes(s), 0);
	ask(h, "wake\n", "awake");
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * A signal handler waits on another stack above code of ours, which is removed: a thread that
 * works is interrupted until it was there.
 */
static struct session *hold_inside(struct harness *h)
{
	struct session *s;

	harness_limit(600);
	/* One that works: nobody else is in our code. */
	harness_start(h, "fragments", "1", NULL);
	s = session_begin(h);
	ask(h, "run\n", "running");
	for (unsigned tries = 0; tries < 5000; tries++) {
		unsigned id = session_insert(s, "part_*");

		ask(h, "hold\n", "held");
		remove_quickly(s, id);
		if (flush(s))
			return s;
		ask(h, "unhold\n", "unheld");
	}
	fail_msg("no signal came when the thread was in our code");
	return s;
}

static void release(struct harness *h)
{
	ask(h, "unhold\n", "unheld");
	harness_send(h, "stop\n");
	assert_non_null(strstr(harness_line(h, HARNESS_ANSWER_MS), "done"));
}

/*
 * fear J1, J7: the way back of a signal handler, on an alternate stack, leads into code that
 * was removed: the text is the original at once, that code stays as long as the handler takes,
 * and is given back then
 */
static void test_below_a_handler(void **state)
{
	struct harness *h = *state;
	struct session *s = hold_inside(h);

	for (unsigned i = 0; i < 5; i++)
		assert_in_range(flush(s), 1, 2);
	expect_text(h);
	assert_true(session_heap_bytes(s) > 0);
	release(h);
	session_flush_all(s);
	assert_int_equal(session_heap_bytes(s), 0);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear J1, J3: detaching meanwhile restores the text, says what is left, and comes to its end
 * when the handler has
 */
static void test_detach_meanwhile(void **state)
{
	struct harness *h = *state;
	struct session *s = hold_inside(h);
	struct detach_result result;
	struct dinst_error e = {0};

	if (session_detach(s, 1, &result, &e) < 0)
		fail_msg("%s", e.text);
	assert_true(result.left > 0);
	expect_text(h);
	release(h);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

/* A call that takes longer than anybody waits for one. */
static int sleep_long(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct arch_remote_call call = {.number = SYS_poll};
	struct arch_remote_program program = {.calls = &call, .count = 1};
	long result;

	(void)arg;
	call.args[2].value = 4000;
	return remote_run(stop, &program, 0, NULL, NULL, NULL, &result, e);
}

/* Until a thread is lost in it: on a busy machine the stop itself may fail, and nobody is then. */
static void lose_a_call(struct session *s, stop_work work)
{
	const struct stop_options once = {.tries = 1};
	struct dinst_error e = {0};

	do {
		dinst_error_clear(&e);
		assert_int_equal(target_stop(s->target, &once, work, NULL, NULL, &e), DINST_BUSY);
	} while (!target_left_program(s->target));
}

/* The only thread does not come back from a call of ours: what it leaves by itself goes as well. */
static void test_late_call(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned id;

	harness_start(h, "calls", "4", NULL);
	s = session_begin(h);
	id = session_insert(s, "tiny");
	lose_a_call(s, sleep_long);
	assert_true(remote_tails_dirty(s->target));
	session_go(h, 100);
	assert_int_equal(session_value(s, id), 400);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

struct asking {
	pid_t child;
	bool asked;
};

static int sleep_in_child(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct asking *a = arg;

	if (target_pid(stop_target(stop)) != a->child)
		return 0;
	a->asked = true;
	return sleep_long(stop, NULL, e);
}

/*
 * Until it is lost: on a busy machine the stop itself may fail, or nobody looks at the clock before
 * the call has come back. But the child is always found.
 */
static void lose_a_call_of_child(struct session *s, pid_t child, struct target *t)
{
	struct dinst_error e = {0};

	do {
		struct asking a = {.child = child};
		int status = family_stop(s, sleep_in_child, &a, NULL, &e);

		if (!a.asked && status != DINST_BUSY)
			fail_msg("the child was not stopped: %d, %s", status, e.text);
		if (status && status != DINST_BUSY)
			fail_msg("%s", e.text);
		dinst_error_clear(&e);
	} while (!remote_tails_dirty(t));
}

/*
 * fear J1, J3: the same in a child that runs through the same trampolines, and may have been
 * interrupted in one: that stays for as long as the call lasts
 */
static void test_late_call_of_a_child(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct target *t = NULL;
	struct session *s;
	const char *line;
	pid_t child;

	harness_start(h, "forks", NULL);
	s = session_begin(h);
	session_insert(s, "hit");
	harness_send(h, "linger\n");
	line = harness_line(h, HARNESS_ANSWER_MS);
	assert_int_equal(strncmp(line, "child ", 6), 0);
	child = (pid_t)strtol(line + 6, NULL, 10);
	if (target_open(child, &t, &e) < 0)
		fail_msg("%s", e.text);
	lose_a_call_of_child(s, child, t);
	session_end(s);
	assert_false(remote_tails_dirty(t));
	target_close(t);
	harness_verify(h);
	harness_send(h, "unlinger\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ended 7");
	harness_end(h, 0);
}

/* Returns the thread that runs all the time: it is the one that is made to call. */
static pid_t start_watched(struct harness *h)
{
	const char *const argv[] = {harness_path("tests/live/targets/pages-watched"), NULL};
	int tid = 0;

	harness_start_argv(h, argv, false);
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "ready %d", &tid), 1);
	h->before = harness_snapshot_settled(h->pid);
	return tid;
}

static unsigned long rounds(struct harness *h)
{
	unsigned long count = 0;

	harness_send(h, "rounds\n");
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "rounds %lu", &count), 1);
	return count;
}

static bool has_arena(pid_t pid)
{
	char path[64], line[4096];
	bool found = false;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	maps = fopen(path, "re");
	assert_non_null(maps);
	while (!found && fgets(line, sizeof(line), maps))
		found = strstr(line, "memfd:dinst") != NULL;
	fclose(maps);
	return found;
}

/*
 * What there is to go on in stays, as often as one tries, and that thread is named twice. On a busy
 * machine a try may get no further than to another one that does not stop in its second.
 */
static void expect_kept(struct harness *h, struct session *s, pid_t tid)
{
	char name[32];

	snprintf(name, sizeof(name), "thread %d ", (int)tid);
	for (int named = 0; named < 2;) {
		struct detach_result result;
		struct dinst_error e = {0};
		const int status = session_detach(s, 1, &result, &e);

		assert_true(status == DINST_BUSY || (status == 0 && !e.code));
		assert_true(result.left > 0);
		assert_true(has_arena(h->pid));
		named += status == DINST_BUSY && strstr(e.text, name);
	}
}

/*
 * fear J1, J3: the program that gives pages of text back at the end of a detach does not come back,
 * because the kernel keeps its thread as long as the target likes: the arena, in which that program
 * itself lies, stays until the thread has left it
 */
static void test_lost_giving_back(void **state)
{
	struct harness *h = *state;
	unsigned long before, pages;
	struct session *s;
	const char *line;
	pid_t spinner;
	unsigned id;

	spinner = start_watched(h);
	s = session_begin(h);
	id = session_insert(s, "plugin_work");
	session_go(h, 100);
	assert_int_equal(session_value(s, id), 100);
	harness_send(h, "watch\n");
	line = harness_line(h, HARNESS_ANSWER_MS);
	if (strcmp(line, "watched") != 0) {
		print_message("SKIP %s\n", line);
		session_end(s);
		harness_end(h, 0);
		skip();
	}
	expect_kept(h, s, spinner);
	expect_text(h);
	before = rounds(h);
	usleep(1000);
	assert_int_equal(rounds(h), before);
	harness_send(h, "read\n");
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "pages %lu", &pages), 1);
	assert_int_equal(pages, 1);
	harness_until(rounds(h) > before);
	session_end(s);
	assert_false(has_arena(h->pid));
	harness_verify(h);
	harness_end(h, 0);
}

/* A call that never ends, unless by a signal. */
static int sleep_for_ever(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct arch_remote_call call = {.number = SYS_poll};
	struct arch_remote_program program = {.calls = &call, .count = 1};
	long result;

	(void)arg;
	call.args[2].value = (uint64_t)-1;
	return remote_run(stop, &program, 0, NULL, NULL, NULL, &result, e);
}

/*
 * fear J1, J3: a call of ours never ends: nothing is taken out, and the thread is named; when it
 * leaves the call by longjmp from a signal handler, nobody goes on there any more, and all goes
 */
static void test_call_left_by_longjmp(void **state)
{
	struct harness *h = *state;
	unsigned long before;
	struct session *s;
	pid_t spinner;

	spinner = start_watched(h);
	s = session_begin(h);
	session_insert(s, "plugin_work");
	lose_a_call(s, sleep_for_ever);
	expect_kept(h, s, spinner);
	before = rounds(h);
	assert_int_equal(syscall(SYS_tgkill, h->pid, spinner, SIGUSR1), 0);
	harness_until(rounds(h) > before);
	session_end(s);
	assert_false(has_arena(h->pid));
	harness_verify(h);
	harness_end(h, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_blocked),
		CASE(test_below_a_handler),
		CASE(test_detach_meanwhile),
		CASE(test_late_call),
		CASE(test_late_call_of_a_child),
		CASE(test_lost_giving_back),
		CASE(test_call_left_by_longjmp),
	};

	return cmocka_run_group_tests_name("live/removal_inside", tests, NULL, NULL);
}
