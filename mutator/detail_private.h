/* SPDX-License-Identifier: MIT */
/*
 * detail_private.h - detail points in the making: plan_detail.c lists them and
 * makes the plan, detail_windows.c covers the code with windows, and
 * detail_places.c finds each point its places in them.
 */
#ifndef DINST_MUTATOR_DETAIL_PRIVATE_H
#define DINST_MUTATOR_DETAIL_PRIVATE_H

#include "mutator/cfg.h"
#include "mutator/detail.h"
#include "mutator/window.h"

/* Where a snippet can run: relative to an instruction of a window. */
struct spot {
	size_t insn; /* of the flow */
	enum point_place place;
};

enum { SPOTS_MAX = 64 };

struct spots {
	struct spot items[SPOTS_MAX];
	unsigned count;
	arch_regset keep; /* registers that nothing between the spot and the point may change */
	bool results;	  /* nor what functions return */
	bool ways;	  /* on the ways that lead there, instead of there */
	unsigned work;	  /* steps left */
};

struct detail {
	struct image *img;
	const struct image_function *function;
	const struct function_plan *base;
	struct flow flow;
	struct cfg cfg;
	struct windows windows; /* the first are the base plan's, in its order */
	uint8_t *why;		/* enum refusal of each instruction without a window */
	bool *bypassed;		/* windows that something goes round */
	size_t base_windows;
};

/* detail_windows.c: enters the base windows; then covers what is free. */
int detail_adopt(struct detail *d, struct dinst_error *e);
int detail_cover(struct detail *d, struct dinst_error *e);

/*
 * detail_places.c: fills `s` and returns REFUSAL_NONE, or says why there is no
 * place: just before insns[at], and on an edge.
 */
enum refusal detail_before(const struct detail *d, size_t at, struct spots *s);
/* The same behind a call, where its results must be as it has left them. */
enum refusal detail_after(const struct detail *d, size_t at, struct spots *s);
/* The same where the registers must be as the instruction's accesses to memory see them. */
enum refusal detail_at_access(const struct detail *d, size_t at, struct spots *s);
enum refusal detail_on_edge(const struct detail *d, uint32_t edge, struct spots *s);

#endif
