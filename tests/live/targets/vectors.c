/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline */
/*
 * vectors.c - threads that spin with every vector, mask and x87 register full
 * of known values, and compare all of them again and again: whatever stops a
 * thread, makes calls in it or runs beside its code must leave them alone.
 *
 * vectors THREADS: prints "ready".
 * Works until the end of its input; "rounds" prints how many comparisons were
 * made, "components" which bits of XCR0 are compared. Exits with 1 if any
 * register was not as it should be.
 */
#include <cpuid.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STATE = 4096, THREADS_MAX = 64, TURNS = 20000 };

/*
 * Loads the state at `in`, calls vector_tick() `turns` times, which touches
 * general registers only, and writes the state to `out`.
 */
void vector_spin(const void *in, void *out, unsigned long turns, unsigned mask);
__asm__(".text\n"
	".globl vector_spin, vector_tick\n"
	".type vector_spin,@function\n"
	"vector_spin:\n"
	".cfi_startproc\n"
	"	push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbx,0\n"
	"	push %r12\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %r12,0\n"
	"	push %r13\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %r13,0\n"
	"	mov %rdx,%rbx\n"
	"	mov %rsi,%r12\n"
	"	mov %ecx,%r13d\n"
	"	mov %ecx,%eax\n"
	"	xor %edx,%edx\n"
	"	xrstor64 (%rdi)\n"
	"1:	call vector_tick\n"
	"	dec %rbx\n"
	"	jnz 1b\n"
	"	mov %r13d,%eax\n"
	"	xor %edx,%edx\n"
	"	xsave64 (%r12)\n"
	"	mov $7,%eax\n"
	"	xor %edx,%edx\n"
	"	xrstor64 vector_clean(%rip)\n"
	"	pop %r13\n.cfi_adjust_cfa_offset -8\n.cfi_restore %r13\n"
	"	pop %r12\n.cfi_adjust_cfa_offset -8\n.cfi_restore %r12\n"
	"	pop %rbx\n.cfi_adjust_cfa_offset -8\n.cfi_restore %rbx\n"
	"	ret\n"
	".cfi_endproc\n"
	".size vector_spin,.-vector_spin\n"
	".type vector_tick,@function\n"
	"vector_tick:\n"
	".cfi_startproc\n"
	"	lea 1(%rbx,%rax),%rcx\n"
	"	test $1,%bl\n"
	"	jz 1f\n"
	"	imul $3,%rcx,%rdx\n"
	"	mov %rdx,-8(%rsp)\n"
	"1:	mov %rcx,%rax\n"
	"	xor %rbx,%rax\n"
	"	ret\n"
	".cfi_endproc\n"
	".size vector_tick,.-vector_tick\n");

/* What a program begins with: all in their first state, exceptions masked. */
__attribute__((aligned(64))) uint8_t vector_clean[STATE];

static uint64_t components;
static size_t state_size;
static uint8_t belongs[STATE]; /* bytes that are part of a register */
static atomic_ulong rounds;
static atomic_int stop, wrong;
static pthread_barrier_t started;

static void find_components(void)
{
	unsigned a, b, c, d;

	__asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
	components = a & 0xe7;
	state_size = 576;
	memset(belongs + 160, 1, 256); /* xmm */
	for (int i = 0; i < 8; i++)
		memset(belongs + 32 + i * 16, 1, 10);		 /* x87: ten bytes each */
	belongs[0] = belongs[1] = belongs[24] = belongs[25] = 1; /* control words */
	for (unsigned i = 2; i < 8; i++)
		if (components >> i & 1) {
			__cpuid_count(0xd, i, a, b, c, d);
			if (a + b > state_size)
				state_size = a + b;
			if (state_size > STATE)
				exit(2);
			memset(belongs + b, 1, a);
		}
}

/* Values of its own for every thread and round; nothing that would raise an exception. */
static void fill(uint8_t *p, uint64_t seed)
{
	const uint16_t control = 0x037f;
	const uint32_t mxcsr = 0x1f80 | (uint32_t)(seed & 3) << 13;

	memset(p, 0, STATE);
	memcpy(p, &control, sizeof(control));
	p[4] = 0xff; /* all eight x87 registers are in use */
	memcpy(p + 24, &mxcsr, sizeof(mxcsr));
	for (size_t i = 32; i < state_size; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		if (belongs[i])
			p[i] = (uint8_t)(seed >> 56);
	}
	memcpy(p + 512, &components, sizeof(components));
}

static void *work(void *arg)
{
	uint64_t seed = (uintptr_t)arg * 1000003;
	uint8_t *in = aligned_alloc(64, STATE), *out = aligned_alloc(64, STATE);

	pthread_barrier_wait(&started);
	while (!stop) {
		fill(in, ++seed);
		memset(out, 0, STATE);
		vector_spin(in, out, TURNS, (unsigned)components);
		for (size_t i = 0; i < state_size; i++)
			if (belongs[i] && in[i] != out[i] && !wrong++)
				fprintf(stderr, "byte %zu of the state is %02x, not %02x\n", i,
					out[i], in[i]);
		rounds++;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 1;
	pthread_t handles[THREADS_MAX];
	char line[64];

	find_components();
	fill(vector_clean, 0);
	memset(vector_clean + 32, 0, STATE - 32);
	vector_clean[4] = 0;
	pthread_barrier_init(&started, NULL, (unsigned)threads + 1);
	for (int i = 0; i < threads; i++)
		pthread_create(&handles[i], NULL, work, (void *)(uintptr_t)(i + 1));
	pthread_barrier_wait(&started);
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "components", 10))
			printf("components %#lx\n", (unsigned long)components);
		else
			printf("rounds %lu\n", (unsigned long)rounds);
		fflush(stdout);
	}
	stop = 1;
	for (int i = 0; i < threads; i++)
		pthread_join(handles[i], NULL);
	return wrong != 0;
}
