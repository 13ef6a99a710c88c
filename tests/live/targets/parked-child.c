/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -ldl */
/*
 * parked-child.c - a program whose child alone has loaded the library that switches between tasks
 * (libswitches.so), and does so in a signal handler: what is interrupted lies on the task's stack, from
 * the heap, which no thread runs on. The signal is a fault in parked_function().
 *
 * Prints "ready". Commands:
 *   fork F   a child loads the shared object F, calls the function, and gets stuck so; "parked"
 *   resume   the child goes on, and ends; "ended N" with its status, 0 where its result was right
 *   go N     calls the function N times without a fault; "done"
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "parked.h"

enum { STACK = 65536, VALUE = 41 };

static int (*library_switch)(ucontext_t *from, const ucontext_t *to);
static ucontext_t server, task, in_handler;
static volatile int *page;
static volatile int right;

static void on_fault(int sig)
{
	mprotect((void *)page, 4096, PROT_READ | PROT_WRITE);
	library_switch(&in_handler, &server);
	(void)sig;
}

static void run_task(void)
{
	right = parked_function(page) == VALUE + 1;
	library_switch(&task, &server);
}

static void be_child(const char *library, int to_parent, int from_parent)
{
	void *file = dlopen(library, RTLD_NOW);
	char byte = 'x';

	*(void **)&library_switch = file ? dlsym(file, "library_switch") : NULL;
	if (!library_switch)
		_exit(2);
	mprotect((void *)page, 4096, PROT_NONE);
	getcontext(&task);
	task.uc_stack.ss_sp = malloc(STACK);
	task.uc_stack.ss_size = STACK;
	makecontext(&task, run_task, 0);
	library_switch(&server, &task);
	wipe();
	if (write(to_parent, &byte, 1) != 1 || read(from_parent, &byte, 1) != 1)
		_exit(2);
	library_switch(&server, &in_handler);
	_exit(!right);
}

int main(void)
{
	struct sigaction fault = {.sa_handler = on_fault};
	int to_parent[2], to_child[2], status = 0;
	char line[1024], byte = 0;

	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	*page = VALUE;
	sigaction(SIGSEGV, &fault, NULL);
	if (pipe(to_parent) || pipe(to_child))
		return 2;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		if (!strncmp(line, "fork ", 5)) {
			if (!fork())
				be_child(line + 5, to_parent[1], to_child[0]);
			puts(read(to_parent[0], &byte, 1) == 1 ? "parked" : "not parked");
		} else if (!strcmp(line, "resume")) {
			if (write(to_child[1], &byte, 1) != 1 || wait(&status) < 0)
				return 2;
			printf("ended %d\n", status);
		} else {
			for (long n = atol(line + 3); n > 0; n--)
				if (parked_function(page) != VALUE + 1)
					return 1;
			puts("done");
		}
		fflush(stdout);
	}
	return 0;
}
