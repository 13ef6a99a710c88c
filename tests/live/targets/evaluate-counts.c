/* SPDX-License-Identifier: MIT */
/* build: -O1 -fno-inline -fno-ipa-cp -fno-ipa-icf -fno-ipa-ra -fno-optimize-sibling-calls */
/*
 * evaluate-counts.c - calls, threads and processes whose number is known, for
 * constraints that tell them apart.
 *
 * Prints "ready". Commands, each answered with "done":
 *   go N      outer(0) to outer(N - 1), by the main thread
 *   work N    threads long-0, long-1 and Socket call leaf() N, 2 N and 4 N times
 *   short N   N threads, one after the other, of which every other one ends by
 *             pthread_exit() in the middle of ender()
 *   fork N    a child that calls leaf() N times
 *   orphan    a child of a child, named "orphan", whose parent has ended; "orphan PID"
 *   let N     that one calls leaf() N times; 0: it ends
 *
 * outer(i) calls leaf() twice, middle(), which calls leaf() three times, and
 * every third time rare().
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define OPAQUE	 __asm__ volatile("" ::: "memory")

enum { LONG = 3 };

static pthread_barrier_t begin, end;
static long rounds;

volatile unsigned long sink;

NOINLINE long leaf(long n)
{
	OPAQUE;
	sink = (unsigned long)n;
	return n + 1;
}

NOINLINE long rare(long n)
{
	OPAQUE;
	return n * 5;
}

NOINLINE long middle(long n)
{
	long sum = leaf(n);

	OPAQUE;
	sum += leaf(n + 1);
	OPAQUE;
	sum += leaf(n + 2);
	OPAQUE;
	return sum;
}

NOINLINE long outer(long n)
{
	long sum = leaf(n);

	OPAQUE;
	sum += middle(n);
	OPAQUE;
	if (n % 3 == 0)
		sum += rare(n);
	OPAQUE;
	sum += leaf(n);
	OPAQUE;
	return sum;
}

NOINLINE long ender(long n)
{
	OPAQUE;
	if (n % 2)
		pthread_exit(NULL);
	OPAQUE;
	return leaf(n);
}

static void *short_thread(void *n)
{
	ender((long)n);
	OPAQUE;
	return NULL;
}

static void *long_thread(void *number)
{
	static const char *const names[LONG] = {"long-0", "long-1", "Socket"};
	const long i = (long)number;

	prctl(PR_SET_NAME, names[i]);
	pthread_barrier_wait(&end);
	for (;;) {
		pthread_barrier_wait(&begin);
		if (rounds < 0)
			return NULL;
		for (long k = 0; k < rounds << i; k++)
			leaf(k);
		pthread_barrier_wait(&end);
	}
}

static void go_long(long n)
{
	rounds = n;
	pthread_barrier_wait(&begin);
	if (n >= 0)
		pthread_barrier_wait(&end);
}

static void go_short(long n)
{
	for (long i = 0; i < n; i++) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, short_thread, (void *)i))
			exit(1);
		pthread_join(thread, NULL);
	}
}

static void go_fork(long n)
{
	pid_t child = fork();
	int status;

	if (!child) {
		for (long k = 0; k < n; k++)
			leaf(k);
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child || status)
		exit(1);
}

static int orders = -1, answers = -1; /* our ends */

static void be_orphan(int from, int to)
{
	const pid_t own = getpid();
	long n;

	prctl(PR_SET_NAME, "orphan");
	if (write(to, &own, sizeof(own)) != sizeof(own))
		_exit(1);
	while (read(from, &n, sizeof(n)) == sizeof(n) && n) {
		for (long k = 0; k < n; k++)
			leaf(k);
		if (write(to, &n, sizeof(n)) != sizeof(n))
			_exit(1);
	}
	_exit(0);
}

static void go_orphan(void)
{
	int there[2], back[2], status;
	pid_t child, orphan;

	if (pipe(there) || pipe(back))
		exit(1);
	child = fork();
	if (!child) {
		close(there[1]);
		close(back[0]);
		if (!fork())
			be_orphan(there[0], back[1]);
		_exit(0);
	}
	close(there[0]);
	close(back[1]);
	orders = there[1];
	answers = back[0];
	if (waitpid(child, &status, 0) != child || status ||
	    read(answers, &orphan, sizeof(orphan)) != sizeof(orphan))
		exit(1);
	printf("orphan %d\n", (int)orphan);
}

static void let_orphan(long n)
{
	long answer;

	if (write(orders, &n, sizeof(n)) != sizeof(n) ||
	    read(answers, &answer, sizeof(answer)) != (n ? (ssize_t)sizeof(answer) : 0))
		exit(1);
	if (n)
		return;
	close(orders);
	close(answers);
}

int main(void)
{
	pthread_t threads[LONG];
	char line[64];

	pthread_barrier_init(&begin, NULL, LONG + 1);
	pthread_barrier_init(&end, NULL, LONG + 1);
	for (long i = 0; i < LONG; i++)
		pthread_create(&threads[i], NULL, long_thread, (void *)i);
	pthread_barrier_wait(&end);
	/* What the C library keeps for the next thread, and loads for pthread_exit(), is there now. */
	go_short(4);
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		const long n = strtol(line + strcspn(line, " "), NULL, 10);

		if (!strncmp(line, "go", 2))
			for (long i = 0; i < n; i++)
				outer(i);
		else if (!strncmp(line, "work", 4))
			go_long(n);
		else if (!strncmp(line, "short", 5))
			go_short(n);
		else if (!strncmp(line, "fork", 4))
			go_fork(n);
		else if (!strncmp(line, "let", 3))
			let_orphan(n);
		if (!strncmp(line, "orphan", 6))
			go_orphan();
		else
			printf("done\n");
		fflush(stdout);
	}
	go_long(-1);
	for (long i = 0; i < LONG; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
