/* SPDX-License-Identifier: MIT */
/*
 * access.h - which memory a load or store point is about, as snippets carry it.
 */
#ifndef DINST_MUTATOR_ACCESS_H
#define DINST_MUTATOR_ACCESS_H

#include "mutator/points.h"

/*
 * The access of a POINT_LOAD or POINT_STORE: the first operand that is loaded
 * or stored. `bias`: address in the target minus link-time address. False if
 * the instruction has none. Registers are those just before the instruction.
 */
bool access_of(const struct image *img, const struct point *p, taddr_t bias,
	       struct arch_memory *access);

/*
 * The same in one word, for struct snippet: with the bytes that a patched call
 * has pushed before the snippet runs. False if the address cannot be computed
 * (arch_memory.computable) or is too large for the word.
 */
bool access_pack(const struct arch_memory *access, size_t pushed, uint64_t *word);
/*
 * Both at once, for a point whose place is in window `w`: in one that is a call
 * patched in itself the return address is pushed already.
 */
bool access_word(const struct image *img, const struct window *w, const struct point *p,
		 taddr_t bias, uint64_t *word);
void access_unpack(uint64_t word, struct arch_memory *access, size_t *pushed);

#endif
