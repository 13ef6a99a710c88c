/* SPDX-License-Identifier: MIT */
/*
 * cfg.c - basic blocks and edges of one function. Reads a flow and decides on
 * nothing: what is a target, an exit or a switch has been found out before.
 */
#include "mutator/cfg_private.h"

#include <stdlib.h>
#include <string.h>

const char *cfg_edge_name(enum cfg_edge_kind kind)
{
	static const char *const names[] = {
		[EDGE_FALL] = "fall",	[EDGE_BRANCH] = "branch",   [EDGE_JUMP] = "jump",
		[EDGE_TABLE] = "table", [EDGE_UNKNOWN] = "unknown", [EDGE_EXCEPTION] = "exception",
	};

	return (size_t)kind < sizeof(names) / sizeof(*names) ? names[kind] : "unknown";
}

void *cfg_grow(void *items, uint32_t count, uint32_t *room, size_t size)
{
	uint32_t more = *room ? *room * 2 : 32;
	void *grown;

	if (count < *room)
		return items;
	grown = reallocarray(items, more, size);
	if (grown)
		*room = more;
	return grown;
}

int cfg_too_complex(const struct cfg *g, uint64_t most, const char *what, struct dinst_error *e)
{
	const struct image_function *functions;

	image_functions(g->flow->img, &functions);
	return dinst_fail(e, DINST_UNSUPPORTED,
			  "%.100s is too complex for a graph of its blocks: more than %llu %s",
			  functions[g->flow->function].name, (unsigned long long)most, what);
}

/* -------------------------------------------------------------- leaders */

static void add_bits(struct making *m, vaddr_t v, uint8_t bits)
{
	long at = flow_insn_at(m->f, v);

	if (at >= 0)
		m->bits[at] |= bits;
}

static bool ends_block(const struct making *m, size_t i)
{
	switch (insn_at(m, i)->flow) {
	case ARCH_FLOW_JUMP:
	case ARCH_FLOW_JUMP_INDIRECT:
	case ARCH_FLOW_BRANCH:
	case ARCH_FLOW_RETURN:
	case ARCH_FLOW_STOP:
		return true;
	default:
		return does_not_return(m, i) || !goes_on(m, i);
	}
}

static bool follows_odd(const struct flow *f, vaddr_t v)
{
	for (size_t i = 0; i < f->odd.count; i++)
		if (end_of(&f->odd.items[i]) == v)
			return true;
	return false;
}

/*
 * True if something other than an entry of a table, which may be none, leads to
 * v, the head of an instruction inside another one.
 */
static bool is_led_to(const struct making *m, vaddr_t v, unsigned depth)
{
	const struct flow *f = m->f;

	if (flow_marks(f, v) & MARK_FOREIGN || image_references_at(f->img, v) || depth > 4)
		return true;
	/* Too much: there will be no graph, whatever the answer. */
	if (!cfg_work(m->g, (f->insns.count + 2 * f->odd.count) * CFG_LOOK))
		return true;
	for (size_t i = 0; i < f->insns.count; i++)
		if (m->bits[i] & IS_REACHED && insn_at(m, i)->target == v)
			return true;
	for (size_t i = 0; i < f->odd.count; i++) {
		const struct arch_insn *odd = &f->odd.items[i];

		if (odd->address != v && (odd->target == v || end_of(odd) == v) &&
		    is_led_to(m, odd->address, depth + 1))
			return true;
	}
	return !(flow_marks(f, v) & MARK_TABLE) && depth == 0 && !follows_odd(f, v);
}

/* Jumps of the function itself, and what follows instructions read another way. */
static int note_jumps(struct making *m)
{
	const struct flow *f = m->f;

	for (size_t i = 0; i < f->insns.count; i++) {
		const struct arch_insn *insn = insn_at(m, i);

		if (!(m->bits[i] & IS_REACHED))
			continue;
		if (insn->flow == ARCH_FLOW_JUMP || insn->flow == ARCH_FLOW_BRANCH)
			add_bits(m, insn->target, IS_LEADER);
		/* Recursion, or code that takes the address of its own. */
		if (insn->flow == ARCH_FLOW_CALL && insn->target != end_of(insn))
			add_bits(m, insn->target, IS_LEADER | IS_ENTERED);
		if (insn->flags & ARCH_INSN_ADDRESS_OF && insn->data_ref)
			add_bits(m, insn->data_ref, IS_LEADER | IS_ENTERED);
		if (ends_block(m, i) && i + 1 < f->insns.count)
			m->bits[i + 1] |= IS_LEADER;
		if (flow_is_breakpoint(f, insn))
			add_bits(m, end_of(insn), IS_LEADER | IS_ENTERED);
	}
	for (size_t i = 0; i < f->odd.count; i++) {
		const struct arch_insn *insn = &f->odd.items[i];

		if (!is_led_to(m, insn->address, 0))
			continue;
		if (m->g->work > CFG_WORK_MOST)
			return cfg_too_complex(m->g, CFG_WORK_MOST, "steps", m->e);
		add_bits(m, end_of(insn), IS_LEADER | IS_ENTERED);
		if (insn->flow == ARCH_FLOW_JUMP || insn->flow == ARCH_FLOW_BRANCH)
			add_bits(m, insn->target, IS_LEADER | IS_ENTERED);
	}
	return 0;
}

/* The start of a part that the compiler has split off has a symbol, but is no way in. */
static bool is_split_off(const struct making *m, vaddr_t v)
{
	const struct image_function *functions;
	long at = freemap_starting_at(m->f->map, v);

	image_functions(m->f->img, &functions);
	return at >= 0 && functions[at].flags & FUNCTION_COLD;
}

/* What leads to the instruction at v, or may, besides edges that are found later. */
static uint8_t bits_of(const struct making *m, vaddr_t v)
{
	unsigned marks = flow_marks(m->f, v), refs = image_references_at(m->f->img, v);
	uint8_t bits = marks & MARK_REACHED ? IS_REACHED : 0;

	if (refs & REFERENCE_SYMBOL && is_split_off(m, v))
		refs &= ~(unsigned)REFERENCE_SYMBOL;
	if (refs & REFERENCE_LANDING)
		bits |= IS_LEADER | IS_LANDING;
	if (marks & (MARK_LOOP | MARK_TABLE))
		bits |= IS_LEADER;
	/* REFERENCE_BRANCH may be a branch from another part of this function. */
	if (marks & (MARK_FOREIGN | MARK_CONSTANT) || refs & (REFERENCE_SYMBOL | REFERENCE_ADDRESS))
		bits |= IS_LEADER | IS_ENTERED;
	/* A target of which nobody can say why. */
	if (marks & MARK_TARGET && !(marks & MARK_RETURN) && !(bits & IS_LEADER) &&
	    !is_split_off(m, v))
		bits |= IS_LEADER | IS_ENTERED;
	return bits;
}

static void note_references(struct making *m)
{
	const struct flow *f = m->f;

	for (size_t i = 0; i < f->insns.count; i++)
		m->bits[i] = bits_of(m, insn_at(m, i)->address);
	for (size_t i = 0; i < f->piece_count; i++) {
		add_bits(m, f->pieces[i].lo, IS_LEADER);
		if (is_split_off(m, f->pieces[i].lo))
			continue;
		add_bits(m, f->pieces[i].lo, IS_ENTERED);
	}
}

/* --------------------------------------------------------------- blocks */

static bool in_cold_piece(const struct making *m, vaddr_t v)
{
	const struct image_function *functions;

	image_functions(m->f->img, &functions);
	return flow_piece(m->f, v) != flow_piece(m->f, functions[m->f->function].address);
}

static uint32_t flags_of(const struct making *m, size_t first, size_t last)
{
	const struct image_function *functions;
	uint32_t flags = 0;

	image_functions(m->f->img, &functions);
	if (insn_at(m, first)->address == functions[m->f->function].address)
		flags |= BLOCK_ENTRY | BLOCK_ENTERED;
	if (m->bits[first] & IS_LANDING)
		flags |= BLOCK_LANDING;
	if (m->bits[first] & IS_ENTERED)
		flags |= BLOCK_ENTERED;
	if (!(m->bits[first] & IS_REACHED))
		flags |= BLOCK_UNREACHED;
	else if (flow_is_exit(m->f, last))
		flags |= BLOCK_EXIT;
	if (in_cold_piece(m, insn_at(m, first)->address))
		flags |= BLOCK_COLD;
	if (does_not_return(m, last))
		flags |= BLOCK_STOPS;
	for (size_t i = first; i <= last; i++)
		if (arch_is_call(insn_at(m, i)))
			flags |= BLOCK_CALLS;
	return flags;
}

static int add_block(struct making *m, size_t first, size_t last)
{
	struct cfg *g = m->g;
	void *blocks;

	if (g->block_count == CFG_BLOCKS_MOST)
		return cfg_too_complex(g, CFG_BLOCKS_MOST, "blocks", m->e);
	blocks = cfg_grow(g->blocks, g->block_count, &g->block_room, sizeof(*g->blocks));
	if (!blocks)
		return dinst_fail(m->e, DINST_NO_MEMORY, "no memory for %u blocks", g->block_count);
	g->blocks = blocks;
	for (size_t i = first; i <= last; i++)
		g->block_of[i] = (int32_t)g->block_count;
	g->blocks[g->block_count++] = (struct cfg_block){
		.start = insn_at(m, first)->address,
		.end = end_of(insn_at(m, last)),
		.first = (uint32_t)first,
		.count = (uint32_t)(last - first + 1),
		.flags = flags_of(m, first, last),
		.dominator = CFG_NONE,
		.loop = CFG_NONE,
	};
	return 0;
}

/* The last instruction of the block that starts with `first`. */
static size_t block_end(const struct making *m, size_t first)
{
	bool reached = m->bits[first] & IS_REACHED;
	size_t i = first;

	while (i + 1 < m->f->insns.count && !(m->bits[i + 1] & IS_LEADER) &&
	       end_of(insn_at(m, i)) == insn_at(m, i + 1)->address &&
	       (bool)(m->bits[i + 1] & IS_REACHED) == reached) {
		if (reached ? ends_block(m, i) : insn_at(m, i + 1)->flags & ARCH_INSN_PADDING)
			break;
		i++;
	}
	return i;
}

static int make_blocks(struct making *m)
{
	size_t count = m->f->insns.count;
	int r = 0;

	for (size_t i = 0; i < count && r == 0;) {
		bool padding = insn_at(m, i)->flags & ARCH_INSN_PADDING;
		size_t last = i;

		if (m->bits[i] & IS_REACHED || !padding) {
			last = block_end(m, i);
			r = add_block(m, i, last);
		}
		i = last + 1;
	}
	return r;
}

int32_t cfg_block_at(const struct cfg *g, vaddr_t v)
{
	uint32_t lo = 0, hi = g->block_count;

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		if (g->blocks[mid].end <= v)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < g->block_count && g->blocks[lo].start <= v ? (int32_t)lo : CFG_NONE;
}

/* ------------------------------------------------------------ the whole */

int cfg_build(struct cfg *g, const struct flow *f, struct dinst_error *e)
{
	struct making m = {.g = g, .f = f, .e = e};
	int r = 0;

	*g = (struct cfg){.flow = f, .unresolved = f->unresolved};
	m.bits = calloc(f->insns.count + 1, sizeof(*m.bits));
	g->block_of = calloc(f->insns.count + 1, sizeof(*g->block_of));
	if (!m.bits || !g->block_of) {
		r = dinst_fail(e, DINST_NO_MEMORY, "no memory for the blocks of a function");
		goto out;
	}
	for (size_t i = 0; i < f->insns.count; i++)
		g->block_of[i] = CFG_NONE;
	note_references(&m);
	r = note_jumps(&m);
	if (r == 0)
		r = make_blocks(&m);
	if (r == 0)
		r = cfg_make_edges(&m);
	if (r == 0)
		r = cfg_mark_sure(g, e);
	if (r == 0)
		r = cfg_find_loops(g, e);
out:
	free(m.bits);
	if (r < 0)
		cfg_release(g);
	return r;
}

void cfg_release(struct cfg *g)
{
	free(g->blocks);
	free(g->edges);
	free(g->in);
	free(g->loops);
	free(g->bodies);
	free(g->block_of);
	*g = (struct cfg){0};
}
