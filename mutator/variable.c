/* SPDX-License-Identifier: MIT */
/*
 * variable.c - where variables live: taking what they need in the target, and
 * giving it back. What they are worth is in variable_read.c.
 *
 * Never gives back what code may still use: that is what references are for.
 */
#include "mutator/variable.h"

#include <stdlib.h>
#include <string.h>

#include "mutator/stream.h"
#include "mutator/threads.h"

enum {
	WORD = sizeof(uint64_t),
	TIMER_WORDS = 2,
	TABLE_HEAD = sizeof(struct arch_table) / WORD,
	DISTRIBUTION_PLACES = 256, /* 4 MiB of each CPU's block */
};

unsigned variable_table_places(enum variable_form form)
{
	return form == VARIABLE_DISTRIBUTION ? DISTRIBUTION_PLACES : VARIABLE_ELEMENTS;
}

static enum arch_clock clock_of(enum mdl_vartype type)
{
	if (type == MDL_THREAD_TIMER)
		return ARCH_CLOCK_THREAD;
	if (type == MDL_PROCESS_TIMER)
		return ARCH_CLOCK_PROCESS;
	return ticks_wall_clock();
}

struct variable *variable_new(const char *name, enum mdl_vartype type, enum variable_form form,
			      unsigned elements, struct dinst_error *e)
{
	struct variable *v;

	if (!elements || (form == VARIABLE_TABLE && elements & (elements - 1))) {
		dinst_fail(e, DINST_FAILED, "a variable cannot have %u elements", elements);
		return NULL;
	}
	v = calloc(1, sizeof(*v));
	if (v)
		v->name = strdup(name);
	if (!v || !v->name) {
		free(v);
		dinst_fail(e, DINST_NO_MEMORY, "out of memory for a variable");
		return NULL;
	}
	v->type = type;
	v->form = form;
	v->elements = elements;
	v->references = 1;
	if (form == VARIABLE_TIMER)
		v->clock = clock_of(type);
	return v;
}

struct variable *variable_ref(struct variable *v)
{
	v->references++;
	return v;
}

void variable_unref(struct session *s, struct variable *v)
{
	if (!v || --v->references)
		return;
	stream_retire(s, v->queue);
	for (unsigned i = 0; i < v->place_count; i++)
		heap_unref_counter(v->in[i].place->heap, v->in[i].counter);
	if (v->word)
		heap_unref_counter(v->word_place->heap, v->word);
	if (v->record_offset)
		threads_drop_words(s, v->record_offset,
				   v->form == VARIABLE_TIMER ? TIMER_WORDS : 1);
	free(v->still);
	free(v->keys);
	free(v->name);
	free(v);
}

/* ------------------------------------------------------------ preparation */

static unsigned log2_of(unsigned power)
{
	unsigned shift = 0;

	while (1u << shift < power)
		shift++;
	return shift;
}

static int take_words(struct session *s, struct variable *v, struct dinst_error *e)
{
	const bool timer = v->form == VARIABLE_TIMER;

	if (v->record_offset)
		return 0;
	return threads_take_words(s, timer ? TIMER_WORDS : 1, timer ? &v->clock : NULL,
				  &v->record_offset, e);
}

/* ----------------------------------------------------------------- tables */

/*
 * The words of a table's places with just these keys: each at the first free
 * place of its probe sequence, as code would find it, and what is left over is
 * taken. NULL: no memory, or no place for one of them.
 */
static uint64_t *fill_table(const struct variable *table, const uint64_t *keys, size_t count)
{
	const size_t places = table->elements;
	uint64_t *words = calloc(places, sizeof(*words));

	for (size_t k = 0; words && k < count; k++) {
		const size_t first = arch_table_hash(keys[k], log2_of(table->elements));
		size_t n = 0, at = first;

		while (n < ARCH_TABLE_PROBE && words[at] && words[at] != keys[k] + 1)
			at = (first + ++n) % places;
		if (n == ARCH_TABLE_PROBE || keys[k] >= VARIABLE_NO_KEY) {
			free(words);
			return NULL;
		}
		words[at] = keys[k] + 1;
	}
	for (size_t at = 0; words && at < places; at++)
		if (!words[at])
			words[at] = VARIABLE_NO_KEY + 1;
	return words;
}

int variable_set_keys(struct session *s, struct variable *table, const uint64_t *keys, size_t count,
		      struct dinst_error *e)
{
	uint64_t *words = fill_table(table, keys, count);

	(void)s;
	free(words);
	free(table->keys);
	table->keys = words ? calloc(count + 1, sizeof(*keys)) : NULL;
	if (!table->keys)
		return dinst_fail(e, DINST_NO_MEMORY, "no more than %u objects at a time",
				  table->elements);
	memcpy(table->keys, keys, count * sizeof(*keys));
	table->key_count = count;
	return 0;
}

static int make_table(struct variable *v, struct place *p, struct dinst_error *e)
{
	const taddr_t at = v->word + offsetof(struct arch_table, keys);
	uint64_t *words;

	heap_write_word(p->heap, v->word + offsetof(struct arch_table, shift),
			log2_of(v->elements));
	if (!v->keys)
		return 0;
	words = fill_table(v, v->keys, v->key_count);
	if (!words)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory for a table");
	for (size_t k = 0; k < v->elements; k++)
		heap_write_word(p->heap, at + WORD * k, words[k]);
	free(words);
	return 0;
}

size_t variable_take_place(struct arch_table *table, unsigned bits, uint64_t key)
{
	const size_t places = (size_t)1 << bits;
	size_t at = arch_table_hash(key, bits);

	for (unsigned n = 0; n < ARCH_TABLE_PROBE && key != UINT64_MAX;
	     n++, at = (at + 1) & (places - 1)) {
		uint64_t there = 0;

		/* Code of the target looks for places meanwhile. */
		if (__atomic_compare_exchange_n(&table->keys[at], &there, key + 1, false,
						__ATOMIC_RELAXED, __ATOMIC_RELAXED) ||
		    there == key + 1)
			return at + 1;
	}
	__atomic_fetch_add(&table->full, 1, __ATOMIC_RELAXED);
	return 0;
}

unsigned variable_element_of(const struct variable *table, uint64_t key)
{
	struct arch_table *t = NULL;
	size_t place;

	if (table->word && table->word_place->arena->mode == ARENA_SHARED)
		t = heap_map(table->word_place->heap, table->word,
			     sizeof(*t) + table->elements * sizeof(t->keys[0]));
	place = t ? variable_take_place(t, log2_of(table->elements), key) : 0;
	return place ? (unsigned)place - 1 : table->elements;
}

/* What is one for all places; it goes to the first that needs it. */
static int make_shared(struct variable *v, struct place *p, struct dinst_error *e)
{
	size_t count = v->elements;
	int status;

	if (v->word)
		return 0;
	if (v->form == VARIABLE_TABLE)
		count += TABLE_HEAD;
	else if (v->form == VARIABLE_DISTRIBUTION)
		count *= 2;
	status = heap_alloc_words(p->heap, count, &v->word, e);
	if (status < 0)
		return status;
	v->word_place = p;
	if (v->form == VARIABLE_TABLE) {
		status = make_table(v, p, e);
		/* When it is tried again it must not look as if its keys were there. */
		if (status < 0) {
			heap_unref_counter(p->heap, v->word);
			v->word = 0;
			v->word_place = NULL;
		}
		return status;
	}
	for (size_t k = 0; v->form == VARIABLE_DISTRIBUTION && k < v->elements; k++) {
		heap_write_word(p->heap, v->word + 2ul * WORD * k, INT64_MAX);
		heap_write_word(p->heap, v->word + 2ul * WORD * k + WORD, (uint64_t)INT64_MIN);
	}
	return 0;
}

static bool is_in(const struct variable *v, const struct place *p)
{
	for (unsigned i = 0; i < v->place_count; i++)
		if (v->in[i].place == p)
			return true;
	return false;
}

static int make_counters(struct variable *v, struct place *p, struct dinst_error *e)
{
	const size_t each = v->form == VARIABLE_DISTRIBUTION ? VARIABLE_ROW : 1;
	int status;

	if (is_in(v, p))
		return 0;
	if (v->place_count == VARIABLE_PLACES)
		return dinst_fail(e, DINST_NO_MEMORY, "%s is used in too many arenas", v->name);
	status =
		heap_alloc_counters(p->heap, v->elements * each, &v->in[v->place_count].counter, e);
	if (status >= 0)
		v->in[v->place_count++].place = p;
	if (status == DINST_NO_MEMORY && v->elements > 1) {
		/* About a function that is instrumented already another arena is no way out. */
		dinst_error_clear(e);
		return dinst_fail(e, status,
				  "%s: there is no room for one more vector of %u %s at this "
				  "function: remove all that is measured there, or name single "
				  "objects instead of '*'",
				  v->name, v->elements - 1,
				  v->form == VARIABLE_DISTRIBUTION ? "distributions" : "values");
	}
	return status;
}

int variable_prepare(struct session *s, struct variable *v, struct place *p, struct dinst_error *e)
{
	int status = 0;

	if (v->form == VARIABLE_FLAG || v->form == VARIABLE_TIMER)
		status = take_words(s, v, e);
	if (status >= 0 && (v->form == VARIABLE_LEVEL || v->form == VARIABLE_TABLE ||
			    v->form == VARIABLE_DISTRIBUTION))
		status = make_shared(v, p, e);
	if (status >= 0 && (v->form == VARIABLE_TOTAL || v->form == VARIABLE_TIMER ||
			    v->form == VARIABLE_DISTRIBUTION || v->form == VARIABLE_STREAM))
		status = make_counters(v, p, e);
	if (status >= 0 && v->form == VARIABLE_STREAM)
		status = stream_prepare(s, p, &v->queue, e);
	return status < 0 ? status : 0;
}

taddr_t variable_counter(const struct variable *v, const struct place *p)
{
	if (v->form == VARIABLE_LEVEL || v->form == VARIABLE_TABLE)
		return v->word;
	for (unsigned i = 0; i < v->place_count; i++)
		if (v->in[i].place == p)
			return v->in[i].counter;
	return 0;
}
