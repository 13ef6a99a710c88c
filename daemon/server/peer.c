/* SPDX-License-Identifier: MIT */
/*
 * peer.c - one connected client: requests in, answers out.
 *
 * Owns the check of who may connect, and the limits that keep one client from
 * harming the others. Never waits for a client, and never believes one.
 */
#include "daemon/server/server.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ------------------------------------------------------------------- flow */

/*
 * Reads from the client only while it takes its answers. Where a request is being answered, whoever
 * answers it may go on with what the client's next line would change: that line waits for the
 * loop (`answering`).
 */
static void peer_flow(struct peer *p, bool answering)
{
	if (p->stream.closing)
		return;
	if (p->server->ending) {
		if (p->stream.unwritten == 0)
			peer_close(p);
	} else if (p->stream.unwritten > PEER_UNWRITTEN_MAX) {
		server_log("client %d takes no answers: dropped", (int)p->pid);
		peer_close(p);
	} else if (p->pending >= PEER_PENDING_MAX || p->asked > PEER_ASKED_MAX ||
		   p->stream.unwritten > PEER_UNWRITTEN_PAUSE) {
		stream_pause(&p->stream);
	} else if (p->input_ended && p->pending == 0 && p->stream.unwritten == 0 &&
		   !p->stream.paused) {
		peer_close(p);
	} else if (!answering) {
		stream_resume(&p->stream);
	} else if (p->stream.paused) {
		uv_timer_start(&p->server->resume, peers_resume, 0, 0);
	}
}

void peers_resume(uv_timer_t *timer)
{
	struct server *s = timer->data;
	struct peer *next;

	for (struct peer *p = s->peers; p; p = next) {
		next = p->next;
		if (p->stream.paused)
			peer_flow(p, false);
		/* Its last line may have been read. */
		if (p->input_ended)
			peer_flow(p, false);
	}
}

/* What all clients together leave lying is bounded as well: who takes least is dropped. */
static void shed(struct server *s)
{
	size_t total = 0;
	struct peer *most = NULL;

	for (struct peer *p = s->peers; p; p = p->next) {
		total += p->stream.unwritten;
		if (!most || p->stream.unwritten > most->stream.unwritten)
			most = p;
	}
	if (total <= SERVER_UNWRITTEN_MAX)
		return;
	server_log("clients take too few answers: client %d dropped", (int)most->pid);
	peer_close(most);
}

static void peer_send(struct peer *p, char *line)
{
	int err = stream_write(&p->stream, line);

	if (err)
		peer_close(p);
	else if (p->stream.unwritten > PEER_UNWRITTEN_PAUSE)
		shed(p->server);
}

void peer_finish(struct peer *p)
{
	peer_flow(p, false);
}

static void peer_drained(struct stream *st)
{
	peer_flow(st->owner, false);
}

/* ---------------------------------------------------------------- answers */

/* Takes the request off its client and frees it; sends `line` if there is someone to take it. */
static void request_finish(struct request *r, char *line)
{
	struct peer *p = r->peer;

	if (p) {
		struct request **at = &p->requests;

		while (*at != r)
			at = &(*at)->next;
		*at = r->next;
		p->pending--;
		p->asked -= r->size;
		if (r->id) {
			peer_send(p, line);
			line = NULL;
		}
		peer_flow(p, true);
	}
	free(line);
	json_decref(r->id);
	free(r);
}

void request_result(struct request *r, json_t *result)
{
	char *line = rpc_make_result(r->id, result);

	json_decref(result);
	request_finish(r, line);
}

void request_result_text(struct request *r, struct rpc_span result)
{
	request_finish(r, rpc_make_result_text(r->id, result));
}

void request_error_text(struct request *r, struct rpc_span error)
{
	request_finish(r, rpc_make_error_text(r->id, error));
}

void request_error(struct request *r, int code, const char *text)
{
	request_finish(r, rpc_make_error(r->id, RPC_FAILED, dinst_code_name(code), text));
}

void request_error_from(struct request *r, const struct dinst_error *e)
{
	request_error(r, e->code ? e->code : DINST_FAILED, e->text);
}

void request_error_rpc(struct request *r, int rpc_code, const char *text)
{
	request_finish(r, rpc_make_error(r->id, rpc_code,
					 dinst_code_name(rpc_code == RPC_PARAMS ? DINST_USAGE
										: DINST_PROTOCOL),
					 text));
}

void request_notify(struct request *r, const char *method, json_t *params)
{
	json_t *copy;

	if (!r->peer || !r->id || r->peer->stream.closing)
		return;
	copy = json_is_object(params) ? json_copy(params) : json_object();
	json_object_set(copy, "request", r->id);
	peer_send(r->peer, rpc_make_notification(method, copy));
	json_decref(copy);
}

unsigned peers_notify(struct server *s, struct session *session, const char *method, json_t *params)
{
	struct peer *p, *next;
	unsigned told = 0;

	for (p = s->peers; p; p = next) {
		next = p->next;
		if (p->stream.closing || (session && p->session != session))
			continue;
		peer_send(p, rpc_make_notification(method, params));
		told++;
	}
	return told;
}

/* --------------------------------------------------------------- requests */

static struct request *request_new(struct peer *p, json_t *id, size_t size)
{
	struct request *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->peer = p;
	r->id = json_incref(id);
	r->next = p->requests;
	r->size = size;
	p->requests = r;
	p->pending++;
	p->asked += size;
	return r;
}

static void peer_line(struct stream *st, char *line, size_t length)
{
	struct peer *p = st->owner;
	struct dinst_error e = {0, ""};
	struct rpc_request parsed;
	struct request *r;
	json_t *null = NULL;
	int err;

	if (p->server->ending || length == 0 || strspn(line, " \t\r") == length)
		return;
	server_busy(p->server);
	err = rpc_request_parse(line, length, &parsed, &e);
	/* what has no readable id is answered with null, as JSON-RPC says */
	if (err && !parsed.id)
		null = json_null();
	r = request_new(p, parsed.id ? parsed.id : null, length);
	if (!r)
		peer_close(p);
	else if (err)
		request_error_rpc(r, err, e.text);
	else
		method_dispatch(p->server, r, parsed.method, parsed.params);
	rpc_request_release(&parsed);
	peer_flow(p, false);
}

static void peer_too_long(struct stream *st)
{
	struct peer *p = st->owner;
	struct request *r = request_new(p, json_null(), 0);

	if (!r)
		peer_close(p);
	else
		request_error_rpc(r, RPC_INVALID, "the line is longer than 1 MiB");
}

static void peer_end(struct stream *st, int status)
{
	struct peer *p = st->owner;
	struct pollfd fd = {-1, POLLIN, 0};

	/* a client that only shut down its output still waits for answers */
	uv_fileno((uv_handle_t *)&st->pipe, &fd.fd);
	if (status < 0 || poll(&fd, 1, 0) < 0 || (fd.revents & (POLLHUP | POLLERR))) {
		peer_close(p);
		return;
	}
	p->input_ended = true;
	peer_flow(p, false);
}

/* ------------------------------------------------------------- connection */

static void peer_closed(struct stream *st)
{
	free(st->owner);
}

void peer_close(struct peer *p)
{
	struct server *s = p->server;
	struct peer **at = &s->peers;

	if (p->stream.closing)
		return;
	stalls_step(s, "the end of a client");
	while (*at && *at != p)
		at = &(*at)->next;
	if (*at) {
		*at = p->next;
		s->peer_count--;
	}
	while (p->requests) {
		struct request *r = p->requests;

		p->requests = r->next;
		r->next = NULL;
		r->peer = NULL;
	}
	stream_close(&p->stream);
	for (struct session *se = s->sessions; se; se = se->next) {
		if (se->mutator)
			mutator_forget_gone(se->mutator);
		if (se->holder == p)
			session_release_target(se);
	}
	hold_peer_gone(p);
	server_busy(s);
}

/* Only our own uid and root may ask anything of us. */
static bool peer_allowed(struct peer *p)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);
	uv_os_fd_t fd;

	if (uv_fileno((uv_handle_t *)&p->stream.pipe, &fd) != 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
		return false;
	p->uid = peer.uid;
	p->pid = peer.pid;
	if (peer.uid == geteuid() || peer.uid == 0)
		return true;
	server_log("client %d of uid %u turned away", (int)peer.pid, (unsigned)peer.uid);
	return false;
}

/* So that the client does not take us for a daemon that leaves, and start others all the time. */
static void turn_away(struct peer *p)
{
	char *line = rpc_make_error(NULL, RPC_FAILED, dinst_code_name(DINST_BUSY),
				    "the daemon has as many clients as it takes: try again later");
	uv_buf_t buf;

	server_log("more than %d clients: client %d turned away", PEER_MAX, (int)p->pid);
	if (line) {
		buf = uv_buf_init(line, (unsigned)strlen(line));
		uv_try_write((uv_stream_t *)&p->stream.pipe, &buf, 1);
	}
	free(line);
	peer_close(p);
}

int peer_accept(struct server *s)
{
	struct peer *p = calloc(1, sizeof(*p));

	if (!p)
		return UV_ENOMEM;
	stalls_step(s, "a new client");
	p->server = s;
	p->stream.owner = p;
	p->stream.on_line = peer_line;
	p->stream.on_too_long = peer_too_long;
	p->stream.on_end = peer_end;
	p->stream.on_drained = peer_drained;
	p->stream.on_closed = peer_closed;
	if (stream_init(&p->stream, &s->loop, RPC_CLIENT_LINE) != 0) {
		free(p);
		return UV_ENOMEM;
	}
	p->next = s->peers;
	s->peers = p;
	s->peer_count++;
	server_busy(s);
	if (uv_accept((uv_stream_t *)&s->listener, (uv_stream_t *)&p->stream.pipe) != 0 ||
	    !peer_allowed(p) || s->ending) {
		peer_close(p);
		return 0;
	}
	if (s->peer_count > PEER_MAX) {
		turn_away(p);
		return 0;
	}
	if (stream_start(&p->stream) != 0)
		peer_close(p);
	return 0;
}
