/* SPDX-License-Identifier: MIT */
/*
 * arch_bytes.h - instructions as tests write them: two digits a byte.
 */
#ifndef DINST_TESTS_UNIT_ARCH_BYTES_H
#define DINST_TESTS_UNIT_ARCH_BYTES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

/* The bytes, and how many there are. */
static inline size_t parse(const char *text, uint8_t *bytes)
{
	size_t size = strlen(text) / 2;

	for (size_t i = 0; i < size; i++) {
		unsigned byte;

		assert_int_equal(sscanf(text + 2 * i, "%2x", &byte), 1);
		bytes[i] = (uint8_t)byte;
	}
	return size;
}

#endif
