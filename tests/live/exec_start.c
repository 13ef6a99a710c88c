/* SPDX-License-Identifier: MIT */
/*
 * exec_start.c - instrumenting from before a program's first instruction, and
 * programs of other makes: static, at a fixed address, stripped, another libc.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mutator/request.h"
#include "tests/live/harness_session.h"
#include "tests/live/harness_thread.h"

enum { THREADS = 4, ROUNDS = 20000 };

/* ------------------------------------------------------------ starting */

static void armed(void *arg)
{
	if (write(*(int *)arg, "x", 1) != 1)
		fail_msg("cannot let the program begin: %s", strerror(errno));
}

static bool placed_alike; /* the program lies where it always does */

/* The child waits for one byte and becomes the program. */
static pid_t fork_waiting(const char *path, const char *argument, int gate, int in, int out)
{
	const char *const argv[] = {path, argument, NULL};
	pid_t pid;
	char byte;

	fflush(NULL);
	pid = fork();
	if (pid)
		return pid;
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setenv("STARTING", "as told", 1);
	if (placed_alike)
		personality(ADDR_NO_RANDOMIZE);
	if (read(gate, &byte, 1) != 1 || dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0)
		_exit(126);
	close_range(3, ~0u, 0);
	execv(path, (char *const *)argv);
	_exit(127);
}

/* Letting go of a stopped process makes it look runnable until it has stopped again. */
static void expect_held(struct harness *h)
{
	for (int i = 0; i < 60000; i++) {
		if (harness_status(h->pid, h->pid, "State:")[0] == 'T')
			return;
		usleep(1000);
	}
	fail_msg("the program is not held: %s", harness_status(h->pid, h->pid, "State:"));
}

/* A session with the program held before its first instruction. */
static struct session *begin_held(struct harness *h, const char *program, const char *argument)
{
	struct dinst_error e = {0};
	char relative[256], path[4096];
	int gate[2], in[2], out[2];

	snprintf(relative, sizeof(relative), "tests/live/targets/%s", program);
	snprintf(path, sizeof(path), "%s", harness_path(relative));
	assert_int_equal(pipe2(gate, O_CLOEXEC) | pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC), 0);
	h->pid = fork_waiting(path, argument, gate[0], in[0], out[1]);
	assert_true(h->pid > 0);
	h->input = in[1];
	h->output = out[0];
	close(in[0]);
	close(out[1]);
	if (target_catch_exec(h->pid, armed, &gate[1], 100000, &e) < 0)
		fail_msg("catch: %s", e.text);
	close(gate[0]);
	close(gate[1]);
	expect_held(h);
	assert_string_equal(harness_status(h->pid, h->pid, "TracerPid:"), "0");
	h->before = harness_snapshot_take(h->pid);
	return session_begin(h);
}

static int arena_count(pid_t pid)
{
	struct arena_found found[4];
	struct dinst_error e = {0};
	struct target *t;
	int count;

	assert_int_equal(target_open(pid, &t, &e), 0);
	count = arena_find(t, found, 4, &e);
	target_close(t);
	return count;
}

static void release(struct session *s)
{
	struct dinst_error e = {0};

	if (target_release(s->target, &e) < 0)
		fail_msg("release: %s", e.text);
}

/* main, constructors, threads and the loader are counted; the program ends as it would have. */
/* fear G3: a program is instrumented from its first instruction after exec on */
static void test_from_the_first_instruction(void **state)
{
	struct harness *h = *state;
	unsigned mains, prepares, steps, loader;
	struct session *s;

	s = begin_held(h, "starting", harness_number(THREADS));
	mains = session_insert(s, "main");
	prepares = session_insert(s, "prepare");
	steps = session_insert(s, "step");
	loader = session_insert(s, "/Code/ld-linux-x86-64.so.2/*");
	expect_held(h);
	assert_int_equal(session_value(s, loader), 0);
	release(s);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ready");
	assert_int_equal(session_value(s, mains), 1);
	assert_int_equal(session_value(s, prepares), 7);
	assert_int_equal(session_value(s, steps), THREADS * 1000);
	assert_true(session_value(s, loader) > 100);
	session_end(s);
	harness_verify_what(h, HARNESS_TEXT | HARNESS_FDS);
	harness_end(h, 42);
}

/*
 * fear G3, H1, J3: a program that overwrites the random bytes which the kernel gave it, as Go's do when
 * they begin, has not executed another one
 */
static void test_overwritten_random_bytes(void **state)
{
	struct harness *h = *state;
	struct session *s = begin_held(h, "starting", harness_number(THREADS));
	const unsigned steps = session_insert(s, "step");
	unsigned later;

	release(s);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ready");
	later = session_insert(s, "prepare");
	assert_int_equal(session_value(s, steps), THREADS * 1000);
	assert_int_equal(session_value(s, later), 0);
	session_end(s);
	harness_verify_what(h, HARNESS_TEXT | HARNESS_FDS);
	assert_int_equal(arena_count(h->pid), 0);
	harness_end(h, 42);
}

/*
 * fear G3, J3: the same where nothing else would tell an exec: no more can be inserted, but what is in
 * goes with the session, and the next one finds nothing to clean
 */
static void test_overwritten_without_randomness(void **state)
{
	struct harness *h = *state;
	struct detach_result detached;
	struct dinst_error e = {0};
	struct session *s;
	unsigned id;
	size_t count;

	placed_alike = true;
	s = begin_held(h, "starting", harness_number(THREADS));
	placed_alike = false;
	session_insert(s, "step");
	release(s);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ready");
	assert_int_equal(session_try_insert(s, "prepare", false, &count, &id, &e), DINST_GONE);
	dinst_error_clear(&e);
	if (session_detach(s, 100, &detached, &e) < 0)
		fail_msg("detach: %s", e.text);
	assert_int_equal(detached.left, 0);
	assert_int_equal(detached.restored, 1);
	session_free(s);
	harness_verify_what(h, HARNESS_TEXT | HARNESS_FDS);
	assert_int_equal(arena_count(h->pid), 0);
	harness_end(h, 42);
}

/* The last values are there after the program has ended. */
/* fear G7: the last values are there after the program has ended */
static void test_values_after_the_end(void **state)
{
	struct harness *h = *state;
	unsigned mains, steps;
	struct session *s;

	s = begin_held(h, "starting", "2");
	mains = session_insert(s, "main");
	steps = session_insert(s, "step");
	close(h->input);
	h->input = -1;
	release(s);
	assert_int_equal(harness_wait(h, HARNESS_ANSWER_MS), 42 << 8);
	assert_int_equal(session_value(s, mains), 1);
	assert_int_equal(session_value(s, steps), 2 * 1000);
	session_free(s);
}

/* A function of a library that is not there yet: counted from the moment that it is found. */
static void test_library_to_come(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned id;

	s = begin_held(h, "starting", "1");
	id = session_insert(s, "/Code/libc.so.6/getppid");
	assert_int_equal(session_pending(s, id), 1);
	assert_true(request_has_pending(s));
	release(s);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ready");
	for (int i = 0; i < 50000 && session_pending(s, id); i++) {
		request_retry_pending(s);
		usleep(1000);
	}
	assert_int_equal(session_pending(s, id), 0);
	harness_send(h, "parent 12345\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	assert_int_equal(session_value(s, id), 12345);
	session_end(s);
	harness_verify_what(h, HARNESS_TEXT | HARNESS_FDS);
	harness_end(h, 42);
}

struct at_the_gate {
	taddr_t gate;
	struct arch_regs before;
};

static int put_into_gate(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct stop_thread *thread = stop_thread(stop, 0);
	struct at_the_gate *g = arg;

	if (arch_in_syscall(&thread->regs))
		return DINST_BUSY;
	g->before = thread->regs;
	arch_set_pc(&thread->regs, g->gate);
	thread->changed = true;
	return stop_store_regs(stop, e);
}

static int bring_back(struct stop *stop, void *arg, struct dinst_error *e)
{
	const struct at_the_gate *g = arg;

	stop_thread(stop, 0)->regs = g->before;
	stop_thread(stop, 0)->changed = true;
	return stop_store_regs(stop, e);
}

/* Stops the program where it is in no system call, and stands it in the gate. */
static void stand_in_gate(struct harness *h, struct session *s, struct at_the_gate *g)
{
	struct dinst_error e = {0};

	for (int i = 0; i < 10000; i++) {
		assert_int_equal(kill(h->pid, SIGSTOP), 0);
		expect_held(h);
		if (target_stop(s->target, NULL, put_into_gate, g, NULL, &e) >= 0)
			return;
		dinst_error_clear(&e);
		assert_int_equal(kill(h->pid, SIGCONT), 0);
		usleep(100);
	}
	fail_msg("it is in a system call each time");
}

/*
 * fear J1: a thread that has no processor stands in the gate that was opened, and leads on to code which is removed
 * meanwhile, while other points stay: that code waits for it
 */
static void test_removed_behind_the_gate(void **state)
{
	struct harness *h = *state;
	struct flush_result flush = {0};
	struct dinst_error e = {0};
	struct at_the_gate g = {0};
	const struct site *site;
	struct session *s;
	unsigned stays, goes;
	taddr_t code;

	s = begin_held(h, "starting", "1");
	stays = session_insert(s, "_start");
	goes = session_insert_kind(s, "_start", POINT_BLOCK);
	session_insert(s, "/Code/libc.so.6/getppid");
	site = session_instance(s, stays)->links->site;
	code = site->body->code;
	assert_ptr_not_equal(site->body, site->head);
	assert_int_equal(gate_release(s, &e), 0);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ready");
	g.gate = site->gate;
	assert_true(g.gate != 0);
	harness_send(h, "parent 20000000\n");
	stand_in_gate(h, s, &g);
	session_remove(s, goes);
	assert_int_equal(removal_flush(s, &flush, &e), 0);
	assert_int_equal(flush.freed, 0);
	assert_false(heap_is_poison(site->place->heap, code));
	assert_int_equal(target_stop(s->target, NULL, bring_back, &g, NULL, &e), 0);
	assert_int_equal(removal_flush(s, &flush, &e), 0);
	assert_true(flush.freed > 0);
	assert_true(heap_is_poison(site->place->heap, code));
	assert_int_equal(session_value(s, stays), 1);
	assert_int_equal(kill(h->pid, SIGCONT), 0);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	session_end(s);
	harness_verify_what(h, HARNESS_TEXT | HARNESS_FDS);
	harness_end(h, 42);
}

/* Detached before it ran at all: nothing has happened to it. */
static void test_detached_while_held(void **state)
{
	struct harness *h = *state;
	struct session *s;

	s = begin_held(h, "starting", "2");
	session_insert(s, "main");
	session_insert(s, "/Code/ld-linux-x86-64.so.2/*");
	session_end(s);
	harness_verify_what(h, HARNESS_TEXT | HARNESS_MAPS | HARNESS_FDS | HARNESS_SIGNALS);
	assert_int_equal(kill(h->pid, SIGCONT), 0);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ready");
	harness_end(h, 42);
}

/* ------------------------------------------------- programs of all makes */

static const char *const once[] = {"tiny", "floating", "many", "strange", "indirect"};

/* Counts what every round calls once a thread; everything in and out while it runs. */
static void count_all(struct harness *h)
{
	unsigned ids[sizeof(once) / sizeof(once[0])], all;
	struct session *s = session_begin(h);

	for (size_t i = 0; i < sizeof(once) / sizeof(once[0]); i++)
		ids[i] = session_insert(s, once[i]);
	session_go(h, ROUNDS);
	for (size_t i = 0; i < sizeof(once) / sizeof(once[0]); i++)
		assert_int_equal(session_value(s, ids[i]), (uint64_t)THREADS * ROUNDS);
	harness_send(h, "go 300000\n");
	for (int turn = 0; turn < 3; turn++)
		for (int kind = POINT_ENTRY; kind <= POINT_CALL; kind++) {
			all = session_insert_kind(s, "*", (enum point_kind)kind);
			session_remove(s, all);
			session_flush_all(s);
			harness_again(h, "go 300000\n");
		}
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	session_end(s);
	harness_verify(h);
	session_go(h, 100);
	harness_end(h, 0);
}

static void test_static(void **state)
{
	harness_start(*state, "calls-static", harness_number(THREADS), NULL);
	count_all(*state);
}

/*
 * fear G3: a static program is held before its first instruction, when no thread has a thread pointer:
 * counters on all of it go in, what keeps state of threads is busy, and works when it has begun
 */
static void test_static_held(void **state)
{
	struct harness *h = *state;
	struct insert_result result;
	struct dinst_error e = {0};
	const struct instance *latency;
	unsigned tiny, all;
	struct session *s;

	s = begin_held(h, "calls-static", harness_number(THREADS));
	all = session_insert(s, "/Code/calls-static/*");
	tiny = session_insert(s, "tiny");
	assert_int_equal(request_insert(s, "latency", (const char *const[]){"tiny"}, 1, NULL,
					&result, &e),
			 DINST_BUSY);
	assert_non_null(strstr(e.text, "no thread pointer (yet)"));
	assert_int_equal(session_value(s, all), 0);
	release(s);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ready");
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, tiny), (uint64_t)THREADS * ROUNDS);
	latency = session_insert_metric(s, "latency", "tiny", NULL);
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, latency->id), (uint64_t)THREADS * ROUNDS);
	assert_true(session_value(s, all) > (uint64_t)10 * THREADS * ROUNDS);
	session_end(s);
	session_go(h, 10);
	harness_verify_what(h, HARNESS_TEXT | HARNESS_FDS);
	harness_end(h, 0);
}

static void test_static_pie(void **state)
{
	harness_start(*state, "calls-static-pie", harness_number(THREADS), NULL);
	count_all(*state);
}

static void test_fixed_address(void **state)
{
	harness_start(*state, "calls-fixed", harness_number(THREADS), NULL);
	count_all(*state);
}

/* fear H3: from before its first instruction on, as static and static-pie programs: exact counts */
static void test_musl(void **state)
{
	struct harness *h = *state;
	char path[128], command[512];
	const char *argv[] = {path, "4", NULL};

	if (system("command -v musl-gcc >/dev/null 2>&1") != 0) {
		print_message("SKIP musl: musl-gcc is not installed\n");
		skip();
	}
	snprintf(path, sizeof(path), "%s/calls", h->directory);
	snprintf(command, sizeof(command),
		 "musl-gcc -O2 -g -pthread -D_GNU_SOURCE -fno-inline -fno-ipa-cp -o '%s' "
		 "tests/live/targets/calls.c",
		 path);
	if (system(command) != 0)
		fail_msg("%s failed", command);
	harness_start_argv(h, argv, true);
	count_all(h);
}

/* Without symbols a function is named by its offset, or by the place where its frame is. */
static void test_stripped(void **state)
{
	struct harness *h = *state;
	unsigned id, all;
	struct session *s;
	char focus[128];

	harness_start(h, "calls-stripped", harness_number(THREADS), NULL);
	s = session_begin(h);
	snprintf(focus, sizeof(focus), "calls-stripped+0x%llx",
		 (unsigned long long)harness_symbol("tests/live/targets/calls", "many"));
	id = session_insert(s, focus);
	all = session_insert(s, "/Code/calls-stripped/*");
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, id), (uint64_t)THREADS * ROUNDS);
	assert_true(session_value(s, all) >= (uint64_t)THREADS * ROUNDS * 10);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* Every point of every function of libc, in and out under threads that use it. */
static void test_all_of_libc(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned ids[3];

	harness_start(h, "calls", harness_number(THREADS), NULL);
	s = session_begin(h);
	harness_send(h, "go 300000\n");
	for (int turn = 0; turn < 2; turn++) {
		for (int kind = POINT_ENTRY; kind <= POINT_CALL; kind++)
			ids[kind] =
				session_insert_kind(s, "/Code/libc.so.6/*", (enum point_kind)kind);
		usleep(10000);
		for (int kind = POINT_ENTRY; kind <= POINT_CALL; kind++)
			session_remove(s, ids[kind]);
		session_flush_all(s);
		harness_again(h, "go 300000\n");
	}
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	session_end(s);
	harness_verify(h);
	session_go(h, 100);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_from_the_first_instruction),
		CASE(test_overwritten_random_bytes),
		CASE(test_overwritten_without_randomness),
		CASE(test_values_after_the_end),
		CASE(test_library_to_come),
		CASE(test_removed_behind_the_gate),
		CASE(test_detached_while_held),
		CASE(test_static),
		CASE(test_static_held),
		CASE(test_static_pie),
		CASE(test_fixed_address),
		CASE(test_stripped),
		CASE(test_musl),
		CASE(test_all_of_libc),
	};

	return cmocka_run_group_tests_name("live/exec_start", tests, NULL, NULL);
}
