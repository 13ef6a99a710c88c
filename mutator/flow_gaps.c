/* SPDX-License-Identifier: MIT */
/*
 * flow_gaps.c - bytes between functions that are more than padding: code that
 * nobody has named, or data. What may run there is walked, from wherever
 * something refers to, to see whether it branches into a function next door.
 * Bytes that nothing leads to are never run.
 */
#include "mutator/flow_private.h"
#include "mutator/hits.h"

#include <stdlib.h>

struct walk {
	struct flow *f;
	const uint8_t *bytes; /* of the gap */
	vaddr_t lo, hi;
	uint8_t *seen; /* a byte for each of the gap's */
	vaddr_t *work; /* room for as many */
	size_t work_count;
};

static void add_work(struct walk *w, vaddr_t v)
{
	if (v < w->lo || v >= w->hi || w->seen[v - w->lo])
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

/* Straight on from v; `sure`: it is code, so something unknown is an instruction. */
static int walk_line(struct walk *w, vaddr_t v, bool sure, struct dinst_error *e)
{
	while (v < w->hi) {
		struct arch_insn insn;
		int r = 0;

		if (arch_decode(w->bytes + (v - w->lo), w->hi - v, v, &insn) != ARCH_OK) {
			if (sure)
				try_offsets(w, v);
			return 0;
		}
		if (insn.flow == ARCH_FLOW_JUMP || insn.flow == ARCH_FLOW_BRANCH) {
			add_work(w, insn.target);
			if (flow_contains(w->f, insn.target))
				r = flow_enter(w->f, insn.target, e);
		}
		if (r < 0)
			return r;
		if (insn.flow == ARCH_FLOW_JUMP || insn.flow == ARCH_FLOW_JUMP_INDIRECT ||
		    insn.flow == ARCH_FLOW_RETURN || insn.flow == ARCH_FLOW_STOP)
			return 0;
		v += insn.length;
		if (v < w->hi && w->seen[v - w->lo])
			return 0;
		if (v < w->hi)
			w->seen[v - w->lo] = 1;
	}
	/* It runs on into what is behind. */
	return flow_contains(w->f, w->hi) ? flow_enter(w->f, w->hi, e) : 0;
}

static int walk_from(struct walk *w, vaddr_t root, bool sure, struct dinst_error *e)
{
	int r = 0;

	add_work(w, root);
	while (w->work_count && r == 0)
		r = walk_line(w, w->work[--w->work_count], sure, e);
	return r;
}

/* True if a branch or a call leads to v; else its address is computed or stored. */
static bool is_branched_to(const struct flow *f, vaddr_t v)
{
	size_t first, n = image_hits_into(f->img, v, v + 1, &first);

	for (size_t i = first; i < first + n; i++)
		if (image_hit_state(f->img, i) != HIT_CHANCE &&
		    flow_hit_branches(f, image_hit(f->img, i)))
			return true;
	return false;
}

int flow_walk_gap(struct flow *f, vaddr_t lo, vaddr_t hi, bool run_into, struct dinst_error *e)
{
	size_t size = 0;
	struct walk w = {.f = f, .lo = lo, .hi = hi, .bytes = image_code(f->img, lo, &size)};
	unsigned refs;
	int r = 0;

	if (!w.bytes || lo >= hi)
		return 0;
	if (w.hi - lo > size)
		w.hi = lo + size;
	w.seen = calloc(w.hi - lo, sizeof(*w.seen));
	w.work = calloc(w.hi - lo, sizeof(*w.work));
	if (!w.seen || !w.work)
		r = dinst_fail(e, DINST_NO_MEMORY, "no memory for %llu bytes between functions",
			       (unsigned long long)(w.hi - lo));
	if (r == 0 && run_into)
		r = walk_from(&w, lo, true, e);
	for (vaddr_t v = lo; r == 0 && image_references_next(f->img, &v, w.hi, &refs); v++)
		r = walk_from(&w, v, is_branched_to(f, v), e);
	free(w.seen);
	free(w.work);
	return r;
}
