/* SPDX-License-Identifier: MIT */
/*
 * offsets.c - the address of a label as its distance from the global offset table, in 64 bits of an
 * instruction (@GOTOFF): what clang -mcmodel=medium -fPIC makes of &&label. Built with -pie, and
 * stripped of the symbol that the assembler leaves for the label.
 */
#include <stdio.h>

extern int jumping(int way, int more, int *to), next_one(int n);

__asm__(".text\n"
	".globl jumping\n"
	".type jumping,@function\n"
	"jumping:\n"
	"	lea _GLOBAL_OFFSET_TABLE_(%rip),%r8\n"
	"	movabs $.Llabel@GOTOFF,%rcx\n"
	"	add %r8,%rcx\n"
	"	test $1,%dil\n"
	"	jne 1f\n"
	"	jmp 2f\n"
	"1:	mov %rcx,-8(%rsp)\n"
	"	mov -8(%rsp),%rcx\n"
	"	jmp *%rcx\n"
	"2:	movl $7,4(%rdx)\n"
	"	mov %esi,%eax\n"
	"	xor %eax,8(%rdx)\n"
	".Llabel:\n"
	"	mov %esi,%eax\n"
	"	ret\n"
	".size jumping,.-jumping\n"
	".globl next_one\n"
	".type next_one,@function\n"
	"next_one:\n"
	"	lea (%rdi,%rdi,2),%eax\n"
	"	ret\n"
	".size next_one,.-next_one\n");

int main(int argc, char **argv)
{
	int sum = 0, words[4] = {0};

	(void)argv;
	for (int i = 0; i < 20; i++)
		sum += jumping(i, argc, words) + next_one(i);
	printf("%d %d\n", sum, words[2]);
	return 0;
}
