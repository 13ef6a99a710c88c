/* SPDX-License-Identifier: MIT */
/*
 * choose.c - which session a client means: by name, by pid, by its process, or the only one.
 *
 * Reads the table of sessions only.
 */
#include "daemon/server/server.h"

#include <stdio.h>
#include <string.h>

struct session *session_named(struct server *s, const char *name)
{
	struct session *se = s->sessions;

	while (se && strcmp(se->name, name) != 0)
		se = se->next;
	return se;
}

struct session *session_of_pid(struct server *s, pid_t pid)
{
	struct session *se = s->sessions;

	while (se && se->pid != pid)
		se = se->next;
	return se;
}

unsigned session_count(const struct server *s)
{
	unsigned count = 0;

	for (struct session *se = s->sessions; se; se = se->next)
		count++;
	return count;
}

/* "redis-server (pid 12), nginx (pid 34)" */
static void list_sessions(struct server *s, const char *process, char *text, size_t size)
{
	size_t used = 0;

	text[0] = '\0';
	for (struct session *se = s->sessions; se && used + 1 < size; se = se->next)
		if (!process || strcmp(se->process, process) == 0)
			used += (size_t)snprintf(text + used, size - used, "%s%s (pid %d)",
						 used ? ", " : "", se->name, (int)se->pid);
}

static struct session *choose_only(struct server *s, struct dinst_error *e)
{
	char list[300];

	if (s->sessions && !s->sessions->next)
		return s->sessions;
	if (!s->sessions) {
		dinst_fail(e, DINST_NO_SESSION, "there is no session: dinst attach TARGET first");
		return NULL;
	}
	list_sessions(s, NULL, list, sizeof(list));
	dinst_fail(e, DINST_USAGE, "there are several sessions, choose one with -p: %s", list);
	return NULL;
}

static struct session *choose_named(struct server *s, const char *name, struct dinst_error *e)
{
	struct session *se = session_named(s, name);
	unsigned long long pid;
	unsigned matches = 0;
	char list[300];

	if (!se && parse_number(name, INT_MAX, &pid))
		se = session_of_pid(s, (pid_t)pid);
	if (se)
		return se;
	for (struct session *at = s->sessions; at; at = at->next)
		if (strcmp(at->process, name) == 0) {
			se = at;
			matches++;
		}
	if (matches == 1)
		return se;
	list_sessions(s, matches ? name : NULL, list, sizeof(list));
	if (matches > 1)
		dinst_fail(e, DINST_USAGE, "%u sessions have a process named '%s': %s", matches,
			   name, list);
	else
		dinst_fail(e, DINST_NO_SESSION,
			   "there is no session '%.64s': dinst attach it first%s%s", name,
			   list[0] ? "; there are: " : "", list);
	return NULL;
}

struct session *session_choose(struct server *s, json_t *params, struct dinst_error *e)
{
	json_t *which = json_object_get(params, "session");
	char number[24];

	if (!which || json_is_null(which))
		return choose_only(s, e);
	if (json_is_string(which))
		return choose_named(s, json_string_value(which), e);
	if (!json_is_integer(which)) {
		dinst_fail(e, DINST_USAGE, "session is neither a string nor a number");
		return NULL;
	}
	snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(which));
	return choose_named(s, number, e);
}
