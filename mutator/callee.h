/* SPDX-License-Identifier: MIT */
/*
 * callee.h - a function of the target that inserted code calls.
 *
 * It is not called. Its instructions, all that control can reach from the first
 * one, become operations of the program that calls it (arch/lift.h): the program
 * computes what the function would. So the function need not be trusted: whatever
 * it does beyond computing (a loop, a call, a store that is not into its own frame
 * or a variable whose address it was given) has no operation that would stand for
 * it, and the call is refused. What is inserted into the function later, and what
 * becomes of its module, changes nothing. What control can be seen not to reach,
 * with arguments that are numbers, need not be so.
 */
#ifndef DINST_MUTATOR_CALLEE_H
#define DINST_MUTATOR_CALLEE_H

#include "arch/lift.h"
#include "inject/error.h"

enum {
	CALLEE_INSNS = 512, /* instructions that control can reach */
};

struct callee_request {
	/* The code that control must not leave, and where it runs: `size` bytes from `start` on. */
	const uint8_t *code;
	size_t size;
	taddr_t start;
	taddr_t entry; /* the first instruction, in there */
	const struct lift_argument *arguments;
	unsigned argument_count;
	/* arg, op and value are set, of a clock is_mapped, too; label() gives labels of the same program. */
	struct lift *lift;
	unsigned (*label)(void *arg);
	unsigned result; /* the value that receives what it returns, 64 bits; 0: not wanted */
	/*
	 * Where this is a label, nothing is refused: control goes there instead of back (loops), into
	 * what cannot be lifted, or out of the code. Calls inside the code are gone into, one deep.
	 */
	unsigned otherwise;
};

/*
 * Emits the function's operations. DINST_REFUSED, with the reason and the
 * instruction in e->text, or DINST_NO_MEMORY; what was emitted before is then to
 * be thrown away.
 */
int callee_lift(const struct callee_request *q, struct dinst_error *e);

#endif
