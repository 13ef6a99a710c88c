/* SPDX-License-Identifier: MIT */
/*
 * prompt.c - commands from a terminal, with history.
 *
 * Owns the terminal while a line is typed. Everything a line does is done by
 * run_line(), so the prompt can do exactly what scripts can. Completion is
 * complete.c's.
 */
#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#include "daemon/client/command.h"
#include "daemon/client/complete.h"

enum { HISTORY_SIZE = 2000 };

struct prompt {
	struct context *context;
	EditLine *edit;
	History *history;
	char path[PATH_MAX]; /* of the history; empty if there is none */
	char text[PROCESS_NAME_MAX + 16];
};

static void on_interrupt(int sig)
{
	(void)sig;
	link_interrupted = 1;
}

static char *prompt_text(EditLine *edit)
{
	struct prompt *p = NULL;

	el_get(edit, EL_CLIENTDATA, &p);
	if (p->context->session[0])
		snprintf(p->text, sizeof(p->text), "dinst %s> ", p->context->session);
	else
		snprintf(p->text, sizeof(p->text), "dinst> ");
	return p->text;
}

/* Puts a completed word into the line, with a backslash before what would split it. */
static void insert_text(EditLine *edit, const char *text)
{
	char quoted[2 * COMPLETION_MAX + 1];
	size_t used = 0;

	for (; *text && used + 2 < sizeof(quoted); text++) {
		if (strchr(" \t'\"\\", *text))
			quoted[used++] = '\\';
		quoted[used++] = *text;
	}
	quoted[used] = '\0';
	if (used)
		el_insertstr(edit, quoted);
}

static void show_candidates(const struct completion *found)
{
	int width = 0;

	for (size_t i = 0; i < found->count; i++)
		if ((int)strlen(found->name[i]) > width)
			width = (int)strlen(found->name[i]);
	putchar('\n');
	for (size_t i = 0; i < found->count; i++) {
		bool last = width > 36 ||
			    i % (78 / ((size_t)width + 2)) == 78 / ((size_t)width + 2) - 1;

		/* processes call themselves what they like */
		text_clean(found->name[i], false);
		printf("%-*s%s", width + 2, found->name[i], last ? "\n" : "");
	}
	if (found->more)
		printf("... and more");
	putchar('\n');
	fflush(stdout);
}

static unsigned char on_tab(EditLine *edit, int key)
{
	const LineInfo *line = el_line(edit);
	struct completion found;
	struct prompt *p = NULL;
	unsigned char did = CC_ERROR;
	size_t common;

	(void)key;
	el_get(edit, EL_CLIENTDATA, &p);
	complete_line(p->context, line->buffer, (size_t)(line->cursor - line->buffer), &found);
	common = completion_common(&found);
	if (found.count > 0 && common > found.typed) {
		char *name = strndup(found.name[0], common);

		if (name)
			insert_text(edit, name + found.typed);
		free(name);
		did = CC_REFRESH;
	} else if (found.count > 1) {
		show_candidates(&found);
		did = CC_REDISPLAY;
	}
	if (found.count == 1 && !found.open)
		el_insertstr(edit, " ");
	if (found.count == 1)
		did = CC_REFRESH;
	completion_release(&found);
	return did;
}

/*
 * Reads a character. An interrupt that comes between the look at the flag and
 * the wait must not be lost until the next key, so both are one step (ppoll).
 */
static int read_key(EditLine *edit, wchar_t *key)
{
	struct pollfd input = {STDIN_FILENO, POLLIN, 0};
	mbstate_t shift;
	sigset_t interrupt, before;
	size_t got = (size_t)-2;
	int ready = 0;
	char byte;

	(void)edit;
	memset(&shift, 0, sizeof(shift));
	sigemptyset(&interrupt);
	sigaddset(&interrupt, SIGINT);
	sigprocmask(SIG_BLOCK, &interrupt, &before);
	while (got == (size_t)-2) {
		do {
			ready = link_interrupted ? -1 : ppoll(&input, 1, NULL, &before);
		} while (ready < 0 && errno == EINTR && !link_interrupted);
		if (ready <= 0 || read(STDIN_FILENO, &byte, 1) != 1)
			break;
		got = mbrtowc(key, &byte, 1, &shift);
		/* what is no character is taken as it is, as a question mark */
		if (got == (size_t)-1)
			*key = L'?';
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (ready < 0)
		errno = EINTR;
	return ready < 0 ? -1 : got != (size_t)-2;
}

static void prompt_close(struct prompt *p)
{
	HistEvent event;

	if (p->history) {
		if (p->path[0]) {
			mode_t mask = umask(077);

			history(p->history, &event, H_SAVE, p->path);
			chmod(p->path, 0600);
			umask(mask);
		}
		history_end(p->history);
	}
	if (p->edit)
		el_end(p->edit);
}

static bool prompt_open(struct prompt *p)
{
	HistEvent event;

	setlocale(LC_CTYPE, "");
	p->edit = el_init("dinst", stdin, stdout, stderr);
	p->history = history_init();
	if (!p->edit || !p->history)
		return false;
	el_set(p->edit, EL_CLIENTDATA, p);
	el_set(p->edit, EL_PROMPT, prompt_text);
	el_set(p->edit, EL_EDITOR, "emacs");
	el_set(p->edit, EL_SIGNAL, 0);
	el_set(p->edit, EL_GETCFN, read_key);
	el_set(p->edit, EL_HIST, history, p->history);
	el_set(p->edit, EL_ADDFN, "dinst-complete", "complete a word", on_tab);
	el_set(p->edit, EL_BIND, "^I", "dinst-complete", NULL);
	el_set(p->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
	/* What is bound in another user's .editrc is not what we type. */
	if (home_is_own())
		el_source(p->edit, NULL);
	history(p->history, &event, H_SETSIZE, HISTORY_SIZE);
	history(p->history, &event, H_SETUNIQUE, 1);
	if (history_path(p->path))
		history(p->history, &event, H_LOAD, p->path);
	else
		p->path[0] = '\0';
	return true;
}

static void prompt_lines(struct prompt *p)
{
	struct context *c = p->context;
	HistEvent event;
	const char *line;
	int count;

	while (!c->quit) {
		el_resize(p->edit);
		line = el_gets(p->edit, &count);
		if (link_interrupted) {
			/* Ctrl-C drops the line, as in a shell */
			link_interrupted = 0;
			putchar('\n');
			el_reset(p->edit);
			continue;
		}
		if (!line || count <= 0) {
			if (!line && errno == EINTR)
				continue;
			putchar('\n');
			break;
		}
		if (line[strspn(line, " \t\r\n")])
			history(p->history, &event, H_ENTER, line);
		run_line(c, line);
		/* the terminal has shown ^C: the prompt begins on a line of its own */
		if (link_interrupted)
			putchar('\n');
		fflush(stdout);
		clearerr(stdout);
		link_interrupted = 0;
		if (told_to_end(c))
			break;
		c->ended_by = 0;
	}
}

bool prompt_wanted(const struct context *c)
{
	return !c->json && !c->prompt && c->depth == 0 && isatty(STDIN_FILENO) &&
	       isatty(STDOUT_FILENO);
}

int prompt_loop(struct context *c)
{
	struct sigaction action = {.sa_handler = on_interrupt}, before;
	struct prompt p;

	memset(&p, 0, sizeof(p));
	p.context = c;
	c->prompt = true;
	c->ended_by = 0;
	c->target = NULL;
	sigaction(SIGINT, &action, &before);
	if (prompt_open(&p))
		prompt_lines(&p);
	prompt_close(&p);
	sigaction(SIGINT, &before, NULL);
	c->prompt = false;
	return EXIT_DONE;
}
