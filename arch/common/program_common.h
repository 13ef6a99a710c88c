/* SPDX-License-Identifier: MIT */
/*
 * program_common.h - what the passes over programs share: what an operation
 * computes, and which values it uses. For arch/common/program_*.c only; must
 * never know an architecture.
 */
#ifndef DINST_ARCH_COMMON_PROGRAM_H
#define DINST_ARCH_COMMON_PROGRAM_H

#include "arch/program.h"

enum program_class {
	PROGRAM_PURE = 1 << 0,	  /* the result depends on the operands and on nothing else */
	PROGRAM_SECOND = 1 << 1,  /* has a second operand: value b or the constant */
	PROGRAM_FIRST = 1 << 2,	  /* uses value a */
	PROGRAM_EFFECT = 1 << 3,  /* does something besides setting its results */
	PROGRAM_CONTROL = 1 << 4, /* labels and jumps */
	PROGRAM_FIXED = 1 << 5,	  /* the same however often it is asked at one point */
	PROGRAM_COMMUTES = 1 << 6,
	PROGRAM_RESULT = 1 << 7,  /* sets a result */
	PROGRAM_ADDRESS = 1 << 8, /* a + number is an address */
	PROGRAM_WRITES = 1 << 9,  /* memory at that address */
};

/* enum program_class bits of a kind. */
unsigned program_class(unsigned kind);

/* What a pure operation gives for the values of its operands. */
uint64_t program_evaluate(const struct arch_op *op, uint64_t a, uint64_t b);

/* True if `condition` (enum arch_test) holds. */
bool program_holds(unsigned condition, uint64_t a, uint64_t b);

/* The low `size` bytes of a word, by sign or not; sizes of 8 and more change nothing. */
uint64_t program_extend(uint64_t word, unsigned size, bool is_signed);

#endif
