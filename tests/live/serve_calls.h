/* SPDX-License-Identifier: MIT */
/*
 * serve_calls.h - a mutator in a thread of the test, which is asked as the daemon does.
 */
#ifndef DINST_TESTS_SERVE_CALLS_H
#define DINST_TESTS_SERVE_CALLS_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "mutator/serve.h"
#include "tests/live/harness.h"

/* For pthread_create(); *fd is the mutator's end of a connection, which it closes. */
static inline void *serve_thread(void *fd)
{
	serve(*(int *)fd);
	close(*(int *)fd);
	return NULL;
}

/*
 * The answer to a request, whose params it takes over; the caller frees. What is told before it is
 * passed over, or given to told() with its params, where that is not NULL.
 */
static inline json_t *serve_ask(int fd, const char *method, json_t *params,
				void (*told)(const json_t *params))
{
	json_t *request = json_pack("{s:s,s:i,s:s,s:o}", "jsonrpc", "2.0", "id", 1, "method",
				    method, "params", params);
	char *line = json_dumps(request, JSON_COMPACT);
	static char text[1 << 22];
	json_t *answer = NULL;

	dprintf(fd, "%s\n", line);
	while (!json_object_get(answer, "id")) {
		size_t used = 0;

		if (answer && told)
			told(json_object_get(answer, "params"));
		json_decref(answer);
		while (used < sizeof(text) - 1 && read(fd, text + used, 1) == 1 &&
		       text[used] != '\n')
			used++;
		text[used] = '\0';
		answer = json_loads(text, 0, NULL);
		assert_non_null(answer);
	}
	free(line);
	json_decref(request);
	return answer;
}

#endif
