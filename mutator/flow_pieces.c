/* SPDX-License-Identifier: MIT */
/*
 * flow_pieces.c - the bytes of a function and the marks on them: which bytes
 * are its own, what the image knows about each, what may come in from
 * elsewhere. Decodes nothing.
 */
#include "mutator/flow_private.h"

#include <stdlib.h>

long flow_covering(const struct flow *f, vaddr_t v)
{
	for (unsigned back = 0; back < ARCH_INSN_MAX && flow_contains(f, v - back); back++) {
		long at = flow_insn_at(f, v - back);

		if (at >= 0)
			return f->insns.items[at].length > back ? at : -1;
	}
	return -1;
}

size_t flow_insn_from(const struct flow *f, vaddr_t v)
{
	size_t lo = 0, hi = f->insns.count;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (f->insns.items[mid].address < v)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

bool flow_begins_block(const struct flow *f, vaddr_t v)
{
	long at = flow_insn_at(f, v);
	const struct arch_insn *before;

	if (!f->linear || at < 0 || flow_marks(f, v) & MARK_CONFLICT)
		return false;
	if (at == 0)
		return true;
	before = &f->insns.items[at - 1];
	if (before->address + before->length != v)
		return true;
	switch (before->flow) {
	case ARCH_FLOW_JUMP:
	case ARCH_FLOW_JUMP_INDIRECT:
	case ARCH_FLOW_RETURN:
	case ARCH_FLOW_STOP:
		return true;
	case ARCH_FLOW_CALL:
		return freemap_never_returns(f->map, before);
	default:
		return before->flags & ARCH_INSN_PADDING &&
		       !(flow_marks(f, before->address) & MARK_REACHED);
	}
}

/* ---------------------------------------------------------------- pieces */

size_t flow_piece_behind(const struct flow *f, vaddr_t v)
{
	size_t lo = 0, hi = f->piece_count;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (f->pieces[mid].hi <= v)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static int add_piece(struct flow *f, vaddr_t lo, vaddr_t hi, struct dinst_error *e)
{
	if (lo >= hi)
		return 0;
	if (f->piece_count == f->piece_room) {
		size_t room = f->piece_room ? f->piece_room * 2 : 4;
		void *more = reallocarray(f->pieces, room, sizeof(*f->pieces));

		if (!more)
			return dinst_fail(e, DINST_NO_MEMORY, "no memory for a function's pieces");
		f->pieces = more;
		f->piece_room = room;
	}
	f->pieces[f->piece_count++] = (struct piece){.lo = lo, .hi = hi};
	return 0;
}

/*
 * The bytes of function `index`: its range without those of functions that
 * start inside it. A byte belongs to the function that starts last before it,
 * so no byte is planned twice.
 */
static int add_pieces(struct flow *f, uint32_t index, struct dinst_error *e)
{
	const struct image_function *functions;
	size_t n = image_functions(f->img, &functions), size = 0;
	const struct image_function *fn = &functions[index];
	vaddr_t lo = fn->address, end;
	int r = 0;

	if (!image_code(f->img, lo, &size))
		return 0;
	end = lo + (fn->size < size ? fn->size : size);
	for (size_t i = (size_t)index + 1;
	     i < n && functions[i].address < end && lo < end && r == 0; i++) {
		vaddr_t next = functions[i].address + functions[i].size;

		if (functions[i].address > lo)
			r = add_piece(f, lo, functions[i].address, e);
		if (next > lo)
			lo = next;
		else if (functions[i].address > lo)
			lo = functions[i].address;
	}
	return r < 0 ? r : add_piece(f, lo, end, e);
}

static int piece_order(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	return x->lo < y->lo ? -1 : x->lo > y->lo;
}

int flow_make_pieces(struct flow *f, struct dinst_error *e)
{
	const uint32_t *fragments;
	size_t n = freemap_fragments(f->map, f->function, &fragments);
	int r = add_pieces(f, f->function, e);

	for (size_t i = 0; i < n && r == 0; i++)
		r = add_pieces(f, fragments[i], e);
	if (r < 0)
		return r;
	if (f->piece_count)
		qsort(f->pieces, f->piece_count, sizeof(*f->pieces), piece_order);
	for (size_t i = 0; i < f->piece_count; i++) {
		f->pieces[i].base = f->byte_count;
		f->byte_count += f->pieces[i].hi - f->pieces[i].lo;
	}
	f->marks = calloc(f->byte_count + 1, sizeof(*f->marks));
	f->heads = calloc(f->byte_count + 1, sizeof(*f->heads));
	if (!f->marks || !f->heads)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu bytes of code",
				  f->byte_count);
	return 0;
}

/* Labels inside a function may be of data; so may be a word that looks like an address. */
static void mark_reference(struct flow *f, size_t at, unsigned refs)
{
	unsigned sure = REFERENCE_LANDING | (image_is_fixed(f->img) ? 0 : REFERENCE_ADDRESS);

	/* Branches are marked by flow_hits(). */
	if (refs & (REFERENCE_ADDRESS | REFERENCE_LANDING | REFERENCE_SYMBOL))
		f->marks[at] |= MARK_TARGET | MARK_REFERRED;
	if (refs & sure)
		f->marks[at] |= MARK_SURE;
	if (refs & REFERENCE_RSEQ) {
		f->marks[at] |= MARK_RSEQ;
		f->compared = true;
	}
}

int flow_mark_references(struct flow *f, struct dinst_error *e)
{
	for (size_t i = 0; i < f->piece_count; i++) {
		const struct piece *p = &f->pieces[i];
		const vaddr_t *targets;
		size_t n = freemap_table_targets(f->map, p->lo, p->hi, &targets);
		unsigned refs;

		for (size_t k = 0; k < n; k++)
			flow_mark(f, targets[k], MARK_TARGET | MARK_REFERRED);
		for (vaddr_t v = p->lo; image_references_next(f->img, &v, p->hi, &refs); v++)
			mark_reference(f, p->base + (v - p->lo), refs);
	}
	return flow_hits(f, e);
}
