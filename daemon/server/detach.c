/* SPDX-License-Identifier: MIT */
/*
 * detach.c - what becomes of a session that is detached where no mutator has done that.
 *
 * Never says that nothing is left where nobody has looked.
 */
#include "daemon/server/server.h"

#include <stdio.h>

/* `note` NULL: nothing is left. Else nobody knows how much is. */
static void answer_detached(struct session *se, struct request *r, const char *note)
{
	json_t *answer = json_pack("{s:s,s:i,s:o,s:i}", "session", se->name, "restored", 0, "left",
				   note ? json_null() : json_integer(0), "stop_us", 0);

	if (note) {
		json_object_set_new(answer, "partial", json_true());
		json_object_set_new(answer, "notes", json_pack("[o]", rpc_text(note)));
	}
	request_result(r, answer);
}

void detach_alone(struct session *se, struct request *r)
{
	char text[DINST_ERROR_TEXT];

	snprintf(text, sizeof(text), "%s", se->why);
	if (se->state != SESSION_LOST)
		snprintf(
			text, sizeof(text),
			"pid %d is there all the same: dinst repair %d takes out what is left in it",
			(int)se->pid, (int)se->pid);
	answer_detached(se, r,
			se->state == SESSION_LOST || session_target_is_there(se) ? text : NULL);
	session_close(se, "detached");
}

void detach_unfinished(struct session *se, struct request *r)
{
	struct server *s = se->server;
	const uint64_t start = se->start;
	const pid_t pid = se->pid;
	const bool cleaning = se->cleaning;
	char text[200];

	snprintf(
		text, sizeof(text),
		"what an earlier session left in pid %d was being taken out, which the daemon goes "
		"on with; dinst repair %d tells what came of it",
		(int)pid, (int)pid);
	answer_detached(se, r, cleaning ? text : NULL);
	session_close(se, "it was detached while it was attached to");
	if (cleaning)
		repair_orphan(s, pid, start, (struct maker){0, 0});
}

void detach_unanswered(struct session *se, struct request *r)
{
	const struct maker maker = mutator_identity(se->mutator);
	struct server *s = se->server;
	const uint64_t start = se->start;
	const pid_t pid = se->pid;

	answer_detached(se, r,
			"its mutator died: the daemon goes on with taking out what children of the "
			"program may have, as its log tells");
	session_close(se, "its mutator died while it was detached");
	repair_orphan(s, pid, start, maker);
}
