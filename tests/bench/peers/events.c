/* SPDX-License-Identifier: MIT */
/*
 * events.c - a million events a second, for tools that write each of them down: two threads
 * call a function of a microsecond and do something else for three, as fast as they can.
 *
 *   events                    prints how many rounds of either loop are a microsecond
 *   events ROUNDS SECONDS     so many rounds a microsecond
 *
 * Every 50 ms it prints the time (ns, CLOCK_MONOTONIC), how many calls both threads have made
 * and the CPU time that they have taken (ns), since the beginning. tests/bench/table.py builds and
 * runs it.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS = 2, CALL_US = 1, REST_US = 3, WINDOW_NS = 50 * 1000 * 1000 };

#define PLAIN __attribute__((no_instrument_function))

struct worker {
	pthread_t thread;
	clockid_t clock;
	unsigned long calls;
	char apart[128];
};

static struct worker workers[THREADS];
static unsigned long rounds;
static int over;

unsigned long work(unsigned long x, unsigned long n);

__attribute__((noinline, noclone)) unsigned long work(unsigned long x, unsigned long n)
{
	while (n--) {
		x = x * 6364136223846793005UL + 1442695040888963407UL;
		__asm__ volatile("" : "+r"(x));
	}
	return x;
}

PLAIN __attribute__((noinline, noclone)) static unsigned long rest(unsigned long x, unsigned long n)
{
	while (n--) {
		x = x * 6364136223846793005UL + 1442695040888963407UL;
		__asm__ volatile("" : "+r"(x));
	}
	return x;
}

static PLAIN uint64_t now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static PLAIN void *run(void *arg)
{
	struct worker *w = arg;
	unsigned long x = 1;

	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		x = work(x, CALL_US * rounds);
		x = rest(x, REST_US * rounds);
		__atomic_store_n(&w->calls, w->calls + 1, __ATOMIC_RELAXED);
	}
	return x ? NULL : arg;
}

/* The least of many: what it takes when nobody is in the way. */
static PLAIN int calibrate(void)
{
	enum { TRIES = 200, MANY = 20000 };
	uint64_t least = UINT64_MAX;
	unsigned long x = 1;

	for (int i = 0; i < TRIES; i++) {
		const uint64_t begin = now_ns(CLOCK_MONOTONIC);
		uint64_t took;

		x = rest(x, MANY);
		took = now_ns(CLOCK_MONOTONIC) - begin;
		least = took < least ? took : least;
	}
	printf("%lu\n", (unsigned long)(MANY * 1000ull / least) + (x == 0));
	return 0;
}

static PLAIN void tell(void)
{
	unsigned long calls = 0;
	uint64_t cpu = 0;

	for (int i = 0; i < THREADS; i++) {
		calls += __atomic_load_n(&workers[i].calls, __ATOMIC_RELAXED);
		cpu += now_ns(workers[i].clock);
	}
	printf("%llu %lu %llu\n", (unsigned long long)now_ns(CLOCK_MONOTONIC), calls,
	       (unsigned long long)cpu);
	fflush(stdout);
}

PLAIN int main(int argc, char **argv)
{
	const struct timespec window = {0, WINDOW_NS};
	uint64_t end;

	if (argc < 3)
		return calibrate();
	rounds = strtoul(argv[1], NULL, 10);
	end = now_ns(CLOCK_MONOTONIC) + strtoull(argv[2], NULL, 10) * 1000000000;
	for (int i = 0; i < THREADS; i++) {
		pthread_create(&workers[i].thread, NULL, run, &workers[i]);
		pthread_getcpuclockid(workers[i].thread, &workers[i].clock);
	}
	while (now_ns(CLOCK_MONOTONIC) < end) {
		nanosleep(&window, NULL);
		tell();
	}
	__atomic_store_n(&over, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	return 0;
}
