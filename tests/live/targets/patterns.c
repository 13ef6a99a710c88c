/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -fno-ipa-icf -ldl */
/*
 * patterns.c - functions whose names in the file, as those of Go, look like patterns.
 *
 * patterns: loads libpatterns.so and prints "ready". "go N" calls them 1, 2, 4, 8 times in each of N
 * rounds, and that of the library 16 times, and prints "done". Exits with 1 if a result was wrong.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAMED(name) __asm__("\"" name "\"")

long lock(long n) NAMED("sync.(*Mutex).Lock");
long lock_both(long n) NAMED("sync.(*RWMutex).Lock");
long sum(long n) NAMED("main.Sum[go.shape.int]");
long sum_one(long n) NAMED("main.Sumo");

long lock(long n)
{
	return n * 3 + 1;
}

long lock_both(long n)
{
	return n * 5 + 2;
}

long sum(long n)
{
	return n * 3 + 5;
}

long sum_one(long n)
{
	return n * 9 + 4;
}

static long (*lock_library)(long n);

static int load(void)
{
	char path[4096];
	ssize_t size = readlink("/proc/self/exe", path, sizeof(path) - 32);
	void *library;

	if (size <= 0)
		return -1;
	path[size] = 0;
	snprintf(strrchr(path, '/') + 1, 32, "libpatterns.so");
	library = dlopen(path, RTLD_NOW);
	*(void **)&lock_library = library ? dlsym(library, "sync.(*LibraryMutex).Lock") : NULL;
	return lock_library ? 0 : -1;
}

static int times(long (*f)(long n), long count, long factor, long plus)
{
	int wrong = 0;

	for (volatile long i = 0; i < count; i++)
		wrong |= f(i) != i * factor + plus;
	return wrong;
}

int main(void)
{
	char line[64];
	int wrong = load();

	puts(wrong ? "wrong" : "ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		for (long n = atol(line + 3); n > 0; n--) {
			wrong |= times(lock, 1, 3, 1) | times(lock_both, 2, 5, 2);
			wrong |= times(sum, 4, 3, 5) | times(sum_one, 8, 9, 4);
			wrong |= times(lock_library, 16, 7, 1);
		}
		puts("done");
		fflush(stdout);
	}
	return wrong != 0;
}
