/* SPDX-License-Identifier: MIT */
/*
 * carried.c - a function that is given something in the carry flag, so that no code at its entry may
 * change flags. All answers are checked, in children, too; it says after each of them how many there were.
 */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CALLS = 1 << 24, CALLS_OF_CHILD = 1000, SECONDS = 600 };

extern int carried(int n);

__asm__(".text\n"
	"	.globl carried\n"
	"	.type carried,@function\n"
	"carried:\n"
	"	mov %edi,%eax\n"
	"	adc $0,%eax\n"
	"	ret\n"
	"	.size carried,.-carried\n");

/* carried(n) with n's lowest bit in the carry flag. */
static int call_carried(int n)
{
	int result;

	__asm__ volatile("sub $128,%%rsp\n\tbt $0,%%edi\n\tcall carried\n\tlea 128(%%rsp),%%rsp"
			 : "=a"(result)
			 : "D"(n)
			 : "cc", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory");
	return result;
}

static int wrong_answers(int calls)
{
	int wrong = 0;

	for (int n = 0; n < calls; n++)
		wrong += call_carried(n) != n + (n & 1);
	return wrong;
}

int main(void)
{
	alarm(SECONDS);
	for (int children = 1;; children++) {
		int status;
		pid_t child;

		if (wrong_answers(CALLS))
			return 1;
		child = fork();
		if (child == 0)
			_exit(wrong_answers(CALLS_OF_CHILD) ? 1 : 0);
		if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
			return 2;
		printf("children %d\n", children);
		fflush(stdout);
	}
}
