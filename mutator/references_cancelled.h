/* SPDX-License-Identifier: MIT */
/*
 * references_cancelled.h - where a thread may be cancelled at any instruction.
 *
 * Private to the image.
 */
#ifndef DINST_MUTATOR_REFERENCES_CANCELLED_H
#define DINST_MUTATOR_REFERENCES_CANCELLED_H

#include "mutator/image_private.h"

/* How a C library lets threads be cancelled at any instruction, and ends that; zeroes: it does not. */
struct cancelled {
	vaddr_t enable, disable;
};

/* 0 or DINST_NO_MEMORY. */
int cancelled_learn(struct image *img, struct cancelled *c, struct dinst_error *e);

/*
 * Fills `out`, if it is not NULL, with at most `room` ranges, in no order, and returns how many
 * there are; of a file that is being written the second look may find others.
 */
size_t cancelled_find(const struct image *img, const struct cancelled *c, struct image_range *out,
		      size_t room);

#endif
