/* SPDX-License-Identifier: MIT */
/*
 * stream_threads.c - whose events they are. A record has the id by which its thread
 * knows itself; where that is another than ours (containers, and children in a namespace of
 * their own) the processes that have the rings are looked through for it: who has that id here
 * may be anybody. What a thread that has ended was called is not known any more: its id is what it was.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inject/proc.h"
#include "inject/tasks.h"
#include "mutator/siphash.h"
#include "mutator/stream_private.h"

/* Ids come from the target, which may say any: as many as keep the chains short. */
enum { THREADS_MOST = 1 << 20, STATUS_TEXT = 4096 };

static const uint64_t LOOK_AGAIN_NS = 50000000;
/* A thread whose events come all the time is asked for its name so often; all together at most one in so long. */
static const uint64_t NAME_AGAIN_NS = 1000000000, NAME_ONE_NS = 1000000;

static size_t bucket_of(uint32_t own)
{
	return name_hash((const char *)&own, sizeof(own)) % STREAM_HASH;
}

static size_t find(const struct stream *st, uint32_t own)
{
	uint32_t at = st->thread_at[bucket_of(own)];

	while (at && st->threads[at - 1].own != own)
		at = st->threads[at - 1].next;
	return at ? at - 1 : SIZE_MAX;
}

static size_t add(struct stream *st, uint32_t own, uint32_t tid)
{
	uint32_t *first = &st->thread_at[bucket_of(own)];

	if (st->thread_count == st->thread_room) {
		const size_t room = st->thread_room ? st->thread_room * 2 : 64;
		struct stream_thread *grown =
			room <= THREADS_MOST ? realloc(st->threads, room * sizeof(*grown)) : NULL;

		if (!grown)
			return SIZE_MAX;
		st->threads = grown;
		st->thread_room = room;
	}
	st->threads[st->thread_count] =
		(struct stream_thread){.own = own, .tid = tid, .next = *first, .wanted = true};
	*first = (uint32_t)++st->thread_count;
	return st->thread_count - 1;
}

/* The line's text behind "Name:\t", "Tgid:\t", or NULL. */
static const char *line_of(const char *status, const char *name)
{
	const char *line = strstr(status, name);

	return line && (line == status || line[-1] == '\n') ? line + strlen(name) : NULL;
}

/* What the thread is called, and whose it is, if it is still there. */
static void look_up(struct stream_thread *t)
{
	char small[STATUS_TEXT], *text;
	const char *name, *pid;

	text = proc_status_text((pid_t)t->tid, (pid_t)t->tid, small, sizeof(small));
	if (!text)
		return;
	name = line_of(text, "Name:\t");
	pid = line_of(text, "Tgid:\t");
	if (name)
		snprintf(t->name, sizeof(t->name), "%.*s", (int)strcspn(name, "\n"), name);
	if (pid)
		t->pid = (uint32_t)strtoul(pid, NULL, 10);
	if (text != small)
		free(text);
}

/* It is that one, by our id. What is new of it is told once more; of one that has ended nothing is to be had. */
static void settle(struct stream *st, size_t at, uint32_t tid)
{
	struct stream_thread *t = &st->threads[at], now = *t;

	now.tid = tid;
	now.pid = 0;
	look_up(&now);
	if (!now.pid)
		return;
	t->wanted = now.wanted = false;
	t->looked_ns = now.looked_ns = clock_ns();
	if (now.tid == t->tid && now.pid == t->pid && !strcmp(now.name, t->name))
		return;
	*t = now;
	for (struct stream_queue *q = st->queues; q; q = q->next)
		if (at / 8 < q->told_size)
			q->told[at / 8] &= (uint8_t) ~(1u << (at % 8));
}

/*
 * The kernel gives ids out again, soon where many threads come and go, ours and those of containers, and a
 * thread may call itself otherwise. One that has ended keeps its name, unless another one has its id.
 */
static void look_up_again(struct stream *st, size_t at)
{
	struct stream_thread *t = &st->threads[at];
	const uint64_t now = clock_ns();

	if (now - t->looked_ns < NAME_AGAIN_NS || now - st->named.ended_ns < NAME_ONE_NS ||
	    !stream_may_search(&st->named, now))
		return;
	t->looked_ns = now;
	if (stream_is_known(st, (pid_t)t->tid, t->own))
		settle(st, at, t->tid);
	else
		t->wanted = true;
	stream_searched(&st->named, now);
}

/* The threads of one process by their own ids: those that are not known yet, or not any more. */
static void look_through(struct stream *st, pid_t pid)
{
	size_t count;
	pid_t *tids = task_list(pid, &count);

	for (size_t n = 0; n < count; n++) {
		const pid_t own = task_own_id(pid, tids[n]);
		size_t at = own > 0 ? find(st, (uint32_t)own) : SIZE_MAX;

		if (own > 0 && at == SIZE_MAX)
			at = add(st, (uint32_t)own, (uint32_t)tids[n]);
		if (at != SIZE_MAX && st->threads[at].wanted)
			settle(st, at, (uint32_t)tids[n]);
	}
	free(tids);
}

bool stream_ids_are_ours(const struct stream *st)
{
	const pid_t pid = st->session->pid, own = task_own_id(pid, pid);

	return !own || own == pid;
}

/* False: that was done just now, and may be again a moment later. */
static bool look_for_threads(struct stream *st)
{
	const uint64_t now = clock_ns();
	pid_t *sharers = NULL;
	size_t count = 0;

	if (now - st->sought.ended_ns < LOOK_AGAIN_NS || !stream_may_search(&st->sought, now))
		return false;
	/* Where their ids are ours it was looked up by its id already. */
	if (st->own_ids)
		look_through(st, st->session->pid);
	if (arena_sharers(st->arena, st->session->pid, &sharers, &count) >= 0)
		for (size_t n = 0; n < count; n++)
			look_through(st, sharers[n]);
	free(sharers);
	/* Who was not found has ended. */
	for (size_t at = 0; at < st->thread_count; at++)
		if (st->threads[at].wanted) {
			st->threads[at].wanted = false;
			st->threads[at].looked_ns = now;
		}
	stream_searched(&st->sought, now);
	return true;
}

size_t stream_thread(struct stream *st, uint32_t own)
{
	size_t at = find(st, own);

	if (at == SIZE_MAX) {
		if (!st->thread_count)
			st->own_ids = !stream_ids_are_ours(st);
		at = add(st, own, own);
		if (at == SIZE_MAX)
			return at;
		if (!st->own_ids && stream_is_known(st, (pid_t)own, own))
			settle(st, at, own);
	} else if (!st->threads[at].wanted) {
		look_up_again(st, at);
	}
	/* What nobody has looked for may be found the next time: until then nothing is told of it. */
	if (st->threads[at].wanted && !look_for_threads(st) && st->own_ids && !st->threads[at].pid)
		return SIZE_MAX;
	return at;
}
