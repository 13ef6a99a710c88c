/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline */
/*
 * residue.c - a program that looks at itself for what somebody might have left:
 * limits, timers, thread-local storage, alternate stacks, and all else that the
 * kernel keeps for a process and that /proc does not show in one place.
 *
 * residue: prints "ready". Commands:
 *   picture      a line "NAME VALUE" for each thing, then "end"; of three threads
 *   work N       calls its own functions in all threads, N times; "done"
 *   change WHAT  and undo WHAT: changes one thing that an observer must notice;
 *                "changed", "undone". WHAT: map, hole, protection, descriptor, other-file,
 *                mask, handler, ignored, pending, thread
 */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#ifndef PR_GET_TID_ADDRESS
#define PR_GET_TID_ADDRESS 40
#endif

enum { THREADS = 2, THREAD_BLOCK = 2304, TLS_BEFORE = 256, RSEQ_SIZE = 32 };

extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned __rseq_size __attribute__((weak));

static __thread volatile uint64_t own[8] = {1, 2, 3, 4, 5, 6, 7, 8};
static int ask[THREADS][2], answer[2];
static pthread_t handles[THREADS], extra;
static volatile long rounds;
static volatile int quit;
static uint64_t thread_hash[THREADS + 1][4];

static uint64_t mix(uint64_t hash, const void *data, size_t size)
{
	const uint8_t *p = data;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ p[i]) * 0x100000001b3u;
	return hash;
}

/* ---------------------------------------------------------------- each thread */

static void look_at_thread(int number)
{
	uint8_t *block = __builtin_thread_pointer();
	uint64_t *h = thread_hash[number];
	struct sched_param priority = {0};
	stack_t stack = {0};
	void *list = NULL;
	uint64_t tid = 0;
	size_t size = 0;
	cpu_set_t cpus;

	memset(h, 0, sizeof(thread_hash[0]));
	/* The block of the C library and what lies before it, but for rseq's, which is the kernel's. */
	for (long i = -TLS_BEFORE; i < THREAD_BLOCK; i++) {
		if (&__rseq_size && __rseq_size && i >= __rseq_offset &&
		    i < __rseq_offset + RSEQ_SIZE)
			continue;
		h[0] = mix(h[0], block + i, 1);
	}
	/* No sequence is under way, and none was left there. */
	if (&__rseq_size && __rseq_size)
		memcpy(&h[1], block + __rseq_offset + 8, sizeof(h[1]));
	sigaltstack(NULL, &stack);
	h[2] = mix(1, &stack, sizeof(stack));
	syscall(SYS_get_robust_list, 0, &list, &size);
	h[2] = mix(h[2], &list, sizeof(list));
	prctl(PR_GET_TID_ADDRESS, &tid);
	h[2] = mix(h[2], &tid, sizeof(tid));
	memset(&cpus, 0, sizeof(cpus));
	sched_getaffinity(0, sizeof(cpus), &cpus);
	h[3] = mix(1, &cpus, sizeof(cpus));
	sched_getparam(0, &priority);
	h[3] = mix(h[3], &priority, sizeof(priority));
	h[3] += (uint64_t)sched_getscheduler(0) * 7 + (uint64_t)getpriority(PRIO_PROCESS, 0) * 31 +
		(uint64_t)prctl(PR_GET_TIMERSLACK) * 1009;
}

__attribute__((noinline)) uint64_t residue_leaf(uint64_t n)
{
	return n * 3 + own[n & 7];
}

__attribute__((noinline)) uint64_t residue_tree(uint64_t n)
{
	return n ? residue_tree(n - 1) + residue_leaf(n) : residue_leaf(0);
}

static void *work(void *arg)
{
	int number = (int)(intptr_t)arg;
	char what;

	while (read(ask[number][0], &what, 1) == 1) {
		if (what == 'p')
			look_at_thread(number);
		for (long i = 0; what == 'w' && i < rounds; i++)
			residue_tree(10);
		if (write(answer[1], &what, 1) != 1)
			break;
	}
	return NULL;
}

static void all_threads(char what)
{
	char byte;

	for (int i = 0; i < THREADS; i++)
		if (write(ask[i][1], &what, 1) != 1)
			exit(2);
	for (int i = 0; i < THREADS; i++)
		if (read(answer[0], &byte, 1) != 1)
			exit(2);
	if (what == 'p')
		look_at_thread(THREADS);
	for (long i = 0; what == 'w' && i < rounds; i++)
		residue_tree(10);
}

/* ---------------------------------------------------------------- the process */

static void show(const char *name, uint64_t value)
{
	printf("%s %#llx\n", name, (unsigned long long)value);
}

static uint64_t hash_file(const char *path)
{
	char bytes[16384];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t hash = 0;
	ssize_t got;

	while (fd >= 0 && (got = read(fd, bytes, sizeof(bytes))) > 0)
		hash = mix(hash, bytes, (size_t)got);
	if (fd >= 0)
		close(fd);
	return hash;
}

static int hash_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	uint64_t *hash = arg;

	*hash = mix(*hash, info->dlpi_name, strlen(info->dlpi_name));
	*hash = mix(*hash, &info->dlpi_addr, sizeof(info->dlpi_addr));
	(void)size;
	return 0;
}

static void show_process(void)
{
	extern char **environ;
	uint64_t hash = 0;
	struct rlimit limit;
	mode_t mask = umask(0);

	umask(mask);
	for (int i = 0; i < 16; i++) {
		getrlimit(i, &limit);
		hash = mix(hash, &limit, sizeof(limit));
	}
	show("limits", hash);
	hash = 0;
	for (int i = ITIMER_REAL; i <= ITIMER_PROF; i++) {
		struct itimerval t;

		getitimer(i, &t);
		hash = mix(hash, &t, sizeof(t));
	}
	show("interval-timers", hash);
	show("timers", hash_file("/proc/self/timers"));
	show("auxv", hash_file("/proc/self/auxv"));
	show("mounts", hash_file("/proc/self/mountinfo"));
	hash = 0;
	for (char **e = environ; *e; e++)
		hash = mix(hash, *e, strlen(*e));
	show("environment", hash);
	hash = 0;
	dl_iterate_phdr(hash_object, &hash);
	show("objects", hash);
	show("umask", mask);
	show("personality", (uint64_t)personality(0xffffffff));
	show("dumpable", (uint64_t)prctl(PR_GET_DUMPABLE));
	show("no-new-privileges", (uint64_t)prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
	show("seccomp", (uint64_t)prctl(PR_GET_SECCOMP));
	show("subreaper-and-death", (uint64_t)prctl(PR_GET_KEEPCAPS));
	show("brk", (uint64_t)(uintptr_t)sbrk(0));
}

static void picture(void)
{
	static const char *const names[] = {"storage", "sequence", "stack-and-lists", "schedule"};

	all_threads('p');
	show_process();
	for (int i = 0; i <= THREADS; i++)
		for (int k = 0; k < 4; k++)
			printf("thread-%d-%s %#llx\n", i, names[k],
			       (unsigned long long)thread_hash[i][k]);
	puts("end");
}

/* ----------------------------------------------------------------- changes */

static void *page, *second;
static int descriptor = -1, backing;

static void *sleeps(void *arg)
{
	while (!quit)
		usleep(1000);
	return arg;
}

static void change(const char *what, int undo)
{
	struct sigaction action = {.sa_handler = undo ? SIG_DFL : (void (*)(int))exit};
	sigset_t set;

	sigemptyset(&set);
	if (!strcmp(what, "map")) {
		if (undo)
			munmap(page, 4096);
		else
			page = mmap(NULL, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	} else if (!strcmp(what, "hole")) {
		if (undo)
			mmap(second, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, backing,
			     0);
		else
			munmap(second, 4096);
	} else if (!strcmp(what, "protection")) {
		mprotect(second, 4096, undo ? PROT_READ | PROT_WRITE : PROT_READ);
	} else if (!strcmp(what, "descriptor")) {
		if (undo)
			close(descriptor);
		else
			descriptor = dup(0);
	} else if (!strcmp(what, "other-file")) {
		int fd = open(undo ? "/dev/null" : "/dev/zero", O_RDONLY);

		dup2(fd, 100);
		close(fd);
	} else if (!strcmp(what, "mask")) {
		sigaddset(&set, SIGWINCH);
		sigprocmask(undo ? SIG_UNBLOCK : SIG_BLOCK, &set, NULL);
	} else if (!strcmp(what, "handler")) {
		sigaction(SIGURG, &action, NULL);
	} else if (!strcmp(what, "ignored")) {
		signal(SIGUSR2, undo ? SIG_DFL : SIG_IGN);
	} else if (!strcmp(what, "pending")) {
		siginfo_t info;

		sigaddset(&set, SIGRTMAX);
		if (undo)
			sigwaitinfo(&set, &info);
		else
			raise(SIGRTMAX);
	} else if (!strcmp(what, "thread")) {
		quit = undo;
		if (undo)
			pthread_join(extra, NULL);
		else
			pthread_create(&extra, NULL, sleeps, NULL);
	}
	puts(undo ? "undone" : "changed");
}

int main(void)
{
	char line[128];
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMAX);
	sigprocmask(SIG_BLOCK, &set, NULL);
	backing = memfd_create("second", MFD_CLOEXEC);
	if (ftruncate(backing, 4096))
		return 2;
	second = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, backing, 0);
	fd = open("/dev/null", O_RDONLY);
	dup2(fd, 100);
	close(fd);
	if (pipe(answer))
		return 2;
	for (int i = 0; i < THREADS; i++) {
		if (pipe(ask[i]))
			return 2;
		pthread_create(&handles[i], NULL, work, (void *)(intptr_t)i);
	}
	/* What is done once is done before anybody looks. */
	sleeps((quit = 1, NULL));
	quit = 0;
	pthread_create(&extra, NULL, sleeps, NULL);
	quit = 1;
	pthread_join(extra, NULL);
	quit = 0;
	rounds = 1;
	all_threads('w');
	all_threads('p');
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (!strcmp(line, "picture")) {
			picture();
		} else if (!strncmp(line, "work ", 5)) {
			rounds = atol(line + 5);
			all_threads('w');
			puts("done");
		} else if (!strncmp(line, "change ", 7)) {
			change(line + 7, 0);
		} else if (!strncmp(line, "undo ", 5)) {
			change(line + 5, 1);
		}
		fflush(stdout);
	}
	return 0;
}
