/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -fno-plt -fno-builtin */
/*
 * names.c - functions that have several names, or none of their own, or are
 * chosen by the loader.
 *
 * names: prints "ready". "go N" calls each N times and prints "done". Exits with
 * 1 if a result was wrong.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

long names_real(long n);
long names_weak(long n) __attribute__((weak, alias("names_real")));
long names_other(long n) __attribute__((alias("names_real")));

long names_real(long n)
{
	return n * 3 + 1;
}

static volatile long two = 2;

/* Nowhere in the code as a function. */
__attribute__((always_inline)) static inline long names_inlined(long n)
{
	return n * 5 - two;
}

static volatile size_t size = 24;
static char from[64] = "from here to there", to[64];

long names_copy(long n)
{
	to[0] = (char)n;
	memcpy(to + 1, from, size);
	return to[1] == 'f' ? n : -1;
}

long names_through_table(void)
{
	return strtol("37", NULL, 10);
}

int main(void)
{
	struct timespec t;
	char line[64];
	int wrong = 0;

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		for (long n = atol(line + 3), i = 0; i < n; i++) {
			wrong |= names_weak(i) != i * 3 + 1 || names_inlined(i) != i * 5 - 2;
			wrong |= names_copy(i) != i || names_through_table() != 37;
			clock_gettime(CLOCK_MONOTONIC, &t);
		}
		puts("done");
		fflush(stdout);
	}
	return wrong;
}
