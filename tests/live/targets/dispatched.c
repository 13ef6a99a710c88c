/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -rdynamic */
/*
 * dispatched.c - a program that makes its system calls itself, as one under Wine
 * does: those of its own code become SIGSYS, whose handler makes them.
 *
 *   dispatched blocked    its only thread does so all the time
 *   dispatched toggling   ... half of the time, and not while it waits for a command
 *   dispatched helped     another thread does not
 *
 * Prints "ready", or "unsupported" where the kernel has none of this. "go N" calls
 * step() N times, each with a system call of its own, and answers "done"; "run" does
 * so until there is another line. Exits with 1 if a system call that is not its own
 * came to its handler.
 */
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { SET_DISPATCH = 59, DISPATCH_ON = 1, ALLOW = 0, BLOCK = 1 }; /* linux/prctl.h */
enum { ROUNDS = 200000 }; /* longer than an interrupt takes to come from another CPU */

static volatile char selector;
static volatile unsigned long seen, foreign, wrong;
static volatile int toggles;
extern const char own_call_end[];

/* getppid() of this program's own code. */
static long own_call(void)
{
	long result = SYS_getppid;

	__asm__ volatile("syscall\n.globl own_call_end\nown_call_end:"
			 : "+a"(result)
			 :
			 : "rcx", "r11", "memory");
	return result;
}

static void dispatched(int signal, siginfo_t *info, void *context)
{
	ucontext_t *u = context;

	(void)signal;
	if (info->si_call_addr == own_call_end)
		seen++;
	else
		foreign++;
	u->uc_mcontext.gregs[REG_RAX] = syscall(info->si_syscall);
}

__attribute__((noinline, noclone)) unsigned long step(unsigned long n)
{
	if (toggles) {
		selector = ALLOW;
		for (int i = 0; i < ROUNDS; i++)
			__asm__ volatile("");
		selector = BLOCK;
	}
	return (unsigned long)own_call() + n;
}

static void *helper(void *arg)
{
	for (;;)
		pause();
	return arg;
}

/* All of libc's code may make system calls: as much of it as one range can name. */
static int begin(void)
{
	unsigned long lo, hi, from = 0, to = 0;
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "re");

	while (maps && fgets(line, sizeof(line), maps))
		if (strstr(line, " r-xp ") && strstr(line, "/libc.so") &&
		    sscanf(line, "%lx-%lx", &lo, &hi) == 2) {
			from = lo;
			to = hi;
		}
	if (maps)
		fclose(maps);
	selector = BLOCK;
	return !to || prctl(SET_DISPATCH, DISPATCH_ON, from, to - from, &selector);
}

/* Whether there is a line to read: nothing of it is in a buffer. */
static int told(void)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};

	return poll(&input, 1, 0) != 0;
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_sigaction = dispatched, .sa_flags = SA_SIGINFO};
	char line[64];
	unsigned long n, done;
	pthread_t thread;

	if (argc != 2)
		return 2;
	toggles = !strcmp(argv[1], "toggling");
	if (!strcmp(argv[1], "helped"))
		pthread_create(&thread, NULL, helper, NULL);
	sigaction(SIGSYS, &action, NULL);
	setvbuf(stdin, NULL, _IONBF, 0);
	puts(begin() ? "unsupported" : "ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		n = ULONG_MAX; /* "run": until the next line is there */
		if (strcmp(line, "run\n") != 0 && sscanf(line, "go %lu", &n) != 1)
			return 2;
		seen = 0;
		for (done = 0; done < n && (n < ULONG_MAX || done % 16 || !told()); done++)
			wrong += step(done) != (unsigned long)getppid() + done;
		wrong += seen != done;
		if (toggles)
			selector = ALLOW;
		puts("done");
		fflush(stdout);
	}
	if (foreign || wrong)
		fprintf(stderr, "%lu system calls that are not ours, %lu wrong\n", foreign, wrong);
	return foreign || wrong;
}
