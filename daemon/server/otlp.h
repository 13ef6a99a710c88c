/* SPDX-License-Identifier: MIT */
/*
 * otlp.h - pushing values to an OpenTelemetry receiver: OTLP/HTTP with JSON, in plain HTTP.
 *
 * Every interval the values of all sessions are put into a queue of OTLP_QUEUE requests and
 * OTLP_BYTES at most (the oldest gives way) and sent one after the other. What fails for a
 * reason that may pass (no connection, 408, 429, 502, 503, 504) is tried again, with pauses
 * that double from one second to a minute, or as Retry-After says, and where nobody answers at the
 * next one of the host's addresses; what is refused for another one is dropped. (OTLP specification, "OTLP/HTTP Response", "Failures".)
 */
#ifndef DINST_DAEMON_OTLP_H
#define DINST_DAEMON_OTLP_H

#include "daemon/server/server.h"

enum {
	OTLP_QUEUE = 16,
	OTLP_BYTES = 32 << 20,
	OTLP_SECONDS = 15,	     /* between exports, unless told otherwise */
	OTLP_TIMEOUT_MS = 10 * 1000, /* of one attempt */
};

struct otlp_stats {
	uint64_t sent, failed, dropped;
	unsigned queued;
};

/* `url`: http://HOST[:PORT][/PATH]; without a path /v1/metrics, port 4318. DINST_USAGE otherwise. */
int otlp_start(struct server *s, const char *url, unsigned interval_s, struct dinst_error *e);
void otlp_end(struct server *s);
/* False: nothing is exported. */
bool otlp_stats(const struct server *s, struct otlp_stats *out);

#endif
