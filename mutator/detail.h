/* SPDX-License-Identifier: MIT */
/*
 * detail.h - the points of a function that are planned on request only: behind
 * calls, blocks, edges, loops, single instructions, loads and stores.
 *
 * A plan of entry, exits and calls (plan_function()) is made first, perhaps long
 * before, and its windows may be patched already. They stay as they are: what
 * is added uses them, and has windows of its own in the bytes that they leave.
 *
 * A snippet of a point runs exactly as often as the instruction, edge or block
 * is executed, but not always at that very place: where no window has it, a
 * place that control passes as often will do (a neighbour in the straight line,
 * or all ways that lead there). For loads and stores nothing is executed in
 * between, so that the registers are those of the instruction.
 */
#ifndef DINST_MUTATOR_DETAIL_H
#define DINST_MUTATOR_DETAIL_H

#include "mutator/points.h"

/* What a plan must have for points of that kind. */
enum plan_level point_kind_level(enum point_kind kind);

/*
 * Adds the points of PLAN_DETAIL to a plan of PLAN_BASE; does nothing to one
 * that has them. Base points and windows keep everything but their indices:
 * points are sorted by address, then kind, the entry first; windows by address.
 * Pointers into the plan's arrays are void afterwards. On failure (no memory)
 * the plan is what it was. Point addresses:
 *
 *   after        the return point; callee: what was called, 0 if indirect
 *   block        its first instruction
 *   edge         the last instruction before it; callee: where it leads
 *   loop-...     the first instruction of the loop's header
 *   instruction, load, store   the instruction
 */
int plan_add_detail(struct image *img, struct function_plan *plan, struct dinst_error *e);

#endif
