/* SPDX-License-Identifier: MIT */
/*
 * trace_target.h - the one program that a test of `dinst trace` has: start(), tell() it what to
 * do as often as wanted, stop().
 */
#ifndef DINST_TESTS_LIVE_TRACE_TARGET_H
#define DINST_TESTS_LIVE_TRACE_TARGET_H

#include "tests/live/daemon_fixture.h"

static struct {
	pid_t pid;
	int to;
	FILE *from;
} target;

static inline void start(const char *name, const char *word)
{
	const char *build = getenv("DINST_BUILD");
	int to[2], from[2];
	char path[512], line[64];

	assert_int_equal(pipe2(to, O_CLOEXEC) | pipe2(from, O_CLOEXEC), 0);
	snprintf(path, sizeof(path), "%s/tests/live/targets/%s", build ? build : "build", name);
	target.pid = fork();
	if (target.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(to[0], 0);
		dup2(from[1], 1);
		execl(path, path, word, NULL);
		_exit(126);
	}
	close(to[0]);
	close(from[1]);
	target.to = to[1];
	target.from = fdopen(from[0], "r");
	assert_non_null(fgets(line, sizeof(line), target.from));
}

/* It is as before: alive, nobody's tracee, and no session is left. */
static inline void stop(void)
{
	struct output *o = malloc(sizeof(*o));

	assert_int_equal(kill(target.pid, 0), 0);
	/* Where the client was killed the daemon does it, in a moment. */
	for (int i = 0; i < 1200; i++) {
		run_dinst(o, "ls -q");
		if (!strstr(o->out, "traced"))
			break;
		nap_ms(100);
	}
	assert_null(strstr(o->out, "traced"));
	free(o);
	close(target.to);
	fclose(target.from);
	end_target(target.pid);
}

static inline void tell(const char *what, int count)
{
	char line[64];

	snprintf(line, sizeof(line), "%s %d\n", what, count);
	assert_int_equal(write(target.to, line, strlen(line)), strlen(line));
	assert_non_null(fgets(line, sizeof(line), target.from));
}

#endif
