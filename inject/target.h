/* SPDX-License-Identifier: MIT */
/*
 * target.h - the process that is instrumented, and stopping it.
 *
 * A target is known by a pidfd and its start time, so a pid that is used again
 * is never mistaken for it. Between stops nothing of ours is attached to it.
 *
 * Calling sequence:
 *   1. target_open() checks that we may and can, and says why not;
 *   2. target_read() at any time, target_stop() for everything that needs the
 *      threads to stand still;
 *   3. target_close(), which touches the target no more.
 *
 * A stop runs on a thread of its own that is the tracer: when that thread
 * ends, for whatever reason, the kernel releases every thread of the target.
 * ptrace() and waitpid() are called in one file only (ptrace.c).
 */
#ifndef DINST_INJECT_TARGET_H
#define DINST_INJECT_TARGET_H

#include <sys/types.h>

#include "arch/thread.h"
#include "inject/error.h"

struct target; /* opaque */
struct maps;   /* maps.h */

/*
 * Opens process `pid`. Errors name the obstacle and the way out: no such
 * process, zombie, another uid, not dumpable, Yama, missing capability, LSM,
 * another tracer (its pid and name), 32-bit, strict seccomp. *out is set on
 * success and is given back with target_close().
 */
int target_open(pid_t pid, struct target **out, struct dinst_error *e);

/* What is known of a process before it is opened. */
enum target_origin {
	TARGET_ANY, /* nothing */
	TARGET_FORKED, /* forked from an open one and runs the same program: what that is is not asked again */
	TARGET_BORN, /* likewise, and others stand still: only what cannot be found out later */
};

/*
 * The same for a process of known origin. But for TARGET_ANY, no file is opened that somebody may
 * have to provide (mounts.h): others may stand still meanwhile.
 */
int target_open_known(pid_t pid, enum target_origin origin, struct target **out,
		      struct dinst_error *e);
void target_close(struct target *t);

/*
 * Makes sure that no other dinst works on the target, of whatever user, until
 * target_unclaim() or target_close(); to be called before it is changed. A mutator
 * that is about to end by itself (its daemon died) is waited for. DINST_BUSY
 * names who has it. Done twice it does nothing. Where a target's files in /proc
 * cannot be opened (CAP_SYS_PTRACE without CAP_DAC_READ_SEARCH) there is no
 * claim, and it succeeds.
 */
int target_claim(struct target *t, unsigned wait_ms, struct dinst_error *e);
void target_unclaim(struct target *t);

pid_t target_pid(const struct target *t);
/* When the process began, in clock ticks since boot (proc_pid_stat(5), field 22). */
uint64_t target_start(const struct target *t);
/*
 * The thread whose entry in /proc shows the process's memory, files and root: the leader, unless it
 * has exited. Asks /proc each time, but in a stop; it may have ended when it is used, as the process may have.
 */
pid_t target_memory_tid(const struct target *t);
int target_pidfd(const struct target *t);	 /* borrowed */
const char *target_name(const struct target *t); /* comm, as of target_open() */

/*
 * How often a thread did not come back from system calls that it made for us: it makes the rest
 * of them by itself, and what they were to make may be left in the process.
 */
unsigned target_left_program(const struct target *t);

/*
 * How often that was so, or some calls were made and the rest given up, or those that were to take
 * something out: what there was may be left in it.
 */
unsigned target_left_calls(const struct target *t);
void target_note_left(struct target *t); /* once more */

/*
 * True once memory of ours could not be taken out since the program has sealed it with its own (mseal(2)): it is there,
 * unused, until the program ends or executes another one.
 */
bool target_has_sealed(const struct target *t);
void target_note_sealed(struct target *t);

/* False once the process has ended or its pid names another one. */
bool target_alive(const struct target *t);
/* target_pid() as long as it is alive, then 0: another one, also a child of its own, may have that number. */
pid_t target_own_pid(const struct target *t);
/* True then, too, and once it was killed: the kernel does nothing more for it, and tells its end only some time later. */
bool target_has_to_end(const struct target *t);

/* True if it lives and may not be looked at any more (it became undumpable, Yama). */
bool target_is_denied(const struct target *t);

/*
 * Changes whenever the process executes another program (start time and where the kernel
 * put what, or where that is not random AT_RANDOM's bytes); 0 if the target is gone.
 */
uint64_t target_incarnation(const struct target *t);

/* 0 if its memory may be read just now, or DINST_NOT_PERMITTED with the reason and the way out. */
int target_may_be_read(const struct target *t, struct dinst_error *e);

/*
 * True if both tell something (neither is 0) of the same kind: what we may look at may have changed,
 * and what tells programs apart with it.
 */
bool target_incarnations_compare(uint64_t a, uint64_t b);

/* True if another incarnation is another program for sure: a program cannot make us believe in one. */
bool target_incarnation_is_sure(const struct target *t);

/* Reads exactly `size` bytes or fails; runs while the target runs. */
int target_read(const struct target *t, taddr_t address, void *to, size_t size,
		struct dinst_error *e);

/* Reads as much as there is from `address` on; returns the number of bytes, 0 if none. */
size_t target_read_some(const struct target *t, taddr_t address, void *to, size_t size);

struct target_range {
	taddr_t address;
	size_t size;
	void *to;
};

/* Reads many ranges with few system calls. All or an error. */
int target_read_many(const struct target *t, const struct target_range *ranges, size_t count,
		     struct dinst_error *e);

/*
 * Says that the program may keep program counters of interrupted tasks in memory
 * of its own, where no thread's stack is: stack.h then searches all of that.
 */
void target_set_parks(struct target *t);
bool target_parks(const struct target *t);
/* So many pages of other processes have been searched already in this stop; 0 in another one. */
void target_spend_parks(struct target *t, size_t pages);
/* How many of this one may be: `most` if there were no others. */
size_t target_parks_room(const struct target *t, size_t most);

/* What the target's CLOCK_MONOTONIC is ahead of ours, in ns; t may be NULL: 0. */
int64_t target_clock_offset(const struct target *t);

/* CLOCK_MONOTONIC in nanoseconds: the time of deadlines and pauses. */
uint64_t clock_ns(void);

/* ---------------------------------------------------------------- stops */

/* One thread while it is stopped. Set `changed` after writing to regs. */
struct stop_thread {
	pid_t tid;
	struct arch_regs regs;
	bool changed;
	bool leader;
	bool kernel_worker; /* io_uring, vhost: never stopped, so never listed */
	bool group_stopped; /* job control holds it; it stays so afterwards */
	bool foreign;	    /* another thread group that shares the memory (vfork child) */
	taddr_t rseq;	    /* its registered struct rseq, 0 if none */
	uint32_t rseq_size;
	uint32_t rseq_signature;
};

struct stop; /* a stopped target; valid only inside the work function */

struct target *stop_target(struct stop *s);
size_t stop_thread_count(const struct stop *s);
struct stop_thread *stop_thread(struct stop *s, size_t index);

/*
 * Writes exactly `size` bytes to the target, whatever the protection of the
 * page (a private copy of a text page is made by the kernel). Only in a stop.
 */
int stop_write(struct stop *s, taddr_t address, const void *from, size_t size,
	       struct dinst_error *e);
/*
 * True if the last stop_write() had to write word by word, by ptrace(): if we died in the middle of
 * more than 8 bytes, some words would be there and others not.
 */
bool stop_wrote_words(const struct stop *s);

/*
 * Writes the registers of all threads that are `changed` now, and clears the
 * flag: for what must be true before the next write of code, whatever becomes
 * of us. DINST_GONE if a thread is dead.
 */
int stop_store_regs(struct stop *s, struct dinst_error *e);

/*
 * The target's mappings, exact until a call is made in it that changes them (remote_run()), which
 * is when *out goes, as it does at the end of the stop. Read once for everybody who asks.
 */
int stop_maps(struct stop *s, const struct maps **out, struct dinst_error *e);

/*
 * Other processes in the target's memory, as far as the kernel tells us; adds to the list. Looks at all
 * processes, while they run: 1 us each, or so.
 */
struct proc_ids;
int target_find_sharers(const struct target *t, struct proc_ids *out, struct dinst_error *e);
/*
 * DINST_REFUSED where one of those that were found before is still there, and this stop has not found it
 * (docs/safety.md): whoever is about to write code that others execute asks once.
 */
int stop_check_sharers(struct stop *s, const struct proc_ids *sharers, struct dinst_error *e);

/*
 * 1 if the thread stands inside a restartable sequence (rseq(2)), with the
 * address at which the kernel would abort it. Its pc must not be moved then
 * but to that address: stop_leave_sequence() does it for good and sets
 * `changed`. It returns 0, and does nothing, outside a sequence; none makes system calls, so
 * whoever is in one is outside. DINST_BUSY where it cannot be read whether it is in one: it must not be moved
 * then, nor be made to call.
 */
int stop_in_sequence(struct stop *s, const struct stop_thread *thread, taddr_t *abort_pc);
int stop_leave_sequence(struct stop *s, struct stop_thread *thread);

/*
 * The kernel reads the descriptor that rseq_cs points to when a thread is next preempted or gets a
 * signal, long after the sequence, and kills it with SIGSEGV if nothing is there: so a pointer that
 * leads to what is about to go is cleared, in every thread for which leads(thread, descriptor, arg)
 * is true (tests/live/arena_rseq.c). Threads without a pointer are not asked about.
 */
typedef bool (*stop_leads)(const struct stop_thread *thread, taddr_t descriptor, const void *arg);
int stop_clear_descriptors(struct stop *s, stop_leads leads, const void *arg,
			   struct dinst_error *e);

/*
 * True if no seccomp filter of any thread does anything about this system call,
 * and no thread dispatches system calls to itself. False also where filters
 * cannot be read (which needs CAP_SYS_ADMIN).
 */
bool stop_may_call(struct stop *s, long number, const long arguments[6]);

struct stop_options {
	unsigned deadline_us; /* 0: 20 ms and 0.2 ms a thread; doubled at each new try
				 where a thread was only waiting for a CPU */
	unsigned tries;	      /* 0: the default, with growing pauses between */
};

struct stop_report {
	uint64_t stop_ns; /* longest time that any one thread was kept stopped */
	unsigned threads;
	unsigned tries;
};

/*
 * Stops every thread of the target (to a fixed point), calls work(), writes
 * back changed registers, repairs system calls that our stop would have cut
 * short, and lets everything go. Returns what work() returned. If a thread
 * does not stop in time all are released and it is tried again; at the end
 * DINST_BUSY names the thread, its state and wait channel. *report may be NULL.
 */
typedef int (*stop_work)(struct stop *s, void *arg, struct dinst_error *e);
int target_stop(struct target *t, const struct stop_options *options, stop_work work, void *arg,
		struct stop_report *report, struct dinst_error *e);

struct memory_room {
	uint64_t bytes;	 /* UINT64_MAX where there is no limit that we may see */
	char limit[512]; /* the file that says so */
};

/*
 * How much the target may still take before the kernel kills something in its control group, or holds
 * it up. DINST_BUSY where we have no descriptor or memory to look.
 */
int target_memory_room(const struct target *t, struct memory_room *room, struct dinst_error *e);

/*
 * DINST_REFUSED if `bytes`, and some more for tables and for what the target takes meanwhile, are not to be
 * had: "would need N KiB PURPOSE", which limit is to be raised, and what else can be done (INSTEAD, or "").
 */
int target_check_room(const struct target *t, const struct memory_room *room, uint64_t bytes,
		      const char *purpose, const char *instead, struct dinst_error *e);

/* -------------------------------------------------------------- starting */

/*
 * Takes hold of `pid`, a process that is about to call execve() and waits for
 * us to let it: seizes it, calls armed(arg) (which makes it go on), waits for
 * the exec, leaves it stopped by SIGSTOP before the first instruction of the
 * new program, and detaches. target_release() lets it run.
 */
int target_catch_exec(pid_t pid, void (*armed)(void *arg), void *arg, unsigned timeout_ms,
		      struct dinst_error *e);
int target_release(struct target *t, struct dinst_error *e);

/* ---------------------------------------------------------- permissions */

struct target_check {
	const char *check; /* "exists", "uid", "dumpable", "yama", ... */
	bool ok;
	char why[256]; /* what was found */
	char fix[256]; /* what to do; where it is ok, what to beware of, mostly nothing */
};

/*
 * Everything that decides whether we may attach to `pid` (0: in general), one
 * entry each, for `dinst doctor`. Returns the number of entries filled.
 */
size_t target_checks(pid_t pid, struct target_check *checks, size_t max);

/*
 * What the check "uprobes" found in `pid`: true, and in *check what to beware of, where a kernel
 * uprobe was hit since the program began, or where that cannot be looked at for want of descriptors or memory.
 * One that was not hit yet cannot be seen.
 */
bool target_warns_of_uprobes(pid_t pid, struct target_check *check);

/* Waits for the end of a child process of our own: its status, or -1 if a signal ended it. */
int child_wait(pid_t child);
/* The same of one that is killed, and then -1, if it has not ended at `deadline`, in ns of clock_ns(). */
int child_wait_until(pid_t child, uint64_t deadline);

#endif
