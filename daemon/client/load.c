/* SPDX-License-Identifier: MIT */
/*
 * load.c - files of metrics (-M): read here, where the user's files are, and
 * sent to the session by text and name. What is wrong in them the mutator says.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/client/command.h"

enum { FILE_MAX = 128 << 10 };

/* The whole file, malloc'ed; NULL with *e filled. */
static char *read_file(const char *path, struct dinst_error *e)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	char *text = malloc(FILE_MAX + 2);
	size_t used = 0;
	ssize_t n = -1;

	if (fd >= 0 && text)
		while ((n = read(fd, text + used, FILE_MAX + 1 - used)) > 0)
			used += (size_t)n;
	if (!text)
		dinst_fail(e, DINST_NO_MEMORY, "no memory for %s", path);
	else if (fd < 0 || n < 0)
		dinst_fail_errno(e, DINST_BAD_FILE, errno, "cannot read %s", path);
	else if (used > FILE_MAX)
		dinst_fail(e, DINST_BAD_FILE, "%s has more than %d KiB", path, FILE_MAX >> 10);
	else if (memchr(text, 0, used))
		dinst_fail(e, DINST_BAD_FILE, "%s is no text", path);
	if (fd >= 0)
		close(fd);
	if (!text || e->code) {
		free(text);
		return NULL;
	}
	text[used] = '\0';
	return text;
}

/* By its absolute path: the session outlives our working directory. */
static int add_file(json_t *list, const char *path, struct dinst_error *e)
{
	char *name, *text;

	text = read_file(path, e);
	if (!text)
		return e->code;
	name = realpath(path, NULL);
	json_array_append_new(list, json_pack("{s:o,s:o}", "name", rpc_text(name ? name : path),
					      "text", rpc_text(text)));
	free(name);
	free(text);
	return 0;
}

json_t *load_read(const struct arguments *a, struct dinst_error *e)
{
	json_t *list = json_array();

	for (int i = 0; i < a->given_count; i++)
		if (a->given[i].letter == 'M' && add_file(list, a->given[i].value, e) != 0) {
			json_decref(list);
			return NULL;
		}
	return list;
}

int load_send(struct context *c, json_t *list)
{
	struct dinst_error e = {0, ""};
	json_t *answer = NULL, *file;
	size_t index;
	int err = 0;

	json_array_foreach(list, index, file)
	{
		err = call(c, "load", file, &answer, &e);
		json_decref(answer);
		answer = NULL;
		if (err)
			return report(c, &e);
	}
	return EXIT_DONE;
}
