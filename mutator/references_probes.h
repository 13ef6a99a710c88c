/* SPDX-License-Identifier: MIT */
/*
 * references_probes.h - places in the code that a program offers to other tools.
 *
 * Private to the image.
 */
#ifndef DINST_MUTATOR_REFERENCES_PROBES_H
#define DINST_MUTATOR_REFERENCES_PROBES_H

#include "mutator/image_private.h"

/*
 * Fills `out`, if it is not NULL, with at most `room` ranges, in no order, and returns how many
 * there are; of a file that is being written the second look may find others.
 */
size_t probes_find(const struct image *img, struct image_range *out, size_t room);

#endif
