/* SPDX-License-Identifier: MIT */
/* build: -O2 -static -nostdlib -nostartfiles -ffreestanding -fno-stack-protector -fno-pie -no-pie -fno-inline -fcf-protection=none -Wl,--build-id=none */
/*
 * alone.c - a program without any library: no C library, no thread pointer, no
 * restartable sequences, no start-up code, no build id, no room behind its code.
 *
 * Prints "ready"; "go N" calls step() N times and prints "done", or "wrong". Ends
 * with its input, and a status of 1 if anything was wrong.
 */
#include <stddef.h>

static volatile unsigned long wrong;

static long system_call(long number, long a, long b, long c)
{
	__asm__ volatile("syscall"
			 : "+a"(number)
			 : "D"(a), "S"(b), "d"(c)
			 : "rcx", "r11", "memory");
	return number;
}

static void say(const char *text, size_t size)
{
	system_call(1, 1, (long)text, (long)size);
}

/* Leaf, without a frame, uses the red zone. */
__attribute__((noinline, noclone)) unsigned long step(unsigned long n)
{
	volatile unsigned long kept[8];

	for (unsigned i = 0; i < 8; i++)
		kept[i] = n + i;
	return kept[0] + kept[7];
}

__attribute__((noinline, noclone)) void go(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		wrong |= step(i) != 2 * i + 7;
}

__attribute__((noinline, noclone, used)) void run(void)
{
	char line[64];
	unsigned long n;
	long size;

	say("ready\n", 6);
	while ((size = system_call(0, 0, (long)line, sizeof(line))) > 3) {
		n = 0;
		for (long i = 3; i < size && line[i] >= '0' && line[i] <= '9'; i++)
			n = 10 * n + (unsigned long)(line[i] - '0');
		go(n);
		say(wrong ? "wrong\n" : "done\n", wrong ? 6 : 5);
	}
	system_call(231, wrong != 0, 0, 0);
}

__asm__(".globl _start\n_start:\n\txor %ebp, %ebp\n\tcall run\n\thlt\n");

/* Behind the code: nothing is free in its last page. */
__asm__(".section .fini, \"ax\"\n\t.balign 4096, 0xcc\n\t.fill 4096, 1, 0xcc\n\t.previous\n");
