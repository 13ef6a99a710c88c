/* SPDX-License-Identifier: MIT */
/*
 * complete_offers.c - the words of each kind that can be completed.
 *
 * Owns where they come from: the table of commands, /proc, the daemon. Never prints.
 */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/client/complete.h"
#include "daemon/common/metrics.h"

void offer(struct completion *found, const char *typed, const char *head, const char *name,
	   const char *about)
{
	char text[COMPLETION_MAX];

	if (snprintf(text, sizeof(text), "%s%s", head, name) >= (int)sizeof(text) ||
	    strncmp(text, typed, strlen(typed)) != 0)
		return;
	for (size_t i = 0; i < found->count; i++)
		if (strcmp(found->name[i], text) == 0)
			return;
	if (found->count == COMPLETIONS_MAX) {
		found->more = true;
		return;
	}
	found->name[found->count] = strdup(text);
	found->about[found->count] = about && about[0] ? strdup(about) : NULL;
	if (found->name[found->count])
		found->count++;
	else
		free(found->about[found->count]);
}

void offer_commands(struct completion *found, const char *typed)
{
	for (const struct command *command = commands; command->name; command++)
		offer(found, typed, "", command->name, command->summary);
}

void offer_options(struct completion *found, const char *typed, const struct option_spec *specs)
{
	char letter[3] = "-";

	for (; specs && specs->letter; specs++) {
		if (specs->name)
			offer(found, typed, "--", specs->name, specs->help);
		else
			letter[1] = specs->letter;
		if (!specs->name)
			offer(found, typed, "", letter, specs->help);
	}
}

void offer_list(struct completion *found, const char *typed, const char *list)
{
	char word[COMPLETION_MAX];
	size_t length;

	for (; *list; list += length + (list[length] == '|')) {
		length = strcspn(list, "|");
		snprintf(word, sizeof(word), "%.*s", (int)length, list);
		/* names in capitals stand for something */
		if (!isupper((unsigned char)word[0]))
			offer(found, typed, "", word, NULL);
	}
}

/* ---------------------------------------------------------------- the daemon */

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

/* Offers head + the member `key` + tail of all rows, about which another member says something. */
static void offer_rows(struct completion *found, const char *typed, const char *head,
		       const char *tail, json_t *rows, const char *key, const char *about)
{
	char text[COMPLETION_MAX];
	size_t index;
	json_t *row;

	json_array_foreach(rows, index, row)
	{
		json_t *value = json_object_get(row, key);

		if (json_is_string(value))
			snprintf(text, sizeof(text), "%.200s%s", json_string_value(value), tail);
		else if (json_is_integer(value))
			snprintf(text, sizeof(text), "%lld%s", (long long)json_integer_value(value),
				 tail);
		else
			continue;
		offer(found, typed, head, text,
		      about ? json_string_value(json_object_get(row, about)) : NULL);
	}
}

void offer_sessions(struct context *c, struct completion *found, const char *typed)
{
	json_t *answer = ask(c, "sessions", json_object());

	offer_rows(found, typed, "", "", json_object_get(answer, "rows"), "session", "state");
	json_decref(answer);
}

void offer_ids(struct context *c, struct completion *found, const char *typed, const char *method)
{
	json_t *answer = ask(c, method, json_object());

	offer_rows(found, typed, "", "", json_object_get(answer, "rows"), "id", "focus");
	json_decref(answer);
}

void offer_metrics(struct context *c, struct completion *found, const char *typed)
{
	json_t *answer = ask(c, "metrics", json_object());
	json_t *rows = json_incref(json_object_get(answer, "rows"));
	struct mdl_library *library = NULL;
	struct dinst_error e = {0, ""};
	char *warnings = NULL;

	/* without a session, what one would begin with */
	if (!rows && mdl_library_create(&library, &e) == 0 &&
	    mdl_library_load_installed(library, &warnings, &e) == 0)
		rows = metric_rows(library);
	free(warnings);
	offer_rows(found, typed, "", "", rows, "metric", "description");
	mdl_library_free(library);
	json_decref(rows);
	json_decref(answer);
}

void offer_modules(struct context *c, struct completion *found, const char *typed)
{
	json_t *answer = ask(c, "modules", json_object());

	offer_rows(found, typed, "", "", json_object_get(answer, "rows"), "module", NULL);
	json_decref(answer);
}

/* Functions whose names begin with what was typed behind `head`. */
static void offer_names(struct context *c, struct completion *found, const char *typed,
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
		offer(found, typed, head, json_string_value(name), NULL);
	json_decref(answer);
}

void offer_resources(struct context *c, struct completion *found, const char *typed)
{
	static const char code[] = "/Code/";
	static const char *const roots[] = {code, "/Process/", "/SyncObject/", "/File/"};
	char head[COMPLETION_MAX], module[COMPLETION_MAX];
	const char *slash;
	json_t *answer;

	if (strncmp(typed, code, sizeof(code) - 1) != 0) {
		for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++)
			offer(found, typed, "", roots[i], NULL);
		found->open = true;
		return;
	}
	slash = strchr(typed + sizeof(code) - 1, '/');
	if (!slash) {
		answer = ask(c, "modules", json_object());
		offer_rows(found, typed, code, "/", json_object_get(answer, "rows"), "module",
			   NULL);
		json_decref(answer);
		found->open = true;
		return;
	}
	snprintf(head, sizeof(head), "%.*s", (int)(slash + 1 - typed), typed);
	snprintf(module, sizeof(module), "%.*s", (int)(slash - typed - (sizeof(code) - 1)),
		 typed + sizeof(code) - 1);
	offer_names(c, found, typed, head, module);
}

void offer_functions(struct context *c, struct completion *found, const char *typed)
{
	const char *colon = strchr(typed, ':');
	char head[COMPLETION_MAX], module[COMPLETION_MAX];

	if (typed[0] == '/') {
		offer_resources(c, found, typed);
		return;
	}
	offer_names(c, found, typed, "", NULL);
	/* "module:name", but a "::" is part of a name */
	if (colon && colon > typed && colon[1] != ':') {
		snprintf(head, sizeof(head), "%.*s", (int)(colon + 1 - typed), typed);
		snprintf(module, sizeof(module), "%.*s", (int)(colon - typed), typed);
		offer_names(c, found, typed, head, module);
	}
}

/* ----------------------------------------------------------------- processes */

/* Whoever starts dinst cannot mean dinst, nor what is not theirs. */
static bool is_candidate(pid_t pid)
{
	char path[40], program[8];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	if (stat(path, &st) != 0 || (geteuid() != 0 && st.st_uid != geteuid()))
		return false;
	/* kernel threads have no program */
	snprintf(path, sizeof(path), "/proc/%d/exe", (int)process_thread(pid));
	return pid != getpid() && readlink(path, program, sizeof(program)) > 0;
}

static void offer_process(struct completion *found, const char *typed, pid_t pid,
			  const char *digits)
{
	char name[PROCESS_NAME_MAX], about[PROCESS_NAME_MAX + 8];
	struct dinst_error e = {0, ""};

	if (!is_candidate(pid) || process_name(pid, name, &e) != 0)
		return;
	if (isdigit((unsigned char)typed[0])) {
		offer(found, typed, "", digits, name);
	} else {
		snprintf(about, sizeof(about), "pid %s", digits);
		offer(found, typed, "", name, about);
	}
}

void offer_targets(struct context *c, struct completion *found, const char *typed)
{
	struct dirent *entry;
	DIR *proc;

	offer_sessions(c, found, typed);
	proc = opendir("/proc");
	if (!proc)
		return;
	while ((entry = readdir(proc)) != NULL)
		if (isdigit((unsigned char)entry->d_name[0]))
			offer_process(found, typed, (pid_t)strtol(entry->d_name, NULL, 10),
				      entry->d_name);
	closedir(proc);
}
