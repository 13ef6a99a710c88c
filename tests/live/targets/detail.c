/* SPDX-License-Identifier: MIT */
/* build: -O2 -Wl,-z,noexecstack */
/*
 * detail.c - threads that run functions whose every instruction, block, edge
 * and loop is executed a known number of times; tests/live/detail.c has the
 * numbers. The functions are in assembly, so that no compiler changes them.
 *
 * detail THREADS: prints "ready"; "go N" makes every thread do N rounds, checks
 * all results, and prints "done". "cells" prints the addresses that d_memory
 * touches last in the first thread. Ends with its input.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTION(name, body)                                                              \
	__asm__(".text\n.p2align 4\n.globl " #name "\n.type " #name ", @function\n" #name \
		":\n.cfi_startproc\n" body ".cfi_endproc\n.size " #name ", . - " #name "\n")

long d_straight(long a);
long d_nest(long n, long m);
long d_switch(long which);
long d_early(long n, long stop_at);
long d_recursive(long n);
long d_shared(long a);
long d_split(long a, long b);
long d_memory(uint64_t *cells, long n);

/* One block of ten instructions. */
FUNCTION(d_straight, "	mov %rdi, %rax\n"
		     "	add $7, %rax\n"
		     "	imul $3, %rax, %rax\n"
		     "	lea 5(%rax), %rdx\n"
		     "	xor %rdx, %rax\n"
		     "	push %rbx\n"
		     "	mov %rax, %rbx\n"
		     "	lea 1(%rbx), %rax\n"
		     "	pop %rbx\n"
		     "	ret\n");

/* A loop in a loop: n and m times. */
FUNCTION(d_nest, "	mov $0, %eax\n"
		 "	test %rdi, %rdi\n"
		 "	jz 3f\n"
		 "1:	mov %rsi, %rcx\n"
		 "	test %rcx, %rcx\n"
		 "	jz 2f\n"
		 "4:	inc %rax\n"
		 "	dec %rcx\n"
		 "	jnz 4b\n"
		 "2:	dec %rdi\n"
		 "	jnz 1b\n"
		 "3:	ret\n");

/* A jump table; case 2 falls into case 3; everything else is the default. */
FUNCTION(d_switch, "	cmp $3, %rdi\n"
		   "	ja 9f\n"
		   "	lea d_switch_table(%rip), %rdx\n"
		   "	movslq (%rdx,%rdi,4), %rax\n"
		   "	add %rdx, %rax\n"
		   "	jmp *%rax\n"
		   ".Lcase0:	mov $10, %eax\n"
		   "	ret\n"
		   ".Lcase1:	mov $11, %eax\n"
		   "	jmp 8f\n"
		   ".Lcase2:	mov $12, %eax\n"
		   ".Lcase3:	add $1300, %rax\n"
		   "8:	lea 1(%rax), %rax\n"
		   "	ret\n"
		   "9:	mov $-1, %rax\n"
		   "	ret\n"
		   "	.section .rodata\n"
		   "	.p2align 2\n"
		   "d_switch_table:\n"
		   "	.long .Lcase0 - d_switch_table\n"
		   "	.long .Lcase1 - d_switch_table\n"
		   "	.long .Lcase2 - d_switch_table\n"
		   "	.long .Lcase3 - d_switch_table\n"
		   "	.text\n");

/* A loop that is left in three ways: at its end, by a break, by a return. */
FUNCTION(d_early, "	xor %eax, %eax\n"
		  "1:	cmp %rsi, %rax\n"
		  "	je 7f\n"
		  "	inc %rax\n"
		  "	cmp $1000, %rax\n"
		  "	je 8f\n"
		  "	dec %rdi\n"
		  "	jnz 1b\n"
		  "	lea 1(%rax), %rax\n"
		  "	ret\n"
		  "7:	add $100, %rax\n"
		  "	ret\n"
		  "8:	ret\n");

/* Fibonacci's numbers, the slow way. */
FUNCTION(d_recursive, "	mov %rdi, %rax\n"
		      "	cmp $2, %rdi\n"
		      "	jb 1f\n"
		      "	push %rbx\n"
		      "	push %rdi\n"
		      "	lea -1(%rdi), %rdi\n"
		      "	call d_recursive\n"
		      "	mov %rax, %rbx\n"
		      "	pop %rdi\n"
		      "	lea -2(%rdi), %rdi\n"
		      "	call d_recursive\n"
		      "	add %rbx, %rax\n"
		      "	pop %rbx\n"
		      "1:	ret\n");

/* Short blocks with several ways in: none has room for a jump of its own. */
FUNCTION(d_shared, "	mov %rdi, %rax\n"
		   "	test $1, %al\n"
		   "	jnz 1f\n"
		   "	test $2, %al\n"
		   "	jnz 2f\n"
		   "	add $5, %rax\n"
		   "1:	inc %eax\n"
		   "2:	dec %rax\n"
		   "3:	ret\n");

/* Calls one after the other, and one whose return point is a branch's target. */
FUNCTION(d_split, "	push %rbx\n"
		  "	mov %rsi, %rbx\n"
		  "	test %rdi, %rdi\n"
		  "	jz 1f\n"
		  "	call d_straight\n"
		  "1:	mov %rbx, %rdi\n"
		  "	call d_straight\n"
		  "	mov %rax, %rdi\n"
		  "	call d_straight\n"
		  "	call d_shared\n"
		  "	pop %rbx\n"
		  "	ret\n");

/* Accesses of every size; the last ones of a call are known (see "cells"). */
FUNCTION(d_memory, "	xor %eax, %eax\n"
		   "1:	mov (%rdi,%rsi,8), %rax\n"
		   "	add %rax, 8(%rdi)\n"
		   "	mov %al, 16(%rdi,%rsi)\n"
		   "	movdqu 64(%rdi), %xmm0\n"
		   "	movdqu %xmm0, 80(%rdi)\n"
		   "	dec %rsi\n"
		   "	jnz 1b\n"
		   "	push %rax\n"
		   "	pop %rax\n"
		   "	ret\n");

static volatile int wrong;
static pthread_barrier_t start, finish;
static unsigned long rounds;

static void must(long is, long is_to_be)
{
	if (is != is_to_be)
		wrong = 1;
}

static long straight(long a)
{
	long b = (a + 7) * 3;

	return (b ^ (b + 5)) + 1;
}

static long shared(long a)
{
	if (a & 1)
		return (long)(uint32_t)(a + 1) - 1;
	if (a & 2)
		return a - 1;
	return (long)(uint32_t)(a + 6) - 1;
}

/* d_shared gets what d_straight left in %rdi, its argument. */
static long split(long b)
{
	return shared(straight(b));
}

static void work(unsigned long n, uint64_t *cells)
{
	static const long switched[] = {10, 12, 1313, 17, -1};

	for (unsigned long i = 0; i < n; i++) {
		must(d_straight((long)i & 1023), straight((long)i & 1023));
		must(d_nest(3, 4), 12);
		must(d_nest(0, 4), 0);
		must(d_nest(2, 0), 0);
		for (long k = 0; k < 5; k++)
			if (k != 3)
				must(d_switch(k), switched[k]);
		d_switch(3);
		must(d_early(5, 9), 6);
		must(d_early(9, 4), 104);
		must(d_early(2000, 2000), 1000);
		must(d_recursive(6), 8);
		for (long k = 0; k < 4; k++)
			must(d_shared(k), shared(k));
		must(d_split(0, 5), split(5));
		must(d_split(1, 6), split(6));
		d_memory(cells, 4);
	}
}

static uint64_t first_cells[32];

static void *thread(void *arg)
{
	uint64_t own[32] = {0}, *cells = arg ? first_cells : own;

	pthread_barrier_wait(&finish);
	for (;;) {
		pthread_barrier_wait(&start);
		if (!rounds)
			return arg;
		work(rounds, cells);
		pthread_barrier_wait(&finish);
	}
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 1;
	pthread_t tids[64];
	char line[64];

	pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
	pthread_barrier_init(&finish, NULL, (unsigned)threads + 1);
	for (int i = 0; i < threads; i++)
		pthread_create(&tids[i], NULL, thread, i ? NULL : first_cells);
	pthread_barrier_wait(&finish);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "cells", 5)) {
			printf("%lu\n", (unsigned long)(uintptr_t)first_cells);
			fflush(stdout);
			continue;
		}
		rounds = strtoul(line + 3, NULL, 10);
		pthread_barrier_wait(&start);
		pthread_barrier_wait(&finish);
		puts(wrong ? "wrong" : "done");
		fflush(stdout);
	}
	rounds = 0;
	pthread_barrier_wait(&start);
	for (int i = 0; i < threads; i++)
		pthread_join(tids[i], NULL);
	return wrong;
}
