/* SPDX-License-Identifier: MIT */
/* build: -O2 -rdynamic */
/*
 * mdl_memory.c - allocates, changes and frees blocks of all sizes by every
 * function of the C library that does, and knows how much: mallinfo2() says what
 * is in use. The thread caches are off, since what lies in them counts as used.
 *
 * Prints "ready". Commands:
 *   go N     N random operations; "calls N bytes N": asked for, as the program sees it
 *   info     "used N": mallinfo2().uordblks + hblkhd
 *   drop     frees all
 *   align N  N blocks aligned as malloc aligns, and as many that are not; "calls N bytes N"
 */
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 500 };

static void *blocks[BLOCKS];
static uint64_t seed = 88172645463325252ull;
static long calls, bytes;

static uint64_t next(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static size_t some_size(void)
{
	const unsigned kind = next() % 20;

	return kind == 0  ? 200000 + next() % 400000 /* its own mapping */
	       : kind < 4 ? 1 + next() % 60000
			  : 1 + next() % 900;
}

static void *allocate(size_t size)
{
	void *p = NULL;

	calls++;
	bytes += (long)size;
	switch (next() % 6) {
	case 0:
		return calloc(1, size);
	case 1:
		/* a mapping's bytes in front of an aligned block are nobody's */
		if (size > 100000)
			return malloc(size);
		return posix_memalign(&p, 16u << next() % 5, size) == 0 ? p : NULL;
	case 2:
		return realloc(NULL, size);
	default:
		return malloc(size);
	}
}

static void once(void)
{
	void **p = &blocks[next() % BLOCKS];
	size_t size;

	if (!*p) {
		*p = allocate(some_size());
	} else if (next() % 3 == 0) {
		size = some_size();
		calls++;
		bytes += (long)size;
		*p = realloc(*p, size);
		if (!*p)
			exit(1);
	} else {
		free(*p);
		*p = NULL;
	}
}

static void align(long n)
{
	void *volatile p;

	for (long i = 0; i < n; i++) {
		p = aligned_alloc(i % 2 ? 16 : 64, 128);
		free(p);
		p = malloc(128);
		free(p);
	}
	calls = 2 * n;
	bytes = calls * 128;
}

int main(int argc, char **argv)
{
	char line[100];
	long n;

	(void)argc;
	if (!getenv("GLIBC_TUNABLES")) {
		setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
		execv("/proc/self/exe", argv);
		return 1;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "go %ld", &n) == 1) {
			calls = bytes = 0;
			for (long i = 0; i < n; i++)
				once();
			printf("calls %ld bytes %ld\n", calls, bytes);
		} else if (sscanf(line, "align %ld", &n) == 1) {
			align(n);
			printf("calls %ld bytes %ld\n", calls, bytes);
		} else if (!strncmp(line, "info", 4)) {
			const struct mallinfo2 m = mallinfo2();

			printf("used %zu\n", m.uordblks + m.hblkhd);
		} else if (!strncmp(line, "drop", 4)) {
			for (n = 0; n < BLOCKS; n++) {
				free(blocks[n]);
				blocks[n] = NULL;
			}
			puts("done");
		}
	}
	return 0;
}
