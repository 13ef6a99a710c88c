/* SPDX-License-Identifier: MIT */
/*
 * text.h - events and values as people read them, and as JSON. No terminal: whoever calls says
 * whether there are colours, and writes what comes out.
 *
 * Calls are shown as in C, indented by who called whom; a call in which nothing else was seen is
 * one line, with what it returned and how long it took:
 *
 *   12:00:01.000123  server/4711  handle(r=0x7f10 {id=5, name="x"}) {
 *   12:00:01.000125  server/4711    look_up(key="x") = FOUND [1.2 us]
 *   12:00:01.000130  server/4711  } = 0 [7.4 us]  handle
 *
 * With a stack the calls around it follow, one a line, further to the right; they count as one
 * line with their event's, and begin with a space, which no other line does.
 *
 * So an entry is held back until the thread's next event, and at most until trace_flush().
 *
 * Calling sequence: trace_init(), then trace_event() for each event in order, trace_flush()
 * wherever one has waited a while, trace_flush() with UINT64_MAX at the end, trace_release().
 * All texts come from a target: control characters never get through.
 */
#ifndef DINST_DAEMON_REPORT_TEXT_H
#define DINST_DAEMON_REPORT_TEXT_H

#include "daemon/report/event.h"

/* A text that grows. Without memory it stays as it is, and `failed` says so. */
struct text {
	char *data; /* ends with a zero byte; NULL while there is nothing */
	size_t used, room;
	bool failed;
};

void text_addf(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_add_bytes(struct text *t, const char *bytes, size_t length);
/* Empties it; its memory is kept. */
void text_clear(struct text *t);
void text_drop(struct text *t);

/* Quoted as in C; what is not UTF-8, or would move a cursor, as \xNN. */
void text_add_quoted(struct text *t, const uint8_t *bytes, size_t length);
/* A name as it is, but what is not for people as '?'. */
void text_add_clean(struct text *t, const char *name);
/* "1.234 us": three or four digits, a unit from ns to s. */
void text_add_duration(struct text *t, uint64_t ns);

/*
 * A value of `size` bytes at `bytes`, of a type that may be NULL (then as a number). What the
 * bytes do not reach to is "...".
 */
void text_add_value(struct text *t, const struct value_type *type, const uint8_t *bytes,
		    size_t size);
/* The same as JSON: numbers, strings, objects; NULL without memory. */
json_t *value_json(const struct value_type *type, const uint8_t *bytes, size_t size);

/*
 * An argument or a result with what it points to: field `n` of the event's kind. Returns the
 * number of fields that belong to it (at least 1).
 */
size_t text_add_field(struct text *t, const struct event *e, size_t n);
/* The same as JSON; *used is that number. */
json_t *field_json(const struct event *e, size_t n, size_t *used);

/*
 * An address of code with what is there: "handle+0x1d", behind it the module in brackets if that
 * is not `module` (may be NULL), and '?' where it is a guess.
 */
void text_add_place(struct text *t, const struct event_log *log, uint64_t word, const char *module);
/* The calls of a stack, a line each, `indent` columns to the right; "..." where there are more. */
void text_add_stack(struct text *t, const struct event_log *log, const struct event_stack *stack,
		    const char *module, unsigned indent);
/* True if such a line begins here. */
bool text_is_stack(const char *line);
/* The same as JSON: an object, a list of objects. */
json_t *place_json(const struct event_log *log, uint64_t word);
json_t *stack_json(const struct event_log *log, const struct event_stack *stack);

/* ------------------------------------------------------------------- traces */

struct trace_thread; /* text_trace.c */

struct trace {
	bool colour;
	bool json;	/* one object a line instead of text */
	uint64_t lines; /* that were made */

	/* For text_trace.c only. */
	const struct event_log *log;
	struct trace_thread **threads; /* sorted by tid */
	size_t thread_count;
	unsigned column; /* where the call of the last line begins */
};

/* The log is borrowed; it tells what the clock's epoch is. */
void trace_init(struct trace *t, const struct event_log *log);
void trace_release(struct trace *t);

/* Adds the lines that the event makes certain, each with its newline. */
void trace_event(struct trace *t, const struct event *e, struct text *out);
/* Adds the lines of entries from before `ns` that are held back. */
void trace_flush(struct trace *t, uint64_t ns, struct text *out);

#endif
