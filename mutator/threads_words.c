/* SPDX-License-Identifier: MIT */
/*
 * threads_words.c - who has which words of the records.
 *
 * Words are given out in chunks of one kind, so that a forked child knows which
 * of them are timers, and by which clock. What was dropped may hold anything in
 * any record: it is cleared in a stop of the whole family before it is given
 * out again. Where nothing was ever given out there are zeros.
 */
#include <string.h>

#include "inject/fault.h"
#include "mutator/threads_private.h"

enum { WORD = 8, WORDS_AT = offsetof(struct pair_record, words) };

/* What a chunk's entry in struct pair_shared says. */
static uint8_t kind_of(const enum arch_clock *clock)
{
	return clock ? (uint8_t)(1 + *clock) : 0;
}

/* ------------------------------------------------------------ giving out */

static bool is_free(const struct threads *t, unsigned first, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (t->words[first + i] != WORD_FREE)
			return false;
	return true;
}

/* Chunks [chunk, chunk + chunks) are of the kind; `new`: or may be made so. */
static bool may_be(const struct threads *t, unsigned chunk, unsigned chunks, uint8_t kind, bool new)
{
	for (unsigned i = chunk; i < chunk + chunks; i++)
		if (t->chunks[i] != kind && (!new || !is_free(t, i * PAIR_CHUNK, PAIR_CHUNK)))
			return false;
	return true;
}

/* The first words of the kind in a row that are free; -1 if there are none. */
static long find(const struct threads *t, unsigned count, uint8_t kind, bool new)
{
	const unsigned step = kind ? 2 : 1;

	for (unsigned at = 0; at + count <= PAIR_CHUNKS * PAIR_CHUNK; at += step) {
		const unsigned chunk = at / PAIR_CHUNK;
		const unsigned chunks = (at + count - 1) / PAIR_CHUNK - chunk + 1;

		if (new &&at % PAIR_CHUNK)
			continue;
		if (may_be(t, chunk, chunks, kind, new) && is_free(t, at, count))
			return (long)at;
	}
	return -1;
}

/* The kind is told before any code can have the words. */
static void give_out(struct threads *t, unsigned first, unsigned count, uint8_t kind)
{
	struct pair_shared *shared = threads_shared(t);
	const unsigned last = (first + count - 1) / PAIR_CHUNK;

	fault_point();
	for (unsigned i = first / PAIR_CHUNK; i <= last; i++)
		shared->clocks[i] = t->chunks[i] = kind;
	if (t->used < WORDS_AT + (last + 1) * PAIR_CHUNK * WORD) {
		t->used = WORDS_AT + (last + 1) * PAIR_CHUNK * WORD;
		__atomic_store_n(&shared->words, (uint32_t)(t->used - WORDS_AT), __ATOMIC_RELEASE);
	}
	memset(&t->words[first], WORD_TAKEN, count);
}

int threads_take_words(struct session *s, unsigned count, const enum arch_clock *clock,
		       uint32_t *offset, struct dinst_error *e)
{
	struct threads *t = s->threads;
	const uint8_t kind = kind_of(clock);
	int status = 0;
	long at;

	if (!t || !t->area)
		return dinst_fail(e, DINST_REFUSED, "there is no per-thread state here");
	if (clock)
		count = (count + 1) / 2 * 2;
	at = find(t, count, kind, false);
	if (at < 0)
		at = find(t, count, kind, true);
	if (at < 0 && t->dropped) {
		status = threads_sweep(s, false, e);
		if (status < 0)
			return status;
		at = find(t, count, kind, false);
		if (at < 0)
			at = find(t, count, kind, true);
	}
	if (at < 0)
		return dinst_fail(e, DINST_NO_MEMORY,
				  "no room for %u more words in each thread's record", count);
	give_out(t, (unsigned)at, count, kind);
	if (clock && *clock >= ARCH_CLOCK_THREAD)
		t->cpu_timers += count;
	*offset = (uint32_t)(WORDS_AT + WORD * at);
	return 0;
}

/* The kind of a chunk stays what it is: records that were not cleared yet may have what fits it. */
void threads_drop_words(struct session *s, uint32_t offset, unsigned count)
{
	struct threads *t = s->threads;
	const unsigned first = (offset - WORDS_AT) / WORD;
	const uint8_t kind = t->chunks[first / PAIR_CHUNK];

	if (kind)
		count = (count + 1) / 2 * 2;
	if (kind > ARCH_CLOCK_THREAD)
		t->cpu_timers -= count;
	memset(&t->words[first], WORD_DROPPED, count);
	t->dropped += count;
}

/* --------------------------------------------------------------- clearing */

static bool clear_run(struct stop *stop, taddr_t record, unsigned first, unsigned count)
{
	static const uint8_t zeros[PAIR_CHUNK * WORD];
	struct dinst_error ignored = {0};

	for (unsigned n; count; first += n, count -= n) {
		n = count < PAIR_CHUNK ? count : PAIR_CHUNK;
		if (stop_write(stop, record + WORDS_AT + (size_t)WORD * first, zeros,
			       (size_t)WORD * n, &ignored) < 0)
			return false;
	}
	return true;
}

void threads_clear_words(struct threads *t, struct stop *stop, const struct tables *tables)
{
	for (size_t r = 0; t->dropped && r < (size_t)1 << t->shift; r++) {
		const taddr_t record = threads_record_address(t, r);

		if (!tables->keys[r])
			continue;
		for (unsigned i = 0, n; i < PAIR_CHUNKS * PAIR_CHUNK; i += n) {
			for (n = 0;
			     i + n < PAIR_CHUNKS * PAIR_CHUNK && t->words[i + n] == WORD_DROPPED;)
				n++;
			if (n && !clear_run(stop, record, i, n))
				t->keep_dropped = true;
			n += !n;
		}
	}
}
