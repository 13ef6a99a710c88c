/* SPDX-License-Identifier: MIT */
/*
 * threads.c - making per-thread state.
 *
 * The state is a part of the arena of the first place that needs it; routines
 * are in every place that has such snippets. Nothing here changes what is in
 * a record: that is threads_state.c.
 */
#include "mutator/threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inject/proc.h"
#include "mutator/threads_private.h"

/* --------------------------------------------------------------- making */

taddr_t threads_locked_word(const struct place *p, taddr_t counter)
{
	return counter + ((taddr_t)p->arena->cpus << p->arena->cpu_shift);
}

struct making {
	struct session *session;
	struct threads *threads;
	bool made; /* it was tried: something may be there */
};

/* As many records as there is room for. */
static int add_part(struct stop *stop, struct threads *t, struct dinst_error *e)
{
	int status = DINST_NO_MEMORY;

	for (t->shift = PAIR_SHIFT_MAX; status == DINST_NO_MEMORY; t->shift -= 2) {
		dinst_error_clear(e);
		status = arena_add_threads(stop, t->place->arena, pair_area_size(t->shift),
					   pair_owners(t->shift), pair_owners_size(t->shift), e);
		if (!status || t->place->arena->threads || t->shift == PAIR_SHIFT_MIN)
			break;
	}
	return status;
}

/* What the code of one process must know; of its stacks each knows its own. */
static int configure(struct stop *stop, struct threads *t, const struct threads_lesson *lesson,
		     struct dinst_error *e)
{
	const struct pair_config config = {
		.magic = ARENA_THREADS_MAGIC ^ t->area,
		.shift = t->shift,
		.stack_offset = lesson->stack_offset,
		.main_pointer = lesson->main_pointer,
		.main_lo = lesson->main_lo,
		.main_size = lesson->main_size,
		.lost = threads_locked_word(t->place, t->lost),
		.overflow = threads_locked_word(t->place, t->overflow),
		.orphans = threads_locked_word(t->place, t->orphans),
		.shared = t->shared,
	};

	t->stack_offset = lesson->stack_offset;
	return stop_write(stop, t->area, &config, sizeof(config), e);
}

/* A thread that has not come back from calls of ours may yet map or unmap the state that was to be made. */
static int nobody_is_late(struct session *s, struct stop *stop, struct dinst_error *e)
{
	const pid_t late = late_calls_last(s, stop);

	return late ? late_calls_fail(late, e) : 0;
}

/*
 * For each process that has the arena, the target last: all of them run the
 * same code, so the state is at one address in all of them, or there is none.
 */
static int make_state(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct making *m = arg;
	struct threads *t = m->threads;
	const pid_t pid = target_pid(stop_target(stop));
	const bool is_target = stop_target(stop) == m->session->target;
	struct threads_lesson lesson;
	int status;

	/* One that has other arenas only: nothing that uses the state is led to there. */
	if (!is_target) {
		status = arena_look_for(pid, t->place->arena, e);
		if (status <= 0)
			return status;
	}
	status = nobody_is_late(m->session, stop, e);
	if (status < 0)
		return status;
	if (is_target && target_incarnation(stop_target(stop)) != m->session->incarnation)
		return dinst_fail(e, DINST_GONE, "process %d has executed another program",
				  (int)m->session->pid);
	status = threads_learn(stop, &lesson, e);
	if (status == DINST_REFUSED && !is_target) {
		/* As after clone() without CLONE_VM: glibc keeps the parent's id there. */
		dinst_error_clear(e);
		status = dinst_fail(
			e, DINST_BUSY,
			"process %d came of %d in a way that its C library knows nothing "
			"of, so nothing can be kept for its threads: try again when it "
			"has ended, or before anything else is inserted",
			(int)pid, (int)m->session->pid);
	}
	if (status >= 0 && t->area && lesson.tid_offset != t->tid_offset)
		status = dinst_fail(e, DINST_REFUSED,
				    "processes that were forked from %d keep the ids of their "
				    "threads elsewhere, so nothing can be kept for a thread",
				    (int)m->session->pid);
	if (status >= 0 && is_target)
		status = place_sync(stop, m->session, e);
	if (status < 0)
		return status;
	m->made = true;
	/* Also where this one is killed before it has all: the others go on with what is known. */
	t->tid_offset = lesson.tid_offset;
	if (t->area) {
		status = arena_add_threads_too(stop, t->place->arena, pair_owners(t->shift),
					       pair_owners_size(t->shift), e);
	} else {
		status = add_part(stop, t, e);
		t->area = t->place->arena->threads;
	}
	return status < 0 ? status : configure(stop, t, &lesson, e);
}

struct unmaking {
	struct session *session;
	struct arena *arena;
};

static int unmake_state(struct stop *stop, void *arg, struct dinst_error *e)
{
	const struct unmaking *u = arg;
	const pid_t pid = target_pid(stop_target(stop));
	const bool is_target = stop_target(stop) == u->session->target;
	int status;

	if (!is_target) {
		status = arena_look_for(pid, u->arena, e);
		if (status <= 0)
			return status;
	}
	status = nobody_is_late(u->session, stop, e);
	if (status < 0)
		return status;
	if (is_target && target_incarnation(stop_target(stop)) != u->session->incarnation)
		return 0;
	status = arena_unmap_threads(stop, u->arena, e);
	/* The target is the last one. */
	if (status >= 0 && is_target)
		arena_forget_threads(stop, u->arena);
	return status;
}

/*
 * A process has it and another has not: nothing uses it, and it is taken out of all. Where that
 * fails the header goes on saying where it is, for the next try and for who detaches.
 */
static int unmake(struct session *s, struct arena *a, uint64_t *stop_ns, struct dinst_error *e)
{
	struct unmaking u = {.session = s, .arena = a};
	struct stop_report report = {0};
	int status;

	if (!a->threads)
		return 0;
	status = family_stop(s, unmake_state, &u, &report, e);
	session_note_stop(s, &report, stop_ns);
	family_release(s);
	return status;
}

void threads_free(struct threads *t)
{
	if (!t)
		return;
	while (t->family_count)
		target_close(t->family[--t->family_count]);
	free(t->family);
	threads_free_ids(t);
	free(t);
}

static void drop_counters(struct threads *t)
{
	taddr_t *counters[] = {&t->lost, &t->overflow, &t->orphans};

	for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
		if (*counters[i])
			heap_unref_counter(t->place->heap, *counters[i]);
}

struct pair_shared *threads_shared(const struct threads *t)
{
	return heap_map(t->place->heap, t->shared, sizeof(struct pair_shared));
}

/*
 * What the family shares. The sequence in it is such that the kernel accepts it
 * and no thread is ever in it: it lies in what is not executed.
 */
static int make_shared(struct session *s, struct threads *t, struct dinst_error *e)
{
	const size_t size = (sizeof(struct pair_shared) + 31) / 32 * 32;
	struct pair_shared *shared;
	int status = heap_alloc_cold(t->place->heap, size, &t->shared, e);

	if (status < 0)
		return status;
	shared = threads_shared(t);
	memset(shared, 0, sizeof(*shared));
	shared->start_ip = t->shared + offsetof(struct pair_shared, never[1]);
	shared->post_commit_offset = 1;
	shared->abort_ip = t->shared + offsetof(struct pair_shared, never[0]);
	shared->signature = s->rseq_signature;
	return 0;
}

static struct threads *threads_new(struct place *p)
{
	struct threads *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->place = p;
	t->used = offsetof(struct pair_record, words);
	t->next_id = t->next_raw = 1;
	t->ids = calloc(PAIR_ID_MASK + 1, sizeof(*t->ids));
	t->paired = calloc(PAIR_ID_MASK + 1, sizeof(*t->paired));
	memset(t->chunks, CHUNK_UNUSED, sizeof(t->chunks));
	if (t->ids && t->paired)
		return t;
	threads_free(t);
	return NULL;
}

enum {
	RECORD_USED = 16 << 10, /* bytes that a thread writes to of its record, mostly */
	MEMBER_USED =
		32 << 10, /* of the tables, and of the kernel's for them, in a forked process */
};

/* Adds the threads of a process, if it has not ended by now. */
static int add_threads(pid_t pid, size_t *threads, struct dinst_error *e)
{
	struct proc_ids tids = {0};
	const int error = proc_unless_gone(proc_tasks(pid, &tids));

	*threads += tids.count;
	proc_ids_release(&tids);
	if (!error)
		return 0;
	return dinst_fail_errno(
		e, DINST_BUSY, -error,
		"cannot list the threads of process %d, for each of which memory of "
		"its own is needed; try again later",
		(int)pid);
}

/* All threads that may get a record, and the processes besides the target: each has the state for itself. */
static int count_threads(const struct session *s, const struct place *p, size_t *threads,
			 size_t *members, struct dinst_error *e)
{
	pid_t *pids = NULL;
	int status = arena_sharers(p->arena, s->pid, &pids, members);

	if (status)
		return dinst_fail(e, DINST_BUSY,
				  "cannot find the processes forked from %d, for each of which "
				  "memory of its own is needed; try again later",
				  (int)s->pid);
	*threads = 0;
	status = add_threads(s->pid, threads, e);
	for (size_t i = 0; i < *members && !status; i++)
		status = add_threads(pids[i], threads, e);
	free(pids);
	return status;
}

/*
 * It is the target's own memory: where its group has none left, the kernel would kill it. Those who were
 * forked from it are mostly in its group, and count as if they were.
 */
static int check_room(const struct session *s, const struct place *p, struct dinst_error *e)
{
	struct memory_room room;
	char purpose[120];
	size_t threads, members;
	int status = target_memory_room(s->target, &room, e);

	if (status || room.bytes == UINT64_MAX)
		return status;
	status = count_threads(s, p, &threads, &members, e);
	if (status)
		return status;
	snprintf(purpose, sizeof(purpose), "for what is kept for its %zu threads%s", threads,
		 members ? " (those of the processes forked from it too)" : "");
	return target_check_room(s->target, &room,
				 (uint64_t)members * MEMBER_USED + (uint64_t)threads * RECORD_USED,
				 purpose, "", e);
}

static int make(struct session *s, struct place *p, uint64_t *stop_ns, struct dinst_error *e)
{
	struct dinst_error ignored = {0};
	struct stop_report report = {0};
	struct making m = {.session = s, .threads = threads_new(p)};
	struct threads *t = m.threads;
	int status;

	if (!t)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory for per-thread state");
	status = check_room(s, p, e);
	/* Of an earlier try. */
	if (status >= 0)
		status = unmake(s, p->arena, stop_ns, e);
	if (status >= 0)
		status = heap_alloc_counter(p->heap, &t->lost, e);
	if (status >= 0)
		status = heap_alloc_counter(p->heap, &t->overflow, e);
	if (status >= 0)
		status = heap_alloc_counter(p->heap, &t->orphans, e);
	if (status >= 0)
		status = make_shared(s, t, e);
	if (status >= 0) {
		status = family_stop(s, make_state, &m, &report, e);
		session_note_stop(s, &report, stop_ns);
		family_release(s);
	}
	/* A target that is gone is left out of its family's stop. */
	if (status >= 0 && !t->area)
		status = dinst_fail(e, DINST_GONE, "process %d has ended", (int)s->pid);
	if (status < 0 && m.made)
		unmake(s, p->arena, stop_ns, &ignored);
	if (status < 0) {
		if (t->shared)
			heap_free_code(p->heap, t->shared);
		drop_counters(t);
		threads_free(t);
		return status;
	}
	s->threads = t;
	return 0;
}

void threads_pairing(const struct session *s, const struct place *p, struct arch_pairing *spec)
{
	const struct threads *t = s->threads;

	memset(spec, 0, sizeof(*spec));
	if (!t || !t->area)
		return;
	spec->area = t->area;
	spec->shift = t->shift;
	spec->tid_offset = t->tid_offset;
	spec->record = p->record;
	spec->enter = p->enter;
	spec->leave = p->leave;
	spec->leaving = p->leaving;
}

void threads_environment(const struct session *s, const struct place *p,
			 struct arch_environment *environment)
{
	const struct threads *t = s->threads;

	threads_pairing(s, p, &environment->pairing);
	environment->thread_clock_by_rseq = t && t->area && s->rseq_usable &&
					    threads_shared(t)->signature == s->rseq_signature &&
					    !rseq_is_inherited() && threads_clock_is_kept();
	environment->clock_descriptor = environment->thread_clock_by_rseq ? t->shared : 0;
}

static int write_routines(struct session *s, struct place *p, struct dinst_error *e)
{
	struct arch_pairing spec;
	struct arch_buf out = {0};
	size_t offsets[ARCH_PAIRING_KINDS] = {0};
	taddr_t at;
	int status;

	status = heap_alloc_cold(p->heap, ARCH_PAIRING_ROUTINES, &at, e);
	if (status < 0)
		return status;
	threads_pairing(s, p, &spec);
	out.bytes = heap_map(p->heap, at, ARCH_PAIRING_ROUTINES);
	out.size = ARCH_PAIRING_ROUTINES;
	out.pc = at;
	arch_emit_pairing_routines(&out, &spec, offsets);
	if (out.status != ARCH_OK) {
		heap_free_code(p->heap, at);
		return dinst_fail(e, DINST_UNSUPPORTED,
				  "there is no per-thread state on this processor (%d)",
				  out.status);
	}
	p->record = at + offsets[ARCH_PAIRING_RECORD];
	p->enter = at + offsets[ARCH_PAIRING_ENTER];
	p->leave = at + offsets[ARCH_PAIRING_LEAVE];
	p->leaving = at + offsets[ARCH_PAIRING_LEAVING];
	return 0;
}

int threads_prepare(struct session *s, struct place *p, uint64_t *stop_ns, struct dinst_error *e)
{
	int status = 0;

	if (!s->threads)
		status = make(s, p, stop_ns, e);
	if (status >= 0 && !p->enter)
		status = write_routines(s, p, e);
	return status;
}

/* ---------------------------------------------------------------- now and then */

static const uint64_t POLL_NS = UINT64_C(1000000000), POLL_MOST_NS = UINT64_C(60000000000);

enum { SHARE = 20 }; /* stops that nobody asked for take one part in so many of the time, at most */

bool threads_need_poll(const struct session *s)
{
	return s->threads && s->threads->area;
}

bool threads_have_strayed(const struct session *s)
{
	return s->threads && s->threads->strayed;
}

void threads_bring_home(struct session *s)
{
	struct dinst_error ignored = {0};

	if (threads_have_strayed(s))
		threads_sweep(s, false, &ignored);
}

void threads_poll(struct session *s)
{
	struct threads *t = s->threads;
	struct dinst_error ignored = {0};
	const uint64_t now = clock_ns();
	uint64_t least;
	bool strayed;

	if (!t || now - t->poll_ns < t->poll_pause_ns)
		return;
	t->poll_ns = now;
	if (heap_read_counter(t->place->heap, t->lost) == t->lost_seen && !t->strayed) {
		t->poll_pause_ns = POLL_NS;
		return;
	}
	if (session_check(s, &ignored) < 0)
		return;
	strayed = t->strayed;
	t->useful = false;
	threads_sweep(s, false, &ignored);
	t->lost_seen = heap_read_counter(t->place->heap, t->lost);
	least = s->last_stop_ns * SHARE > POLL_NS ? s->last_stop_ns * SHARE : POLL_NS;
	t->poll_pause_ns *= 2;
	if (t->useful || (strayed && !t->strayed))
		t->poll_pause_ns = 0;
	if (t->poll_pause_ns > POLL_MOST_NS)
		t->poll_pause_ns = POLL_MOST_NS;
	if (t->poll_pause_ns < least)
		t->poll_pause_ns = least;
}
