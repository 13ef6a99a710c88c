/* SPDX-License-Identifier: MIT */
/*
 * daemon_greeting.c - clients of a server that does not answer, or not yet.
 */
#include "tests/live/daemon_fixture.h"

/* Listens where a daemon would; -1 if that fails. Who calls it is the peer that clients see. */
static int listen_here(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", fixture_socket);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(fd, 5) != 0)
		return -1;
	return fd;
}

/* A server that takes the connection and says nothing does not hang a client for ever. */
static void silent_server(void **state)
{
	struct output *o = malloc(sizeof(*o));
	int fd = listen_here();

	(void)state;
	assert_true(fd >= 0);
	run_dinst(o, "ls");
	assert_int_equal(o->status, 1);
	assert_non_null(strstr(o->err, "does not answer"));
	close(fd);
	unlink(fixture_socket);
	free(o);
}

/* Nor does one that takes no connections, and for which as many wait already as may. */
static void crowded_server(void **state)
{
	struct output *o = malloc(sizeof(*o));
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = listen_here(), waiting[64];
	size_t count = 0;

	(void)state;
	assert_true(fd >= 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", fixture_socket);
	for (; count < 64; count++) {
		waiting[count] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
		if (connect(waiting[count], (struct sockaddr *)&address, sizeof(address)) != 0)
			break;
	}
	assert_in_range(count, 1, 63);
	run_dinst(o, "ls");
	assert_int_equal(o->status, 1);
	assert_non_null(strstr(o->err, "does not answer"));
	for (size_t i = 0; i <= count; i++)
		close(waiting[i]);
	close(fd);
	unlink(fixture_socket);
	free(o);
}

/* One that has not been run yet is waited for: what it says then, or does, is what counts. */
static void starved_server(void **state)
{
	struct output *o = malloc(sizeof(*o));
	struct timespec start, now;
	pid_t server;
	int status;

	(void)state;
	clock_gettime(CLOCK_MONOTONIC, &start);
	server = fork();
	if (server == 0) {
		if (listen_here() < 0)
			_exit(1);
		do
			clock_gettime(CLOCK_MONOTONIC, &now);
		while (now.tv_sec - start.tv_sec < 9);
		_exit(0);
	}
	for (int i = 0; i < 1000 && access(fixture_socket, F_OK) != 0; i++)
		nap_ms(5);
	run_dinst(o, "ls");
	clock_gettime(CLOCK_MONOTONIC, &now);
	assert_int_equal(waitpid(server, &status, 0), server);
	assert_int_equal(status, 0);
	unlink(fixture_socket);
	assert_int_equal(o->status, 1);
	assert_null(strstr(o->err, "does not answer"));
	assert_non_null(strstr(o->err, "closed the connection"));
	assert_true(now.tv_sec - start.tv_sec >= 8);
	free(o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(silent_server),
		cmocka_unit_test(crowded_server),
		cmocka_unit_test(starved_server),
	};

	return cmocka_run_group_tests_name("daemon_greeting", tests, fixture_setup,
					   fixture_teardown);
}
