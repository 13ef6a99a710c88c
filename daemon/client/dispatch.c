/* SPDX-License-Identifier: MIT */
/*
 * dispatch.c - the table of commands, and how one is run. Their help is in help.c.
 *
 * Owns what the command line looks like. Does nothing itself.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/client/command.h"
#include "daemon/client/complete.h"
#include "daemon/client/exports.h"
#include "daemon/client/nearest.h"
#include "daemon/client/question.h"

static const struct option_spec leading_options[] = {
	{'V', "version", NULL, "the version"},
	{0, NULL, NULL, NULL},
};

static const struct option_spec attach_options[] = {
	{'n', "name", "NAME", "the session's name (default: the process's)"},
	{'M', "metrics", "FILE.mdl", "a file of metrics for this session"},
	{'x', "script", "SCRIPT", "run these commands afterwards"},
	{'e', "execute", "COMMAND", "run this command afterwards"},
	{0, NULL, NULL, NULL},
};

static const struct option_spec exec_options[] = {
	{'n', "name", "NAME", "the session's name (default: the program's)"},
	{'M', "metrics", "FILE.mdl", "a file of metrics for this session"},
	{'x', "script", "SCRIPT", "run these commands before its first instruction"},
	{'e', "execute", "COMMAND", "run this command before its first instruction"},
	{OPTION_WAIT, "wait", NULL, "wait for the program, exit with its status"},
	{0, NULL, NULL, NULL},
};

static const struct option_spec points_options[] = {
	{OPTION_SUMMARY, "summary", NULL, "one line per module and kind"},
	{OPTION_KINDS, "kinds", "LIST", "which kinds (default entry,exit,call)"},
	{0, NULL, NULL, NULL},
};

static const struct option_spec cfg_options[] = {
	{OPTION_DOT, "dot", NULL, "as a drawing for graphviz"},
	{0, NULL, NULL, NULL},
};

static const struct option_spec insert_options[] = {
	{OPTION_EACH, "each", NULL, "one instance for every match of a glob"},
	{OPTION_LIMIT, "limit", "PERCENT", "switch it off when it costs more of a CPU"},
	{OPTION_COST, "cost", NULL, "count how often its code runs (read -v)"},
	{0, NULL, NULL, NULL},
};

static const struct option_spec metrics_options[] = {
	{OPTION_CHECK, "check", NULL, "read these files and say what is wrong in them"},
	{0, NULL, NULL, NULL},
};

static const struct option_spec remove_options[] = {
	{OPTION_ALL, "all", NULL, "everything that is inserted"},
	{0, NULL, NULL, NULL},
};

static const struct option_spec detach_options[] = {
	{'t', "time", "SECONDS", "try so long to free everything"},
	{OPTION_ALL, "all", NULL, "every session"},
	{0, NULL, NULL, NULL},
};

static const struct option_spec serve_options[] = {
	{'T', "token", "FILE", "who has the token in it may insert and remove there"},
	{0, NULL, NULL, NULL},
};

static const struct option_spec watch_options[] = {
	{'i', "interval", "SECONDS", "between readings (default 1)"},
	{'c', "count", "COUNT", "stop after so many readings"},
	{0, NULL, NULL, NULL},
};

static const struct option_spec why_options[] = {
	{OPTION_LIMIT, "limit", "PERCENT", "of a CPU that all tests may cost (default 10)"},
	QUESTION_OPTIONS,
	{0, NULL, NULL, NULL},
};

static const struct option_spec graph_options[] = {
	{'n', "depth", "LEVELS", "of calls below the function (default 8)"},
	{OPTION_BUDGET, "budget", "EVENTS", "a second that may be recorded (default 200000)"},
	EXPORT_OPTIONS,
	{'d', "duration", "SECONDS", "count so long (default 10; 1.5, 30s, 2m)"},
	{'o', "output", "FILE", "write there, not to standard output"},
	{0, NULL, NULL, NULL},
};

static int quit_run(struct context *c, const struct arguments *a)
{
	(void)a;
	c->quit = true;
	return EXIT_DONE;
}

const struct command commands[] = {
	{"attach", "TARGET [-n NAME] [-M FILE.mdl]... [-x SCRIPT]... [-e COMMAND]...",
	 "start or join a session with a running process",
	 "Starts the daemon when none runs. On a terminal it opens a prompt, else it\n"
	 "returns when the target is ready. What is inserted stays until it is removed.\n"
	 "-M adds metrics and constraints of your own; a file with an error adds nothing.\n",
	 "dinst attach redis-server -e 'insert calls /Code/redis-server/processCommand'",
	 attach_options, 0, 1, false, attach_run},
	{"exec",
	 "[-n NAME] [-M FILE.mdl]... [-x SCRIPT]... [-e COMMAND]... [--wait] -- PROGRAM [ARG]...",
	 "start a program under a session, before its first instruction",
	 "Scripts and commands run while the program stands before its first instruction;\n"
	 "then it is let go. It has dinst's own standard input and output.\n",
	 "dinst exec -e 'insert calls /Code/sort/* --each' --wait -- sort /etc/passwd",
	 exec_options, 1, -1, true, exec_run},
	{"ls", "", "list the sessions",
	 "-v also shows the kind of arena (shared or private) and what a mutator is busy with.\n",
	 "dinst ls -v", NULL, 0, 0, false, ls_run},
	{"modules", "", "list the ELF files mapped in the target", "", "dinst modules -p nginx",
	 NULL, 0, 0, false, modules_run},
	{"funcs", "[PATTERN]", "list functions",
	 "PATTERN is a glob on names, demangled or not, MODULE:NAME or MODULE+0xOFFSET.\n",
	 "dinst funcs 'redis-server:*Command'", NULL, 0, 1, false, funcs_run},
	{"points", "PATTERN | --summary [MODULE]", "list points, their tactics and refusals",
	 "Every place where code can be inserted, or the reason why not. Kinds are entry, exit,\n"
	 "call, after, block, edge, loop (loop-entry, loop-round, loop-exit), instruction, load,\n"
	 "store, or all. With -v, the code that is or would be run there.\n",
	 "dinst points --summary libc.so.6", points_options, 0, 1, false, points_run},
	{"cfg", "FUNCTION [--dot]", "show the blocks, edges and loops of a function",
	 "Loops are called by the numbers of their headers, the outermost first.\n",
	 "dinst cfg redis-server:processCommand --dot | dot -Tsvg -o cfg.svg", cfg_options, 1, 1,
	 false, cfg_run},
	{"insert", "METRIC [FOCUS]... [--each] [--limit PERCENT] [--cost]",
	 "insert a metric: one batch, one id per instance",
	 "A FOCUS is a resource name: /Code/MODULE, /Code/MODULE/FUNCTION, /Process/THREAD,\n"
	 "/SyncObject/Mutex/ADDRESS, /File/PATH, with globs. Names of different hierarchies are one\n"
	 "focus, a second name of the same one begins another. A glob makes one instance for all\n"
	 "that match; with --each one per match. Exit status 3: some points were refused or are\n"
	 "pending, each with its reason.\n",
	 "dinst insert latency /Code/redis-server/processCommand --limit 5", insert_options, 1, -1,
	 false, insert_run},
	{"read", "[ID]...", "values now",
	 "Without an ID: of all instances. Distributions are shown as bars, vectors by their largest\n"
	 "elements; -v shows all of them, and what the inserted code costs.\n",
	 "dinst read 1 2 --json", NULL, 0, -1, false, read_run},
	{"watch", "[ID]... [-i SECONDS] [-c COUNT]", "values over time, with their rate per second",
	 "On a terminal the table is redrawn in place; Ctrl-C ends it. LOWEST and HIGHEST are of the\n"
	 "time since the reading before, as it was sampled (see history); P50 and P99 are those of\n"
	 "what a distribution got in that time.\n",
	 "dinst watch -i 0.5 -c 10", watch_options, 0, -1, false, watch_run},
	{"top", "[TARGET] [-i SECONDS] [-s KEY] [-m MODULE] [--limit PERCENT] [-c COUNT]",
	 "what a program does, live: functions by cpu, calls, time, latency",
	 "Attaches if need be and leaves everything as it was, however it ends. Only what is shown\n"
	 "is instrumented, for no more than --limit percent of a CPU (4). On a terminal: ? shows\n"
	 "the keys; enter drills into callees, c into callers, t into threads. Into a pipe: a table\n"
	 "for every interval; with --json an object.\n",
	 "dinst top redis-server", top_options, 0, 1, false, top_run},
	{"hist", "FUNCTION [--by KEY] [-d SECONDS] [-i SECONDS] [-o FILE]",
	 "how long calls take: the latency distribution of a function",
	 "Attaches if need be and leaves everything as it was, however it ends. On a terminal the\n"
	 "bars are drawn anew every second until Ctrl-C; into a pipe or file they are printed once,\n"
	 "after 10 seconds or -d. With --by the busiest ten keys have a line of their own each.\n"
	 "FUNCTION may be a glob, MODULE:NAME or a resource name.\n",
	 "dinst hist -p redis-server processCommand --by thread -d 10", hist_options, 1, 1, false,
	 hist_run},
	{"graph", "FUNCTION [-n LEVELS] [--flame FILE.svg] [--chrome FILE]...",
	 "the call tree below a function, with counts and times",
	 "Attaches if need be and leaves everything as it was, however it ends. What is called is\n"
	 "found first, level by level, also through pointers; then it is counted for 10 s or -d. Of\n"
	 "a busy function every n-th call is followed, so that --budget holds.\n",
	 "dinst graph -p redis-server processCommand --flame out.svg", graph_options, 1, 1, false,
	 graph_run},
	{"history", "[ID]...", "values since they were inserted, as charts over time",
	 "Up to 1,000 times are kept of each value, from 0.2 s on; then they are folded and stand\n"
	 "for twice as long. They stay when the target ends, until the session does.\n",
	 "dinst history 1", NULL, 0, -1, false, history_run},
	{"remove", "ID... | --all", "switch instances off at once; free them when it is safe",
	 "What cannot be freed yet is queued (see flush).\n", "dinst remove 1 2", remove_options, 0,
	 -1, false, remove_run},
	{"flush", "", "work the removal queue now", "", "dinst flush", NULL, 0, 0, false,
	 flush_run},
	{"detach", "[TARGET] [-t SECONDS] | --all", "remove everything, restore the target",
	 "Exit status 3: something had to stay for now; dinst repair ends it.\n",
	 "dinst detach -t 5", detach_options, 0, 1, false, detach_run},
	{"trace", "FUNCTION... [-a] [-r] [--if EXPR] [-t TIME] [-D N]",
	 "calls as they happen, a line each",
	 "Attaches if need be and leaves everything as it was, however it ends. EXPR is over\n"
	 "arguments (by name or $arg[n]), $return and $elapsed (ns). What comes faster than it\n"
	 "can be taken is dropped and counted; the target never waits.\n",
	 "dinst trace -p redis-server processCommand --args --min-time 100us", trace_options, 1, -1,
	 false, trace_run},
	{"record", "FUNCTION... [-o DIR] [-a] [-r] [--if EXPR] [-t TIME] [-D N]",
	 "the same into a directory, for dinst report and babeltrace2",
	 "Goes on until Ctrl-C or -d, in constant memory; what has come is in the files a second\n"
	 "later. The format is CTF 1.8.\n",
	 "dinst record -p redis-server call --depth 3 -d 10 -o redis.ctf", record_options, 1, -1,
	 false, record_run},
	{"report", "DIR [--trace] [-s KEY] [-c N] [--flame FILE] ...",
	 "what a recording comes to: times of functions, lines, or files",
	 "TOTAL is with what was called (calls of itself counted once), SELF without what else\n"
	 "was recorded. Needs no daemon.\n",
	 "dinst report redis.ctf --flame redis.svg", report_options, 1, 1, false, report_run},
	{"why", "[TARGET] [-d SECONDS] [--limit PERCENT]",
	 "search for what makes a program slow, and name the function",
	 "Tests whether it is short of CPU time, waits for its own locks, waits for files, or\n"
	 "grows; inserts what tests that, takes out what fails, follows what holds down to the\n"
	 "function and its threads. Ends by itself, mostly within 15 s, 30 s at most.\n",
	 "dinst why redis-server", why_options, 0, 1, false, why_run},
	{"run", "SCRIPT", "run commands from a file (- is standard input)",
	 "One command a line, # comments, quotes as in a shell. It stops at the first error,\n"
	 "unless the line starts with -.\n",
	 "echo 'read --json' | dinst run -", NULL, 1, 1, false, run_run},
	{"metrics", "[--check FILE...]", "list the metrics and constraints that are loaded",
	 "Of the session, or without one, those that would be there. -v also shows what they are\n"
	 "about. With --check, files of metrics are read and what is wrong in them is shown; exit\n"
	 "status 1 if anything is.\n",
	 "dinst metrics --check mine.mdl", metrics_options, 0, -1, false, metrics_run},
	{"repair", "TARGET", "find what a dead mutator left and take it out", "",
	 "dinst repair redis-server", NULL, 0, 1, false, repair_run},
	{"doctor", "[TARGET]", "can I attach here, and if not, why",
	 "Looks at Yama, uids, capabilities, other tracers and more. Needs no daemon. Exit\n"
	 "status 1 if a check fails.\n",
	 "dinst doctor 1234", NULL, 0, 1, false, doctor_run},
	{"serve", "[ADDRESS] [--token FILE]", "a page for a browser, and values for Prometheus",
	 "From the daemon that runs, until it ends, at 127.0.0.1:9464 or ADDRESS. Every user of\n"
	 "the machine can read there; nobody can change anything without the token, whose file is\n"
	 "made (mode 0600) if it is missing. At an address that is not loopback's /metrics is open\n"
	 "to everybody who can reach it.\n",
	 "dinst serve", serve_options, 0, 1, false, serve_run},
	{"stop", "", "end the daemon, after detaching everything", "", "dinst stop", NULL, 0, 0,
	 false, stop_run},
	{"help", "[COMMAND]", "explain a command", "", "dinst help insert", NULL, 0, 1, false,
	 help_run},
	{"quit", "", "leave the prompt; sessions stay", "", "quit", NULL, 0, 0, false, quit_run},
	{NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, false, NULL},
};

const struct command *command_named(const char *name)
{
	for (const struct command *command = commands; command->name; command++)
		if (strcmp(command->name, name) == 0)
			return command;
	return NULL;
}

/* -------------------------------------------------------------------- help */

/* "; did you mean insert?" */
static void meant(const char *name, char *text, size_t size)
{
	const struct command *best = NULL;
	unsigned least = 3;

	for (const struct command *command = commands; command->name; command++) {
		unsigned distance = name_distance(name, command->name);

		/* an abbreviation is near, too */
		if (strlen(name) >= 2 && strncmp(name, command->name, strlen(name)) == 0)
			distance = 1;
		if (distance < least) {
			least = distance;
			best = command;
		}
	}
	text[0] = '\0';
	if (best)
		snprintf(text, size, "; did you mean '%s'?", best->name);
}

static int unknown(struct context *c, const char *name)
{
	char text[60];

	meant(name, text, sizeof(text));
	return report_text(c, DINST_USAGE,
			   "there is no command '%.60s'%s (dinst --help lists them)", name, text);
}

int help_run(struct context *c, const struct arguments *a)
{
	const struct command *command;

	if (!a->word_count) {
		commands_help();
		return flush_output(c, EXIT_DONE);
	}
	command = command_named(a->word[0]);
	if (!command)
		return unknown(c, a->word[0]);
	command_help(command);
	return flush_output(c, EXIT_DONE);
}

/* ----------------------------------------------------------------- running */

static void take_globals(struct context *c, const struct arguments *a)
{
	if (arguments_get(a, OPTION_JSON))
		c->json = true;
	if (arguments_get(a, 'q'))
		c->quiet = true;
	if (arguments_get(a, 'v'))
		c->verbose = true;
	if (arguments_get(a, 'p'))
		c->target = arguments_get(a, 'p');
}

/* Errors in the command or in the options themselves are to be JSON as well. */
static void look_for_json(struct context *c, int argc, char **argv)
{
	for (int i = 0; i < argc && argv[i] && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], "--json") == 0)
			c->json = true;
}

/* What comes first, as its usage calls it: "FUNCTION". */
static const char *missing(const struct command *command, char *text, size_t size)
{
	const char *word = command->usage;
	size_t length = strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");

	/* where options come first, or the first can be left out, its name is not at the beginning */
	if (!length)
		return "an argument";
	snprintf(text, size, "%.*s", (int)length, word);
	return text;
}

static int run_command(struct context *c, const struct command *command, int argc, char **argv)
{
	struct dinst_error e = {0, ""};
	struct arguments a;
	char first[24];

	if (arguments_parse(&a, argc, argv, command->options, command->first_word_ends, &e) != 0) {
		look_for_json(c, argc, argv);
		return report_text(c, DINST_USAGE, "%s: %s (dinst %s --help)", command->name,
				   e.text, command->name);
	}
	take_globals(c, &a);
	if (arguments_get(&a, 'h')) {
		command_help(command);
		return flush_output(c, EXIT_DONE);
	}
	if (a.word_count < command->words_min)
		return report_text(
			c, DINST_USAGE, "%s: %s is missing; usage: dinst %s %s", command->name,
			a.word_count ? "an argument" : missing(command, first, sizeof(first)),
			command->name, command->usage);
	if (command->words_max >= 0 && a.word_count > command->words_max)
		return report_text(c, DINST_USAGE,
				   "%s: unexpected argument '%.80s'; usage: dinst %s%s%s",
				   command->name, a.word[command->words_max], command->name,
				   command->usage[0] ? " " : "", command->usage);
	return command->run(c, &a);
}

int command_run(struct context *c, int argc, char **argv)
{
	const struct command *command;
	struct dinst_error e = {0, ""};
	struct arguments a;

	if (argc > 0 && strcmp(argv[0], "--complete") == 0)
		return complete_run(c, argc - 1, argv + 1);
	if (arguments_parse(&a, argc, argv, leading_options, true, &e) != 0) {
		look_for_json(c, argc, argv);
		return report(c, &e);
	}
	take_globals(c, &a);
	if (arguments_get(&a, 'V')) {
		puts("dinst " DINST_VERSION);
		return flush_output(c, EXIT_DONE);
	}
	if (arguments_get(&a, 'h')) {
		commands_help();
		return flush_output(c, EXIT_DONE);
	}
	if (!a.word_count)
		return report_text(c, DINST_USAGE,
				   "a command is missing (dinst --help lists them)");
	command = command_named(a.word[0]);
	if (!command) {
		look_for_json(c, a.word_count, a.word);
		return unknown(c, a.word[0]);
	}
	return run_command(c, command, a.word_count - 1, a.word + 1);
}
