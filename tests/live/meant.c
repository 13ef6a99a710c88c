/* SPDX-License-Identifier: MIT */
/*
 * meant.c - a mutator that is told to attach to a process of a number which another process has got
 * since the daemon has looked: that one is left alone. Spoken to as the daemon does.
 */
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "inject/proc.h"
#include "tests/live/harness_session.h"
#include "tests/live/serve_calls.h"

static json_t *attach(int fd, pid_t pid, uint64_t start)
{
	return serve_ask(fd, "attach",
			 json_pack("{s:i,s:s,s:I}", "pid", (int)pid, "session", "meant", "start",
				   (json_int_t)start),
			 NULL);
}

/* fear A13: another process that has got the number is not attached to; the one that is meant is */
static void test_other_process(void **state)
{
	struct harness *h = *state;
	struct proc_stat stat;
	pthread_t thread;
	json_t *answer, *error;
	int fds[2];

	harness_start(h, "calls", "1", NULL);
	assert_int_equal(proc_stat_read(h->pid, &stat), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	assert_int_equal(pthread_create(&thread, NULL, serve_thread, &fds[1]), 0);
	answer = attach(fds[0], h->pid, stat.start_time + 1);
	error = json_object_get(answer, "error");
	assert_non_null(error);
	assert_string_equal(
		json_string_value(json_object_get(json_object_get(error, "data"), "code")), "gone");
	json_decref(answer);
	/* Nor is it waited for what it will execute. */
	answer = serve_ask(fds[0], "catch_exec",
			   json_pack("{s:i,s:s,s:I}", "pid", (int)h->pid, "session", "meant",
				     "start", (json_int_t)stat.start_time + 1),
			   NULL);
	error = json_object_get(answer, "error");
	assert_non_null(error);
	assert_string_equal(
		json_string_value(json_object_get(json_object_get(error, "data"), "code")), "gone");
	json_decref(answer);
	answer = attach(fds[0], h->pid, stat.start_time);
	assert_non_null(json_object_get(answer, "result"));
	json_decref(answer);
	answer = serve_ask(fds[0], "detach", json_object(), NULL);
	assert_non_null(json_object_get(answer, "result"));
	json_decref(answer);
	close(fds[0]);
	pthread_join(thread, NULL);
	harness_verify(h);
	harness_end(h, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_other_process, harness_setup,
						harness_teardown),
	};

	return cmocka_run_group_tests_name("live/meant", tests, NULL, NULL);
}
