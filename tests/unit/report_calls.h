/* SPDX-License-Identifier: MIT */
/*
 * report_calls.h - threads that call and return, without a target: made-up events for call trees.
 */
#ifndef DINST_TESTS_REPORT_CALLS_H
#define DINST_TESTS_REPORT_CALLS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/report/tree.h"

struct calls {
	struct call_tree *tree;
	uint64_t ns;	 /* the time */
	uint32_t tid;	 /* who is calling */
	bool with_stack; /* events have the field `$stack` */
	uint64_t stack;
	uint64_t run; /* the field `run` */
};

static inline int calls_event(struct calls *c, enum event_what what, const char *function,
			      const char *module)
{
	struct event_field fields[2] = {
		{.form = EVENT_VALUE, .text = (char *)"$stack", .offset = 24, .size = 8},
		{.form = EVENT_VALUE, .text = (char *)"run", .offset = 32, .size = 8},
	};
	struct event_kind kind = {.id = 1,
				  .what = what,
				  .function = (char *)function,
				  .module = (char *)module,
				  .fields = fields,
				  .field_count = c->with_stack ? 2 : 0};
	uint8_t data[40] = {0};
	struct event e = {.ns = c->ns,
			  .tid = c->tid,
			  .pid = 77,
			  .kind = &kind,
			  .data = data,
			  .size = c->with_stack ? 40 : 24};

	memcpy(data + 24, &c->stack, 8);
	memcpy(data + 32, &c->run, 8);
	return call_tree_event(c->tree, &e);
}

/* Time passes, then a function is entered: its frame is below. */
static inline void enter(struct calls *c, const char *function, unsigned ns)
{
	c->ns += ns;
	c->stack -= 64;
	if (calls_event(c, EVENT_ENTRY, function, "prog") != 0)
		abort();
}

static inline void leave(struct calls *c, const char *function, unsigned ns)
{
	c->ns += ns;
	if (calls_event(c, EVENT_RETURN, function, "prog") != 0)
		abort();
	c->stack += 64;
}

static inline void calls_begin(struct calls *c, bool with_stack)
{
	*c = (struct calls){.tree = call_tree_new(),
			    .ns = 1000,
			    .tid = 1,
			    .with_stack = with_stack,
			    .stack = 0x7ffc00000000};
	if (!c->tree)
		abort();
}

/* The tree as text: "a 2 30 10 (b 1 20 20)", with count, total and self of each. */
static inline char *tree_text(const struct call_tree *t)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	unsigned depth = 0, before = 0;

	for (const struct call_node *n = call_tree_root(t)->children; n;) {
		for (; before > depth; before--)
			fputc(')', out);
		if (before < depth)
			fputs(" (", out);
		else if (n != call_tree_root(t)->children)
			fputc(' ', out);
		before = depth;
		fprintf(out, "%s %llu %llu %llu", n->function, (unsigned long long)n->count,
			(unsigned long long)n->total_ns, (unsigned long long)n->self_ns);
		n = call_node_next(n, &depth);
	}
	for (; before > 0; before--)
		fputc(')', out);
	fclose(out);
	return text;
}

#endif
