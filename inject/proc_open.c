/* SPDX-License-Identifier: MIT */
/*
 * proc_open.c - asks whether a task has ended before its files in /proc are looked up. Knows nothing of what is in
 * them.
 */
#include "inject/proc_open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Whoever has it; no permission is needed, and no security module asked (getpriority(2)). */
static bool is_nobodys(long id)
{
	errno = 0;
	return getpriority(PRIO_PROCESS, (id_t)id) == -1 && errno == ESRCH;
}

/* The number at *path, which is moved behind it; 0: there is none, as of "self". */
static long next_id(const char **path)
{
	char *end;
	const long id = **path >= '1' && **path <= '9' ? strtol(*path, &end, 10) : 0;

	if (id)
		*path = end;
	return id;
}

bool proc_has_ended(const char *path)
{
	static const char proc[] = "/proc/", task[] = "/task/";
	const int before = errno;
	long id;

	if (strncmp(path, proc, strlen(proc)) != 0)
		return false;
	path += strlen(proc);
	id = next_id(&path);
	if (!id)
		return false;
	if (is_nobodys(id))
		goto ended;
	if (!strncmp(path, task, strlen(task))) {
		path += strlen(task);
		id = next_id(&path);
		if (id && is_nobodys(id))
			goto ended;
	}
	errno = before;
	return false;
ended:
	errno = ENOENT;
	return true;
}

int proc_open(const char *path, int flags)
{
	/* With a mode, since the library checks flags that are no constant by another function. */
	return proc_has_ended(path) ? -1 : open(path, flags | O_CLOEXEC, 0);
}

FILE *proc_fopen(const char *path)
{
	return proc_has_ended(path) ? NULL : fopen(path, "re");
}

DIR *proc_opendir(const char *path)
{
	return proc_has_ended(path) ? NULL : opendir(path);
}

int proc_access(const char *path, int mode)
{
	return proc_has_ended(path) ? -1 : access(path, mode);
}

int proc_stat_file(const char *path, struct stat *file)
{
	return proc_has_ended(path) ? -1 : stat(path, file);
}

int proc_lstat_file(const char *path, struct stat *link)
{
	return proc_has_ended(path) ? -1 : lstat(path, link);
}

ssize_t proc_readlink(const char *path, char *to, size_t size)
{
	return proc_has_ended(path) ? -1 : readlink(path, to, size);
}
