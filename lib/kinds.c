/* SPDX-License-Identifier: MIT */
/*
 * kinds.c - libdinst: what events of each session mean.
 *
 * Owns the logs of a connection: each mutator numbers its kinds of events from 1, so there is one for
 * each session, and it begins anew with the session's stream.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/library.h"

static void log_free(struct session_log *l)
{
	event_log_release(&l->log);
	free(l->session);
	free(l);
}

/* Where the session's log is, or the end of them. */
static struct session_log **log_find(struct dinst *d, const json_t *answer)
{
	const char *session = row_text(answer, "session");
	struct session_log **at = &d->logs;

	while (*at && strcmp((*at)->session, session ? session : "") != 0)
		at = &(*at)->next;
	return at;
}

static void log_end(struct session_log **at)
{
	struct session_log *l = *at;

	if (!l)
		return;
	*at = l->next;
	l->ended = true;
	if (!l->passing)
		log_free(l);
}

/* NULL without memory. */
static struct session_log *log_of(struct dinst *d, const json_t *answer)
{
	const uint64_t begun_ns = row_count(answer, "begun_ns");
	const char *session = row_text(answer, "session");
	struct session_log **at = log_find(d, answer), *l = *at;

	if (l && l->begun_ns == begun_ns)
		return l;
	log_end(at);
	l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	event_log_init(&l->log);
	l->begun_ns = begun_ns;
	l->session = strdup(session ? session : "");
	if (!l->session) {
		log_free(l);
		return NULL;
	}
	l->next = d->logs;
	d->logs = l;
	return l;
}

void kinds_learn(struct dinst *d, const char *method, const json_t *answer)
{
	const json_t *kept = json_object_get(answer, "kept_kinds");
	struct dinst_error e = {0, ""};
	struct session_log *l;

	if (strcmp(method, "detach") == 0 && !json_is_true(json_object_get(answer, "kept")))
		log_end(log_find(d, answer));
	if (strcmp(method, "insert") != 0 && strcmp(method, "trace") != 0)
		return;
	l = json_object_get(answer, "begun_ns") ? log_of(d, answer) : NULL;
	if (!l)
		return;
	if (kept && !l->passing)
		event_log_keep(&l->log, kept);
	event_log_kinds(&l->log, json_object_get(answer, "rows"), &e);
}

struct session_log *kinds_pass(struct dinst *d, const json_t *answer)
{
	struct session_log *l = log_of(d, answer);

	if (l)
		l->passing++;
	return l;
}

void kinds_passed(struct session_log *l)
{
	l->passing--;
	if (l->ended && !l->passing)
		log_free(l);
}

void kinds_release(struct dinst *d)
{
	while (d->logs)
		log_end(&d->logs);
}
