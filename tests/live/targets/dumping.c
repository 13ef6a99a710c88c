/* SPDX-License-Identifier: MIT */
/* build: -O2 */
/*
 * dumping.c - a program with much memory that crashes when it is told to.
 *
 * dumping MIB: prints "ready" when so much is filled, and calls work() until SIGUSR1: then it aborts.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t end;
static volatile unsigned long sum;

__attribute__((noinline, noclone)) void work(unsigned long n)
{
	sum += n * 3;
}

static void on_signal(int number)
{
	end = number;
}

int main(int argc, char **argv)
{
	const size_t size = (argc > 1 ? strtoul(argv[1], NULL, 10) : 1) << 20;
	char *memory = malloc(size);

	if (!memory)
		return 1;
	memset(memory, 7, size);
	signal(SIGUSR1, on_signal);
	puts("ready");
	fflush(stdout);
	while (!end) {
		work((unsigned long)memory[size / 2]);
		usleep(1000);
	}
	abort();
}
