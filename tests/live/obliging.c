/* SPDX-License-Identifier: MIT */
/*
 * obliging.c - programs that have asked the kernel for something that what is done to them must respect:
 * to lock what they map, to be asked before a file is read.
 */
#include "tests/live/harness_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "inject/arena.h"
#include "inject/journal.h"
#include "inject/maps.h"
#include "tests/live/inject_help.h"

enum { NOBODY = 65534, CALLS = 1000, FILLED_MOST_KIB = 24 << 10 };

/* False if the program says that it cannot do what it is for. */
static bool start(struct harness *h, const char *const *argv)
{
	char path[256];
	const char *words[8] = {NULL};

	snprintf(path, sizeof(path), "tests/live/targets/%s", argv[0]);
	words[0] = harness_path(path);
	for (size_t i = 1; argv[i]; i++)
		words[i] = argv[i];
	harness_start_argv(h, words, false);
	return !strcmp(harness_line(h, HARNESS_ANSWER_MS), "ready");
}

static const char *ask(struct harness *h, const char *command)
{
	char line[64];

	snprintf(line, sizeof(line), "%s\n", command);
	harness_send(h, line);
	return harness_line(h, HARNESS_ANSWER_MS);
}

/* Counted and measured, right, and out again. */
static void measure(struct harness *h, struct session *s)
{
	const struct instance *latency;
	unsigned calls = session_insert(s, "work");
	char go[32];

	latency = session_insert_metric(s, "latency", "work", NULL);
	assert_non_null(latency);
	snprintf(go, sizeof(go), "go %d", CALLS);
	assert_string_equal(ask(h, go), "done");
	assert_int_equal(session_value(s, calls), CALLS);
}

/* fear I3: what is mapped from now on is filled at once, and nothing shows that: it is little */
static void test_future_is_locked(void **state)
{
	struct harness *h = *state;
	struct session *s;
	long before, after;

	if (!start(h, (const char *const[]){"locking", "future", NULL})) {
		harness_end(h, 0);
		skip();
	}
	before = strtol(ask(h, "resident"), NULL, 10);
	s = session_begin(h);
	measure(h, s);
	after = strtol(ask(h, "resident"), NULL, 10);
	if (before <= 0 || after - before > FILLED_MOST_KIB)
		fail_msg("%ld KiB were in memory, then %ld", before, after);
	session_end(s);
	assert_string_equal(ask(h, "map"), "mapped");
	harness_end(h, 0);
}

/* fear I3: the program may lock little, and all of that is its own */
static void test_limit_of_locked(void **state)
{
	struct harness *h = *state;
	struct session *s;

	if (!start(h, (const char *const[]){"locking", "all", harness_number(NOBODY), NULL})) {
		harness_end(h, 0);
		skip();
	}
	assert_string_equal(ask(h, "map"), "mapped");
	s = session_begin(h);
	measure(h, s);
	assert_string_equal(ask(h, "map"), "mapped");
	session_end(s);
	assert_string_equal(ask(h, "map"), "mapped");
	harness_end(h, 0);
}

enum { MUCH = 6 << 20, GROUP_MAY = 4 << 20 }; /* bytes of a private part; of a group */

struct job {
	taddr_t text;
	struct arena *arena;
	struct journal *journal;
};

static int make_private(struct stop *s, void *arg, struct dinst_error *e)
{
	struct job *job = arg;
	int status = arena_create_private(s, job->text, job->text + 4096, 4096, "a test",
					  &job->arena, e);

	return status ? status : journal_create(job->arena, "obliging", &job->journal, e);
}

static int add_threads(struct stop *s, void *arg, struct dinst_error *e)
{
	return arena_add_threads(s, ((struct job *)arg)->arena, MUCH, 4096, 4096, e);
}

static int destroy(struct stop *s, void *arg, struct dinst_error *e)
{
	return arena_destroy(s, ((struct job *)arg)->arena, e);
}

static taddr_t first_text(pid_t pid)
{
	struct maps m;
	taddr_t text = 0;

	assert_int_equal(maps_read(pid, &m, NULL), 0);
	for (size_t i = 0; i < m.count && !text; i++)
		text = m.entries[i].protection & PROT_EXEC ? m.entries[i].lo : 0;
	maps_release(&m);
	return text;
}

/* An arena of private memory in a program that locks what it maps; `uid`: who may lock little. */
static void map_private(struct harness *h, const char *uid)
{
	struct dinst_error e = {0};
	struct job job = {0};
	struct target *t;
	long before, after;

	if (!start(h, (const char *const[]){"locking", "future", uid, NULL})) {
		harness_end(h, 0);
		skip();
	}
	before = strtol(ask(h, "resident"), NULL, 10);
	t = help_open(h->pid);
	job.text = first_text(h->pid);
	help_stop_well(t, make_private, &job);
	assert_int_equal(help_stop(t, add_threads, &job, &e), DINST_NO_MEMORY);
	after = strtol(ask(h, "resident"), NULL, 10);
	if (before <= 0 || after - before > FILLED_MOST_KIB / 4)
		fail_msg("%ld KiB were in memory, then %ld", before, after);
	assert_string_equal(ask(h, "map"), "mapped");
	help_stop_well(t, destroy, &job);
	journal_destroy(job.journal);
	assert_string_equal(ask(h, "map"), "mapped");
	target_close(t);
	harness_end(h, 0);
}

/* fear I3: the same of private memory: where it is filled at once it is little, and what may be locked is left */
static void test_private_is_locked(void **state)
{
	map_private(*state, NULL);
	map_private(*state, harness_number(NOBODY));
}

/* fear I3: where its group has hardly any memory left it is refused, and the kernel kills nobody for having filled it */
static void test_private_in_small_group(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct job job = {0};
	char directory[64];
	struct target *t;

	if (!start(h, (const char *const[]){"locking", "future", NULL}) ||
	    !harness_confine(h->pid, HARNESS_LIMIT_MEMORY, harness_number(GROUP_MAY), directory,
			     sizeof(directory))) {
		harness_end(h, 0);
		skip();
	}
	t = help_open(h->pid);
	job.text = first_text(h->pid);
	assert_int_equal(help_stop(t, make_private, &job, &e), DINST_NO_MEMORY);
	assert_string_equal(ask(h, "go 1"), "done");
	target_close(t);
	harness_end(h, 0);
	harness_until(!rmdir(directory));
}

/* fear I3: the same where it has begun to lock what it maps only after the arena was made */
static void test_locked_later_in_small_group(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct job job = {0};
	char directory[64];
	struct target *t;

	assert_true(start(h, (const char *const[]){"locking", "later", NULL}));
	t = help_open(h->pid);
	job.text = first_text(h->pid);
	help_stop_well(t, make_private, &job);
	if (strcmp(ask(h, "lock"), "ready") != 0 ||
	    !harness_confine(h->pid, HARNESS_LIMIT_MEMORY, harness_number(GROUP_MAY), directory,
			     sizeof(directory))) {
		harness_end(h, 0);
		skip();
	}
	assert_int_equal(help_stop(t, add_threads, &job, &e), DINST_NO_MEMORY);
	assert_non_null(strstr(e.text, "KiB left"));
	assert_string_equal(ask(h, "go 1"), "done");
	help_stop_well(t, destroy, &job);
	journal_destroy(job.journal);
	target_close(t);
	harness_end(h, 0);
	harness_until(!rmdir(directory));
}

/* fear K2: nobody may read the program's file without asking the program, which stands still */
static void test_asked_for_reads(void **state)
{
	struct harness *h = *state;
	struct session *s;

	if (!start(h, (const char *const[]){"permitting", NULL})) {
		harness_end(h, 0);
		skip();
	}
	s = session_begin(h);
	measure(h, s);
	session_end(s);
	assert_string_equal(ask(h, "go 1"), "done");
	harness_end(h, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_future_is_locked, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_limit_of_locked, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_private_is_locked, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_private_in_small_group, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_locked_later_in_small_group, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_asked_for_reads, harness_setup,
						harness_teardown),
	};

	return cmocka_run_group_tests_name("live/obliging", tests, NULL, NULL);
}
