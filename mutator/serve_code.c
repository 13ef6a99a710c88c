/* SPDX-License-Identifier: MIT */
/*
 * serve_code.c - what a window leads to, for people: the instructions that move
 * to the trampoline, and the points that are served there.
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

json_t *serve_site(struct session *s, const struct module *m, const struct function_plan *plan,
		   size_t w)
{
	const struct window *window = &plan->windows[w];
	const struct site *site = site_find(s, window->start + m->bias);
	json_t *code = json_array();
	char bytes[32];

	snprintf(bytes, sizeof(bytes), window->padding ? "%u+%u" : "%u", window->length,
		 window->padding);
	window_lines(code, m, plan, w);
	return json_pack("{s:o, s:s, s:s, s:s, s:o}", "window",
			 serve_address(window->start + m->bias), "bytes", bytes, "patch",
			 patch_name(window->kind), "state", state_name(site), "code", code);
}
