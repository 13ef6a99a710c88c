/* SPDX-License-Identifier: MIT */
/*
 * crowd.c - very many threads, none of which does anything.
 *
 * crowd THREADS: prints "ready" when there are so many beside the first one. Ends with its input, with
 * status 0; 2 where so many cannot be had.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { STACK = 32 << 10 };

static void *wait_for_the_end(void *arg)
{
	for (;;)
		pause();
	return arg;
}

int main(int argc, char **argv)
{
	const long count = argc > 1 ? strtol(argv[1], NULL, 10) : 1;
	pthread_attr_t small;
	pthread_t thread;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, STACK);
	for (long n = 0; n < count; n++)
		if (pthread_create(&thread, &small, wait_for_the_end, NULL))
			return 2;
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		continue;
	_exit(0);
}
