/* SPDX-License-Identifier: MIT */
/*
 * cfi_reader.h - a window on unwind data, read from front to back.
 *
 * Private to the cfi_*.c files. Encodings: Linux Standard Base 5.0, Core, 10.5.
 */
#ifndef DINST_MUTATOR_CFI_READER_H
#define DINST_MUTATOR_CFI_READER_H

#include "mutator/image.h"

enum {
	CFI_ENCODING_OMIT = 0xff,
	CFI_ENCODING_INDIRECT = 0x80,
	CFI_FORMAT_POINTER = 0x00, /* a plain address */
};

/* What is left to read; `bad` is sticky. */
struct cfi_reader {
	const uint8_t *p, *end;
	bool bad;
};

/* What encoded pointers may be relative to. */
struct cfi_bases {
	const uint8_t *bytes; /* address of this byte is `address` */
	vaddr_t address;
	vaddr_t text, data, function;
};

/* The next `size` (1 to 8) bytes, or LEB128 number; 0 and bad where they are not there. */
uint64_t cfi_take(struct cfi_reader *r, unsigned size);
uint64_t cfi_take_uleb(struct cfi_reader *r);
int64_t cfi_take_sleb(struct cfi_reader *r);
void cfi_skip(struct cfi_reader *r, uint64_t size);

/*
 * Reads an encoded pointer, and adds what it is relative to if `base` says so.
 * False: an encoding that cannot be resolved in a file, or is not known.
 */
bool cfi_take_pointer(struct cfi_reader *r, uint8_t encoding, const struct cfi_bases *b, bool base,
		      uint64_t *out);

#endif
