/* SPDX-License-Identifier: MIT */
/*
 * stop-states.c MODE: a process in a state that makes stopping it special.
 *
 *   leader   the main thread has exited, two others live
 *   vfork    the main thread waits in vfork() for a child that waits for a line
 *   clone    a process of its own shares the memory and counts in it
 *   creators the first of three processes with one memory, each created by the one before, counts; tells of the last
 *   sibling  a process of its own shares the memory and counts in it, and is its creator's sibling
 *   exec     a thread other than the leader executes this program again and again
 *   exec-many  the same with thirty others, who just stand around; it ends where that takes too long
 *   worker   an io_uring worker blocks in a read that ends with the input
 *   workers  its workers' reads end every 2 ms, and every few reads all workers do, with the thread that reads
 *   sqpoll   a thread of the kernel's takes such reads out of the ring (SQPOLL), and sleeps every now and then
 *   filter   a seccomp filter kills at restart_syscall and at mmap
 *   barred   its first thread's kills at all calls that do nothing, another one's at mmap
 *   spawn X  an ordinary user's process executes X, a set-uid copy of this program, again and
 *            again, by vfork(); at the end it prints how often with privileges and how often without
 *
 * Ends when standard input does, with 0 if all was well.
 */
#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void ready(void)
{
	if (write(STDOUT_FILENO, "ready\n", 6) != 6)
		exit(9);
}

static void wait_for_end(void)
{
	char byte;

	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
}

/* ------------------------------------------------------------ dead leader */

static void *wait_and_exit(void *arg)
{
	usleep(50000);
	ready();
	wait_for_end();
	exit(arg != NULL);
}

static void *idle(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static int mode_leader(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, wait_and_exit, NULL) ||
	    pthread_create(&thread, NULL, idle, NULL))
		return 2;
	pthread_exit(NULL);
}

/* ------------------------------------------------------------------ vfork */

static void *announce(void *arg)
{
	usleep(50000);
	ready();
	return arg;
}

static int mode_vfork(void)
{
	char byte;
	pthread_t thread;
	int status = 0;
	pid_t child;

	pthread_create(&thread, NULL, announce, NULL);
	child = vfork();
	if (!child) {
		while (read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n')
			continue;
		_exit(7);
	}
	if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 7)
		return 3;
	pthread_join(thread, NULL);
	wait_for_end();
	return 0;
}

/* ---------------------------------------------------------- shared memory */

static atomic_long shared_count;
static atomic_int shared_end;

static int count_forever(void *arg)
{
	(void)arg;
	while (!shared_end)
		shared_count++;
	return 0;
}

static int mode_clone(bool sibling)
{
	static char stack[65536] __attribute__((aligned(16)));
	pid_t child = clone(count_forever, stack + sizeof(stack),
			    CLONE_VM | SIGCHLD | (sibling ? CLONE_PARENT : 0), NULL);
	int status;

	if (child < 0)
		return 2;
	dprintf(STDOUT_FILENO, "%d %lx\n", (int)child, (unsigned long)&shared_count);
	ready();
	wait_for_end();
	shared_end = 1;
	/* Its creator's parent waits for a sibling. */
	return !sibling && (waitpid(child, &status, 0) != child || status);
}

static volatile pid_t last_of_creators;

static int be_last(void *arg)
{
	(void)arg;
	while (!shared_end)
		usleep(1000);
	return 0;
}

static int be_middle(void *stack)
{
	int status;

	last_of_creators = clone(be_last, stack, CLONE_VM | SIGCHLD, NULL);
	if (last_of_creators < 0)
		return 2;
	return waitpid(last_of_creators, &status, 0) < 0 || status;
}

static void *count_in_thread(void *arg)
{
	count_forever(arg);
	return NULL;
}

static int mode_creators(void)
{
	static char stacks[2][65536] __attribute__((aligned(16)));
	pid_t child = clone(be_middle, stacks[0] + sizeof(stacks[0]), CLONE_VM | SIGCHLD,
			    stacks[1] + sizeof(stacks[1]));
	pthread_t thread;
	int status;

	if (child < 0 || pthread_create(&thread, NULL, count_in_thread, NULL))
		return 2;
	while (!last_of_creators)
		usleep(1000);
	dprintf(STDOUT_FILENO, "%d %lx\n", (int)last_of_creators, (unsigned long)&shared_count);
	ready();
	wait_for_end();
	shared_end = 1;
	pthread_join(thread, NULL);
	return waitpid(child, &status, 0) != child || status;
}

/* ------------------------------------------------------------------- exec */

/* However busy the machine is. */
#define EXEC_NS_MOST 5000000000ull

static char **exec_argv;

static char exec_began[24]; /* in ns */

static unsigned long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (unsigned long long)now.tv_sec * 1000000000 + (unsigned long long)now.tv_nsec;
}

static void *execute(void *arg)
{
	(void)arg;
	struct pollfd input = {STDIN_FILENO, POLLIN, 0};
	/* Not in step with whoever begins anew whenever he meets an exec. */
	const int pause_ms = 1 + (int)(now_ns() / 1000 % 24);

	if (poll(&input, 1, pause_ms) > 0)
		exit(0);
	snprintf(exec_began, sizeof(exec_began), "%llu", now_ns());
	execv("/proc/self/exe", exec_argv);
	exit(5);
}

static void *stand_around(void *arg)
{
	(void)arg;
	for (;;)
		pause();
	return NULL;
}

static int mode_exec(char **argv, int others)
{
	pthread_attr_t small;
	pthread_t thread;

	if (!argv[2])
		ready();
	else if (now_ns() - strtoull(argv[2], NULL, 10) > EXEC_NS_MOST)
		return 6;
	exec_argv = (char *[]){argv[0], argv[1], exec_began, NULL};
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 65536);
	for (int i = 0; i < others; i++)
		if (pthread_create(&thread, &small, stand_around, NULL))
			return 2;
	if (pthread_create(&thread, NULL, execute, NULL))
		return 2;
	pthread_join(thread, NULL);
	return 5;
}

/* --------------------------------------------------------------- io_uring */

struct ring {
	int fd;
	char *map;
	size_t size, sqes_size;
	struct io_uring_sqe *sqes;
	struct io_uring_params params;
};

static bool ring_open(struct ring *r, unsigned flags, unsigned idle_ms)
{
	memset(r, 0, sizeof(*r));
	r->params.flags = flags;
	r->params.sq_thread_idle = idle_ms;
	r->fd = (int)syscall(SYS_io_uring_setup, 2, &r->params);
	if (r->fd < 0 || !(r->params.features & IORING_FEAT_SINGLE_MMAP))
		return false;
	r->size = r->params.sq_off.array + r->params.sq_entries * 4 + 4096;
	r->sqes_size = r->params.sq_entries * sizeof(*r->sqes);
	r->map = mmap(NULL, r->size, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQ_RING);
	r->sqes = mmap(NULL, r->sqes_size, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd,
		       IORING_OFF_SQES);
	return r->map != MAP_FAILED && (void *)r->sqes != MAP_FAILED;
}

static void ring_close(struct ring *r)
{
	munmap(r->map, r->size);
	munmap(r->sqes, r->sqes_size);
	close(r->fd);
}

/* Puts a read of one byte into the ring. */
static void ring_read(struct ring *r, int from, char *to, unsigned flags)
{
	unsigned *tail = (unsigned *)(r->map + r->params.sq_off.tail);
	unsigned *array = (unsigned *)(r->map + r->params.sq_off.array);
	const unsigned at = *tail & (r->params.sq_entries - 1);

	memset(&r->sqes[at], 0, sizeof(r->sqes[at]));
	r->sqes[at].opcode = IORING_OP_READ;
	r->sqes[at].flags = (uint8_t)flags;
	r->sqes[at].fd = from;
	r->sqes[at].addr = (uint64_t)(uintptr_t)to;
	r->sqes[at].len = 1;
	array[at] = at;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_SEQ_CST);
}

/* What the next request that ends has for a result; or what waiting for it failed with. */
static int ring_wait(struct ring *r)
{
	unsigned *head = (unsigned *)(r->map + r->params.cq_off.head);
	unsigned *tail = (unsigned *)(r->map + r->params.cq_off.tail);
	struct io_uring_cqe *cqes = (struct io_uring_cqe *)(r->map + r->params.cq_off.cqes);
	int result;

	while (__atomic_load_n(tail, __ATOMIC_ACQUIRE) == *head)
		if (syscall(SYS_io_uring_enter, r->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
			return -errno;
	result = cqes[*head & (r->params.cq_entries - 1)].res;
	__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	return result;
}

static int mode_worker(void)
{
	static char byte;
	struct ring r;

	if (!ring_open(&r, 0, 0))
		return 77;
	ring_read(&r, STDIN_FILENO, &byte, IOSQE_ASYNC);
	if (syscall(SYS_io_uring_enter, r.fd, 1, 0, 0, NULL, 0) != 1)
		return 77;
	usleep(50000);
	ready();
	/* End of the input, and neither EINTR nor anything else. */
	return ring_wait(&r) ? 4 : 0;
}

/* Another process, which no stop of ours stops, writes numbers into a pipe: what it returns is read from. */
static int start_writing(void)
{
	unsigned char number = 0;
	int fds[2];

	if (pipe(fds))
		exit(2);
	signal(SIGCHLD, SIG_IGN);
	if (fork()) {
		close(fds[1]);
		return fds[0];
	}
	signal(SIGPIPE, SIG_DFL);
	close(fds[0]);
	for (;; number++) {
		if (write(fds[1], &number, 1) != 1)
			_exit(0);
		usleep(2000);
	}
}

enum { READS = 8 }; /* by one ring */

/* Reads one number after the other; each comes once, in order, and no call ends with EINTR. */
static int read_numbers(struct ring *r, int from, unsigned char *number)
{
	unsigned *flags = (unsigned *)(r->map + r->params.sq_off.flags);
	const bool polled = r->params.flags & IORING_SETUP_SQPOLL;
	static char byte;
	int result;

	for (int i = 0; i < READS; i++, ++*number) {
		ring_read(r, from, &byte, polled ? 0 : IOSQE_ASYNC);
		if (!polled && syscall(SYS_io_uring_enter, r->fd, 1, 0, 0, NULL, 0) != 1)
			return 3;
		if (polled && (__atomic_load_n(flags, __ATOMIC_SEQ_CST) & IORING_SQ_NEED_WAKEUP) &&
		    syscall(SYS_io_uring_enter, r->fd, 1, 0, IORING_ENTER_SQ_WAKEUP, NULL, 0) < 0)
			return 3;
		result = ring_wait(r);
		if (result != 1 || (unsigned char)byte != *number) {
			dprintf(STDOUT_FILENO, "read %u: %d, %u\n", *number, result,
				(unsigned char)byte);
			return 4;
		}
		/* Its thread falls asleep, every other time. */
		if (polled && i & 1)
			usleep(6000);
	}
	return 0;
}

static int mode_polling(void)
{
	struct pollfd input = {STDIN_FILENO, POLLIN, 0};
	const int from = start_writing();
	unsigned char number = 0;
	struct ring r;
	int wrong = 0;

	if (!ring_open(&r, IORING_SETUP_SQPOLL, 2))
		return 77;
	ready();
	while (!wrong && !poll(&input, 1, 0))
		wrong = read_numbers(&r, from, &number);
	return wrong;
}

static int numbers_from;

/* The workers are this thread's, and end with it. */
static void *read_in_thread(void *arg)
{
	struct ring r;

	if (!ring_open(&r, 0, 0))
		exit(77);
	if (read_numbers(&r, numbers_from, arg))
		exit(4);
	ring_close(&r);
	return NULL;
}

static int mode_workers(void)
{
	struct pollfd input = {STDIN_FILENO, POLLIN, 0};
	unsigned char number = 0;
	pthread_t thread;

	numbers_from = start_writing();
	read_in_thread(&number);
	ready();
	while (!poll(&input, 1, 0)) {
		if (pthread_create(&thread, NULL, read_in_thread, &number))
			return 5;
		pthread_join(thread, NULL);
	}
	return 0;
}

/* ---------------------------------------------------------------- seccomp */

#define DENY(number)                                         \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static int mode_filter(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		DENY(SYS_restart_syscall),
		DENY(SYS_mmap),
		DENY(SYS_munmap),
		DENY(SYS_getppid),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
	struct pollfd input = {STDIN_FILENO, POLLIN, 0};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return 2;
	ready();
	/* A restart block: the kernel goes on with it by restart_syscall. */
	for (;;) {
		int count = poll(&input, 1, 10000);

		if (count < 0)
			return 3;
		if (count > 0)
			return 0;
	}
}

static void *under_another(void *arg)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		DENY(SYS_mmap),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		exit(2);
	atomic_store((atomic_int *)arg, 1);
	for (;;)
		pause();
	return arg;
}

/* All calls that do nothing. */
static int mode_barred(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		DENY(SYS_getpid),
		DENY(SYS_gettid),
		DENY(SYS_getppid),
		DENY(SYS_getuid),
		DENY(SYS_geteuid),
		DENY(SYS_getgid),
		DENY(SYS_getegid),
		DENY(SYS_sched_yield),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
	static atomic_int there;
	pthread_t thread;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    pthread_create(&thread, NULL, under_another, &there))
		return 2;
	while (!atomic_load(&there))
		usleep(1000);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return 2;
	ready();
	wait_for_end();
	return 0;
}

/* -------------------------------------------------------------- set-uid */

enum { NOBODY = 65534 };

/* What the program that a child of vfork() executes ends with: 0 with privileges, 1 without. */
static int spawn(const char *path, long wait_ns)
{
	const struct timespec wait = {0, wait_ns};
	int status = 0;
	pid_t child = vfork();

	if (!child) {
		syscall(SYS_nanosleep, &wait, NULL);
		execl(path, path, "who", NULL);
		_exit(9);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return 9;
	return WEXITSTATUS(status);
}

static int mode_spawn(const char *path)
{
	struct pollfd input = {STDIN_FILENO, POLLIN, 0};
	unsigned counts[2] = {0};
	int got;

	if (setgroups(0, NULL) || setgid(NOBODY) || setuid(NOBODY) ||
	    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0))
		return 77;
	/* Where the file system gives none anyway. */
	if (spawn(path, 0))
		return 77;
	ready();
	while (!poll(&input, 1, 5)) {
		got = spawn(path, 3000000);
		if (got > 1)
			return 3;
		counts[got]++;
	}
	dprintf(STDOUT_FILENO, "%u %u\n", counts[0], counts[1]);
	wait_for_end();
	return 0;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";

	if (!strcmp(mode, "leader"))
		return mode_leader();
	if (!strcmp(mode, "vfork"))
		return mode_vfork();
	if (!strcmp(mode, "clone"))
		return mode_clone(false);
	if (!strcmp(mode, "sibling"))
		return mode_clone(true);
	if (!strcmp(mode, "creators"))
		return mode_creators();
	if (!strcmp(mode, "exec"))
		return mode_exec(argv, 0);
	if (!strcmp(mode, "exec-many"))
		return mode_exec(argv, 30);
	if (!strcmp(mode, "worker"))
		return mode_worker();
	if (!strcmp(mode, "workers"))
		return mode_workers();
	if (!strcmp(mode, "sqpoll"))
		return mode_polling();
	if (!strcmp(mode, "filter"))
		return mode_filter();
	if (!strcmp(mode, "barred"))
		return mode_barred();
	if (!strcmp(mode, "who"))
		return geteuid() != 0;
	if (!strcmp(mode, "spawn") && argc > 2)
		return mode_spawn(argv[2]);
	return 2;
}
