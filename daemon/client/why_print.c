/* SPDX-License-Identifier: MIT */
/*
 * why_print.c - what the search came to: the worst first, then the tree with its figures,
 * what was rejected, what it cost; or the same as JSON. Prints to standard output only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/client/values.h"
#include "daemon/client/why.h"

enum { WIDTH = 14, INDENT = 2, STOP_LONG_US = 3000 };

struct style {
	const char *bold, *dim, *end;
	const char *branch, *last, *line; /* of the tree */
	const char *bars[8];
};

static struct style style_of(const struct why *w)
{
	const bool colours = w->q.terminal && !getenv("NO_COLOR");
	struct style s = {.bold = colours ? "\033[1m" : "",
			  .dim = colours ? "\033[2m" : "",
			  .end = colours ? "\033[0m" : "",
			  .branch = "|- ",
			  .last = "`- ",
			  .line = "|  ",
			  .bars = {"_", "_", ".", ".", ":", ":", "|", "|"}};
	static const char *const fine[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

	if (output_is_fine()) {
		s.branch = "├─ ";
		s.last = "└─ ";
		s.line = "│  ";
		memcpy(s.bars, fine, sizeof(fine));
	}
	return s;
}

/* ------------------------------------------------------------------ as it goes */

void why_tell(void *arg, const struct search_node *node, const char *told)
{
	const struct why *w = arg;
	char *text;

	if (w->q.c->json || w->q.c->quiet)
		return;
	text = strdup(told);
	if (!text)
		return;
	text_clean(text, false);
	/* The line of the progress gives way. */
	if (w->q.terminal)
		fputs("\r\033[K", stdout);
	if (!strcmp(node->kind, "program"))
		printf("  %5.1f s  %-*s %-7s  %s\n", question_seconds(&w->q), WIDTH, node->what,
		       search_state_name(node->state), text);
	else
		printf("  %5.1f s  %-*s %-7s  %s\n", question_seconds(&w->q), WIDTH, "", "", text);
	free(text);
	output_flush();
}

/* Threads, files and children have names that anybody chose: for people, without what a terminal obeys. */
static void clean_node(struct search_node *n)
{
	text_clean(n->what, false);
	text_clean(n->figure, false);
	for (size_t i = 0; i < n->child_count; i++)
		clean_node(n->children[i]);
}

static void clean_search(struct search *s)
{
	text_clean(s->program, false);
	for (unsigned i = 0; i < s->finding_count; i++)
		text_clean(s->findings[i].text, false);
	for (unsigned i = 0; i < s->note_count; i++)
		text_clean(s->notes[i], false);
	for (unsigned i = 0; i < SEARCH_WHYS; i++) {
		text_clean(s->rejected[i], false);
		clean_node(s->roots[i]);
	}
}

/* -------------------------------------------------------------------- the tree */

static void print_children(const struct style *s, const struct search_node *n, const char *before)
{
	char deeper[256];

	for (size_t i = 0; i < n->child_count; i++) {
		const struct search_node *child = n->children[i];
		const bool last = i + 1 == n->child_count;

		printf("%s%s%s%s%s%s%s%s  %s%s%s\n", before, last ? s->last : s->branch,
		       child->is_culprit ? s->bold : "",
		       !strcmp(child->kind, "module") ? "module " : "", child->what,
		       child->is_culprit ? s->end : "", "", child->is_culprit ? "  <==" : "",
		       s->dim, child->figure, s->end);
		snprintf(deeper, sizeof(deeper), "%s%s", before, last ? "   " : s->line);
		print_children(s, child, deeper);
	}
}

static void print_tree(const struct why *w, const struct style *s)
{
	puts("What was tested:");
	for (unsigned i = 0; i < SEARCH_WHYS; i++) {
		const struct search_node *n = w->search.roots[i];

		printf("%*s%s%-*s %-8s%s %s\n", INDENT, "", n->state == SEARCH_HOLDS ? s->bold : "",
		       WIDTH, n->what, search_state_name(n->state),
		       n->state == SEARCH_HOLDS ? s->end : "",
		       n->state == SEARCH_UNTESTED ? "there was no time for it" : n->figure);
		print_children(s, n, "    ");
		if (w->search.rejected[i][0])
			printf("    %srejected: %s%s\n", s->dim, w->search.rejected[i], s->end);
	}
}

/* Where threads wait that have nothing to do; "" if they were never seen to. */
static void idle_text(const struct search *s, char *text, size_t size)
{
	const struct chains *c = &s->chains;
	double most = 0;
	uint32_t best = 0;

	text[0] = '\0';
	for (uint32_t f = 0; f < c->function_count; f++) {
		const double share = chains_leaf_share(c, 1u << CHAIN_IDLE, f);

		if (share > most) {
			most = share;
			best = f;
		}
	}
	if (most > 0)
		snprintf(text, size, "; its threads wait for work (%.0f %% of the waiting in %s())",
			 most * 100, c->functions[best].function);
}

static void verdict_text(const struct why *w, char *text, size_t size)
{
	const struct search *s = &w->search;
	char idle[SEARCH_NAME + 80], children[200];

	if (s->is_over && s->roots[SEARCH_LOCK]->state == SEARCH_UNTESTED) {
		snprintf(text, size, "it was stopped before anything could be told");
		return;
	}
	idle_text(s, idle, sizeof(idle));
	why_children(w->q.pid, children, sizeof(children));
	if (s->roots[SEARCH_CPU]->state == SEARCH_HOLDS)
		snprintf(text, size,
			 "it uses %.0f %% of a CPU, but no function has a large part of that",
			 s->facts.cpu * 100);
	else
		snprintf(
			text, size,
			"nothing is wrong that can be seen from here: it uses %.0f %% of a CPU%s%s%s",
			s->facts.cpu * 100, idle, children[0] ? "; " : "", children);
}

static void print_verdict(const struct why *w, const struct style *s)
{
	char text[SEARCH_TEXT * 2];

	for (unsigned i = 0; i < w->search.finding_count; i++)
		printf("%*s%u. %s%s%s\n", INDENT, "", i + 1, i ? "" : s->bold,
		       w->search.findings[i].text, i ? "" : s->end);
	if (!w->search.finding_count) {
		verdict_text(w, text, sizeof(text));
		text_clean(text, false);
		printf("%*s%s%s%s\n", INDENT, "", s->bold, text, s->end);
	}
}

static void print_when(const struct why *w, const struct style *s)
{
	double most = 1;

	if (w->facts.when_count < 3)
		return;
	for (unsigned i = 0; i < w->facts.when_count; i++)
		if (w->facts.when[i] > most)
			most = w->facts.when[i];
	printf("When: CPU in each second, up to %.0f %%: ", most * 100);
	for (unsigned i = 0; i < w->facts.when_count; i++) {
		int bar = (int)(w->facts.when[i] / most * 7 + 0.5);

		fputs(s->bars[bar < 0 ? 0 : bar > 7 ? 7 : bar], stdout);
	}
	putchar('\n');
}

void why_print(struct why *w)
{
	const struct why_cost *c = &w->cost;
	const struct style s = style_of(w);

	clean_search(&w->search);
	if (w->q.terminal)
		fputs("\r\033[K", stdout);
	printf("\nWhy %s (pid %d) is as it is, after %.0f s%s:\n", w->search.program, (int)w->q.pid,
	       question_seconds(&w->q), w->search.is_over ? " (ended before the search did)" : "");
	print_verdict(w, &s);
	putchar('\n');
	print_tree(w, &s);
	print_when(w, &s);
	printf("What it cost: %.1f %% of a CPU at most (limit %.0f %%), %.0f ms of CPU time in all; "
	       "%u stops, %.1f ms in all, the longest %.1f ms; %u tests, %u looks\n",
	       c->highest, w->search.limit, c->total_ns / 1e6, c->stops, c->stop_us / 1000,
	       c->longest_us / 1000, c->tests, c->looks);
	if (w->search.facts.starved >= SEARCH_WAIT_BOUND && c->longest_us > STOP_LONG_US)
		puts("      (stops are long because CPUs are short: threads wait for one before they can "
		     "stop)");
	if (c->left_out)
		printf("Note: %u threads are more than a look shows: they were not looked at\n",
		       c->left_out);
	for (unsigned i = 0; i < w->search.note_count; i++)
		printf("Note: %s\n", w->search.notes[i]);
}

/* ------------------------------------------------------------------------ JSON */

static json_t *node_json(const struct search_node *n)
{
	json_t *children = json_array();

	for (size_t i = 0; i < n->child_count; i++)
		json_array_append_new(children, node_json(n->children[i]));
	return json_pack("{s:s, s:o, s:s, s:o, s:o, s:f, s:b, s:o, s:o}", "kind", n->kind, "what",
			 rpc_text(n->what), "state", search_state_name(n->state), "module",
			 n->module[0] ? rpc_text(n->module) : json_null(), "function",
			 n->function[0] ? rpc_text(n->function) : json_null(), "share", n->share,
			 "culprit", n->is_culprit, "figure", rpc_text(n->figure), "children",
			 children);
}

static json_t *findings_json(const struct why *w)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < w->search.finding_count; i++) {
		const struct search_finding *f = &w->search.findings[i];

		json_array_append_new(
			list,
			json_pack("{s:s, s:o, s:o, s:o, s:f}", "why", search_why_name(f->why),
				  "text", rpc_text(f->text), "module",
				  f->module[0] ? rpc_text(f->module) : json_null(), "function",
				  f->function[0] ? rpc_text(f->function) : json_null(), "share",
				  f->share));
	}
	return list;
}

void why_print_json(const struct why *w)
{
	const struct search *s = &w->search;
	json_t *tree = json_array(), *notes = json_array(), *when = json_array(), *all;
	char verdict[SEARCH_TEXT * 2] = "";

	for (unsigned i = 0; i < SEARCH_WHYS; i++) {
		json_t *root = node_json(s->roots[i]);

		json_object_set_new(root, "rejected", rpc_text(s->rejected[i]));
		json_array_append_new(tree, root);
	}
	for (unsigned i = 0; i < s->note_count; i++)
		json_array_append_new(notes, rpc_text(s->notes[i]));
	for (unsigned i = 0; i < w->facts.when_count; i++)
		json_array_append_new(when, json_real(w->facts.when[i]));
	if (s->finding_count)
		snprintf(verdict, sizeof(verdict), "%s", s->findings[0].text);
	else
		verdict_text(w, verdict, sizeof(verdict));
	all = json_pack("{s:o, s:I, s:f, s:b, s:o, s:o, s:o, s:o, s:o}", "target",
			rpc_text(s->program), "pid", (json_int_t)w->q.pid, "seconds",
			question_seconds(&w->q), "complete", !s->is_over, "verdict",
			rpc_text(verdict), "findings", findings_json(w), "tree", tree, "notes",
			notes, "cpu_by_second", when);
	json_object_set_new(all, "facts",
			    json_pack("{s:f, s:f, s:f, s:f, s:i, s:f, s:f}", "cpu", s->facts.cpu,
				      "user", s->facts.user, "system", s->facts.system,
				      "waiting_for_cpu", s->facts.starved, "threads",
				      (int)s->facts.threads, "memory", s->facts.memory,
				      "memory_growth", s->facts.growth));
	json_object_set_new(all, "cost",
			    json_pack("{s:f, s:f, s:f, s:i, s:f, s:f, s:i, s:i, s:i, s:i}", "limit",
				      s->limit, "highest", w->cost.highest, "cpu_ms",
				      w->cost.total_ns / 1e6, "stops", (int)w->cost.stops,
				      "stop_us", w->cost.stop_us, "longest_stop_us",
				      w->cost.longest_us, "tests", (int)w->cost.tests, "looks",
				      (int)w->cost.looks, "left_out", (int)w->cost.left_out,
				      "switched_off", (int)w->cost.switched_off));
	print_json(all);
	json_decref(all);
}
