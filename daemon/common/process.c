/* SPDX-License-Identifier: MIT */
/*
 * process.c - processes by name, as /proc shows them.
 *
 * Owns the meaning of a TARGET that is not a session. Only reads /proc, never
 * keeps anything open.
 */
#include "daemon/common/process.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/rpc.h"
#include "inject/proc.h"
#include "inject/target.h"

enum { CHECKS_MAX = 32 };

/* Reads /proc/PID/FILE into text[size], zero-terminated; returns the bytes or -1. */
static ssize_t read_proc(pid_t pid, const char *file, char *text, size_t size)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, text, size - 1);
	close(fd);
	if (n >= 0)
		text[n] = '\0';
	return n;
}

/* A process that /proc does not show: there is none, or /proc is not what it should be. */
static int no_process(pid_t pid, struct dinst_error *e)
{
	struct target_check checks[CHECKS_MAX];
	size_t count = target_checks(pid, checks, CHECKS_MAX);

	for (size_t i = 0; i < count; i++)
		if (!checks[i].ok &&
		    (!strcmp(checks[i].check, "proc") || !strcmp(checks[i].check, "exists")))
			return dinst_fail(e, DINST_NO_PROCESS, "%s; %s", checks[i].why,
					  checks[i].fix);
	return dinst_fail(e, DINST_NO_PROCESS, "there is no process %d", (int)pid);
}

int process_name(pid_t pid, char *name, struct dinst_error *e)
{
	ssize_t n = read_proc(pid, "comm", name, PROCESS_NAME_MAX);

	if (n < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
		return dinst_fail_errno(e, DINST_FAILED, errno, "cannot look at process %d",
					(int)pid);
	if (n < 0)
		return no_process(pid, e);
	if (n > 0 && name[n - 1] == '\n')
		name[n - 1] = '\0';
	return 0;
}

uint64_t process_start(pid_t pid)
{
	struct proc_stat stat;

	return proc_stat_read(pid, &stat) ? 0 : stat.start_time;
}

pid_t process_thread(pid_t pid)
{
	pid_t tid = proc_memory_tid(pid, NULL);

	return tid ? tid : pid;
}

bool process_alive(pid_t pid)
{
	return proc_memory_tid(pid, NULL) != 0;
}

bool process_ended(pid_t pid, uint64_t start)
{
	struct proc_stat stat;
	pid_t tid;
	int error;

	if (proc_memory_look(pid, NULL, &tid) != 0)
		return false;
	error = tid ? proc_stat_read(pid, &stat) : -ESRCH;
	if (error)
		return error == -ESRCH || error == -ENOENT;
	return start && stat.start_time != start;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static bool process_matches(pid_t pid, const char *name)
{
	char text[PATH_MAX], link[64];
	bool match;
	ssize_t n;

	if (read_proc(pid, "comm", text, sizeof(text)) < 0)
		return false;
	text[strcspn(text, "\n")] = '\0';
	match = strcmp(text, name) == 0;
	/* argv[0]; empty for kernel threads, which are nobody's target, and for exited leaders */
	n = read_proc(pid, "cmdline", text, sizeof(text));
	if (n <= 0) {
		pid = proc_memory_tid(pid, NULL);
		n = pid ? read_proc(pid, "cmdline", text, sizeof(text)) : 0;
	}
	if (n <= 0)
		return false;
	if (!match)
		match = strcmp(base_name(text), name) == 0;
	if (!match) {
		snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
		n = readlink(link, text, sizeof(text) - 1);
		if (n > 0) {
			text[n] = '\0';
			match = strcmp(base_name(text), name) == 0;
		}
	}
	return match && proc_memory_tid(pid, NULL);
}

static int by_pid(const void *a, const void *b)
{
	pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

	return (x > y) - (x < y);
}

size_t process_find(const char *name, pid_t *pids, size_t max)
{
	struct dirent *entry;
	unsigned long long pid;
	size_t count = 0;
	DIR *proc = opendir("/proc");

	if (!proc)
		return 0;
	while ((entry = readdir(proc)) != NULL) {
		if (!parse_number(entry->d_name, INT_MAX, &pid) ||
		    !process_matches((pid_t)pid, name))
			continue;
		if (count < max)
			pids[count] = (pid_t)pid;
		count++;
	}
	closedir(proc);
	qsort(pids, count < max ? count : max, sizeof(*pids), by_pid);
	return count;
}

static bool is_excepted(pid_t pid, const pid_t *except, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (except[i] == pid)
			return true;
	return false;
}

/* "12, 34, 56 and 4 more" */
static void list_pids(const pid_t *pids, size_t shown, size_t count, char *text, size_t size)
{
	size_t used = 0;

	text[0] = '\0';
	for (size_t i = 0; i < shown && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%d", i ? ", " : "",
					 (int)pids[i]);
	if (count > shown && used < size)
		snprintf(text + used, size - used, " and %zu more", count - shown);
}

int process_resolve(const char *target, const pid_t *except, size_t except_count, pid_t *pid,
		    struct dinst_error *e)
{
	pid_t pids[PROCESS_FOUND_MAX];
	unsigned long long number;
	size_t count, kept = 0;
	char list[200];

	if (!*target)
		return dinst_fail(e, DINST_USAGE, "the target is empty: give a pid or a name");
	if (parse_number(target, INT_MAX, &number)) {
		if (number == 0)
			return dinst_fail(e, DINST_NO_PROCESS, "there is no process 0");
		*pid = (pid_t)number;
		return 0;
	}
	count = process_find(target, pids, PROCESS_FOUND_MAX);
	if (count <= PROCESS_FOUND_MAX) {
		for (size_t i = 0; i < count; i++)
			if (!is_excepted(pids[i], except, except_count))
				pids[kept++] = pids[i];
		count = kept;
	}
	if (count == 0)
		return dinst_fail(
			e, DINST_NO_PROCESS,
			"there is no session and no process named '%s': give a pid or the "
			"name of a process, as ps -e shows it",
			target);
	if (count > 1) {
		list_pids(pids, count < 12 ? count : 12, count, list, sizeof(list));
		return dinst_fail(e, DINST_USAGE,
				  "%zu processes are named '%s': give one of the pids %s", count,
				  target, list);
	}
	*pid = pids[0];
	return 0;
}

static bool name_char_ok(char c)
{
	return c > 0x20 && c < 0x7f && !strchr("'\"\\", c);
}

void session_name_clean(char *name)
{
	unsigned long long number;

	for (char *p = name; *p; p++)
		if (!name_char_ok(*p))
			*p = '_';
	/* a number would be taken for a pid, a dash for an option */
	if (!*name || *name == '-' || *name == '#' || parse_number(name, ~0ULL, &number)) {
		size_t length = strlen(name);

		if (length > PROCESS_NAME_MAX - 3)
			length = PROCESS_NAME_MAX - 3;
		memmove(name + 2, name, length);
		memcpy(name, "p-", 2);
		name[length + 2] = '\0';
	}
}

int session_name_ok(const char *name)
{
	char copy[PROCESS_NAME_MAX];
	size_t length = strlen(name);

	if (length == 0 || length >= sizeof(copy))
		return 0;
	memcpy(copy, name, length + 1);
	session_name_clean(copy);
	return strcmp(copy, name) == 0;
}
