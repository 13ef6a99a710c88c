/* SPDX-License-Identifier: MIT */
/*
 * gather.c - what asks all mutators at once: `sessions` and `stop`.
 *
 * Owns waiting for many answers with a deadline. Never lets one mutator that
 * does not answer hold up the others.
 */
#include "daemon/server/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gather {
	struct server *server;
	struct request *request; /* NULL where nobody asked */
	json_t *rows;		 /* one per session, in order */
	json_t *notes;
	uv_timer_t timer;
	unsigned waiting;    /* calls that are out, and one until all are */
	unsigned references; /* calls, the timer, the maker */
	bool partial, answered, stop;
};

struct gather_call {
	struct gather *gather;
	struct session *session;
	size_t row;
};

static void gather_release(struct gather *g)
{
	if (--g->references == 0)
		free(g);
}

static void gather_closed(uv_handle_t *handle)
{
	gather_release(handle->data);
}

/* Nothing of a session is in use any more, as it may be where one of its calls has just been answered. */
static void gather_end(uv_timer_t *timer)
{
	struct gather *g = timer->data;
	struct server *s = g->server;

	uv_close((uv_handle_t *)timer, gather_closed);
	server_end(s);
}

static void gather_note(struct gather *g, const char *name, const char *text)
{
	char note[DINST_ERROR_TEXT + PROCESS_NAME_MAX + 8];

	server_log("stop: %s: %s", name, text);
	if (g->answered)
		return;
	g->partial = true;
	snprintf(note, sizeof(note), "%s: %s", name, text);
	json_array_append_new(g->notes, rpc_text(note));
}

static void note_orphan(void *g, const char *text)
{
	gather_note(g, "not repaired", text);
}

static void gather_answer(struct gather *g)
{
	json_t *result;

	if (g->answered)
		return;
	if (g->stop)
		orphans_tell(g->server, note_orphan, g);
	g->answered = true;
	result = json_pack("{s:o}", "rows", g->rows);
	if (g->partial)
		json_object_set_new(result, "partial", json_true());
	if (json_array_size(g->notes))
		json_object_set(result, "notes", g->notes);
	json_decref(g->notes);
	g->rows = g->notes = NULL;
	if (g->stop)
		uv_timer_start(&g->timer, gather_end, 0, 0);
	else
		uv_close((uv_handle_t *)&g->timer, gather_closed);
	if (g->request)
		request_result(g->request, result);
	else
		json_decref(result);
}

static void gather_timeout(uv_timer_t *timer)
{
	struct gather *g = timer->data;

	if (g->stop)
		gather_note(
			g, "stop",
			"a mutator did not answer in time; dinst repair TARGET takes out what it "
			"leaves");
	gather_answer(g);
}

static void gather_arrived(struct gather *g);

static void orphan_tried(void *g)
{
	gather_arrived(g);
}

/* What is being repaired comes to its end first, in time: its mutator would be ended with the daemon. */
static bool wait_for_orphans(struct gather *g)
{
	const bool wait = g->stop && !g->answered && !g->server->ending;
	const unsigned count = wait ? orphans_wait(g->server, orphan_tried, g) : 0;

	g->waiting += count;
	g->references += count;
	return count != 0;
}

/* One answer less to wait for. */
static void gather_arrived(struct gather *g)
{
	if (--g->waiting == 0 && !wait_for_orphans(g))
		gather_answer(g);
	gather_release(g);
}

static struct gather *gather_new(struct server *s, struct request *r, bool stop)
{
	struct gather *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->server = s;
	g->request = r;
	g->stop = stop;
	g->rows = json_array();
	g->notes = json_array();
	g->timer.data = g;
	uv_timer_init(&s->loop, &g->timer);
	uv_timer_start(&g->timer, gather_timeout, stop ? STOP_WAIT_MS : STATUS_WAIT_MS, 0);
	g->waiting = 1;
	g->references = 2;
	return g;
}

static bool gather_ask(struct gather *g, struct session *se, const char *method, size_t row,
		       call_done done)
{
	struct gather_call *c = calloc(1, sizeof(*c));

	if (!c)
		return false;
	c->gather = g;
	c->session = se;
	c->row = row;
	g->waiting++;
	g->references++;
	mutator_call(se->mutator, method, NULL, NULL, done, c);
	return true;
}

/* ---------------------------------------------------------------- sessions */

static void listed(void *arg, const struct reply *reply)
{
	struct gather_call *c = arg;
	struct gather *g = c->gather;

	session_status(c->session, reply);
	if (!g->answered)
		json_array_set_new(g->rows, c->row, session_row(c->session, NULL));
	free(c);
	gather_arrived(g);
}

void server_list(struct server *s, struct request *r)
{
	struct gather *g = gather_new(s, r, false);
	size_t row = 0;

	if (!g) {
		request_error(r, DINST_NO_MEMORY, "no memory for a list");
		return;
	}
	for (struct session *se = s->sessions; se; se = se->next) {
		const char *busy = se->mutator ? mutator_busy(se->mutator) : NULL;

		session_tell_news(se, r);
		json_array_append_new(g->rows, session_row(se, busy));
		/* one that is busy answers later: what it said last stands */
		if (se->mutator && !busy)
			gather_ask(g, se, "status", row, listed);
		row++;
	}
	gather_arrived(g);
}

/* -------------------------------------------------------------------- stop */

/* By a call before ours: who made that is told what came of it. */
static bool was_detached(const struct session *se)
{
	return se->closing && !se->server->ending;
}

static void stopped(void *arg, const struct reply *reply)
{
	struct gather_call *c = arg;
	struct gather *g = c->gather;
	struct session *se = c->session;
	struct dinst_error e = {0, ""};
	struct rpc_span text = reply->result.text ? reply->result : reply->error;
	json_t *answer = text.text ? rpc_load(text.text, text.length, &e) : NULL, *told;
	size_t n;

	if (reply->result.text && !g->answered) {
		/* what had to stay, and what takes it out */
		json_array_foreach(json_object_get(answer, "notes"), n, told)
			gather_note(g, se->name, json_string_value(told));
		json_array_append(g->rows, answer);
	} else if (reply->error.text) {
		rpc_error_read(answer, &e);
		if (e.code != DINST_GONE)
			gather_note(g, se->name, e.text);
	} else if (reply->failure.code && !g->answered && !was_detached(se)) {
		char text[DINST_ERROR_TEXT];

		snprintf(text, sizeof(text), "%.600s; dinst repair %d takes out what it leaves",
			 reply->failure.text, (int)se->pid);
		gather_note(g, se->name, text);
	}
	json_decref(answer);
	free(c);
	gather_arrived(g);
}

void server_stop(struct server *s, struct request *r)
{
	struct gather *g;

	if (s->stopping) {
		if (r)
			request_error(r, DINST_BUSY, "the daemon is stopping already");
		return;
	}
	s->stopping = true;
	server_log("stopping: %u sessions", session_count(s));
	g = gather_new(s, r, true);
	if (!g) {
		if (r)
			request_error(r, DINST_NO_MEMORY, "no memory to stop orderly");
		server_end(s);
		return;
	}
	for (struct session *se = s->sessions; se; se = se->next) {
		if (!se->mutator) {
			if (se->state == SESSION_LOST)
				gather_note(g, se->name, se->why);
			continue;
		}
		session_release_target(se);
		if (!gather_ask(g, se, "detach", 0, stopped))
			gather_note(g, se->name, "no memory to detach it");
	}
	gather_arrived(g);
}
