/* SPDX-License-Identifier: MIT */
/*
 * stop_outside.c - threads in system calls that others work on: a supervisor, the verifier of BPF
 * programs. A stop must not have them done twice, or given up.
 */
#include "tests/live/harness.h"

#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "inject/proc.h"
#include "inject/target.h"

static int nothing(struct stop *s, void *arg, struct dinst_error *e)
{
	(void)s;
	(void)arg;
	(void)e;
	return 0;
}

static void wait_ms(long ms)
{
	const struct timespec pause = {.tv_nsec = ms * 1000000};

	nanosleep(&pause, NULL);
}

/* A thread was taken out of a load that it has to begin anew. Once more in *arg. */
static int count_loads(struct stop *s, void *arg, struct dinst_error *e)
{
	const struct arch_regs *regs = &stop_thread(s, 0)->regs;

	(void)e;
	*(unsigned *)arg += arch_in_syscall(regs) && arch_syscall_number(regs) == SYS_bpf;
	return 0;
}

/* Asked is not yet asleep: between the two it looks like one that runs, and is stopped as that. */
static bool sleeps_in(const struct harness *h, const char *function)
{
	char channel[64];

	for (unsigned ms = 0; ms < HARNESS_ANSWER_MS; ms++) {
		proc_word(h->pid, "wchan", channel, sizeof(channel));
		if (!strncmp(channel, function, strlen(function)))
			return true;
		wait_ms(1);
	}
	return false;
}

/* fear A6: the supervisor of a filter has been asked to make the call: it is not asked twice */
static void test_supervised(void **state)
{
	enum { CALLS = 5, STOPS = 3 };
	const struct stop_options once = {.tries = 1};
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct target *t;

	harness_start(h, "supervised", NULL);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	for (int i = 0; i < CALLS; i++) {
		harness_send(h, "call\n");
		if (strcmp(harness_line(h, HARNESS_ANSWER_MS), "asked") != 0) {
			assert_string_equal(h->line, "cannot");
			target_close(t);
			skip();
		}
		assert_true(sleeps_in(h, "seccomp_do_user_notification"));
		for (int k = 0; k < STOPS; k++) {
			dinst_error_clear(&e);
			assert_int_equal(target_stop(t, &once, nothing, NULL, NULL, &e),
					 DINST_BUSY);
			assert_non_null(strstr(e.text, "supervisor"));
		}
		harness_send(h, "answer\n");
		assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "result 0 asked 1");
		/* It waits for the next one: as any other. */
		dinst_error_clear(&e);
		assert_int_equal(target_stop(t, NULL, nothing, NULL, NULL, &e), 0);
	}
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear A6: a BPF program is being verified, which the kernel gives up at any signal: it is loaded */
static void test_verified(void **state)
{
	enum { LOADS = 3, STOPS = 3, BETWEEN_MS = 40 };
	struct harness *h = *state;
	unsigned met = 0;
	struct dinst_error e = {0};
	struct target *t;

	harness_start(h, "verified", NULL);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	for (int i = 0; i < LOADS; i++) {
		harness_send(h, "load\n");
		for (int k = 0; k < STOPS; k++) {
			wait_ms(BETWEEN_MS);
			assert_int_equal(target_stop(t, NULL, count_loads, &met, NULL, &e), 0);
		}
		if (strcmp(harness_line(h, HARNESS_ANSWER_MS), "cannot") == 0) {
			target_close(t);
			skip();
		}
		assert_string_equal(h->line, "loaded");
	}
	print_message("%u of %d stops in a load\n", met, LOADS * STOPS);
	assert_true(met > 0);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_supervised, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_verified, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests_name("live/stop_outside", tests, NULL, NULL);
}
