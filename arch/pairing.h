/* SPDX-License-Identifier: MIT */
/*
 * pairing.h - per-thread state in the target, and entries paired with exits on
 * top of it. Part of the contract of arch.h, in a file of its own because both
 * the emitted code and the mutator that reads the state need the layout.
 *
 * The area is private memory that a forked child has a copy of:
 *
 *     0              struct pair_config                       one page
 *     pair_keys()    u64 thread pointer, 0: free              by record number
 *     pair_owners()  u32 thread id; the kernel gives a child zeros here
 *     pair_records() struct pair_record                       64 KiB each
 *
 * A thread finds its record by hashing its thread pointer and looking at
 * PAIR_PROBE places; it claims a free place with a compare-exchange. Only a
 * thread itself ever claims for its thread pointer, and lookups look at all
 * the places, so a place may be freed at any time that its owner is not
 * running. The owner is the thread's id as its C library keeps it at a fixed
 * distance from the thread pointer. If it differs, a new thread got the memory
 * of one that ended, and the record is cleared. If it is 0 while the record
 * names a thread, this is a forked child: what is in the record was copied
 * with the stack, and is marked PAIR_INHERITED: the parent counted its entry
 * and will count its exit.
 *
 * An activation is known by a tag: stack pointer << PAIR_ID_BITS | function,
 * the stack pointer being the one with which the function was entered (where
 * there are return addresses on stacks: the one at which it lies on top).
 * Each thread has
 *
 *   home    its activations on the thread's own stack, outermost first. They
 *           are sorted by stack pointer, so that whatever is at or below an
 *           event's stack pointer has been left without an exit (longjmp, an
 *           exception, a cancellation) and is dropped.
 *   other   a set of its activations elsewhere: alternate signal stacks,
 *           coroutines. Their stacks cannot be told apart, so nothing is
 *           dropped there, except what is entered again at the same place;
 *           where there is no room it takes the place of another one.
 *
 * What an exit does not find changes nothing. Two limits: an alternate or
 * coroutine stack that lies inside of the thread's own stack is taken for it;
 * a stack that goes on in another thread is not found there.
 *
 * Dropping. An activation that ends without an exit is undone: it is made
 * nobody's by one compare-exchange, then its function's undo routine runs, then
 * its place goes. A mark in home (function 0) says when the thread was last on
 * its way out (a hook at the entries of longjmp and its like) while what is
 * under it was entered last: what is dropped together with it, and is further
 * out, ended then; what was entered later ends now. If something is left that
 * may have ended with it, the mark goes there. Between two of them there always
 * is an activation, so marks do not fill the record.
 *
 * A forked child has its parent's activations, words and marks. With its first
 * event all entries become PAIR_INHERITED, timers that run start anew (clocks of
 * CPU time began at 0 with it), and marks have no time.
 *
 * Signals. A handler may interrupt emitted code at any instruction, run it
 * itself, and never return. On the thread's own stack its events are at lower
 * stack pointers than the interrupted one: it leaves what is above alone, and
 * whatever it leaves is below, hence dead. So a place that was found stays
 * right; and the only thing that can get lost, the tag written above the
 * published depth, is looked at again when the depth has been published. In
 * `other` a place is taken by one compare-exchange. There is no moment at
 * which what is published is not whole. With undoing (tests/unit/
 * arch_pairing_signals.c tries every instruction):
 *
 *   - of the interrupted code and a handler, only the one whose exchange
 *     succeeded undoes an activation; what undo routines are told lies in the
 *     record, and whoever runs one puts back what was there before;
 *   - a handler that never returns may leave one thing half done: the event
 *     that it interrupted, or one activation that was being undone. An exit's
 *     activation stays until all that runs at the exit has run (ARCH_OP_LEFT): it
 *     is undone then, once more in part, and nothing of it stays on;
 *   - a handler that returns, but has left an activation of its own by a jump
 *     that nothing came after, may lose that one (it is not undone) if it came
 *     between the few instructions that read and write the depth.
 *
 * Whatever flags are off by then, they end at 0 and not below, and begin anew
 * with the thread.
 */
#ifndef DINST_ARCH_PAIRING_H
#define DINST_ARCH_PAIRING_H

#include "arch/arch.h"

enum {
	PAIR_ID_BITS = 17, /* functions 1 .. 2^17 - 1; stack pointers below 2^47 */
	PAIR_RECORD_SHIFT = 16,
	PAIR_PROBE = 64,
	PAIR_HOME = 640,  /* activations on the thread's own stack */
	PAIR_OTHER = 128, /* elsewhere */
	PAIR_OTHER_PROBE = 16,
	PAIR_CHUNK = 64, /* words that are of one kind (struct pair_shared) */
	PAIR_CHUNKS = 103,
	PAIR_WORDS = 6632, /* the last ones are never used */
	PAIR_CONFIG_SIZE = 4096,
	PAIR_SHIFT_MIN = 6, /* log2 of the number of records */
	PAIR_SHIFT_MAX = 12,
	PAIR_UNDO_SHIFT = 9, /* log2 of the functions of one table of undo routines */
	PAIR_UNDO_TABLES = 1 << (PAIR_ID_BITS - PAIR_UNDO_SHIFT),
	PAIR_CLOCKS = 4, /* of enum arch_clock */
};

#define PAIR_ID_MASK ((1ull << PAIR_ID_BITS) - 1)
/*
 * Numbers from here on may be several for one function. Of all others one at
 * most is alive at a stack pointer: what is entered there ends the one before.
 */
#define PAIR_RAW       (1u << (PAIR_ID_BITS - 1))
#define PAIR_INHERITED UINT64_MAX
#define PAIR_HASH      0x9e3779b1u

static inline uint64_t pair_tag(taddr_t sp, uint32_t function)
{
	return sp << PAIR_ID_BITS | function;
}

struct pair_config {
	uint64_t magic; /* of the arena's private part */
	uint32_t shift; /* log2 of the number of records */
	/*
	 * Where two words relative to a thread pointer are that say where the
	 * thread's stack starts and how long it is; a start of 0: the main stack.
	 * 0: not known.
	 */
	int32_t stack_offset;
	uint64_t main_pointer;	     /* thread pointer of the main thread, 0: not known */
	uint64_t main_lo, main_size; /* its stack, both << PAIR_ID_BITS; size 0: not known */
	/* Addresses of words that are counted up: no record to be had, no room in
	 * the record, exits without an entry. */
	uint64_t lost, overflow, orphans;
	uint64_t shared; /* address of the struct pair_shared */
	/*
	 * Calls begun in this process that put a seccomp filter on it, and how many of them
	 * somebody has looked at: code makes system calls only while the two are equal.
	 */
	uint64_t filters_begun, filters_seen;
};

/*
 * What all processes of a family share, and the mutator changes while they run;
 * in the code of an arena, so that the target cannot write it.
 */
struct pair_shared {
	/*
	 * The sequence that is never in a register: rseq_cs points here where the
	 * thread has not been switched out since it read its CPU time (struct
	 * rseq_cs, include/uapi/linux/rseq.h). Nothing of it is ever executed.
	 */
	uint32_t version, flags;
	uint64_t start_ip, post_commit_offset, abort_ip;
	uint32_t filling, signature; /* abort_ip is behind the signature */
	uint64_t never[2];	     /* the sequence, and where abort_ip points */
	/* Bytes of `words` that may be in use, whole chunks: a new thread's are cleared. */
	uint32_t words;
	uint8_t clocks[PAIR_CHUNKS]; /* by chunk: 1 + the clock of its timers, 0: no timers */
	/*
	 * Undo routines: addresses of tables of 2^PAIR_UNDO_SHIFT addresses, by
	 * function; 0: none.
	 */
	uint64_t undo[PAIR_UNDO_TABLES];
};

struct pair_entry {
	uint64_t tag; /* 0: none. With function 0 it is a mark: nobody's, for undoing */
	/*
	 * PAIR_INHERITED, or what those who stand on this keep with it: when it was
	 * entered, in ticks; of a mark: when the thread was on its way out. 0: not known.
	 */
	uint64_t start;
};

struct pair_record {
	uint64_t lo, size; /* the thread's own stack, both << PAIR_ID_BITS; size 0: not known */
	uint32_t depth;	   /* of home, in bytes */
	uint32_t tid;	   /* 0: not in use */
	/*
	 * Thread CPU time in ns less the ticks in ns, true as long as rseq_cs points to
	 * the struct pair_shared; 0: not known.
	 */
	uint64_t cpu_offset;
	/* CPU time of the thread at the tick at which it was last on its way out; 0: not kept. */
	uint64_t out_ticks, out_cpu;
	/* For undo routines: the mark's time (0: none), the entry's start, and what the clocks say. */
	uint64_t dropped_at, dropped_start, moments[PAIR_CLOCKS];
	uint64_t unused[10];
	struct pair_entry end; /* tag UINT64_MAX */
	struct pair_entry home[PAIR_HOME];
	struct pair_entry other[PAIR_OTHER];
	uint64_t words[PAIR_WORDS];
};

_Static_assert(sizeof(struct pair_record) == 1 << PAIR_RECORD_SHIFT, "records lie in a row");
_Static_assert(offsetof(struct pair_record, words) % 64 == 0, "words fill cache lines");
_Static_assert(PAIR_CHUNKS *PAIR_CHUNK <= PAIR_WORDS, "chunks are in the record");

static inline size_t pair_keys(void)
{
	return PAIR_CONFIG_SIZE;
}

/* Whole pages, so that the kernel can clear them in a child. */
static inline size_t pair_owners(unsigned shift)
{
	return pair_keys() + (((size_t)8 << shift) + 4095) / 4096 * 4096;
}

static inline size_t pair_owners_size(unsigned shift)
{
	return (((size_t)4 << shift) + 4095) / 4096 * 4096;
}

static inline size_t pair_records(unsigned shift)
{
	return pair_owners(shift) + pair_owners_size(shift);
}

static inline size_t pair_area_size(unsigned shift)
{
	return pair_records(shift) + ((size_t)1 << (shift + PAIR_RECORD_SHIFT));
}

/* Where the search for a thread pointer begins. */
static inline uint32_t pair_hash(uint64_t thread_pointer, unsigned shift)
{
	return ((uint32_t)thread_pointer * PAIR_HASH) >> (32 - shift);
}

/* ------------------------------------------------------------------- code */

/* What the emitted code must know. */
struct arch_pairing {
	taddr_t area;	    /* anywhere */
	unsigned shift;	    /* as in its configuration */
	int32_t tid_offset; /* the thread's id (32 bits) relative to the thread pointer */
	uint32_t function;  /* 0 (a mark) or 1 .. PAIR_ID_MASK */
	taddr_t record, enter, leave, leaving; /* the routines, in reach */
	/* Counts entries, or exits that have found their entry; NULL: nothing. */
	const struct arch_counter *count;
};

/* With which C libraries register rseq (glibc, <sys/rseq.h>): what stands before abort_ip. */
extern const uint32_t arch_rseq_signature;

/* Where, relative to the thread pointer, a C library keeps what it knows of a thread. */
extern const int64_t arch_thread_block_lo, arch_thread_block_hi;

/*
 * The same in musl's struct pthread (src/internal/pthread_impl.h): the links in the list of all
 * threads, next to one another, and the id. Both 0 where that is not known.
 */
extern const int64_t arch_musl_links, arch_musl_id;

/* True if code may read through that thread pointer; `first` is the word that it points to. */
bool arch_thread_pointer_is_sane(taddr_t pointer, uint64_t first);

/*
 * Emits the routines, once for each arena; the offsets of their entries are
 * stored. They do all of the work; snippets do the usual case themselves. A
 * thread that runs one holds an address in the snippet in a register.
 */
enum arch_pairing_routine {
	ARCH_PAIRING_RECORD,
	ARCH_PAIRING_ENTER,
	ARCH_PAIRING_LEAVE,
	ARCH_PAIRING_LEAVING, /* looks what the exit will take out, and drops what was left below it */
	ARCH_PAIRING_KINDS
};
enum { ARCH_PAIRING_ROUTINES = 6144 };
void arch_emit_pairing_routines(struct arch_buf *out, const struct arch_pairing *spec,
				size_t offsets[ARCH_PAIRING_KINDS]);

/*
 * Operations of programs, for arch_emit_program(). Registers are numbers of the
 * architecture, all different, none the stack pointer.
 */
enum { ARCH_STATE_TEMPS = 3 };
struct arch_state_code {
	uint8_t result, second; /* written, at any time; `second` by leave only */
	uint8_t record; /* read and kept: of an earlier RECORD, may be 0; ARCH_NO_REGISTER: it is found */
	/*
	 * Changed: all to find a record; with a record that is given the first one to enter,
	 * the first two where it has been left, none to leave. Those that are not needed may be
	 * ARCH_NO_REGISTER.
	 */
	uint8_t temps[ARCH_STATE_TEMPS];
	size_t pushed; /* bytes on the stack since the frame was opened: for arch_note_pushed() */
	size_t before; /* + pushed: distance to the target's stack pointer at the point */
};

/*
 * The thread's record (made if need be, 0 if there is none); function
 * spec->function is entered: the address of its pair_entry, 0 if it is not
 * kept; it is about to be left: 1 or 0, and its start word, and its entry stays;
 * it has been left: the entry goes. Flags change, and memory below
 * the red zone. All ways end at the end of `out`. spec->count is not used. A function of 0 enters a mark.
 */
enum { ARCH_STATE_HOT = 256, ARCH_STATE_COLD = 224 }; /* bytes of each, at most */
void arch_emit_record_op(const struct arch_pairing *spec, const struct arch_state_code *code,
			 struct arch_buf *out, struct arch_buf *cold);
void arch_emit_enter_op(const struct arch_pairing *spec, const struct arch_state_code *code,
			struct arch_buf *out, struct arch_buf *cold);
void arch_emit_leave_op(const struct arch_pairing *spec, const struct arch_state_code *code,
			struct arch_buf *out, struct arch_buf *cold);
void arch_emit_left_op(const struct arch_pairing *spec, const struct arch_state_code *code,
		       struct arch_buf *out, struct arch_buf *cold);

/*
 * Undo routines: what runs where an activation is dropped. Called by the
 * routines above with the address of the record in register
 * arch_undo_record; it keeps that and all of arch_undo_live. The red zone is
 * stepped over. Ends with what arch_emit_undo_return() emits.
 */
extern const uint8_t arch_undo_record;
extern const arch_regset arch_undo_live;
void arch_emit_undo_return(struct arch_buf *out);

/*
 * Snippets in the shape of arch_emit_count(): raise the needs of a frame, then
 * emit into an open one. For a function's entry, before its first instruction,
 * and its exits, before the instruction that leaves. They read 32 bits at
 * tid_offset from the thread pointer, and the thread pointer must be set: on
 * x86-64 the word that it points to is its own address (psABI, TLS).
 */
enum { ARCH_PAIRING_HOT = 256, ARCH_PAIRING_COLD = 192 }; /* bytes, the count's not included */
void arch_pairing_needs(const struct arch_pairing *spec, struct arch_frame *frame);
void arch_emit_enter(const struct arch_pairing *spec, const struct arch_frame *frame,
		     struct arch_buf *out, struct arch_buf *cold);
void arch_emit_leave(const struct arch_pairing *spec, const struct arch_frame *frame,
		     struct arch_buf *out, struct arch_buf *cold);

#endif
