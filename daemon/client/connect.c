/* SPDX-License-Identifier: MIT */
/*
 * connect.c - the client's end of the socket.
 *
 * Owns connecting, the check of who serves, and request and answer. Never
 * prints, never waits without watching for an interrupt.
 */
#include "daemon/client/connect.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "inject/proc.h"

enum {
	OPEN_TRIES_MS = 10000, /* a daemon that is leaving may still hold the lock */
	OPEN_PAUSE_MS = 20,
	TAKEN_S =
		10, /* in which a place among those who wait for a connection becomes free, or not */
	GREET_S = 5, /* a daemon answers `ping` at once, whatever it does */
	/* ... once it is run: on a machine with far too much to do (a control group or a session
	 * of its own among busy ones, Linux 6.18) one waited 23 s for a processor */
	STARVED_S = 60,
	LOOK_MS = 1000, /* how often a wait looks up */
};

/* Rows of a long listing come in one line. */
#define LINK_LINE (RPC_MUTATOR_LINE + 4096)

atomic_int link_interrupted;

void link_init(struct link *l)
{
	memset(l, 0, sizeof(*l));
	l->fd = -1;
	l->interrupted = &link_interrupted;
	lines_init(&l->lines, LINK_LINE);
}

void link_close(struct link *l)
{
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
	lines_release(&l->lines);
	lines_init(&l->lines, LINK_LINE);
}

/* A socket that somebody else serves would learn what we instrument, and lie about it. */
static int check_server(struct link *l, const struct socket_place *place, struct dinst_error *e)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(l->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
		return dinst_fail_errno(e, DINST_DAEMON, errno, "cannot tell who serves %s",
					place->path);
	l->daemon_pid = peer.pid;
	if (peer.uid == geteuid() || peer.uid == 0 || (geteuid() == 0 && place->chosen))
		return 0;
	return dinst_fail(e, DINST_NOT_PERMITTED, "%s is served by uid %u and you are uid %u",
			  place->path, (unsigned)peer.uid, (unsigned)geteuid());
}

/*
 * connect(2), errno is EAGAIN where those who wait for one that takes no connections (it is stopped) are
 * as many as may (unix(7)): without a limit it would last as long as that.
 */
static bool connect_in_time(const struct link *l, int fd, const struct sockaddr_un *address)
{
	const struct timeval limit = {TAKEN_S, 0}, none = {0, 0};
	int failed;

	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) != 0)
		return false;
	/* with a limit it is not begun anew by itself, where dinst was stopped and goes on (signal(7)) */
	do
		failed = connect(fd, (const struct sockaddr *)address, sizeof(*address));
	while (failed && errno == EINTR && !*l->interrupted);
	return !failed && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof(none)) == 0;
}

/* 0, DINST_DAEMON if nobody serves, or another error. */
static int try_connect(struct link *l, struct socket_place *place, struct dinst_error *e)
{
	struct sockaddr_un address;
	int fd, saved;

	if (place->fd < 0 && socket_place_open(place, false, e) != 0)
		return e->code;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return dinst_fail_errno(e, DINST_FAILED, errno, "cannot make a socket");
	socket_place_address(place, &address);
	if (!connect_in_time(l, fd, &address)) {
		saved = errno;
		close(fd);
		if (saved == EAGAIN)
			return dinst_fail(
				e, DINST_BUSY,
				"what listens on %s does not answer, and too many wait for "
				"it: stop it or set DINST_SOCKET",
				place->path);
		if (saved == ENOENT || saved == ECONNREFUSED)
			return dinst_fail(e, DINST_DAEMON, "no daemon runs at %s", place->path);
		return dinst_fail_errno(e, DINST_FAILED, saved, "cannot connect to %s",
					place->path);
	}
	l->fd = fd;
	return check_server(l, place, e);
}

/* The first call tells a daemon from something else, and from one that is just leaving. */
static int greet(struct link *l, struct dinst_error *e)
{
	json_t *answer = NULL;
	const char *version;
	int err;

	l->patience = GREET_S;
	err = link_call(l, "ping", NULL, NULL, NULL, &answer, e);
	l->patience = 0;
	if (err)
		return err;
	version = json_string_value(json_object_get(answer, "version"));
	snprintf(l->version, sizeof(l->version), "%s", version ? version : "unknown");
	/* It goes to a terminal, and the daemon may be somebody else's. */
	text_clean(l->version, false);
	json_decref(answer);
	return 0;
}

static void pause_ms(long milliseconds)
{
	struct timespec pause = {0, milliseconds * 1000000};

	nanosleep(&pause, NULL);
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int link_open(struct link *l, bool start, struct dinst_error *e)
{
	const uint64_t began = now_ms();
	struct dinst_error why = {0, ""};
	struct socket_place place;
	int err;

	if (l->fd >= 0)
		return 0;
	if (socket_place_find(&place, l->socket, e) != 0)
		return e->code;
	for (;;) {
		dinst_error_clear(&why);
		err = try_connect(l, &place, &why);
		if (!err)
			err = greet(l, &why);
		if (err)
			link_close(l);
		if (err != DINST_DAEMON || !start || now_ms() - began >= OPEN_TRIES_MS)
			break;
		dinst_error_clear(&why);
		socket_place_close(&place);
		err = daemon_start(&place, &why);
		/* busy: another client was faster, or a daemon is about to leave */
		if (err && err != DINST_BUSY)
			break;
		if (err)
			pause_ms(OPEN_PAUSE_MS);
	}
	socket_place_close(&place);
	return err ? dinst_fail_text(e, err, why.text) : 0;
}

/* ------------------------------------------------------------------ calls */

static int broken(struct link *l, struct dinst_error *e, const char *what)
{
	dinst_fail(e, DINST_DAEMON, "%s; its log is beside the socket", what);
	link_close(l);
	return e->code;
}

static int ended(struct link *l, struct dinst_error *e)
{
	if (!l->version[0])
		return broken(l, e,
			      "what listens on the socket closed the connection (a daemon serves "
			      "its own user and root only)");
	return broken(l, e,
		      "the daemon has ended: dinst attach starts another one, which takes out "
		      "what was left");
}

static int send_line(struct link *l, char *line, struct dinst_error *e)
{
	size_t length, at = 0;

	if (!line)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for a request");
	length = strlen(line);
	if (length > RPC_CLIENT_LINE) {
		free(line);
		return dinst_fail(e, DINST_USAGE, "the request is longer than 1 MiB");
	}
	while (at < length) {
		ssize_t n = send(l->fd, line + at, length - at, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR && !*l->interrupted)
			continue;
		if (n <= 0) {
			const bool hung_up = n < 0 && (errno == EPIPE || errno == ECONNRESET);

			free(line);
			/* it may have said why: that is read next */
			return hung_up ? 0 : ended(l, e);
		}
		at += (size_t)n;
	}
	free(line);
	return 0;
}

/*
 * True if a thread of the daemon is on a processor or waits for one, or for something in the kernel
 * that another one has which waits: it goes on when that one does.
 */
static bool daemon_is_starved(const struct link *l)
{
	struct proc_ids tasks = {0};
	struct proc_stat stat;
	bool starved = false;

	if (proc_tasks(l->daemon_pid, &tasks) == 0)
		for (size_t i = 0; i < tasks.count && !starved; i++)
			starved = proc_stat_read(tasks.ids[i], &stat) == 0 &&
				  (stat.state == 'R' || stat.state == 'D');
	proc_ids_release(&tasks);
	return starved;
}

/*
 * How long nothing has come: a signal may end a wait early, and one that lasted longer than it was to was
 * for want of a processor, or of leave to run.
 */
static uint64_t silence(uint64_t since)
{
	const uint64_t lasted = now_ms() - since;

	return lasted < LOOK_MS ? lasted : LOOK_MS;
}

/* The next line from the daemon, however long it takes. */
static int read_line(struct link *l, char **line, size_t *length, struct dinst_error *e)
{
	struct pollfd fd = {l->fd, POLLIN, 0};
	enum lines_result got;
	size_t room;
	ssize_t n;
	char *to;
	uint64_t silent_ms = 0, since;

	while ((got = lines_next(&l->lines, line, length)) == LINES_MORE) {
		if (*l->interrupted) {
			link_close(l);
			return dinst_fail(e, DINST_FAILED, "interrupted");
		}
		since = now_ms();
		if (poll(&fd, 1, LOOK_MS) <= 0) {
			silent_ms += silence(since);
			if (l->tick)
				l->tick(l->tick_arg);
			if (!l->patience || silent_ms < (uint64_t)l->patience * 1000 ||
			    (silent_ms < (uint64_t)STARVED_S * 1000 && daemon_is_starved(l)))
				continue;
			link_close(l);
			return dinst_fail(
				e, DINST_BUSY,
				"the socket is in use by something that does not answer (pid %d): "
				"stop it or set DINST_SOCKET",
				(int)l->daemon_pid);
		}
		room = lines_room(&l->lines, &to);
		if (!room)
			return broken(l, e, "no memory for the answer");
		n = read(l->fd, to, room);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return ended(l, e);
		lines_added(&l->lines, (size_t)n);
	}
	return got == LINES_LINE ? 0 : broken(l, e, "the answer is too long");
}

/* Returns 1 if the message was the answer, 0 if not, or an error. */
static int take_message(struct link *l, json_t *message, link_notified notified, void *arg,
			json_t **result, struct dinst_error *e)
{
	const char *method = json_string_value(json_object_get(message, "method"));
	json_t *id = json_object_get(message, "id");
	json_t *error = json_object_get(message, "error");
	json_t *answer = json_object_get(message, "result");

	if (method && !id) {
		if (notified)
			notified(arg, method, json_object_get(message, "params"));
		return 0;
	}
	if (!json_is_integer(id) || json_integer_value(id) != l->last_id) {
		if (error)
			return rpc_error_read(error, e);
		return broken(l, e, "the answer is to another request");
	}
	if (error)
		return rpc_error_read(error, e);
	if (!json_is_object(answer))
		return broken(l, e, "the answer is not an object");
	*result = json_incref(answer);
	return 1;
}

int link_call(struct link *l, const char *method, json_t *params, link_notified notified, void *arg,
	      json_t **result, struct dinst_error *e)
{
	json_t *message;
	size_t length = 0;
	char *line = NULL;
	int err;

	err = send_line(l, rpc_make_request(++l->last_id, method, params), e);
	while (!err) {
		err = read_line(l, &line, &length, e);
		if (err)
			break;
		message = rpc_load(line, length, e);
		if (!message)
			return broken(l, e, "the daemon sent garbage");
		err = take_message(l, message, notified, arg, result, e);
		json_decref(message);
	}
	return err < 0 ? err : 0;
}

void link_wait_end(struct link *l, int milliseconds)
{
	struct pollfd fd = {l->fd, POLLIN, 0};
	char drop[4096];

	while (l->fd >= 0 && poll(&fd, 1, milliseconds) > 0)
		if (read(l->fd, drop, sizeof(drop)) <= 0)
			break;
	link_close(l);
}
