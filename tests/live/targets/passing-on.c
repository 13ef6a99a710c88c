/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-plt -fno-builtin -fno-ipa-icf -fcf-protection=none */
/*
 * passing-on.c - functions that end in a jump to another one: known by its name, through the table that
 * the loader fills (-fno-plt), through a pointer. Prints "ready" and calls all of them until its
 * standard input ends.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#define CALLED __attribute__((noinline, noclone, noipa))

static volatile long sink;

CALLED long aim(long n)
{
	sink += n;
	return n + 1;
}

CALLED long returning(long n)
{
	return n * 3 + sink;
}

CALLED long to_known(long n)
{
	return aim(n * 2);
}

CALLED long to_library(const char *text)
{
	return strtol(text, NULL, 10);
}

/* Only the jump through the pointer leads to it. */
CALLED long hidden(long n)
{
	sink -= n;
	return n;
}

long (*volatile pointer)(long) = hidden;

CALLED long to_pointer(long n)
{
	return pointer(n + 1);
}

CALLED long to_argument(long (*f)(long))
{
	return f(7);
}

/* One that is only jumped to, and one that is called before. */
CALLED long to_both(long n)
{
	return pointer(pointer(n) + 1);
}

#ifdef __x86_64__
#define GUARDED CALLED __attribute__((indirect_branch("thunk-inline")))

/* A return by a jump, as -mlvi-cfi makes of it. */
__asm__(".text\n"
	".globl returning_guarded\n"
	".type returning_guarded,@function\n"
	"returning_guarded:\n"
	"	lea 1(%rdi),%rax\n"
	"	pop %rcx\n"
	"	lfence\n"
	"	jmp *%rcx\n"
	".size returning_guarded,.-returning_guarded\n");
extern long returning_guarded(long n);
#else
#define GUARDED CALLED

CALLED long returning_guarded(long n)
{
	return n + 1;
}
#endif

/* The jump is made of a call and a return, for fear of speculation. */
GUARDED long to_guarded(long n)
{
	return pointer(n + 2);
}

int main(void)
{
	struct pollfd input = {0, POLLIN, 0};
	long sum = 0;

	puts("ready");
	fflush(stdout);
	while (poll(&input, 1, 1) == 0)
		for (long n = 0; n < 10; n++)
			sum += to_pointer(n) + to_known(n) + to_library("12") + to_argument(aim) +
			       to_both(n) + to_guarded(n) + returning(n) + returning_guarded(n);
	sink = sum;
	return 0;
}
