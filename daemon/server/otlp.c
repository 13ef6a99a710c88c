/* SPDX-License-Identifier: MIT */
/*
 * otlp.c - the queue of exports, and the HTTP client that sends them.
 *
 * Owns one connection at a time. Never blocks, never keeps more than it says, and reads no
 * more of an answer than its head.
 */
#include "daemon/server/otlp.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "daemon/server/expose.h"
#include "daemon/server/snapshot.h"

enum {
	ANSWER_MAX = 8 << 10,
	PAUSE_FIRST_MS = 1000,
	PAUSE_MOST_MS = 60 * 1000,
};

struct export
{
	struct export *next;
	size_t length;
	char *body;
};

struct otlp {
	struct server *server;
	uv_timer_t tick, retry;
	unsigned references; /* the server, timers, a connection, a snapshot */
	bool ending;
	char host[256], port[8], path[256];
	unsigned interval_s;
	struct export *queue;
	unsigned queued;
	size_t bytes;
	struct attempt *attempt;	/* NULL: none is on its way */
	uint64_t pause_ms;		/* before the next one; 0: the last one did well */
	unsigned turn;			/* which of the host's addresses is tried */
	struct sockaddr_storage failed; /* the one that was tried last in vain */
	bool complained;
	struct otlp_stats stats;
};

/* One connection, which sends the first of the queue. */
struct attempt {
	struct otlp *otlp; /* NULL: nobody waits for it any more */
	uv_tcp_t tcp;
	struct sockaddr_storage address;
	uv_timer_t timer;
	uv_getaddrinfo_t lookup;
	uv_connect_t connect;
	uv_write_t write;
	char head[1024];
	char *body; /* its own copy would be dear: the export, taken off the queue */
	size_t length;
	char answer[ANSWER_MAX + 1];
	size_t got;
	unsigned handles;
	bool tcp_made, over, looking;
};

static void send_next(struct otlp *o);

static void otlp_release(struct otlp *o)
{
	if (--o->references == 0)
		free(o);
}

/* ---------------------------------------------------------------- the queue */

static void drop_first(struct otlp *o)
{
	struct export *x = o->queue;

	o->queue = x->next;
	o->queued--;
	o->bytes -= x->length;
	free(x->body);
	free(x);
}

/* `front`: it was taken off and comes back. */
static void enqueue(struct otlp *o, char *body, size_t length, bool front)
{
	struct export *x = calloc(1, sizeof(*x)), **at = &o->queue;

	if (!x || length > OTLP_BYTES) {
		free(x);
		free(body);
		o->stats.dropped++;
		return;
	}
	x->body = body;
	x->length = length;
	while (*at && !front)
		at = &(*at)->next;
	x->next = *at;
	*at = x;
	o->queued++;
	o->bytes += length;
	while (o->queue && (o->queued > OTLP_QUEUE || o->bytes > OTLP_BYTES)) {
		drop_first(o);
		o->stats.dropped++;
	}
}

/* -------------------------------------------------------------- one attempt */

static void attempt_closed(uv_handle_t *handle)
{
	struct attempt *a = handle->data;

	if (--a->handles == 0) {
		free(a->body);
		free(a);
	}
}

static void on_retry(uv_timer_t *timer)
{
	send_next(timer->data);
}

/* It is over: `again` ms until the next attempt with the same, or 0: done with it. */
static void attempt_end(struct attempt *a, bool again, uint64_t after_ms)
{
	struct otlp *o = a->otlp;

	if (a->over)
		return;
	a->over = true;
	a->otlp = NULL;
	uv_timer_stop(&a->timer);
	uv_close((uv_handle_t *)&a->timer, attempt_closed);
	if (a->tcp_made)
		uv_close((uv_handle_t *)&a->tcp, attempt_closed);
	if (a->looking)
		uv_cancel((uv_req_t *)&a->lookup);
	o->attempt = NULL;
	if (again && !o->ending) {
		enqueue(o, a->body, a->length, true);
		a->body = NULL;
		o->stats.failed++;
		o->pause_ms = after_ms				? after_ms
			      : !o->pause_ms			? PAUSE_FIRST_MS
			      : o->pause_ms * 2 < PAUSE_MOST_MS ? o->pause_ms * 2
								: PAUSE_MOST_MS;
		/* so that a thousand hosts do not come back at one moment */
		uv_timer_start(&o->retry, on_retry, o->pause_ms + uv_hrtime() / 1000 % 500, 0);
	} else if (!o->ending) {
		o->pause_ms = 0;
		send_next(o);
	}
	otlp_release(o);
}

static void complain(struct otlp *o, const char *why)
{
	/* once, until it goes well again */
	if (!o->complained)
		server_log("otlp: %s:%s: %s", o->host, o->port, why);
	o->complained = true;
}

static void attempt_failed(struct attempt *a, const char *why)
{
	if (a->over)
		return;
	complain(a->otlp, why);
	/* of a host with several addresses another one may be there ("localhost" is ::1 first) */
	a->otlp->turn++;
	a->otlp->failed = a->address;
	attempt_end(a, true, 0);
}

static void on_timeout(uv_timer_t *timer)
{
	attempt_failed(timer->data, "no answer in time");
}

/* Seconds of a Retry-After, in ms; 0: none. */
static uint64_t retry_after(const char *answer)
{
	static const char name[] = "\r\nretry-after:";

	for (const char *p = answer; *p; p++)
		if (!strncasecmp(p, name, sizeof(name) - 1)) {
			const long seconds = strtol(p + sizeof(name) - 1, NULL, 10);

			return seconds <= 0 ? 0 : (uint64_t)(seconds > 600 ? 600 : seconds) * 1000;
		}
	return 0;
}

/* Of "HTTP/1.1 200 OK"; 0 if it is no such line. */
static int status_of(const char *answer)
{
	static const char version[] = "HTTP/1.";
	const size_t length = sizeof(version) - 1;

	if (strncmp(answer, version, length) != 0 || !answer[length] ||
	    strspn(answer + length + 1, " ") == 0)
		return 0;
	answer += length + 1;
	answer += strspn(answer, " ");
	if (strspn(answer, "0123456789") != 3)
		return 0;
	return (int)strtol(answer, NULL, 10);
}

static void answered(struct attempt *a)
{
	struct otlp *o = a->otlp;
	const int status = status_of(a->answer);
	char why[64];

	if (!status) {
		attempt_failed(a, "what it answers is not HTTP");
		return;
	}
	if (status >= 200 && status < 300) {
		o->stats.sent++;
		if (o->complained)
			server_log("otlp: %s:%s: takes exports again", o->host, o->port);
		o->complained = false;
		attempt_end(a, false, 0);
		return;
	}
	snprintf(why, sizeof(why), "it answers with status %d", status);
	complain(o, why);
	if (status == 408 || status == 429 || status == 502 || status == 503 || status == 504) {
		attempt_end(a, true, retry_after(a->answer));
		return;
	}
	o->stats.failed++;
	o->stats.dropped++;
	attempt_end(a, false, 0);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
	struct attempt *a = handle->data;

	(void)suggested;
	*buf = uv_buf_init(a->answer + a->got, (unsigned)(ANSWER_MAX - a->got));
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf)
{
	struct attempt *a = stream->data;

	(void)buf;
	if (a->over)
		return;
	if (count > 0)
		a->got += (size_t)count;
	a->answer[a->got] = '\0';
	/* the head says all that is of interest */
	if (strstr(a->answer, "\r\n\r\n"))
		answered(a);
	else if (count < 0 || a->got == ANSWER_MAX)
		attempt_failed(a, count == UV_EOF || count >= 0 ? "it hangs up without an answer"
								: uv_strerror((int)count));
}

static void on_written(uv_write_t *write, int status)
{
	struct attempt *a = write->data;

	if (status < 0 && !a->over && status != UV_EPIPE && status != UV_ECONNRESET)
		attempt_failed(a, uv_strerror(status));
	/* one that hangs up early may have said why: that is read next */
}

static void on_connected(uv_connect_t *connect, int status)
{
	struct attempt *a = connect->data;
	uv_buf_t parts[2];
	bool six;
	int n;

	/* given up in between: nobody waits for it any more, a->otlp is NULL */
	if (a->over)
		return;
	if (status < 0) {
		attempt_failed(a, uv_strerror(status));
		return;
	}
	/* An address of IPv6 stands in brackets (RFC 3986, 3.2.2). */
	six = strchr(a->otlp->host, ':') != NULL;
	n = snprintf(a->head, sizeof(a->head),
		     "POST %s HTTP/1.1\r\nHost: %s%s%s:%s\r\nUser-Agent: dinst/%s\r\n"
		     "Content-Type: application/json\r\nContent-Length: %zu\r\n"
		     "Connection: close\r\n\r\n",
		     a->otlp->path, six ? "[" : "", a->otlp->host, six ? "]" : "", a->otlp->port,
		     DINST_VERSION, a->length);
	parts[0] = uv_buf_init(a->head, (unsigned)n);
	parts[1] = uv_buf_init(a->body, (unsigned)a->length);
	a->write.data = a;
	uv_read_start((uv_stream_t *)&a->tcp, on_alloc, on_read);
	if (uv_write(&a->write, (uv_stream_t *)&a->tcp, parts, 2, on_written) != 0)
		attempt_failed(a, "cannot write");
}

/*
 * Its turn, but not the one that has just failed: many servers give them in another order each time. The list
 * has one at least.
 */
static const struct addrinfo *address_of_turn(const struct otlp *o, const struct addrinfo *list)
{
	const struct addrinfo *at, *after;
	unsigned count = 1, turn;

	for (at = list->ai_next; at; at = at->ai_next)
		count++;
	at = list;
	for (turn = o->turn % count; turn; turn--)
		at = at->ai_next;
	for (after = at; count && !memcmp(after->ai_addr, &o->failed, after->ai_addrlen); count--)
		after = after->ai_next ? after->ai_next : list;
	return count ? after : at;
}

static void on_found(uv_getaddrinfo_t *lookup, int status, struct addrinfo *list)
{
	struct attempt *a = lookup->data;
	const struct addrinfo *to;
	int err;

	a->looking = false;
	if (!a->over && status < 0) {
		attempt_failed(a, uv_strerror(status));
	} else if (!a->over) {
		uv_tcp_init(&a->otlp->server->loop, &a->tcp);
		a->tcp.data = a->connect.data = a;
		a->tcp_made = true;
		a->handles++;
		to = address_of_turn(a->otlp, list);
		memcpy(&a->address, to->ai_addr, to->ai_addrlen);
		err = uv_tcp_connect(&a->connect, &a->tcp, to->ai_addr, on_connected);
		if (err)
			attempt_failed(a, uv_strerror(err));
	}
	uv_freeaddrinfo(list);
	/* the lookup counts as a handle: it uses what is freed with the last of them */
	if (--a->handles == 0) {
		free(a->body);
		free(a);
	}
}

static void send_next(struct otlp *o)
{
	static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct attempt *a;
	struct export *x = o->queue;

	if (!x || o->attempt || o->ending || uv_is_active((uv_handle_t *)&o->retry))
		return;
	a = calloc(1, sizeof(*a));
	if (!a)
		return;
	o->queue = x->next;
	o->queued--;
	o->bytes -= x->length;
	a->body = x->body;
	a->length = x->length;
	free(x);
	a->otlp = o;
	a->lookup.data = a->timer.data = a;
	o->attempt = a;
	o->references++;
	uv_timer_init(&o->server->loop, &a->timer);
	uv_timer_start(&a->timer, on_timeout, OTLP_TIMEOUT_MS, 0);
	a->handles = 2;
	a->looking = true;
	if (uv_getaddrinfo(&o->server->loop, &a->lookup, on_found, o->host, o->port, &hints) != 0) {
		a->looking = false;
		a->handles--;
		attempt_failed(a, "cannot look it up");
	}
}

/* ---------------------------------------------------------------- the values */

static void add_resources(struct server *s, struct otlp_resource *to, size_t count)
{
	char host[256] = "unknown";
	size_t n = 0;

	uv_os_gethostname(host, &(size_t){sizeof(host)});
	to[n++] = (struct otlp_resource){NULL, json_pack("{s:s, s:s, s:s, s:o}", "service.name",
							 "dinstd", "service.version", DINST_VERSION,
							 "telemetry.sdk.name", "dinst", "host.name",
							 rpc_text(host))};
	for (struct session *se = s->sessions; se && n < count; se = se->next)
		to[n++] = (struct otlp_resource){
			se->name,
			json_pack("{s:o, s:s, s:i, s:o, s:s, s:o}", "service.name",
				  rpc_text(se->process), "dinst.session", se->name, "process.pid",
				  (int)se->pid, "process.executable.name", rpc_text(se->process),
				  "telemetry.sdk.name", "dinst", "host.name", rpc_text(host))};
}

static char *make_body(struct server *s, size_t *length)
{
	const size_t count = session_count(s) + 1;
	struct otlp_resource *resources = calloc(count, sizeof(*resources));
	struct exposition *x = expose(s);
	struct timespec now;
	char *body = NULL;

	clock_gettime(CLOCK_REALTIME, &now);
	if (resources && x) {
		add_resources(s, resources, count);
		body = otlp_json(x, resources, count,
				 (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec, length);
		for (size_t i = 0; i < count; i++)
			json_decref(resources[i].attributes);
	}
	exposition_free(x);
	free(resources);
	return body;
}

static void values_ready(void *arg)
{
	struct otlp *o = arg;
	size_t length = 0;
	char *body = o->ending ? NULL : make_body(o->server, &length);

	if (body)
		enqueue(o, body, length, false);
	else if (!o->ending)
		o->stats.dropped++;
	send_next(o);
	otlp_release(o);
}

static void on_tick(uv_timer_t *timer)
{
	struct otlp *o = timer->data;

	o->references++;
	snapshot_wait(o->server, values_ready, o);
}

/* ----------------------------------------------------------------- interface */

/* Printable, without what would end a line or a word of a request. */
static bool is_plain(const char *text)
{
	for (; *text; text++)
		if (*text <= ' ' || *text > '~')
			return false;
	return true;
}

static int parse_url(struct otlp *o, const char *url, struct dinst_error *e)
{
	static const char http[] = "http://";
	const char *host = url + sizeof(http) - 1, *end, *colon;
	unsigned long long port = 4318;
	char number[8] = "";

	if (strncasecmp(url, http, sizeof(http) - 1) != 0 || !is_plain(url))
		return dinst_fail(e, DINST_USAGE,
				  "'%.100s' is no URL that starts with http:// (for https, let a "
				  "collector on this host forward it)",
				  url);
	end = host + strcspn(host, "/");
	colon = end;
	while (colon > host && isdigit((unsigned char)colon[-1]))
		colon--;
	if (colon > host && colon[-1] == ':' && colon < end) {
		snprintf(number, sizeof(number), "%.*s", (int)(end - colon), colon);
		colon--;
	} else {
		colon = end;
	}
	if (host[0] == '[' && colon > host + 1 && colon[-1] == ']')
		snprintf(o->host, sizeof(o->host), "%.*s", (int)(colon - host) - 2, host + 1);
	else
		snprintf(o->host, sizeof(o->host), "%.*s", (int)(colon - host), host);
	if (!o->host[0] || (number[0] && (!parse_number(number, 65535, &port) || !port)) ||
	    strlen(end) >= sizeof(o->path))
		return dinst_fail(e, DINST_USAGE, "'%.100s' is no URL of a receiver", url);
	snprintf(o->port, sizeof(o->port), "%llu", port);
	snprintf(o->path, sizeof(o->path), "%s", end[0] && end[1] ? end : "/v1/metrics");
	return 0;
}

int otlp_start(struct server *s, const char *url, unsigned interval_s, struct dinst_error *e)
{
	struct otlp *o = calloc(1, sizeof(*o));

	if (!o)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for exports");
	if (parse_url(o, url, e) != 0) {
		free(o);
		return e->code;
	}
	o->server = s;
	o->interval_s = interval_s;
	o->references = 3;
	uv_timer_init(&s->loop, &o->tick);
	uv_timer_init(&s->loop, &o->retry);
	o->tick.data = o->retry.data = o;
	uv_timer_start(&o->tick, on_tick, (uint64_t)interval_s * 1000, (uint64_t)interval_s * 1000);
	s->otlp = o;
	server_log("exporting to http://%s:%s%s every %u s", o->host, o->port, o->path, interval_s);
	return 0;
}

static void timer_closed(uv_handle_t *handle)
{
	otlp_release(handle->data);
}

void otlp_end(struct server *s)
{
	struct otlp *o = s->otlp;

	if (!o)
		return;
	s->otlp = NULL;
	o->ending = true;
	if (o->attempt)
		attempt_end(o->attempt, false, 0);
	while (o->queue)
		drop_first(o);
	uv_close((uv_handle_t *)&o->tick, timer_closed);
	uv_close((uv_handle_t *)&o->retry, timer_closed);
	otlp_release(o);
}

bool otlp_stats(const struct server *s, struct otlp_stats *out)
{
	if (!s->otlp)
		return false;
	*out = s->otlp->stats;
	out->queued = s->otlp->queued + (s->otlp->attempt != NULL);
	return true;
}
