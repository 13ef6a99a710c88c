/* SPDX-License-Identifier: MIT */
/*
 * image_keys.c - sorts numbers that carry an index: symbols and references may be a million.
 */
#include "mutator/image_private.h"

enum { DIGIT_BITS = 11, INDEX_BITS = KEY_INDEX_BITS };

/* One round of a radix sort: by the digit at `shift`. */
static void sort_digit(const uint64_t *from, uint64_t *to, size_t count, unsigned shift)
{
	size_t place[1 << DIGIT_BITS] = {0}, sum = 0;
	uint64_t mask = (UINT64_C(1) << DIGIT_BITS) - 1;

	for (size_t i = 0; i < count; i++)
		place[from[i] >> shift & mask]++;
	for (size_t i = 0; i <= mask; i++) {
		size_t n = place[i];

		place[i] = sum;
		sum += n;
	}
	for (size_t i = 0; i < count; i++)
		to[place[from[i] >> shift & mask]++] = from[i];
}

uint64_t *keys_sort(uint64_t *keys, uint64_t *other, size_t count, unsigned bits)
{
	for (unsigned shift = INDEX_BITS; shift < bits; shift += DIGIT_BITS) {
		uint64_t *swap = keys;

		sort_digit(keys, other, count, shift);
		keys = other;
		other = swap;
	}
	return keys;
}
