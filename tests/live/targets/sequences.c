/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline */
/*
 * sequences.c - more threads than CPUs add to counters of the CPU that they are
 * on, in restartable sequences of the program's own (rseq(2)); one is listed in
 * the section __rseq_cs, as everybody does it, the other one is not. An addition
 * that is interrupted and not done again, or done twice, shows in the sum.
 *
 * sequences THREADS: prints "ready". Commands:
 *   start    the threads add; "started"
 *   end      they stop; "ended ADDED": how often, all together
 * Exits with 1 if a sum was wrong, with 77 at once where there is no rseq.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MAX = 64, CPUS_MAX = 4096, BURST = 2000 };

/* glibc's: where struct rseq is from the thread pointer. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned __rseq_size __attribute__((weak));

struct slot {
	uint64_t count;
} __attribute__((aligned(64)));

static struct slot listed[CPUS_MAX], unlisted[CPUS_MAX];
static atomic_int running, over, resting, wrong;
static atomic_ulong added;

/*
 * rdi: struct rseq, rsi: the slots. The slot's count is read, changed in steps
 * that take a while, and stored: all of it on one CPU, or it begins again.
 */
#define SEQUENCE(name, section, flags)                                                 \
	".pushsection " section ",\"" flags "\"\n"                                     \
	".balign 32\n" #name "_cs:\n"                                                  \
	".long 0, 0\n"                                                                 \
	".quad " #name "_begin, " #name "_commit - " #name "_begin, " #name "_abort\n" \
	".popsection\n"                                                                \
	".globl " #name "\n"                                                           \
	".type " #name ",@function\n" #name ":\n"                                      \
	".cfi_startproc\n"                                                             \
	"	lea " #name "_cs(%rip),%rax\n"                                         \
	"	.byte 0x3e\n" /* as long as with a thread's own memory: 5 bytes */     \
	"	mov %rax,8(%rdi)\n" #name "_begin:\n"                                  \
	"	mov 4(%rdi),%eax\n"                                                          \
	"	shl $6,%rax\n"                                                               \
	"	mov (%rsi,%rax),%rcx\n"                                                      \
	"	mov $20,%edx\n"                                                              \
	"1:	add $3,%rcx\n"                                                             \
	"	sub $3,%rcx\n"                                                               \
	"	dec %edx\n"                                                                  \
	"	jnz 1b\n"                                                                    \
	"	add $1,%rcx\n"                                                               \
	"	mov %rcx,(%rsi,%rax)\n" #name "_commit:\n"                             \
	"	ret\n"                                                                       \
	"	.byte 0x0f, 0xb9, 0x3d\n"                                                    \
	"	.long 0x53053053\n" #name "_abort:\n"                                  \
	"	jmp " #name "\n"                                                       \
	".cfi_endproc\n"                                                               \
	".size " #name ",.-" #name "\n"

__asm__(".text\n" SEQUENCE(add_listed, "__rseq_cs", "aw")
		SEQUENCE(add_unlisted, ".data.rel.ro.local", "aw") ".text\n");

void add_listed(void *rseq, struct slot *slots);
void add_unlisted(void *rseq, struct slot *slots);

__attribute__((noinline)) static void burst(void *rseq)
{
	for (int i = 0; i < BURST; i++) {
		add_listed(rseq, listed);
		add_unlisted(rseq, unlisted);
	}
}

static void *work(void *arg)
{
	void *rseq = (char *)__builtin_thread_pointer() + __rseq_offset;
	const struct timespec tick = {.tv_nsec = 500000};

	while (!over) {
		if (!running) {
			resting++;
			while (!running && !over)
				nanosleep(&tick, NULL);
			resting--;
			continue;
		}
		burst(rseq);
		added += BURST;
	}
	return arg;
}

static void check(const char *name, const struct slot *slots)
{
	uint64_t sum = 0;

	for (int i = 0; i < CPUS_MAX; i++)
		sum += slots[i].count;
	if (sum != added) {
		fprintf(stderr, "%s: %llu instead of %lu\n", name, (unsigned long long)sum,
			(unsigned long)added);
		wrong = 1;
	}
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 1;
	const struct timespec tick = {.tv_nsec = 500000};
	pthread_t handles[THREADS_MAX];
	char line[64];

	if (!&__rseq_size || !__rseq_size)
		return 77;
	for (int i = 0; i < threads; i++)
		pthread_create(&handles[i], NULL, work, NULL);
	while (resting < threads)
		nanosleep(&tick, NULL);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		running = !strncmp(line, "start", 5);
		while (running ? resting > 0 : resting < threads)
			nanosleep(&tick, NULL);
		if (!running) {
			check("listed", listed);
			check("unlisted", unlisted);
			printf("ended %lu\n", (unsigned long)added);
		} else {
			puts("started");
		}
		fflush(stdout);
	}
	over = 1;
	for (int i = 0; i < threads; i++)
		pthread_join(handles[i], NULL);
	return wrong;
}
