/* SPDX-License-Identifier: MIT */
/*
 * serve_code.c - what a window leads to, for people: its own instructions with
 * the points that are served there, and the code that runs for them.
 *
 * Nothing here stops or changes the target.
 */
#include <stdio.h>
#include <string.h>

#include "mutator/serve.h"

static const char *patch_name(enum arch_patch_kind kind)
{
	static const char *const names[] = {
		[ARCH_PATCH_JUMP] = "near jump",
		[ARCH_PATCH_SHORT_JUMP] = "short jump to a hole",
		[ARCH_PATCH_RETARGET] = "own displacement",
		[ARCH_PATCH_CALL] = "near call",
	};

	return (size_t)kind < sizeof(names) / sizeof(*names) && names[kind] ? names[kind] : "other";
}

static const char *state_name(const struct site *site)
{
	if (!site)
		return "nothing is inserted";
	switch (site->state) {
	case SITE_PLANNED:
		return "waits to be inserted";
	case SITE_PATCHED:
		return "inserted";
	default:
		return "being removed";
	}
}

void serve_disassemble(const struct module *m, const struct arch_insn *in_file, char *text,
		       size_t size)
{
	struct arch_insn insn;

	if (arch_decode(in_file->bytes, in_file->length, in_file->address + m->bias, &insn) ==
	    ARCH_OK)
		arch_format(&insn, text, size);
	else
		snprintf(text, size, "?");
}

static const char *place_name(enum point_place place)
{
	static const char *const names[] = {
		[PLACE_BEFORE] = "",
		[PLACE_TAKEN] = "taken: ",
		[PLACE_FALLS] = "behind: ",
		[PLACE_BYPASS] = "goes round: ",
	};

	return (size_t)place < sizeof(names) / sizeof(*names) ? names[place] : "?: ";
}

/* "entry, block; taken: edge": the points at instruction `insn` of the window. */
static void points_text(const struct function_plan *plan, size_t w, unsigned insn, char *text,
			size_t size)
{
	size_t used = 0;

	text[0] = '\0';
	for (int place = PLACE_BEFORE; place <= PLACE_BYPASS; place++) {
		bool first = true;

		for (size_t i = 0; i < plan->point_count && used + 40 < size; i++) {
			const struct point *p = &plan->points[i];

			if (p->window != (int32_t)w || p->insn != insn || (int)p->place != place)
				continue;
			used += (size_t)snprintf(text + used, size - used, "%s%s%s",
						 !used	 ? ""
						 : first ? "; "
							 : ", ",
						 first ? place_name(p->place) : "",
						 point_kind_name(p->kind));
			first = false;
		}
	}
}

static json_t *line_json(taddr_t address, const char *text, const char *note)
{
	json_t *line = json_pack("{s:o, s:o}", "address", serve_address(address), "text",
				 serve_text(text));

	if (note && *note)
		json_object_set_new(line, "note", serve_text(note));
	return line;
}

/* The window's own instructions, and which points each of them serves. */
static void window_lines(json_t *code, const struct module *m, const struct function_plan *plan,
			 size_t w)
{
	struct arch_insn insns[WINDOW_INSNS_MAX];
	size_t count = window_instructions(m->image, &plan->windows[w], insns);

	for (size_t i = 0; i < count; i++) {
		char text[SERVE_INSN_TEXT], note[400];

		serve_disassemble(m, &insns[i], text, sizeof(text));
		points_text(plan, w, (unsigned)i, note, sizeof(note));
		json_array_append_new(code, line_json(insns[i].address + m->bias, text, note));
	}
}

/* ------------------------------------------------------- generated code */

struct listing {
	json_t *code;
};

/* "instance 3, procedure /Code/a/f)": whose code it is, flags by their names. */
static void owners_text(const struct site_line *l, char *text, size_t size)
{
	const struct link *link = l->link;

	for (unsigned n = 0; link && n < l->links; n++, link = link->next) {
		const struct instance *i = link->instance;
		const size_t used = strlen(text);
		const char *comma = n ? ", " : "";

		if (i->id)
			snprintf(text + used, size - used, "%sinstance %u", comma, i->id);
		else
			snprintf(text + used, size - used, "%s%.80s", comma, i->focus);
	}
	snprintf(text + strlen(text), size - strlen(text), ")");
}

/* "count, taken: edge (instance 3)" */
static void snippet_text(const struct site_line *l, char *text, size_t size)
{
	static const char *const kinds[] = {
		[SNIPPET_COUNT] = "count",     [SNIPPET_NONE] = "nothing",
		[SNIPPET_ENTER] = "enter",     [SNIPPET_LEAVE] = "leave",
		[SNIPPET_ADDRESS] = "address", [SNIPPET_PROGRAM] = "program",
	};
	const struct link *link = l->link;

	if (!link) {
		snprintf(text, size, "snippet at instruction %u%s", l->insn,
			 l->cold ? ", seldom" : "");
		return;
	}
	snprintf(text, size, "%s, %s%s (",
		 (size_t)link->snippet.kind < sizeof(kinds) / sizeof(*kinds)
			 ? kinds[link->snippet.kind]
			 : "snippet",
		 place_name((enum point_place)link->place),
		 point_kind_name((enum point_kind)link->kind));
	owners_text(l, text, size);
	if (l->cold)
		snprintf(text + strlen(text), size - strlen(text), ", seldom");
}

static void meaning(const struct site_line *l, char *text, size_t size)
{
	switch (l->kind) {
	case SITE_LINE_WINDOW:
		snprintf(text, size, "in the target");
		break;
	case SITE_LINE_SWITCH:
		snprintf(text, size, "switch");
		break;
	case SITE_LINE_SNIPPET:
		snippet_text(l, text, size);
		break;
	case SITE_LINE_COPY:
		snprintf(text, size, "instruction %u of the window", l->insn);
		break;
	case SITE_LINE_AROUND:
		snprintf(text, size, "goes round a window: its instruction %u", l->insn);
		break;
	case SITE_LINE_BACK:
		snprintf(text, size, "back to the target");
		break;
	case SITE_LINE_BASE:
		snprintf(text, size, "when switched off");
		break;
	default:
		snprintf(text, size, l->cold ? "data of a sequence, or filling" : "filling");
	}
}

static void data_text(const struct arch_insn *data, char *text, size_t size)
{
	size_t used = (size_t)snprintf(text, size, ".byte");

	for (unsigned i = 0; i < data->length && used + 8 < size; i++)
		used += (size_t)snprintf(text + used, size - used, " %02x", data->bytes[i]);
}

static int add_line(void *arg, const struct site_line *l)
{
	const struct listing *list = arg;
	char text[SERVE_INSN_TEXT], note[160];

	if (l->kind == SITE_LINE_DATA)
		data_text(&l->code, text, sizeof(text));
	else
		arch_format(&l->code, text, sizeof(text));
	meaning(l, note, sizeof(note));
	json_array_append_new(list->code, line_json(l->address, text, note));
	return 0;
}

/* What is written in the target, or else what would move out of the window. */
json_t *serve_site(struct session *s, const struct module *m, const struct function_plan *plan,
		   size_t w)
{
	const struct window *window = &plan->windows[w];
	const struct site *site = site_find(s, window->start + m->bias);
	struct listing list = {.code = json_array()};
	char bytes[32];

	snprintf(bytes, sizeof(bytes), window->padding ? "%u+%u" : "%u", window->length,
		 window->padding);
	window_lines(list.code, m, plan, w);
	if (site)
		site_describe(s, site, add_line, &list);
	return json_pack("{s:o, s:s, s:s, s:s, s:o}", "window",
			 serve_address(window->start + m->bias), "bytes", bytes, "patch",
			 patch_name(window->kind), "state", state_name(site), "code", list.code);
}
