/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -fno-ipa-cp -fno-ipa-icf -Wl,-ldl */
/*
 * moments.c - a program that does one of many things when it is told to, and works meanwhile.
 *
 * moments FILE LIBRARY: what is counted is in FILE (moments.h). Prints "ready". Each byte of its
 * standard input is a command, which a thread that is not the leader carries out:
 *   b  a thread is born, works a little, and ends     B  one is born that stays
 *   e  a thread that works ends                       l  the leader ends
 *   f  a child works, and ends                        F  a child works until the input of all ends
 *   v  vfork and exec                                 s  posix_spawn
 *   E  fork and exec                                  x  it executes itself anew
 *   X  two execs that fail                            o  the library is loaded and called
 *   c  it is called and unloaded                      m  a crowd of mappings near the code
 *   u  they are unmapped                              p  some of our own pages change their protection
 * Exits with 0 when its input ends, if all results were right.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "moments.h"

extern char **environ;

enum { WORKERS = 2, BATCH = 20, CROWD = 300, PAGE = 4096 };

static struct moments *shared;
static char **arguments;
static char self[4096];
static int leave, leader_leaves, alive = 1, uncounted;
static unsigned char first_byte; /* of leaf() */
static void *library;
static char *crowd[CROWD];
static char page[2 * PAGE] __attribute__((aligned(PAGE)));

__attribute__((noinline, noclone)) long leaf(long n)
{
	return n * 7 + 3;
}

__attribute__((noinline, noclone)) long work(long n)
{
	long sum = 0;

	for (long i = 0; i < n; i++)
		sum += leaf(i);
	return sum;
}

static void add(int *number, int n)
{
	__atomic_add_fetch(number, n, __ATOMIC_SEQ_CST);
}

static void complain(const char *what)
{
	fprintf(stderr, "moments: %s\n", what);
	add(&shared->wrong, 1);
}

/* What is done in here is counted by both or by none when all rest. */
__attribute__((noinline, noclone)) void batch(void)
{
	add(&shared->busy, 1);
	if (!__atomic_load_n(&shared->pause, __ATOMIC_SEQ_CST)) {
		if (work(BATCH) != BATCH * (BATCH - 1) / 2 * 7 + 3 * BATCH)
			complain("a wrong sum");
		if (!uncounted)
			__atomic_add_fetch(&shared->leaves, BATCH, __ATOMIC_SEQ_CST);
	}
	add(&shared->busy, -1);
	usleep(50);
}

static int note_thread(void)
{
	int zero;

	for (int i = 0; i < 64; i++) {
		zero = 0;
		if (__atomic_compare_exchange_n(&shared->threads[i], &zero,
						(pid_t)syscall(SYS_gettid), 0, __ATOMIC_SEQ_CST,
						__ATOMIC_SEQ_CST))
			return i;
	}
	_exit(90);
}

static void *worker(void *arg)
{
	const int slot = note_thread();
	int one = 1;

	for (long i = 0; arg ? i < (long)arg : __atomic_load_n(&alive, __ATOMIC_SEQ_CST); i++) {
		batch();
		one = 1;
		if (!arg && __atomic_compare_exchange_n(&leave, &one, 0, 0, __ATOMIC_SEQ_CST,
							__ATOMIC_SEQ_CST))
			break;
	}
	shared->threads[slot] = 0;
	return NULL;
}

static void begin_thread(long rounds)
{
	pthread_attr_t attributes;
	pthread_t thread;

	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &attributes, worker, (void *)rounds))
		complain("no thread");
	pthread_attr_destroy(&attributes);
}

static void expect(pid_t pid, int status)
{
	int got = -1;

	while (waitpid(pid, &got, 0) < 0)
		if (errno != EINTR) {
			complain("no such child");
			return;
		}
	if (!WIFEXITED(got) || WEXITSTATUS(got) != status) {
		fprintf(stderr, "moments: child %d ended with %x\n", (int)pid, (unsigned)got);
		complain("a child");
	}
}

static void forked(char how)
{
	char *const argv[] = {self, NULL};
	const pid_t parent = getpid();
	pid_t pid = fork();

	if (pid == 0) {
		if (how == 'E') {
			execve(self, argv, environ);
			_exit(91);
		}
		/* What was inserted after it was forked is not in it (docs/safety.md). */
		uncounted = *(volatile unsigned char *)(uintptr_t)leaf == first_byte;
		if (how == 'F')
			prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (int i = 0; how == 'F' ? getppid() == parent && shared->done >= 0 : i < 40; i++)
			batch();
		_exit(3);
	}
	if (how == 'F')
		shared->children[shared->child_count++] = pid;
	else
		expect(pid, how == 'E' ? MOMENTS_ECHO : 3);
}

static void spawned(char how)
{
	char *const argv[] = {self, NULL};
	pid_t pid = 0;

	if (how == 's') {
		if (posix_spawn(&pid, self, NULL, NULL, argv, environ))
			complain("no spawn");
	} else {
		pid = vfork();
		if (pid == 0) {
			execve(self, argv, environ);
			_exit(92);
		}
	}
	expect(pid, MOMENTS_ECHO);
}

static void call_library(void)
{
	long (*plugin_work)(long) = (long (*)(long))(uintptr_t)dlsym(library, "plugin_work");

	for (long i = 0; i < 30; i++)
		if (!plugin_work || plugin_work(i) != i * 11 + 3)
			complain("the library");
}

static void load(void)
{
	if (!library)
		library = dlopen(arguments[2], RTLD_NOW);
	if (!library)
		complain("no library");
	else
		call_library();
}

static void unload(void)
{
	if (!library)
		return;
	call_library();
	dlclose(library);
	library = NULL;
}

/* Before the code and behind it, wherever there is room. */
static void map_crowd(void)
{
	const uintptr_t here = (uintptr_t)leaf & ~(uintptr_t)0xfffff;

	for (int i = 0; i < CROWD; i++) {
		uintptr_t at = i % 2 ? here + (uintptr_t)(i + 16) * 0x10000
				     : here - (uintptr_t)(i + 16) * 0x10000;

		crowd[i] = mmap((void *)at, PAGE, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		if (crowd[i] == MAP_FAILED)
			crowd[i] = NULL;
		else
			memset(crowd[i], 0x5a, PAGE);
	}
}

static void unmap_crowd(void)
{
	for (int i = 0; i < CROWD; i++) {
		for (int k = 0; crowd[i] && k < PAGE; k++)
			if (crowd[i][k] != 0x5a) {
				complain("a mapping of ours has changed");
				break;
			}
		if (crowd[i])
			munmap(crowd[i], PAGE);
		crowd[i] = NULL;
	}
}

static void protect(void)
{
	char *at = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	mprotect(at + PAGE, PAGE, PROT_NONE);
	mprotect(page, PAGE, PROT_READ);
	mprotect(page, PAGE, PROT_READ | PROT_WRITE);
	munmap(at, 4 * PAGE);
}

static void execute(char what)
{
	char *const argv[] = {self, arguments[1], arguments[2], "again", NULL};

	if (what == 'x')
		execve(self, argv, environ);
	execve("/nonexistent", argv, environ);
	execve("/proc/self/maps", argv, environ);
	if (what == 'x')
		complain("no exec");
}

static void obey(char what)
{
	switch (what) {
	case 'b':
		begin_thread(40);
		break;
	case 'B':
		begin_thread(0);
		break;
	case 'e':
		__atomic_store_n(&leave, 1, __ATOMIC_SEQ_CST);
		break;
	case 'l':
		leader_leaves = 1;
		break;
	case 'f':
	case 'F':
	case 'E':
		forked(what);
		break;
	case 'v':
	case 's':
		spawned(what);
		break;
	case 'x':
	case 'X':
		execute(what);
		break;
	case 'o':
		load();
		break;
	case 'c':
		unload();
		break;
	case 'm':
		map_crowd();
		break;
	case 'u':
		unmap_crowd();
		break;
	case 'p':
		protect();
		break;
	default:
		complain("no such command");
	}
}

static void *control(void *arg)
{
	ssize_t got;
	char what;

	(void)arg;
	while ((got = read(STDIN_FILENO, &what, 1)) != 0) {
		if (got != 1) {
			complain(strerror(errno));
			break;
		}
		obey(what);
		add(&shared->done, 1);
	}
	shared->done = -1000000;
	for (int i = 0; i < shared->child_count; i++)
		expect(shared->children[i], 3);
	exit(shared->wrong != 0);
}

static void on_signal(int number)
{
	__atomic_add_fetch(number == SIGUSR1 ? &shared->handled : &shared->queued, 1,
			   __ATOMIC_SEQ_CST);
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	pthread_t thread;
	int fd, slot;

	if (argc < 3)
		return MOMENTS_ECHO;
	arguments = argv;
	first_byte = *(volatile unsigned char *)(uintptr_t)leaf;
	fd = open(argv[1], O_RDWR);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd < 0 || shared == MAP_FAILED ||
	    readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return 93;
	close(fd);
	if (argc > 3) {
		memset(shared->threads, 0, sizeof(shared->threads));
		shared->programs++;
		shared->busy = 0;
	}
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGRTMIN, &action, NULL);
	load();
	slot = note_thread();
	for (long i = 0; i < WORKERS; i++)
		begin_thread(0);
	if (pthread_create(&thread, NULL, control, NULL))
		return 94;
	if (argc == 3) {
		puts("ready");
		fflush(stdout);
	} else {
		add(&shared->done, 1);
	}
	while (!*(volatile int *)&leader_leaves)
		batch();
	shared->threads[slot] = 0;
	pthread_exit(NULL);
}
