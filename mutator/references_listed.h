/* SPDX-License-Identifier: MIT */
/*
 * references_listed.h - places in the code that a program lists in a section of its own.
 *
 * Private to the image.
 */
#ifndef DINST_MUTATOR_REFERENCES_LISTED_H
#define DINST_MUTATOR_REFERENCES_LISTED_H

#include "mutator/image_private.h"

/*
 * Fills `out`, if it is not NULL, with at most `room` ranges, in no order, and returns how many
 * there are; of a file that is being written the second look may find others.
 */
size_t listed_find(const struct image *img, struct image_range *out, size_t room);

#endif
