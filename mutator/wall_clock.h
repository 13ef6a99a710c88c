/* SPDX-License-Identifier: MIT */
/*
 * wall_clock.h - the clock of wall timers where the processor's own is not steady.
 *
 * ARCH_CLOCK_MONOTONIC is a system call. The kernel maps a function into every
 * process that mostly does without one (vdso(7)), and what it does is made part of
 * our programs, as callee.h does it with functions of the target: nothing of it is
 * executed, there is no call and no frame. Where it would go back, because the
 * kernel changed the time at that moment, or goes where it cannot be followed, the
 * system call is made: both give the same clock.
 *
 *   1. wall_clock_make() when a session begins;
 *   2. wall_clock_expand() on each program that is about to be emitted.
 */
#ifndef DINST_MUTATOR_WALL_CLOCK_H
#define DINST_MUTATOR_WALL_CLOCK_H

#include "arch/program.h"
#include "inject/error.h"

struct target;

enum { WALL_CLOCK_RESULT = 1, WALL_CLOCK_OPS = 250 };

struct wall_clock {
	/* Sets value WALL_CLOCK_RESULT to ns; the system call in it is marked as what seldom runs. */
	struct arch_program program;
};

/* Where code may be lifted from, and what it may load. */
struct wall_clock_source {
	const uint8_t *code; /* of the vdso, `size` bytes that run at `start` */
	size_t size;
	taddr_t start, entry; /* its clock_gettime() */
	taddr_t lo, hi;	      /* that and the kernel's data beside it: mapped, readable */
};

/*
 * NULL where the system call has to stay: then e->text says why (DINST_UNSUPPORTED;
 * DINST_NO_MEMORY). wall_clock_free() it. Without a target: of this process itself.
 */
struct wall_clock *wall_clock_make(const struct target *t, struct dinst_error *e);
/* The same of code that is given. */
struct wall_clock *wall_clock_lift(const struct wall_clock_source *source, struct dinst_error *e);
void wall_clock_free(struct wall_clock *clock);

/*
 * For people: which clock wall timers go by where wall_clock_make() made `clock`, what a
 * reading of it takes, and why it is not the processor's. Waits as ticks_calibrate() does.
 */
void wall_clock_tell(const struct wall_clock *clock, char *text, size_t size);

/* Where clock_gettime() is in a vdso that begins at `image`; 0: there is none. */
size_t wall_clock_find(const uint8_t *image, size_t size);

/* True if wall_clock_expand() would change the program. */
bool wall_clock_is_wanted(const struct arch_program *p);
/*
 * Puts the clock in the place of each ARCH_CLOCK_MONOTONIC of a program with room
 * for ARCH_PROGRAM_OPS, as far as there is room: else the system call stays. To be
 * done after the program was optimised.
 */
void wall_clock_expand(const struct wall_clock *clock, struct arch_program *p);

#endif
