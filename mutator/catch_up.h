/* SPDX-License-Identifier: MIT */
/*
 * catch_up.h - what catch_up*.c share: one thread of a stopped process that is
 * brought to where it would be, had the request been there all the time.
 */
#ifndef DINST_MUTATOR_CATCH_UP_H
#define DINST_MUTATOR_CATCH_UP_H

#include "mutator/threads_private.h"

/* An activation that was found: outermost first in lists. */
struct activation {
	taddr_t sp;    /* with which the function was entered (pairing.h) */
	taddr_t call;  /* where it goes on: a return address, or 0 */
	uint32_t id;   /* of the function */
	bool fresh;    /* may be missing in the record */
	bool entering; /* missing there, it comes into it by code that runs just now */
	taddr_t entry; /* address of its pair_entry; 0: not kept */
};

/* A record of a stopped thread. */
struct late_record {
	struct stop *stop;
	struct session *session;
	struct tables *tables;
	taddr_t at; /* its address; 0: there is none */
	size_t number;
	taddr_t pointer; /* of the thread */
	uint32_t own;	 /* its id as its C library has it */
	pid_t tid;
	bool in_use; /* code of ours that may hold places of it is interrupted */
};

/*
 * catch_up_record.c: finds the thread's record; `make`: or makes one, as its own
 * code would. False if there is none to be had.
 */
bool late_record_find(struct late_record *r, const struct stop_thread *thread, bool make);
/*
 * Makes sure that fresh activations are in the record, and sets `entry` of all
 * that are.
 */
bool late_record_enter(struct late_record *r, struct activation *a, size_t count);

/* Of the thread that was looked for: true if it is known where its own stack is, and `sp` is not in that. */
bool late_record_is_elsewhere(const struct late_record *r, taddr_t sp);
/* True if the record has activations in `other` that belong at home. */
bool late_record_has_strayed(const struct late_record *r);
/*
 * Puts them there, as far as there is room; no code of ours may hold places of the record. Where
 * such a function was entered at the same place again, the one that was there before ends first.
 */
void late_record_bring_home(struct late_record *r);

/*
 * catch_up_calls.c: of a thread that stands at `at` in a function: where the call returns to that it is as good
 * as in, 0: in none. `late`: from the first of the function on. `old`: the site whose code as it was before it
 * is in; NULL: in none.
 */
taddr_t late_call_of(const struct session *s, const struct threads_late *late, size_t count,
		     uint32_t id, const struct site *old, taddr_t at);
/* The site of which a thread that stands there, in the target's own code, has gone past the beginning; or NULL. */
const struct site *late_passed(const struct session *s, taddr_t at);

/* catch_up_sites.c: the site that the pc in our own code belongs to. */
const struct site *late_site_of(const struct session *s, taddr_t pc);
/* At its switch, or that of a head which has moved: both lead to where the entry is. */
bool late_is_at_switch(const struct session *s, const struct site *site, taddr_t pc);
/* What is linked to the function's exits at instructions from `first` to `last` runs in new code only. */
bool late_leaves_unseen(const struct site *site, uint32_t id, taddr_t first, taddr_t last);
/*
 * True if what late_leaves_unseen() says of one that goes on from `first` depends on a branch, which the thread
 * has not come to yet: that may lead to code in which its exit is seen.
 */
bool late_leaves_perhaps(const struct site *site, uint32_t id, taddr_t first);

/* catch_up_calls.c: where the frame is; of who stands before the near jump that a short one has led to: where that one is. */
taddr_t late_home(const struct session *s, const struct stack_frame *frame);

/* catch_up_before.c: a thread's words as they were when one of its activations began. NULL: no memory. */
struct late_past;
struct late_past *late_past_new(void);
void late_past_free(struct late_past *past);
/* Of another thread, when its record has what it is in. False: the words were always what they are. */
bool late_past_begin(struct late_past *past, const struct late_record *r);
/* To behind the entry of `a`, whose own entry has done what it does. */
void late_past_seek(struct late_past *past, const struct late_record *r,
		    const struct activation *a);
/* What an access of the record's words finds there now; false if it is none. */
bool late_past_load(const struct late_past *past, const struct late_record *r, taddr_t address,
		    uint64_t *word, size_t size);
/* What the target's own word has become, too. */
void late_past_store(struct late_past *past, const struct late_record *r, taddr_t address,
		     uint64_t word, size_t size);
/* A change by late_undo(). False: no memory. */
bool late_past_take_back(struct late_past *past, const struct late_record *r, taddr_t address,
			 uint64_t word, size_t size);

/*
 * catch_up_run.c: runs the program for one activation, against the record; with `past` it finds
 * the words that has. False if it could not.
 */
bool late_run(const struct late_record *r, struct late_past *past, const struct activation *a,
	      const struct arch_program *program);
/* Runs what would be undone for an activation that began at `start`: nothing but `past` changes. */
void late_undo(const struct late_record *r, struct late_past *past,
	       const struct arch_program *program, uint64_t start);

#endif
