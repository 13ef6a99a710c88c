/* SPDX-License-Identifier: MIT */
/*
 * orphan.c - a process whose mutator died while it attached, and that has no session.
 *
 * Owns the mutator that takes out what the first one may have left.
 */
#include "daemon/server/server.h"

static void orphan_died(void *owner, const char *why)
{
	(void)owner;
	(void)why;
}

static void orphan_notified(void *owner, const char *method, json_t *params)
{
	(void)owner;
	(void)method;
	(void)params;
}

static void orphan_done(void *arg, const struct reply *reply)
{
	server_log("repair after a mutator's death: %.*s",
		   (int)(reply->result.text ? reply->result.length : 6),
		   reply->result.text ? reply->result.text : "failed");
	mutator_release(arg, "done");
}

void repair_orphan(struct server *s, pid_t pid)
{
	static const struct mutator_events events = {orphan_died, orphan_notified};
	struct dinst_error e = {0, ""};
	struct mutator *m = mutator_start(s, &events, NULL, &e);
	json_t *params;

	if (!m) {
		server_log("%s; dinst repair %d takes out what it left", e.text, (int)pid);
		return;
	}
	params = json_pack("{s:i}", "pid", (int)pid);
	mutator_call(m, "repair", params, NULL, orphan_done, m);
	json_decref(params);
}
