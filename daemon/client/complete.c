/* SPDX-License-Identifier: MIT */
/*
 * complete.c - what a word of the prompt could become.
 *
 * Owns which kind of word stands where: commands, metrics, resource paths,
 * functions, ids, sessions, options. Errors mean: no candidates.
 */
#include "daemon/client/complete.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/words.h"

void completion_release(struct completion *found)
{
	for (size_t i = 0; i < found->count; i++)
		free(found->name[i]);
	found->count = 0;
}

size_t completion_common(const struct completion *found)
{
	size_t common = found->count ? strlen(found->name[0]) : 0;

	for (size_t i = 1; i < found->count; i++) {
		size_t same = 0;

		while (same < common && found->name[i][same] == found->name[0][same])
			same++;
		common = same;
	}
	return common;
}

/* Adds head + name if it begins with what was typed. */
static void offer(struct completion *found, const char *typed, const char *head, const char *name)
{
	char text[COMPLETION_MAX];

	if (snprintf(text, sizeof(text), "%s%s", head, name) >= (int)sizeof(text) ||
	    strncmp(text, typed, strlen(typed)) != 0)
		return;
	for (size_t i = 0; i < found->count; i++)
		if (strcmp(found->name[i], text) == 0)
			return;
	if (found->count == COMPLETIONS_MAX)
		found->more = true;
	else if ((found->name[found->count] = strdup(text)) != NULL)
		found->count++;
}

static void ignore(void *arg, const char *method, json_t *params)
{
	(void)arg;
	(void)method;
	(void)params;
}

/* A call whose failure only means that nothing is offered. */
static json_t *ask(struct context *c, const char *method, json_t *params)
{
	struct dinst_error e = {0, ""};
	json_t *answer = NULL;

	if (!params)
		return NULL;
	if (c->session[0] && strcmp(method, "sessions") != 0)
		json_object_set_new(params, "session", rpc_text(c->session));
	call_daemon(c, false, method, params, ignore, NULL, &answer, &e);
	json_decref(params);
	return answer;
}

/* Offers the member `key` of all rows. */
static void offer_rows(struct context *c, struct completion *found, const char *typed,
		       const char *head, const char *tail, const char *method, const char *key)
{
	json_t *answer = ask(c, method, json_object());
	char text[COMPLETION_MAX];
	size_t index;
	json_t *row;

	json_array_foreach(json_object_get(answer, "rows"), index, row)
	{
		json_t *value = json_object_get(row, key);

		if (json_is_string(value))
			snprintf(text, sizeof(text), "%.200s%s", json_string_value(value), tail);
		else if (json_is_integer(value))
			snprintf(text, sizeof(text), "%lld%s", (long long)json_integer_value(value),
				 tail);
		else
			continue;
		offer(found, typed, head, text);
	}
	json_decref(answer);
}

static void offer_functions(struct context *c, struct completion *found, const char *typed,
			    const char *head, const char *module)
{
	const char *prefix = typed + strlen(head);
	json_t *params = json_pack("{s:o,s:i}", "prefix", rpc_text(prefix), "max", COMPLETIONS_MAX);
	json_t *answer, *name;
	size_t index;

	if (module)
		json_object_set_new(params, "module", rpc_text(module));
	answer = ask(c, "complete", params);
	json_array_foreach(json_object_get(answer, "names"), index, name) if (json_is_string(name))
		offer(found, typed, head, json_string_value(name));
	json_decref(answer);
}

/* /Code/MODULE/FUNCTION */
static void offer_resource(struct context *c, struct completion *found, const char *typed)
{
	static const char code[] = "/Code/";
	char head[COMPLETION_MAX], module[COMPLETION_MAX];
	const char *slash;

	if (strncmp(typed, code, sizeof(code) - 1) != 0) {
		offer(found, typed, "", code);
		found->open = true;
		return;
	}
	slash = strchr(typed + sizeof(code) - 1, '/');
	if (!slash) {
		offer_rows(c, found, typed, code, "/", "modules", "module");
		found->open = true;
		return;
	}
	snprintf(head, sizeof(head), "%.*s", (int)(slash + 1 - typed), typed);
	snprintf(module, sizeof(module), "%.*s", (int)(slash - typed - (sizeof(code) - 1)),
		 typed + sizeof(code) - 1);
	offer_functions(c, found, typed, head, module);
}

static void offer_options(const struct option_spec *specs, struct completion *found,
			  const char *typed)
{
	for (; specs && specs->letter; specs++)
		offer(found, typed, "--", specs->name);
}

static void offer_argument(struct context *c, struct completion *found, const struct words *w,
			   const char *typed)
{
	const struct command *command = command_named(w->word[0]);
	const char *before = w->word[w->count - 1];
	const char *name = w->word[0];

	if (!command)
		return;
	if (typed[0] == '-') {
		offer_options(command->options, found, typed);
		offer_options(global_options, found, typed);
	} else if (strcmp(before, "-p") == 0 || strcmp(name, "detach") == 0 ||
		   strcmp(name, "attach") == 0) {
		offer_rows(c, found, typed, "", "", "sessions", "session");
	} else if (strcmp(name, "insert") == 0) {
		if (w->count == 1)
			offer_rows(c, found, typed, "", "", "metrics", "metric");
		else
			offer_resource(c, found, typed);
	} else if (strcmp(name, "funcs") == 0 || strcmp(name, "points") == 0 ||
		   strcmp(name, "cfg") == 0) {
		if (strcmp(before, "--summary") == 0)
			offer_rows(c, found, typed, "", "", "modules", "module");
		else
			offer_functions(c, found, typed, "", NULL);
	} else if (strcmp(name, "read") == 0 || strcmp(name, "remove") == 0 ||
		   strcmp(name, "watch") == 0) {
		offer_rows(c, found, typed, "", "", "read", "id");
	} else if (strcmp(name, "history") == 0) {
		offer_rows(c, found, typed, "", "", "history", "id");
	} else if (strcmp(name, "help") == 0) {
		for (command = commands; command->name; command++)
			offer(found, typed, "", command->name);
	}
}

void complete_line(struct context *c, const char *line, size_t cursor, struct completion *found)
{
	char *text = strndup(line, cursor);
	struct dinst_error e = {0, ""};
	struct words w = {0, NULL};
	const char *typed = "";
	bool blank, taken = false;

	memset(found, 0, sizeof(*found));
	if (!text || words_split(text, &w, &e) != 0) {
		free(text);
		return;
	}
	blank = cursor == 0 || text[cursor - 1] == ' ' || text[cursor - 1] == '\t';
	if (!blank && w.count > 0) {
		typed = w.word[--w.count];
		taken = true;
	}
	found->typed = strlen(typed);
	if (w.count == 0) {
		for (const struct command *command = commands; command->name; command++)
			offer(found, typed, "", command->name);
	} else {
		offer_argument(c, found, &w, typed);
	}
	w.count += taken;
	words_release(&w);
	free(text);
}
