/* SPDX-License-Identifier: MIT */
/*
 * freemap.h - what planning remembers about one image.
 *
 * The map hangs on the image and dies with it. It knows which cold fragments
 * belong to which function, and keeps the last few linear decodes (a function is
 * decoded when it is planned and when its neighbours are).
 */
#ifndef DINST_MUTATOR_FREEMAP_H
#define DINST_MUTATOR_FREEMAP_H

#include "mutator/image.h"

struct freemap;

/* The linear decode of the part of a function that no later function starts in. */
struct sweep {
	vaddr_t lo, hi;
	vaddr_t end; /* decoded up to here; less than hi where a byte is not known */
	struct arch_insn *insns;
	size_t count, room;
	uint64_t used;
};

/* The image's map, made on first use. Also computes image_references(). */
int freemap_of(struct image *img, struct freemap **out, struct dinst_error *e);

/* Where the image's jump tables lead to, by address: those in [lo, hi). */
size_t freemap_table_targets(const struct freemap *map, vaddr_t lo, vaddr_t hi,
			     const vaddr_t **targets);

/* True if some code seems to compute the address v, and a jump table may begin there. */
bool freemap_is_base(const struct freemap *map, vaddr_t v);

/*
 * The sweep of function `index`; valid until a few further sweeps are asked for.
 * A function without code has an empty one.
 */
int freemap_sweep(struct freemap *map, uint32_t index, const struct sweep **out,
		  struct dinst_error *e);

/* Index of the first instruction of the sweep that ends behind v; s->count if none does. */
size_t freemap_first(const struct sweep *s, vaddr_t v);

/* The cold fragments of function `index`. */
size_t freemap_fragments(const struct freemap *map, uint32_t index, const uint32_t **fragments);

/* [lo, hi) of function `index` up to where the next function starts. */
struct image_range freemap_primary(const struct freemap *map, uint32_t index);

/* Index of the last function that starts at or before v, -1 if none does. */
long freemap_before(const struct freemap *map, vaddr_t v);

/* Index of the function that starts at v, -1 if none does. */
long freemap_starting_at(const struct freemap *map, vaddr_t v);

/*
 * The space between functions around v, if v is in one and all of it is
 * padding that control does not run into from the function before it. Whether
 * something refers to it is not looked at. False otherwise. May use a sweep.
 */
bool freemap_gap(struct freemap *map, vaddr_t v, struct image_range *gap);

/*
 * True if something branches or refers to one of the bytes [lo, hi), or has it as
 * an operand: it may be a constant that looks like padding. Or may do so.
 */
bool freemap_is_used(struct freemap *map, vaddr_t lo, vaddr_t hi);

/* True if control may run off the end of function `index` into what is behind it. May use sweeps. */
bool freemap_runs_off(struct freemap *map, uint32_t index);

/*
 * True if something leads to one of the bytes [lo, hi), or may: what freemap_is_used() knows, an entry
 * of a table, or a short branch of code around it, which is no reference.
 */
bool freemap_is_come_to(struct freemap *map, vaddr_t lo, vaddr_t hi);

/*
 * Calls `found` for each branch from the functions in and around `into`, as far as a
 * short one reaches, to a place in it, or what may be one; until it says true, then 1
 * is returned. Else 0, or negative without memory. `found` uses no sweep. Not `sure`:
 * nobody but what looks like a jump elsewhere leads to the branch.
 */
int freemap_branches_into(struct freemap *map, struct image_range into,
			  bool (*found)(void *arg, vaddr_t target, bool sure), void *arg,
			  struct dinst_error *e);

/*
 * True if the call does not come back: its callee, in this file or a well-known
 * one of another, is proved or known never to return. May use sweeps. returns.c
 */
bool freemap_never_returns(struct freemap *map, const struct arch_insn *insn);

/* What has been found out about function `index`; NULL without memory. For returns.c. */
enum verdict {
	VERDICT_UNKNOWN,
	VERDICT_ASKED, /* being looked at */
	VERDICT_RETURNS,
	VERDICT_NEVER,
};
uint8_t *freemap_verdict(struct freemap *map, uint32_t index);

/* Whether it is known where function `index` jumps to, as far as that has been found out; NULL without memory. For flow_hits.c. */
enum jumps {
	JUMPS_UNKNOWN,
	JUMPS_KNOWN,
	JUMPS_ANYWHERE,
};
uint8_t *freemap_jumps(struct freemap *map, uint32_t index);
struct image *freemap_image(const struct freemap *map);

/* One pointer that settle.c hangs on the map; release(extra) is called when the map goes. */
void *freemap_extra(const struct freemap *map);
void freemap_set_extra(struct freemap *map, void *extra, void (*release)(void *extra));

#endif
