/* SPDX-License-Identifier: MIT */
/*
 * window.h - windows in the making, private to planning.
 *
 * A draft is a window by indices into the flow's instructions. draft_*() check
 * and complete a draft; windows_place() enters it among the function's other
 * windows, merging where they touch. Until windows_place() nothing is held.
 */
#ifndef DINST_MUTATOR_WINDOW_H
#define DINST_MUTATOR_WINDOW_H

#include "mutator/flow.h"
#include "mutator/points.h"

struct draft {
	size_t first; /* index of the first instruction */
	unsigned count;
	unsigned length;  /* bytes of the instructions */
	unsigned padding; /* bytes behind them that the patch needs */
	enum arch_patch_kind kind;
	vaddr_t hole;
	int32_t merged_into; /* of a placed one: index of the window that replaced it, or -1 */
	bool edge_only;	     /* its slot runs on the taken side of a conditional jump only */
};

struct windows {
	struct flow *flow;
	struct draft *items;
	size_t count, room;
	int32_t *owner; /* of each instruction: 1 + index into items, 0 if free */
};

int windows_init(struct windows *w, struct flow *f, struct dinst_error *e);
/* Gives the holes back, too, unless `keep_holes`. */
void windows_release(struct windows *w, bool keep_holes);

/*
 * Each of these makes a draft or says why there is none.
 * in_place: the one instruction `at`, patched as `kind` (RETARGET or CALL).
 */
enum refusal draft_in_place(const struct windows *w, size_t at, enum arch_patch_kind kind,
			    struct draft *out);
/* `count` instructions from `first` under a near jump, with padding if they are too short. */
enum refusal draft_jump(const struct windows *w, size_t first, unsigned count, bool may_pad,
			struct draft *out);
/* The same under a short jump; *out has a hole, which is not taken yet. */
enum refusal draft_short(const struct windows *w, size_t first, unsigned count, struct draft *out);

/* True if control goes from insns[at] straight to insns[at + 1] and nowhere else comes in. */
bool joins_next(const struct windows *w, size_t at);

/*
 * Enters the draft; where it overlaps windows of the same function they become
 * one, if the rules hold for the union. *index is its index, or -1 (taken).
 */
int windows_place(struct windows *w, const struct draft *d, int32_t *index, struct dinst_error *e);

/* The window, after all merging, that window `index` has become. */
int32_t windows_final(const struct windows *w, int32_t index);

/* Takes a window out again: its instructions are free. Only one that was never merged. */
void windows_drop(struct windows *w, int32_t index);

#endif
