/* SPDX-License-Identifier: MIT */
/*
 * daemon_fixture.h - a daemon of its own for each test program, with the fake
 * mutator, in a directory of its own; running dinst, and speaking to the
 * socket by hand.
 *
 * Calling sequence: fixture_setup() and fixture_teardown() as group fixtures.
 * The teardown stops the daemon and fails if it or a mutator is still there.
 */
#ifndef DINST_TESTS_DAEMON_FIXTURE_H
#define DINST_TESTS_DAEMON_FIXTURE_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/words.h"

enum { FIXTURE_SECONDS = 800, ANSWER_MS = 120000, OUTPUT_MAX = 1 << 16 };

static char fixture_directory[] = "/tmp/dinst-daemon-XXXXXX";
static char fixture_socket[64], fixture_log[64];
static char fixture_dinst[512], fixture_dinstd[512], fixture_fake[512];
static pid_t fixture_target;

struct output {
	int status;
	char out[OUTPUT_MAX], err[OUTPUT_MAX];
};

static inline void nap_ms(long ms)
{
	struct timespec t = {ms / 1000, (ms % 1000) * 1000000};

	nanosleep(&t, NULL);
}

static inline int has_name(pid_t pid, const char *name)
{
	char path[40], line[32] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	f = fopen(path, "r");
	if (f && !fgets(line, sizeof(line), f))
		line[0] = '\0';
	if (f)
		fclose(f);
	return strcspn(line, "\n") == strlen(name) && strncmp(line, name, strlen(name)) == 0;
}

/* A process with nothing to do, that ends with us; its name has 15 letters at most. */
static inline pid_t start_target(const char *name)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, name);
		for (;;)
			pause();
	}
	/* It has its name. */
	for (int ms = 0; ms < ANSWER_MS && !has_name(pid, name); ms += 5)
		nap_ms(5);
	return pid;
}

/* Nothing else has ended it before. */
static inline void end_target(pid_t pid)
{
	int status;

	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static inline void read_all(int fd, char *to)
{
	size_t used = 0;
	ssize_t n;

	lseek(fd, 0, SEEK_SET);
	while (used < OUTPUT_MAX - 1 && (n = read(fd, to + used, OUTPUT_MAX - 1 - used)) > 0)
		used += (size_t)n;
	to[used] = '\0';
}

static inline int scratch_file(void)
{
	char path[100];
	int fd;

	snprintf(path, sizeof(path), "%s/scratch-XXXXXX", fixture_directory);
	fd = mkostemp(path, O_CLOEXEC);
	unlink(path);
	return fd;
}

/* Runs a program with these words, standard input from /dev/null. */
static inline void run_words(const char *program, char **words, struct output *o)
{
	int out = scratch_file(), err = scratch_file(), status;
	char *argv[64];
	pid_t pid;

	argv[0] = (char *)program;
	for (int i = 0; i < 63; i++)
		if (!(argv[i + 1] = words[i]))
			break;
	pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_RDONLY);

		alarm(200);
		dup2(null, 0);
		dup2(out, 1);
		dup2(err, 2);
		execv(program, argv);
		_exit(126);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	o->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	read_all(out, o->out);
	read_all(err, o->err);
	close(out);
	close(err);
}

/* Runs dinst with a command line that is cut as a script's lines are. */
static inline void run_dinst(struct output *o, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static inline void run_dinst(struct output *o, const char *format, ...)
{
	struct dinst_error e = {0, ""};
	char line[1024];
	struct words w;
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	assert_int_equal(words_split(line, &w, &e), 0);
	run_words(fixture_dinst, w.word, o);
	words_release(&w);
}

/* Until something is inserted, by a command in the background. */
static inline void wait_active(struct output *o)
{
	for (int ms = 0; ms < ANSWER_MS; ms += 20) {
		run_dinst(o, "ls --json");
		if (strstr(o->out, "\"active\":") && !strstr(o->out, "\"active\":0,"))
			return;
		nap_ms(20);
	}
	fail_msg("nothing was inserted: %.300s", o->out);
}

/* ------------------------------------------------------------ by hand */

static inline int raw_connect(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", fixture_socket);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static inline void raw_send(int fd, const void *bytes, size_t length)
{
	const char *p = bytes;

	while (length > 0) {
		ssize_t n = send(fd, p, length, MSG_NOSIGNAL);

		if (n <= 0)
			return; /* the tests see it by what comes back */
		p += n;
		length -= (size_t)n;
	}
}

static inline void raw_say(int fd, const char *text)
{
	raw_send(fd, text, strlen(text));
}

/* The next line as JSON; NULL at the end of the connection or after `ms`. */
static inline json_t *raw_hear(int fd, int ms)
{
	struct pollfd p = {fd, POLLIN, 0};
	size_t size = 1 << 16, used = 0;
	char *text = malloc(size), *end = NULL;
	json_t *value = NULL;
	ssize_t n;

	/* looks first, so that nothing behind the newline is taken */
	while (!end && poll(&p, 1, ms) > 0 &&
	       (n = recv(fd, text + used, size - used, MSG_PEEK)) > 0) {
		end = memchr(text + used, '\n', (size_t)n);
		if (end)
			n = end + 1 - (text + used);
		if (read(fd, text + used, (size_t)n) != n)
			break;
		used += (size_t)n;
		if (!end && used == size)
			text = realloc(text, size *= 2);
	}
	/* realloc() moves only lines that have not ended */
	if (end)
		value = json_loadb(text, used - 1, JSON_DECODE_ANY, NULL);
	free(text);
	return value;
}

/* The JSON-RPC error code of the next answer, 0 for a result, 1 for none. */
static inline int raw_code(int fd, int ms)
{
	json_t *answer = raw_hear(fd, ms);
	json_t *error = json_object_get(answer, "error");
	int code = !answer ? 1
		   : error ? (int)json_integer_value(json_object_get(error, "code"))
			   : 0;

	json_decref(answer);
	return code;
}

/* ---------------------------------------------------------- the fixture */

static inline void start_daemon_by_client(void)
{
	struct output *o = malloc(sizeof(*o));

	/* `repair` starts a daemon and leaves no session */
	run_dinst(o, "repair %d", (int)getpid());
	assert_int_equal(o->status, 0);
	free(o);
}

/* Pid in the lock file, 0 if there is none. */
static inline pid_t daemon_pid(void)
{
	char path[100];
	int pid = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/d.lock", fixture_directory);
	f = fopen(path, "r");
	if (f) {
		if (fscanf(f, "%d", &pid) != 1)
			pid = 0;
		fclose(f);
	}
	return pid;
}

/* The daemon's newest child: one of a session that has ended may still be there for a moment. */
static inline pid_t mutator_pid(void)
{
	char path[80];
	pid_t daemon = daemon_pid(), last = 0, pid;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)daemon, (int)daemon);
	f = fopen(path, "r");
	if (f) {
		while (fscanf(f, "%d", &pid) == 1)
			last = pid;
		fclose(f);
	}
	return last;
}

/* Waits until a process that is not our child is gone; true if it is. */
static inline int wait_gone(pid_t pid, int ms)
{
	char path[40], state[64] = "";
	FILE *f;

	for (; ms > 0; ms -= 10) {
		snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
		f = fopen(path, "r");
		if (!f)
			return 1;
		/* an orphan may stay a zombie where pid 1 does not reap */
		if (fscanf(f, "%*d (%*[^)]) %63s", state) == 1 && state[0] == 'Z') {
			fclose(f);
			return 1;
		}
		fclose(f);
		nap_ms(10);
	}
	return 0;
}

static inline int fixture_setup(void **state)
{
	const char *build = getenv("DINST_BUILD");
	char here[256];

	(void)state;
	alarm(FIXTURE_SECONDS);
	if (!build)
		build = "build";
	if (!getcwd(here, sizeof(here)))
		return -1;
	if (build[0] == '/')
		here[0] = '\0';
	snprintf(fixture_dinst, sizeof(fixture_dinst), "%.200s/%.200s/dinst", here, build);
	snprintf(fixture_dinstd, sizeof(fixture_dinstd), "%.200s/%.200s/dinstd", here, build);
	snprintf(fixture_fake, sizeof(fixture_fake),
		 "%.200s/%.200s/tests/live/targets/fake-mutator", here, build);
	if (!mkdtemp(fixture_directory))
		return -1;
	snprintf(fixture_socket, sizeof(fixture_socket), "%s/d.sock", fixture_directory);
	snprintf(fixture_log, sizeof(fixture_log), "%s/requests", fixture_directory);
	setenv("DINST_SOCKET", fixture_socket, 1);
	setenv("DINST_MUTATOR", fixture_fake, 1);
	setenv("FAKE_MUTATOR_LOG", fixture_log, 1);
	fixture_target = start_target("fixture-target");
	return 0;
}

/* What a sanitizer or an assertion said on the daemon's behalf. */
static inline int log_is_clean(void)
{
	char command[200];

	snprintf(command, sizeof(command),
		 "grep -E 'Sanitizer|runtime error|Assertion' -A 20 %s/d.log >&2",
		 fixture_directory);
	return access(fixture_directory, F_OK) != 0 || system(command) != 0;
}

static inline int fixture_teardown(void **state)
{
	struct output *o = malloc(sizeof(*o));
	char command[100];
	pid_t daemon;
	int bad = 0;

	(void)state;
	daemon = daemon_pid();
	run_dinst(o, "stop -q");
	if (daemon && !wait_gone(daemon, ANSWER_MS)) {
		print_error("dinstd %d is still there\n", (int)daemon);
		kill(daemon, SIGKILL);
		bad = 1;
	}
	bad |= !log_is_clean();
	free(o);
	end_target(fixture_target);
	snprintf(command, sizeof(command), "rm -rf %s", fixture_directory);
	return system(command) || bad ? -1 : 0;
}

/* Returns 1 once the daemon's log has the text. */
static inline int log_says(const char *text)
{
	char command[300];

	snprintf(command, sizeof(command), "grep -qF '%s' %s/d.log", text, fixture_directory);
	for (int ms = 0; ms < ANSWER_MS; ms += 50) {
		if (system(command) == 0)
			return 1;
		nap_ms(50);
	}
	return 0;
}

/* ----------------------------------------------------- whole requests */

#define PING "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n"

static inline void request(char *line, size_t size, const char *method, const char *params)
{
	snprintf(line, size, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\",\"params\":%s}\n",
		 method, params);
}

/* One request on a connection of its own; the answer, NULL if there was none. */
static inline json_t *ask(const char *method, const char *params)
{
	int fd = raw_connect();
	static char line[1 << 18];
	json_t *answer;

	request(line, sizeof(line), method, params);
	raw_say(fd, line);
	do {
		answer = raw_hear(fd, ANSWER_MS);
	} while (answer && !json_object_get(answer, "id") && (json_decref(answer), 1));
	close(fd);
	return answer;
}

/* The word of the error, "" for a result, "none" for no answer. */
static inline void ask_word(const char *method, const char *params, char *word, size_t size)
{
	json_t *answer = ask(method, params);
	json_t *error = json_object_get(answer, "error");

	snprintf(word, size, "%s",
		 !answer  ? "none"
		 : !error ? ""
			  : json_string_value(
				    json_object_get(json_object_get(error, "data"), "code")));
	json_decref(answer);
}

static inline void expect_word(const char *method, const char *params, const char *expected)
{
	char word[64];

	ask_word(method, params, word, sizeof(word));
	if (strcmp(word, expected) != 0)
		fail_msg("%s %s: '%s' instead of '%s'", method, params, word, expected);
}

static inline void still_well(void)
{
	int fd = raw_connect();

	raw_say(fd, PING);
	assert_int_equal(raw_code(fd, ANSWER_MS), 0);
	close(fd);
	expect_word("funcs", "{\"session\":\"base\"}", "");
}

/* fixture_setup() and a session "base" */
static inline int fixture_setup_base(void **state)
{
	struct output *o;
	int status;

	if (fixture_setup(state) != 0)
		return -1;
	o = malloc(sizeof(*o));
	run_dinst(o, "attach %d -n base", (int)fixture_target);
	status = o->status;
	if (status)
		print_error("%s\n", o->err);
	free(o);
	return status;
}

#endif
