/* SPDX-License-Identifier: MIT */
/*
 * help.c - what --help prints: a screen of 24 lines and 80 columns for each command, and
 * one for all of them.
 *
 * Owns the look of it. What it says stands in the table of commands (dispatch.c).
 */
#include <stdio.h>
#include <string.h>

#include "daemon/client/command.h"

enum { HELP_WIDTH = 79, OPTION_COLUMN = 26 };

/* The bytes of the next word of a text; blanks inside of [brackets] belong to it. */
static size_t word_length(const char *text)
{
	size_t length = 0;
	int open = 0;

	while (text[length] && (open > 0 || (text[length] != ' ' && text[length] != '\n'))) {
		open += text[length] == '[';
		open -= text[length] == ']';
		length++;
	}
	return length;
}

/*
 * Prints a text in lines of HELP_WIDTH, the first of which has `used` bytes already, the others
 * `indent` blanks. Empty lines stay; other newlines are blanks.
 */
static void print_wrapped(const char *text, int used, int indent)
{
	int column = used;

	while (*text) {
		int length;

		if (text[0] == '\n' && text[1] == '\n') {
			fputs("\n\n", stdout);
			text += 2;
			column = 0;
			continue;
		}
		if (*text == ' ' || *text == '\n') {
			text++;
			continue;
		}
		length = (int)word_length(text);
		if (column > indent && column + 1 + length > HELP_WIDTH) {
			printf("\n%*s", indent, "");
			column = indent;
		} else if (column > 0 && column != indent) {
			putchar(' ');
			column++;
		}
		fwrite(text, 1, (size_t)length, stdout);
		column += length;
		text += length;
	}
	putchar('\n');
}

static void help_options(const struct option_spec *specs)
{
	char left[48];
	int n;

	for (; specs && specs->letter; specs++) {
		const char *gap = option_wants(specs) ? " " : "";
		const char *value = specs->value ? specs->value : "";

		if (specs->letter > ' ' && specs->name)
			n = snprintf(left, sizeof(left), "  -%c, --%s%s%s", specs->letter,
				     specs->name, gap, value);
		else if (specs->letter > ' ')
			n = snprintf(left, sizeof(left), "  -%c%s%s", specs->letter, gap, value);
		else
			n = snprintf(left, sizeof(left), "      --%s%s%s", specs->name, gap, value);
		n = n < (int)sizeof(left) ? n : (int)sizeof(left) - 1;
		printf("%-*s", OPTION_COLUMN, left);
		print_wrapped(specs->help, n < OPTION_COLUMN ? OPTION_COLUMN : n,
			      OPTION_COLUMN + 1);
	}
}

void command_help(const struct command *command)
{
	int used = printf("usage: dinst %s", command->name);

	print_wrapped(command->usage, used, 8);
	printf("%s.\n", command->summary);
	if (command->more[0]) {
		putchar('\n');
		print_wrapped(command->more, 0, 0);
	}
	putchar('\n');
	help_options(command->options);
	puts("  -p TARGET, -q, -v, --json  as for every command (dinst --help)\n");
	/* in a line of its own where it is long */
	printf("Example:%s%s\n", strlen(command->example) + 9 > HELP_WIDTH ? "\n  " : " ",
	       command->example);
}

/* Which commands belong together. Those of the first group are explained. */
static const struct group {
	const char *title, *commands;
} groups[] = {
	{"Questions", "top hist trace graph why record report"},
	{"Sessions", "attach exec ls detach repair stop serve doctor"},
	{"What there is", "modules funcs points cfg metrics"},
	{"Instruments", "insert read watch history remove flush"},
	{"Scripts", "run help quit"},
};

enum { GROUPS = sizeof(groups) / sizeof(groups[0]) };

/* A command that is in no group yet is shown all the same. */
static bool in_a_group(const char *name)
{
	size_t length = strlen(name);

	for (size_t i = 0; i < GROUPS; i++)
		for (const char *at = groups[i].commands; at; at = strchr(at, ' ')) {
			at += *at == ' ';
			if (strncmp(at, name, length) == 0 && (at[length] == ' ' || !at[length]))
				return true;
		}
	return false;
}

static void explain_group(const char *names)
{
	const struct command *command;
	char name[24];
	size_t length;

	for (; *names; names += length + (names[length] == ' ')) {
		length = strcspn(names, " ");
		snprintf(name, sizeof(name), "%.*s", (int)length, names);
		command = command_named(name);
		if (command)
			printf("  %-8s %s\n", name, command->summary);
	}
}

void commands_help(void)
{
	puts("usage: dinst [--json] [-q|-v] COMMAND [-p TARGET] ...\n"
	     "Looks into running programs. TARGET is a pid, a process name or a session; it\n"
	     "may be left out where there is exactly one session. Questions attach and leave\n"
	     "by themselves:\n");
	explain_group(groups[0].commands);
	putchar('\n');
	for (size_t i = 1; i < GROUPS; i++)
		printf("%-14s %s\n", groups[i].title, groups[i].commands);
	for (const struct command *command = commands; command->name; command++)
		if (!in_a_group(command->name))
			printf("%-14s %s\n", "", command->name);
	puts("\n"
	     "  --json  one JSON object per result line    -q, --quiet    no notes\n"
	     "  -p, --target TARGET                        -v, --verbose  more\n"
	     "  -V, --version                              -h, --help     of a command, too\n"
	     "Exit status: 0 done, 1 failed, 2 wrong usage, 3 done in part.\n"
	     "Example: dinst top redis-server");
}
