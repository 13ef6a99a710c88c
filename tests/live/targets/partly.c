/* SPDX-License-Identifier: MIT */
/* build: -O1 -fno-inline -fno-optimize-sibling-calls */
/*
 * partly.c - two functions that allocate, one of which cannot be instrumented: what would
 * be run behind its last return is no code. Of a third one nothing is code; nobody calls it.
 *
 * Prints "ready"; "go N" calls both N times and prints "done". Ends with its input.
 */
#include <stdio.h>
#include <stdlib.h>

long odd(void *(*allocator)(size_t), long n);

__asm__("	.text\n"
	"	.globl odd\n"
	"	.type odd, @function\n"
	"odd:	push %rbx\n"
	"	mov %rsi, %rbx\n"
	"	mov %rdi, %rax\n"
	"	mov %rbx, %rdi\n"
	"	call *%rax\n"
	"	test %rbx, %rbx\n"
	"	js 1f\n"
	"	pop %rbx\n"
	"	ret\n"
	"1:	.byte 0x06\n"
	"	.size odd, . - odd\n"
	"	.globl neither\n"
	"	.type neither, @function\n"
	"neither:\n"
	"	.byte 0x06\n"
	"	ret\n"
	"	.size neither, . - neither\n");

__attribute__((noinline)) static void *even(long n)
{
	void *block = malloc((size_t)n);

	__asm__ volatile("" : "+r"(block));
	return block;
}

int main(void)
{
	char line[64];
	long n;

	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "go %ld", &n) != 1)
			return 1;
		for (long i = 1; i <= n; i++) {
			free(even(i));
			free((void *)odd(malloc, i));
		}
		puts("done");
	}
	return 0;
}
