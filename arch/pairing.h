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
 *     pair_records() struct pair_record                       16 KiB each
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
 * Signals. A handler may interrupt emitted code at any instruction, run it
 * itself, and never return. On the thread's own stack its events are at lower
 * stack pointers than the interrupted one: it leaves what is above alone, and
 * whatever it leaves is below, hence dead. So a place that was found stays
 * right; and the only thing that can get lost, the tag written above the
 * published depth, is looked at again when the depth has been published. In
 * `other` a place is taken by one compare-exchange. There is no moment at
 * which what is published is not whole.
 */
#ifndef DINST_ARCH_PAIRING_H
#define DINST_ARCH_PAIRING_H

#include "arch/arch.h"

enum {
	PAIR_ID_BITS = 17, /* functions 1 .. 2^17 - 1; stack pointers below 2^47 */
	PAIR_RECORD_SHIFT = 14,
	PAIR_PROBE = 64,
	PAIR_HOME = 640,  /* activations on the thread's own stack */
	PAIR_OTHER = 128, /* elsewhere */
	PAIR_OTHER_PROBE = 16,
	PAIR_WORDS = 496,
	PAIR_CONFIG_SIZE = 4096,
	PAIR_SHIFT_MIN = 6, /* log2 of the number of records */
	PAIR_SHIFT_MAX = 12,
};

#define PAIR_ID_MASK   ((1ull << PAIR_ID_BITS) - 1)
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
};

struct pair_entry {
	uint64_t tag;	/* 0: none */
	uint64_t start; /* PAIR_INHERITED, or what those who stand on this keep with it */
};

struct pair_record {
	uint64_t lo, size; /* the thread's own stack, both << PAIR_ID_BITS; size 0: not known */
	uint32_t depth;	   /* of home, in bytes */
	uint32_t tid;	   /* 0: not in use */
	uint64_t unused[11];
	struct pair_entry end; /* tag UINT64_MAX */
	struct pair_entry home[PAIR_HOME];
	struct pair_entry other[PAIR_OTHER];
	uint64_t words[PAIR_WORDS];
};

_Static_assert(sizeof(struct pair_record) == 1 << PAIR_RECORD_SHIFT, "records lie in a row");

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
	taddr_t area;	      /* anywhere */
	unsigned shift;	      /* as in its configuration */
	int32_t tid_offset;   /* the thread's id (32 bits) relative to the thread pointer */
	uint32_t function;    /* 1 .. PAIR_ID_MASK */
	taddr_t enter, leave; /* the routines, in reach */
	/* Counts entries, or exits that have found their entry; NULL: nothing. */
	const struct arch_counter *count;
};

/* Where, relative to the thread pointer, a C library keeps what it knows of a thread. */
extern const int64_t arch_thread_block_lo, arch_thread_block_hi;

/* True if code may read through that thread pointer; `first` is the word that it points to. */
bool arch_thread_pointer_is_sane(taddr_t pointer, uint64_t first);

/*
 * Emits the two routines, once for each arena; the offsets of their entries are
 * stored. They do all of the work; snippets do the usual case themselves. A
 * thread that runs one holds an address in the snippet in a register.
 */
enum { ARCH_PAIRING_ROUTINES = 2048 };
void arch_emit_pairing_routines(struct arch_buf *out, const struct arch_pairing *spec,
				size_t *enter, size_t *leave);

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
