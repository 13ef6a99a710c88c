/* SPDX-License-Identifier: MIT */
/*
 * tails.c - functions without room, each beside one that has a near jump put into its tail, whose
 * last byte is there already: one of 256 for each byte that it may be. And one whose short jump's
 * last byte is there already. And one whose second exit's near jump is in the tail of its entry.
 *
 * A worker spins between `park` and `park_end`; a test moves it. At `leap` it waits for word 4 of
 * its control and returns to whatever the stack says; at `back` it compares its result with word 3
 * and counts in word 1 or 2. With an argument there is another thread, which runs through both exits
 * of the last one all the time.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct control {
	volatile long over, right, wrong, expected, leaps;
};

extern long worker(struct control *c);
extern long call_own(long number);

__asm__(".text\n"
	".globl worker, park, park_end, leap, leap_end, back\n"
	".type worker,@function\n"
	"worker:\n"
	"	push %rbx\n"
	"	mov %rdi,%rbx\n"
	"park:	pause\n"
	"	cmpq $0,(%rbx)\n"
	"	je park\n"
	"park_end:\n"
	"	pop %rbx\n"
	"	ret\n"
	"leap:	pause\n"
	"	cmpq $0,32(%rbx)\n"
	"	je leap\n"
	"leap_end:\n"
	"	ret\n"
	"back:	cmp 24(%rbx),%rax\n"
	"	jne 1f\n"
	"	incq 8(%rbx)\n"
	"	jmp park\n"
	"1:	incq 16(%rbx)\n"
	"	jmp park\n"
	".size worker,.-worker\n"
	".globl call_own\n"
	".type call_own,@function\n"
	"call_own:\n"
	"	mov %rdi,%rax\n"
	"	call own\n"
	"	ret\n"
	".size call_own,.-call_own\n"
	/* In the neighbour's tail, at its twelfth byte, is the hole; at the sixteenth its last one. */
	".macro NEIGHBOUR name,byte\n"
	"	.p2align 10,0x06\n"
	"	.fill 64,1,0x06\n"
	"	.type even_\\name,@function\n"
	"even_\\name:\n"
	"	.byte 0x83,0xc0,1,0x83,0xc0,1,0x83,0xc0,1\n" /* add $1,%eax */
	"	pause\n"
	"	mov %eax,%eax\n"
	"	.byte 0x83,0xc0,\\byte\n"
	"	.byte 0x83,0xc0,1,0x83,0xc0,1\n"
	"	ret\n"
	"	.size even_\\name,.-even_\\name\n"
	".endm\n"
	".section holes,\"ax\",@progbits\n"
	".altmacro\n"
	".macro THIN name\n"
	"	NEIGHBOUR \\name,\\name\n"
	"	.type thin_\\name,@function\n"
	"thin_\\name:\n"
	"	.byte 0x83,0xc0,7\n"
	"	ret\n"
	"	.size thin_\\name,.-thin_\\name\n"
	".endm\n"
	".set number,0\n"
	".rept 256\n"
	"	THIN %number\n"
	"	.set number,number+1\n"
	".endr\n"
	".noaltmacro\n"
	"NEIGHBOUR short,1\n"
	".type thin_short,@function\n"
	"thin_short:\n"
	"	.byte 0xb0,(even_short + 11 - thin_short - 2) & 255\n" /* mov $...,%al */
	"	ret\n"
	".size thin_short,.-thin_short\n"
	"	.p2align 10,0x06\n"
	"	.fill 64,1,0x06\n"
	".type own,@function\n"
	"own:\n"
	"	.byte 0x83,0xc0,1,0x83,0xc0,1,0x83,0xc0,1,0x83,0xc0,1\n"
	"	cmp $100,%eax\n"
	"	je 1f\n"
	"	add $1,%eax\n"
	"	add $1,%eax\n"
	"	ret\n"
	"1:	add $7,%eax\n"
	"	ret\n"
	".size own,.-own\n"
	".p2align 10,0x06\n"
	".text\n");

static struct control control;

static void *thread(void *arg)
{
	worker(arg);
	return NULL;
}

static void *runner(void *arg)
{
	while (!control.over)
		if (call_own(0) != 6 || call_own(96) != 107)
			abort();
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t id, other;
	char byte;

	(void)argv;
	if (pthread_create(&id, NULL, thread, &control) ||
	    (argc > 1 && pthread_create(&other, NULL, runner, NULL)))
		return 2;
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		continue;
	control.over = 1;
	pthread_join(id, NULL);
	if (argc > 1)
		pthread_join(other, NULL);
	return control.wrong != 0;
}
