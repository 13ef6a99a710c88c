/* SPDX-License-Identifier: MIT */
/*
 * body.h - generating the code of a site; for site*.c, body.c and describe.c.
 *
 *   1. code_init() with what is to be in it;
 *   2. code_emit() for an address: the bytes, and what each of them is;
 *   3. code_release().
 *
 * The same contents at the same address give the same code, so that a program
 * counter in it can be explained at any time without having kept anything.
 */
#ifndef DINST_MUTATOR_BODY_H
#define DINST_MUTATOR_BODY_H

#include "mutator/core.h"

/* What begins at an offset. */
struct code_mark {
	enum site_line_kind kind;
	uint32_t offset, cold_offset;
	uint16_t index; /* SNIPPET: piece; COPY: instruction of the window */
	bool exact;	/* only at the offset itself is nothing half done */
	taddr_t home;	/* what stands for it in the target's own code */
};

/* Pieces [first, end) that are one program. */
struct code_run {
	unsigned first, end;
	struct arch_program program;
	bool owned; /* its ops are not a piece's */
};

/* What the code of a site is made of, and the code. */
struct code {
	const struct session *session;
	const struct site *site;
	const struct body *body;		  /* NULL: the base */
	struct arch_insn insns[WINDOW_INSNS_MAX]; /* of the window, as in the target */
	unsigned insn_count;
	struct code_run *runs; /* by first piece */
	unsigned run_count;
	size_t pushed; /* what the window's own call has pushed when the code is reached */

	struct arch_buf hot, cold;
	struct arch_trace hot_trace, cold_trace;
	uint32_t stubs[WINDOW_INSNS_MAX]; /* where the taken side of a branch goes: offsets */
	uint32_t behind_entry;		  /* where a branch goes that passes by entry snippets */
	bool moved;			  /* one of these was not where it had been assumed */
	bool bad_program;		  /* what is inserted cannot be emitted */
	bool small_stack;		  /* ... takes more stack than there may be */
	size_t stack;			  /* most bytes that what is inserted at one place takes */
	struct code_mark *marks;
	size_t mark_count, mark_room;
};

/* `body` NULL: the base of the site. Fails with DINST_NO_MEMORY or DINST_REFUSED. */
int code_init(struct code *c, const struct session *s, const struct site *site,
	      const struct body *body, struct dinst_error *e);
/* Emits for these addresses; the bytes are in c->hot and c->cold. */
int code_emit(struct code *c, taddr_t hot, taddr_t cold, struct dinst_error *e);
void code_release(struct code *c);

/*
 * code_stack.c: bytes of stack that what is inserted at v may take for itself; it gives them back
 * before the program goes on. SIZE_MAX where nobody counts them.
 */
size_t code_stack_left(const struct image *img, vaddr_t v);

/* body_programs.c: puts the programs of each place together. DINST_REFUSED: too much at one place. */
int code_make_runs(struct code *c, struct dinst_error *e);
void code_free_runs(struct code *c);
/* The run that a piece belongs to, NULL if it is no program. */
const struct code_run *code_run_at(const struct code *c, unsigned piece);

/*
 * True if the site's last instruction is a call behind the bytes that the patch
 * overwrites: it need not move, and a return is predicted by the call before it.
 */
bool code_can_keep_call(const struct site *site);
/*
 * True if its last instruction is a call whose first byte is the last one that the patch overwrites.
 * It need not move either where the jump has that very byte there: site_lead_to() says so.
 */
bool code_can_share_call(const struct site *site);
/* True if the site's copy ends in a call that stood in the window. */
bool code_moves_call(const struct site *site);

/* count_place.c */
/* Sets where in the window the link runs, by its point: an exit that is only counted, earlier. */
void count_place_choose(struct link *l);
/*
 * A thread is led from `pc` of the window to where the same is in the body: what it has left behind
 * there, but not here, is counted for it. To be called once; whatever becomes of the patch.
 */
void count_place_passed(const struct site *site, taddr_t pc);

/* Writes the site's base; its address and size. */
int base_write(struct session *s, struct site *site, struct dinst_error *e);

/* Writes a body with what the site's links say; nothing leads to it yet. */
int body_write(struct session *s, struct site *site, bool is_head, struct body **out,
	       struct dinst_error *e);
/* The same with what another body of the site has: what runs there already, elsewhere. */
int body_write_copy(struct session *s, const struct body *of, bool is_head, struct body **out,
		    struct dinst_error *e);
/* Gives back code and what its pieces hold; no thread may be inside. */
void body_free(struct body *b);

/* True if pc is in the body; *original and *pushed as stack_home. */
bool body_contains(const struct body *b, taddr_t pc);
bool body_home(const struct session *s, const struct body *b, taddr_t pc, taddr_t *original,
	       size_t *pushed);
/* `base`: the site's, or where that was before it moved. */
bool base_home(const struct session *s, const struct site *site, taddr_t base, taddr_t pc,
	       taddr_t *original, size_t *pushed);

#endif
