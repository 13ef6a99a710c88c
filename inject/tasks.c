/* SPDX-License-Identifier: MIT */
/*
 * tasks.c - parsing of /proc/PID/task/TID/{status,syscall} and of what stat
 * says about the stack. Decides nothing.
 */
#include "inject/tasks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "inject/proc.h"

enum { TEXT = 4096, START_STACK = 28 };

pid_t task_own_id(pid_t pid, pid_t tid)
{
	char path[64], text[TEXT], *line, *end;
	long id = 0;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, (int)tid);
	if (proc_read(path, text, sizeof(text)) <= 0)
		return 0;
	line = strstr(text, "\nNSpid:");
	if (!line)
		return tid; /* a kernel without pid namespaces */
	line += strlen("\nNSpid:");
	/* One number for each namespace, ours first and its own last. */
	for (;;) {
		long number = strtol(line, &end, 10);

		if (end == line || *line == '\n')
			break;
		id = number;
		line = end;
		if (*line == '\n')
			break;
	}
	return (pid_t)id;
}

bool task_waits_at(pid_t pid, pid_t tid, taddr_t *sp)
{
	char path[64], text[512];
	unsigned long long where[2];
	const char *numbers;

	/* "NUMBER ARGUMENTS... SP PC", or "-1 SP PC", or "running". */
	snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", (int)pid, (int)tid);
	if (proc_read(path, text, sizeof(text)) <= 0)
		return false;
	numbers = strstr(text, " 0x");
	while (numbers && sscanf(numbers, " %llx %llx", &where[0], &where[1]) == 2) {
		const char *next = strstr(numbers + 1, " 0x");

		if (!next || !strstr(next + 1, " 0x")) {
			*sp = where[0];
			return where[0] != 0;
		}
		numbers = next;
	}
	return false;
}

pid_t *task_list(pid_t pid, size_t *count)
{
	struct proc_ids list = {0};

	*count = 0;
	if (proc_tasks(pid, &list)) {
		proc_ids_release(&list);
		return NULL;
	}
	*count = list.count;
	return list.ids;
}

taddr_t task_start_stack(pid_t pid)
{
	char path[64], text[TEXT];
	const char *at;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (proc_read(path, text, sizeof(text)) <= 0)
		return 0;
	/* The name, the second field, may contain anything. */
	at = strrchr(text, ')');
	for (int field = 2; at && field < START_STACK; field++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at, NULL, 10) : 0;
}

size_t task_stack_limit(pid_t pid, size_t most)
{
	struct rlimit limit;

	if (prlimit(pid, RLIMIT_STACK, NULL, &limit) || limit.rlim_cur > most)
		return most;
	return limit.rlim_cur;
}
