/* SPDX-License-Identifier: MIT */
/*
 * stream_places.c - what addresses of code in events are: clients are told once for each, with
 * the first event that has it, and again when modules have come or gone since.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/serve.h"
#include "mutator/stream_private.h"

enum { TOLD_LEAST = 256, TOLD_MOST = 1 << 16 }; /* addresses; powers of two, twice the room */

/* How long modules may have changed unnoticed; and where an address is of none. */
static const uint64_t LOOK_NS = 1000000000;
static const uint64_t LOOK_AGAIN_NS = 100000000;

/* ------------------------------------------------------------------ told */

/* Where the word is, or would be; there is always a free place. */
static size_t place_of(const struct stream_told *t, uint64_t word)
{
	size_t at = (size_t)(word * 0x9e3779b97f4a7c15u >> 32) & (t->room - 1);

	while (t->words[at] && t->words[at] != word)
		at = (at + 1) & (t->room - 1);
	return at;
}

static bool grow(struct stream_told *t)
{
	const struct stream_told old = *t;

	t->room = old.words ? 2 * old.room : (size_t)2 * TOLD_LEAST;
	t->words = calloc(t->room, sizeof(*t->words));
	if (!t->words) {
		*t = old;
		return false;
	}
	for (size_t n = 0; old.words && n < old.room; n++)
		if (old.words[n])
			t->words[place_of(t, old.words[n])] = old.words[n];
	free(old.words);
	return true;
}

/* True if it is new, and is told now. Where there is no memory for it everything is new. */
static bool is_new(struct stream_told *t, uint64_t word, uint64_t changes)
{
	size_t at;

	if (t->changes != changes || t->count == TOLD_MOST) {
		if (t->words)
			memset(t->words, 0, t->room * sizeof(*t->words));
		t->count = 0;
		t->changes = changes;
	}
	if ((!t->words || 2 * (t->count + 1) > t->room) && !grow(t))
		return true;
	at = place_of(t, word);
	if (t->words[at])
		return false;
	t->words[at] = word;
	t->count++;
	return true;
}

/* ---------------------------------------------------------------- places */

static const struct module *module_of(struct stream *st, taddr_t at)
{
	const struct module *m = module_at(st->session->modules, at);

	return m && m->image && !m->gone ? m : NULL;
}

/* Modules as they are now, where it is time to look again. */
static void look(struct stream *st, taddr_t at)
{
	const uint64_t now = clock_ns();
	struct dinst_error ignored = {0};

	if (now - st->modules_ns < (module_of(st, at) ? LOOK_NS : LOOK_AGAIN_NS))
		return;
	st->modules_ns = now;
	session_update_modules(st->session, &ignored);
}

static json_t *place_row(struct stream *st, uint64_t word)
{
	const taddr_t address = word & ~(STREAM_INTERRUPTED | STREAM_GUESSED);
	/* A return address may be another function's. */
	const taddr_t at = word & STREAM_INTERRUPTED ? address : address - 1;
	const struct module *m = module_of(st, at);
	const struct image_function *functions, *f;
	long index = m ? image_function_at(m->image, at - m->bias) : -1;
	json_t *row = json_pack("{s:o, s:o}", "address", serve_address(word), "module",
				m ? serve_text(m->name) : json_null());

	if (index < 0) {
		json_object_set_new(row, "function", json_null());
		json_object_set_new(row, "offset",
				    m ? json_integer((json_int_t)(address - m->lo)) : json_null());
		return row;
	}
	image_functions(m->image, &functions);
	/* A piece that the compiler has moved away belongs to its function, but not by an offset. */
	f = &functions[functions[index].parent];
	json_object_set_new(row, "function", serve_text(image_readable_name(m->image, f->name)));
	json_object_set_new(row, "offset",
			    functions[index].parent == (uint32_t)index
				    ? json_integer((json_int_t)(address - m->bias - f->address))
				    : json_null());
	return row;
}

static void tell(struct stream *st, struct stream_queue *q, uint64_t word, json_t **places)
{
	if (!word)
		return;
	look(st, word & ~(STREAM_INTERRUPTED | STREAM_GUESSED));
	if (!is_new(&q->places, word, st->session->module_changes))
		return;
	if (!*places)
		*places = json_array();
	json_array_append_new(*places, place_row(st, word));
}

static void tell_stack(struct stream *st, struct stream_queue *q, const struct stream_field *f,
		       const uint8_t *record, json_t **places)
{
	const struct stream_frames *frames = (const void *)(record + f->offset);
	uint64_t count, word;

	memcpy(&count, &frames->length, sizeof(count));
	count = count / sizeof(word) - 1;
	for (size_t n = 0; n < count && n < f->frames; n++) {
		memcpy(&word, &frames->frames[n], sizeof(word));
		tell(st, q, word, places);
	}
}

void stream_tell_places(struct stream *st, struct stream_queue *q, const struct stream_event *event,
			const uint8_t *record, json_t **places)
{
	for (size_t n = 0; n < event->field_count; n++) {
		const struct stream_field *f = &event->fields[n];
		uint64_t word;

		if (f->form == STREAM_STACK) {
			tell_stack(st, q, f, record, places);
		} else if (f->is_address) {
			memcpy(&word, record + f->offset, sizeof(word));
			tell(st, q, word, places);
		}
	}
}
