/* SPDX-License-Identifier: MIT */
/*
 * inside.c - functions of which the file's symbols say that they begin, or end, within an instruction; prints
 * what comes of calling what is really there.
 */
#include <stdio.h>

int begun(void *unused, int n) __asm__(".Lbegun");
int around(int n) __asm__(".Laround");
int over(int n) __asm__(".Lover");

__asm__(".text\n"
	/* A function within it begins at bytes that are no instruction, and ends within the last constant. */
	".p2align 4\n"
	".type around, @function\n"
	"around:\n"
	".Laround:\n"
	".cfi_startproc\n"
	"	mov $0x06060606, %ecx\n"
	"1:	xor %eax, %eax\n"
	"	test %edi, %edi\n"
	"2:	mov $0, %edx\n"
	"3:	cmove %rdx, %rax\n"
	"	lea 5(%rax, %rdi), %eax\n"
	"	mov %edi, %edx\n"
	"	add %edx, %eax\n"
	"	ret\n"
	".cfi_endproc\n"
	".size around, . - around\n"
	".set ends_within, 1b - 4\n"
	".type ends_within, @function\n"
	".size ends_within, 2b + 2 - ends_within\n"

	/* One within it begins with the last byte of an instruction, and ends within the one behind. */
	".p2align 4\n"
	"4:	lea 7(%rdi), %eax\n"
	"	ret\n"
	".org 4b + 50, 0xcc\n"
	".type over, @function\n"
	"over:\n"
	".Lover:\n"
	".cfi_startproc\n"
	"	push %r12\n"
	".cfi_adjust_cfa_offset 8\n"
	".cfi_rel_offset %r12, 0\n"
	"	mov %rdi, %r12\n"
	"	mov %r12, %rdi\n"
	"5:	call 4b\n"
	"	pop %r12\n"
	".cfi_adjust_cfa_offset -8\n"
	".cfi_restore %r12\n"
	"	ret\n"
	".cfi_endproc\n"
	".size over, . - over\n"
	".set runs_over, 5b - 1\n"
	".type runs_over, @function\n"
	".size runs_over, 5\n"

	/* No table tells where it begins, and its symbol says two bytes later: there is a comparison. */
	".p2align 4\n"
	".Lbegun:\n"
	"	lea main(%rip), %rdi\n"
	"	lea 3(%rsi), %eax\n"
	"	ret\n"
	".set begins_within, .Lbegun + 2\n"
	".type begins_within, @function\n");

int main(void)
{
	int sum = 0;

	for (int i = 0; i < 1000; i++)
		sum = sum * 3 + begun(NULL, i) + around(i) + over(i);
	printf("%d\n", sum);
	return 0;
}
