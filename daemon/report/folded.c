/* SPDX-License-Identifier: MIT */
/*
 * folded.c - folded stacks.
 */
#include <inttypes.h>

#include "daemon/report/escape.h"
#include "daemon/report/folded.h"

/* A ';' in a name (there are operators and lambdas with anything in them) would be two functions. */
static void write_path(FILE *out, const struct call_node *node)
{
	const struct call_node *path[CALL_TREE_DEPTH];
	size_t depth = 0;

	for (; node->parent && depth < CALL_TREE_DEPTH; node = node->parent)
		path[depth++] = node;
	while (depth-- > 0) {
		escape_line(out, path[depth]->function, ";");
		if (depth)
			fputc(';', out);
	}
}

void folded_write(FILE *out, const struct call_tree *t)
{
	for (const struct call_node *n = call_tree_root(t); n; n = call_node_next(n, NULL)) {
		if (!n->parent || (!n->self_ns && n->children))
			continue;
		write_path(out, n);
		fprintf(out, " %" PRIu64 "\n", n->self_ns);
	}
}
