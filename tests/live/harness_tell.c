/* SPDX-License-Identifier: MIT */
/*
 * harness_tell.c - what the threads of a target that does not answer are doing: see harness.h.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/live/harness.h"

/* A small file of /proc on one line; nothing where it is gone. */
static void tell_file(pid_t tid, const char *name)
{
	char path[64], text[2048];
	size_t size;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)tid, name);
	file = fopen(path, "re");
	if (file == NULL)
		return;
	size = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	while (size > 0 && text[size - 1] == '\n')
		size--;
	text[size] = '\0';
	for (size_t i = 0; i < size; i++)
		if (text[i] == '\n')
			text[i] = ' ';
	print_error("    %s: %s\n", name, text);
}

static void tell(pid_t pid);

static void tell_children(pid_t pid, pid_t tid)
{
	char path[64];
	FILE *file;
	int child;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)tid);
	file = fopen(path, "re");
	while (file != NULL && fscanf(file, "%d", &child) == 1)
		tell(child);
	if (file != NULL)
		fclose(file);
}

static void tell(pid_t pid)
{
	static const char *const files[] = {"wchan", "syscall", "stack", "schedstat"};
	static const char *const fields[] = {"State:", "TracerPid:", "SigPnd:", "ShdPnd:"};
	struct dirent *entry;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		const pid_t tid = atoi(entry->d_name);

		if (tid <= 0)
			continue;
		print_error("  thread %d of process %d:", (int)tid, (int)pid);
		for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
			print_error(" %s %s", fields[i], harness_status(pid, tid, fields[i]));
		print_error("\n");
		for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
			tell_file(tid, files[i]);
		tell_children(pid, tid);
	}
	if (dir != NULL)
		closedir(dir);
}

void harness_fail_silent(pid_t pid, unsigned milliseconds)
{
	tell(pid);
	fail_msg("no line from target %d within %u ms", (int)pid, milliseconds);
}
