/* SPDX-License-Identifier: MIT */
/*
 * shadow.c - points of a target whose threads have shadow stacks.
 *
 * A plan depends on the file alone; this is what the target adds to it. A call
 * that stays where it is, or that is retargeted, is as good as before; what
 * would move one is refused. site_make() looks once more.
 */
#include <string.h>

#include "mutator/core.h"

/* The call that a window ends with; false if it has none. */
static bool last_call(const struct image *img, const struct window *w, struct arch_insn *call)
{
	struct arch_insn insns[WINDOW_INSNS_MAX];
	size_t count = window_instructions(img, w, insns);

	if (!count || !arch_is_call(&insns[count - 1]))
		return false;
	*call = insns[count - 1];
	return true;
}

static bool is_host(const struct function_plan *plan, size_t window)
{
	for (size_t i = 0; i < plan->window_count; i++)
		if (plan->windows[i].host == (int32_t)window)
			return true;
	return false;
}

/* `whole`: the window's copy is gone through to its end, as ways round it are. */
static bool moves_call(const struct image *img, const struct function_plan *plan, int32_t window,
		       bool whole)
{
	const struct window *w = &plan->windows[window];
	const size_t overwritten =
		w->kind == ARCH_PATCH_SHORT_JUMP ? arch_short_jump_size : arch_jump_size;
	struct arch_insn call;

	if (w->host >= 0 && moves_call(img, plan, w->host, true))
		return true;
	if ((w->kind != ARCH_PATCH_JUMP && w->kind != ARCH_PATCH_SHORT_JUMP) ||
	    !last_call(img, w, &call))
		return false;
	/* Behind what is overwritten it stays where it is (code_can_keep_call()). */
	return whole || w->insn_count == 1 || call.address < w->start + overwritten ||
	       is_host(plan, (size_t)window);
}

static bool point_moves_call(const struct image *img, const struct function_plan *plan, size_t at,
			     size_t parts)
{
	bool round = false, moves = false;

	for (size_t k = at; k < at + parts; k++)
		round |= plan->points[k].place == PLACE_BYPASS;
	for (size_t k = at; k < at + parts && !moves; k++)
		moves = plan->points[k].window >= 0 &&
			moves_call(img, plan, plan->points[k].window, round);
	return moves;
}

static size_t count_parts(const struct function_plan *plan, size_t at)
{
	size_t parts = 1;

	while (at + parts < plan->point_count && plan->points[at + parts].part)
		parts++;
	return parts;
}

void shadow_refuse(const struct image *img, struct function_plan *plan)
{
	size_t kept = 0, parts;

	for (size_t at = 0; at < plan->point_count; at += parts) {
		bool moves;

		parts = count_parts(plan, at);
		moves = point_moves_call(img, plan, at, parts);
		memmove(&plan->points[kept], &plan->points[at], parts * sizeof(*plan->points));
		kept += moves ? 1 : parts;
		if (moves)
			plan->points[kept - 1] = (struct point){
				.kind = plan->points[kept - 1].kind,
				.refusal = REFUSAL_SHADOW_STACK,
				.address = plan->points[kept - 1].address,
				.window = -1,
				.callee = plan->points[kept - 1].callee,
				.through_pointer = plan->points[kept - 1].through_pointer,
				.live = arch_all_live,
			};
	}
	plan->point_count = kept;
}
