/* SPDX-License-Identifier: MIT */
/*
 * freemap_odd.h - a function that is read in another way than from its first byte to its last: somebody jumps into
 * the middle of what is an instruction there, behind data mostly, and from there a short branch leads out of it.
 */
#ifndef DINST_MUTATOR_FREEMAP_ODD_H
#define DINST_MUTATOR_FREEMAP_ODD_H

#include "mutator/freemap.h"

enum { ODD_MOST = 64 };

/* `root`: what is led to by hits alone (image_hit()), any of which may be chance; 0: for sure. */
struct odd_place {
	vaddr_t at, root;
};

/*
 * The instruction at `from` branches to `to`; or, if it runs over, it ends at the function's end and goes on there, or
 * lies across it: `to` is where it goes on, the function's end if it does not.
 */
struct odd_branch {
	vaddr_t from, to, root;
	bool over;
};

struct odd_reading {
	struct odd_place places[ODD_MOST];
	struct odd_branch branches[ODD_MOST];
	size_t place_count, branch_count;
	bool too_many; /* not all have been looked at: any byte of the part may begin one */
};

/* Is v a place whose branches are asked for? */
struct odd_wish {
	bool (*wanted)(const void *arg, vaddr_t v);
	const void *arg;
};

/*
 * The branches to what is wished for out of the part [part.lo, part.hi) of function `index`, whose sweep is `s`, from
 * each place where somebody jumps into the middle of one of its instructions. Uses no other sweep.
 */
void freemap_read_odd(const struct freemap *map, uint32_t index, const struct sweep *s,
		      struct image_range part, const struct odd_wish *wish,
		      struct odd_reading *out);

#endif
