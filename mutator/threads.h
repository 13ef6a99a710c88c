/* SPDX-License-Identifier: MIT */
/*
 * threads.h - per-thread state of a target, and activations on top of it.
 *
 * What the target keeps is described in arch/pairing.h. Here it is made when
 * the first request needs it, read, and tidied up in stops.
 *
 *   1. threads_prepare() for the place of a request; it may refuse, and says why;
 *   2. threads_take_id() for each function that a request pairs; snippets of
 *      kind SNIPPET_ENTER and SNIPPET_LEAVE have it as their argument;
 *   3. threads_tidy() in every stop of a flush; threads_poll() now and then;
 *   4. threads_alive() and threads_statistics() at any time;
 *   5. threads_drop_ids() when the instance goes, threads_free() with the session.
 */
#ifndef DINST_MUTATOR_THREADS_H
#define DINST_MUTATOR_THREADS_H

#include "arch/pairing.h"
#include "mutator/core.h"

struct threads; /* opaque; one per session */

/*
 * Makes sure that the target has per-thread state, and that place p has the
 * routines. The first time it is a stop of its own. DINST_REFUSED: this program
 * does not allow it, *e says why; DINST_BUSY: not yet.
 */
int threads_prepare(struct session *s, struct place *p, uint64_t *stop_ns, struct dinst_error *e);

/* A number for a function, the instance's until it is dropped. */
int threads_take_id(struct session *s, struct instance *i, uint32_t *id, struct dinst_error *e);
void threads_drop_ids(struct session *s, struct instance *i);

/* What snippets at place p need to know; zeros before threads_prepare(). */
void threads_pairing(const struct session *s, const struct place *p, struct arch_pairing *spec);

/* In a stop of a process of the family: frees records of threads that have ended, and learns
 * what could not be known before. Never fails: it is about memory only. */
void threads_tidy(struct session *s, struct stop *stop);

/* A stop of its own if threads went without a record since the last one, at most one a second. */
void threads_poll(struct session *s);

/*
 * Activations of the instance's functions that are alive now, in all processes
 * of the family: entered, not left, on stacks of living threads. Those that a
 * forked child inherited are not among them. Exact while nothing runs.
 */
uint64_t threads_alive(struct session *s, const struct instance *i);

/* How often, since the state was made, what should have been kept was not. */
struct threads_statistics {
	uint64_t lost;	   /* entries of threads that have no record */
	uint64_t overflow; /* entries for which a record had no room */
	uint64_t orphans;  /* exits without an entry: it was before insertion, or not kept */
	unsigned records, used;
};
void threads_statistics(const struct session *s, struct threads_statistics *statistics);

void threads_free(struct threads *t);

#endif
