/* SPDX-License-Identifier: MIT */
/*
 * driver.h - the tortured target in C: cases, their inputs and results, and
 * what the processor did in them.
 *
 *   cases.c   runs one case with one input and compares; the features of the CPU
 *   trace.c   counts every instruction of the program while a round runs alone
 *   storm.c   signals whose handler unwinds the stack
 *   driver.c  threads, commands
 *   throws.cc what leaves by an exception
 *
 * A difference is printed on both outputs and aborts the process.
 */
#ifndef DINST_TESTS_LIVE_ASM_DRIVER_H
#define DINST_TESTS_LIVE_ASM_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* torture.inc */
enum case_flag {
	CASE_SLOW = 0x1,
	CASE_ODD = 0x2,
	CASE_NOCOUNT = 0x4,
	CASE_AVX = 0x8,
	CASE_AVX512 = 0x10,
	CASE_GFNI = 0x20,
	CASE_VAES = 0x40,
	CASE_RTM = 0x80,
	CASE_INTEL = 0x100,
	CASE_THROWS = 0x200,
	CASE_CX16 = 0x400,
	CASE_ADX = 0x800,
	CASE_NOFRAME = 0x1000,
};

enum {
	INPUTS = 8,
	SCRATCH = 1024,
	STATE = 4096,	    /* room for an XSAVE area */
	TEST_STACK = 65536, /* and so aligned: call.S finds its top by that */
	ABOVE = 512,
	TRAP_FLAG = 0x100,
};

struct torture_case {
	void (*function)(void);
	const char *name;
	uint64_t flags;
};

extern const struct torture_case __start_torture_cases[], __stop_torture_cases[];

/* call.S knows the offsets. Registers in the order of the instruction set: ax cx dx bx sp bp si di. */
struct call {
	uint64_t saved;
	uint64_t gpr[16];
	uint64_t flags, rsp, mask;
	void *xin, *xout;
	uint64_t out[16];
	uint64_t out_flags;
	void *top;
};

struct result {
	uint64_t gpr[16];
	uint64_t flags;
	uint8_t scratch[SCRATCH];
	uint8_t state[STATE];
};

struct worker {
	struct call call;
	uint8_t *stack;
	uint8_t *scratch;
	uint8_t *state;
	struct result *expected; /* [case * INPUTS + input] */
	struct result *now;
	uint64_t rounds, slow_rounds;
	int number;
};

void torture_call(struct call *c);
void torture_settle(struct call *c);
void torture_untrace(void); /* clears the trap flag */
/* throws.cc: calls and catches; the thrown number, -1 if it returned. */
long torture_try(struct call *c);
void torture_throw(long number);

extern __thread void (*torture_function)(void);
extern __thread const char *torture_name; /* of the case that runs, for messages */

/* cases.c */
size_t case_count(void);
bool case_runs(const struct torture_case *c);
void cases_setup(void);
void worker_setup(struct worker *w, int number);
/* One case with one input; compares if `compare`, else writes down what is expected. */
void case_run(struct worker *w, size_t number, unsigned input, bool compare);
void run_round(struct worker *w, bool slow);
void wrong(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* trace.c */
struct trace_edge {
	uint64_t from, to; /* to: 0 if outside of the program */
	uint64_t count;
};
enum { TRACE_EDGES = 1 << 14 };
struct trace {
	uint32_t *counts;		      /* by byte from `low` on */
	struct trace_edge edges[TRACE_EDGES]; /* hashed; from 0: free */
};
extern struct trace traces[2]; /* of a round, of a slow round */
extern uint64_t trace_low, trace_high;
extern volatile bool tracing;
/* Runs a round of `w` and a slow one, instruction by instruction. */
void trace_rounds(struct worker *w);

/* storm.c */
extern __thread void *storm_base; /* a return address that every walk must come to */
extern volatile uint64_t storm_signals, storm_inside;
void storm_setup(void);
void storm_begin(void); /* for the calling thread */
void storm_end(void);

#ifdef __cplusplus
}
#endif

#endif
