/* SPDX-License-Identifier: MIT */
/*
 * flame.c - the drawing of a call tree: a box for each path.
 *
 * Places are in percent of the width, so that the drawing is as wide as its window also where
 * no script runs.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/report/escape.h"
#include "daemon/report/flame.h"
#include "daemon/report/flame_script.h"
#include "daemon/report/flat.h"

enum {
	WIDTH_ASSUMED = 1200, /* px: how much of a name is shown where no script runs */
	GLYPH_WIDTH = 8,      /* px, rounded up */
	LEGEND_MOST = 8,
	LINES_FIRST = 3, /* lines of boxes that there is always room for */
};

/* In parts of the width: what is left free on the left, and what all boxes take. */
#define LEFT 0.005
#define SPAN 0.99

struct box {
	const struct call_node *node;
	double x, width; /* 0 to 1, of all boxes */
	unsigned line;
};

struct drawing {
	FILE *out;
	struct box *boxes;
	size_t count, left_out;
	unsigned lines;
	struct flat flat;
	size_t own; /* the number of the module of the first function */
};

/* One hue for each module, far apart from the next; the program's own comes first. */
static const int hues[LEGEND_MOST] = {30, 205, 110, 280, 170, 335, 55, 0};

/* Which of the hues, or one beyond them; the module of the first function has the first. */
static size_t hue_of(const struct drawing *d, size_t module)
{
	return module == d->own ? 0 : module < d->own ? module + 1 : module;
}

/* Where a clock saw nothing, calls are what can be drawn. */
static double weight_of(const struct call_node *node, bool by_count)
{
	return by_count ? (double)node->count : (double)node->total_ns;
}

/* What the children may take up: never more than the parent has, whatever clocks said. */
static double weight_below(const struct call_node *node, bool by_count)
{
	double below = 0;

	for (const struct call_node *n = node->children; n; n = n->next)
		below += weight_of(n, by_count);
	return below > weight_of(node, by_count) ? below : weight_of(node, by_count);
}

/* A root of one child would be a line that says nothing. */
static unsigned lines_above(const struct call_node *root)
{
	return root->children && !root->children->next ? 1 : 0;
}

static void place_boxes(struct drawing *d, const struct call_node *root)
{
	static const double none = 0;
	double next[CALL_TREE_DEPTH + 2] = {0}, scale[CALL_TREE_DEPTH + 2] = {0};
	const bool by_count = root->total_ns == 0;
	const unsigned above = lines_above(root);
	unsigned depth = 0;

	scale[0] = weight_of(root, by_count) > none ? 1 / weight_of(root, by_count) : 0;
	for (const struct call_node *n = root; n; n = call_node_next(n, &depth)) {
		const double x = next[depth], width = weight_of(n, by_count) * scale[depth];
		const double below = weight_below(n, by_count);

		next[depth] += width;
		next[depth + 1] = x;
		scale[depth + 1] = below > none ? width / below : 0;
		if (depth < above)
			continue;
		d->boxes[d->count++] = (struct box){n, x, width, depth - above};
		if (depth - above + 1 > d->lines)
			d->lines = depth - above + 1;
	}
}

static int by_width(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x < y) - (x > y);
}

/* Keeps the widest. Nothing is wider than what it is in, so no box stays without the one above. */
static int leave_out_narrow(struct drawing *d)
{
	double *widths, least;
	size_t kept = 0;

	if (d->count <= FLAME_BOXES)
		return 0;
	widths = calloc(d->count, sizeof(*widths));
	if (!widths)
		return DINST_NO_MEMORY;
	for (size_t i = 0; i < d->count; i++)
		widths[i] = d->boxes[i].width;
	qsort(widths, d->count, sizeof(*widths), by_width);
	least = widths[FLAME_BOXES];
	free(widths);
	d->lines = 0;
	for (size_t i = 0; i < d->count; i++) {
		if (d->boxes[i].width <= least)
			continue;
		if (d->boxes[i].line + 1 > d->lines)
			d->lines = d->boxes[i].line + 1;
		d->boxes[kept++] = d->boxes[i];
	}
	d->left_out = d->count - kept;
	d->count = kept;
	return 0;
}

/* ------------------------------------------------------------- writing */

static void put_time(FILE *out, uint64_t ns)
{
	if (ns >= 1000000000)
		fprintf(out, "%.3f s", (double)ns / 1e9);
	else if (ns >= 1000000)
		fprintf(out, "%.3f ms", (double)ns / 1e6);
	else if (ns >= 1000)
		fprintf(out, "%.2f us", (double)ns / 1e3);
	else
		fprintf(out, "%" PRIu64 " ns", ns);
}

static void put_attribute(FILE *out, const char *name, const char *value)
{
	fprintf(out, " %s=\"", name);
	escape_xml(out, value);
	fputc('"', out);
}

/* As much of the name as there is room for at the width that is assumed. */
static void put_label(FILE *out, const char *name, double width)
{
	const int room = (int)(width * SPAN * WIDTH_ASSUMED - 6) / GLYPH_WIDTH;
	char *text = NULL;
	size_t size = 0;
	FILE *shown = room >= 3 ? open_memstream(&text, &size) : NULL;

	if (!shown)
		return;
	for (int i = 0; i < room && *name; i++)
		escape_put(shown, escape_next(&name));
	if (fclose(shown) == 0)
		escape_xml(out, text);
	free(text);
}

static void put_color(struct drawing *d, const struct call_node *node)
{
	unsigned shade = 0;
	size_t module;

	if (!node->parent) {
		fputs(" fill=\"#d5d5d5\"", d->out);
		return;
	}
	module = hue_of(d, d->flat.functions[flat_find(&d->flat, node)].module_number);
	for (const char *s = node->function; *s; s++)
		shade = shade * 31 + (unsigned char)*s;
	fprintf(d->out, " fill=\"hsl(%d,%d%%,%u%%)\"",
		hues[module % LEGEND_MOST] + (int)(shade / 14 % 21) - 10,
		module < LEGEND_MOST ? 78 : 35, 66 + shade % 14);
}

static void put_box(struct drawing *d, const struct box *b)
{
	const struct call_node *n = b->node;
	const double x = (LEFT + b->x * SPAN) * 100, width = b->width * SPAN * 100;
	const char *name = n->parent ? n->function : "all";

	fprintf(d->out,
		"<g class=\"f\" data-x=\"%.9f\" data-w=\"%.9f\" data-d=\"%u\" data-c=\"%" PRIu64
		"\" data-t=\"%" PRIu64 "\" data-s=\"%" PRIu64 "\" data-l=\"%" PRIu64 "\"",
		b->x, b->width, b->line, n->count, n->total_ns, n->self_ns, n->most_ns);
	put_attribute(d->out, "data-f", name);
	put_attribute(d->out, "data-m", n->module);
	fputs("><title>", d->out);
	escape_xml(d->out, name);
	fprintf(d->out, " (%.2f %%, %" PRIu64 " calls, ", b->width * 100, n->count);
	put_time(d->out, n->total_ns);
	fputs(", self ", d->out);
	put_time(d->out, n->self_ns);
	fprintf(d->out, ")</title><rect x=\"%.6f%%\" y=\"%u\" width=\"%.6f%%\" height=\"%d\"", x,
		FLAME_TOP + b->line * FLAME_LINE, width, FLAME_BOX);
	put_color(d, n);
	fprintf(d->out, "/><text x=\"%.6f%%\" dx=\"3\" y=\"%u\">", x,
		FLAME_TOP + b->line * FLAME_LINE + 13);
	put_label(d->out, name, b->width);
	fputs("</text></g>\n", d->out);
}

static void put_legend(struct drawing *d)
{
	unsigned x = 10;

	for (size_t i = 0; i < d->flat.module_count; i++) {
		const size_t hue = hue_of(d, i);
		const char *name = d->flat.modules[i][0] ? d->flat.modules[i] : "?";

		if (hue >= LEGEND_MOST)
			continue;
		fprintf(d->out,
			"<rect x=\"%u\" y=\"50\" width=\"11\" height=\"11\" fill=\"hsl(%d,78%%,70%%)\"/>"
			"<text class=\"small\" x=\"%u\" y=\"60\">",
			x, hues[hue], x + 16);
		escape_xml(d->out, name);
		fputs("</text>\n", d->out);
		x += 34 + (unsigned)strnlen(name, 60) * 7;
	}
}

static void put_head(struct drawing *d, const struct flame_options *options)
{
	const unsigned lines = d->lines > LINES_FIRST ? d->lines : LINES_FIRST;
	/* below the boxes there is room for what the pointer shows */
	const unsigned height = FLAME_TOP + lines * FLAME_LINE + 130;

	fputs("<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>\n"
	      "<svg class=\"dinst-flame\" xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" "
	      "width=\"100%\"",
	      d->out);
	fprintf(d->out, " height=\"%u\" role=\"img\"", height);
	put_attribute(d->out, "aria-label", options->title);
	fprintf(d->out, ">\n%s<rect width=\"100%%\" height=\"100%%\" fill=\"#fdfdfb\"/>\n",
		flame_style);
	fputs("<text class=\"title\" x=\"10\" y=\"24\">", d->out);
	escape_xml(d->out, options->title);
	fputs("</text>\n<text class=\"small\" x=\"10\" y=\"42\">", d->out);
	if (options->subtitle)
		escape_xml(d->out, options->subtitle);
	if (d->left_out)
		fprintf(d->out, " (%zu of the narrowest boxes are left out)", d->left_out);
	fputs("</text>\n", d->out);
}

int flame_write(FILE *out, const struct call_tree *t, const struct flame_options *options)
{
	struct drawing d = {.out = out};
	struct call_tree_facts facts;
	int status = flat_make(&d.flat, t);

	if (status < 0)
		return status;
	call_tree_facts(t, &facts);
	d.boxes = calloc(facts.nodes + 1, sizeof(*d.boxes));
	status = d.boxes ? 0 : DINST_NO_MEMORY;
	if (!status) {
		d.own = call_tree_root(t)->children
				? d.flat.functions[flat_find(&d.flat, call_tree_root(t)->children)]
					  .module_number
				: 0;
		place_boxes(&d, call_tree_root(t));
		status = leave_out_narrow(&d);
	}
	if (!status) {
		put_head(&d, options);
		put_legend(&d);
		fputs(flame_bar, out);
		for (size_t i = 0; i < d.count; i++)
			put_box(&d, &d.boxes[i]);
		fputs("<g id=\"tip\"></g>\n", out);
		fputs(flame_script, out);
		fputs("</svg>\n", out);
	}
	free(d.boxes);
	flat_release(&d.flat);
	return status;
}
