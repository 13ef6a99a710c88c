/* SPDX-License-Identifier: MIT */
/*
 * daemon_held.c - programs that `dinst exec` holds at their beginning: they go on whoever dies.
 */
#include <sys/ptrace.h>

#include "tests/live/daemon_fixture.h"

/* A client whose program, which makes the file `marker`, is held as long as its script, which is *script, goes on. */
static pid_t start_holder(const char *marker, int script[2])
{
	struct output *o = malloc(sizeof(*o));
	char command[300];
	pid_t pid;

	unlink(marker);
	snprintf(command, sizeof(command), "echo ran > %s", marker);
	assert_int_equal(pipe(script), 0);
	pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);

		setsid();
		dup2(script[0], 0);
		for (int fd = 1; fd <= 2; fd++)
			dup2(null, fd);
		close(script[1]);
		execl(fixture_dinst, "dinst", "exec", "-n", "held", "-e", "run -", "--", "/bin/sh",
		      "-c", command, (char *)NULL);
		_exit(126);
	}
	for (int ms = 0; ms < ANSWER_MS; ms += 20) {
		run_dinst(o, "ls --json");
		if (strstr(o->out, "\"state\":\"held\""))
			break;
		nap_ms(20);
	}
	assert_non_null(strstr(o->out, "\"state\":\"held\""));
	free(o);
	assert_int_equal(access(marker, F_OK), -1);
	return pid;
}

/* It dies, and its program goes on, which is seen at once, or when nobody traces it any more (`tracee`, if not 0). */
static void end_holder(pid_t holder, int script[2], const char *marker, pid_t tracee)
{
	struct output *o = malloc(sizeof(*o));
	int ms;

	kill(holder, SIGKILL);
	waitpid(holder, NULL, 0);
	for (ms = 0; tracee && ms < ANSWER_MS; ms += 20) {
		run_dinst(o, "ls --json");
		if (!strstr(o->out, "\"state\":\"held\""))
			break;
		nap_ms(20);
	}
	assert_true(ms < ANSWER_MS);
	if (tracee)
		assert_int_equal(ptrace(PTRACE_DETACH, tracee, NULL, NULL), 0);
	for (int i = 0; i < 6000 && access(marker, F_OK) != 0; i++)
		nap_ms(10);
	assert_int_equal(access(marker, F_OK), 0);
	close(script[0]);
	close(script[1]);
	free(o);
	expect_word("detach", "{\"session\":\"held\"}", "");
	still_well();
}

/* A client that dies while its program is held lets the program go. */
static void holder_dies(void **state)
{
	char marker[100];
	int script[2];

	(void)state;
	snprintf(marker, sizeof(marker), "%s/ran", fixture_directory);
	end_holder(start_holder(marker, script), script, marker, 0);
}

/* So do a mutator and then a client that die, while somebody traces the program: it does not look as if it was stopped then. */
static void held_and_traced(void **state)
{
	struct output *o = malloc(sizeof(*o));
	char marker[100], *at, *next;
	int script[2], status;
	pid_t holder, program;

	(void)state;
	snprintf(marker, sizeof(marker), "%s/ran-traced", fixture_directory);
	holder = start_holder(marker, script);
	run_dinst(o, "ls --json");
	/* The last one in front of its state. */
	for (at = NULL, next = o->out;
	     (next = strstr(next, "\"pid\":")) && next < strstr(o->out, "\"state\":\"held\"");
	     next++)
		at = next;
	assert_non_null(at);
	program = (pid_t)strtol(at + strlen("\"pid\":"), NULL, 10);
	free(o);
	expect_word("funcs", "{\"session\":\"held\",\"pattern\":\"@crash\"}", "daemon");
	assert_int_equal(ptrace(PTRACE_SEIZE, program, NULL, NULL), 0);
	assert_int_equal(waitpid(program, &status, __WALL), program);
	assert_true(WIFSTOPPED(status));
	end_holder(holder, script, marker, program);
}

/* A mutator dies while its program is held. The next one holds nothing: the daemon lets it go when its client asks. */
static void successor_holds_nothing(void **state)
{
	struct output *o = malloc(sizeof(*o));

	(void)state;
	run_dinst(o, "exec -n passed --wait -e 'funcs @crash' -- /bin/echo ran");
	assert_non_null(strstr(o->err, "died of signal"));
	assert_non_null(strstr(o->out, "ran"));
	expect_word("detach", "{\"session\":\"passed\"}", "");
	free(o);
	still_well();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(holder_dies),
		cmocka_unit_test(held_and_traced),
		cmocka_unit_test(successor_holds_nothing),
	};

	return cmocka_run_group_tests_name("daemon_held", tests, fixture_setup_base,
					   fixture_teardown);
}
