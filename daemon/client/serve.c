/* SPDX-License-Identifier: MIT */
/*
 * serve.c - `dinst serve`: the page and the values for Prometheus, from the daemon that runs.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/client/command.h"

/* The daemon is in another directory. */
static bool absolute(const char *path, char *to, size_t size)
{
	char here[PATH_MAX];

	if (path[0] == '/')
		return snprintf(to, size, "%s", path) < (int)size;
	return getcwd(here, sizeof(here)) && snprintf(to, size, "%s/%s", here, path) < (int)size;
}

int serve_run(struct context *c, const struct arguments *a)
{
	const char *address = a->word_count ? a->word[0] : "127.0.0.1:9464";
	const char *token = arguments_get(a, 'T');
	char path[2 * PATH_MAX];
	struct dinst_error e = {0, ""};
	json_t *params, *answer = NULL;
	int status;

	if (token && !absolute(token, path, sizeof(path)))
		return report_text(c, DINST_USAGE, "the token's path is too long");
	params = json_pack("{s:o}", "address", rpc_text(address));
	if (token)
		json_object_set_new(params, "token", rpc_text(path));
	if (call_daemon(c, true, "serve", params, NULL, NULL, &answer, &e) != 0)
		status = report(c, &e);
	else
		status = print_object(c, answer,
				      "a page at {url}, values for Prometheus at {url}metrics");
	json_decref(params);
	json_decref(answer);
	return status;
}
