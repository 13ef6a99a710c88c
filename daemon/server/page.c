/* SPDX-License-Identifier: MIT */
/*
 * page.c - what can be had over HTTP: the page, the values, and with the token two changes.
 *
 * Owns the table of routes. What is read comes from the daemon's own memory; a mutator is
 * asked by snapshot_wait() only, and by the two changes. docs/protocol.md has it all.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/server/expose.h"
#include "daemon/server/heat.h"
#include "daemon/server/http.h"
#include "daemon/server/page_files.h"
#include "daemon/server/recording.h"
#include "daemon/server/sampler.h"
#include "daemon/server/snapshot.h"

enum {
	HTTP_OK = 200,
	HTTP_BAD = 400,
	HTTP_NONE = 404,
	HTTP_CONFLICT = 409,
	IDS_MAX = 64,	   /* histories at once */
	ELEMENTS_MAX = 64, /* of a vector */
	KIND_TEXT = 0,
	KIND_PROTOBUF = 1,
};

/* ------------------------------------------------------------------- files */

static void start_index(struct exchange *ex)
{
	http_reply_constant(ex, "text/html; charset=utf-8", page_index, page_index_size);
}

static void start_script(struct exchange *ex)
{
	http_reply_constant(ex, "text/javascript; charset=utf-8", page_script, page_script_size);
}

static void start_draw(struct exchange *ex)
{
	http_reply_constant(ex, "text/javascript; charset=utf-8", page_draw, page_draw_size);
}

static void start_style(struct exchange *ex)
{
	http_reply_constant(ex, "text/css; charset=utf-8", page_style, page_style_size);
}

static void start_healthy(struct exchange *ex)
{
	static const char text[] = "ok\n";

	http_reply_constant(ex, "text/plain; charset=utf-8", text, sizeof(text) - 1);
}

/* ----------------------------------------------------------------- metrics */

/* Prometheus asks for protobuf only where it takes native histograms. */
static unsigned wanted_kind(struct exchange *ex)
{
	const char *accept = http_header(ex, "Accept");

	return accept && strstr(accept, "application/vnd.google.protobuf") &&
			       strstr(accept, "io.prometheus.client.MetricFamily") &&
			       strstr(accept, "delimited")
		       ? KIND_PROTOBUF
		       : KIND_TEXT;
}

static void metrics_ready(void *arg)
{
	static const char *const types[] = {
		[KIND_TEXT] = "text/plain; version=0.0.4; charset=utf-8",
		[KIND_PROTOBUF] = "application/vnd.google.protobuf; "
				  "proto=io.prometheus.client.MetricFamily; encoding=delimited",
	};
	struct exchange *ex = arg;
	const unsigned kind = wanted_kind(ex);
	struct exposition *x;
	struct text out = {0};

	if (http_kept(ex, kind))
		return;
	x = expose(ex->server);
	if (x && kind == KIND_PROTOBUF)
		exposition_protobuf(x, &out);
	else if (x)
		exposition_text(x, &out);
	exposition_free(x);
	if (!x || out.failed)
		text_release(&out);
	http_keep(ex, kind, types[kind], out.data, out.length);
}

static void start_metrics(struct exchange *ex)
{
	if (!http_kept(ex, wanted_kind(ex)))
		snapshot_wait(ex->server, metrics_ready, ex);
}

/* ---------------------------------------------------------------- sessions */

static json_t *session_state(struct session *se)
{
	const char *busy = se->mutator ? mutator_busy(se->mutator) : NULL;
	const struct snapshot *sn = se->snapshot;
	const uint64_t asked_ns = sampler_asked_ns(se) + (sn ? sn->total_ns : 0);
	json_t *row = session_row(se, busy);
	double cpu = 0;
	int64_t memory = 0;

	if (se->mutator && expose_process(mutator_pid(se->mutator), &cpu, &memory)) {
		json_object_set_new(row, "mutator_cpu_s", json_real(cpu));
		json_object_set_new(row, "mutator_bytes", json_integer((json_int_t)memory));
	}
	json_object_set_new(row, "opened_ns", json_integer((json_int_t)se->opened_ns));
	json_object_set_new(row, "asked_ns", json_integer((json_int_t)asked_ns));
	if (sn && sn->taken_ns)
		json_object_set_new(
			row, "age_ms",
			json_integer((json_int_t)((uv_hrtime() - sn->taken_ns) / 1000000)));
	if (sn && sn->cost_known)
		json_object_set_new(row, "cost_ns_per_s", json_real(sn->cost_ns));
	if (se->recording)
		json_object_set_new(row, "recording", recording_about(se));
	return row;
}

static void state_ready(void *arg)
{
	struct exchange *ex = arg;
	json_t *rows = json_array();

	for (struct session *se = ex->server->sessions; se; se = se->next)
		json_array_append_new(rows, session_state(se));
	http_reply_json(ex, HTTP_OK,
			json_pack("{s:s, s:I, s:b, s:b, s:o}", "version", DINST_VERSION, "pid",
				  (json_int_t)uv_os_getpid(), "read_only", !ex->may_write,
				  "authorized", ex->authorized, "sessions", rows));
}

static void start_state(struct exchange *ex)
{
	snapshot_wait(ex->server, state_ready, ex);
}

/* The session that the URL names; NULL: answered. */
static struct session *wanted_session(struct exchange *ex)
{
	const char *name = http_argument(ex, "session");
	struct session *se = name ? session_named(ex->server, name) : NULL;

	if (!se)
		http_reply_error(ex, HTTP_NONE,
				 name ? "there is no such session" : "session= is missing");
	return se;
}

/* ------------------------------------------------------------------- values */

/* A row without its buckets, and with the first elements only. */
static json_t *short_row(json_t *row)
{
	json_t *copy = json_copy(row), *elements = json_object_get(row, "elements"), *list;
	size_t index;
	json_t *element;

	json_object_del(copy, "buckets");
	if (!elements)
		return copy;
	list = json_array();
	json_array_foreach(elements, index, element)
	{
		json_t *one;

		if (index == ELEMENTS_MAX)
			break;
		one = json_copy(element);
		json_object_del(one, "buckets");
		json_array_append_new(list, one);
	}
	json_object_set_new(copy, "elements", list);
	json_object_set_new(copy, "element_count",
			    json_integer((json_int_t)json_array_size(elements)));
	return copy;
}

static void values_ready(void *arg)
{
	struct exchange *ex = arg;
	struct session *se = session_named(ex->server, ex->session);
	const struct snapshot *sn = se ? se->snapshot : NULL;
	json_t *rows = json_array(), *row, *answer;
	size_t index;

	json_array_foreach(sn ? sn->rows : NULL, index, row)
		json_array_append_new(rows, short_row(row));
	answer = json_pack("{s:o, s:b}", "rows", rows, "too_long", sn && sn->too_long);
	if (se)
		json_object_set_new(answer, "opened_ns", json_integer((json_int_t)se->opened_ns));
	if (sn && sn->taken_ns)
		json_object_set_new(answer, "taken_ms",
				    json_integer((json_int_t)(sn->taken_ns / 1000000)));
	http_reply_json(ex, HTTP_OK, answer);
}

static void start_values(struct exchange *ex)
{
	const struct session *se = wanted_session(ex);

	if (!se)
		return;
	/* it may be gone when the values come */
	ex->session = strdup(se->name);
	if (ex->session)
		snapshot_wait(ex->server, values_ready, ex);
	else
		http_reply(ex, HTTP_BAD, "", NULL, 0);
}

/* "1,2,3" as a list; NULL: that is no list of numbers, or one of too many. */
static json_t *list_of_ids(const char *text)
{
	json_t *ids = json_array();

	while (text && *text && json_array_size(ids) < IDS_MAX) {
		const size_t length = strcspn(text, ",");
		unsigned long long id;
		char number[16] = "";

		if (length < sizeof(number))
			memcpy(number, text, length);
		if (!parse_number(number, UINT32_MAX, &id)) {
			json_decref(ids);
			return NULL;
		}
		json_array_append_new(ids, json_integer((json_int_t)id));
		text += length + (text[length] == ',');
	}
	if (text && *text) {
		json_decref(ids);
		return NULL;
	}
	return ids;
}

static void start_history(struct exchange *ex)
{
	struct session *se = wanted_session(ex);
	const char *since = http_argument(ex, "since");
	unsigned long long since_ms = 0;
	json_t *ids;

	if (!se)
		return;
	ids = list_of_ids(http_argument(ex, "ids"));
	if (!ids || !json_array_size(ids) ||
	    (since && !parse_number(since, INT64_MAX / 1000000, &since_ms)))
		http_reply_error(ex, HTTP_BAD, "ids=1,2,... (64 at most) and since=MS are numbers");
	else
		http_reply_json(ex, HTTP_OK,
				json_pack("{s:o}", "rows",
					  sampler_rows(se, ids, (json_int_t)since_ms * 1000000)));
	json_decref(ids);
}

static void start_heat(struct exchange *ex)
{
	const struct session *se = wanted_session(ex);
	const char *text = http_argument(ex, "id");
	unsigned long long id;
	json_t *heat;

	if (!se)
		return;
	heat = text && parse_number(text, UINT32_MAX, &id) ? heat_json(se, (json_int_t)id) : NULL;
	if (heat)
		http_reply_json(ex, HTTP_OK, heat);
	else
		http_reply_error(ex, HTTP_NONE, "there is no distribution of that id");
}

static void start_recording(struct exchange *ex)
{
	const struct session *se = wanted_session(ex);

	if (!se)
		return;
	if (se->recording)
		http_reply_json(ex, HTTP_OK, recording_json(se));
	else
		http_reply_error(ex, HTTP_NONE, "nothing was recorded yet");
}

/* ------------------------------------------------------------------ changes */

static void changed(struct exchange *ex, const struct reply *reply)
{
	struct rpc_span text = reply->result.text ? reply->result : reply->error;
	char *copy;

	if (!text.text) {
		http_reply_error(ex, HTTP_CONFLICT, reply->failure.text);
		return;
	}
	copy = malloc(text.length + 1);
	if (copy) {
		memcpy(copy, text.text, text.length);
		copy[text.length] = '\0';
	}
	http_reply(ex, reply->result.text ? HTTP_OK : HTTP_CONFLICT, "application/json", copy,
		   text.length);
}

static void inserted(void *arg, const struct reply *reply)
{
	struct exchange *ex = arg;
	struct session *se = session_named(ex->server, ex->session);

	if (reply->result.text && se && !se->closing)
		sampler_arm(se);
	changed(ex, reply);
}

static void removed(void *arg, const struct reply *reply)
{
	struct exchange *ex = arg;
	struct session *se = session_named(ex->server, ex->session);

	if (reply->result.text && se && !se->closing)
		hold_removed(se, reply->result);
	changed(arg, reply);
}

/* Of what was sent only the parameters that are named are passed on. */
static json_t *pick(json_t *from, const char *const *names)
{
	json_t *params = json_object(), *value;

	for (; *names; names++)
		if ((value = json_object_get(from, *names)) != NULL)
			json_object_set(params, *names, value);
	return params;
}

static void start_change(struct exchange *ex, const char *method, const char *const *names,
			 call_done done)
{
	struct dinst_error e = {0, ""};
	const char *type = http_header(ex, "Content-Type");
	json_t *body = NULL, *params;
	struct session *se;

	if (!type || strncmp(type, "application/json", 16) != 0)
		dinst_fail(&e, DINST_USAGE, "Content-Type is application/json");
	else if (!ex->body.length || !rpc_depth_ok(ex->body.data, ex->body.length, RPC_DEPTH))
		dinst_fail(&e, DINST_USAGE, "the body is a JSON object");
	else
		body = rpc_load(ex->body.data, ex->body.length, &e);
	if (!e.code && !json_is_object(body))
		dinst_fail(&e, DINST_USAGE, "the body is a JSON object");
	se = e.code ? NULL : session_choose(ex->server, body, &e);
	if (se && !se->mutator)
		dinst_fail(&e, DINST_GONE, "%s", se->why);
	ex->session = se && !e.code ? strdup(se->name) : NULL;
	if (!ex->session) {
		http_reply_error(ex, HTTP_BAD, e.code ? e.text : "no memory");
	} else {
		server_log("http: %s in session %s", method, se->name);
		/* what is inserted there is to stay, whoever attached to it for himself */
		if (done == inserted)
			hold_session(se, NULL, false);
		params = pick(body, names);
		mutator_call(se->mutator, method, params, NULL, done, ex);
		json_decref(params);
	}
	json_decref(body);
}

static void start_insert(struct exchange *ex)
{
	static const char *const names[] = {"metric", "focus", "each", "limit", NULL};

	start_change(ex, "insert", names, inserted);
}

static void start_remove(struct exchange *ex)
{
	static const char *const names[] = {"ids", "all", NULL};

	start_change(ex, "remove", names, removed);
}

/* ------------------------------------------------------------------- routes */

static const struct route routes[] = {
	{"/metrics", "GET", true, start_metrics},
	{"/-/healthy", "GET", true, start_healthy},
	{"/", "GET", true, start_index},
	{"/page.js", "GET", true, start_script},
	{"/draw.js", "GET", true, start_draw},
	{"/page.css", "GET", true, start_style},
	{"/api/state", "GET", false, start_state},
	{"/api/values", "GET", false, start_values},
	{"/api/history", "GET", false, start_history},
	{"/api/heat", "GET", false, start_heat},
	{"/api/recording", "GET", false, start_recording},
	{"/api/insert", "POST", false, start_insert},
	{"/api/remove", "POST", false, start_remove},
};

const struct route *page_route(const char *path, const char *method, bool *other)
{
	*other = false;
	for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
		if (strcmp(routes[i].path, path) != 0)
			continue;
		if (strcmp(routes[i].method, method) == 0)
			return &routes[i];
		*other = true;
	}
	return NULL;
}
