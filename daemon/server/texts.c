/* SPDX-License-Identifier: MIT */
/*
 * texts.c - the files of metrics of a session: kept so that the next mutator
 * gets them, too. What is in them the mutator knows.
 */
#include "daemon/server/server.h"

bool session_has_text(const struct session *se, const json_t *name)
{
	const json_t *text;
	size_t index;

	json_array_foreach(se->texts, index, text)
	{
		if (json_equal(json_object_get(text, "name"), name))
			return true;
	}
	return false;
}

void session_keep_text(struct session *se, json_t *params)
{
	json_t *name = json_object_get(params, "name");
	json_t *kept =
		json_pack("{s:O,s:O}", "name", name, "text", json_object_get(params, "text"));

	if (!se->texts)
		se->texts = json_array();
	for (size_t i = json_array_size(se->texts); i-- > 0;)
		if (json_equal(json_object_get(json_array_get(se->texts, i), "name"), name))
			json_array_remove(se->texts, i);
	json_array_append_new(se->texts, kept);
}

static void reload_done(void *arg, const struct reply *reply)
{
	const struct session *se = arg;

	if (reply->error.text && !se->closing)
		server_log("session %s: a file of metrics is lost: %.*s", se->name,
			   (int)reply->error.length, reply->error.text);
}

void session_reload(struct session *se)
{
	struct mutator *m = se->mutator;
	size_t index;
	json_t *text;

	json_array_foreach(se->texts, index, text)
		mutator_call(m, "load", text, NULL, reload_done, se);
}
