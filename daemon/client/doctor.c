/* SPDX-License-Identifier: MIT */
/*
 * doctor.c - can I attach here, and if not, why.
 *
 * Asks inject/ directly: no daemon is needed, and none is started.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/client/command.h"
#include "daemon/client/doctor.h"

enum { CHECKS_MAX = 40 };

static const struct column doctor_columns[] = {
	{"check", "CHECK", COLUMN_TEXT},
	{"ok", "OK", COLUMN_TEXT},
	{"why", "WHY", COLUMN_TEXT},
	{NULL, NULL, 0},
};

/* A session's name stands for its process, if a daemon runs that knows it. */
static bool session_pid(struct context *c, const char *name, pid_t *pid)
{
	struct dinst_error e = {0, ""};
	json_t *answer = NULL, *row;
	bool found = false;
	size_t index;

	if (call_daemon(c, false, "sessions", NULL, NULL, NULL, &answer, &e) != 0)
		return false;
	json_array_foreach(json_object_get(answer, "rows"), index, row)
	{
		const char *session = json_string_value(json_object_get(row, "session"));

		if (session && strcmp(session, name) == 0) {
			*pid = (pid_t)json_integer_value(json_object_get(row, "pid"));
			found = true;
		}
	}
	json_decref(answer);
	return found;
}

int doctor_run(struct context *c, const struct arguments *a)
{
	const char *target = a->word_count ? a->word[0] : c->target;
	struct target_check checks[CHECKS_MAX];
	struct dinst_error e = {0, ""};
	json_t *rows = json_array(), *result, *row;
	int status = EXIT_DONE, shown;
	pid_t pid = 0;
	size_t count, index;

	if (target && !session_pid(c, target, &pid) &&
	    process_resolve(target, NULL, 0, &pid, &e) != 0) {
		json_decref(rows);
		return report(c, &e);
	}
	memset(checks, 0, sizeof(checks));
	count = install_checks(checks, CHECKS_MAX);
	count += target_checks(pid, checks + count, CHECKS_MAX - count);
	for (size_t i = 0; i < count; i++) {
		json_array_append_new(rows,
				      json_pack("{s:s,s:b,s:o,s:o}", "check", checks[i].check, "ok",
						checks[i].ok, "why", rpc_text(checks[i].why), "fix",
						rpc_text(checks[i].fix)));
		if (!checks[i].ok)
			status = EXIT_FAILED;
	}
	result = json_pack("{s:O}", "rows", rows);
	shown = print_rows(c, result, doctor_columns);
	/* what to do stands below, where it has room */
	if (!c->json)
		rpc_clean(rows);
	json_array_foreach(rows, index, row)
	{
		const char *fix = json_string_value(json_object_get(row, "fix"));

		if (!c->json && fix && fix[0])
			printf("%s: %s\n", json_string_value(json_object_get(row, "check")), fix);
	}
	json_decref(result);
	json_decref(rows);
	return flush_output(c, status ? status : shown);
}
