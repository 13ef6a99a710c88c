/* SPDX-License-Identifier: MIT */
/*
 * text_stack.c - where calls come from, for people and as JSON. What is not known is shown as its
 * address, and what a stack does not reach to as "...": nothing here guesses.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/report/text_private.h"

static uint64_t address_of(uint64_t word)
{
	return word & ~(EVENT_INTERRUPTED | EVENT_GUESSED);
}

void text_add_place(struct text *t, const struct event_log *log, uint64_t word, const char *module)
{
	const struct event_place *p = event_log_place(log, word);

	if (p && p->function) {
		text_add_clean(t, p->function);
		if (p->offset >= 0)
			text_addf(t, "+0x%" PRIx64, (uint64_t)p->offset);
		if (p->module && (!module || strcmp(module, p->module) != 0)) {
			text_addf(t, " (");
			text_add_clean(t, p->module);
			text_addf(t, ")");
		}
	} else if (p && p->module && p->offset >= 0) {
		text_add_clean(t, p->module);
		text_addf(t, "+0x%" PRIx64, (uint64_t)p->offset);
	} else {
		text_addf(t, "0x%" PRIx64, address_of(word));
	}
	if (word & EVENT_INTERRUPTED)
		text_addf(t, " interrupted");
	if (word & EVENT_GUESSED)
		text_addf(t, " ?");
}

void text_add_stack(struct text *t, const struct event_log *log, const struct event_stack *stack,
		    const char *module, unsigned indent)
{
	for (size_t n = 0; n < stack->count; n++) {
		text_addf(t, "%*s<- ", (int)indent, "");
		text_add_place(t, log, event_stack_frame(stack, n), module);
		text_addf(t, "\n");
	}
	if (!stack->complete)
		text_addf(t, "%*s<- ...\n", (int)indent, "");
}

bool text_is_stack(const char *line)
{
	return line[0] == ' ';
}

json_t *place_json(const struct event_log *log, uint64_t word)
{
	const struct event_place *p = event_log_place(log, word);
	json_t *place;
	char text[32];

	snprintf(text, sizeof(text), "0x%" PRIx64, address_of(word));
	place = json_pack("{s:s, s:o, s:o, s:o}", "address", text, "function",
			  p && p->function ? rpc_text(p->function) : json_null(), "module",
			  p && p->module ? rpc_text(p->module) : json_null(), "offset",
			  p && p->offset >= 0 ? json_integer(p->offset) : json_null());
	if (place && word & EVENT_INTERRUPTED)
		json_object_set_new(place, "interrupted", json_true());
	if (place && word & EVENT_GUESSED)
		json_object_set_new(place, "guessed", json_true());
	return place;
}

json_t *stack_json(const struct event_log *log, const struct event_stack *stack)
{
	json_t *list = json_array();

	for (size_t n = 0; n < stack->count; n++)
		json_array_append_new(list, place_json(log, event_stack_frame(stack, n)));
	return list;
}
