/* SPDX-License-Identifier: MIT */
/*
 * program.h - the small typed intermediate form of snippets, and its code. Part
 * of the contract of arch.h, in a file of its own because those who build
 * programs need nothing else of it.
 *
 * A program is a row of operations on 64-bit values. A value has a number from
 * 1 on (0: none) and may be set more than once. Control goes forward only:
 * labels are behind the jumps that lead to them. There is no loop, so the cost
 * of a program can be told (arch_program_cost()). No operation can fault, but
 * LOAD and STORE of what is not mapped.
 *
 * What makes a system call (READ, RING_BYTES, PROCESS, and CLOCK but for ticks) is told below. It keeps all
 * that a system call keeps: on AArch64 not streaming mode (SME), nor scalable vectors above 128 bits,
 * predicates and FFR (SVE), which are dead at entries, exits and calls of ordinary functions, and nowhere else.
 *
 *   1. somebody builds ops (arch_op.kind says what the fields mean);
 *   2. arch_program_optimise(): constants folded, common subexpressions taken
 *      once, cheaper operations for dear ones, what has no effect is gone;
 *   3. arch_program_needs() raises the needs of a frame, arch_emit_program()
 *      emits inside the open frame.
 *
 * The second operand of a binary operation, a comparison or an addition is
 * value b, or where b is 0 the constant `immediate`.
 */
#ifndef DINST_ARCH_PROGRAM_H
#define DINST_ARCH_PROGRAM_H

#include "arch/arch.h"
#include "arch/pairing.h"
#include "arch/ring.h"

enum arch_op_kind {
	ARCH_OP_NONE, /* nothing; left behind by passes */

	/* result = ... */
	ARCH_OP_CONST, /* number */
	ARCH_OP_COPY,  /* a */
	ARCH_OP_ADD,
	ARCH_OP_SUB,
	ARCH_OP_MUL,
	ARCH_OP_MUL_HIGH, /* upper 64 bits of the unsigned product */
	/* Division by 0 gives 0; the smallest number by -1 gives itself, remainder 0. */
	ARCH_OP_DIV, /* of signed numbers */
	ARCH_OP_DIV_UNSIGNED,
	ARCH_OP_REM,
	ARCH_OP_REM_UNSIGNED,
	ARCH_OP_AND,
	ARCH_OP_OR,
	ARCH_OP_XOR,
	ARCH_OP_SHL, /* the count modulo 64 */
	ARCH_OP_SHR,
	ARCH_OP_SAR,
	ARCH_OP_NEG,
	ARCH_OP_NOT,	/* every bit */
	ARCH_OP_LOG2,	/* number of a's highest bit that is set; 0 for 0 */
	ARCH_OP_EXTEND, /* the low `size` bytes of a, by sign where is_signed */
	ARCH_OP_TEST,	/* 1 where a `condition` second operand, else 0 */

	/* What the target's thread has at the point. */
	ARCH_OP_ARGUMENT,	/* integer argument register `number` (psABI order) */
	ARCH_OP_FLOAT_ARGUMENT, /* the low 64 bits of vector argument register `number` */
	ARCH_OP_RESULT,		/* integer result register `number`: 0 or 1 */
	ARCH_OP_FLOAT_RESULT,	/* likewise, vector registers */
	ARCH_OP_STACK,		/* the 64-bit word at the target's stack pointer + number */
	ARCH_OP_STACK_POINTER,
	ARCH_OP_CALLER,	   /* return address; at a function's entry and exits only */
	ARCH_OP_PRESERVED, /* register `number` of those that calls preserve: arch_preserved() */

	/* Memory. Address: a + number; a may be 0. */
	ARCH_OP_LOAD,	   /* size bytes, by sign where is_signed; of our own memory */
	ARCH_OP_STORE,	   /* low size bytes of the second operand */
	ARCH_OP_FETCH_ADD, /* result: old 64-bit word, then += second operand. Whole as seen by
			      signal handlers of the thread, not by other threads */
	ARCH_OP_ATOMIC_ADD,
	ARCH_OP_ATOMIC_MIN, /* of signed 64-bit words, second operand a value */
	ARCH_OP_ATOMIC_MAX,
	ARCH_OP_ATOMIC_STORE,
	/* result: size bytes (1 to 8) of the target's memory at a + number, by sign where is_signed;
	 * 0 where that cannot be read. second: 1 if it could. Never faults; a system call. */
	ARCH_OP_READ,

	/* The counter whose slot of CPU 0 is at a + number += second operand; see struct arch_counter. */
	ARCH_OP_COUNT,

	/* Per-thread state (pairing.h). */
	ARCH_OP_RECORD, /* address of the thread's struct pair_record, made if need be; 0: there is none */
	/*
	 * For these three, a is the value of an ARCH_OP_RECORD in front of them, which
	 * spares looking for the record again; 0: looks itself.
	 */
	ARCH_OP_ENTER, /* function `number` is entered; result: address of its pair_entry, 0: not kept */
	/*
	 * ... is about to be left; result: 1 if its entry was found, else 0; second: its start word.
	 * The entry stays up to ARCH_OP_LEFT: what a signal's handler leaves in between, by a
	 * jump, is undone as if the exit had not come.
	 */
	ARCH_OP_LEAVE,
	ARCH_OP_LEFT, /* ... has been left: its entry goes, if it is there */

	ARCH_OP_CLOCK,	/* number: enum arch_clock; a: the thread's record, for ARCH_CLOCK_THREAD */
	ARCH_OP_CPU,	/* number of the CPU, -1 where it is not known */
	ARCH_OP_THREAD, /* the thread's id as its C library has it */
	ARCH_OP_PROCESS, /* the process's id, by a system call */
	/*
	 * The place, from 1 on, of key a in the struct arch_table at `number`, which
	 * has 2^immediate places; a new key is given a place. 0: the table is full. Safe among threads, processes
	 * and signal handlers.
	 */
	ARCH_OP_FIND,

	/*
	 * Events (ring.h). A record of `immediate` bytes is begun: its event's id is
	 * `number`. result: its address, 0 where it is dropped; second: its ring. What is
	 * between this and ARCH_OP_RING_CLOSE writes the record's fields, and no control
	 * leads out of there. Both results are wanted.
	 */
	ARCH_OP_RING_OPEN,
	/*
	 * Into the record at a: at most `immediate` bytes of the target's memory at b. At
	 * a + number how many there are, 0 where nothing can be read; behind that the
	 * bytes. Never faults; a system call.
	 */
	ARCH_OP_RING_BYTES,
	ARCH_OP_RING_CLOSE, /* a: the ring; `immediate`: as at its opening */

	/* Control. */
	ARCH_OP_LABEL, /* label */
	ARCH_OP_JUMP,  /* to label */
	ARCH_OP_IF,    /* to label where a `condition` second operand */

	ARCH_OP_KINDS
};

enum arch_test {
	ARCH_TEST_EQ,
	ARCH_TEST_NE,
	ARCH_TEST_LT, /* signed */
	ARCH_TEST_LE,
	ARCH_TEST_GT,
	ARCH_TEST_GE,
	ARCH_TEST_BELOW, /* unsigned */
	ARCH_TEST_BELOW_EQUAL,
	ARCH_TEST_ABOVE,
	ARCH_TEST_ABOVE_EQUAL,
};

enum arch_clock {
	ARCH_CLOCK_TICKS, /* the processor's clock: ticks; arch_clock_is_steady() */
	/* ns, CLOCK_MONOTONIC by a system call; where `immediate` is not 0, one that is seldom made */
	ARCH_CLOCK_MONOTONIC,
	ARCH_CLOCK_THREAD,  /* ns of CPU time of this thread */
	ARCH_CLOCK_PROCESS, /* ns of CPU time of the process, by a system call */
	/* As TICKS, read neither before loads in front of it nor behind those that follow. Not where
	 * env->undo is set. */
	ARCH_CLOCK_TICKS_ORDERED,
};

struct arch_op {
	uint8_t kind;
	uint8_t size;	   /* bytes */
	uint8_t condition; /* enum arch_test */
	bool is_signed;
	/* LOAD, CLOCK: made where it stands, whatever was found before, by nobody else's result. */
	bool fresh;
	uint16_t result, second; /* values that are set, 0: not wanted */
	uint16_t a, b;		 /* values that are used */
	uint16_t label;		 /* from 1 on */
	int32_t immediate;
	uint64_t number;
};

enum { ARCH_PROGRAM_OPS = 640, ARCH_PROGRAM_VALUES = 448, ARCH_PROGRAM_LABELS = 160 };

/*
 * Two values are set before the first operation of a program that is about an
 * activation (struct pair_entry), by whoever puts programs together:
 *   ARCH_VALUE_ACTIVATION  at an entry the address of its pair_entry, 0 if it
 *                          is not kept; at an exit 1 if its entry was found, else 0
 *   ARCH_VALUE_START       at an exit the entry's start word; at an entry only where that was before
 *                          the program came, and we interpret it
 */
enum { ARCH_VALUE_ACTIVATION = 1, ARCH_VALUE_START = 2, ARCH_VALUE_FIRST = 3 };

struct arch_program {
	struct arch_op *ops;
	uint16_t count, room; /* of ops */
	uint16_t values;      /* the highest value number */
	uint16_t labels;      /* the highest label number */
};

/* Keys of a vector in an arena's data, open addressing; all of it zeros at first. */
struct arch_table {
	uint64_t shift; /* log2 of the number of places */
	uint64_t full;	/* how often there was no place */
	/* key + 1, so that no key is 0; a key of all ones has no place, and is counted in `full` */
	uint64_t keys[];
};

/* Where the search for a key begins. */
static inline uint64_t arch_table_hash(uint64_t key, unsigned shift)
{
	return key * 0x9e3779b97f4a7c15ull >> (64 - shift);
}

enum { ARCH_TABLE_PROBE = 16 };

/* What the code of a program must know of its surroundings. */
struct arch_environment {
	struct arch_counter counter; /* without counter_address */
	struct arch_pairing pairing; /* without function and count; area 0: no per-thread state */
	/*
	 * ARCH_CLOCK_THREAD may trust that the kernel clears rseq_cs when it switches
	 * a thread out (threads.h). Then these are needed, too: a descriptor whose
	 * section is never executed, the same for all code of the arena, and what
	 * ticks are worth: ns = (ticks * ticks_multiplier >> 64) << ticks_shift.
	 */
	bool thread_clock_by_rseq;
	taddr_t clock_descriptor;
	uint64_t ticks_multiplier;
	unsigned ticks_shift;
	/*
	 * Code that stands for activations that were dropped. ARCH_OP_RECORD is what
	 * is in register arch_undo_record, and every clock reads the moment that is in
	 * the record (pair_record.moments). Else false.
	 */
	bool undo;
	struct arch_stream stream; /* for ARCH_OP_RING_OPEN */
	/* For arch_program_cost(): what is to stand for ARCH_CLOCK_MONOTONIC; NULL: the system call. */
	const struct arch_program *wall_clock;
};

/* True if the operation does something besides setting its result. */
bool arch_op_has_effect(const struct arch_op *op);

/* Does its work in place; never makes a program longer. */
void arch_program_optimise(struct arch_program *p);

/* Predicted time of the longest way through the program, in picoseconds. */
uint64_t arch_program_cost(const struct arch_program *p, const struct arch_environment *env);
/* What it takes besides, once, behind each switch to another thread: at most, in picoseconds. */
uint64_t arch_program_switch_cost(const struct arch_program *p, const struct arch_environment *env);

/* Bounds of what arch_emit_program() emits, in bytes. */
void arch_program_sizes(const struct arch_program *p, size_t *hot, size_t *cold);

/*
 * Raises what `frame` provides to what the program needs; several programs may
 * share a frame, and must be needed before it is opened. Registers are given
 * out anew for each of them.
 */
void arch_program_needs(const struct arch_program *p, const struct arch_environment *env,
			struct arch_frame *frame);

/* Sticky ARCH_REFUSED for what the environment cannot do (no area, no rseq). */
void arch_emit_program(const struct arch_program *p, const struct arch_environment *env,
		       const struct arch_frame *frame, struct arch_buf *out, struct arch_buf *cold);

/* One line of text for an operation: for people and test failures. */
void arch_op_format(const struct arch_op *op, char *text, size_t size);

/* True if ARCH_CLOCK_TICKS runs at one rate on all CPUs, whatever they do (x86: invariant TSC). */
bool arch_clock_is_steady(void);
/* Reads ARCH_CLOCK_TICKS on our own side, for calibration. */
uint64_t arch_clock_ticks(void);

/* ------------------------------------------------------------ on our side */

/*
 * Runs a program on our side, for the threads of a stopped target (catch-up)
 * and as the judge of emitted code in tests. Callbacks stand for memory and for
 * what the thread has; one that is NULL, or returns false, ends the run.
 */
struct arch_machine {
	void *arg;
	bool (*load)(void *arg, taddr_t address, uint64_t *word, size_t size);
	bool (*store)(void *arg, taddr_t address, uint64_t word, size_t size);
	/* ARCH_OP_COUNT; ENTER, LEAVE, CLOCK, RECORD, FIND, ARGUMENT and all else that no arithmetic
	 * tells: sets *result and *second. */
	bool (*other)(void *arg, const struct arch_op *op, uint64_t a, uint64_t b, uint64_t *result,
		      uint64_t *second);
};

/* `values` has room for p->values + 1 words, those that are set before included. True if it ran
 * to its end. */
bool arch_program_run(const struct arch_program *p, const struct arch_machine *machine,
		      uint64_t *values);

#endif
