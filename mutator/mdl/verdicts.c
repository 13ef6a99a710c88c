/* SPDX-License-Identifier: MIT */
/*
 * verdicts.c - files of the user's that are loaded together, and what there is
 * to say of each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/mdl/private.h"

enum { VERDICT_ROOM = 32 * 1024, CANDIDATES_MOST = 512 };

/* The global constraint whose name is nearest. */
static const char *nearest_constraint(const struct mdl_library *l, const char *name)
{
	const char *names[CANDIDATES_MOST];
	size_t count = 0;

	for (const struct mdl_constraint *c = l->constraints; c; c = c->next)
		if (count < CANDIDATES_MOST)
			names[count++] = c->name;
	return mdl_nearest(name, names, count);
}

/* Constraints that a file's metrics name and nobody has: they may come later. */
static char *doubts(const struct mdl_library *l, const struct source *source)
{
	char *text = malloc(VERDICT_ROOM);
	struct messages messages;
	const char *meant;

	if (!text)
		return NULL;
	messages_init(&messages, text, VERDICT_ROOM);
	for (const struct mdl_metric *m = l->metrics; m; m = m->next) {
		if (m->place.file != source->file)
			continue;
		for (const struct mdl_use *u = m->uses; u; u = u->next) {
			if (mdl_used_constraint(l, u))
				continue;
			meant = messages.left_out ? NULL : nearest_constraint(l, u->name);
			messages_add(&messages, source, &u->place,
				     "warning: no constraint '%.60s' is loaded%s%s%s", u->name,
				     meant ? "; did you mean '" : "", meant ? meant : "",
				     meant ? "'?" : "");
		}
	}
	messages_end(&messages);
	if (messages.count)
		return text;
	free(text);
	return NULL;
}

/* A file that cannot be read has one message. */
static int unreadable(struct mdl_verdict *verdict, const struct dinst_error *why,
		      struct dinst_error *e)
{
	verdict->bad = true;
	verdict->text = strdup(why->text);
	if (!verdict->text || why->code == DINST_NO_MEMORY)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory to read files");
	return 0;
}

static int begin(struct mdl_library *l, struct loading **first, const char *path,
		 struct loading **loading, struct mdl_verdict *verdict, struct dinst_error *e)
{
	struct dinst_error own = {0};
	char *text = NULL;
	size_t size = 0;
	int err = 0;

	if (!read_file(path, &text, &size, &own))
		*loading = loading_begin(l, first, path, text, size, VERDICT_ROOM, &own);
	if (!*loading)
		err = unreadable(verdict, &own, e);
	free(text);
	return err;
}

int mdl_load_files(struct mdl_library *l, const char *const *paths, size_t count,
		   struct mdl_verdict *verdicts, struct dinst_error *e)
{
	struct loading **loadings = calloc(count ? count : 1, sizeof(struct loading *));
	const struct source **sources = calloc(count ? count : 1, sizeof(struct source *));
	struct loading *first = NULL;
	int err = 0;

	memset(verdicts, 0, count * sizeof(*verdicts));
	if (!loadings || !sources)
		err = dinst_fail(e, DINST_NO_MEMORY, "no memory to read files");
	for (size_t i = 0; i < count && !err; i++)
		err = begin(l, &first, paths[i], &loadings[i], &verdicts[i], e);
	if (!err)
		loading_check(first);
	for (size_t i = 0; i < count && loadings && sources; i++) {
		struct dinst_error own = {0};

		if (!loadings[i])
			continue;
		/* what was not checked does not go in */
		if (err)
			loadings[i]->parser.failed = DINST_NO_MEMORY;
		sources[i] = loadings[i]->parser.source;
		verdicts[i].bad = loading_end(l, loadings[i], &verdicts[i].text, &own) != 0;
	}
	for (size_t i = 0; i < count && !err; i++)
		if (!verdicts[i].bad)
			verdicts[i].text = doubts(l, sources[i]);
	free(loadings);
	free(sources);
	return err;
}
