/* SPDX-License-Identifier: MIT */
/*
 * session.c - the table of sessions: names, states, their mutators' deaths.
 *
 * Owns the life of a session from attach to detach, and what happens when its
 * mutator dies in between: the calls are answered, another mutator takes the
 * target over, and the next client is told. Never touches the target itself.
 */
#include "daemon/server/heat.h"
#include "daemon/server/sampler.h"
#include "daemon/server/server.h"
#include "daemon/server/snapshot.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATIENCE_MS = 5000 }; /* with whom takes out what a session leaves that gave way */

/* ------------------------------------------------------------- their news */

/* Remembers something for the next client that asks. */
static void session_news(struct session *se, const char *text)
{
	free(se->news);
	se->news = strdup(text);
}

static void session_event(struct session *se, const char *kind, const char *text)
{
	json_t *params = json_pack("{s:s,s:s,s:o}", "kind", kind, "session", se->name, "text",
				   rpc_text(text));

	if (peers_notify(se->server, se, "event", params) == 0)
		session_news(se, text);
	json_decref(params);
}

void session_tell_news(struct session *se, struct request *r)
{
	json_t *params;

	if (!se->news || !r->peer || !r->id)
		return;
	params = json_pack("{s:s,s:s,s:o}", "kind", "news", "session", se->name, "text",
			   rpc_text(se->news));
	request_notify(r, "event", params);
	json_decref(params);
	free(se->news);
	se->news = NULL;
}

void session_status(struct session *se, const struct reply *reply)
{
	struct dinst_error e = {0, ""};
	const char *state;
	json_t *status;

	if (!reply->result.text)
		return;
	status = rpc_load(reply->result.text, reply->result.length, &e);
	if (!json_is_object(status)) {
		json_decref(status);
		return;
	}
	state = json_string_value(json_object_get(status, "state"));
	if (state && strcmp(state, "exited") == 0 && se->state == SESSION_LIVE)
		se->state = SESSION_EXITED;
	json_decref(se->status);
	se->status = status;
}

static const char *state_word(const struct session *se)
{
	const char *word = json_string_value(json_object_get(se->status, "state"));

	switch (se->state) {
	case SESSION_ATTACHING:
		return "attaching";
	case SESSION_RESTARTING:
		return "restarting";
	case SESSION_EXITED:
		return "exited";
	case SESSION_LOST:
		return "lost";
	case SESSION_LIVE:
		break;
	}
	if (se->held)
		return "held";
	return word ? word : "running";
}

json_t *session_row(const struct session *se, const char *busy)
{
	json_t *row = json_object();
	const char *key;
	json_t *value;

	/* the order of the keys is the order in which they are printed */
	json_object_set_new(row, "session", json_string(se->name));
	json_object_set_new(row, "pid", json_integer(se->pid));
	json_object_set_new(row, "name", rpc_text(se->process));
	json_object_set_new(row, "state", json_string(state_word(se)));
	json_object_set_new(row, "points", json_integer(0));
	json_object_set_new(row, "active", json_integer(0));
	json_object_set_new(row, "queued", json_integer(0));
	json_object_set_new(row, "heap_bytes", json_integer(0));
	json_object_foreach(se->status, key, value)
	{
		if (strcmp(key, "session") != 0 && strcmp(key, "pid") != 0 &&
		    strcmp(key, "state") != 0)
			json_object_set(row, key, value);
	}
	if (busy)
		json_object_set_new(row, "busy", json_string(busy));
	sampler_tell(se, row);
	if (se->state == SESSION_LOST && se->why[0])
		json_object_set_new(row, "why", rpc_text(se->why));
	return row;
}

/* ---------------------------------------------------------------- deaths */

static void session_died(void *owner, const char *why);
static void session_notified(void *owner, const char *method, json_t *params);

static const struct mutator_events session_events = {session_died, session_notified};

bool session_target_is_there(const struct session *se)
{
	return !process_ended(se->pid, se->start);
}

/* Without a mutator from here on. */
static void session_lose(struct session *se, enum session_state state, const char *why)
{
	se->state = state;
	snprintf(se->why, sizeof(se->why), "%s", why);
	session_news(se, why);
	server_log("session %s: %s", se->name, why);
}

/* Nobody is left who could take out what is in the target. */
static void session_forsake(struct session *se, const char *why, const char *failure)
{
	char text[DINST_ERROR_TEXT];

	snprintf(text, sizeof(text), "%.500s%s%.400s; dinst repair %d takes out what it left", why,
		 failure[0] ? ", and another one could not take over: " : "", failure,
		 (int)se->pid);
	session_lose(se, SESSION_LOST, text);
}

static void restart_done(void *arg, const struct reply *reply)
{
	struct session *se = arg;
	struct dinst_error e = {0, ""};
	struct mutator *m = se->mutator;
	char text[DINST_ERROR_TEXT];
	json_t *answer;

	if (!se->closing && reply->failure.code && reply->failure.code != DINST_DAEMON) {
		/* it was not even asked, or its answer was too long: it lives */
		se->mutator = NULL;
		snprintf(text, sizeof(text), "the mutator of %s died", se->name);
		session_forsake(se, text, reply->failure.text);
		mutator_release(m, se->why);
		return;
	}
	if (se->closing || reply->failure.code)
		return; /* session_died() comes next, or the end */
	if (reply->error.text) {
		answer = rpc_load(reply->error.text, reply->error.length, &e);
		rpc_error_read(answer, &e);
		json_decref(answer);
		se->mutator = NULL;
		/* whatever it says: what it could not see may be there */
		if (session_target_is_there(se)) {
			snprintf(text, sizeof(text), "the mutator of %s died", se->name);
			session_forsake(se, text, e.text);
		} else {
			snprintf(text, sizeof(text),
				 "the mutator of %s died, and its target has ended: %.300s",
				 se->name, e.text);
			session_lose(se, SESSION_EXITED, text);
			repair_orphan(se->server, se->pid, se->start, se->maker);
		}
		mutator_release(m, se->why);
		return;
	}
	answer = rpc_load(reply->result.text, reply->result.length, &e);
	json_decref(se->attached);
	se->attached = json_is_object(answer) ? json_incref(answer) : json_object();
	json_decref(answer);
	json_decref(se->status);
	se->status = NULL;
	se->state = SESSION_LIVE;
	se->over = se->taken = false;
	server_log("session %s: mutator %d took over", se->name, (int)mutator_pid(se->mutator));
}

static void session_died(void *owner, const char *why)
{
	struct session *se = owner;
	uint64_t now = uv_now(&se->server->loop);
	struct dinst_error e = {0, ""};
	char text[DINST_ERROR_TEXT];
	json_t *params;

	/* a program that is held stays so until its client lets it go, or goes itself */
	if (se->state != SESSION_RESTARTING)
		se->maker = mutator_identity(se->mutator);
	se->mutator = NULL;
	sampler_lost(se);
	snapshot_lost(se);
	heat_close(se);
	hold_lost(se);
	snprintf(text, sizeof(text), "%s: %.300s", se->name, why);
	if (!session_target_is_there(se)) {
		session_lose(se, SESSION_EXITED, text);
		repair_orphan(se->server, se->pid, se->start, se->maker);
		return;
	}
	if (se->state == SESSION_EXITED) {
		session_forsake(se, text, "");
		return;
	}
	if (se->restarts == 0 || now - se->first_restart > RESTART_SPAN_MS) {
		se->restarts = 0;
		se->first_restart = now;
	}
	if (++se->restarts > RESTARTS_MAX) {
		snprintf(text, sizeof(text),
			 "%s: %.300s; it died %d times in a minute and is not started again",
			 se->name, why, RESTARTS_MAX + 1);
		session_forsake(se, text, "");
		return;
	}
	se->mutator = mutator_start(se->server, &session_events, se, &e);
	if (!se->mutator) {
		session_forsake(se, text, e.text);
		return;
	}
	se->state = SESSION_RESTARTING;
	snprintf(text, sizeof(text), "%s: %.300s and was started again; what was inserted is gone",
		 se->name, why);
	params = json_pack("{s:i,s:s,s:I,s:I}", "pid", (int)se->pid, "session", se->name,
			   "first_id", se->next_id, "start", (json_int_t)se->start);
	mutator_call(se->mutator, "attach", params, NULL, restart_done, se);
	json_decref(params);
	if (!se->mutator)
		return;
	session_reload(se);
	/* last: who cannot be told is let go, and with him, perhaps, the session: it is detached, behind that */
	session_event(se, "restarted", text);
	session_news(se, text);
}

static void session_notified(void *owner, const char *method, json_t *params)
{
	struct session *se = owner;
	const char *kind = json_string_value(json_object_get(params, "kind"));
	const char *text = json_string_value(json_object_get(params, "text"));
	const json_int_t next = json_integer_value(json_object_get(params, "next"));

	if (strcmp(method, "armed") == 0) {
		if (se->opening)
			request_notify(se->opening, "armed", params);
		return;
	}
	se->cleaning |= strcmp(method, "leftovers") == 0;
	if (strcmp(method, "numbered") == 0 && next > se->next_id && next <= INT_MAX)
		se->next_id = next;
	if (strcmp(method, "event") != 0 || !kind)
		return;
	if (strcmp(kind, "exited") == 0 && se->state == SESSION_LIVE)
		se->state = SESSION_EXITED;
	se->taken |= strcmp(kind, "taken") == 0;
	se->over |= strcmp(kind, "exec") == 0 || se->taken;
	server_log("session %s: %s", se->name, text ? text : kind);
	session_event(se, kind, text ? text : kind);
}

/* -------------------------------------------------------- opening, closing */

static bool is_over(const struct session *se)
{
	return se->state == SESSION_EXITED || se->state == SESSION_LOST ||
	       !session_target_is_there(se);
}

/* "redis-server", or with a number, so that no session that is not over has it. */
static void unique_name(struct server *s, const char *process, char *name)
{
	const struct session *other;
	char base[PROCESS_NAME_MAX];

	snprintf(base, sizeof(base), "%s", process);
	session_name_clean(base);
	snprintf(name, PROCESS_NAME_MAX, "%s", base);
	for (unsigned n = 2; (other = session_named(s, name)) && !is_over(other); n++)
		snprintf(name, PROCESS_NAME_MAX, "%.50s-%u", base, n);
}

static void give_way(struct session *se, struct session *to, const char *why);

/* It may be a session's, and none has it but one that is over. */
static int check_name(struct server *s, const char *name, struct dinst_error *e)
{
	const struct session *other = session_named(s, name);

	if (!session_name_ok(name))
		return dinst_fail(e, DINST_USAGE,
				  "'%.80s' cannot be a session's name: it takes 1 to 63 printable "
				  "characters without blanks and quotes, and not only digits",
				  name);
	if (other && !is_over(other))
		return dinst_fail(e, DINST_BUSY, "the name '%s' is taken by the session of pid %d",
				  name, (int)other->pid);
	return 0;
}

int session_open(struct server *s, pid_t pid, const char *name, const char *program,
		 struct session **out, struct dinst_error *e)
{
	struct session *se, **at = &s->sessions;
	struct session *same;

	if (name && check_name(s, name, e) != 0)
		return e->code;
	se = calloc(1, sizeof(*se));
	if (!se)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for a session");
	se->server = s;
	se->opened_ns = uv_hrtime();
	se->pid = pid;
	se->start = process_start(pid);
	if (process_name(pid, se->process, e) != 0)
		goto fail;
	if (program)
		snprintf(se->process, sizeof(se->process), "%.63s", program);
	/* before anybody gives way to it */
	se->mutator = mutator_start(s, &session_events, se, e);
	if (!se->mutator)
		goto fail;
	same = name ? session_named(s, name) : NULL;
	if (same)
		give_way(same, se, "its name was taken by a new session");
	same = session_of_pid(s, pid);
	if (same)
		give_way(same, se, "a new session takes its place");
	if (name) {
		snprintf(se->name, sizeof(se->name), "%s", name);
	} else {
		/* a session of the same program that is over gives its name: they would become ever more */
		unique_name(s, se->process, se->name);
		same = session_named(s, se->name);
		if (same)
			give_way(same, se, "a new session takes its name");
	}
	while (*at)
		at = &(*at)->next;
	*at = se;
	*out = se;
	return 0;
fail:
	free(se);
	return e->code;
}

static void attach_failed(struct session *se, struct request *r, const struct reply *reply)
{
	struct server *s = se->server;
	pid_t pid = se->pid;
	uint64_t start = se->start;
	bool died = reply->failure.code != 0 && !se->closing;

	if (reply->error.text && !se->closing)
		request_reply_last(r, reply, se->mutator);
	else
		request_reply(r, reply);
	if (!se->closing)
		session_close(se, "it could not be attached");
	if (died && !process_ended(pid, start))
		repair_orphan(s, pid, start, (struct maker){0, 0});
}

static void attach_done(void *arg, const struct reply *reply)
{
	struct session *se = arg;
	struct request *r = se->opening;
	struct dinst_error e = {0, ""};
	json_t *answer = NULL;

	se->opening = NULL;
	if (reply->result.text)
		answer = rpc_load(reply->result.text, reply->result.length, &e);
	if (!json_is_object(answer)) {
		struct reply bad = *reply;

		json_decref(answer);
		if (reply->result.text) {
			dinst_fail(&bad.failure, DINST_PROTOCOL,
				   "the mutator's answer is not an object");
			bad.result.text = NULL;
		}
		attach_failed(se, r, &bad);
		return;
	}
	se->state = SESSION_LIVE;
	se->attached = answer;
	/* catch_exec: the program has its own name only now */
	process_name(se->pid, se->process, NULL);
	if (se->held) {
		se->holder = r->peer;
		if (!r->peer)
			session_release_target(se);
	} else if (r->peer) {
		r->peer->session = se;
	}
	request_result_text(r, reply->result);
}

void session_begin(struct session *se, const char *method, struct request *r)
{
	json_t *params = json_pack("{s:i,s:s,s:I}", "pid", (int)se->pid, "session", se->name,
				   "start", (json_int_t)se->start);

	/* What is just being taken out of it by another mutator is no reason to refuse it. */
	if (se->follows)
		json_object_set_new(params, "patience_ms", json_integer(PATIENCE_MS));
	se->state = SESSION_ATTACHING;
	se->opening = r;
	se->held = strcmp(method, "catch_exec") == 0;
	if (r->peer)
		r->peer->session = se;
	server_log("session %s: %s pid %d by mutator %d", se->name, method, (int)se->pid,
		   (int)mutator_pid(se->mutator));
	mutator_call(se->mutator, method, params, r, attach_done, se);
	json_decref(params);
}

/*
 * What holds a program is a plain SIGSTOP, which we can end as well: the mutator
 * that made it may be dead, and its successor knows nothing of it. Whether it stands
 * still is not asked: it may be about to, or be in a stop of whoever traces it just now.
 */
static void session_continue(struct session *se)
{
	se->held = false;
	se->holder = NULL;
	if (session_target_is_there(se)) {
		server_log("session %s: pid %d goes on", se->name, (int)se->pid);
		kill(se->pid, SIGCONT);
	}
}

void session_released(struct session *se, const struct reply *reply)
{
	struct dinst_error e = {0, ""};
	json_t *answer = NULL;
	bool released;

	if (reply->result.text)
		answer = rpc_load(reply->result.text, reply->result.length, &e);
	else
		server_log("session %s: its mutator could not release the target", se->name);
	released = json_is_true(json_object_get(answer, "released"));
	json_decref(answer);
	/* it may run for long before that is told: what has stopped it meanwhile is not ours */
	se->held = false;
	se->holder = NULL;
	if (!released)
		session_continue(se);
}

static void release_done(void *arg, const struct reply *reply)
{
	session_released(arg, reply);
}

void session_release_target(struct session *se)
{
	/* while it is attached to, attach_done() sees that the client has gone */
	if (!se->held || se->state == SESSION_ATTACHING)
		return;
	se->held = false;
	se->holder = NULL;
	if (se->mutator && se->state == SESSION_LIVE)
		mutator_call(se->mutator, "release", NULL, NULL, release_done, se);
	else
		session_continue(se);
}

/* With `detach` its mutator, where it has one, takes out what there is before it ends. */
static void close_session(struct session *se, const char *why, bool detach)
{
	struct server *s = se->server;
	struct session **at = &s->sessions;

	se->closing = true;
	sampler_close(se);
	while (*at != se)
		at = &(*at)->next;
	*at = se->next;
	server_log("session %s closed: %s", se->name, why);
	if (se->mutator && detach)
		detach_orphan(se);
	if (se->mutator)
		mutator_release(se->mutator, why);
	if (se->held)
		session_continue(se);
	for (struct peer *p = s->peers; p; p = p->next)
		if (p->session == se)
			p->session = NULL;
	hold_release(se);
	json_decref(se->attached);
	json_decref(se->status);
	json_decref(se->texts);
	json_decref(se->recording);
	snapshot_close(se);
	heat_close(se);
	free(se->news);
	free(se);
	server_busy(s);
}

void session_close(struct session *se, const char *why)
{
	close_session(se, why, false);
}

/*
 * Children that its target has forked may live on with what was inserted: nobody could name them any more. The
 * new session may be of one of them.
 */
static void give_way(struct session *se, struct session *to, const char *why)
{
	to->follows |= se->mutator != NULL;
	close_session(se, why, true);
}
