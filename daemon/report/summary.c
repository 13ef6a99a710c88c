/* SPDX-License-Identifier: MIT */
/*
 * summary.c - functions and the times of their calls: spans of a call tree are counted as they
 * end, sums are taken from the tree when it is whole.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/report/flat.h"
#include "daemon/report/summary.h"

enum { PARTS = 32, PARTS_SHIFT = 5 };

/* The bucket of a value: exact below 64, then 32 for each power of two. */
static unsigned bucket_of(uint64_t ns)
{
	const unsigned log = 63 - (unsigned)__builtin_clzll(ns | PARTS);
	const unsigned power = log - PARTS_SHIFT;
	const uint64_t bucket = ((uint64_t)power << PARTS_SHIFT) + (ns >> power);

	return bucket < SUMMARY_BUCKETS ? (unsigned)bucket : SUMMARY_BUCKETS - 1;
}

static uint64_t bucket_start(unsigned bucket)
{
	const unsigned power = bucket < 2 * PARTS ? 0 : (bucket >> PARTS_SHIFT) - 1;

	return (uint64_t)(bucket - (power << PARTS_SHIFT)) << power;
}

static struct summary_function *function_of(struct summary *s, const char *function,
					    const char *module)
{
	struct summary_function *f;

	/* Those that were met lately are near the front of few: a search is enough. */
	for (size_t i = 0; i < s->count; i++) {
		f = &s->functions[i];
		if ((f->function == function || !strcmp(f->function, function)) &&
		    (f->module == module || !strcmp(f->module, module)))
			return f;
	}
	if (s->count == s->room) {
		const size_t room = s->room ? 2 * s->room : 32;
		struct summary_function *grown = reallocarray(s->functions, room, sizeof(*grown));

		if (!grown)
			return NULL;
		s->functions = grown;
		s->room = room;
	}
	f = &s->functions[s->count];
	*f = (struct summary_function){
		.function = function, .module = module, .min_ns = UINT64_MAX};
	f->buckets = calloc(SUMMARY_BUCKETS, sizeof(*f->buckets));
	if (!f->buckets)
		return NULL;
	s->count++;
	return f;
}

static struct summary_function *count_call(struct summary *s, const char *function,
					   const char *module, uint64_t ns)
{
	struct summary_function *f = function_of(s, function, module);

	if (!f) {
		s->failed = true;
		return NULL;
	}
	f->calls++;
	f->timed++;
	f->min_ns = ns < f->min_ns ? ns : f->min_ns;
	f->max_ns = ns > f->max_ns ? ns : f->max_ns;
	f->buckets[bucket_of(ns)]++;
	return f;
}

static void on_span(void *arg, const struct call_span *span)
{
	/* Where the return was dropped, or never came, nobody knows how long it took. */
	if (!span->left)
		count_call(arg, span->node->function, span->node->module, span->ns);
}

int summary_init(struct summary *s)
{
	*s = (struct summary){.tree = call_tree_new()};
	if (!s->tree)
		return DINST_NO_MEMORY;
	call_tree_watch(s->tree, on_span, s);
	return 0;
}

void summary_release(struct summary *s)
{
	for (size_t i = 0; i < s->count; i++)
		free(s->functions[i].buckets);
	free(s->functions);
	call_tree_free(s->tree);
	*s = (struct summary){0};
}

void summary_event(struct summary *s, const struct event *e)
{
	const struct event_field *elapsed = event_field(e->kind, EVENT_ELAPSED);
	struct summary_function *f;
	uint64_t ns;

	if (e->kind->what != EVENT_RETURN || !elapsed) {
		if (call_tree_event(s->tree, e))
			s->failed = true;
		return;
	}
	if (!event_value(e, elapsed, &ns) || (int64_t)ns < 0)
		return;
	f = count_call(s, e->kind->function, e->kind->module, ns);
	if (f)
		f->total_ns += ns;
}

void summary_lost(struct summary *s)
{
	call_tree_lost(s->tree);
}

static int by_total(const void *a, const void *b)
{
	const struct summary_function *x = a, *y = b;

	if (x->total_ns != y->total_ns)
		return x->total_ns < y->total_ns ? 1 : -1;
	return strcmp(x->function, y->function);
}

void summary_end(struct summary *s, uint64_t now_ns)
{
	struct flat flat;

	call_tree_end(s->tree, now_ns);
	if (flat_make(&flat, s->tree) < 0) {
		s->failed = true;
		return;
	}
	for (size_t i = 0; i < flat.count; i++) {
		const struct flat_function *from = &flat.functions[i];
		struct summary_function *f = function_of(s, from->function, from->module);

		if (!f) {
			s->failed = true;
			break;
		}
		f->calls = from->count;
		f->total_ns = from->total_ns;
		f->self_ns = from->self_ns;
		f->has_self = true;
	}
	flat_release(&flat);
	if (s->count)
		qsort(s->functions, s->count, sizeof(*s->functions), by_total);
}

uint64_t summary_quantile(const struct summary_function *f, double q)
{
	const uint64_t wanted = (uint64_t)(q * (double)f->timed);
	uint64_t seen = 0;

	if (!f->timed)
		return 0;
	for (unsigned i = 0; i < SUMMARY_BUCKETS; i++) {
		uint64_t middle;

		seen += f->buckets[i];
		if (seen <= wanted && i + 1 < SUMMARY_BUCKETS)
			continue;
		middle = bucket_start(i) + (bucket_start(i + 1) - bucket_start(i)) / 2;
		return middle < f->min_ns ? f->min_ns : middle > f->max_ns ? f->max_ns : middle;
	}
	return f->max_ns;
}
