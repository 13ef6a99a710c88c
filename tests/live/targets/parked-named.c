/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline */
/*
 * parked-named.c - has a switch between tasks that only its name tells: as a program has that
 * libucontext is a part of. Prints "ready", and ends with its input.
 */
#include <stdio.h>

int libucontext_swapcontext(void *from, const void *to);

int libucontext_swapcontext(void *from, const void *to)
{
	return from == to;
}

int main(void)
{
	char line[64];
	int calls = 0;

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		calls += libucontext_swapcontext(line, line);
	return calls < 0;
}
