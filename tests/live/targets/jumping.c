/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -fno-ipa-cp -fno-ipa-icf -Wno-infinite-recursion */
/*
 * jumping.c - threads that leave functions by longjmp(), a known number of times;
 * in portable C, so that tests/live/builds.c can build it in many ways.
 *
 * jumping THREADS: prints "ready"; "go N" makes every thread do N rounds, each of
 * which calls choose() once, leaf() four times and deep() three times, of which the innermost
 * is left with its callers by longjmp(); prints "done", or "wrong". Ends with its
 * input, and a status of 1 if anything was wrong.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#define NOINLINE __attribute__((noinline, noclone))

static volatile int wrong;
static _Thread_local volatile int chosen;
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

struct leaver {
	long (*leave)(const struct leaver *l, long n);
	long value;
};

NOINLINE long left(const struct leaver *l, long n)
{
	return l->value + n;
}

/* A switch, whose cases end as the function does: by a jump to somebody else. */
NOINLINE long choose(const struct leaver *l, long n)
{
	switch (n & 7) {
	case 0:
		chosen = 7;
		break;
	case 1:
		chosen += 3;
		break;
	case 2:
		chosen *= 5;
		break;
	case 3:
		chosen ^= 9;
		break;
	case 4:
		chosen -= 11;
		break;
	case 5:
		chosen |= 1;
		break;
	case 6:
		return left(l, n) * 2 - l->value - n;
	default:
		break;
	}
	return l->leave(l, n);
}

NOINLINE long round_trip(long n)
{
	const struct leaver l = {left, n};
	jmp_buf out;
	int came;

	if (choose(&l, n) != n * 2)
		wrong = 1;

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
