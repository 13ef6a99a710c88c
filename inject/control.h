/* SPDX-License-Identifier: MIT */
/*
 * control.h - struct target and struct stop from the inside.
 *
 * Private to the files that control the target: target*.c, stop*.c, remote*.c.
 *
 *   target.c         identity and reading
 *   target_pages.c   what is in memory, in a stop
 *   target_facts.c   what decides whether we may attach
 *   target_checks.c  may we, can we, and why not
 *   target_claim.c   one dinst at a time
 *   target_exec.c    catching a process at its execve()
 *   stop.c           the tracer thread, tries and deadline
 *   stop_gather.c    seizing and stopping to a fixed point
 *   stop_seize.c     one thread becomes a tracee
 *   stop_effects.c   system calls that must not be interrupted
 *   stop_settle.c    what has become of it
 *   stop_sharers.c   other processes in the target's memory
 *   stop_release.c   letting all go, back into the calls in which they were
 *   stop_woken.c     who has been woken up for a signal without effect
 *   stop_restart.c   system calls that our stop would have cut short
 *   stop_sleep.c     sleeps that our stop would have shortened for ever
 *   stop_memory.c    mappings, writing memory and registers
 *   stop_seccomp.c   which filters there are, and what they let pass
 *   remote*.c        system calls made by a thread of the target
 */
#ifndef DINST_INJECT_CONTROL_H
#define DINST_INJECT_CONTROL_H

#include <pthread.h>

#include "inject/maps.h"
#include "inject/proc.h"
#include "inject/ptrace.h"
#include "inject/target.h"

/* A system call with a relative timeout that we made to restart (stop_restart.c). */
struct restart {
	pid_t tid;
	taddr_t sp, pc;
	long number;
	long original; /* the timeout as the target gave it, or may have */
	long written;  /* as we left it at the last release */
	uint64_t released_ns;
	uint64_t end_ns;	 /* when it is over; never earlier than the target asked for */
	struct proc_usage usage; /* at the last stop */
	uint64_t serial;	 /* of the stop that saw it last */
	bool loads;		 /* it does not call with what is left in the register */
};

enum { HOLD_BLOCKS = 32 };

/* What is known of the target's pages in a stop (target_pages.c). */
struct hold {
	bool held;
	int pagemap;		       /* -1: cannot be opened */
	bool denied;		       /* since it may not be */
	taddr_t blocks[HOLD_BLOCKS];   /* number of a block of pages, and 1; 0: none */
	uint64_t present[HOLD_BLOCKS]; /* which of them are there */
};

struct target {
	pid_t pid;
	int pidfd;
	uint64_t start_time;
	int64_t clock_offset; /* target_clock_offset() */
	char name[PROC_NAME_MAX];
	uint64_t text_kib;     /* as of struct proc_status, when it was opened; 0: not known */
	pid_t memory_tid;      /* a thread through which memory can be reached */
	bool memory_tid_stays; /* it stands still: it does not exit, but by a signal that ends all */
	pthread_mutex_t stop_lock; /* one stop at a time */
	struct restart *restarts;  /* guarded by stop_lock */
	size_t restart_count, restart_capacity;
	uint64_t stop_serial;
	unsigned patience;     /* multiplies the default deadline; 1 unless CPUs are short */
	int claim;	       /* the descriptor whose lock it is, -1 without */
	bool parks;	       /* target_set_parks() */
	size_t parks_spent;    /* target_spend_parks() */
	bool placed_alike;     /* an exec may put everything where it was: addresses do not tell */
	unsigned left_program; /* target_left_program() */
	unsigned left_calls;   /* target_left_calls() */
	bool has_sealed;       /* target_has_sealed() */
	struct hold hold;
};

/*
 * From target_hold() to target_unhold() threads of the target stand still, and nothing must be read
 * that one of them might have to provide. target_at_hand(): process_vm_readv() may read these bytes. They are
 * in memory, and it takes none of the target's to read them; or there is no other way.
 */
void target_hold(struct target *t);
void target_unhold(struct target *t);
bool target_at_hand(const struct target *t, taddr_t address, size_t size);
/*
 * Forgets what is known of pages: they were written to, so that what processes had in common there is each one's own
 * now, or all have come to a stop only now.
 */
void target_look_again(struct target *t);

/* Finds another one after an access failed; false if there is none. */
bool target_find_memory_tid(struct target *t);

/* Explains why `pid` cannot be opened; called when the kernel said no. */
int target_explain_denial(pid_t pid, struct dinst_error *e);

/* Everything that rules a target out before we try: 0 or a code, with the reason. */
int target_find_obstacle(pid_t pid, enum target_origin origin, struct dinst_error *e);

/* The check that the kernel makes for ptrace, without any effect on the target: 0 or -errno. */
int target_test_access(pid_t pid);

/* Explains why no seccomp filter of `pid` can be suspended, where that was refused. */
int target_explain_filter(pid_t pid, struct dinst_error *e);

/* ---------------------------------------------------------------- stops */

/* How long a try may take until so many threads stand still. */
uint64_t stop_budget_ns(size_t threads, unsigned deadline_us, unsigned patience);

/*
 * The last resort: a try in which nothing goes on for four of those budgets and so many ms (ten
 * seconds; tests make it less) while somebody is kept from running, since our own thread hangs in the
 * kernel or was stopped itself, kills this process, so that the kernel lets the target go. A tenth of it
 * is added, and of that the time does not count in which our thread waits for a processor: it would
 * have to wait for one to end, too.
 */
extern unsigned stop_last_resort_ms;

/*
 * Something goes on: the tracer begins another part of the stop, or looks once more at who is on his
 * way back. Where it has to wait for a processor in each of them, all together may take longer.
 */
void stop_goes_on(void);

/* struct timespec of a 64-bit program. */
struct sleep_time {
	int64_t s, ns;
};

/* A sleep whose remainder the kernel writes over what it has asked for (stop_sleep.c). */
struct sleep_call {
	taddr_t at;		 /* of both; 0: the thread is in no such call, as far as is known */
	uint64_t sleeps;	 /* voluntary switches up to that sleep, itself included */
	bool kept;		 /* `asked` was written over `left` */
	struct sleep_time asked; /* before it was interrupted */
	struct sleep_time left;	 /* as the kernel has written it */
};

/* One tracee of a stop. `pub` is what others see. */
struct held {
	struct stop_thread pub;
	pid_t tgid;
	char state; /* as /proc said before the stop */
	long call;  /* that it slept in when it was last looked at; 0: none that matters */
	bool seized;
	bool interrupted;
	bool stopped;	 /* in a ptrace-stop now */
	bool gone;	 /* exited or never attached */
	bool lost;	 /* runs and could not be stopped again in time */
	bool returning;	 /* our tracee, and runs back into its system call (stop_release.c) */
	bool back;	 /* it is there */
	bool asked;	 /* interrupted once more, to see where it is */
	unsigned in;	 /* how often that was the call, made anew or not yet left */
	uint64_t run_ns; /* on its way: time on CPUs when that was first read, or 0 */
	bool seccomp_suspended;
	bool barred; /* no call passes its filter that a call of ours could become if we died */
	bool was_dispatched; /* a call of ours came to it as a signal: the kernel did not tell before */
	bool rseq_unknown; /* the kernel does not tell: Linux before 5.13 */
	bool restarted;	   /* stop_restart_begin() made its system call restart */
	unsigned frames;   /* of signal handlers, put on its stack between our calls */
	uint64_t since_ns; /* when it was interrupted */
	struct sleep_call sleep;
	struct arch_regs original; /* as the kernel has them */
};

struct stop {
	struct target *target;
	uint64_t serial; /* number of this stop */
	struct tracer tracer;
	struct held *held; /* in the order in which they were interrupted */
	size_t held_count, held_capacity;
	unsigned *table;	/* held by tid, open addressing: index + 1, 0 is free */
	size_t table_size;	/* a power of two */
	struct proc_ids groups; /* processes with the target's memory; the target is the first */
	int births_fd;
	long births;   /* proc_births() when a listing last showed nobody new */
	size_t *shown; /* indices of the stopped ones, for stop_thread() */
	size_t shown_count;
	uint64_t deadline_ns;
	uint64_t longest_ns;
	int memory_fd;	       /* /proc/TID/mem, -1 until it is needed */
	bool wrote_words;      /* the last time, for want of that */
	uint64_t incarnation;  /* of the program, before the first thread was seized */
	bool overlooked;       /* a process with the target's memory that is not to be seized yet */
	bool suspect;	       /* a leader went away: this may be another program now */
	bool executed;	       /* it is */
	bool gathered;	       /* every thread has been seen to stop */
	bool starved;	       /* who did not stop in time only waited for a CPU */
	bool nested;	       /* part of another one's work */
	uint64_t caught;       /* before the stop: signals with handlers of the target's own */
	bool is_init;	       /* the target is the first process of its pid namespace */
	bool first;	       /* we go before all fair work: stop_go_first() */
	uint64_t ask_until_ns; /* on their way back threads are interrupted once more until then */
	bool left_attached;    /* somebody could not be detached: our end does it */
	pid_t remote_victim;   /* while a remote program runs */
	bool unfrozen;	       /* once, when a thread was in an uninterruptible sleep */
	bool thawed;	       /* once, when a remote program was about to run */
	struct maps maps;      /* stop_maps() */
	bool has_maps;
	taddr_t tail; /* where remote programs run that have no arena; 0: not looked for */
	size_t tail_size;
};

/*
 * From before the first thread is interrupted until the last one has been let go, the tracer goes
 * before all work that has a fair share of the CPUs, if it may (stop.c); and once more while
 * threads on their way back are looked at (stop_release.c).
 */
void stop_go_first(struct stop *s);
void stop_step_back(struct stop *s);
/* The tracer is about to end: as it is, first or not. */
void stop_end_first(struct stop *s);

/*
 * Stops everything to a fixed point. The deadline is `deadline_us`, or where
 * that is 0 `patience` times the default. On failure some threads are stopped
 * and others not: release all.
 */
int stop_gather(struct stop *s, unsigned deadline_us, unsigned patience, struct dinst_error *e);
/*
 * stop_seize.c: h->seized, or h->gone, or neither, where it is no obstacle. DINST_BUSY and s->left_attached: its process
 * executes a program, and the kernel answers nobody.
 */
int stop_seize(struct stop *s, struct held *h, struct dinst_error *e);

/*
 * Other processes in the target's memory (stop_sharers.c). stop_find_sharers(): those that `h`
 * created; *more where there are new ones, s->overlooked where they must be left alone for now;
 * -errno where that cannot be told. stop_find_creator(): the process that created the target,
 * and who created that one, as far as they share the memory; DINST_BUSY while one of them waits in vfork().
 */
bool stop_shares_memory(struct stop *s, pid_t pid);
int stop_find_sharers(struct stop *s, const struct held *h, bool *more);
int stop_find_creator(struct stop *s, struct dinst_error *e);

/*
 * Main threads that exit while others live (stop_leader.c). stop_leader_has_exited(): `h` is one, and
 * has done so since it was seized: it never stops, nobody is told, and our end lets it go.
 * stop_leader_is_another(): it had when we came, and a thread that executed a program has its id now:
 * that one has to be taken in.
 */
bool stop_leader_has_exited(struct stop *s, struct held *h);
bool stop_leader_is_another(struct stop *s);

/*
 * Threads that still are our tracees, and run (stop_woken.c). stop_is_somebody_woken(): one of them may have been woken
 * up for a signal that only its being traced has kept the kernel from dropping, and has not had a CPU since.
 */
bool stop_is_somebody_left(const struct stop *s);
bool stop_is_somebody_woken(const struct stop *s);

/*
 * From index *at on: the next thread that was interrupted and has not been seen
 * to stop, but will (it is in no uninterruptible sleep). NULL at the end.
 */
struct held *stop_next_straggler(struct stop *s, size_t *at);

/*
 * DINST_BUSY: thread `h` `what` ("is in ..."), its state and wait channel, and then `remedy`, what to do; or that its
 * control group is frozen, where it is.
 */
int stop_fail_busy(struct stop *s, const struct held *h, const char *what, const char *remedy,
		   struct dinst_error *e);
/*
 * Before the first thread is interrupted: 0, or DINST_BUSY where `h` sleeps in a call whose interruption would do something
 * that cannot be undone (stop_effects.c). *served: it waits for a file system's server, or a TPM, and is to be waited for.
 */
int stop_check_effect(struct stop *s, const struct held *h, bool *served, struct dinst_error *e);
/* Whether it does so still. */
bool stop_waits_for_server(const struct held *h);

/* The last one with that id; NULL if there is none. */
struct held *stop_find_held(struct stop *s, pid_t tid);

/* True for a tracee that has not been seen to stop, and is not known to have ended. */
bool held_is_awaited(const struct held *h);

/*
 * Brings a thread that is running, or in some other ptrace-stop, to a plain
 * PTRACE_EVENT_STOP; signals on the way are delivered. 0, -ETIMEDOUT or -ESRCH
 * when the thread is gone. Registers are read again.
 */
int held_settle(struct stop *s, struct held *h);

/*
 * What is to be delivered of a signal that `h` is about to get: `signal`, or 0 where only our tracing it has kept the kernel
 * from ignoring that. So it is with SIGSTOP for the first process of a pid namespace, where it comes from in there: what
 * else that process has no handler for, the kernel drops now as it would have before (get_signal() in kernel/signal.c).
 */
int stop_deliverable(const struct stop *s, const struct held *h, int signal);

/*
 * Looks once at those that nobody has interrupted yet: who stands still for a signal goes on with it, and is not
 * held by us until we come round. Who stands still for good (job control) counts as stopped from then on.
 */
void stop_attend(struct stop *s);

/*
 * True if the stopped thread is under seccomp filters now, or that cannot be told. Never remembered: as
 * long as another thread runs, that one may put both under a filter.
 */
bool held_is_filtered(const struct held *h);
/* True if it is in the strict mode, or that cannot be told, of which tracee_has_filters() says nothing: a call of ours would end it. */
bool held_is_strict(const struct held *h);
/* A call without effect that all filters of the thread let pass, such as getpid; -1 if there is none. */
long held_harmless_call(const struct held *h);

/*
 * True if the stopped thread would be sent SIGSYS now for a system call of ours, since it
 * dispatches system calls to itself. What says so is its own memory: it stays
 * while the target stands still. Where the kernel (before 6.4) does not tell: true if it could, and the
 * signal could not be taken back; or once that was done.
 */
bool held_is_dispatched(const struct stop *s, const struct held *h);

/* True once the target has been killed, though its process may not have ended yet. */
bool stop_is_dying(struct stop *s);

/* Forgets what stop_maps() gave. */
void stop_forget_maps(struct stop *s);

/*
 * Lets all threads go as they were (stop_release.c). s->left_attached: who is still ours runs, and
 * is let go by the end of this thread.
 */
void stop_release(struct stop *s);

/*
 * True if the thread is in a call that blocks `signal`, which has a handler, by a signal mask of its own (as ppoll
 * and sigsuspend do). A call of ours that the thread makes ends with that mask, as the kernel takes it for the end of
 * the thread's: the handler may run then, but before the thread's call is made anew, and must not end it.
 */
bool stop_call_ignores(const struct stop *s, const struct held *h, int signal);
/* False for a call by a number of 32-bit programs, which 64-bit ones can make, too (int $0x80). */
bool stop_call_is_native(const struct held *h);

/*
 * A call that our stop would have cut short is made to restart. Called with the
 * registers just read, so at the first moment at which that can be said.
 */
void stop_restart_begin(struct held *h);
/* At the release: a call that is restarted goes on with what is left of its timeout. */
void stop_restart_finish(struct stop *s, struct held *h);
/* The thread stood still again meanwhile: how often it slept tells nothing of its call any more. */
void stop_restart_forget(struct stop *s, const struct held *h);
/*
 * Forgets the calls of threads that this stop, if it has seen all there are, did not see in them any more; but for what
 * we have written into their registers.
 */
void stop_restart_expire(struct stop *s);

/* To be called before a thread is seized, and before it is interrupted: what does its sleep ask for? Sets h->call. */
void stop_sleep_look(struct stop *s, struct held *h);
/*
 * Called with the registers just read, behind stop_restart_begin(), and again where `signal` (0: none) is about to
 * be delivered: memory is what the call has asked for, or if a handler runs what is left of it.
 */
void stop_sleep_keep(struct stop *s, struct held *h, int signal);

#endif
