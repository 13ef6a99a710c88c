/* SPDX-License-Identifier: MIT */
/* build: -mno-red-zone */
/*
 * arena-rseq.c - threads that call whatever `function` points to, with some
 * work in between and without a system call.
 *
 * Prints the addresses of `function`, of a function that does nothing, and of
 * `turns` (how often it went round), after "ready". Ends with its input.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

static void nothing(void)
{
}

static void (*volatile function)(void) = nothing;
static volatile unsigned long turns;
static volatile int stop, started;

static void *work(void *arg)
{
	__atomic_add_fetch(&started, 1, __ATOMIC_SEQ_CST);
	while (!stop) {
		/* One instruction reads the pointer and calls: there is no moment in between. */
		__asm__ volatile("call *%0"
				 :
				 : "m"(function)
				 : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11",
				   "memory");
		for (volatile int i = 0; i < 3000; i++)
			;
		turns++;
	}
	return arg;
}

int main(void)
{
	enum { THREADS = 3 };
	pthread_t threads[THREADS];
	char byte;

	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	/* A thread that has only just been made still has its signals blocked. */
	while (started < THREADS || !turns)
		usleep(100);
	printf("ready\n%lx\n%lx\n%lx\n", (unsigned long)(uintptr_t)&function,
	       (unsigned long)(uintptr_t)nothing, (unsigned long)(uintptr_t)&turns);
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		continue;
	stop = 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return turns ? 0 : 1;
}
