/* SPDX-License-Identifier: MIT */
/* build: -O2 */
/*
 * woken.c - threads in epoll_wait() on one CPU, and the first thread on another one.
 *
 * woken FIRST CPU [WORKING]: the first thread is to run on CPU number FIRST, and only if nobody else wants that; eight others
 * on the other CPU, and WORKING there that do not wait. Prints "ready". At "count": how many calls ended with EINTR.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

enum { THREADS = 8 };

static atomic_ulong cut;

static void stay_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		abort();
}

static void *wait_again_and_again(void *cpu)
{
	const int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event;

	stay_on(*(int *)cpu);
	for (;;)
		if (epoll_wait(epoll, &event, 1, -1) < 0 && errno == EINTR)
			atomic_fetch_add(&cut, 1);
	return NULL;
}

static void *work(void *cpu)
{
	stay_on(*(int *)cpu);
	for (;;)
		continue;
	return NULL;
}

static void on_signal(int sig)
{
	(void)sig;
}

int main(int argc, char **argv)
{
	const struct sched_param none = {0};
	/* Who handles no signal at all is let go from where it stands still. */
	struct sigaction action = {.sa_handler = on_signal};
	int cpu = argc > 2 ? atoi(argv[2]) : 0;
	pthread_t thread;
	char line[64];

	sigaction(SIGUSR1, &action, NULL);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&thread, NULL, wait_again_and_again, &cpu))
			return 2;
	for (int i = argc > 3 ? atoi(argv[3]) : 0; i > 0; i--)
		if (pthread_create(&thread, NULL, work, &cpu))
			return 2;
	stay_on(argc > 1 ? atoi(argv[1]) : 0);
	if (sched_setscheduler(0, SCHED_IDLE, &none))
		return 2;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin) && !strcmp(line, "count\n")) {
		printf("%lu\n", atomic_load(&cut));
		fflush(stdout);
	}
	return 0;
}
