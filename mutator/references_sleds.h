/* SPDX-License-Identifier: MIT */
/*
 * references_sleds.h - where a file says that its program writes into its own code.
 *
 * Private to the image.
 */
#ifndef DINST_MUTATOR_REFERENCES_SLEDS_H
#define DINST_MUTATOR_REFERENCES_SLEDS_H

#include "mutator/image_private.h"

/* The section that lists them; NULL if there is none. */
const struct elf_section *sleds_map(const struct image *img);

/* The most that sleds_find() can return. */
size_t sleds_most(const struct elf_section *map);

/*
 * What the program may write to, in no order; `out` has room for sleds_most() of the same section:
 * looked up again it may be another one, in a file that is being written. Returns how many.
 */
size_t sleds_find(const struct image *img, const struct elf_section *map, struct image_range *out);

#endif
