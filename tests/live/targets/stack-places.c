/* SPDX-License-Identifier: MIT */
/*
 * stack-places.c - stacks in unusual places. stack-places MODE:
 *
 *   shared  three threads whose stacks lie in one mapping of 256 MiB, at its low end
 *   deep    the main thread is 80 MiB deep in its stack
 *   split   two pages of the main thread's stack are kept out of core dumps
 *
 * Prints after "ready" an address that every blocked thread will return to.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { THREADS = 3, STACK = 1 << 20 };

static int wake[2];
static volatile int blocked;
static volatile uintptr_t returns_to;

__attribute__((noinline, noclone)) static void block(void)
{
	char byte;

	returns_to = (uintptr_t)__builtin_return_address(0);
	__atomic_add_fetch(&blocked, 1, __ATOMIC_SEQ_CST);
	while (read(wake[0], &byte, 1) < 0)
		continue;
}

static void *thread(void *arg)
{
	block();
	__asm__ volatile("" ::: "memory");
	return arg;
}

static void say_ready(void)
{
	printf("ready\n%lx\n", (unsigned long)returns_to);
	fflush(stdout);
}

static void wait_for_end(void)
{
	char byte;

	while (read(STDIN_FILENO, &byte, 1) > 0)
		continue;
}

/* A page at each level, to the bottom; every level's result is checked. */
__attribute__((noinline, noclone)) static int descend(int levels)
{
	volatile char frame[65536];

	frame[0] = (char)levels;
	if (!levels) {
		returns_to = (uintptr_t)__builtin_return_address(0);
		say_ready();
		wait_for_end();
		return 0;
	}
	return descend(levels - 1) + (frame[0] == (char)levels ? 1 : -1000);
}

static int run_shared(void)
{
	char *memory = mmap(NULL, (size_t)256 << 20, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	pthread_t threads[THREADS];
	pthread_attr_t attr;

	if (memory == MAP_FAILED)
		return 2;
	for (int i = 0; i < THREADS; i++) {
		pthread_attr_init(&attr);
		pthread_attr_setstack(&attr, memory + (size_t)i * STACK, STACK);
		if (pthread_create(&threads[i], &attr, thread, NULL))
			return 2;
	}
	while (blocked < THREADS)
		usleep(100);
	say_ready();
	wait_for_end();
	close(wake[1]);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}

/* As a library for secrets does with a variable; between two of them somebody is called. */
__attribute__((noinline, noclone)) static int run_split(int again)
{
	volatile char secret[3 * 4096];
	const uintptr_t page = ((uintptr_t)secret + 4095) & ~(uintptr_t)4095;

	if (madvise((void *)page, 4096, MADV_DONTDUMP))
		return 2;
	if (again)
		return run_split(0) + secret[page - (uintptr_t)secret];
	returns_to = (uintptr_t)__builtin_return_address(0);
	say_ready();
	wait_for_end();
	return secret[0] = 0;
}

int main(int argc, char **argv)
{
	struct rlimit limit = {(rlim_t)100 << 20, (rlim_t)100 << 20};

	if (pipe(wake) || argc < 2)
		return 2;
	if (!strcmp(argv[1], "shared"))
		return run_shared();
	if (!strcmp(argv[1], "split"))
		return run_split(1) ? 2 : 0;
	if (setrlimit(RLIMIT_STACK, &limit))
		return 2;
	return descend(1280) == 1280 ? 0 : 1;
}
