/* SPDX-License-Identifier: MIT */
/*
 * mutator.c - one dinst-mutator process and the queue of calls to it.
 *
 * Owns the process and the connection (its descriptor 3). One call is with the
 * mutator at a time, the others wait in order. Results are passed on as text.
 * Never trusts what comes back: a message out of turn, or garbage, ends the
 * process, and the calls are answered with code "daemon".
 */
#include "daemon/server/server.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MUTATOR_FD = 3, MUTATOR_GRACE_MS = 3000, MUTATOR_KILLED_MS = 1000 };

struct call {
	struct call *next;
	char *line; /* the request, until it is sent */
	char method[24];
	json_int_t id;
	struct request *about;
	call_done done;
	void *arg;
};

struct mutator {
	struct server *server;
	struct mutator *next; /* of the server's */
	const struct mutator_events *events;
	void *owner;
	struct stream stream;
	uv_process_t process;
	uv_timer_t grace;
	struct maker identity;
	struct call *queue, **queue_end; /* the first one is being served if `serving` */
	bool serving;
	json_int_t last_id;
	unsigned handles; /* open libuv handles; freed at 0 */
	bool released;	  /* nobody wants to hear of it any more */
	bool input_ended, exited, dead;
	int64_t status;
	int signal;
	bool killed;		 /* since it did not end */
	char why[200];		 /* why we ended it; empty if it did by itself */
	void (*gone)(void *arg); /* waits for its end; NULL: nobody */
	void *gone_arg;
};

/* ---------------------------------------------------------------- the end */

static void handle_closed(uv_handle_t *handle)
{
	struct mutator *m = handle->data;

	if (--m->handles == 0)
		free(m);
}

static void stream_is_closed(struct stream *st)
{
	struct mutator *m = st->owner;

	if (--m->handles == 0)
		free(m);
}

/*
 * Answers all calls. One at a time from the queue: done() may close the session
 * and so come here again, and then nothing of it may be left for later.
 */
static void fail_calls(struct mutator *m, int code, const char *why)
{
	struct reply reply;
	struct call *c;

	memset(&reply, 0, sizeof(reply));
	dinst_fail(&reply.failure, code, "%s", why);
	m->serving = false;
	while ((c = m->queue) != NULL) {
		m->queue = c->next;
		if (!m->queue)
			m->queue_end = &m->queue;
		c->done(c->arg, &reply);
		free(c->line);
		free(c);
	}
}

static void unlist(struct mutator *m)
{
	struct mutator **at = &m->server->mutators;

	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
}

/* Whoever waits for its end waits no longer. */
static void tell_gone(struct mutator *m)
{
	void (*gone)(void *arg) = m->gone;

	m->gone = NULL;
	if (gone)
		gone(m->gone_arg);
}

/* Both halves have ended: says so, and gives everything back. */
static void mutator_dead(struct mutator *m)
{
	char why[300];

	if (m->dead || !m->exited || !m->input_ended)
		return;
	m->dead = true;
	unlist(m);
	if (m->why[0])
		snprintf(why, sizeof(why), "the mutator (pid %d) was ended: %s",
			 (int)m->identity.pid, m->why);
	else if (m->signal)
		snprintf(why, sizeof(why), "the mutator (pid %d) died of signal %d (%s)%s",
			 (int)m->identity.pid, m->signal, strsignal(m->signal),
			 m->signal == SIGKILL
				 ? ": from somebody, for want of memory, or its own since a stop "
				   "did not end, as the daemon's log tells"
				 : "");
	else
		snprintf(why, sizeof(why), "the mutator (pid %d) ended with status %d",
			 (int)m->identity.pid, (int)m->status);
	if (!m->released)
		server_log("%s", why);
	uv_timer_stop(&m->grace);
	uv_close((uv_handle_t *)&m->grace, handle_closed);
	uv_close((uv_handle_t *)&m->process, handle_closed);
	stream_close(&m->stream);
	fail_calls(m, DINST_DAEMON, why);
	tell_gone(m);
	if (!m->released)
		m->events->died(m->owner, why);
}

static void mutator_hang_up(struct mutator *m);

static void grace_over(uv_timer_t *timer)
{
	struct mutator *m = timer->data;

	if (m->exited) {
		mutator_hang_up(m);
	} else if (m->killed) {
		server_log("mutator %d was killed and has not ended yet", (int)m->identity.pid);
		tell_gone(m);
	} else {
		server_log("mutator %d does not end: killed", (int)m->identity.pid);
		m->killed = true;
		uv_process_kill(&m->process, SIGKILL);
		uv_timer_start(&m->grace, grace_over, MUTATOR_KILLED_MS, 0);
	}
}

/* Ends the connection; a mutator that does not end by itself is killed after a while. */
static void mutator_hang_up(struct mutator *m)
{
	if (!m->input_ended) {
		m->input_ended = true;
		stream_close(&m->stream);
	}
	if (!m->exited)
		uv_timer_start(&m->grace, grace_over, MUTATOR_GRACE_MS, 0);
	else
		mutator_dead(m);
}

/* The mutator does not keep to the protocol: it is of no more use. */
static void mutator_reject(struct mutator *m, const char *why)
{
	snprintf(m->why, sizeof(m->why), "%s", why);
	if (!m->exited)
		uv_process_kill(&m->process, SIGKILL);
	mutator_hang_up(m);
}

static void process_exited(uv_process_t *process, int64_t status, int signal)
{
	struct mutator *m = process->data;

	m->exited = true;
	m->status = status;
	m->signal = signal;
	mutator_dead(m);
	/* its last words are read first; but a child of its own may hold the connection */
	if (!m->dead)
		uv_timer_start(&m->grace, grace_over, MUTATOR_GRACE_MS, 0);
}

/* ------------------------------------------------------------ what it says */

static void send_next(struct mutator *m)
{
	struct call *c = m->queue;
	char *line;

	if (!c || m->serving || m->input_ended || m->stream.closing)
		return;
	m->serving = true;
	line = c->line;
	c->line = NULL;
	/* a failure to write is followed by the end of the connection; else it would be waited for in vain */
	if (stream_write(&m->stream, line) != UV_ENOMEM)
		return;
	snprintf(m->why, sizeof(m->why), "there was no memory to ask it something");
	/* whoever asks just now does not expect its end */
	if (!m->exited)
		uv_process_kill(&m->process, SIGKILL);
	else
		uv_timer_start(&m->grace, grace_over, 0, 0);
}

/* Answers the call that is served. */
static void finish_call(struct mutator *m, const struct reply *reply)
{
	struct call *c = m->queue;

	m->queue = c->next;
	if (!m->queue)
		m->queue_end = &m->queue;
	m->serving = false;
	server_busy(m->server);
	/* the next one goes out first, so that done() may queue, release or reject */
	send_next(m);
	c->done(c->arg, reply);
	free(c);
}

static void take_notification(struct mutator *m, const struct rpc_message *message)
{
	struct dinst_error e = {0, ""};
	json_t *method = rpc_load(message->method.text, message->method.length, &e);
	json_t *params = NULL;
	const char *name = json_string_value(method);

	if (message->params.text)
		params = rpc_load(message->params.text, message->params.length, &e);
	if (!name || e.code)
		server_log("mutator %d: a notification that cannot be read", (int)m->identity.pid);
	else if (strcmp(name, "progress") == 0 && m->serving && m->queue->about)
		request_notify(m->queue->about, name, params);
	else if (strcmp(name, "progress") != 0 && !m->released)
		m->events->notified(m->owner, name, params);
	json_decref(method);
	json_decref(params);
}

static bool is_text(struct rpc_span span, const char *text)
{
	return span.text && span.length == strlen(text) &&
	       memcmp(span.text, text, span.length) == 0;
}

static void mutator_line(struct stream *st, char *line, size_t length)
{
	struct mutator *m = st->owner;
	struct reply reply;
	struct rpc_message message;
	struct call *c = m->queue;
	char id[24];

	memset(&reply, 0, sizeof(reply));
	if (length == 0)
		return;
	stalls_step(m->server, "an answer of a mutator");
	if (rpc_scan(line, length, &message, &reply.failure) != 0) {
		mutator_reject(m, "it sent something that is not JSON-RPC");
		return;
	}
	if (message.method.text && !message.id.text) {
		take_notification(m, &message);
		return;
	}
	if (c)
		snprintf(id, sizeof(id), "%lld", (long long)c->id);
	/* an error of one that could not read its request for want of memory has no number */
	if (c && message.error.text && is_text(message.id, "null"))
		snprintf(id, sizeof(id), "null");
	if (!c || !m->serving || !is_text(message.id, id) ||
	    !message.result.text == !message.error.text) {
		mutator_reject(m, "it answered what was not asked");
		return;
	}
	reply.result = message.result;
	reply.error = message.error;
	finish_call(m, &reply);
}

/*
 * Too long a line is the answer to what it serves, and is dropped up to its
 * end: a question that was too broad is no reason to lose what is inserted.
 */
static void mutator_too_long(struct stream *st)
{
	struct mutator *m = st->owner;
	struct reply reply;

	if (!m->serving) {
		mutator_reject(m, "it sent a line longer than 64 MiB");
		return;
	}
	memset(&reply, 0, sizeof(reply));
	dinst_fail(
		&reply.failure, DINST_FAILED,
		"the answer is longer than 64 MiB: ask for less (a narrower pattern, or --summary)");
	finish_call(m, &reply);
}

static void mutator_end(struct stream *st, int status)
{
	struct mutator *m = st->owner;

	(void)status;
	mutator_hang_up(m);
}

/* -------------------------------------------------------------- interface */

static int spawn(struct mutator *m, struct dinst_error *e)
{
	struct server *s = m->server;
	char *args[] = {s->mutator_path, NULL};
	uv_stdio_container_t stdio[MUTATOR_FD + 1];
	uv_process_options_t options;
	int err;

	memset(&options, 0, sizeof(options));
	stdio[0].flags = UV_IGNORE;
	/* nothing belongs on its standard output; what comes goes to the log */
	for (int fd = 1; fd <= 2; fd++) {
		stdio[fd].flags = UV_INHERIT_FD;
		stdio[fd].data.fd = STDERR_FILENO;
	}
	stdio[MUTATOR_FD].flags = UV_CREATE_PIPE | UV_READABLE_PIPE | UV_WRITABLE_PIPE;
	stdio[MUTATOR_FD].data.stream = (uv_stream_t *)&m->stream.pipe;
	options.file = s->mutator_path;
	options.args = args;
	options.exit_cb = process_exited;
	options.stdio = stdio;
	options.stdio_count = MUTATOR_FD + 1;
	stalls_step(s, "the start of a mutator");
	err = uv_spawn(&s->loop, &m->process, &options);
	if (err)
		return dinst_fail(e, DINST_DAEMON, "cannot start %s: %s", s->mutator_path,
				  uv_strerror(err));
	m->identity.pid = m->process.pid;
	m->identity.start = process_start(m->process.pid);
	return 0;
}

struct mutator *mutator_start(struct server *s, const struct mutator_events *events, void *owner,
			      struct dinst_error *e)
{
	struct mutator *m = calloc(1, sizeof(*m));

	if (!m) {
		dinst_fail(e, DINST_NO_MEMORY, "no memory for a mutator");
		return NULL;
	}
	m->server = s;
	m->events = events;
	m->owner = owner;
	m->queue_end = &m->queue;
	m->stream.owner = m;
	m->stream.on_line = mutator_line;
	m->stream.on_too_long = mutator_too_long;
	m->stream.on_end = mutator_end;
	m->stream.on_closed = stream_is_closed;
	m->process.data = m;
	m->grace.data = m;
	uv_timer_init(&s->loop, &m->grace);
	stream_init(&m->stream, &s->loop, RPC_MUTATOR_LINE);
	m->handles = 3;
	if (spawn(m, e) != 0) {
		m->released = m->dead = true;
		uv_close((uv_handle_t *)&m->process, handle_closed);
		uv_close((uv_handle_t *)&m->grace, handle_closed);
		stream_close(&m->stream);
		return NULL;
	}
	m->next = s->mutators;
	s->mutators = m;
	if (stream_start(&m->stream) != 0) {
		dinst_fail(e, DINST_DAEMON, "cannot read from the mutator");
		/* it is waited for as any other */
		m->released = true;
		mutator_reject(m, e->text);
		return NULL;
	}
	return m;
}

void mutator_call(struct mutator *m, const char *method, json_t *params, struct request *about,
		  call_done done, void *arg)
{
	struct call *c = NULL;
	struct reply reply;

	memset(&reply, 0, sizeof(reply));
	if (m->input_ended) {
		dinst_fail(&reply.failure, DINST_DAEMON, "the mutator (pid %d) has ended",
			   (int)m->identity.pid);
	} else {
		c = calloc(1, sizeof(*c));
		if (c)
			c->line = rpc_make_request(++m->last_id, method, params);
		if (!c || !c->line)
			dinst_fail(&reply.failure, DINST_NO_MEMORY, "no memory for a request");
	}
	if (!c || !c->line) {
		free(c);
		done(arg, &reply);
		return;
	}
	snprintf(c->method, sizeof(c->method), "%s", method);
	c->id = m->last_id;
	c->about = about;
	c->done = done;
	c->arg = arg;
	*m->queue_end = c;
	m->queue_end = &c->next;
	send_next(m);
}

const char *mutator_busy(const struct mutator *m)
{
	const struct call *c = m->queue;

	while (c && !strcmp(c->method, "sample"))
		c = c->next;
	return c ? c->method : NULL;
}

pid_t mutator_pid(const struct mutator *m)
{
	return m->identity.pid;
}

struct maker mutator_identity(const struct mutator *m)
{
	return m->identity;
}

static void nobody_listens(void *arg, const struct reply *reply)
{
	(void)arg;
	(void)reply;
}

/* Answers a call before its time. */
static void answer_early(struct call *c, const char *why)
{
	struct reply reply;

	memset(&reply, 0, sizeof(reply));
	dinst_fail(&reply.failure, DINST_DAEMON, "%s", why);
	c->done(c->arg, &reply);
}

void mutator_hand_over(struct mutator *m, const struct mutator_events *events, void *owner,
		       const char *why)
{
	/* Its answer comes all the same, before those of the new owner's calls. */
	struct call *served = m->serving ? m->queue : NULL;
	struct call **first = served ? &served->next : &m->queue;
	struct call *c;

	m->events = events;
	m->owner = owner;
	while ((c = *first) != NULL) {
		*first = c->next;
		if (!c->next)
			m->queue_end = first;
		answer_early(c, why);
		free(c->line);
		free(c);
	}
	if (!served)
		return;
	answer_early(served, why);
	served->about = NULL;
	served->done = nobody_listens;
}

/* What leaves nothing behind, so that it is the same to everybody else whether it was done. */
static bool only_tells(const char *method)
{
	static const char *const methods[] = {"status",	 "modules",  "funcs", "points",	 "read",
					      "metrics", "complete", "cfg",   "callees", "stacks"};

	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
		if (strcmp(methods[i], method) == 0)
			return true;
	return false;
}

/* Of a client that wanted to hear of it, and has gone before it began. */
static bool is_forgotten(const struct call *c)
{
	return c->about && !c->about->peer &&
	       (only_tells(c->method) ||
		(c->about->id && (!strcmp(c->method, "insert") || !strcmp(c->method, "trace"))));
}

void mutator_forget_gone(struct mutator *m)
{
	struct call **at = m->serving ? &m->queue->next : &m->queue;
	struct call *c;

	while ((c = *at) != NULL) {
		if (!is_forgotten(c)) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		if (!c->next)
			m->queue_end = at;
		answer_early(c, "the client has gone");
		free(c->line);
		free(c);
	}
}

void mutator_when_gone(struct mutator *m, void (*gone)(void *arg), void *arg)
{
	m->gone = gone;
	m->gone_arg = arg;
}

void mutator_release(struct mutator *m, const char *why)
{
	if (m->released)
		return;
	m->released = true;
	mutator_hang_up(m);
	if (m->queue)
		fail_calls(m, DINST_DAEMON, why);
}

void mutators_end(struct server *s, const char *why)
{
	struct mutator *next;

	for (struct mutator *m = s->mutators; m; m = next) {
		next = m->next;
		mutator_release(m, why);
		tell_gone(m);
	}
}
