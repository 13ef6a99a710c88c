/* SPDX-License-Identifier: MIT */
/*
 * shadow.c - what /proc says about shadow stacks. Which words there mean them is
 * known to arch/ only. What cannot be read counts as yes.
 */
#include "inject/shadow.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "arch/thread.h"
#include "inject/proc.h"

enum { PATH_SIZE = 512, STATUS_SIZE = 8192, CPUINFO_SIZE = 16384 };

bool shadow_offered(const char *proc)
{
	char path[PATH_SIZE], *text = malloc(CPUINFO_SIZE);
	bool offered = true;

	snprintf(path, sizeof(path), "%s/cpuinfo", proc);
	/* One CPU's worth of it is enough: programs are promised the same on all. */
	if (text && proc_read(path, text, CPUINFO_SIZE) > 0)
		offered = arch_shadow_offered(text);
	free(text);
	return offered;
}

static bool thread_has_one(const char *proc, pid_t pid, long tid)
{
	char path[PATH_SIZE], text[STATUS_SIZE], *whole = NULL;
	ssize_t got;
	bool on;

	snprintf(path, sizeof(path), "%s/%d/task/%ld/status", proc, (int)pid, tid);
	got = proc_read(path, text, sizeof(text));
	/* A thread that has ended meanwhile has none. */
	if (got == -ENOENT || got == -ESRCH)
		return false;
	/* Of a process with many groups that is the beginning only. */
	if ((size_t)got + 1 == sizeof(text)) {
		whole = proc_read_long(path, sizeof(text) * 4);
		if (!whole && access(path, F_OK) && errno == ENOENT)
			return false;
	} else if (got > 0)
		whole = text;
	on = !whole || arch_shadow_is_on(whole);
	if (whole != text)
		free(whole);
	return on;
}

bool shadow_is_on(const char *proc, pid_t pid)
{
	char path[PATH_SIZE];
	struct dirent *entry;
	bool on = false;
	int error = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/%d/task", proc, (int)pid);
	dir = opendir(path);
	if (!dir)
		return true;
	while (!on && (entry = proc_next(dir, &error))) {
		long tid = strtol(entry->d_name, NULL, 10);

		on = tid > 0 && thread_has_one(proc, pid, tid);
	}
	closedir(dir);
	return on || error;
}
