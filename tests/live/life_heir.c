/* SPDX-License-Identifier: MIT */
/*
 * life_heir.c - the target has ended, a child of it goes on in its place, and a child of that one has got the
 * number of the target.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/live/harness_session.h"

static void look(struct harness *h, const char *expected)
{
	harness_send(h, "look\n");
	if (strncmp(harness_line(h, HARNESS_ANSWER_MS), expected, strlen(expected)))
		fail_msg("its child says: %s", h->line);
}

/* The target has ended, and its grandchild, in which an instance is, has its number. */
static struct session *begin(struct harness *h, unsigned *id, pid_t *heir)
{
	char command[40];
	struct session *s;
	pid_t pid;

	harness_start(h, "heir", NULL);
	s = session_begin(h);
	*id = session_insert(s, "work_of");
	pid = h->pid;
	harness_send(h, "leave\n");
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "heir %d", heir), 1);
	assert_int_equal(harness_wait(h, HARNESS_ANSWER_MS), 0);
	snprintf(command, sizeof(command), "under %d\n", (int)pid);
	harness_send(h, command);
	if (strcmp(harness_line(h, HARNESS_ANSWER_MS), "done")) {
		print_message("SKIP: a pid cannot be asked for here\n");
		skip();
	}
	look(h, "patched");
	assert_false(target_alive(s->target));
	return s;
}

/* Nothing is left in it. The heir ends when it hears no more, and its child with it. */
static void end(struct harness *h, struct session *s, pid_t heir)
{
	struct detach_result result;
	struct dinst_error e = {0};

	if (session_detach(s, 10, &result, &e) < 0)
		fail_msg("detach: %s", e.text);
	assert_int_equal(result.left, 0);
	session_free(s);
	look(h, "calls ");
	close(h->input);
	h->input = -1;
	/* Not our child: it may stay a zombie where the first process does not reap. */
	harness_until((kill(heir, 0) && errno == ESRCH) ||
		      harness_status(heir, heir, "State:")[0] == 'Z');
}

/* fear A13, G1: a grandchild has the number of the target, which has ended: nothing is left in it at detach */
static void test_detach(void **state)
{
	unsigned id;
	pid_t heir;
	struct session *s = begin(*state, &id, &heir);
	const uint64_t value = session_value(s, id);

	harness_until(session_value(s, id) > value);
	end(*state, s, heir);
}

/* fear A13, G1: the same where the session goes on: what is removed is taken out of it, too, before it is freed */
static void test_removal(void **state)
{
	struct dinst_error ignored = {0};
	struct flush_result flushed;
	unsigned id;
	pid_t heir;
	struct session *s = begin(*state, &id, &heir);

	session_remove(s, id);
	removal_flush(s, &flushed, &ignored);
	look(*state, "calls ");
	end(*state, s, heir);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {CASE(test_detach), CASE(test_removal)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
