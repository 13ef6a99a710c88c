/* SPDX-License-Identifier: MIT */
/*
 * flow_edges.c - where a function and its surroundings meet: short branches
 * that come in from next door, and jumps that leave for good.
 *
 * Long branches from anywhere are in the image's references. Short ones reach
 * only a little over a hundred bytes, so the functions that close to a piece
 * are decoded too; what is not decoded there is tried at every offset.
 */
#include "mutator/flow_private.h"
#include "mutator/points.h"

/* A short branch and its own length, either way. */
static vaddr_t short_reach(void)
{
	return (vaddr_t)arch_short_jump_reach + ARCH_INSN_MAX;
}

static bool is_own_primary(const struct flow *f, uint32_t index)
{
	const struct image_function *functions;

	image_functions(f->img, &functions);
	return index == f->function ||
	       (functions[index].flags & FUNCTION_COLD && functions[index].parent == f->function);
}

static bool is_branch(const struct flow *f, const struct arch_insn *insn)
{
	return (insn->flow == ARCH_FLOW_JUMP || insn->flow == ARCH_FLOW_BRANCH) &&
	       flow_contains(f, insn->target);
}

int flow_enter(struct flow *f, vaddr_t v, struct dinst_error *e)
{
	flow_mark(f, v, MARK_TARGET | MARK_FOREIGN);
	return flow_insn_at(f, v) < 0 ? flow_follow(f, v, e) : 0;
}

void flow_mark_every_offset(struct flow *f, vaddr_t lo, vaddr_t hi)
{
	size_t size = 0;
	const uint8_t *bytes = image_code(f->img, lo, &size);

	for (vaddr_t v = lo; bytes && v < hi && v - lo < size; v++) {
		struct arch_insn insn;

		if (arch_decode(bytes + (v - lo), size - (v - lo), v, &insn) == ARCH_OK &&
		    is_branch(f, &insn))
			flow_mark(f, insn.target, MARK_TARGET | MARK_FOREIGN);
	}
}

/*
 * Code that is read in two ways: a neighbour's last instruction runs into f, whose bytes stay, and
 * control goes on behind it. The sweep may go.
 */
int flow_run_over(struct flow *f, vaddr_t at, vaddr_t hi, struct dinst_error *e)
{
	size_t size = 0;
	const uint8_t *bytes = image_code(f->img, at, &size);
	struct arch_insn insn;
	vaddr_t end;

	if (!bytes || arch_decode(bytes, size, at, &insn) != ARCH_OK)
		return 0;
	end = at + insn.length;
	for (vaddr_t v = hi; v < end; v++)
		if (flow_contains(f, v))
			flow_mark(f, v, MARK_CONFLICT | MARK_FOREIGN);
	if (end < hi || !flow_contains(f, end) || insn.flow == ARCH_FLOW_JUMP ||
	    insn.flow == ARCH_FLOW_JUMP_INDIRECT || insn.flow == ARCH_FLOW_RETURN)
		return 0;
	return flow_enter(f, end, e);
}

/*
 * What stands in front of it cannot be read to its end. Where a function begins its symbol says; where the
 * rest of one goes on behind another only that other's size does, which may be wrong. Then
 * no instruction in there is known.
 */
static void doubt_piece(struct flow *f, vaddr_t lo)
{
	const struct piece *p = flow_piece(f, lo);
	vaddr_t hi;

	if (!p || p->lo != lo || freemap_starting_at(f->map, lo) >= 0)
		return;
	hi = p->hi;
	flow_mark_every_offset(f, lo, hi);
	for (vaddr_t v = lo; v < hi; v++)
		flow_mark(f, v, MARK_CONFLICT);
}

/* In front of it is the rest of another one in which a third lies: its beginning is no surer, and nobody has read it. */
static void doubt_behind_rest(struct flow *f, vaddr_t lo)
{
	const long before = lo ? freemap_before(f->map, lo - 1) : -1;

	if (before >= 0 && freemap_primary(f->map, (uint32_t)before).hi != lo)
		doubt_piece(f, lo);
}

/* The part of [lo, hi) that belongs to the function `index`. */
static int mark_from_function(struct flow *f, uint32_t index, vaddr_t lo, vaddr_t hi,
			      struct dinst_error *e)
{
	struct image_range own; /* from where on it is not decoded */
	const struct sweep *s;
	int r;

	if (is_own_primary(f, index))
		return 0;
	r = freemap_sweep(f->map, index, &s, e);
	if (r < 0)
		return r;
	for (size_t i = freemap_first(s, lo); i < s->count && s->insns[i].address < hi && r == 0;
	     i++)
		if (is_branch(f, &s->insns[i]))
			r = flow_enter(f, s->insns[i].target, e);
	own = (struct image_range){s->end, s->hi};
	if (r == 0)
		r = flow_mark_from_odd(f, index, s, lo, hi, e);
	if (own.lo < own.hi) {
		flow_mark_every_offset(f, own.lo > lo ? own.lo : lo, own.hi < hi ? own.hi : hi);
		doubt_piece(f, own.hi);
		if (r == 0)
			r = flow_run_over(f, own.lo, own.hi, e);
	}
	return r;
}

/* What the code in [lo, hi) around a piece branches to. */
static int mark_stretch(struct gap_walks *walks, vaddr_t lo, vaddr_t hi, struct dinst_error *e)
{
	struct flow *f = walks->f;
	const struct image_function *functions;
	size_t n = image_functions(f->img, &functions);
	long at = freemap_before(f->map, lo);
	vaddr_t v = lo;

	while (v < hi) {
		struct image_range own = {0, 0}, gap;
		vaddr_t next = hi;
		int r;

		if (at >= 0)
			own = freemap_primary(f->map, (uint32_t)at);
		if (v < own.hi) {
			r = mark_from_function(f, (uint32_t)at, v, hi, e);
			if (r < 0)
				return r;
			v = own.hi;
			continue;
		}
		if ((size_t)(at + 1) < n && functions[at + 1].address < hi)
			next = functions[at + 1].address;
		if (v < next && !freemap_gap(f->map, v, &gap)) {
			r = gap_walks_add(walks, at, e);
			if (r < 0)
				return r;
		}
		v = next;
		at++;
	}
	return 0;
}

/*
 * Where pieces are close together what is around one is around the next one, too:
 * it is looked at once.
 */
int flow_neighbours(struct flow *f, struct dinst_error *e)
{
	struct gap_walks walks = {.f = f};
	vaddr_t reach = short_reach(), done = 0;
	int r = 0;

	for (size_t i = 0; i < f->piece_count && r == 0; i++) {
		vaddr_t lo = f->pieces[i].lo, hi = f->pieces[i].hi;
		vaddr_t from = lo > reach ? lo - reach : 0;

		doubt_behind_rest(f, lo);
		r = mark_stretch(&walks, from > done ? from : done, lo, e);
		if (r == 0)
			r = mark_stretch(&walks, hi > done ? hi : done, hi + reach, e);
		done = hi + reach;
	}
	if (r == 0)
		r = gap_walks_again(&walks, e);
	gap_walks_release(&walks);
	return r;
}

bool flow_falls_out(const struct flow *f, size_t at)
{
	const struct arch_insn *insn = &f->insns.items[at];

	switch (insn->flow) {
	case ARCH_FLOW_JUMP:
	case ARCH_FLOW_JUMP_INDIRECT:
	case ARCH_FLOW_RETURN:
	case ARCH_FLOW_STOP:
		return false;
	default:
		return flow_marks(f, insn->address) & MARK_REACHED &&
		       !flow_contains(f, insn->address + insn->length) && !flow_is_noreturn(f, at);
	}
}

/*
 * A jump to the start of another function or to a linker stub is a tail call,
 * and so is one into the middle of one, which hand-written code does. But a jump
 * from or into a fragment whose function is not known may be the edge between
 * the parts of one function.
 */
bool flow_is_exit(const struct flow *f, size_t at)
{
	const struct arch_insn *insn = &f->insns.items[at];
	const struct image_function *functions;
	struct indirect jump;
	long own, other;

	if (flow_jumps_indirectly(f, at, &jump))
		return !flow_is_switch(f, at) && !flow_calls_by_return(f, at);
	if (insn->flow == ARCH_FLOW_RETURN)
		return true;
	if (insn->flow != ARCH_FLOW_JUMP && insn->flow != ARCH_FLOW_BRANCH)
		return false;
	if (flow_contains(f, insn->target))
		return false;
	image_functions(f->img, &functions);
	other = freemap_starting_at(f->map, insn->target);
	if (other >= 0)
		return !(functions[other].flags & FUNCTION_COLD);
	own = image_function_at(f->img, insn->address);
	other = image_function_at(f->img, insn->target);
	return other < 0 || functions[other].flags & FUNCTION_STUB ||
	       !((functions[own < 0 ? other : own].flags | functions[other].flags) & FUNCTION_COLD);
}

/*
 * Where the exit `at` has its point. Compilers that mend load value injection (-mlvi-cfi) take the
 * return address off the stack, wait, and jump there: the stack is as at the entry, which is how an exit
 * finds its activation, before the first of the three only.
 */
size_t flow_exit_point(const struct flow *f, size_t at)
{
	const struct arch_insn *jump = &f->insns.items[at], *wait = jump - 1, *pop = jump - 2;
	arch_regset to, from, none, ignored;

	if (at < 2 || jump->flow != ARCH_FLOW_JUMP_INDIRECT || jump->flags & ARCH_INSN_MEMORY ||
	    !(pop->flags & ARCH_INSN_FRAME) || !(pop->flags & ARCH_INSN_STACK_OPERAND) ||
	    wait->flags & ARCH_INSN_NOP || wait->flow != ARCH_FLOW_NEXT ||
	    pop->address + pop->length != wait->address ||
	    wait->address + wait->length != jump->address ||
	    (flow_marks(f, wait->address) | flow_marks(f, jump->address)) & MARK_TARGET)
		return at;
	arch_effects(jump, &to, &ignored);
	arch_effects(wait, &ignored, &none);
	arch_effects(pop, &ignored, &from);
	return !none && to & from & ~arch_always_live ? at - 2 : at;
}

bool flow_is_pointer_jump(const struct flow *f, size_t at)
{
	struct indirect jump;

	return flow_jumps_indirectly(f, at, &jump);
}

static void mark_data_of(struct flow *f, const struct arch_insn *insn)
{
	struct arch_memory m[ARCH_MEMORY_MAX];
	unsigned n;

	if (!(insn->flags & ARCH_INSN_PC_RELATIVE) || insn->flags & ARCH_INSN_ADDRESS_OF ||
	    !flow_contains(f, insn->data_ref))
		return;
	n = arch_memory_operands(insn, m);
	for (unsigned i = 0; i < n; i++) {
		/* Of no known size: as long as a window may be. */
		size_t size = m[i].size ? m[i].size : WINDOW_BYTES_MAX;

		if (m[i].base != ARCH_NO_REGISTER || m[i].index != ARCH_NO_REGISTER)
			continue;
		for (size_t k = 0; k < size; k++)
			flow_mark(f, insn->data_ref + k, MARK_CONFLICT);
	}
}

/*
 * Compilers that write code only put its constants behind it (Mono), and behind a call that never
 * returns, which nobody knows of, they look as if control ran into them.
 */
void flow_mark_data(struct flow *f)
{
	for (size_t i = 0; i < f->insns.count; i++)
		if (flow_marks(f, f->insns.items[i].address) & MARK_REACHED)
			mark_data_of(f, &f->insns.items[i]);
	for (size_t i = 0; i < f->odd.count; i++)
		mark_data_of(f, &f->odd.items[i]);
}

/* True if the instruction leads to where the file has no code, and not to 0. */
static bool leads_nowhere(const struct flow *f, const struct arch_insn *insn)
{
	size_t size;

	return (insn->flow == ARCH_FLOW_JUMP || insn->flow == ARCH_FLOW_BRANCH ||
		insn->flow == ARCH_FLOW_CALL) &&
	       insn->target && !flow_contains(f, insn->target) &&
	       (flow_marks(f, insn->address) & (MARK_REACHED | MARK_CONFLICT)) == MARK_REACHED &&
	       !image_code(f->img, insn->target, &size);
}

/*
 * No compiler makes what leads to no code, but for calls of what a static program has not: to 0, and never made. Who has
 * rewritten the file (as E9Patch does) puts code there when the program starts, which comes back to anywhere in the
 * function: the jump may lie over instructions, and the last bytes of its distance may be the next one. What is read in
 * the middle of other instructions, or may be data, is a conflict already, and most likely nobody comes there.
 */
void flow_mark_rewritten(struct flow *f)
{
	for (size_t i = 0; i < f->insns.count; i++) {
		const struct arch_insn *insn = &f->insns.items[i];

		if (!leads_nowhere(f, insn))
			continue;
		for (unsigned k = 0; k < insn->length; k++)
			flow_mark(f, insn->address + k, MARK_CONFLICT);
		f->unresolved = true;
	}
}
