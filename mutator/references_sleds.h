/* SPDX-License-Identifier: MIT */
/*
 * references_sleds.h - where a file says that its program writes into its own code.
 *
 * Private to the image.
 */
#ifndef DINST_MUTATOR_REFERENCES_SLEDS_H
#define DINST_MUTATOR_REFERENCES_SLEDS_H

#include "mutator/image_private.h"

/* The most that sleds_find() can return. */
size_t sleds_most(const struct image *img);

/* What the program may write to, in no order; `out` has room for sleds_most(). Returns how many. */
size_t sleds_find(const struct image *img, struct image_range *out);

#endif
