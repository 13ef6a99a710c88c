/* SPDX-License-Identifier: MIT */
/*
 * cfg_edges.c - the edges between the blocks of one function: by branches, by
 * jump tables, and to handlers of exceptions.
 */
#include "mutator/cfg_private.h"

#include "mutator/exceptions.h"

#include <stdlib.h>

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

	if (m->status < 0)
		return;
	if (g->edge_count == CFG_EDGES_MOST) {
		m->status = cfg_too_complex(g, CFG_EDGES_MOST, "edges", m->e);
		return;
	}
	edges = cfg_grow(g->edges, g->edge_count, &g->edge_room, sizeof(*g->edges));
	if (!edges) {
		m->status =
			dinst_fail(m->e, DINST_NO_MEMORY, "no memory for %u edges", g->edge_count);
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

/* Counts looks at something; false if there will be no edges any more. */
static bool may_go_on(struct making *m, uint64_t looks)
{
	if (!cfg_work(m->g, looks * CFG_LOOK) && m->status == 0)
		m->status = cfg_too_complex(m->g, CFG_WORK_MOST, "steps", m->e);
	return m->status == 0;
}

/* Everything that any table of the function leads to; returns how many. */
static size_t add_all_targets(struct making *m, int32_t from)
{
	size_t found = 0;

	if (!may_go_on(m, m->g->block_count))
		return 0;
	for (uint32_t b = 0; b < m->g->block_count; b++)
		if (flow_marks(m->f, m->g->blocks[b].start) & MARK_TABLE) {
			add_edge(m, from, m->g->blocks[b].start, EDGE_TABLE);
			found++;
		}
	return found;
}

/* flow_jump_targets(), in as many looks as are left. */
static int find_targets(struct making *m, size_t last, vaddr_t **targets, size_t *count)
{
	uint64_t before = (CFG_WORK_MOST - m->g->work) / CFG_LOOK + 1, left = before;

	m->status = flow_jump_targets(m->f, last, targets, count, &left, m->e);
	/* With none left it is too much, for the list is not whole. */
	may_go_on(m, before - left);
	return m->status;
}

static void add_table_edges(struct making *m, int32_t from, size_t last)
{
	vaddr_t *targets = NULL;
	size_t count = 0;

	if (m->all_tables)
		count = add_all_targets(m, from);
	else if (find_targets(m, last, &targets, &count) < 0)
		count = 0;
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

/* Calls in [lo, hi) may lead to the handler. */
struct site {
	vaddr_t lo, hi, pad;
};

/* The exception table of some code, read once for all blocks of it. */
struct sites {
	struct making *m;
	struct image_range code;
	struct site *items;
	uint32_t count, room;
	bool ordered; /* and disjoint, as the ABI wants them */
};

static void keep_site(void *arg, vaddr_t lo, vaddr_t hi, vaddr_t pad)
{
	struct sites *s = arg;
	void *items;

	if (s->m->status < 0)
		return;
	items = cfg_grow(s->items, s->count, &s->room, sizeof(*s->items));
	if (!items) {
		s->m->status =
			dinst_fail(s->m->e, DINST_NO_MEMORY, "no memory for %u handlers", s->count);
		return;
	}
	s->items = items;
	if (lo > hi || (s->count && lo < s->items[s->count - 1].hi))
		s->ordered = false;
	s->items[s->count++] = (struct site){lo, hi, pad};
}

static void read_sites(struct sites *s, vaddr_t v)
{
	s->count = 0;
	s->ordered = true;
	may_go_on(s->m, 1 + image_handlers(s->m->f->img, v, &s->code, keep_site, s));
}

static uint32_t first_behind(const struct sites *s, vaddr_t v)
{
	uint32_t lo = 0, hi = s->count;

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		if (s->items[mid].hi <= v)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static bool has_call(struct making *m, const struct cfg_block *b, vaddr_t lo, vaddr_t hi)
{
	size_t i = flow_insn_from(m->f, lo > b->start ? lo : b->start);

	for (; i < b->first + b->count && insn_at(m, i)->address < hi && may_go_on(m, 1); i++)
		if (arch_is_call(insn_at(m, i)))
			return true;
	return false;
}

/* True if there is no such edge yet. */
static bool is_new_handler(struct making *m, const struct cfg_block *b, vaddr_t pad)
{
	const struct cfg *g = m->g;

	for (uint32_t i = b->out; i < b->out + b->out_count; i++)
		if (g->edges[i].kind == EDGE_EXCEPTION && g->edges[i].target == pad)
			return false;
	return may_go_on(m, 1 + b->out_count / CFG_LOOK);
}

static void add_handler(struct making *m, int32_t from, const struct site *site)
{
	const struct cfg_block *b = &m->g->blocks[from];

	if (site->lo < b->end && site->hi > b->start && has_call(m, b, site->lo, site->hi) &&
	    is_new_handler(m, b, site->pad))
		add_edge(m, from, site->pad, EDGE_EXCEPTION);
}

static void add_handlers(struct making *m, struct sites *s, int32_t from)
{
	const struct cfg_block *b = &m->g->blocks[from];

	if (b->start < s->code.lo || b->start >= s->code.hi)
		read_sites(s, b->start);
	for (uint32_t i = s->ordered ? first_behind(s, b->start) : 0; i < s->count; i++) {
		if (!may_go_on(m, 1) || (s->ordered && s->items[i].lo >= b->end))
			break;
		add_handler(m, from, &s->items[i]);
	}
}

static int make_all_edges(struct making *m)
{
	struct cfg *g = m->g;
	struct sites sites = {.m = m};
	bool handlers = false;

	g->edge_count = 0;

	for (size_t i = 0; i < m->f->insns.count; i++)
		handlers |= m->bits[i] & IS_LANDING;
	for (uint32_t b = 0; b < g->block_count && m->status == 0; b++) {
		g->blocks[b].out = g->edge_count;
		g->blocks[b].out_count = 0;
		if (g->blocks[b].flags & BLOCK_UNREACHED)
			continue;
		add_edges(m, (int32_t)b);
		if (handlers && g->blocks[b].flags & BLOCK_CALLS)
			add_handlers(m, &sites, (int32_t)b);
	}
	free(sites.items);
	return m->status;
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

int cfg_make_edges(struct making *m)
{
	int r = make_edges(m);

	return r < 0 ? r : make_ways_in(m);
}
