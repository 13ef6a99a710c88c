/* SPDX-License-Identifier: MIT */
/*
 * installed.c - where files of metrics are: what is shipped, the user's own.
 *
 * Owns the search and the reading of files. A file is read whole, and only up to
 * a limit; nothing that could block is opened without being asked for.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mutator/mdl/private.h"

int mdl_load_file(struct mdl_library *l, const char *path, struct dinst_error *e)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int err = 0;
	char *text = NULL;
	size_t size = 0;
	ssize_t n = 1;

	if (fd < 0)
		return dinst_fail_errno(e, DINST_BAD_FILE, errno, "cannot open %s", path);
	text = malloc(TEXT_MOST + 1);
	if (!text)
		err = dinst_fail(e, DINST_NO_MEMORY, "no memory to read %s", path);
	while (!err && n > 0 && size <= TEXT_MOST) {
		n = read(fd, text + size, TEXT_MOST + 1 - size);
		if (n < 0 && errno != EINTR)
			err = dinst_fail_errno(e, DINST_BAD_FILE, errno, "cannot read %s", path);
		if (n < 0)
			n = 1;
		else
			size += (size_t)n;
	}
	close(fd);
	if (!err)
		err = mdl_load_text(l, path, text, size, e);
	free(text);
	return err;
}
