/* SPDX-License-Identifier: MIT */
/*
 * callgrind.c - profiles of callgrind: a paragraph for each function, with its calls; names are
 * told once and then by number.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/report/callgrind.h"
#include "daemon/report/escape.h"
#include "daemon/report/flat.h"

/* What one function's calls of another came to. */
struct call {
	size_t caller, callee; /* numbers of flat.h */
	uint64_t count, total_ns;
};

struct writer {
	FILE *out;
	struct flat flat;
	struct call *calls; /* sorted */
	size_t call_count;
	bool *function_told, *module_told;
};

static int by_ends(const void *a, const void *b)
{
	const struct call *x = a, *y = b;

	if (x->caller != y->caller)
		return x->caller < y->caller ? -1 : 1;
	return x->callee < y->callee ? -1 : x->callee > y->callee;
}

static void find_calls(struct writer *w, const struct call_tree *t)
{
	size_t count = 0;

	for (const struct call_node *n = call_tree_root(t); n; n = call_node_next(n, NULL))
		if (n->parent && n->parent->parent)
			w->calls[count++] = (struct call){.caller = flat_find(&w->flat, n->parent),
							  .callee = flat_find(&w->flat, n),
							  .count = n->count,
							  .total_ns = n->total_ns};
	qsort(w->calls, count, sizeof(*w->calls), by_ends);
	for (size_t i = 0; i < count; i++) {
		struct call *last = w->call_count ? &w->calls[w->call_count - 1] : NULL;

		if (last && by_ends(last, &w->calls[i]) == 0) {
			last->count += w->calls[i].count;
			last->total_ns += w->calls[i].total_ns;
		} else {
			w->calls[w->call_count++] = w->calls[i];
		}
	}
}

/* "key=(number) name" the first time, then "key=(number)". */
static void put_name(FILE *out, const char *key, size_t number, const char *name, bool *told)
{
	fprintf(out, "%s=(%zu)", key, number + 1);
	if (!told[number]) {
		fputc(' ', out);
		escape_line(out, name[0] ? name : "???", "");
	}
	told[number] = true;
	fputc('\n', out);
}

static void put_function(struct writer *w, const char *module_key, const char *key, size_t number)
{
	const struct flat_function *f = &w->flat.functions[number];

	put_name(w->out, module_key, f->module_number, f->module, w->module_told);
	put_name(w->out, key, number, f->function, w->function_told);
}

/* Lines are not known, so all is at line 0. */
static void put_costs(struct writer *w)
{
	const struct call *call = w->calls, *end = w->calls + w->call_count;

	for (size_t i = 0; i < w->flat.count; i++) {
		const struct flat_function *f = &w->flat.functions[i];

		fputc('\n', w->out);
		put_function(w, "ob", "fn", i);
		fprintf(w->out, "0 %" PRIu64 " %" PRIu64 "\n", f->self_ns, f->count);
		for (; call < end && call->caller == i; call++) {
			put_function(w, "cob", "cfn", call->callee);
			fprintf(w->out, "calls=%" PRIu64 " 0\n0 %" PRIu64 " %" PRIu64 "\n",
				call->count, call->total_ns, call->count);
		}
	}
}

static void put_head(struct writer *w, const char *command)
{
	uint64_t self = 0, count = 0;

	for (size_t i = 0; i < w->flat.count; i++) {
		self += w->flat.functions[i].self_ns;
		count += w->flat.functions[i].count;
	}
	fputs("# callgrind format\nversion: 1\ncreator: dinst\ncmd: ", w->out);
	escape_line(w->out, command, "");
	fprintf(w->out,
		"\npositions: line\nevent: ns : Nanoseconds\nevent: Calls : Calls\nevents: ns Calls\n"
		"summary: %" PRIu64 " %" PRIu64 "\n\nfl=(1) ???\n",
		self, count);
}

int callgrind_write(FILE *out, const struct call_tree *t, const char *command)
{
	struct writer w = {.out = out};
	struct call_tree_facts facts;
	int status = flat_make(&w.flat, t);

	if (status < 0)
		return status;
	call_tree_facts(t, &facts);
	w.calls = calloc(facts.nodes + 1, sizeof(*w.calls));
	w.function_told = calloc(w.flat.count + 1, sizeof(bool));
	w.module_told = calloc(w.flat.module_count + 1, sizeof(bool));
	status = w.calls && w.function_told && w.module_told ? 0 : DINST_NO_MEMORY;
	if (!status) {
		find_calls(&w, t);
		put_head(&w, command);
		put_costs(&w);
	}
	free(w.calls);
	free(w.function_told);
	free(w.module_told);
	flat_release(&w.flat);
	return status;
}
