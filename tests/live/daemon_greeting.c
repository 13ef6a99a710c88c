/* SPDX-License-Identifier: MIT */
/*
 * daemon_greeting.c - clients of a server that does not answer, or not yet.
 */
#include "tests/live/daemon_fixture.h"

static struct output *o;

static int setup(void **state)
{
	o = malloc(sizeof(*o));
	return fixture_setup(state);
}

static int teardown(void **state)
{
	int status = fixture_teardown(state);

	free(o);
	return status;
}

/* A server that takes the connection and says nothing does not hang a client for ever. */
static void silent_server(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	(void)state;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", fixture_socket);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 5), 0);
	run_dinst(o, "ls");
	assert_int_equal(o->status, 1);
	assert_non_null(strstr(o->err, "does not answer"));
	close(fd);
	unlink(fixture_socket);
}

/* One that has not been run yet is waited for: what it says then, or does, is what counts. */
static void starved_server(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), status;
	struct timespec start, now;
	pid_t server;

	(void)state;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", fixture_socket);
	clock_gettime(CLOCK_MONOTONIC, &start);
	server = fork();
	if (server == 0) {
		/* The socket is its own: it is the peer. */
		if (bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 5))
			_exit(1);
		do
			clock_gettime(CLOCK_MONOTONIC, &now);
		while (now.tv_sec - start.tv_sec < 9);
		_exit(0);
	}
	close(fd);
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
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(silent_server),
		cmocka_unit_test(starved_server),
	};

	return cmocka_run_group_tests_name("daemon_greeting", tests, setup, teardown);
}
