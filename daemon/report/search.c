/* SPDX-License-Identifier: MIT */
/*
 * search.c - the rounds of the search, its tree and its findings.
 *
 * Knows nothing of any one hypothesis (search_cpu.c, search_waits.c, search_memory.c), and
 * never measures: that is the world's.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/report/search_private.h"

enum { ROUNDS_MAX = 12, RUNNING_LOOKS = 15, LOOKS_MORE = 3 };

/* How long facts and looks are gathered first; more where a busy program was seldom met running. */
static const double OBSERVE_S = 2.5;

static const struct {
	const char *name;
	void (*tests)(struct search *s, struct search_tests *t);
	void (*take)(struct search *s, struct search_test *list, size_t count);
} parts[SEARCH_WHYS] = {
	[SEARCH_CPU] = {"CPU-bound", search_cpu_tests, search_cpu_take},
	[SEARCH_LOCK] = {"lock-bound", search_lock_tests, search_lock_take},
	[SEARCH_IO] = {"I/O-bound", search_io_tests, search_io_take},
	[SEARCH_MEMORY] = {"memory-bound", search_memory_tests, search_memory_take},
};

const char *search_why_name(enum search_why why)
{
	return parts[why].name;
}

const char *search_state_name(enum search_state state)
{
	static const char *const names[] = {"untested", "holds", "fails", "unknown"};

	return names[state];
}

/* ------------------------------------------------------------------- tests */

struct search_test *search_test_add(struct search_tests *t, enum search_measure what,
				    double seconds, long user)
{
	struct search_test *test = &t->list[t->count];

	if (t->count == SEARCH_TESTS_MAX)
		return NULL;
	*test = (struct search_test){.what = what, .seconds = seconds, .user = user};
	t->count++;
	return test;
}

struct search_test *search_test_function(struct search *s, struct search_tests *t,
					 enum search_measure what, double seconds, long user,
					 uint32_t function)
{
	const struct chain_function *f = &s->chains.functions[function];
	struct search_test *test = search_test_add(t, what, seconds, user);

	if (test) {
		snprintf(test->module, sizeof(test->module), "%s", f->module);
		snprintf(test->symbol, sizeof(test->symbol), "%s", f->symbol);
	}
	return test;
}

void search_test_release(struct search_test *t)
{
	free(t->elements);
	t->elements = NULL;
	t->element_count = 0;
}

/* -------------------------------------------------------------------- tree */

/* A text that would have been so long, and was cut, says so. Names of templates may be of any length. */
static void end_cut(char *text, size_t size, int length)
{
	size_t at = size - sizeof("...");

	if (length < 0 || (size_t)length < size)
		return;
	/* between two characters */
	while (at && ((unsigned char)text[at] & 0xc0) == 0x80)
		at--;
	memcpy(text + at, "...", sizeof("..."));
}

struct search_node *search_node_add(struct search_node *parent, const char *kind,
				    const char *format, ...)
{
	struct search_node *n = parent ? calloc(1, sizeof(*n)) : NULL;
	struct search_node **more;
	va_list args;

	if (!n)
		return NULL;
	more = reallocarray(parent->children, parent->child_count + 1,
			    sizeof(struct search_node *));
	if (!more) {
		free(n);
		return NULL;
	}
	parent->children = more;
	parent->children[parent->child_count++] = n;
	n->why = parent->why;
	n->state = SEARCH_HOLDS;
	snprintf(n->kind, sizeof(n->kind), "%s", kind);
	va_start(args, format);
	end_cut(n->what, sizeof(n->what), vsnprintf(n->what, sizeof(n->what), format, args));
	va_end(args);
	return n;
}

void search_figure(struct search_node *n, const char *format, ...)
{
	va_list args;

	if (!n)
		return;
	va_start(args, format);
	vsnprintf(n->figure, sizeof(n->figure), format, args);
	va_end(args);
}

static void node_free(struct search_node *n)
{
	for (size_t i = 0; n && i < n->child_count; i++)
		node_free(n->children[i]);
	if (n)
		free(n->children);
	free(n);
}

static const struct search_measured *accepted(const struct search_measured *list, size_t count,
					      uint32_t function)
{
	for (size_t i = 0; i < count; i++)
		if (list[i].function == function)
			return list[i].known && list[i].share >= SEARCH_REFINE ? &list[i] : NULL;
	return NULL;
}

static struct search_node *child_for(struct search *s, struct search_node *n, uint32_t function)
{
	const struct chain_function *f = &s->chains.functions[function];
	struct search_node *child;

	for (size_t i = 0; i < n->child_count; i++)
		if (n->children[i]->number == function + 1)
			return n->children[i];
	child = search_node_add(n, "function", "%s:%s", f->module, f->function);
	if (child) {
		snprintf(child->module, sizeof(child->module), "%s", f->module);
		end_cut(child->function, sizeof(child->function),
			snprintf(child->function, sizeof(child->function), "%s", f->function));
		child->number = function + 1;
	}
	return child;
}

static void add_chain(struct search *s, struct search_node *parent, const struct chain_sample *c,
		      const struct search_measured *list, size_t count)
{
	struct search_node *n = parent;

	for (unsigned i = 0; i < c->count && n; i++) {
		bool again = false;

		if (!accepted(list, count, c->function[i]))
			continue;
		for (unsigned k = 0; k < i; k++)
			again |= c->function[k] == c->function[i];
		if (again)
			continue;
		n = child_for(s, n, c->function[i]);
		if (n)
			n->seen++;
	}
}

/* How often a function was seen, in all nodes that are about it. */
static unsigned seen_in(const struct search_node *n, uint32_t number)
{
	unsigned seen = n->number == number ? n->seen : 0;

	for (size_t i = 0; i < n->child_count; i++)
		seen += seen_in(n->children[i], number);
	return seen;
}

/* Shares of all below n, by the looks of the whole tree: nothing may have been taken out of it yet. */
static void share_out(const struct search_node *top, struct search_node *n,
		      const struct search_measured *list, size_t count)
{
	for (size_t i = 0; i < n->child_count; i++) {
		struct search_node *child = n->children[i];
		const struct search_measured *m =
			child->number ? accepted(list, count, child->number - 1) : NULL;
		unsigned all = m ? seen_in(top, child->number) : 0;

		if (strcmp(child->kind, "function") == 0 && m)
			child->share = all ? m->share * child->seen / all : 0;
		/* What is called is no more than its caller, but for how exactly it is measured. */
		if (!strcmp(n->kind, "function") && child->share > n->share)
			child->share = n->share;
		share_out(top, child, list, count);
	}
}

/* Below the largest of its callers a function is told; below the others if it is much. */
static void prune(struct search_node *n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n->child_count; i++) {
		struct search_node *child = n->children[i];

		if (strcmp(child->kind, "function") == 0 && child->share < SEARCH_REFINE / 2) {
			node_free(child);
			continue;
		}
		prune(child);
		n->children[kept++] = child;
	}
	n->child_count = kept;
}

static int by_share(const void *a, const void *b)
{
	const struct search_node *x = *(struct search_node *const *)a;
	const struct search_node *y = *(struct search_node *const *)b;

	return x->share < y->share ? 1 : x->share > y->share ? -1 : 0;
}

static void sort_tree(struct search_node *n)
{
	if (n->child_count > 1)
		qsort(n->children, n->child_count, sizeof(struct search_node *), by_share);
	for (size_t i = 0; i < n->child_count; i++)
		sort_tree(n->children[i]);
}

void search_tree(struct search *s, struct search_node *parent, unsigned kinds,
		 const struct search_measured *list, size_t count)
{
	if (!parent)
		return;
	for (size_t i = 0; i < s->chains.sample_count; i++)
		if (kinds & 1u << s->chains.samples[i].kind)
			add_chain(s, parent, &s->chains.samples[i], list, count);
	share_out(parent, parent, list, count);
	prune(parent);
	sort_tree(parent);
}

struct search_node *search_deepest(struct search_node *n)
{
	struct search_node *best = NULL;

	for (size_t i = 0; i < n->child_count; i++)
		if (!strcmp(n->children[i]->kind, "function") &&
		    (!best || n->children[i]->share > best->share))
			best = n->children[i];
	if (best && (strcmp(n->kind, "function") != 0 || best->share >= n->share / 2))
		return search_deepest(best);
	return n;
}

/* Names of the nodes from n upwards; true once n was found below `at`. */
static bool callers(const struct search_node *at, const struct search_node *n, char *text,
		    size_t size, unsigned *told)
{
	for (size_t i = 0; i < at->child_count; i++) {
		if (at->children[i] != n && !callers(at->children[i], n, text, size, told))
			continue;
		/* A name that is made of an address says nothing to people. */
		if (at->function[0] && !chain_name_is_made(at->function) && *told < 4) {
			size_t used = strlen(text);

			snprintf(text + used, size - used, "%s%s()", *told ? " < " : "",
				 at->function);
			(*told)++;
		}
		return true;
	}
	return false;
}

void search_callers(const struct search_node *root, const struct search_node *n, char *text,
		    size_t size)
{
	unsigned told = 0;

	text[0] = '\0';
	callers(root, n, text, size, &told);
}

/* ------------------------------------------------------ what is known of it */

void search_decide(struct search *s, enum search_why why, enum search_state state,
		   const char *format, ...)
{
	struct search_node *n = s->roots[why];
	va_list args;

	n->state = state;
	va_start(args, format);
	vsnprintf(n->figure, sizeof(n->figure), format, args);
	va_end(args);
	if (s->world->told)
		s->world->told(s->world->arg, n, n->figure);
}

void search_note(struct search *s, const char *format, ...)
{
	char text[SEARCH_TEXT];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	for (unsigned i = 0; i < s->note_count; i++)
		if (!strcmp(s->notes[i], text))
			return;
	if (s->note_count < SEARCH_NOTES_MAX)
		snprintf(s->notes[s->note_count++], SEARCH_TEXT, "%s", text);
}

void search_reject(struct search *s, enum search_why why, const struct search_measured *list,
		   size_t count)
{
	char *text = s->rejected[why];
	size_t used = strlen(text);

	for (size_t i = 0; i < count && used < SEARCH_TEXT - 1; i++)
		if (list[i].known && list[i].share < SEARCH_REFINE) {
			snprintf(text + used, SEARCH_TEXT - used, "%s%s() %.0f %%",
				 used ? ", " : "", s->chains.functions[list[i].function].function,
				 list[i].share * 100);
			used = strlen(text);
		}
}

void search_find(struct search *s, const struct search_finding *finding)
{
	unsigned at = s->finding_count;

	while (at > 0 && s->findings[at - 1].weight < finding->weight) {
		if (at < SEARCH_FINDINGS_MAX)
			s->findings[at] = s->findings[at - 1];
		at--;
	}
	if (at < SEARCH_FINDINGS_MAX)
		s->findings[at] = *finding;
	s->finding_count += s->finding_count < SEARCH_FINDINGS_MAX;
}

/* --------------------------------------------------------------- the search */

static bool prepare(struct search *s, const struct search_world *world)
{
	s->world = world;
	for (unsigned w = 0; w < SEARCH_WHYS; w++) {
		s->roots[w] = calloc(1, sizeof(*s->roots[w]));
		s->parts[w] = calloc(1, sizeof(*s->parts[w]));
		if (!s->roots[w] || !s->parts[w])
			return false;
		s->roots[w]->why = (enum search_why)w;
		snprintf(s->roots[w]->what, SEARCH_NAME, "%s", parts[w].name);
		snprintf(s->roots[w]->kind, sizeof(s->roots[w]->kind), "program");
	}
	return true;
}

/* The tests that belong to part w stand together: its own come and go as one. */
static bool round_of(struct search *s)
{
	size_t begin[SEARCH_WHYS + 1];
	struct search_tests *t = calloc(1, sizeof(*t));
	bool going = true, any;

	if (!t)
		return false;
	for (unsigned w = 0; w < SEARCH_WHYS; w++) {
		begin[w] = t->count;
		if (!s->parts[w]->done)
			parts[w].tests(s, t);
	}
	begin[SEARCH_WHYS] = t->count;
	any = t->count > 0;
	if (any)
		going = s->world->measure(s->world->arg, t->list, t->count);
	for (unsigned w = 0; w < SEARCH_WHYS; w++)
		if (begin[w + 1] > begin[w])
			parts[w].take(s, t->list + begin[w], begin[w + 1] - begin[w]);
	for (size_t i = 0; i < t->count; i++)
		search_test_release(&t->list[i]);
	free(t);
	s->is_over |= !going;
	return any && going;
}

bool search_run(struct search *s, const struct search_world *world)
{
	if (!prepare(s, world))
		return false;
	s->is_over = !world->observe(world->arg, OBSERVE_S, &s->chains, &s->facts);
	/* A program that is busy was met running in most looks; if not, there were too few. */
	for (unsigned i = 0;
	     i < LOOKS_MORE && !s->is_over && s->facts.cpu >= SEARCH_CPU_BOUND / 2 &&
	     s->chains.looks[CHAIN_RUNS] < RUNNING_LOOKS;
	     i++)
		s->is_over = !world->observe(world->arg, OBSERVE_S / 2, &s->chains, &s->facts);
	for (unsigned i = 0; i < ROUNDS_MAX && !s->is_over; i++)
		if (!round_of(s))
			break;
	return true;
}

void search_release(struct search *s)
{
	for (unsigned w = 0; w < SEARCH_WHYS; w++) {
		node_free(s->roots[w]);
		free(s->parts[w]);
		s->roots[w] = NULL;
		s->parts[w] = NULL;
	}
	chains_release(&s->chains);
}
