/* SPDX-License-Identifier: MIT */
/*
 * result_file.c - opened without O_TRUNC, emptied when there is a result.
 */
#include "daemon/client/result_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
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

static void cut(struct result_file *f, off_t size)
{
	/* EINVAL: not a regular file; what else may fail shows when it is written. */
	f->begun = ftruncate(f->fd, size) == 0 || errno == EINVAL;
}

void result_file_begin(struct result_file *f)
{
	cut(f, 0);
}

void result_file_settle(struct result_file *f)
{
	const off_t at = f->begun ? 0 : lseek(f->fd, 0, SEEK_CUR);

	if (at > 0)
		cut(f, at);
}

void result_file_drop(const struct result_file *f)
{
	struct stat ours, theirs;

	if (f->created && !fstat(f->fd, &ours) && !stat(f->path, &theirs) &&
	    ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev && !ours.st_size)
		unlink(f->path);
}
