/* SPDX-License-Identifier: MIT */
/*
 * serve_memory.c - a mutator that has no memory for an answer, or to read what it is
 * asked, says so and goes on: were it to end, all that is inserted would go with it.
 * It is served by a thread, and jansson's memory is cut off at each of its allocations in turn.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "mutator/serve.h"

enum { ANSWER_S = 100, CUTS_MOST = 200 };

static atomic_int left; /* allocations that succeed; below 0: all */

static void *take(size_t size)
{
	int n = atomic_load(&left);

	while (n > 0 && !atomic_compare_exchange_weak(&left, &n, n - 1))
		;
	return n == 0 ? NULL : malloc(size);
}

static void *serve_thread(void *fd)
{
	serve(*(int *)fd);
	close(*(int *)fd);
	return NULL;
}

/* The next line, without its end; "" if it hangs up. */
static void hear(int fd, char *text, size_t size)
{
	size_t used = 0;

	while (used < size - 1 && read(fd, text + used, 1) == 1 && text[used] != '\n')
		used++;
	text[used] = '\0';
}

/* One request with so many allocations; true if it was served as if there were no end of them. */
static bool ask(int fd, const char *method, int allocations)
{
	char line[100];
	static char text[1 << 20];

	snprintf(line, sizeof(line), "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"%s\"}\n", method);
	atomic_store(&left, allocations);
	assert_int_equal(write(fd, line, strlen(line)), strlen(line));
	hear(fd, text, sizeof(text));
	atomic_store(&left, -1);
	if (!text[0])
		fail_msg("%s: it ended for want of allocation %d", method, allocations);
	if (!strstr(text, "\"jsonrpc\":\"2.0\"") || text[strlen(text) - 1] != '}')
		fail_msg("%s, %d allocations: %s", method, allocations, text);
	if (strstr(text, "no-memory"))
		return false;
	assert_true(strstr(text, "\"id\":7") || strstr(text, "\"id\": 7"));
	return true;
}

static void goes_on(void **state)
{
	static const char *const methods[] = {"status", "no-such-method", "metrics"};
	struct timeval limit = {ANSWER_S, 0};
	pthread_t thread;
	int fds[2];

	(void)state;
	json_set_alloc_funcs(take, free);
	atomic_store(&left, -1);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	assert_int_equal(pthread_create(&thread, NULL, serve_thread, &fds[1]), 0);
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		int cuts = 0;

		while (cuts < CUTS_MOST && !ask(fds[0], methods[i], cuts))
			cuts++;
		assert_in_range(cuts, 1, CUTS_MOST - 1);
		assert_true(ask(fds[0], methods[i], -1));
	}
	close(fds[0]);
	pthread_join(thread, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(goes_on),
	};

	return cmocka_run_group_tests_name("unit/serve_memory", tests, NULL, NULL);
}
