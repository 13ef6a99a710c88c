/* SPDX-License-Identifier: MIT */
/*
 * calling.c - how arguments are passed: Procedure Call Standard for the Arm
 * 64-bit Architecture, section 6.8.2. Data only.
 */
#include "arch/calling.h"

const struct arch_calling arch_calling = {
	.integer_arguments = 8,
	.float_arguments = 8,
	.integer_results = 2,
	.float_results = 2,
	.stack_at_entry = 0,
	.stack_at_call = 0,
	.largest_in_registers = 16,
	.by_words = false,
	.large_by_address = true,
	.result_address_is_first = false,
	.no_return_to_registers = true,
	.integer_numbers = {0, 1, 2, 3, 4, 5, 6, 7},
	.float_number = 64,
};
