/* SPDX-License-Identifier: MIT */
/* build: -O1 -fno-inline -fno-ipa-cp -fno-ipa-icf -fno-optimize-sibling-calls -fno-pie -no-pie */
/*
 * evaluated.c - a program for metrics to be evaluated in: a stand-in for a
 * message passing program, with functions, threads and data of known names.
 *
 * Two threads, "worker-1" and "worker-2", wait until the input ends. Behind
 * "ready" it tells where main() is.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define OPAQUE	 __asm__ volatile("" ::: "memory")

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
int timeSteps;

NOINLINE int pvm_send(int task, int tag)
{
	OPAQUE;
	return task + tag;
}

NOINLINE int pvm_recv(int task, int tag)
{
	OPAQUE;
	return task - tag;
}

NOINLINE int helper(int n)
{
	OPAQUE;
	return n * 3;
}

NOINLINE int foo(int n)
{
	int sum = pvm_send(n, 1);

	OPAQUE;
	sum += helper(n);
	OPAQUE;
	sum += (int)strtol("12", NULL, n & 8);
	OPAQUE;
	sum += pvm_recv(n, 2);
	OPAQUE;
	return sum;
}

NOINLINE int bar(int n)
{
	OPAQUE;
	if (n > 3)
		return foo(n) + 1;
	OPAQUE;
	return helper(n) - 1;
}

static void *work(void *name)
{
	char byte;

	prctl(PR_SET_NAME, name);
	pthread_mutex_lock(&lock);
	timeSteps += bar(5);
	pthread_mutex_unlock(&lock);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	return NULL;
}

int main(void)
{
	static char names[2][16] = {"worker-1", "worker-2"};
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, work, names[i]);
	while (1) {
		usleep(1000);
		pthread_mutex_lock(&lock);
		int done = timeSteps == 2 * bar(5);
		pthread_mutex_unlock(&lock);
		if (done)
			break;
	}
	printf("ready\nmain %p\n", (void *)main);
	fflush(stdout);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
