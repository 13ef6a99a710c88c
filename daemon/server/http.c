/* SPDX-License-Identifier: MIT */
/*
 * http.c - connections and requests, by libmicrohttpd on the loop.
 *
 * Owns the bounds of all that comes from outside, and who may do what. Never blocks, never
 * reads a file, and never answers what was not asked by a route.
 */
#include "daemon/server/http.h"

#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/server/http_private.h"

enum { SWEEP_MS = 1000, VAIN_MOST = 16 };

/* ----------------------------------------------------------------- requests */

static bool has_token(struct exchange *ex)
{
	static const char bearer[] = "Bearer ";
	const char *given = http_header(ex, MHD_HTTP_HEADER_AUTHORIZATION);

	return given && !strncmp(given, bearer, sizeof(bearer) - 1) &&
	       token_equal(ex->http->token, given + sizeof(bearer) - 1);
}

/* Who asks, and for what: false if that is answered already. */
static bool admit(struct exchange *ex, const char *path, const char *method)
{
	struct http *h = ex->http;
	const char *host = http_header(ex, MHD_HTTP_HEADER_HOST);
	bool other = false;

	if (!strcmp(method, "HEAD"))
		method = "GET";
	ex->route = page_route(path, method, &other);
	ex->authorized = has_token(ex);
	if (!listening_host_ok(&h->place, host, ex->route && ex->route->open))
		http_reply_error(ex, MHD_HTTP_FORBIDDEN,
				 "that is not a name of this daemon; dinstd --host NAME allows it");
	else if (!ex->route && other)
		http_reply_error(ex, MHD_HTTP_METHOD_NOT_ALLOWED, "not by this method");
	else if (!ex->route)
		http_reply_error(ex, MHD_HTTP_NOT_FOUND, "there is no such thing here");
	else if (!h->place.local && !ex->route->open && !ex->authorized)
		http_reply_error(
			ex, MHD_HTTP_UNAUTHORIZED,
			"beyond this machine only /metrics is open; all else takes the token");
	else if (!strcmp(method, "POST") && !h->token[0])
		http_reply_error(ex, MHD_HTTP_FORBIDDEN,
				 "read-only: dinstd --token FILE lets those who have it change "
				 "something");
	else if (!strcmp(method, "POST") && !ex->authorized)
		http_reply_error(ex, MHD_HTTP_UNAUTHORIZED,
				 "wrong or no token (Authorization: Bearer TOKEN)");
	return !ex->done;
}

static struct client *client_of(struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

static void set_phase(struct http *h, struct MHD_Connection *connection, bool answering, bool held)
{
	struct client *c = client_of(connection);

	if (!c)
		return;
	c->answering = answering;
	c->held = held;
	c->since_ms = uv_now(&h->server->loop);
}

static enum MHD_Result queue(struct exchange *ex)
{
	/* without memory for anything the connection is closed */
	return ex->answer ? MHD_queue_response(ex->connection, ex->status, ex->answer->response)
			  : MHD_NO;
}

static enum MHD_Result begin(struct http *h, struct MHD_Connection *connection, const char *path,
			     const char *method, void **at)
{
	struct exchange *ex = calloc(1, sizeof(*ex));

	if (!ex)
		return MHD_NO;
	*at = ex;
	ex->http = h;
	ex->server = h->server;
	ex->connection = connection;
	ex->may_write = h->token[0] != '\0';
	h->stats.requests++;
	/* It answers when the body has come, too: until then it may be the most silent one. */
	set_phase(h, connection, false, false);
	server_busy(h->server);
	if (admit(ex, path, method))
		return MHD_YES;
	set_phase(h, connection, true, false);
	return queue(ex);
}

static void add_body(struct exchange *ex, const char *data, size_t *size)
{
	if (ex->body.length + *size > HTTP_BODY)
		ex->too_long = true;
	else
		text_add(&ex->body, data, *size);
	*size = 0;
}

/* Called for the head, for each piece of the body, and for the answer. */
static enum MHD_Result handle(void *arg, struct MHD_Connection *connection, const char *path,
			      const char *method, const char *version, const char *data,
			      size_t *size, void **at)
{
	struct http *h = arg;
	struct exchange *ex = *at;

	(void)version;
	if (!ex)
		return begin(h, connection, path, method, at);
	if (*size) {
		add_body(ex, data, size);
		return MHD_YES;
	}
	if (!ex->done && ex->too_long)
		http_reply_error(ex, MHD_HTTP_CONTENT_TOO_LARGE, "the body is longer than 16 KiB");
	if (!ex->done)
		ex->route->start(ex);
	if (!ex->done) {
		/* http_reply() resumes it */
		ex->suspended = true;
		set_phase(h, connection, true, true);
		MHD_suspend_connection(connection);
		return MHD_YES;
	}
	set_phase(h, connection, true, false);
	return queue(ex);
}

static void completed(void *arg, struct MHD_Connection *connection, void **at,
		      enum MHD_RequestTerminationCode why)
{
	struct exchange *ex = *at;

	(void)why;
	set_phase(arg, connection, false, false);
	if (!ex)
		return;
	answer_release(ex->answer);
	text_release(&ex->body);
	free(ex->session);
	free(ex);
	*at = NULL;
}

/* -------------------------------------------------------------- connections */

/* The end of its input: libmicrohttpd closes it. */
static void cut(struct http *h, struct client *c)
{
	h->stats.refused++;
	shutdown(c->fd, SHUT_RDWR);
}

static void cut_most_silent(struct http *h)
{
	struct client *silent = NULL;

	for (struct client *c = h->clients; c; c = c->next)
		if (!c->answering && (!silent || c->since_ms < silent->since_ms))
			silent = c;
	if (silent) {
		silent->answering = true; /* it is on its way out */
		cut(h, silent);
	}
}

static void connection_changed(void *arg, struct MHD_Connection *connection, void **context,
			       enum MHD_ConnectionNotificationCode what)
{
	const union MHD_ConnectionInfo *info;
	struct http *h = arg;
	struct client *c, **at;

	if (what == MHD_CONNECTION_NOTIFY_STARTED) {
		h->accepted++;
		if (h->client_count >= HTTP_CROWDED)
			cut_most_silent(h);
		c = calloc(1, sizeof(*c));
		info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
		*context = c;
		if (!c || !info) {
			free(c);
			*context = NULL;
			return;
		}
		c->fd = info->connect_fd;
		c->since_ms = uv_now(&h->server->loop);
		c->next = h->clients;
		h->clients = c;
		h->client_count++;
		return;
	}
	for (at = &h->clients; *at && *at != *context; at = &(*at)->next)
		;
	c = *at;
	if (!c)
		return;
	*at = c->next;
	h->client_count--;
	free(c);
	*context = NULL;
}

static void listen_again(struct http *h);

static void sweep(uv_timer_t *timer)
{
	struct http *h = timer->data;
	const uint64_t now = uv_now(&h->server->loop);

	for (struct client *c = h->clients; c; c = c->next)
		if (!c->held &&
		    now - c->since_ms > (c->answering ? HTTP_ANSWER_MS : HTTP_SILENT_MS)) {
			c->since_ms = now;
			cut(h, c);
		}
	listen_again(h);
}

/* ----------------------------------------------------------------- the loop */

static void run(struct http *h);

static void on_timer(uv_timer_t *timer)
{
	run(timer->data);
}

static void run(struct http *h)
{
	MHD_UNSIGNED_LONG_LONG ms;

	if (h->running || h->ending)
		return;
	h->running = true;
	MHD_run(h->daemon);
	h->running = false;
	if (MHD_get_timeout(h->daemon, &ms) == MHD_YES)
		uv_timer_start(&h->timer, on_timer, ms, 0);
	else
		uv_timer_stop(&h->timer);
}

void http_wake(struct http *h)
{
	if (!h->ending)
		uv_timer_start(&h->timer, on_timer, 0, 0);
}

/*
 * Without a free descriptor, and without a connection whose end would bring one, libmicrohttpd asks for
 * the one that waits again at once, for ever. So nobody is listened to until the next sweep.
 */
static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct http *h = poll->data;
	const uint64_t accepted = h->accepted;
	const bool alone = !h->clients;

	(void)status;
	(void)events;
	run(h);
	if (!alone || h->accepted != accepted) {
		h->vain = 0;
		h->unheard_told = false;
	} else if (++h->vain >= VAIN_MOST) {
		if (!h->unheard_told)
			server_log("http: a connection cannot be taken: every second another try");
		h->unheard = h->unheard_told = true;
		uv_poll_stop(poll);
	}
}

static void listen_again(struct http *h)
{
	if (!h->unheard)
		return;
	h->unheard = false;
	h->vain = 0;
	uv_poll_start(&h->poll, UV_READABLE, on_poll);
}

static void said(void *arg, const char *format, va_list args)
{
	/* what clients do wrong is no news */
	(void)arg;
	(void)format;
	(void)args;
}

static int watch(struct http *h, struct dinst_error *e)
{
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	uv_loop_t *loop = &h->server->loop;

	if (!info || uv_poll_init(loop, &h->poll, info->epoll_fd) != 0)
		return dinst_fail(e, DINST_FAILED, "cannot watch the HTTP connections");
	uv_timer_init(loop, &h->timer);
	uv_timer_init(loop, &h->sweep);
	h->poll.data = h->timer.data = h->sweep.data = h;
	h->handles = 3;
	uv_poll_start(&h->poll, UV_READABLE, on_poll);
	uv_timer_start(&h->sweep, sweep, SWEEP_MS, SWEEP_MS);
	/* it keeps nobody awake by itself */
	uv_unref((uv_handle_t *)&h->sweep);
	return 0;
}

static int start_daemon(struct http *h, struct dinst_error *e)
{
	h->daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG,
				     0, NULL, NULL, handle, h, MHD_OPTION_EXTERNAL_LOGGER, said,
				     NULL, MHD_OPTION_LISTEN_SOCKET, h->place.fd,
				     MHD_OPTION_CONNECTION_LIMIT, (unsigned)HTTP_CONNECTIONS,
				     MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_HEAD * 2,
				     MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)HTTP_SILENT_MS / 1000,
				     MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_COMPLETED,
				     completed, h, MHD_OPTION_NOTIFY_CONNECTION, connection_changed,
				     h, MHD_OPTION_END);
	if (!h->daemon)
		return dinst_fail(e, DINST_FAILED, "cannot serve HTTP at %s", h->place.text);
	/* the listening socket is the daemon's from here on */
	h->place.fd = -1;
	return watch(h, e);
}

int http_start(struct server *s, const struct http_options *o, struct dinst_error *e)
{
	struct http *h = calloc(1, sizeof(*h));
	bool made = false;
	int err;

	if (!h)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for HTTP");
	h->server = s;
	h->place.fd = -1;
	err = o->token ? token_load(o->token, h->token, &made, e) : 0;
	if (!err)
		err = listening_open(&h->place, o, e);
	if (!err)
		err = start_daemon(h, e);
	if (err) {
		if (h->daemon)
			MHD_stop_daemon(h->daemon);
		listening_close(&h->place);
		free(h);
		return err;
	}
	s->http = h;
	server_log("serving http://%s/ (%s%s)", h->place.text,
		   o->token ? "changes with the token in " : "read-only", o->token ? o->token : "");
	if (made)
		server_log("made a token: %s", o->token);
	if (!h->place.local)
		server_log(
			"WARNING: %s is not this machine alone: everybody who can reach it reads "
			"the values at /metrics, names of functions and processes included",
			h->place.text);
	return 0;
}

static void handle_closed(uv_handle_t *handle)
{
	struct http *h = handle->data;

	if (--h->handles == 0)
		free(h);
}

void http_end(struct server *s)
{
	struct http *h = s->http;

	if (!h)
		return;
	s->http = NULL;
	uv_poll_stop(&h->poll);
	/* answers that are there go out as far as they are taken */
	MHD_run(h->daemon);
	h->ending = true;
	for (size_t i = 0; i < HTTP_KINDS; i++)
		answer_release(h->kept[i].answer);
	MHD_stop_daemon(h->daemon);
	listening_close(&h->place);
	uv_close((uv_handle_t *)&h->poll, handle_closed);
	uv_close((uv_handle_t *)&h->timer, handle_closed);
	uv_close((uv_handle_t *)&h->sweep, handle_closed);
}

bool http_address(const struct server *s, char *text)
{
	if (s->http)
		snprintf(text, HTTP_ADDRESS_MAX, "%s", s->http->place.text);
	return s->http != NULL;
}

json_t *http_url(const char *address)
{
	char url[HTTP_ADDRESS_MAX + 16];

	snprintf(url, sizeof(url), "http://%s/", address);
	return rpc_text(url);
}

void http_stats(const struct server *s, struct http_stats *out)
{
	*out = s->http ? s->http->stats : (struct http_stats){0};
}
