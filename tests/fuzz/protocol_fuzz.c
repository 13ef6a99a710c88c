/* SPDX-License-Identifier: MIT */
/*
 * protocol_fuzz.c - any bytes from clients and from mutators, through the daemon's
 * own reader, parser and dispatcher, with sessions that come and go.
 *
 * The input is lines. What a mutator says stands behind a byte 1: then its answers
 * are given to what the daemon asks, one after the other. There is no process: this
 * file stands in for daemon/server/mutator.c. A client's line that begins with a
 * byte 2 is from a second client; byte 3 makes the first one hang up.
 *
 * In the end the server is ended, and nothing may be left: no handle, no memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/server/server.h"
#include "tests/fuzz/fuzz.h"

/* What is logged is one line that no terminal obeys. */
static ssize_t fuzz_write(int fd, const char *line, size_t length)
{
	require(fd == STDERR_FILENO && length && line[length - 1] == '\n');
	for (size_t i = 0; i + 1 < length; i++)
		require((unsigned char)line[i] >= 0x20 && line[i] != 0x7f);
	return (ssize_t)length;
}

#define write(fd, text, size) fuzz_write(fd, text, size)
#include "daemon/server/log.c"
#undef write

/* ------------------------------------------------------- in the place of others */

/* A program that is held is let go on; here, none is meant. */
int kill(pid_t pid, int number)
{
	(void)pid;
	(void)number;
	return 0;
}

struct call {
	struct call *next;
	call_done done;
	void *arg;
	struct request *about;
};

struct mutator {
	struct mutator *next;
	const struct mutator_events *events;
	void *owner;
	struct call *first, **last;
	bool released, dead;
	void (*gone)(void *arg);
	void *gone_arg;
};

static struct mutator *mutators;
static const char *answers; /* lines, what is left of them */

struct mutator *mutator_start(struct server *s, const struct mutator_events *events, void *owner,
			      struct dinst_error *e)
{
	struct mutator *m = calloc(1, sizeof(*m));

	(void)s;
	if (!m)
		dinst_fail(e, DINST_NO_MEMORY, "no memory");
	else
		*m = (struct mutator){.next = mutators, .events = events, .owner = owner};
	if (m) {
		m->last = &m->first;
		mutators = m;
	}
	return m;
}

static void answer_call(struct mutator *m, const struct reply *reply)
{
	struct call *c = m->first;

	m->first = c->next;
	if (!m->first)
		m->last = &m->first;
	c->done(c->arg, reply);
	free(c);
}

static void fail_calls(struct mutator *m, const char *why)
{
	struct reply reply = {{NULL, 0}, {NULL, 0}, {0, ""}};

	dinst_fail(&reply.failure, DINST_DAEMON, "%s", why);
	while (m->first)
		answer_call(m, &reply);
}

void mutator_call(struct mutator *m, const char *method, json_t *params, struct request *about,
		  call_done done, void *arg)
{
	struct call *c = calloc(1, sizeof(*c));
	char *line = rpc_make_request(1, method, params);
	struct reply reply = {{NULL, 0}, {NULL, 0}, {0, ""}};

	require(c && line);
	free(line);
	if (m->dead) {
		free(c);
		dinst_fail(&reply.failure, DINST_DAEMON, "it has ended");
		done(arg, &reply);
		return;
	}
	*c = (struct call){.done = done, .arg = arg, .about = about};
	*m->last = c;
	m->last = &c->next;
}

const char *mutator_busy(const struct mutator *m)
{
	return m->first ? "work" : NULL;
}

pid_t mutator_pid(const struct mutator *m)
{
	(void)m;
	return 4711;
}

struct maker mutator_identity(const struct mutator *m)
{
	return (struct maker){mutator_pid(m), 1};
}

/* All of its calls are new ones: none is on its way. */
void mutator_hand_over(struct mutator *m, const struct mutator_events *events, void *owner,
		       const char *why)
{
	m->events = events;
	m->owner = owner;
	fail_calls(m, why);
}

/* As if each of its calls were on its way. */
void mutator_forget_gone(struct mutator *m)
{
	(void)m;
}

void mutator_when_gone(struct mutator *m, void (*gone)(void *arg), void *arg)
{
	require(!m->gone && !m->released);
	m->gone = gone;
	m->gone_arg = arg;
}

/* True if somebody has waited for its end, which is told once. */
static bool tell_gone(struct mutator *m)
{
	void (*gone)(void *arg) = m->gone;

	m->gone = NULL;
	if (gone)
		gone(m->gone_arg);
	return gone;
}

void mutator_release(struct mutator *m, const char *why)
{
	if (m->released)
		return;
	m->released = m->dead = true;
	fail_calls(m, why);
}

void mutators_end(struct server *s, const char *why)
{
	(void)s;
	for (struct mutator *m = mutators; m; m = m->next) {
		mutator_release(m, why);
		tell_gone(m);
	}
}

static void free_mutators(void)
{
	while (mutators) {
		struct mutator *m = mutators;

		require(m->dead && !m->first && !m->gone);
		mutators = m->next;
		free(m);
	}
}

/* One line of a mutator: an answer, a notification, or its death ("!"). */
static void mutator_says(struct mutator *m, const char *line, size_t length)
{
	struct reply reply = {{NULL, 0}, {NULL, 0}, {0, ""}};
	struct rpc_message message;
	json_t *method, *params;

	if (rpc_scan(line, length, &message, &reply.failure) ||
	    (!message.method.text && !m->first)) {
		m->dead = true;
		fail_calls(m, "it died");
		if (!m->released)
			m->events->died(m->owner, "it died");
		return;
	}
	if (message.method.text) {
		method = rpc_load(message.method.text, message.method.length, &reply.failure);
		params = message.params.text ? rpc_load(message.params.text, message.params.length,
							&reply.failure)
					     : NULL;
		if (json_string_value(method) && !m->released)
			m->events->notified(m->owner, json_string_value(method), params);
		json_decref(method);
		json_decref(params);
		return;
	}
	reply.result = message.result;
	reply.error = message.error;
	if (!reply.result.text == !reply.error.text)
		dinst_fail(&reply.failure, DINST_DAEMON, "neither or both");
	if (reply.failure.code)
		reply.result.text = reply.error.text = NULL;
	answer_call(m, &reply);
}

/* Gives the next answer to whoever waits for one, or ends one that has been released. */
static bool answer_one(void)
{
	size_t length;
	const char *line = answers;

	for (struct mutator *m = mutators; m; m = m->next) {
		if (m->dead && tell_gone(m))
			return true;
		if (!m->first || m->dead)
			continue;
		if (!line || !*line) {
			mutator_says(m, "!", 1);
			return true;
		}
		length = strcspn(line, "\n");
		answers = line + length + (line[length] == '\n');
		mutator_says(m, line, length);
		return true;
	}
	return false;
}

/* ------------------------------------------------------------------ the server */

static struct server server;
static char directory[64];

static void remove_directory(void)
{
	char path[sizeof(directory) + 20];

	snprintf(path, sizeof(path), "%s/dinstd.lock", directory);
	unlink(path);
	rmdir(directory);
}

static int connect_client(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/dinstd.sock", directory);
	require(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	return fd;
}

static void turn(int fd)
{
	char drop[4096];

	for (int i = 0; i < 3; i++) {
		uv_run(&server.loop, UV_RUN_NOWAIT);
		while (fd >= 0 && read(fd, drop, sizeof(drop)) > 0)
			;
	}
}

static void start_server(void)
{
	struct dinst_error e = {0, ""};

	memset(&server, 0, sizeof(server));
	server.lock_fd = -1;
	require(socket_place_find(&server.place, directory, &e) == 0);
	require(server_init(&server, &e) == 0);
	require(server_listen(&server, false, &e) == 0);
}

static void end_server(void)
{
	server_end(&server);
	alarm(0);
	uv_close((uv_handle_t *)&server.last, NULL);
	while (uv_run(&server.loop, UV_RUN_NOWAIT))
		;
	require(!server.sessions && !server.peers && uv_loop_close(&server.loop) == 0);
	free_mutators();
	close(server.lock_fd);
	socket_place_close(&server.place);
}

/* fear L3: no bytes of clients and mutators make the daemon crash, hang, or lose memory */
/* fear L1: a mutator that an enemy has taken over can make the daemon answer errors, no more */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	char *text = malloc(size + 1), *said = text, *end;
	int first, second;

	if (!directory[0]) {
		signal(SIGPIPE, SIG_IGN);
		snprintf(directory, sizeof(directory), "/tmp/dinst-fuzz-XXXXXX");
		require(mkdtemp(directory));
		atexit(remove_directory);
	}
	require(text);
	memcpy(text, bytes, size);
	text[size] = '\0';
	end = memchr(text, 1, size);
	answers = end ? end + 1 : NULL;
	size = end ? (size_t)(end - text) : size;
	start_server();
	first = connect_client();
	second = connect_client();
	while (size && !server.ending) {
		char *newline = memchr(said, '\n', size);
		size_t length = newline ? (size_t)(newline - said) + 1 : size;
		int to = *said == 2 ? second : first;

		if (*said == 3 && first >= 0) {
			close(first);
			first = -1;
		}
		if (to >= 0)
			send(to, said + (*said == 2), length - (*said == 2), MSG_NOSIGNAL);
		turn(first);
		if (answer_one())
			turn(second);
		said += length;
		size -= length;
	}
	for (int i = 0; i < 64 && answer_one(); i++)
		turn(first);
	turn(second);
	if (first >= 0)
		close(first);
	close(second);
	for (struct mutator *m = mutators; m; m = m->next)
		if (!m->released && !m->dead)
			mutator_says(m, "!", 1);
	end_server();
	free(text);
	return 0;
}

FUZZ_MAIN(protocol, 700);
