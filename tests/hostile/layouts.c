/* SPDX-License-Identifier: MIT */
/*
 * layouts.c - runs what layouts.py has made: from each of its starts, with many states
 * of all registers and flags, and prints what they come to.
 *
 *   layouts ROUNDS [THREADS]
 *
 * With THREADS they do the same all over again until the input ends, and compare.
 * Ends with "done", with "wrong" and status 1 if anything was not as the first time.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { STATES = 40, THREADS_MOST = 16, CX = 1, SP = 4, DI = 7 };

/* Of the flags, those that are computed with. */
static const uint64_t FLAGS = 0x8d5;
static const uint64_t SEED = UINT64_C(88172645463325252);

/* Registers in the order of their numbers. The assembler below knows the offsets. */
struct state {
	uint64_t registers[16], flags, vectors[3];
};

extern void (*const layout_starts[])(void);
extern const uint64_t layout_count;
extern void layout_run(void (*start)(void), struct state *state);

/* All registers but rsp from *state, and back into it. */
__asm__(".text\n"
	"	.globl layout_run\n"
	"	.type layout_run, @function\n"
	"layout_run:\n"
	"	push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
	"	push %rsi; push %rdi\n"
	"	sub $8, %rsp\n"
	"	mov %rsi, %r15\n"
	"	movq 136(%r15), %xmm0; movq 144(%r15), %xmm1; movq 152(%r15), %xmm2\n"
	"	push 128(%r15); popf\n"
	"	mov 0(%r15), %rax; mov 8(%r15), %rcx; mov 16(%r15), %rdx; mov 24(%r15), %rbx\n"
	"	mov 40(%r15), %rbp; mov 48(%r15), %rsi; mov 56(%r15), %rdi; mov 64(%r15), %r8\n"
	"	mov 72(%r15), %r9; mov 80(%r15), %r10; mov 88(%r15), %r11; mov 96(%r15), %r12\n"
	"	mov 104(%r15), %r13; mov 112(%r15), %r14; mov 120(%r15), %r15\n"
	"	call *8(%rsp)\n"
	"	push %r15\n"
	"	mov 24(%rsp), %r15\n"
	"	pop 120(%r15)\n"
	"	pushf; pop 128(%r15)\n"
	"	movq %xmm0, 136(%r15); movq %xmm1, 144(%r15); movq %xmm2, 152(%r15)\n"
	"	mov %rax, 0(%r15); mov %rcx, 8(%r15); mov %rdx, 16(%r15); mov %rbx, 24(%r15)\n"
	"	mov %rbp, 40(%r15); mov %rsi, 48(%r15); mov %rdi, 56(%r15); mov %r8, 64(%r15)\n"
	"	mov %r9, 72(%r15); mov %r10, 80(%r15); mov %r11, 88(%r15); mov %r12, 96(%r15)\n"
	"	mov %r13, 104(%r15); mov %r14, 112(%r15)\n"
	"	cld\n"
	"	add $8, %rsp\n"
	"	pop %rdi; pop %rsi\n"
	"	pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n"
	"	ret\n"
	"	.size layout_run, . - layout_run\n");

static volatile int ends;
static uint64_t wanted;

/* Xorshift (Marsaglia 2003). */
static uint64_t random_number(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

static uint64_t run_one(void (*start)(void), unsigned round, uint64_t *x)
{
	struct state s;
	uint64_t sum = 0;

	for (unsigned i = 0; i < 16; i++)
		s.registers[i] = random_number(x);
	if (round & 1)
		s.registers[CX] = 0;
	s.registers[SP] = 0;
	s.registers[DI] = round * 7 % 300; /* after so many steps it returns */
	s.flags = (random_number(x) & FLAGS) | 2;
	for (unsigned i = 0; i < 3; i++)
		s.vectors[i] = random_number(x);
	layout_run(start, &s);
	for (unsigned i = 0; i < sizeof(s) / sizeof(uint64_t); i++)
		sum = (sum ^ ((const uint64_t *)&s)[i]) * UINT64_C(1099511628211);
	return sum;
}

static uint64_t run_all(uint64_t x, int tell)
{
	uint64_t all = 0;

	for (uint64_t n = 0; n < layout_count; n++) {
		uint64_t sum = 0;

		for (unsigned round = 0; round < STATES; round++)
			sum = sum * 31 + run_one(layout_starts[n], round, &x);
		if (tell)
			printf("%" PRIu64 " %016" PRIx64 "\n", n, sum);
		all = all * 31 + sum;
	}
	return all;
}

static void *work(void *arg)
{
	while (!ends)
		if (run_all(SEED, 0) != wanted) {
			puts("wrong");
			fflush(stdout);
			_exit(1);
		}
	return arg;
}

int main(int argc, char **argv)
{
	const int rounds = argc > 1 ? atoi(argv[1]) : 1, threads = argc > 2 ? atoi(argv[2]) : 0;
	pthread_t tids[THREADS_MOST];

	if (threads < 0 || threads > THREADS_MOST)
		return 2;
	wanted = run_all(SEED, 1);
	for (int i = 0; i < threads; i++)
		if (pthread_create(&tids[i], NULL, work, NULL))
			return 3;
	for (int round = 1; round < rounds; round++)
		printf("%016" PRIx64 "\n", run_all(SEED + (uint64_t)round, 0));
	fflush(stdout);
	while (threads && getchar() != EOF)
		continue;
	ends = 1;
	for (int i = 0; i < threads; i++)
		pthread_join(tids[i], NULL);
	puts("done");
	return 0;
}
