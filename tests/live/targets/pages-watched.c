/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -ldl -lpthread */
/*
 * pages-watched.c - a program that watches by userfaultfd(2) that pages of a library's text are
 * given back: who gives them back waits in the kernel until that is read.
 *
 * Loads a copy of libplugin.so from a memfd; one thread runs its own code all the time, and begins
 * it anew at SIGUSR1, wherever it was. Prints "ready <tid of that>". Commands:
 *   go N     calls the library's function N times; "done"
 *   watch    the library's text is watched; "watched", or "no WHY"
 *   read     reads what was given back, and watches no more; "pages N", 0 if none were
 *   rounds   "rounds N" of the thread so far
 * Exits with 1 if a result was wrong.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

enum { LIBRARY_MAX = 1 << 20 };

static int wrong, watching = -1;
static long (*work)(long);
static atomic_ulong rounds;
static atomic_int spinner_tid;
static atomic_bool over;
static sigjmp_buf again;

static void jump(int signal)
{
	siglongjmp(again, signal);
}

static void *spin(void *arg)
{
	sigsetjmp(again, 1);
	atomic_store(&spinner_tid, gettid());
	while (!atomic_load_explicit(&over, memory_order_relaxed))
		atomic_fetch_add_explicit(&rounds, 1, memory_order_relaxed);
	return arg;
}

static void load_library(void)
{
	char path[4096], *slash, *bytes = malloc(LIBRARY_MAX);
	ssize_t size = readlink("/proc/self/exe", path, sizeof(path) - 32);
	int fd, memory = memfd_create("plugin", MFD_CLOEXEC);
	void *plugin;

	path[size > 0 ? size : 0] = '\0';
	slash = strrchr(path, '/');
	if (!bytes || !slash)
		exit(2);
	snprintf(slash + 1, 32, "libplugin.so");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	size = read(fd, bytes, LIBRARY_MAX);
	close(fd);
	if (size <= 0 || write(memory, bytes, (size_t)size) != size)
		exit(2);
	free(bytes);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", memory);
	plugin = dlopen(path, RTLD_NOW);
	*(void **)&work = plugin ? dlsym(plugin, "plugin_work") : NULL;
	if (!work)
		exit(2);
}

/* The mapping that `address` lies in. */
static struct uffdio_range find(uintptr_t address)
{
	struct uffdio_range range = {0};
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[4096];

	while (maps && fgets(line, sizeof(line), maps)) {
		unsigned long lo, hi;

		if (sscanf(line, "%lx-%lx", &lo, &hi) == 2 && address >= lo && address < hi)
			range = (struct uffdio_range){.start = lo, .len = hi - lo};
	}
	if (maps)
		fclose(maps);
	return range;
}

static void watch(void)
{
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_EVENT_REMOVE};
	struct uffdio_register what = {.range = find((uintptr_t)work),
				       .mode = UFFDIO_REGISTER_MODE_MISSING};

	watching = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (watching >= 0 && !ioctl(watching, UFFDIO_API, &api) &&
	    !ioctl(watching, UFFDIO_REGISTER, &what)) {
		puts("watched");
		return;
	}
	printf("no userfaultfd: %s\n", strerror(errno));
	if (watching >= 0)
		close(watching);
	watching = -1;
}

static void read_what_came(void)
{
	struct uffd_msg message;
	unsigned long pages = 0;

	while (read(watching, &message, sizeof(message)) == sizeof(message))
		if (message.event == UFFD_EVENT_REMOVE)
			pages += (message.arg.remove.end - message.arg.remove.start) / 4096;
	close(watching);
	watching = -1;
	printf("pages %lu\n", pages);
}

static void go(long n)
{
	for (long i = 0; i < n; i++)
		wrong |= work(i) != i * 11 + 3;
}

int main(void)
{
	pthread_t spinner;
	char line[64];

	load_library();
	go(10);
	signal(SIGUSR1, jump);
	pthread_create(&spinner, NULL, spin, NULL);
	/* A thread that has only just been made still has all its signals blocked. */
	while (!atomic_load(&rounds))
		usleep(1000);
	printf("ready %d\n", atomic_load(&spinner_tid));
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		if (!strncmp(line, "go ", 3)) {
			go(atol(line + 3));
			puts("done");
		} else if (!strcmp(line, "watch")) {
			watch();
		} else if (!strcmp(line, "read")) {
			read_what_came();
		} else if (!strcmp(line, "rounds")) {
			printf("rounds %lu\n", atomic_load(&rounds));
		}
		fflush(stdout);
	}
	atomic_store(&over, true);
	pthread_join(spinner, NULL);
	return wrong;
}
