/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -fno-ipa-cp -fno-ipa-icf -Wno-infinite-recursion */
/*
 * jumping.c - threads that leave functions by longjmp(), a known number of times;
 * in portable C, so that tests/live/builds.c can build it in many ways.
 *
 * jumping THREADS: prints "ready"; "go N" makes every thread do N rounds, each of
 * which calls leaf() four times and deep() three times, of which the innermost
 * is left with its callers by longjmp(); prints "done", or "wrong". Ends with its
 * input, and a status of 1 if anything was wrong.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#define NOINLINE __attribute__((noinline, noclone))

static volatile int wrong;
static unsigned long rounds;

#ifdef OWN_LEAF
long leaf(long a, long b);
#else
NOINLINE long leaf(long a, long b)
{
	__asm__ volatile("" ::: "memory");
	return a * 3 + b;
}
#endif

NOINLINE long deep(jmp_buf *out, long n)
{
	long value = leaf(n, 1);

	if (n == 0)
		longjmp(*out, (int)value + 6);
	value += deep(out, n - 1);
	__asm__ volatile("" ::: "memory");
	return value;
}

NOINLINE long round_trip(long n)
{
	jmp_buf out;
	int came;

	came = setjmp(out);
	if (came == 0)
		return deep(&out, 2) + n;
	return leaf(came, (int)n);
}

static void *work(void *arg)
{
	for (unsigned long i = 0; i < rounds; i++)
		if (round_trip((long)(i & 1023)) != 7 * 3 + (long)(i & 1023))
			wrong = 1;
	return arg;
}

static void run(int threads, unsigned long n)
{
	pthread_t tids[16];

	rounds = n;
	for (int i = 0; i < threads; i++)
		pthread_create(&tids[i], NULL, work, NULL);
	for (int i = 0; i < threads; i++)
		pthread_join(tids[i], NULL);
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 1;
	char line[64];

	/* The C library sets itself up for threads with the first. */
	run(threads, 1);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		run(threads, strtoul(line + 3, NULL, 10));
		puts(wrong ? "wrong" : "done");
		fflush(stdout);
	}
	return wrong;
}
