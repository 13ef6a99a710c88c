/* SPDX-License-Identifier: MIT */
/*
 * flow_gaps.c - bytes between functions that are more than padding: code that
 * nobody has named, or data. What may run there is walked, from wherever
 * something branches or refers to, to see whether it branches into a function
 * next door. Bytes that nothing leads to are never run.
 *
 * Behind a function that lies in another one comes the rest of that one. It is
 * read as a whole, as the code of any function next door is.
 */
#include "mutator/flow_private.h"
#include "mutator/hits.h"

#include <stdlib.h>

/* What is known of the bytes that are walked. */
enum footing {
	MAY_BE_CODE,
	IS_CODE,     /* something unknown is an instruction */
	IS_FUNCTION, /* code, and so is what stands behind its jumps */
};

/* How often gaps are looked at again for what the function is found to be. */
enum { AGAIN_MAX = 4 };

struct walk {
	struct flow *f;
	struct outs *outs;
	const uint8_t *bytes; /* of the gap */
	vaddr_t lo, hi;
	uint8_t *seen; /* a byte for each of the gap's */
	vaddr_t *work; /* room for as many */
	size_t work_count;
	bool run_into; /* control may come to lo from what is in front of it */
	bool sure;     /* what is in front of it ends where an instruction does */
};

static void add_work(struct walk *w, vaddr_t v)
{
	if (v < w->lo || v >= w->hi || w->seen[v - w->lo] || flow_contains(w->f, v))
		return;
	w->seen[v - w->lo] = 1;
	w->work[w->work_count++] = v;
}

static void try_range(struct walk *w, vaddr_t from, vaddr_t to)
{
	for (vaddr_t v = from; v < to; v++) {
		struct arch_insn insn;

		if (arch_decode(w->bytes + (v - w->lo), w->hi - v, v, &insn) == ARCH_OK &&
		    (insn.flow == ARCH_FLOW_JUMP || insn.flow == ARCH_FLOW_BRANCH))
			flow_mark(w->f, insn.target, MARK_TARGET | MARK_FOREIGN);
	}
}

/*
 * What nobody can decode may be anything: every offset behind it is tried from
 * which a short branch reaches out of the gap. Long ones are known.
 */
static void try_offsets(struct walk *w, vaddr_t v)
{
	vaddr_t reach = (vaddr_t)arch_short_jump_reach + ARCH_INSN_MAX;
	vaddr_t near = w->hi - w->lo > reach ? w->lo + reach : w->hi;
	vaddr_t far = w->hi - w->lo > reach ? w->hi - reach : w->lo;

	try_range(w, v, near);
	if (far < near)
		far = near;
	try_range(w, v > far ? v : far, w->hi);
}

/* Straight on from v, up to `end` or into what is behind. */
static int walk_line(struct walk *w, vaddr_t v, vaddr_t end, enum footing footing,
		     struct dinst_error *e)
{
	bool runs_on = footing != IS_FUNCTION;

	while (v < end) {
		struct arch_insn insn;
		int r = 0;

		/* The far end of a function in which another one lies. */
		if (flow_contains(w->f, v))
			break;
		if (arch_decode(w->bytes + (v - w->lo), w->hi - v, v, &insn) != ARCH_OK) {
			if (footing == MAY_BE_CODE)
				return 0;
			try_offsets(w, v);
			return flow_run_over(w->f, v, w->hi, e);
		}
		if (insn.flow == ARCH_FLOW_JUMP || insn.flow == ARCH_FLOW_BRANCH) {
			add_work(w, insn.target);
			if (flow_contains(w->f, insn.target))
				r = flow_enter(w->f, insn.target, e);
		}
		if (r < 0)
			return r;
		if (footing != IS_FUNCTION && arch_ends_line(&insn))
			return 0;
		if (!(insn.flags & ARCH_INSN_PADDING))
			runs_on = !arch_ends_line(&insn);
		v += insn.length;
		if (v < w->hi && w->seen[v - w->lo] && footing != IS_FUNCTION)
			return 0;
		/* What begins at the end of an outer function is not gone on to here. */
		if (v < end)
			w->seen[v - w->lo] = 1;
	}
	/* It runs on into what is behind. */
	return runs_on && flow_contains(w->f, v) ? flow_enter(w->f, v, e) : 0;
}

/* Follows all that is to be followed. */
static int walk_work(struct walk *w, enum footing footing, struct dinst_error *e)
{
	int r = 0;

	while (w->work_count && r == 0)
		r = walk_line(w, w->work[--w->work_count], w->hi, footing, e);
	return r;
}

/* True if a branch or a call leads to v; else its address is computed or stored. */
static bool is_branched_to(const struct flow *f, vaddr_t v)
{
	size_t first, n = image_hits_into(f->img, v, v + 1, &first);

	for (size_t i = first; i < first + n; i++)
		if ((f->probe || image_hit_state(f->img, i) != HIT_CHANCE) &&
		    flow_hit_branches(f, image_hit(f->img, i)))
			return true;
	return false;
}

/* Straight on from v an instruction begins at `end`. */
static bool reads_to(const struct walk *w, vaddr_t v, vaddr_t end)
{
	struct arch_insn insn;

	while (v < end && arch_decode(w->bytes + (v - w->lo), w->hi - v, v, &insn) == ARCH_OK)
		v += insn.length;
	return v == end;
}

/* What is left of functions in which others lie; not sure to be read right where one's size may be wrong. */
static int walk_outer(struct walk *w, struct dinst_error *e)
{
	const struct image_function *functions;
	bool sure = w->sure, tried = false;
	vaddr_t v = w->lo;
	int r = 0;

	image_functions(w->f->img, &functions);
	while (v < w->hi && r == 0) {
		long outer = image_function_at(w->f->img, v);
		vaddr_t end = outer < 0 ? v : functions[outer].address + functions[outer].size;

		if (end <= v)
			break;
		if (end > w->hi)
			end = w->hi;
		if (!sure && !tried)
			try_offsets(w, v); /* all that is behind, too */
		tried = !sure;
		if (!flow_contains(w->f, v))
			r = walk_line(w, v, end, IS_FUNCTION, e);
		sure = sure && reads_to(w, v, end);
		v = end;
	}
	return r < 0 ? r : walk_work(w, IS_CODE, e);
}

static bool note_branch(void *arg, vaddr_t target)
{
	add_work(arg, target);
	return false;
}

static bool note_sure(void *arg, vaddr_t target, bool sure)
{
	if (sure)
		add_work(arg, target);
	return false;
}

static bool note_any(void *arg, vaddr_t target, bool sure)
{
	(void)sure;
	add_work(arg, target);
	return false;
}

/* From instruction number `from` on; returns how many there are. */
static size_t note_own(struct walk *w, const struct insn_list *list, size_t from)
{
	for (size_t i = from; i < list->count; i++)
		if (list->items[i].flow == ARCH_FLOW_JUMP ||
		    list->items[i].flow == ARCH_FLOW_BRANCH)
			add_work(w, list->items[i].target);
	return list->count;
}

/* From where branches of the functions around it lead to: short ones are no references. */
static int walk_branched_to(struct walk *w, struct dinst_error *e)
{
	size_t insns, odd;
	int r = freemap_branches_into(w->f->map, (struct image_range){w->lo, w->hi}, note_sure, w,
				      e);

	if (r == 0)
		r = outs_update(w->outs, w->f, e);
	if (r < 0)
		return r;
	outs_into(w->outs, w->lo, w->hi, 0, note_branch, w);
	/* The function itself is known better, and by and by. */
	insns = w->outs->insns;
	odd = w->outs->odd;
	while (w->work_count) {
		r = walk_work(w, IS_CODE, e);
		if (r < 0)
			return r;
		insns = note_own(w, &w->f->insns, insns);
		odd = note_own(w, &w->f->odd, odd);
	}
	return outs_update(w->outs, w->f, e);
}

/*
 * From what is referred to: code for sure first, since no byte is walked twice.
 * *more: there is something that is not.
 */
static int walk_referred_to(struct walk *w, enum footing footing, bool *more, struct dinst_error *e)
{
	unsigned refs;
	int r = 0;

	*more = false;
	for (vaddr_t v = w->lo; r == 0 && image_references_next(w->f->img, &v, w->hi, &refs); v++) {
		if (footing == IS_CODE && !is_branched_to(w->f, v)) {
			*more = true;
			continue;
		}
		add_work(w, v);
		r = walk_work(w, footing, e);
	}
	return r;
}

/* From where a table may lead to. */
static int walk_tables(struct walk *w, struct dinst_error *e)
{
	const vaddr_t *targets;
	size_t n = freemap_table_targets(w->f->map, w->lo, w->hi, &targets);

	for (size_t i = 0; i < n; i++)
		add_work(w, targets[i]);
	return walk_work(w, MAY_BE_CODE, e);
}

/* From where short branches lead to that are some only if what looks like a jump is one. */
static int walk_unsure(struct walk *w, struct dinst_error *e)
{
	int r = freemap_branches_into(w->f->map, (struct image_range){w->lo, w->hi}, note_any, w,
				      e);

	return r < 0 ? r : walk_work(w, MAY_BE_CODE, e);
}

static int walk_all(struct walk *w, struct dinst_error *e)
{
	bool more = false;
	int r = walk_outer(w, e);

	if (r == 0 && w->run_into) {
		add_work(w, w->lo);
		r = walk_work(w, IS_CODE, e);
	}
	if (r == 0)
		r = walk_branched_to(w, e);
	if (r == 0)
		r = walk_referred_to(w, IS_CODE, &more, e);
	if (r == 0 && more)
		r = walk_referred_to(w, MAY_BE_CODE, &more, e);
	if (r == 0)
		r = walk_tables(w, e);
	return r < 0 ? r : walk_unsure(w, e);
}

static int walk_range(struct gap_walks *walks, vaddr_t lo, vaddr_t hi, bool run_into, bool sure,
		      struct dinst_error *e)
{
	struct flow *f = walks->f;
	const struct piece *own = flow_piece(f, lo);
	size_t size = 0;
	struct walk w = {.f = f,
			 .outs = &walks->outs,
			 .lo = lo,
			 .hi = hi,
			 .run_into = run_into,
			 .sure = sure,
			 .bytes = image_code(f->img, lo, &size)};
	int r;

	if (!w.bytes || lo >= hi)
		return 0;
	if (w.hi - lo > size)
		w.hi = lo + size;
	/* The function's own: it is decoded, and nothing is walked there. */
	if (own && w.hi <= own->hi)
		return 0;
	w.seen = calloc(w.hi - lo, sizeof(*w.seen));
	w.work = calloc(w.hi - lo, sizeof(*w.work));
	if (!w.seen || !w.work)
		r = dinst_fail(e, DINST_NO_MEMORY, "no memory for %llu bytes between functions",
			       (unsigned long long)(w.hi - lo));
	else
		r = walk_all(&w, e);
	free(w.seen);
	free(w.work);
	return r;
}

/* All that is between function `before` (-1: none) and the next one. */
static struct image_range gap_behind(const struct flow *f, long before)
{
	const struct image_function *functions;
	size_t n = image_functions(f->img, &functions);

	return (struct image_range){before < 0 ? 0 : freemap_primary(f->map, (uint32_t)before).hi,
				    (size_t)(before + 1) < n ? functions[before + 1].address
							     : UINT64_MAX};
}

static int walk_gap(struct gap_walks *walks, struct gap_walk *gap, struct dinst_error *e)
{
	struct flow *f = walks->f;
	struct image_range all = gap_behind(f, gap->before);
	const struct image_range *text;
	size_t texts = image_text(f->img, &text);
	bool into = gap->before >= 0 && freemap_runs_off(f->map, (uint32_t)gap->before);
	const struct sweep *front;
	bool sure = true;
	int r = 0;

	if (gap->before >= 0) {
		r = freemap_sweep(f->map, (uint32_t)gap->before, &front, e);
		sure = r == 0 && front->end == front->hi;
	}
	for (size_t i = 0; i < texts && r == 0; i++) {
		vaddr_t from = text[i].lo > all.lo ? text[i].lo : all.lo;
		vaddr_t to = text[i].hi < all.hi ? text[i].hi : all.hi;

		if (from < to)
			r = walk_range(walks, from, to, into && from == all.lo,
				       sure || from != all.lo, e);
	}
	gap->known = walks->outs.updates;
	return r;
}

int gap_walks_add(struct gap_walks *walks, long before, struct dinst_error *e)
{
	if (walks->count && walks->items[walks->count - 1].before == before)
		return 0;
	if (walks->count == walks->room) {
		size_t room = walks->room ? walks->room * 2 : 8;
		void *more = reallocarray(walks->items, room, sizeof(*walks->items));

		if (!more)
			return dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu gaps", room);
		walks->items = more;
		walks->room = room;
	}
	walks->items[walks->count] = (struct gap_walk){.before = before};
	return walk_gap(walks, &walks->items[walks->count++], e);
}

static bool is_any(void *arg, vaddr_t target)
{
	(void)arg;
	(void)target;
	return true;
}

/*
 * A gap may lead to instructions of the function that nobody has known of, and those into
 * a gap that has been walked. A compiler makes no such code; if it goes on and on, what
 * is in the gaps may lead anywhere.
 */
int gap_walks_again(struct gap_walks *walks, struct dinst_error *e)
{
	struct flow *f = walks->f;

	for (unsigned again = 0; walks->count; again++) {
		bool found = false;
		int r = outs_update(&walks->outs, f, e);

		for (size_t i = 0; i < walks->count && r == 0; i++) {
			struct image_range all = gap_behind(f, walks->items[i].before);

			if (!outs_into(&walks->outs, all.lo, all.hi, walks->items[i].known, is_any,
				       NULL))
				continue;
			found = true;
			if (again < AGAIN_MAX)
				r = walk_gap(walks, &walks->items[i], e);
		}
		if (r < 0 || !found)
			return r;
		if (again == AGAIN_MAX) {
			f->unresolved = true;
			return 0;
		}
	}
	return 0;
}

void gap_walks_release(struct gap_walks *walks)
{
	free(walks->items);
	outs_release(&walks->outs);
	*walks = (struct gap_walks){0};
}
