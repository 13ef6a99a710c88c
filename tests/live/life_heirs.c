/* SPDX-License-Identifier: MIT */
/*
 * life_heirs.c - children whose parent, which had the session, has ended, or whose mutator has.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/live/harness_session.h"
#include "tests/live/harness_thread.h"
#include "tests/live/mdl_help.h"

static void expect_text(pid_t pid)
{
	struct harness_snapshot *now = harness_snapshot_take(pid);
	char text[4096];

	assert_non_null(now);
	if (harness_differences(now, HARNESS_TEXT, text, sizeof(text)))
		fail_msg("process %d is not restored:\n%s", (int)pid, text);
	harness_snapshot_free(now);
}

/* Its text is the file's, and nothing of ours is mapped. */
static void expect_clean(pid_t child)
{
	char text[128];

	expect_text(child);
	snprintf(text, sizeof(text), "grep -q memfd:dinst /proc/%d/maps", (int)child);
	assert_int_not_equal(system(text), 0);
}

static bool has_counted(struct harness *h, pid_t child, int64_t id)
{
	json_t *rows = NULL;
	bool has;

	assert_int_equal(harness_dinst(h, &rows, "read", harness_number(id), "-p",
				       harness_number(child)),
			 0);
	has = harness_integer(rows, "value") > 0;
	json_decref(rows);
	return has;
}

/*
 * fear G8, J2: a child is attached to whose parent had a session and has ended: that session gives its name, and
 * the new one waits until what the child inherited is out of it, and does not give up because of that
 */
static void test_child_of_an_ended_session(void **state)
{
	struct harness *h = *state;
	json_t *rows = NULL;
	pid_t child = 0;
	int64_t id;

	harness_start(h, "forks", NULL);
	mdl_attach(h, NULL);
	mdl_insert(h, "calls", "hit");
	mdl_insert(h, "latency", "hits");
	assert_int_equal(sscanf(mdl_ask(h, "linger"), "child %d", &child), 1);
	assert_int_equal(kill(h->pid, SIGKILL), 0);
	harness_wait(h, HARNESS_ANSWER_MS);
	if (harness_dinst(h, NULL, "attach", harness_number(child)) != 0)
		fail_msg("attach: %s", h->messages);
	expect_clean(child);
	if (harness_dinst(h, &rows, "insert", "calls", "hit", "-p", harness_number(child)) != 0)
		fail_msg("insert: %s", h->messages);
	id = harness_integer(rows, "id");
	json_decref(rows);
	harness_until(has_counted(h, child, id));
	if (harness_dinst(h, NULL, "detach", harness_number(child)) != 0)
		fail_msg("detach: %s", h->messages);
	expect_clean(child);
	kill(child, SIGKILL);
}

/* A mutator that has inserted something; it waits to be killed. */
static pid_t start_mutator(struct harness *h)
{
	int ends[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(ends), 0);
	pid = fork();
	if (pid == 0) {
		session_insert(session_begin(h), "handle");
		if (write(ends[1], "x", 1) == 1)
			pause();
		_exit(1);
	}
	close(ends[1]);
	assert_int_equal(read(ends[0], &byte, 1), 1);
	close(ends[0]);
	return pid;
}

/*
 * fear J2, A9: a mutator is killed, and a child is in the strict mode of seccomp, where nothing can be unmapped: it and
 * its parent are given their code back all the same, and the rest when it has ended
 */
static void test_strict_child_of_a_dead_mutator(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;
	pid_t mutator, worker;

	harness_start(h, "life-family", NULL);
	mutator = start_mutator(h);
	assert_int_equal(sscanf(mdl_ask(h, "serve 1"), "workers %d", &worker), 1);
	assert_string_equal(mdl_ask(h, "strict worker"), "done");
	assert_string_equal(mdl_ask(h, "requests 10"), "done");
	kill(mutator, SIGKILL);
	waitpid(mutator, NULL, 0);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	assert_true(leftovers_clean(t, 1000, &left, &e) < 0);
	if (!strstr(e.text, harness_number(worker)) || !strstr(e.text, "no thread that can make"))
		fail_msg("it says: %s", e.text);
	expect_text(worker);
	expect_text(h->pid);
	assert_string_equal(mdl_ask(h, "requests 10"), "done");
	assert_string_equal(mdl_ask(h, "dismiss"), "done");
	dinst_error_clear(&e);
	if (leftovers_clean(t, 10000, &left, &e) < 0)
		fail_msg("%s", e.text);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_child_of_an_ended_session),
		CASE(test_strict_child_of_a_dead_mutator),
	};

	return cmocka_run_group_tests_name("live/life_heirs", tests, NULL, NULL);
}
