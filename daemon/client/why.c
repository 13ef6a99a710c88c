/* SPDX-License-Identifier: MIT */
/*
 * why.c - `dinst why`: searches for what makes a program slow, and says which function.
 *
 * Joins the search (daemon/report/search.h) and a question's session. Owns nothing else.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/client/why.h"
#include "inject/proc.h"

static const double DURATION_S = 30, LIMIT_PERCENT = 10;

static int read_limit(struct context *c, const struct arguments *a, double *limit)
{
	const char *text = arguments_get(a, OPTION_LIMIT);
	char *end;

	*limit = LIMIT_PERCENT;
	if (!text)
		return EXIT_DONE;
	*limit = strtod(text, &end);
	if (end == text || *end || !(*limit > 0) || *limit > 100)
		return report_text(c, DINST_USAGE, "--limit takes percent of a CPU, above 0");
	return EXIT_DONE;
}

int why_run(struct context *c, const struct arguments *a)
{
	struct search_world world;
	int status = EXIT_DONE;
	struct why *w;
	double limit;

	status = read_limit(c, a, &limit);
	if (status != EXIT_DONE)
		return status;
	if (a->word_count)
		c->target = a->word[0];
	w = calloc(1, sizeof(*w));
	if (!w)
		return report_text(c, DINST_NO_MEMORY, "no memory");
	w->q.duration_s = DURATION_S;
	w->search.limit = limit;
	status = question_begin(&w->q, c, a);
	if (status == EXIT_DONE) {
		proc_word(w->q.pid, "comm", w->search.program, sizeof(w->search.program));
		why_world(w, &world);
		if (!search_run(&w->search, &world))
			status = report_text(c, DINST_NO_MEMORY, "no memory for the search");
		else if (c->json)
			why_print_json(w);
		else
			why_print(w);
		status = question_end(&w->q, status);
	}
	search_release(&w->search);
	why_facts_release(&w->facts);
	free(w);
	return status;
}
