/* SPDX-License-Identifier: MIT */
/*
 * stream_holders.c - whose rings are taken, as far as /proc tells. A ring has no more
 * than the id by which its holder knows itself, and that may be another one's here: of a
 * container's threads, or of a child that was forked into a namespace of its own.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inject/proc.h"
#include "inject/tasks.h"
#include "mutator/stream_private.h"

/* One part in so many of our time, at most, goes into looking through all processes, for one thing. */
enum { SEARCH_PART = 20, STATUS_TEXT = 4096 };

static bool has_the_rings(const struct stream *st, pid_t pid)
{
	const struct session *s = st->session;

	return pid == s->pid || hidden_may_have(s->unseen, pid, s->target, st->arena);
}

/* Whose thread it is, 0 if that cannot be read; *living: false once it has ended. */
static pid_t process_of(pid_t tid, bool *living)
{
	char small[STATUS_TEXT], *text = proc_status_text(tid, tid, small, sizeof(small));
	const char *state, *group;
	pid_t pid;

	if (!text)
		return 0;
	state = strstr(text, "\nState:\t");
	group = strstr(text, "\nTgid:\t");
	pid = group ? (pid_t)strtol(group + strlen("\nTgid:\t"), NULL, 10) : 0;
	*living = state && !strchr("ZX", state[strlen("\nState:\t")]);
	if (text != small)
		free(text);
	return pid;
}

static bool is_theirs(const struct stream *st, pid_t pid, pid_t tid, uint32_t own)
{
	return task_own_id(tid, tid) == (pid_t)own && has_the_rings(st, pid);
}

bool stream_is_holder(const struct stream *st, pid_t tid, uint32_t own)
{
	bool living;
	const pid_t pid = process_of(tid, &living);

	if (!pid)
		return !kill(tid, 0) || errno != ESRCH;
	return living && is_theirs(st, pid, tid, own);
}

bool stream_is_known(const struct stream *st, pid_t tid, uint32_t own)
{
	bool living;
	const pid_t pid = process_of(tid, &living);

	return pid && is_theirs(st, pid, tid, own);
}

static bool has_ended(pid_t pid, pid_t tid)
{
	struct proc_stat stat;
	const int error = proc_thread_stat_read(pid, tid, &stat);

	return error && !proc_unless_gone(error);
}

/* Those of its threads that have taken a ring; false where nobody can tell now. */
static bool look_through(struct stream *st, pid_t pid)
{
	size_t count;
	pid_t *tids = task_list(pid, &count);
	bool told = tids || has_ended(pid, pid);

	for (size_t i = 0; tids && i < count; i++) {
		const pid_t own = task_own_id(pid, tids[i]);

		told = told && (own > 0 || has_ended(pid, tids[i]));

		for (unsigned n = 0; n < st->ring_count && own > 0; n++) {
			struct stuck *stuck = &st->rings[n].stuck;

			if (stuck->wanted && stuck->lock == (uint64_t)own &&
			    stream_is_holder(st, tids[i], (uint32_t)own))
				stuck->tid = tids[i];
		}
	}
	free(tids);
	return told;
}

static bool look_through_all(struct stream *st)
{
	const pid_t target = st->session->pid;
	struct dirent *entry;
	bool told = true;
	int error = 0;
	DIR *proc;

	/* Where their ids are ours it was asked for by its id already. */
	if (!stream_ids_are_ours(st))
		told = look_through(st, target);
	if (st->arena->mode != ARENA_SHARED)
		return told;
	proc = opendir("/proc");
	if (!proc)
		return false;
	while ((entry = proc_next(proc, &error))) {
		const pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (pid > 0 && pid != target && pid != getpid() && has_the_rings(st, pid))
			told = look_through(st, pid) && told;
	}
	closedir(proc);
	return told && !error;
}

bool stream_may_search(const struct stream_search *last, uint64_t now)
{
	return now - last->ended_ns >= SEARCH_PART * last->took_ns;
}

void stream_searched(struct stream_search *search, uint64_t begun)
{
	search->ended_ns = clock_ns();
	search->took_ns = search->ended_ns - begun;
}

bool stream_find_holders(struct stream *st)
{
	const uint64_t begun = clock_ns();
	bool told;

	if (!stream_may_search(&st->holders, begun))
		return false;
	told = look_through_all(st);
	stream_searched(&st->holders, begun);
	return told;
}
