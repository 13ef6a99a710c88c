/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline */
/*
 * life-states.c MODE: a process in a state that is hard to be in.
 *
 *   fault     "sleep MS" puts a thread into an uninterruptible sleep, "asleep" when it is there;
 *             another one ends it after MS ms, "awake"
 *   filters   threads that put themselves under a filter which kills at restart_syscall, sleep a
 *             millisecond and end, one after the other; two of them at a time
 *   sync      one that sleeps; "filter" has another thread put all under that filter, "done"
 *   threads   one that calls step() now and then; "exit" ends the main thread
 *
 * Prints "ready". Ends when standard input does, with 0 if all was well.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))

enum { PAGE = 4096, UNAVAILABLE = 77 };

static atomic_int ended, wrong;

KEEP long step(long n)
{
	return n * 3 + 2;
}

static void say(const char *what)
{
	puts(what);
	fflush(stdout);
}

static bool hear(char *line, int size)
{
	return fgets(line, size, stdin) != NULL;
}

static void wait_for_end(void)
{
	char line[64];

	while (hear(line, sizeof(line)))
		;
	ended = 1;
}

static void sleep_ms(long ms)
{
	struct timespec left = {ms / 1000, ms % 1000 * 1000000};

	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

/* ------------------------------------------------------------------ fault */

static int faults;
static char *page;
static pthread_barrier_t gate;
static atomic_int sleeping; /* its id */

/* The kernel reads the page on its own account: one that is missing is waited for uninterruptibly. */
static void *sleeper(void *arg)
{
	char byte;
	struct iovec to = {&byte, 1}, from = {page, 1};

	sleeping = gettid();
	for (;;) {
		pthread_barrier_wait(&gate);
		if (ended)
			return arg;
		if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != 1)
			wrong = 1;
		pthread_barrier_wait(&gate);
		madvise(page, PAGE, MADV_DONTNEED);
	}
}

static bool is_asleep(pid_t tid)
{
	char path[64], text[512] = "";
	const char *at;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
	file = fopen(path, "re");
	if (file && !fgets(text, sizeof(text), file))
		text[0] = '\0';
	if (file)
		fclose(file);
	at = strrchr(text, ')');
	return at && at[2] == 'D';
}

static void sleep_for(long ms)
{
	struct uffdio_zeropage zero = {.range = {(uintptr_t)page, PAGE}};
	char line[64];

	pthread_barrier_wait(&gate);
	while (!is_asleep(sleeping))
		usleep(500);
	say("asleep");
	if (ms < 0)
		hear(line, sizeof(line));
	else
		sleep_ms(ms);
	if (ioctl(faults, UFFDIO_ZEROPAGE, &zero))
		wrong = 2;
	pthread_barrier_wait(&gate);
	say("awake");
}

static int mode_fault(void)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register range = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	pthread_t thread;
	char line[64];
	long ms;

	page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	range.range.start = (uintptr_t)page;
	range.range.len = PAGE;
	if (faults < 0 || ioctl(faults, UFFDIO_API, &api) || ioctl(faults, UFFDIO_REGISTER, &range))
		return UNAVAILABLE;
	pthread_barrier_init(&gate, NULL, 2);
	if (pthread_create(&thread, NULL, sleeper, NULL))
		return 2;
	say("ready");
	while (hear(line, sizeof(line)))
		if (sscanf(line, "sleep %ld", &ms) == 1)
			sleep_for(ms);
	ended = 1;
	pthread_barrier_wait(&gate);
	pthread_join(thread, NULL);
	return wrong;
}

/* ---------------------------------------------------------------- filters */

static int filter(unsigned flags)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_restart_syscall, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

/* Under the filter from now on, and at once in a call that would be gone on with by restart_syscall. */
static void *sleep_filtered(void *arg)
{
	if (filter(0))
		wrong = 3;
	sleep_ms(1);
	return arg;
}

static void *make_filtered(void *arg)
{
	pthread_t thread;

	while (!ended) {
		if (pthread_create(&thread, NULL, sleep_filtered, NULL))
			abort();
		pthread_join(thread, NULL);
	}
	return arg;
}

static int mode_filters(void)
{
	pthread_t makers[2];

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return 2;
	for (int i = 0; i < 2; i++)
		if (pthread_create(&makers[i], NULL, make_filtered, NULL))
			return 2;
	say("ready");
	wait_for_end();
	for (int i = 0; i < 2; i++)
		pthread_join(makers[i], NULL);
	return wrong;
}

/* Sleeps all the time, a long time, in a call with a restart block. */
static void *sleep_on(void *arg)
{
	while (!ended)
		sleep_ms(200);
	return arg;
}

static int mode_sync(void)
{
	pthread_t sleepers[4];
	char line[64];

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return 2;
	for (int i = 0; i < 4; i++)
		if (pthread_create(&sleepers[i], NULL, sleep_on, NULL))
			return 2;
	say("ready");
	while (hear(line, sizeof(line))) {
		if (!strcmp(line, "filter\n") && filter(SECCOMP_FILTER_FLAG_TSYNC))
			wrong = 3;
		say("done");
	}
	ended = 1;
	for (int i = 0; i < 4; i++)
		pthread_join(sleepers[i], NULL);
	return wrong;
}

/* ---------------------------------------------------------------- threads */

static void *stepper(void *arg)
{
	while (!ended) {
		if (step(5) != 17)
			wrong = 4;
		usleep(1000);
	}
	exit(wrong);
	return arg;
}

static void *reader(void *arg)
{
	wait_for_end();
	return arg;
}

static int mode_threads(void)
{
	pthread_t thread;
	char line[64];

	if (pthread_create(&thread, NULL, stepper, NULL))
		return 2;
	say("ready");
	while (hear(line, sizeof(line)))
		if (!strcmp(line, "exit\n")) {
			if (pthread_create(&thread, NULL, reader, NULL))
				return 2;
			say("exits");
			pthread_exit(NULL);
		}
	return wrong;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";

	setvbuf(stdin, NULL, _IONBF, 0);
	if (!strcmp(mode, "fault"))
		return mode_fault();
	if (!strcmp(mode, "filters"))
		return mode_filters();
	if (!strcmp(mode, "sync"))
		return mode_sync();
	if (!strcmp(mode, "threads"))
		return mode_threads();
	return 2;
}
