/* SPDX-License-Identifier: MIT */
/*
 * stack-places.c - stacks in unusual places. stack-places MODE:
 *
 *   shared  three threads whose stacks lie in one mapping of 256 MiB, at its low end
 *   deep    the main thread is 80 MiB deep in its stack
 *   split   two pages of the main thread's stack are kept out of core dumps
 *   thread  a thread is 24 MiB deep in a stack of its own; the address is at its other end
 *   guards  two threads and a context of the main thread's, on stacks in one mapping that guards
 *           are between which are no mappings; the address is 0 where there are no such guards
 *   array   the main thread is below an array of 90 MiB
 *
 * Prints after "ready" an address that every blocked thread will return to.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>
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
		if (!returns_to)
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

enum { GUARD_INSTALL = 102, GUARDED = 2 };

/* True if the kernel makes one there, and says so in pagemap. */
static int make_guard(char *page)
{
	uint64_t entry = 0;
	int fd, made = !madvise(page, 4096, GUARD_INSTALL);

	fd = open("/proc/self/pagemap", O_RDONLY);
	made = made && pread(fd, &entry, sizeof(entry), (off_t)((uintptr_t)page / 4096 * 8)) == 8;
	close(fd);
	return made && (entry >> 58 & 1);
}

static ucontext_t before, inside;

static void say_and_wait(void)
{
	say_ready();
	wait_for_end();
	setcontext(&before);
}

static int run_guards(void)
{
	char *memory = mmap(NULL, (size_t)4 * STACK, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	volatile int turns = 0;
	pthread_t threads[GUARDED];
	pthread_attr_t attr;

	if (memory == MAP_FAILED)
		return 2;
	for (int i = 0; i < 4; i++)
		if (!make_guard(memory + (size_t)i * STACK)) {
			say_ready();
			wait_for_end();
			return 0;
		}
	for (int i = 0; i < GUARDED; i++) {
		pthread_attr_init(&attr);
		pthread_attr_setstack(&attr, memory + (size_t)i * STACK, STACK);
		if (pthread_create(&threads[i], &attr, thread, NULL))
			return 2;
	}
	while (blocked < GUARDED)
		usleep(100);
	getcontext(&inside);
	inside.uc_stack.ss_sp = memory + (size_t)GUARDED * STACK;
	inside.uc_stack.ss_size = STACK;
	makecontext(&inside, say_and_wait, 0);
	getcontext(&before);
	if (!turns++)
		setcontext(&inside);
	close(wake[1]);
	for (int i = 0; i < GUARDED; i++)
		pthread_join(threads[i], NULL);
	return 0;
}

__attribute__((noinline, noclone)) static int dive(void)
{
	returns_to = (uintptr_t)__builtin_return_address(0);
	return descend(384) + 1;
}

static void *deep_thread(void *arg)
{
	*(int *)arg = dive() - 1;
	return NULL;
}

static int run_thread(void)
{
	pthread_attr_t attr;
	pthread_t id;
	int levels = 0;

	pthread_attr_init(&attr);
	if (pthread_attr_setstacksize(&attr, (size_t)40 << 20) ||
	    pthread_create(&id, &attr, deep_thread, &levels))
		return 2;
	pthread_join(id, NULL);
	return levels == 384 ? 0 : 1;
}

__attribute__((noinline, noclone)) static int run_array(void)
{
	volatile char array[90 << 20];

	array[0] = 1;
	returns_to = (uintptr_t)__builtin_return_address(0);
	say_ready();
	wait_for_end();
	return array[0] - 1;
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
	if (!strcmp(argv[1], "guards"))
		return run_guards();
	if (!strcmp(argv[1], "thread"))
		return run_thread();
	if (setrlimit(RLIMIT_STACK, &limit))
		return 2;
	if (!strcmp(argv[1], "array"))
		return run_array();
	return descend(1280) == 1280 ? 0 : 1;
}
