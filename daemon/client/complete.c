/* SPDX-License-Identifier: MIT */
/*
 * complete.c - what a word could become, at the prompt and in shells.
 *
 * Owns which kind of word stands where. It is read from the table of commands: from
 * the names in a command's usage (TARGET, FUNCTION, ID, ...) and of its options' values.
 */
#include "daemon/client/complete.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/words.h"

enum { COMPLETE_SECONDS = 2, KIND_MAX = 40 };

void completion_release(struct completion *found)
{
	for (size_t i = 0; i < found->count; i++) {
		free(found->name[i]);
		free(found->about[i]);
	}
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

/* ---------------------------------------------------------------- the words */

static const struct option_spec *spec_in(const struct option_spec *specs, const char *word)
{
	for (; specs && specs->letter; specs++)
		if (word[1] == '-' ? specs->name && strcmp(word + 2, specs->name) == 0
				   : word[1] == specs->letter && specs->letter > ' ' && !word[2])
			return specs;
	return NULL;
}

/* The option that `word` is; NULL if it is none, or has its value with it. */
static const struct option_spec *spec_of(const struct command *command, const char *word)
{
	const struct option_spec *spec;

	if (word[0] != '-' || !word[1])
		return NULL;
	spec = command ? spec_in(command->options, word) : NULL;
	return spec ? spec : spec_in(global_options, word);
}

/* What is there before the word that is typed. */
struct before {
	const struct command *command;	  /* NULL: it is still to come */
	bool lost;			  /* there is no such command */
	const struct option_spec *option; /* whose value comes; or NULL */
	int words;			  /* arguments that are there */
	bool ended;			  /* "--" was there */
	char **word;
	int count;
};

static void look_before(struct context *c, struct before *b, char **word, int count)
{
	memset(b, 0, sizeof(*b));
	b->word = word;
	b->count = count;
	for (int i = 0; i < count; i++) {
		b->option = b->ended ? NULL : spec_of(b->command, word[i]);
		if (b->option && option_wants(b->option) && i + 1 < count) {
			if (b->option->letter == 'p')
				snprintf(c->session, sizeof(c->session), "%s", word[i + 1]);
			b->option = NULL;
			i++;
		} else if (b->option && option_wants(b->option)) {
			return;
		} else if (strcmp(word[i], "--") == 0) {
			b->ended = true;
		} else if (b->ended || word[i][0] != '-') {
			if (!b->command)
				b->command = command_named(word[i]);
			else
				b->words++;
			b->lost = !b->command;
			if (b->lost)
				return;
			if (b->command->first_word_ends && b->words > 0)
				b->ended = true;
		}
		b->option = NULL;
	}
}

/* ----------------------------------------------------------------- the usage */

/* The next name or option of a usage; "|" as itself. NULL at the end. */
static const char *usage_token(const char *usage, char *token, bool *repeats)
{
	size_t length;

	usage += strspn(usage, " [(");
	if (!*usage)
		return NULL;
	length = strcspn(usage, " ])");
	*repeats = strncmp(usage + length, "]...", 4) == 0;
	if (length > 3 && strncmp(usage + length - 3, "...", 3) == 0) {
		*repeats = true;
		snprintf(token, KIND_MAX, "%.*s", (int)length - 3, usage);
	} else {
		snprintf(token, KIND_MAX, "%.*s", (int)length, usage);
	}
	usage += length;
	return usage + strspn(usage, "].)");
}

/* True if the words have the option that an alternative of a usage begins with. */
static bool has_option(const struct before *b, const char *alternative)
{
	char token[KIND_MAX];
	bool repeats;

	if (!usage_token(alternative, token, &repeats) || token[0] != '-')
		return false;
	for (int i = 0; i < b->count; i++)
		if (strcmp(b->word[i], token) == 0)
			return true;
	return false;
}

/*
 * The name of the argument that comes after b->words others: "PATTERN | --summary [MODULE]" says
 * PATTERN, or MODULE where --summary is there. False if there is no further one.
 */
static bool argument_kind(const struct before *b, char *kind)
{
	const char *usage = b->command->usage, *next, *bar;
	const struct option_spec *spec;
	char token[KIND_MAX] = "";
	bool repeats = false;
	int left = b->words;

	for (bar = strstr(usage, " | "); bar; bar = strstr(bar + 3, " | "))
		if (has_option(b, bar + 3))
			usage = bar + 3;
	kind[0] = '\0';
	while ((next = usage_token(usage, token, &repeats)) != NULL && strcmp(token, "|") != 0) {
		usage = next;
		if (token[0] == '-') {
			spec = spec_of(b->command, token);
			if (spec && option_wants(spec))
				usage = usage_token(usage, token, &repeats);
			if (!usage)
				break;
			continue;
		}
		snprintf(kind, KIND_MAX, "%s", token);
		if (left-- == 0 || repeats)
			return true;
	}
	return false;
}

/* ------------------------------------------------------------------- kinds */

static bool is_kind(const char *kind, const char *name)
{
	return strncmp(kind, name, strlen(name)) == 0;
}

static void offer_kind(struct context *c, struct completion *found, const char *typed,
		       const struct command *command, const char *kind)
{
	if (is_kind(kind, "TARGET"))
		offer_targets(c, found, typed);
	else if (is_kind(kind, "SESSION"))
		offer_sessions(c, found, typed);
	else if (is_kind(kind, "METRIC"))
		offer_metrics(c, found, typed);
	else if (is_kind(kind, "FOCUS") && !typed[0])
		offer_resources(c, found, typed);
	else if (is_kind(kind, "FOCUS") || is_kind(kind, "FUNCTION") || is_kind(kind, "PATTERN"))
		offer_functions(c, found, typed);
	else if (is_kind(kind, "MODULE"))
		offer_modules(c, found, typed);
	else if (is_kind(kind, "ID"))
		offer_ids(c, found, typed,
			  command && !strcmp(command->name, "history") ? "history" : "read");
	else if (is_kind(kind, "COMMAND") && command && !strcmp(command->name, "help"))
		offer_commands(found, typed);
	else if (is_kind(kind, "FILE") || is_kind(kind, "SCRIPT") || is_kind(kind, "DIR") ||
		 is_kind(kind, "PROGRAM") || is_kind(kind, "ARG"))
		found->files = true;
	else if (strchr(kind, '|'))
		offer_list(found, typed, kind);
}

void complete_words(struct context *c, char **word, int count, struct completion *found)
{
	const char *typed = count > 0 ? word[count - 1] : "";
	char kind[KIND_MAX];
	struct before b;

	memset(found, 0, sizeof(*found));
	found->typed = strlen(typed);
	look_before(c, &b, word, count > 0 ? count - 1 : 0);
	if (b.lost)
		return;
	if (b.option) {
		offer_kind(c, found, typed, b.command, b.option->value);
	} else if (!b.command) {
		if (typed[0] == '-')
			offer_options(found, typed, global_options);
		else
			offer_commands(found, typed);
	} else if (typed[0] == '-' && !b.ended) {
		offer_options(found, typed, b.command->options);
		offer_options(found, typed, global_options);
	} else if (argument_kind(&b, kind)) {
		offer_kind(c, found, typed, b.command, kind);
	}
}

void complete_line(struct context *c, const char *line, size_t cursor, struct completion *found)
{
	char *text = strndup(line, cursor), *empty[1] = {NULL}, **more;
	char session[PROCESS_NAME_MAX];
	struct dinst_error e = {0, ""};
	struct words w = {0, NULL};

	memset(found, 0, sizeof(*found));
	if (!text || words_split(text, &w, &e) != 0) {
		free(text);
		return;
	}
	/* a word that is not begun is an empty one */
	more = calloc((size_t)w.count + 1, sizeof(*more));
	empty[0] = text + cursor;
	if (more) {
		memcpy(more, w.word, (size_t)w.count * sizeof(*more));
		more[w.count] = empty[0];
		memcpy(session, c->session, sizeof(session));
		complete_words(c, more,
			       w.count + (cursor == 0 || text[cursor - 1] == ' ' ||
					  text[cursor - 1] == '\t'),
			       found);
		memcpy(c->session, session, sizeof(session));
	}
	free(more);
	words_release(&w);
	free(text);
}

int complete_run(struct context *c, int count, char **word)
{
	struct completion found;

	/* whoever waits at a shell does not wait for a session that is busy */
	alarm(COMPLETE_SECONDS);
	if (count > 0 && strcmp(word[0], "--") == 0) {
		word++;
		count--;
	}
	complete_words(c, word, count, &found);
	if (found.files)
		puts(":files");
	for (size_t i = 0; i < found.count; i++) {
		text_clean(found.name[i], false);
		if (found.about[i])
			text_clean(found.about[i], false);
		printf("%s%s%s\n", found.name[i], found.about[i] ? "\t" : "",
		       found.about[i] ? found.about[i] : "");
	}
	completion_release(&found);
	return flush_output(c, EXIT_DONE);
}
