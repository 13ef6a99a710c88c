/* SPDX-License-Identifier: MIT */
/*
 * tasks.c - parsing of /proc/PID/task/TID/{status,syscall} and of what stat
 * says about the stack. Decides nothing.
 */
#include "inject/tasks.h"

#include <errno.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inject/proc.h"

enum {
	TEXT = 4096,
	START_STACK = 28,
	SIZE_LOOKS = 3, /* at sizes: while a process runs they may differ for a moment */
};

pid_t task_own_id(pid_t pid, pid_t tid)
{
	char small[TEXT], *text = proc_status_text(pid, tid, small, sizeof(small));
	const char *line = text ? strstr(text, "\nNSpid:") : NULL;
	/* without such a line: a kernel without pid namespaces */
	pid_t id = text && !line ? tid : 0;

	if (line)
		id = proc_own_id(line + strlen("\nNSpid:"));
	if (text != small)
		free(text);
	return id;
}

bool task_waits_at(pid_t pid, pid_t tid, taddr_t *sp)
{
	char path[64], text[512];
	const char *numbers, *at;
	uint64_t where[2];

	/* "NUMBER ARGUMENTS... SP PC", or "-1 SP PC", or "running". */
	snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", (int)pid, (int)tid);
	if (proc_read(path, text, sizeof(text)) <= 0)
		return false;
	numbers = strstr(text, " 0x");
	while ((at = numbers) && proc_number(&at, 16, &where[0]) &&
	       proc_number(&at, 16, &where[1])) {
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

/*
 * Where kcmp is not to be had (a container's seccomp filter on us): memory that
 * is shared has one size, in each of its parts, whoever is asked. That of a
 * forked child differs from its parent's from the beginning, since nothing is
 * copied that can be read from a file; were it ever equal, the child would be
 * stopped along with its parent, and no harm be done. Who has exited has none ("0 0 0 ...").
 */
static bool same_sizes(pid_t a, pid_t b)
{
	char paths[2][64], texts[2][256];

	snprintf(paths[0], sizeof(paths[0]), "/proc/%d/statm", (int)a);
	snprintf(paths[1], sizeof(paths[1]), "/proc/%d/statm", (int)b);
	for (int i = 0; i < SIZE_LOOKS; i++) {
		ssize_t got[2];

		for (int n = 0; n < 2; n++)
			got[n] = proc_read(paths[n], texts[n], sizeof(texts[n]));
		/* Nobody can look now. */
		if (proc_is_lack((int)got[0]) || proc_is_lack((int)got[1]))
			return true;
		if (got[0] > 0 && got[1] > 0 && strncmp(texts[0], "0 ", 2) != 0 &&
		    !strcmp(texts[0], texts[1]))
			return true;
	}
	return false;
}

bool task_same_memory(pid_t a, pid_t b)
{
	long order;

	order = syscall(SYS_kcmp, a, b, KCMP_VM, 0, 0);
	if (order < 0 && errno != ESRCH) {
		const int error_a = proc_memory_look(a, NULL, &a);
		const int error_b = proc_memory_look(b, NULL, &b);

		if (proc_is_lack(error_a) || proc_is_lack(error_b))
			return true;
		return !error_a && !error_b && a && b && same_sizes(a, b);
	}
	/* Most do not, and have their leader; of two that have exited it says that they do. */
	if (order && proc_thread_count(b) <= 1)
		return false;
	/* Where nobody can look now, who may share it is not left alone. */
	if (proc_memory_look(a, NULL, &a) || proc_memory_look(b, NULL, &b))
		return true;
	return a && b && syscall(SYS_kcmp, a, b, KCMP_VM, 0, 0) == 0;
}
