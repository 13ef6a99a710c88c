/* SPDX-License-Identifier: MIT */
/*
 * stop_sleep.c - sleeps that would have the rest of an interrupted one written over what they asked for:
 * nanosleep(&t, &t) in a loop that sets t once. Whoever goes on with such a sleep after a stop finds t as it was.
 */
#include "tests/live/inject_help.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/control.h"
#include "inject/remote.h"

enum { PERIOD_MS = 400, SLEEPS = 6, BETWEEN_US = 30000, SLACK_MS = 300 };

struct result {
	char left[64];
	long shortest, longest;
	int interrupted;
};

/* Processes in the target's memory that are others get this signal just when they have been seized; 0: none. */
static int signal_to_foreign, sent_to_foreign;
int __real_stop_seize(struct stop *s, struct held *h, struct dinst_error *e);
int __wrap_stop_seize(struct stop *s, struct held *h, struct dinst_error *e);

int __wrap_stop_seize(struct stop *s, struct held *h, struct dinst_error *e)
{
	const int code = __real_stop_seize(s, h, e);
	struct proc_stat stat = {.state = '?'};

	if (code || !h->seized || !h->pub.foreign || !signal_to_foreign)
		return code;
	assert_int_equal(kill(h->pub.tid, signal_to_foreign), 0);
	sent_to_foreign++;
	/* Until it stands still for it, and so not for us. */
	while (stat.state != 't' && !proc_thread_stat_read(h->tgid, h->pub.tid, &stat))
		usleep(50);
	return 0;
}

/* The thread makes a call of ours. */
static int call(struct stop *s, void *arg, struct dinst_error *e)
{
	struct arch_remote_call getpid_call = {.number = SYS_getpid};
	const struct arch_remote_program program = {.calls = &getpid_call, .count = 1};
	long result = 0;

	(void)arg;
	return remote_run(s, &program, 0, NULL, NULL, NULL, &result, e);
}

static int send_signal(struct stop *s, void *arg, struct dinst_error *e)
{
	(void)arg;
	(void)e;
	return kill(target_pid(stop_target(s)), SIGUSR1);
}

/* A signal and then a call of ours, to which the signal comes first. */
static int send_and_call(struct stop *s, void *arg, struct dinst_error *e)
{
	const int code = send_signal(s, arg, e);

	return code ? code : call(s, arg, e);
}

/* Stops, several in each sleep, up to the last one but one; then what the program says. */
static int stop_sleeping(struct harness *h, stop_work work, struct result *r)
{
	const uint64_t until = clock_ns() + (SLEEPS - 2) * PERIOD_MS * 1000000ull;
	struct target *t = help_open(h->pid);
	struct dinst_error e = {0};
	int stops = 0;

	/* One whose sleeps become shorter may have ended. */
	for (; clock_ns() < until && e.code != DINST_GONE; stops++) {
		dinst_error_clear(&e);
		usleep(BETWEEN_US);
		if (help_stop(t, work, NULL, &e) && e.code != DINST_GONE && e.code != DINST_BUSY)
			fail_msg("%s", e.text);
	}
	target_close(t);
	assert_int_equal(sscanf(harness_line(h, SLEEPS * PERIOD_MS + HARNESS_ANSWER_MS),
				"%63s %ld %ld %d", r->left, &r->shortest, &r->longest,
				&r->interrupted),
			 4);
	print_message("%d stops: %s s, sleeps of %ld to %ld ms, %d interrupted\n", stops, r->left,
		      r->shortest, r->longest, r->interrupted);
	harness_end(h, 0);
	return stops;
}

static void expect_untouched(struct harness *h, const char *name, stop_work work)
{
	struct result r;

	harness_start(h, "sleeping", name, harness_number(SLEEPS), NULL);
	stop_sleeping(h, work, &r);
	assert_string_equal(r.left, "0.400000000");
	assert_in_range(r.shortest, PERIOD_MS - 1, 100 * PERIOD_MS);
	assert_int_equal(r.interrupted, 0);
}

/* fear A7: stops in a sleep whose remainder goes to where its request is: the sleeps that follow are as long as before */
static void test_untouched(void **state)
{
	expect_untouched(*state, "nanosleep", help_nothing);
	expect_untouched(*state, "monotonic", help_nothing);
	expect_untouched(*state, "realtime", help_nothing);
	expect_untouched(*state, "processor", help_nothing);
}

/* fear A7: the same where threads are so many that most are not looked at once more in the stop */
static void test_many(void **state)
{
	expect_untouched(*state, "many", help_nothing);
}

/* fear A7, A8: the same where a filter forbids restart_syscall: the call is made anew */
static void test_filtered(void **state)
{
	expect_untouched(*state, "filtered", help_nothing);
}

/* fear A7: the same where that thread makes system calls of ours in the stop */
static void test_calling(void **state)
{
	expect_untouched(*state, "nanosleep", call);
	expect_untouched(*state, "monotonic", call);
}

static pid_t send_for_ever(pid_t to, int signal)
{
	pid_t child = fork();

	assert_true(child >= 0);
	if (child)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		kill(to, signal);
		usleep(200);
	}
}

/* fear A7, A4: the same under signals that nobody handles, which wake up whoever is traced */
static void test_ignored(void **state)
{
	struct harness *h = *state;
	struct result r;
	pid_t sender;

	harness_start(h, "sleeping", "nanosleep", harness_number(SLEEPS), NULL);
	sender = send_for_ever(h->pid, SIGWINCH);
	stop_sleeping(h, help_nothing, &r);
	kill(sender, SIGKILL);
	waitpid(sender, NULL, 0);
	assert_string_equal(r.left, "0.400000000");
	assert_in_range(r.shortest, PERIOD_MS - 1, 100 * PERIOD_MS);
}

/*
 * fear A7, A4: a handler runs, and the call returns EINTR with what is left of it, as ever: who goes on with
 * that sleeps as long as it wanted to, neither less nor anew
 */
static void test_handled(void **state)
{
	static const stop_work works[] = {send_signal, send_and_call};
	struct harness *h = *state;
	struct result r;

	for (size_t i = 0; i < sizeof(works) / sizeof(works[0]); i++) {
		int stops;

		harness_start(h, "sleeping", "handled", harness_number(SLEEPS), NULL);
		stops = stop_sleeping(h, works[i], &r);
		assert_in_range(r.interrupted, stops / 2, stops);
		assert_in_range(r.shortest, PERIOD_MS - 1, PERIOD_MS + SLACK_MS);
		assert_in_range(r.longest, PERIOD_MS - 1, PERIOD_MS + SLACK_MS);
	}
}

/* fear A7, A4: the same in another process that shares the memory, and has handlers of its own */
static void test_foreign(void **state)
{
	struct harness *h = *state;
	struct result r;

	harness_start(h, "sleeping", "foreign", harness_number(SLEEPS), NULL);
	signal_to_foreign = SIGUSR1;
	stop_sleeping(h, help_nothing, &r);
	assert_in_range(r.interrupted, sent_to_foreign / 2, sent_to_foreign);
	assert_in_range(r.shortest, PERIOD_MS - 1, PERIOD_MS + SLACK_MS);
	assert_in_range(r.longest, PERIOD_MS - 1, PERIOD_MS + SLACK_MS);
	/* One that it ignores ends no sleep of its, nor shortens any. */
	signal_to_foreign = SIGWINCH;
	harness_start(h, "sleeping", "foreign-once", harness_number(SLEEPS), NULL);
	stop_sleeping(h, help_nothing, &r);
	signal_to_foreign = 0;
	assert_string_equal(r.left, "0.400000000");
	assert_int_equal(r.interrupted, 0);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_untouched), CASE(test_many),	  CASE(test_filtered), CASE(test_calling),
		CASE(test_ignored),   CASE(test_handled), CASE(test_foreign),
	};

	return cmocka_run_group_tests_name("live/stop_sleep", tests, NULL, NULL);
}
