/* SPDX-License-Identifier: MIT */
/*
 * threads_private.h - what threads*.c share.
 */
#ifndef DINST_MUTATOR_THREADS_PRIVATE_H
#define DINST_MUTATOR_THREADS_PRIVATE_H

#include "mutator/threads.h"

/* Of a function's number. A retired one may still stand in some record. */
enum id_state { ID_FREE, ID_TAKEN, ID_RETIRED };

struct threads {
	struct place *place; /* whose arena the state is a part of */
	taddr_t area;
	unsigned shift; /* log2 of the number of records */
	int32_t tid_offset, stack_offset;
	taddr_t lost, overflow, orphans; /* counters */
	uint8_t *ids;			 /* enum id_state */
	uint32_t next_id;
	size_t retired;
	bool purging;	    /* threads_tidy() takes retired ids out of records */
	uint64_t lost_seen; /* at the last stop */
	uint64_t poll_ns;   /* CLOCK_MONOTONIC of that */
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

#endif
