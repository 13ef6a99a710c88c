/* SPDX-License-Identifier: MIT */
/*
 * cfi.c - reads .eh_frame.
 *
 * Bounded: each record is read once, the shared CIEs through a cache and only
 * their first bytes, so the time is linear in the section whatever is in it.
 * Nothing is decoded beyond the first row of each FDE.
 */
#include "mutator/cfi.h"
#include "mutator/cfi_reader.h"

#include <stdlib.h>
#include <string.h>

/* Call frame instructions (DWARF 5, 7.24, and the GNU extensions). */
enum {
	CFA_ADVANCE = 0x40, /* high two bits */
	CFA_OFFSET = 0x80,
	CFA_RESTORE = 0xc0,
	CFA_NOP = 0x00,
	CFA_SET_LOC = 0x01,
	CFA_ADVANCE1 = 0x02,
	CFA_ADVANCE2 = 0x03,
	CFA_ADVANCE4 = 0x04,
	CFA_OFFSET_EXTENDED = 0x05,
	CFA_RESTORE_EXTENDED = 0x06,
	CFA_UNDEFINED = 0x07,
	CFA_SAME_VALUE = 0x08,
	CFA_REGISTER = 0x09,
	CFA_REMEMBER = 0x0a,
	CFA_RESTORE_STATE = 0x0b,
	CFA_DEF = 0x0c,
	CFA_DEF_REGISTER = 0x0d,
	CFA_DEF_OFFSET = 0x0e,
	CFA_DEF_EXPRESSION = 0x0f,
	CFA_EXPRESSION = 0x10,
	CFA_OFFSET_SF = 0x11,
	CFA_DEF_SF = 0x12,
	CFA_DEF_OFFSET_SF = 0x13,
	CFA_VAL_OFFSET = 0x14,
	CFA_VAL_OFFSET_SF = 0x15,
	CFA_VAL_EXPRESSION = 0x16,
	CFA_GNU_ARGS_SIZE = 0x2e,
	CFA_GNU_NEGATIVE_OFFSET = 0x2f,
};

/* The row at a function's entry: the psABI's column of the stack pointer. */
enum { STACK_COLUMN = 7, ENTRY_CFA_OFFSET = 8 };

enum {
	CIE_PROGRAM_MAX = 256, /* bytes of a CIE's or FDE's program that we look at */
	CIE_CACHE = 64,
	ADDRESS_SIZE = 8,
};

/* ------------------------------------------------------------ first rows */

struct row {
	uint64_t cfa_register;
	int64_t cfa_offset;
	uint64_t return_column;
	int64_t data_align;
	bool cfa_known; /* a register and an offset, no expression */
	bool saved;	/* some register is kept in memory already */
};

static void note_saved(struct row *row, uint64_t column)
{
	if (column != row->return_column)
		row->saved = true;
}

/* Modulo 2^64, as everything that a file says. */
static int64_t factored(const struct row *row, int64_t offset)
{
	return (int64_t)((uint64_t)offset * (uint64_t)row->data_align);
}

/* One instruction with an operand of its own. False: past the first row. */
static bool run_extended(struct cfi_reader *r, struct row *row, uint8_t op)
{
	switch (op) {
	case CFA_NOP:
	case CFA_REMEMBER:
	case CFA_RESTORE_STATE:
		return true;
	case CFA_OFFSET_EXTENDED:
	case CFA_VAL_OFFSET:
	case CFA_GNU_NEGATIVE_OFFSET:
	case CFA_REGISTER:
		note_saved(row, cfi_take_uleb(r));
		cfi_take_uleb(r);
		return true;
	case CFA_OFFSET_SF:
	case CFA_VAL_OFFSET_SF:
		note_saved(row, cfi_take_uleb(r));
		cfi_take_sleb(r);
		return true;
	case CFA_EXPRESSION:
	case CFA_VAL_EXPRESSION:
		note_saved(row, cfi_take_uleb(r));
		cfi_skip(r, cfi_take_uleb(r));
		return true;
	case CFA_RESTORE_EXTENDED:
	case CFA_UNDEFINED:
	case CFA_SAME_VALUE:
	case CFA_GNU_ARGS_SIZE:
		cfi_take_uleb(r);
		return true;
	case CFA_DEF:
		row->cfa_register = cfi_take_uleb(r);
		row->cfa_offset = cfi_take_uleb(r);
		row->cfa_known = true;
		return true;
	case CFA_DEF_SF:
		row->cfa_register = cfi_take_uleb(r);
		row->cfa_offset = factored(row, cfi_take_sleb(r));
		row->cfa_known = true;
		return true;
	case CFA_DEF_REGISTER:
		row->cfa_register = cfi_take_uleb(r);
		return true;
	case CFA_DEF_OFFSET:
		row->cfa_offset = cfi_take_uleb(r);
		return true;
	case CFA_DEF_OFFSET_SF:
		row->cfa_offset = factored(row, cfi_take_sleb(r));
		return true;
	case CFA_DEF_EXPRESSION:
		cfi_skip(r, cfi_take_uleb(r));
		row->cfa_known = false;
		return true;
	default: /* set_loc, advance_loc*, and what we do not know */
		return false;
	}
}

/* Runs a program until it moves on from the first address. */
static void run_first_row(const uint8_t *p, const uint8_t *end, struct row *row)
{
	struct cfi_reader r = {p, end, false};

	if (end - p > CIE_PROGRAM_MAX)
		r.end = p + CIE_PROGRAM_MAX;
	while (r.p < r.end && !r.bad) {
		uint8_t op = *r.p++;

		switch (op & 0xc0) {
		case CFA_ADVANCE:
			return;
		case CFA_OFFSET:
			note_saved(row, op & 0x3f);
			cfi_take_uleb(&r);
			break;
		case CFA_RESTORE:
			break;
		default:
			if (!run_extended(&r, row, op))
				return;
		}
	}
}

static bool is_entry_row(const struct row *row)
{
	return row->cfa_known && row->cfa_register == STACK_COLUMN &&
	       row->cfa_offset == ENTRY_CFA_OFFSET && !row->saved;
}

/* ------------------------------------------------------------------ CIEs */

struct cie {
	size_t offset; /* of the record; 0 with `known` false: an empty slot */
	bool known;
	bool usable; /* false: an augmentation or encoding that we do not know */
	bool augmented;
	uint8_t pointer_encoding, lsda_encoding;
	uint32_t flags;
	struct row row;
};

static bool read_augmentation(struct cfi_reader *r, const char *letters, const struct cfi_bases *b,
			      struct cie *cie)
{
	uint64_t length = cfi_take_uleb(r), ignored;
	const uint8_t *end;

	if (r->bad || length > (uint64_t)(r->end - r->p))
		return false;
	end = r->p + length;
	cie->augmented = true;
	for (; *letters; letters++) {
		switch (*letters) {
		case 'R':
			cie->pointer_encoding = cfi_take(r, 1);
			break;
		case 'L':
			cie->lsda_encoding = cfi_take(r, 1);
			break;
		case 'P':
			if (!cfi_take_pointer(r, cfi_take(r, 1), b, false, &ignored))
				return false;
			break;
		case 'S':
			cie->flags |= CFI_SIGNAL_FRAME;
			break;
		case 'B':
		case 'G':
			break;
		default:
			return false;
		}
	}
	if (r->bad || r->p > end)
		return false;
	r->p = end;
	return true;
}

/* Fills *cie from the record whose contents (after the id) are [r->p, r->end). */
static void read_cie(struct cfi_reader r, const struct cfi_bases *b, struct cie *cie)
{
	const char *letters;
	uint8_t version = cfi_take(&r, 1);
	const uint8_t *zero;

	cie->usable = false;
	cie->augmented = false;
	cie->flags = 0;
	cie->pointer_encoding = CFI_FORMAT_POINTER;
	cie->lsda_encoding = CFI_ENCODING_OMIT;
	cie->row = (struct row){0};
	if (version != 1 && version != 3 && version != 4)
		return;
	/* No augmentation string is longer than its letters; 16 is generous. */
	zero = memchr(r.p, 0, (r.end - r.p) < 16 ? (size_t)(r.end - r.p) : 16);
	if (!zero)
		return;
	letters = (const char *)r.p;
	r.p = zero + 1;
	/* The sizes of an address and of a segment's number. */
	if (version == 4) {
		const uint64_t address_size = cfi_take(&r, 1), segment_size = cfi_take(&r, 1);

		if (address_size != ADDRESS_SIZE || segment_size)
			return;
	}
	cfi_take_uleb(&r);
	cie->row.data_align = cfi_take_sleb(&r);
	cie->row.return_column = version == 1 ? cfi_take(&r, 1) : cfi_take_uleb(&r);
	if (*letters == 'z') {
		if (!read_augmentation(&r, letters + 1, b, cie))
			return;
	} else if (*letters) {
		return;
	}
	if (r.bad || (cie->pointer_encoding & CFI_ENCODING_INDIRECT))
		return;
	run_first_row(r.p, r.end, &cie->row);
	cie->usable = true;
}

/* --------------------------------------------------------------- records */

struct parser {
	const struct cfi_input *in;
	struct cfi_bases bases;
	struct cie cache[CIE_CACHE];
	struct cfi_range *ranges;
	size_t count, capacity;
	bool sorted;
	struct dinst_error *e;
};

static int damaged(struct parser *p, const uint8_t *at, const char *what)
{
	return dinst_fail(p->e, DINST_BAD_FILE, "%s: damaged .eh_frame: %s (at offset 0x%zx)",
			  p->in->name, what, (size_t)(at - p->in->bytes));
}

/* Reads the head of a record: contents in *r, id field at *id. 1: end of the section. */
static int read_record(struct parser *p, const uint8_t *at, struct cfi_reader *r,
		       const uint8_t **id)
{
	const uint8_t *end = p->in->bytes + p->in->size;
	uint64_t length;

	*r = (struct cfi_reader){at, end, false};
	length = cfi_take(r, 4);
	if (length == UINT32_MAX)
		length = cfi_take(r, 8);
	if (r->bad || length > (uint64_t)(end - r->p))
		return damaged(p, at, "a record is longer than the section");
	r->end = r->p + length;
	*id = r->p;
	if (!length)
		return p->in->terminated ? 1 : 0;
	if (length < 4)
		return damaged(p, at, "a record is too short");
	return 0;
}

static struct cie *find_cie(struct parser *p, const uint8_t *at)
{
	size_t offset = at - p->in->bytes;
	struct cie *cie = &p->cache[(offset / 4) % CIE_CACHE];
	const uint8_t *id;
	struct cfi_reader r;

	if (cie->known && cie->offset == offset)
		return cie;
	if (read_record(p, at, &r, &id) || r.p == r.end)
		return NULL;
	if (cfi_take(&r, 4)) {
		damaged(p, at, "a record refers to another that is no CIE");
		return NULL;
	}
	cie->known = true;
	cie->offset = offset;
	read_cie(r, &p->bases, cie);
	return cie;
}

static int append(struct parser *p, const struct cfi_range *range)
{
	if (p->count == p->capacity) {
		size_t capacity = p->capacity ? p->capacity * 2 : 256;
		struct cfi_range *more = realloc(p->ranges, capacity * sizeof(*more));

		if (!more)
			return dinst_fail(p->e, DINST_NO_MEMORY, "%s: no memory for .eh_frame",
					  p->in->name);
		p->ranges = more;
		p->capacity = capacity;
	}
	if (p->count && p->ranges[p->count - 1].lo >= range->lo)
		p->sorted = false;
	p->ranges[p->count++] = *range;
	return 0;
}

static int read_fde(struct parser *p, struct cfi_reader r, const uint8_t *at, const struct cie *cie)
{
	struct cfi_range range = {.flags = cie->flags};
	struct row row = cie->row;
	uint64_t lo, size, length, lsda = 0;
	const uint8_t *end;

	if (!cfi_take_pointer(&r, cie->pointer_encoding, &p->bases, true, &lo) ||
	    !cfi_take_pointer(&r, cie->pointer_encoding, &p->bases, false, &size))
		return 0;
	if (r.bad)
		return damaged(p, at, "a record is too short");
	/* A discarded function leaves an FDE of nothing; no function is 4 GiB long. */
	if (!size || size > UINT32_MAX)
		return 0;
	if (cie->augmented) {
		length = cfi_take_uleb(&r);
		if (r.bad || length > (uint64_t)(r.end - r.p))
			return damaged(p, at, "augmentation data do not fit");
		end = r.p + length;
		p->bases.function = lo;
		if (cie->lsda_encoding != CFI_ENCODING_OMIT && length &&
		    !(cie->lsda_encoding & CFI_ENCODING_INDIRECT) &&
		    cfi_take_pointer(&r, cie->lsda_encoding, &p->bases, true, &lsda) && !r.bad)
			range.lsda = lsda;
		r.p = end;
	}
	run_first_row(r.p, r.end, &row);
	if (!is_entry_row(&row))
		range.flags |= CFI_FRAGMENT;
	range.lo = lo;
	range.size = size;
	return append(p, &range);
}

static int read_all(struct parser *p)
{
	const uint8_t *at = p->in->bytes, *end = at + p->in->size;

	while (end - at >= 4) {
		const uint8_t *id;
		struct cfi_reader r;
		struct cie *cie;
		uint32_t back;
		int result = read_record(p, at, &r, &id);

		if (result)
			return result < 0 ? result : 0;
		back = r.p < r.end ? cfi_take(&r, 4) : 0;
		/* The id of an FDE is the distance back to its CIE; 0 marks a CIE. */
		if (back) {
			if (back > (size_t)(id - p->in->bytes))
				return damaged(p, at,
					       "a record refers to something before the section");
			cie = find_cie(p, id - back);
			if (!cie)
				return p->e && p->e->code
					       ? p->e->code
					       : damaged(p, at,
							 "a record refers to another that is no CIE");
			if (cie->usable) {
				result = read_fde(p, r, at, cie);
				if (result)
					return result;
			}
		}
		at = r.end;
	}
	return 0;
}

static int by_address(const void *a, const void *b)
{
	const struct cfi_range *x = a, *y = b;

	if (x->lo != y->lo)
		return x->lo < y->lo ? -1 : 1;
	/* The longest of several with one start comes first and stays. */
	return x->size > y->size ? -1 : x->size < y->size;
}

int cfi_read(const struct cfi_input *in, struct cfi_range **out, size_t *count,
	     struct dinst_error *e)
{
	struct dinst_error own = {0};
	struct parser *p = calloc(1, sizeof(*p));
	size_t kept = 0;
	int result;

	*out = NULL;
	*count = 0;
	if (!p)
		return dinst_fail(e, DINST_NO_MEMORY, "%s: no memory for .eh_frame", in->name);
	p->in = in;
	p->e = &own;
	p->sorted = true;
	p->bases = (struct cfi_bases){in->bytes, in->address, in->text, in->data, 0};
	result = read_all(p);
	if (result) {
		free(p->ranges);
		dinst_fail(e, result, "%s", own.text);
	} else {
		if (!p->sorted)
			qsort(p->ranges, p->count, sizeof(*p->ranges), by_address);
		for (size_t i = 0; i < p->count; i++)
			if (!kept || p->ranges[kept - 1].lo != p->ranges[i].lo)
				p->ranges[kept++] = p->ranges[i];
		*out = p->ranges;
		*count = kept;
	}
	free(p);
	return result;
}
