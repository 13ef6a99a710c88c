/* SPDX-License-Identifier: MIT */
/*
 * load.c - texts on their way into the library.
 *
 * Owns a text's memory until it is in the library, all of it, or not at all.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/mdl/check.h"
#include "mutator/mdl/private.h"

/* Copies of the text: one to be shown in messages, one to be read by the lexer. */
static char *copy_text(struct parser *p, const char *file, const char *text, size_t size)
{
	char *buffer = malloc(size + 2);

	p->source = pool_take(p->pool, sizeof(*p->source));
	if (p->source) {
		p->source->file = pool_copy(p->pool, file, strlen(file));
		p->source->text = pool_copy(p->pool, text, size);
		p->source->size = size;
	}
	if (!buffer || !p->source || !p->source->file || !p->source->text) {
		free(buffer);
		return NULL;
	}
	if (size)
		memcpy(buffer, text, size);
	buffer[size] = buffer[size + 1] = '\0';
	return buffer;
}

struct loading *loading_begin(struct mdl_library *l, struct loading **first, const char *file,
			      const char *text, size_t size, size_t room, struct dinst_error *e)
{
	struct loading *g = calloc(1, sizeof(*g)), **last = first;
	struct mdl_place start = {file, 1, 1};
	char *buffer = NULL;

	if (g) {
		g->parser.pool = &g->pool;
		g->keep = pool_take(&g->pool, sizeof(*g->keep));
		g->told = malloc(room);
		buffer = copy_text(&g->parser, file, text, size > TEXT_MOST ? 0 : size);
	}
	if (!g || !g->keep || !g->told || !buffer) {
		if (g) {
			pool_free(&g->pool);
			free(g->told);
		}
		free(buffer);
		free(g);
		dinst_fail(e, DINST_NO_MEMORY, "no memory to read %s", file);
		return NULL;
	}
	messages_init(&g->parser.messages, g->told, room);
	g->parser.known = l;
	if (size > TEXT_MOST)
		parser_error(&g->parser, &start, "this text is too large: more than %d bytes",
			     TEXT_MOST);
	else
		parse(&g->parser, buffer, size);
	free(buffer);
	while (*last)
		last = &(*last)->next;
	*last = g;
	return g;
}

void loading_check(struct loading *first)
{
	for (struct loading *g = first; g; g = g->next) {
		g->parser.together = first;
		if (!g->parser.failed && !g->parser.messages.count)
			check_unit(&g->parser);
	}
}

int loading_end(struct mdl_library *l, struct loading *g, char **told, struct dinst_error *e)
{
	struct parser *p = &g->parser;
	int err = 0;

	if (p->failed == DINST_NO_MEMORY) {
		err = dinst_fail(e, DINST_NO_MEMORY, "no memory to read %s", p->source->file);
	} else if (p->messages.count) {
		messages_end(&p->messages);
		err = dinst_fail_text(e, DINST_USAGE, g->told);
	}
	if (err) {
		pool_free(&g->pool);
	} else {
		g->keep->pool = g->pool;
		library_commit(l, p, g->keep);
	}
	if (told && err)
		*told = g->told;
	else
		free(g->told);
	free(g);
	return err;
}

int mdl_load_text(struct mdl_library *l, const char *file, const char *text, size_t size,
		  struct dinst_error *e)
{
	struct loading *first = NULL;

	if (!loading_begin(l, &first, file, text, size, DINST_ERROR_TEXT, e))
		return DINST_NO_MEMORY;
	loading_check(first);
	return loading_end(l, first, NULL, e);
}
