/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline */
/*
 * alone-thread.c - one thread only, that calls leaf() when it is told to. Prints "ready"; "go N": N
 * times, then "done". Needs nothing but standard C, to be built with any library.
 */
#include <stdio.h>

__attribute__((noinline, noclone)) int leaf(int x);

int leaf(int x)
{
	__asm__ volatile("" : "+r"(x));
	return x * 3 + 1;
}

int main(void)
{
	volatile int sum = 0;
	char line[64];
	long n;

	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "go %ld", &n) != 1)
			continue;
		for (long i = 0; i < n; i++)
			sum += leaf((int)i) & 1;
		puts("done");
	}
	return 0;
}
