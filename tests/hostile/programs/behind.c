/* SPDX-License-Identifier: MIT */
/*
 * behind.c - data in the text, which instructions seem to come to: texts behind calls that take their
 * return address for that of the text, in the function itself and in another one; what handlers of traps
 * read behind a breakpoint and an undefined instruction; the number in front of a function that its callers
 * compare (-fsanitize=kcfi).
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

extern const char *own(void), *longer(void), *others(void);
extern int checked(int n), trapped(int n), undefined(int n);

__asm__(".text\n"
	".macro BEGIN name\n"
	"	.globl \\name\n"
	"	.type \\name,@function\n"
	"\\name:\n"
	".endm\n"
	".macro END name\n"
	"	.size \\name,.-\\name\n"
	".endm\n"
	"BEGIN own\n"
	"	call 1f\n"
	"	.asciz \"hello\"\n"
	"1:	pop %rax\n"
	"	ret\n"
	"END own\n"
	"BEGIN longer\n"
	"	push %rbx\n"
	"	call 1f\n"
	"	.asciz \"hello, hello\"\n"
	"1:	pop %rax\n"
	"	mov %rax,%rbx\n"
	"	mov %rbx,%rax\n"
	"	pop %rbx\n"
	"	ret\n"
	"END longer\n"
	"BEGIN say\n"
	"	pop %rax\n"
	"	push %rax\n"
	"	xor %ecx,%ecx\n"
	"1:	cmpb $0,(%rax,%rcx)\n"
	"	lea 1(%rcx),%rcx\n"
	"	jne 1b\n"
	"	add %rax,%rcx\n"
	"	mov %rcx,(%rsp)\n"
	"	ret\n"
	"END say\n"
	"BEGIN others\n"
	"	call say\n"
	"	.asciz \"hello\"\n"
	"	nop\n"
	"	ret\n"
	"END others\n"
	"BEGIN __cfi_checked\n"
	"	mov $0x12345678,%eax\n"
	"END __cfi_checked\n"
	"BEGIN checked\n"
	"	lea 7(%rdi),%eax\n"
	"	imul $3,%eax\n"
	"	ret\n"
	"END checked\n"
	"BEGIN trapped\n"
	"	lea 1(%rdi),%eax\n"
	"	int3\n"
	"	.byte 0xb9,0x12,0x34,0x56,0x78\n"
	"	imul $3,%eax\n"
	"	ret\n"
	"END trapped\n"
	"BEGIN undefined\n"
	"	lea 1(%rdi),%eax\n"
	"	ud2\n"
	"	.byte 0xb9,0x12,0x34,0x56,0x78\n"
	"	imul $3,%eax\n"
	"	ret\n"
	"END undefined\n");

enum { BYTES = 5, UNDEFINED = 2, HASH = 0x12345678 };

static int told;

static void handler(int number, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	const unsigned char *pc = (const unsigned char *)uc->uc_mcontext.gregs[REG_RIP];

	(void)info;
	if (number == SIGILL)
		pc += UNDEFINED;
	for (int i = 0; i < BYTES; i++)
		told = told * 31 + pc[i];
	uc->uc_mcontext.gregs[REG_RIP] = (long)(pc + BYTES);
}

int main(void)
{
	const struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	int (*volatile pointer)(int) = checked;
	int wrong = 0, sum = 0;

	sigaction(SIGTRAP, &action, NULL);
	sigaction(SIGILL, &action, NULL);
	for (int i = 0; i < 5; i++) {
		int (*called)(int) = pointer;
		int number;

		wrong |= strcmp(own(), "hello") ? 1 : 0;
		wrong |= strcmp(longer(), "hello, hello") ? 2 : 0;
		wrong |= strcmp(others(), "hello") ? 4 : 0;
		memcpy(&number, (const char *)called - sizeof(number), sizeof(number));
		wrong |= number != HASH ? 8 : 0;
		sum += called(i) + trapped(i) + undefined(i);
	}
	printf("wrong %d, %d %d\n", wrong, sum, told);
	return 0;
}
