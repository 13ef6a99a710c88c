/* SPDX-License-Identifier: MIT */
/*
 * trace_target.h - the one program that a test of `dinst trace` has: start(), tell() it what to
 * do as often as wanted, stop().
 */
#ifndef DINST_TESTS_LIVE_TRACE_TARGET_H
#define DINST_TESTS_LIVE_TRACE_TARGET_H

#include "tests/live/daemon_calls.h"
#include "tests/live/harness.h"

static struct {
	pid_t pid;
	int to;
	FILE *from;
	const char *name;
	struct harness_snapshot *before;
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
	target.name = name;
	target.before = harness_snapshot_settled(target.pid);
	assert_non_null(target.before);
}

static inline bool differs(char *text, size_t size)
{
	return harness_differences(target.before, HARNESS_TEXT | HARNESS_FDS, text, size);
}

/* It is as before: alive, nobody's tracee, and no session is left, or soon none: after so many tenths of a second. */
static inline void stop_within(int tenths)
{
	struct output *o = malloc(sizeof(*o));
	char text[4096];

	assert_int_equal(waitpid(target.pid, NULL, WNOHANG), 0);
	for (int i = 0; i <= tenths; i++) {
		run_dinst(o, "ls -q");
		if (!o->status && !strstr(o->out, target.name))
			break;
		nap_ms(100);
	}
	assert_int_equal(o->status, 0);
	assert_null(strstr(o->out, target.name));
	free(o);
	/* The session is gone a moment before the arena is. It makes threads of its own. */
	for (int i = 0; i < 100 && (has_arena(target.pid) || differs(text, sizeof(text))); i++)
		nap_ms(50);
	assert_false(has_arena(target.pid));
	assert_string_equal(harness_status(target.pid, target.pid, "TracerPid:"), "0");
	if (differs(text, sizeof(text)))
		fail_msg("not as before:\n%s", text);
	harness_snapshot_free(target.before);
	/* It would end by itself where its input does. */
	end_target(target.pid);
	close(target.to);
	fclose(target.from);
}

/* Where the client was killed the daemon does it, in a moment. */
static inline void stop(void)
{
	stop_within(1200);
}

static inline void tell(const char *what, int count)
{
	char line[64];

	snprintf(line, sizeof(line), "%s %d\n", what, count);
	assert_int_equal(write(target.to, line, strlen(line)), strlen(line));
	assert_non_null(fgets(line, sizeof(line), target.from));
}

#endif
