/* SPDX-License-Identifier: MIT */
/*
 * life_code.c - programs that guard their own code, libraries that take each
 * other's place, and files that change while their programs run.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/live/harness_session.h"

static void tell(struct harness *h, const char *command, const char *answer)
{
	harness_send(h, command);
	harness_send(h, "\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), answer);
}

/*
 * fear G6: a program that hashes its own code sees a difference while points are in, which is the
 * user's choice, and none before and afterwards; switched off points show, flushed ones do not.
 */
static void test_sums(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned id;

	harness_start(h, "life-code", NULL);
	s = session_begin(h);
	tell(h, "sum", "same");
	id = session_insert(s, "work");
	tell(h, "sum", "changed");
	tell(h, "work 100", "done");
	assert_int_equal(session_value(s, id), 100);
	session_remove(s, id);
	session_flush_all(s);
	tell(h, "sum", "same");
	/* Its own hash function is instrumented while it reads itself. */
	session_insert(s, "/Code/life-code/*");
	tell(h, "sum", "changed");
	session_end(s);
	tell(h, "sum", "same");
	harness_verify(h);
	harness_end(h, 0);
}

/* A guard on the code, and everything as ever; false if the machine has no such guard. */
static bool work_guarded(struct harness *h, const char *guard, unsigned verify)
{
	struct session *s;
	unsigned id;

	harness_start(h, "life-code", NULL);
	harness_send(h, guard);
	if (strcmp(harness_line(h, HARNESS_ANSWER_MS), "done") != 0)
		return false;
	harness_snapshot_free(h->before);
	h->before = harness_snapshot_take(h->pid);
	for (int i = 0; i < 3; i++) {
		s = session_begin(h);
		id = session_insert(s, "work");
		session_insert_kind(s, "/Code/life-code/*", POINT_EXIT);
		session_insert(s, "/Code/libc.so.6/read");
		tell(h, "work 1000", "done");
		assert_int_equal(session_value(s, id), 1000);
		session_end(s);
		harness_verify_what(h, verify);
	}
	harness_end(h, 0);
	return true;
}

/* fear G6: sealed code, whose protection nobody can change any more, is patched and restored */
static void test_sealed(void **state)
{
	if (!work_guarded(*state, "seal\n", HARNESS_ALL)) {
		print_message("skipped: this kernel has no mseal\n");
		skip();
	}
}

static void check_sealed(struct harness *h, struct session *s, bool after)
{
	unsigned id = session_insert(s, "work");

	session_insert_kind(s, "/Code/life-code/*", POINT_EXIT);
	if (!after)
		tell(h, "seal all", "done");
	tell(h, "work 1000", "done");
	assert_int_equal(session_value(s, id), 1000);
}

/*
 * fear G6, J3: a program seals all that it has mapped, what is ours included: detaching, repairing and attaching again
 * restore its code and say so, soon, and the next sessions work
 */
static void test_all_sealed(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct leftovers left;
	struct session *s;
	uint64_t began;

	harness_start(h, "life-code", NULL);
	harness_send(h, "seal\n");
	if (strcmp(harness_line(h, HARNESS_ANSWER_MS), "done") != 0) {
		print_message("skipped: this kernel has no mseal\n");
		skip();
	}
	for (int i = 0; i < 3; i++) {
		s = session_begin(h);
		began = clock_ns();
		assert_int_equal(leftovers_clean(s->target, 20000, &left, &e), 0);
		assert_int_equal(left.sealed, i > 0);
		assert_int_equal(left.arenas_left, 0);
		assert_true(clock_ns() - began < 10000000000);
		check_sealed(h, s, i > 0);
		session_end(s);
		harness_verify_what(h, HARNESS_ALL | HARNESS_NO_ARENA);
	}
	harness_end(h, 0);
}

/* fear G6, B3: code that a protection key keeps the program itself from reading */
static void test_protection_key(void **state)
{
	if (!work_guarded(*state, "key\n", HARNESS_ALL)) {
		print_message("skipped: this processor has no protection keys\n");
		skip();
	}
}

/*
 * fear G4: a library with points in it is unloaded, and another one is loaded at the same address: it is
 * never taken for the first, nothing is written to it, and points for it count its calls.
 */
static void test_twin(void **state)
{
	struct harness *h = *state;
	unsigned long first = 0, second = 0;
	unsigned met = 0, plugin, twin;
	struct session *s;

	harness_start(h, "life-code", NULL);
	s = session_begin(h);
	for (int i = 0; i < 10; i++) {
		harness_send(h, "load libplugin.so\n");
		assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "at %lx", &first), 1);
		plugin = session_insert(s, "/Code/libplugin.so/plugin_work");
		session_insert_kind(s, "/Code/libplugin.so/*", POINT_EXIT);
		tell(h, "call 1000", "done");
		assert_int_equal(session_value(s, plugin), 1000);
		tell(h, "unload", "done");
		harness_send(h, "load libtwin.so\n");
		assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "at %lx", &second), 1);
		met += first == second;
		/* Before dinst looks, and with everything taken out that was in the other one. */
		tell(h, "call 500", "done");
		if (i % 2) {
			session_remove(s, plugin);
			session_flush_all(s);
		}
		tell(h, "call 500", "done");
		twin = session_insert(s, "/Code/libtwin.so/plugin_work");
		tell(h, "call 1000", "done");
		assert_int_equal(session_value(s, twin), 1000);
		if (!(i % 2))
			assert_int_equal(session_value(s, plugin), 1000);
		while (s->instances)
			session_remove(s, s->instances->id);
		session_flush_all(s);
		tell(h, "call 10", "done");
		tell(h, "unload", "done");
	}
	assert_true(met > 0);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear G4: the two change places as fast as they can, while points for both come and go */
static void test_twins_churn(void **state)
{
	static const char *const foci[] = {"/Code/libplugin.so/*", "/Code/libtwin.so/*",
					   "plugin_work", "libtwin.so:twin_leaf"};
	struct harness *h = *state;
	struct session *s;
	unsigned done = 0;
	long met = 0;

	harness_start(h, "life-code", NULL);
	s = session_begin(h);
	harness_send(h, "twins 1500\n");
	for (int i = 0; i < 120; i++) {
		struct dinst_error e = {0};
		struct flush_result flushed;
		unsigned id = 0;
		int status = session_try_insert_kind(s, foci[i % 4],
						     i % 3 ? POINT_ENTRY : POINT_EXIT, &id, &e);

		if (status < 0 && e.code != DINST_NO_FUNCTION && e.code != DINST_NO_MODULE &&
		    e.code != DINST_REFUSED && e.code != DINST_BUSY)
			fail_msg("%s: %s (%s)", foci[i % 4], e.text, dinst_code_name(e.code));
		request_retry_pending(s);
		if (status >= 0) {
			done += session_instance(s, id)->link_count > 0;
			session_remove(s, id);
		}
		dinst_error_clear(&e);
		if (removal_flush(s, &flushed, &e) < 0 && e.code != DINST_BUSY)
			fail_msg("flush: %s", e.text);
	}
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "done %ld", &met), 1);
	print_message("%u of 120 requests found their library there\n", done);
	assert_true(met > 0);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

static void run(const char *format, const char *one, const char *other)
{
	char command[1024];

	snprintf(command, sizeof(command), format, one, other);
	if (system(command) != 0)
		fail_msg("%s failed", command);
}

/*
 * fear F6, G7: the program's file is deleted, or another one is put in its place, while it runs: points
 * are right, and what is restored is what runs.
 */
static void test_file_goes(void **state)
{
	struct harness *h = *state;
	char program[128], other[256];
	const char *argv[] = {program, NULL};

	snprintf(other, sizeof(other), "%s", harness_path("tests/live/targets/plain"));
	for (int replaced = 0; replaced < 2; replaced++) {
		struct session *s;
		unsigned id;

		snprintf(program, sizeof(program), "%s/life-code", h->directory);
		run("cp '%s' '%s'", harness_path("tests/live/targets/life-code"), program);
		harness_start_argv(h, argv, true);
		s = session_begin(h);
		id = session_insert(s, "work");
		if (replaced)
			run("cp '%s' '%s.new' ", other, program);
		run(replaced ? "mv '%s.new' '%s'" : "rm '%s' %s", program, replaced ? program : "");
		tell(h, "work 100", "done");
		assert_int_equal(session_value(s, id), 100);
		session_insert_kind(s, "work", POINT_EXIT);
		session_end(s);
		tell(h, "sum", "same");
		/* A session that comes when the file is gone or another. */
		s = session_begin(h);
		if (!replaced) {
			id = session_insert(s, "work");
			tell(h, "work 50", "done");
			assert_int_equal(session_value(s, id), 50);
		}
		session_end(s);
		tell(h, "sum", "same");
		harness_end(h, 0);
	}
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_sums),	   CASE(test_sealed), CASE(test_all_sealed),
		CASE(test_protection_key), CASE(test_twin),   CASE(test_twins_churn),
		CASE(test_file_goes),
	};

	return cmocka_run_group_tests_name("live/life_code", tests, NULL, NULL);
}
