/* SPDX-License-Identifier: MIT */
/*
 * result_file.c - opened without O_TRUNC, emptied when there is a result.
 */
#include "daemon/client/result_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int result_file_open(struct result_file *f, const char *path)
{
	const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY;

	*f = (struct result_file){.path = path, .fd = open(path, flags | O_EXCL, 0666)};
	f->created = f->fd >= 0;
	if (f->fd < 0 && errno == EEXIST)
		f->fd = open(path, flags, 0666);
	return f->fd < 0 ? -errno : 0;
}

void result_file_begin(const struct result_file *f)
{
	/* EINVAL: not a regular file; what else may fail shows when it is written. */
	if (ftruncate(f->fd, 0) != 0)
		return;
}

void result_file_drop(const struct result_file *f)
{
	if (f->created)
		unlink(f->path);
}
