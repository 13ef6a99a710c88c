/* SPDX-License-Identifier: MIT */
/*
 * mishaps_family.c - the target forks, clones, spawns and executes while points are in, and a call that the mutator
 * makes fails, or one of the family is killed: as mishaps.c, for every process of it.
 *
 * mishaps_family [CASES]; MISHAPS, MISHAP_FIRST, MISHAP_KIND and MISHAPS_TELL as there.
 */
#include "tests/live/mishaps_lives.h"

enum { FAMILY, AGAIN, TIMED, WATCHED };

/* The number of a process that the target has told about goes to the others. */
static void note(const char *line, const char *format)
{
	int pid;

	if (sscanf(line, format, &pid) != 1)
		bad("the target says %s", line);
	others->pids[others->count++] = pid;
}

/* ----------------------------------------------- a server with workers */

static void serve(void)
{
	const char *line;

	say("serve 2\n");
	line = hear();
	note(line, "workers %d");
	note(line, "workers %*d %d");
}

/* A worker ends, and another one takes its place. */
static void replace(void)
{
	others->pids[0] = others->pids[1];
	others->count = 1;
	say("replace\n");
	note(hear(), "worker %d");
}

/*
 * What is inserted at a place for the first time is not in who was forked before (docs/safety.md), and in private
 * memory (no memfd was to be had) each process counts for itself.
 */
static void expect_family(struct session *s, struct counted *first, const char *command,
			  uint64_t events)
{
	note_private(s);
	expect_counts(first, !others->private, command, events);
}

static void work_with_workers(struct session *s)
{
	struct counted watched[WATCHED] = {0}, exits = {0}, calls = {0};

	stage(1);
	insert(s, "calls", "handle", &watched[FAMILY]);
	insert_kind(s, "/Code/life-family/*", POINT_EXIT, &exits);
	serve();
	expect_family(s, watched, "requests 50\n", 100);
	stage(2);
	insert(s, "latency", "handle", &watched[TIMED]);
	insert_kind(s, "handle_all", POINT_CALL, &calls);
	replace();
	expect_family(s, watched, "requests 60\n", 120);
	expect_family(s, watched, "clone vm 30\n", 30);
	expect_counts(watched, WATCHED, "call 40\n", 40);
	stage(3);
	say("requests 20000\n");
	take_away(s, &exits);
	expect_done();
	stage(4);
	say("badexec 3\n");
	flush(s);
	expect_done();
	expect_family(s, watched, "daemon 45\n", 45);
	stage(5);
	insert(s, "calls", "handle", &watched[AGAIN]);
	take_away(s, &watched[TIMED]);
	say("clone files 3000\n");
	flush(s);
	expect_done();
	expect_family(s, watched, "requests 70\n", 140);
	take_away(s, &watched[FAMILY]);
	expect_counts(watched, WATCHED, "call 80\n", 80);
}

static void order_done(struct harness *h, const char *command)
{
	const char *line;

	harness_send(h, command);
	line = harness_line(h, HARNESS_ANSWER_MS);
	if (strcmp(line, "done") != 0)
		fail_msg("%s of %s", line, command);
}

static void dismiss_workers(struct harness *h)
{
	for (size_t i = 0; i < others->count; i++) {
		if (others->private)
			clean_private(others->pids[i]);
		expect_clean(others->pids[i]);
	}
	order_done(h, "requests 10\n");
	order_done(h, "dismiss\n");
}

static const struct scene with_workers = {.work = work_with_workers, .after = dismiss_workers};

#define SWEEP_WORKERS(turns, ...)                               \
	do {                                                    \
		harness_start(*state, "life-family", NULL);     \
		SWEEP_SCENE(&with_workers, turns, __VA_ARGS__); \
		harness_end(*state, 0);                         \
	} while (0)

/* fear G1, G8, I2, J3: workers come and go, and no file can be opened, read or written: told, nothing left in any */
static void test_files(void **state)
{
	SWEEP_WORKERS(1, MISHAP_OPEN, MISHAP_READ, MISHAP_STORE);
}

/* fear G1, G8, I3, J3: the same of memory of ours, and of threads, processes and timers */
static void test_memory(void **state)
{
	SWEEP_WORKERS(1, MISHAP_MEMORY, MISHAP_MAP, MISHAP_TASK);
}

/* fear G1, G8, C7, J3: the same of all that is done to one of the family, while the others stand still */
static void test_targets(void **state)
{
	SWEEP_WORKERS(1, MISHAP_READ_MEMORY, MISHAP_WRITE_MEMORY, MISHAP_WAIT, MISHAP_CALL,
		      MISHAP_TRACE);
}

/* -------------------------------- a child that never rests, and programs */

static void start_forks(struct harness *h)
{
	harness_start(h, "forks", NULL);
}

/* Others come and go in all the usual ways while points go in and out. */
static void work_with_child(struct session *s)
{
	struct counted first = {0}, timed = {0}, exits = {0}, calls = {0};

	stage(1);
	insert(s, "calls", "hit", &first);
	insert_kind(s, "/Code/forks/*", POINT_EXIT, &exits);
	say("linger\n");
	note(hear(), "child %d");
	mishap_victim = others->pids[0];
	stage(2);
	say("spawn 2\n");
	insert(s, "latency", "hit", &timed);
	expect_done();
	stage(3);
	say("vfork 3\n");
	take_away(s, &exits);
	expect_done();
	stage(4);
	say("forkexec 2\n");
	flush(s);
	expect_done();
	stage(5);
	say("fork 3 2000\n");
	insert_kind(s, "hits", POINT_CALL, &calls);
	take_away(s, &first);
	expect_done();
	say("tree 3 500\n");
	flush(s);
	expect_done();
}

static void end_child(struct harness *h)
{
	const bool killed = mishap.kind == MISHAP_END && mishap_calls(MISHAP_END) >= mishap.at;

	if (!killed)
		expect_clean(others->pids[0]);
	harness_send(h, "unlinger\n");
	if (strcmp(harness_line(h, HARNESS_ANSWER_MS), "ended 7") != 0 && !killed)
		fail_msg("the child: %s", h->line);
}

static const struct scene with_child = {.work = work_with_child, .after = end_child};

/* fear G1, G2, C7, J3: a child is killed at any moment in which the family is stopped, looked at or written to */
static void test_killed_child(void **state)
{
	harness_start(*state, "forks", NULL);
	SWEEP_SCENE(&with_child, 5, MISHAP_END);
	harness_end(*state, 0);
}

static void insert_while_child_dies(struct harness *h, unsigned long at)
{
	const struct mishap m = {.kind = MISHAP_END, .at = at, .count = 1};
	struct session *s = session_begin(h);
	const struct instance *timed;

	session_insert(s, "hit");
	harness_send(h, "linger\n");
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "child %d", &mishap_victim), 1);
	mishap_set(&m);
	mishap_begin();
	timed = session_insert_metric(s, "latency", "hits", NULL);
	mishap_end();
	harness_send(h, "unlinger\n");
	harness_line(h, HARNESS_ANSWER_MS);
	harness_send(h, "fork 2 10\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	assert_int_equal(instance_value(timed) > 0, 1);
	session_end(s);
	verify(h, at);
}

/*
 * fear G1: a child is killed at any moment in which it is given what is kept for its threads: the target and the
 * others have it all the same
 */
static void test_killed_while_given(void **state)
{
	/* It is given that with the first requests. */
	const unsigned long first = getenv("DINST_SHORT") ? 8 : 1, then = 8 * first;

	harness_start(*state, "forks", NULL);
	for (unsigned long at = 3; at == 3 || mishap_calls(MISHAP_END) >= at;
	     at += at < 32 ? first : then)
		insert_while_child_dies(*state, at);
	harness_end(*state, 0);
}

/* The target executes another program (itself), and a child has what was inserted. */
static void work_with_exec(struct session *s)
{
	struct counted late = {0};

	work_with_child(s);
	say("exec\n");
	if (strcmp(hear(), "ready") != 0)
		bad("it does not execute itself");
	insert(s, "calls", "hits", &late);
	if (late.instance)
		bad("points are in a program that is no more");
	flush(s);
}

static void look_at_both(struct harness *h)
{
	expect_clean(h->pid);
	expect_clean(others->pids[0]);
	kill(others->pids[0], SIGKILL);
	harness_send(h, "fork 1 10\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
}

static const struct scene with_exec = {
	.begin = start_forks, .work = work_with_exec, .after = look_at_both, .executes = true};

/*
 * fear G5, G8, J3: the target executes another program while a child goes on, and a call of ours fails: nothing is
 * put into the new program, and the child gets its code back
 */
static void test_exec(void **state)
{
	SWEEP_SCENE(&with_exec, 1, MISHAP_OPEN, MISHAP_MEMORY, MISHAP_READ_MEMORY,
		    MISHAP_WRITE_MEMORY, MISHAP_TRACE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, death_setup, death_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_files),
		TEST(test_memory),
		TEST(test_targets),
		TEST(test_killed_child),
		TEST(test_killed_while_given),
		TEST(test_exec),
	};

	lives_open();
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("live/mishaps_family", tests, NULL, NULL);
}
