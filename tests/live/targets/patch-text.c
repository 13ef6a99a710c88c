/* SPDX-License-Identifier: MIT */
/*
 * patch-text.c - a function of 320 pages of one-byte no-ops, to be patched.
 *
 * Prints its address after "ready". "run" calls it and answers with how often
 * it has been called. Nobody is inside while it is patched.
 */
#include <stdint.h>
#include <stdio.h>

void blob(volatile unsigned long *calls);
__asm__(".text\n"
	".balign 4096\n"
	".globl blob\n"
	".type blob, @function\n"
	"blob:\n"
	".fill 320 * 4096, 1, 0x90\n"
	"lock incq (%rdi)\n"
	"ret\n"
	".size blob, . - blob\n"
	".balign 4096\n");

static volatile unsigned long calls;

int main(void)
{
	char line[64];

	setvbuf(stdin, NULL, _IONBF, 0);
	printf("ready\n%lx\n", (unsigned long)(uintptr_t)blob);
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		blob(&calls);
		printf("%lu\n", calls);
		fflush(stdout);
	}
	return 0;
}
