/* SPDX-License-Identifier: MIT */
/*
 * flat.c - the functions of a call tree, each once.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/report/flat.h"

static int by_name(const void *a, const void *b)
{
	const struct flat_function *x = a, *y = b;
	int order = strcmp(x->module, y->module);

	return order ? order : strcmp(x->function, y->function);
}

size_t flat_find(const struct flat *f, const struct call_node *node)
{
	const struct flat_function key = {.function = node->function, .module = node->module};
	const struct flat_function *at =
		bsearch(&key, f->functions, f->count, sizeof(*f->functions), by_name);

	return (size_t)(at - f->functions);
}

/* Is one of its callers the same function? Then its time is in that one's already. */
static bool is_inner(const struct call_node *node)
{
	for (const struct call_node *n = node->parent; n->parent; n = n->parent)
		if (n->function == node->function && n->module == node->module)
			return true;
	return false;
}

static void add_costs(struct flat *f, const struct call_tree *t)
{
	for (const struct call_node *n = call_tree_root(t); n; n = call_node_next(n, NULL)) {
		struct flat_function *function;

		if (!n->parent)
			continue;
		function = &f->functions[flat_find(f, n)];
		function->count += n->count;
		function->self_ns += n->self_ns;
		function->total_ns += is_inner(n) ? 0 : n->total_ns;
	}
}

int flat_make(struct flat *f, const struct call_tree *t)
{
	struct call_tree_facts facts;
	size_t count = 0;

	call_tree_facts(t, &facts);
	*f = (struct flat){.functions = calloc(facts.nodes + 1, sizeof(*f->functions)),
			   .modules = calloc(facts.nodes + 1, sizeof(*f->modules))};
	if (!f->functions || !f->modules) {
		flat_release(f);
		return DINST_NO_MEMORY;
	}
	for (const struct call_node *n = call_tree_root(t); n; n = call_node_next(n, NULL))
		if (n->parent)
			f->functions[count++] = (struct flat_function){.function = n->function,
								       .module = n->module};
	qsort(f->functions, count, sizeof(*f->functions), by_name);
	for (size_t i = 0; i < count; i++) {
		struct flat_function *one = &f->functions[i];

		if (i && by_name(one, &f->functions[f->count - 1]) == 0)
			continue;
		if (!f->module_count || strcmp(f->modules[f->module_count - 1], one->module) != 0)
			f->modules[f->module_count++] = one->module;
		one->module_number = f->module_count - 1;
		f->functions[f->count++] = *one;
	}
	add_costs(f, t);
	return 0;
}

void flat_release(struct flat *f)
{
	free(f->functions);
	free(f->modules);
	*f = (struct flat){0};
}
