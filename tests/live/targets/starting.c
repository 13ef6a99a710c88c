/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -fno-ipa-cp -fno-ipa-icf */
/*
 * starting.c - a program in which things happen before main(), and that ends
 * with a status of its own.
 *
 * starting THREADS: constructors call prepare() 7 times; main() calls step()
 * 1000 times in each thread, prints "ready", then for "parent N" calls getppid()
 * N times and prints "done". Exits with 42 if all was right.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

static volatile int prepared, wrong;

__attribute__((noinline, noclone)) void prepare(int n)
{
	prepared += n;
}

__attribute__((constructor(101))) static void construct_early(void)
{
	prepare(1);
	prepare(2);
}

__attribute__((constructor)) static void construct(void)
{
	/* As Go's runtime does, which has used them up by then. */
	memset((void *)getauxval(AT_RANDOM), 0x5a, 16);
	for (int i = 3; i <= 7; i++)
		prepare(i);
}

__attribute__((noinline, noclone)) long step(long n)
{
	return n * 3 + prepared;
}

static void *steps(void *arg)
{
	for (long i = 0; i < 1000; i++)
		if (step(i) != i * 3 + 28)
			wrong = 1;
	return arg;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 1;
	pthread_t tids[64];
	char line[64];

	if (argc != 2 || strcmp(getenv("STARTING") ? getenv("STARTING") : "", "as told"))
		wrong = 1;
	for (int i = 0; i < threads; i++)
		pthread_create(&tids[i], NULL, steps, NULL);
	for (int i = 0; i < threads; i++)
		pthread_join(tids[i], NULL);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		pid_t parent = getppid();

		for (long n = atol(line + 7) - 1; n > 0; n--)
			if (getppid() != parent)
				wrong = 1;
		puts("done");
		fflush(stdout);
	}
	return wrong ? 1 : 42;
}
