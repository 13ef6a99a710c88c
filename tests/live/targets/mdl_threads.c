/* SPDX-License-Identifier: MIT */
/* build: -O2 -rdynamic -fno-inline -fno-optimize-sibling-calls */
/*
 * mdl_threads.c - ten threads that each call a function of their own, which calls
 * leaf() as often as its thread's number says; and that can be held inside.
 *
 * Prints "ready". Commands:
 *   go N      each thread calls work_I N times, and each of those leaf() I + 1 times; "done"
 *   hold      each thread goes into work_I and stays there; "held" when all are inside
 *   free N    those go on: leaf() N times more each, then out; "done"
 *   visit     one thread more goes into work_3 and stays there; "done"
 *   leave     that one ends in there; "done"
 *   fork      one thread more goes into work_3 and forks there, and both stay, after a call of leaf() in
 *             the child; "child PID"
 *   join      those two leave by returning; "done"
 *   split     the thread of `hold` that is in work_3 forks there, and both stay, as with `fork`; "child PID"
 *   meet      after `free`: that child ends; "done"
 *   names     the threads' ids, in the order of their numbers
 *   share     a process that waits, in our memory; "done"
 *   alone     ends it; "done"
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 10 };
enum command { NOTHING, GO, HOLD };
enum { STAY = 1, VISIT, FORK, SPLIT };

struct thread {
	pthread_t thread;
	long tid;
	int number;
};

static struct thread threads[THREADS];
static pthread_barrier_t begin, end;
static enum command command;
static long rounds, extra;
static atomic_int inside, released, splitting;
static pthread_t visitor;
static pid_t forked = -1;
static int gate = -1; /* closed: the child goes on */

volatile unsigned long sink;

__attribute__((noinline, noclone)) unsigned long leaf(unsigned long n)
{
	sink = n;
	return n * 3 + 1;
}

/* True in the child, once it may leave. */
static bool fork_here(void)
{
	int there[2], go_on[2];
	char byte;

	if (pipe(there) || pipe(go_on))
		exit(1);
	forked = fork();
	close(there[forked != 0]);
	close(go_on[forked == 0]);
	if (!forked) {
		leaf(0);
		close(there[1]);
		return read(go_on[0], &byte, 1) == 0;
	}
	if (forked < 0 || read(there[0], &byte, 1) != 0)
		exit(1);
	close(there[0]);
	gate = go_on[1];
	return false;
}

static void hold_here(long how)
{
	if (how == FORK && fork_here())
		return;
	atomic_fetch_add(&inside, 1);
	/* Without a word to the C library, which would load an unwinder for that. */
	while (how == VISIT) {
		if (atomic_load(&released))
			syscall(SYS_exit, 0);
		usleep(1000);
	}
	while (!atomic_load(&released)) {
		usleep(1000);
		if (how != SPLIT || !atomic_load(&splitting))
			continue;
		if (fork_here())
			_exit(0);
		atomic_store(&splitting, 0);
	}
	for (long i = 0; i < extra; i++)
		leaf(i);
}

/* Each is a function of its own, with calls in the middle. */
#define WORK(i)                                                              \
	__attribute__((noinline, noclone)) unsigned long work_##i(long hold) \
	{                                                                    \
		unsigned long sum = i;                                       \
                                                                             \
		if (hold)                                                    \
			hold_here(hold);                                     \
		else                                                         \
			for (long k = 0; k <= i; k++)                        \
				sum += leaf(k);                              \
		return sum ^ (i << 8);                                       \
	}
WORK(0)
WORK(1)
WORK(2)
WORK(3)
WORK(4)
WORK(5)
WORK(6)
WORK(7)
WORK(8)
WORK(9)

static unsigned long (*const work[THREADS])(long) = {work_0, work_1, work_2, work_3, work_4,
						     work_5, work_6, work_7, work_8, work_9};

static void *run(void *arg)
{
	struct thread *t = arg;
	char name[16];

	snprintf(name, sizeof(name), "worker-%d", t->number);
	pthread_setname_np(pthread_self(), name);
	t->tid = syscall(SYS_gettid);
	for (;;) {
		pthread_barrier_wait(&begin);
		if (command == GO)
			for (long i = 0; i < rounds; i++)
				sink = work[t->number](0);
		else if (command == HOLD)
			sink = work[t->number](t->number == 3 ? SPLIT : STAY);
		pthread_barrier_wait(&end);
	}
	return NULL;
}

static void everybody(enum command c)
{
	command = c;
	pthread_barrier_wait(&begin);
	pthread_barrier_wait(&end);
}

static int be_there(void *arg)
{
	/* With the thread pointer of the one who made it: no function of the C library that keeps something. */
	(void)arg;
	for (;;)
		syscall(SYS_pause);
	return 0;
}

static pid_t sharer;

static void share(void)
{
	static char stack[65536] __attribute__((aligned(16)));

	sharer = clone(be_there, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL);
	puts(sharer > 0 ? "done" : "no");
}

static void be_alone(void)
{
	kill(sharer, SIGKILL);
	puts(waitpid(sharer, NULL, 0) == sharer ? "done" : "no");
}

static void *pay_visit(void *arg)
{
	sink = work_3((long)arg);
	if (!forked)
		_exit(0);
	return NULL;
}

static void visit(long how)
{
	atomic_store(&inside, 0);
	atomic_store(&released, 0);
	if (pthread_create(&visitor, NULL, pay_visit, (void *)how))
		exit(1);
	while (!atomic_load(&inside))
		usleep(1000);
}

static void leave(void)
{
	atomic_store(&released, 1);
	pthread_join(visitor, NULL);
}

static void split(void)
{
	atomic_store(&splitting, 1);
	while (atomic_load(&splitting))
		usleep(1000);
	printf("child %d\n", (int)forked);
}

static void meet(void)
{
	int status;

	close(gate);
	puts(waitpid(forked, &status, 0) == forked && !status ? "done" : "no");
}

static void join(void)
{
	leave();
	meet();
}

static void answer(const char *line)
{
	if (sscanf(line, "go %ld", &rounds) == 1) {
		everybody(GO);
		puts("done");
	} else if (!strncmp(line, "hold", 4)) {
		atomic_store(&inside, 0);
		atomic_store(&released, 0);
		command = HOLD;
		pthread_barrier_wait(&begin);
		while (atomic_load(&inside) < THREADS)
			usleep(1000);
		puts("held");
	} else if (sscanf(line, "free %ld", &extra) == 1) {
		atomic_store(&released, 1);
		pthread_barrier_wait(&end);
		puts("done");
	} else if (!strncmp(line, "visit", 5)) {
		visit(VISIT);
		puts("done");
	} else if (!strncmp(line, "leave", 5)) {
		leave();
		puts("done");
	} else if (!strncmp(line, "fork", 4)) {
		visit(FORK);
		printf("child %d\n", (int)forked);
	} else if (!strncmp(line, "join", 4)) {
		join();
	} else if (!strncmp(line, "split", 5)) {
		split();
	} else if (!strncmp(line, "meet", 4)) {
		meet();
	} else if (!strncmp(line, "names", 5)) {
		for (int i = 0; i < THREADS; i++)
			printf("%ld%c", threads[i].tid, i < THREADS - 1 ? ' ' : '\n');
	} else if (!strncmp(line, "share", 5)) {
		share();
	} else if (!strncmp(line, "alone", 5)) {
		be_alone();
	}
}

int main(void)
{
	char line[100];

	setvbuf(stdout, NULL, _IOLBF, 0);
	pthread_barrier_init(&begin, NULL, THREADS + 1);
	pthread_barrier_init(&end, NULL, THREADS + 1);
	for (int i = 0; i < THREADS; i++) {
		threads[i].number = i;
		if (pthread_create(&threads[i].thread, NULL, run, &threads[i]) != 0)
			return 1;
	}
	everybody(NOTHING);
	/* From now on there is the memory for it. */
	visit(VISIT);
	leave();
	puts("ready");
	while (fgets(line, sizeof(line), stdin))
		answer(line);
	return 0;
}
