/* SPDX-License-Identifier: MIT */
/* build: -O2 -rdynamic -fno-inline -fno-optimize-sibling-calls */
/*
 * ended-threads.c - threads that call a function and end, and what they leave in
 * the memory that the C library keeps for the next ones.
 *
 * Prints "ready". Command:
 *   go N      THREADS threads, all at once, call last_words() N times each, and end;
 *             "left L of THREADS": how many struct rseq of theirs name a sequence, still
 */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/rseq.h>

enum { THREADS = 24, STACK = 64 << 10 }; /* few enough bytes that all are kept */

static pthread_barrier_t all_here;
static const volatile uint64_t *words[THREADS]; /* rseq_cs of each */
static long rounds;

volatile unsigned long sink;

__attribute__((noinline, noclone)) unsigned long last_words(unsigned long n)
{
	sink = n;
	return n * 3 + 1;
}

static void *run(void *arg)
{
	const volatile uint64_t **word = arg;

	*word = (const volatile uint64_t *)((uintptr_t)__builtin_thread_pointer() +
					    (uintptr_t)__rseq_offset +
					    offsetof(struct rseq, rseq_cs));
	/* One after the other they would all get the same memory. */
	pthread_barrier_wait(&all_here);
	for (long i = 0; i < rounds; i++)
		last_words((unsigned long)i);
	return NULL;
}

static unsigned go(void)
{
	pthread_t threads[THREADS];
	pthread_attr_t small;
	unsigned left = 0;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, STACK);
	pthread_barrier_init(&all_here, NULL, THREADS);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], &small, run, &words[i]))
			abort();
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&all_here);
	pthread_attr_destroy(&small);
	for (int i = 0; i < THREADS; i++)
		left += *words[i] != 0;
	return left;
}

int main(void)
{
	char line[64];

	go(); /* once: from now on there is the memory for them */
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin) && sscanf(line, "go %ld", &rounds) == 1) {
		printf("left %u of %d\n", go(), THREADS);
		fflush(stdout);
	}
	return 0;
}
