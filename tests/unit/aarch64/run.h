/* SPDX-License-Identifier: MIT */
/*
 * run.h - runs code on given registers on AArch64, for run.c, and counts what
 * is as expected. One area of memory, far from everything, holds a way in,
 * which loads all registers, two ways out, which say where control came out
 * and store all registers, and the code between them. No libc runs while it
 * does. One thread at a time.
 */
#ifndef DINST_TESTS_AARCH64_RUN_H
#define DINST_TESTS_AARCH64_RUN_H

#include <stdio.h>
#include <sys/mman.h>

#include "arch/aarch64/a64.h"

#define AREA  0x200000000000ull
#define LOW   0x20000000ull /* counters */
#define FIRST 0x300000000000ull

enum {
	AREA_SIZE = 96 << 20,
	STUBS = 0,
	HOME = 0x10000, /* an instruction, and behind it the way on */
	TARGET = HOME + 0x40,
	LITERAL = HOME + 0x80,
	NEAR = 0x20000,
	FAR = 80 << 20,
	SAVED = 0x8000, /* the stubs' data */
};

struct state {
	uint64_t x[31];
	uint64_t sp; /* on the way out only */
	uint64_t nzcv;
	uint64_t tp;
	uint64_t where;	 /* 0: behind the instruction; 1: at its target */
	uint64_t own_tp; /* of this program */
	uint64_t v0[2];
};

static uint8_t *const area = (uint8_t *)AREA;
static struct state *const state = (struct state *)(AREA + SAVED);
static volatile unsigned checks, failures; /* counted in a signal handler, too */

static uint64_t run_random(void)
{
	static uint64_t seed = 88172645463325252ull;

	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static void expect(bool good, const char *what, unsigned long a, unsigned long b)
{
	checks++;
	if (good)
		return;
	failures++;
	if (failures < 40)
		printf("FAIL %s: %#lx, %#lx\n", what, a, b);
}

static struct arch_buf at(taddr_t pc, size_t size)
{
	return (struct arch_buf){.bytes = (uint8_t *)pc, .size = size, .pc = pc};
}

/* ldr and str of q0, from x18 */
#define LOAD_V0	 (0x3dc00000 | offsetof(struct state, v0) / 16 << 10 | 18 << 5)
#define STORE_V0 (0x3d800000 | offsetof(struct state, v0) / 16 << 10 | 18 << 5)

/* The two ways out are 256 bytes each, from STUBS + 512 on. */
static taddr_t way_out(unsigned n)
{
	return AREA + STUBS + 512 + 512 * n;
}

static void emit_way_in(taddr_t code)
{
	struct arch_buf b = at(AREA + STUBS, 512);

	for (unsigned r = 18; r < 30; r += 2) /* stp, callee-saved and x18 */
		a64_emit(&b, 0xa9bf0000 | (r + 1) << 10 | SP << 5 | r);
	a64_emit(&b, a64_push(X30, 16));
	a64_emit_constant(&b, 18, (uintptr_t)state);
	a64_emit(&b, 0xd53bd040 | 0); /* mrs x0, tpidr_el0 */
	a64_emit(&b, a64_str(0, 18, offsetof(struct state, own_tp)));
	a64_emit(&b, a64_ldr(0, 18, offsetof(struct state, tp)));
	a64_emit(&b, 0xd51bd040 | 0);
	a64_emit(&b, a64_ldr(0, 18, offsetof(struct state, nzcv)));
	a64_emit(&b, 0xd51b4200 | 0);
	a64_emit(&b, LOAD_V0);
	for (unsigned r = 0; r < 31; r++)
		if (r != 18)
			a64_emit(&b, a64_ldr(r, 18, 8 * r));
	a64_emit(&b, a64_ldr(18, 18, 8 * 18));
	arch_emit_jump(&b, code);
	expect(b.status == ARCH_OK, "way in", b.status, 0);
}

static void emit_way_out(unsigned n)
{
	struct arch_buf b = at(way_out(n), 512);

	a64_emit(&b, a64_push(18, 16));
	a64_emit_constant(&b, 18, (uintptr_t)state);
	for (unsigned r = 0; r < 31; r++)
		if (r != 18)
			a64_emit(&b, a64_str(r, 18, 8 * r));
	a64_emit(&b, a64_pop(0, 16));
	a64_emit(&b, a64_str(0, 18, 8 * 18));
	a64_emit(&b, a64_add(0, SP, 0));
	a64_emit(&b, a64_str(0, 18, offsetof(struct state, sp)));
	a64_emit(&b, 0xd53b4200 | 0);
	a64_emit(&b, a64_str(0, 18, offsetof(struct state, nzcv)));
	a64_emit(&b, STORE_V0);
	a64_emit_constant(&b, 0, n);
	a64_emit(&b, a64_str(0, 18, offsetof(struct state, where)));
	a64_emit(&b, a64_ldr(0, 18, offsetof(struct state, own_tp)));
	a64_emit(&b, 0xd51bd040 | 0);
	/* Whatever was done to the stack pointer: back to where it was. */
	a64_emit_constant(&b, 1, (uintptr_t)state + sizeof(*state));
	a64_emit(&b, a64_ldr(0, 1, 0));
	a64_emit(&b, a64_add(SP, 0, 0));
	a64_emit(&b, a64_pop(X30, 16));
	for (int r = 28; r >= 18; r -= 2)
		a64_emit(&b, 0xa8c10000 | (r + 1) << 10 | SP << 5 | r);
	a64_emit(&b, 0xd65f03c0);
	expect(b.status == ARCH_OK, "way out", b.status, 0);
}

/* Runs the code at `pc` on the registers in *state; returns what the stack pointer was. */
static uint64_t run(taddr_t pc)
{
	uint64_t *sp_slot = (uint64_t *)(state + 1);
	void (*enter)(void) = (void (*)(void))(AREA + STUBS);

	emit_way_in(pc);
	__builtin___clear_cache((char *)area, (char *)area + 0x40000);
	__builtin___clear_cache((char *)area + FAR, (char *)area + FAR + 0x1000);
	/* enter() pushes 7 pairs; this frame's sp at the call is what it starts from. */
	__asm__ volatile("mov x9, sp\n\tsub x9, x9, #112\n\tstr x9, [%0]\n\tblr %1"
			 :
			 : "r"(sp_slot), "r"(enter)
			 : "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11",
			   "x12", "x13", "x14", "x15", "x16", "x17", "x30", "v0", "memory", "cc");
	return *sp_slot;
}

static struct state random_state(void)
{
	struct state s = {.tp = run_random(),
			  .nzcv = run_random() & 0xf0000000,
			  .v0 = {run_random(), run_random()}};

	for (unsigned i = 0; i < 31; i++)
		s.x[i] = run_random() & 1 ? run_random() : run_random() & 1;
	return s;
}

#endif
