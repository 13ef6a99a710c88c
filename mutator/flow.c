/* SPDX-License-Identifier: MIT */
/*
 * flow.c - decodes one function: linearly, and again along the flow of control.
 *
 * Linear decode gives every instruction that can be there, flow those that are
 * meant. Where the two disagree (a jump into the middle of an instruction, data
 * in the code) both readings are kept as sources of jumps, and the bytes are
 * marked as conflicts, so that no window ever contains them. Never decides on
 * points or windows.
 */
#include "mutator/flow.h"

#include <stdlib.h>
#include <string.h>

int insn_list_add(struct insn_list *list, const struct arch_insn *insn, struct dinst_error *e)
{
	if (list->count == list->room) {
		size_t room = list->room ? list->room * 2 : 64;
		void *more = reallocarray(list->items, room, sizeof(*list->items));

		if (!more)
			return dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu instructions",
					  room);
		list->items = more;
		list->room = room;
	}
	list->items[list->count++] = *insn;
	return 0;
}

long flow_byte(const struct flow *f, vaddr_t v)
{
	for (size_t i = 0; i < f->piece_count; i++)
		if (v >= f->pieces[i].lo && v < f->pieces[i].hi)
			return (long)(f->pieces[i].base + (v - f->pieces[i].lo));
	return -1;
}

uint8_t flow_marks(const struct flow *f, vaddr_t v)
{
	long at = flow_byte(f, v);

	return at < 0 ? 0 : f->marks[at];
}

long flow_insn_at(const struct flow *f, vaddr_t v)
{
	long at = flow_byte(f, v);

	return at < 0 ? -1 : (long)f->heads[at] - 1;
}

long flow_covering(const struct flow *f, vaddr_t v)
{
	for (unsigned back = 0; back < ARCH_INSN_MAX && flow_contains(f, v - back); back++) {
		long at = flow_insn_at(f, v - back);

		if (at >= 0)
			return f->insns.items[at].length > back ? at : -1;
	}
	return -1;
}

void flow_mark(struct flow *f, vaddr_t v, uint8_t marks)
{
	long at = flow_byte(f, v);

	if (at >= 0)
		f->marks[at] |= marks;
}

/* ---------------------------------------------------------------- pieces */

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
	for (size_t i = (size_t)index + 1; i < n && functions[i].address < end && r == 0; i++) {
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

static int make_pieces(struct flow *f, struct dinst_error *e)
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

static void mark_references(struct flow *f)
{
	/* Without relocations, an address is any word that looks like one. */
	unsigned sure = REFERENCE_LANDING | REFERENCE_SYMBOL |
			(image_is_fixed(f->img) ? 0 : REFERENCE_ADDRESS);

	for (size_t i = 0; i < f->piece_count; i++) {
		const struct piece *p = &f->pieces[i];
		const vaddr_t *targets;
		size_t n = freemap_table_targets(f->map, p->lo, p->hi, &targets);

		for (size_t k = 0; k < n; k++)
			flow_mark(f, targets[k], MARK_TARGET | MARK_REFERRED);
		for (vaddr_t v = p->lo; v < p->hi; v++) {
			unsigned refs = image_references_at(f->img, v);

			if (!refs)
				continue;
			if (refs & ~(unsigned)REFERENCE_RSEQ)
				f->marks[p->base + (v - p->lo)] |= MARK_TARGET | MARK_REFERRED;
			if (refs & sure)
				f->marks[p->base + (v - p->lo)] |= MARK_SURE;
			if (refs & REFERENCE_RSEQ)
				f->marks[p->base + (v - p->lo)] |= MARK_RSEQ;
		}
	}
}

/* -------------------------------------------------------------- decoding */

/* True if no byte of the instruction has been covered by another one yet. */
static bool is_uncovered(const struct flow *f, const struct arch_insn *insn)
{
	for (unsigned i = 0; i < insn->length; i++)
		if (flow_marks(f, insn->address + i) & MARK_COVER)
			return false;
	return true;
}

static void mark_bytes(struct flow *f, const struct arch_insn *insn, uint8_t marks)
{
	for (unsigned i = 0; i < insn->length; i++)
		flow_mark(f, insn->address + i, marks);
}

/* What every instruction tells about others, reached or not. */
static void mark_edges(struct flow *f, const struct arch_insn *insn)
{
	switch (insn->flow) {
	case ARCH_FLOW_JUMP:
	case ARCH_FLOW_BRANCH:
		flow_mark(f, insn->target, MARK_TARGET | MARK_LOOP);
		break;
	case ARCH_FLOW_CALL:
		flow_mark(f, insn->target, MARK_TARGET);
		flow_mark(f, insn->address + insn->length, MARK_TARGET);
		break;
	case ARCH_FLOW_CALL_INDIRECT:
	case ARCH_FLOW_SYSCALL:
		flow_mark(f, insn->address + insn->length, MARK_TARGET);
		break;
	default:
		break;
	}
}

static int add_insn(struct flow *f, const struct arch_insn *insn, struct dinst_error *e)
{
	long at = flow_byte(f, insn->address);

	if (f->insns.count && insn->address < f->insns.items[f->insns.count - 1].address)
		f->unsorted = true;
	mark_bytes(f, insn, MARK_COVER);
	mark_edges(f, insn);
	if (insn_list_add(&f->insns, insn, e) < 0)
		return DINST_NO_MEMORY;
	f->heads[at] = (uint32_t)f->insns.count;
	return 0;
}

/* Decodes at v inside the pieces; an instruction that leaves its piece is unknown. */
static int decode_at(const struct flow *f, vaddr_t v, struct arch_insn *insn)
{
	size_t size = 0;
	const uint8_t *bytes = image_code(f->img, v, &size);

	for (size_t i = 0; bytes && i < f->piece_count; i++) {
		const struct piece *p = &f->pieces[i];

		if (v < p->lo || v >= p->hi)
			continue;
		if (size > p->hi - v)
			size = p->hi - v;
		return arch_decode(bytes, size, v, insn);
	}
	return ARCH_TRUNCATED;
}

/* Linear decode from v up to something that is unknown or decoded already. */
static int decode_run(struct flow *f, vaddr_t v, struct dinst_error *e)
{
	struct arch_insn insn;

	while (decode_at(f, v, &insn) == ARCH_OK && is_uncovered(f, &insn)) {
		int r = add_insn(f, &insn, e);

		if (r < 0)
			return r;
		v += insn.length;
	}
	return 0;
}

static int decode_pieces(struct flow *f, struct dinst_error *e)
{
	for (size_t i = 0; i < f->piece_count; i++) {
		const struct sweep *sweep = NULL;
		const struct piece *p = &f->pieces[i];
		long fn = freemap_starting_at(f->map, p->lo);
		int r = fn < 0 ? 0 : freemap_sweep(f->map, (uint32_t)fn, &sweep, e);

		if (r == 0 && sweep && sweep->lo == p->lo && sweep->hi == p->hi)
			for (size_t k = 0; r == 0 && k < sweep->count; k++)
				r = add_insn(f, &sweep->insns[k], e);
		else if (r == 0)
			r = decode_run(f, p->lo, e);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ------------------------------------------------------------- following */

struct work {
	vaddr_t *items;
	size_t count, room;
};

static int work_add(struct work *w, vaddr_t v, struct dinst_error *e)
{
	if (w->count == w->room) {
		size_t room = w->room ? w->room * 2 : 64;
		void *more = reallocarray(w->items, room, sizeof(*w->items));

		if (!more)
			return dinst_fail(e, DINST_NO_MEMORY, "no memory to follow a function");
		w->items = more;
		w->room = room;
	}
	w->items[w->count++] = v;
	return 0;
}

/*
 * The instruction at v that control has come to: the one of the linear decode,
 * or a new one. *known is false if nothing is sure at v.
 */
static int reach(struct flow *f, vaddr_t v, struct arch_insn *insn, bool *known,
		 struct dinst_error *e)
{
	long at = flow_insn_at(f, v);
	int r;

	*known = true;
	if (at >= 0) {
		*insn = f->insns.items[at];
		return 0;
	}
	if (decode_at(f, v, insn) != ARCH_OK) {
		*known = false;
		return 0;
	}
	if (is_uncovered(f, insn)) {
		r = decode_run(f, v, e);
	} else {
		mark_bytes(f, insn, MARK_CONFLICT);
		mark_edges(f, insn);
		r = insn_list_add(&f->odd, insn, e);
	}
	return r;
}

static int follow_one(struct flow *f, struct work *w, vaddr_t v, struct dinst_error *e)
{
	struct arch_insn insn;
	bool known;

	while (flow_contains(f, v) && !(flow_marks(f, v) & MARK_REACHED)) {
		int r = reach(f, v, &insn, &known, e);

		if (r < 0)
			return r;
		flow_mark(f, v, MARK_REACHED);
		if (!known) {
			flow_mark(f, v, MARK_CONFLICT);
			return 0;
		}
		if (insn.flow == ARCH_FLOW_JUMP || insn.flow == ARCH_FLOW_BRANCH ||
		    insn.flow == ARCH_FLOW_CALL)
			if (flow_contains(f, insn.target))
				r = work_add(w, insn.target, e);
		if (r < 0)
			return r;
		if (insn.flow == ARCH_FLOW_JUMP || insn.flow == ARCH_FLOW_JUMP_INDIRECT ||
		    insn.flow == ARCH_FLOW_RETURN || insn.flow == ARCH_FLOW_STOP)
			return 0;
		v += insn.length;
	}
	return 0;
}

int flow_follow(struct flow *f, vaddr_t v, struct dinst_error *e)
{
	struct work w = {0};
	int r = 0;

	flow_mark(f, v, MARK_TARGET);
	r = work_add(&w, v, e);
	while (r == 0 && w.count)
		r = follow_one(f, &w, w.items[--w.count], e);
	free(w.items);
	return r;
}

/*
 * Control may come in at the entry, at fragments, and wherever something in the
 * image refers to the head of an instruction. What only looks like a branch to
 * the middle of one is mostly chance: it forbids windows, but is not followed,
 * unless nothing else has been decoded there.
 */
static int follow_roots(struct flow *f, struct dinst_error *e)
{
	for (size_t i = 0; i < f->piece_count; i++) {
		const struct piece *p = &f->pieces[i];

		for (vaddr_t v = p->lo; v < p->hi; v++) {
			size_t at = p->base + (v - p->lo);
			bool head = f->heads[at] || !(f->marks[at] & MARK_COVER) ||
				    f->marks[at] & MARK_SURE;
			int r;

			if (v != p->lo && !(head && f->marks[at] & MARK_REFERRED))
				continue;
			r = flow_follow(f, v, e);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

/* -------------------------------------------------------------- the whole */

static int insn_order(const void *a, const void *b)
{
	const struct arch_insn *x = a, *y = b;

	return x->address < y->address ? -1 : x->address > y->address;
}

void flow_sort(struct flow *f)
{
	if (!f->unsorted)
		return;
	qsort(f->insns.items, f->insns.count, sizeof(*f->insns.items), insn_order);
	for (size_t i = 0; i < f->insns.count; i++)
		f->heads[flow_byte(f, f->insns.items[i].address)] = (uint32_t)i + 1;
	f->unsorted = false;
}

/*
 * Bytes that no reading of the function has decoded: whatever they are, a short
 * branch among them could lead anywhere near. Every offset is tried.
 */
static void mark_from_unknown(struct flow *f)
{
	for (size_t i = 0; i < f->piece_count; i++) {
		const struct piece *p = &f->pieces[i];

		for (vaddr_t v = p->lo; v < p->hi; v++) {
			struct arch_insn insn;

			if (f->marks[p->base + (v - p->lo)] & MARK_COVER)
				continue;
			if (decode_at(f, v, &insn) != ARCH_OK)
				continue;
			mark_edges(f, &insn);
			if (insn.flow == ARCH_FLOW_JUMP_INDIRECT)
				f->unresolved = true;
		}
	}
}

/* Where jumps are not all known, every instruction may be reached. */
static void reach_everything(struct flow *f)
{
	for (size_t i = 0; i < f->insns.count; i++)
		flow_mark(f, f->insns.items[i].address, MARK_REACHED);
}

/*
 * A handler may compare the pc that a signal has interrupted with the labels
 * around a system call, to know whether it has begun (cancellation of musl, and
 * of newer glibcs). Its return point is known elsewhere then, and the straight
 * line up to there must be executed where it is.
 */
static void mark_compared(struct flow *f)
{
	for (size_t i = 0; i < f->insns.count; i++) {
		const struct arch_insn *insn = &f->insns.items[i];
		vaddr_t end = insn->address + insn->length;

		if (insn->flow != ARCH_FLOW_SYSCALL ||
		    !(image_references_at(f->img, end) & ~(unsigned)REFERENCE_RSEQ))
			continue;
		for (const struct arch_insn *at = insn;; at--) {
			mark_bytes(f, at, MARK_RSEQ);
			if (at == f->insns.items || at[-1].address + at[-1].length != at->address ||
			    (at[-1].flow != ARCH_FLOW_NEXT && at[-1].flow != ARCH_FLOW_BRANCH))
				break;
		}
	}
}

int flow_build(struct flow *f, struct image *img, struct freemap *map, uint32_t index,
	       struct dinst_error *e)
{
	int r;

	*f = (struct flow){.img = img, .map = map, .function = index};
	f->single_only = image_is_go(img);
	r = make_pieces(f, e);
	if (r < 0)
		goto fail;
	mark_references(f);
	r = decode_pieces(f, e);
	if (r == 0)
		r = follow_roots(f, e);
	if (r < 0)
		goto fail;
	flow_sort(f);
	r = flow_tables(f, e);
	if (r < 0)
		goto fail;
	mark_from_unknown(f);
	if (f->unresolved)
		reach_everything(f);
	mark_compared(f);
	r = flow_neighbours(f, e);
	if (r == 0)
		return 0;
fail:
	flow_release(f);
	return r;
}

void flow_release(struct flow *f)
{
	free(f->pieces);
	free(f->marks);
	free(f->heads);
	free(f->insns.items);
	free(f->odd.items);
	*f = (struct flow){0};
}
