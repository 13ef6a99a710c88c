/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -fno-ipa-cp -fno-ipa-icf */
/*
 * fibers.c - threads whose stacks are of their own making: fibers that give way
 * to each other by swapcontext(3) from inside of several frames.
 *
 * fibers THREADS: prints "ready"; "go N" lets every fiber of every thread give
 * way N times and prints "done". Between two commands all fibers stand still in
 * the middle of their frames. Exits with 1 if a result was wrong.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

enum { FIBERS = 16, STACK = 32768, THREADS_MAX = 16 };

struct runner {
	ucontext_t main;
	ucontext_t fibers[FIBERS];
	char *stacks[FIBERS];
	long turns[FIBERS];
	int current;
	volatile int quit;
};

static struct runner runners[THREADS_MAX];
static __thread struct runner *own;
static volatile int wrong;
static long rounds;
static pthread_barrier_t start, finish;

NOINLINE void give_way(long n)
{
	struct runner *r = own;
	int i = r->current;

	r->turns[i]++;
	swapcontext(&r->fibers[i], &r->main);
	if (own != r || r->current != i || n < 0)
		wrong = 1;
}

NOINLINE long deeper(long n)
{
	give_way(n);
	return n + 1;
}

NOINLINE long deep(long n)
{
	return deeper(n * 2) * 3;
}

NOINLINE void fiber(int index)
{
	for (long n = 0; !own->quit; n++)
		if (deep(n) != (n * 2 + 1) * 3 || own->current != index)
			wrong = 1;
}

static void turn_all(struct runner *r)
{
	for (int i = 0; i < FIBERS; i++) {
		r->current = i;
		swapcontext(&r->main, &r->fibers[i]);
	}
}

static void *run(void *arg)
{
	struct runner *r = own = arg;

	for (int i = 0; i < FIBERS; i++) {
		r->stacks[i] = malloc(STACK);
		getcontext(&r->fibers[i]);
		r->fibers[i].uc_stack.ss_sp = r->stacks[i];
		r->fibers[i].uc_stack.ss_size = STACK;
		r->fibers[i].uc_link = &r->main;
		makecontext(&r->fibers[i], (void (*)(void))fiber, 1, i);
	}
	turn_all(r);
	for (;;) {
		pthread_barrier_wait(&start);
		if (rounds < 0)
			break;
		for (long n = 0; n < rounds; n++)
			turn_all(r);
		pthread_barrier_wait(&finish);
	}
	r->quit = 1;
	turn_all(r);
	return NULL;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 1;
	pthread_t handles[THREADS_MAX];
	char line[64];

	pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
	pthread_barrier_init(&finish, NULL, (unsigned)threads + 1);
	for (int i = 0; i < threads; i++)
		pthread_create(&handles[i], NULL, run, &runners[i]);
	rounds = 1;
	pthread_barrier_wait(&start);
	pthread_barrier_wait(&finish);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		rounds = strtol(line + 3, NULL, 10);
		pthread_barrier_wait(&start);
		pthread_barrier_wait(&finish);
		puts("done");
		fflush(stdout);
	}
	rounds = -1;
	pthread_barrier_wait(&start);
	for (int i = 0; i < threads; i++)
		pthread_join(handles[i], NULL);
	return wrong;
}
