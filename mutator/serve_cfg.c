/* SPDX-License-Identifier: MIT */
/*
 * serve_cfg.c - the method cfg: the blocks, edges and loops of functions, in
 * rows or as a drawing in the language of graphviz.
 *
 * Nothing here stops or changes the target.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "mutator/cfg.h"
#include "mutator/serve.h"

/*
 * Edges that are told in one answer, which takes about a gigabyte to make. PHP's interpreter,
 * one function, has 1.3 million. That a block is in a loop takes less, but there may be more of it.
 */
enum { EDGES_MOST = 2000000, LOOPS_AS_EDGE = 16 };

/* A function's graph while it is told. */
struct telling {
	struct session *session;
	struct module *module;
	uint32_t index;
	const char *name;
	struct flow flow;
	struct cfg cfg;
	const struct function_plan *plan; /* for marking points */
	size_t *edges;			  /* of all functions so far: see EDGES_MOST */
};

static int open_graph(struct telling *t, struct dinst_error *e)
{
	const struct image_function *functions;
	struct image *img = t->module->image;
	struct freemap *map;
	int status = session_plan(t->session, t->module, t->index, &t->plan, e);

	image_functions(img, &functions);
	t->name = image_readable_name(img, functions[t->index].name);
	if (status >= 0)
		status = freemap_of(img, &map, e);
	if (status >= 0)
		status = flow_build(&t->flow, img, map, t->index, e);
	if (status < 0)
		return status;
	status = cfg_build(&t->cfg, &t->flow, e);
	if (status < 0)
		flow_release(&t->flow);
	return status;
}

static void close_graph(struct telling *t)
{
	cfg_release(&t->cfg);
	flow_release(&t->flow);
}

/* ------------------------------------------------------------------- rows */

static const struct {
	enum cfg_block_flag flag;
	const char *name;
} flag_names[] = {
	{BLOCK_ENTRY, "entry"},	    {BLOCK_EXIT, "exit"},   {BLOCK_LANDING, "handler"},
	{BLOCK_ENTERED, "entered"}, {BLOCK_COLD, "cold"},   {BLOCK_UNREACHED, "unreached"},
	{BLOCK_STOPS, "stops"},	    {BLOCK_CALLS, "calls"},
};

static json_t *flags_json(uint32_t flags)
{
	json_t *names = json_array();

	/* That the entry is entered needs no saying. */
	if (flags & BLOCK_ENTRY)
		flags &= ~(uint32_t)BLOCK_ENTERED;
	for (size_t i = 0; i < sizeof(flag_names) / sizeof(*flag_names); i++)
		if (flags & flag_names[i].flag)
			json_array_append_new(names, json_string(flag_names[i].name));
	return names;
}

static json_t *edges_json(const struct telling *t, const struct cfg_block *b)
{
	json_t *edges = json_array();

	for (uint32_t i = b->out; i < b->out + b->out_count; i++) {
		const struct cfg_edge *edge = &t->cfg.edges[i];
		json_t *row = json_pack("{s:s}", "kind", cfg_edge_name(edge->kind));

		json_object_set_new(row, "block",
				    edge->to == CFG_NONE ? json_null() : json_integer(edge->to));
		json_object_set_new(row, "address",
				    edge->kind == EDGE_UNKNOWN
					    ? json_null()
					    : serve_address(edge->target + t->module->bias));
		json_object_set_new(row, "back", json_boolean(edge->back));
		json_array_append_new(edges, row);
	}
	return edges;
}

/* The loops that a block is in, by the block numbers of their headers, outermost first. */
static json_t *loops_json(const struct telling *t, const struct cfg_block *b)
{
	json_t *loops = json_array(), *inner = json_array();

	for (int32_t l = b->loop; l != CFG_NONE; l = t->cfg.loops[l].parent)
		json_array_append_new(inner, json_integer(t->cfg.loops[l].header));
	for (size_t i = json_array_size(inner); i-- > 0;)
		json_array_append(loops, json_array_get(inner, i));
	json_decref(inner);
	return loops;
}

static bool is_irreducible(const struct telling *t, const struct cfg_block *b)
{
	return b->loop != CFG_NONE && t->cfg.loops[b->loop].irreducible;
}

static json_t *block_row(const struct telling *t, uint32_t index)
{
	const struct cfg_block *b = &t->cfg.blocks[index];
	json_t *row =
		json_pack("{s:o, s:o, s:I, s:o, s:I, s:I, s:o, s:o, s:o, s:o}", "module",
			  serve_text(t->module->name), "function", serve_text(t->name), "block",
			  (json_int_t)index, "address", serve_address(b->start + t->module->bias),
			  "size", (json_int_t)(b->end - b->start), "instructions",
			  (json_int_t)b->count, "flags", flags_json(b->flags), "loops",
			  loops_json(t, b), "edges", edges_json(t, b), "dominator",
			  b->dominator == CFG_NONE ? json_null() : json_integer(b->dominator));

	if (is_irreducible(t, b))
		json_object_set_new(row, "irreducible", json_true());
	if (t->cfg.unresolved)
		json_object_set_new(row, "unresolved", json_true());
	return row;
}

static int tell_rows(struct telling *t, json_t *rows, struct dinst_error *e)
{
	if (json_array_size(rows) + t->cfg.block_count > SERVE_ROWS_MAX)
		return serve_too_many("blocks", "", e);
	for (uint32_t i = 0; i < t->cfg.block_count; i++)
		json_array_append_new(rows, block_row(t, i));
	return 0;
}

/* ---------------------------------------------------------------- drawing */

/* What stands between quotes in graphviz's language. */
static void put_quoted(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', out);
		fputc((unsigned char)*text < 0x20 ? '?' : *text, out);
	}
}

/* The first point at v or behind it; the entry, which comes before all, apart. */
static size_t point_from(const struct function_plan *plan, vaddr_t v)
{
	size_t lo = 0, hi = plan->point_count;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		const struct point *p = &plan->points[mid];

		if (p->kind == POINT_ENTRY || p->address < v)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* "; entry jump", for the points at an instruction. */
static void put_points(const struct telling *t, FILE *out, vaddr_t v)
{
	const struct function_plan *plan = t->plan;
	bool any = false;
	size_t i = plan->point_count && plan->points[0].kind == POINT_ENTRY &&
				   plan->points[0].address == v
			   ? 0
			   : point_from(plan, v);

	for (; i < plan->point_count; i++) {
		const struct point *p = &plan->points[i];

		if (p->kind != POINT_ENTRY && p->address > v)
			break;
		if (p->address != v || p->part || p->kind > POINT_CALL)
			continue;
		fprintf(out, "%s %s: ", any ? "," : "   ;", point_kind_name(p->kind));
		if (p->window < 0)
			fprintf(out, "refused, %s", refusal_name(p->refusal));
		else
			fputs(tactic_name(p->tactic), out);
		any = true;
	}
}

static const char *fill_of(const struct cfg_block *b)
{
	if (b->flags & BLOCK_ENTRY)
		return "lightgreen";
	if (b->flags & BLOCK_EXIT)
		return "lightblue";
	if (b->flags & BLOCK_LANDING)
		return "plum";
	if (b->flags & BLOCK_COLD)
		return "lightgrey";
	return "white";
}

static void draw_block(const struct telling *t, FILE *out, uint32_t index)
{
	const struct cfg_block *b = &t->cfg.blocks[index];
	const struct cfg_loop *loop = b->loop == CFG_NONE ? NULL : &t->cfg.loops[b->loop];

	fprintf(out, "\tb%u [fillcolor=%s%s, label=\"%u", index, fill_of(b),
		b->flags & BLOCK_UNREACHED ? ", style=\"filled,dashed\"" : "", index);
	if (loop)
		fprintf(out, "   loop %d, depth %u%s", (int)loop->header, loop->depth,
			loop->irreducible ? ", irreducible" : "");
	fputs("\\l", out);
	for (size_t i = b->first; i < b->first + b->count; i++) {
		const struct arch_insn *insn = &t->flow.insns.items[i];
		char text[SERVE_INSN_TEXT];

		serve_disassemble(t->module, insn, text, sizeof(text));
		fprintf(out, "%" PRIx64 "  ", insn->address + t->module->bias);
		put_quoted(out, text);
		put_points(t, out, insn->address);
		fputs("\\l", out);
	}
	fputs("\"];\n", out);
}

static const char *style_of(const struct cfg_edge *edge)
{
	switch (edge->kind) {
	case EDGE_FALL:
		return "color=black";
	case EDGE_BRANCH:
		return "color=darkgreen";
	case EDGE_JUMP:
		return "color=blue";
	case EDGE_TABLE:
		return "color=orange";
	case EDGE_EXCEPTION:
		return "color=purple, style=dotted";
	default:
		return "color=red, style=dashed";
	}
}

/* What an edge leads to outside of the function: a node of its own. */
static void draw_outside(const struct telling *t, FILE *out, uint32_t index)
{
	const struct cfg_edge *edge = &t->cfg.edges[index];
	long at =
		edge->kind == EDGE_UNKNOWN ? -1 : image_function_at(t->module->image, edge->target);
	const struct image_function *functions;

	fprintf(out, "\to%u [shape=plaintext, fillcolor=white, label=\"", index);
	image_functions(t->module->image, &functions);
	if (edge->kind == EDGE_UNKNOWN)
		fputs("unknown", out);
	else if (at >= 0 && functions[at].address == edge->target)
		put_quoted(out, image_readable_name(t->module->image, functions[at].name));
	else
		fprintf(out, "%" PRIx64, edge->target + t->module->bias);
	fputs("\"];\n", out);
}

static void draw_edge(const struct telling *t, FILE *out, uint32_t index)
{
	const struct cfg_edge *edge = &t->cfg.edges[index];

	if (edge->to == CFG_NONE)
		draw_outside(t, out, index);
	fprintf(out, "\tb%d -> %c%d [%s%s];\n", (int)edge->from, edge->to == CFG_NONE ? 'o' : 'b',
		edge->to == CFG_NONE ? (int)index : (int)edge->to, style_of(edge),
		edge->back ? ", penwidth=3, label=\"loop\"" : "");
}

static int draw(struct telling *t, json_t **result, struct dinst_error *e)
{
	char *bytes = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&bytes, &size);
	bool failed;

	if (!out)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for a drawing");
	fputs("digraph \"", out);
	put_quoted(out, t->name);
	fputs("\" {\n\tlabel=\"", out);
	put_quoted(out, t->module->name);
	fputs(": ", out);
	put_quoted(out, t->name);
	fprintf(out, "%s\";\n\tnode [shape=box, style=filled, fontname=\"monospace\"];\n",
		t->cfg.unresolved ? " (an indirect jump is not resolved)" : "");
	for (uint32_t i = 0; i < t->cfg.block_count; i++)
		draw_block(t, out, i);
	for (uint32_t i = 0; i < t->cfg.edge_count; i++)
		draw_edge(t, out, i);
	fputs("}\n", out);
	failed = ferror(out);
	if (fclose(out) != 0 || failed) {
		free(bytes);
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for a drawing");
	}
	*result = json_pack("{s:o, s:o, s:o}", "module", serve_text(t->module->name), "function",
			    serve_text(t->name), "dot", serve_text(bytes));
	free(bytes);
	return 0;
}

/* --------------------------------------------------------------- the method */

static int tell(struct telling *t, bool dot, json_t *rows, json_t **result, struct dinst_error *e)
{
	int status = open_graph(t, e);

	if (status < 0)
		return status;
	*t->edges += t->cfg.edge_count + t->cfg.body_count / LOOPS_AS_EDGE;
	if (*t->edges > EDGES_MOST)
		status = dinst_fail(
			e, DINST_UNSUPPORTED,
			"too many edges and loops to tell: more than %d with those of %.100s",
			EDGES_MOST, t->name);
	else
		status = dot ? draw(t, result, e) : tell_rows(t, rows, e);
	close_graph(t);
	return status;
}

int serve_cfg(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e)
{
	const char *pattern = json_string_value(json_object_get(params, "pattern"));
	bool dot = json_is_true(json_object_get(params, "dot"));
	struct function_ref *found = NULL;
	json_t *rows = NULL;
	struct session *s;
	size_t count = 0, edges = 0;
	int status = serve_session(sv, &s, e);

	if (status >= 0 && !pattern)
		status = dinst_fail(e, DINST_USAGE, "cfg needs a function");
	if (status >= 0)
		status = *pattern == '/' ? find_resource(s->modules, pattern, &found, &count, e)
					 : find_functions(s->modules, pattern, &found, &count, e);
	if (status < 0)
		return status;
	rows = json_array();
	if (dot && count > 1)
		status = dinst_fail(e, DINST_USAGE,
				    "%zu functions match %s: a drawing is of one, for example "
				    "MODULE:NAME",
				    count, pattern);
	for (size_t i = 0; i < count && status >= 0; i++) {
		struct telling t = {.session = s,
				    .module = found[i].module,
				    .index = found[i].index,
				    .edges = &edges};

		status = tell(&t, dot, rows, result, e);
	}
	free(found);
	if (status >= 0 && !dot)
		*result = serve_rows(json_incref(rows));
	json_decref(rows);
	return status;
}
