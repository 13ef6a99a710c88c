/* SPDX-License-Identifier: MIT */
/*
 * switched.c - has overwritten an instruction of a function by a jump into the middle of the same
 * function, and nothing in its file tells of that. Then calls it until its standard input ends; the
 * last line says whether all was right.
 */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern int switched(int n, int m, int *to);
extern const int32_t distance;

__asm__(".text\n"
	".globl switched\n"
	".type switched,@function\n"
	"switched:\n"
	"	.byte 0x0f,0x1f,0x44,0,0\n"
	"	mov %edi,%eax\n"
	"	imul %esi,%eax\n"
	"	xor %eax,(%rdx)\n"
	"	movl $7,4(%rdx)\n"
	"	mov %esi,%eax\n"
	".Lon:	xor %edi,%eax\n"
	"	ret\n"
	".size switched,.-switched\n"
	".section .rodata\n"
	".globl distance\n"
	"distance: .long .Lon-switched-5\n"
	".text\n");

static int call(int n, int *to)
{
	int result = 77;

	__asm__ volatile("call switched" : "+a"(result) : "D"(n), "S"(3), "d"(to) : "cc", "memory");
	return result;
}

int main(void)
{
	const long page = sysconf(_SC_PAGESIZE);
	char *at = (char *)(uintptr_t)switched, *start = (char *)((uintptr_t)at & -(uintptr_t)page);
	struct pollfd end = {.fd = STDIN_FILENO, .events = POLLIN};
	int words[4] = {0};
	long wrong = 0;

	mprotect(start, 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC);
	*at = (char)0xe9;
	memcpy(at + 1, &distance, sizeof(distance));
	mprotect(start, 2 * page, PROT_READ | PROT_EXEC);
	printf("ready\n");
	fflush(stdout);
	while (poll(&end, 1, 1) == 0)
		for (int i = 0; i < 1000; i++)
			wrong += call(i, words) != (77 ^ i);
	printf("%ld wrong, %d\n", wrong, words[0] | words[1]);
	return 0;
}
