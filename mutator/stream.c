/* SPDX-License-Identifier: MIT */
/*
 * stream.c - the rings of a session, kinds of events, and queues.
 *
 * Rings are made once and stay until the arena goes; their memory is ours, not the
 * target's. Ids are never given out again.
 */
#include "mutator/stream_private.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inject/cpus.h"
#include "mutator/variable.h"

enum {
	RINGS_BYTES = 8 << 20, /* of all CPUs that are there, together */
	RING_SHIFT_LEAST = ARCH_RING_SHIFT_MIN,
	RING_SHIFT_USUAL_MOST = 20,
	PAGE = 4096,
	RECENT = 256, /* kinds that are looked at for one that is the same */
};

/* ------------------------------------------------------------------ rings */

/* As large as the memory for all of them allows; the records of a block's, a quarter of it at most. */
static unsigned first_shift(const struct arena *a)
{
	const long online = sysconf(_SC_NPROCESSORS_ONLN);
	const size_t rings = ARCH_RINGS_EACH * (size_t)((online > 0 ? online : 1) + 1);
	unsigned shift = RING_SHIFT_USUAL_MOST;

	while (shift > RING_SHIFT_LEAST &&
	       (((size_t)1 << shift) * rings > RINGS_BYTES ||
		((size_t)1 << shift) * ARCH_RINGS_EACH > ((size_t)1 << a->cpu_shift) / 4))
		shift--;
	return shift;
}

/* Memory of a block's rings comes to exist, and is ours. */
static void touch_block(const struct stream *st, unsigned block)
{
	const uint64_t size = ARCH_RINGS_EACH * arch_ring_stride(&st->at);
	volatile uint8_t *bytes =
		(volatile uint8_t *)st->rings[(size_t)ARCH_RINGS_EACH * block].ring;

	/* It was handed out. */
	assert(bytes);
	for (uint64_t at = 0; at < size; at += PAGE)
		bytes[at] = 0;
	bytes[size - 1] = 0;
}

/*
 * A page is paid for by the control group of the one who writes it first. Who records all the time
 * fills rings in a moment: where the target's group has no room the kernel would kill it for that.
 * So it is us, for the CPUs that are there.
 */
static void touch_rings(struct stream *st)
{
	bool *online = calloc(st->at.cpus, sizeof(*online));

	if (online)
		cpus_online(online, st->at.cpus);
	for (unsigned cpu = 0; online && cpu < st->at.cpus; cpu++)
		if (online[cpu])
			touch_block(st, cpu);
	/* Who does not know its CPU writes to no others than these, either. */
	for (st->at.spread = 0; online && st->at.spread < st->at.cpus && online[st->at.spread];)
		st->at.spread++;
	touch_block(st, st->at.cpus);
	free(online);
}

static int make_rings(struct stream *st, struct place *p, struct dinst_error *e)
{
	const struct arena *a = p->arena;
	int status = DINST_NO_MEMORY;

	st->at.cpus = a->cpus;
	st->at.cpu_shift = a->cpu_shift;
	for (st->at.shift = first_shift(a); status < 0; st->at.shift--) {
		const size_t words = ARCH_RINGS_EACH * arch_ring_stride(&st->at) / sizeof(uint64_t);

		dinst_error_clear(e);
		status = heap_alloc_counters(p->heap, words, &st->at.rings, e);
		if (status >= 0 || st->at.shift == RING_SHIFT_LEAST)
			break;
	}
	if (status < 0)
		return status;
	st->arena = p->arena;
	st->heap = p->heap;
	st->ring_count = ARCH_RINGS_EACH * (a->cpus + 1);
	st->rings = calloc(st->ring_count, sizeof(*st->rings));
	st->copy = malloc((size_t)1 << st->at.shift);
	if (!st->rings || !st->copy)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory for a stream");
	for (unsigned n = 0; n < st->ring_count; n++)
		st->rings[n].ring =
			heap_map(p->heap,
				 arch_ring_at(&st->at, n / ARCH_RINGS_EACH, n % ARCH_RINGS_EACH),
				 arch_ring_stride(&st->at));
	touch_rings(st);
	return 0;
}

static int make_stream(struct session *s, struct place *p, struct dinst_error *e)
{
	struct stream *st;
	int status;

	if (p->arena->mode != ARENA_SHARED)
		return dinst_fail(e, DINST_UNSUPPORTED,
				  "events need memory that is shared with the program: %s",
				  p->arena->note);
	status = ticks_calibrate(e);
	if (status < 0)
		return status;
	st = calloc(1, sizeof(*st));
	if (!st)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory for a stream");
	st->session = s;
	st->begun_ns = clock_ns();
	status = make_rings(st, p, e);
	if (status < 0) {
		if (st->heap)
			heap_unref_counter(st->heap, st->at.rings);
		stream_free(st);
		return status;
	}
	s->stream = st;
	return 0;
}

/*
 * The kernel steers CLOCK_MONOTONIC, and a machine that sleeps stops it: over weeks it goes away from
 * what was measured once. Times of a stream that is there do not jump; where there is none, what comes
 * is told in the time of now.
 */
static void set_clock(struct stream *st)
{
	for (const struct stream_queue *q = st->queues; q; q = q->next)
		if (!q->retired_ns)
			return;
	st->epoch = ticks_epoch_now();
}

int stream_prepare(struct session *s, struct place *p, struct stream_queue **queue,
		   struct dinst_error *e)
{
	int status = s->stream ? 0 : make_stream(s, p, e);

	if (status < 0 || *queue)
		return status;
	set_clock(s->stream);
	*queue = calloc(1, sizeof(**queue));
	if (!*queue)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory for a stream");
	(*queue)->next = s->stream->queues;
	s->stream->queues = *queue;
	return 0;
}

const struct arena *stream_arena(const struct session *s)
{
	return s->stream ? s->stream->arena : NULL;
}

void stream_environment(const struct session *s, struct arch_environment *environment)
{
	if (s->stream)
		environment->stream = s->stream->at;
}

unsigned stream_record_most(const struct session *s)
{
	const unsigned quarter = s->stream ? 1u << (s->stream->at.shift - 2) : ARCH_RECORD_MAX;

	return quarter < ARCH_RECORD_MAX ? quarter : ARCH_RECORD_MAX;
}

/* --------------------------------------------------------- kinds of events */

static bool is_same(const struct stream_event *a, const struct stream_event *b)
{
	return a->key == b->key && a->queue == b->queue && a->kind == b->kind &&
	       a->tail == b->tail && a->size == b->size && a->address == b->address &&
	       a->function.module == b->function.module && a->function.index == b->function.index;
}

static uint32_t find_same(const struct stream *st, const struct stream_event *kind)
{
	for (size_t n = st->event_count; n-- > 0 && n + RECENT >= st->event_count;)
		if (st->events[n] && is_same(st->events[n], kind))
			return st->events[n]->id;
	return 0;
}

static void event_free(struct stream_event *event)
{
	if (!event)
		return;
	for (size_t n = 0; n < event->field_count; n++)
		free(event->fields[n].text);
	free(event->fields);
	free(event->function_name);
	free(event->module_name);
	free(event);
}

static bool grow_events(struct stream *st)
{
	const size_t room = st->event_room ? st->event_room * 2 : 64;
	struct stream_event **grown;

	if (st->event_count < st->event_room)
		return true;
	grown = realloc(st->events, room * sizeof(struct stream_event *));
	if (!grown)
		return false;
	st->events = grown;
	st->event_room = room;
	return true;
}

static void free_fields(struct stream_field *fields, size_t count)
{
	for (size_t n = 0; n < count; n++)
		free(fields[n].text);
	free(fields);
}

uint32_t stream_field_told(const struct stream_field *f)
{
	return f->form == STREAM_STACK
		       ? (uint32_t)(sizeof(struct stream_frames) + f->frames * sizeof(uint64_t))
		       : f->size;
}

uint32_t stream_describe(struct session *s, const struct stream_event *kind)
{
	struct stream *st = s->stream;
	const struct module *m = kind->function.module;
	const struct image_function *functions;
	uint32_t id = find_same(st, kind);
	struct stream_event *event;
	const char *name;

	if (id) {
		free_fields(kind->fields, kind->field_count);
		return id;
	}
	if (st->event_count >= UINT32_MAX - 1 || !grow_events(st))
		return 0;
	image_functions(m->image, &functions);
	name = image_readable_name(m->image, functions[kind->function.index].name);
	event = malloc(sizeof(*event));
	if (!event)
		return 0;
	*event = *kind;
	event->function_name = strdup(name);
	event->module_name = strdup(m->name);
	if (!event->function_name || !event->module_name) {
		event->field_count = 0; /* they stay the caller's */
		event->fields = NULL;
		event_free(event);
		return 0;
	}
	event->told_size = event->size;
	for (size_t n = 0; n < event->field_count; n++)
		event->told_size -= event->fields[n].size - stream_field_told(&event->fields[n]);
	event->id = (uint32_t)st->event_count + 1;
	st->events[st->event_count++] = event;
	return event->id;
}

/* ----------------------------------------------------------- giving back */

void stream_retire(struct session *s, struct stream_queue *queue)
{
	(void)s;
	if (queue)
		queue->retired_ns = clock_ns();
}

void stream_forget(struct stream *st, struct stream_queue *queue)
{
	struct stream_queue **at = &st->queues;

	for (size_t n = 0; n < st->event_count; n++)
		if (st->events[n] && st->events[n]->queue == queue) {
			event_free(st->events[n]);
			st->events[n] = NULL;
		}
	while (*at != queue)
		at = &(*at)->next;
	*at = queue->next;
	st->queued -= queue->end - queue->begin;
	free(queue->bytes);
	free(queue->told);
	free(queue->places.words);
	free(queue);
}

void stream_free(struct stream *st)
{
	if (!st)
		return;
	while (st->queues)
		stream_forget(st, st->queues);
	for (size_t n = 0; n < st->event_count; n++)
		event_free(st->events[n]);
	for (unsigned n = 0; st->rings && n < st->ring_count; n++)
		free(st->rings[n].staged);
	free(st->events);
	free(st->rings);
	free(st->copy);
	free(st->threads);
	stack_walk_end(st->walk);
	free(st);
}

void stream_name(struct stream_queue *queue, unsigned instance)
{
	if (queue)
		queue->instance = instance;
}

struct stream_queue *stream_find(const struct session *s, unsigned instance)
{
	struct stream_queue *q = s->stream ? s->stream->queues : NULL;

	while (q && q->instance != instance)
		q = q->next;
	return q;
}
