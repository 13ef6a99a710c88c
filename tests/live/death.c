/* SPDX-License-Identifier: MIT */
/*
 * death.c - the mutator is killed with SIGKILL at every kind of moment.
 *
 * A child process attaches, inserts, removes, flushes and detaches with the
 * libraries, and is killed at the Nth fault point (inject/fault.h). Whatever
 * the moment: the target goes on computing rightly, what was left is taken out
 * by the next mutator, and that one counts exactly.
 */
#include <poll.h>
#include <time.h>

#include "tests/live/death_help.h"

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
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
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

/* fear J2: a mutator dies at 100 (hostile/longer.sh: 200) random steps from attach to detach */
static void test_hundred_deaths(void **state)
{
	enum { THREADS = 8 };
	const int wanted = (int)harness_setting("DEATHS", 100);
	struct harness *h = *state;
	unsigned short seed[3] = {(unsigned short)harness_setting("DINST_SEED", SEED), 0, 0};
	unsigned long points;
	int deaths = 0;

	harness_limit(6 * (unsigned)wanted);
	harness_start(h, "calls", harness_number(THREADS), NULL);
	points = learn_points(h);
	for (int turn = 0; deaths < wanted; turn++) {
		unsigned long at = 1 + (unsigned long)nrand48(seed) % points;

		deaths += one_death(h, THREADS, at);
		assert_true(turn < 3 * wanted);
	}
	harness_end(h, 0);
}

/*
 * The same at each moment in turn of a mutator whose target has one thread.
 *
 * fear J2: death at every single step (each ptrace request, write to the target, store into an
 * arena or its journal): the target computes rightly, the next one takes out all and counts exactly
 * fear J5: the journal is left half written at each of its steps
 */
static void test_every_moment(void **state)
{
	struct harness *h = *state;
	unsigned long points, step = getenv("DINST_SHORT") ? 5 : 1;
	int deaths = 0, turns = 0;

	harness_limit(600);
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

/* fear J2: not at a fault point but whenever the clock says so. */
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
	for (int turn = 0; turn < DEATHS || killed <= DEATHS / 4; turn++) {
		unsigned long after = (unsigned long)nrand48(seed) % spread;
		pid_t child;

		assert_true(turn < 20 * DEATHS);
		harness_send(h, "go 10000\n");
		child = start_mutator(h, 0);
		sleep_us(after);
		kill(child, SIGKILL);
		/* One that outlives it does not need that long, now: the machine is less busy. */
		if (end_mutator(child, true))
			killed++;
		else if (after > 1000)
			spread = after;
		assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
		clean_up(h, 0);
		verify(h, 0);
	}
	assert_true(killed > DEATHS / 4);
	session_go(h, 100);
	harness_end(h, 0);
}

/* fear J2: a target that handles signals all the time, also where it was about to run our calls. */
static void test_in_a_storm(void **state)
{
	enum { DEATHS = 60 };
	struct harness *h = *state;
	unsigned short seed[3] = {SEED + 2, 0, 0};
	unsigned long points;
	char line[64];
	int deaths = 0;

	harness_limit(600);
	victim = "leaf";
	all = "/Code/signalled/*";
	caller = "outer";
	harness_start(h, "signalled", NULL);
	harness_send(h, "storm 1000\n");
	assert_false(run_mutator(h, 0));
	points = account->passed;
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	snprintf(line, sizeof(line), "storm %d\n", 6000);
	harness_send(h, line);
	for (int turn = 0; turn < DEATHS; turn++) {
		unsigned long at = 1 + (unsigned long)nrand48(seed) % points;
		struct pollfd over = {.fd = h->output, .events = POLLIN};

		/* On a slow machine it is over before they are: it goes on to their end. */
		if (poll(&over, 1, 0) > 0) {
			assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
			harness_send(h, line);
		}
		deaths += run_mutator(h, at);
		clean_up(h, at);
	}
	/* Some come to their end before that point, or give up. */
	assert_true(4 * deaths > DEATHS);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	verify(h, 0);
	harness_send(h, "check\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "same");
	harness_end(h, 0);
	victim = "many";
	all = "/Code/calls/*";
	caller = "work";
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, death_setup, death_teardown)

/* death [CASES]: those whose names it fits */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_hundred_deaths),
		TEST(test_every_moment),
		TEST(test_any_time),
		TEST(test_in_a_storm),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("live/death", tests, NULL, NULL);
}
