/* SPDX-License-Identifier: MIT */
/*
 * references_parts.c - code that the compiler split off from a function, in
 * files that have no names for it.
 *
 * Two kinds. A fragment whose unwind data says that a frame is set up before its
 * first byte is known as one; what is looked for is its function: who jumps in,
 * or where it jumps to. One without a frame looks like a function; it is a part
 * if nobody calls it or takes its address, and one function alone jumps to its
 * start, at least once on a condition. (A function of which that is true is as
 * good as a part: it is only ever entered by a jump from there.)
 */
#include "mutator/image_private.h"

#include <stdlib.h>

enum {
	SOURCES_MAX = 4,
	LINE_MAX = 1 << 16, /* what is read of a function to know where its instructions begin */
};

/* A fragment with a frame. */
struct orphan {
	vaddr_t lo, hi;
	uint32_t index, parent;
	bool sure; /* something jumps to its first byte */
};

/* What may be one without. */
struct candidate {
	vaddr_t lo;
	uint32_t index;
	uint32_t sources[SOURCES_MAX]; /* functions that jump to its start */
	uint8_t source_count;
	bool branched; /* one of the jumps is conditional */
	bool out;      /* called, or referred to by too many */
};

struct parts {
	struct image *img;
	struct orphan *orphans;	      /* sorted, disjoint */
	struct candidate *candidates; /* sorted */
	size_t orphan_count, candidate_count;
};

void parts_release(struct parts *p)
{
	if (!p)
		return;
	free(p->orphans);
	free(p->candidates);
	free(p);
}

static bool is_orphan(const struct image *img, size_t i)
{
	return img->functions[i].flags & FUNCTION_COLD && img->functions[i].parent == i;
}

static bool is_candidate(const struct image *img, size_t i)
{
	uint32_t not = FUNCTION_COLD | FUNCTION_STUB | FUNCTION_IFUNC | FUNCTION_NO_FRAME;

	return img->functions[i].flags & FUNCTION_NO_SYMBOL && !(img->functions[i].flags & not ) &&
	       img->functions[i].address != img->file.entry;
}

static void fill(struct parts *p)
{
	for (size_t i = 0; i < p->img->function_count; i++) {
		const struct image_function *fn = &p->img->functions[i];
		vaddr_t lo = fn->address;

		if (is_candidate(p->img, i))
			p->candidates[p->candidate_count++] =
				(struct candidate){.lo = lo, .index = (uint32_t)i};
		if (!is_orphan(p->img, i))
			continue;
		/* Nested fragments do not occur; the search needs disjoint ones. */
		if (p->orphan_count && lo < p->orphans[p->orphan_count - 1].hi)
			continue;
		p->orphans[p->orphan_count++] =
			(struct orphan){lo, lo + fn->size, (uint32_t)i, NO_FUNCTION, false};
	}
}

int parts_begin(struct image *img, struct parts **out, struct dinst_error *e)
{
	size_t orphans = 0, candidates = 0;
	struct parts *p;

	*out = NULL;
	for (size_t i = 0; i < img->function_count; i++) {
		orphans += is_orphan(img, i);
		candidates += is_candidate(img, i);
	}
	if (!orphans && !candidates)
		return 0;
	p = calloc(1, sizeof(*p));
	if (p) {
		p->img = img;
		p->orphans = calloc(orphans + 1, sizeof(*p->orphans));
		p->candidates = calloc(candidates + 1, sizeof(*p->candidates));
	}
	if (!p || !p->orphans || !p->candidates) {
		parts_release(p);
		return dinst_fail(e, DINST_NO_MEMORY, "%s: no memory for fragments", img->name);
	}
	fill(p);
	*out = p;
	return 0;
}

static struct orphan *orphan_at(struct parts *p, vaddr_t v)
{
	size_t lo = 0, hi = p->orphan_count;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (v < p->orphans[mid].lo)
			hi = mid;
		else if (v >= p->orphans[mid].hi)
			lo = mid + 1;
		else
			return &p->orphans[mid];
	}
	return NULL;
}

static struct candidate *candidate_at(struct parts *p, vaddr_t v)
{
	size_t lo = 0, hi = p->candidate_count;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (p->candidates[mid].lo < v)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < p->candidate_count && p->candidates[lo].lo == v ? &p->candidates[lo] : NULL;
}

/* The jump or branch to `target` that may be at `from`. */
static bool read_jump(const struct image *img, vaddr_t from, vaddr_t target, struct arch_insn *insn)
{
	size_t size;
	const uint8_t *bytes = image_code(img, from, &size);

	return bytes && arch_decode(bytes, size, from, insn) == ARCH_OK && insn->target == target &&
	       (insn->flow == ARCH_FLOW_JUMP || insn->flow == ARCH_FLOW_BRANCH);
}

/* Something may lead from `from` to `target`: does it tell whose an orphan is? */
static void note_orphan(struct parts *p, vaddr_t from, vaddr_t target)
{
	struct orphan *into = orphan_at(p, target), *out = orphan_at(p, from);
	struct orphan *o = into && !out ? into : out && !into ? out : NULL;
	struct arch_insn insn;
	long other;

	if (!o || o->sure)
		return;
	other = image_function_at(p->img, o == into ? from : target);
	if (other < 0 || (p->img->functions[other].flags & (FUNCTION_COLD | FUNCTION_STUB)))
		return;
	/* A jump out to a function's first byte is a tail call. */
	if (o == out && p->img->functions[other].address == target)
		return;
	/* First come, first served, but a jump to its first byte says it best. */
	if (o->parent != NO_FUNCTION && !(o == into && target == o->lo))
		return;
	if (!read_jump(p->img, from, target, &insn))
		return;
	o->parent = other;
	o->sure = o == into && target == o->lo;
}

static void note_candidate(struct parts *p, struct candidate *c, vaddr_t from)
{
	struct arch_insn insn;
	long source;

	if (c->out)
		return;
	source = image_function_at(p->img, from);
	if (source < 0 || !read_jump(p->img, from, c->lo, &insn)) {
		c->out = true;
		return;
	}
	c->branched |= insn.flow == ARCH_FLOW_BRANCH;
	if (source == c->index)
		return;
	for (size_t i = 0; i < c->source_count; i++)
		if (c->sources[i] == source)
			return;
	if (c->source_count == SOURCES_MAX)
		c->out = true;
	else
		c->sources[c->source_count++] = (uint32_t)source;
}

void parts_note(struct parts *p, vaddr_t from, vaddr_t target)
{
	struct candidate *c;

	if (!p)
		return;
	if (p->orphan_count)
		note_orphan(p, from, target);
	c = p->candidate_count ? candidate_at(p, target) : NULL;
	if (c)
		note_candidate(p, c, from);
}

/* The function that a part of a part belongs to; NO_FUNCTION if that is not known. */
static uint32_t root_of(const struct image *img, uint32_t index)
{
	for (unsigned steps = 0; img->functions[index].flags & FUNCTION_COLD; steps++) {
		if (img->functions[index].parent == index || steps > SOURCES_MAX)
			return NO_FUNCTION;
		index = img->functions[index].parent;
	}
	return img->functions[index].flags & FUNCTION_STUB ? NO_FUNCTION : index;
}

/* The one function that all who jump to the candidate are or belong to. */
static uint32_t owner_of(const struct image *img, const struct candidate *c)
{
	uint32_t owner = NO_FUNCTION;

	for (size_t i = 0; i < c->source_count; i++) {
		uint32_t root = root_of(img, c->sources[i]);

		if (root == NO_FUNCTION || root == c->index ||
		    (owner != NO_FUNCTION && owner != root))
			return NO_FUNCTION;
		owner = root;
	}
	return owner;
}

/*
 * Where addresses are fixed, they are also operands. Anything that looks like
 * the start of a candidate makes it a function.
 */
static void drop_operands(struct parts *p)
{
	const struct image *img = p->img;
	uint8_t maybe[1 << 16] = {0}; /* by the low half of the address */

	for (size_t i = 0; i < p->candidate_count; i++)
		maybe[p->candidates[i].lo & 0xffff] = 1;

	for (size_t i = 0; i < img->text_count; i++) {
		size_t size = 0;
		const uint8_t *bytes = image_code(img, img->text[i].lo, &size);
		vaddr_t lo = img->lowest, hi = img->highest;

		for (size_t at = 0; bytes && at + 4 <= size; at++) {
			uint32_t value = elf_u32(bytes + at);
			struct candidate *c;

			if (!maybe[value & 0xffff] || value < lo || value >= hi)
				continue;
			c = candidate_at(p, value);
			if (c)
				c->out = true;
		}
	}
}

static void drop_impossible(struct parts *p)
{
	size_t kept = 0;

	for (size_t i = 0; i < p->candidate_count; i++) {
		struct candidate *c = &p->candidates[i];

		if (!c->out && c->branched &&
		    !(image_references_at(p->img, c->lo) & (REFERENCE_ADDRESS | REFERENCE_LANDING)))
			p->candidates[kept++] = *c;
	}
	p->candidate_count = kept;
	if (kept && image_is_fixed(p->img))
		drop_operands(p);
}

/* The bytes of the function around v up to where the next one starts; none if v is in none of them, or far in. */
static struct image_range line_at(const struct image *img, vaddr_t v)
{
	const struct image_range none = {v, v};
	const long at = image_function_at(img, v);
	const struct image_function *fn = &img->functions[at < 0 ? 0 : at];
	struct image_range line;

	if (at < 0 || v - fn->address > LINE_MAX)
		return none;
	line = (struct image_range){fn->address, fn->address + fn->size};
	if ((size_t)at + 1 < img->function_count && fn[1].address < line.hi)
		line.hi = fn[1].address;
	return v < line.hi ? line : none;
}

/* Notes which instructions from `lo` on jump to it; where the first one is that is not read. */
static vaddr_t note_line(struct parts *p, struct candidate *c, vaddr_t lo, vaddr_t hi)
{
	size_t size;
	const uint8_t *bytes = image_code(p->img, lo, &size);
	struct arch_insn insn;
	vaddr_t v = lo;

	for (; bytes && v < hi && v - lo < size; v += insn.length) {
		if (arch_decode(bytes + (v - lo), size - (v - lo), v, &insn) != ARCH_OK)
			break;
		if (insn.target == c->lo)
			note_candidate(p, c, v);
	}
	return v;
}

/*
 * Who jumps to the candidate from so near by that it is no reference. Every byte that may begin an
 * instruction is tried: where functions can be read few do, so that chance makes no function of a part.
 */
static void note_short(struct parts *p, struct candidate *c)
{
	const vaddr_t reach = (vaddr_t)arch_short_jump_reach + ARCH_INSN_MAX;
	const vaddr_t hi = c->lo + reach;
	vaddr_t v = c->lo > reach ? c->lo - reach : 0;
	struct arch_insn insn;

	while (v < hi && !c->out) {
		const struct image_range line = line_at(p->img, v);
		const vaddr_t end = line.hi <= v ? v + 1 : line.hi < hi ? line.hi : hi;
		const vaddr_t read = line.hi <= v ? v : note_line(p, c, line.lo, end);

		for (v = read > v ? read : v; v < end; v++)
			if (read_jump(p->img, v, c->lo, &insn))
				note_candidate(p, c, v);
	}
}

void parts_settle(struct parts *p)
{
	bool any = true;

	if (!p)
		return;
	for (size_t i = 0; i < p->orphan_count; i++)
		if (p->orphans[i].parent != NO_FUNCTION)
			p->img->functions[p->orphans[i].index].parent = p->orphans[i].parent;
	drop_impossible(p);
	for (size_t i = 0; i < p->candidate_count; i++)
		note_short(p, &p->candidates[i]);
	/* Parts jump to parts: as long as that tells something new. */
	for (unsigned round = 0; any && round < SOURCES_MAX; round++) {
		any = false;
		for (size_t i = 0; i < p->candidate_count; i++) {
			struct candidate *c = &p->candidates[i];
			uint32_t owner = c->out ? NO_FUNCTION : owner_of(p->img, c);

			if (owner == NO_FUNCTION)
				continue;
			p->img->functions[c->index].flags |= FUNCTION_COLD;
			p->img->functions[c->index].parent = owner;
			c->out = any = true;
		}
	}
	/* A part of what has turned out to be a part is its function's. */
	for (size_t i = 0; i < p->orphan_count; i++) {
		uint32_t root = root_of(p->img, p->orphans[i].index);

		if (root != NO_FUNCTION)
			p->img->functions[p->orphans[i].index].parent = root;
	}
}
