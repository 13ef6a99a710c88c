/* SPDX-License-Identifier: MIT */
/*
 * proc_lists.c - lists in /proc: threads, children, descriptors, processes.
 *
 * What cannot be read to its end is an error, never a shorter list. Decides nothing.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inject/proc.h"
#include "inject/proc_open.h"

enum {
	LISTINGS = 64, /* of a thread's children, until two are the same */
	TASK_LISTINGS =
		16, /* of a process's threads: one in some thousand leaves out one, if any end */
	LISTING_PAUSE_US = 50,
};

struct dirent *proc_next(DIR *dir, int *error)
{
	struct dirent *entry;

	errno = 0;
	entry = readdir(dir);
	*error = entry ? 0 : -errno;
	return entry;
}

int proc_ids_add(struct proc_ids *list, pid_t id)
{
	size_t capacity = list->capacity ? 2 * list->capacity : 32;
	pid_t *ids;

	if (list->count == list->capacity) {
		ids = realloc(list->ids, capacity * sizeof(*ids));
		if (!ids)
			return -ENOMEM;
		list->ids = ids;
		list->capacity = capacity;
	}
	list->ids[list->count++] = id;
	return 0;
}

bool proc_ids_have(const struct proc_ids *list, pid_t id)
{
	for (size_t i = 0; i < list->count; i++)
		if (list->ids[i] == id)
			return true;
	return false;
}

void proc_ids_release(struct proc_ids *list)
{
	free(list->ids);
	memset(list, 0, sizeof(*list));
}

static int by_pid(const void *a, const void *b)
{
	const struct proc_look *x = a, *y = b;

	return x->pid < y->pid ? -1 : x->pid > y->pid;
}

int proc_looks_begin(struct proc_looks *l)
{
	if (l->dir)
		closedir(l->dir);
	l->dir = opendir("/proc");
	if (!l->dir)
		return -errno;
	if (l->count > l->known)
		qsort(l->looks, l->count, sizeof(*l->looks), by_pid);
	l->known = l->count;
	return 0;
}

/* 1: earlier listings have not told it, and it is noted; 0; or -ENOMEM. */
static int note_look(struct proc_looks *l, const struct dirent *entry)
{
	const struct proc_look key = {.pid = (pid_t)strtol(entry->d_name, NULL, 10),
				      .directory = entry->d_ino};
	const size_t room = l->room ? l->room * 2 : 64;
	struct proc_look *old =
		l->known ? bsearch(&key, l->looks, l->known, sizeof(key), by_pid) : NULL;

	if (old && old->directory == key.directory)
		return 0;
	if (!old && l->count == l->room) {
		struct proc_look *grown = realloc(l->looks, room * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		l->looks = grown;
		l->room = room;
	}
	if (!old)
		old = &l->looks[l->count++];
	*old = key;
	return 1;
}

pid_t proc_looks_next(struct proc_looks *l)
{
	struct dirent *entry;
	int error = 0, status;
	pid_t pid;

	while ((entry = proc_next(l->dir, &error))) {
		pid = (pid_t)strtol(entry->d_name, NULL, 10);
		status = pid <= 0 || pid == getpid() ? 0 : note_look(l, entry);
		if (status)
			return status < 0 ? status : pid;
	}
	return error;
}

void proc_looks_forget(struct proc_looks *l)
{
	l->count = l->known = 0;
}

void proc_looks_release(struct proc_looks *l)
{
	if (l->dir)
		closedir(l->dir);
	free(l->looks);
	memset(l, 0, sizeof(*l));
}

static bool are_same(const struct proc_ids *a, const struct proc_ids *b)
{
	return a->count == b->count &&
	       (!a->count || !memcmp(a->ids, b->ids, a->count * sizeof(*a->ids)));
}

/* Adds them, as one listing tells them. */
static int list_tasks(const char *path, struct proc_ids *list)
{
	struct dirent *entry;
	int status = 0;
	long id;
	DIR *dir = proc_opendir(path);

	if (!dir)
		return -errno;
	/* Half of a list would be taken for all of them. */
	while (!status && (entry = proc_next(dir, &status))) {
		id = strtol(entry->d_name, NULL, 10);
		if (id > 0)
			status = proc_ids_add(list, (pid_t)id);
	}
	closedir(dir);
	return status;
}

/* Adds those that are not there yet. Lists are in order but for that: mostly what is looked for is at the same place. */
static int add_others(struct proc_ids *list, const struct proc_ids *found)
{
	const size_t count = list->count;
	int status = 0;

	for (size_t i = 0; i < found->count && !status; i++)
		if ((i >= count || list->ids[i] != found->ids[i]) &&
		    !proc_ids_have(list, found->ids[i]))
			status = proc_ids_add(list, found->ids[i]);
	return status;
}

/* Adds those that another listing tells, which goes to *last. *same: it is as before, and as many as there are. */
static int list_again(pid_t pid, const char *path, struct proc_ids *list, struct proc_ids *last,
		      bool *same)
{
	struct proc_ids found = {0};
	int status = list_tasks(path, &found);

	*same = are_same(last, &found);
	if (!status && !*same)
		status = add_others(list, &found);
	if (*same && proc_thread_count(pid) != (long)found.count) {
		*same = false;
		usleep(LISTING_PAUSE_US);
	}
	proc_ids_release(last);
	*last = found;
	return status;
}

/*
 * Where the thread that was told last has ended meanwhile, or is just being taken out of the list, the kernel tells none
 * behind it, or leaves out the next (fs/proc/base.c: next_tid(), kernel/exit.c: __unhash_process()). So threads are listed
 * until it is the same again and as many as are counted, or a few times: who has been told by any of them is among them.
 */
int proc_tasks(pid_t pid, struct proc_ids *list)
{
	struct proc_ids last = {0};
	char path[64];
	bool same = false;
	int status;

	list->count = 0;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	status = list_tasks(path, list);
	/* It has no more now: most have not. */
	if (status || (list->count == 1 && proc_thread_count(pid) == 1))
		return status;
	status = add_others(&last, list);
	for (unsigned n = 1; !status && !same && n < TASK_LISTINGS; n++)
		status = list_again(pid, path, list, &last, &same);
	proc_ids_release(&last);
	/* It has ended by now: those were its threads. */
	return status == -ENOENT || status == -ESRCH ? 0 : status;
}

/* The name is that of the kernel's fs/userfaultfd.c. */
bool proc_provides_pages(pid_t pid)
{
	static const char name[] = "anon_inode:[userfaultfd]";
	char path[64], link[sizeof(name)];
	struct dirent *entry;
	bool found = false;
	int error = 0;
	ssize_t got;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = proc_opendir(path);
	/* Where we have too little of something ourselves, it may. */
	if (!dir)
		return proc_unless_kept(-errno);
	while (!found && (entry = proc_next(dir, &error))) {
		if (entry->d_name[0] == '.')
			continue;
		got = readlinkat(dirfd(dir), entry->d_name, link, sizeof(link));
		/* One may be closed by now, or have a name that is too long: that is another one. */
		found = got < 0 ? proc_is_lack(-errno)
				: got == sizeof(name) - 1 && !memcmp(link, name, sizeof(name) - 1);
	}
	closedir(dir);
	return found || proc_unless_gone(error);
}

static int read_children(const char *path, struct proc_ids *list)
{
	char *word = NULL;
	uint64_t id = 0;
	size_t room = 0;
	int status = 0;
	FILE *file = proc_fopen(path);

	if (!file)
		return -errno;
	errno = 0;
	while (!status && getdelim(&word, &room, ' ', file) > 0) {
		const char *at = word;

		if (proc_number(&at, 10, &id))
			status = proc_ids_add(list, (pid_t)id);
		errno = 0;
	}
	if (!status && !feof(file))
		status = errno ? -errno : -EIO;
	free(word);
	fclose(file);
	return status;
}

/*
 * The kernel goes on from the child that it has told last, or, where that has ended meanwhile, counts from the
 * beginning: then it may leave one out (fs/proc/array.c: get_children_pid()). So the list is read until it stays as
 * it is.
 */
int proc_children(pid_t pid, pid_t tid, struct proc_ids *list)
{
	struct proc_ids last = {0}, found = {0}, unused;
	char path[64], first[2];
	bool same = false;
	int status;

	/* Most threads have none: one small read settles that. */
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)tid);
	if (proc_read(path, first, sizeof(first)) == 0)
		return 0;
	status = read_children(path, &found);
	for (unsigned n = 1; !status && found.count && !same; n++) {
		unused = last;
		last = found;
		found = unused;
		found.count = 0;
		status = n < LISTINGS ? read_children(path, &found) : -EAGAIN;
		same = !status && are_same(&last, &found);
	}
	for (size_t i = 0; !status && i < found.count; i++)
		status = proc_ids_add(list, found.ids[i]);
	proc_ids_release(&last);
	proc_ids_release(&found);
	return status;
}

/* Adds those of all threads that are listed now. */
static int add_children(pid_t pid, const struct proc_ids *tasks, struct proc_ids *list)
{
	struct proc_ids found = {0};
	int status = 0;

	for (size_t i = 0; i < tasks->count && !status; i++) {
		found.count = 0;
		status = proc_unless_kept(proc_children(pid, tasks->ids[i], &found));
		if (!status)
			status = add_others(list, &found);
	}
	proc_ids_release(&found);
	return status;
}

/*
 * A thread that ends hands its children to another one (kernel/exit.c: find_new_reaper()), which may have been asked before:
 * so all are asked until the same threads are there as the last time, and no child has come.
 */
int proc_all_children(pid_t pid, struct proc_ids *list)
{
	struct proc_ids last = {0}, tasks = {0}, unused;
	bool same = false;
	size_t count;
	int status = 0;

	for (unsigned n = 0; !status && !same && n < TASK_LISTINGS; n++) {
		unused = last;
		last = tasks;
		tasks = unused;
		count = list->count;
		status = proc_unless_kept(proc_tasks(pid, &tasks));
		if (!status)
			status = add_children(pid, &tasks, list);
		same = n && list->count == count && are_same(&last, &tasks);
	}
	proc_ids_release(&last);
	proc_ids_release(&tasks);
	return status;
}
