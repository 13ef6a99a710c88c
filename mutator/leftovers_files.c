/* SPDX-License-Identifier: MIT */
/*
 * leftovers_files.c - descriptors of arenas that a mutator that died left open in a target.
 * They are closed by who has them: a thread may have a table of its own.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "inject/proc.h"
#include "inject/proc_open.h"
#include "inject/remote.h"
#include "mutator/leftovers.h"
#include "mutator/owners.h"

enum { SHARE = 4 }; /* of the time there is */

/*
 * A process may be a mutator itself, of another daemon: what it has mapped to write code there is what it works with.
 * Where that cannot be told nothing is taken from it.
 */
static bool is_at_work_with(const struct maps *m, const struct statx *file)
{
	for (size_t i = 0; i < m->count; i++)
		if (m->entries[i].inode == file->stx_ino &&
		    m->entries[i].device == makedev(file->stx_dev_major, file->stx_dev_minor) &&
		    owners_writes(&m->entries[i]))
			return true;
	return false;
}

/*
 * Which file it is, without asking who provides it: that may be the target, which may stand still.
 * 1, 0 where it is gone, or LEFTOVERS_UNSEEN.
 */
static int identify(int dir, const char *number, struct statx *file)
{
	if (!statx(dir, number, AT_STATX_DONT_SYNC, STATX_INO, file))
		return 1;
	return proc_is_lack(-errno) ? LEFTOVERS_UNSEEN : 0;
}

static bool is_same(const struct statx *a, const struct statx *b)
{
	return a->stx_ino == b->stx_ino && a->stx_dev_major == b->stx_dev_major &&
	       a->stx_dev_minor == b->stx_dev_minor;
}

/* 1, 0, or LEFTOVERS_UNSEEN. */
static int is_named_ours(int dir, const char *number)
{
	static const char name[] = "/memfd:dinst (deleted)";
	char link[sizeof(name) + 1];
	const ssize_t got = readlinkat(dir, number, link, sizeof(link));

	/* It may be closed by now, or have a name that is too long: not ours. */
	if (got < 0)
		return proc_is_lack(-errno) ? LEFTOVERS_UNSEEN : 0;
	return got == sizeof(name) - 1 && !memcmp(link, name, sizeof(name) - 1);
}

static int open_descriptors(pid_t tid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)tid);
	return proc_open(path, O_RDONLY | O_DIRECTORY);
}

int leftovers_descriptor(pid_t tid)
{
	struct statx file, last = {0}; /* one file may have as many descriptors as there can be */
	const int at = open_descriptors(tid);
	struct dirent *entry;
	struct maps m = {0};
	int lowest = -1, error = 0, named, status;
	DIR *dir = at < 0 ? NULL : fdopendir(at);

	/* The files of others may be kept from us. */
	if (!dir && proc_unless_kept(-errno))
		lowest = LEFTOVERS_UNSEEN;
	if (at >= 0 && !dir)
		close(at);
	while (dir && (entry = proc_next(dir, &error))) {
		const int fd = (int)strtol(entry->d_name, NULL, 10);

		if (entry->d_name[0] < '0' || entry->d_name[0] > '9' ||
		    (lowest >= 0 && fd > lowest))
			continue;
		named = is_named_ours(at, entry->d_name);
		if (named > 0)
			named = identify(at, entry->d_name, &file);
		if (named < 0) {
			lowest = named;
			break;
		}
		if (!named || is_same(&file, &last))
			continue;
		status = m.count ? 0 : maps_read(tid, &m, NULL);
		if (status && status != DINST_GONE && status != DINST_NOT_PERMITTED)
			lowest = LEFTOVERS_UNSEEN;
		if (status)
			break;
		if (is_at_work_with(&m, &file))
			last = file;
		else
			lowest = fd;
	}
	maps_release(&m);
	if (dir)
		closedir(dir);
	return proc_unless_gone(error) ? LEFTOVERS_UNSEEN : lowest;
}

/* What was found while the target ran. */
struct forgotten {
	int fd;
	struct statx file;
};

/* True if the thread has that file by that number. */
static bool has_it(pid_t tid, const struct forgotten *f)
{
	const int dir = open_descriptors(tid);
	struct statx now;
	char number[16];
	bool has;

	snprintf(number, sizeof(number), "%d", f->fd);
	has = dir >= 0 && is_named_ours(dir, number) > 0 && identify(dir, number, &now) > 0 &&
	      is_same(&now, &f->file);
	if (dir >= 0)
		close(dir);
	return has;
}

/* 1, 0, or LEFTOVERS_UNSEEN. */
static int find_in(pid_t tid, struct forgotten *f)
{
	char number[16];
	int dir, found;

	f->fd = leftovers_descriptor(tid);
	if (f->fd < 0)
		return f->fd == LEFTOVERS_UNSEEN ? f->fd : 0;
	snprintf(number, sizeof(number), "%d", f->fd);
	dir = open_descriptors(tid);
	if (dir < 0)
		return proc_unless_kept(-errno) ? LEFTOVERS_UNSEEN : 0;
	found = identify(dir, number, &f->file);
	close(dir);
	return found;
}

/* One of any of its threads: each may have descriptors of its own (unshare(CLONE_FILES)). While it runs. */
static int find_in_threads(const struct target *t, struct forgotten *f)
{
	const pid_t first = target_memory_tid(t);
	struct proc_ids tids = {0};
	int found = find_in(first, f);

	if (found)
		return found;
	if (proc_unless_gone(proc_tasks(target_pid(t), &tids))) {
		proc_ids_release(&tids);
		return LEFTOVERS_UNSEEN;
	}
	for (size_t i = 0; i < tids.count && !found; i++)
		/* Where it cannot be told, as the first has ended by now, it may have others. */
		if (tids.ids[i] != first &&
		    syscall(SYS_kcmp, first, tids.ids[i], KCMP_FILES, 0, 0) != 0)
			found = find_in(tids.ids[i], f);
	proc_ids_release(&tids);
	return found;
}

/* Who makes the call may have descriptors of its own: there the number is of another file, or of none. */
static int check_number(struct stop *stop, size_t next, const long *results, void *arg,
			struct dinst_error *e)
{
	const pid_t tid = remote_victim(stop);
	const struct forgotten *f = arg;

	(void)next;
	(void)results;
	if (has_it(tid, f))
		return 0;
	return dinst_fail(
		e, DINST_BUSY,
		"process %d (%s) has descriptor %d of an earlier session open, and no thread but %d, which has descriptors of its own, can close it now; try again later",
		(int)target_pid(stop_target(stop)), target_name(stop_target(stop)), f->fd,
		(int)tid);
}

static int close_in_target(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct arch_remote_call call = {.number = SYS_close};
	struct arch_remote_program program = {.calls = &call, .count = 1};
	struct forgotten *f = arg;
	struct remote_tails tails;
	long result;
	int status = remote_clean_tails(stop, &tails, e);

	if (status < 0)
		return status;
	/* One of ours that was given up: its number may be another file's by the time it closes. */
	if (tails.inside)
		return leftovers_is_late(stop_target(stop), tails.inside, e);
	call.args[0] = (struct arch_remote_arg){.kind = ARCH_ARG_CONST, .value = (uint64_t)f->fd};
	return remote_run(stop, &program, 0, NULL, check_number, f, &result, e);
}

/*
 * Setting up an arena makes four system calls; a signal that comes in between
 * goes first, and a mutator that dies then leaves its descriptor open.
 */
int leftovers_close(struct target *t, uint64_t deadline, struct leftovers *result,
		    struct dinst_error *e)
{
	const uint64_t now = clock_ns() / 1000;
	/* The rest of the time is for what matters more. */
	const uint64_t until = deadline > now ? now + (deadline - now) / SHARE : now;
	unsigned pause = PAUSE_MIN_US;
	struct forgotten forgotten;
	int status = 0, found = 0;

	while (status >= 0 && (found = find_in_threads(t, &forgotten)) > 0) {
		struct stop_report report = {0};

		dinst_error_clear(e);
		status = target_stop(t, NULL, close_in_target, &forgotten, &report, e);
		if (report.stop_ns > result->stop_ns)
			result->stop_ns = report.stop_ns;
		if (clock_ns() / 1000 >= until)
			break;
		if (status == DINST_BUSY) {
			usleep(pause);
			pause = pause * 2 > PAUSE_MAX_US ? PAUSE_MAX_US : pause * 2;
			status = 0;
		}
	}
	if (status >= 0 && found < 0)
		status = dinst_fail(
			e, DINST_BUSY,
			"cannot see whether process %d (%s) has a descriptor of an earlier session open: "
			"no descriptor or no memory to look; try again later",
			(int)target_pid(t), target_name(t));
	return status;
}
