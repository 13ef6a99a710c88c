/* SPDX-License-Identifier: MIT */
/*
 * stream_take.c - from the queues to clients: whole records, in the order in which
 * they came over all queues that are asked for.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/serve.h"
#include "mutator/stream_private.h"

struct taking {
	struct stream *stream;
	struct stream_queue **queues;
	size_t count;
	struct stream_taken *taken;
	json_t *threads;
};

static uint64_t sequence_of(const struct stream_queue *q)
{
	uint64_t sequence;

	memcpy(&sequence, q->bytes + q->begin, sizeof(sequence));
	return sequence;
}

static struct stream_queue *first_of(const struct taking *t)
{
	struct stream_queue *first = NULL;

	for (size_t n = 0; n < t->count; n++) {
		struct stream_queue *q = t->queues[n];

		if (q->begin < q->end && (!first || sequence_of(q) < sequence_of(first)))
			first = q;
	}
	return first;
}

/* The first record whose thread is new to a queue brings its name along. */
static int tell_thread(struct taking *t, struct stream_queue *q, size_t thread,
		       struct dinst_error *e)
{
	const struct stream_thread *who;
	uint8_t *grown;

	if (thread >= t->stream->thread_count)
		return 0;
	if (thread / 8 >= q->told_size) {
		grown = realloc(q->told, thread / 8 + 64);
		if (!grown)
			return dinst_fail(e, DINST_NO_MEMORY, "out of memory for events");
		memset(grown + q->told_size, 0, thread / 8 + 64 - q->told_size);
		q->told = grown;
		q->told_size = thread / 8 + 64;
	}
	if (q->told[thread / 8] >> (thread % 8) & 1)
		return 0;
	q->told[thread / 8] |= (uint8_t)(1u << (thread % 8));
	who = &t->stream->threads[thread];
	json_array_append_new(t->threads,
			      json_pack("{s:I, s:I, s:o}", "tid", (json_int_t)who->tid, "pid",
					(json_int_t)who->pid, "name", serve_text(who->name)));
	return 0;
}

/* One record goes into the answer. */
static int take_first(struct taking *t, struct stream_queue *q, const struct arch_record *record,
		      struct dinst_error *e)
{
	uint8_t *to = t->taken->data + t->taken->size;
	struct arch_record told = *record;
	/* Where pass_on() left it. */
	const size_t thread = record->flags == UINT32_MAX ? SIZE_MAX : record->flags;
	const struct stream_event *event = t->stream->events[record->id - 1];
	const int status = tell_thread(t, q, thread, e);

	if (status < 0)
		return status;
	if (event)
		stream_tell_places(t->stream, q, event, q->bytes + q->begin + STREAM_SEQUENCE,
				   &t->taken->places);
	told.flags = 0;
	memcpy(to, q->bytes + q->begin + STREAM_SEQUENCE, record->size);
	memcpy(to, &told, sizeof(told));
	t->taken->size += record->size;
	q->begin += STREAM_SEQUENCE + record->size;
	t->stream->queued -= STREAM_SEQUENCE + record->size;
	if (q->begin == q->end)
		q->begin = q->end = 0;
	return 0;
}

static int take_all(struct taking *t, size_t most, struct dinst_error *e)
{
	struct stream_queue *q;
	int status = 0;

	while (status >= 0 && (q = first_of(t))) {
		struct arch_record record;

		memcpy(&record, q->bytes + q->begin + STREAM_SEQUENCE, sizeof(record));
		if (t->taken->size + record.size > most) {
			t->taken->more = true;
			break;
		}
		status = take_first(t, q, &record, e);
	}
	return status;
}

/* What the target counted itself; its word. */
static uint64_t dropped(const struct stream *st)
{
	uint64_t sum = st->lost;

	for (unsigned n = 0; n < st->ring_count; n++)
		sum += __atomic_load_n(&st->rings[n].ring->dropped, __ATOMIC_RELAXED);
	return sum;
}

static int choose_queues(struct taking *t, struct stream_queue *const *queues, size_t count,
			 struct dinst_error *e)
{
	size_t all = count;

	for (struct stream_queue *q = t->stream->queues; q && !count; q = q->next)
		all++;
	t->queues = calloc(all + 1, sizeof(struct stream_queue *));
	if (!t->queues)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory for events");
	for (size_t n = 0; n < count; n++)
		t->queues[t->count++] = queues[n];
	for (struct stream_queue *q = t->stream->queues; q && !count; q = q->next)
		t->queues[t->count++] = q;
	return 0;
}

int stream_take(struct session *s, struct stream_queue *const *queues, size_t count, size_t most,
		struct stream_taken *taken, json_t **threads, struct dinst_error *e)
{
	struct taking t = {.stream = s->stream, .taken = taken};
	int status;

	*taken = (struct stream_taken){0};
	*threads = t.threads = json_array();
	if (!t.stream)
		return 0;
	status = choose_queues(&t, queues, count, e);
	if (status >= 0) {
		taken->data = malloc(most ? most : 1);
		if (!taken->data)
			status = dinst_fail(e, DINST_NO_MEMORY, "out of memory for events");
	}
	if (status >= 0)
		status = take_all(&t, most, e);
	free(t.queues);
	if (status < 0) {
		json_decref(t.threads);
		json_decref(taken->places);
		free(taken->data);
		return status;
	}
	taken->dropped = dropped(t.stream);
	taken->damaged = t.stream->damaged;
	return 0;
}
