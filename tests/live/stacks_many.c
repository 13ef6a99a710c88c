/* SPDX-License-Identifier: MIT */
/*
 * stacks_many.c - a look at more threads than one shows: it says how many it leaves out.
 */
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "inject/proc.h"
#include "tests/live/harness_session.h"
#include "tests/live/serve_calls.h"

enum { SHOWN = 4096, MORE = 20, TRIES = 50 };

/* So many threads are not stopped in time at each try. */
static json_t *ask(int fd, const char *method, json_t *params)
{
	json_t *answer = serve_ask(fd, method, json_incref(params), NULL);

	for (unsigned n = 1; json_object_get(answer, "error") && n < TRIES; n++) {
		json_decref(answer);
		usleep(100000);
		answer = serve_ask(fd, method, json_incref(params), NULL);
	}
	json_decref(params);
	if (!json_object_get(answer, "result"))
		fail_msg("%s: %s", method, json_dumps(answer, 0));
	return answer;
}

static void test_many(void **state)
{
	struct harness *h = *state;
	struct proc_stat stat;
	json_t *answer, *result;
	pthread_t thread;
	int fds[2];

	/* The first thread is one, too. */
	harness_start(h, "crowd", harness_number(SHOWN + MORE - 1), NULL);
	assert_int_equal(proc_stat_read(h->pid, &stat), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	assert_int_equal(pthread_create(&thread, NULL, serve_thread, &fds[1]), 0);
	json_decref(ask(fds[0], "attach",
			json_pack("{s:i,s:s,s:I}", "pid", (int)h->pid, "session", "many", "start",
				  (json_int_t)stat.start_time)));
	answer = ask(fds[0], "stacks", json_object());
	result = json_object_get(answer, "result");
	assert_int_equal(json_array_size(json_object_get(result, "rows")), SHOWN);
	assert_int_equal(json_integer_value(json_object_get(result, "left_out")), MORE);
	json_decref(answer);
	json_decref(ask(fds[0], "detach", json_object()));
	close(fds[0]);
	pthread_join(thread, NULL);
	harness_verify(h);
	harness_end(h, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_many, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests_name("live/stacks_many", tests, NULL, NULL);
}
