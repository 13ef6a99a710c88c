/* SPDX-License-Identifier: MIT */
/*
 * serve.c - lines in, lines out: the mutator's protocol loop.
 *
 * Input comes from the daemon, which is ours, but it is checked as if it were
 * not: a line that is no request gets an error, and the loop goes on.
 */
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mutator/serve.h"
#include "mutator/stream.h"
#include "mutator/threads.h"
#include "mutator/types_reader.h"

enum {
	LINE_MAX_BYTES = 8 << 20, /* what a client may send, escaped anew */
	RETRY_PENDING_MS = 50,
	COST_MS = 1000, /* how often the cost of what has a limit is looked at */
	READ_CHUNK = 65536,
	GIVEN_BACK_BYTES = 4 << 20, /* of free memory: less is not worth a look at all of it */
};

static const struct {
	const char *name;
	serve_method call;
} methods[] = {
	{"attach", serve_attach},     {"catch_exec", serve_catch_exec},
	{"release", serve_release},   {"status", serve_status},
	{"modules", serve_modules},   {"funcs", serve_funcs},
	{"points", serve_points},     {"insert", serve_insert},
	{"read", serve_read},	      {"remove", serve_remove},
	{"flush", serve_flush},	      {"detach", serve_detach},
	{"repair", serve_repair},     {"metrics", serve_metrics},
	{"complete", serve_complete}, {"cfg", serve_cfg},
	{"sample", serve_sample},     {"events", serve_events},
	{"callees", serve_callees},   {"load", serve_load},
	{"stacks", serve_stacks},     {"trace", serve_trace},
};

/* --------------------------------------------------------------- output */

static void write_all(struct server *sv, const char *bytes, size_t size)
{
	while (size && !sv->broken) {
		ssize_t n = write(sv->fd, bytes, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			sv->broken = true;
			return;
		}
		bytes += n;
		size -= (size_t)n;
	}
}

/* Names come from files and processes that may have written anything there. */
json_t *serve_text(const char *text)
{
	json_t *string = json_string(text);
	char *copy;

	if (string)
		return string;
	copy = strdup(text);
	for (char *p = copy; p && *p; p++)
		if (*p & 0x80)
			*p = '?';
	string = json_string(copy ? copy : "?");
	free(copy);
	return string;
}

/* False without memory: nothing was sent. */
static bool send_object(struct server *sv, json_t *object)
{
	char *line = object ? json_dumps(object, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;

	if (line) {
		write_all(sv, line, strlen(line));
		write_all(sv, "\n", 1);
	}
	free(line);
	json_decref(object);
	return line != NULL;
}

/*
 * The answer where there is no memory for another one: what is inserted is not to go for that. The
 * daemon's ids are numbers; NULL: it could not even be read.
 */
static void send_no_memory(struct server *sv, const json_t *id)
{
	char line[200], number[24];
	int n;

	snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(id));
	n = snprintf(
		line, sizeof(line),
		"{\"jsonrpc\":\"2.0\",\"id\":%s,\"error\":{\"code\":-32000,\"message\":\"no memory "
		"for the answer\",\"data\":{\"code\":\"%s\"}}}\n",
		json_is_integer(id) ? number : "null", dinst_code_name(DINST_NO_MEMORY));
	write_all(sv, line, (size_t)n);
}

bool serve_notify(struct server *sv, const char *method, json_t *params)
{
	return send_object(sv, json_pack("{s:s, s:s, s:o}", "jsonrpc", "2.0", "method", method,
					 "params", params ? params : json_object()));
}

static void send_error(struct server *sv, const json_t *id, int code, const char *text,
		       const char *word)
{
	json_t *error = json_pack("{s:i, s:o, s:{s:s}}", "code", code, "message", serve_text(text),
				  "data", "code", word);
	json_t *reply = json_pack("{s:s, s:o}", "jsonrpc", "2.0", "error", error);
	const bool whole = json_object_set(reply, "id", id ? (json_t *)id : json_null()) == 0;

	if (!whole)
		json_decref(reply);
	if (!send_object(sv, whole ? reply : NULL))
		send_no_memory(sv, id);
}

static void send_result(struct server *sv, const json_t *id, json_t *result)
{
	json_t *reply = json_pack("{s:s, s:o}", "jsonrpc", "2.0", "result", result);
	const bool whole = json_object_set(reply, "id", (json_t *)id) == 0;

	if (!whole)
		json_decref(reply);
	if (!send_object(sv, whole ? reply : NULL))
		send_no_memory(sv, id);
}

json_t *serve_rows(json_t *rows)
{
	return json_pack("{s:o}", "rows", rows);
}

json_int_t serve_us(uint64_t ns)
{
	return (json_int_t)((ns + 999) / 1000);
}

/* ---------------------------------------------------------------- input */

int serve_session(struct server *sv, struct session **s, struct dinst_error *e)
{
	if (!sv->session)
		return dinst_fail(e, DINST_NO_SESSION, "no target is attached");
	*s = sv->session;
	return 0;
}

/* What goes wrong in a target that ends meanwhile has one reason, whatever met it first. */
static void explain_end(const struct server *sv, struct dinst_error *e)
{
	const struct session *s = sv->session;

	if ((e->code != DINST_FAILED && e->code != DINST_UNSUPPORTED) || !s ||
	    s->state == SESSION_DETACHED || target_alive(s->target))
		return;
	dinst_error_clear(e);
	dinst_fail(e, DINST_GONE, "process %d has ended", (int)s->pid);
}

/*
 * A mutator lives as long as its session: what a large request has needed goes back to the
 * system. What malloc() counts as free afterwards has no pages, or shares them.
 */
static void give_back(struct server *sv)
{
	size_t unused = mallinfo2().fordblks;

	if (unused > sv->unused_bytes + GIVEN_BACK_BYTES) {
		malloc_trim(0);
		unused = mallinfo2().fordblks;
	}
	sv->unused_bytes = unused;
}

/*
 * Before the answer with which they become known: should this one die, its successor goes on from there, so
 * that nobody's old numbers become somebody else's.
 */
static void tell_numbered(struct server *sv)
{
	json_t *params;

	if (!sv->session || sv->session->next_id <= sv->numbered)
		return;
	params = json_pack("{s:I}", "next", (json_int_t)sv->session->next_id);
	/* without memory the next answer is another occasion */
	if (params && serve_notify(sv, "numbered", params))
		sv->numbered = sv->session->next_id;
}

/*
 * A request that has asked for types since there were `before` questions without an answer, and had none:
 * what it failed for, or did without them, has that reason.
 */
static void tell_lost_types(uint64_t before, int status, json_t *result, struct dinst_error *e)
{
	const char *name;
	char text[400];
	json_t *notes;

	if (types_unanswered(&name) == before)
		return;
	snprintf(
		text, sizeof(text),
		"types of %s are not known: the process that reads its debug information has died, or "
		"took too long; detach and attach again for another one",
		name);
	if (status < 0) {
		const size_t used = strlen(e->text);

		snprintf(e->text + used, sizeof(e->text) - used, "; %s", text);
		return;
	}
	notes = json_object_get(result, "notes");
	if (!notes && json_object_set_new(result, "notes", json_array()) == 0)
		notes = json_object_get(result, "notes");
	json_array_append_new(notes, serve_text(text));
}

static void call(struct server *sv, const json_t *id, const char *name, const json_t *params)
{
	struct dinst_error e = {0};
	const char *ignored;
	uint64_t unanswered = types_unanswered(&ignored);
	json_t *result = NULL;
	int status;

	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		if (strcmp(methods[i].name, name))
			continue;
		status = methods[i].call(sv, params, &result, &e);
		tell_lost_types(unanswered, status, result, &e);
		tell_numbered(sv);
		if (status < 0) {
			explain_end(sv, &e);
			send_error(sv, id, -32000, e.text, dinst_code_name(e.code));
		} else if (result)
			send_result(sv, id, result);
		else
			send_error(sv, id, -32000, "no memory for the answer",
				   dinst_code_name(DINST_NO_MEMORY));
		give_back(sv);
		return;
	}
	send_error(sv, id, -32601, "no such method", "protocol");
}

static void serve_line(struct server *sv, const char *line, size_t size)
{
	json_error_t problem = {.text = ""};
	json_t *request = json_loadb(line, size, 0, &problem);
	const json_t *id = json_object_get(request, "id");
	const char *method = json_string_value(json_object_get(request, "method"));
	const json_t *params = json_object_get(request, "params");

	/* most of what it has no memory for it has no words for, either */
	if (!request && (!problem.text[0] || json_error_code(&problem) == json_error_out_of_memory))
		send_no_memory(sv, NULL);
	else if (!request)
		send_error(sv, NULL, -32700, problem.text, "protocol");
	else if (!json_is_object(request) || !method || !id || (params && !json_is_object(params)))
		send_error(sv, id, -32600, "not a request", "protocol");
	else
		call(sv, id, method, params);
	json_decref(request);
}

/* Serves the whole lines that have come; keeps the rest. */
static void serve_input(struct server *sv)
{
	size_t start = 0;
	char *end;

	while (!sv->broken && (end = memchr(sv->input + start, '\n', sv->input_size - start))) {
		size_t size = (size_t)(end - (sv->input + start));

		if (size)
			serve_line(sv, sv->input + start, size);
		start += size + 1;
	}
	memmove(sv->input, sv->input + start, sv->input_size - start);
	sv->input_size -= start;
	if (sv->input_size > LINE_MAX_BYTES) {
		send_error(sv, NULL, -32600, "the line is too long", "protocol");
		sv->broken = true;
	}
}

static void receive(struct server *sv)
{
	ssize_t n;

	if (sv->input_room - sv->input_size < READ_CHUNK) {
		size_t room = sv->input_room * 2 + READ_CHUNK;
		char *input = realloc(sv->input, room);

		if (!input) {
			sv->broken = true;
			return;
		}
		sv->input = input;
		sv->input_room = room;
	}
	n = read(sv->fd, sv->input + sv->input_size, sv->input_room - sv->input_size);
	if (n < 0 && errno == EINTR)
		return;
	if (n <= 0) {
		sv->broken = true;
		return;
	}
	sv->input_size += (size_t)n;
	serve_input(sv);
}

static void tell_exit(struct server *sv)
{
	sv->exit_told = true;
	sv->session->state = SESSION_EXITED;
	serve_notify(sv, "event",
		     json_pack("{s:s, s:s}", "kind", "exited", "text", "the target has ended"));
}

/* Noticed when somebody asks: what is counted will not change any more. */
static void look_for_end(struct server *sv)
{
	struct dinst_error why = {0};
	enum session_state state;
	char text[160];

	if (!sv->session || sv->end_told || sv->exit_told ||
	    sv->session->state == SESSION_DETACHED || session_check(sv->session, &why) >= 0)
		return;
	state = sv->session->state;
	if (state != SESSION_EXECED && state != SESSION_TAKEN)
		return;
	sv->end_told = true;
	snprintf(text, sizeof(text),
		 "process %d has executed another program: these are the last values; detach, and "
		 "attach again",
		 (int)sv->session->pid);
	serve_notify(sv, "event",
		     json_pack("{s:s, s:o}", "kind", state == SESSION_EXECED ? "exec" : "taken",
			       "text", serve_text(state == SESSION_EXECED ? text : why.text)));
}

static void tell_reload(void *arg, const char *kind, const char *text)
{
	serve_notify(arg, "event", json_pack("{s:s, s:o}", "kind", kind, "text", serve_text(text)));
}

/* Also in front of a request: what it shows may stand still. */
static void look_for_reloads(struct server *sv)
{
	if (sv->session && !sv->exit_told && sv->session->state != SESSION_DETACHED)
		reloads_look(&sv->reloads, sv->session, tell_reload, sv);
}

static uint64_t now_ms(void)
{
	return clock_ns() / 1000000;
}

static void tell_limit(void *arg, const struct instance *i, double percent)
{
	char text[400];

	if (percent < 0)
		snprintf(text, sizeof(text),
			 "%s %.200s was switched off: the program, or a child of it, has a seccomp "
			 "filter now that may forbid what it does, or provides pages of its memory "
			 "itself (userfaultfd)",
			 i->metric, i->focus);
	else
		snprintf(
			text, sizeof(text),
			"%s %.200s was switched off: it cost %.1f %% of a CPU, and its limit is %.1f %%",
			i->metric, i->focus, percent, i->limit);
	serve_notify(arg, "event",
		     json_pack("{s:s, s:I, s:o}", "kind", percent < 0 ? "forbidden" : "limit", "id",
			       (json_int_t)i->id, "text", serve_text(text)));
}

/* What is done between requests. Returns how long to wait for the next one, -1: for ever. */
static int look_after(struct server *sv, struct session *s, uint64_t *polled)
{
	const bool limits = session_needs_poll(s), keeps = threads_need_poll(s);
	const int pump = stream_pump(s);
	bool waits;
	int wait;

	look_for_reloads(sv);
	waits = request_has_pending(s);
	/* Also where requests come all the time. */
	if (waits && now_ms() - *polled >= RETRY_PENDING_MS) {
		request_poll(s);
		*polled = now_ms();
	}
	if (limits)
		session_poll(s, tell_limit, sv);
	if (keeps)
		threads_poll(s);
	wait = waits ? RETRY_PENDING_MS : limits || keeps ? COST_MS : -1;
	return pump >= 0 && (wait < 0 || pump < wait) ? pump : wait;
}

int serve(int fd)
{
	struct server sv = {.fd = fd, .numbered = 1};
	struct dinst_error ignored = {0};
	uint64_t polled = 0;

	while (!sv.broken) {
		struct session *s = sv.session;
		bool watch = s && !sv.exit_told && s->state != SESSION_DETACHED;
		struct pollfd fds[2] = {
			{.fd = fd, .events = POLLIN},
			{.fd = watch ? target_pidfd(s->target) : -1, .events = POLLIN},
		};
		int timeout = watch ? look_after(&sv, s, &polled) : -1;
		int n = poll(fds, 2, timeout);

		if (n < 0 && errno != EINTR)
			break;
		if (n > 0 && watch && fds[1].revents)
			tell_exit(&sv);
		if (n > 0 && fds[0].revents) {
			look_for_end(&sv);
			look_for_reloads(&sv);
			receive(&sv);
		}
	}
	/* A daemon that died must not leave a program standing before its first instruction. */
	if (sv.session && sv.session->state == SESSION_HELD)
		target_release(sv.session->target, &ignored);
	session_free(sv.session);
	values_seen_release(&sv.seen);
	free(sv.input);
	return 0;
}
