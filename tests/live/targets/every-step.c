/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -ldl */
/*
 * every-step.c - one thread that works in rounds: each calls every function of every-step.inc a few
 * times, of the program and of a library while that is loaded, and compares what they return. A
 * signal's handler does some of that, too.
 *
 * Prints "ready". Commands, each answered by a line:
 *   where      the thread's id, and the addresses of the functions, hexadecimal
 *   start N    N rounds are to be done; "started"
 *   wait       when they are, and no signal is left; "done"
 *   open       loads the library; "opened", and the addresses of its functions
 *   close      unloads it; "closed", or "busy" where the thread may be inside
 *   signal     sends one to the thread; "sent"
 *   fork       the thread is to fork where it next may; the child goes on alone; "asked"
 *   reap       the child, if there is one, is told to end; "reaped", "busy" where
 *              it may just come to be, or what was wrong
 * Exits with 1 if any result was wrong, in the child too.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PREFIX "own_"
#include "every-step.inc"

#define DECLARE(name, result) extern long function_##name(long n) __asm__(PREFIX #name);
#define POINTER(name, result) function_##name,
#define RESULT(name, result) \
	case INDEX_##name:   \
		return result;
#define INDEX(name, result) INDEX_##name,

typedef long (*function)(long);

enum { FUNCTIONS(INDEX) COUNT, NUMBERS = 8 };
enum { NO, ASKED, FORKING };

FUNCTIONS(DECLARE)

static const function own[COUNT] = {FUNCTIONS(POINTER)};

static struct {
	volatile int ready;
	volatile long rounds;
	volatile int wrong, in_library, forks;
	const function *volatile loaded;
	volatile pid_t tid, child;
	volatile int sent, taken, over; /* signals */
} control;

/* With a child. */
static struct shared {
	volatile int end, wrong;
} * shared;

static long expected[COUNT][NUMBERS];
static void *library;

static long result_of(int which, long n)
{
	switch (which) {
		FUNCTIONS(RESULT)
	}
	return -1;
}

static void call_all(const function *functions, long first, long step)
{
	for (int i = 0; i < COUNT; i++)
		for (long n = first; n < NUMBERS; n += step)
			if (functions[i](n) != expected[i][n])
				control.wrong = 1;
}

static void on_signal(int number)
{
	(void)number;
	control.taken++;
	call_all(own, 5, NUMBERS);
	control.over++;
}

static void work(void)
{
	call_all(own, 2, 3);
	control.in_library = 1;
	if (control.loaded)
		call_all(control.loaded, 2, 3);
	control.in_library = 0;
}

static void sleep_for(long ns)
{
	const struct timespec time = {.tv_nsec = ns};

	syscall(SYS_nanosleep, &time, NULL);
}

/* Without the C library's part, whose locks the other thread may need while this one is held. */
static void part(void)
{
	const pid_t child = (pid_t)syscall(SYS_fork);

	if (child) {
		control.child = child;
		return;
	}
	syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
	while (!shared->end) {
		work();
		sleep_for(100000);
	}
	syscall(SYS_exit_group, control.wrong ? 1 : 0);
}

static void *worker(void *arg)
{
	control.tid = (pid_t)syscall(SYS_gettid);
	control.ready = 1;
	for (;;) {
		if (__sync_bool_compare_and_swap(&control.forks, ASKED, FORKING)) {
			part();
			control.forks = NO;
		}
		if (control.rounds < 0)
			return arg;
		if (!control.rounds) {
			sleep_for(100000);
			continue;
		}
		work();
		control.rounds--;
	}
}

static void tell(const char *what, const function *functions)
{
	fputs(what, stdout);
	for (int i = 0; i < COUNT; i++)
		printf(" %lx", (unsigned long)functions[i]);
	puts("");
}

static void open_library(void)
{
	char path[4096];
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 32);

	path[length > 0 ? length : 0] = 0;
	snprintf(strrchr(path, '/') + 1, 32, "libevery-step.so");
	library = dlopen(path, RTLD_NOW);
	if (!library)
		exit(2);
}

static const char *close_library(void)
{
	if (control.in_library)
		return "busy";
	control.loaded = NULL;
	dlclose(library);
	library = NULL;
	return "closed";
}

static const char *reap(void)
{
	int status = 0;

	__sync_bool_compare_and_swap(&control.forks, ASKED, NO);
	if (control.forks == FORKING)
		return "busy";
	shared->end = 1;
	if (control.child && waitpid(control.child, &status, 0) != control.child)
		return "lost";
	shared->end = 0;
	control.child = 0;
	if (WIFSIGNALED(status))
		return strsignal(WTERMSIG(status));
	return WEXITSTATUS(status) ? "wrong" : "reaped";
}

static void command(char *line)
{
	char text[32];

	line[strcspn(line, "\n")] = 0;
	if (!strncmp(line, "start ", 6)) {
		control.rounds = atol(line + 6);
		puts("started");
	} else if (!strcmp(line, "wait")) {
		while (control.rounds || control.over != control.sent)
			usleep(100);
		puts("done");
	} else if (!strcmp(line, "where")) {
		snprintf(text, sizeof(text), "%d", (int)control.tid);
		tell(text, own);
	} else if (!strcmp(line, "open")) {
		open_library();
		control.loaded = dlsym(library, "lib_functions");
		tell("opened", control.loaded);
	} else if (!strcmp(line, "close")) {
		puts(close_library());
	} else if (!strcmp(line, "signal")) {
		/* A second one would be one with the first. */
		if (control.taken == control.sent) {
			control.sent++;
			syscall(SYS_tgkill, getpid(), control.tid, SIGUSR1);
		}
		puts("sent");
	} else if (!strcmp(line, "fork")) {
		control.forks = control.child ? NO : ASKED;
		puts("asked");
	} else if (!strcmp(line, "reap")) {
		puts(reap());
	}
	fflush(stdout);
}

int main(void)
{
	const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	pthread_t thread;
	char line[64];

	for (int i = 0; i < COUNT; i++)
		for (long n = 0; n < NUMBERS; n++)
			expected[i][n] = result_of(i, n);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED || sigaction(SIGUSR1, &action, NULL) ||
	    pthread_create(&thread, NULL, worker, NULL))
		return 2;
	open_library();
	close_library();
	while (!control.ready)
		usleep(100);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		command(line);
	control.rounds = -1;
	pthread_join(thread, NULL);
	return control.wrong;
}
