/* SPDX-License-Identifier: MIT */
/*
 * textrel.c - code that the loader writes to (DT_TEXTREL): the address of a variable in an
 * instruction. Built with -pie -Wl,-z,notext.
 */
#include <stdio.h>

int value = 42;
extern int get(int more);

__asm__(".globl get\n"
	".type get,@function\n"
	"get:\n"
	"	movabs $value,%rax\n"
	"	movl (%rax),%eax\n"
	"	add %edi,%eax\n"
	"	ret\n"
	".size get,.-get\n"
	".skip 32,0xcc\n");

int main(void)
{
	int sum = 0;

	for (int i = 0; i < 10; i++)
		sum += get(i);
	printf("%d\n", sum);
	return 0;
}
