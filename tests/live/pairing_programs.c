/* SPDX-License-Identifier: MIT */
/*
 * pairing_programs.c - per-thread state in programs of other kinds: static ones,
 * another C library, a runtime that has none; and what a mutator leaves that
 * dies at any step of making and using it.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/fault.h"
#include "mutator/threads.h"
#include "tests/live/harness_session.h"

enum { THREADS = 3, ROUNDS = 500, DEATHS = 40, GAVE_UP = 3, FAILED = 4 };

static const struct raw_metric pairs = {
	.name = "pairs",
	.unit = "activations",
	.constraints = "/Code",
	.kind = POINT_ENTRY,
	.snippet = SNIPPET_ENTER,
};

static int pair(struct session *s, const char *focus, const struct instance **i,
		struct dinst_error *e)
{
	struct insert_result result;
	int status = request_insert_raw(s, &pairs, &focus, 1, false, &result, e);

	if (status >= 0 && i)
		*i = result.instances[0];
	if (status >= 0)
		free(result.instances);
	return status;
}

/* Every call of every function finds its exit. */
static void check_calls(struct harness *h)
{
	struct session *s = session_begin(h);
	struct threads_statistics found;
	struct dinst_error e = {0};
	const struct instance *leaf;

	if (pair(s, "leaf", &leaf, &e) < 0)
		fail_msg("%s", e.text);
	session_go(h, ROUNDS);
	assert_true(instance_value(leaf) >= (uint64_t)THREADS * ROUNDS);
	assert_int_equal(instance_exits(leaf), instance_value(leaf));
	assert_int_equal(threads_alive(s, leaf), 0);
	threads_statistics(s, &found);
	assert_int_equal(found.lost + found.overflow + found.orphans, 0);
	assert_in_range(found.used, THREADS, THREADS + 1);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

static void test_static(void **state)
{
	harness_start(*state, "calls-static", harness_number(THREADS), NULL);
	check_calls(*state);
}

static void test_static_pie(void **state)
{
	harness_start(*state, "calls-static-pie", harness_number(THREADS), NULL);
	check_calls(*state);
}

static void build_musl(const struct harness *h, const char *options, const char *source, char *path,
		       size_t size)
{
	char command[512];

	if (system("command -v musl-gcc >/dev/null 2>&1") != 0) {
		print_message("SKIP musl: musl-gcc is not installed\n");
		skip();
	}
	snprintf(path, size, "%s/for-musl", h->directory);
	snprintf(command, sizeof(command),
		 "musl-gcc -O2 -g -pthread -D_GNU_SOURCE -fno-inline -fno-ipa-cp %s -o '%s' "
		 "tests/live/targets/%s",
		 options, path, source);
	if (system(command) != 0)
		fail_msg("%s failed", command);
}

/* fear H3, D7: per-thread state under musl, as in static programs: entries and exits exact */
static void test_musl(void **state)
{
	struct harness *h = *state;
	char path[128];
	const char *argv[] = {path, harness_number(THREADS), NULL};

	build_musl(h, "", "calls.c", path, sizeof(path));
	harness_start_argv(h, argv, true);
	check_calls(h);
}

/* One thread that calls itself 1, as much else in its C library's memory is. */
static void check_alone(struct harness *h, const char *path)
{
	const char *argv[] = {path, NULL};
	const int container = harness_container_begin();
	struct dinst_error e = {0};
	const struct instance *leaf;
	struct session *s;

	harness_start_argv(h, argv, true);
	harness_container_end(container);
	s = session_begin(h);
	if (pair(s, "leaf", &leaf, &e) < 0)
		fail_msg("%s: %s", path, e.text);
	session_go(h, ROUNDS);
	assert_int_equal(instance_value(leaf), ROUNDS);
	assert_int_equal(instance_exits(leaf), ROUNDS);
	assert_int_equal(threads_alive(s, leaf), 0);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear I1, H3: the first process of a container, with one thread: where glibc has its id is found, though it is 1
 */
static void test_process_1(void **state)
{
	check_alone(*state, harness_path("tests/live/targets/alone-thread"));
}

/* fear I1, H3: the same where the C library is musl, in all forms */
static void test_process_1_musl(void **state)
{
	static const char *const forms[] = {"", "-static", "-static-pie"};
	struct harness *h = *state;
	char path[128];

	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		build_musl(h, forms[i], "alone-thread.c", path, sizeof(path));
		check_alone(h, path);
	}
}

/* fear H1: Go's threads cannot be told from each other: pairing is refused, and nothing was changed */
static void test_go(void **state)
{
	struct harness *h = *state;
	char command[512], path[128];
	const char *argv[] = {path, NULL};
	struct dinst_error e = {0};
	struct session *s;

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
	s = session_begin(h);
	assert_int_equal(pair(s, "main.*", NULL, &e), DINST_REFUSED);
	assert_non_null(strstr(e.text, "thread"));
	session_end(s);
	harness_verify(h);
	harness_kill(h);
}

/* ----------------------------------------------------------------- deaths */

/* In the child: all of a mutator's life, or as much of it as there is. */
static void live_and_die(pid_t pid, unsigned long countdown)
{
	struct dinst_error e = {0};
	struct detach_result detached;
	const struct instance *i = NULL;
	struct session *s;
	int status;

	alarm(600);
	fault_countdown = countdown;
	status = session_attach(pid, "doomed", &s, &e);
	if (status >= 0)
		status = pair(s, "fib", NULL, &e);
	if (status >= 0)
		status = pair(s, "/Code/paired/*t*", &i, &e);
	if (status >= 0) {
		struct flush_result flushed;

		usleep(3000);
		status = removal_remove(s, (struct instance *)i, &flushed, &e);
		if (status >= 0)
			status = removal_flush(s, &flushed, &e);
	}
	if (status >= 0)
		status = session_detach(s, 100, &detached, &e);
	_exit(status >= 0 ? 0 : status == DINST_BUSY ? GAVE_UP : FAILED);
}

/* False if it came to its end. */
static bool dies(struct harness *h, unsigned long countdown)
{
	int status = 0;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (child == 0)
		live_and_die(h->pid, countdown);
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFSIGNALED(status)) {
		assert_int_equal(WTERMSIG(status), SIGKILL);
		return true;
	}
	assert_true(WIFEXITED(status) &&
		    (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == GAVE_UP));
	return false;
}

static void clean(struct harness *h)
{
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;

	if (target_open(h->pid, &t, &e))
		fail_msg("%s", e.text);
	if (leftovers_clean(t, 60000, &left, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(left.arenas_left, 0);
	target_close(t);
	harness_verify(h);
}

static void test_deaths(void **state)
{
	struct harness *h = *state;
	unsigned long countdown = 1;
	unsigned deaths = 0;

	harness_start(h, "paired", harness_number(THREADS), NULL);
	harness_limit(600);
	harness_send(h, "go 15000\n");
	/* Close together where the state is made, then ever further apart. */
	for (; countdown < 200000 && dies(h, countdown); countdown += 1 + countdown / 20) {
		clean(h);
		deaths++;
	}
	clean(h);
	assert_true(deaths > DEATHS);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_static),    CASE(test_static_pie),	 CASE(test_musl),
		CASE(test_process_1), CASE(test_process_1_musl), CASE(test_go),
		CASE(test_deaths),
	};

	return cmocka_run_group_tests_name("live/pairing_programs", tests, NULL, NULL);
}
