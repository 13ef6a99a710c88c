/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -ldl */
/*
 * loads.c - a program whose plugin comes and goes.
 *
 * Prints "ready". Commands, each answered with "done" unless said otherwise, with "wrong"
 * once a result was:
 *   open      loads libplugin.so from beside the program
 *   call N    calls plugin_work() N times
 *   close     unloads it
 *   loop N    N times: open, 200 calls, close
 *   linger    a child that calls plugin_work() until told to end
 *   unlinger  ends it; "ended STATUS"
 * Exits with 1 if a result was wrong. With an argument there is no room behind its own code,
 * and what it loads lies below all libraries.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char etext[];
static int wrong;
static void *plugin;
static long (*work)(long);
static char path[4096];
static volatile int *end;
static pid_t child;

static void do_open(void)
{
	plugin = dlopen(path, RTLD_NOW);
	*(void **)&work = plugin ? dlsym(plugin, "plugin_work") : NULL;
	if (!work)
		wrong = 1;
}

static void do_call(long n)
{
	for (long i = 0; i < n; i++)
		if (work(i) != i * 11 + 3)
			wrong = 1;
}

static void do_close(void)
{
	if (dlclose(plugin))
		wrong = 1;
	plugin = NULL;
}

static void linger(void)
{
	*end = 0;
	child = fork();
	if (child)
		return;
	while (!*end)
		do_call(10);
	_exit(wrong ? 1 : 7);
}

static void unlinger(void)
{
	int status = 0;

	*end = 1;
	waitpid(child, &status, 0);
	printf("ended %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
	fflush(stdout);
}

static void command(const char *line)
{
	long n = 0;

	if (!strncmp(line, "open", 4))
		do_open();
	else if (sscanf(line, "call %ld", &n) == 1)
		do_call(n);
	else if (!strncmp(line, "close", 5))
		do_close();
	else if (!strncmp(line, "linger", 6))
		linger();
	else if (!strncmp(line, "unlinger", 8))
		unlinger();
	else if (sscanf(line, "loop %ld", &n) == 1)
		for (long i = 0; i < n; i++) {
			do_open();
			do_call(200);
			do_close();
		}
	if (strncmp(line, "unlinger", 8)) {
		puts(wrong ? "wrong" : "done");
		fflush(stdout);
	}
}

/* The rest of the last page of code is used from now on, and so is what is free between the libraries. */
static void fill(void)
{
	char *at = etext, *next = (char *)(((unsigned long)at | 4095) + 1);

	if (mprotect(next - 4096, 4096, PROT_READ | PROT_WRITE | PROT_EXEC))
		wrong = 1;
	for (int i = 0; i < 64; i++)
		mmap(NULL, 4 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(at, 0xcc, (size_t)(next - at));
	if (mprotect(next - 4096, 4096, PROT_READ | PROT_EXEC))
		wrong = 1;
}

int main(int argc, char **argv)
{
	ssize_t size = readlink("/proc/self/exe", path, sizeof(path) - 32);
	char line[64];

	end = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (size <= 0 || end == MAP_FAILED)
		return 2;
	path[size] = 0;
	snprintf(strrchr(path, '/') + 1, 32, "libplugin.so");
	/* What loading leaves behind in the loader is there from the start. */
	do_open();
	do_call(1);
	do_close();
	(void)argv;
	if (argc > 1)
		fill();
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		command(line);
	return wrong;
}
