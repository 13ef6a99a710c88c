/* SPDX-License-Identifier: MIT */
/*
 * catch_up_record.c - changing the record of a stopped thread.
 *
 * What is done here is what the thread's own code would have done (pairing.h),
 * and is right whatever instruction of its code the thread stands at: where
 * that may hold places of its record in registers, nothing is moved.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mutator/catch_up.h"

enum { ENTRY = sizeof(struct pair_entry) };

static bool put(const struct late_record *r, taddr_t at, const void *bytes, size_t size)
{
	struct dinst_error ignored = {0};

	return stop_write(r->stop, at, bytes, size, &ignored) >= 0;
}

static struct pair_record *contents(const struct late_record *r)
{
	return r->tables->record;
}

static taddr_t field(const struct late_record *r, size_t offset)
{
	return r->at + offset;
}

/* ------------------------------------------------------------ making one */

static size_t next(const struct threads *t, size_t number)
{
	return (number + 1) & (((size_t)1 << t->shift) - 1);
}

/* The record with the thread's key, or the first free one in its reach; false: neither. */
static bool search(struct late_record *r, bool *found)
{
	const struct threads *t = r->tables->threads;
	size_t at = pair_hash(r->pointer, t->shift), free_at = SIZE_MAX;

	for (unsigned i = 0; i < PAIR_PROBE; i++, at = next(t, at)) {
		if (r->tables->keys[at] == r->pointer) {
			r->number = at;
			*found = true;
			return true;
		}
		if (!r->tables->keys[at] && free_at == SIZE_MAX)
			free_at = at;
	}
	r->number = free_at;
	*found = false;
	return free_at != SIZE_MAX;
}

/* Where the thread's own stack is, as its code would find it. */
static void find_stack(const struct late_record *r, uint64_t *lo, uint64_t *size)
{
	const struct threads *t = r->tables->threads;
	struct pair_config config;
	uint64_t words[2] = {0};
	bool main;

	*lo = *size = 0;
	if (target_read_some(r->tables->target, t->area, &config, sizeof(config)) != sizeof(config))
		return;
	main = config.main_pointer == r->pointer;
	if (!main && config.stack_offset) {
		if (target_read_some(r->tables->target,
				     r->pointer + (taddr_t)(int64_t)config.stack_offset, words,
				     sizeof(words)) != sizeof(words))
			return;
		main = !words[0];
	}
	*lo = main ? config.main_lo : words[0] << PAIR_ID_BITS;
	*size = main ? config.main_size : words[1] << PAIR_ID_BITS;
}

bool late_record_is_elsewhere(const struct late_record *r, taddr_t sp)
{
	uint64_t lo, size;

	find_stack(r, &lo, &size);
	return size && (sp << PAIR_ID_BITS) - lo >= size;
}

/* Zeros, and what is known: all of it before the owner is told. */
static bool reset(struct late_record *r, bool has_key)
{
	const struct threads *t = r->tables->threads;
	struct pair_record *record = contents(r);

	memset(record, 0, sizeof(*record));
	record->end.tag = UINT64_MAX;
	find_stack(r, &record->lo, &record->size);
	if (!has_key && !put(r, t->area + pair_keys() + 8 * r->number, &r->pointer, 8))
		return false;
	if (!put(r, r->at, record, t->used) ||
	    !put(r, t->area + pair_owners(t->shift) + 4 * r->number, &r->own, 4))
		return false;
	record->tid = r->own;
	r->tables->keys[r->number] = r->pointer;
	r->tables->owners[r->number] = r->own;
	return put(r, field(r, offsetof(struct pair_record, tid)), &r->own, 4);
}

static uint64_t anew(const struct late_record *r, uint8_t kind)
{
	struct timespec now;

	if (kind == 1 + ARCH_CLOCK_TICKS)
		return arch_clock_ticks();
	if (kind != 1 + ARCH_CLOCK_MONOTONIC || clock_gettime(CLOCK_MONOTONIC, &now))
		return 0; /* CPU time of a process that was forked begins at 0 */
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec +
	       (uint64_t)target_clock_offset(r->tables->target);
}

static bool is_timer(uint8_t kind)
{
	return kind && kind <= PAIR_CLOCKS;
}

/* A forked child that had no event yet. */
static bool inherit(struct late_record *r)
{
	const struct threads *t = r->tables->threads;
	const size_t words = (t->used - offsetof(struct pair_record, words)) / sizeof(uint64_t);
	struct pair_record *record = contents(r);

	for (size_t i = 0; i < record->depth / ENTRY; i++)
		record->home[i].start = PAIR_INHERITED;
	for (size_t i = 0; i < PAIR_OTHER; i++)
		record->other[i].start = PAIR_INHERITED;
	record->cpu_offset = record->out_ticks = 0;
	/* Chunks that were never given out are not timers. */
	for (size_t i = 0; i < words; i += 2)
		if (is_timer(t->chunks[i / PAIR_CHUNK]) && (uint32_t)record->words[i])
			record->words[i + 1] = anew(r, t->chunks[i / PAIR_CHUNK]);
	record->tid = r->own;
	if (!put(r, r->at, record, t->used) ||
	    !put(r, t->area + pair_owners(t->shift) + 4 * r->number, &r->own, 4))
		return false;
	r->tables->owners[r->number] = r->own;
	return true;
}

bool late_record_find(struct late_record *r, const struct stop_thread *thread, bool make)
{
	const struct threads *t = r->tables->threads;
	struct pair_record *record = contents(r);
	bool found;

	r->at = 0;
	r->tid = thread->tid;
	r->pointer = arch_thread_pointer(&thread->regs);
	if (!r->pointer ||
	    target_read_some(r->tables->target, r->pointer + (taddr_t)(int64_t)t->tid_offset,
			     &r->own, sizeof(r->own)) != sizeof(r->own) ||
	    !r->own || !search(r, &found))
		return false;
	r->at = threads_record_address(t, r->number);
	if (found && !threads_record_read(r->tables, r->number))
		return false;
	if (found && r->tables->owners[r->number] == r->own)
		return true;
	if (found && !r->tables->owners[r->number] && record->tid)
		return inherit(r);
	/* Where its code is about to do the same it would do it over what we have done. */
	return make && !r->in_use && reset(r, found);
}

/* --------------------------------------------------------------- entering */

/* The place of the tag at home; false where it is not there, then *at is where it belongs. */
static bool find_home(const struct pair_record *record, uint64_t tag, size_t *at)
{
	const size_t depth = record->depth / ENTRY;

	for (*at = 0; *at < depth && record->home[*at].tag >= tag; ++*at)
		if (record->home[*at].tag == tag)
			return true;
	return false;
}

/* The first of the places in `other` that the tag may be at. */
static size_t other_place(uint64_t tag)
{
	return ((uint32_t)(tag >> (PAIR_ID_BITS + 3)) * PAIR_HASH) >> (32 - 7);
}

_Static_assert(PAIR_OTHER == 1 << 7, "seven bits are taken");

static bool find_other(const struct pair_record *record, uint64_t tag, size_t *at)
{
	size_t free_at = SIZE_MAX;

	*at = other_place(tag);
	for (unsigned i = 0; i < PAIR_OTHER_PROBE; i++, *at = (*at + 1) % PAIR_OTHER) {
		if (record->other[*at].tag == tag)
			return true;
		if (!record->other[*at].tag && free_at == SIZE_MAX)
			free_at = *at;
	}
	*at = free_at;
	return false;
}

/* In our copy; it is written when all are there. */
static bool insert_home(struct pair_record *record, uint64_t tag, size_t at)
{
	const size_t depth = record->depth / ENTRY;

	if (depth == PAIR_HOME)
		return false;
	memmove(&record->home[at + 1], &record->home[at], (depth - at) * ENTRY);
	record->home[at] = (struct pair_entry){.tag = tag};
	record->depth += ENTRY;
	return true;
}

static bool insert_other(const struct late_record *r, uint64_t tag, size_t at)
{
	struct pair_record *record = contents(r);

	if (at == SIZE_MAX)
		return false;
	record->other[at] = (struct pair_entry){.tag = tag};
	return put(r, field(r, offsetof(struct pair_record, other) + ENTRY * at),
		   &record->other[at], ENTRY);
}

static bool is_home(const struct pair_record *record, uint64_t tag)
{
	return tag - record->lo < record->size;
}

/* Puts one into our copy of the record, or into its `other`; true if home was changed. */
static bool enter_one(const struct late_record *r, const struct activation *a)
{
	struct pair_record *record = contents(r);
	const uint64_t tag = pair_tag(a->sp, a->id);
	size_t at;

	if (!is_home(record, tag) || r->in_use) {
		if (!(is_home(record, tag) && find_home(record, tag, &at)) &&
		    !find_other(record, tag, &at) && insert_other(r, tag, at))
			r->session->threads->strayed |= is_home(record, tag);
		return false;
	}
	return !find_home(record, tag, &at) && insert_home(record, tag, at);
}

/* Where it is now. */
static taddr_t entry_of(const struct late_record *r, const struct activation *a)
{
	const struct pair_record *record = contents(r);
	const uint64_t tag = pair_tag(a->sp, a->id);
	size_t at;

	if (is_home(record, tag) && find_home(record, tag, &at))
		return field(r, offsetof(struct pair_record, home) + ENTRY * at);
	if (find_other(record, tag, &at))
		return field(r, offsetof(struct pair_record, other) + ENTRY * at);
	return 0;
}

static bool put_home(const struct late_record *r)
{
	const struct pair_record *record = contents(r);

	return put(r, field(r, offsetof(struct pair_record, home)), record->home, record->depth) &&
	       put(r, field(r, offsetof(struct pair_record, depth)), &record->depth,
		   sizeof(record->depth));
}

bool late_record_enter(struct late_record *r, struct activation *a, size_t count)
{
	bool moved = false;

	for (size_t i = 0; i < count; i++)
		if (a[i].fresh)
			moved |= enter_one(r, &a[i]);
	if (moved && !put_home(r))
		return false;
	for (size_t i = 0; i < count; i++)
		a[i].entry = entry_of(r, &a[i]);
	return true;
}

/* ----------------------------------------------------------- bringing home */

bool late_record_has_strayed(const struct late_record *r)
{
	const struct pair_record *record = contents(r);

	for (size_t i = 0; i < PAIR_OTHER; i++)
		if (record->other[i].tag && is_home(record, record->other[i].tag))
			return true;
	return false;
}

void late_record_bring_home(struct late_record *r)
{
	struct pair_record *record = contents(r);
	bool moved[PAIR_OTHER] = {false}, any = false;
	const uint64_t none = 0;
	size_t at;

	for (size_t i = 0; i < PAIR_OTHER; i++) {
		const struct pair_entry *entry = &record->other[i];

		if (!entry->tag || !is_home(record, entry->tag))
			continue;
		find_home(record, entry->tag, &at);
		moved[i] = insert_home(record, entry->tag, at);
		if (moved[i])
			record->home[at].start = entry->start;
		any |= moved[i];
	}
	/* Only what is there may go here: whoever is found twice is not lost. */
	if (!any || !put_home(r))
		return;
	for (size_t i = 0; i < PAIR_OTHER; i++)
		if (moved[i])
			put(r,
			    field(r, offsetof(struct pair_record, other) + ENTRY * i +
					     offsetof(struct pair_entry, tag)),
			    &none, sizeof(none));
}
