/* SPDX-License-Identifier: MIT */
/* build: -O2 -mno-red-zone */
/*
 * steps.c - a program that executes itself step by step (the trap flag), as some debuggers that are
 * part of their program do: each instruction of a loop is followed by one trap, at another address.
 *
 * Prints "ready", and goes on to the end of its input. Exits with 1 if a trap came twice. With an
 * argument it waits for commands instead:
 *   call N   calls step_called() N times, and it step_leaf(), each instruction followed by a trap
 *            whose handler calls step_noted(); "done": each came back with what it computes
 */
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

extern const char loop[], loop_end[];
static volatile uintptr_t last;
static volatile int wrong, over;
static volatile unsigned traps, noted;
static volatile long cell;

__attribute__((noinline)) void step_noted(void)
{
	noted++;
}

__attribute__((noinline)) long step_leaf(long n)
{
	return n * 3 + cell;
}

__attribute__((noinline)) long step_called(long n)
{
	long sum = 0;

	for (long i = 0; i < 2; i++)
		sum += step_leaf(n + i);
	cell = n & 1;
	return sum;
}

static void on_trap(int sig, siginfo_t *info, void *context)
{
	greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
	const uintptr_t pc = (uintptr_t)regs[REG_RIP];

	struct pollfd end = {.fd = STDIN_FILENO, .events = POLLIN};

	(void)sig;
	(void)info;
	if (++traps % 4096 == 0 && poll(&end, 1, 0) > 0)
		over = 1;
	step_noted();
	if (pc < (uintptr_t)loop || pc >= (uintptr_t)loop_end)
		return;
	if (pc == last)
		wrong = 1;
	last = pc;
}

static void set_trap_flag(bool on)
{
	__asm__ volatile("	pushfq\n"
			 "	andq $~0x100,(%%rsp)\n"
			 "	orq %0,(%%rsp)\n"
			 "	popfq\n"
			 :
			 : "r"(on ? 0x100l : 0l)
			 : "cc", "memory");
}

static void call(long n)
{
	const unsigned before = traps;

	cell = 0;
	for (long i = 0; i < n; i++) {
		const long expected = 6 * i + 3 + 2 * cell;
		long result;

		set_trap_flag(true);
		result = step_called(i);
		set_trap_flag(false);
		if (result != expected)
			wrong = 1;
	}
	if (traps - before < 20 * n)
		wrong = 1;
}

static int take_commands(void)
{
	char line[64];

	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "call ", 5))
			call(atol(line + 5));
		puts(wrong ? "wrong" : "done");
		fflush(stdout);
	}
	return wrong;
}

int main(int argc, char **argv)
{
	struct sigaction trap = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};

	(void)argv;
	sigaction(SIGTRAP, &trap, NULL);
	printf("ready\n");
	fflush(stdout);
	if (argc > 1)
		return take_commands();
	__asm__ volatile("	pushfq\n"
			 "	orq $0x100,(%%rsp)\n"
			 "	popfq\n"
			 "loop:\n"
			 "	nop\n"
			 "	lea 1(%%rax),%%rax\n"
			 "	nop\n"
			 "	cmpl $0,%0\n"
			 "	je loop\n"
			 "loop_end:\n"
			 "	nop\n"
			 "	pushfq\n"
			 "	andq $~0x100,(%%rsp)\n"
			 "	popfq\n"
			 :
			 : "m"(over)
			 : "rax", "cc", "memory");
	return wrong;
}
