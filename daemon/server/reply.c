/* SPDX-License-Identifier: MIT */
/*
 * reply.c - what a mutator has answered, passed on to the client that asked.
 *
 * Owns the answers that wait until their mutator has ended. Never unpacks one.
 */
#include "daemon/server/server.h"

#include <stdlib.h>
#include <string.h>

struct last_reply {
	struct request *request;
	struct reply reply;
	char text[]; /* of its result or error */
};

void request_reply(struct request *r, const struct reply *reply)
{
	if (reply->result.text)
		request_result_text(r, reply->result);
	else if (reply->error.text)
		request_error_text(r, reply->error);
	else
		request_error_from(r, &reply->failure);
}

static void mutator_gone(void *arg)
{
	struct last_reply *last = arg;

	request_reply(last->request, &last->reply);
	free(last);
}

void request_reply_last(struct request *r, const struct reply *reply, struct mutator *m)
{
	const struct rpc_span *span = reply->result.text ? &reply->result : &reply->error;
	struct last_reply *last = calloc(1, sizeof(*last) + span->length);

	if (!last) {
		request_reply(r, reply);
		return;
	}
	last->request = r;
	last->reply = *reply;
	if (span->length)
		memcpy(last->text, span->text, span->length);
	if (reply->result.text)
		last->reply.result.text = last->text;
	else if (reply->error.text)
		last->reply.error.text = last->text;
	mutator_when_gone(m, mutator_gone, last);
}
