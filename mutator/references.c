/* SPDX-License-Identifier: MIT */
/*
 * references.c - for every byte of code: does anything lead there?
 *
 * Four bits a byte for the executable ranges (the fifth, restartable
 * sequences, is a short list of ranges), filled from a scan of all code, the
 * relocations, the exception tables, the symbols, and, where a file has no
 * relocations, every word that could be a pointer. A superset: what is marked
 * may be chance, what is not marked is referred to by nothing in this file but
 * short branches, which only reach their own neighbourhood.
 */
#include "mutator/image_private.h"
#include "mutator/references_relocations.h"
#include "mutator/references_sequences.h"

#include <stdlib.h>

#include "arch/scan.h"

enum {
	SCAN_PIECE = 1 << 20,
	THROWING_MAX = 32, /* bytes of code that may throw: with a call in it often 5 */
	LOOKS_PART = 16,   /* bytes of a file for each time that one is looked at */
};

/* One piece of the address space, two bytes of code to a byte of marks. */
struct mark_span {
	vaddr_t lo, hi;
	uint8_t *marks;
};

struct reference_map {
	struct mark_span *spans; /* sorted */
	size_t span_count;
	struct image_range *rseq; /* sorted, disjoint */
	size_t rseq_count;
};

struct scan {
	struct image *img;
	struct reference_map *map;
	struct mark_span *last;
	struct parts *parts;
	size_t cursor; /* the last function that starts at or before the scan's place */
	struct hit_list hits;
	bool failed;	/* no memory for hits */
	uint64_t looks; /* how many ranges of exception tables may still be looked at */
	struct dinst_error *e;
};

void references_release(struct reference_map *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->span_count; i++)
		free(m->spans[i].marks);
	free(m->spans);
	free(m->rseq);
	free(m);
}

static int no_memory(struct scan *s)
{
	return dinst_fail(s->e, DINST_NO_MEMORY, "%s: no memory for references", s->img->name);
}

static struct mark_span *span_at(const struct reference_map *m, vaddr_t v)
{
	size_t lo = 0, hi = m->span_count;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (v < m->spans[mid].lo)
			hi = mid;
		else if (v >= m->spans[mid].hi)
			lo = mid + 1;
		else
			return &m->spans[mid];
	}
	return NULL;
}

static void mark(struct scan *s, vaddr_t v, enum image_reference kind)
{
	struct mark_span *span = s->last;
	vaddr_t at;

	if (v < span->lo || v >= span->hi) {
		span = span_at(s->map, v);
		if (!span)
			return;
		s->last = span;
	}
	at = v - span->lo;
	span->marks[at / 2] |= (unsigned)kind << (at % 2 * 4);
}

static int make_spans(struct scan *s)
{
	const struct image *img = s->img;
	struct reference_map *m = s->map;

	m->spans = calloc(img->text_count + 1, sizeof(*m->spans));
	if (!m->spans)
		return no_memory(s);
	for (size_t i = 0; i < img->text_count; i++) {
		const struct image_range *r = &img->text[i];
		struct mark_span *before = m->span_count ? &m->spans[m->span_count - 1] : NULL;

		/* Neighbouring sections share a span: few spans, quick answers. */
		if (before && r->lo - before->hi < 4096)
			before->hi = r->hi;
		else
			m->spans[m->span_count++] = (struct mark_span){.lo = r->lo, .hi = r->hi};
	}
	for (size_t i = 0; i < m->span_count; i++) {
		struct mark_span *span = &m->spans[i];

		span->marks = calloc((span->hi - span->lo) / 2 + 1, 1);
		if (!span->marks)
			return no_memory(s);
	}
	s->last = m->spans;
	return 0;
}

/* ------------------------------------------------------------------- code */

/* The bytes of the function at the scan's place that no later function starts in. */
static struct image_range own_range(struct scan *s, vaddr_t from)
{
	const struct image *img = s->img;
	const struct image_function *fn;
	struct image_range r = {0, 0};

	while (s->cursor > 0 && img->functions[s->cursor].address > from)
		s->cursor--;
	while (s->cursor + 1 < img->function_count && img->functions[s->cursor + 1].address <= from)
		s->cursor++;
	fn = &img->functions[s->cursor];
	if (!img->function_count || from < fn->address || from - fn->address >= fn->size)
		return r;
	r = (struct image_range){fn->address, fn->address + fn->size};
	if (s->cursor + 1 < img->function_count && r.hi > fn[1].address)
		r.hi = fn[1].address;
	return r;
}

static bool is_symbol(const struct scan *s, vaddr_t v)
{
	const struct mark_span *span = s->last;

	if (v < span->lo || v >= span->hi)
		return false;
	return span->marks[(v - span->lo) / 2] >> ((v - span->lo) % 2 * 4) & REFERENCE_SYMBOL;
}

/* As it is what is made in steps, also within a function: decoding alone does not tell that. */
static void note_hit(void *arg, taddr_t from, taddr_t target)
{
	struct scan *s = arg;

	mark(s, target, REFERENCE_BRANCH);
	/* To the start of a function anything may come: whence is not asked. */
	if (!is_symbol(s, target) && span_at(s->map, target) && !hits_add(&s->hits, from, target))
		s->failed = true;
}

static void found_reference(void *arg, taddr_t from, taddr_t target)
{
	struct scan *s = arg;
	struct image_range own = own_range(s, from);

	if (target >= own.lo && target < own.hi)
		return;
	note_hit(s, from, target);
	parts_note(s->parts, from, target);
}

/* The bytes of a section from `at` on that are scanned with those up to `at` + SCAN_PIECE. */
static size_t piece_at(size_t size, size_t at, size_t more)
{
	return size - at < SCAN_PIECE + more ? size - at : SCAN_PIECE + more;
}

static int scan_code(struct scan *s)
{
	struct image *img = s->img;
	vaddr_t lo = img->text[0].lo, hi = img->text[img->text_count - 1].hi;
	int r = parts_begin(img, &s->parts, s->e);

	if (r)
		return r;
	for (size_t i = 0; i < img->text_count; i++) {
		size_t size;
		const uint8_t *bytes = image_code(img, img->text[i].lo, &size);

		/* Piece by piece, so that not all of the code is in our memory at once. What
		 * lies across two pieces is found by letting them overlap. */
		for (size_t at = 0; bytes && at < size; at += SCAN_PIECE) {
			const size_t piece = piece_at(size, at, ARCH_INSN_MAX);
			const vaddr_t address = img->text[i].lo + at;

			arch_scan_references(bytes + at, piece, address, lo, hi, found_reference,
					     s);
			if (image_is_fixed(img))
				arch_scan_constants(bytes + at, piece, address, lo, hi,
						    found_reference, s);
			arch_scan_sums(bytes + at, piece_at(size, at, SUM_BYTES), address, lo, hi,
				       image_is_fixed(img), note_hit, s);
			elf_file_forget(&img->file, bytes + at, piece_at(size, at, 0));
		}
	}
	return 0;
}

/* ------------------------------------------------------------------ stored */

static void mark_stored(void *arg, vaddr_t place, vaddr_t value)
{
	(void)place;
	mark(arg, value, REFERENCE_ADDRESS);
}

/*
 * Whatever is eight bytes may be an address. Among code it is a table, which is
 * aligned: constants of instructions are found otherwise, with less chance.
 */
static void mark_word(void *arg, vaddr_t place, vaddr_t value)
{
	struct scan *s = arg;

	if (place % sizeof(value) == 0 || !range_at(s->img->text, s->img->text_count, place))
		mark(s, value, REFERENCE_ADDRESS);
}

/* ------------------------------------------- exceptions and symbols */

/* True if it is code that may fault and calls nobody. */
static bool only_faults(const struct image *img, vaddr_t lo, vaddr_t hi)
{
	size_t size = 0, at = 0;
	const uint8_t *code = image_code(img, lo, &size);
	bool faults = false;

	if (!code || hi - lo > THROWING_MAX || hi - lo > size)
		return false;
	while (at < hi - lo) {
		struct arch_insn insn;

		if (arch_decode(code + at, size - at, lo + at, &insn) != ARCH_OK ||
		    insn.flow != ARCH_FLOW_NEXT)
			return false;
		faults |= (insn.flags & (ARCH_INSN_MEMORY | ARCH_INSN_DIVIDES)) != 0;
		at += insn.length;
	}
	return faults && at == hi - lo;
}

/*
 * Only compilers that were told to make exceptions of faults (-fnon-call-exceptions) write of
 * code without a call that it may throw. What else they compiled in this file may throw, too.
 */
static void found_throwing(void *arg, vaddr_t lo, vaddr_t hi, vaddr_t pad)
{
	struct scan *s = arg;

	mark(s, pad, REFERENCE_LANDING);
	if (s->img->turns_faults || !s->looks)
		return;
	s->looks--;
	s->img->turns_faults = only_faults(s->img, lo, hi);
}

static int scan_exceptions(struct scan *s)
{
	struct image *img = s->img;
	/* Tables that are shared by design are few; a file that names one a thousand
	 * times is made to keep us busy. */
	uint64_t budget = (uint64_t)img->file.size * 4;

	s->looks = img->file.size / LOOKS_PART;
	for (size_t i = 0; i < img->fde_count; i++) {
		const struct cfi_range *fde = &img->fdes[i];
		const uint8_t *bytes;
		size_t size, used = 0;

		if (!fde->lsda || !range_at(img->text, img->text_count, fde->lo))
			continue;
		bytes = elf_at(&img->file, fde->lsda, &size, NULL);
		if (!bytes ||
		    !cfi_call_sites(bytes, size, fde->lsda, fde->lo, found_throwing, s, &used) ||
		    used > budget)
			return dinst_fail(s->e, DINST_BAD_FILE,
					  "%s: damaged exception table at 0x%llx", img->name,
					  (unsigned long long)fde->lsda);
		budget -= used;
	}
	return 0;
}

static void scan_symbols(struct scan *s)
{
	const struct image *img = s->img;

	for (size_t i = 0; i < img->function_count; i++)
		mark(s, img->functions[i].address, REFERENCE_SYMBOL);
	for (size_t i = 0; i < img->label_count; i++)
		mark(s, img->labels[i], REFERENCE_SYMBOL);
	for (size_t i = 0; i < img->fde_count; i++)
		mark(s, img->fdes[i].lo, REFERENCE_SYMBOL);
	mark(s, img->file.entry, REFERENCE_SYMBOL);
}

/* -------------------------------------------------------------- questions */

int image_references(struct image *img, struct dinst_error *e)
{
	struct scan s = {.img = img, .e = e};
	int r;

	if (img->references)
		return 0;
	s.map = calloc(1, sizeof(*s.map));
	if (!s.map)
		return no_memory(&s);
	r = make_spans(&s);
	if (!r && img->text_count) {
		scan_symbols(&s);
		relocations_each(&img->file, mark_stored, &s);
		/* Linked to fixed addresses there is nothing to relocate: any word may be one. */
		if (image_is_fixed(img))
			words_each(&img->file, 0, img->text[0].lo,
				   img->text[img->text_count - 1].hi, mark_word, &s);
		r = scan_exceptions(&s);
		if (!r)
			r = sequences_find(img, &s.map->rseq, &s.map->rseq_count, e);
		if (!r)
			r = scan_code(&s);
	}
	if (!r && (s.failed || !hits_finish(&s.hits)))
		r = no_memory(&s);
	if (r) {
		references_release(s.map);
		hits_release(&s.hits);
	} else {
		img->references = s.map;
		img->hits = s.hits;
		parts_settle(s.parts);
	}
	parts_release(s.parts);
	elf_file_forget(&img->file, img->file.bytes, img->file.size);
	return r;
}

unsigned image_references_at(const struct image *img, vaddr_t vaddr)
{
	const struct reference_map *m = img->references;
	const struct mark_span *span = m ? span_at(m, vaddr) : NULL;
	unsigned marks;
	vaddr_t at;

	if (!span)
		return 0;
	at = vaddr - span->lo;
	marks = span->marks[at / 2] >> (at % 2 * 4) & 15;
	if (m->rseq_count && range_at(m->rseq, m->rseq_count, vaddr))
		marks |= REFERENCE_RSEQ;
	return marks;
}

/* The next byte in a restartable sequence, hi if there is none. */
static vaddr_t next_sequence(const struct reference_map *m, vaddr_t v, vaddr_t hi)
{
	size_t lo = 0, end = m->rseq_count;

	while (lo < end) {
		const size_t mid = lo + (end - lo) / 2;

		if (m->rseq[mid].hi <= v)
			lo = mid + 1;
		else
			end = mid;
	}
	if (lo == m->rseq_count || m->rseq[lo].lo >= hi)
		return hi;
	return m->rseq[lo].lo > v ? m->rseq[lo].lo : v;
}

/* The next byte of the span with marks, hi if there is none: most have none. */
static vaddr_t next_marked(const struct mark_span *span, vaddr_t v, vaddr_t hi)
{
	while (v < hi) {
		size_t at = v - span->lo;
		uint64_t word;

		if (at % 16 == 0 && hi - v >= 16) {
			memcpy(&word, span->marks + at / 2, sizeof(word));
			if (!word) {
				v += 16;
				continue;
			}
		}
		if (span->marks[at / 2] >> (at % 2 * 4) & 15)
			return v;
		v++;
	}
	return hi;
}

bool image_references_next(const struct image *img, vaddr_t *vaddr, vaddr_t hi, unsigned *bits)
{
	const struct reference_map *m = img->references;
	vaddr_t v = *vaddr;

	while (m && v < hi) {
		const struct mark_span *span = span_at(m, v);

		if (!span) {
			v++;
			continue;
		}
		v = next_marked(span, v, next_sequence(m, v, hi < span->hi ? hi : span->hi));
		*bits = image_references_at(img, v);
		if (v < hi && *bits) {
			*vaddr = v;
			return true;
		}
		v += v < span->hi;
	}
	return false;
}

void references_clear_branch(struct image *img, vaddr_t vaddr)
{
	struct mark_span *span = span_at(img->references, vaddr);
	vaddr_t at;

	if (!span)
		return;
	at = vaddr - span->lo;
	span->marks[at / 2] &= (uint8_t) ~((unsigned)REFERENCE_BRANCH << (at % 2 * 4));
}
