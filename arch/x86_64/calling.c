/* SPDX-License-Identifier: MIT */
/*
 * calling.c - how arguments are passed: System V psABI, AMD64, section 3.2.3.
 * Data only.
 */
#include "arch/calling.h"

const struct arch_calling arch_calling = {
	.integer_arguments = 6,
	.float_arguments = 8,
	.integer_results = 2,
	.float_results = 2,
	.stack_at_entry = 8, /* above the return address */
	.stack_at_call = 0,
	.largest_in_registers = 16,
	.by_words = true,
	.large_by_address = false,
	.result_address_is_first = true,
	.no_return_to_registers = false,
	.integer_numbers = {5, 4, 1, 2, 8, 9}, /* figure 3.36 */
	.float_number = 17,
};
