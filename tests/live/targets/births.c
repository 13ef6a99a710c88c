/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline */
/*
 * births.c - threads that are born and die all the time, and threads that are
 * moved from CPU to CPU all the time.
 *
 * births: prints "ready". Commands, each answered with "done":
 *   born N M     N threads one after the other in 4 rows; each calls tick() M times
 *   moved N      4 threads call tick() N times while they are moved between CPUs
 * Exits with 1 if a result was wrong.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 4, STACK = 64 * 1024 };

static volatile int wrong;
static volatile int finished;
static long calls;
static char stacks[ROWS + 1][STACK] __attribute__((aligned(4096)));

__attribute__((noinline, noclone)) long tick(long n)
{
	return n * 9 + 4;
}

static void *ticks(void *arg)
{
	for (long i = 0; i < calls; i++)
		if (tick(i) != i * 9 + 4)
			wrong = 1;
	return arg;
}

static void start(pthread_t *t, int row, void *(*function)(void *), void *arg)
{
	pthread_attr_t attributes;

	pthread_attr_init(&attributes);
	pthread_attr_setstack(&attributes, stacks[row], STACK);
	if (pthread_create(t, &attributes, function, arg))
		wrong = 1;
	pthread_attr_destroy(&attributes);
}

static void born(long n)
{
	pthread_t rows[ROWS];

	for (long i = 0; i < n; i += ROWS) {
		for (int r = 0; r < ROWS; r++)
			start(&rows[r], r, ticks, NULL);
		for (int r = 0; r < ROWS; r++)
			pthread_join(rows[r], NULL);
	}
}

static void *moving(void *arg)
{
	ticks(arg);
	__atomic_add_fetch(&finished, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void moved(void)
{
	int cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
	pthread_t rows[ROWS];
	cpu_set_t all;

	sched_getaffinity(0, sizeof(all), &all);
	finished = 0;
	for (int r = 0; r < ROWS; r++)
		start(&rows[r], r, moving, NULL);
	for (unsigned i = 0; finished < ROWS; i++) {
		for (int r = 0; r < ROWS; r++) {
			cpu_set_t one;

			CPU_ZERO(&one);
			CPU_SET((i + (unsigned)r) % (unsigned)cpus, &one);
			pthread_setaffinity_np(rows[r], sizeof(one), &one);
		}
		usleep(200);
	}
	for (int r = 0; r < ROWS; r++)
		pthread_join(rows[r], NULL);
}

int main(void)
{
	char line[64];
	long n, m;

	/* libc installs a handler of its own with the first thread. */
	calls = 1;
	born(ROWS);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "born %ld %ld", &n, &m) == 2) {
			calls = m;
			born(n);
		} else if (sscanf(line, "moved %ld", &n) == 1) {
			calls = n;
			moved();
		}
		puts("done");
		fflush(stdout);
	}
	return wrong;
}
