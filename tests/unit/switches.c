/* SPDX-License-Identifier: MIT */
/*
 * switches.c - how often the threads of a process were switched since the last look: what came before
 * one that saw them is not taken for new.
 */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "mutator/core.h"

enum { CROWD = 2100, SLEEPS = 2000 };

static int to_child[2], from_child[2];

/* Until the parent, or who goes on for it, lets one go. */
static void *wait_for_byte(void *arg)
{
	char byte;

	return read(to_child[0], &byte, 1) == 1 ? arg : NULL;
}

/* Sleeps often, then does nothing beside `threads` that wait, and once more when they have ended. */
static void child(unsigned threads)
{
	pthread_t *all = calloc(threads + 1, sizeof(*all));
	pthread_attr_t attributes;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 64 * 1024);
	for (unsigned i = 0; i < threads; i++)
		if (pthread_create(&all[i], &attributes, wait_for_byte, NULL))
			_exit(1);
	for (unsigned i = 0; i < SLEEPS; i++)
		usleep(1);
	for (unsigned round = 0; round < 2; round++) {
		if (write(from_child[1], "x", 1) != 1)
			_exit(1);
		for (unsigned i = 0; i < threads; i++)
			pthread_join(all[i], NULL);
		threads = 0;
	}
	wait_for_byte(NULL);
	_exit(0);
}

static pid_t start(unsigned threads)
{
	char byte;
	pid_t pid;

	assert_int_equal(pipe2(to_child, O_CLOEXEC), 0);
	assert_int_equal(pipe2(from_child, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		close(to_child[1]);
		child(threads);
	}
	close(from_child[1]);
	assert_int_equal(read(from_child[0], &byte, 1), 1);
	return pid;
}

static void end(pid_t pid)
{
	int status;

	assert_int_equal(write(to_child[1], "x", 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(to_child[0]);
	close(to_child[1]);
	close(from_child[0]);
}

/* fear K3: a look for which we had no descriptors tells nothing of what was before it */
static void test_no_descriptors(void **state)
{
	struct session s = {.pid = start(0)};
	struct rlimit limit, none;
	char byte;

	(void)state;
	assert_int_equal(read(from_child[0], &byte, 1), 1);
	assert_int_equal(session_switches(&s, true), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){.rlim_max = limit.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	session_switches(&s, true);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_in_range(session_switches(&s, true), 0, SLEEPS / 4);
	end(s.pid);
}

/* fear K3, G9: of threads that were too many to be looked at nothing is known when they have become fewer */
static void test_crowd(void **state)
{
	struct session s = {.pid = start(CROWD)};
	char byte;

	(void)state;
	assert_int_equal(session_switches(&s, true), 0);
	for (unsigned i = 0; i < CROWD; i++)
		assert_int_equal(write(to_child[1], "x", 1), 1);
	assert_int_equal(read(from_child[0], &byte, 1), 1);
	usleep(20000);
	assert_int_equal(session_switches(&s, true), 0);
	assert_in_range(session_switches(&s, true), 0, SLEEPS / 4);
	end(s.pid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_descriptors),
		cmocka_unit_test(test_crowd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
