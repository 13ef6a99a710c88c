/* SPDX-License-Identifier: MIT */
/*
 * plan.h - the points of a function while windows are looked for, private to
 * planning. plan.c finds them places in the order of preference, points.c turns
 * the result into a struct function_plan.
 */
#ifndef DINST_MUTATOR_PLAN_H
#define DINST_MUTATOR_PLAN_H

#include "mutator/window.h"

struct wish {
	struct point point;
	long insn;	/* index into the flow's instructions, -1 if there is none */
	int32_t window; /* index into windows.items, -1 while it has none */
};

struct planning {
	struct flow flow;
	struct windows windows;
	struct wish *wishes;
	size_t count, room;
};

/* Lists entry, exit and call points of the flow as wishes, entry first. */
int plan_collect(struct planning *p, const struct image_function *fn, struct dinst_error *e);

/* Gives every wish a window or a refusal. */
int plan_place(struct planning *p, struct dinst_error *e);

/* Refuses all wishes for one reason. */
void plan_refuse(struct planning *p, enum refusal why);

#endif
