/* SPDX-License-Identifier: MIT */
/*
 * batch_private.h - a batch in the making; for batch*.c only.
 */
#ifndef DINST_MUTATOR_BATCH_PRIVATE_H
#define DINST_MUTATOR_BATCH_PRIVATE_H

#include "mutator/core.h"

/* Bytes that are about to be overwritten under a thread, perhaps. */
struct inside {
	struct stack_range range;
	size_t site; /* number of the site that waits while somebody may come back there */
	/* Whose window they are: the site's own, or of the host that its near jump goes into. */
	struct site *home;
};

struct batch {
	struct session *session;
	struct site **sites; /* by address */
	size_t count;
	bool *waits; /* the window must wait for a better moment */
	bool *foreign;
	bool patching;		    /* the first byte may have been written */
	struct inside *insides;	    /* sorted; two a site at most */
	struct stack_range *ranges; /* theirs */
	struct snapshot *shot;	    /* what they were last looked for in */
	pid_t late; /* for whose sake all of them wait: late_calls_last(); 0: nobody's */
	size_t inside_count;
	struct patch *patches; /* room for one patch a site */
	size_t *patch_site;
	bool *hole_written;	    /* in this stop */
	struct target_range *texts; /* pieces of text that hold all windows, a page or so each */
	size_t text_count;
	uint8_t *text_bytes;
	uint8_t *lost; /* by function: what becomes of its exits (batch_pairs.c) */
};

int batch_begin(struct batch *b, struct session *s, struct site **sites, size_t count,
		bool *foreign, struct dinst_error *e);
/* Records what became of the sites. */
void batch_settle(struct batch *b, bool failed, struct batch_result *result);
void batch_end(struct batch *b);

/* batch_strangers.c: somebody else's jumps into the middle of windows make them foreign. */
void batch_find_strangers(struct batch *b);

/* In a stop of the target, in this order. */
void batch_check_windows(struct batch *b, struct stop *stop);
int batch_look_at_stacks(struct batch *b, struct stop *stop, struct dinst_error *e);
/* What only waits or is foreign because another one is. */
void batch_share_fate(struct batch *b, struct stop *stop);
int batch_move_threads(struct batch *b, struct stop *stop, struct dinst_error *e);
int batch_patch(struct batch *b, struct stop *stop, struct dinst_error *e);
/* A thread that would have to be moved and cannot be, and *in, where it is; 0: there is none. */
pid_t batch_stuck_thread(const struct batch *b, struct stop *stop, const struct site **in);

/* batch_pairs.c: batch_share_fate(), and entries have the fate of their exits. */
void batch_share_pairs(struct batch *b, struct stop *stop);

/* batch_pages.c: remembers the pages of a site's patches */
void batch_note_pages(struct session *s, const struct site *site);
/* DINST_REFUSED if the target might be killed for the memory that their patches take. */
int batch_check_room(struct session *s, struct site *const *sites, size_t count,
		     struct dinst_error *e);

#endif
