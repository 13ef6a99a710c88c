/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -fno-ipa-cp -fno-ipa-icf */
/*
 * life-family.c - a server with workers, and processes made in unusual ways.
 *
 * Prints "ready". Commands, each answered with "done" unless said otherwise, with "wrong"
 * once a result was:
 *   serve N       N workers are forked and wait; "workers PID..." with theirs
 *   contain N     the same, each as the first process of a pid namespace of its own
 *   namesake      the first worker, which is contained, makes a thread that has the id in there that
 *                 the worker has for us; "no" if it cannot
 *   requests N    each worker handles N requests (calls handle())
 *   replace       the first worker is told to end, and a new one takes its place; "worker PID"
 *   strict worker|self  the first worker, or we, enter the strict mode of seccomp
 *   dismiss       all are told to end
 *   clone KIND N  a process made by clone() calls handle() N times. KIND: vm (our memory), files (our
 *                 descriptors), thread-like (memory, files, signals: all but CLONE_THREAD), parent (a
 *                 sibling of ours)
 *   daemon N      forks twice, with a session of its own; the grandchild calls handle() N times
 *   badexec N     N times in vain: execve() of nothing, of a directory, of no program, from the main
 *                 thread, from another one and from a child
 *   call N        we call handle() N times
 *   crash         a bad store; the exit status tells
 *   eat MB        touches so much memory; "done" if it could
 * Exits with 1 if anything went otherwise than it should.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))

/* As orders; to the second an id is added. */
#define STRICT	 LONG_MAX
#define NAMESAKE (LONG_MAX / 2)

enum { WORKERS_MAX = 64, STACK = 65536, MB = 1 << 20 };

struct worker {
	pid_t pid;
	int orders, answers; /* our ends */
};

static struct worker workers[WORKERS_MAX];
static int worker_count;
static int wrong;
static bool strict;
static long calls;
static volatile int *volatile nothing;
static char clone_stack[STACK] __attribute__((aligned(16)));

KEEP long handle(long n)
{
	return n * 7 + 4;
}

KEEP void handle_all(long n)
{
	for (long i = 0; i < n; i++)
		if (handle(i) != i * 7 + 4)
			_exit(99);
}

static void expect_status(pid_t pid, int options, int wanted)
{
	int status = 0;

	while (waitpid(pid, &status, options) < 0)
		if (errno != EINTR) {
			wrong = 1;
			return;
		}
	if (!WIFEXITED(status) || WEXITSTATUS(status) != wanted) {
		fprintf(stderr, "process %d: status %x\n", (int)pid, status);
		wrong = 1;
	}
}

/* ----------------------------------------------------------------- server */

static void enter_strict_mode(void)
{
	strict = !prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
	if (!strict)
		wrong = 1;
}

/* exit_group() does not exist there. */
static void end_strictly(int status)
{
	if (strict)
		syscall(SYS_exit, status);
}

static atomic_long namesake;

static void *be_namesake(void *arg)
{
	atomic_store(&namesake, syscall(SYS_gettid));
	for (;;)
		pause();
	return arg;
}

/* True if the thread got that id. */
static bool make_namesake(long id)
{
	const int last = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
	pthread_t thread;
	char text[32];
	const int length = snprintf(text, sizeof(text), "%ld", id - 1);
	const bool set = last >= 0 && write(last, text, (size_t)length) == length;

	close(last);
	if (!set || pthread_create(&thread, NULL, be_namesake, NULL))
		return false;
	while (!atomic_load(&namesake))
		usleep(1000);
	return atomic_load(&namesake) == id;
}

static void be_worker(int orders, int answers)
{
	long n;

	while (read(orders, &n, sizeof(n)) == sizeof(n) && n >= 0) {
		if (n == STRICT)
			enter_strict_mode();
		else if (n < NAMESAKE)
			handle_all(n);
		else if (!make_namesake(n - NAMESAKE))
			n = 0;
		if (write(answers, &n, sizeof(n)) != sizeof(n))
			_exit(98);
	}
	end_strictly(5);
	_exit(5);
}

static void start_worker(struct worker *w)
{
	int orders[2], answers[2];

	if (pipe(orders) || pipe(answers)) {
		wrong = 1;
		return;
	}
	fflush(stdout);
	w->pid = fork();
	if (!w->pid) {
		close(orders[1]);
		close(answers[0]);
		be_worker(orders[0], answers[1]);
	}
	close(orders[0]);
	close(answers[1]);
	w->orders = orders[1];
	w->answers = answers[0];
}

static void order(struct worker *w, long n)
{
	if (write(w->orders, &n, sizeof(n)) != sizeof(n))
		wrong = 1;
}

static void dismiss(struct worker *w)
{
	order(w, -1);
	expect_status(w->pid, 0, 5);
	close(w->orders);
	close(w->answers);
}

static void start_contained(struct worker *w)
{
	const int own = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);

	if (own < 0 || unshare(CLONE_NEWPID))
		wrong = 1;
	start_worker(w);
	if (setns(own, CLONE_NEWPID) || close(own))
		wrong = 1;
}

static void serve(long n, void (*start)(struct worker *w))
{
	printf("workers");
	for (worker_count = 0; worker_count < n && worker_count < WORKERS_MAX; worker_count++) {
		start(&workers[worker_count]);
		printf(" %d", (int)workers[worker_count].pid);
	}
	puts("");
}

static void requests(long n)
{
	long answer;

	for (int i = 0; i < worker_count; i++)
		order(&workers[i], n);
	for (int i = 0; i < worker_count; i++)
		if (read(workers[i].answers, &answer, sizeof(answer)) != sizeof(answer) ||
		    answer != n)
			wrong = 1;
	puts(wrong ? "wrong" : "done");
}

static void strict_worker(void)
{
	long answer;

	order(&workers[0], STRICT);
	if (read(workers[0].answers, &answer, sizeof(answer)) != sizeof(answer))
		wrong = 1;
	puts(wrong ? "wrong" : "done");
}

static void ask_for_namesake(void)
{
	const long wanted = NAMESAKE + workers[0].pid;
	long answer;

	order(&workers[0], wanted);
	if (read(workers[0].answers, &answer, sizeof(answer)) != sizeof(answer))
		wrong = 1;
	puts(wrong ? "wrong" : answer == wanted ? "done" : "no");
}

/* --------------------------------------------------------- odd processes */

static int be_clone(void *arg)
{
	handle_all(*(long *)arg);
	return 3;
}

static void clone_one(const char *kind, long n)
{
	int flags = SIGCHLD;
	pid_t pid;

	calls = n;
	if (!strcmp(kind, "vm"))
		flags |= CLONE_VM;
	else if (!strcmp(kind, "files"))
		flags |= CLONE_FILES | CLONE_FS;
	else if (!strcmp(kind, "thread-like"))
		flags |= CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND;
	else
		flags |= CLONE_PARENT;
	pid = clone(be_clone, clone_stack + STACK, flags, &calls);
	if (pid < 0)
		wrong = 1;
	if (flags & CLONE_PARENT)
		/* It is its grandparent's to wait for. */
		while (!kill(pid, 0)) {
			char path[64], text[256] = "";
			FILE *file;

			snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
			file = fopen(path, "re");
			if (!file || !fgets(text, sizeof(text), file) || strstr(text, ") Z")) {
				if (file)
					fclose(file);
				break;
			}
			fclose(file);
			usleep(2000);
		}
	else
		expect_status(pid, __WALL, 3);
	puts(wrong ? "wrong" : "done");
}

static void daemonise(long n)
{
	int done[2];
	pid_t pid;
	char byte;

	if (pipe(done))
		wrong = 1;
	pid = fork();
	if (!pid) {
		setsid();
		if (fork())
			_exit(4);
		close(done[0]);
		if (chdir("/"))
			_exit(97);
		handle_all(n);
		_exit(write(done[1], "x", 1) != 1);
	}
	close(done[1]);
	expect_status(pid, 0, 4);
	if (read(done[0], &byte, 1) != 1)
		wrong = 1;
	close(done[0]);
	puts(wrong ? "wrong" : "done");
}

static void fail_to_execute(void)
{
	static const char *const paths[] = {"/nonexistent", "/", "/etc/passwd", "/dev/null/x"};
	char *argv[] = {"life-family", NULL};

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		errno = 0;
		if (execve(paths[i], argv, NULL) != -1 || !errno)
			wrong = 1;
	}
}

static void *fail_in_thread(void *arg)
{
	fail_to_execute();
	handle_all(1);
	return arg;
}

static void bad_exec(long n)
{
	pthread_t thread;
	pid_t pid;

	for (long i = 0; i < n; i++) {
		fail_to_execute();
		if (pthread_create(&thread, NULL, fail_in_thread, NULL))
			wrong = 1;
		pthread_join(thread, NULL);
		pid = fork();
		if (!pid) {
			fail_to_execute();
			handle_all(1);
			_exit(wrong ? 96 : 6);
		}
		expect_status(pid, 0, 6);
	}
	puts(wrong ? "wrong" : "done");
}

static void eat(long megabytes)
{
	for (long i = 0; i < megabytes; i++) {
		char *memory =
			mmap(NULL, MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (memory == MAP_FAILED) {
			puts("no memory");
			return;
		}
		memset(memory, 1, MB);
	}
	puts(wrong ? "wrong" : "done");
}

KEEP void crash(void)
{
	*nothing = 1;
}

/* ------------------------------------------------------------------- main */

static void obey(const char *line)
{
	char kind[32];
	long n;

	if (sscanf(line, "serve %ld", &n) == 1) {
		serve(n, start_worker);
	} else if (sscanf(line, "contain %ld", &n) == 1) {
		serve(n, start_contained);
	} else if (sscanf(line, "requests %ld", &n) == 1) {
		requests(n);
	} else if (!strcmp(line, "replace\n")) {
		dismiss(&workers[0]);
		start_worker(&workers[0]);
		printf("worker %d\n", (int)workers[0].pid);
	} else if (!strcmp(line, "dismiss\n")) {
		while (worker_count)
			dismiss(&workers[--worker_count]);
		puts(wrong ? "wrong" : "done");
	} else if (sscanf(line, "clone %31s %ld", kind, &n) == 2) {
		clone_one(kind, n);
	} else if (sscanf(line, "daemon %ld", &n) == 1) {
		daemonise(n);
	} else if (sscanf(line, "badexec %ld", &n) == 1) {
		bad_exec(n);
	} else if (sscanf(line, "call %ld", &n) == 1) {
		handle_all(n);
		puts(wrong ? "wrong" : "done");
	} else if (!strcmp(line, "namesake\n")) {
		ask_for_namesake();
	} else if (!strcmp(line, "strict worker\n")) {
		strict_worker();
	} else if (!strcmp(line, "strict self\n")) {
		enter_strict_mode();
		puts(wrong ? "wrong" : "done");
	} else if (!strcmp(line, "crash\n")) {
		crash();
	} else if (sscanf(line, "eat %ld", &n) == 1) {
		eat(n);
	}
	fflush(stdout);
}

int main(void)
{
	pthread_t thread;
	char line[64];

	/* libc installs a handler of its own with the first thread. */
	if (pthread_create(&thread, NULL, fail_in_thread, NULL))
		return 2;
	pthread_join(thread, NULL);
	setvbuf(stdin, NULL, _IONBF, 0);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		obey(line);
	end_strictly(wrong);
	return wrong;
}
