/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -fno-ipa-cp -fno-ipa-icf */
/*
 * calls.c - threads that call functions of many shapes, a known number of times.
 *
 * calls THREADS: prints "ready"; "go N" makes every thread call every function
 * N times, checks all results, and prints "done", or "wrong". Ends with its input.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline, noclone))
/* Keeps the compiler from seeing that a call could be left out or made once. */
#define OPAQUE __asm__ volatile("" ::: "memory")

static volatile int wrong;
static pthread_barrier_t start, finish;
static unsigned long rounds;

NOINLINE int tiny(void)
{
	OPAQUE;
	return 0;
}

NOINLINE long leaf(long a, long b)
{
	OPAQUE;
	return a * 3 + b;
}

NOINLINE long branchy(long a)
{
	OPAQUE;
	if (a & 1)
		return leaf(a, 1);
	if (a & 2)
		return leaf(a, 2) * 7;
	return a;
}

NOINLINE long recursive(long n)
{
	OPAQUE;
	return n <= 1 ? 1 : recursive(n - 1) + leaf(n, 0);
}

NOINLINE long tail(long a)
{
	OPAQUE;
	return branchy(a + 1);
}

NOINLINE double floating(double a, double b)
{
	OPAQUE;
	return a * b + 1.5;
}

typedef long (*operation)(long);
static operation volatile operations[3] = {branchy, tail, recursive};

NOINLINE long indirect(long a)
{
	OPAQUE;
	return operations[a % 3](a & 7) + 1;
}

NOINLINE uint64_t many(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f,
		       uint64_t g, uint64_t h)
{
	OPAQUE;
	return a ^ (b << 1) ^ (c << 2) ^ (d << 3) ^ (e << 4) ^ (f << 5) ^ (g << 6) ^ (h << 7);
}

NOINLINE int strange(const char *text)
{
	char copy[64];

	OPAQUE;
	strncpy(copy, text, sizeof(copy) - 1);
	copy[sizeof(copy) - 1] = 0;
	return (int)strlen(copy);
}

static void work(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++) {
		long v = (long)i;
		long b = v & 1 ? v * 3 + 1 : v & 2 ? (v * 3 + 2) * 7 : v;

		if (tiny() != 0 || leaf(v, 5) != v * 3 + 5 || branchy(v) != b ||
		    recursive(4) != 1 + 6 + 9 + 12 ||
		    floating(2.0, (double)v) != 2.0 * (double)v + 1.5)
			wrong = 1;
		if (tail(v) == -12345 || indirect(v) == -12345)
			wrong = 1;
		if (many(1, 2, 3, 4, 5, 6, 7, i) !=
		    (1ull ^ 4 ^ 12 ^ 32 ^ 80 ^ 192 ^ 448 ^ ((uint64_t)i << 7)))
			wrong = 1;
		if (strange("twelve chars") != 12)
			wrong = 1;
	}
}

static void *thread(void *arg)
{
	pthread_barrier_wait(&finish);
	for (;;) {
		pthread_barrier_wait(&start);
		if (!rounds)
			return arg;
		work(rounds);
		pthread_barrier_wait(&finish);
	}
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 1;
	pthread_t tids[256];
	char line[64];

	pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
	pthread_barrier_init(&finish, NULL, (unsigned)threads + 1);
	for (int i = 0; i < threads; i++)
		pthread_create(&tids[i], NULL, thread, NULL);
	/* A thread that has only just been made still has all its signals blocked. */
	pthread_barrier_wait(&finish);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		rounds = strtoul(line + 3, NULL, 10);
		pthread_barrier_wait(&start);
		pthread_barrier_wait(&finish);
		puts(wrong ? "wrong" : "done");
		fflush(stdout);
	}
	rounds = 0;
	pthread_barrier_wait(&start);
	for (int i = 0; i < threads; i++)
		pthread_join(tids[i], NULL);
	return wrong;
}
