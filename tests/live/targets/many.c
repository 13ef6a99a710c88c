/* SPDX-License-Identifier: MIT */
/* build: -O0 -g0 -falign-functions=16 -I. */
/*
 * many.c - ten thousand small functions and as many threads as are asked for.
 *
 * many THREADS: prints "ready". "go N": each thread calls each function N times, all at once; "done".
 * "begin N": the same, but "begun" is printed at once; "end" waits and prints "done".
 * Exits with 1 if threads have different results.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/many.h"

enum { SMALL_STACK = 65536 };

static pthread_barrier_t start, finish;
static volatile long rounds;
static unsigned expected;
static volatile int wrong;

static unsigned run(long n)
{
	unsigned x = 1;

	for (long i = 0; i < n; i++)
		for (size_t f = 0; f < MANY_COUNT; f++)
			x = many[f](x);
	return x;
}

static void *work(void *arg)
{
	for (;;) {
		pthread_barrier_wait(&start);
		if (run(rounds) != expected)
			wrong = 1;
		pthread_barrier_wait(&finish);
	}
	return arg;
}

int main(int argc, char **argv)
{
	const unsigned threads = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
	pthread_attr_t attributes;
	char line[64];

	pthread_barrier_init(&start, NULL, threads + 1);
	pthread_barrier_init(&finish, NULL, threads + 1);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, SMALL_STACK);
	for (unsigned i = 0; i < threads; i++) {
		pthread_t thread;

		if (pthread_create(&thread, &attributes, work, NULL))
			return 2;
	}
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		long n;

		if (sscanf(line, "go %ld", &n) == 1 || sscanf(line, "begin %ld", &n) == 1) {
			rounds = n;
			expected = run(n);
			pthread_barrier_wait(&start);
			if (line[0] == 'b')
				puts("begun");
		}
		if (line[0] == 'g' || !strcmp(line, "end\n")) {
			pthread_barrier_wait(&finish);
			puts("done");
		}
		fflush(stdout);
	}
	return wrong;
}
