/* SPDX-License-Identifier: MIT */
/* build: -O2 -mno-red-zone */
/*
 * steps.c - a program that executes itself step by step (the trap flag), as some debuggers that are
 * part of their program do: each instruction of a loop is followed by one trap, at another address.
 *
 * Prints "ready", and goes on to the end of its input. Exits with 1 if a trap came twice.
 */
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <ucontext.h>
#include <unistd.h>

extern const char loop[], loop_end[];
static volatile uintptr_t last;
static volatile int wrong, over;
static volatile unsigned traps;

static void on_trap(int sig, siginfo_t *info, void *context)
{
	greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
	const uintptr_t pc = (uintptr_t)regs[REG_RIP];

	struct pollfd end = {.fd = STDIN_FILENO, .events = POLLIN};

	(void)sig;
	(void)info;
	if (++traps % 4096 == 0 && poll(&end, 1, 0) > 0)
		over = 1;
	if (pc < (uintptr_t)loop || pc >= (uintptr_t)loop_end)
		return;
	if (pc == last)
		wrong = 1;
	last = pc;
}

int main(void)
{
	struct sigaction trap = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};

	sigaction(SIGTRAP, &trap, NULL);
	printf("ready\n");
	fflush(stdout);
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
