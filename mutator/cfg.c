/* SPDX-License-Identifier: MIT */
/*
 * cfg.c - basic blocks and edges of one function. Reads a flow and decides on
 * nothing: what is a target, an exit or a switch has been found out before.
 */
#include "mutator/cfg.h"

#include "mutator/exceptions.h"

#include <stdlib.h>
#include <string.h>

/* What is known of an instruction while blocks are cut. */
enum insn_bit {
	IS_LEADER = 1 << 0,
	IS_ENTERED = 1 << 1, /* reached by something that will be no edge */
	IS_LANDING = 1 << 2,
	IS_REACHED = 1 << 3,
};

struct making {
	struct cfg *g;
	const struct flow *f;
	uint8_t *bits; /* enum insn_bit of each instruction */
	struct dinst_error *e;
	bool failed;
	bool all_tables; /* which table is whose is not known */
};

const char *cfg_edge_name(enum cfg_edge_kind kind)
{
	static const char *const names[] = {
		[EDGE_FALL] = "fall",	[EDGE_BRANCH] = "branch",   [EDGE_JUMP] = "jump",
		[EDGE_TABLE] = "table", [EDGE_UNKNOWN] = "unknown", [EDGE_EXCEPTION] = "exception",
	};

	return (size_t)kind < sizeof(names) / sizeof(*names) ? names[kind] : "unknown";
}

static void *grow(void *items, uint32_t count, uint32_t *room, size_t size)
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

/* -------------------------------------------------------------- leaders */

static const struct arch_insn *insn_at(const struct making *m, size_t i)
{
	return &m->f->insns.items[i];
}

static bool is_call(const struct arch_insn *insn)
{
	return insn->flow == ARCH_FLOW_CALL || insn->flow == ARCH_FLOW_CALL_INDIRECT;
}

static vaddr_t end_of(const struct arch_insn *insn)
{
	return insn->address + insn->length;
}

static void add_bits(struct making *m, vaddr_t v, uint8_t bits)
{
	long at = flow_insn_at(m->f, v);

	if (at >= 0)
		m->bits[at] |= bits;
}

/* Control goes on at the next instruction, and that is known to be reached. */
static bool goes_on(const struct making *m, size_t i)
{
	return i + 1 < m->f->insns.count && end_of(insn_at(m, i)) == insn_at(m, i + 1)->address &&
	       m->bits[i + 1] & IS_REACHED;
}

static bool does_not_return(const struct making *m, size_t i)
{
	const struct arch_insn *insn = insn_at(m, i);

	return insn->flow == ARCH_FLOW_STOP || (is_call(insn) && flow_is_noreturn(m->f, i));
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
static void note_jumps(struct making *m)
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
		add_bits(m, end_of(insn), IS_LEADER | IS_ENTERED);
		if (insn->flow == ARCH_FLOW_JUMP || insn->flow == ARCH_FLOW_BRANCH)
			add_bits(m, insn->target, IS_LEADER | IS_ENTERED);
	}
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
	vaddr_t entry;

	image_functions(m->f->img, &functions);
	entry = functions[m->f->function].address;
	for (size_t i = 0; i < m->f->piece_count; i++) {
		const struct piece *p = &m->f->pieces[i];

		if (v >= p->lo && v < p->hi)
			return !(entry >= p->lo && entry < p->hi);
	}
	return false;
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
		if (is_call(insn_at(m, i)))
			flags |= BLOCK_CALLS;
	return flags;
}

static int add_block(struct making *m, size_t first, size_t last)
{
	struct cfg *g = m->g;
	void *blocks = grow(g->blocks, g->block_count, &g->block_room, sizeof(*g->blocks));

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

/* ---------------------------------------------------------------- edges */

/* A target in the middle of an instruction is as good as unknown. */
static int32_t block_starting(const struct cfg *g, vaddr_t v)
{
	int32_t block = cfg_block_at(g, v);

	return block != CFG_NONE && g->blocks[block].start == v ? block : CFG_NONE;
}

static void add_edge(struct making *m, int32_t from, vaddr_t target, enum cfg_edge_kind kind)
{
	struct cfg *g = m->g;
	struct cfg_block *b = &g->blocks[from];
	void *edges;

	if (m->failed)
		return;
	edges = grow(g->edges, g->edge_count, &g->edge_room, sizeof(*g->edges));
	if (!edges) {
		m->failed = true;
		return;
	}
	g->edges = edges;
	g->edges[g->edge_count++] = (struct cfg_edge){
		.from = from,
		.to = kind == EDGE_UNKNOWN ? CFG_NONE : block_starting(g, target),
		.target = target,
		.kind = (uint8_t)kind,
	};
	b->out_count++;
}

/* Everything that any table of the function leads to; returns how many. */
static size_t add_all_targets(struct making *m, int32_t from)
{
	size_t found = 0;

	for (uint32_t b = 0; b < m->g->block_count; b++)
		if (flow_marks(m->f, m->g->blocks[b].start) & MARK_TABLE) {
			add_edge(m, from, m->g->blocks[b].start, EDGE_TABLE);
			found++;
		}
	return found;
}

static void add_table_edges(struct making *m, int32_t from, size_t last)
{
	vaddr_t *targets = NULL;
	size_t count = 0;

	if (m->all_tables) {
		count = add_all_targets(m, from);
	} else if (flow_jump_targets(m->f, last, &targets, &count, m->e) < 0) {
		m->failed = true;
		return;
	}
	for (size_t i = 0; targets && i < count; i++)
		if (flow_contains(m->f, targets[i]))
			add_edge(m, from, targets[i], EDGE_TABLE);
	free(targets);
	if (!count || m->f->unresolved)
		add_edge(m, from, 0, EDGE_UNKNOWN);
}

static void add_edges(struct making *m, int32_t from)
{
	const struct cfg_block *b = &m->g->blocks[from];
	size_t last = b->first + b->count - 1;
	const struct arch_insn *insn = insn_at(m, last);
	bool falls = goes_on(m, last) && !does_not_return(m, last);

	switch (insn->flow) {
	case ARCH_FLOW_RETURN:
	case ARCH_FLOW_STOP:
		break;
	case ARCH_FLOW_JUMP:
		add_edge(m, from, insn->target, EDGE_JUMP);
		break;
	case ARCH_FLOW_BRANCH:
		if (falls)
			add_edge(m, from, end_of(insn), EDGE_FALL);
		add_edge(m, from, insn->target, EDGE_BRANCH);
		break;
	case ARCH_FLOW_JUMP_INDIRECT:
		if (!flow_is_exit(m->f, last))
			add_table_edges(m, from, last);
		break;
	default:
		if (falls)
			add_edge(m, from, end_of(insn), EDGE_FALL);
	}
}

/* ----------------------------------------------------------- exceptions */

struct throwing {
	struct making *m;
	int32_t from;
};

static bool has_call(const struct making *m, const struct cfg_block *b, vaddr_t lo, vaddr_t hi)
{
	for (size_t i = b->first; i < b->first + b->count; i++)
		if (is_call(insn_at(m, i)) && insn_at(m, i)->address >= lo &&
		    insn_at(m, i)->address < hi)
			return true;
	return false;
}

static void found_handler(void *arg, vaddr_t lo, vaddr_t hi, vaddr_t pad)
{
	const struct throwing *t = arg;
	struct cfg *g = t->m->g;
	const struct cfg_block *b = &g->blocks[t->from];

	if (lo >= b->end || hi <= b->start || !has_call(t->m, b, lo, hi))
		return;
	for (uint32_t i = b->out; i < b->out + b->out_count; i++)
		if (g->edges[i].kind == EDGE_EXCEPTION && g->edges[i].target == pad)
			return;
	add_edge(t->m, t->from, pad, EDGE_EXCEPTION);
}

static int make_all_edges(struct making *m)
{
	struct cfg *g = m->g;
	bool handlers = false;

	g->edge_count = 0;

	for (size_t i = 0; i < m->f->insns.count; i++)
		handlers |= m->bits[i] & IS_LANDING;
	for (uint32_t b = 0; b < g->block_count && !m->failed; b++) {
		struct throwing t = {.m = m, .from = (int32_t)b};

		g->blocks[b].out = g->edge_count;
		g->blocks[b].out_count = 0;
		if (g->blocks[b].flags & BLOCK_UNREACHED)
			continue;
		add_edges(m, (int32_t)b);
		if (handlers && g->blocks[b].flags & BLOCK_CALLS)
			image_handlers(m->f->img, g->blocks[b].start, found_handler, &t);
	}
	if (m->failed)
		return dinst_fail(m->e, DINST_NO_MEMORY, "no memory for %u edges", g->edge_count);
	return 0;
}

/*
 * True if a table leads to a block to which nothing else does, the jumps whose
 * tables are known included: then one of these has been read wrongly. (A head in
 * the middle of a line that a table seems to lead to is an entry that was read
 * beyond the end of a table.)
 */
static bool misses_tables(const struct making *m)
{
	const struct cfg *g = m->g;
	bool *seen = calloc((size_t)g->block_count + 1, sizeof(*seen)), missed = false;

	if (!seen)
		return true;
	for (uint32_t i = 0; i < g->edge_count; i++)
		if (g->edges[i].to != CFG_NONE && g->edges[i].to != g->edges[i].from)
			seen[g->edges[i].to] = true;
	for (uint32_t b = 0; b < g->block_count; b++)
		missed |= !seen[b] && flow_marks(m->f, g->blocks[b].start) & MARK_TABLE &&
			  !(g->blocks[b].flags & (BLOCK_ENTRY | BLOCK_UNREACHED));
	free(seen);
	return missed;
}

static int make_edges(struct making *m)
{
	int r = make_all_edges(m);

	if (r < 0 || !misses_tables(m))
		return r;
	m->all_tables = true;
	return make_all_edges(m);
}

/* Lists of the edges that lead to each block. */
static int make_ways_in(struct making *m)
{
	struct cfg *g = m->g;
	uint32_t at = 0;

	g->in = calloc((size_t)g->edge_count + 1, sizeof(*g->in));
	if (!g->in)
		return dinst_fail(m->e, DINST_NO_MEMORY, "no memory for %u edges", g->edge_count);
	for (uint32_t i = 0; i < g->edge_count; i++)
		if (g->edges[i].to != CFG_NONE)
			g->blocks[g->edges[i].to].in_count++;
	for (uint32_t b = 0; b < g->block_count; b++) {
		g->blocks[b].in = at;
		at += g->blocks[b].in_count;
		g->blocks[b].in_count = 0;
	}
	for (uint32_t i = 0; i < g->edge_count; i++) {
		struct cfg_block *to;

		if (g->edges[i].to == CFG_NONE)
			continue;
		to = &g->blocks[g->edges[i].to];
		g->in[to->in + to->in_count++] = i;
	}
	/* What is reached though nothing here leads to it is entered by somebody else. */
	for (uint32_t b = 0; b < g->block_count; b++)
		if (!g->blocks[b].in_count && !(g->blocks[b].flags & BLOCK_UNREACHED))
			g->blocks[b].flags |= BLOCK_ENTERED;
	return 0;
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
	note_jumps(&m);
	r = make_blocks(&m);
	if (r == 0)
		r = make_edges(&m);
	if (r == 0)
		r = make_ways_in(&m);
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
