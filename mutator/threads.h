/* SPDX-License-Identifier: MIT */
/*
 * threads.h - per-thread state of a target, and activations on top of it.
 *
 * What the target keeps is described in arch/pairing.h. Here it is made when
 * the first request needs it, read, and tidied up in stops.
 *
 *   1. threads_prepare() for the place of a request; it may refuse, and says why;
 *   2. threads_pair() for each function that a request pairs, threads_take_words()
 *      for its flags and timers;
 *   3. threads_tidy() in every stop of a flush; threads_poll() now and then;
 *   4. threads_alive() and threads_statistics() at any time;
 *   5. threads_unpair(), threads_drop_words() when the instance goes, threads_free() with the session.
 */
#ifndef DINST_MUTATOR_THREADS_H
#define DINST_MUTATOR_THREADS_H

#include "arch/program.h"
#include "mutator/core.h"

struct threads; /* opaque; one per session */

/*
 * Makes sure that the target has per-thread state, and that place p has the
 * routines. The first time it is a stop of its own. DINST_REFUSED: this program
 * does not allow it, *e says why; DINST_BUSY: not yet.
 */
int threads_prepare(struct session *s, struct place *p, uint64_t *stop_ns, struct dinst_error *e);

/*
 * The number of a function, one for all that pair it, kept until it was dropped
 * as often as it was taken. *fresh: nobody paired it before, so that activations
 * that are alive now are not known yet (threads_catch_up()).
 */
int threads_pair(struct session *s, const struct function_ref *f, uint32_t *id, bool *fresh,
		 struct dinst_error *e);
void threads_unpair(struct session *s, uint32_t id);
/* The number that it has already; 0: nobody pairs it. */
uint32_t threads_paired(const struct session *s, const struct function_ref *f);

/* A number for a function, the instance's until it is dropped. (The older way; goes when nothing
 * uses it.) */
int threads_take_id(struct session *s, struct instance *i, uint32_t *id, struct dinst_error *e);
void threads_drop_ids(struct session *s, struct instance *i);

/*
 * `count` words in a row in every thread's record, 0 in each; *offset is that of
 * the first in struct pair_record. Timers (clock != NULL) get two that a forked
 * child starts anew at its first event, running or not: what their parent
 * measures is not counted twice. Given back after a flush proved that no code
 * uses them any more; they are 0 when they are given out again.
 */
int threads_take_words(struct session *s, unsigned count, const enum arch_clock *clock,
		       uint32_t *offset, struct dinst_error *e);
void threads_drop_words(struct session *s, uint32_t offset, unsigned count);

/* The arena that the undo routine of function `id` is in; NULL: it has none. */
struct place *threads_undo_place(const struct session *s, uint32_t id);

/*
 * What stands for the exit of activations of function `id` that are dropped:
 * a routine of code in place p made of `codes`, COMPILE_UNDO; none: count 0.
 * References to them are held while it exists; the old one is given back by the
 * next flush that finds no thread in it.
 */
int threads_set_undo(struct session *s, struct place *p, uint32_t id,
		     struct snippet_code *const *codes, size_t count, struct dinst_error *e);

/*
 * What is set in between waits for threads_turn_undos(), in the stop in which the code at entries comes:
 * it would take back, for activations that are dropped before, what no entry has done.
 */
void threads_hold_undos(struct session *s);
void threads_turn_undos(struct session *s);
/* Behind that stop, or where there is none: turns them if they are not yet, and gives back what was there before. */
void threads_let_undos_go(struct session *s);

/*
 * What is to run at the entries of these functions, before all else there,
 * while something is paired or timed. At ways out it notes the time, so that
 * activations that the thread drops end then; where it arrives, they are
 * dropped. NULL ends the lists. *program: its ops are malloc'ed and the
 * caller's; for any place; that of ways out is made anew when a timer of CPU
 * time comes.
 */
extern const char *const threads_hooks[], *const threads_landings[];
int threads_hook_program(struct session *s, struct arch_program *program, struct dinst_error *e);
int threads_landing_program(struct arch_program *program, struct dinst_error *e);
bool threads_is_landing(const struct arch_program *program);

/*
 * Lists the routines that there are, for threads_is_in_routine(): before the stop in which it is asked, and
 * anew whenever one has come. DINST_NO_MEMORY.
 */
int threads_list_routines(struct session *s, struct dinst_error *e);
/*
 * True if the code at `pc` is a routine of the pairing, or an undo routine: which function's exit or entry it
 * runs for is on no stack, so that nobody who stands there can be caught up with.
 */
bool threads_is_in_routine(const struct session *s, taddr_t pc);

struct threads_function;
/*
 * In front of what a request changes: true if whoever stands at `pc` is in code of one of the functions as it
 * was, and a branch in there decides whether it leaves by that, or by code that is new.
 */
bool threads_leaves_perhaps(struct session *s, const struct threads_function *functions,
			    size_t count, taddr_t pc);

/* What runs for one activation that is alive when a request comes. */
struct threads_late {
	uint32_t id;  /* function */
	taddr_t call; /* 0: its entry; else of frames that are in the call that returns here */
	bool behind;  /* of a call: something that belongs to it runs behind that */
	struct code_rank rank;
	size_t number;			    /* as they came */
	const struct arch_program *program; /* COMPILE_CATCH_UP */
};

/*
 * In the stop of a process of the family: finds the activations of functions
 * that are alive on its threads' stacks, keeps those in their records that are
 * not there yet, and runs for each, outermost first, what `late` (sorted by function) has for
 * it, in the order of `late`, against the thread's record. *threads is
 * how many threads had some. What cannot be walked is not caught up, nor is who has
 * some and no record and none can be made for just now: *unwalked counts such threads.
 */
struct threads_function {
	uint32_t id;
	taddr_t start, end; /* in the target; */
	taddr_t body;	    /* behind its entry's window: a pc from here on is inside */
	bool fresh;
};
int threads_catch_up(struct session *s, struct stop *stop, const struct threads_function *functions,
		     size_t function_count, const struct threads_late *late, size_t late_count,
		     size_t *threads, size_t *unwalked, struct dinst_error *e);

/*
 * Activations of threads that were in code of ours are kept where no jump out of
 * them is noticed. True if there may be some; and a stop of its own that puts those where
 * they belong whose threads are out of it by then.
 */
bool threads_have_strayed(const struct session *s);
void threads_bring_home(struct session *s);

/*
 * A timer in the records. only_pid, only_tid: what counts is what that process runs, or that thread, by
 * the ids that they have themselves; 0: whoever runs it.
 */
struct threads_timer {
	uint32_t offset;
	enum arch_clock clock;
	pid_t only_pid, only_tid;
};

/*
 * Reads what a timer's totals are, anew each time: it is called until nothing has stopped meanwhile. Where timers stop
 * all the time that is taken for what has run for a millisecond and more; the rest may be too much by what it ran.
 */
typedef int threads_totals(void *arg, struct dinst_error *e);

/*
 * Time of a timer that is running in any thread of the family now, in units of its clock:
 * together with what totals() has read last a sum that was true at one moment (the versions in
 * the records are the same before and after it was called). Does not stop anything.
 * Here and below: DINST_NOT_PERMITTED: the target lives, and may not be looked at any more;
 * DINST_BUSY: for want of descriptors or memory it, or the family, cannot be looked at now.
 */
int threads_read_timer(struct session *s, const struct threads_timer *timer, threads_totals *totals,
		       void *arg, uint64_t *running, struct dinst_error *e);
/*
 * The same thread by thread: each() with the ids that the process and the thread have themselves (a
 * process's is 0 where it has ended), the word at `beside` of its record (0 where that is 0),
 * and the time in units of the clock. All of them behind the last call of totals().
 */
struct threads_running {
	pid_t pid, tid;
	uint64_t word, units;
};
int threads_each_running(struct session *s, const struct threads_timer *timer, uint32_t beside,
			 threads_totals *totals,
			 void (*each)(void *arg, const struct threads_running *r), void *arg,
			 struct dinst_error *e);
/* One word of each thread's record: calls each() with the thread's id and the word. */
int threads_read_word(struct session *s, uint32_t offset,
		      void (*each)(void *arg, pid_t tid, uint64_t word), void *arg,
		      struct dinst_error *e);

/*
 * True if code in the target may make the system calls that programs are made
 * of (clock_gettime, process_vm_readv, getpid): no seccomp filter does anything
 * about one. A stop of its own where a thread has a filter. What the program may
 * forbid itself later is not known.
 */
int threads_may_call(struct session *s, struct dinst_error *e);
/* The same where there is a filter more: what was found out a moment ago was true before that. */
int threads_may_still_call(struct session *s, struct dinst_error *e);
/*
 * False if a thread that reads memory by a system call might wait for a page that it
 * would have to provide itself.
 */
bool threads_may_read(struct session *s, struct dinst_error *e);

/*
 * Functions that put such filters on the program, NULL ends the list, and what is to
 * run at the entry of the nth of them while code makes system calls, for any place;
 * its ops are malloc'ed and the caller's. From the first filter on no code makes a
 * call in that process. Needs threads_prepare().
 */
extern const char *const threads_filter_functions[];
int threads_filter_program(struct session *s, size_t n, struct arch_program *program,
			   struct dinst_error *e);
/*
 * In a stop of the target, under a filter that forbids calls and that it has not counted: as if it
 * had. Forked children start timers anew by a call even where all else that makes some is off.
 */
void threads_forbid_calls(struct session *s, struct stop *stop);
/* True if the target has begun to put a filter on itself that nobody has looked at. */
bool threads_filters_begun(const struct session *s);
/*
 * In a stop of the target whose filters were found to allow what we do: calls are made
 * again. False if one may still be about to be put on, or code that makes calls is in.
 */
bool threads_settle_filters(struct session *s, struct stop *stop);

/* What snippets at place p need to know; zeros before threads_prepare(). */
void threads_pairing(const struct session *s, const struct place *p, struct arch_pairing *spec);
/* The same for programs: sets pairing, thread_clock_by_rseq and clock_descriptor. */
void threads_environment(const struct session *s, const struct place *p,
			 struct arch_environment *environment);

/* In a stop of a process of the family: frees records of threads that have ended, and learns
 * what could not be known before. Never fails: it is about memory only. */
void threads_tidy(struct session *s, struct stop *stop);

/*
 * A stop of its own if threads went without a record since the last one, or have strayed; at most one
 * a second, and ever fewer while it is of no use. Is to be called every second or so where it is needed.
 */
bool threads_need_poll(const struct session *s);
void threads_poll(struct session *s);

/*
 * Activations of the instance's functions that are alive now, in all processes
 * of the family: entered, not left, on stacks of living threads. Those that a
 * forked child inherited are not among them. Exact while nothing runs.
 */
uint64_t threads_alive(struct session *s, const struct instance *i);

/* How often, since the state was made, what should have been kept was not. */
struct threads_statistics {
	uint64_t lost;	   /* entries of threads that have no record */
	uint64_t overflow; /* entries for which a record had no room */
	uint64_t orphans;  /* exits without an entry: it was before insertion, or not kept */
	unsigned records, used;
};
void threads_statistics(const struct session *s, struct threads_statistics *statistics);

/* Gives back the references of undo routines, on our side only; before the places go. */
void threads_release(struct threads *t);
void threads_free(struct threads *t);

#endif
