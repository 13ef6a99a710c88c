/* SPDX-License-Identifier: MIT */
/*
 * recording.c - the last recording of a session.
 */
#include "daemon/server/recording.h"

#include <time.h>

int recording_keep(struct session *se, json_t *params, struct dinst_error *e)
{
	json_t *title = json_object_get(params, "title"), *unit = json_object_get(params, "unit");
	json_t *folded = json_object_get(params, "folded");
	struct timespec now;

	if (!json_is_string(title) || !json_is_string(unit) || !json_is_string(folded))
		return dinst_fail(e, DINST_USAGE,
				  "recording takes a title, a unit and folded stacks, three "
				  "strings");
	if (json_string_length(folded) > RECORDING_MAX || json_string_length(title) > 1000 ||
	    json_string_length(unit) > 100)
		return dinst_fail(e, DINST_REFUSED, "a recording has at most 1 MiB of stacks");
	clock_gettime(CLOCK_REALTIME, &now);
	json_decref(se->recording);
	se->recording =
		json_pack("{s:O, s:O, s:I, s:O}", "title", title, "unit", unit, "time",
			  (json_int_t)now.tv_sec * 1000 + now.tv_nsec / 1000000, "folded", folded);
	return 0;
}

json_t *recording_json(const struct session *se)
{
	return json_incref(se->recording);
}

json_t *recording_about(const struct session *se)
{
	json_t *about = json_copy(se->recording);

	json_object_del(about, "folded");
	return about;
}
