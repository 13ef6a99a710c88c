/* SPDX-License-Identifier: MIT */
/*
 * call_tree.c - a program whose call tree is known: for each call of work(), in each of two threads,
 *
 *   work
 *     middle x 3          each: leaf x 4
 *     through a pointer: target_a when the round is even, else target_b; both call leaf once
 *     jumper              calls jumped, which jumps out (longjmp) and is called again
 *     qsort               of libc, calls compare back
 *     recurse             five deep
 *   leaf                  also called outside of work
 *   relay                 calls passer, which jumps to sender through a pointer
 *
 * `call_tree US`: so many microseconds between two rounds. Runs until its standard input ends.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CALLED __attribute__((noinline, noclone, noipa))

static volatile long sink;
static volatile int stop;
static unsigned pause_us = 500;

CALLED void leaf(void)
{
	for (int i = 0; i < 20; i++)
		sink += i;
}

CALLED void middle(void)
{
	for (int i = 0; i < 4; i++)
		leaf();
	sink++;
}

CALLED void target_a(void)
{
	leaf();
	sink++;
}

CALLED void target_b(void)
{
	leaf();
	sink--;
}

void (*volatile pointers[2])(void) = {target_a, target_b};

CALLED void jumped(jmp_buf *where, int jump)
{
	if (jump)
		longjmp(*where, 1);
	sink++;
}

CALLED void jumper(void)
{
	jmp_buf where;

	if (!setjmp(where))
		jumped(&where, 1);
	jumped(&where, 0);
	sink++;
}

CALLED int compare(const void *a, const void *b)
{
	sink++;
	return *(const int *)a - *(const int *)b;
}

CALLED void recurse(int depth)
{
	if (depth > 1)
		recurse(depth - 1);
	sink++;
}

CALLED void never(void)
{
	sink++;
}

CALLED void work(long round)
{
	int pair[2] = {2, 1};

	for (int i = 0; i < 3; i++)
		middle();
	pointers[round % 2]();
	jumper();
	qsort(pair, 2, sizeof(*pair), compare);
	recurse(5);
	if (round < 0)
		never();
	sink++;
}

CALLED void sender(void)
{
	sink++;
}

void (*volatile senders[2])(void) = {sender, sender};

/* Ends by a jump through a pointer. */
CALLED void passer(long round)
{
	sink++;
	senders[round % 2]();
}

CALLED void relay(long round)
{
	passer(round);
	sink++;
}

static void *run(void *arg)
{
	(void)arg;
	for (long round = 0; !stop; round++) {
		leaf();
		work(round);
		relay(round);
		usleep(pause_us);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[2];
	char c;

	if (argc > 1)
		pause_us = (unsigned)atoi(argv[1]);
	for (int i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, run, NULL))
			return 1;
	puts("ready");
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
	stop = 1;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
