/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -ldl */
/*
 * loading.c - threads that hold the locks of the loader and of malloc nearly all
 * the time: each loads and unloads a library and allocates, again and again.
 *
 * loading THREADS: prints "ready", and begins at the first line that comes, so that what it is
 * compared with is no moment at which it has the library open. "turns" prints "turns N ...": how
 * often each thread has done so. Exits with 1 if the library did not do what it does.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS_MAX = 16 };

static atomic_long turns[THREADS_MAX];
static atomic_int over, wrong;
static char path[4096];
static pthread_barrier_t begun;

static void *work(void *arg)
{
	atomic_long *own = arg;

	pthread_barrier_wait(&begun);
	while (!over) {
		void *blocks[32], *library = dlopen(path, RTLD_NOW);
		long (*function)(long) = NULL;

		for (int i = 0; i < 32; i++)
			blocks[i] = malloc((size_t)(i + 1) * 40);
		if (library)
			*(void **)&function = dlsym(library, "plugin_work");
		if (!function || function(5) != 58)
			wrong = 1;
		for (int i = 0; i < 32; i++)
			free(blocks[i]);
		if (library)
			dlclose(library);
		++*own;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 1;
	pthread_t handles[THREADS_MAX];
	ssize_t size = readlink("/proc/self/exe", path, sizeof(path) - 32);
	char line[64];
	bool more;

	path[size > 0 ? size : 0] = '\0';
	snprintf(strrchr(path, '/') + 1, 32, "libplugin.so");
	pthread_barrier_init(&begun, NULL, (unsigned)threads + 1);
	for (int i = 0; i < threads; i++)
		pthread_create(&handles[i], NULL, work, &turns[i]);
	puts("ready");
	fflush(stdout);
	more = fgets(line, sizeof(line), stdin) != NULL;
	pthread_barrier_wait(&begun);
	for (; more; more = fgets(line, sizeof(line), stdin) != NULL) {
		printf("turns");
		for (int i = 0; i < threads; i++)
			printf(" %ld", (long)turns[i]);
		puts("");
		fflush(stdout);
	}
	over = 1;
	for (int i = 0; i < threads; i++)
		pthread_join(handles[i], NULL);
	return wrong;
}
