/* SPDX-License-Identifier: MIT */
/*
 * hits.h - who may branch into the middle of a function from outside it.
 *
 * The scan of all code for byte sequences that would be a branch, a call or the
 * computation of a code address (where addresses are fixed also a constant that is
 * one), in one step or in several, finds what is there and what is chance. Those
 * that lead from one function to a byte that is not the start of another, and those of several
 * steps, are few; they are kept with their source, so that chance can be told from truth
 * when somebody wants to know (flow_hits.c does that). A hit that has turned out
 * to be chance no longer counts in image_references_at().
 *
 * Filled by image_references(); settled one by one later. Freed by
 * image_close(). An index into the hits stays valid until then.
 */
#ifndef DINST_MUTATOR_HITS_H
#define DINST_MUTATOR_HITS_H

#include "mutator/image.h"

enum hit_state {
	HIT_UNKNOWN, /* not looked into yet: counts as real */
	HIT_REAL,
	HIT_CHANCE, /* `from` is inside an instruction that does something else */
};

struct image_hit {
	vaddr_t from; /* the first byte of the sequence, prefixes not included; the instruction of the last step */
	vaddr_t target;
};

/* How many hits lead to [lo, hi), and the index of the first: they are sorted by target. */
size_t image_hits_into(const struct image *img, vaddr_t lo, vaddr_t hi, size_t *first);

/* Indices of the hits that come from [lo, hi), by `from`; returns how many. */
size_t image_hits_from(const struct image *img, vaddr_t lo, vaddr_t hi, const uint32_t **indices);

const struct image_hit *image_hit(const struct image *img, size_t index);
enum hit_state image_hit_state(const struct image *img, size_t index);

/*
 * Says what a hit is, once and for all. If all hits to its target are chance,
 * REFERENCE_BRANCH goes from there.
 */
void image_hit_settle(struct image *img, size_t index, enum hit_state state);

#endif
