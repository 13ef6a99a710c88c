/* SPDX-License-Identifier: MIT */
/*
 * leftovers_files.c - descriptors of arenas that a mutator that died left open in a target.
 * They are closed by who has them: a thread may have a table of its own.
 */
#include <dirent.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inject/proc.h"
#include "inject/remote.h"
#include "mutator/leftovers.h"
#include "mutator/owners.h"

/*
 * A process may be a mutator itself, of another daemon: what it has mapped to write code there is what it works with.
 * Where that cannot be told nothing is taken from it.
 */
static bool is_at_work_with(const struct maps *m, const struct stat *file)
{
	for (size_t i = 0; i < m->count; i++)
		if (m->entries[i].inode == file->st_ino && m->entries[i].device == file->st_dev &&
		    owners_writes(&m->entries[i]))
			return true;
	return false;
}

int leftovers_descriptor(pid_t tid)
{
	char path[64], link[64];
	struct stat file, last = {0}; /* one file may have as many descriptors as there can be */
	struct dirent *entry;
	struct maps m = {0};
	int lowest = -1;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)tid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		ssize_t size;
		int fd;

		if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
			continue;
		size = readlinkat(dirfd(dir), entry->d_name, link, sizeof(link) - 1);
		if (size <= 0)
			continue;
		link[size] = '\0';
		fd = (int)strtol(entry->d_name, NULL, 10);
		if (strcmp(link, "/memfd:dinst (deleted)") || (lowest >= 0 && fd > lowest) ||
		    fstatat(dirfd(dir), entry->d_name, &file, 0) ||
		    (file.st_ino == last.st_ino && file.st_dev == last.st_dev))
			continue;
		if (!m.count && maps_read(tid, &m, NULL))
			break;
		if (is_at_work_with(&m, &file))
			last = file;
		else
			lowest = fd;
	}
	maps_release(&m);
	if (dir)
		closedir(dir);
	return lowest;
}

/* The same of any of its threads: one may have descriptors of its own (unshare(CLONE_FILES)). */
static int find_in_threads(const struct target *t)
{
	const pid_t first = target_memory_tid(t);
	struct proc_ids tids = {0};
	int fd = leftovers_descriptor(first);

	if (fd >= 0 || proc_tasks(target_pid(t), &tids))
		return fd;
	for (size_t i = 0; i < tids.count && fd < 0; i++)
		if (tids.ids[i] != first &&
		    syscall(SYS_kcmp, first, tids.ids[i], KCMP_FILES, 0, 0) > 0)
			fd = leftovers_descriptor(tids.ids[i]);
	proc_ids_release(&tids);
	return fd;
}

/* Who makes the call may have descriptors of its own (unshare(CLONE_FILES)): there the number is of another file. */
static int check_number(struct stop *stop, size_t next, const long *results, void *arg,
			struct dinst_error *e)
{
	const pid_t tid = remote_victim(stop);
	const int *fd = arg;

	(void)next;
	(void)results;
	if (leftovers_descriptor(tid) == *fd)
		return 0;
	return dinst_fail(
		e, DINST_BUSY,
		"process %d (%s) has descriptor %d of an earlier session open, and no thread but %d, which has descriptors of its own, can close it now; try again later",
		(int)target_pid(stop_target(stop)), target_name(stop_target(stop)), *fd, (int)tid);
}

static int close_in_target(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct arch_remote_call call = {.number = SYS_close};
	struct arch_remote_program program = {.calls = &call, .count = 1};
	struct remote_tails tails;
	long result;
	int status = remote_clean_tails(stop, &tails, e);
	int fd;

	(void)arg;
	if (status < 0)
		return status;
	/* One of ours that was given up: its number may be another file's by the time it closes. */
	if (tails.inside)
		return leftovers_is_late(stop_target(stop), tails.inside, e);
	fd = find_in_threads(stop_target(stop));
	if (fd < 0)
		return 0;
	call.args[0] = (struct arch_remote_arg){.kind = ARCH_ARG_CONST, .value = (uint64_t)fd};
	return remote_run(stop, &program, 0, NULL, check_number, &fd, &result, e);
}

/*
 * Setting up an arena makes four system calls; a signal that comes in between
 * goes first, and a mutator that dies then leaves its descriptor open.
 */
int leftovers_close(struct target *t, uint64_t deadline, struct leftovers *result,
		    struct dinst_error *e)
{
	unsigned pause = PAUSE_MIN_US;
	int status = 0;

	while (status >= 0 && find_in_threads(t) >= 0) {
		struct stop_report report = {0};

		dinst_error_clear(e);
		status = target_stop(t, NULL, close_in_target, NULL, &report, e);
		if (report.stop_ns > result->stop_ns)
			result->stop_ns = report.stop_ns;
		if (clock_ns() / 1000 >= deadline)
			break;
		if (status == DINST_BUSY) {
			usleep(pause);
			pause = pause * 2 > PAUSE_MAX_US ? PAUSE_MAX_US : pause * 2;
			status = 0;
		}
	}
	return status;
}
