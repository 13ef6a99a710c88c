/* SPDX-License-Identifier: MIT */
/*
 * event.h - what a target's streams say, as values: which kinds of events there are, which
 * threads, and the events themselves. No protocol calls, no terminal.
 *
 * Calling sequence:
 *   1. event_log_init()
 *   2. event_log_kinds()     for each answer of `insert` or `trace`: its rows say what events look like
 *   3. event_log_add()       for each answer of `events`; calls back for each event in it
 *   4. event_log_release()
 *
 * Nothing is kept of an event: what is passed to the callback is valid until that returns,
 * but its kind and thread are the log's and stay until it is released (a kind: or forgotten). Events of one thread come in
 * their order, those of all threads in order of time (docs/protocol.md, `events`).
 *
 * All that comes in is checked, so a log may be fed with anything: what is no event is counted
 * (`damaged`) and skipped, and reading a field never leaves its event.
 */
#ifndef DINST_DAEMON_REPORT_EVENT_H
#define DINST_DAEMON_REPORT_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>

#include "inject/error.h"

/* Where in a function an event comes from. */
enum event_what { EVENT_OTHER, EVENT_ENTRY, EVENT_RETURN, EVENT_CALL };

/* How a field lies in an event. */
enum event_form {
	EVENT_VALUE,  /* 8 bytes */
	EVENT_STRING, /* u64 length, then so many bytes, no zero behind them */
	EVENT_BYTES,  /* the same: memory of the target */
	EVENT_STACK,  /* the same: u64 complete, then addresses (struct event_stack) */
};

/* What a field is for; the method `trace` says so, fields of others are EVENT_FIELD. */
enum event_role {
	EVENT_FIELD,	     /* an expression of somebody's */
	EVENT_ARGUMENT,	     /* of the function, called `name` */
	EVENT_RESULT,	     /* what it returned */
	EVENT_POINTEE,	     /* what the argument or result before it points to */
	EVENT_MEMBER,	     /* what a pointer at `at` in the pointee before it points to */
	EVENT_ELAPSED,	     /* ns since its entry */
	EVENT_CALLER,	     /* address that it returns to */
	EVENT_STACK_POINTER, /* where the activation is: with it pairs of entry and return are certain */
	EVENT_DEPTH,	     /* of recursion: activations of the function around this one */
	EVENT_BACKTRACE, /* the calls around it */
};

/* ------------------------------------------------------------------- types */

enum value_form {
	VALUE_INT,
	VALUE_UINT,
	VALUE_BOOL,
	VALUE_CHAR,
	VALUE_ENUM,
	VALUE_FLOAT,
	VALUE_POINTER,
	VALUE_STRING, /* a pointer to characters */
	VALUE_STRUCT,
	VALUE_ARRAY,
};

struct value_type;

struct value_name {
	int64_t value;
	char *name;
};

struct value_member {
	char *name; /* "" for what has none */
	uint32_t offset;
	uint8_t bit_offset, bit_size; /* bit_size 0: no bit field */
	struct value_type *type;
};

/* A type, as far as it is needed to show a value of it. */
struct value_type {
	enum value_form form;
	char *name;		  /* as in C: "struct client *"; may be "" */
	uint32_t size;		  /* bytes */
	bool is_unsigned;	  /* an enum; of others the form says it */
	struct value_name *names; /* of an enum, in no order */
	size_t name_count;
	struct value_member *members; /* of a struct */
	size_t member_count;
	struct value_type *to; /* of a pointer, of the elements of an array; may be NULL */
};

/* ------------------------------------------------------------------- kinds */

struct event_field {
	enum event_form form;
	enum event_role role;
	char *text;		 /* the expression */
	char *name;		 /* for people: an argument's name, else the expression */
	uint32_t offset, size;	 /* in the event's data, bytes */
	uint32_t at;		 /* EVENT_MEMBER: bytes from the pointee's begin */
	struct value_type *type; /* NULL: not known */
};

/* What all events of one point have in common. */
struct event_kind {
	uint32_t id;
	enum event_what what;
	char *function, *module;
	uint64_t address; /* of the point */
	struct event_field *fields;
	size_t field_count;
};

struct event_thread {
	uint32_t tid, pid;
	char *name;
};

/* What code is at an address of a caller or a stack. */
struct event_place {
	uint64_t word;		 /* as in events, with its bits */
	char *function, *module; /* NULL: not known */
	int64_t offset;		 /* from the function's begin, else the module's; -1: not known */
};

/* Bits of an address in a stack (docs/protocol.md). */
#define EVENT_INTERRUPTED (1ull << 63) /* by a signal, there; else it is a return address */
#define EVENT_GUESSED	  (1ull << 62) /* by a frame pointer */

struct event_stack {
	bool complete;	   /* the last one is where the thread began */
	size_t count;	   /* the caller is the first one */
	const uint8_t *at; /* addresses, not aligned: event_stack_frame() */
};

struct event {
	uint64_t ns;	   /* CLOCK_MONOTONIC */
	uint32_t tid, pid; /* pid 0: not told */
	const struct event_kind *kind;
	const struct event_thread *thread; /* NULL: not told */
	const uint8_t *data;		   /* the whole record; offsets of fields count from here */
	size_t size;
};

/* Returns 0 to go on; anything else ends event_log_add(), which returns it. */
typedef int event_each(void *arg, const struct event *e);

struct event_log {
	struct event_kind **kinds; /* sorted by id */
	size_t kind_count;
	struct event_thread **threads; /* sorted by tid */
	size_t thread_count;
	struct event_place **places; /* sorted by word */
	size_t place_count;
	struct event_place **place_order; /* the same as they came; for who writes them down */
	uint64_t dropped;	 /* that the target could not write, since the log was begun */
	uint64_t dropped_before; /* that were dropped in the session by then */
	uint64_t damaged;	 /* that were none, or of no known kind */
	uint64_t events;	 /* that were passed on */
	int64_t epoch_ns;	 /* CLOCK_REALTIME minus CLOCK_MONOTONIC */
	uint64_t now_ns;	 /* of the target's mutator at the last answer */
	uint64_t first_ns;	 /* of the first event, 0: there was none */
	bool more;		 /* there was more when the last answer was made */
	uint8_t *buffer;	 /* of decoded bytes, kept from one answer to the next */
	size_t buffer_size;
};

void event_log_init(struct event_log *log);
void event_log_release(struct event_log *log);

/*
 * Learns the kinds in the `events` of an answer's rows; a kind that is known already is
 * kept as it is. Returns 0, DINST_PROTOCOL where something in them is wrong (the others
 * are learnt all the same), DINST_NO_MEMORY.
 */
int event_log_kinds(struct event_log *log, const json_t *rows, struct dinst_error *e);

/*
 * Forgets the kinds whose ids are in none of the ranges, as `kept_kinds` has them. Not while events are
 * told.
 */
void event_log_keep(struct event_log *log, const json_t *ranges);

/* NULL where there is none of that id. */
const struct event_kind *event_log_kind(const struct event_log *log, uint32_t id);
const struct event_thread *event_log_thread(const struct event_log *log, uint32_t tid);
/* Adds a thread, or gives a new name to it. Returns 0 or DINST_NO_MEMORY. */
int event_log_name(struct event_log *log, uint32_t tid, uint32_t pid, const char *name,
		   struct dinst_error *e);

/* event_places.c */
void event_places_release(struct event_log *log);
/* NULL: nothing is known of it. */
const struct event_place *event_log_place(const struct event_log *log, uint64_t word);
/* Learns rows of `places`; what is known of an address is replaced. Returns 0 or DINST_NO_MEMORY. */
int event_log_places(struct event_log *log, const json_t *rows, struct dinst_error *e);

/*
 * One answer of `events`: threads and counts are learnt, then `each` is called for every event.
 * Returns 0, what `each` returned, or a negative code with *e filled.
 */
int event_log_add(struct event_log *log, const json_t *answer, event_each *each, void *arg,
		  struct dinst_error *e);
/* The same for records as they come out of base64 (daemon/report/ctf.c). */
int event_log_records(struct event_log *log, const uint8_t *data, size_t size, event_each *each,
		      void *arg);

/* ------------------------------------------------------------------ fields */

/* The field of that role, the first one; NULL if there is none. */
const struct event_field *event_field(const struct event_kind *kind, enum event_role role);
/* The value of an EVENT_VALUE; false if it is none, or not in the event. */
bool event_value(const struct event *e, const struct event_field *f, uint64_t *value);
/* The bytes of the other forms; false if they are not there. *length is at most what the event has. */
bool event_bytes(const struct event *e, const struct event_field *f, const uint8_t **bytes,
		 size_t *length);

/* The calls around it; false if it is no EVENT_STACK, or not in the event. */
bool event_stack(const struct event *e, const struct event_field *f, struct event_stack *stack);
uint64_t event_stack_frame(const struct event_stack *stack, size_t n);

/* A type from its description (docs/protocol.md), NULL for null, for what is none, without memory. */
struct value_type *value_type_read(const json_t *description);
void value_type_free(struct value_type *type);

/*
 * Decodes base64 (RFC 4648, with padding). Returns the number of bytes, or SIZE_MAX if
 * it is none or `room` is too small; at most length / 4 * 3 bytes are needed.
 */
size_t base64_decode(const char *text, size_t length, uint8_t *to, size_t room);

#endif
