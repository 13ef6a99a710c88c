/* SPDX-License-Identifier: MIT */
/*
 * request_fuzz.c - any bytes as requests to a mutator that is attached to a running
 * program: each is answered or refused, and afterwards the program's code is its own.
 *
 * The input is lines. Those that would choose a process are left out: which one
 * is ours to say. The program is a child that does nothing but call functions.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mutator/serve.h"
#include "tests/fuzz/fuzz.h"

static pid_t target;
static FILE *orders, *words; /* to it and from it */

static void end_target(void)
{
	if (target > 0) {
		kill(target, SIGKILL);
		waitpid(target, NULL, 0);
	}
	target = 0;
}

/* It calls all of its functions, and finds all results right. */
static void check_target(void)
{
	char line[100];

	fputs("go 3\n", orders);
	fflush(orders);
	require(fgets(line, sizeof(line), words) && !strcmp(line, "done\n"));
}

static void start_target(void)
{
	const char *build = getenv("DINST_BUILD");
	char path[4096], line[100];
	int in[2], out[2];

	snprintf(path, sizeof(path), "%s/tests/live/targets/calls", build ? build : "build");
	require(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
	target = fork();
	if (target == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(in[0], 0);
		dup2(out[1], 1);
		execl(path, path, "2", (char *)NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	orders = fdopen(in[1], "w");
	words = fdopen(out[0], "r");
	require(target > 0 && orders && words);
	require(fgets(line, sizeof(line), words) && !strcmp(line, "ready\n"));
	signal(SIGPIPE, SIG_IGN);
}

/* A request that would name a process, or hold one. */
static bool is_ours_to_say(const char *line, size_t length)
{
	json_t *request = json_loadb(line, length, JSON_DECODE_ANY, NULL);
	const char *method = json_string_value(json_object_get(request, "method"));
	bool yes = method && (!strcmp(method, "attach") || !strcmp(method, "repair") ||
			      !strcmp(method, "catch_exec"));

	json_decref(request);
	return yes;
}

struct reader {
	int fd;
	size_t lines;
};

/* The daemon's part: reads everything, and every line is JSON. */
static void *read_answers(void *arg)
{
	struct reader *r = arg;
	size_t room = 1 << 16, used = 0;
	char *text = malloc(room), *end;
	ssize_t n;

	while (text && (n = read(r->fd, text + used, room - used)) > 0) {
		used += (size_t)n;
		while ((end = memchr(text, '\n', used))) {
			json_t *answer = json_loadb(text, (size_t)(end - text), 0, NULL);

			require(json_is_object(answer));
			json_decref(answer);
			r->lines++;
			used -= (size_t)(end + 1 - text);
			memmove(text, end + 1, used);
		}
		if (used == room)
			text = realloc(text, room *= 2);
	}
	free(text);
	return NULL;
}

static void send_all(int fd, const char *text, size_t length)
{
	while (length) {
		ssize_t n = send(fd, text, length, MSG_NOSIGNAL);

		if (n <= 0)
			return;
		text += n;
		length -= (size_t)n;
	}
}

struct writer {
	int fd;
	const char *text;
	size_t size;
};

static void *write_requests(void *arg)
{
	static const char detach[] =
		"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"detach\",\"params\":{}}\n";
	const struct writer *w = arg;
	const char *line = w->text, *end = w->text + w->size;
	char attach[200];

	snprintf(
		attach, sizeof(attach),
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"attach\",\"params\":{\"pid\":%d,\"session\":"
		"\"fuzz\"}}\n",
		(int)target);
	send_all(w->fd, attach, strlen(attach));
	while (line < end) {
		const char *newline = memchr(line, '\n', (size_t)(end - line));
		size_t length = newline ? (size_t)(newline - line) : (size_t)(end - line);

		if (!is_ours_to_say(line, length)) {
			send_all(w->fd, line, length);
			send_all(w->fd, "\n", 1);
		}
		line += length + 1;
	}
	send_all(w->fd, detach, sizeof(detach) - 1);
	shutdown(w->fd, SHUT_WR);
	return NULL;
}

/* fear L3: no request, whatever is in it, harms a mutator or the program it is attached to */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct reader reader = {0, 0};
	struct writer writer = {0, (const char *)bytes, size};
	pthread_t reading, writing;
	int pair[2];

	if (!target) {
		start_target();
		atexit(end_target);
	}
	require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	reader.fd = writer.fd = pair[0];
	require(pthread_create(&reading, NULL, read_answers, &reader) == 0);
	require(pthread_create(&writing, NULL, write_requests, &writer) == 0);
	serve(pair[1]);
	pthread_join(writing, NULL);
	close(pair[1]);
	pthread_join(reading, NULL);
	close(pair[0]);
	/* attach and detach were answered at least, and the program runs on */
	require(reader.lines >= 2);
	check_target();
	return 0;
}

FUZZ_MAIN(request, 60);
