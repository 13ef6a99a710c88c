/* SPDX-License-Identifier: MIT */
/*
 * stream.h - events: what the code of metrics whose base is a stream has recorded.
 *
 * A session has one set of rings (arch/ring.h), made when the first stream is
 * inserted, and used by all of them. What a record means its id tells: a kind of
 * event is one record() of one function's code, described here.
 *
 *   1. stream_prepare() for a variable that is a stream, stream_describe() for
 *      each record() that is compiled;
 *   2. stream_collect() as often as there is time: records go from the rings to the
 *      queues of their variables, in order;
 *   3. stream_take() for a client; stream_threads_json() tells whose they are;
 *   4. stream_retire() when no code uses the variable any more, stream_free() with
 *      the session.
 *
 * Whatever is in the rings may have been written by the target by mistake: what is
 * no record is counted as damaged and skipped, and nothing is followed.
 */
#ifndef DINST_MUTATOR_STREAM_H
#define DINST_MUTATOR_STREAM_H

#include <jansson.h>

#include "arch/calling.h"
#include "arch/program.h"
#include "mutator/core.h"

struct stream;	     /* opaque; one per session */
struct stream_queue; /* events of one variable that nobody has taken yet */

enum stream_form {
	STREAM_VALUE,  /* 8 bytes */
	STREAM_STRING, /* u64 length, then the bytes, without the zero behind them */
	STREAM_BYTES,  /* the same */
	STREAM_STACK,  /* struct stream_stack; handed out as struct stream_frames */
};

/* A stack as a record in a ring has it. */
struct stream_stack {
	uint64_t sp,
		caller; /* at an entry or exit: the address and the value of the return address */
	uint64_t preserved[ARCH_PRESERVED_MOST];
	uint64_t length; /* bytes of the stack, from sp on */
	uint8_t bytes[];
};

enum {
	STREAM_FRAME_BYTES = 256, /* of the stack, for each call that is wanted */
	STREAM_STACK_LEAST = 1024,
	STREAM_STACK_MOST = 7680,
};

/* What clients get of it. */
struct stream_frames {
	uint64_t length;   /* bytes behind it */
	uint64_t complete; /* 1: the last one is where the thread began; 0: there are more */
	uint64_t frames[]; /* addresses, the caller's first */
};

/*
 * In such an address: the thread was interrupted there (else it is a return address), and it was
 * found by a frame pointer (else by unwind tables). No program has addresses with these bits.
 */
#define STREAM_INTERRUPTED (1ull << 63)
#define STREAM_GUESSED	   (1ull << 62)

struct stream_field {
	char *text; /* the expression; malloc'ed */
	enum stream_form form;
	uint32_t offset, size; /* from the record's beginning; bytes, with the length's */
	uint8_t float_size;    /* 4, 8: the bits of a float or double; else 0 */
	bool is_address; /* of code that the function returns to: clients are told what it is */
	uint16_t frames; /* of a stack, at most */
};

/* Bytes of the field in what is handed out. */
uint32_t stream_field_told(const struct stream_field *f);

/* What all events of one id have in common. */
struct stream_event {
	uint32_t id, size;
	uint32_t told_size; /* of the record when it is handed out; by stream_describe() */
	const void *key;    /* the record() in its tree; with function and kind: what makes an id */
	struct function_ref function;
	char *function_name, *module_name;
	taddr_t address;
	enum point_kind kind;
	bool tail;
	struct stream_field *fields;
	size_t field_count;
	struct stream_queue *queue;
};

/*
 * Makes sure that there are rings, and a queue in *queue. DINST_UNSUPPORTED: this
 * target's memory cannot be shared; DINST_NO_MEMORY.
 */
int stream_prepare(struct session *s, struct place *p, struct stream_queue **queue,
		   struct dinst_error *e);
/* The arena that the session's rings are in; NULL: there are none. */
const struct arena *stream_arena(const struct session *s);

/* What programs must know of the rings; leaves zeros where there are none. */
void stream_environment(const struct session *s, struct arch_environment *environment);
/* The most bytes that a record may have. */
unsigned stream_record_most(const struct session *s);

/*
 * The id of the events that *kind describes (queue set, id not): the same for what was described
 * before. Takes over kind->fields where it succeeds, else they are the caller's. 0: no memory.
 */
uint32_t stream_describe(struct session *s, const struct stream_event *kind);

/* The queue's variable goes: what is in the rings and in it may be taken for a while. */
void stream_retire(struct session *s, struct stream_queue *queue);
void stream_free(struct stream *st);

/* --------------------------------------------------------------- reading */

/* From the rings to the queues. Never waits. */
void stream_collect(struct session *s);
/*
 * To be called between requests: collects where somebody has asked for events a moment ago, so
 * that the rings need not hold what comes between two questions, and gives back what nobody took
 * of variables that went. Returns after how many milliseconds again, -1: there is no need.
 */
int stream_pump(struct session *s);
/* Which instance a queue is asked for by; see stream_find(). */
void stream_name(struct stream_queue *queue, unsigned instance);
/* The queue of an instance that is there, or was removed a moment ago; NULL: it has none. */
struct stream_queue *stream_find(const struct session *s, unsigned instance);

struct stream_taken {
	uint8_t *data; /* records with ns for ticks; malloc'ed, NULL: none */
	size_t size;
	bool more;
	uint64_t dropped; /* by the target or for want of our memory, since the stream began */
	uint64_t damaged;
	json_t *places; /* what code addresses in it are that were not told before; NULL: none */
};

/*
 * Takes whole records, `most` bytes of them, out of queues, all of them where count is 0; in the
 * order in which they came. *threads: a list of those that were not told with them before.
 */
int stream_take(struct session *s, struct stream_queue *const *queues, size_t count, size_t most,
		struct stream_taken *taken, json_t **threads, struct dinst_error *e);

/* For rows of `insert`: its kinds of events, NULL where the instance has no stream. */
json_t *stream_events_json(const struct instance *i);

/* Adds to an answer whose stream its ids of kinds are of. */
void stream_tell_whose(const struct session *s, json_t *answer);
/* Adds to an answer which kinds there are. */
void stream_tell_kept(const struct session *s, json_t *answer);

#endif
