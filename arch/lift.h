/* SPDX-License-Identifier: MIT */
/*
 * lift.h - instructions of the target become operations of a program. Part of
 * the contract of arch.h, in a file of its own because only calls of the
 * target's functions need it.
 *
 * What is lifted never runs as it stands. A register of the function is a value
 * of the program, so is each word of its frame; what it loads is read in the way
 * that cannot fault unless the caller knows better; what it stores may only be its
 * own frame or a variable whose address it was given. Everything else is refused,
 * and what is not known for sure is everything else. So a program that was lifted
 * is as safe as any: no instruction of the function is executed, it needs no stack,
 * it cannot fault, loop or call, and what is inserted into the function does not
 * run with it.
 *
 *   1. arch_lift_begin(): the state at the function's first instruction;
 *   2. every instruction that control can reach, each after all those that lead to
 *      it, in the state in which it finds things: arch_lift(), arch_lift_branch()
 *      in front of what a branch leads to, arch_lift_return() at each return. Where
 *      several ways meet, arch_lift_join() of their states.
 *
 * The caller follows control, emits labels and jumps, and sees that there is no
 * loop. A state is what is known on all ways to a place; the values are the same
 * everywhere.
 */
#ifndef DINST_ARCH_LIFT_H
#define DINST_ARCH_LIFT_H

#include "arch/program.h"

enum {
	ARCH_LIFT_REGISTERS = 32,
	/* Words of the frame, and of what may be used below the stack pointer. */
	ARCH_LIFT_WORDS = 64,
	ARCH_LIFT_ARGUMENTS = 6,
};

enum lift_kind {
	LIFT_NUMBER,   /* in the word's value; where it is `known`, it is `number` */
	LIFT_ENTRY,    /* what register `which` held when the function was called */
	LIFT_STACK,    /* the stack pointer at the function's first instruction, plus `number` */
	LIFT_VARIABLE, /* a number as well: the address of variable `which`, plus `number` */
};

/* What a register or a word of the frame holds. */
struct lift_word {
	uint8_t kind;
	uint8_t bytes; /* those that have been set on all ways, a bit each; 0: nothing is known */
	uint8_t which;
	uint8_t touched; /* those that the function has set on some way */
	uint8_t lost;	 /* of those, the ones that the value does not have on each such way */
	bool held;	 /* the value is there on all ways, whatever it means */
	bool known;	 /* in all bytes that have been set */
	uint64_t number;
	uint64_t most; /* NUMBER: it is not greater, without sign */
};

/* What branches and conditions may ask; the architecture's own. */
struct lift_flags {
	uint8_t kind; /* 0: nothing is known */
	uint8_t size; /* bytes */
	uint16_t a, b;
};

struct lift_state {
	struct lift_word registers[ARCH_LIFT_REGISTERS];
	struct lift_word words[ARCH_LIFT_WORDS];
	struct lift_flags flags;
};

/*
 * Something that is passed: a value, or the address of eight bytes that the function may change;
 * or a number; or the address of LIFT_BUFFER words that the function fills, which are values then.
 */
struct lift_argument {
	uint16_t value;
	bool variable;
	bool known;
	bool buffer;
	uint64_t number; /* where it is known */
};

enum { LIFT_WHY = 96, LIFT_BUFFER = 2, LIFT_VALUES = 1000 };

/* A value that is never changed, and is this number. */
struct lift_constant {
	bool known;
	uint64_t number;
};

struct lift {
	/* To be set by the caller. op() and value() give somewhere to write where there is no room. */
	void *arg;
	struct arch_op *(*op)(void *arg, unsigned kind);
	unsigned (*value)(void *arg);
	/*
	 * It is a clock: looking at the processor's ticks is allowed, memory is loaded where and as
	 * often as the function does it, and nothing is read but what is_mapped() has.
	 */
	bool clock;
	/* Of a clock: true if these bytes are the vDSO's, which can be read as long as its code. */
	bool (*is_mapped)(void *arg, taddr_t address, uint64_t size);

	char why[LIFT_WHY]; /* what is wrong with the instruction, after ARCH_REFUSED */
	/* After arch_lift_branch(): 0 or 1 where the branch is never or always taken, else -1. */
	int decided;
	/* Of the functions themselves. */
	bool buffer;
	struct lift_constant constants[LIFT_VALUES + 1];		 /* by value */
	uint16_t registers[ARCH_LIFT_REGISTERS], words[ARCH_LIFT_WORDS]; /* their values */
};

/* ARCH_REFUSED where this architecture's functions are not lifted. */
int arch_lift_begin(struct lift *l, struct lift_state *s, const struct lift_argument *arguments,
		    unsigned count);
/* An instruction that falls through. `insn` at the address at which it runs. */
int arch_lift(struct lift *l, struct lift_state *s, const struct arch_insn *insn);
/*
 * A direct conditional branch: goes to `label` where it would be taken. Nothing is emitted where
 * l->decided says what becomes of it.
 */
int arch_lift_branch(struct lift *l, struct lift_state *s, const struct arch_insn *insn,
		     unsigned label);
/* Copies the integer result into value `result`. */
int arch_lift_return(struct lift *l, struct lift_state *s, const struct arch_insn *insn,
		     unsigned result);
/* The value of word n of the buffer, set on all ways on which arch_lift_return() agreed. */
unsigned arch_lift_buffer(const struct lift *l, unsigned n);
/* A direct call that is gone into; and its return, ARCH_REFUSED unless to `address`. */
int arch_lift_call(struct lift *l, struct lift_state *s, const struct arch_insn *insn);
int arch_lift_call_return(struct lift *l, struct lift_state *s, const struct arch_insn *insn,
			  taddr_t address);
/* What is known on both ways. */
void arch_lift_join(struct lift_state *s, const struct lift_state *other);

#endif
