/* SPDX-License-Identifier: MIT */
/*
 * stream_private.h - for the files of streams only:
 *
 *   stream.c          rings, kinds of events, queues: making and giving back
 *   stream_read.c     from the rings to the queues, in order
 *   stream_take.c     from the queues to clients
 *   stream_threads.c  whose events they are
 *   stream_stuck.c    rings whose holder never comes back
 *   stream_stack.c    stacks that were copied: the calls in them
 *   stream_places.c   what addresses of code are
 */
#ifndef DINST_MUTATOR_STREAM_PRIVATE_H
#define DINST_MUTATOR_STREAM_PRIVATE_H

#include "inject/stack.h"
#include "mutator/stream.h"

/* A ring that is taken, and by the same one as at the last look. */
struct stuck {
	uint64_t lock, opened; /* lock 0: it was free */
	uint64_t since_ns, looked_ns;
	pid_t tid;   /* of its holder, when it was last looked for; 0: not known */
	bool wanted; /* that is to be looked for */
};

/* One ring as its reader knows it: nothing here was taken from the target unchecked. */
struct ring_reader {
	struct arch_ring *ring; /* our view */
	uint64_t tail;
	uint64_t last;	 /* ticks of the last record: they ascend */
	uint8_t *staged; /* records that were read and not passed on; ticks put right */
	size_t begin, end, room;
	struct stuck stuck;
};

/* A thread that has recorded something. */
struct stream_thread {
	uint32_t own;	   /* its id as it sees it */
	uint32_t tid, pid; /* as we see it; pid 0: not known */
	char name[16];
	uint32_t next;	    /* of the same hash; index + 1 */
	uint64_t looked_ns; /* when it was asked for its name last */
	bool wanted; /* nobody of that id is known, or not any more: it is to be looked for */
};

/* When something was searched for in all processes last, and how long that took. */
struct stream_search {
	uint64_t ended_ns, took_ns;
};

/* Addresses that clients know already, a hash table. */
struct stream_told {
	uint64_t *words; /* 0: free */
	size_t count, room;
	uint64_t changes; /* of the session's modules, when they were told */
};

struct stream_queue {
	struct stream_queue *next;
	unsigned instance;
	uint32_t kinds_told; /* ids up to this one were told to clients */
	uint64_t retired_ns; /* 0: its variable is there */
	/* Records, a sequence number in front of each. */
	uint8_t *bytes;
	size_t begin, end, room;
	uint8_t *told; /* bit n: thread n was told with it */
	size_t told_size;
	struct stream_told places;
};

enum { STREAM_HASH = 1 << 13 };

struct stream {
	struct session *session;
	struct arena *arena; /* of the rings */
	struct heap *heap;
	struct arch_stream at;
	struct ring_reader *rings;
	unsigned ring_count;
	uint8_t *copy;		      /* bytes of one ring */
	struct stream_event **events; /* by id - 1; NULL: gone */
	size_t event_count, event_room;
	struct stream_queue *queues;
	size_t queued; /* bytes of all queues */
	uint64_t sequence;
	uint64_t lost, damaged;
	uint64_t begun_ns; /* no other one has the same; ids of kinds are its own */
	int64_t epoch;	   /* what is added to ns of ticks to get CLOCK_MONOTONIC */
	uint64_t latest;   /* ticks: the latest moment at which a ring was looked at */
	uint64_t asked_ns; /* when somebody asked for events last; 0: never */
	uint64_t stopped_ns, stop_pause_ns; /* when a stop was made for rings that are stuck */
	struct stream_search holders;	    /* of rings */
	struct stream_thread *threads;
	size_t thread_count, thread_room;
	uint32_t thread_at[STREAM_HASH]; /* index + 1 */
	bool own_ids;			 /* the target's threads have ids of their own */
	struct stream_search sought;	 /* threads whose ids are not ours */
	struct stream_search named;	 /* one of them was asked for its name anew */
	struct stack_walk *walk;	 /* of stacks; NULL: none was */
	uint64_t walk_ns, walk_changes;	 /* when it was made, and of which modules */
	uint64_t modules_ns;		 /* when those were looked at for places */
};

/* What precedes a record in a queue. */
enum { STREAM_SEQUENCE = 8 };

/* Index of the thread with that id of its own; a new one where it is not known. SIZE_MAX: no memory. */
size_t stream_thread(struct stream *st, uint32_t own);

/* True if the target's threads call themselves as we call them. */
bool stream_ids_are_ours(const struct stream *st);

/* True if thread `tid`, by our id, lives, has the rings, and calls itself `own`, or if that cannot be told. */
bool stream_is_holder(const struct stream *st, pid_t tid, uint32_t own);

/*
 * The same for telling whose events they are: it may have ended, as long as nobody else can have its id, and what
 * cannot be told is false.
 */
bool stream_is_known(const struct stream *st, pid_t tid, uint32_t own);

/* False: it would take too much of our time to do it again by now. */
bool stream_may_search(const struct stream_search *last, uint64_t now);
void stream_searched(struct stream_search *search, uint64_t begun);

/*
 * Looks through all threads that have the rings, for those that have taken a ring whose stuck.wanted is
 * set: those that live are in stuck.tid. False: not now, for that has just been done, and it takes
 * long; or it cannot be told.
 */
bool stream_find_holders(struct stream *st);

/* Frees rings whose holder never comes back. Seldom a stop. */
void stream_look_for_stuck(struct stream *st);

/*
 * The calls in a stack of a record: at most `frames` of them, into `to`, which has room for what
 * stream_field_told() says; what is not used of it is zeros.
 */
void stream_walk(struct stream *st, const struct stream_field *f, uint8_t *record, uint8_t *to);

/* Adds to *places, made if need be, what addresses of a record that goes out are new to the queue. */
void stream_tell_places(struct stream *st, struct stream_queue *q, const struct stream_event *event,
			const uint8_t *record, json_t **places);

/* Frees a queue and its kinds of events. */
void stream_forget(struct stream *st, struct stream_queue *queue);

#endif
