/* SPDX-License-Identifier: MIT */
/*
 * rude.c - clients of a daemon that behave badly, and one that does not.
 *
 *   rude bad SOCKET SECONDS SEED SESSION TARGET
 *       many at a time, of all kinds below, against the session and the program of that
 *       name (attached and detached again and again). No process is chosen by a number,
 *       and what is sent in damaged form neither removes nor detaches: a flipped bit
 *       must not be the reason why somebody else's session ends.
 *   rude good SOCKET SECONDS SESSION MILLISECONDS
 *       asks for values, one connection, one request at a time, and fails if an answer
 *       is missing, wrong, or later than that.
 *
 * Ends with a line that says what was done, and with status 0 unless the daemon hung
 * up on somebody who had given no reason.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS = 40, ROOM = 64 * 1024, HUGE_SIZE = 3 << 20, FLOOD = 400, PINGS = 200 };

enum kind { FLIP, SLOW, SILENT, HUGE_LINE, VANISH, PIPELINE, HALF, KINDS };

static const char *const kind_names[KINDS] = {"flipped", "slow",      "silent", "huge",
					      "vanish",	 "pipelined", "half"};

struct client {
	int fd; /* -1: none */
	enum kind kind;
	char *text;
	size_t size, at;
	uint64_t next_ms, end_ms; /* when it sends again; when it goes */
	unsigned answers;
	bool refused; /* by a daemon that has as many clients as it takes: one answer, and it hangs up */
};

static const char *socket_path, *session, *target;
static uint64_t state;
static unsigned counts[KINDS], floods;

static uint64_t draw(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static size_t below(size_t limit)
{
	return limit ? (size_t)(draw() % limit) : 0;
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int connect_to(int flags)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", socket_path);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* ---------------------------------------------------------------- what is said */

/* Appends a request; in the form, @ stands for the session and # for the program. */
static size_t add(char *to, size_t at, const char *form)
{
	static unsigned id;
	char line[600];
	size_t used;

	used = (size_t)snprintf(line, sizeof(line), "{\"jsonrpc\":\"2.0\",\"id\":%u,\"method\":\"",
				++id);
	for (; *form && used + 100 < sizeof(line); form++) {
		if (*form == '@' || *form == '#')
			used += (size_t)snprintf(line + used, sizeof(line) - used, "%.80s",
						 *form == '@' ? session : target);
		else
			line[used++] = *form;
	}
	if (at + used > ROOM)
		return at;
	memcpy(to + at, line, used);
	return at + used;
}

/* A valid request that changes nothing for good. */
static size_t add_harmless(char *to, size_t at)
{
	static const char *const forms[] = {
		"ping\"}\n",
		"sessions\",\"params\":{}}\n",
		"status\",\"params\":{\"session\":\"@\"}}\n",
		"read\",\"params\":{\"session\":\"@\",\"ids\":[]}}\n",
		"read\",\"params\":{\"session\":\"@\",\"ids\":[1,2],\"verbose\":true}}\n",
		"funcs\",\"params\":{\"session\":\"@\",\"pattern\":\"*re*\"}}\n",
		"modules\",\"params\":{\"session\":\"@\"}}\n",
		"points\",\"params\":{\"session\":\"@\",\"pattern\":\"answer_request\",\"verbose\":true}}\n",
		"points\",\"params\":{\"session\":\"@\",\"summary\":true,\"module\":\"#\"}}\n",
		"cfg\",\"params\":{\"session\":\"@\",\"pattern\":\"answer_request\",\"dot\":true}}\n",
		"complete\",\"params\":{\"session\":\"@\",\"prefix\":\"a\",\"max\":5}}\n",
		"metrics\",\"params\":{\"session\":\"@\"}}\n",
		"history\",\"params\":{\"session\":\"@\",\"ids\":[],\"since\":1}}\n",
		("insert\",\"params\":{\"session\":\"@\",\"metric\":\"calls\",\"focus\":"
		 "[\"/Code/#/answer_request\"],\"each\":false}}\n"),
		"load\",\"params\":{\"session\":\"@\",\"name\":\"x\",\"text\":\"metric \"}}\n",
		"read\",\"params\":{\"session\":\"@\",\"ids\":[9007199254740993,-1],\"ids\":[]}}\n",
		"bogus\",\"params\":{\"\\u0000\":[[[[[[]]]]]],\"a\":1e308,\"b\":-0.0}}\n",
	};

	return add(to, at, forms[below(sizeof(forms) / sizeof(forms[0]))]);
}

/* What begins something, from somebody who will not wait for its end. */
static size_t add_change(char *to, size_t at)
{
	static const char *const forms[] = {
		"attach\",\"params\":{\"target\":\"#\",\"name\":\"@\"}}\n",
		"insert\",\"params\":{\"session\":\"@\",\"metric\":\"calls\",\"focus\":"
		"[\"/Code/#\"],\"each\":true}}\n",
		"insert\",\"params\":{\"session\":\"@\",\"metric\":\"latency\",\"focus\":"
		"[\"/Code/#/answer_request\"],\"each\":false}}\n",
		"remove\",\"params\":{\"session\":\"@\",\"all\":true}}\n",
		"flush\",\"params\":{\"session\":\"@\"}}\n",
		"detach\",\"params\":{\"session\":\"@\"}}\n",
		"repair\",\"params\":{\"target\":\"#\"}}\n",
	};

	return add(to, at, forms[below(sizeof(forms) / sizeof(forms[0]))]);
}

static size_t damage(char *text, size_t size)
{
	static const char nasty[] = "\0\x01\x7f\x80\xc0\xff\"\\{}[],:0-e.\n";

	for (size_t times = below(6); times && size > 2; times--) {
		size_t at = below(size), length;

		switch (below(6)) {
		case 0:
			text[at] = nasty[below(sizeof(nasty) - 1)];
			break;
		case 1:
			text[at] ^= (char)(1 << below(8));
			break;
		case 2:
			text[at] = (char)draw();
			break;
		case 3:
			size = at + 1;
			break;
		default:
			length = below(size - at);
			if (size + length < ROOM) {
				memmove(text + at + length, text + at, size - at);
				size += length;
			}
			break;
		}
	}
	return size;
}

/* ------------------------------------------------------------------ bad clients */

static void begin(struct client *c)
{
	c->kind = (enum kind)below(KINDS);
	c->fd = connect_to(SOCK_NONBLOCK);
	if (c->fd < 0)
		return;
	counts[c->kind]++;
	c->at = c->size = 0;
	c->answers = 0;
	c->refused = false;
	c->next_ms = now_ms();
	c->end_ms = c->next_ms + 200 + below(3000);
	c->text = malloc(c->kind == HUGE_LINE ? HUGE_SIZE : ROOM);
	if (!c->text)
		abort();
	switch (c->kind) {
	case VANISH:
		c->size = add_change(c->text, 0);
		c->end_ms = c->next_ms + below(60);
		break;
	case PIPELINE:
		for (int i = 0; i < PINGS; i++)
			c->size = add(c->text, c->size, "ping\"}\n");
		c->end_ms += 30000;
		break;
	case HUGE_LINE:
		memset(c->text, "x[\"{\\ "[below(6)], HUGE_SIZE);
		c->size = HUGE_SIZE;
		break;
	default:
		for (size_t n = 1 + below(20); n; n--)
			c->size = add_harmless(c->text, c->size);
		if (c->kind == FLIP)
			c->size = damage(c->text, c->size);
		break;
	}
}

static void finish(struct client *c)
{
	close(c->fd);
	free(c->text);
	c->fd = -1;
}

/* Takes what came; true if the daemon hung up. */
static bool hear(struct client *c)
{
	static const char full[] = "as many clients as it takes";
	char text[16384];
	ssize_t n;

	while ((n = recv(c->fd, text, sizeof(text), MSG_DONTWAIT)) > 0) {
		for (ssize_t i = 0; i < n; i++)
			c->answers += text[i] == '\n';
		c->refused |= memmem(text, (size_t)n, full, sizeof(full) - 1) != NULL;
	}
	return n == 0;
}

static void speak(struct client *c)
{
	size_t most = c->kind == SLOW ? 1 : c->kind == FLIP ? 1 + below(300) : c->size;
	size_t length = c->size - c->at < most ? c->size - c->at : most;
	ssize_t n = send(c->fd, c->text + c->at, length, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n > 0)
		c->at += (size_t)n;
	/* one who never reads asks again and again */
	if (c->kind == SILENT && c->at == c->size)
		c->at = 0;
	c->next_ms = now_ms() + (c->kind == SLOW ? 1000 * below(2) : below(10));
	if (c->kind == HALF && c->at == c->size)
		shutdown(c->fd, SHUT_WR);
}

/* False if the daemon did what it must not do. */
static bool step(struct client *c)
{
	bool over = c->kind != SILENT && hear(c);

	if (c->kind == PIPELINE && (c->answers == PINGS || over || now_ms() > c->end_ms)) {
		/* None, or that it is refused: in a flood, it was turned away at the door. */
		if (c->answers != PINGS && !(over && c->answers <= c->refused)) {
			printf("FAILED: %u of %d answers to requests sent at once\n", c->answers,
			       PINGS);
			return false;
		}
		over = true;
	}
	if (!over && c->at < c->size && now_ms() >= c->next_ms)
		speak(c);
	if (over || now_ms() >= c->end_ms)
		finish(c);
	return true;
}

static void flood(void)
{
	static int fds[FLOOD];

	for (int i = 0; i < FLOOD; i++) {
		fds[i] = connect_to(SOCK_NONBLOCK);
		if (fds[i] >= 0 && i % 3 == 0)
			send(fds[i], "{\"jsonrpc\":", 11, MSG_NOSIGNAL | MSG_DONTWAIT);
	}
	for (int i = 0; i < FLOOD; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	floods++;
}

static int run_bad(uint64_t end_ms)
{
	struct client clients[CLIENTS];
	struct timespec pause = {0, 1000000};

	for (int i = 0; i < CLIENTS; i++)
		clients[i].fd = -1;
	while (now_ms() < end_ms) {
		/* beside floods nobody gets in: those who must are in already */
		if (below(1500) == 0)
			flood();
		for (int i = 0; i < CLIENTS; i++) {
			if (clients[i].fd < 0)
				begin(&clients[i]);
			else if (!step(&clients[i]))
				return 1;
		}
		nanosleep(&pause, NULL);
	}
	for (int i = 0; i < CLIENTS; i++)
		if (clients[i].fd >= 0)
			finish(&clients[i]);
	for (int i = 0; i < KINDS; i++)
		printf("%u %s, ", counts[i], kind_names[i]);
	printf("%u floods\n", floods);
	return 0;
}

/* ------------------------------------------------------------------ a good client */

/* One answer; false if none comes in time, or it is not to that id. */
static bool ask(int fd, const char *request, unsigned id, int milliseconds, uint64_t *took)
{
	static char text[1 << 20];
	struct pollfd p = {fd, POLLIN, 0};
	char expected[40];
	size_t used = 0;
	uint64_t began = now_ms();

	snprintf(expected, sizeof(expected), "\"id\":%u,\"result\":", id);
	if (send(fd, request, strlen(request), MSG_NOSIGNAL) != (ssize_t)strlen(request)) {
		printf("FAILED: cannot send: %s\n", strerror(errno));
		return false;
	}
	while (used + 1 < sizeof(text)) {
		int64_t left = milliseconds - (int64_t)(now_ms() - began);
		ssize_t n;
		char *end;

		if (left <= 0 || poll(&p, 1, (int)left) <= 0) {
			printf("FAILED: no answer in %d ms to %s", milliseconds, request);
			return false;
		}
		n = read(fd, text + used, sizeof(text) - 1 - used);
		if (n <= 0) {
			printf("FAILED: the daemon hung up on %s", request);
			return false;
		}
		used += (size_t)n;
		text[used] = '\0';
		/* events of the session come in between */
		while ((end = strchr(text, '\n'))) {
			bool event = !strstr(text, "\"id\":") || strstr(text, "\"id\":") > end;
			bool right = strstr(text, expected) && strstr(text, expected) < end;

			if (!event) {
				*took = now_ms() - began;
				if (!right)
					printf("FAILED: %.300s to %s", text, request);
				return right;
			}
			used -= (size_t)(end + 1 - text);
			memmove(text, end + 1, used + 1);
		}
	}
	printf("FAILED: the answer is too long\n");
	return false;
}

static int run_good(uint64_t end_ms, int milliseconds)
{
	static const char *const forms[] = {
		"{\"jsonrpc\":\"2.0\",\"id\":%u,\"method\":\"ping\"}\n",
		"{\"jsonrpc\":\"2.0\",\"id\":%u,\"method\":\"read\",\"params\":{\"session\":\"%s\",\"ids\":[]}}\n",
		"{\"jsonrpc\":\"2.0\",\"id\":%u,\"method\":\"sessions\"}\n",
		"{\"jsonrpc\":\"2.0\",\"id\":%u,\"method\":\"status\",\"params\":{\"session\":\"%s\"}}\n",
	};
	struct timespec pause = {0, 5000000};
	uint64_t took = 0, slowest = 0;
	unsigned answers = 0;
	char request[300];
	int fd = connect_to(0);

	if (fd < 0) {
		printf("FAILED: cannot connect: %s\n", strerror(errno));
		return 1;
	}
	printf("ready\n");
	fflush(stdout);
	while (now_ms() < end_ms) {
		snprintf(request, sizeof(request), forms[answers % 4], answers + 1, session);
		if (!ask(fd, request, answers + 1, milliseconds, &took))
			return 1;
		slowest = took > slowest ? took : slowest;
		answers++;
		nanosleep(&pause, NULL);
	}
	close(fd);
	printf("%u answers, the slowest after %" PRIu64 " ms\n", answers, slowest);
	return 0;
}

int main(int argc, char **argv)
{
	bool bad = argc == 7 && !strcmp(argv[1], "bad"),
	     good = argc == 6 && !strcmp(argv[1], "good");
	uint64_t end_ms;

	if (!bad && !good) {
		fputs("usage: rude bad SOCKET SECONDS SEED SESSION TARGET\n"
		      "       rude good SOCKET SECONDS SESSION MILLISECONDS\n",
		      stderr);
		return 2;
	}
	socket_path = argv[2];
	end_ms = now_ms() + strtoull(argv[3], NULL, 10) * 1000;
	alarm((unsigned)strtoul(argv[3], NULL, 10) + 120);
	if (good) {
		session = argv[4];
		return run_good(end_ms, atoi(argv[5]));
	}
	state = (strtoull(argv[4], NULL, 0) + 1) * UINT64_C(0x9e3779b97f4a7c15);
	session = argv[5];
	target = argv[6];
	return run_bad(end_ms);
}
