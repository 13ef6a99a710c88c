/* SPDX-License-Identifier: MIT */
/*
 * script.c - commands from files, from -x and -e, and from the prompt's lines.
 *
 * Owns what a line means: words as a simple shell cuts them, `#` comments, and
 * a leading `-` for a line whose failure does not end the script. A signal that ends a
 * command ends the script as well.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/client/command.h"
#include "daemon/common/words.h"

enum { SCRIPT_DEPTH = 8 };

/* Runs the words as a command. The options are taken out of a copy: the words stay whole. */
static int run_words(struct context *c, const struct words *w)
{
	size_t skip = w->count > 1 && strcmp(w->word[0], "dinst") == 0;
	size_t count = (size_t)w->count - skip;
	char **argv = calloc(count + 1, sizeof(*argv));
	int status;

	if (!argv)
		return report_text(c, DINST_NO_MEMORY, "no memory for a command");
	memcpy(argv, w->word + skip, count * sizeof(*argv));
	status = command_run(c, (int)count, argv);
	free(argv);
	return status;
}

int run_line(struct context *c, const char *line)
{
	const char *target = c->target;
	bool json = c->json, quiet = c->quiet, verbose = c->verbose;
	struct dinst_error e = {0, ""};
	struct words w;
	bool go_on;
	int status = EXIT_DONE;

	line += strspn(line, " \t");
	go_on = line[0] == '-';
	if (go_on)
		line++;
	if (words_split(line, &w, &e) != 0) {
		status = report(c, &e);
	} else if (w.count > 0) {
		status = run_words(c, &w);
		/* what one line sets is not for the next one */
		c->target = target;
		c->json = json;
		c->quiet = quiet;
		c->verbose = verbose;
	}
	words_release(&w);
	return go_on ? EXIT_DONE : status;
}

bool told_to_end(const struct context *c)
{
	return c->ended_by && c->ended_by != SIGINT;
}

int report_ended(struct context *c, const char *undone)
{
	return report_text(c, DINST_FAILED, "ended by a signal (%s): %s", strsignal(c->ended_by),
			   undone);
}

static const char not_run[] = "what follows is not run";

/* What is no file may take its time to say so: it is taken to go on. */
static bool more_follows(FILE *file)
{
	bool more = false;
	size_t size = 0;
	char *line = NULL;
	struct stat st;

	if (fstat(fileno(file), &st) != 0 || !S_ISREG(st.st_mode))
		return true;
	while (!more && getline(&line, &size, file) >= 0) {
		const char *word = line + strspn(line, " \t\r\n");

		more = *word && *word != '#';
	}
	free(line);
	return more;
}

static int run_lines(struct context *c, FILE *file)
{
	int status = EXIT_DONE, one;
	size_t size = 0;
	char *line = NULL;

	while (!c->quit && getline(&line, &size, file) >= 0) {
		c->line++;
		one = run_line(c, line);
		/* done in part is not an error that ends a script, but it is told at the end */
		if (one == EXIT_PARTIAL)
			status = one;
		else if (one != EXIT_DONE) {
			status = one;
			break;
		}
		if (c->ended_by) {
			if (more_follows(file))
				status = report_ended(c, not_run);
			break;
		}
	}
	if (ferror(file))
		status = report_text(c, DINST_BAD_FILE, "cannot read the script: %s",
				     strerror(errno));
	free(line);
	return status;
}

int run_script(struct context *c, const char *path)
{
	const char *source = c->source;
	unsigned line = c->line;
	bool standard = strcmp(path, "-") == 0;
	FILE *file;
	int status;

	if (c->depth == SCRIPT_DEPTH)
		return report_text(c, DINST_USAGE, "scripts run scripts more than %d deep",
				   SCRIPT_DEPTH);
	file = standard ? stdin : fopen(path, "re");
	if (!file)
		return report_text(c, DINST_BAD_FILE, "cannot open the script %s: %s", path,
				   strerror(errno));
	c->source = standard ? "standard input" : path;
	c->line = 0;
	c->depth++;
	status = run_lines(c, file);
	c->depth--;
	c->source = source;
	c->line = line;
	if (!standard)
		fclose(file);
	return status;
}

static bool more_given(const struct arguments *a, int from)
{
	for (; from < a->given_count; from++)
		if (a->given[from].letter == 'x' || a->given[from].letter == 'e')
			return true;
	return false;
}

int run_given(struct context *c, const struct arguments *a)
{
	int status = EXIT_DONE;

	c->depth++;
	for (int i = 0; i < a->given_count; i++) {
		const struct option_given *given = &a->given[i];
		int one = EXIT_DONE;

		if (given->letter == 'x')
			one = run_script(c, given->value);
		else if (given->letter == 'e')
			one = run_line(c, given->value);
		if (one != EXIT_DONE)
			status = one;
		if (one != EXIT_DONE && one != EXIT_PARTIAL)
			break;
		if (c->ended_by) {
			if (more_given(a, i + 1))
				status = report_ended(c, not_run);
			break;
		}
	}
	c->depth--;
	return status;
}

int run_run(struct context *c, const struct arguments *a)
{
	return run_script(c, a->word[0]);
}
