/* SPDX-License-Identifier: MIT */
/*
 * calling.h - how arguments and results are passed between functions of the
 * target, as data. Part of the contract of arch.h; the psABI of each
 * architecture is the source (x86-64: section 3.2.3; AArch64: AAPCS64, 6.8).
 */
#ifndef DINST_ARCH_CALLING_H
#define DINST_ARCH_CALLING_H

#include <stdbool.h>
#include <stdint.h>

struct arch_calling {
	uint8_t integer_arguments, float_arguments; /* registers */
	uint8_t integer_results, float_results;
	/* The first argument on the stack, bytes above the stack pointer: at a function's entry and
	 * its exits, and just before a call. */
	uint8_t stack_at_entry, stack_at_call;
	uint8_t largest_in_registers; /* bytes of a struct */
	/*
	 * Each 8 bytes of a small struct go by what is in them: all floating point into
	 * a vector register, else into an integer register. Else: structs of one to
	 * four members of one floating-point type go into a vector register for each member,
	 * others into integer registers.
	 */
	bool by_words;
	/* Structs that are too large: a copy's address is passed in their place. Else they are on the
	 * stack. */
	bool large_by_address;
	/* Where to store a result that is too large is passed as the first integer argument. */
	bool result_address_is_first;
	/* A struct that does not fit into what is left of the integer (vector) registers leaves none for
	 * those that follow. */
	bool no_return_to_registers;
	/* DWARF numbers of the integer argument registers in their order, and of the first vector one. */
	uint8_t integer_numbers[8], float_number;
};

extern const struct arch_calling arch_calling;

/*
 * The DWARF number of the n'th register that calls preserve, the stack pointer excepted
 * (psABI); the frame pointer is the first one. False: there are no more.
 */
enum { ARCH_PRESERVED_MOST = 6 };
bool arch_preserved(unsigned n, unsigned *number);

#endif
