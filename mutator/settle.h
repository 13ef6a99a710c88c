/* SPDX-License-Identifier: MIT */
/*
 * settle.h - what functions take of their neighbours' bytes.
 *
 * A plan depends on the image only, never on what was planned before. So the
 * few functions that need a neighbour's padding, or a window made in it to hold
 * a near jump, are settled in the order of their indices: before one of them is,
 * those near it that have a smaller index are. What each has taken is kept here,
 * as claims; that is a memory, not a state: asked again, the answer is the same.
 *
 *   1. plan what the function's own bytes have room for (planning_make());
 *   2. settle_needs() for a function that lacks something (plan_is_needy());
 *   3. windows_respect_claims() before anything else is placed in it.
 */
#ifndef DINST_MUTATOR_SETTLE_H
#define DINST_MUTATOR_SETTLE_H

#include "mutator/freemap.h"

struct claims;
struct planning;
struct windows;

/* True if no function with an index below `below` has claimed a byte of [lo, hi). */
bool claims_are_free(const struct claims *c, vaddr_t lo, vaddr_t hi, uint32_t below);

/*
 * Gives windows to what `p` could not place, with bytes of its neighbours,
 * after those before it have had theirs.
 */
int settle_needs(struct planning *p, struct dinst_error *e);

/*
 * From now on the drafts of `w` keep off what any other function has claimed of
 * this one: for windows beyond those of plan_function().
 */
int windows_respect_claims(struct windows *w, struct dinst_error *e);

#endif
