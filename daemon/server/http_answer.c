/* SPDX-License-Identifier: MIT */
/*
 * http_answer.c - answers: made once, sent by libmicrohttpd, freed when nobody needs them.
 *
 * Owns the memory that waits to be taken by clients, and the headers of all that is said.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/server/http_private.h"
#include "daemon/server/snapshot.h"

/* ------------------------------------------------------------------ answers */

/* The length of an answer stands before its bytes, for when it has been sent. */
struct payload {
	struct http *http;
	char *body;
	size_t length;
};

static void payload_sent(void *arg)
{
	struct payload *p = arg;

	p->http->unsent -= p->length;
	free(p->body);
	free(p);
}

static ssize_t payload_read(void *arg, uint64_t at, char *to, size_t most)
{
	const struct payload *p = arg;
	size_t n = p->length > at ? p->length - (size_t)at : 0;

	if (n > most)
		n = most;
	memcpy(to, p->body + at, n);
	return n ? (ssize_t)n : MHD_CONTENT_READER_END_OF_STREAM;
}

static void add_headers(struct MHD_Response *response, const char *type)
{
	static const char *const headers[][2] = {
		{"Content-Security-Policy",
		 "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
		 "img-src 'self' data:; base-uri 'none'; form-action 'none'; "
		 "frame-ancestors 'none'"},
		{"X-Content-Type-Options", "nosniff"},
		{"X-Frame-Options", "DENY"},
		{"Referrer-Policy", "no-referrer"},
		{"Cross-Origin-Resource-Policy", "same-origin"},
		{"Cache-Control", "no-store"},
	};

	MHD_add_response_header(response, "Content-Type", type);
	for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
		MHD_add_response_header(response, headers[i][0], headers[i][1]);
}

static struct answer *answer_new(struct MHD_Response *response)
{
	struct answer *a = response ? calloc(1, sizeof(*a)) : NULL;

	if (!a) {
		if (response)
			MHD_destroy_response(response);
		return NULL;
	}
	*a = (struct answer){response, 1};
	return a;
}

void answer_release(struct answer *a)
{
	if (!a || --a->references)
		return;
	MHD_destroy_response(a->response);
	free(a);
}

/* The answer is there (NULL: none can be had): sends it, now or when the handler is called again. */
static void respond(struct exchange *ex, unsigned status, struct answer *answer)
{
	if (ex->done) {
		answer_release(answer);
		return;
	}
	ex->done = true;
	ex->answer = answer;
	ex->status = status;
	if (ex->suspended) {
		ex->suspended = false;
		MHD_resume_connection(ex->connection);
		http_wake(ex->http);
	}
}

/* Takes `body` over; NULL: no memory, or too much of it in answers that nobody takes. */
static struct answer *make_answer(struct http *h, const char *type, char *body, size_t length)
{
	struct payload *p =
		body && h->unsent + length <= HTTP_UNSENT ? calloc(1, sizeof(*p)) : NULL;
	struct MHD_Response *response;

	if (!p) {
		free(body);
		return NULL;
	}
	*p = (struct payload){h, body, length};
	h->unsent += length;
	response =
		MHD_create_response_from_callback(length, 64 << 10, payload_read, p, payload_sent);
	if (!response) {
		payload_sent(p);
		return NULL;
	}
	add_headers(response, type);
	return answer_new(response);
}

static void reply_bytes(struct exchange *ex, unsigned status, const char *type, const void *body,
			size_t length)
{
	struct MHD_Response *response =
		MHD_create_response_from_buffer(length, (void *)body, MHD_RESPMEM_PERSISTENT);

	if (response)
		add_headers(response, type);
	respond(ex, status, answer_new(response));
}

void http_reply_constant(struct exchange *ex, const char *type, const void *body, size_t length)
{
	reply_bytes(ex, MHD_HTTP_OK, type, body, length);
}

void http_reply_nothing(struct exchange *ex)
{
	static const char text[] = "{\"error\":\"too much is being asked\"}\n";

	ex->http->stats.refused++;
	reply_bytes(ex, MHD_HTTP_SERVICE_UNAVAILABLE, "application/json", text, sizeof(text) - 1);
}

void http_reply(struct exchange *ex, unsigned status, const char *type, char *body, size_t length)
{
	struct answer *answer = make_answer(ex->http, type, body, length);

	if (answer)
		respond(ex, status, answer);
	else
		http_reply_nothing(ex);
}

void http_reply_json(struct exchange *ex, unsigned status, json_t *value)
{
	char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;

	json_decref(value);
	http_reply(ex, status, "application/json", text, text ? strlen(text) : 0);
}

void http_reply_error(struct exchange *ex, unsigned status, const char *text)
{
	if (status >= 400)
		ex->http->stats.refused++;
	http_reply_json(ex, status, json_pack("{s:o}", "error", rpc_text(text)));
}

bool http_kept(struct exchange *ex, unsigned kind)
{
	struct kept *k = &ex->http->kept[kind];

	if (!k->answer || uv_hrtime() - k->made_ns > SNAPSHOT_YOUNG_MS * 1000000ULL)
		return false;
	k->answer->references++;
	respond(ex, MHD_HTTP_OK, k->answer);
	return true;
}

void http_keep(struct exchange *ex, unsigned kind, const char *type, char *body, size_t length)
{
	struct kept *k = &ex->http->kept[kind];
	struct answer *answer = make_answer(ex->http, type, body, length);

	if (!answer) {
		http_reply_nothing(ex);
		return;
	}
	answer_release(k->answer);
	k->answer = answer;
	k->made_ns = uv_hrtime();
	answer->references++;
	respond(ex, MHD_HTTP_OK, answer);
}

/* --------------------------------------------------------------- questions */

const char *http_argument(struct exchange *ex, const char *name)
{
	return MHD_lookup_connection_value(ex->connection, MHD_GET_ARGUMENT_KIND, name);
}

const char *http_header(struct exchange *ex, const char *name)
{
	return MHD_lookup_connection_value(ex->connection, MHD_HEADER_KIND, name);
}
