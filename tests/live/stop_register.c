/* SPDX-License-Identifier: MIT */
/*
 * stop_register.c - code that does not load a timeout before each call: what a stop has written into
 * the register for the call that it cut short stays there for the calls that follow.
 */
#include "tests/live/inject_help.h"

#include <stdio.h>
#include <unistd.h>

/* Of each call, in ms; stops that follow each other are in the same one. */
enum { TIMEOUT = 400, BETWEEN_US = 50000, TRIES = 100 };

static int nothing(struct stop *s, void *arg, struct dinst_error *e)
{
	(void)s;
	(void)arg;
	(void)e;
	return 0;
}

static void ask(struct harness *h, long *timeout, unsigned long *calls)
{
	assert_int_equal(sscanf(help_ask(h, "tell"), "%ld %lu", timeout, calls), 2);
}

/*
 * fear A6: a system call instruction in a loop that loads its timeout once: what two stops of one call
 * make of that is found out by a later one, and is put right; it never becomes a loop without rest
 */
static void test_found_out(void **state)
{
	struct harness *h = *state;
	unsigned long calls, before;
	bool shortened = false;
	struct target *t;
	long timeout;

	harness_start(h, "epoll-loop", harness_number(TIMEOUT), NULL);
	t = help_open(h->pid);
	for (int i = 0; i < TRIES && !shortened; i++) {
		for (int stop = 0; stop < 3; stop++) {
			help_stop_well(t, nothing, NULL);
			usleep(BETWEEN_US);
		}
		ask(h, &timeout, &before);
		do {
			usleep(BETWEEN_US);
			ask(h, &timeout, &calls);
		} while (calls == before);
		shortened = timeout != TIMEOUT;
	}
	assert_true(shortened);
	assert_in_range(timeout, 1, TIMEOUT - 1);
	/* The call of then is over for sure, and this is another one. */
	for (int i = 0; i < TRIES && timeout != TIMEOUT; i++) {
		usleep(2 * TIMEOUT * 1000);
		help_stop_well(t, nothing, NULL);
		usleep(2 * TIMEOUT * 1000);
		ask(h, &timeout, &calls);
	}
	assert_int_equal(timeout, TIMEOUT);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_found_out, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests_name("live/stop_register", tests, NULL, NULL);
}
