/* SPDX-License-Identifier: MIT */
/*
 * family_help.h - a server with workers (targets/life-family.c), attached to: begin(), ask() it for what it
 * can do, and the part_of() each process in what was counted.
 */
#ifndef DINST_TESTS_FAMILY_HELP_H
#define DINST_TESTS_FAMILY_HELP_H

#include <stdlib.h>

#include "tests/live/mdl_help.h"

enum { WORKERS = 4 };

static inline void begin(struct harness *h)
{
	harness_start(h, "life-family", NULL);
	mdl_attach(h, NULL);
}

static inline void ask(struct harness *h, const char *command)
{
	assert_string_equal(mdl_ask(h, "%s", command), "done");
}

/* Of an instance over /Machine/X: the part of one process. */
static inline int64_t part_of(struct harness *h, unsigned id, pid_t process)
{
	json_t *rows = mdl_rows(h, id), *elements = NULL, *element;
	int64_t value = 0;
	size_t i;

	for (size_t row = 0; row < json_array_size(rows) && !elements; row++)
		elements = json_object_get(json_array_get(rows, row), "elements");
	if (!elements)
		fail_msg("no elements");
	json_array_foreach(elements, i,
			   element) if (atoi(json_string_value(json_object_get(element, "key"))) ==
					process) value =
		json_integer_value(json_object_get(element, "value"));
	json_decref(rows);
	return value;
}

static inline int last_number(const char *text)
{
	char *end;
	int number = 0;

	for (long next = strtol(text, &end, 10); end != text; next = strtol(text, &end, 10)) {
		number = (int)next;
		text = end;
	}
	return number;
}

/* The youngest child of a process, and not `older`; waits for it. */
static inline pid_t child_of(pid_t pid, pid_t older)
{
	char path[80], line[64];
	int child = 0;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	for (int i = 0; i < 5000 && !child; i++) {
		FILE *f = fopen(path, "r");

		if (f && fgets(line, sizeof(line), f))
			child = last_number(line);
		if (f)
			fclose(f);
		if (child == (int)older)
			child = 0;
		if (!child)
			usleep(1000);
	}
	assert_true(child);
	return (pid_t)child;
}

#endif
