/* SPDX-License-Identifier: MIT */
/*
 * http_private.h - what http.c and http_answer.c know of each other.
 */
#ifndef DINST_DAEMON_HTTP_PRIVATE_H
#define DINST_DAEMON_HTTP_PRIVATE_H

#include <microhttpd.h>

#include "daemon/server/http.h"
#include "daemon/server/http_address.h"
#include "daemon/server/token.h"

enum { HTTP_KINDS = 2 }; /* of answers that are kept for all */

struct client {
	struct client *next;
	int fd;
	bool answering;	   /* a request is there; its answer is not all taken */
	bool held;	   /* it waits for us */
	uint64_t since_ms; /* loop time of the last change of these */
};

struct http {
	struct server *server;
	struct MHD_Daemon *daemon;
	struct listening place;
	uv_poll_t poll;
	uv_timer_t timer, sweep;
	unsigned handles;
	bool running, ending;
	char token[TOKEN_MAX + 1];
	struct client *clients;
	unsigned client_count;
	uint64_t accepted; /* connections */
	unsigned vain;	   /* times that nobody was there for whom there was something to do */
	bool unheard;	   /* nobody is listened to until the next sweep */
	bool unheard_told; /* and that is told in the log */
	size_t unsent;
	struct http_stats stats;
	struct kept {
		struct answer *answer;
		uint64_t made_ns;
	} kept[HTTP_KINDS];
};

/* An answer of one exchange, or of all that ask for the same at about the same time. */
struct answer {
	struct MHD_Response *response;
	unsigned references;
};

/* A connection was resumed, which shows in no descriptor: libmicrohttpd is run soon. */
void http_wake(struct http *h);
void answer_release(struct answer *a);
/* An answer that needs no memory of its own: too much is being asked. */
void http_reply_nothing(struct exchange *ex);

#endif
