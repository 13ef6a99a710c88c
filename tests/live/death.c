/* SPDX-License-Identifier: MIT */
/*
 * death.c - the mutator is killed with SIGKILL at every kind of moment.
 *
 * A child process attaches, inserts, removes, flushes and detaches with the
 * libraries, and is killed at the Nth fault point (inject/fault.h). Whatever
 * the moment: the target goes on computing rightly, what was left is taken out
 * by the next mutator, and that one counts exactly.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "inject/fault.h"
#include "tests/live/harness_session.h"

enum { SEED = 20, CLEAN_MS = 5000 };

/* How a mutator ends by itself. On a busy machine a thread may not stop in time: told, not forced. */
enum { ENDED = 0, FAILED = 3, GAVE_UP = 4 };

/* What the child tells us before it dies; shared memory. */
struct account {
	unsigned long passed;
	int stage;
	char text[DINST_ERROR_TEXT];
};

static struct account *account;
static int gave_up; /* mutators that did */

static const char *const stages[] = {"attach", "insert",       "more",	 "remove",
				     "flush",  "insert again", "detach", "end"};

static void stage(int n)
{
	account->stage = n;
	account->passed = fault_passed;
}

static int insert_one(struct session *s, const char *metric_focus, enum point_kind kind,
		      struct instance **out, struct dinst_error *e)
{
	static struct raw_metric metrics[3];
	const char *const foci[] = {metric_focus};
	struct insert_result result;
	int status;

	metrics[kind] = (struct raw_metric){
		.name = "points", .unit = "", .constraints = "/Code", .kind = kind};
	status = request_insert_raw(s, &metrics[kind], foci, 1, false, &result, e);
	if (status < 0)
		return status;
	*out = result.instances[0];
	free(result.instances);
	return 0;
}

/* Functions of the program that the target runs. */
static const char *victim = "many", *all = "/Code/calls/*", *caller = "work";

static int change(struct session *s, struct dinst_error *e)
{
	struct instance *first = NULL, *second = NULL, *third = NULL;
	struct flush_result flushed;
	int status;

	stage(1);
	status = insert_one(s, victim, POINT_ENTRY, &first, e);
	stage(2);
	if (status >= 0)
		status = insert_one(s, victim, POINT_ENTRY, &second, e);
	if (status >= 0)
		status = insert_one(s, all, POINT_EXIT, &third, e);
	stage(3);
	if (status >= 0)
		status = removal_remove(s, first, &flushed, e);
	if (status >= 0)
		status = removal_remove(s, third, &flushed, e);
	stage(4);
	if (status >= 0)
		status = removal_flush(s, &flushed, e);
	stage(5);
	if (status >= 0)
		status = insert_one(s, all, POINT_ENTRY, &first, e);
	if (status >= 0)
		status = insert_one(s, caller, POINT_CALL, &third, e);
	return status;
}

/* The whole life of a mutator; in the child. Dies at the chosen fault point or exits with 0. */
static void live_and_die(pid_t pid, unsigned long countdown)
{
	struct dinst_error e = {0};
	struct detach_result detached;
	struct session *s;
	int status;

	fault_passed = 0;
	fault_countdown = countdown;
	stage(0);
	status = session_attach(pid, "doomed", &s, &e);
	if (status >= 0)
		status = change(s, &e);
	stage(6);
	if (status >= 0)
		status = session_detach(s, 10, &detached, &e);
	stage(7);
	if (status >= 0 && detached.left)
		status = dinst_fail(&e, DINST_FAILED, "%zu things are left", detached.left);
	memcpy(account->text, e.text, sizeof(e.text));
	_exit(status >= 0 ? 0 : status == DINST_BUSY ? GAVE_UP : FAILED);
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

/* True if the mutator was killed, false if it came to its end first. */
static bool end_mutator(pid_t child, bool may_be_killed)
{
	int status = 0;

	if (waitpid(child, &status, 0) != child)
		fail_msg("waitpid: %s", strerror(errno));
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && may_be_killed)
		return true;
	if (!WIFEXITED(status) || (WEXITSTATUS(status) != ENDED && WEXITSTATUS(status) != GAVE_UP))
		fail_msg("the mutator failed in %s (status %x): %s", stages[account->stage],
			 (unsigned)status, account->text);
	gave_up += WEXITSTATUS(status) == GAVE_UP;
	return false;
}

static bool run_mutator(struct harness *h, unsigned long countdown)
{
	return end_mutator(start_mutator(h, countdown), countdown != 0);
}

static void clean_up(struct harness *h, unsigned long countdown)
{
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;

	if (target_open(h->pid, &t, &e) < 0)
		fail_msg("open after death at %lu (%s): %s", countdown, stages[account->stage],
			 e.text);
	if (leftovers_clean(t, CLEAN_MS, &left, &e) < 0)
		fail_msg("cleaning after death at %lu (%s): %s", countdown, stages[account->stage],
			 e.text);
	target_close(t);
	if (left.arenas_left)
		fail_msg("%zu of %zu arenas are left after death at %lu (%s)", left.arenas_left,
			 left.arenas, countdown, stages[account->stage]);
}

static void verify(struct harness *h, unsigned long countdown)
{
	char text[4096];

	for (int i = 0; i < 100; i++) {
		if (!harness_differences(h->before, HARNESS_ALL, text, sizeof(text)))
			return;
		usleep(10000);
	}
	fail_msg("not as before after death at %lu (%s):\n%s", countdown, stages[account->stage],
		 text);
}

/* One death, and everything that must be true after it. False if the mutator outlived its end. */
static bool one_death(struct harness *h, int threads, unsigned long countdown)
{
	struct session *s;
	bool killed;
	unsigned id;
	int status;

	harness_send(h, "go 10000\n");
	killed = run_mutator(h, countdown);
	if (waitpid(h->pid, &status, WNOHANG) == h->pid)
		fail_msg("the target died (status %x) of a death at %lu (%s)", (unsigned)status,
			 countdown, stages[account->stage]);
	assert_string_equal(harness_line(h, 20000), "done");
	clean_up(h, countdown);
	verify(h, countdown);
	s = session_begin(h);
	id = session_insert(s, "many");
	session_go(h, 500);
	if (session_value(s, id) != (uint64_t)threads * 500)
		fail_msg("%llu of %d counted after death at %lu (%s)",
			 (unsigned long long)session_value(s, id), threads * 500, countdown,
			 stages[account->stage]);
	session_end(s);
	verify(h, countdown);
	return killed;
}

/* A mutator that comes to its end: what it passed on the way is all there is. */
static void run_whole(struct harness *h)
{
	for (int tries = 0; tries < 5; tries++) {
		int before = gave_up;

		assert_false(run_mutator(h, 0));
		if (gave_up == before)
			return;
		clean_up(h, 0);
	}
	fail_msg("no mutator came to its end: %s", account->text);
}

static unsigned long learn_points(struct harness *h)
{
	harness_send(h, "go 10000\n");
	run_whole(h);
	assert_string_equal(harness_line(h, 20000), "done");
	clean_up(h, 0);
	harness_verify(h);
	assert_true(account->passed > 20);
	return account->passed;
}

static void test_hundred_deaths(void **state)
{
	enum { THREADS = 8, DEATHS = 100 };
	struct harness *h = *state;
	unsigned short seed[3] = {SEED, 0, 0};
	unsigned long points;
	int deaths = 0;

	harness_limit(200);
	harness_start(h, "calls", harness_number(THREADS), NULL);
	points = learn_points(h);
	for (int turn = 0; deaths < DEATHS; turn++) {
		unsigned long at = 1 + (unsigned long)nrand48(seed) % points;

		deaths += one_death(h, THREADS, at);
		assert_true(turn < 3 * DEATHS);
	}
	harness_end(h, 0);
}

/* The same at each moment in turn of a mutator whose target has one thread. */
static void test_every_moment(void **state)
{
	struct harness *h = *state;
	unsigned long points, step = getenv("DINST_SHORT") ? 5 : 1;
	int deaths = 0, turns = 0;

	harness_limit(280);
	harness_start(h, "calls", "1", NULL);
	points = learn_points(h);
	for (unsigned long at = 1; at <= points; at += step, turns++)
		deaths += one_death(h, 1, at);
	assert_true(2 * deaths > turns);
	harness_end(h, 0);
}

/* ---------------------------------------------------- at any moment at all */

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void sleep_us(unsigned long us)
{
	struct timespec t = {.tv_sec = (time_t)(us / 1000000),
			     .tv_nsec = (long)(us % 1000000) * 1000};

	nanosleep(&t, NULL);
}

/* Not at a fault point but whenever the clock says so. */
static void test_any_time(void **state)
{
	enum { DEATHS = 60 };
	struct harness *h = *state;
	unsigned short seed[3] = {SEED + 1, 0, 0};
	uint64_t spread;
	int killed = 0;

	harness_start(h, "calls", "4", NULL);
	spread = now_us();
	learn_points(h);
	spread = now_us() - spread;
	for (int turn = 0; turn < DEATHS; turn++) {
		pid_t child;

		harness_send(h, "go 10000\n");
		child = start_mutator(h, 0);
		sleep_us((unsigned long)nrand48(seed) % spread);
		kill(child, SIGKILL);
		killed += end_mutator(child, true);
		assert_string_equal(harness_line(h, 20000), "done");
		clean_up(h, 0);
		verify(h, 0);
	}
	assert_true(killed > DEATHS / 4);
	session_go(h, 100);
	harness_end(h, 0);
}

/* A target that handles signals all the time: also where it was about to run our calls. */
static void test_in_a_storm(void **state)
{
	enum { DEATHS = 60 };
	struct harness *h = *state;
	unsigned short seed[3] = {SEED + 2, 0, 0};
	unsigned long points;
	char line[64];

	harness_limit(200);
	victim = "leaf";
	all = "/Code/signalled/*";
	caller = "outer";
	harness_start(h, "signalled", NULL);
	harness_send(h, "storm 1000\n");
	assert_false(run_mutator(h, 0));
	points = account->passed;
	assert_string_equal(harness_line(h, 20000), "done");
	snprintf(line, sizeof(line), "storm %d\n", 6000);
	harness_send(h, line);
	for (int turn = 0; turn < DEATHS; turn++) {
		unsigned long at = 1 + (unsigned long)nrand48(seed) % points;

		run_mutator(h, at);
		clean_up(h, at);
	}
	assert_string_equal(harness_line(h, 60000), "done");
	verify(h, 0);
	harness_send(h, "check\n");
	assert_string_equal(harness_line(h, 5000), "same");
	harness_end(h, 0);
	victim = "many";
	all = "/Code/calls/*";
	caller = "work";
}

/* ------------------------------------------------------------------ families */

/* In the child: inserts and is killed when the family has been made. */
static void insert_and_wait(pid_t pid, int ready)
{
	struct dinst_error e = {0};
	struct instance *first;
	struct session *s;

	if (session_attach(pid, "doomed", &s, &e) < 0 ||
	    insert_one(s, "hit", POINT_ENTRY, &first, &e) < 0 || write(ready, "x", 1) != 1)
		_exit(3);
	for (;;)
		pause();
}

static unsigned long child_hits(struct harness *h)
{
	harness_send(h, "count\n");
	return strtoul(harness_line(h, 5000), NULL, 10);
}

/* Deaths of a mutator whose target has a child that runs through the same trampolines. */
static void test_deaths_in_a_family(void **state)
{
	enum { DEATHS = 40 };
	struct harness *h = *state;
	unsigned short seed[3] = {SEED + 3, 0, 0};
	char command[128], line[4096];
	unsigned long points, hits;
	pid_t child = 0;
	int deaths = 0;

	victim = "hit";
	all = "/Code/forks/*";
	caller = "hits";
	harness_start(h, "forks", NULL);
	run_whole(h);
	points = account->passed;
	clean_up(h, 0);
	for (int turn = 0; turn < DEATHS; turn++) {
		unsigned long at = 1 + (unsigned long)nrand48(seed) % points;
		pid_t mutator = start_mutator(h, at);

		/* It is born somewhere in the middle of it all. */
		usleep((useconds_t)nrand48(seed) % 20000);
		harness_send(h, "linger\n");
		snprintf(line, sizeof(line), "%s", harness_line(h, 20000));
		assert_int_equal(sscanf(line, "child %d", &child), 1);
		deaths += end_mutator(mutator, true);
		clean_up(h, at);
		verify(h, at);
		snprintf(command, sizeof(command), "grep -q memfd:dinst /proc/%d/maps", (int)child);
		if (system(command) == 0)
			fail_msg("the child still has an arena after death at %lu (%s)", at,
				 stages[account->stage]);
		hits = child_hits(h);
		for (int i = 0; i < 500 && child_hits(h) == hits; i++)
			usleep(2000);
		if (child_hits(h) == hits)
			fail_msg("the child does not go on after death at %lu (%s): %s", at,
				 stages[account->stage], harness_status(child, child, "State:"));
		harness_send(h, "unlinger\n");
		assert_string_equal(harness_line(h, 20000), "ended 7");
	}
	assert_true(2 * deaths > DEATHS);
	harness_end(h, 0);
	victim = "many";
	all = "/Code/calls/*";
	caller = "work";
}

static pid_t start_inserter(struct harness *h)
{
	pid_t mutator;
	int ready[2];
	char byte;

	assert_int_equal(pipe(ready), 0);
	fflush(NULL);
	mutator = fork();
	if (mutator == 0)
		insert_and_wait(h->pid, ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return mutator;
}

/* What a living mutator has in the target is not taken out by another one. */
static void test_living_mutator(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;
	pid_t mutator;

	harness_start(h, "forks", NULL);
	mutator = start_inserter(h);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	assert_int_equal(leftovers_clean(t, CLEAN_MS, &left, &e), DINST_BUSY);
	assert_non_null(strstr(e.text, harness_number(mutator)));
	assert_int_equal(left.restored, 0);
	target_close(t);
	harness_send(h, "fork 2 1000\n");
	assert_string_equal(harness_line(h, 10000), "done");
	kill(mutator, SIGKILL);
	assert_int_equal(waitpid(mutator, NULL, 0), mutator);
	clean_up(h, 0);
	verify(h, 0);
	harness_end(h, 0);
}

/* What was inherited from a target whose mutator died is taken out of the child as well. */
static void test_child_of_the_orphaned(void **state)
{
	struct harness *h = *state;
	pid_t mutator, child = 0;
	char command[128];

	harness_start(h, "forks", NULL);
	mutator = start_inserter(h);
	harness_send(h, "linger\n");
	assert_int_equal(sscanf(harness_line(h, 5000), "child %d", &child), 1);
	kill(mutator, SIGKILL);
	assert_int_equal(waitpid(mutator, NULL, 0), mutator);
	snprintf(command, sizeof(command), "grep -q memfd:dinst /proc/%d/maps", (int)child);
	assert_int_equal(system(command), 0);
	clean_up(h, 0);
	verify(h, 0);
	assert_int_not_equal(system(command), 0);
	usleep(10000);
	harness_send(h, "unlinger\n");
	assert_string_equal(harness_line(h, 5000), "ended 7");
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_hundred_deaths, setup, teardown),
		cmocka_unit_test_setup_teardown(test_every_moment, setup, teardown),
		cmocka_unit_test_setup_teardown(test_any_time, setup, teardown),
		cmocka_unit_test_setup_teardown(test_in_a_storm, setup, teardown),
		cmocka_unit_test_setup_teardown(test_child_of_the_orphaned, setup, teardown),
		cmocka_unit_test_setup_teardown(test_living_mutator, setup, teardown),
		cmocka_unit_test_setup_teardown(test_deaths_in_a_family, setup, teardown),
	};

	return cmocka_run_group_tests_name("live/death", tests, NULL, NULL);
}
