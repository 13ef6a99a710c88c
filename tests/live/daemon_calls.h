/* SPDX-License-Identifier: MIT */
/*
 * daemon_calls.h - the target program "calls" for tests with a daemon: starting it, letting its
 * functions be called a known number of times, ending it.
 */
#ifndef DINST_TESTS_DAEMON_CALLS_H
#define DINST_TESTS_DAEMON_CALLS_H

#include "tests/live/daemon_fixture.h"

struct program {
	pid_t pid;
	int in, out;
};

/* The path of a target program, beside the fake mutator. */
static inline void target_path(const char *name, char *path, size_t size)
{
	char *slash = strrchr(fixture_fake, '/');

	snprintf(path, size, "%.*s/%s", (int)(slash - fixture_fake), fixture_fake, name);
}

static inline void read_line(struct program *p, char line[64])
{
	size_t used = 0;
	struct pollfd fd = {p->out, POLLIN, 0};

	while (used < 63 && poll(&fd, 1, ANSWER_MS) > 0 && read(p->out, line + used, 1) == 1 &&
	       line[used] != '\n')
		used++;
	line[used] = '\0';
}

static inline void hear_line(struct program *p, const char *expected)
{
	char line[64];

	read_line(p, line);
	assert_string_equal(line, expected);
}

static inline void start_program(struct program *p, const char *name)
{
	int in[2], out[2];
	char path[600];

	target_path(name, path, sizeof(path));
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	p->pid = fork();
	if (p->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(in[0], 0);
		dup2(out[1], 1);
		execl(path, name, "2", (char *)NULL);
		_exit(126);
	}
	close(in[0]);
	close(out[1]);
	p->in = in[1];
	p->out = out[0];
}

static inline void start_calls(struct program *p)
{
	start_program(p, "calls");
	hear_line(p, "ready");
}

static inline void go(struct program *p, int times)
{
	char line[32];
	int n = snprintf(line, sizeof(line), "go %d\n", times);

	assert_int_equal(write(p->in, line, (size_t)n), n);
	hear_line(p, "done");
}

/* It ends with its input, and with 0 only if everything it computed was right. */
static inline void end_calls(struct program *p)
{
	int status;

	close(p->in);
	assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
	assert_int_equal(status, 0);
	close(p->out);
}

/* True if an arena is mapped in it. */
static inline int has_arena(pid_t pid)
{
	char path[40], line[512];
	int found = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		found |= strstr(line, "memfd:dinst") != NULL;
	fclose(f);
	return found;
}

#endif
