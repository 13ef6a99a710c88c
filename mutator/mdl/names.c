/* SPDX-License-Identifier: MIT */
/*
 * names.c - names of what the language has, and names that were meant.
 */
#include "mutator/mdl/mdl.h"

#include <stdio.h>
#include <string.h>

enum { NAME_LONGEST = 48 };

const char *mdl_vartype_name(enum mdl_vartype type)
{
	switch (type) {
	case MDL_COUNTER:
		return "counter";
	case MDL_WALL_TIMER:
		return "wallTimer";
	case MDL_PROCESS_TIMER:
		return "processTimer";
	case MDL_THREAD_TIMER:
		return "threadTimer";
	case MDL_DISTRIBUTION:
		return "distribution";
	case MDL_STREAM:
		return "stream";
	case MDL_VOID:
		return "void";
	}
	return "unknown";
}

void mdl_path_text(const struct mdl_constraint *c, char *text, size_t size)
{
	size_t used = 0;

	if (size)
		text[0] = '\0';
	for (size_t i = 0; i < c->path_count && used < size; i++) {
		int n = snprintf(text + used, size - used, "/%s", c->path[i]);

		if (n < 0)
			break;
		used += (size_t)n;
	}
}

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/*
 * How many letters have to be inserted, removed, replaced or swapped with their
 * neighbour (optimal string alignment); case does not count.
 */
static unsigned distance(const char *a, size_t m, const char *b, size_t n)
{
	unsigned row[3][NAME_LONGEST + 1];

	for (size_t j = 0; j <= n; j++)
		row[0][j] = (unsigned)j;
	for (size_t i = 1; i <= m; i++) {
		unsigned *now = row[i % 3], *last = row[(i - 1) % 3];

		now[0] = (unsigned)i;
		for (size_t j = 1; j <= n; j++) {
			now[j] = least(last[j - 1] + (lower(a[i - 1]) != lower(b[j - 1])),
				       least(last[j], now[j - 1]) + 1);
			if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
			    lower(a[i - 2]) == lower(b[j - 1]))
				now[j] = least(now[j], row[(i - 2) % 3][j - 2] + 1);
		}
	}
	return row[m % 3][n];
}

const char *mdl_nearest(const char *name, const char *const *names, size_t count)
{
	size_t length = strlen(name), other;
	const char *best = NULL;
	unsigned most = length <= 2 ? 1 : length <= 5 ? 2 : 3;
	unsigned least_found = most + 1;

	if (!length || length > NAME_LONGEST)
		return NULL;
	for (size_t i = 0; i < count; i++) {
		unsigned d;

		other = names[i] ? strlen(names[i]) : 0;
		if (!other || other > NAME_LONGEST)
			continue;
		d = distance(name, length, names[i], other);
		/* a beginning is near, too */
		if (length >= 3 && other > length && strncmp(name, names[i], length) == 0)
			d = least(d, most);
		/* not when everything would have to be replaced */
		if (d < least_found && d < (length > other ? length : other)) {
			least_found = d;
			best = names[i];
		}
	}
	return best;
}
