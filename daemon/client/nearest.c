/* SPDX-License-Identifier: MIT */
/*
 * nearest.c - which names were meant: the distance between two short names.
 */
#include "daemon/client/nearest.h"

#include <string.h>

enum { NAME_LONGEST = 32 };

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

unsigned name_distance(const char *a, const char *b)
{
	unsigned row[3][NAME_LONGEST + 1]; /* of the last two letters of a, and this one */
	size_t m = strlen(a), n = strlen(b);

	if (m > NAME_LONGEST || n > NAME_LONGEST)
		return NAME_LONGEST;
	for (size_t j = 0; j <= n; j++)
		row[0][j] = (unsigned)j;
	for (size_t i = 1; i <= m; i++) {
		unsigned *now = row[i % 3], *last = row[(i - 1) % 3];

		now[0] = (unsigned)i;
		for (size_t j = 1; j <= n; j++) {
			now[j] = least(last[j - 1] + (a[i - 1] != b[j - 1]),
				       least(last[j], now[j - 1]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				now[j] = least(now[j], row[(i - 2) % 3][j - 2] + 1);
		}
	}
	return row[m % 3][n];
}
