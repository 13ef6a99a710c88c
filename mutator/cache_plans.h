/* SPDX-License-Identifier: MIT */
/*
 * cache_plans.h - plans that were made before, from the cache (cache.h).
 *
 * One file for each image that has a build id and each build of this program:
 * another build never reads it. Besides, all that plans are made of must be what it
 * was: segments, unwind data, relocations, the list of functions, by a hash with the
 * cache's own key. And what is read is checked again, so that a file can be wrong in
 * no way that matters.
 *
 * Calling sequence, by plan_function() only: plan_cache_get(); where that has
 * nothing, the plan is made and plan_cache_put(). image_close() writes what is
 * new, and so does plan_cache_flush(). Off until plan_cache_enable().
 */
#ifndef DINST_MUTATOR_CACHE_PLANS_H
#define DINST_MUTATOR_CACHE_PLANS_H

#include "mutator/points.h"

/* For the whole process: tests of planning must see plans that are made. */
void plan_cache_enable(bool on);

/* A plan like the one that plan_function() would make; the caller frees it. False if there is none. */
bool plan_cache_get(struct image *img, uint32_t function, struct function_plan **plan);

/* Remembers a plan that has just been made. Without memory it does not. */
void plan_cache_put(struct image *img, const struct function_plan *plan);

/* Writes the file if enough is new to be worth it. It may be called at any time. */
void plan_cache_flush(struct image *img);

#endif
