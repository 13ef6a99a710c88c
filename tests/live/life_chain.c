/* SPDX-License-Identifier: MIT */
/*
 * life_chain.c - children that end before anybody has looked at them, and have forked the next one by then: what
 * nobody is to be left behind in must find that one.
 */
#include <stdio.h>
#include <string.h>

#include "tests/live/death_help.h"

enum {
	REPAIRS = 6,
	REMOVALS = 40,
	DETACHES = 4,
	INSERTS = 8,
	HEIRS = 12,
	HEIR_MS = 1000,
	TRIES = 50
};

static void begin_chain(struct harness *h)
{
	harness_send(h, "start\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "started");
	usleep(20000);
}

/* The chain goes on, and computes what it should. How many of the links have other code than the file. */
static int expect_computed(struct harness *h)
{
	int links = 0, wrong = -1, patched = -1;

	harness_send(h, "look\n");
	if (sscanf(harness_line(h, HARNESS_ANSWER_MS), "links %d wrong %d patched %d", &links,
		   &wrong, &patched) != 3)
		fail_msg("the chain says: %s", h->line);
	assert_int_equal(wrong, 0);
	return patched;
}

/* And it has the code that the file has. */
static void expect_whole(struct harness *h)
{
	assert_int_equal(expect_computed(h), 0);
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

static int insert_latency(struct session *s, const char *focus, unsigned *id, struct dinst_error *e)
{
	struct insert_result result;
	const int status =
		request_insert(s, "latency", &focus, 1, &(struct insert_options){0}, &result, e);

	if (status >= 0) {
		*id = result.instances[0]->id;
		free(result.instances);
	}
	return status;
}

/*
 * fear G1: children that have what a request needs, and end while they are looked at, are no reason to refuse it, as if
 * they had come before
 */
static void test_insert(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct session *s;
	int inserted = 0;
	unsigned id;

	harness_start(h, "chain", NULL);
	s = session_begin(h);
	/* Two arenas: code in that of the library uses what is in the other one. */
	assert_int_equal(insert_latency(s, "other_of", &id, &e), 0);
	assert_int_equal(insert_latency(s, "/Code/libc.so.6/puts", &id, &e), 0);
	for (int n = 0; n < INSERTS; n++) {
		int status;

		harness_send(h, "flock\n");
		assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "started");
		usleep(20000);
		dinst_error_clear(&e);
		status = insert_latency(s, "/Code/libc.so.6/fgets", &id, &e);
		if (status < 0 && status != DINST_BUSY)
			fail_msg("insert: %s", e.text);
		inserted += status >= 0;
		expect_computed(h);
		if (status >= 0)
			session_remove(s, id);
		end_chain(h);
	}
	assert_true(inserted >= INSERTS / 2);
	session_flush_all(s);
	session_end(s);
	harness_end(h, 0);
}

/* Busy is an answer, as nobody lives long here: what is asked is tried again then. */
static void clean_heirs(pid_t maker, uint64_t start)
{
	struct leftovers left;
	int status, tries = 0;

	do {
		struct dinst_error e = {0};

		status = leftovers_clean_heirs(maker, start, HEIR_MS, &left, &e);
		if (status < 0 && (status != DINST_BUSY || tries == TRIES))
			fail_msg("heirs, tried %d times: %s", tries, e.text);
	} while ((status < 0 || left.arenas_left) && tries++ < TRIES);
	assert_int_equal(left.arenas_left, 0);
}

/* fear G1, J2: the target and its mutator have ended: what is left is found in a chain of which nobody lives long */
static void test_heirs(void **state)
{
	struct harness *h = *state;
	struct proc_stat own;

	assert_int_equal(proc_stat_read(getpid(), &own), 0);
	for (int n = 0; n < HEIRS; n++) {
		struct session *s;

		harness_start(h, "chain", NULL);
		s = session_begin(h);
		session_insert_kind(s, "link_of", POINT_ENTRY);
		/* As a mutator that dies. */
		session_free(s);
		harness_send(h, "leave\n");
		assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "left");
		assert_int_equal(harness_wait(h, HARNESS_ANSWER_MS), 0);
		clean_heirs(getpid(), own.start_time);
		harness_send(h, "who\n");
		assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "link whole");
	}
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {CASE(test_repair), CASE(test_removal), CASE(test_detach),
					   CASE(test_insert), CASE(test_heirs)};

	account = calloc(1, sizeof(*account));
	if (!account)
		return 1;
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
