/* SPDX-License-Identifier: MIT */
/*
 * threads.c - making per-thread state, and the numbers of functions.
 *
 * The state is a part of the arena of the first place that needs it; routines
 * are in every place that has such snippets. Nothing here changes what is in
 * a record: that is threads_state.c.
 */
#include "mutator/threads.h"

#include <stdlib.h>
#include <string.h>

#include "mutator/threads_private.h"

/* --------------------------------------------------------------- making */

taddr_t threads_locked_word(const struct place *p, taddr_t counter)
{
	return counter + ((taddr_t)p->arena->cpus << p->arena->cpu_shift);
}

struct making {
	struct session *session;
	struct threads *threads;
};

/* As many records as there is room for. */
static int add_part(struct stop *stop, struct threads *t, struct dinst_error *e)
{
	int status = DINST_NO_MEMORY;

	for (t->shift = PAIR_SHIFT_MAX; status == DINST_NO_MEMORY; t->shift -= 2) {
		dinst_error_clear(e);
		status = arena_add_threads(stop, t->place->arena, pair_area_size(t->shift),
					   pair_owners(t->shift), pair_owners_size(t->shift), e);
		if (!status || t->shift == PAIR_SHIFT_MIN)
			break;
	}
	return status;
}

static int make_state(struct stop *stop, void *arg, struct dinst_error *e)
{
	const struct making *m = arg;
	struct threads *t = m->threads;
	struct threads_lesson lesson;
	struct pair_config config;
	int status;

	if (target_incarnation(stop_target(stop)) != m->session->incarnation)
		return dinst_fail(e, DINST_GONE, "process %d has executed another program",
				  (int)m->session->pid);
	status = threads_learn(stop, &lesson, e);
	if (status >= 0)
		status = add_part(stop, t, e);
	if (status < 0)
		return status;
	t->area = t->place->arena->threads;
	t->tid_offset = lesson.tid_offset;
	t->stack_offset = lesson.stack_offset;
	config = (struct pair_config){
		.magic = ARENA_THREADS_MAGIC ^ t->area,
		.shift = t->shift,
		.stack_offset = lesson.stack_offset,
		.main_pointer = lesson.main_pointer,
		.main_lo = lesson.main_lo,
		.main_size = lesson.main_size,
		.lost = threads_locked_word(t->place, t->lost),
		.overflow = threads_locked_word(t->place, t->overflow),
		.orphans = threads_locked_word(t->place, t->orphans),
	};
	return stop_write(stop, t->area, &config, sizeof(config), e);
}

void threads_free(struct threads *t)
{
	if (!t)
		return;
	free(t->ids);
	free(t);
}

static void drop_counters(struct threads *t)
{
	taddr_t *counters[] = {&t->lost, &t->overflow, &t->orphans};

	for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
		if (*counters[i])
			heap_unref_counter(t->place->heap, *counters[i]);
}

static int make(struct session *s, struct place *p, uint64_t *stop_ns, struct dinst_error *e)
{
	struct stop_report report = {0};
	struct making m = {.session = s};
	struct threads *t = calloc(1, sizeof(*t));
	int status;

	if (t)
		t->ids = calloc(PAIR_ID_MASK + 1, sizeof(*t->ids));
	if (!t || !t->ids) {
		free(t);
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory for per-thread state");
	}
	t->place = p;
	t->next_id = 1;
	m.threads = t;
	status = heap_alloc_counter(p->heap, &t->lost, e);
	if (status >= 0)
		status = heap_alloc_counter(p->heap, &t->overflow, e);
	if (status >= 0)
		status = heap_alloc_counter(p->heap, &t->orphans, e);
	if (status >= 0) {
		status = target_stop(s->target, NULL, make_state, &m, &report, e);
		session_note_stop(s, &report, stop_ns);
	}
	if (status < 0 && !p->arena->threads) {
		drop_counters(t);
		threads_free(t);
		return status;
	}
	/* The part is there; if its beginning is not written the target is gone. */
	s->threads = t;
	return status < 0 ? status : 0;
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
	spec->enter = p->enter;
	spec->leave = p->leave;
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
	p->enter = at + offsets[ARCH_PAIRING_ENTER];
	p->leave = at + offsets[ARCH_PAIRING_LEAVE];
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

/* ---------------------------------------------------------------- numbers */

static uint32_t find_free(struct threads *t)
{
	for (uint32_t n = 0; n < PAIR_ID_MASK; n++) {
		uint32_t id = t->next_id;

		t->next_id = id == PAIR_ID_MASK ? 1 : id + 1;
		if (t->ids[id] == ID_FREE)
			return id;
	}
	return 0;
}

static int tidy_work(struct stop *stop, void *arg, struct dinst_error *e)
{
	(void)e;
	threads_tidy(arg, stop);
	return 0;
}

/*
 * Numbers that were dropped may be used again when no code can enter them any
 * more, and no record has them.
 */
static int reuse_retired(struct session *s, struct dinst_error *e)
{
	struct threads *t = s->threads;
	struct flush_result flushed;
	int status = removal_flush(s, &flushed, e);

	if (status >= 0 && s->spent)
		status = dinst_fail(e, DINST_BUSY, "threads are still in code that was removed");
	if (status < 0)
		return status;
	t->purging = true;
	status = family_stop(s, tidy_work, s, NULL, e);
	family_release(s);
	t->purging = false;
	for (uint32_t id = 1; status >= 0 && id <= PAIR_ID_MASK; id++)
		if (t->ids[id] == ID_RETIRED)
			t->ids[id] = ID_FREE;
	if (status >= 0)
		t->retired = 0;
	return status;
}

int threads_take_id(struct session *s, struct instance *i, uint32_t *id, struct dinst_error *e)
{
	struct threads *t = s->threads;
	uint32_t *grown;
	int status = 0;

	*id = find_free(t);
	if (!*id && t->retired) {
		status = reuse_retired(s, e);
		*id = status < 0 ? 0 : find_free(t);
	}
	if (status < 0)
		return status;
	if (!*id)
		return dinst_fail(e, DINST_NO_MEMORY,
				  "no more than %llu functions can be paired at a time",
				  (unsigned long long)PAIR_ID_MASK);
	if (i->pair_id_count == i->pair_id_room) {
		size_t room = i->pair_id_room ? i->pair_id_room * 2 : 8;

		grown = realloc(i->pair_ids, room * sizeof(*grown));
		if (!grown)
			return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		i->pair_ids = grown;
		i->pair_id_room = room;
	}
	i->pair_ids[i->pair_id_count++] = *id;
	t->ids[*id] = ID_TAKEN;
	return 0;
}

void threads_drop_ids(struct session *s, struct instance *i)
{
	for (size_t n = 0; n < i->pair_id_count; n++) {
		s->threads->ids[i->pair_ids[n]] = ID_RETIRED;
		s->threads->retired++;
	}
	i->pair_id_count = 0;
}

/* ---------------------------------------------------------------- now and then */

enum { POLL_NS = 1000 * 1000 * 1000 };

void threads_poll(struct session *s)
{
	struct threads *t = s->threads;
	struct dinst_error ignored = {0};
	struct stop_report report = {0};
	const uint64_t now = clock_ns();

	if (!t || now - t->poll_ns < POLL_NS ||
	    heap_read_counter(t->place->heap, t->lost) == t->lost_seen)
		return;
	t->poll_ns = now;
	family_stop(s, tidy_work, s, &report, &ignored);
	family_release(s);
	session_note_stop(s, &report, NULL);
	t->lost_seen = heap_read_counter(t->place->heap, t->lost);
}
