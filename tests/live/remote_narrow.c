/* SPDX-License-Identifier: MIT */
/*
 * remote_narrow.c - a thread of a program of 64 bits that is in code of 32 bits (Wine has such): no
 * system call of ours can be made by it, and it notices nothing of those that others make.
 */
#include "tests/live/inject_help.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "inject/remote.h"
#include "tests/live/program_32.h"

static int ask_pid(struct stop *s, void *arg, struct dinst_error *e)
{
	struct arch_remote_call call = {.number = SYS_getpid};
	struct arch_remote_program program = {.calls = &call, .count = 1};

	return remote_run(s, &program, 0, NULL, NULL, NULL, arg, e);
}

/* fear B4, H4: the only thread is in code of 32 bits: refused in time, and it goes on as it was */
static void test_alone(void **state)
{
	struct harness *h = *state;
	struct target *t;

	if (!has_compat_calls())
		skip();
	harness_start(h, "narrow", NULL);
	t = help_open(h->pid);
	for (int i = 0; i < 20; i++) {
		const time_t begin = time(NULL);
		struct dinst_error e = {0};
		long pid = 0;

		do {
			dinst_error_clear(&e);
			help_stop(t, ask_pid, &pid, &e);
		} while (e.code == DINST_BUSY && time(NULL) < begin + 60);
		assert_int_equal(e.code, DINST_REFUSED);
		assert_non_null(strstr(e.text, "no thread that can make a system call"));
		assert_int_equal(pid, -ECANCELED);
	}
	harness_verify(h);
	target_close(t);
	harness_end(h, 0);
}

/* fear B4, H4: with another thread beside it that one makes them, and both go on as they were */
static void test_with_another(void **state)
{
	struct harness *h = *state;
	struct target *t;

	if (!has_compat_calls())
		skip();
	harness_start(h, "narrow", "two", NULL);
	t = help_open(h->pid);
	for (int i = 0; i < 200; i++) {
		long pid = 0;

		help_stop_well(t, ask_pid, &pid);
		assert_int_equal(pid, h->pid);
	}
	harness_verify(h);
	target_close(t);
	harness_end(h, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {TEST(test_alone), TEST(test_with_another)};

	return cmocka_run_group_tests_name("live/remote_narrow", tests, NULL, NULL);
}
