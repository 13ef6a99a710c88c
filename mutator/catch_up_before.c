/* SPDX-License-Identifier: MIT */
/*
 * catch_up_before.c - what a thread's words were when an activation of it began.
 *
 * A word that other requests have at other functions (a flag) is now what all of the thread's activations have
 * made of it. What those have done that began later is taken back here, innermost first, by what would be
 * undone for them if they were left: on a copy, which the target never sees.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/catch_up.h"

/* An activation that something would be undone for. */
struct began {
	uint64_t tag, start; /* as in the record */
	bool home;	     /* on the thread's own stack, which all others lie on */
	const struct paired *paired;
	size_t changes; /* how many there were before it was taken back */
};

struct change {
	size_t word;
	uint64_t before;
};

struct late_past {
	uint64_t words[PAIR_WORDS];
	struct began began[PAIR_HOME + PAIR_OTHER]; /* innermost first */
	size_t count, back;			    /* of them the first `back` are taken back */
	size_t size;				    /* bytes of `words` that are in use */
	struct change *changes;
	size_t change_count, change_room;
};

struct late_past *late_past_new(void)
{
	return calloc(1, sizeof(struct late_past));
}

void late_past_free(struct late_past *past)
{
	if (past)
		free(past->changes);
	free(past);
}

/* ------------------------------------------------------------- activations */

static void add(struct late_past *past, const struct late_record *r, const struct pair_entry *entry)
{
	const struct pair_record *record = r->tables->record;
	const struct paired *paired =
		threads_undone_before(r->tables->threads, entry->tag & PAIR_ID_MASK);

	if (entry->tag && paired && paired->code_count)
		past->began[past->count++] =
			(struct began){.tag = entry->tag,
				       .start = entry->start,
				       .home = entry->tag - record->lo < record->size,
				       .paired = paired};
}

/* Of an activation's stack pointer: is it further in than another's? */
static bool is_inside(bool home, taddr_t sp, bool other_home, taddr_t other_sp)
{
	return home != other_home ? other_home : sp < other_sp;
}

static int innermost_first(const void *a, const void *b)
{
	const struct began *x = a, *y = b;
	const taddr_t sp = x->tag >> PAIR_ID_BITS, other = y->tag >> PAIR_ID_BITS;

	if (is_inside(x->home, sp, y->home, other))
		return -1;
	return is_inside(y->home, other, x->home, sp);
}

bool late_past_begin(struct late_past *past, const struct late_record *r)
{
	const struct pair_record *record = r->tables->record;

	past->count = past->back = past->change_count = 0;
	for (size_t i = 0; i < record->depth / sizeof(struct pair_entry); i++)
		add(past, r, &record->home[i]);
	for (size_t i = 0; i < PAIR_OTHER; i++)
		add(past, r, &record->other[i]);
	if (!past->count)
		return false;
	qsort(past->began, past->count, sizeof(*past->began), innermost_first);
	past->size = r->tables->threads->used - offsetof(struct pair_record, words);
	memcpy(past->words, record->words, past->size);
	return true;
}

/* ------------------------------------------------------------------- words */

/* Where in `words` an access is; false if it is none of one of them. */
static bool place_of(const struct late_past *past, const struct late_record *r, taddr_t address,
		     size_t size, size_t *at)
{
	*at = address - (r->at + offsetof(struct pair_record, words));
	return *at < past->size && size && *at % 8 + size <= 8;
}

bool late_past_load(const struct late_past *past, const struct late_record *r, taddr_t address,
		    uint64_t *word, size_t size)
{
	size_t at;

	if (!place_of(past, r, address, size, &at))
		return false;
	memcpy(word, (const uint8_t *)past->words + at, size);
	return true;
}

void late_past_store(struct late_past *past, const struct late_record *r, taddr_t address,
		     uint64_t word, size_t size)
{
	size_t at;

	if (place_of(past, r, address, size, &at))
		memcpy((uint8_t *)past->words + at, &word, size);
}

bool late_past_take_back(struct late_past *past, const struct late_record *r, taddr_t address,
			 uint64_t word, size_t size)
{
	const size_t room = past->change_room * 2 + 64;
	struct change *grown;
	size_t at;

	/* Anything else is what only undoing itself needs. */
	if (!place_of(past, r, address, size, &at))
		return true;
	if (past->change_count == past->change_room) {
		grown = realloc(past->changes, room * sizeof(*grown));
		if (!grown)
			return false;
		past->changes = grown;
		past->change_room = room;
	}
	past->changes[past->change_count++] =
		(struct change){.word = at / 8, .before = past->words[at / 8]};
	memcpy((uint8_t *)past->words + at, &word, size);
	return true;
}

/* ------------------------------------------------------------------- moving */

static void go_back(struct late_past *past, const struct late_record *r)
{
	struct began *b = &past->began[past->back++];

	b->changes = past->change_count;
	for (size_t i = 0; i < b->paired->code_count; i++)
		late_undo(r, past, &b->paired->codes[i]->program, b->start);
}

static void go_on(struct late_past *past)
{
	const struct began *b = &past->began[--past->back];

	while (past->change_count > b->changes) {
		const struct change *c = &past->changes[--past->change_count];

		past->words[c->word] = c->before;
	}
}

void late_past_seek(struct late_past *past, const struct late_record *r, const struct activation *a)
{
	const struct pair_record *record = r->tables->record;
	const bool home = pair_tag(a->sp, a->id) - record->lo < record->size;
	size_t inside = 0;

	while (inside < past->count &&
	       is_inside(past->began[inside].home, past->began[inside].tag >> PAIR_ID_BITS, home,
			 a->sp))
		inside++;
	while (past->back > inside)
		go_on(past);
	while (past->back < inside)
		go_back(past, r);
}
