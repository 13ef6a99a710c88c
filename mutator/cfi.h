/* SPDX-License-Identifier: MIT */
/*
 * cfi.h - the ranges that .eh_frame describes.
 *
 * Private to the image. Only what finding functions takes: the range of every
 * FDE, where its exception table is, and whether its first row is that of a
 * function's entry. Unwinding is done elsewhere.
 *
 * Sources: Linux Standard Base 5.0, Core, 10.6 (.eh_frame, .eh_frame_hdr);
 * DWARF 5, 6.4; System V psABI for the register numbers.
 */
#ifndef DINST_MUTATOR_CFI_H
#define DINST_MUTATOR_CFI_H

#include "inject/error.h"
#include "mutator/image.h"

enum cfi_flag {
	/* The first row is not {CFA = sp + one word, nothing saved}: control comes
	 * here with a frame already set up, so this is a fragment of a function. */
	CFI_FRAGMENT = 1 << 0,
	CFI_SIGNAL_FRAME = 1 << 1, /* augmentation 'S' */
};

struct cfi_range {
	vaddr_t lo;
	vaddr_t lsda; /* exception table, 0 if none */
	uint32_t size;
	uint32_t flags;
};

/* Where the section is, and what it may point to. */
struct cfi_input {
	const uint8_t *bytes;
	size_t size;
	vaddr_t address;    /* of bytes[0] */
	vaddr_t text, data; /* bases of text- and data-relative pointers */
	bool terminated;    /* the size is only a bound: ends at a zero length */
	const char *name;   /* of the file, for messages */
};

/*
 * Parses the section. *out is malloc'ed, sorted by address, one entry per
 * start; NULL if there is none. Records that are damaged are an error that
 * says where; records of a kind that is not known are left out.
 */
int cfi_read(const struct cfi_input *in, struct cfi_range **out, size_t *count,
	     struct dinst_error *e);

/*
 * Reads the exception table at `lsda` of the function at `function`; `bytes` are
 * `size` bytes from the table on. Calls `found` with every call site that has a
 * landing pad: what is in [lo, hi) may throw, and lead to `pad` (Itanium C++ ABI,
 * exception handling, the call site table). *used: how many bytes were looked at.
 * Returns false if the table is damaged (what came before it counts).
 */
bool cfi_call_sites(const uint8_t *bytes, size_t size, vaddr_t lsda, vaddr_t function,
		    void (*found)(void *arg, vaddr_t lo, vaddr_t hi, vaddr_t pad), void *arg,
		    size_t *used);

#endif
