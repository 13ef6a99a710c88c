/* SPDX-License-Identifier: MIT */
/*
 * library_daemons.c - what libdinst says of a daemon that is late, and of one whose mutator has died.
 */
#include <sys/time.h>

#include "lib/dinst.h"
#include "tests/live/daemon_fixture.h"

static struct dinst_failure f;

static void on_alarm(int sig)
{
	(void)sig;
}

/* What a caller's profiler does, say. */
static void interrupt_every(long microseconds)
{
	const struct sigaction action = {.sa_handler = on_alarm};
	const struct itimerval timer = {{0, microseconds}, {0, microseconds}};

	assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &timer, NULL), 0);
}

/* The daemon's part: who listens is the peer that clients see, and look at. */
static void be_late(const char *path, long ms, int ready)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char line[256];
	int client;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(fd, 1) != 0 ||
	    write(ready, "r", 1) != 1)
		_exit(1);
	client = accept(fd, NULL, NULL);
	if (read(client, line, sizeof(line)) <= 0)
		_exit(2);
	nap_ms(ms);
	raw_say(client, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"version\":\"late\"}}\n");
	_exit(0);
}

/* Answers one greeting, after so long. */
static pid_t serve_late(const char *path, long ms)
{
	int ready[2];
	pid_t pid;
	char byte;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0)
		be_late(path, ms, ready[1]);
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

/* Signals of the caller's end a wait early, and are no silence of the daemon's. */
static void interrupted_greeting(void **state)
{
	struct dinst *d = NULL;
	char path[100];
	int err, status;
	pid_t server;

	(void)state;
	snprintf(path, sizeof(path), "%s/late.sock", fixture_directory);
	server = serve_late(path, 300);
	interrupt_every(10000);
	err = dinst_open(&d, path, 0, &f);
	setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
	assert_int_equal(waitpid(server, &status, 0), server);
	if (err)
		fail_msg("%d: %s", err, f.text);
	assert_int_equal(status, 0);
	dinst_close(d);
	unlink(path);
	signal(SIGALRM, SIG_DFL);
	alarm(FIXTURE_SECONDS);
}

/* Of a session that is lost nobody knows how much is left: none is not what is said. */
static void lost_session(void **state)
{
	const pid_t target = start_target("lost-one");
	char params[100], repair[40];
	struct dinst *d = NULL;
	uint64_t left = 4711;

	(void)state;
	assert_int_equal(dinst_open(&d, NULL, 0, &f), 0);
	for (int twice = 0; twice < 2; twice++) {
		snprintf(params, sizeof(params), "{\"target\":%d,\"name\":\"lost\"}", (int)target);
		expect_word("attach", params, "");
		for (int i = 0; i < 5; i++)
			expect_word("funcs", "{\"session\":\"lost\",\"pattern\":\"@crash\"}",
				    "daemon");
		memset(&f, 0, sizeof(f));
		assert_int_equal(dinst_detach(d, "lost", twice ? NULL : &left, &f), DINST_E_FAILED);
		assert_int_equal(left, 4711);
		assert_int_equal(f.code, DINST_E_FAILED);
		snprintf(repair, sizeof(repair), "dinst repair %d", (int)target);
		if (!strstr(f.text, repair))
			fail_msg("it says: %s", f.text);
		expect_word("funcs", "{\"session\":\"lost\"}", "no-such-session");
	}
	dinst_close(d);
	end_target(target);
	still_well();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(interrupted_greeting),
		cmocka_unit_test(lost_session),
	};

	return cmocka_run_group_tests_name("live/library_daemons", tests, fixture_setup_base,
					   fixture_teardown);
}
