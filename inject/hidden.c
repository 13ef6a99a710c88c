/* SPDX-License-Identifier: MIT */
/*
 * hidden.c - who may be a forked child that cannot be looked at.
 *
 * kill(pid, 0) tells whose a process is whatever /proc hides (kill(2): EPERM of other users' ones).
 * Where its status can be read, it tells whether the process has executed a program of its own, and
 * whether its program is another one: the size of the text stays what it was when it was forked.
 */
#include "inject/hidden.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inject/control.h"
#include "inject/mounts.h"
#include "inject/proc_open.h"

enum { PIDS_MOST = 4 << 20 }; /* PID_MAX_LIMIT of include/linux/threads.h */
enum { NOBODY_IS_HIDDEN = -2 };

struct noted {
	pid_t pid;
	int pidfd; /* while it is not readable, the pid is still this process's */
};

struct hidden {
	struct noted *noted;
	size_t count, room;
	int births_fd;
	bool any_user;	  /* a child may have become another user's, as the target may */
	bool sees_hidden; /* hidepid is not for us */
};

/*
 * *empty: there is nothing in them, as in those of a kernel thread and of a leader that has exited. NULL: they
 * are not read, which would wait for whoever holds the memory.
 */
static bool maps_are_denied(pid_t tid, bool *empty)
{
	char path[64], byte;
	int fd;

	if (empty)
		*empty = false;
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)tid);
	fd = proc_open(path, O_RDONLY);
	/* Nobody can look now: what may not be looked at is no less likely for that. */
	if (fd < 0)
		return proc_unless_gone(-errno) != 0;
	if (empty)
		*empty = read(fd, &byte, 1) == 0;
	close(fd);
	return false;
}

/* The thread of `pid` whose memory it is that we may not look at; 0 if we may. */
static pid_t denied_tid(pid_t pid)
{
	bool denied, empty;
	pid_t tid = pid;

	denied = maps_are_denied(pid, &empty);
	if (empty) {
		/* Nobody can look now. */
		if (proc_memory_look(pid, NULL, &tid))
			return pid;
		denied = tid && tid != pid && maps_are_denied(tid, &empty);
	}
	return denied ? tid : 0;
}

/* Where nobody may change his user, children of a process of ours keep our user id. */
static bool may_be_ours(const struct hidden *h, pid_t pid)
{
	if (!kill(pid, 0))
		return true;
	/* Whatever else somebody has to say (a security module), it is there. */
	return errno == EPERM ? h->any_user : errno != ESRCH;
}

/* True if it is there and /proc does not show it: a process, no thread of one. */
static bool is_unlisted(const struct hidden *h, pid_t pid)
{
	char path[64];
	int fd;

	if (!may_be_ours(h, pid))
		return false;
	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	if (!proc_access(path, F_OK) || errno != ENOENT)
		return false;
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return errno != ESRCH && errno != EINVAL && errno != ENOENT;
	close(fd);
	return true;
}

static bool was_there_before(const struct hidden *h, pid_t pid)
{
	for (size_t i = 0; i < h->count; i++) {
		struct pollfd end = {.fd = h->noted[i].pidfd, .events = POLLIN};

		if (h->noted[i].pid == pid)
			return poll(&end, 1, 0) == 0;
	}
	return false;
}

/* What can be read of it, if anything, tells that it has no arena of the target's. */
static bool is_ruled_out(pid_t pid, pid_t tid, const struct target *t)
{
	struct proc_status status;
	struct proc_stat stat;

	if (!proc_stat_read(pid, &stat)) {
		/* What it has executed has no arena. */
		if (!(stat.flags & PROC_FORKED) || stat.start_time < t->start_time)
			return true;
		if (!strcmp(stat.name, t->name) || proc_descends(pid, t->pid))
			return false;
	}
	return !proc_status_read(tid, &status) && t->text_kib && status.text_kib != t->text_kib;
}

bool hidden_may_share(const struct hidden *h, pid_t pid, const struct target *t)
{
	const pid_t tid = denied_tid(pid);

	if (tid ? !may_be_ours(h, pid) : !is_unlisted(h, pid))
		return false;
	return !was_there_before(h, pid) && !is_ruled_out(pid, tid ? tid : pid, t);
}

bool hidden_may_have(const struct hidden *h, pid_t pid, const struct target *t,
		     const struct arena *a)
{
	const int has = arena_look_for(pid, a, NULL);

	return has == DINST_NOT_PERMITTED ? hidden_may_share(h, pid, t) : has != 0;
}

/* ------------------------------------------------- those that are not listed */

/* Whether the line's file system, whatever there is behind it, hides processes. */
static bool hides(const char *line, const char *end)
{
	static const char option[] = "hidepid=";
	size_t length;
	const char *at = mounts_field(line, end, 4, &length);

	if (!at || length != strlen("/proc") || memcmp(at, "/proc", length) != 0)
		return false;
	at = memmem(line, (size_t)(end - line), option, strlen(option));
	if (!at)
		return false;
	at += strlen(option);
	return at < end && *at != '0' && *at != '1' && strncmp(at, "off", 3) != 0 &&
	       strncmp(at, "noaccess", 8) != 0;
}

/* What cannot be told counts as hiding. */
static bool proc_lists_all(void)
{
	char *mounts = mounts_read(getpid());
	bool all = mounts != NULL;

	for (const char *line = mounts, *end; line && *line; line = *end ? end + 1 : end) {
		end = line + strcspn(line, "\n");
		all = all && !hides(line, end);
	}
	free(mounts);
	return all;
}

static pid_t most_pids(void)
{
	const char *at;
	char text[32];
	uint64_t most;

	at = proc_read("/proc/sys/kernel/pid_max", text, sizeof(text)) > 0 ? text : "";
	return proc_number(&at, 10, &most) && most <= PIDS_MOST ? (pid_t)most : PIDS_MOST;
}

static int add_unlisted(const struct hidden *h, pid_t from, pid_t to, struct proc_ids *list)
{
	int error = 0;

	for (pid_t pid = from; pid <= to && !error; pid++)
		if (pid != getpid() && is_unlisted(h, pid))
			error = proc_ids_add(list, pid);
	return error;
}

/* Pids are given out in order, and from the start again (kernel/pid.c: idr_alloc_cyclic()). */
static int find_unlisted(const struct hidden *h, long *births, struct proc_ids *list)
{
	const long before = *births, now = proc_births(h->births_fd);
	int error;

	*births = now;
	if (before < 0 || now < 0)
		return add_unlisted(h, 1, most_pids(), list);
	if (now >= before)
		return add_unlisted(h, (pid_t)before, (pid_t)now, list);
	error = add_unlisted(h, (pid_t)before, most_pids(), list);
	return error ? error : add_unlisted(h, 1, (pid_t)now, list);
}

int hidden_unlisted(const struct hidden *h, const struct target *t, long *births,
		    struct proc_ids *list)
{
	struct proc_ids found = {0};
	int error;

	if (*births < 0 && (h->sees_hidden || proc_lists_all()))
		*births = NOBODY_IS_HIDDEN;
	if (*births == NOBODY_IS_HIDDEN)
		return 0;
	error = find_unlisted(h, births, &found);
	for (size_t i = 0; i < found.count && !error; i++)
		if (hidden_may_share(h, found.ids[i], t))
			error = proc_ids_add(list, found.ids[i]);
	proc_ids_release(&found);
	return error;
}

/* ------------------------------------------------------- those that were there */

static bool note(struct hidden *h, pid_t pid)
{
	int pidfd;

	if (h->count == h->room) {
		const size_t room = h->room ? h->room * 2 : 16;
		struct noted *noted = realloc(h->noted, room * sizeof(*noted));

		if (!noted)
			return false;
		h->noted = noted;
		h->room = room;
	}
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0)
		return errno != ENOMEM;
	/* Still hidden: it is what we have a descriptor of. */
	if (!maps_are_denied(pid, NULL) && !is_unlisted(h, pid))
		close(pidfd);
	else
		h->noted[h->count++] = (struct noted){pid, pidfd};
	return true;
}

/* Nobody that we may attach to has more capabilities than we have (ptrace(2)). */
static void look_at_ourselves(struct hidden *h)
{
	struct proc_status own;

	h->births_fd = proc_births_open();
	if (proc_status_read(getpid(), &own)) {
		h->any_user = true;
		return;
	}
	h->any_user = own.permitted >> CAP_SETUID & 1;
	h->sees_hidden = own.capabilities >> CAP_SYS_PTRACE & 1;
}

int hidden_note(struct hidden **out, struct dinst_error *e)
{
	struct hidden *h = calloc(1, sizeof(*h));
	struct proc_ids unlisted = {0};
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	bool noted = h != NULL;
	long births = -1;
	int error = 0;

	if (!proc) {
		free(h);
		return dinst_fail(e, DINST_FAILED, "cannot list /proc");
	}
	if (h)
		look_at_ourselves(h);
	while (noted && (entry = proc_next(proc, &error))) {
		const pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (pid > 0 && pid != getpid() && may_be_ours(h, pid) && maps_are_denied(pid, NULL))
			noted = note(h, pid);
	}
	closedir(proc);
	noted = noted && !error;
	if (noted && !h->sees_hidden && !proc_lists_all())
		noted = !find_unlisted(h, &births, &unlisted);
	for (size_t i = 0; i < unlisted.count && noted; i++)
		noted = note(h, unlisted.ids[i]);
	proc_ids_release(&unlisted);
	if (!noted) {
		hidden_free(h);
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	}
	*out = h;
	return 0;
}

void hidden_free(struct hidden *h)
{
	if (!h)
		return;
	for (size_t i = 0; i < h->count; i++)
		close(h->noted[i].pidfd);
	if (h->births_fd >= 0)
		close(h->births_fd);
	free(h->noted);
	free(h);
}
