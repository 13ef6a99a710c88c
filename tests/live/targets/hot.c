/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-builtin */
/*
 * hot.c - a program that does nothing but call strlen(), as often as it can.
 *
 * Prints "ready". "cost" prints "cost PS CALLS": the least CPU time that a call took, in picoseconds,
 * over the next hundred rounds of 20,000 calls each, and how many calls there were since the start,
 * those included. "still" ends the calls and prints "still CALLS". Exits with 1 if a length was wrong.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROUND = 20000, ROUNDS = 100 };

static const char words[][16] = {"a", "word", "eleven long", ""};
static atomic_int over, wrong;
static atomic_long rounds;
static atomic_long best_ps;

static long cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000 + t.tv_nsec;
}

static void *work(void *arg)
{
	while (!over) {
		const long begun = cpu_ns();
		size_t sum = 0;
		long ps;

		for (int i = 0; i < ROUND; i++)
			sum += strlen(words[i % 4]);
		ps = (cpu_ns() - begun) * 1000 / ROUND;
		if (sum != 16 * (ROUND / 4))
			wrong = 1;
		if (ps < best_ps)
			best_ps = ps;
		rounds++;
	}
	return arg;
}

static void tell_cost(void)
{
	const long from = rounds;

	/* The round that is under way began before we were asked. */
	while (rounds < from + 1)
		usleep(100);
	best_ps = INT64_MAX;
	while (rounds < from + 1 + ROUNDS)
		usleep(100);
	printf("cost %ld %ld\n", (long)best_ps, (long)rounds * ROUND);
}

int main(void)
{
	pthread_t thread;
	char line[64];

	best_ps = INT64_MAX;
	pthread_create(&thread, NULL, work, NULL);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "cost\n"))
			tell_cost();
		if (!strcmp(line, "still\n")) {
			over = 1;
			pthread_join(thread, NULL);
			printf("still %ld\n", (long)rounds * ROUND);
		}
		fflush(stdout);
	}
	if (!over) {
		over = 1;
		pthread_join(thread, NULL);
	}
	return wrong;
}
