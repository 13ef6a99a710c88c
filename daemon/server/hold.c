/* SPDX-License-Identifier: MIT */
/*
 * hold.c - what lasts no longer than a client's connection: instances that it inserted,
 * and the session that it attached for itself alone (`hold`: true in docs/protocol.md).
 *
 * Owns the list of holds of a session. Never takes out what somebody else inserted, and
 * never detaches a session that somebody else has joined or inserted something into.
 */
#include "daemon/server/server.h"

#include <stdio.h>
#include <stdlib.h>

struct hold {
	struct hold *next; /* of the session's */
	struct peer *peer;
	json_t *ids; /* of instances */
};

/* ------------------------------------------------------------------ keeping */

static struct hold *hold_of(struct session *se, const struct peer *p)
{
	struct hold *h = se->holds;

	while (h && h->peer != p)
		h = h->next;
	return h;
}

/* NULL without memory. */
static struct hold *hold_get(struct session *se, struct peer *p)
{
	struct hold *h = hold_of(se, p);

	if (h)
		return h;
	h = calloc(1, sizeof(*h));
	if (!h)
		return NULL;
	h->peer = p;
	h->ids = json_array();
	h->next = se->holds;
	se->holds = h;
	return h;
}

static void hold_free(struct hold *h)
{
	json_decref(h->ids);
	free(h);
}

void hold_release(struct session *se)
{
	while (se->holds) {
		struct hold *h = se->holds;

		se->holds = h->next;
		hold_free(h);
	}
}

void hold_lost(struct session *se)
{
	for (struct hold *h = se->holds; h; h = h->next)
		json_array_clear(h->ids);
}

void hold_session(struct session *se, struct request *r, bool held)
{
	if (!held || (r->peer && !hold_get(se, r->peer)))
		se->transient = false;
}

static const char *id_key(json_t *id, char key[24])
{
	snprintf(key, 24, "%lld", (long long)json_integer_value(id));
	return key;
}

/* Thousands may go at once: looked up by their text. */
static void hold_forget(struct hold *h, json_t *gone)
{
	json_t *left = json_array(), *id;
	size_t index;
	char key[24];

	json_array_foreach(h->ids, index, id) if (!json_object_get(gone, id_key(id, key)))
		json_array_append(left, id);
	json_decref(h->ids);
	h->ids = left;
}

void hold_removed(struct session *se, struct rpc_span result)
{
	json_t *answer, *row, *gone;
	struct dinst_error e = {0, ""};
	size_t index;
	char key[24];

	if (!se->holds)
		return;
	answer = rpc_load(result.text, result.length, &e);
	gone = json_object();
	json_array_foreach(json_object_get(answer, "rows"), index, row)
		json_object_set_new(gone, id_key(json_object_get(row, "id"), key), json_null());
	for (struct hold *h = se->holds; h; h = h->next)
		hold_forget(h, gone);
	json_decref(gone);
	json_decref(answer);
}

/* ----------------------------------------------------------------- removing */

/* Instances that are to go: all at once, and if that fails (one is gone already) one by one. */
struct removal {
	struct session *session;
	json_t *ids;
	struct request *request; /* who waits for the end of it; may be NULL */
	unsigned calls;
};

static void removal_end(struct removal *m)
{
	struct session *se = m->session;

	if (m->request)
		request_result(m->request,
			       json_pack("{s:s,s:i,s:i,s:i,s:b}", "session", se->name, "restored",
					 0, "left", 0, "stop_us", 0, "kept", 1));
	json_decref(m->ids);
	free(m);
}

static void removed_one(void *arg, const struct reply *reply)
{
	struct removal *m = arg;

	/* whether it was there still or not there is nobody to tell */
	if (reply->error.text)
		server_log("session %s: a held instance: %.*s", m->session->name,
			   (int)reply->error.length, reply->error.text);
	if (--m->calls == 0)
		removal_end(m);
}

static void removed_all(void *arg, const struct reply *reply)
{
	struct removal *m = arg;
	struct session *se = m->session;
	json_t *params, *id;
	size_t index;

	m->calls = 1;
	if (reply->error.text && !se->closing && se->mutator)
		json_array_foreach(m->ids, index, id)
		{
			params = json_pack("{s:[O]}", "ids", id);
			m->calls++;
			mutator_call(se->mutator, "remove", params, NULL, removed_one, m);
			json_decref(params);
		}
	if (--m->calls == 0)
		removal_end(m);
}

/* Takes `ids` over; answers `r`, which may be NULL, when they are out. */
static void remove_ids(struct session *se, json_t *ids, struct request *r)
{
	struct removal *m = calloc(1, sizeof(*m));
	json_t *params;

	if (!m) {
		server_log("session %s: no memory to remove what was held", se->name);
		if (r)
			request_error(r, DINST_NO_MEMORY, "no memory to remove what was held");
		json_decref(ids);
		return;
	}
	m->session = se;
	m->ids = ids;
	m->request = r;
	if (!se->mutator || json_array_size(ids) == 0) {
		removal_end(m);
		return;
	}
	params = json_pack("{s:O}", "ids", ids);
	mutator_call(se->mutator, "remove", params, r, removed_all, m);
	json_decref(params);
}

void hold_inserted(struct session *se, struct peer *p, struct rpc_span result)
{
	struct dinst_error e = {0, ""};
	json_t *answer = rpc_load(result.text, result.length, &e), *ids = json_array(), *row;
	struct hold *h = p ? hold_get(se, p) : NULL;
	size_t index;

	json_array_foreach(json_object_get(answer, "rows"), index, row)
		json_array_append(h ? h->ids : ids, json_object_get(row, "id"));
	json_decref(answer);
	/* who asked has gone meanwhile */
	remove_ids(se, ids, NULL);
}

/* ---------------------------------------------------------------- detaching */

/* Nobody is there any more who could be told. True if something had to stay. */
static bool log_left(struct session *se, struct rpc_span result)
{
	struct dinst_error e = {0, ""};
	json_t *answer = rpc_load(result.text, result.length, &e), *note;
	const json_int_t left = json_integer_value(json_object_get(answer, "left"));
	const bool stays = left > 0 || json_is_true(json_object_get(answer, "partial"));
	size_t index;

	if (stays)
		server_log("session %s: %lld pieces had to stay in pid %d: dinst repair %d "
			   "takes them out, which is tried from here, too",
			   se->name, (long long)left, (int)se->pid, (int)se->pid);
	json_array_foreach(json_object_get(answer, "notes"), index, note) server_log(
		"session %s: %s", se->name, json_is_string(note) ? json_string_value(note) : "?");
	json_decref(answer);
	return stays;
}

/* Nobody wants the session any more; what may be left in its process is taken out all the same. */
static void forsake(struct session *se, bool stays)
{
	struct server *s = se->server;
	const struct maker maker = se->mutator ? mutator_identity(se->mutator) : se->maker;
	const uint64_t start = se->start;
	const pid_t pid = se->pid;

	session_close(se, "who attached it has gone");
	if (stays)
		repair_orphan(s, pid, start, maker);
}

static void left_detached(void *arg, const struct reply *reply)
{
	struct session *se = arg;
	struct dinst_error e = {0, ""};
	json_t *answer;
	bool stays = false;

	if (se->closing)
		return;
	se->leaving = false;
	/* its mutator died: another one may come, and is asked the same (hold_sweep()) */
	if (!reply->result.text && !reply->error.text)
		return;
	if (reply->error.text) {
		answer = rpc_load(reply->error.text, reply->error.length, &e);
		rpc_error_read(answer, &e);
		json_decref(answer);
		if (e.code != DINST_GONE && e.code != DINST_NO_SESSION) {
			server_log("session %s stays: %s", se->name, e.text);
			se->transient = false;
			return;
		}
	}
	if (reply->result.text)
		stays = log_left(se, reply->result);
	forsake(se, stays);
}

/* Detaches a session whose clients have all gone. Never closes it at once: callers may still need it. */
static void hold_check(struct session *se)
{
	if (!se->transient || se->holds || se->closing || se->leaving || !se->mutator)
		return;
	se->leaving = true;
	mutator_call(se->mutator, "detach", NULL, NULL, left_detached, se);
}

void hold_sweep(struct server *s)
{
	struct session *se, *next;

	for (se = s->sessions; se; se = next) {
		next = se->next;
		if (se->transient && !se->holds && !se->mutator && se->state != SESSION_ATTACHING)
			forsake(se, true);
		else
			hold_check(se);
	}
}

/* The last of a session that nobody else wants: it goes as a whole. */
static bool is_last(const struct session *se, const struct hold *h)
{
	return se->transient && se->holds == h && !h->next;
}

static struct hold *unlink_hold(struct session *se, struct hold *h)
{
	struct hold **at = &se->holds;

	while (*at != h)
		at = &(*at)->next;
	*at = h->next;
	return h;
}

void hold_peer_gone(struct peer *p)
{
	struct session *se, *next;

	for (se = p->server->sessions; se; se = next) {
		struct hold *h = hold_of(se, p);
		bool last = h && is_last(se, h);

		next = se->next;
		if (!h)
			continue;
		server_log("session %s: client %d has gone, %zu instances of its own go%s",
			   se->name, (int)p->pid, json_array_size(h->ids),
			   last ? " with the session" : "");
		unlink_hold(se, h);
		if (!last)
			remove_ids(se, json_incref(h->ids), NULL);
		hold_free(h);
		hold_check(se);
	}
}

bool hold_leave(struct session *se, struct request *r)
{
	struct hold *h = r->peer ? hold_of(se, r->peer) : NULL;
	json_t *ids;

	if (h && is_last(se, h))
		return false;
	if (h) {
		unlink_hold(se, h);
		ids = json_incref(h->ids);
		hold_free(h);
	} else {
		ids = json_array();
	}
	remove_ids(se, ids, r);
	return true;
}
