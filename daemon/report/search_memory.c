/* SPDX-License-Identifier: MIT */
/*
 * search_memory.c - does the program's memory grow, and who allocates what stays?
 *
 *   1. whether: from what the kernel tells of its memory, for nothing;
 *   2. who: one block in several, chosen by its address, is followed from where it is
 *      allocated to where it is freed; what is still there at the end stands to whoever
 *      allocated it;
 *   3. who calls that: the same again, one level further up each time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/report/search_private.h"

static const double FOLLOWED_S = 3.5, LEVEL_S = 2.5;
enum { BLOCKS_LEAST = 8, LEVELS = 3 };

static void decide(struct search *s)
{
	const struct search_facts *f = &s->facts;

	if (f->growth >= SEARCH_GROWTH && f->rises * 2 >= f->steps)
		search_decide(s, SEARCH_MEMORY, SEARCH_HOLDS,
			      "%.1f MB resident, growing by %.2f MB a second", f->memory / 1e6,
			      f->growth / 1e6);
	else
		search_decide(s, SEARCH_MEMORY, SEARCH_FAILS, "%.1f MB resident, %s",
			      f->memory / 1e6,
			      f->growth > SEARCH_GROWTH / 4 ? "growing slowly" : "not growing");
}

/* Names of functions that only hand on what they were asked for. */
static bool is_wrapper(const char *module, const char *function)
{
	static const char *const parts[] = {"alloc", "operator new", "strdup",	 "_Znw",
					    "_Zna",  "strndup",	     "asprintf", "getline"};

	if (chain_module_is_system(module))
		return true;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (strstr(function, parts[i]))
			return true;
	return false;
}

void search_memory_tests(struct search *s, struct search_tests *t)
{
	struct search_part *p = s->parts[SEARCH_MEMORY];
	struct search_test *test;

	if (!p->level) {
		decide(s);
		p->done = s->roots[SEARCH_MEMORY]->state != SEARCH_HOLDS;
		if (p->done)
			return;
	}
	test = search_test_add(t, MEASURE_BLOCKS, p->level ? LEVEL_S : FOLLOWED_S, 0);
	if (test && p->level) {
		snprintf(test->module, sizeof(test->module), "%s", p->modules[p->level - 1]);
		snprintf(test->symbol, sizeof(test->symbol), "%s", p->path[p->level - 1]);
	}
}

static void find(struct search *s, struct search_part *p)
{
	struct search_finding f = {.why = SEARCH_MEMORY};
	const double growth = s->facts.growth;
	unsigned who = 0, used;

	while (who + 1 < p->level && is_wrapper(p->modules[who], p->path[who]))
		who++;
	/* It matters as much as it grows: 10 MB a second is as bad as a CPU that is lost. */
	f.weight = growth / 1e7 > 1 ? 1 : growth / 1e7 > 0.3 ? growth / 1e7 : 0.3;
	used = (unsigned)snprintf(f.text, sizeof(f.text), "memory grows by %.2f MB a second",
				  growth / 1e6);
	if (p->level) {
		f.share = p->kept[who];
		used += (unsigned)snprintf(f.text + used, sizeof(f.text) - used,
					   ": %.0f %% of what stays is allocated in %s()",
					   f.share * 100, p->path[who]);
		for (unsigned i = who + 1; i < p->level; i++)
			used += (unsigned)snprintf(f.text + used, sizeof(f.text) - used, "%s%s()",
						   i == who + 1 ? ", called from " : " < ",
						   p->path[i]);
		snprintf(f.module, sizeof(f.module), "%s", p->modules[who]);
		snprintf(f.function, sizeof(f.function), "%s", p->path[who]);
	} else {
		snprintf(f.text + used, sizeof(f.text) - used,
			 ", but not by blocks of malloc: it is mapped otherwise, or is file data");
	}
	search_find(s, &f);
	for (struct search_node *n = s->roots[SEARCH_MEMORY]; n;
	     n = n->child_count ? n->children[0] : NULL)
		n->is_culprit = p->level && !strcmp(n->function, p->path[who]);
}

static struct search_node *bottom(struct search_node *n)
{
	while (n->child_count)
		n = n->children[0];
	return n;
}

/* Its weight among others: bytes, as far as they are known. */
static double weight_of(const struct search_element *e)
{
	return e->value * (e->bytes > 1 ? e->bytes : 1);
}

/* Who has most of what lives; *all what all have. */
static const struct search_element *most_kept(const struct search_test *t, double *all)
{
	const struct search_element *best = NULL;

	*all = 0;
	for (size_t i = 0; i < t->element_count; i++) {
		const struct search_element *e = &t->elements[i];

		*all += weight_of(e);
		if (e->name[0] && e->value >= BLOCKS_LEAST &&
		    (!best || weight_of(e) > weight_of(best)))
			best = e;
	}
	return best;
}

/* One more level of the path: e, which has `part` of what the one before allocates. */
static void follow(struct search *s, struct search_part *p, const struct search_element *e,
		   double part)
{
	const unsigned level = p->level++;
	struct search_node *n = search_node_add(bottom(s->roots[SEARCH_MEMORY]), "function",
						"%s:%s", e->module, e->name);
	char of[SEARCH_NAME + 32] = "stays";

	p->kept[level] = level ? part * p->kept[level - 1] : part;
	snprintf(p->path[level], SEARCH_NAME, "%s", e->name);
	snprintf(p->modules[level], sizeof(p->modules[0]), "%s", e->module);
	if (level)
		snprintf(of, sizeof(of), "%s() allocates", p->path[level - 1]);
	if (!n)
		return;
	snprintf(n->module, sizeof(n->module), "%s", e->module);
	snprintf(n->function, sizeof(n->function), "%s", e->name);
	n->share = p->kept[level];
	search_figure(n, "%.0f %% of what %s: %.0f of %.0f blocks that were followed", part * 100,
		      of, e->value < e->made ? e->value : e->made, e->made);
}

void search_memory_take(struct search *s, struct search_test *list, size_t count)
{
	struct search_part *p = s->parts[SEARCH_MEMORY];
	const struct search_element *e;
	double all;

	(void)count;
	if (!list[0].done)
		search_note(s, "memory-bound: %s", list[0].why_not);
	e = list[0].done ? most_kept(&list[0], &all) : NULL;
	/* The first level that nobody has most of is the end of the way up. */
	if (!e || (p->level && weight_of(e) < all / 2)) {
		p->done = true;
		find(s, p);
		return;
	}
	follow(s, p, e, weight_of(e) / all);
	p->done = p->level >= LEVELS || !strcmp(e->name, "main");
	if (p->done)
		find(s, p);
}
