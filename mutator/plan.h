/* SPDX-License-Identifier: MIT */
/*
 * plan.h - the points of a function while windows are looked for, private to
 * planning.
 *
 * A wish is a point, or one of its further parts. plan.c finds wishes and gives
 * them windows of the function's own bytes, ways.c gives some their parts,
 * settle.c asks the neighbours, and points.c turns what has come of it into a
 * struct function_plan.
 */
#ifndef DINST_MUTATOR_PLAN_H
#define DINST_MUTATOR_PLAN_H

#include "mutator/window.h"

struct wish {
	struct point point;
	long insn;	/* index into the flow's instructions, -1 if there is none */
	int32_t window; /* index into windows.items, -1 while it has none */
	int32_t next;	/* index of its next part, -1 if there is none */
	bool on_ways;	/* "edges" or "bypass", even if there is one part only */
};

struct planning {
	struct flow flow;
	struct windows windows;
	struct wish *wishes;
	size_t count, room;
	bool closed;	 /* nothing may be placed at all */
	uint64_t copied; /* windows and instructions, to try ways: ways.c */
};

/* Decodes the function and places all that its own bytes have room for. */
int planning_make(struct planning *p, struct image *img, struct freemap *map, uint32_t function,
		  struct dinst_error *e);
void planning_release(struct planning *p);

/* plan.c */

/* Lists entry, exit and call points of the flow as wishes, entry first. */
int plan_collect(struct planning *p, const struct image_function *fn, struct dinst_error *e);

/* Adds one wish; it is the last. Pointers to wishes are not valid any more. */
int plan_add(struct planning *p, const struct point *point, long insn, struct dinst_error *e);

/* Gives every wish a window among the function's bytes, or a refusal. */
int plan_place(struct planning *p, struct dinst_error *e);

/* Refuses all wishes for one reason. */
void plan_refuse(struct planning *p, enum refusal why);

/* A window for wish number `at`, by whatever tactic; it stays refused otherwise. */
int plan_place_one(struct planning *p, size_t at, struct dinst_error *e);

/*
 * The wish's windows that would do if there were a hole: calls `try` for each
 * until the wish has a window. `try` may place *d, after it has given it a hole.
 */
typedef int (*plan_try)(struct planning *p, struct wish *wish, struct draft *d, void *arg,
			struct dinst_error *e);
int plan_each_short(struct planning *p, struct wish *wish, plan_try try, void *arg,
		    struct dinst_error *e);

/* Keeps hosts off the instructions of wishes that have no window yet. */
int plan_reserve(struct planning *p, struct dinst_error *e);

/* Places what is refused with the help of a neighbour's windows `in`, which note what is used. */
int plan_place_in(struct planning *p, struct windows *in, struct dinst_error *e);

/* True if the function still lacks something that a neighbour may have. */
bool plan_is_needy(struct planning *p);

/* ways.c */

/* Entries that the function loops back to: jumps that must not count go round. */
int ways_around(struct planning *p, size_t entry, struct dinst_error *e);

/* What is refused at the point itself is tried on every way that leads to it. */
int ways_into(struct planning *p, size_t at, struct dinst_error *e);

/* points.c */

/*
 * What may be needed where a snippet at `place` of insns[at] runs. Liveness is
 * proved from the instructions near by only: what lies further away is taken to
 * need everything, which is safe, and quick in functions of ten thousand instructions.
 */
arch_regset plan_live(const struct flow *f, size_t at, enum point_place place);

#endif
