/* SPDX-License-Identifier: MIT */
/*
 * report_help.h - records and answers made by hand, for tests of daemon/report/.
 */
#ifndef DINST_TESTS_REPORT_HELP_H
#define DINST_TESTS_REPORT_HELP_H

#include <string.h>

#include "daemon/report/text.h"

/*
 * A record: the stack pointer, a value, and, if not NULL, a string in a room of 8. Returns its
 * size; `to` has room for 64 bytes.
 */
static inline size_t record_make(uint8_t *to, uint32_t id, uint64_t ns, uint32_t tid, uint64_t sp,
				 uint64_t value, const char *string)
{
	const uint32_t size = string ? 56 : 40, none = 0;
	const uint64_t length = string ? strlen(string) : 0;

	memset(to, 0, size);
	memcpy(to, &id, 4);
	memcpy(to + 4, &size, 4);
	memcpy(to + 8, &ns, 8);
	memcpy(to + 16, &tid, 4);
	memcpy(to + 20, &none, 4);
	memcpy(to + 24, &sp, 8);
	memcpy(to + 32, &value, 8);
	if (string) {
		memcpy(to + 40, &length, 8);
		memcpy(to + 48, string, length < 8 ? length : 8);
	}
	return size;
}

/* Base64 of `size` bytes, with its zero byte, into room for 4/3 of it and five more. */
static inline void base64_make(char *to, const uint8_t *bytes, size_t size)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (size_t i = 0; i < size; i += 3) {
		const size_t there = size - i < 3 ? size - i : 3;
		uint32_t bits = (uint32_t)bytes[i] << 16;

		if (there > 1)
			bits |= (uint32_t)bytes[i + 1] << 8;
		if (there > 2)
			bits |= bytes[i + 2];
		*to++ = digits[bits >> 18];
		*to++ = digits[bits >> 12 & 63];
		*to++ = there > 1 ? digits[bits >> 6 & 63] : '=';
		*to++ = there > 2 ? digits[bits & 63] : '=';
	}
	*to = '\0';
}

#endif
