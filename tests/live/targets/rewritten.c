/* SPDX-License-Identifier: MIT */
/* build: -O2 */
/*
 * rewritten.c - a program of which another tool has rewritten the file, as E9Patch does: over an instruction of
 * three bytes is a jump of five, whose last two are the next instruction, and that leads to code which the program
 * maps when it starts and which comes back to that one.
 *
 * Prints "ready". "go N" calls the function N times; "done". Exits with 1 if a result was wrong.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern int rewritten(int);
extern const long jump_offset; /* its address would tell of it */

__asm__(".text\n"
	".globl rewritten, jump_offset\n"
	".type rewritten,@function\n"
	"rewritten:\n"
	"	.cfi_startproc\n"
	"	mov $7,%eax\n"
	"	add %edi,%eax\n"
	".Ljump:\n"
	"	.byte 0xe9,0,1\n"
	"	add $0x10,%al\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size rewritten,.-rewritten\n"
	".pushsection .rodata\n"
	".balign 8\n"
	"jump_offset: .quad .Ljump-rewritten\n"
	".popsection\n");

/* "add $1,%eax", which the jump is written over, and back behind that. */
static void map_code(void)
{
	enum { JUMP = 5, REPLACED = 3, SIZE = 8 };
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	char *const jump = (char *)(uintptr_t)rewritten + jump_offset;
	char code[SIZE] = {(char)0x83, (char)0xc0, 1, (char)0xe9}, *at;
	int32_t distance;

	memcpy(&distance, jump + 1, sizeof(distance));
	at = jump + JUMP + distance;
	if (mmap((void *)((uintptr_t)at & -page), 2 * page, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED)
		exit(2);
	distance = (int32_t)(jump + REPLACED - (at + SIZE));
	memcpy(code + SIZE - sizeof(distance), &distance, sizeof(distance));
	memcpy(at, code, SIZE);
	mprotect((void *)((uintptr_t)at & -page), 2 * page, PROT_READ | PROT_EXEC);
}

int main(void)
{
	char line[64];

	map_code();
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		for (long n = strtol(line + 3, NULL, 10); n > 0; n--)
			if (rewritten(3) != 3 + 7 + 1 + 0x10)
				return 1;
		puts("done");
		fflush(stdout);
	}
	return 0;
}
