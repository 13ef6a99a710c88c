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
#include "mutator/flow_private.h"
#include "mutator/flow_ways.h"

#include <stdlib.h>
#include <string.h>

/* Room for `more` instructions. */
static int reserve(struct insn_list *list, size_t more, struct dinst_error *e)
{
	size_t room = list->room ? list->room * 2 : 64;
	void *items;

	if (list->room - list->count >= more)
		return 0;
	if (room < list->count + more)
		room = list->count + more;
	items = reallocarray(list->items, room, sizeof(*list->items));
	if (!items)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu instructions", room);
	list->items = items;
	list->room = room;
	return 0;
}

int insn_list_add(struct insn_list *list, const struct arch_insn *insn, struct dinst_error *e)
{
	int r = reserve(list, 1, e);

	if (r == 0)
		list->items[list->count++] = *insn;
	return r;
}

/* -------------------------------------------------------------- decoding */

/* True if no byte of the instruction, whose marks begin at `at`, is part of another one. */
static bool is_uncovered(const struct flow *f, long at, const struct arch_insn *insn)
{
	for (unsigned i = 0; at >= 0 && i < insn->length; i++)
		if (f->marks[(size_t)at + i] & MARK_COVER)
			return false;
	return true;
}

/* Instructions lie in one piece (decode_at()), so their marks are one run. */
static void mark_bytes(struct flow *f, const struct arch_insn *insn, uint16_t marks)
{
	long at = flow_byte(f, insn->address);

	for (unsigned i = 0; at >= 0 && i < insn->length; i++)
		f->marks[(size_t)at + i] |= marks;
}

/*
 * What every instruction tells about others, reached or not. `how` is
 * MARK_FOREIGN for one that will not be among insns[].
 */
static void mark_edges(struct flow *f, const struct arch_insn *insn, unsigned how)
{
	switch (insn->flow) {
	case ARCH_FLOW_JUMP:
	case ARCH_FLOW_BRANCH:
		flow_mark(f, insn->target, MARK_TARGET | MARK_LOOP | how);
		break;
	case ARCH_FLOW_CALL:
		flow_mark(f, insn->target, MARK_TARGET | how);
		flow_mark(f, insn->address + insn->length, MARK_TARGET | MARK_RETURN | how);
		break;
	case ARCH_FLOW_CALL_INDIRECT:
	case ARCH_FLOW_SYSCALL:
		flow_mark(f, insn->address + insn->length, MARK_TARGET | MARK_RETURN | how);
		break;
	default:
		if (insn->flags & ARCH_INSN_ADDRESS_OF)
			flow_mark(f, insn->data_ref, MARK_TARGET | MARK_REFERRED);
		break;
	}
}

static int add_insn(struct flow *f, const struct arch_insn *insn, struct dinst_error *e)
{
	long at = flow_byte(f, insn->address);

	if (f->insns.count && insn->address < f->insns.items[f->insns.count - 1].address)
		f->unsorted = true;
	for (unsigned i = 0; i < insn->length; i++)
		f->marks[(size_t)at + i] |= MARK_COVER;
	mark_edges(f, insn, 0);
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
	const struct piece *p = flow_piece(f, v);

	if (!bytes || !p)
		return ARCH_TRUNCATED;
	if (size > p->hi - v)
		size = p->hi - v;
	return arch_decode(bytes, size, v, insn);
}

/* Linear decode from v up to something that is unknown or decoded already. */
static int decode_run(struct flow *f, vaddr_t v, struct dinst_error *e)
{
	struct arch_insn insn;

	while (decode_at(f, v, &insn) == ARCH_OK && is_uncovered(f, flow_byte(f, v), &insn)) {
		int r = add_insn(f, &insn, e);

		if (r < 0)
			return r;
		v += insn.length;
	}
	return 0;
}

static bool all_covered(const struct flow *f)
{
	for (size_t i = 0; i < f->byte_count; i++)
		if (!(f->marks[i] & MARK_COVER))
			return false;
	return true;
}

static int decode_pieces(struct flow *f, struct dinst_error *e)
{
	for (size_t i = 0; i < f->piece_count; i++) {
		const struct sweep *sweep = NULL;
		const struct piece *p = &f->pieces[i];
		long fn = freemap_starting_at(f->map, p->lo);
		int r = fn < 0 ? 0 : freemap_sweep(f->map, (uint32_t)fn, &sweep, e);

		if (r == 0 && sweep)
			r = reserve(&f->insns, sweep->count, e);
		if (r == 0 && sweep && sweep->lo == p->lo && sweep->hi == p->hi)
			for (size_t k = 0; r == 0 && k < sweep->count; k++)
				r = add_insn(f, &sweep->insns[k], e);
		else if (r == 0)
			r = decode_run(f, p->lo, e);
		if (r < 0)
			return r;
	}
	f->linear = all_covered(f);
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
	if (is_uncovered(f, flow_byte(f, v), insn)) {
		r = decode_run(f, v, e);
	} else {
		mark_bytes(f, insn, MARK_CONFLICT);
		mark_edges(f, insn, MARK_FOREIGN);
		r = insn_list_add(&f->odd, insn, e);
	}
	return r;
}

/*
 * What -fsplit-stack puts in front of a function calls __morestack, which comes back
 * twice: to the return that stands right behind the call, and before that one byte
 * further on, to run the function on another stack (libgcc, morestack.S). There may
 * be padding. A library has the name, a program that is stripped has not.
 */
static int follow_behind(struct flow *f, struct work *w, const struct arch_insn *call,
			 struct dinst_error *e)
{
	long at = flow_insn_at(f, call->address + call->length);
	vaddr_t behind;

	if (at < 0 || f->insns.items[at].flow != ARCH_FLOW_RETURN)
		return 0;
	behind = f->insns.items[at].address + f->insns.items[at].length;
	if (!flow_contains(f, behind))
		return 0;
	flow_mark(f, behind, MARK_TARGET | MARK_RETURN);
	return work_add(w, behind, e);
}

/*
 * What control comes to cannot be decoded, and how long it is is not known either. In the middle of
 * what is known it is most likely that nothing comes there, and only the place itself is doubtful.
 */
static void mark_unknown(struct flow *f, vaddr_t v)
{
	const unsigned length = flow_marks(f, v) & MARK_COVER ? 1 : ARCH_INSN_MAX;

	for (unsigned i = 0; i < length; i++)
		flow_mark(f, v + i, MARK_CONFLICT);
}

static int follow_one(struct flow *f, struct work *w, vaddr_t v, struct dinst_error *e)
{
	struct arch_insn insn;
	bool known, taken = false, trapped = false, called = false;

	while (flow_contains(f, v) && !(flow_marks(f, v) & MARK_REACHED)) {
		int r = reach(f, v, &insn, &known, e);

		if (r < 0)
			return r;
		/* What somebody jumps to, and no call returns to, is code. */
		if (flow_marks(f, v) & MARK_TARGET && !(flow_marks(f, v) & MARK_RETURN))
			taken = trapped = false;
		flow_mark(f, v, MARK_REACHED);
		if ((f->unsure || taken || trapped) && known)
			mark_bytes(f, &insn, MARK_CONFLICT);
		if (!known) {
			mark_unknown(f, v);
			return flow_run_over(f, v, v, e); /* over its own end */
		}
		if (insn.flow == ARCH_FLOW_JUMP || insn.flow == ARCH_FLOW_BRANCH ||
		    insn.flow == ARCH_FLOW_CALL)
			if (flow_contains(f, insn.target))
				r = work_add(w, insn.target, e);
		if (r == 0 && arch_is_call(&insn))
			r = follow_behind(f, w, &insn, e);
		if (r < 0)
			return r;
		if (flow_ends_line(f, &insn))
			return 0;
		/*
		 * Who handles the trap, or is called, may read what stands behind, and go on further on. A
		 * breakpoint behind a call says that it does not return (V8's builtins).
		 */
		trapped |= !called && flow_traps(f, &insn);
		taken |= flow_takes_return(f, &insn);
		called = arch_is_call(&insn);
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

/* The first byte from v on, in the piece, that has one of the marks; its end if there is none. */
static vaddr_t next_with(const struct flow *f, const struct piece *p, vaddr_t v, uint16_t marks)
{
	const uint16_t *at = f->marks + p->base;
	size_t i = v - p->lo, size = p->hi - p->lo;
	uint64_t four, wanted = marks * UINT64_C(0x0001000100010001);

	/* Most bytes have none: four at a time. */
	for (; size - i >= 4; i += 4) {
		memcpy(&four, at + i, sizeof(four));
		if (four & wanted)
			break;
	}
	while (i < size && !(at[i] & marks))
		i++;
	return p->lo + i;
}

/*
 * Control comes in at the first byte of every piece, and where something refers
 * to for sure: a handler, a branch. Whatever else is referred to counts as a
 * target, but may be data: see follow_unsure().
 */
static int follow_sure(struct flow *f, struct dinst_error *e)
{
	for (size_t i = 0; i < f->piece_count; i++) {
		const struct piece *p = &f->pieces[i];
		int r = flow_follow(f, p->lo, e);

		for (vaddr_t v = next_with(f, p, p->lo + 1, MARK_SURE); r == 0 && v < p->hi;
		     v = next_with(f, p, v + 1, MARK_SURE))
			r = flow_follow(f, v, e);
		if (r < 0)
			return r;
	}
	return 0;
}

/*
 * In a file that is linked to fixed addresses any word, and any constant of an instruction, may look like
 * one; in any file somebody may count bytes of code from an address on. In the middle of an instruction
 * that is reached, and that a compiler has made, it is chance, if nothing else leads there.
 */
static bool is_chance(const struct flow *f, vaddr_t v)
{
	unsigned marks = flow_marks(f, v), refs = image_references_at(f->img, v);
	const struct image_function *functions;
	const struct arch_insn *insn;
	const vaddr_t *targets;
	long at;

	image_functions(f->img, &functions);
	if (!f->linear || (!image_is_fixed(f->img) && refs != REFERENCE_BRANCH) ||
	    functions[f->function].flags & FUNCTION_NO_FRAME ||
	    marks & (MARK_CONFLICT | MARK_FOREIGN | MARK_LOOP | MARK_RETURN | MARK_TABLE) ||
	    (refs != REFERENCE_ADDRESS &&
	     (!(marks & MARK_CONSTANT) || refs & ~(REFERENCE_ADDRESS | REFERENCE_BRANCH))) ||
	    freemap_table_targets(f->map, v, v + 1, &targets))
		return false;
	at = flow_covering(f, v);
	insn = at < 0 ? NULL : &f->insns.items[at];
	return insn && insn->address != v && flow_marks(f, insn->address) & MARK_REACHED;
}

/*
 * Tables of other functions may lead to blocks that were split off from them,
 * by offsets or, where addresses are fixed, by whole addresses.
 */
static int follow_tables(struct flow *f, struct dinst_error *e)
{
	int r = 0;

	for (size_t i = 0; i < f->piece_count && r == 0; i++) {
		const struct piece *p = &f->pieces[i];
		const vaddr_t *targets;
		size_t n = freemap_table_targets(f->map, p->lo, p->hi, &targets);
		unsigned refs;

		for (size_t k = 0; k < n && r == 0; k++)
			if (flow_begins_block(f, targets[k]))
				r = flow_follow(f, targets[k], e);
		for (vaddr_t v = p->lo; r == 0 && image_references_next(f->img, &v, p->hi, &refs);
		     v++)
			if (refs & REFERENCE_ADDRESS && flow_begins_block(f, v))
				r = flow_follow(f, v, e);
	}
	return r;
}

/*
 * Addresses of the function's inside that somebody computes or stores, labels:
 * they may be code, then all it does must be known, or data, then nothing may be
 * patched there. So it is followed, and marked.
 */
static int follow_unsure_at(struct flow *f, vaddr_t v, struct dinst_error *e)
{
	if ((flow_marks(f, v) & (MARK_REFERRED | MARK_REACHED)) != MARK_REFERRED)
		return 0;
	if (!is_chance(f, v))
		return flow_follow(f, v, e);
	f->marks[flow_byte(f, v)] &= (uint16_t) ~(MARK_TARGET | MARK_REFERRED | MARK_CONSTANT);
	return 0;
}

/* What an instruction refers to that has been decoded late. */
static int follow_unsure_of(struct flow *f, const struct label_search *search,
			    struct arch_insn insn, struct dinst_error *e)
{
	vaddr_t labels[LABELS_MOST];
	size_t n = flow_mark_labels(f, search, &insn, labels);
	int r = insn.flags & ARCH_INSN_ADDRESS_OF ? follow_unsure_at(f, insn.data_ref, e) : 0;

	for (size_t i = 0; i < n && r == 0; i++)
		r = follow_unsure_at(f, labels[i], e);
	return r;
}

/*
 * Once for each label that there is. What is decoded because of that, or has been behind the first
 * `insns` instructions, may refer to others: it is at the end of the lists, and is looked at as it comes.
 */
static int follow_unsure(struct flow *f, size_t insns, size_t odd, struct dinst_error *e)
{
	struct label_search search;
	int r = 0;

	flow_label_search(f, &search);

	f->unsure = true;
	for (size_t i = 0; i < f->piece_count && r == 0; i++) {
		const struct piece *p = &f->pieces[i];

		for (vaddr_t v = next_with(f, p, p->lo, MARK_REFERRED); v < p->hi && r == 0;
		     v = next_with(f, p, v + 1, MARK_REFERRED))
			r = follow_unsure_at(f, v, e);
	}
	while (r == 0 && (insns < f->insns.count || odd < f->odd.count)) {
		const struct arch_insn *insn =
			insns < f->insns.count ? &f->insns.items[insns++] : &f->odd.items[odd++];

		r = follow_unsure_of(f, &search, *insn, e);
	}
	f->unsure = false;
	return r;
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
	flow_ways_forget(f);
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
	struct label_search search;

	flow_label_search(f, &search);
	/* `linear`: there is none. */
	for (size_t i = 0; i < f->piece_count && !f->linear; i++) {
		const struct piece *p = &f->pieces[i];

		for (vaddr_t v = p->lo; v < p->hi; v++) {
			struct arch_insn insn;

			if (f->marks[p->base + (v - p->lo)] & MARK_COVER)
				continue;
			if (decode_at(f, v, &insn) != ARCH_OK)
				continue;
			mark_edges(f, &insn, MARK_FOREIGN);
			flow_mark_all_labels(f, &search, &insn);
			if (insn.flow == ARCH_FLOW_JUMP_INDIRECT)
				f->unresolved = true;
		}
	}
}

/* Where jumps are not all known, every instruction may be reached; or be data. */
static void reach_everything(struct flow *f)
{
	for (size_t i = 0; i < f->insns.count; i++) {
		const struct arch_insn *insn = &f->insns.items[i];

		if (flow_marks(f, insn->address) & MARK_REACHED)
			continue;
		flow_mark(f, insn->address, MARK_REACHED);
		mark_bytes(f, insn, MARK_CONFLICT);
	}
}

static int build(struct flow *f, struct dinst_error *e)
{
	int r = flow_make_pieces(f, e);
	size_t settled, odd;

	if (r == 0)
		r = flow_mark_references(f, e);
	if (r == 0)
		r = decode_pieces(f, e);
	if (r == 0)
		r = follow_sure(f, e);
	if (r == 0)
		r = flow_neighbours(f, e);
	if (r < 0)
		goto fail;
	flow_sort(f);
	r = flow_tables(f, e);
	settled = f->insns.count;
	odd = f->odd.count;
	if (r == 0)
		r = follow_tables(f, e);
	if (r == 0)
		r = follow_unsure(f, settled, odd, e);
	if (r == 0)
		r = flow_tables_late(f, settled, e);
	if (r < 0)
		goto fail;
	mark_from_unknown(f);
	flow_mark_rewritten(f);
	if (f->unresolved)
		reach_everything(f);
	flow_mark_compared(f);
	flow_mark_prefixed(f);
	flow_mark_data(f);
	r = flow_mark_exclusives(f, e);
	if (r == 0)
		return 0;
fail:
	flow_release(f);
	return r;
}

int flow_build(struct flow *f, struct image *img, struct freemap *map, uint32_t index,
	       struct dinst_error *e)
{
	*f = (struct flow){.img = img, .map = map, .function = index};
	f->single_only = image_is_go(img);
	f->turns_faults = image_turns_faults(img);
	return build(f, e);
}

int flow_build_probe(struct flow *f, struct image *img, struct freemap *map, uint32_t index,
		     struct dinst_error *e)
{
	*f = (struct flow){.img = img, .map = map, .function = index, .probe = true};
	f->single_only = image_is_go(img);
	f->turns_faults = image_turns_faults(img);
	return build(f, e);
}

void flow_release(struct flow *f)
{
	free(f->pieces);
	free(f->marks);
	free(f->heads);
	free(f->insns.items);
	free(f->odd.items);
	flow_ways_release(f);
	*f = (struct flow){0};
}
