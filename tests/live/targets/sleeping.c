/* SPDX-License-Identifier: MIT */
/*
 * sleeping.c CASE TIMES: sleeps so often for 400 ms by a call whose remainder goes to where its request
 * is, and which it does not set again, and prints "LEFT SHORTEST LONGEST INTERRUPTED": the request
 * as it is then, the shortest and the longest sleep, both in ms, and how often one returned EINTR.
 *
 *   nanosleep, monotonic, realtime, processor  by nanosleep(), and clock_nanosleep() with these clocks
 *   filtered   nanosleep under a seccomp filter that kills at restart_syscall
 *   many       nanosleep in one thread of forty, of which the others wait for ever
 *   handled    nanosleep; SIGUSR1 has a handler, and the program goes on with the remainder, as the
 *              manual says. Sets the request before each sleep
 *   foreign    the same in a process of its own that shares the memory, and alone has the handler
 *   foreign-once  nanosleep there, by what was set once
 *
 * Status 1 if a call failed otherwise.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PERIOD_MS = 400, OTHERS = 39 };

static const struct timespec period = {0, PERIOD_MS * 1000000l};
static struct timespec left;
static int interrupted;

static long sleep_left(const char *name)
{
	if (!strcmp(name, "monotonic"))
		return syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &left, &left);
	if (!strcmp(name, "realtime"))
		return syscall(SYS_clock_nanosleep, CLOCK_REALTIME, 0, &left, &left);
	if (!strcmp(name, "processor"))
		return syscall(SYS_clock_nanosleep, CLOCK_PROCESS_CPUTIME_ID, 0, &left, &left);
	return syscall(SYS_nanosleep, &left, &left);
}

static void forbid_restart(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_restart_syscall, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		exit(3);
}

static void on_signal(int signal)
{
	(void)signal;
}

/* So that the processor's time of the process goes on. */
static void *compute(void *arg)
{
	for (;;)
		__atomic_add_fetch((int *)arg, 1, __ATOMIC_RELAXED);
	return NULL;
}

static void *wait_for_ever(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* One sleep with all that is left of it; how long it took. */
static long sleep_once(const char *name)
{
	const long begin = now_ms();

	while (sleep_left(name)) {
		if (errno != EINTR)
			exit(1);
		interrupted++;
	}
	return now_ms() - begin;
}

static const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
static const char *name = "";
static int times;
static long shortest = 1000000, longest;

/* Whether it goes on with the remainder, and sets the request before each sleep. */
static bool sets_request(void)
{
	return !strcmp(name, "handled") || !strcmp(name, "foreign");
}

static void sleep_so_often(void)
{
	long ms;

	for (int i = 0; i < times; i++) {
		if (sets_request())
			left = period;
		ms = sleep_once(name);
		shortest = ms < shortest ? ms : shortest;
		longest = ms > longest ? ms : longest;
	}
}

static int sleep_as_foreign(void *arg)
{
	(void)arg;
	if (sigaction(SIGUSR1, &action, NULL))
		return 1;
	sleep_so_often();
	return 0;
}

/* False if it could not be made, or has failed. */
static bool let_foreign_sleep(void)
{
	static char stack[65536] __attribute__((aligned(16)));
	const pid_t child =
		clone(sleep_as_foreign, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL);
	int status;

	return child > 0 && waitpid(child, &status, 0) == child && !status;
}

int main(int argc, char **argv)
{
	static int computed;
	pthread_t thread;

	name = argc > 2 ? argv[1] : "";
	times = argc > 2 ? atoi(argv[2]) : 0;
	left = period;
	if (!strcmp(name, "handled") && sigaction(SIGUSR1, &action, NULL))
		return 2;
	if (!strcmp(name, "processor") && pthread_create(&thread, NULL, compute, &computed))
		return 2;
	for (int i = 0; !strcmp(name, "many") && i < OTHERS; i++)
		if (pthread_create(&thread, NULL, wait_for_ever, NULL))
			return 2;
	if (!strcmp(name, "filtered"))
		forbid_restart();
	puts("ready");
	fflush(stdout);
	if (strncmp(name, "foreign", 7) != 0)
		sleep_so_often();
	else if (!let_foreign_sleep())
		return 1;
	printf("%ld.%09ld %ld %ld %d\n", (long)left.tv_sec, left.tv_nsec, shortest, longest,
	       interrupted);
	return 0;
}
