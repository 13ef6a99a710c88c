/* SPDX-License-Identifier: MIT */
/*
 * implied.c - programs whose memory is executable wherever it can be read (READ_IMPLIES_EXEC,
 * personality(2)), ours with the rest: it is known all the same, by who comes after, too.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/live/harness_session.h"

enum { ROUNDS = 2000, THREADS = 2, CLEAN_MS = 60000 };

static const struct raw_metric paired = {
	.name = "activations",
	.unit = "",
	.constraints = "/Code",
	.kind = POINT_ENTRY,
	.snippet = SNIPPET_ENTER,
};

/* Its stacks would count as text. */
enum { ALL = HARNESS_ALL & ~HARNESS_TEXT };

static void insert(struct session *s)
{
	session_insert(s, "/Code/calls-implied/*");
	session_insert_raw(s, &paired, "many");
}

static void run_whole(struct harness *h, bool private)
{
	struct session *s;

	harness_start(h, "calls-implied", harness_number(THREADS), NULL);
	s = session_begin(h);
	s->private_arenas = private;
	insert(s);
	session_go(h, ROUNDS);
	session_end(s);
	harness_verify_what(h, ALL);
	harness_end(h, 0);
}

/* fear B8, J1: a whole session: it counts, and nothing is left */
static void test_session(void **state)
{
	run_whole(*state, false);
}

/* fear B8, J1: the same in private memory */
static void test_private(void **state)
{
	run_whole(*state, true);
}

/* A mutator that dies when all is in place. */
static void leave_all(struct harness *h, bool private)
{
	int status = 0;
	pid_t child;

	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		struct session *s = session_begin(h);

		s->private_arenas = private;
		insert(s);
		kill(getpid(), SIGKILL);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void run_left(struct harness *h, bool private)
{
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;

	harness_start(h, "calls-implied", harness_number(THREADS), NULL);
	leave_all(h, private);
	session_go(h, ROUNDS);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	if (leftovers_clean(t, CLEAN_MS, &left, &e) < 0)
		fail_msg("%s", e.text);
	target_close(t);
	session_go(h, ROUNDS);
	assert_true(left.restored > 5);
	assert_int_equal(left.arenas_left, 0);
	harness_verify_what(h, ALL);
	harness_end(h, 0);
}

/* fear B8, J2: what a mutator that died has left is found and taken out, and the program goes on */
static void test_left(void **state)
{
	run_left(*state, false);
}

/* fear B8, J2: the same in private memory */
static void test_left_private(void **state)
{
	run_left(*state, true);
}

static void ask(struct harness *h, const char *command)
{
	harness_send(h, command);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
}

/* fear B3: a library all of which is mapped executable: its code is known by its file */
static void test_library(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned id;

	harness_start(h, "loads-implied", NULL);
	ask(h, "open\n");
	s = session_begin(h);
	id = session_insert(s, "plugin_work");
	ask(h, "call 100\n");
	assert_int_equal(session_value(s, id), 100);
	session_end(s);
	ask(h, "close\n");
	harness_verify_what(h, ALL);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {CASE(test_left), CASE(test_left_private),
					   CASE(test_session), CASE(test_private),
					   CASE(test_library)};

	return cmocka_run_group_tests_name("live/implied", tests, NULL, NULL);
}
