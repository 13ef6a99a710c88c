/* SPDX-License-Identifier: MIT */
/*
 * graph_show.c - the call tree as people read it: hottest first, with bars, cut to the terminal; and
 * as JSON, a node a line.
 */
#include "daemon/client/graph.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/client/values.h"

enum {
	BAR = 10,	 /* characters of the bar of 100 % */
	COLUMNS_ANY = 0, /* lines that nobody sees are not cut */
	COLUMNS_WIDE = 100,
	COLUMNS_NARROW = 72,
	COLUMNS_LITTLE = 60,
	NAME_LEAST = 4,
	NAMES_SHOWN = 8,
};

/* Less of the root's time than this is summed up in one line, unless with -v. */
static const double least_share = 0.001;

struct show {
	const struct graph *g;
	const struct call_node *root;
	size_t columns;			/* 0: any number */
	bool fine;			/* UTF-8 */
	bool weigh_calls;		/* no clock saw any time */
	bool last[CALL_TREE_DEPTH + 2]; /* on each level: is it the last child? */
};

static double share_of(const struct show *s, const struct call_node *n)
{
	if (s->weigh_calls)
		return s->root->count ? (double)n->count / (double)s->root->count : 0;
	return s->root->total_ns ? (double)n->total_ns / (double)s->root->total_ns : 0;
}

/* Characters, not bytes. */
static size_t width_of(const char *text)
{
	size_t width = 0;

	for (; *text; text++)
		width += ((unsigned char)*text & 0xc0) != 0x80;
	return width;
}

static void put_bar(const struct show *s, double share)
{
	static const char *const parts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
	const int eighths = share < 0 ? 0 : share > 1 ? BAR * 8 : (int)(share * BAR * 8 + 0.5);
	int used = eighths / 8;

	for (int i = 0; i < eighths / 8; i++)
		fputs(s->fine ? "█" : "#", stdout);
	if (eighths % 8 && s->fine) {
		fputs(parts[eighths % 8], stdout);
		used++;
	}
	printf("%*s ", BAR - used, "");
}

/* What stands in front of the name: "│  ├─ ". */
static void branches(const struct show *s, unsigned depth, char *text, size_t size)
{
	size_t used = 0;

	text[0] = '\0';
	for (unsigned i = 2; i <= depth && used + 16 < size; i++) {
		const bool end = i == depth;
		const char *piece =
			s->last[i] ? (end ? (s->fine ? "└─ " : "`- ") : "   ")
				   : (end ? (s->fine ? "├─ " : "|- ") : (s->fine ? "│  " : "|  "));

		/* where there is no room, a column for each level */
		if (s->columns && s->columns < COLUMNS_LITTLE)
			piece = s->fine ? (end ? "·" : " ") : (end ? "." : " ");
		used += (size_t)snprintf(text + used, size - used, "%s", piece);
	}
}

/* The name, cut at the end of the line. */
static void put_name(const struct show *s, unsigned depth, const char *name, size_t used)
{
	char lead[3 * 5 * 64], *clean = strdup(name);
	size_t room;

	branches(s, depth, lead, sizeof(lead));
	fputs(lead, stdout);
	used += width_of(lead);
	room = !s->columns			? SIZE_MAX
	       : s->columns > used + NAME_LEAST ? s->columns - used
						: NAME_LEAST;
	if (clean)
		text_clean(clean, false);
	name = clean ? clean : "?";
	if (width_of(name) <= room) {
		puts(name);
	} else {
		size_t kept = 0, width = 0;

		/* whole characters only */
		while (name[kept] && width < room - (s->fine ? 1 : 3)) {
			kept++;
			while (((unsigned char)name[kept] & 0xc0) == 0x80)
				kept++;
			width++;
		}
		printf("%.*s%s\n", (int)kept, name, s->fine ? "…" : "...");
	}
	free(clean);
}

static void put_line(const struct show *s, const struct call_node *n, unsigned depth)
{
	char total[VALUE_TEXT], self[VALUE_TEXT], each[VALUE_TEXT];
	const double share = share_of(s, n);
	size_t used = 0;

	value_with_unit((double)n->total_ns, "ns", total);
	value_with_unit((double)n->self_ns, "ns", self);
	value_with_unit(n->count ? (double)n->total_ns / (double)n->count : 0, "ns", each);
	used += (size_t)printf("%5.1f%% ", share * 100);
	if (!s->columns || s->columns >= COLUMNS_WIDE) {
		put_bar(s, share);
		used += BAR + 1;
	}
	used += (size_t)printf("%9s ", total);
	if (!s->columns || s->columns >= COLUMNS_NARROW)
		used += (size_t)printf("%9s %9s ", self, each);
	used += (size_t)printf("%9" PRIu64 "  ", n->count);
	put_name(s, depth, n->function, used);
}

static void put_titles(const struct show *s)
{
	const bool wide = !s->columns || s->columns >= COLUMNS_WIDE;

	printf("%6s %*s%9s ", "TIME", wide ? BAR + 1 : 0, "", "TOTAL");
	if (!s->columns || s->columns >= COLUMNS_NARROW)
		printf("%9s %9s ", "SELF", "EACH");
	printf("%9s  FUNCTION\n", "CALLS");
}

static bool is_shown(const struct show *s, const struct call_node *n, unsigned depth)
{
	return depth <= s->g->depth + 1 && (s->g->c->verbose || share_of(s, n) >= least_share);
}

/* What is not shown of a node's children, in one line. */
static void put_rest(const struct show *s, const struct call_node *parent, unsigned depth)
{
	uint64_t calls = 0, functions = 0, ns = 0;
	char total[VALUE_TEXT], text[120];
	struct show last = *s;
	size_t used;

	for (const struct call_node *n = parent->children; n; n = n->next) {
		if (is_shown(s, n, depth))
			continue;
		functions++;
		calls += n->count;
		ns += n->total_ns;
	}
	if (!functions)
		return;
	value_with_unit((double)ns, "ns", total);
	snprintf(text, sizeof(text), "(%" PRIu64 " more, %" PRIu64 " calls, %s)", functions, calls,
		 total);
	last.last[depth] = true;
	used = (size_t)printf("%*s",
			      (int)(7 + (!s->columns || s->columns >= COLUMNS_WIDE ? BAR + 1 : 0) +
				    10 + (!s->columns || s->columns >= COLUMNS_NARROW ? 20 : 0) +
				    11),
			      "");
	put_name(&last, depth, text, used);
}

/* The tree is at most CALL_TREE_DEPTH deep, and shown no deeper than --depth. */
static void put_tree(struct show *s, const struct call_node *n, unsigned depth)
{
	bool rest = false;

	put_line(s, n, depth);
	for (const struct call_node *k = n->children; k; k = k->next)
		rest = rest || !is_shown(s, k, depth + 1);
	for (const struct call_node *k = n->children; k; k = k->next) {
		const struct call_node *next = k->next;

		while (next && !is_shown(s, next, depth + 1))
			next = next->next;
		s->last[depth + 1] = !next && !rest;
		if (is_shown(s, k, depth + 1))
			put_tree(s, k, depth + 1);
	}
	put_rest(s, n, depth + 1);
}

/* ------------------------------------------------------------------ heads */

void graph_title(const struct graph *g, char *text, size_t size)
{
	snprintf(text, size, "%s in %s (pid %d)", g->functions[0].name, g->functions[0].module,
		 (int)g->q.pid);
}

static uint64_t lost(const struct graph *g)
{
	return g->log->dropped - g->lost_before;
}

static double seconds_of(const struct graph *g)
{
	return (double)g->counted_ns / 1e9;
}

void graph_subtitle(const struct graph *g, char *text, size_t size)
{
	const struct call_node *root = call_tree_root(g->exports.tree);
	int used = snprintf(text, size, "%.1f s, %" PRIu64 " of %" PRIu64 " calls followed",
			    seconds_of(g), root->count,
			    g->root_calls > root->count ? g->root_calls : root->count);

	if (g->every > 1 && used > 0 && (size_t)used < size)
		used += snprintf(text + used, size - (size_t)used, " (1 of %u)", g->every);
	if (used > 0 && (size_t)used < size)
		snprintf(text + used, size - (size_t)used, ", %" PRIu64 " events, %s%" PRIu64,
			 g->events_seen, lost(g) ? "LOST " : "lost ", lost(g));
}

/* What it took of one processor: records, and looks whether to record. */
static double cost_percent(const struct graph *g)
{
	const double look_ns = 3, seconds = seconds_of(g);
	const double looks = (double)g->root_calls * g->visits;
	const double ns = (double)g->log->events * g->predicted_ns + looks * look_ns;

	return seconds > 0 ? ns / (seconds * 1e9) * 100 : 0;
}

/* "sdslen 41, zmalloc 38": what is called too often, per call of the root. */
static void note_hot(const struct graph *g)
{
	char text[600] = "";
	size_t used = 0, hot = 0;

	for (size_t i = 0; i < g->count; i++) {
		const struct graph_function *f = &g->functions[i];

		if (!f->hot || hot++ >= NAMES_SHOWN || used + 80 >= sizeof(text))
			continue;
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%.60s (%.0f)",
					 used ? ", " : "", f->name, f->per_call);
	}
	if (hot)
		note(g->c,
		     "not followed, for being called too often (times in each call): %s%s; their time is their "
		     "callers' (--budget follows more)",
		     text, hot > NAMES_SHOWN ? ", ..." : "");
}

static void notes(const struct graph *g)
{
	const char *uncovered = NULL;

	note_hot(g);
	if (lost(g))
		note(g->c,
		     "%" PRIu64
		     " events were lost: calls of which some were lost are left out; a lower "
		     "--budget loses fewer",
		     lost(g));
	if (g->blind)
		note(g->c,
		     "it was not called at first: only the %zu functions that its code may call are "
		     "followed",
		     g->count - 1);
	else if (g->too_many)
		note(g->c,
		     "there are more than %d functions below it; the nearest ones are followed",
		     GRAPH_FUNCTIONS);
	for (size_t i = 0; i < g->count && !uncovered; i++)
		if (g->functions[i].follows && !g->blind && g->depth &&
		    !graph_covers(g, g->functions[i].module))
			uncovered = g->functions[i].module;
	if (uncovered)
		note(g->c, "%s is too large to find in it what is called through pointers",
		     uncovered);
	note_tree(g->c, g->exports.tree);
}

/* ------------------------------------------------------------------- JSON */

static json_t *path_of(const struct call_node *n)
{
	json_t *path = json_array();

	for (; n->parent; n = n->parent)
		json_array_insert_new(path, 0, rpc_text(n->function));
	return path;
}

static void show_json(struct show *s)
{
	const struct graph *g = s->g;
	unsigned depth = 0;
	json_t *row = json_pack("{s:s,s:o,s:o,s:i,s:f,s:I,s:I,s:i,s:I,s:I,s:f,s:I,s:i}", "kind",
				"graph", "function", rpc_text(g->functions[0].name), "module",
				rpc_text(g->functions[0].module), "pid", (int)g->q.pid, "seconds",
				seconds_of(g), "calls", (json_int_t)g->root_calls, "followed",
				(json_int_t)s->root->count, "every", (int)g->every, "events",
				(json_int_t)g->events_seen, "lost", (json_int_t)lost(g),
				"cost_percent", cost_percent(g), "stop_us", (json_int_t)g->stop_us,
				"depth", (int)g->depth);
	json_t *hot = json_array();

	for (size_t i = 0; i < g->count; i++)
		if (g->functions[i].hot)
			json_array_append_new(hot, rpc_text(g->functions[i].name));
	json_object_set_new(row, "not_followed", hot);
	print_json(row);
	json_decref(row);
	for (const struct call_node *n = s->root; n; n = call_node_next(n, &depth)) {
		if (!depth || depth > g->depth + 1)
			continue;
		row = json_pack("{s:s,s:i,s:o,s:o,s:I,s:I,s:I,s:I,s:I,s:f,s:o}", "kind", "node",
				"depth", (int)depth - 1, "function", rpc_text(n->function),
				"module", rpc_text(n->module), "calls", (json_int_t)n->count,
				"total_ns", (json_int_t)n->total_ns, "self_ns",
				(json_int_t)n->self_ns, "longest_ns", (json_int_t)n->most_ns,
				"running", (json_int_t)n->open, "percent", share_of(s, n) * 100,
				"path", path_of(n));
		print_json(row);
		json_decref(row);
	}
}

int graph_show(struct graph *g)
{
	struct show s = {.g = g, .root = call_tree_root(g->exports.tree), .fine = output_is_fine()};
	char text[400];

	s.weigh_calls = s.root->total_ns == 0;
	if (g->c->json) {
		show_json(&s);
		return flush_output(g->c, EXIT_DONE);
	}
	if (g->q.terminal)
		s.columns = output_columns(COLUMNS_ANY);
	graph_title(g, text, sizeof(text));
	text_clean(text, false);
	printf("%s\n", text);
	graph_subtitle(g, text, sizeof(text));
	printf("%s\ncost: about %.1f %% of one processor, stopped for %.1f ms in all\n\n", text,
	       cost_percent(g), (double)g->stop_us / 1000);
	if (s.root->children) {
		put_titles(&s);
		for (const struct call_node *n = s.root->children; n; n = n->next)
			put_tree(&s, n, 1);
	} else {
		printf("%s was not called meanwhile\n", g->functions[0].name);
	}
	notes(g);
	return flush_output(g->c, EXIT_DONE);
}
