/* SPDX-License-Identifier: MIT */
/*
 * program_registers.h - which register a value of a program is in. Knows no
 * architecture: it asks what each operation wants, and gives out numbers from 0
 * on of a pool whose registers are all alike, and of a few that operations want
 * by name. What it does depends on the program and on these answers only, so
 * that needs and emission agree.
 *
 * Control goes forward only, so a value is wanted from where it is first set to
 * where it is last used, and has one place for all that time.
 */
#ifndef DINST_ARCH_COMMON_PROGRAM_REGISTERS_H
#define DINST_ARCH_COMMON_PROGRAM_REGISTERS_H

#include "arch/common/program_common.h"

enum {
	REGISTERS_POOL = 16,
	REGISTERS_NAMED = 4,
	REGISTERS_TEMPS = 5,
	REGISTERS_SHUTTLES = 3,
};

/* What an operation wants besides its operands and results. */
struct register_wish {
	uint8_t temps;	  /* registers that it may change while it runs */
	uint8_t destroys; /* bit n: named register n is changed, whoever uses it */
	bool early;	  /* results are written before operands are read for the last time */
	/* Named register + 1 in which the result arises, or a, b are wanted; 0: any. */
	uint8_t result_in, second_in, a_in, b_in;
	uint8_t input; /* register of the architecture + 1 that has the result all the time; 0: none */
};

enum register_kind {
	REGISTER_NONE,	/* the value does not exist */
	REGISTER_POOL,	/* a register of the pool */
	REGISTER_NAMED, /* one of those with a name */
	REGISTER_INPUT, /* a register of the architecture that nobody writes */
	REGISTER_SLOT,	/* a word on the stack */
};

struct register_place {
	uint8_t kind, index;
};

struct registers {
	struct register_place values[ARCH_PROGRAM_VALUES + 1];
	struct register_place temps[ARCH_PROGRAM_OPS][REGISTERS_TEMPS];
	unsigned used;	/* registers of the pool, the first ones */
	unsigned slots; /* words on the stack */
	/* Some value has no register: `shuttles` of the pool carry what is on the stack. */
	bool spills;
	uint8_t shuttles[REGISTERS_SHUTTLES];
};

/* ------------------------------------------------------- of any operation */

/* The value that it sets; 0: none, whatever its field says. */
unsigned registers_result(const struct arch_op *op);
/* True if it does nothing but set results that nobody wants. */
bool registers_skip(const struct arch_op *op);
/* A result that is an operand, too. */
bool registers_overlap(const struct arch_op *op, unsigned result);
/* The operation's code writes its result whether anybody wants it or not. */
bool registers_always_result(const struct arch_op *op);
/* A first operand that is not there counts as 0, which some register must hold. */
bool registers_want_zero(const struct arch_op *op);
/*
 * Adds to the operation's own temporaries, which come first, those that stand for
 * its result, then its second result (where these are not wanted, or written
 * before an operand of the same number was read), and for the operand 0.
 */
void registers_add_wishes(const struct arch_op *op, struct register_wish *wish);

/* ------------------------------------------------------------- assignment */

typedef void register_wishes(const void *arg, const struct arch_op *op, struct register_wish *wish);

/*
 * Finds places for all values. `pool`: how many registers there are at most;
 * `named`: bits of the named registers that may be used. ARCH_OK; ARCH_REFUSED:
 * a value is used that nothing sets, or numbers are out of bounds; ARCH_NO_ROOM.
 */
int registers_assign(const struct arch_program *p, register_wishes *wishes, const void *arg,
		     unsigned pool, unsigned named, struct registers *out);

#endif
