/* SPDX-License-Identifier: MIT */
/*
 * http.h - the port at which values are served to Prometheus and to a browser.
 *
 * libmicrohttpd parses; its epoll descriptor is watched by the loop, so everything stays
 * in one thread. http_start() binds, http_end() closes all. What is served is in page.c.
 *
 *   who reads       loopback and unix sockets: everybody who can connect. Other addresses:
 *                   /metrics for everybody, all else with the token only
 *   who changes     nobody without the token
 *   names           a Host that is no address, no "localhost" and was not allowed is refused
 *                   (a page of somebody else's, by rebinding a name to us)
 *   bounds          HTTP_CONNECTIONS, HTTP_HEAD bytes of a request's head, HTTP_BODY of its
 *                   body, HTTP_UNSENT of all answers, times as below; where connections get
 *                   scarce, the one that has been silent longest goes
 */
#ifndef DINST_DAEMON_HTTP_H
#define DINST_DAEMON_HTTP_H

#include "daemon/server/exposition.h"
#include "daemon/server/server.h"

enum {
	HTTP_CONNECTIONS = 64,
	HTTP_CROWDED = 48, /* from here on the most silent connection is closed */
	HTTP_HEAD = 16 << 10,
	HTTP_BODY = 16 << 10,
	HTTP_UNSENT = 96 << 20,	    /* bytes of answers that are not taken */
	HTTP_SILENT_MS = 75 * 1000, /* until a request is there, and between two */
	HTTP_ANSWER_MS = 60 * 1000, /* to take an answer */
	HTTP_ADDRESS_MAX = 300,	    /* bytes of an address as text */
	HTTP_HOSTS = 16,	    /* names that are allowed */
};

struct http_options {
	const char *address; /* "127.0.0.1:9464", "[::1]:9464", "unix:PATH" */
	const char *token;   /* a file; NULL: nobody may change anything */
	const char *hosts[HTTP_HOSTS];
	unsigned host_count;
};

struct http_stats {
	uint64_t requests, refused;
};

/* DINST_USAGE: no such address; DINST_BUSY: somebody listens there; others: see the text. */
int http_start(struct server *s, const struct http_options *o, struct dinst_error *e);
/* After the sessions: nothing is asked of anybody any more. */
void http_end(struct server *s);
/* Where it is served, into text[HTTP_ADDRESS_MAX]; false: nowhere. */
bool http_address(const struct server *s, char *text);
/* "http://ADDRESS/"; a new reference. */
json_t *http_url(const char *address);
void http_stats(const struct server *s, struct http_stats *out);

/* A request, from its head to its answer. */
struct exchange {
	struct http *http;
	struct server *server;
	struct MHD_Connection *connection;
	const struct route *route;
	struct text body;
	char *session; /* of a request that waits for values; malloc'ed */
	struct answer *answer;
	unsigned status;
	bool done;	 /* it is answered; `answer` is NULL where no memory could be had for it */
	bool authorized; /* it has the token */
	bool may_write;	 /* and there is one */
	bool too_long;
	bool suspended; /* until http_reply() */
};

struct route {
	const char *path;
	const char *method; /* GET or POST */
	bool open;	    /* for everybody who can connect, on every address */
	/* Calls one of the http_reply() or http_keep(), at once or later. */
	void (*start)(struct exchange *ex);
};

/* NULL: there is none; *other: there is one of another method. */
const struct route *page_route(const char *path, const char *method, bool *other);

/* An argument behind the "?" of the URL; NULL: there is none. */
const char *http_argument(struct exchange *ex, const char *name);
/* A request's header; NULL: there is none. */
const char *http_header(struct exchange *ex, const char *name);
/* Answers. `body` is malloc'ed and taken over; NULL: no memory, which is the answer then. */
void http_reply(struct exchange *ex, unsigned status, const char *type, char *body, size_t length);
/* The same with bytes that live as long as the program. */
void http_reply_constant(struct exchange *ex, const char *type, const void *body, size_t length);
/* {"error": text} */
void http_reply_error(struct exchange *ex, unsigned status, const char *text);
void http_reply_json(struct exchange *ex, unsigned status, json_t *value); /* takes it over */

/*
 * An answer that is the same for all who ask within SNAPSHOT_YOUNG_MS: kind 0 or 1. http_kept()
 * answers with it if there is one that is young enough; http_keep() answers with a new one.
 */
bool http_kept(struct exchange *ex, unsigned kind);
void http_keep(struct exchange *ex, unsigned kind, const char *type, char *body, size_t length);

#endif
