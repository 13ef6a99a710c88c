/* SPDX-License-Identifier: MIT */
/*
 * stream_read.c - from the rings to the queues.
 *
 * Each ring is emptied into memory of ours first, so that the target has room
 * again and cannot change what is looked at. Then records are passed on in the
 * order of their ticks, over all rings, up to a moment T0 from before the first
 * ring was looked at: of two records of one thread the first was closed before the
 * second was opened, so whoever sees the second, from before T0, has seen the first.
 * A record that is open holds back what is later than it, for a moment: its
 * thread may have been interrupted by a handler that has recorded something.
 *
 * Whatever a ring holds, this ends: a copy has as many bytes as the ring, and each
 * step takes some of them.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/stream_private.h"
#include "mutator/variable.h"

enum {
	HOLD_NS = 20 * 1000 * 1000, /* how long an open record may hold back others */
	PUMP_MS = 4,
	FORGET_MS = 5000,
	QUEUES_MOST = 64 << 20, /* bytes of all queues */
	STAGED_LAPS = 16,	/* of a ring, that may wait for somebody's open record */
};

/* How long somebody is taken to be there who has asked for events. */
static const uint64_t ASKED_NS = 2000000000u;
/* How long what was recorded may be taken when nothing records any more. */
static const uint64_t RETIRED_NS = 20000000000u;

struct reading {
	struct stream *stream;
	uint64_t now, hold; /* ticks */
	uint64_t limit;	    /* records from here on wait */
	unsigned *heap;	    /* rings that have some, the earliest first */
	unsigned heap_count;
};

/* The processor's clock, not before what was done in front of it, nor behind what follows. */
static uint64_t ticks_now(void)
{
	uint64_t ticks;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	ticks = arch_clock_ticks();
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return ticks;
}

/* --------------------------------------------------------------- one ring */

static bool stage(struct ring_reader *r, const void *record, size_t size, size_t most)
{
	if (r->begin == r->end)
		r->begin = r->end = 0;
	/* Of a busy program something is always left: what has been passed on gives its room back. */
	if (r->end + size > r->room && r->begin && r->begin >= r->room / 2) {
		memmove(r->staged, r->staged + r->begin, r->end - r->begin);
		r->end -= r->begin;
		r->begin = 0;
	}
	if (r->end + size > r->room) {
		const size_t wanted = (r->room ? r->room * 2 : 4096) + size;
		const size_t room = wanted < most ? wanted : most;
		uint8_t *grown = r->end + size <= room ? realloc(r->staged, room) : NULL;

		if (!grown)
			return false;
		r->staged = grown;
		r->room = room;
	}
	memcpy(r->staged + r->end, record, size);
	r->end += size;
	return true;
}

static bool is_record(const struct stream *st, const struct arch_record *record, size_t left)
{
	const struct stream_event *event;

	if (left < sizeof(*record) || record->size > left || !record->id ||
	    record->id > st->event_count)
		return false;
	event = st->events[record->id - 1];
	return event && event->size == record->size;
}

/* Records of a copy of what a ring had. */
static void take_copy(struct reading *rd, struct ring_reader *r, const uint8_t *bytes, size_t size)
{
	struct stream *st = rd->stream;
	struct arch_record record;

	for (size_t at = 0; at < size; at += record.size) {
		const size_t left = size - at;

		memset(&record, 0, sizeof(record));
		memcpy(&record, bytes + at, left < sizeof(record) ? left : sizeof(record));
		if (!record.id && record.size >= ARCH_RING_ALIGN && record.size <= left &&
		    record.size % ARCH_RING_ALIGN == 0)
			continue;
		if (!is_record(st, &record, left)) {
			st->damaged++;
			return;
		}
		/* What is from the future would wait for it. */
		if (record.ticks > rd->now)
			record.ticks = rd->now;
		if (record.ticks < r->last)
			record.ticks = r->last;
		r->last = record.ticks;
		if (!stage(r, bytes + at, record.size, (size_t)STAGED_LAPS << st->at.shift)) {
			st->lost++;
			continue;
		}
		memcpy(r->staged + r->end - record.size, &record, sizeof(record));
	}
}

/* Where the next lap begins the copy does, too. */
static void copy_out(struct stream *st, const struct ring_reader *r, size_t size)
{
	const size_t bytes = (size_t)1 << st->at.shift, at = r->tail & (bytes - 1);
	const size_t first = size < bytes - at ? size : bytes - at;

	memcpy(st->copy, r->ring->records + at, first);
	memcpy(st->copy + first, r->ring->records, size - first);
}

static void read_ring(struct reading *rd, struct ring_reader *r)
{
	struct stream *st = rd->stream;
	const uint64_t lock = __atomic_load_n(&r->ring->lock, __ATOMIC_ACQUIRE);
	const uint64_t opened = __atomic_load_n(&r->ring->opened, __ATOMIC_ACQUIRE);
	const uint64_t head = __atomic_load_n(&r->ring->head, __ATOMIC_ACQUIRE);
	const uint64_t size = head - r->tail;

	/* From here on: no record that is below head is from later. */
	rd->now = ticks_now();
	if (rd->now > st->latest)
		st->latest = rd->now;
	if (lock && opened < rd->limit && rd->now - opened < rd->hold)
		rd->limit = opened;
	if (!size)
		return;
	if (size > (uint64_t)1 << st->at.shift || size % ARCH_RING_ALIGN) {
		st->damaged++;
		r->tail = head / ARCH_RING_ALIGN * ARCH_RING_ALIGN;
	} else {
		copy_out(st, r, size);
		r->tail = head;
	}
	__atomic_store_n(&r->ring->tail, r->tail, __ATOMIC_RELEASE);
	if (r->tail == head && size <= (uint64_t)1 << st->at.shift)
		take_copy(rd, r, st->copy, size);
}

/* ---------------------------------------------------------------- merging */

static uint64_t ticks_of(const struct reading *rd, unsigned ring)
{
	const struct ring_reader *r = &rd->stream->rings[ring];
	struct arch_record record;

	memcpy(&record, r->staged + r->begin, sizeof(record));
	return record.ticks;
}

/* The first one may be too late for its place. */
static void sink(struct reading *rd)
{
	unsigned at = 0;

	for (;;) {
		unsigned child = 2 * at + 1;
		unsigned ring;

		if (child >= rd->heap_count)
			return;
		if (child + 1 < rd->heap_count &&
		    ticks_of(rd, rd->heap[child + 1]) < ticks_of(rd, rd->heap[child]))
			child++;
		if (ticks_of(rd, rd->heap[at]) <= ticks_of(rd, rd->heap[child]))
			return;
		ring = rd->heap[at];
		rd->heap[at] = rd->heap[child];
		rd->heap[child] = ring;
		at = child;
	}
}

static void add_to_heap(struct reading *rd, unsigned ring)
{
	unsigned at = rd->heap_count++;

	while (at && ticks_of(rd, ring) < ticks_of(rd, rd->heap[(at - 1) / 2])) {
		rd->heap[at] = rd->heap[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	rd->heap[at] = ring;
}

/* Room for `size` bytes at the end of the queue; false: there is too much already. */
static bool make_room(struct stream_queue *q, size_t size)
{
	uint8_t *grown;
	size_t room;

	if (q->end + size <= q->room)
		return true;
	/* No byte is moved more often than it is written. */
	if (q->begin && q->begin >= q->room / 2) {
		memmove(q->bytes, q->bytes + q->begin, q->end - q->begin);
		q->end -= q->begin;
		q->begin = 0;
		if (q->end + size <= q->room)
			return true;
	}
	room = q->room * 2 + 65536 + size;
	grown = realloc(q->bytes, room);
	if (!grown)
		return false;
	q->bytes = grown;
	q->room = room;
	return true;
}

/* Memory that was read, as long as it is, and a string as long as that; the rest is zeros. */
static void settle_field(uint8_t *record, const struct stream_field *f)
{
	uint8_t *bytes = record + f->offset + sizeof(uint64_t);
	const uint64_t room = f->size - sizeof(uint64_t);
	const uint8_t *end;
	uint64_t length;

	if (f->form == STREAM_VALUE || f->form == STREAM_STACK)
		return;
	memcpy(&length, record + f->offset, sizeof(length));
	if (length > room)
		length = room;
	end = f->form == STREAM_STRING ? memchr(bytes, 0, length) : NULL;
	if (end)
		length = (uint64_t)(end - bytes);
	memcpy(record + f->offset, &length, sizeof(length));
	memset(bytes + length, 0, room - length);
}

/* All of it, but of stacks the calls in them. */
static void copy_record(struct stream *st, const struct stream_event *event, uint8_t *bytes,
			uint8_t *to)
{
	const struct stream_field *stack = NULL;

	for (size_t n = 0; n < event->field_count && !stack; n++)
		stack = event->fields[n].form == STREAM_STACK ? &event->fields[n] : NULL;
	memcpy(to, bytes, stack ? stack->offset : event->size);
	if (stack)
		stream_walk(st, stack, bytes, to);
	for (size_t n = 0; n < event->field_count; n++)
		settle_field(to, &event->fields[n]);
}

static void pass_on(struct stream *st, uint8_t *bytes, const struct arch_record *record)
{
	/* It may have gone since the record was staged. */
	const struct stream_event *event = st->events[record->id - 1];
	struct stream_queue *q = event ? event->queue : NULL;
	struct arch_record told = *record;
	uint8_t *to;
	size_t thread;

	if (!q)
		return;
	if (st->queued + STREAM_SEQUENCE + event->told_size > QUEUES_MOST ||
	    !make_room(q, STREAM_SEQUENCE + event->told_size)) {
		st->lost++;
		return;
	}
	thread = stream_thread(st, record->tid);
	told.ticks = ticks_to_ns(record->ticks) + (uint64_t)st->epoch;
	if (thread != SIZE_MAX)
		told.tid = st->threads[thread].tid;
	told.flags = (uint32_t)thread;
	told.size = event->told_size;
	to = q->bytes + q->end;
	memcpy(to, &st->sequence, sizeof(st->sequence));
	copy_record(st, event, bytes, to + STREAM_SEQUENCE);
	memcpy(to + STREAM_SEQUENCE, &told, sizeof(told));
	st->sequence++;
	q->end += STREAM_SEQUENCE + told.size;
	st->queued += STREAM_SEQUENCE + told.size;
}

static void merge(struct reading *rd)
{
	struct stream *st = rd->stream;

	for (unsigned n = 0; n < st->ring_count; n++)
		if (st->rings[n].begin < st->rings[n].end)
			add_to_heap(rd, n);
	while (rd->heap_count) {
		struct ring_reader *r = &st->rings[rd->heap[0]];
		struct arch_record record;

		memcpy(&record, r->staged + r->begin, sizeof(record));
		if (record.ticks >= rd->limit)
			return;
		pass_on(st, r->staged + r->begin, &record);
		r->begin += record.size;
		if (r->begin == r->end)
			rd->heap[0] = rd->heap[--rd->heap_count];
		sink(rd);
	}
}

/* -------------------------------------------------------------- the whole */

static bool is_over(const struct stream_queue *q, uint64_t now)
{
	return q->retired_ns && now - q->retired_ns > RETIRED_NS;
}

static bool any_is_over(const struct stream *st)
{
	const uint64_t now = clock_ns();
	const struct stream_queue *q = st->queues;

	while (q && !is_over(q, now))
		q = q->next;
	return q != NULL;
}

/* True if some are kept for a while yet. */
static bool forget_retired(struct stream *st)
{
	const uint64_t now = clock_ns();
	struct stream_queue *next;
	bool kept = false;

	for (struct stream_queue *q = st->queues; q; q = next) {
		next = q->next;
		if (is_over(q, now))
			stream_forget(st, q);
		else
			kept |= q->retired_ns != 0;
	}
	return kept;
}

/* How many ticks that is, roughly. */
static uint64_t ns_to_ticks(uint64_t ns)
{
	const uint64_t each = ticks_to_ns(1u << 20);

	return each ? (ns << 20) / each : ns;
}

/*
 * The processor's clock begins anew where a machine wakes up, on some: what was read before would wait
 * for as long as it had been up, and whatever comes behind it. So it goes now, in the time it was
 * recorded in; what comes next has a time of its own.
 */
static void begin_anew(struct reading *rd)
{
	struct stream *st = rd->stream;
	const uint64_t limit = rd->limit;

	rd->limit = UINT64_MAX;
	merge(rd);
	rd->limit = limit;
	for (unsigned n = 0; n < st->ring_count; n++)
		st->rings[n].last = 0;
	st->latest = 0;
	st->epoch = ticks_epoch_now();
}

void stream_collect(struct session *s)
{
	struct stream *st = s->stream;
	struct reading rd = {.stream = st, .hold = ns_to_ticks(HOLD_NS)};

	if (!st)
		return;
	rd.heap = malloc(st->ring_count * sizeof(*rd.heap));
	if (!rd.heap)
		return;
	rd.limit = ticks_now();
	if (rd.limit < st->latest)
		begin_anew(&rd);
	for (unsigned n = 0; n < st->ring_count; n++)
		read_ring(&rd, &st->rings[n]);
	merge(&rd);
	free(rd.heap);
	stream_look_for_stuck(st);
	forget_retired(st);
}

int stream_pump(struct session *s)
{
	struct stream *st = s->stream;

	if (!st)
		return -1;
	if (st->asked_ns && clock_ns() - st->asked_ns <= ASKED_NS) {
		stream_collect(s);
		return PUMP_MS;
	}
	/*
	 * Nobody asks any more: what nobody took goes all the same. Out of the rings first: what is
	 * of no known kind would stand in front of what the next stream writes.
	 */
	if (any_is_over(st))
		stream_collect(s);
	return forget_retired(st) ? FORGET_MS : -1;
}
