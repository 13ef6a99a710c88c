/* SPDX-License-Identifier: MIT */
/*
 * death_arenas.c - a mutator that had several arenas is killed, and so are those who come after it. A
 * window of one arena has a near jump of another one in its tail, and threads run through both.
 */
#include "mutator/leftovers.h"
#include "tests/live/death_help.h"

static bool private_arenas; /* of the mutators that die; set by a test, and set back by it */

/* The entry's window in one arena, and in the other one the exit's, whose near jump is in its tail. */
static int insert_both(struct session *s, bool second, struct instance **entry,
		       struct instance **exit, struct dinst_error *e)
{
	struct instance *other;
	int status = 0;

	stage(1);
	if (!s->places) {
		status = insert_at_last(s, "even_1", POINT_ENTRY, &other, e);
		use_arena(s, true);
		if (status >= 0)
			status = insert_at_last(s, "even_2", POINT_ENTRY, &other, e);
	}
	stage(2);
	use_arena(s, second);
	if (status >= 0)
		status = insert_at_last(s, "own", POINT_ENTRY, entry, e);
	use_arena(s, !second);
	if (status >= 0)
		status = insert_at_last(s, "own", POINT_EXIT, exit, e);
	return status;
}

static int attach(pid_t pid, struct session **s, struct dinst_error *e)
{
	const int status = session_attach(pid, "doomed", s, e);

	if (status >= 0)
		(*s)->private_arenas = private_arenas;
	return status;
}

static void live(pid_t pid, bool second)
{
	struct instance *entry, *exit;
	struct detach_result detached;
	struct dinst_error e = {0};
	struct flush_result flushed;
	struct session *s;
	int status;

	stage(0);
	status = attach(pid, &s, &e);
	if (status >= 0)
		status = insert_both(s, second, &entry, &exit, &e);
	stage(3);
	if (status >= 0)
		status = removal_remove(s, entry, &flushed, &e);
	if (status >= 0)
		status = removal_flush(s, &flushed, &e);
	if (status >= 0)
		status = removal_remove(s, exit, &flushed, &e);
	stage(4);
	if (status >= 0)
		status = removal_flush(s, &flushed, &e);
	if (status >= 0)
		status = insert_both(s, !second, &entry, &exit, &e);
	stage(6);
	if (status >= 0)
		status = session_detach(s, 100, &detached, &e);
	stage(7);
	memcpy(account->text, e.text, sizeof(e.text));
	_exit(status >= 0 ? ENDED : status == DINST_BUSY ? GAVE_UP : FAILED);
}

/* All is in, and it dies. */
static void leave(pid_t pid, bool second)
{
	struct instance *entry, *exit;
	struct dinst_error e = {0};
	struct session *s;

	if (attach(pid, &s, &e) < 0 || insert_both(s, second, &entry, &exit, &e) < 0)
		_exit(FAILED);
	kill(getpid(), SIGKILL);
}

static void repair(pid_t pid, bool second)
{
	struct leftovers left = {0};
	struct dinst_error e = {0};
	struct target *t = NULL;
	int status;

	(void)second;
	stage(8);
	status = target_open(pid, &t, &e);
	if (status >= 0)
		status = leftovers_clean(t, CLEAN_MS, &left, &e);
	stage(7);
	memcpy(account->text, e.text, sizeof(e.text));
	_exit(status >= 0 ? ENDED : status == DINST_BUSY ? GAVE_UP : FAILED);
}

/* True if it was killed. */
static bool run(struct harness *h, void (*what)(pid_t pid, bool second), bool second,
		unsigned long countdown)
{
	pid_t child;

	memset(account, 0, sizeof(*account));
	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		fault_passed = 0;
		fault_countdown = countdown;
		what(h->pid, second);
	}
	return end_mutator(child, countdown || what == leave);
}

static unsigned long steps_of(struct harness *h, void (*what)(pid_t pid, bool second), bool second)
{
	int before;

	do {
		before = gave_up;
		if (what == repair)
			assert_true(run(h, leave, second, 0));
		assert_false(run(h, what, second, 0));
		clean_up(h, 0);
	} while (gave_up != before);
	assert_true(account->passed > 20);
	return account->passed;
}

/* What nothing has been written into yet is not known for an arena where it is private (docs/safety.md). */
static void check(struct harness *h, unsigned long at)
{
	char text[4096];

	if (!private_arenas)
		verify(h, at);
	else if (harness_differences(h->before, HARNESS_TEXT | HARNESS_THREADS | HARNESS_FDS, text,
				     sizeof(text)))
		fail_msg("not as before after death at %lu:\n%s", at, text);
}

static void die_at_each_step(struct harness *h, void (*what)(pid_t pid, bool second))
{
	const unsigned long step = getenv("DINST_SHORT") ? 12 : private_arenas ? 6 : 3;
	unsigned long steps;

	harness_limit(600);
	harness_start(h, "tails", "run", NULL);
	for (int second = 0; second < 2; second++) {
		steps = steps_of(h, what, second);
		for (unsigned long at = 1 + (unsigned)second; at <= steps; at += step) {
			if (what == repair)
				assert_true(run(h, leave, second, 0));
			run(h, what, second, at);
			clean_up(h, at);
			check(h, at);
		}
	}
	harness_end(h, 0);
}

/*
 * fear J2, C1: a mutator dies at every third of its steps, which has a window in one arena, and what is in
 * the tail of that in another one: the target runs through both, and computes rightly
 */
static void test_every_moment(void **state)
{
	die_at_each_step(*state, live);
}

/* fear J2, C1: the same of who repairs what such a mutator has left */
static void test_deaths_of_repair(void **state)
{
	die_at_each_step(*state, repair);
}

/* fear J2, B8: the same in private memory, where arenas may touch, and are one mapping then */
static void test_every_moment_in_private(void **state)
{
	private_arenas = true;
	die_at_each_step(*state, live);
	private_arenas = false;
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, death_setup, death_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_every_moment),
		CASE(test_every_moment_in_private),
		CASE(test_deaths_of_repair),
	};

	return cmocka_run_group_tests_name("live/death_arenas", tests, NULL, NULL);
}
