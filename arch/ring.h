/* SPDX-License-Identifier: MIT */
/*
 * ring.h - the memory in which a target leaves events for its mutator: what is
 * written by the code that programs become (ARCH_OP_RING_OPEN in program.h) and
 * read by mutator/stream*.c. Part of the contract of arch.h.
 *
 * A stream is ARCH_RINGS_EACH rings in each CPU's block of an arena's data half,
 * and as many in the locked block, for all:
 *
 *     block of CPU n:   rings + (n << cpu_shift)      ring 0 | ring 1
 *     locked block:     rings + (cpus << cpu_shift)   ring 0 | ring 1
 *
 *     ring   | line 0: lock, dropped, head, opened | line 1: tail | records ... |
 *              writers'                              reader's       1 << shift bytes
 *
 * A writer takes the first ring that is free and has room: of its CPU, then of all.
 * It never waits: where there is none the event is dropped and counted. A handler that interrupts a writer finds the ring taken and
 * gets another; a thread that dies, or never comes back, leaves it taken until the
 * reader frees it.
 *
 * Positions are bytes since the beginning; a record is at its position modulo the
 * size. Records do not wrap: what is left at the end of a lap is one of id 0.
 * The holder of the lock writes the record, then head, then lock. A reader
 * sees whole records below head, and gives room back by tail. The ticks of one
 * ring ascend, since they are taken while the lock is held.
 *
 * All of it can be written by the target whenever it likes. Writers keep inside of
 * the ring whatever head and tail are; readers believe nothing.
 */
#ifndef DINST_ARCH_RING_H
#define DINST_ARCH_RING_H

#include "arch/arch.h"

enum {
	ARCH_RINGS_EACH = 2,
	ARCH_RING_HEADER = 128,
	ARCH_RING_SHIFT_MIN = 12,
	ARCH_RING_SHIFT_MAX = 22,
	ARCH_RING_ALIGN = 8, /* of records, and of their sizes */
};

struct arch_ring {
	uint64_t lock;	  /* 0: free, else the holder's thread id, as the thread itself sees it */
	uint64_t dropped; /* events; locked additions */
	uint64_t head;	  /* bytes ever written */
	uint64_t opened;  /* ticks of the record that is, or was last, begun */
	uint64_t unused[4];
	uint64_t tail; /* bytes ever read */
	uint64_t unused_too[7];
	uint8_t records[];
};

_Static_assert(sizeof(struct arch_ring) == ARCH_RING_HEADER, "two lines");

/* What a record begins with. Of one with id 0 there are only the first two. */
struct arch_record {
	uint32_t id;
	uint32_t size; /* bytes, this included; a multiple of ARCH_RING_ALIGN */
	uint64_t ticks;
	uint32_t tid; /* the thread's id, as it sees it */
	uint32_t flags;
	uint8_t fields[];
};

enum { ARCH_RECORD_MAX = 8960 }; /* bytes of one, at most a quarter of its ring */

/* Where the rings of a stream are. */
struct arch_stream {
	taddr_t rings; /* the first one in CPU 0's block; 0: there are none */
	unsigned cpus, cpu_shift;
	unsigned shift; /* log2 of the bytes of a ring */
	/*
	 * Blocks from the first one on that threads share whose CPU is not known; 0: they use the one
	 * for all. Not those of CPUs that are not there: nobody else pays for the memory of these.
	 */
	unsigned spread;
};

static inline uint64_t arch_ring_stride(const struct arch_stream *s)
{
	return ARCH_RING_HEADER + ((uint64_t)1 << s->shift);
}

/* The n'th ring of block `block`; block `cpus` is for all. */
static inline taddr_t arch_ring_at(const struct arch_stream *s, unsigned block, unsigned n)
{
	return s->rings + ((uint64_t)block << s->cpu_shift) + n * arch_ring_stride(s);
}

/* The block of a thread whose CPU is not known. */
static inline unsigned arch_ring_block(const struct arch_stream *s, uint32_t tid)
{
	return s->spread ? (unsigned)((uint64_t)(tid * 0x9e3779b1u) * s->spread >> 32) : s->cpus;
}

#endif
