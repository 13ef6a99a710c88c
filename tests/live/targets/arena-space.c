/* SPDX-License-Identifier: MIT */
/*
 * arena-space.c - programs in whose address spaces an arena is made.
 *
 * arena-space MODE [ARG]; modes:
 *   threads  nothing special
 *   crowded  2 GiB and more either side of the text is taken but for single pages
 *   hole     the same, with one hole of ARG MiB
 *   fsize    RLIMIT_FSIZE is 4096
 *   nolow    nothing is free below 2 GiB
 *   grows    there is a stack of the program's own below 2 GiB (MAP_GROWSDOWN)
 *   as       RLIMIT_AS leaves ARG MiB
 *   data     RLIMIT_DATA leaves ARG MiB
 *   unshare  each thread but the first has a descriptor table of its own
 *   leaderless the first thread exits
 *   noexec   a child in a pid namespace where no memfd may be executable; "pid" names it
 *
 * Commands on standard input, one answer each:
 *   text            an address in this program's text
 *   libc            an address in the C library's text
 *   attack LO HI    tries to make [LO, HI) writable in every way; "held", or what worked
 *   sum ADDRESS     calls the code at ADDRESS (no arguments); its result
 *   pid             the process that is meant, as seen from outside
 *   room MIB        "enough" if it can have so much more memory, for a moment
 *   grow KIB        uses so much more of its own stack; "grown"
 *   fork            makes a child that sleeps until the end; its pid
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((uintptr_t)1 << 20)

static atomic_int stop, own_descriptors;
static pid_t child, outer_pid;

static void *work(void *arg)
{
	volatile unsigned long *count = arg;

	if (own_descriptors && unshare(CLONE_FILES))
		return NULL;

	while (!stop) {
		++*count;
		if (*count % 4096 == 0)
			usleep(100);
	}
	return NULL;
}

/* Takes [lo, hi) wherever it is free, in pieces of 32 MiB less one page. */
static void crowd(uintptr_t lo, uintptr_t hi)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
	size_t size = 32 * MIB - 4096;

	while (lo < hi) {
		if (mmap((void *)lo, size, PROT_NONE, flags, -1, 0) != MAP_FAILED) {
			lo += size + 4096;
			size = 32 * MIB - 4096;
		} else if (size > 4096) {
			size = size / 2 / 4096 * 4096;
		} else {
			lo += 4096;
			size = 32 * MIB - 4096;
		}
	}
}

static void crowd_around(uintptr_t at, unsigned long hole)
{
	uintptr_t lo = at / (32 * MIB) * (32 * MIB);

	/* The hole is kept free by taking it first and giving it back last. */
	uintptr_t kept = lo - 1024 * MIB;
	void *p = MAP_FAILED;

	if (hole)
		p = mmap((void *)kept, hole * MIB, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	crowd(lo - 2304 * MIB, lo + 2304 * MIB);
	if (p != MAP_FAILED)
		munmap(p, hole * MIB);
}

static void set_limit(int which, rlim_t value)
{
	struct rlimit limit = {value, value};

	if (setrlimit(which, &limit))
		exit(2);
}

static unsigned long used_pages(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	unsigned long pages = 0;

	if (!f || fscanf(f, "%lu", &pages) != 1)
		exit(2);
	fclose(f);
	return pages;
}

static unsigned long data_bytes(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	unsigned long kib = 0;
	char row[256];

	while (f && fgets(row, sizeof(row), f) && sscanf(row, "VmData: %lu", &kib) != 1)
		;
	if (!kib)
		exit(2);
	fclose(f);
	return kib * 1024;
}

static const char *has_room(uintptr_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return "too little";
	munmap(memory, size);
	return "enough";
}

static volatile char *own_stack;

/* As high as nothing else fits above it. */
static void make_own_stack(void)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED_NOREPLACE;

	own_stack = mmap((void *)0x7fe00000, 65536, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (own_stack == MAP_FAILED)
		exit(2);
}

static void grow(unsigned long kib)
{
	volatile char *lowest = own_stack - kib * 1024;

	while (own_stack > lowest)
		*(own_stack -= 1024) = 1;
}

static void set_up(const char *mode, unsigned long arg)
{
	if (!strcmp(mode, "grows"))
		make_own_stack();
	if (!strcmp(mode, "crowded") || !strcmp(mode, "hole"))
		crowd_around((uintptr_t)&set_up, arg);
	if (!strcmp(mode, "fsize"))
		set_limit(RLIMIT_FSIZE, 4096);
	if (!strcmp(mode, "nolow"))
		crowd(0x10000, 0x80000000);
	if (!strcmp(mode, "as"))
		set_limit(RLIMIT_AS, used_pages() * 4096 + arg * MIB);
	if (!strcmp(mode, "data"))
		set_limit(RLIMIT_DATA, data_bytes() + arg * MIB);
}

static const char *attack(uintptr_t lo, uintptr_t hi)
{
	void *moved;

	if (!mprotect((void *)lo, 4096, PROT_READ | PROT_WRITE))
		return "mprotect rw";
	if (!mprotect((void *)lo, hi - lo, PROT_READ | PROT_WRITE | PROT_EXEC))
		return "mprotect rwx";
	moved = mremap((void *)lo, 0, 4096, MREMAP_MAYMOVE);
	if (moved != MAP_FAILED) {
		if (!mprotect(moved, 4096, PROT_READ | PROT_WRITE))
			return "a second mapping by mremap";
		munmap(moved, 4096);
	}
	return errno == EACCES ? "held" : strerror(errno);
}

static void answer(char *line)
{
	unsigned long lo = 0, hi = 0;

	if (!strncmp(line, "text", 4)) {
		printf("%lx\n", (unsigned long)(uintptr_t)&set_up);
	} else if (!strncmp(line, "libc", 4)) {
		printf("%lx\n", (unsigned long)(uintptr_t)&getpid);
	} else if (sscanf(line, "attack %lx %lx", &lo, &hi) == 2) {
		printf("%s\n", attack(lo, hi));
	} else if (sscanf(line, "sum %lx", &lo) == 1) {
		printf("%d\n", ((int (*)(void))lo)());
	} else if (sscanf(line, "room %lu", &lo) == 1) {
		printf("%s\n", has_room(lo * MIB));
	} else if (sscanf(line, "grow %lu", &lo) == 1) {
		grow(lo);
		printf("grown\n");
	} else if (!strncmp(line, "pid", 3)) {
		printf("%d\n", (int)outer_pid);
	} else if (!strncmp(line, "fork", 4)) {
		child = fork();
		if (!child) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pause();
		}
		printf("%d\n", (int)child);
	} else {
		printf("what?\n");
	}
	fflush(stdout);
}

enum { THREADS = 4 };

static unsigned long counts[THREADS];
static pthread_t threads[THREADS];

/* Answers until the input ends, and ends the program. */
static void *serve(void *arg)
{
	char line[256];

	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		answer(line);
	stop = 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	if (child) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	for (int i = 0; i < THREADS; i++)
		if (!counts[i])
			exit(1);
	exit(0);
	return arg;
}

/*
 * vm.memfd_noexec belongs to a pid namespace. The parent only waits; returns in
 * the child, which learns its pid as others see it.
 */
static void forbid_executable_memfds(void)
{
	int ends[2], status;
	pid_t pid;
	FILE *f;

	if (pipe(ends) || unshare(CLONE_NEWPID))
		exit(2);
	pid = fork();
	if (pid) {
		if (write(ends[1], &pid, sizeof(pid)) != sizeof(pid) ||
		    waitpid(pid, &status, 0) != pid)
			exit(2);
		exit(WIFEXITED(status) ? WEXITSTATUS(status) : 3);
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (read(ends[0], &outer_pid, sizeof(outer_pid)) != sizeof(outer_pid))
		exit(2);
	f = fopen("/proc/sys/vm/memfd_noexec", "w");
	if (f && (fputs("2", f) < 0 || fclose(f)))
		outer_pid = 0;
	if (!f)
		outer_pid = 0;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "threads";
	pthread_t server;

	setvbuf(stdin, NULL, _IONBF, 0);
	if (!strcmp(mode, "noexec"))
		forbid_executable_memfds();
	own_descriptors = !strcmp(mode, "unshare");
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, &counts[i]);
	/* A thread that has only just been made still has its signals blocked. */
	for (int i = 0; i < THREADS; i++)
		while (!((volatile unsigned long *)counts)[i])
			usleep(100);
	set_up(mode, argc > 2 ? strtoul(argv[2], NULL, 0) : 0);
	if (!strcmp(mode, "leaderless")) {
		pthread_create(&server, NULL, serve, NULL);
		pthread_exit(NULL);
	}
	serve(NULL);
	return 0;
}
