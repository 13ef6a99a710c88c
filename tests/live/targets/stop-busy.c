/* SPDX-License-Identifier: MIT */
/*
 * stop-busy.c THREADS: threads that compute and check what they compute, until
 * standard input ends.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROUND = 10000, THREADS_MAX = 256 };

static atomic_int ended_input, wrong, running;

/* A generator with a known period position: ROUND steps from 1 give always the same. */
static uint64_t round_of(uint64_t value)
{
	for (int i = 0; i < ROUND; i++)
		value = value * 6364136223846793005ull + 1442695040888963407ull;
	return value;
}

static void *compute(void *arg)
{
	uint64_t expected = *(uint64_t *)arg;
	volatile uint64_t seed = 1;

	atomic_fetch_add(&running, 1);
	while (!ended_input)
		if (round_of(seed) != expected)
			wrong = 1;
	return NULL;
}

int main(int argc, char **argv)
{
	int wanted = argc > 1 ? atoi(argv[1]) : 4;
	int count = wanted < THREADS_MAX ? wanted : THREADS_MAX;
	pthread_t threads[THREADS_MAX];
	volatile uint64_t seed = 1;
	uint64_t expected = round_of(seed);
	char byte;

	for (int i = 0; i < count; i++)
		if (pthread_create(&threads[i], NULL, compute, &expected))
			return 2;
	while (running < count)
		usleep(1000);
	printf("ready\n");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	ended_input = 1;
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	return wrong;
}
