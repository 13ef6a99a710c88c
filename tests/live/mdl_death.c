/* SPDX-License-Identifier: MIT */
/*
 * mdl_death.c - the mutator is killed while per-thread state is in use.
 *
 * As death.c, with requests that have flags, timers on the CPU clock, undo
 * routines, hooks and catch-up. The target's threads throw and longjmp all the
 * time, or it forks. It dies at each fault point (inject/fault.h) one after the
 * other, and whatever the moment: the target computes rightly, and the next
 * mutator takes everything out, rseq_cs of all threads included.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/fault.h"
#include "tests/live/harness_session.h"

enum { CLEAN_MS = 60000, TRIES = 500 };
enum { ENDED = 0, FAILED = 3, GAVE_UP = 4 };

/* What the mutator tells us before it dies; shared memory. */
struct account {
	unsigned long passed;
	unsigned long at_stage[16]; /* points passed when it came there */
	int stage;
	char text[DINST_ERROR_TEXT];
};

static struct account *account;
static const char *focus, *other, *command;

static const char *const stages[] = {
	"attach", "insert latency", "insert cpu",   "insert wall", "remove cpu",
	"flush",  "insert active",  "insert again", "detach",	   "end"};

static void stage(int n)
{
	account->stage = n;
	account->passed = fault_passed;
	account->at_stage[n] = fault_passed;
}

/* ------------------------------------------------------------- a mutator */

static int put_in(struct session *s, int at, const char *metric, const char *where,
		  struct instance **out, struct dinst_error *e)
{
	struct insert_result result;
	int status = DINST_BUSY;

	stage(at);
	for (int i = 0; i < TRIES && status == DINST_BUSY; i++) {
		dinst_error_clear(e);
		status = request_insert(s, metric, &where, 1, NULL, &result, e);
		if (status == DINST_BUSY)
			usleep(10000);
	}
	if (status < 0)
		return status;
	*out = result.count ? result.instances[0] : NULL;
	free(result.instances);
	return *out ? 0 : dinst_fail(e, DINST_FAILED, "%s: nothing was inserted", metric);
}

static int change(struct session *s, struct dinst_error *e)
{
	struct instance *latency = NULL, *cpu = NULL, *wall = NULL, *active = NULL;
	struct flush_result flushed;
	int status = put_in(s, 1, "latency", focus, &latency, e);

	if (status >= 0)
		status = put_in(s, 2, "cpu", other, &cpu, e);
	if (status >= 0)
		status = put_in(s, 3, "wall_inclusive", focus, &wall, e);
	stage(4);
	if (status >= 0)
		status = removal_remove(s, cpu, &flushed, e);
	stage(5);
	if (status >= 0)
		status = removal_flush(s, &flushed, e);
	if (status >= 0)
		status = put_in(s, 6, "active", focus, &active, e);
	if (status >= 0)
		status = put_in(s, 7, "cpu_inclusive", other, &cpu, e);
	return status;
}

static void live_and_die(pid_t pid, unsigned long countdown)
{
	struct dinst_error e = {0};
	struct detach_result detached = {0};
	struct session *s;
	int status;

	fault_passed = 0;
	fault_countdown = countdown;
	stage(0);
	status = session_attach(pid, "doomed", &s, &e);
	if (status >= 0)
		status = change(s, &e);
	if (status >= 0) {
		stage(8);
		status = session_detach(s, 100, &detached, &e);
	}
	if (status >= 0)
		stage(9);
	if (status >= 0 && detached.left)
		status = dinst_fail(&e, DINST_BUSY, "%zu things are left", detached.left);
	memcpy(account->text, e.text, sizeof(e.text));
	_exit(status >= 0 ? ENDED : status == DINST_BUSY ? GAVE_UP : FAILED);
}

static pid_t start_mutator(struct harness *h, unsigned long countdown)
{
	pid_t child;

	memset(account, 0, sizeof(*account));
	fflush(NULL);
	child = fork();
	if (child < 0)
		fail_msg("fork: %s", strerror(errno));
	if (child == 0)
		live_and_die(h->pid, countdown);
	return child;
}

enum fate { KILLED, CAME_TO_ITS_END, DID_NOT };

static enum fate end_mutator(pid_t child)
{
	int status = 0;

	if (waitpid(child, &status, 0) != child)
		fail_msg("waitpid: %s", strerror(errno));
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		return KILLED;
	if (WIFEXITED(status) && WEXITSTATUS(status) == ENDED)
		return CAME_TO_ITS_END;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != GAVE_UP)
		fail_msg("the mutator failed in %s (status %x): %s", stages[account->stage],
			 (unsigned)status, account->text);
	return DID_NOT;
}

/* ------------------------------------------------------------- afterwards */

static void clean_up(struct harness *h, unsigned long at)
{
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;

	if (target_open(h->pid, &t, &e) < 0)
		fail_msg("open after death at %lu (%s): %s", at, stages[account->stage], e.text);
	if (leftovers_clean(t, CLEAN_MS, &left, &e) < 0)
		fail_msg("cleaning after death at %lu (%s): %s", at, stages[account->stage],
			 e.text);
	target_close(t);
	if (left.arenas_left)
		fail_msg("%zu of %zu arenas are left after death at %lu (%s)", left.arenas_left,
			 left.arenas, at, stages[account->stage]);
}

/* In no time at all: where somebody is inside, what is left must go on being right. */
static void clean_in_haste(struct harness *h)
{
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;

	if (target_open(h->pid, &t, &e) < 0)
		fail_msg("open: %s", e.text);
	leftovers_clean(t, 0, &left, &e);
	target_close(t);
}

static void verify(struct harness *h, unsigned long at)
{
	char text[4096];

	for (int i = 0; i < 3000; i++) {
		if (!harness_differences(h->before, HARNESS_ALL, text, sizeof(text)))
			return;
		usleep(10000);
	}
	fail_msg("not as before after death at %lu (%s):\n%s", at, stages[account->stage], text);
}

static void expect_alive(struct harness *h, unsigned long at)
{
	int status;

	if (waitpid(h->pid, &status, WNOHANG) == h->pid)
		fail_msg("the target died (status %x) of a death at %lu (%s)", (unsigned)status, at,
			 stages[account->stage]);
}

static void expect_done(struct harness *h, unsigned long at)
{
	const char *line = harness_line(h, HARNESS_ANSWER_MS);

	if (strcmp(line, "done") != 0)
		fail_msg("'%s' of a death at %lu (%s)", line, at, stages[account->stage]);
}

/* ------------------------------------------------------- threads that throw */

static enum fate one_death(struct harness *h, unsigned long at)
{
	enum fate fate;

	harness_send(h, command);
	fate = end_mutator(start_mutator(h, at));
	expect_alive(h, at);
	/* The threads are cleaned while they run. */
	if (at % 2)
		clean_up(h, at);
	expect_done(h, at);
	clean_up(h, at);
	verify(h, at);
	/* Preempted with whatever was left in rseq_cs, and asked whether it still can. */
	harness_send(h, command);
	expect_done(h, at);
	expect_alive(h, at);
	return fate;
}

static void print_points(unsigned long points)
{
	print_message("%lu fault points:", points);
	for (int i = 1; i < 10; i++)
		print_message(" %s %lu", stages[i], account->at_stage[i]);
	print_message("\n");
}

static unsigned long learn_points(struct harness *h)
{
	for (int tries = 0; tries < 10; tries++) {
		unsigned long passed;
		enum fate fate;

		harness_send(h, command);
		fate = end_mutator(start_mutator(h, 0));
		passed = account->passed;
		expect_done(h, 0);
		clean_up(h, 0);
		verify(h, 0);
		if (fate == CAME_TO_ITS_END) {
			print_points(passed);
			return passed;
		}
	}
	fail_msg("no mutator came to its end: %s", account->text);
	return 0;
}

static unsigned long number_of(const char *name, unsigned long otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtoul(text, NULL, 10) : otherwise;
}

/* DEATHS moments, evenly spread over its life; all of them where there are no more. */
static void die_everywhere(struct harness *h, unsigned long deaths)
{
	unsigned long points = learn_points(h), turns = 0, killed = 0;
	unsigned long step = deaths && points > deaths ? points / deaths : 1;

	for (unsigned long at = number_of("DINST_FAULT", 1 + number_of("DINST_SEED", 20) % step);
	     at <= points; at += step, turns++)
		killed += one_death(h, at) == KILLED;
	print_message("%lu turns, %lu killed\n", turns, killed);
	assert_true(4 * killed > 3 * turns);
}

static unsigned long deaths_here(unsigned long brief)
{
	return number_of("DINST_DEATHS", getenv("DINST_SHORT") ? brief : 8 * brief);
}

static void test_threads_that_throw(void **state)
{
	struct harness *h = *state;

	harness_limit(getenv("DINST_DEATHS") ? 3600 : 600);
	focus = "/Code/throws/*";
	other = "/Code/throws/*";
	command = "go 40\n";
	harness_start(h, "throws", "4", NULL);
	die_everywhere(h, deaths_here(40));
	harness_end(h, 0);
}

/* Where the request is caught up: all threads are inside when it comes, and when it dies. */
static void test_threads_inside(void **state)
{
	struct harness *h = *state;
	unsigned long points, step, killed = 0, turns = 0, deaths = deaths_here(15);

	harness_limit(getenv("DINST_DEATHS") ? 3600 : 600);
	focus = "/Code/throws/*";
	other = "/Code/throws/*";
	command = "go 20\n";
	harness_start(h, "throws", "4", NULL);
	points = learn_points(h);
	step = points > deaths ? points / deaths : 1;
	for (unsigned long at = step; at <= points; at += step, turns++) {
		harness_send(h, "sit\n");
		assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "sitting");
		killed += end_mutator(start_mutator(h, at)) == KILLED;
		expect_alive(h, at);
		harness_send(h, "stand\n");
		expect_done(h, at);
		clean_up(h, at);
		verify(h, at);
		harness_send(h, command);
		expect_done(h, at);
	}
	print_message("%lu turns, %lu killed\n", turns, killed);
	assert_true(killed > turns / 2);
	harness_end(h, 0);
}

/* Inserts over the C library, and is killed when all of it is in. */
static void insert_library(pid_t pid, const char *module)
{
	struct dinst_error e = {0};
	struct instance *first;
	struct session *s;
	int status = session_attach(pid, "doomed", &s, &e);

	if (status >= 0)
		status = put_in(s, 1, "active", focus, &first, &e);
	if (status >= 0)
		status = put_in(s, 2, "io_wait", module, &first, &e);
	memcpy(account->text, e.text, sizeof(e.text));
	if (status < 0)
		_exit(FAILED);
	kill(getpid(), SIGKILL);
}

static void die_in_library(struct harness *h, const char *busy, const char *brief,
			   unsigned long turns)
{
	for (unsigned long turn = 0; turn < turns; turn++) {
		pid_t child;

		/* Waiting for us, or at work. */
		if (turn % 2)
			harness_send(h, busy);
		memset(account, 0, sizeof(*account));
		fflush(NULL);
		child = fork();
		if (child == 0)
			insert_library(h->pid, "/Code/libc.so.6/*");
		assert_int_equal(end_mutator(child), KILLED);
		expect_alive(h, turn);
		for (int i = 0; i < 5; i++) {
			clean_in_haste(h);
			usleep(1000);
			expect_alive(h, turn);
		}
		clean_up(h, turn);
		expect_alive(h, turn);
		if (turn % 2)
			expect_done(h, turn);
		verify(h, turn);
		harness_send(h, brief);
		expect_done(h, turn);
	}
}

/*
 * It has one thread, which waits in read(): the window of that exit begins right
 * behind the system call, which is called anew when the thread goes on.
 */
static void test_behind_system_calls(void **state)
{
	struct harness *h = *state;

	harness_limit(600);
	focus = "/Code/forks/*";
	harness_start(h, "forks", NULL);
	die_in_library(h, "fork 2 200\n", "fork 2 200\n", 4);
	harness_end(h, 0);
}

/* The arenas of two modules lead into each other: all of them go, or none. */
static void test_two_arenas(void **state)
{
	struct harness *h = *state;

	harness_limit(600);
	focus = "/Code/throws/*";
	harness_start(h, "throws", "4", NULL);
	die_in_library(h, "go 3000\n", "go 20\n", getenv("DINST_SHORT") ? 6 : 20);
	harness_end(h, 0);
}

/* ------------------------------------------------------------- families */

static unsigned long child_hits(struct harness *h)
{
	harness_send(h, "count\n");
	return strtoul(harness_line(h, HARNESS_ANSWER_MS), NULL, 10);
}

/* A child that was born somewhere in the middle goes on, and has nothing of ours any more. */
static void check_child(struct harness *h, pid_t child, unsigned long at)
{
	char look[128];
	unsigned long hits;

	snprintf(look, sizeof(look), "grep -q memfd:dinst /proc/%d/maps", (int)child);
	if (system(look) == 0)
		fail_msg("the child still has an arena after death at %lu (%s)", at,
			 stages[account->stage]);
	hits = child_hits(h);
	for (int i = 0; i < 50000 && child_hits(h) == hits; i++)
		usleep(2000);
	if (child_hits(h) == hits)
		fail_msg("the child does not go on after death at %lu (%s): %s", at,
			 stages[account->stage], harness_status(child, child, "State:"));
	harness_send(h, "unlinger\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ended 7");
}

static void test_families(void **state)
{
	struct harness *h = *state;
	unsigned short seed[3] = {(unsigned short)number_of("DINST_SEED", 20), 0, 0};
	unsigned long points, killed = 0, deaths = deaths_here(25);

	harness_limit(getenv("DINST_DEATHS") ? 3600 : 600);
	focus = "/Code/forks/hit";
	other = "/Code/forks/*";
	command = "fork 2 200\n";
	harness_start(h, "forks", NULL);
	points = learn_points(h);
	for (unsigned long turn = 0; turn < deaths; turn++) {
		unsigned long at = 1 + (unsigned long)nrand48(seed) % points;
		pid_t mutator = start_mutator(h, at), child = 0;

		usleep((useconds_t)nrand48(seed) % 60000);
		harness_send(h, "linger\n");
		assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "child %d", &child), 1);
		killed += end_mutator(mutator) == KILLED;
		expect_alive(h, at);
		clean_up(h, at);
		verify(h, at);
		check_child(h, child, at);
		harness_send(h, command);
		expect_done(h, at);
	}
	print_message("%lu turns, %lu killed\n", deaths, killed);
	assert_true(2 * killed > deaths);
	harness_end(h, 0);
}

/* ------------------------------------------------------------ at any moment */

static void test_any_time(void **state)
{
	struct harness *h = *state;
	unsigned short seed[3] = {(unsigned short)number_of("DINST_SEED", 20), 1, 0};
	unsigned long killed = 0, deaths = deaths_here(15);
	useconds_t spread = 400000;

	harness_limit(getenv("DINST_DEATHS") ? 3600 : 600);
	focus = "/Code/throws/*";
	other = "/Code/throws/*";
	command = "go 40\n";
	harness_start(h, "throws", "4", NULL);
	learn_points(h);
	for (unsigned long turn = 0; turn < deaths; turn++) {
		pid_t child;

		harness_send(h, command);
		child = start_mutator(h, 0);
		usleep((useconds_t)nrand48(seed) % spread);
		kill(child, SIGKILL);
		killed += end_mutator(child) == KILLED;
		expect_alive(h, turn);
		expect_done(h, turn);
		clean_up(h, turn);
		verify(h, turn);
	}
	print_message("%lu turns, %lu killed\n", deaths, killed);
	harness_send(h, command);
	expect_done(h, 0);
	harness_end(h, 0);
}

static int setup(void **state)
{
	account = mmap(NULL, sizeof(*account), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	return account == MAP_FAILED ? -1 : harness_setup(state);
}

static int teardown(void **state)
{
	munmap(account, sizeof(*account));
	return harness_teardown(state);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_threads_that_throw, setup, teardown),
		cmocka_unit_test_setup_teardown(test_threads_inside, setup, teardown),
		cmocka_unit_test_setup_teardown(test_behind_system_calls, setup, teardown),
		cmocka_unit_test_setup_teardown(test_two_arenas, setup, teardown),
		cmocka_unit_test_setup_teardown(test_families, setup, teardown),
		cmocka_unit_test_setup_teardown(test_any_time, setup, teardown),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("live/mdl_death", tests, NULL, NULL);
}
