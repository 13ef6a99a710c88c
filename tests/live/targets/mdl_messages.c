/* SPDX-License-Identifier: MIT */
/* build: -O2 -rdynamic -fno-inline -fno-optimize-sibling-calls */
/*
 * mdl_messages.c - a program that passes messages to itself, with the functions
 * that the published examples of the metric language name.
 *
 * Prints "ready". Commands, answered by "sent N received N steps N worked NS":
 *   foo N     foo() sends and receives N messages
 *   bar N     bar() does
 *   steps N   N time steps: timeSteps counts up, each step works for a millisecond
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

static long sent, received, pending;
static long long worked;
int timeSteps;

__attribute__((noinline, noclone)) int pvm_send(int tid, int tag)
{
	sent++;
	pending += tag;
	return tid & 1;
}

__attribute__((noinline, noclone)) int pvm_recv(int tid, int tag)
{
	received++;
	pending -= tag;
	return tid & 1;
}

__attribute__((noinline, noclone)) int exchange(long n)
{
	int sum = 0;

	for (long i = 0; i < n; i++)
		sum += pvm_send(1, (int)i % 3);
	for (long i = 0; i < n; i++)
		sum += pvm_recv(1, (int)i % 3);
	return sum;
}

volatile int sink;

__attribute__((noinline, noclone)) void foo(long n)
{
	sink = exchange(n);
	sink++;
}

__attribute__((noinline, noclone)) void bar(long n)
{
	sink = exchange(n);
	sink--;
}

static long long cpu(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* Works for a millisecond, and writes down how long it took once timeSteps is at 300. */
__attribute__((noinline, noclone)) void step(void)
{
	const long long start = cpu();

	while (cpu() < start + 1000000)
		;
	if (timeSteps >= 300)
		worked += cpu() - start;
}

__attribute__((noinline, noclone)) void steps(long n)
{
	for (long i = 0; i < n; i++) {
		timeSteps++;
		step();
	}
}

int main(void)
{
	char line[100], name[32];
	long n;

	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "%31s %ld", name, &n) != 2)
			continue;
		if (!strcmp(name, "foo"))
			foo(n);
		else if (!strcmp(name, "bar"))
			bar(n);
		else if (!strcmp(name, "steps"))
			steps(n);
		printf("sent %ld received %ld steps %d worked %lld\n", sent, received, timeSteps,
		       worked);
	}
	return 0;
}
