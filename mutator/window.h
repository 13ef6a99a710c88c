/* SPDX-License-Identifier: MIT */
/*
 * window.h - windows in the making, private to planning.
 *
 * A draft is a window by indices into the flow's instructions. draft_*() check
 * and complete a draft; windows_place() enters it among the function's other
 * windows, merging where they touch. Until windows_place() nothing is held.
 *
 * Whose bytes are whose: a function owns its pieces and the padding behind each
 * of them. Only what a function could not place among these is settled with its
 * neighbours (settle.h); what it takes there are claims, which draft_*() respect
 * once `claims` is set.
 */
#ifndef DINST_MUTATOR_WINDOW_H
#define DINST_MUTATOR_WINDOW_H

#include "mutator/flow.h"
#include "mutator/points.h"

struct claims;

struct draft {
	size_t first; /* index of the first instruction */
	unsigned count;
	unsigned length;  /* bytes of the instructions */
	unsigned padding; /* bytes behind them that the patch needs */
	enum arch_patch_kind kind;
	vaddr_t hole;
	int32_t host;	     /* index of the window that the hole is in, -1: in padding */
	struct window where; /* not an instruction of ours (count is 0): a host in a neighbour */
	int32_t merged_into; /* of a placed one: index of the window that replaced it, or -1 */
	bool fixed;	     /* of a plan that is there already: not to be changed */
	bool alone;	     /* something goes round it: it serves the entry only */
	bool holds;	     /* somebody's near jump is in its tail */
};

struct windows {
	struct flow *flow;
	struct draft *items;
	size_t count, room;
	int32_t *owner; /* of each instruction: 1 + index into items, 0 if free */
	bool *reserved; /* instructions that no new host may have, or NULL */
	/* Bytes that other functions have claimed are not ours; NULL: not asked for. */
	const struct claims *claims;
	uint32_t claims_below; /* ... by functions with a smaller index than this */
};

int windows_init(struct windows *w, struct flow *f, struct dinst_error *e);
void windows_release(struct windows *w);

/*
 * Each of these makes a draft or says why there is none.
 * in_place: the one instruction `at`, patched as `kind` (RETARGET or CALL).
 */
enum refusal draft_in_place(const struct windows *w, size_t at, enum arch_patch_kind kind,
			    struct draft *out);
/* `count` instructions from `first` under a near jump, with padding if they are too short. */
enum refusal draft_jump(const struct windows *w, size_t first, unsigned count, bool may_pad,
			struct draft *out);
/* The same under a short jump to padding of the function. */
enum refusal draft_short(const struct windows *w, size_t first, unsigned count, struct draft *out);
/* A short jump without its hole yet: out->hole is 0. */
enum refusal draft_short_only(const struct windows *w, size_t first, unsigned count,
			      struct draft *out);

/* True if control goes from insns[at] straight to insns[at + 1] and nowhere else comes in. */
bool joins_next(const struct windows *w, size_t at);

/* True if the window runs its slots only where its one instruction, a branch, is taken. */
bool is_edge_only(const struct windows *w, const struct draft *d);

/*
 * Enters the draft; where it overlaps windows of the same function they become
 * one, if the rules hold for the union. *index is its index, or -1 (taken).
 */
int windows_place(struct windows *w, const struct draft *d, int32_t *index, struct dinst_error *e);

/* The window, after all merging, that window `index` has become. */
int32_t windows_final(const struct windows *w, int32_t index);

/* Enters a host that lies in a neighbour. */
int windows_add_elsewhere(struct windows *w, const struct window *where, int32_t *index,
			  struct dinst_error *e);

/* Notes that somebody else uses the hole. */
int windows_use(struct windows *w, vaddr_t hole, struct dinst_error *e);

/* Enters the windows of a plan of the function, each at its own index, for good. */
int windows_adopt(struct windows *w, const struct function_plan *plan, struct dinst_error *e);

/* The draft as a window; its host is left open. */
void window_of_draft(const struct flow *f, const struct draft *d, struct window *out);

/* How many windows there are, what has been merged not counted. */
size_t windows_in_use(const struct windows *w);

/*
 * The windows in use, by start; `out` has room for windows_in_use(). place_of[i]
 * receives where the window with index i has gone, merged ones included; it has
 * room for w->count.
 */
int windows_emit(const struct windows *w, struct window *out, int32_t *place_of,
		 struct dinst_error *e);

/* True if none of the instructions is in a window. */
bool windows_are_free(const struct windows *w, size_t first, unsigned count);
/* Says whose the draft's instructions are: 1 + index, or 0. */
void windows_set_owner(struct windows *w, const struct draft *d, int32_t owner);

/* A copy of all windows, to go back to when a group of them cannot be had whole. */
struct windows_mark {
	struct draft *items;
	size_t count;
	int32_t *owner;
};
int windows_save(const struct windows *w, struct windows_mark *mark, struct dinst_error *e);
/* Goes back to the mark if `undo`; the mark is gone afterwards. */
void windows_back(struct windows *w, struct windows_mark *mark, bool undo);

/* ---------------------------------------------------------------- holes.c */

bool is_in_short_reach(vaddr_t from, vaddr_t hole);

/* True if the byte at v is dead: padding that control does not reach. */
bool is_dead(const struct windows *w, vaddr_t v);

/*
 * A free hole for a short jump that ends at `from`, in the padding of w's
 * function or behind it; 0 if there is none.
 */
vaddr_t find_hole(const struct windows *w, vaddr_t from);

/* A near-jump window whose tail has a hole. */
struct host {
	struct draft draft; /* what it is to be */
	int32_t index;	    /* of the window that it is now, -1: a new one */
	vaddr_t hole;
};

/*
 * A host among w's instructions for the short jump that ends at `from`, the
 * `count` instructions from `first` and those reserved left alone. What is
 * nearest to being there already is taken: a window that has room in its tail,
 * one that is made longer, a new one. With `fresh` only new ones will do.
 */
bool find_host(const struct windows *w, vaddr_t from, size_t first, unsigned count, bool fresh,
	       struct host *out);

#endif
