/* SPDX-License-Identifier: MIT */
/*
 * search_waits.c - does the program wait for its own locks, or for files and those who read
 * what it writes?
 *
 * Waiting is time that passes in the functions that wait, summed over threads: 1.0 is one
 * thread that does nothing else. Of reads and writes, what was CPU time is no waiting. To
 * wait for input of a socket, a pipe or a terminal is to have nothing to do, and is not
 * counted; what waits for a condition is idle as well.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/report/search_private.h"

enum { WHETHER, WHERE, CANDIDATES = 8 };
enum { TEST_ALL, TEST_WRITES, TEST_WRITES_CPU, TEST_READS, TEST_READS_CPU };

static const double WHETHER_S = 1.5, WHERE_S = 2.5;
/* The part of the limit that is planned with. */
static const double PLANNED = 0.7;
/* From here on a part is told as all of it: rounded it is. */
static const double NEARLY_ALL = 0.995;

/* The element that is told as a function of its own program, if there is one. */
static const struct search_element *outside_system(const struct search_test *t, double least)
{
	for (size_t i = 0; i < t->element_count; i++) {
		const struct search_element *e = &t->elements[i];

		if (e->value >= least && e->name[0] && !chain_module_is_system(e->module))
			return e;
	}
	return NULL;
}

/* -------------------------------------------------------------------- locks */

void search_lock_tests(struct search *s, struct search_tests *t)
{
	struct search_part *p = s->parts[SEARCH_LOCK];

	if (p->stage == WHETHER) {
		search_test_add(t, MEASURE_LOCKS, WHETHER_S, 0);
		return;
	}
	for (int i = 0; i < 2; i++) {
		struct search_test *test =
			search_test_add(t, i ? MEASURE_HOLDERS : MEASURE_WAITERS, WHERE_S, i);

		if (test)
			test->object = p->lock;
	}
}

static void lock_decide(struct search *s, struct search_part *p, const struct search_test *t)
{
	const struct search_element *worst = t->element_count ? &t->elements[0] : NULL;

	p->done = true;
	if (!t->done) {
		search_decide(s, SEARCH_LOCK, SEARCH_UNKNOWN, "%s", t->why_not);
		search_note(s, "lock-bound could not be tested: %s", t->why_not);
		return;
	}
	if (!worst || worst->value < SEARCH_WAIT_BOUND) {
		search_decide(s, SEARCH_LOCK, SEARCH_FAILS,
			      "waiting for locks takes %.1f %% of a thread's time",
			      t->value > 0 ? t->value * 100 : 0);
		return;
	}
	search_decide(s, SEARCH_LOCK, SEARCH_HOLDS,
		      "waiting for locks takes %.0f %% of a thread's time", t->value * 100);
	p->lock = strtoull(worst->key, NULL, 0);
	p->worst = worst->value;
	snprintf(p->object, sizeof(p->object), "lock %s%s%s%s", worst->key,
		 worst->name[0] ? " (" : "", worst->name, worst->name[0] ? ")" : "");
	p->done = !p->lock;
	for (size_t i = 0; i < t->element_count && i < 3; i++) {
		const struct search_element *e = &t->elements[i];
		struct search_node *n;

		if (e->value < SEARCH_WAIT_BOUND)
			break;
		n = search_node_add(s->roots[SEARCH_LOCK], "lock", "lock %s%s%s%s", e->key,
				    e->name[0] ? " (" : "", e->name, e->name[0] ? ")" : "");
		if (n)
			n->share = e->value;
		if (!i)
			p->node = n;
		search_figure(n, "threads wait for it %.0f %% of a thread's time", e->value * 100);
	}
}

static void lock_users(struct search_node *parent, const struct search_test *t, const char *does)
{
	for (size_t i = 0; i < t->element_count && i < 4; i++) {
		const struct search_element *e = &t->elements[i];
		struct search_node *n;

		if (e->value < SEARCH_REFINE / 4)
			break;
		n = search_node_add(parent, "function", "%s:%s", e->module,
				    e->name[0] ? e->name : e->key);
		if (!n)
			return;
		snprintf(n->module, sizeof(n->module), "%s", e->module);
		snprintf(n->function, sizeof(n->function), "%s", e->name);
		n->share = e->value;
		search_figure(n, "%s it %.0f %% of the time", does, e->value * 100);
	}
}

static void mark(struct search_node *parent, const char *function)
{
	for (size_t i = 0; parent && i < parent->child_count; i++)
		if (!strcmp(parent->children[i]->function, function))
			parent->children[i]->is_culprit = true;
}

static void lock_find(struct search *s, struct search_part *p, const struct search_test *waiters,
		      const struct search_test *holders)
{
	const struct search_element *waits = outside_system(waiters, SEARCH_REFINE / 4);
	const struct search_element *has = outside_system(holders, SEARCH_REFINE);
	struct search_finding f = {
		.why = SEARCH_LOCK, .share = p->worst, .weight = p->worst > 4 ? 4 : p->worst};
	int n;

	n = snprintf(f.text, sizeof(f.text), "waiting for %s takes %.0f %% of a thread's time",
		     p->object, p->worst * 100);
	if (waits)
		n += snprintf(f.text + n, sizeof(f.text) - (size_t)n, " in %s()", waits->name);
	if (has)
		snprintf(f.text + n, sizeof(f.text) - (size_t)n,
			 "; %s() holds it %.0f %% of the time", has->name, has->value * 100);
	else if (holders->done)
		snprintf(f.text + n, sizeof(f.text) - (size_t)n,
			 "; nobody holds it for long: it is taken too often");
	if (!has)
		has = waits;
	if (has) {
		snprintf(f.module, sizeof(f.module), "%s", has->module);
		snprintf(f.function, sizeof(f.function), "%s", has->name);
		mark(p->node, has->name);
	}
	search_find(s, &f);
}

void search_lock_take(struct search *s, struct search_test *list, size_t count)
{
	struct search_part *p = s->parts[SEARCH_LOCK];

	if (p->stage++ == WHETHER) {
		lock_decide(s, p, &list[0]);
		return;
	}
	p->done = true;
	if (count < 2)
		return;
	for (size_t i = 0; i < 2; i++)
		if (!list[i].done)
			search_note(s, "lock-bound: %s", list[i].why_not);
	lock_users(p->node, &list[1], "holds");
	lock_users(p->node, &list[0], "waits for");
	lock_find(s, p, &list[0], &list[1]);
}

/* ---------------------------------------------------------------------- I/O */

/* Whether the program waits longer in writes than in reads. */
static bool is_writing(const struct search_part *p)
{
	return p->writes.total >= p->reads.total;
}

static const struct search_waits *longer(const struct search_part *p)
{
	return is_writing(p) ? &p->writes : &p->reads;
}

static unsigned io_kinds(const struct search_part *p)
{
	return is_writing(p) ? 1u << CHAIN_WRITES : 1u << CHAIN_READS;
}

/* Innermost first: they say most, and who calls them is known from looks. */
static void sort_by_depth(const struct search *s, uint32_t *list, size_t count)
{
	for (size_t i = 1; i < count; i++)
		for (size_t k = i; k > 0 && s->chains.functions[list[k]].depth >
						    s->chains.functions[list[k - 1]].depth;
		     k--) {
			uint32_t other = list[k];

			list[k] = list[k - 1];
			list[k - 1] = other;
		}
}

/* As many as the limit allows are measured; of the others it is told what looks say. */
static void io_begin(struct search *s, struct search_part *p, struct search_tests *t)
{
	const enum search_measure what = is_writing(p) ? MEASURE_WRITES_IN : MEASURE_READS_IN;
	uint32_t list[CANDIDATES];
	size_t count = chains_candidates(&s->chains, io_kinds(p), SEARCH_REFINE / 2, false, list,
					 CANDIDATES);
	double left = s->limit * PLANNED;

	sort_by_depth(s, list, count);
	for (size_t i = 0; i < count; i++) {
		struct search_measured *c = &p->candidates[p->candidate_count++];

		*c = (struct search_measured){
			.function = list[i],
			.share = chains_share(&s->chains, io_kinds(p), list[i]) * longer(p)->total,
			.known = true,
			.by_looks = true};
		left -= longer(p)->cost;
		if (!i || left > 0)
			search_test_function(s, t, what, WHERE_S, (long)i, list[i]);
	}
}

void search_io_tests(struct search *s, struct search_tests *t)
{
	struct search_part *p = s->parts[SEARCH_IO];
	static const enum search_measure whether[] = {MEASURE_WRITES, MEASURE_WRITES_CPU,
						      MEASURE_READS, MEASURE_READS_CPU};

	if (p->stage == WHETHER) {
		for (int i = 0; i < 4; i++)
			search_test_add(t, whether[i], WHETHER_S, TEST_WRITES + i);
		return;
	}
	io_begin(s, p, t);
}

static double of_key(const struct search_test *t, const char *key)
{
	for (size_t i = 0; i < t->element_count; i++)
		if (!strcmp(t->elements[i].key, key))
			return t->elements[i].value;
	return 0;
}

/* Of waiting, wall time and CPU time are both needed: why one of them is missing, or NULL. */
static const char *missing(const struct search_test pair[2])
{
	return !pair[0].done ? pair[0].why_not : !pair[1].done ? pair[1].why_not : NULL;
}

/* What of the time in pair[0] was no CPU time, which is pair[1]; only that for files if `files`. */
static void waiting(struct search *s, struct search_waits *w, const struct search_test pair[2],
		    bool files, const char *does)
{
	w->known = !missing(pair);
	w->cost = pair[0].cost;
	for (size_t i = 0; w->known && i < pair[0].element_count; i++) {
		const struct search_element *e = &pair[0].elements[i];
		const double off = e->value - of_key(&pair[1], e->key);
		struct search_node *n;

		if (off <= 0 || (files && !e->is_file))
			continue;
		w->total += off;
		if (off < SEARCH_WAIT_BOUND)
			continue;
		n = search_node_add(s->roots[SEARCH_IO], "file", "%s",
				    e->name[0] ? e->name : e->key);
		if (!n)
			continue;
		n->share = off;
		search_figure(n, "%s it waits %.0f %% of a thread's time", does, off * 100);
		if (off > w->worst) {
			w->worst = off;
			snprintf(w->object, sizeof(w->object), "%s", n->what);
		}
	}
}

/* How much of a thread's time that is, in words. */
static const char *amount(const struct search_waits *w, char text[32])
{
	if (!w->known)
		return "an unknown part";
	snprintf(text, 32, "%.1f %%", w->total * 100);
	return text;
}

static void io_decide(struct search *s, struct search_part *p, const struct search_test *list)
{
	const struct search_facts *f = &s->facts;
	enum search_state state = SEARCH_FAILS;
	char writes[32], reads[32];

	waiting(s, &p->writes, &list[0], false, "writing and syncing");
	waiting(s, &p->reads, &list[2], true, "reading");
	p->done = true;
	if (!p->writes.known && !p->reads.known) {
		search_decide(s, SEARCH_IO, SEARCH_UNKNOWN, "%s", missing(&list[0]));
		search_note(s, "I/O-bound could not be tested: %s", missing(&list[0]));
		return;
	}
	if (!p->writes.known)
		search_note(s, "I/O-bound: waiting in writes and syncs could not be measured: %s",
			    missing(&list[0]));
	if (!p->reads.known)
		search_note(s, "I/O-bound: waiting in reads could not be measured: %s",
			    missing(&list[2]));
	/* What was not measured may be what holds. */
	if (longer(p)->total >= SEARCH_WAIT_BOUND)
		state = SEARCH_HOLDS;
	else if (!p->writes.known || !p->reads.known)
		state = SEARCH_UNKNOWN;
	search_decide(
		s, SEARCH_IO, state,
		"waiting takes %s of a thread's time in writes and syncs, %s in reads of files; "
		"disk: %.1f MB/s written, %.1f MB/s read",
		amount(&p->writes, writes), amount(&p->reads, reads), f->disk_written / 1e6,
		f->disk_read / 1e6);
	p->done = state != SEARCH_HOLDS;
}

static void io_figures(struct search *s, struct search_part *p, struct search_node *n)
{
	for (size_t i = 0; n->number && i < p->candidate_count; i++)
		if (p->candidates[i].function == n->number - 1)
			search_figure(n, "%sin it %.0f %% of a thread's time",
				      p->candidates[i].by_looks ? "by looks alone: " : "",
				      n->share * 100);
	for (size_t i = 0; i < n->child_count; i++)
		io_figures(s, p, n->children[i]);
}

static void io_find(struct search *s, struct search_part *p)
{
	struct search_node *root = s->roots[SEARCH_IO], *n = search_deepest(root);
	const struct search_waits *w = longer(p);
	const double part = w->total > 0 ? w->worst / w->total : 0;
	struct search_finding f = {
		.why = SEARCH_IO, .share = w->total, .weight = w->total > 4 ? 4 : w->total};
	char by[SEARCH_TEXT] = "", of[SEARCH_NAME + 8] = "", share[SEARCH_NAME + 40] = "";
	int used;

	if (w->object[0] && part >= NEARLY_ALL)
		snprintf(of, sizeof(of), " of %s", w->object);
	else if (w->object[0])
		snprintf(share, sizeof(share), " (%.0f %% of it for %s)", part * 100, w->object);
	used = snprintf(f.text, sizeof(f.text),
			"waiting in %s%s takes %.0f %% of a thread's time%s",
			is_writing(p) ? "writes and syncs" : "reads", of, w->total * 100, share);
	if (n != root && n->function[0]) {
		n->is_culprit = true;
		search_callers(root, n, by, sizeof(by));
		snprintf(f.text + used, sizeof(f.text) - (size_t)used, " in %s()%s%s", n->function,
			 by[0] ? ", called from " : "", by);
		snprintf(f.module, sizeof(f.module), "%s", n->module);
		snprintf(f.function, sizeof(f.function), "%s", n->function);
	}
	search_find(s, &f);
}

void search_io_take(struct search *s, struct search_test *list, size_t count)
{
	struct search_part *p = s->parts[SEARCH_IO];

	if (p->stage++ == WHETHER) {
		if (count == 4)
			io_decide(s, p, list);
		/* Where no look has shown a function there is nothing to refine: it is told at once. */
		if (!p->done && !chains_candidates(&s->chains, io_kinds(p), SEARCH_REFINE / 2,
						   false, &(uint32_t){0}, 1)) {
			p->done = true;
			io_find(s, p);
		}
		return;
	}
	p->done = true;
	for (size_t i = 0; i < count; i++) {
		struct search_measured *c = &p->candidates[list[i].user];

		c->by_looks = !list[i].done;
		if (list[i].done)
			c->share = list[i].value;
		else
			search_note(s, "%s:%s: %s", list[i].module, list[i].symbol,
				    list[i].why_not);
	}
	search_tree(s, s->roots[SEARCH_IO], io_kinds(p), p->candidates, p->candidate_count);
	search_reject(s, SEARCH_IO, p->candidates, p->candidate_count);
	io_figures(s, p, s->roots[SEARCH_IO]);
	io_find(s, p);
}
