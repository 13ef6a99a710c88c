/* SPDX-License-Identifier: MIT */
/*
 * leftovers.h - what leftovers.c and leftovers_arena.c share, and serve_session.c asks.
 */
#ifndef DINST_MUTATOR_LEFTOVERS_H
#define DINST_MUTATOR_LEFTOVERS_H

#include "mutator/core.h"

enum { PAUSE_MIN_US = 500, PAUSE_MAX_US = 50 * 1000 };

/* A near jump that a short one leads to: it may lie in the tail of a window of another arena. */
struct guest {
	taddr_t address;
	uint8_t length;
	uint8_t patched[ARCH_PATCH_MAX];
	size_t arena; /* index into found[] */
};

/* What one process has of what is to be taken out. */
struct process {
	struct target *target;
	struct arena_found found[ARENAS_MOST];
	size_t count;
	bool linked;  /* they lead into each other */
	bool blocked; /* a window of one of them may still lead to it */
	bool late; /* one stays in it, or in who was forked with it, for as long as a call lasts */
	struct guest *guests; /* of all arenas where they are linked, by address */
	size_t guest_count;
};

/* An arena of somebody is in the target; false also where that cannot be seen. */
bool leftovers_any(struct target *t);

/* Says who it is, and what it waits for: there may be somebody who can do something about that. DINST_BUSY. */
int leftovers_is_late(const struct target *t, pid_t tid, struct dinst_error *e);

/*
 * The lowest descriptor of the thread that is an arena's which was made in its process, -1 if none is;
 * LEFTOVERS_UNSEEN where we have no descriptor or no memory to look.
 */
enum { LEFTOVERS_UNSEEN = -2 };
int leftovers_descriptor(pid_t tid);

/*
 * Closes those, in stops, for a part of the time until `deadline` (us): the rest is for what leads to us.
 * DINST_BUSY where a thread is late, or only such can be made to call which have not got it.
 */
int leftovers_close(struct target *t, uint64_t deadline, struct leftovers *result,
		    struct dinst_error *e);

/*
 * Arena `n` of the process: its windows become the original, and it goes when
 * nobody is in it. With `stays` its windows only; sets p->blocked where that did
 * not succeed. Sets p->late. What is left is counted in *result, and no error.
 */
int leftovers_take_out(struct process *p, size_t n, bool stays, uint64_t deadline,
		       struct leftovers *result, struct dinst_error *e);

/*
 * The process has executed another program meanwhile, or the arena was taken out of another process that is
 * in the same memory (clone(CLONE_VM)): there is nothing left to read, and nothing of ours.
 */
bool leftovers_have_gone(const struct target *t, const struct arena_found *found);

/*
 * Another dinst has taken it out of the process meanwhile, and has put one of its own in its place: then
 * what leads there is that one's. A child is claimed by nobody while its parent is looked after.
 */
bool leftovers_are_replaced(const struct maps *m, const struct arena_found *found);

/*
 * Of entries for one and the same place only those stay that are there, where any is, and of these
 * those that have what the mapped file has, where any has. Where none has and they do not agree on what was
 * there, nobody can tell: their original bytes become ours. While the target runs. Without memory all stay.
 */
void leftovers_drop_twins(const struct target *t, struct journal_entry *entries, size_t *count);

/*
 * Addresses of the near jumps of `*count` entries that are there, in order; their number goes to *count. Free them.
 * NULL without memory.
 */
taddr_t *leftovers_near(const struct target *t, const struct journal_entry *entries, size_t *count);
/* True if the entry is a short jump that is there and leads to one of them: no other code has that by chance. */
bool leftovers_is_led(const struct target *t, const struct journal_entry *entry,
		      const taddr_t *near, size_t count);

/* Nobody can tell what was in the patch's place: it stays (leftovers_drop_twins()). */
bool leftovers_is_unsure(const struct patch *p);
/*
 * How many of the patches, which were tried to be undone, have in their places what is not the original: what
 * somebody else has written, of which *others is an address (0: nowhere), what cannot be read or written, and what has to stay.
 */
size_t leftovers_count_foreign(const struct target *t, const struct patch *patches, size_t count,
			       taddr_t *others);

/*
 * Another module has come to where ours was, nobody wrote into it, and a byte or two are there as we
 * wrote them: by chance.
 */
bool leftovers_is_chance(const struct target *t, int pagemap, const struct journal_entry *entry);

/*
 * Entries go in whose places there is what the mapped file has: nothing of ours is there, whatever was.
 * Short jumps whose near jump is there stay: the file may be a copy of the code with both.
 * While the target runs. Without memory, or where the file cannot be read, all stay.
 */
void leftovers_drop_clean(const struct target *t, struct journal_entry *entries, size_t *count);

/*
 * Entries of arena `n` that are there, and would bring back what the mapped file has not: where one of
 * another arena of the process is there as well, and brings that back, they do, too. Where none does and two do
 * not agree, nobody can tell, as above; nor where there is no time to look: after `deadline` (us).
 * While the target runs. Without memory they are as they are.
 */
void leftovers_ask_others(const struct process *p, size_t n, uint64_t deadline,
			  struct journal_entry *entries, size_t count);

/*
 * The jump that a patch of `length` bytes has made. Its end may be what was there before (arch_patch()): then the
 * patch has only its beginning, and the target has the rest.
 */
bool leftovers_jump_of(const struct target *t, taddr_t address, const uint8_t *patched,
		       size_t length, struct arch_insn *insn);
/* Where the patch made a short jump lead, or 0. */
taddr_t leftovers_hole_of(const struct target *t, taddr_t address, const uint8_t *patched,
			  size_t length);

/*
 * Sets p->guests from the journals of p->found[], whether they are there or not. While the target runs.
 * leftovers_forget_guests() frees them.
 */
int leftovers_find_guests(struct process *p, struct dinst_error *e);
void leftovers_forget_guests(struct process *p);
/*
 * Those that may lie in the tail of one of these patches of arena `n`, and are another arena's; by address.
 * *out is malloc'ed. False without memory.
 */
bool leftovers_guests_of(const struct process *p, size_t n, const struct patch *patches,
			 size_t count, struct guest **out, size_t *out_count);
bool leftovers_is_guest_there(const struct target *t, const struct guest *guest);
/* True if one of the ranges, by `lo`, that has a hit may lie in the tail of the window that begins there. */
bool leftovers_may_hold(const struct stack_range *ranges, size_t count, taddr_t window);

#endif
