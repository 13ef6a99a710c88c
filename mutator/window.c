/* SPDX-License-Identifier: MIT */
/*
 * window.c - the rules of windows, in one place: whatever is patched has gone
 * through span_rules(), the page rule and windows_place(). A new way of finding
 * windows must come through here, too. Never decodes.
 */
#include "mutator/window.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096 };

static bool same_page(vaddr_t a, vaddr_t b)
{
	return a / PAGE == b / PAGE;
}

static bool is_call(const struct arch_insn *insn)
{
	return insn->flow == ARCH_FLOW_CALL || insn->flow == ARCH_FLOW_CALL_INDIRECT;
}

static bool runs_on(const struct arch_insn *insn)
{
	return insn->flow == ARCH_FLOW_NEXT || insn->flow == ARCH_FLOW_BRANCH;
}

bool joins_next(const struct windows *w, size_t at)
{
	const struct insn_list *insns = &w->flow->insns;
	const struct arch_insn *a = &insns->items[at];

	return at + 1 < insns->count && runs_on(a) &&
	       a->address + a->length == insns->items[at + 1].address &&
	       !(flow_marks(w->flow, a->address + a->length) & MARK_TARGET);
}

/* Unwinders and debuggers know the code that returns from a signal by its bytes. */
static bool is_sigreturn(const struct windows *w, vaddr_t v)
{
	size_t size = 0;
	const uint8_t *code = image_code(w->flow->img, v, &size);

	return code && arch_is_sigreturn(code, size);
}

/*
 * A runtime that turns a fault at a known address into an exception (a nil
 * pointer of Go's) does not know the address of the copy.
 */
static bool may_fault(const struct arch_insn *insn)
{
	return insn->flow == ARCH_FLOW_NEXT && insn->flags & ARCH_INSN_MEMORY &&
	       !(insn->flags & (ARCH_INSN_PC_RELATIVE | ARCH_INSN_STACK_OPERAND));
}

/* One instruction of a window; `first` and `last` say where it stands in it. */
static enum refusal insn_rules(const struct windows *w, size_t at, bool first, bool last)
{
	const struct arch_insn *insn = &w->flow->insns.items[at];
	uint8_t head = flow_marks(w->flow, insn->address);

	if (!(head & MARK_REACHED))
		return REFUSAL_UNDECODED;
	if (insn->flags & (ARCH_INSN_NO_MOVE | ARCH_INSN_LANDING_PAD) ||
	    insn->flow == ARCH_FLOW_SYSCALL || insn->flow == ARCH_FLOW_STOP)
		return REFUSAL_UNMOVABLE;
	if (w->flow->single_only && may_fault(insn))
		return REFUSAL_UNMOVABLE;
	if (is_sigreturn(w, insn->address))
		return REFUSAL_STUB;
	for (unsigned i = 0; i < insn->length; i++) {
		uint8_t marks = flow_marks(w->flow, insn->address + i);

		if (marks & MARK_RSEQ)
			return REFUSAL_RSEQ;
		if (marks & MARK_CONFLICT)
			return REFUSAL_UNDECODED;
		if (marks & MARK_TARGET && !(first && i == 0))
			return REFUSAL_BRANCH_TARGET;
	}
	if (last)
		return REFUSAL_NONE;
	/* Frames that are live hold the return address: it must not be inside. */
	if (is_call(insn))
		return REFUSAL_BRANCH_TARGET;
	if (flow_marks(w->flow, insn->address + insn->length) & MARK_TARGET)
		return REFUSAL_BRANCH_TARGET;
	return joins_next(w, at) ? REFUSAL_NONE : REFUSAL_NO_ROOM;
}

/* The rules for any run of instructions that move away; *length on success. */
static enum refusal span_rules(const struct windows *w, size_t first, unsigned count,
			       unsigned *length)
{
	const struct insn_list *insns = &w->flow->insns;
	unsigned bytes = 0;

	if (count == 0 || count > WINDOW_INSNS_MAX || first + count > insns->count)
		return REFUSAL_NO_ROOM;
	if (count > 1 && w->flow->unresolved)
		return REFUSAL_UNRESOLVED;
	if (count > 1 && w->flow->single_only)
		return REFUSAL_NO_ROOM;
	for (unsigned i = 0; i < count; i++) {
		enum refusal r = insn_rules(w, first + i, i == 0, i + 1 == count);

		if (r != REFUSAL_NONE)
			return r;
		bytes += insns->items[first + i].length;
	}
	if (bytes > WINDOW_BYTES_MAX)
		return REFUSAL_NO_ROOM;
	*length = bytes;
	return REFUSAL_NONE;
}

/* Bytes that a retargeted branch really changes: found by trying it. */
static bool displacement(const struct arch_insn *insn, size_t *first, size_t *count)
{
	/* Every byte of the displacement differs when this much is added. */
	static const int64_t steps[] = {0x01010101, -0x01010101};

	for (unsigned i = 0; i < 2; i++) {
		uint8_t bytes[ARCH_INSN_MAX];

		memcpy(bytes, insn->bytes, sizeof(bytes));
		if (arch_patch(ARCH_PATCH_RETARGET, insn, insn->address,
			       insn->target + (taddr_t)steps[i], bytes, insn->length, first,
			       count) == ARCH_OK)
			return true;
	}
	return false;
}

enum refusal draft_in_place(const struct windows *w, size_t at, enum arch_patch_kind kind,
			    struct draft *out)
{
	const struct arch_insn *insn = &w->flow->insns.items[at];
	size_t first = 0, count = insn->length;
	unsigned length;
	enum refusal r = span_rules(w, at, 1, &length);

	if (r != REFUSAL_NONE)
		return r;
	if (!arch_patchable(insn, kind))
		return REFUSAL_NO_ROOM;
	if (kind == ARCH_PATCH_RETARGET && !displacement(insn, &first, &count))
		return REFUSAL_NO_ROOM;
	if (!same_page(insn->address + first, insn->address + first + count - 1))
		return REFUSAL_PAGE;
	*out = (struct draft){
		.first = at,
		.count = 1,
		.length = length,
		.kind = kind,
		.merged_into = -1,
		.edge_only = insn->flow == ARCH_FLOW_BRANCH,
	};
	return REFUSAL_NONE;
}

/* True if the byte at v is dead: padding that control does not reach. */
static bool is_dead(const struct windows *w, vaddr_t v)
{
	const struct flow *f = w->flow;
	struct image_range gap;
	long at;

	if (!flow_contains(f, v))
		return !image_references_at(f->img, v) && freemap_gap(f->map, v, &gap) &&
		       !freemap_is_branched_to(f->map, v);
	if (flow_marks(f, v) & (MARK_TARGET | MARK_CONFLICT | MARK_RSEQ | MARK_REFERRED))
		return false;
	at = flow_covering(f, v);
	return at >= 0 && f->insns.items[at].flags & ARCH_INSN_PADDING &&
	       !(flow_marks(f, f->insns.items[at].address) & MARK_REACHED);
}

/* Completes a draft that is shorter than its patch with dead bytes behind it. */
static enum refusal pad(const struct windows *w, struct draft *d, size_t patch)
{
	const struct arch_insn *last = &w->flow->insns.items[d->first + d->count - 1];
	vaddr_t end = last->address + last->length;

	if (d->length >= patch)
		return REFUSAL_NONE;
	/* A return address right behind a call would lie inside the patch. */
	if (runs_on(last) || is_call(last))
		return REFUSAL_NO_ROOM;
	for (d->padding = 0; d->length + d->padding < patch; d->padding++)
		if (!is_dead(w, end + d->padding))
			return REFUSAL_NO_ROOM;
	return REFUSAL_NONE;
}

/* A write over live bytes of two pages is not atomic against our own death. */
static enum refusal page_rule(const struct windows *w, const struct draft *d, size_t patch)
{
	vaddr_t start = w->flow->insns.items[d->first].address;
	size_t live = d->length < patch ? d->length : patch;

	return same_page(start, start + live - 1) ? REFUSAL_NONE : REFUSAL_PAGE;
}

enum refusal draft_jump(const struct windows *w, size_t first, unsigned count, bool may_pad,
			struct draft *out)
{
	struct draft d = {
		.first = first, .count = count, .kind = ARCH_PATCH_JUMP, .merged_into = -1};
	enum refusal r = span_rules(w, first, count, &d.length);

	if (r != REFUSAL_NONE)
		return r;
	if (d.length < arch_jump_size)
		r = may_pad ? pad(w, &d, arch_jump_size) : REFUSAL_NO_ROOM;
	if (r == REFUSAL_NONE)
		r = page_rule(w, &d, arch_jump_size);
	if (r == REFUSAL_NONE)
		*out = d;
	return r;
}

/* ----------------------------------------------------------------- holes */

struct hole_search {
	const struct windows *w;
	vaddr_t from; /* end of the short jump */
	vaddr_t best;
};

static bool is_better(const struct hole_search *s, vaddr_t hole)
{
	vaddr_t last = hole + arch_jump_size - 1;

	if (!s->best)
		return true;
	return same_page(s->from, hole) && same_page(hole, last) &&
	       !(same_page(s->from, s->best) && same_page(s->best, s->best + arch_jump_size - 1));
}

static bool is_usable_hole(const struct hole_search *s, vaddr_t hole)
{
	const struct flow *f = s->w->flow;
	int64_t distance = (int64_t)(hole - s->from);

	if (distance > arch_short_jump_reach || distance < -arch_short_jump_reach)
		return false;
	for (size_t i = 0; i < arch_jump_size; i++)
		if (!is_dead(s->w, hole + i))
			return false;
	return freemap_is_free(f->map, hole, arch_jump_size);
}

/* A run of padding: its first bytes are left to the window that ends before it. */
static void search_run(struct hole_search *s, vaddr_t lo, vaddr_t hi)
{
	for (vaddr_t v = lo + arch_jump_size - 1; v + arch_jump_size <= hi; v += arch_jump_size)
		if (is_usable_hole(s, v) && is_better(s, v))
			s->best = v;
}

static void search_gaps(struct hole_search *s, vaddr_t lo, vaddr_t hi)
{
	const struct flow *f = s->w->flow;
	const struct image_function *functions;
	size_t n = image_functions(f->img, &functions);
	long k = freemap_before(f->map, lo);

	for (k = k < 0 ? 0 : k; (size_t)k < n && functions[k].address < hi; k++) {
		struct image_range gap, own = freemap_primary(f->map, (uint32_t)k);

		if (own.hi > own.lo && freemap_gap(f->map, own.hi, &gap) && gap.lo == own.hi)
			search_run(s, gap.lo, gap.hi);
	}
}

/* Padding between the blocks of the function itself. */
static void search_own(struct hole_search *s, size_t at, vaddr_t lo, vaddr_t hi)
{
	const struct insn_list *insns = &s->w->flow->insns;

	while (at > 0 && insns->items[at - 1].address > lo)
		at--;
	while (at < insns->count && insns->items[at].address < hi) {
		vaddr_t start = insns->items[at].address, end = start;

		if (!(insns->items[at].flags & ARCH_INSN_PADDING) ||
		    (at > 0 && insns->items[at - 1].flags & ARCH_INSN_PADDING)) {
			at++;
			continue;
		}
		for (; at < insns->count && insns->items[at].address == end; at++) {
			if (!(insns->items[at].flags & ARCH_INSN_PADDING))
				break;
			end += insns->items[at].length;
		}
		search_run(s, start, end);
	}
}

static vaddr_t find_hole(const struct windows *w, size_t first)
{
	vaddr_t start = w->flow->insns.items[first].address;
	vaddr_t reach = (vaddr_t)arch_short_jump_reach + 2 * ARCH_INSN_MAX;
	struct hole_search s = {.w = w, .from = start + arch_short_jump_size};
	vaddr_t lo = start > reach ? start - reach : 0;

	search_gaps(&s, lo, start + reach);
	if (!w->flow->unresolved)
		search_own(&s, first, lo, start + reach);
	return s.best;
}

enum refusal draft_short(const struct windows *w, size_t first, unsigned count, struct draft *out)
{
	struct draft d = {
		.first = first, .count = count, .kind = ARCH_PATCH_SHORT_JUMP, .merged_into = -1};
	enum refusal r = span_rules(w, first, count, &d.length);

	/* Go looks up the pc at any signal, and finds it in padding of a function. */
	if (r == REFUSAL_NONE && w->flow->single_only)
		r = REFUSAL_NO_ROOM;
	if (r == REFUSAL_NONE)
		r = pad(w, &d, arch_short_jump_size);
	if (r == REFUSAL_NONE)
		r = page_rule(w, &d, arch_short_jump_size);
	if (r != REFUSAL_NONE)
		return r;
	d.hole = find_hole(w, first);
	if (!d.hole)
		return REFUSAL_NO_ROOM;
	*out = d;
	return REFUSAL_NONE;
}

/* --------------------------------------------------------------- placing */

int windows_init(struct windows *w, struct flow *f, struct dinst_error *e)
{
	*w = (struct windows){.flow = f};
	w->owner = calloc(f->insns.count + 1, sizeof(*w->owner));
	if (!w->owner)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for windows");
	return 0;
}

void windows_release(struct windows *w, bool keep_holes)
{
	for (size_t i = 0; i < w->count && !keep_holes; i++)
		if (w->items[i].hole && w->items[i].merged_into < 0)
			freemap_give(w->flow->map, w->items[i].hole);
	free(w->items);
	free(w->owner);
	*w = (struct windows){0};
}

static void set_owner(struct windows *w, const struct draft *d, int32_t owner)
{
	for (unsigned i = 0; i < d->count; i++)
		w->owner[d->first + i] = owner;
}

static int reserve(struct windows *w, struct dinst_error *e)
{
	size_t room = w->room ? w->room * 2 : 16;
	void *more;

	if (w->count < w->room)
		return 0;
	more = reallocarray(w->items, room, sizeof(*w->items));
	if (!more)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu windows", room);
	w->items = more;
	w->room = room;
	return 0;
}

/* There is room (reserve()). -1 if the hole has gone. */
static int32_t enter(struct windows *w, const struct draft *d)
{
	if (d->hole && !freemap_take(w->flow->map, d->hole, arch_jump_size))
		return -1;
	w->items[w->count++] = *d;
	set_owner(w, d, (int32_t)w->count);
	return (int32_t)w->count - 1;
}

/* Widens [*first, *last] to the windows that it touches; how many there are. */
static unsigned touching(const struct windows *w, size_t *first, size_t *last, int32_t *one)
{
	unsigned n = 0;
	int32_t previous = 0;

	for (size_t i = *first; i <= *last; i++) {
		int32_t owner = w->owner[i];
		const struct draft *d;

		if (!owner || owner == previous)
			continue;
		previous = owner;
		*one = owner - 1;
		n++;
		d = &w->items[owner - 1];
		if (d->first < *first)
			*first = d->first;
		if (d->first + d->count - 1 > *last)
			*last = d->first + d->count - 1;
	}
	return n;
}

static bool any_edge_only(const struct windows *w, size_t first, size_t last)
{
	for (size_t i = first; i <= last; i++)
		if (w->owner[i] && w->items[w->owner[i] - 1].edge_only)
			return true;
	return false;
}

/* Gives back, or takes again, the holes of the windows in [first, last]. */
static void holes_of(struct windows *w, size_t first, size_t last, bool take)
{
	int32_t previous = 0;

	for (size_t i = first; i <= last; i++) {
		const struct draft *d;

		if (!w->owner[i] || w->owner[i] == previous)
			continue;
		previous = w->owner[i];
		d = &w->items[previous - 1];
		if (!d->hole)
			continue;
		if (take)
			freemap_take(w->flow->map, d->hole, arch_jump_size);
		else
			freemap_give(w->flow->map, d->hole);
	}
}

/* Makes the windows in [first, last] and everything between them one window. */
static int32_t merge(struct windows *w, size_t first, size_t last)
{
	unsigned count = (unsigned)(last - first + 1);
	struct draft all;

	if (any_edge_only(w, first, last))
		return -1;
	holes_of(w, first, last, false);
	if (draft_jump(w, first, count, true, &all) != REFUSAL_NONE &&
	    draft_short(w, first, count, &all) != REFUSAL_NONE) {
		holes_of(w, first, last, true);
		return -1;
	}
	/* The owners must be read before the new window is entered over them. */
	for (size_t i = first; i <= last; i++) {
		struct draft *old = w->owner[i] ? &w->items[w->owner[i] - 1] : NULL;

		if (!old)
			continue;
		old->hole = 0;
		old->merged_into = (int32_t)w->count;
	}
	return enter(w, &all);
}

int windows_place(struct windows *w, const struct draft *d, int32_t *index, struct dinst_error *e)
{
	size_t first = d->first, last = d->first + d->count - 1;
	int32_t one = -1;
	unsigned n = touching(w, &first, &last, &one);
	const struct draft *old;
	int r = reserve(w, e);

	if (r < 0)
		return r;
	if (n == 0) {
		*index = enter(w, d);
		return 0;
	}
	old = &w->items[one];
	if (d->edge_only)
		*index = -1;
	else if (n == 1 && old->first == first && old->first + old->count - 1 == last &&
		 !old->edge_only)
		*index = one;
	else
		*index = merge(w, first, last);
	return 0;
}

int32_t windows_final(const struct windows *w, int32_t index)
{
	while (index >= 0 && w->items[index].merged_into >= 0)
		index = w->items[index].merged_into;
	return index;
}

void windows_drop(struct windows *w, int32_t index)
{
	struct draft *d = &w->items[index];

	set_owner(w, d, 0);
	if (d->hole)
		freemap_give(w->flow->map, d->hole);
	d->hole = 0;
	d->count = 0;
}
