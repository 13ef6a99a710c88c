/* SPDX-License-Identifier: MIT */
/*
 * text_trace.c - events as lines: who called whom, told by each thread's open calls. An open
 * call whose return never comes (longjmp, an exception, a dropped event) is forgotten when one
 * around it ends, or when the stack says that it must have been left.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/report/text_private.h"

enum {
	FRAMES_MAX = 512,	/* open calls of a thread that are known one by one */
	INDENT_MAX = 40,	/* levels that are indented further */
	STACK_NEAR = 1 << 20,	/* stack pointers so close are of one stack, bytes */
	THREADS_KEPT = 1 << 14, /* beyond, those without open calls are forgotten */
	TIME_WIDTH = 17,	/* columns of "12:00:01.000123  " */
	STACK_INDENT = 4,
	SLOW_NS = 1000000,
	VERY_SLOW_NS = 100000000,
};

struct frame {
	const struct event_kind *kind;
	uint64_t ns, sp; /* sp 0: not told */
};

struct trace_thread {
	uint32_t tid;
	struct frame *frames;
	size_t count, room; /* of frames */
	bool held;	    /* the innermost call has no line yet: */
	struct text call;   /* its name and arguments */
	uint64_t held_ns;   /* when it began */
	struct text stack;  /* the addresses of its stack, none: there is none */
	bool complete;
};

/* The colours of a terminal; all of them empty where there are none. */
struct colours {
	const char *dim, *function, *value, *slow, *very_slow, *off;
};

static const struct colours *colours_of(const struct trace *t)
{
	static const struct colours none = {"", "", "", "", "", ""};
	static const struct colours ansi = {"\033[2m",	"\033[1m",  "\033[36m",
					    "\033[33m", "\033[31m", "\033[0m"};

	return t->colour ? &ansi : &none;
}

void trace_init(struct trace *t, const struct event_log *log)
{
	*t = (struct trace){.log = log};
}

static void thread_free(struct trace_thread *thread)
{
	text_drop(&thread->call);
	text_drop(&thread->stack);
	free(thread->frames);
	free(thread);
}

void trace_release(struct trace *t)
{
	for (size_t i = 0; i < t->thread_count; i++)
		thread_free(t->threads[i]);
	free(t->threads);
	t->threads = NULL;
	t->thread_count = 0;
}

/* ------------------------------------------------------------------- threads */

/* Nobody says that a thread has ended: those that are in no call go, or all if that is not enough. */
static void forget_threads(struct trace *t)
{
	size_t idle = 0, kept = 0;

	for (size_t i = 0; i < t->thread_count; i++)
		idle += !t->threads[i]->count;
	for (size_t i = 0; i < t->thread_count; i++) {
		if (t->threads[i]->count && idle > t->thread_count / 2)
			t->threads[kept++] = t->threads[i];
		else
			thread_free(t->threads[i]);
	}
	t->thread_count = kept;
}

static size_t place_of(const struct trace *t, uint32_t tid)
{
	size_t low = 0, high = t->thread_count;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (t->threads[middle]->tid < tid)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The state of the event's thread; NULL without memory. */
static struct trace_thread *thread_of(struct trace *t, const struct event *e)
{
	struct trace_thread *thread, **grown;
	size_t at = place_of(t, e->tid);

	if (at < t->thread_count && t->threads[at]->tid == e->tid)
		return t->threads[at];
	if (t->thread_count >= THREADS_KEPT) {
		forget_threads(t);
		at = place_of(t, e->tid);
	}
	grown = realloc(t->threads, (t->thread_count + 1) * sizeof(*grown));
	if (!grown)
		return NULL;
	t->threads = grown;
	thread = calloc(1, sizeof(*thread));
	if (!thread)
		return NULL;
	thread->tid = e->tid;
	memmove(&grown[at + 1], &grown[at], (t->thread_count - at) * sizeof(*grown));
	grown[at] = thread;
	t->thread_count++;
	return thread;
}

/* --------------------------------------------------------------------- lines */

/* What a line begins with: when, who, how deep. */
static void begin_line(struct trace *t, const struct trace_thread *thread, uint64_t ns,
		       size_t depth, struct text *out)
{
	const struct colours *c = colours_of(t);
	const uint64_t real = ns + (uint64_t)t->log->epoch_ns;
	const struct event_thread *known = event_log_thread(t->log, thread->tid);
	const time_t second = (time_t)(real / 1000000000);
	struct tm when = {0};
	size_t begin, width;
	unsigned indent;

	localtime_r(&second, &when);
	text_addf(out, "%s%02d:%02d:%02d.%06u  ", c->dim, when.tm_hour, when.tm_min, when.tm_sec,
		  (unsigned)(real % 1000000000 / 1000));
	begin = out->used;
	if (known && known->name[0]) {
		text_add_clean(out, known->name);
		text_addf(out, "/");
	}
	text_addf(out, "%" PRIu32, thread->tid);
	width = out->used - begin;
	indent = (unsigned)(width < 22 ? 24 - width : 2) +
		 2 * (unsigned)(depth < INDENT_MAX ? depth : INDENT_MAX);
	text_addf(out, "%*s%s", (int)indent, "", c->off);
	t->column = TIME_WIDTH + (unsigned)width + indent;
	t->lines++;
}

static void add_time(struct trace *t, uint64_t ns, struct text *out)
{
	const struct colours *c = colours_of(t);

	text_addf(out, " %s[",
		  ns >= VERY_SLOW_NS ? c->very_slow
		  : ns >= SLOW_NS    ? c->slow
				     : c->dim);
	text_add_duration(out, ns);
	text_addf(out, "]%s", c->off);
}

static void add_call(struct trace *t, const struct event *e, struct text *out)
{
	const struct colours *c = colours_of(t);
	const struct event_kind *k = e->kind;
	const char *between = "";

	text_addf(out, "%s", c->function);
	text_add_clean(out, k->function);
	text_addf(out, "%s(", c->off);
	for (size_t n = 0; n < k->field_count;) {
		struct field_parts parts;

		if (k->fields[n].role != EVENT_ARGUMENT && k->fields[n].role != EVENT_FIELD) {
			n += field_parts(e, n, &parts);
			continue;
		}
		text_addf(out, "%s", between);
		n += text_add_field(out, e, n);
		between = ", ";
	}
	text_addf(out, ")");
}

/* A result that is a struct comes in parts. */
static void add_result(struct trace *t, const struct event *e, struct text *out)
{
	const struct colours *c = colours_of(t);
	unsigned parts = 0;
	bool named = false;

	for (size_t n = 0; n < e->kind->field_count; n++) {
		const struct event_field *f = &e->kind->fields[n];

		if (f->role != EVENT_RESULT)
			continue;
		named = f->name[0] != 0;
		if (parts++)
			text_addf(out, ", ");
		else
			text_addf(out, " = %s%s", c->value, named ? "{" : "");
		if (named) {
			text_add_clean(out, f->name);
			text_addf(out, "=");
		}
		text_add_field(out, e, n);
	}
	if (parts)
		text_addf(out, "%s%s", named ? "}" : "", c->off);
}

static uint64_t value_of(const struct event *e, enum event_role role, uint64_t other)
{
	const struct event_field *f = event_field(e->kind, role);
	uint64_t value;

	return f && event_value(e, f, &value) ? value : other;
}

/* One event for all of a call, when it is over. */
static bool is_whole(const struct event *e)
{
	return e->kind->what == EVENT_RETURN && event_field(e->kind, EVENT_ELAPSED);
}

static void add_caller(const struct trace *t, const struct event *e, struct text *out)
{
	const uint64_t caller = value_of(e, EVENT_CALLER, 0);

	if (!caller)
		return;
	text_addf(out, "  <- ");
	text_add_place(out, t->log, caller, e->kind->module);
}

static bool stack_of(const struct event *e, struct event_stack *stack)
{
	const struct event_field *f = event_field(e->kind, EVENT_BACKTRACE);

	return f && event_stack(e, f, stack);
}

/* The calls around the one of the line that was begun last. */
static void add_stack(const struct trace *t, const struct event_stack *stack, const char *module,
		      struct text *out)
{
	text_add_stack(out, t->log, stack, module, t->column + STACK_INDENT);
}

static void add_stack_of(const struct trace *t, const struct event *e, struct text *out)
{
	struct event_stack stack;

	if (stack_of(e, &stack))
		add_stack(t, &stack, e->kind->module, out);
}

/* A call that has no line yet: what is needed when it gets one. */
static void hold_stack(struct trace_thread *thread, const struct event *e)
{
	struct event_stack stack;

	text_clear(&thread->stack);
	if (!stack_of(e, &stack))
		return;
	text_add_bytes(&thread->stack, (const char *)stack.at, stack.count * sizeof(uint64_t));
	thread->complete = stack.complete;
}

static void add_held_stack(const struct trace *t, const struct trace_thread *thread,
			   const char *module, struct text *out)
{
	const struct event_stack stack = {
		.complete = thread->complete,
		.count = thread->stack.used / sizeof(uint64_t),
		.at = (const uint8_t *)thread->stack.data,
	};

	if (stack.count)
		add_stack(t, &stack, module, out);
}

/* ---------------------------------------------------------------- open calls */

/* The held call gets its line: something else has come in between. */
static void let_go(struct trace *t, struct trace_thread *thread, struct text *out)
{
	if (!thread->held)
		return;
	thread->held = false;
	begin_line(t, thread, thread->held_ns, thread->count - 1, out);
	text_addf(out, "%s {\n", thread->call.data ? thread->call.data : "?");
	add_held_stack(t, thread, thread->frames[thread->count - 1].kind->module, out);
}

/* Calls that must have been left, because something newer lies where they were. */
static void drop_left(struct trace *t, struct trace_thread *thread, uint64_t sp, struct text *out)
{
	while (thread->count && sp) {
		const struct frame *top = &thread->frames[thread->count - 1];

		if (!top->sp || top->sp > sp || sp - top->sp > STACK_NEAR)
			break;
		let_go(t, thread, out);
		thread->count--;
	}
}

static void push(struct trace_thread *thread, const struct event *e, uint64_t sp)
{
	if (thread->count == thread->room && thread->room < FRAMES_MAX) {
		const size_t room = thread->room ? 2 * thread->room : 8;
		struct frame *grown = realloc(thread->frames, room * sizeof(*grown));

		if (grown) {
			thread->frames = grown;
			thread->room = room;
		}
	}
	if (!thread->room)
		return;
	/* Where there is no more room the outermost is forgotten. */
	if (thread->count == thread->room) {
		thread->count--;
		memmove(thread->frames, thread->frames + 1,
			thread->count * sizeof(*thread->frames));
	}
	thread->frames[thread->count++] = (struct frame){e->kind, e->ns, sp};
}

static bool same_function(const struct event_kind *a, const struct event_kind *b)
{
	return a == b || (!strcmp(a->function, b->function) && !strcmp(a->module, b->module));
}

/* The call that the event ends, counted from the outermost; `count` if none is known. */
static size_t ended_by(const struct trace_thread *thread, const struct event *e, uint64_t sp)
{
	for (size_t i = thread->count; i-- > 0;) {
		const struct frame *f = &thread->frames[i];

		if (same_function(f->kind, e->kind) && (!sp || !f->sp || sp == f->sp))
			return i;
	}
	return thread->count;
}

/* --------------------------------------------------------------------- as text */

static void show_entry(struct trace *t, struct trace_thread *thread, const struct event *e,
		       struct text *out)
{
	const uint64_t sp = value_of(e, EVENT_STACK_POINTER, 0);

	let_go(t, thread, out);
	drop_left(t, thread, sp, out);
	push(thread, e, sp);
	thread->held = thread->count > 0;
	thread->held_ns = e->ns;
	text_clear(&thread->call);
	add_call(t, e, &thread->call);
	add_caller(t, e, &thread->call);
	hold_stack(thread, e);
}

static void show_return(struct trace *t, struct trace_thread *thread, const struct event *e,
			struct text *out)
{
	const uint64_t sp = value_of(e, EVENT_STACK_POINTER, 0);
	const size_t at = ended_by(thread, e, sp);
	const bool known = at < thread->count;
	const uint64_t began = known ? thread->frames[at].ns : e->ns;
	const struct colours *c = colours_of(t);
	const bool held = thread->held && known && at + 1 == thread->count;

	if (held) {
		thread->held = false;
		begin_line(t, thread, began, at, out);
		text_addf(out, "%s", thread->call.data ? thread->call.data : "?");
		add_result(t, e, out);
		add_time(t, e->ns - began, out);
	} else {
		let_go(t, thread, out);
		begin_line(t, thread, e->ns, known ? at : 0, out);
		text_addf(out, "}");
		add_result(t, e, out);
		if (known)
			add_time(t, e->ns - began, out);
		text_addf(out, "  %s", c->function);
		text_add_clean(out, e->kind->function);
		text_addf(out, "%s%s", c->off, known ? "" : " (began before)");
	}
	text_addf(out, "\n");
	if (held)
		add_held_stack(t, thread, e->kind->module, out);
	if (known)
		thread->count = at;
}

/* A call as a whole, told when it was over. */
static void show_whole(struct trace *t, struct trace_thread *thread, const struct event *e,
		       struct text *out)
{
	const uint64_t elapsed = value_of(e, EVENT_ELAPSED, 0);

	begin_line(t, thread, e->ns - ((int64_t)elapsed > 0 ? elapsed : 0), 0, out);
	add_call(t, e, out);
	add_result(t, e, out);
	if ((int64_t)elapsed > 0)
		add_time(t, elapsed, out);
	add_caller(t, e, out);
	text_addf(out, "\n");
	add_stack_of(t, e, out);
}

static void show_other(struct trace *t, struct trace_thread *thread, const struct event *e,
		       struct text *out)
{
	let_go(t, thread, out);
	begin_line(t, thread, e->ns, thread->count, out);
	add_call(t, e, out);
	text_addf(out, "\n");
	add_stack_of(t, e, out);
}

/* --------------------------------------------------------------------- as JSON */

static json_t *fields_json(const struct event *e, enum event_role role)
{
	json_t *object = json_object();
	unsigned number = 0;
	char key[32];

	for (size_t n = 0; n < e->kind->field_count;) {
		const struct event_field *f = &e->kind->fields[n];
		struct field_parts parts;
		json_t *value;
		size_t used;

		if (f->role != role) {
			n += field_parts(e, n, &parts);
			continue;
		}
		value = field_json(e, n, &used);
		snprintf(key, sizeof(key), "arg%u", number++);
		json_object_set_new(object, f->name[0] ? f->name : key, value);
		n += used;
	}
	return object;
}

static void set_part(json_t *object, const char *key, const struct event *e, enum event_role role)
{
	json_t *fields = fields_json(e, role);

	if (json_object_size(fields))
		json_object_set(object, key, fields);
	json_decref(fields);
}

static void set_result(json_t *object, const struct event *e)
{
	json_t *parts = NULL;
	size_t used;

	for (size_t n = 0; n < e->kind->field_count; n++) {
		const struct event_field *f = &e->kind->fields[n];

		if (f->role != EVENT_RESULT)
			continue;
		if (!f->name[0]) {
			json_object_set_new(object, "return", field_json(e, n, &used));
			return;
		}
		if (!parts) {
			parts = json_object();
			json_object_set_new(object, "return", parts);
		}
		json_object_set_new(parts, f->name, field_json(e, n, &used));
	}
}

static json_t *event_json(const struct trace *t, const struct event *e, size_t depth,
			  int64_t elapsed)
{
	static const char *const whats[] = {"other", "entry", "return", "call"};
	/* Of a recording, whatever is in it: it may wrap around. */
	const uint64_t time = e->ns + (uint64_t)t->log->epoch_ns;
	struct event_stack stack;
	json_t *object =
		json_pack("{s:I, s:I, s:I, s:o, s:s, s:o, s:o, s:I}", "time", (json_int_t)time,
			  "pid", (json_int_t)e->pid, "tid", (json_int_t)e->tid, "thread",
			  rpc_text(e->thread ? e->thread->name : ""), "event", whats[e->kind->what],
			  "function", rpc_text(e->kind->function), "module",
			  rpc_text(e->kind->module), "depth", (json_int_t)depth);

	if (!object)
		return NULL;
	set_part(object, "args", e, EVENT_ARGUMENT);
	set_part(object, "fields", e, EVENT_FIELD);
	set_result(object, e);
	if (elapsed >= 0)
		json_object_set_new(object, "elapsed_ns", json_integer(elapsed));
	if (value_of(e, EVENT_CALLER, 0)) {
		char text[32];

		snprintf(text, sizeof(text), "0x%" PRIx64, value_of(e, EVENT_CALLER, 0));
		json_object_set_new(object, "caller", json_string(text));
		json_object_set_new(object, "caller_place",
				    place_json(t->log, value_of(e, EVENT_CALLER, 0)));
	}
	if (stack_of(e, &stack)) {
		json_object_set_new(object, "stack", stack_json(t->log, &stack));
		json_object_set_new(object, "stack_complete", json_boolean(stack.complete));
	}
	return object;
}

static void show_json(struct trace *t, struct trace_thread *thread, const struct event *e,
		      struct text *out)
{
	const uint64_t sp = value_of(e, EVENT_STACK_POINTER, 0);
	int64_t elapsed = (int64_t)value_of(e, EVENT_ELAPSED, UINT64_MAX);
	size_t depth = thread->count;
	json_t *object;
	char *line;

	if (e->kind->what == EVENT_ENTRY) {
		drop_left(t, thread, sp, out);
		depth = thread->count;
		push(thread, e, sp);
	} else if (e->kind->what == EVENT_RETURN && !is_whole(e)) {
		const size_t at = ended_by(thread, e, sp);

		depth = at < thread->count ? at : 0;
		if (at < thread->count) {
			elapsed = (int64_t)(e->ns - thread->frames[at].ns);
			thread->count = at;
		}
	}
	object = event_json(t, e, depth, elapsed);
	line = rpc_shown(object, JSON_COMPACT);
	if (line) {
		text_addf(out, "%s\n", line);
		t->lines++;
	}
	free(line);
	json_decref(object);
}

/* -------------------------------------------------------------------- outside */

void trace_event(struct trace *t, const struct event *e, struct text *out)
{
	struct trace_thread *thread = thread_of(t, e);

	if (!thread)
		out->failed = true;
	else if (t->json)
		show_json(t, thread, e, out);
	else if (e->kind->what == EVENT_ENTRY)
		show_entry(t, thread, e, out);
	else if (is_whole(e))
		show_whole(t, thread, e, out);
	else if (e->kind->what == EVENT_RETURN)
		show_return(t, thread, e, out);
	else
		show_other(t, thread, e, out);
}

void trace_flush(struct trace *t, uint64_t ns, struct text *out)
{
	for (size_t i = 0; i < t->thread_count; i++)
		if (t->threads[i]->held && t->threads[i]->held_ns < ns)
			let_go(t, t->threads[i], out);
}
