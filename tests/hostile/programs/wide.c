/* SPDX-License-Identifier: MIT */
/*
 * wide.c - the address of a label as eight bytes of an instruction: what gcc -Os -mcmodel=large -fno-pie makes
 * of &&label. Built with -no-pie.
 */
#include <stdio.h>

extern int jumping(int way, int more, int *to);

__asm__(".text\n"
	".p2align 4\n"
	".globl jumping\n"
	".type jumping,@function\n"
	"jumping:\n"
	"	movabs $.Llabel,%rcx\n"
	"	test $1,%dil\n"
	"	je 1f\n"
	"	jmp *%rcx\n"
	"1:	movl $7,4(%rdx)\n"
	"	mov %esi,%eax\n"
	"	xor %eax,8(%rdx)\n"
	".Llabel:\n"
	"	mov %esi,%eax\n"
	"	ret\n"
	".size jumping,.-jumping\n");

int main(int argc, char **argv)
{
	int sum = 0, words[4] = {0};

	(void)argv;
	for (int i = 0; i < 20; i++)
		sum += jumping(i, argc, words);
	printf("%d %d\n", sum, words[2]);
	return 0;
}
