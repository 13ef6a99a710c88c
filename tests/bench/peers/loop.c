/* SPDX-License-Identifier: MIT */
/*
 * loop.c - what all tools are measured on: a thread that calls a function of ten nanoseconds.
 *
 *   loop SECONDS
 *
 * Every 50 ms it prints the time (ns, CLOCK_MONOTONIC), nanoseconds per call, and the longest
 * time between two looks at the clock in microseconds. tests/bench/table.py builds and runs it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCH = 16, WINDOW_NS = 50 * 1000 * 1000 };

#define PLAIN __attribute__((no_instrument_function))

#ifdef HOOKS
/* What a user of gcc's -finstrument-functions writes to count calls. */
static unsigned long entries, exits;

PLAIN void __cyg_profile_func_enter(void *function, void *caller);
PLAIN void __cyg_profile_func_exit(void *function, void *caller);

void __cyg_profile_func_enter(void *function, void *caller)
{
	(void)function;
	(void)caller;
	entries++;
}

void __cyg_profile_func_exit(void *function, void *caller)
{
	(void)function;
	(void)caller;
	exits++;
}
#endif

unsigned long work(unsigned long x);

__attribute__((noinline, noclone)) unsigned long work(unsigned long x)
{
	for (int i = 0; i < 8; i++)
		x = x * 6364136223846793005UL + 1442695040888963407UL;
	return x;
}

static PLAIN uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

PLAIN int main(int argc, char **argv)
{
	uint64_t seconds = argc > 1 ? strtoull(argv[1], NULL, 10) : 2;
	uint64_t begin = now_ns(), end = begin + seconds * 1000000000, last = begin, now = begin;
	unsigned long x = 1;

	while (now < end) {
		uint64_t calls = 0, longest = 0, start = now;

		do {
			for (int i = 0; i < BATCH; i++)
				x = work(x);
			calls += BATCH;
			last = now;
			now = now_ns();
			if (now - last > longest)
				longest = now - last;
		} while (now - start < WINDOW_NS);
		printf("%llu %.2f %.1f\n", (unsigned long long)now,
		       (double)(now - start) / (double)calls, (double)longest / 1e3);
		fflush(stdout);
		now = now_ns();
	}
	return x == 0;
}
