/* SPDX-License-Identifier: MIT */
/*
 * points_constants.h - for the judge of points: who names an address as a constant only.
 */
#ifndef DINST_TESTS_UNIT_POINTS_CONSTANTS_H
#define DINST_TESTS_UNIT_POINTS_CONSTANTS_H

#include "arch/arch.h"
#include "arch/scan.h"
#include "mutator/hits.h"
#include "mutator/image.h"

/* True if all instructions that may name the address have it as a constant: no branch, and no lea. */
static inline bool named_as_constant(struct image *img, vaddr_t v)
{
	size_t first, count = image_hits_into(img, v, v + 1, &first);

	for (size_t i = first; i < first + count; i++) {
		const struct image_hit *hit = image_hit(img, i);
		struct arch_insn insn;
		size_t size = 0;
		const uint8_t *bytes = image_code(img, hit->from, &size);

		if (!bytes || arch_decode(bytes, size, hit->from, &insn) != ARCH_OK ||
		    !arch_ends_in(&insn, v) || insn.target == v ||
		    (insn.flags & ARCH_INSN_ADDRESS_OF && insn.data_ref == v))
			return false;
	}
	return count != 0;
}

#endif
