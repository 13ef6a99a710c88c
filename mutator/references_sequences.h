/* SPDX-License-Identifier: MIT */
/*
 * references_sequences.h - the restartable sequences of a file (rseq(2)).
 *
 * Private to the image.
 */
#ifndef DINST_MUTATOR_REFERENCES_SEQUENCES_H
#define DINST_MUTATOR_REFERENCES_SEQUENCES_H

#include "mutator/image_private.h"

/*
 * Where the sequences of the file and their abort handlers lie, and what the program
 * writes to by itself (references_sleds.h): no window may be there. *out is
 * malloc'ed, sorted, disjoint; NULL where there are none. DINST_NO_MEMORY.
 */
int sequences_find(struct image *img, struct image_range **out, size_t *count,
		   struct dinst_error *e);

#endif
