/* SPDX-License-Identifier: MIT */
/*
 * event_places.c - what addresses of code in events are, and the stacks of such addresses. A log
 * keeps as many places as a stream tells at most at a time; what comes beyond has no name.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/report/event.h"

enum { PLACES_MOST = 1 << 16 };

static void place_free(struct event_place *p)
{
	if (!p)
		return;
	free(p->function);
	free(p->module);
	free(p);
}

void event_places_release(struct event_log *log)
{
	for (size_t i = 0; i < log->place_count; i++)
		place_free(log->places[i]);
	free(log->places);
	free(log->place_order);
	log->places = log->place_order = NULL;
	log->place_count = 0;
}

static size_t place_index(const struct event_log *log, uint64_t word)
{
	size_t low = 0, high = log->place_count;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (log->places[middle]->word < word)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

const struct event_place *event_log_place(const struct event_log *log, uint64_t word)
{
	const size_t at = place_index(log, word);

	return at < log->place_count && log->places[at]->word == word ? log->places[at] : NULL;
}

static bool grow(struct event_log *log)
{
	const size_t room = log->place_count ? 2 * log->place_count : 64;
	struct event_place **grown;

	if (log->place_count &&
	    (log->place_count < 64 || log->place_count & (log->place_count - 1)))
		return true;
	grown = realloc(log->places, room * sizeof(struct event_place *));
	if (!grown)
		return false;
	log->places = grown;
	grown = realloc(log->place_order, room * sizeof(struct event_place *));
	if (!grown)
		return false;
	log->place_order = grown;
	return true;
}

static bool keep_text(char **to, const json_t *from)
{
	free(*to);
	*to = json_is_string(from) ? strdup(json_string_value(from)) : NULL;
	return *to || !json_is_string(from);
}

static int place_read(struct event_log *log, const json_t *row, struct dinst_error *e)
{
	const char *address = json_string_value(json_object_get(row, "address"));
	const json_t *offset = json_object_get(row, "offset");
	const uint64_t word = address ? strtoull(address, NULL, 16) : 0;
	const size_t at = place_index(log, word);
	struct event_place *p = NULL;

	if (!word)
		return 0;
	if (at < log->place_count && log->places[at]->word == word) {
		p = log->places[at];
	} else if (log->place_count >= PLACES_MOST) {
		return 0;
	} else {
		p = grow(log) ? calloc(1, sizeof(*p)) : NULL;
		if (!p)
			return dinst_fail(e, DINST_NO_MEMORY, "no memory for names of places");
		p->word = word;
		memmove(&log->places[at + 1], &log->places[at],
			(log->place_count - at) * sizeof(struct event_place *));
		log->places[at] = p;
		log->place_order[log->place_count++] = p;
	}
	p->offset = json_is_integer(offset) && json_integer_value(offset) >= 0
			    ? json_integer_value(offset)
			    : -1;
	if (!keep_text(&p->function, json_object_get(row, "function")) ||
	    !keep_text(&p->module, json_object_get(row, "module")))
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for names of places");
	return 0;
}

int event_log_places(struct event_log *log, const json_t *rows, struct dinst_error *e)
{
	int status = 0;
	size_t i;
	json_t *row;

	json_array_foreach((json_t *)rows, i, row)
	{
		status = place_read(log, row, e);
		if (status)
			break;
	}
	return status;
}

/* ------------------------------------------------------------------ stacks */

bool event_stack(const struct event *e, const struct event_field *f, struct event_stack *stack)
{
	const uint8_t *bytes;
	uint64_t complete;
	size_t length;

	if (f->form != EVENT_STACK || !event_bytes(e, f, &bytes, &length) ||
	    length < sizeof(complete))
		return false;
	memcpy(&complete, bytes, sizeof(complete));
	*stack = (struct event_stack){
		.complete = complete != 0,
		.count = length / sizeof(uint64_t) - 1,
		.at = bytes + sizeof(complete),
	};
	return true;
}

uint64_t event_stack_frame(const struct event_stack *stack, size_t n)
{
	uint64_t word;

	memcpy(&word, stack->at + n * sizeof(word), sizeof(word));
	return word;
}
