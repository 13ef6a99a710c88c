/* SPDX-License-Identifier: MIT */
/* build: -g0 -rdynamic -fno-builtin */
/*
 * mdl_own.c - functions of its own in the place of the C library's, as allocators
 * that are linked in have them, and without debug information: what they take and
 * give is in registers, and nobody says how much of these is meant.
 *
 * Prints "ready". Commands, each answered by "done":
 *   grow N   realloc of nothing to 100 bytes, and of that to 200
 *   sync N   fsync, which fails
 *   tee N    tee of descriptor 7, with something else in the register's upper half: 5 bytes
 *   nap N    nanosleep of the C library
 *   edge N   on_edge(5) on a stack that ends, and all memory with it, right above what it needs
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#define KEEP __attribute__((noinline, noclone, used, externally_visible))

static char pool[1 << 24] __attribute__((aligned(64)));
static size_t taken;
static volatile int failure = -1;

static inline __attribute__((always_inline)) void *take(size_t size)
{
	const size_t all = (size + 15) / 16 * 16 + 16;
	const size_t at = __atomic_fetch_add(&taken, all, __ATOMIC_RELAXED);

	if (size > sizeof(pool) || at + all > sizeof(pool))
		return NULL;
	memcpy(pool + at, &size, sizeof(size));
	return pool + at + 16;
}

KEEP void *malloc(size_t size)
{
	return take(size);
}

KEEP void free(void *p)
{
	__asm__ volatile("" : : "r"(p));
}

KEEP void *calloc(size_t count, size_t size)
{
	return take(count * size);
}

KEEP void *realloc(void *p, size_t size)
{
	void *to = take(size);
	size_t old = 0;

	if (p)
		memcpy(&old, (char *)p - 16, sizeof(old));
	if (p && to)
		memcpy(to, p, old < size ? old : size);
	return to;
}

KEEP int fsync(int fd)
{
	__asm__ volatile("" : : "r"(fd));
	return failure;
}

KEEP long tee(long in, long out, size_t size, unsigned flags)
{
	__asm__ volatile("" : : "r"(in), "r"(out), "r"(flags));
	return (long)size;
}

KEEP void grow(void)
{
	void *volatile p = realloc(NULL, 100);

	p = realloc(p, 200);
}

KEEP int sync_it(void)
{
	const int result = fsync(7);

	__asm__ volatile("");
	return result;
}

KEEP void nap(void)
{
	const struct timespec t = {.tv_nsec = 1000};

	nanosleep(&t, NULL);
	__asm__ volatile("");
}

KEEP long on_edge(long n)
{
	__asm__ volatile("" : "+r"(n));
	return n;
}

static ucontext_t here, there;

static void edge(void)
{
	enum { STACK = 65536 };
	char *stack = mmap(NULL, 2 * STACK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (stack == MAP_FAILED || mprotect(stack, STACK, PROT_READ | PROT_WRITE) ||
	    getcontext(&there))
		return;
	there.uc_stack.ss_sp = stack;
	there.uc_stack.ss_size = STACK;
	there.uc_link = &here;
	makecontext(&there, (void (*)(void))on_edge, 1, 5);
	swapcontext(&here, &there);
	munmap(stack, 2 * STACK);
}

int main(void)
{
	char line[100], name[32];
	long rounds;

	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "%31s %ld", name, &rounds) != 2)
			continue;
		for (long i = 0; i < rounds; i++)
			if (!strcmp(name, "grow"))
				grow();
			else if (!strcmp(name, "sync"))
				sync_it();
			else if (!strcmp(name, "tee"))
				tee(7 | 5l << 40, 8, 5, 0);
			else if (!strcmp(name, "edge"))
				edge();
			else
				nap();
		puts("done");
	}
	return 0;
}
