/* SPDX-License-Identifier: MIT */
/*
 * life_chain.c - children that end before anybody has looked at them, and have forked the next one by then: what
 * nobody is to be left behind in must find that one.
 */
#include <stdio.h>
#include <string.h>

#include "tests/live/death_help.h"

enum { REPAIRS = 6, REMOVALS = 40, DETACHES = 4, LEAVING_US = 300 * 1000 };

static void begin_chain(struct harness *h)
{
	harness_send(h, "start\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "started");
	usleep(20000);
}

/* The chain goes on, computes what it should, and has the code that the file has. */
static void expect_whole(struct harness *h)
{
	int links = 0, wrong = -1, patched = -1;

	harness_send(h, "look\n");
	if (sscanf(harness_line(h, HARNESS_ANSWER_MS), "links %d wrong %d patched %d", &links,
		   &wrong, &patched) != 3)
		fail_msg("the chain says: %s", h->line);
	assert_int_equal(wrong, 0);
	assert_int_equal(patched, 0);
}

static void end_chain(struct harness *h)
{
	harness_send(h, "stop\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "stopped");
}

/* fear G1, J2: what a dead mutator has left is taken out of who is born and ends meanwhile, too */
static void test_repair(void **state)
{
	struct harness *h = *state;

	harness_start(h, "chain", NULL);
	for (int n = 0; n < REPAIRS; n++) {
		struct session *s = session_begin(h);

		session_insert_kind(s, "link_of", POINT_ENTRY);
		/* As a mutator that dies. */
		session_free(s);
		begin_chain(h);
		clean_up(h, 0);
		expect_whole(h);
		end_chain(h);
	}
	harness_end(h, 0);
}

/* fear G1: nothing is given back while somebody who was just born may run through it */
static void test_removal(void **state)
{
	struct harness *h = *state;
	struct session *s;
	int freed = 0;

	harness_start(h, "chain", NULL);
	s = session_begin(h);
	for (int n = 0; n < REMOVALS; n++) {
		struct flush_result flushed = {0};
		struct dinst_error e = {0};
		const unsigned id = session_insert_kind(s, "link_of", POINT_ENTRY);

		begin_chain(h);
		session_remove(s, id);
		if (removal_flush(s, &flushed, &e) < 0 && e.code != DINST_BUSY)
			fail_msg("flush: %s", e.text);
		if (!s->queue_length) {
			expect_whole(h);
			freed++;
		}
		end_chain(h);
	}
	/* Busy is an answer, too; but not mostly. */
	assert_true(freed >= REMOVALS / 2);
	session_flush_all(s);
	session_end(s);
	harness_end(h, 0);
}

/* fear G1, H1: whoever is left behind by detach runs what the file has */
static void test_detach(void **state)
{
	struct harness *h = *state;

	harness_start(h, "chain", NULL);
	for (int n = 0; n < DETACHES; n++) {
		struct session *s = session_begin(h);

		session_insert_kind(s, "link_of", POINT_ENTRY);
		session_insert_kind(s, "other_of", POINT_ENTRY);
		begin_chain(h);
		session_end(s);
		expect_whole(h);
		end_chain(h);
	}
	harness_end(h, 0);
}

/* fear J2: whoever has left something, and ends only now, is waited for: not taken for one who has a session there */
static void test_leaving(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;
	int told[2];
	pid_t mutator;
	char byte = 0;

	harness_start(h, "chain", NULL);
	assert_int_equal(pipe(told), 0);
	mutator = fork();
	assert_true(mutator >= 0);
	if (!mutator) {
		struct session *s = session_begin(h);

		session_insert_kind(s, "link_of", POINT_ENTRY);
		session_free(s);
		if (write(told[1], &byte, 1) == 1)
			usleep(LEAVING_US);
		_exit(0);
	}
	assert_int_equal(read(told[0], &byte, 1), 1);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	if (leftovers_clean(t, CLEAN_MS, &left, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(left.arenas_left, 0);
	target_close(t);
	assert_int_equal(waitpid(mutator, NULL, 0), mutator);
	close(told[0]);
	close(told[1]);
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {CASE(test_leaving), CASE(test_repair),
					   CASE(test_removal), CASE(test_detach)};

	account = calloc(1, sizeof(*account));
	if (!account)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
