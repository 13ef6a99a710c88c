/* SPDX-License-Identifier: MIT */
/*
 * every_step_fillers.h - pieces of code that nobody runs, between those that are: when most of them
 * have gone the heap is in fragments, and the next flush moves what is left together.
 *
 * They are the test's own, and gone with the session: fillers_forget() where that has ended.
 */
#ifndef DINST_TESTS_LIVE_EVERY_STEP_FILLERS_H
#define DINST_TESTS_LIVE_EVERY_STEP_FILLERS_H

#include <stdlib.h>

#include "mutator/core.h"

enum { FILLERS = 4096, FILLER_LEAST = 40, FILLER_MORE = 600 };

struct fillers {
	struct place *place; /* of all of them */
	taddr_t at[FILLERS];
	size_t count;
};

static inline void fillers_forget(struct fillers *f)
{
	f->count = 0;
}

/* So many more, of any size and both kinds. */
static inline void fillers_add(struct fillers *f, struct session *s, size_t count,
			       unsigned short *seed)
{
	struct dinst_error ignored = {0};

	if (!f->count)
		f->place = s->places;
	for (; f->place && count && f->count < FILLERS; count--) {
		const size_t size = FILLER_LEAST + (size_t)nrand48(seed) % FILLER_MORE;
		struct heap *heap = f->place->heap;
		const int status =
			nrand48(seed) % 3 ? heap_alloc_code(heap, size, &f->at[f->count], &ignored)
					  : heap_alloc_cold(heap, size, &f->at[f->count], &ignored);

		f->count += status >= 0;
	}
}

/* Frees all of them, but about one in `keep` (0: none stays). */
static inline void fillers_thin(struct fillers *f, unsigned keep, unsigned short *seed)
{
	size_t left = 0;

	for (size_t i = 0; i < f->count; i++) {
		if (keep && !(nrand48(seed) % keep))
			f->at[left++] = f->at[i];
		else
			heap_free_code(f->place->heap, f->at[i]);
	}
	f->count = left;
}

/* Adds many, or, where there are, frees nearly all of them: true, then a flush moves what stands between. */
static inline bool fillers_turn(struct fillers *f, struct session *s, unsigned short *seed)
{
	enum { SOME = 1000, SPREAD = 60 };

	if (f->count >= FILLERS / 2) {
		fillers_thin(f, SPREAD, seed);
		return true;
	}
	fillers_add(f, s, SOME + (size_t)nrand48(seed) % FILLERS, seed);
	return false;
}

#endif
