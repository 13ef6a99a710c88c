/* SPDX-License-Identifier: MIT */
/*
 * serve_session.c - the methods for a session's beginning and end.
 */
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "inject/proc.h"
#include "mutator/leftovers.h"
#include "mutator/serve.h"
#include "mutator/variable.h"

enum {
	PATIENCE_PAUSE_NS = 20 * 1000 * 1000,
	LEFTOVER_MS = 3000, /* how long attach tries to take out what was left */
	REPAIR_MS = 10 * 1000,
	CATCH_EXEC_MS = 10 * 1000,
};

static double now_ms(void)
{
	return (double)clock_ns() / 1e6;
}

static void tell_progress(void *arg, const char *text, size_t done, size_t total)
{
	serve_notify(arg, "progress",
		     json_pack("{s:o, s:I, s:I}", "text", serve_text(text), "done",
			       (json_int_t)done, "total", (json_int_t)total));
}

/* The daemon has closed the socket, or died; it is noticed in the middle of a request. */
static bool is_deserted(void *arg)
{
	const struct server *sv = arg;
	struct pollfd daemon = {.fd = sv->fd};

	return sv->broken || (poll(&daemon, 1, 0) > 0 && (daemon.revents & (POLLHUP | POLLERR)));
}

static json_t *attach_row(const struct session *s, double ms, const struct leftovers *left)
{
	size_t functions = 0, modules = 0;
	uint64_t stop_ns = s->longest_stop_ns;

	for (size_t i = 0; i < module_count(s->modules); i++) {
		const struct module *m = module_get(s->modules, i);
		const struct image_function *list;

		if (m->gone)
			continue;
		modules++;
		if (m->image)
			functions += image_functions(m->image, &list);
	}
	if (left->stop_ns > stop_ns)
		stop_ns = left->stop_ns;
	return json_pack("{s:o, s:I, s:o, s:I, s:I, s:f, s:I, s:I}", "session", serve_text(s->name),
			 "pid", (json_int_t)s->pid, "name", serve_text(target_name(s->target)),
			 "modules", (json_int_t)modules, "functions", (json_int_t)functions,
			 "attach_ms", ms, "stop_us", serve_us(stop_ns), "cleaned",
			 (json_int_t)left->restored);
}

static const char sealed_text[] =
	"the program has sealed (mseal) all of its memory, and ours with it: that stays, unused, until it ends or executes another program";

/* What cannot be told of a program of an earlier session, and what cannot be taken out. */
static void note_unknown(json_t *notes, const struct leftovers *left)
{
	if (left->unknown_tails)
		json_array_append_new(
			notes,
			json_string(
				"behind the code of a module is what looks like system calls of an earlier session; its file cannot be read to compare (deleted?), so that stays: no thread is in it"));
	if (left->sealed)
		json_array_append_new(notes, json_string(sealed_text));
}

/* Takes over the list, and forgets it if there is nothing to say. */
static void set_notes(json_t *row, json_t *notes)
{
	if (json_array_size(notes))
		json_object_set_new(row, "notes", notes);
	else
		json_decref(notes);
}

/* What may harm the target, though not by us, and what stays in it. */
static void warn(json_t *row, pid_t pid, const struct leftovers *left)
{
	char text[sizeof(struct target_check)];
	json_t *notes = json_array();
	struct target_check c;

	note_unknown(notes, left);
	if (target_warns_of_uprobes(pid, &c)) {
		snprintf(text, sizeof(text), "beware: %s; %s", c.why, c.fix);
		json_array_append_new(notes, json_string(text));
	}
	set_notes(row, notes);
}

/* Why what an earlier session left stays, and when it does not. */
static void why_left(const struct leftovers *left, struct dinst_error *e)
{
	dinst_error_clear(e);
	if (left->others)
		dinst_fail(
			e, DINST_BUSY,
			"somebody else has written over what an earlier session inserted at %#llx: that stays, "
			"and what it may lead to; try again when it has gone",
			(unsigned long long)left->others);
	else if (left->unsearched)
		dinst_fail(
			e, DINST_BUSY,
			"a task of the program's own that a signal interrupted may go on inside code of an earlier "
			"session (it uses swapcontext() or the like), and its memory is too large to be searched for "
			"that, or shared and not to be read without CAP_CHECKPOINT_RESTORE: try again when there "
			"is less, or with that");
	else
		dinst_fail(e, DINST_BUSY,
			   "a thread is still inside code of an earlier session; try again later");
}

/* For so long it is waited for another mutator that has it: one that is to detach. */
static int clean(struct target *t, double patience, struct leftovers *left, struct dinst_error *e)
{
	const struct timespec pause = {.tv_nsec = PATIENCE_PAUSE_NS};
	const double end = now_ms() + patience;
	int status = leftovers_clean(t, LEFTOVER_MS, left, e);

	/* It may also be in the middle of a stop. */
	while ((status == DINST_BUSY || status == DINST_TRACED) && now_ms() < end &&
	       target_alive(t)) {
		nanosleep(&pause, NULL);
		dinst_error_clear(e);
		status = leftovers_clean(t, LEFTOVER_MS, left, e);
	}
	return status;
}

/* Between the daemon's look at it and ours it may have ended, and another one may have got its number. */
static int is_meant(pid_t pid, uint64_t found, const json_t *params, struct dinst_error *e)
{
	const json_int_t start = json_integer_value(json_object_get(params, "start"));

	if (start <= 0 || (uint64_t)start == found)
		return 0;
	return dinst_fail(e, DINST_GONE, "process %d has ended, and another one has its number",
			  (int)pid);
}

static int attach(struct server *sv, pid_t pid, const json_t *params, enum session_state state,
		  json_t **result, struct dinst_error *e)
{
	const char *name = json_string_value(json_object_get(params, "session"));
	const double patience = json_number_value(json_object_get(params, "patience_ms"));
	struct dinst_error ignored = {0}, why = {0};
	struct leftovers left = {0};
	double start = now_ms();
	int status;

	if (sv->session)
		return dinst_fail(e, DINST_BUSY, "this mutator has a target already: %d",
				  (int)sv->session->pid);
	status = session_attach(pid, name, &sv->session, e);
	if (status < 0)
		return status;
	/* So that the first timer need not wait for it. */
	ticks_begin();
	sv->session->state = state;
	sv->session->progress = tell_progress;
	sv->session->deserted = is_deserted;
	sv->session->progress_arg = sv;
	/* Should it be given up before that is out, it is told. */
	status = is_meant(pid, target_start(sv->session->target), params, e);
	if (status < 0 && state == SESSION_HELD)
		target_release(sv->session->target, &ignored);
	if (status >= 0 && leftovers_any(sv->session->target))
		serve_notify(sv, "leftovers", NULL);
	if (status >= 0)
		status = clean(sv->session->target, patience > 0 ? patience : 0, &left, e);
	if (status >= 0 && left.arenas_left) {
		why_left(&left, &why);
		status = dinst_fail(e, DINST_BUSY, "%s (`dinst repair %d`)", why.text, (int)pid);
	}
	if (status < 0) {
		session_free(sv->session);
		sv->session = NULL;
		return status;
	}
	*result = attach_row(sv->session, now_ms() - start, &left);
	warn(*result, pid, &left);
	return 0;
}

static int pid_param(const json_t *params, pid_t *pid, struct dinst_error *e)
{
	json_int_t n = json_integer_value(json_object_get(params, "pid"));

	if (n <= 0 || n > 0x7fffffff)
		return dinst_fail(e, DINST_PROTOCOL, "pid must be a positive number");
	*pid = (pid_t)n;
	return 0;
}

int serve_attach(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e)
{
	pid_t pid = 0;
	const json_int_t first = json_integer_value(json_object_get(params, "first_id"));
	int status = pid_param(params, &pid, e);

	if (first < 0 || first > INT_MAX)
		return dinst_fail(e, DINST_PROTOCOL, "first_id must be a positive number");
	if (status >= 0)
		status = attach(sv, pid, params, SESSION_RUNNING, result, e);
	/* where another mutator of the session ended */
	if (status >= 0 && first > 0)
		sv->session->next_id = sv->numbered = (unsigned)first;
	return status;
}

static void armed(void *arg)
{
	serve_notify(arg, "armed", NULL);
}

int serve_catch_exec(struct server *sv, const json_t *params, json_t **result,
		     struct dinst_error *e)
{
	struct proc_stat stat;
	pid_t pid = 0;
	int status = pid_param(params, &pid, e);

	/* Nobody is stopped, or told to go on, who is not meant. */
	if (status >= 0 && !proc_stat_read(pid, &stat))
		status = is_meant(pid, stat.start_time, params, e);
	if (status >= 0)
		status = target_catch_exec(pid, armed, sv, CATCH_EXEC_MS, e);
	if (status >= 0)
		status = attach(sv, pid, params, SESSION_HELD, result, e);
	return status;
}

int serve_release(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e)
{
	struct session *s;
	int status = serve_session(sv, &s, e);

	(void)params;
	if (status >= 0 && s->state == SESSION_HELD) {
		status = gate_release(s, e);
		sv->released = status >= 0;
	}
	if (status < 0)
		return status;
	*result = json_pack("{s:b}", "released", sv->released);
	return 0;
}

static const char *state_name(struct session *s)
{
	struct dinst_error ignored = {0};

	session_check(s, &ignored);
	switch (s->state) {
	case SESSION_RUNNING:
		return "running";
	case SESSION_HELD:
		return "held";
	case SESSION_EXITED:
		return "exited";
	case SESSION_EXECED:
		return "exec";
	case SESSION_TAKEN:
		return "taken";
	case SESSION_DETACHED:
		return "detached";
	}
	return "unknown";
}

int serve_status(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e)
{
	enum { PAGE = 4096 };
	size_t active = 0, functions = 0, modules = 0;
	struct heap_stats heap;
	bool private = false;
	struct session *s;
	int status = serve_session(sv, &s, e);

	(void)params;
	if (status < 0)
		return status;
	session_heap(s, &heap);
	for (const struct instance *i = s->instances; i; i = i->next)
		active++;
	for (const struct place *p = s->places; p; p = p->next)
	private = private || p->arena->mode == ARENA_PRIVATE;
	for (size_t i = 0; i < module_count(s->modules); i++) {
		const struct module *m = module_get(s->modules, i);
		const struct image_function *list;

		modules += !m->gone;
		if (m->image && !m->gone)
			functions += image_functions(m->image, &list);
	}
	*result = json_pack(
		"{s:o, s:I, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:I, s:I, s:I}",
		"session", serve_text(s->name), "pid", (json_int_t)s->pid, "name",
		serve_text(target_name(s->target)), "state", state_name(s), "points",
		(json_int_t)session_points(s), "active", (json_int_t)active, "queued",
		(json_int_t)s->queue_length, "heap_bytes", (json_int_t)heap.used, "heap_code",
		(json_int_t)heap.code_bytes, "heap_most", (json_int_t)heap.high_water,
		"heap_values", (json_int_t)heap.counter_bytes, "heap_values_most",
		(json_int_t)heap.counter_most, "heap_memory", (json_int_t)heap.resident,
		"text_memory", (json_int_t)session_text_pages(s) * PAGE, "arena",
		!s->places ? "none"
		: private  ? "private"
			   : "shared",
		"longest_stop_us", serve_us(s->longest_stop_ns), "stops", (json_int_t)s->stop_count,
		"stops_us", serve_us(s->stops_ns), "modules", (json_int_t)modules, "functions",
		(json_int_t)functions);
	return 0;
}

int serve_detach(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e)
{
	json_int_t seconds = json_integer_value(json_object_get(params, "seconds"));
	struct dinst_error why = {0};
	struct detach_result detached;
	struct session *s;
	int status = serve_session(sv, &s, e);

	if (status < 0)
		return status;
	if (s->state == SESSION_HELD)
		target_release(s->target, &why);
	status = session_detach(s, seconds > 0 ? (unsigned)seconds : 0, &detached, &why);
	*result = json_pack("{s:o, s:I, s:I, s:I, s:b}", "session", serve_text(s->name), "restored",
			    (json_int_t)detached.restored, "left", (json_int_t)detached.left,
			    "stop_us", serve_us(detached.stop_ns), "partial",
			    detached.left > 0 || status < 0);
	if (status >= 0 && detached.others)
		dinst_fail(
			&why, DINST_BUSY,
			"somebody else has written over what was inserted at %#llx: that stays, and what it may lead to",
			(unsigned long long)detached.others);
	if (detached.left || status < 0) {
		char text[DINST_ERROR_TEXT + 160];

		snprintf(
			text, sizeof(text),
			"%zu pieces of code stay in %d for now%s%s; `dinst repair %d` takes them out%s",
			detached.left, (int)s->pid, why.code ? ": " : "", why.code ? why.text : "",
			(int)s->pid, detached.others ? " when that has gone" : "");
		json_object_set_new(*result, "notes", json_pack("[o]", serve_text(text)));
	} else if (target_has_sealed(s->target)) {
		json_object_set_new(*result, "notes", json_pack("[s]", sealed_text));
	}
	return 0;
}

/* {pid}, or {maker, maker_start}: whoever has what that mutator made. */
static int repair(const json_t *params, struct leftovers *left, struct dinst_error *e)
{
	const json_int_t maker = json_integer_value(json_object_get(params, "maker"));
	const json_int_t start = json_integer_value(json_object_get(params, "maker_start"));
	struct target *t;
	pid_t pid = 0;
	int status;

	if (maker > 0 && maker <= 0x7fffffff)
		return leftovers_clean_heirs((pid_t)maker, (uint64_t)start, REPAIR_MS, left, e);
	status = pid_param(params, &pid, e);
	if (status >= 0)
		status = target_open(pid, &t, e);
	if (status < 0)
		return status;
	status = leftovers_clean(t, REPAIR_MS, left, e);
	target_close(t);
	return status;
}

int serve_repair(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e)
{
	struct leftovers left = {0};
	struct dinst_error why = {0};
	json_t *notes;
	int status;

	if (sv->session)
		return dinst_fail(e, DINST_BUSY,
				  "process %d has a session; detach it instead of repairing it",
				  (int)sv->session->pid);
	status = repair(params, &left, e);
	if (status < 0)
		return status;
	*result = json_pack("{s:I, s:I, s:I, s:I, s:b}", "patches", (json_int_t)left.patches,
			    "restored", (json_int_t)left.restored, "arenas_left",
			    (json_int_t)left.arenas_left, "stop_us", serve_us(left.stop_ns),
			    "partial", left.arenas_left > 0);
	notes = json_array();
	note_unknown(notes, &left);
	if (left.arenas_left) {
		why_left(&left, &why);
		json_array_append_new(notes, json_string(why.text));
	}
	set_notes(*result, notes);
	return 0;
}
