/* SPDX-License-Identifier: MIT */
/*
 * dinst.h - libdinst: programs that ask questions of running programs.
 *
 * A thin layer over the protocol of dinstd (docs/protocol.md), which does the work
 * in processes of its own: nothing here touches the program that is looked into,
 * and nothing that happens to it can harm the caller.
 *
 *   1. dinst_open()            a connection; starts a daemon if asked to
 *   2. dinst_attach()          a session with a running process
 *   3. dinst_insert()          a metric: one batch, an id for each instance
 *   4. dinst_read(), dinst_watch(), dinst_events()    what it has found
 *   5. dinst_remove(), dinst_detach()                 the program is as it was
 *   6. dinst_close()           held sessions and instances end here at the latest
 *
 * Results: functions that return int return 0, or a negative enum dinst_result with
 * *f filled (f may be NULL); results are set only on success. What a function hands
 * out belongs to the caller, who gives it back with the function named beside it.
 * Structures are only ever made by the library and may grow at their ends. NULL for what
 * must be given is DINST_E_USAGE.
 *
 * Strings are UTF-8 and end with a zero. Numbers are in the unit that is named;
 * times are nanoseconds. `session` names a session, a pid or a process; NULL where
 * the daemon has exactly one session.
 *
 * Threads: a connection belongs to one thread at a time. Several connections may be
 * used at once; they share nothing. dinst_interrupt() alone may be called from other
 * threads and from signal handlers. No signal handler is installed and no thread
 * started; dinst_open() with DINST_START forks once, and takes that child's status
 * itself.
 *
 * cc program.c $(pkg-config --cflags --libs dinst)
 */
#ifndef DINST_H
#define DINST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- failures */

enum dinst_result {
	DINST_E_FAILED = -1,	    /* failed */
	DINST_E_NO_PROCESS = -2,    /* no-such-process */
	DINST_E_GONE = -3,	    /* gone: the program has ended */
	DINST_E_NOT_PERMITTED = -4, /* not-permitted */
	DINST_E_TRACED = -5,	    /* already-traced: by a debugger, say */
	DINST_E_UNSUPPORTED = -6,   /* unsupported */
	DINST_E_NO_FUNCTION = -7,   /* no-such-function */
	DINST_E_NO_MODULE = -8,	    /* no-such-module */
	DINST_E_NO_METRIC = -9,	    /* no-such-metric */
	DINST_E_NO_ID = -10,	    /* no-such-id */
	DINST_E_NO_SESSION = -11,   /* no-such-session */
	DINST_E_USAGE = -12,	    /* usage: of this function, too */
	DINST_E_BUSY = -13,	    /* busy */
	DINST_E_NO_MEMORY = -14,    /* no-memory */
	DINST_E_REFUSED = -15,	    /* refused: it would not be safe */
	DINST_E_BAD_FILE = -16,	    /* bad-file */
	DINST_E_PROTOCOL = -17,	    /* protocol: the two ends do not understand each other */
	DINST_E_DAEMON = -18, /* daemon: none runs, or it has ended; open another connection */
};

struct dinst_failure {
	int code;	 /* enum dinst_result; 0 where nothing failed */
	char text[2048]; /* for people: what failed, and what to do about it */
};

/* The protocol's word for a code, "no-such-function" and so on; never NULL. */
const char *dinst_word(int code);

/* Of the library, "0.1.0". */
const char *dinst_version(void);

/* -------------------------------------------------------------- connections */

struct dinst;

enum dinst_open_flags {
	DINST_START =
		1, /* start a daemon where none runs (it ends by itself when nobody needs it) */
};

/*
 * Connects to the daemon at `socket` (NULL: where dinst would look for it). Without
 * DINST_START it is DINST_E_DAEMON if none runs. dinst_close() ends the connection.
 */
int dinst_open(struct dinst **d, const char *socket, unsigned flags, struct dinst_failure *f);
void dinst_close(struct dinst *d); /* NULL is nothing */

/*
 * Makes the call that the connection waits in, or its next one, fail with DINST_E_FAILED,
 * "interrupted"; dinst_watch() returns. The connection is closed by that where an answer was
 * outstanding: further calls are DINST_E_DAEMON.
 */
void dinst_interrupt(struct dinst *d);

/*
 * What the daemon says by itself comes while a call waits: `kind` is "progress" (text is
 * what is being done) or "event" (something happened to a session: "exited", ...).
 */
typedef void (*dinst_notice)(void *arg, const char *kind, const char *text);
void dinst_on_notice(struct dinst *d, dinst_notice notice, void *arg);

/*
 * Any method of docs/protocol.md: `params` is a JSON object as text (NULL: none), *result
 * another one. Give it back with dinst_free().
 */
int dinst_call(struct dinst *d, const char *method, const char *params, char **result,
	       struct dinst_failure *f);
void dinst_free(char *text);

/* ----------------------------------------------------------------- sessions */

enum dinst_hold {
	DINST_HOLD = 2, /* ends with this connection, however that ends */
};

struct dinst_session {
	const char *name;
	int pid;
	uint64_t modules, functions;
	double attach_ms;
	uint64_t stop_us; /* the longest time that a thread of the program was kept stopped */
	bool joined;	  /* there was a session already */
};

/*
 * A session with `target`, a pid or the name of a process, or of a session that there is. `name`
 * is what it is to be called (NULL: as the process). flags: 0 or DINST_HOLD (which leaves a session
 * alone that was joined). *s (NULL: not wanted) goes back with dinst_session_free().
 */
int dinst_attach(struct dinst *d, const char *target, const char *name, unsigned flags,
		 struct dinst_session **s, struct dinst_failure *f);
void dinst_session_free(struct dinst_session *s);

/* Removes everything and gives the program its code back. *left (may be NULL): places that had
 * to stay for now, 0 nearly always. Where nobody knows how many (its mutator had died and no other could take
 * over, or the attach was still taking out what an earlier session had left) the session ends all the same, and
 * this is DINST_E_FAILED; the text says why and what takes out the rest. */
int dinst_detach(struct dinst *d, const char *session, uint64_t *left, struct dinst_failure *f);

/* ------------------------------------------------------------------ metrics */

/* Adds metrics: MDL text (docs/mdl.md). `name` is how messages call it. */
int dinst_load(struct dinst *d, const char *session, const char *name, const char *text,
	       struct dinst_failure *f);

/* DINST_HOLD as well */
enum dinst_insert_flags {
	DINST_EACH = 4, /* one instance for each match of a glob, not one for all */
};

struct dinst_instance {
	uint64_t id;
	const char *metric, *focus;
	uint64_t points, refused, pending;
	uint64_t stop_us; /* of the whole batch */
};

struct dinst_instances {
	const struct dinst_instance *const *row;
	size_t count;
	bool partial;		  /* something was refused or is pending */
	const char *const *notes; /* what, and why */
	size_t note_count;
};

/*
 * Inserts `metric` for `foci` (names such as "/Code/redis-server/processCommand"; NULL at the end;
 * NULL itself: everything). It is switched off when it takes more than `limit` percent of a CPU
 * (0: no limit). Points that cannot be instrumented are no failure: see `partial`.
 */
int dinst_insert(struct dinst *d, const char *session, const char *metric, const char *const *foci,
		 unsigned flags, double limit, struct dinst_instances **instances,
		 struct dinst_failure *f);
void dinst_instances_free(struct dinst_instances *instances);

struct dinst_bucket {
	double low, high; /* low <= value < high */
	uint64_t count;
};

/* A distribution; quantiles are at most 1/32 off. */
struct dinst_distribution {
	uint64_t count;
	double sum, min, max, p50, p90, p99, p999;
	const struct dinst_bucket *buckets; /* those that are not empty, ascending */
	size_t bucket_count;
};

struct dinst_element {
	const char *key;  /* an address, a thread, a descriptor; NULL: all that found no place */
	const char *name; /* of that thread or address; NULL where it has none */
	double value;
};

struct dinst_value {
	uint64_t id;
	const char *metric, *focus;
	const char *unit; /* "calls", "ns", ... */
	double value;	  /* of a distribution: how many; of a vector: of all its elements */
	bool is_level;	  /* else a total, of interest as a rate */
	bool waiting;	  /* its module is not loaded yet */
	bool stopped;	  /* it was above its limit */
	const struct dinst_distribution *distribution; /* NULL where it is none */
	const struct dinst_element *elements;	       /* of a vector, largest first */
	size_t element_count;
};

struct dinst_values {
	const struct dinst_value *const *row;
	size_t count;
	uint64_t time_ns; /* CLOCK_MONOTONIC, when the answer had come */
};

/* The values of `count` instances now; all that there are if count is 0. */
int dinst_read(struct dinst *d, const char *session, const uint64_t *ids, size_t count,
	       struct dinst_values **values, struct dinst_failure *f);
void dinst_values_free(struct dinst_values *values);

/* Called with what was read and what was read before it (NULL the first time), both the
 * library's; anything but 0 ends the watch. */
typedef int (*dinst_watcher)(void *arg, const struct dinst_values *now,
			     const struct dinst_values *before);

/*
 * Reads every `interval_ns` until the watcher or dinst_interrupt() ends it (that is 0), or
 * reading fails.
 */
int dinst_watch(struct dinst *d, const char *session, const uint64_t *ids, size_t count,
		uint64_t interval_ns, dinst_watcher watcher, void *arg, struct dinst_failure *f);

/* Switches instances off at once (count 0: all of the session); memory follows when it is safe. */
int dinst_remove(struct dinst *d, const char *session, const uint64_t *ids, size_t count,
		 struct dinst_failure *f);

/* ------------------------------------------------------------------- events */

/* DINST_HOLD as well */
enum dinst_trace_flags {
	DINST_ARGUMENTS = 8, /* their values at the entry */
	DINST_RETURNS = 16,  /* returns as well, with the result and the time it took */
};

/*
 * Records the calls of functions (patterns as for `dinst funcs`; NULL at the end). Instances of
 * metrics of yours with a `stream` (docs/mdl.md) record events, too. They lie in the program's
 * memory until dinst_events() fetches them; what finds no room there is dropped and counted.
 */
int dinst_trace(struct dinst *d, const char *session, const char *const *functions, unsigned flags,
		struct dinst_instances **instances, struct dinst_failure *f);

enum dinst_field_form {
	DINST_VALUE,  /* `value` */
	DINST_STRING, /* `bytes`: characters, without a zero */
	DINST_BYTES,  /* `bytes`: memory of the program */
	DINST_STACK, /* `bytes`: uint64_t, 1 where all calls are there, then addresses (docs/protocol.md) */
};

/* What a field of dinst_trace() is for. */
enum dinst_field_role {
	DINST_FIELD,	 /* an expression of a metric of yours */
	DINST_ARGUMENT,	 /* of the function */
	DINST_OUTCOME,	 /* what it returned */
	DINST_POINTEE,	 /* what the field before this one points to */
	DINST_ELAPSED,	 /* ns since its entry */
	DINST_CALLER,	 /* the address that it returns to */
	DINST_BACKTRACE, /* the calls around it */
};

struct dinst_field {
	const char *name; /* an argument's, or the expression */
	enum dinst_field_form form;
	enum dinst_field_role role;
	uint64_t value;
	const void *bytes;
	size_t length;
};

struct dinst_event {
	uint64_t ns; /* CLOCK_MONOTONIC */
	uint32_t tid;
	const char *thread; /* its name; NULL where it is not known */
	const char *what;   /* "entry", "return", "call", "other" */
	const char *function, *module;
	uint64_t address; /* of the place in the code */
	const struct dinst_field *fields;
	size_t field_count;
};

/* An event, the library's until this returns; anything but 0 skips the rest of this answer. */
typedef int (*dinst_event_each)(void *arg, const struct dinst_event *event);

/*
 * Fetches what `count` instances have recorded (all that there are if count is 0) and returns at
 * once: events of a thread in their order, all by time. Those of instances that another connection
 * inserted are left out. Call it every 10 to 50 ms. *dropped (may
 * be NULL): how many were lost for want of room since the stream began.
 */
int dinst_events(struct dinst *d, const char *session, const uint64_t *ids, size_t count,
		 dinst_event_each each, void *arg, uint64_t *dropped, struct dinst_failure *f);

#ifdef __cplusplus
}
#endif

#endif
