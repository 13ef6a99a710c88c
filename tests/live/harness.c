/* SPDX-License-Identifier: MIT */
/*
 * harness.c - starts and ends the target programs of live tests, and runs the
 * command line beside them.
 *
 * Owns every process of a test: whatever way the test program ends, it leaves
 * none behind. Must never send a signal to a process that is not its own.
 */
#include "tests/live/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ARGUMENTS_MAX = 64, READY_MS = 120000, END_MS = 120000, DINST_MS = 200000 };

/* The target and the directory of the case that runs; for the signal handler. */
static volatile pid_t current_target;
static char current_directory[64];

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/*
 * Kills what is left of our children: the daemon and the mutators become ours
 * when their parent ends, because the harness is a subreaper. Only calls that
 * are safe in a signal handler.
 */
static void kill_children(void)
{
	char text[4096];
	ssize_t size;
	pid_t pid = 0;
	int fd;

	fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	size = read(fd, text, sizeof(text) - 1);
	close(fd);
	for (ssize_t i = 0; i < size; i++) {
		if (text[i] >= '0' && text[i] <= '9') {
			pid = pid * 10 + (text[i] - '0');
		} else {
			if (pid > 1)
				kill(pid, SIGKILL);
			pid = 0;
		}
	}
}

/* Only calls that are safe in a signal handler; fork() itself waits for locks, _Fork() does not. */
static void on_fatal_signal(int sig)
{
	static const char late[] = "FAIL the test ran out of time\n";

	if (current_target > 1)
		kill(-current_target, SIGKILL);
	kill_children();
	if (current_directory[0] != '\0' && _Fork() == 0)
		execl("/bin/rm", "rm", "-rf", current_directory, (char *)NULL);
	if (sig == SIGALRM && write(STDERR_FILENO, late, sizeof(late) - 1) < 0)
		_exit(3);
	signal(sig, SIG_DFL);
	raise(sig);
}

void harness_limit(unsigned seconds)
{
	alarm(seconds);
}

/*
 * What fails in a process that a test has forked ends that one, by SIGABRT, which its parent sees: cmocka
 * would end the test there too, target and all, and run those that are left.
 */
static void end_where_it_fails(void)
{
	setenv("CMOCKA_TEST_ABORT", "1", 1);
}

int harness_setup(void **state)
{
	static bool prepared;
	struct harness *h = calloc(1, sizeof(*h));

	assert_non_null(h);
	h->input = h->output = -1;
	snprintf(h->directory, sizeof(h->directory), "/tmp/dinst-test-XXXXXX");
	if (mkdtemp(h->directory) == NULL)
		fail_msg("mkdtemp %s: %s", h->directory, strerror(errno));
	memcpy(current_directory, h->directory, sizeof(current_directory));
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (!prepared)
		assert_int_equal(pthread_atfork(NULL, NULL, end_where_it_fails), 0);
	prepared = true;
	/* Threads that come into freed code stay there, and are found (place_check_threads()). */
	setenv("DINST_POISON", "1", 1);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGALRM, on_fatal_signal);
	signal(SIGTERM, on_fatal_signal);
	signal(SIGINT, on_fatal_signal);
	harness_limit(HARNESS_SECONDS);
	*state = h;
	return 0;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Collects children that were left to us, for at most `milliseconds`, until there is none. */
static void reap_orphans(unsigned milliseconds)
{
	uint64_t deadline = now_ms() + milliseconds;
	pid_t pid;

	for (;;) {
		pid = waitpid(-1, NULL, WNOHANG);
		if (pid < 0 || (pid == 0 && now_ms() >= deadline))
			return;
		if (pid == 0)
			usleep(2000);
	}
}

int harness_teardown(void **state)
{
	struct harness *h = *state;
	char command[128];

	harness_kill(h);
	if (h->daemon_used) {
		harness_dinst(h, NULL, "stop");
		reap_orphans(2000);
	}
	kill_children();
	reap_orphans(2000);
	alarm(0);
	harness_snapshot_free(h->before);
	snprintf(command, sizeof(command), "rm -rf '%s'", h->directory);
	if (system(command) != 0)
		print_message("could not remove %s\n", h->directory);
	current_directory[0] = '\0';
	free(h->messages);
	free(h);
	return 0;
}

const char *harness_path(const char *relative)
{
	static char path[PATH_MAX + 256];
	static char root[PATH_MAX];
	const char *build = getenv("DINST_BUILD");

	if (root[0] == '\0' && realpath(build != NULL ? build : "build", root) == NULL)
		fail_msg("DINST_BUILD: %s", strerror(errno));
	snprintf(path, sizeof(path), "%s/%s", root, relative);
	return path;
}

/* ------------------------------------------------------------ the target */

/* In the child: descriptors, process group, and then the program. Never returns. */
static void become_target(const char *const *argv, int in, int out)
{
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0)
		_exit(126);
	/* The runner of the tests may have descriptors open that are not ours to hand on. */
	close_range(3, UINT_MAX, 0);
	for (int sig = 1; sig < SIGRTMIN; sig++)
		signal(sig, SIG_DFL);
	execvp(argv[0], (char *const *)argv);
	fprintf(stderr, "exec %s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

void harness_start_argv(struct harness *h, const char *const *argv, bool wait_ready)
{
	int in[2], out[2];
	pid_t pid;

	assert_int_equal(h->pid, 0);
	if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
		fail_msg("pipe: %s", strerror(errno));
	fflush(NULL);
	pid = fork();
	if (pid < 0)
		fail_msg("fork: %s", strerror(errno));
	if (pid == 0)
		become_target(argv, in[0], out[1]);
	setpgid(pid, pid);
	close(in[0]);
	close(out[1]);
	h->pid = pid;
	current_target = pid;
	h->input = in[1];
	h->output = out[0];
	h->pending[0] = '\0';
	if (!wait_ready)
		return;
	while (strcmp(harness_line(h, READY_MS), "ready") != 0)
		continue;
	harness_snapshot_free(h->before);
	h->before = harness_snapshot_settled(pid);
	assert_non_null(h->before);
}

int harness_container_begin(void)
{
	const int ours = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);

	assert_true(ours >= 0);
	if (unshare(CLONE_NEWPID) != 0) {
		print_message("SKIP in a container: %s\n", strerror(errno));
		close(ours);
		skip();
	}
	return ours;
}

void harness_container_end(int container)
{
	assert_int_equal(setns(container, CLONE_NEWPID), 0);
	close(container);
}

void harness_start(struct harness *h, const char *program, ...)
{
	const char *argv[ARGUMENTS_MAX] = {0};
	char relative[256];
	size_t count = 0;
	va_list list;

	snprintf(relative, sizeof(relative), "tests/live/targets/%s", program);
	argv[count++] = harness_path(relative);
	if (access(argv[0], X_OK) != 0)
		fail_msg("target program %s: %s", argv[0], strerror(errno));
	va_start(list, program);
	do {
		argv[count] = va_arg(list, const char *);
	} while (argv[count++] != NULL && count < ARGUMENTS_MAX - 1);
	va_end(list);
	harness_start_argv(h, argv, true);
}

/* Takes the first line out of h->pending; false if there is no whole one. */
static bool take_line(struct harness *h)
{
	char *end = strchr(h->pending, '\n');
	size_t size;

	if (end == NULL)
		return false;
	size = (size_t)(end - h->pending);
	memcpy(h->line, h->pending, size);
	h->line[size] = '\0';
	memmove(h->pending, end + 1, strlen(end + 1) + 1);
	return true;
}

const char *harness_line(struct harness *h, unsigned milliseconds)
{
	uint64_t deadline = now_ms() + milliseconds;
	struct pollfd p = {.fd = h->output, .events = POLLIN};

	while (!take_line(h)) {
		size_t used = strlen(h->pending);
		uint64_t now = now_ms();
		ssize_t got;

		if (now >= deadline)
			harness_fail_silent(h->pid, milliseconds);
		if (used >= sizeof(h->pending) - 1)
			fail_msg("the target's line is too long");
		if (poll(&p, 1, (int)(deadline - now)) <= 0)
			continue;
		got = read(h->output, h->pending + used, sizeof(h->pending) - 1 - used);
		if (got <= 0)
			fail_msg("target %d ended its output, state %s", (int)h->pid,
				 harness_status(h->pid, h->pid, "State:"));
		h->pending[used + (size_t)got] = '\0';
	}
	return h->line;
}

void harness_send(struct harness *h, const char *text)
{
	size_t size = strlen(text);

	if (write(h->input, text, size) != (ssize_t)size)
		fail_msg("writing to target %d: %s", (int)h->pid, strerror(errno));
}

unsigned harness_again(struct harness *h, const char *command)
{
	struct pollfd p = {.fd = h->output, .events = POLLIN};

	if (!strchr(h->pending, '\n') && poll(&p, 1, 0) <= 0)
		return 0;
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	fprintf(stderr, "AGAIN %s", command);
	harness_send(h, command);
	return 1;
}

int harness_wait(struct harness *h, unsigned milliseconds)
{
	uint64_t deadline = now_ms() + milliseconds;
	int status = 0;
	pid_t got;

	while ((got = waitpid(h->pid, &status, WNOHANG | __WALL)) == 0) {
		if (now_ms() >= deadline)
			fail_msg("target %d did not end within %u ms (state %s)", (int)h->pid,
				 milliseconds, harness_status(h->pid, h->pid, "State:"));
		usleep(1000);
	}
	if (got != h->pid)
		fail_msg("waitpid %d: %s", (int)h->pid, strerror(errno));
	h->pid = 0;
	current_target = 0;
	return status;
}

void harness_end(struct harness *h, int status)
{
	int got;

	close_fd(&h->input);
	got = harness_wait(h, END_MS);
	close_fd(&h->output);
	if (WIFSIGNALED(got))
		fail_msg("the target was killed by signal %d", WTERMSIG(got));
	if (WEXITSTATUS(got) != status)
		fail_msg("the target exited with %d, not %d", WEXITSTATUS(got), status);
}

void harness_kill(struct harness *h)
{
	close_fd(&h->input);
	close_fd(&h->output);
	if (h->pid > 1) {
		kill(-h->pid, SIGKILL);
		kill(h->pid, SIGKILL);
		waitpid(h->pid, NULL, __WALL);
	}
	h->pid = 0;
	current_target = 0;
}

/* ----------------------------------------------------- the command line */

struct capture {
	int fd;
	char *text;
	size_t used, size;
};

/* Reads what is there; false at the end. */
static bool capture_read(struct capture *c)
{
	ssize_t got;

	if (c->size - c->used < 4096) {
		c->size = c->size * 2 + 8192;
		c->text = realloc(c->text, c->size);
		assert_non_null(c->text);
	}
	got = read(c->fd, c->text + c->used, c->size - c->used - 1);
	if (got > 0)
		c->used += (size_t)got;
	c->text[c->used] = '\0';
	return got > 0;
}

static pid_t spawn_dinst(struct harness *h, const char *const *argv, int out, int err)
{
	char socket[sizeof(h->directory) + 16];
	pid_t pid;
	int null;

	fflush(NULL);
	pid = fork();
	if (pid != 0)
		return pid;
	null = open("/dev/null", O_RDWR);
	snprintf(socket, sizeof(socket), "%s/dinstd.sock", h->directory);
	setenv("DINST_SOCKET", socket, 1);
	if (dup2(null, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
	    dup2(err, STDERR_FILENO) < 0)
		_exit(126);
	close_range(3, UINT_MAX, 0);
	execv(argv[0], (char *const *)argv);
	_exit(127);
}

/*
 * Reads both ends until the command has exited and standard output has ended. A daemon that it
 * started may keep standard error open for ever, so nobody waits for the end of that.
 */
static int collect(pid_t pid, struct capture *out, struct capture *err)
{
	uint64_t deadline = now_ms() + DINST_MS;
	struct pollfd p[2] = {{.fd = out->fd, .events = POLLIN}, {.fd = err->fd, .events = POLLIN}};
	bool exited = false;
	int status = 0;

	while (!exited || p[0].fd >= 0) {
		if (now_ms() >= deadline) {
			kill(pid, SIGKILL);
			fail_msg("dinst did not end within %d ms; it said: %s", DINST_MS,
				 err->text != NULL ? err->text : "");
		}
		if (poll(p, 2, exited ? 200 : 20) > 0) {
			if (p[0].revents != 0 && !capture_read(out))
				p[0].fd = -1;
			if (p[1].revents != 0 && !capture_read(err))
				p[1].fd = -1;
		} else if (exited) {
			break;
		}
		if (!exited && waitpid(pid, &status, WNOHANG) == pid)
			exited = true;
	}
	while (poll(&p[1], 1, 0) > 0 && p[1].fd >= 0 && capture_read(err))
		continue;
	if (WIFSIGNALED(status))
		fail_msg("dinst was killed by signal %d", WTERMSIG(status));
	return WEXITSTATUS(status);
}

static json_t *parse_lines(char *text)
{
	json_t *rows = json_array();
	char *rest = NULL;

	for (char *line = strtok_r(text, "\n", &rest); line != NULL;
	     line = strtok_r(NULL, "\n", &rest)) {
		json_error_t error;
		json_t *row = json_loads(line, 0, &error);

		if (row == NULL)
			fail_msg("not JSON (%s): %s", error.text, line);
		json_array_append_new(rows, row);
	}
	return rows;
}

int harness_dinst_argv(struct harness *h, json_t **rows, const char *const *arguments)
{
	const char *argv[ARGUMENTS_MAX] = {harness_path("dinst"), "--json"};
	struct capture out = {0}, err = {0};
	int out_pipe[2], err_pipe[2], status;
	size_t count = 2;
	pid_t pid;

	while (*arguments != NULL && count < ARGUMENTS_MAX - 1)
		argv[count++] = *arguments++;
	if (pipe2(out_pipe, O_CLOEXEC) != 0 || pipe2(err_pipe, O_CLOEXEC) != 0)
		fail_msg("pipe: %s", strerror(errno));
	h->daemon_used = true;
	pid = spawn_dinst(h, argv, out_pipe[1], err_pipe[1]);
	if (pid < 0)
		fail_msg("fork: %s", strerror(errno));
	close(out_pipe[1]);
	close(err_pipe[1]);
	out.fd = out_pipe[0];
	err.fd = err_pipe[0];
	status = collect(pid, &out, &err);
	close(out.fd);
	close(err.fd);
	free(h->messages);
	h->messages = err.text != NULL ? err.text : strdup("");
	if (status == 127)
		fail_msg("cannot run %s", argv[0]);
	if (rows != NULL)
		*rows = out.text != NULL ? parse_lines(out.text) : json_array();
	free(out.text);
	return status;
}

static const json_t *find_key(const json_t *rows, const char *key)
{
	size_t i;
	json_t *row;

	json_array_foreach(rows, i, row)
	{
		const json_t *value = json_object_get(row, key);

		if (value != NULL && !json_is_null(value))
			return value;
	}
	fail_msg("no row has a \"%s\"", key);
	return NULL;
}

int64_t harness_integer(const json_t *rows, const char *key)
{
	const json_t *value = find_key(rows, key);

	if (!json_is_number(value))
		fail_msg("\"%s\" is not a number", key);
	return json_is_integer(value) ? (int64_t)json_integer_value(value)
				      : (int64_t)json_number_value(value);
}

const char *harness_string(const json_t *rows, const char *key)
{
	const json_t *value = find_key(rows, key);

	if (!json_is_string(value))
		fail_msg("\"%s\" is not a string", key);
	return json_string_value(value);
}

uint64_t harness_setting(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

const char *harness_number(int64_t value)
{
	static char text[4][24];
	static unsigned next;
	char *out = text[next++ % 4];

	snprintf(out, sizeof(text[0]), "%lld", (long long)value);
	return out;
}

bool harness_set(const char *directory, const char *name, const char *value)
{
	char path[256];
	FILE *file;
	bool done;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "we");
	if (!file)
		return false;
	done = fputs(value, file) >= 0;
	return !fclose(file) && done;
}

bool harness_join(pid_t pid, const char *directory)
{
	return harness_set(directory, "cgroup.procs", harness_number(pid));
}

bool harness_confine(pid_t pid, enum harness_limit limit, const char *value, char *directory,
		     size_t size)
{
	/* Of version 1 and 2; the kernel's period is 100 ms in both. */
	static const char *const limits[][2] = {
		[HARNESS_LIMIT_MEMORY] = {"memory.limit_in_bytes", "memory.max"},
		[HARNESS_LIMIT_CPU] = {"cpu.cfs_quota_us", "cpu.max"},
	};
	static const char *const roots[][2] = {
		[HARNESS_LIMIT_MEMORY] = {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"},
		[HARNESS_LIMIT_CPU] = {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup"},
	};
	bool done = false;

	for (int i = 0; i < 2 && !done; i++) {
		snprintf(directory, size, "%s/dinst-test-%d", roots[limit][i], (int)pid);
		if (mkdir(directory, 0755))
			continue;
		done = harness_set(directory, limits[limit][i], value) &&
		       harness_join(pid, directory);
		if (!done)
			rmdir(directory);
	}
	return done;
}
