/* SPDX-License-Identifier: MIT */
/*
 * plain.c - the simplest target: some threads that call work() until the
 * standard input ends. `plain THREADS`; exits with 1 if a result was wrong,
 * else with 0, and prints how many calls were made.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_bool stop;
static atomic_ulong calls;
static atomic_bool wrong;

__attribute__((noinline)) uint64_t work(uint64_t a, uint64_t b);

uint64_t work(uint64_t a, uint64_t b)
{
	for (unsigned i = 0; i < 4; i++)
		a = a * 31 + (b ^ i);
	return a;
}

static void *thread_main(void *arg)
{
	const uint64_t seed = (uint64_t)(uintptr_t)arg, expected = work(seed, 7);
	unsigned long own = 1;

	while (!stop) {
		if (work(seed, 7) != expected)
			wrong = true;
		own++;
		usleep(200);
	}
	calls += own;
	return NULL;
}

int main(int argc, char **argv)
{
	size_t count = argc > 1 ? (size_t)atoi(argv[1]) : 2;
	pthread_t *threads = calloc(count, sizeof(*threads));
	char byte;

	for (size_t i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, thread_main, (void *)(uintptr_t)(i + 1));
	printf("ready\n");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		continue;
	stop = true;
	for (size_t i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	printf("calls %lu\n", (unsigned long)calls);
	free(threads);
	return wrong ? 1 : 0;
}
