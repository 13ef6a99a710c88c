/* SPDX-License-Identifier: MIT */
/*
 * methods.c - what each method of a client does.
 *
 * Owns the table of methods. Most are forwarded to the session's mutator as
 * they are; the daemon's own are few. Never unpacks a listing.
 */
#include "daemon/server/http.h"
#include "daemon/server/recording.h"
#include "daemon/server/sampler.h"
#include "daemon/server/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ------------------------------------------------------------- forwarding */

struct forward {
	struct request *request;
	struct session *session;
	json_t *params; /* of load and attach, else NULL */
	bool held;	/* goes when the client does */
	char method[16];
};

static bool inserts(const char *method)
{
	return strcmp(method, "insert") == 0 || strcmp(method, "trace") == 0;
}

static void forward_done(void *arg, const struct reply *reply)
{
	struct forward *f = arg;
	struct session *se = f->session;
	struct request *r = f->request;
	bool detached = strcmp(f->method, "detach") == 0 && reply->result.text;

	if (strcmp(f->method, "status") == 0)
		session_status(se, reply);
	if (inserts(f->method) && reply->result.text && !se->closing) {
		sampler_arm(se);
		if (f->held)
			hold_inserted(se, r->peer, reply->result);
	}
	if (strcmp(f->method, "remove") == 0 && reply->result.text)
		hold_removed(se, reply->result);
	/* One that its user has stopped, and nobody holds, stays so. */
	if (strcmp(f->method, "release") == 0 && se->held)
		session_released(se, reply);
	session_tell_news(se, r);
	if (detached && !se->closing) {
		request_reply_last(r, reply, se->mutator);
		session_close(se, "detached");
	} else {
		request_reply(r, reply);
	}
	free(f);
}

static json_t *without_session(json_t *params)
{
	json_t *copy = params ? json_copy(params) : json_object();

	json_object_del(copy, "session");
	json_object_del(copy, "hold");
	return copy;
}

static void load_done(void *arg, const struct reply *reply);

static void forward(struct session *se, struct request *r, const char *method, json_t *params,
		    call_done done)
{
	struct forward *f = calloc(1, sizeof(*f));
	json_t *copy;

	if (!f) {
		request_error(r, DINST_NO_MEMORY, "no memory for a request");
		return;
	}
	f->request = r;
	f->session = se;
	f->held = json_is_true(json_object_get(params, "hold"));
	if (inserts(method))
		hold_session(se, r, f->held);
	snprintf(f->method, sizeof(f->method), "%s", method);
	if (r->peer)
		r->peer->session = se;
	copy = without_session(params);
	if (done == load_done)
		f->params = json_incref(copy);
	mutator_call(se->mutator, method, copy, r, done, f);
	json_decref(copy);
}

static void method_forward(struct server *s, struct request *r, const char *method, json_t *params)
{
	struct dinst_error e = {0, ""};
	struct session *se = session_choose(s, params, &e);

	if (!se)
		request_error_from(r, &e);
	else if (!se->mutator)
		request_error(r, se->state == SESSION_EXITED ? DINST_GONE : DINST_DAEMON, se->why);
	else
		forward(se, r, method, params, forward_done);
}

/* ------------------------------------------------------- metrics, histories */

static void load_done(void *arg, const struct reply *reply)
{
	struct forward *f = arg;

	if (reply->result.text && !f->session->closing)
		session_keep_text(f->session, f->params);
	json_decref(f->params);
	forward_done(f, reply);
}

static void method_load(struct server *s, struct request *r, const char *method, json_t *params)
{
	struct dinst_error e = {0, ""};
	struct session *se = session_choose(s, params, &e);

	if (!se)
		request_error_from(r, &e);
	else if (!se->mutator)
		request_error(r, se->state == SESSION_EXITED ? DINST_GONE : DINST_DAEMON, se->why);
	else if (!json_is_string(json_object_get(params, "name")) ||
		 !json_is_string(json_object_get(params, "text")))
		request_error_rpc(r, RPC_PARAMS, "load takes a name and a text, two strings");
	else if (json_string_length(json_object_get(params, "text")) > TEXT_MAX)
		request_error(r, DINST_REFUSED, "a file of metrics has at most 128 KiB");
	else if (!session_has_text(se, json_object_get(params, "name")) &&
		 json_array_size(se->texts) >= TEXTS_MAX)
		request_error(r, DINST_REFUSED, "a session takes no more than 64 files of metrics");
	else
		forward(se, r, method, params, load_done);
}

/* Histories are the daemon's own: they are there whatever became of target and mutator. */
static void method_history(struct server *s, struct request *r, const char *method, json_t *params)
{
	struct dinst_error e = {0, ""};
	struct session *se = session_choose(s, params, &e);
	json_t *ids = json_object_get(params, "ids");

	(void)method;
	if (!se) {
		request_error_from(r, &e);
	} else if (ids && (!json_is_array(ids) || json_array_size(ids) > SAMPLER_RECORDS)) {
		request_error_rpc(r, RPC_PARAMS, "ids is a list of at most 4096 numbers");
	} else {
		session_tell_news(se, r);
		sampler_answer(se, r, params);
	}
}

/* ---------------------------------------------------------------- attach */

/* params.target or params.pid, as a text in number[24] or the string itself; NULL if missing. */
static const char *target_text(json_t *params, char *number)
{
	json_t *target = json_object_get(params, "target");

	if (!target)
		target = json_object_get(params, "pid");
	if (json_is_integer(target)) {
		snprintf(number, 24, "%lld", (long long)json_integer_value(target));
		return number;
	}
	return json_string_value(target);
}

static void method_attach(struct server *s, struct request *r, const char *method, json_t *params);

static void joined(void *arg, const struct reply *reply)
{
	struct forward *f = arg;
	static const char executed[] = "it has executed another program: detach, and attach again";
	static const char taken[] =
		"what was inserted has been taken out by somebody else: detach, and "
		"attach again";
	struct session *se = f->session;
	json_t *answer;
	char number[24];

	session_status(se, reply);
	session_tell_news(se, f->request);
	if (reply->failure.code && se->closing && !se->server->stopping && f->request->peer) {
		/*
		 * It was about to go: the process is to have a session all the same. Not from here:
		 * it may be another one that takes its place, and is not in the table yet.
		 */
		find_process(se->server, f->request, target_text(f->params, number), "attach",
			     f->params, method_attach);
	} else if (reply->failure.code) {
		request_error_from(f->request, &reply->failure);
	} else {
		answer = json_copy(se->attached);
		json_object_set_new(answer, "session", json_string(se->name));
		json_object_set_new(answer, "pid", json_integer(se->pid));
		json_object_set_new(answer, "joined", json_true());
		if (se->over)
			json_object_set_new(answer, "notes",
					    json_pack("[s]", se->taken ? taken : executed));
		request_result(f->request, answer);
	}
	json_decref(f->params);
	free(f);
}

static void join(struct session *se, struct request *r, json_t *params, bool held)
{
	struct forward *f = calloc(1, sizeof(*f));

	if (!f) {
		request_error(r, DINST_NO_MEMORY, "no memory for a request");
		return;
	}
	f->request = r;
	f->session = se;
	f->params = json_incref(params);
	r->peer->session = se;
	hold_session(se, r, held);
	mutator_call(se->mutator, "status", NULL, r, joined, f);
}

static bool is_ours(struct server *s, pid_t pid)
{
	for (struct session *se = s->sessions; se; se = se->next)
		if (se->mutator && mutator_pid(se->mutator) == pid)
			return true;
	return pid == getpid();
}

static bool still_there(const struct session *se)
{
	return se->mutator && se->state != SESSION_EXITED && session_target_is_there(se);
}

/* True if a target is neither a number nor the name of a session: /proc has to be asked. */
static bool must_look(struct server *s, const char *target)
{
	const struct session *found = session_named(s, target);
	unsigned long long number;

	return *target && !parse_number(target, INT_MAX, &number) && !(found && still_there(found));
}

/* Finds the process that a target names, or the live session that has it already. */
static int find_target(struct server *s, const char *target, struct session **se, pid_t *pid,
		       struct dinst_error *e)
{
	struct session *found = session_named(s, target);
	int err;

	*se = NULL;
	if (found && still_there(found)) {
		*se = found;
		*pid = found->pid;
		return 0;
	}
	err = process_resolve(target, NULL, 0, pid, e);
	if (err)
		return err;
	found = session_of_pid(s, *pid);
	if (found && still_there(found))
		*se = found;
	return 0;
}

static void method_attach(struct server *s, struct request *r, const char *method, json_t *params)
{
	const char *name = json_string_value(json_object_get(params, "name"));
	struct dinst_error e = {0, ""};
	struct session *se;
	char number[24];
	const char *target = target_text(params, number);
	const bool held = json_is_true(json_object_get(params, "hold"));
	pid_t pid = 0;

	if (!target) {
		request_error_rpc(r, RPC_PARAMS, "target is missing: a pid or a name");
	} else if (s->stopping) {
		request_error(r, DINST_BUSY, "the daemon is stopping");
	} else if (must_look(s, target)) {
		find_process(s, r, target, "attach", params, method_attach);
	} else if (find_target(s, target, &se, &pid, &e) != 0) {
		request_error_from(r, &e);
	} else if (is_ours(s, pid)) {
		request_error(r, DINST_REFUSED, "that is a part of dinst itself");
	} else if (se && name && strcmp(name, se->name) != 0) {
		dinst_fail(&e, DINST_BUSY, "pid %d has a session already, named '%s'", (int)pid,
			   se->name);
		request_error_from(r, &e);
	} else if (se) {
		join(se, r, params, held);
	} else if (session_open(s, pid, name, NULL, &se, &e) != 0) {
		request_error_from(r, &e);
	} else {
		se->transient = held;
		hold_session(se, r, held);
		session_begin(se, method, r);
	}
}

static void method_catch_exec(struct server *s, struct request *r, const char *method,
			      json_t *params)
{
	const char *name = json_string_value(json_object_get(params, "name"));
	const char *program = json_string_value(json_object_get(params, "program"));
	json_int_t pid = json_integer_value(json_object_get(params, "pid"));
	struct dinst_error e = {0, ""};
	struct session *se;

	if (pid <= 0 || pid > INT_MAX)
		request_error_rpc(r, RPC_PARAMS, "pid is missing");
	else if (s->stopping)
		request_error(r, DINST_BUSY, "the daemon is stopping");
	else if (session_of_pid(s, (pid_t)pid) && still_there(session_of_pid(s, (pid_t)pid)))
		request_error(r, DINST_BUSY, "that process has a session already");
	else if (session_open(s, (pid_t)pid, name, program, &se, &e) != 0)
		request_error_from(r, &e);
	else
		session_begin(se, method, r);
}

/* ---------------------------------------------------------------- detach */

static void exited_detach_done(void *arg, const struct reply *reply)
{
	struct forward *f = arg;

	if (reply->result.text || f->session->closing) {
		forward_done(f, reply);
		return;
	}
	detach_unanswered(f->session, f->request);
	free(f);
}

static void method_detach(struct server *s, struct request *r, const char *method, json_t *params)
{
	struct dinst_error e = {0, ""};
	struct session *se = session_choose(s, params, &e);

	if (!se) {
		request_error_from(r, &e);
	} else if (json_is_true(json_object_get(params, "hold")) && hold_leave(se, r)) {
		/* others use it: only what was his goes */
	} else if (!se->mutator) {
		detach_alone(se, r);
	} else if (se->state == SESSION_ATTACHING && !se->held) {
		detach_unfinished(se, r);
	} else if (se->state == SESSION_EXITED) {
		/* children that it forked may live on with what was inserted */
		forward(se, r, method, params, exited_detach_done);
	} else {
		session_release_target(se);
		forward(se, r, method, params, forward_done);
	}
}

/* ---------------------------------------------------------------- repair */

struct repair {
	struct request *request;
	struct mutator *mutator;
};

static void repair_died(void *owner, const char *why)
{
	(void)owner;
	(void)why;
}

static void repair_notified(void *owner, const char *method, json_t *params)
{
	(void)owner;
	(void)method;
	(void)params;
}

static void repair_done(void *arg, const struct reply *reply)
{
	struct repair *repair = arg;

	request_reply(repair->request, reply);
	mutator_release(repair->mutator, "done");
	free(repair);
}

static int start_repair(struct server *s, struct request *r, const char *method,
			const struct session *se, pid_t pid, struct dinst_error *e)
{
	static const struct mutator_events events = {repair_died, repair_notified};
	struct repair *repair;
	json_t *params;

	if (se)
		return dinst_fail(e, DINST_BUSY, "pid %d has a live session: dinst detach -p '%s'",
				  (int)pid, se->name);
	repair = calloc(1, sizeof(*repair));
	if (!repair)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory to repair process %d", (int)pid);
	repair->request = r;
	repair->mutator = mutator_start(s, &events, repair, e);
	if (!repair->mutator) {
		free(repair);
		return e->code;
	}
	params = json_pack("{s:i}", "pid", (int)pid);
	mutator_call(repair->mutator, method, params, r, repair_done, repair);
	json_decref(params);
	return 0;
}

static void method_repair(struct server *s, struct request *r, const char *method, json_t *params)
{
	struct dinst_error e = {0, ""};
	struct session *se;
	char number[24];
	const char *target = target_text(params, number);
	pid_t pid;

	if (!target)
		request_error_rpc(r, RPC_PARAMS, "target is missing: a pid or a name");
	else if (s->stopping)
		request_error(r, DINST_BUSY, "the daemon is stopping");
	else if (must_look(s, target))
		find_process(s, r, target, "repair", params, method_repair);
	else if (find_target(s, target, &se, &pid, &e) != 0 ||
		 start_repair(s, r, method, se, pid, &e) != 0)
		request_error_from(r, &e);
}

/* ------------------------------------------------------------- the table */

static void method_ping(struct server *s, struct request *r, const char *method, json_t *params)
{
	(void)method;
	(void)params;
	request_result(r, json_pack("{s:s,s:i,s:i}", "version", DINST_VERSION, "pid", (int)getpid(),
				    "sessions", (int)session_count(s)));
}

static void method_sessions(struct server *s, struct request *r, const char *method, json_t *params)
{
	(void)method;
	(void)params;
	server_list(s, r);
}

/* Whoever recorded leaves it here for the page. */
static void method_recording(struct server *s, struct request *r, const char *method,
			     json_t *params)
{
	struct dinst_error e = {0, ""};
	struct session *se = session_choose(s, params, &e);

	(void)method;
	if (!se || recording_keep(se, params, &e) != 0)
		request_error_from(r, &e);
	else
		request_result(r, json_object());
}

/* What dinstd --metrics does, while it runs. */
static void method_serve(struct server *s, struct request *r, const char *method, json_t *params)
{
	json_t *address = json_object_get(params, "address");
	json_t *token = json_object_get(params, "token");
	struct http_options o = {.address = json_string_value(address),
				 .token = json_string_value(token)};
	struct dinst_error e = {0, ""};
	char text[HTTP_ADDRESS_MAX];

	(void)method;
	if (!o.address || (token && !o.token) || (o.token && o.token[0] != '/'))
		request_error_rpc(r, RPC_PARAMS,
				  "serve takes an address, and a token's absolute path");
	else if (http_address(s, text))
		request_error_from(r, (dinst_fail(&e, DINST_BUSY,
						  "served already: http://%s/ (dinst stop ends it)",
						  text),
				       &e));
	else if (s->stopping)
		request_error(r, DINST_BUSY, "the daemon is stopping");
	else if (http_start(s, &o, &e) != 0)
		request_error_from(r, &e);
	else if (http_address(s, text))
		request_result(r, json_pack("{s:o, s:s, s:b}", "url", http_url(text), "address",
					    text, "read_only", o.token == NULL));
}

static void method_stop(struct server *s, struct request *r, const char *method, json_t *params)
{
	(void)method;
	(void)params;
	server_stop(s, r);
}

static const struct {
	const char *name;
	method_server *serve;
} methods[] = {
	{"ping", method_ping},	     {"sessions", method_sessions},
	{"attach", method_attach},   {"catch_exec", method_catch_exec},
	{"detach", method_detach},   {"repair", method_repair},
	{"stop", method_stop},	     {"release", method_forward},
	{"status", method_forward},  {"modules", method_forward},
	{"funcs", method_forward},   {"points", method_forward},
	{"insert", method_forward},  {"read", method_forward},
	{"remove", method_forward},  {"flush", method_forward},
	{"metrics", method_forward}, {"complete", method_forward},
	{"cfg", method_forward},     {"load", method_load},
	{"trace", method_forward},   {"events", method_forward},
	{"callees", method_forward}, {"stacks", method_forward},
	{"history", method_history}, {"recording", method_recording},
	{"serve", method_serve},
};

void method_dispatch(struct server *s, struct request *r, const char *method, json_t *params)
{
	char text[100];

	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
		if (strcmp(methods[i].name, method) == 0) {
			stalls_step(s, methods[i].name);
			methods[i].serve(s, r, method, params);
			return;
		}
	snprintf(text, sizeof(text), "there is no method '%.40s'", method);
	request_error_rpc(r, RPC_METHOD, text);
}
