/* SPDX-License-Identifier: MIT */
/*
 * search_cpu.c - is the program short of CPU time, and which function uses it?
 *
 *   1. whether: from what the kernel tells of threads, for nothing;
 *   2. how often candidates are called (a counter costs a nanosecond or two), so that what
 *      timing them will cost is known before it is done;
 *   3. their CPU time: each call's where that fits into the limit, else that of one call
 *      in 64, else not;
 *   4. which threads.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/report/search_private.h"

enum { RATES, TIMES, THREADS, DONE };

static const double COUNTED_S = 0.4, TIMED_S = 2.0, THREADS_S = 1.5;

/* What one call costs, in ns: a timer is read twice, slowly where the machine is a virtual one. */
static const double TIMER_NS = 90, SAMPLED_NS = 6;
/* What of that a timer measures itself. */
static const double OWN_NS = 25;
/* Calls that seem to take less than this were measured with more timer than call in them. */
static const double SHORT_NS = 150;
/* Less of a CPU than that in a window says little about how often something is called. */
static const double CPU_LEAST = 0.05;
/* The part of the limit that is planned with; what comes is never quite what was planned. */
static const double PLANNED = 0.7;

static void decide(struct search *s)
{
	const struct search_facts *f = &s->facts;
	const struct search_thread *t = f->busiest_count ? &f->busiest[0] : NULL;
	const double demand = t ? t->cpu + t->waiting : 0;
	char starved[120] = "";

	if (f->starved >= SEARCH_WAIT_BOUND)
		snprintf(
			starved, sizeof(starved),
			"; %.1f more threads on the average were ready and had no CPU: the machine is busy "
			"with other work",
			f->starved);
	if (demand >= SEARCH_CPU_BOUND || f->cpu + f->starved >= SEARCH_CPU_ALL)
		search_decide(
			s, SEARCH_CPU, SEARCH_HOLDS,
			"%.0f %% of a CPU (%.0f %% in the program, %.0f %% in the kernel), thread %d "
			"(%s) alone %.0f %%%s",
			f->cpu * 100, f->user * 100, f->system * 100, t ? (int)t->tid : 0,
			t ? t->name : "?", t ? t->cpu * 100 : 0, starved);
	else
		search_decide(s, SEARCH_CPU, SEARCH_FAILS,
			      "%.0f %% of a CPU, the busiest thread %.0f %%%s", f->cpu * 100,
			      t ? t->cpu * 100 : 0, starved);
}

static void begin(struct search *s, struct search_part *p)
{
	uint32_t list[SEARCH_CANDIDATES_MAX];
	size_t count;

	decide(s);
	p->done = s->roots[SEARCH_CPU]->state != SEARCH_HOLDS;
	if (p->done)
		return;
	count = chains_candidates(&s->chains, 1u << CHAIN_RUNS, SEARCH_REFINE / 2, true, list,
				  SEARCH_CANDIDATES_MAX);
	for (size_t i = 0; i < count; i++)
		p->candidates[p->candidate_count++] = (struct search_measured){.function = list[i]};
	if (!count) {
		search_note(
			s,
			"CPU-bound, but no look at its stacks showed where: they could not be read");
		p->done = true;
	}
}

/* By what a candidate can be timed within what is left of the limit; false: not at all. */
static bool choose(struct search_measured *c, double *left, enum search_measure *what)
{
	const double each = c->rate * TIMER_NS / 1e7, sampled = c->rate * SAMPLED_NS / 1e7;

	*what = each <= *left ? MEASURE_CPU : MEASURE_CPU_SAMPLED;
	if (*what == MEASURE_CPU_SAMPLED && sampled > *left)
		return false;
	*left -= *what == MEASURE_CPU ? each : sampled;
	return true;
}

/* What cannot be timed is told by what looks have shown. */
static void by_looks(struct search *s, struct search_measured *c)
{
	c->share = chains_share(&s->chains, 1u << CHAIN_RUNS, c->function);
	c->known = c->by_looks = true;
}

static void times(struct search *s, struct search_part *p, struct search_tests *t)
{
	double left = s->limit * PLANNED;

	for (size_t i = 0; i < p->candidate_count; i++) {
		const struct chain_function *f = &s->chains.functions[p->candidates[i].function];
		enum search_measure what;

		if (choose(&p->candidates[i], &left, &what)) {
			search_test_function(s, t, what, TIMED_S, (long)i,
					     p->candidates[i].function);
			continue;
		}
		by_looks(s, &p->candidates[i]);
		search_note(s,
			    "%s() is called %.1f million times a second: to time it would cost "
			    "more than the limit; looks at the stacks show it in %.0f %%",
			    f->function, p->candidates[i].rate / 1e6, p->candidates[i].share * 100);
	}
}

static unsigned busy_threads(const struct search_facts *f)
{
	unsigned busy = 0;

	for (unsigned i = 0; i < f->busiest_count; i++)
		busy += f->busiest[i].cpu >= 0.05;
	return busy;
}

/* Which threads are in the culprit, where each of its calls can be timed. */
static void threads(struct search *s, struct search_part *p, struct search_tests *t)
{
	double left = s->limit * PLANNED;
	enum search_measure what;

	p->done = !p->has_culprit || busy_threads(&s->facts) < 2;
	for (size_t i = 0; !p->done && i < p->candidate_count; i++) {
		if (p->candidates[i].function != p->culprit ||
		    (choose(&p->candidates[i], &left, &what) && what == MEASURE_CPU))
			continue;
		search_note(s,
			    "which threads are in %s() was not measured: to time each of its "
			    "calls would cost more than the limit",
			    s->chains.functions[p->culprit].function);
		p->done = true;
	}
	if (!p->done)
		search_test_function(s, t, MEASURE_CPU_THREADS, THREADS_S, 0, p->culprit);
}

/* -------------------------------------------------------------------- results */

/* Modules by the looks that ended in them. */
static void modules(struct search *s)
{
	struct search_node *root = s->roots[SEARCH_CPU];

	for (uint32_t f = 0; f < s->chains.function_count; f++) {
		const char *module = s->chains.functions[f].module;
		double share = 0;
		bool known = false;

		for (uint32_t g = 0; g < s->chains.function_count; g++) {
			if (strcmp(s->chains.functions[g].module, module) != 0)
				continue;
			known |= g < f;
			share += chains_leaf_share(&s->chains, 1u << CHAIN_RUNS, g);
		}
		if (!known && share >= SEARCH_REFINE) {
			struct search_node *n = search_node_add(root, "module", "%s", module);

			if (!n)
				return;
			n->share = share;
			snprintf(n->module, sizeof(n->module), "%s", module);
			search_figure(n, "%.0f %% of %u looks at a running thread ended there",
				      share * 100, s->chains.looks[CHAIN_RUNS]);
		}
	}
}

static double self_of(const struct search_node *n)
{
	double self = n->share;

	for (size_t i = 0; i < n->child_count; i++)
		if (!strcmp(n->children[i]->kind, "function"))
			self -= n->children[i]->share;
	return self > 0 ? self : 0;
}

static void figures(struct search *s, struct search_part *p, struct search_node *n)
{
	for (size_t i = 0; n->number && i < p->candidate_count; i++)
		if (p->candidates[i].function == n->number - 1)
			search_figure(n, "%s%.0f %% of the CPU time, %.0f %% itself%s",
				      p->candidates[i].by_looks ? "by looks alone about " : "",
				      n->share * 100, self_of(n) * 100,
				      p->candidates[i].rate > 0 ? "" : "; running all the time");
	for (size_t i = 0; i < n->child_count; i++)
		figures(s, p, n->children[i]);
}

/*
 * What of its own time looks have seen in the function itself: the rest is in callees that have
 * too little each to be followed, and it is a place where the time splits, not where it goes.
 */
static bool is_own(const struct search *s, const struct search_node *n)
{
	const double looks =
		n->number ? chains_leaf_share(&s->chains, 1u << CHAIN_RUNS, n->number - 1) : 0;

	return !strcmp(n->kind, "function") && self_of(n) >= SEARCH_REFINE &&
	       looks >= self_of(n) / 2;
}

/* Where the time splits into what could not be followed is told behind where it goes. */
static double weight_of(const struct search *s, const struct search_node *n)
{
	const double cpu = s->facts.cpu > 1 ? 1 : s->facts.cpu;

	return self_of(n) * cpu * (is_own(s, n) ? 1 : 0.5);
}

/* The kernel cuts a program's name to 15 letters. */
static bool is_program(const struct search *s, const char *module)
{
	return !strcmp(module, s->program) ||
	       (strlen(s->program) == 15 && !strncmp(module, s->program, 15));
}

/* It has so little of a CPU that one finding is enough. */
static bool is_starved(const struct search *s)
{
	return s->facts.cpu < SEARCH_CPU_BOUND / 2;
}

static void find(struct search *s, struct search_node *n)
{
	const struct search_facts *f = &s->facts;
	struct search_finding finding = {.why = SEARCH_CPU, .share = n->share};
	char by[SEARCH_TEXT], starved[200] = "", of[80] = "";

	n->is_culprit = true;
	search_callers(s->roots[SEARCH_CPU], n, by, sizeof(by));
	if (is_starved(s) && f->busiest_count)
		snprintf(
			starved, sizeof(starved),
			"; but it gets only %.0f %% of a CPU and waits for one %.0f %% of the time, since the "
			"machine is busy with other work",
			f->cpu * 100, f->busiest[0].waiting * 100);
	if (!is_program(s, n->module))
		snprintf(of, sizeof(of), " of %s", n->module);
	snprintf(finding.text, sizeof(finding.text),
		 "%.0f %% of %s CPU time is in %s%s()%s%s%s%s%s", n->share * 100,
		 starved[0] ? "its" : "the",
		 chain_name_is_made(n->function) ? "a function without a name, " : "", n->function,
		 of, is_own(s, n) ? "" : " and what it calls", by[0] ? ", called from " : "", by,
		 starved);
	snprintf(finding.module, sizeof(finding.module), "%s", n->module);
	snprintf(finding.function, sizeof(finding.function), "%s", n->function);
	finding.weight = weight_of(s, n);
	search_find(s, &finding);
}

static bool is_leaf(const struct search_node *n)
{
	for (size_t i = 0; i < n->child_count; i++)
		if (!strcmp(n->children[i]->kind, "function"))
			return false;
	return !strcmp(n->kind, "function") && n->share >= SEARCH_REFINE;
}

/*
 * Tells all that have a good part of their own, or below which nothing could be followed, but where the program is
 * starved; NULL if there is none, else the one that has most.
 */
static struct search_node *find_all(struct search *s, struct search_node *n,
				    struct search_node *most)
{
	if (is_own(s, n) || is_leaf(n)) {
		if (!is_starved(s))
			find(s, n);
		if (!most || weight_of(s, n) > weight_of(s, most))
			most = n;
	}
	for (size_t i = 0; i < n->child_count; i++)
		most = find_all(s, n->children[i], most);
	return most;
}

/* Tells where the time goes; the one that has most of it, or the root: nobody was found. */
static struct search_node *find_culprit(struct search *s)
{
	struct search_node *root = s->roots[SEARCH_CPU], *most = find_all(s, root, NULL);
	const bool is_told = most && !is_starved(s);

	/* Nobody has much of his own: the last function that has most of it with its callees. */
	if (!most)
		most = search_deepest(root);
	if (!is_told && most != root)
		find(s, most);
	return most;
}

/* The worst finding about CPU time; others may be before it. */
static const char *finding_text(const struct search *s)
{
	for (unsigned i = 0; i < s->finding_count; i++)
		if (s->findings[i].why == SEARCH_CPU)
			return s->findings[i].text;
	return "";
}

/* As often as it would be called had the program a whole CPU: it may have one any time. */
static void count_rate(struct search_measured *c, const struct search_test *test)
{
	const double cpu = test->cpu > CPU_LEAST ? test->cpu : CPU_LEAST;

	/* What cannot be counted is taken for often: it is timed sparingly, if at all. */
	c->rate = test->done ? test->value / (cpu < 1 ? cpu : 1) : 1e6;
	c->per_cpu = test->done ? test->value / cpu : 0;
}

static void take_times(struct search *s, struct search_part *p, struct search_test *list,
		       size_t count)
{
	struct search_node *root = s->roots[SEARCH_CPU], *most;

	for (size_t i = 0; i < count; i++) {
		struct search_measured *c = &p->candidates[list[i].user];

		if (!list[i].done) {
			search_note(s, "%s:%s: %s", list[i].module, list[i].symbol,
				    list[i].why_not);
			by_looks(s, c);
			continue;
		}
		c->known = list[i].cpu > 0;
		if (c->known && c->per_cpu > 0 &&
		    list[i].value / list[i].cpu / c->per_cpu < SHORT_NS / 1e9) {
			by_looks(s, c);
			continue;
		}
		c->share = c->known ? list[i].value / list[i].cpu - c->per_cpu * OWN_NS / 1e9 : 0;
		c->share = c->share > 1 ? 1 : c->share < 0 ? 0 : c->share;
	}
	search_tree(s, root, 1u << CHAIN_RUNS, p->candidates, p->candidate_count);
	search_reject(s, SEARCH_CPU, p->candidates, p->candidate_count);
	figures(s, p, root);
	most = find_culprit(s);
	modules(s);
	p->done = most == root;
	if (p->done)
		return;
	p->has_culprit = most->number != 0;
	p->culprit = most->number ? most->number - 1 : 0;
	p->node = most;
	if (s->world->told)
		s->world->told(s->world->arg, most, finding_text(s));
}

static void take_threads(struct search *s, struct search_part *p, const struct search_test *test)
{
	(void)s;
	if (!test->done || test->value <= 0)
		return;
	for (size_t i = 0; i < test->element_count && i < SEARCH_THREADS_MAX; i++) {
		const struct search_element *e = &test->elements[i];
		struct search_node *n;

		if (e->value < SEARCH_REFINE / 2 * test->value)
			break;
		n = search_node_add(p->node, "thread", "thread %s (%s)", e->key, e->name);
		if (!n)
			return;
		n->share = e->value / test->value * p->node->share;
		search_figure(n, "%.0f %% of a CPU in it", e->value * 100);
	}
}

void search_cpu_tests(struct search *s, struct search_tests *t)
{
	struct search_part *p = s->parts[SEARCH_CPU];
	const size_t others = t->count;

	if (p->stage == RATES)
		begin(s, p);
	if (p->done)
		return;
	if (p->stage == RATES)
		for (size_t i = 0; i < p->candidate_count; i++)
			search_test_function(s, t, MEASURE_CALLS, COUNTED_S, (long)i,
					     p->candidates[i].function);
	if (p->stage == TIMES) {
		times(s, p, t);
		if (t->count > others)
			return;
		/* Nothing can be timed, no results will come: what looks say is all there is. */
		take_times(s, p, NULL, 0);
		p->stage++;
	}
	if (p->stage == THREADS && !p->done)
		threads(s, p, t);
}

void search_cpu_take(struct search *s, struct search_test *list, size_t count)
{
	struct search_part *p = s->parts[SEARCH_CPU];

	if (p->stage == RATES) {
		for (size_t i = 0; i < count; i++)
			count_rate(&p->candidates[list[i].user], &list[i]);
	} else if (p->stage == TIMES) {
		take_times(s, p, list, count);
	} else {
		take_threads(s, p, &list[0]);
		p->done = true;
	}
	p->stage++;
}
