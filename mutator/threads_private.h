/* SPDX-License-Identifier: MIT */
/*
 * threads_private.h - what threads*.c and catch_up.c share.
 */
#ifndef DINST_MUTATOR_THREADS_PRIVATE_H
#define DINST_MUTATOR_THREADS_PRIVATE_H

#include "mutator/threads.h"

/* Of a function's number. A retired one may still stand in some record. */
enum id_state { ID_FREE, ID_TAKEN, ID_RETIRED };

/* Of a word of records. One that is dropped is cleared in a stop before it is given out again. */
enum word_state { WORD_FREE, WORD_TAKEN, WORD_DROPPED };

/* A chunk's clocks entry where nothing of it was ever given out. */
enum { CHUNK_UNUSED = 0xff };

/* A function that is paired: what stands for a number. */
struct paired {
	const struct module *module; /* NULL: a number of the older way */
	uint32_t index;
	unsigned references;
	uint32_t next; /* number with the same hash */
	/* Its undo routine; code 0: none. */
	struct place *place;
	taddr_t undo;
	size_t undo_size;
	struct snippet_code **codes;
	size_t code_count;
	uint32_t held; /* 1 + where it is in held_undos as it was first; 0: it is not */
};

enum { PAIRED_HASH = 1 << 12 };

/* What the routine of function `id` was, and still is for the target until threads_turn_undos(). */
struct held_undo {
	uint32_t id;
	struct paired old;
};

struct threads {
	struct place *place; /* whose arena the state is a part of */
	taddr_t area;
	unsigned shift; /* log2 of the number of records */
	int32_t tid_offset, stack_offset;
	taddr_t lost, overflow, orphans; /* counters */
	taddr_t shared;			 /* struct pair_shared, in the place's arena */
	/* What is in it is kept here too: it is written, and never read back. */
	size_t used; /* bytes of a record up to the end of `words` */
	taddr_t tables[PAIR_UNDO_TABLES];
	uint8_t *ids;	       /* enum id_state */
	struct paired *paired; /* by number */
	bool holding_undos, turned_undos;
	struct held_undo *held_undos;
	size_t held_undo_count, held_undo_room;
	struct stack_range *routines; /* sorted: threads_list_routines() */
	size_t routine_count, routine_room;
	uint32_t hash[PAIRED_HASH]; /* of functions: the first number, 0: none */
	uint32_t next_id, next_raw;
	size_t retired;
	bool purging;	    /* threads_tidy() takes retired ids out of records */
	uint64_t lost_seen; /* at the last stop */
	uint64_t poll_ns;   /* CLOCK_MONOTONIC of that */
	uint64_t poll_pause_ns;
	bool useful; /* records of threads that have ended were given back since the last poll */

	uint8_t chunks[PAIR_CHUNKS];		 /* as in struct pair_shared, or CHUNK_UNUSED */
	uint8_t words[PAIR_CHUNKS * PAIR_CHUNK]; /* enum word_state */
	size_t dropped;				 /* words */
	bool strayed;	     /* threads_catch_up() has left some in `other` that belong at home */
	bool keep_dropped;   /* one could not be cleared somewhere, in the stop that goes on */
	unsigned cpu_timers; /* words of timers of CPU time that are taken */

	/* Processes that share the state, as of `family_ns`; for readers. */
	struct target **family;
	size_t family_count;
	uint64_t family_ns;
};

/* What is found out about the threads of a stopped process. */
struct threads_lesson {
	int32_t tid_offset;
	int32_t stack_offset; /* 0: not known */
	uint64_t main_pointer, main_lo, main_size;
};

/*
 * threads_learn.c: finds where the C library keeps a thread's id and its stack,
 * by what is the same for all threads. DINST_REFUSED or DINST_BUSY, with the
 * reason, where that cannot be known.
 */
int threads_learn(struct stop *stop, struct threads_lesson *lesson, struct dinst_error *e);

/* A word of a counter that emitted code counts up by itself. */
taddr_t threads_locked_word(const struct place *p, taddr_t counter);

/* threads_ids.c: the older way, and what goes with the session. */
void threads_free_ids(struct threads *t);
/* Takes retired numbers, or dropped words, out of all records, and brings home: a stop of its own. */
int threads_sweep(struct session *s, bool ids, struct dinst_error *e);

/* threads_undo.c: gives back what function `id` has; the references of its codes. */
void threads_drop_undo(struct session *s, uint32_t id);
/*
 * What is undone for function `id` without what was set since threads_hold_undos(), up to threads_let_undos_go();
 * NULL: nothing is paired at all. Of it only `codes` are to be used.
 */
const struct paired *threads_undone_before(const struct threads *t, uint32_t id);

/* catch_up.c: in a stop of a process of the family. *left: threads that are still in code of ours. */
int threads_bring_home_in(struct session *s, struct stop *stop, size_t *left,
			  struct dinst_error *e);

/* What the family shares, to be written. */
struct pair_shared *threads_shared(const struct threads *t);

/* The tables of one process, as they were when they were read. */
struct tables {
	const struct threads *threads;
	const struct target *target;
	uint64_t *keys;
	uint32_t *owners;
	struct pair_record *record; /* the one that was read last */
	uint64_t process;	    /* the process's own id; 0: nobody has asked yet */
};

/*
 * threads_state.c: the processes besides the target that have the arena, and records of their own; one
 * of each memory. malloc'ed. False: they cannot be found.
 */
bool threads_find_family(const struct session *s, pid_t **pids, size_t *count);
/* False if there is no memory, or nothing to be read. */
bool threads_tables_read(struct tables *b, const struct threads *t, const struct target *target);
void threads_tables_release(struct tables *b);
taddr_t threads_record_address(const struct threads *t, size_t number);
/* Into b->record. False if it cannot be read, or is not one. */
bool threads_record_read(struct tables *b, size_t number);

/* threads_words.c: clears dropped words in the records of a stopped process. */
void threads_clear_words(struct threads *t, struct stop *stop, const struct tables *tables);

/* threads_clock.c: true if this kernel clears rseq_cs whenever a thread is switched out, and then
 * only (proved once, on a thread of ours). */
bool threads_clock_is_kept(void);

#endif
