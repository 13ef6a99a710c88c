/* SPDX-License-Identifier: MIT */
/*
 * cfi_reader.c - numbers and pointers as unwind data encode them, and the
 * exception tables that are made of nothing else.
 *
 * Never reads beyond what it was given: the first number that does not fit
 * makes the reader bad, and all that follow zero.
 */
#include "mutator/cfi_reader.h"

#include <string.h>

#include "mutator/cfi.h"

/* Pointer encodings (LSB 10.5). */
enum {
	ENCODING_FORMAT = 0x0f,
	ENCODING_BASE = 0x70,
	BASE_PC = 0x10,
	BASE_TEXT = 0x20,
	BASE_DATA = 0x30,
	BASE_FUNCTION = 0x40,
	BASE_ALIGNED = 0x50,
	FORMAT_ULEB = 0x01,
	FORMAT_U16 = 0x02,
	FORMAT_U32 = 0x03,
	FORMAT_U64 = 0x04,
	FORMAT_SLEB = 0x09,
	FORMAT_S16 = 0x0a,
	FORMAT_S32 = 0x0b,
	FORMAT_S64 = 0x0c,
};

/* A LEB128 may be padded, but not so that reading it once for each record takes for ever. */
enum { SHIFT_MAX = 7 * 16 };

uint64_t cfi_take(struct cfi_reader *r, unsigned size)
{
	uint64_t v = 0;

	if ((size_t)(r->end - r->p) < size) {
		r->bad = true;
		r->p = r->end;
		return 0;
	}
	memcpy(&v, r->p, size);
	r->p += size;
	return v;
}

/* The bits of a number in LEB128 (DWARF 5, 7.6); *shift is how many there are, *last its last byte. */
static uint64_t take_leb(struct cfi_reader *r, unsigned *shift, uint8_t *last)
{
	uint64_t v = 0;

	*shift = 0;
	do {
		*last = cfi_take(r, 1);
		if (*shift < 64)
			v |= (uint64_t)(*last & 0x7f) << *shift;
		*shift += 7;
	} while ((*last & 0x80) && *shift <= SHIFT_MAX);
	if (*last & 0x80)
		r->bad = true;
	return v;
}

uint64_t cfi_take_uleb(struct cfi_reader *r)
{
	unsigned shift;
	uint8_t last;

	return take_leb(r, &shift, &last);
}

int64_t cfi_take_sleb(struct cfi_reader *r)
{
	unsigned shift;
	uint8_t last;
	uint64_t v = take_leb(r, &shift, &last);

	if (shift < 64 && (last & 0x40))
		v |= ~UINT64_C(0) << shift;
	return v;
}

void cfi_skip(struct cfi_reader *r, uint64_t size)
{
	if ((uint64_t)(r->end - r->p) < size) {
		r->bad = true;
		r->p = r->end;
		return;
	}
	r->p += size;
}

bool cfi_take_pointer(struct cfi_reader *r, uint8_t encoding, const struct cfi_bases *b, bool base,
		      uint64_t *out)
{
	vaddr_t here = b->address + (r->p - b->bytes);
	uint64_t v;

	switch (encoding & ENCODING_FORMAT) {
	case CFI_FORMAT_POINTER:
	case FORMAT_U64:
	case FORMAT_S64:
		v = cfi_take(r, 8);
		break;
	case FORMAT_ULEB:
		v = cfi_take_uleb(r);
		break;
	case FORMAT_SLEB:
		v = cfi_take_sleb(r);
		break;
	case FORMAT_U16:
		v = cfi_take(r, 2);
		break;
	case FORMAT_S16:
		v = (int16_t)cfi_take(r, 2);
		break;
	case FORMAT_U32:
		v = cfi_take(r, 4);
		break;
	case FORMAT_S32:
		v = (int32_t)cfi_take(r, 4);
		break;
	default:
		return false;
	}
	*out = v;
	if (!base || !v)
		return true;
	switch (encoding & ENCODING_BASE) {
	case 0:
		break;
	case BASE_PC:
		v += here;
		break;
	case BASE_TEXT:
		v += b->text;
		break;
	case BASE_DATA:
		v += b->data;
		break;
	case BASE_FUNCTION:
		v += b->function;
		break;
	default:
		return false;
	}
	*out = v;
	return true;
}

/* ------------------------------------------------------ exception tables */

/* What an exception table begins with. */
struct table_head {
	uint64_t start; /* of landing pads */
	uint8_t start_encoding, type_encoding, encoding;
	const uint8_t *end; /* of the call sites */
};

static bool take_head(struct cfi_reader *r, const struct cfi_bases *b, struct table_head *h)
{
	uint64_t length;

	h->start = b->function;
	h->start_encoding = cfi_take(r, 1);
	if (h->start_encoding != CFI_ENCODING_OMIT &&
	    !cfi_take_pointer(r, h->start_encoding, b, true, &h->start))
		return false;
	h->type_encoding = cfi_take(r, 1);
	if (h->type_encoding != CFI_ENCODING_OMIT)
		cfi_take_uleb(r);
	h->encoding = cfi_take(r, 1);
	length = cfi_take_uleb(r);
	if (r->bad || length > (uint64_t)(r->end - r->p))
		return false;
	h->end = r->p + length;
	return true;
}

enum {
	FILLING = 4
}; /* clang aligns what follows on call sites to it, with zeros: fewer than a record has */

/*
 * A function of which clang has put each basic block into a section of its own has a table for each, and each
 * says that its call sites go on up to the end of the last: they end where the next table begins.
 */
static bool is_at_end(const struct cfi_reader *r, const struct cfi_bases *b,
		      const struct table_head *h)
{
	for (size_t zeros = 0; zeros < FILLING; zeros++) {
		struct cfi_reader ahead = {r->p + zeros, r->end, false};
		struct table_head next;

		if (ahead.p == r->end)
			return true;
		if (h->start_encoding != CFI_ENCODING_OMIT && *ahead.p == h->start_encoding &&
		    take_head(&ahead, b, &next) && next.start == h->start &&
		    next.type_encoding == h->type_encoding && next.encoding == h->encoding &&
		    next.end == h->end)
			return true;
		if (*(r->p + zeros))
			return false;
	}
	return false;
}

bool cfi_call_sites(const uint8_t *bytes, size_t size, vaddr_t lsda, vaddr_t function,
		    void (*found)(void *arg, vaddr_t lo, vaddr_t hi, vaddr_t pad), void *arg,
		    size_t *used)
{
	struct cfi_reader r = {bytes, bytes + size, false};
	struct cfi_bases b = {bytes, lsda, 0, 0, function};
	uint64_t lo = 0, extent = 0, pad = 0;
	struct table_head h;

	*used = 0;
	if (!take_head(&r, &b, &h))
		return false;
	r.end = h.end;
	*used = r.end - bytes;
	while (!is_at_end(&r, &b, &h)) {
		if (!cfi_take_pointer(&r, h.encoding, &b, false, &lo) ||
		    !cfi_take_pointer(&r, h.encoding, &b, false, &extent) ||
		    !cfi_take_pointer(&r, h.encoding, &b, false, &pad))
			return false;
		cfi_take_uleb(&r);
		if (r.bad)
			return false;
		if (pad)
			found(arg, function + lo, function + lo + extent, h.start + pad);
	}
	*used = r.p - bytes;
	return true;
}
