/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -mno-red-zone */
/*
 * windows.c - functions whose windows consist of one-byte instructions, and
 * threads that stand where a test wants them.
 *
 * windows THREADS: prints "ready". Commands, one a line:
 *   tids         the workers' thread ids
 *   go N F       every worker calls function F (five, crossing, straddle_in,
 *                straddle_out, padded_in, which calls padded; all: each worker
 *                another one) N times; "done"
 *   start F      the same without end; "started"
 *   end          ends that; "ended"
 *   one N F      the same for the first worker only
 *   block F      every worker calls F (edge, tiny_edge, outer, outer_asm), which
 *                blocks in read(2); prints "blocked" when all are in it
 *   release N    lets N blocked readers go on
 *   idle         waits until no worker has anything to do; "idle"
 * A worker that has nothing to do spins between `park` and `park_end`, so that a
 * test may put it anywhere in `five`. SIGUSR1 and SIGUSR2 (on an alternate stack
 * from the heap) block in read(2) too. Exits with 1 if any result was wrong.
 */
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct control {
	volatile long rounds; /* 0: nothing to do, -1: end, -2: block */
	volatile long done;
	void (*volatile function)(void);
	volatile long wrong;
	volatile long over; /* ends the rounds */
};

extern long worker(struct control *c);
extern void five(void), crossing(void), straddle_in(void), straddle_out(void), padded_in(void);
extern long outer_asm(long a, long b, long (*function)(long));

/*
 * worker: rbx = control, rbp = rounds that are left. `five` takes 1 2 3 4 5 in
 * rax rcx rdx rsi rdi and moves them around in five one-byte instructions, hashes,
 * and moves them around again in four more before its one-byte return.
 */
__asm__(".text\n"
	".globl worker, park, park_end, five, five_exit, five_end, five_back, crossing, edge, tiny_edge\n"
	".globl straddle_in, straddle_out, padded, padded_in\n"
	".globl outer_asm\n"
	".type worker,@function\n"
	"worker:\n"
	".cfi_startproc\n"
	"	push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbx,0\n"
	"	push %rbp\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbp,0\n"
	"	push %rax\n.cfi_adjust_cfa_offset 8\n"
	"	mov %rdi,%rbx\n"
	"park:	pause\n"
	"	mov (%rbx),%rbp\n"
	"	test %rbp,%rbp\n"
	"	jz park\n"
	"park_end:\n"
	"	js worker_leave\n"
	"worker_again:\n"
	"	mov $1,%eax\n	mov $2,%ecx\n	mov $3,%edx\n	mov $4,%esi\n	mov $5,%edi\n"
	"	call *16(%rbx)\n"
	"five_back:\n"
	"	cmp $40000,%rax\n	jne worker_wrong\n"
	"	cmp $43251,%rcx\n	jne worker_wrong\n"
	"	cmp $50,%rdx\n	jne worker_wrong\n"
	"	cmp $200,%rsi\n	jne worker_wrong\n"
	"	cmp $3000,%rdi\n	jne worker_wrong\n"
	"worker_checked:\n"
	"	incq 8(%rbx)\n"
	"	cmpq $0,32(%rbx)\n"
	"	jne worker_over\n"
	"	dec %rbp\n"
	"	jnz worker_again\n"
	"worker_over:\n"
	"	movq $0,(%rbx)\n"
	"	jmp park\n"
	"worker_wrong:\n"
	"	movq $1,24(%rbx)\n"
	"	jmp worker_checked\n"
	"worker_leave:\n"
	"	mov %rbp,%rax\n"
	"	pop %rdx\n.cfi_adjust_cfa_offset -8\n"
	"	pop %rbp\n.cfi_adjust_cfa_offset -8\n.cfi_restore %rbp\n"
	"	pop %rbx\n.cfi_adjust_cfa_offset -8\n.cfi_restore %rbx\n"
	"	ret\n"
	".cfi_endproc\n"
	".size worker,.-worker\n"
	".macro FIVE name\n"
	".type \\name,@function\n"
	"\\name:\n"
	".cfi_startproc\n"
	"	xchg %eax,%ecx\n	xchg %eax,%edx\n	xchg %eax,%esi\n	xchg %eax,%edi\n"
	"	xchg %eax,%ecx\n"
	"	imul $10,%rcx,%rcx\n	add %rcx,%rax\n"
	"	imul $100,%rdx,%rdx\n	add %rdx,%rax\n"
	"	imul $1000,%rsi,%rsi\n	add %rsi,%rax\n"
	"	imul $10000,%rdi,%rdi\n	add %rdi,%rax\n"
	"\\name\\()_exit:\n"
	"	xchg %eax,%ecx\n	xchg %eax,%edx\n	xchg %eax,%esi\n	xchg %eax,%edi\n"
	"	ret\n"
	".cfi_endproc\n"
	"\\name\\()_end:\n"
	".size \\name,.-\\name\n"
	".endm\n"
	".p2align 4\n"
	"FIVE five\n"
	/* The first two of its one-byte instructions lie in one page, the rest in the next. */
	".p2align 12\n"
	".fill 4094,1,0xcc\n"
	"FIVE crossing\n"
	/* A function that ends with its page; behind it, in the next, is padding only. */
	".p2align 12\n"
	".fill 4093,1,0xcc\n"
	".type padded,@function\n"
	"padded:\n"
	".cfi_startproc\n"
	"	xchg %eax,%ecx\n	xchg %eax,%ecx\n"
	"	ret\n"
	".cfi_endproc\n"
	".size padded,.-padded\n"
	".fill 29,1,0x90\n"
	".type padded_in,@function\n"
	"padded_in:\n"
	".cfi_startproc\n"
	"	call padded\n"
	"	jmp five\n"
	".cfi_endproc\n"
	".size padded_in,.-padded_in\n"
	/* The entry's window lies in two cache lines; then the exit's, 39 bytes further on. */
	".p2align 6\n"
	".fill 62,1,0xcc\n"
	"FIVE straddle_in\n"
	".p2align 6\n"
	".fill 23,1,0xcc\n"
	"FIVE straddle_out\n"
	".p2align 4\n"
	/* A system call right behind the entry window and right before the exit window. */
	".type edge,@function\n"
	"edge:\n"
	".cfi_startproc\n"
	"	mov $0,%eax\n"
	"	syscall\n"
	"	xchg %eax,%esi\n	xchg %eax,%edi\n	xchg %eax,%esi\n	xchg %eax,%edi\n"
	"	ret\n"
	".cfi_endproc\n"
	".size edge,.-edge\n"
	".p2align 4\n"
	/* Two bytes, then the system call: five bytes would contain it. */
	".type tiny_edge,@function\n"
	"tiny_edge:\n"
	".cfi_startproc\n"
	"	xor %eax,%eax\n"
	"	syscall\n"
	"	xchg %eax,%esi\n	xchg %eax,%edi\n	xchg %eax,%esi\n	xchg %eax,%edi\n"
	"	ret\n"
	".cfi_endproc\n"
	".size tiny_edge,.-tiny_edge\n"
	".p2align 4\n"
	/* An entry window whose last instruction is an indirect call. */
	".type outer_asm,@function\n"
	"outer_asm:\n"
	".cfi_startproc\n"
	"	push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbx,0\n"
	"	mov %esi,%ebx\n"
	"	call *%rdx\n"
	"	add %ebx,%eax\n"
	"	pop %rbx\n.cfi_adjust_cfa_offset -8\n.cfi_restore %rbx\n"
	"	ret\n"
	".cfi_endproc\n"
	".size outer_asm,.-outer_asm\n");

enum { THREADS_MAX = 64 };

static struct control controls[THREADS_MAX];
static pid_t tids[THREADS_MAX];
static int threads, gate[2];
static volatile int failed, blocking;
static const char *volatile block_function;
static pthread_barrier_t started;

/* One of the two edge functions; its result comes back in edi, esi and edi in eax and esi. */
static long call_edge(int tiny, char *byte)
{
	long a, s = (long)byte, d = gate[0], size = 1;

	if (tiny)
		__asm__ volatile("call tiny_edge"
				 : "=a"(a), "+S"(s), "+D"(d), "+d"(size)
				 :
				 : "rcx", "r11", "memory", "cc");
	else
		__asm__ volatile("call edge"
				 : "=a"(a), "+S"(s), "+D"(d), "+d"(size)
				 :
				 : "rcx", "r11", "memory", "cc");
	if ((uint32_t)a != (uint32_t)(uintptr_t)byte || (uint32_t)s != (uint32_t)gate[0])
		failed = 1;
	return (int)d;
}

__attribute__((noinline)) long waiter(long a)
{
	char byte = 0;
	long got = read(gate[0], &byte, 1);

	return got == 1 && byte == 'x' ? a + 1 : -1;
}

__attribute__((noinline)) long inner(long a)
{
	return waiter(a) * 3;
}

__attribute__((noinline)) long outer(long a)
{
	return inner(a + 1) * 2 + a;
}

static void do_block(void)
{
	const char *name = block_function;
	char byte = 0;
	int right;

	__atomic_add_fetch(&blocking, 1, __ATOMIC_SEQ_CST);
	if (!strcmp(name, "edge"))
		right = call_edge(0, &byte) == 1 && byte == 'x';
	else if (!strcmp(name, "tiny_edge"))
		right = call_edge(1, &byte) == 1 && byte == 'x';
	else if (!strcmp(name, "outer"))
		right = outer(5) == 7 * 3 * 2 + 5;
	else
		right = outer_asm(5, 7, waiter) == 6 + 7;
	if (!right)
		failed = 1;
	__atomic_sub_fetch(&blocking, 1, __ATOMIC_SEQ_CST);
}

static void on_signal(int sig)
{
	char byte = 0;

	if (read(gate[0], &byte, 1) != 1 || byte != 'x')
		failed = 1;
	(void)sig;
}

static void *thread(void *arg)
{
	struct control *c = arg;
	stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};

	sigaltstack(&stack, NULL);
	tids[c - controls] = (pid_t)syscall(SYS_gettid);
	pthread_barrier_wait(&started);
	while (worker(c) == -2) {
		do_block();
		c->rounds = 0;
	}
	stack.ss_flags = SS_DISABLE;
	sigaltstack(&stack, NULL);
	return NULL;
}

static void say(const char *text)
{
	puts(text);
	fflush(stdout);
}

static void wait_idle(void)
{
	for (int i = 0; i < threads; i++)
		while (controls[i].rounds)
			usleep(200);
}

static void begin(const char *name, int count, long n)
{
	static void (*const functions[])(void) = {five, crossing, straddle_in, straddle_out,
						  padded_in};
	static const char *const names[] = {"five", "crossing", "straddle_in", "straddle_out",
					    "padded_in"};
	enum { COUNT = sizeof(names) / sizeof(*names) };

	for (int i = 0; i < count; i++) {
		for (int k = 0; k < COUNT; k++)
			if (!strcmp(name, names[k]) || (!strcmp(name, "all") && i % COUNT == k))
				controls[i].function = functions[k];
		controls[i].rounds = n;
	}
}

static void go(const char *arguments, int count)
{
	char name[32] = "";
	long n = 0;

	sscanf(arguments, "%ld %31s", &n, name);
	begin(name, count, n);
	wait_idle();
	say("done");
}

/* A worker counts down what is left in a register: it ends when the function is another one. */
static void end(void)
{
	static const struct timespec tick = {.tv_nsec = 200000};

	for (int i = 0; i < threads; i++)
		controls[i].over = 1;
	for (int i = 0; i < threads; i++)
		while (controls[i].rounds)
			nanosleep(&tick, NULL);
	for (int i = 0; i < threads; i++)
		controls[i].over = 0;
	say("ended");
}

static void block(const char *name)
{
	static char copy[32];

	snprintf(copy, sizeof(copy), "%s", name);
	block_function = copy;
	for (int i = 0; i < threads; i++)
		controls[i].rounds = -2;
	while (blocking < threads)
		usleep(200);
	usleep(20000);
	say("blocked");
}

static void release(long n)
{
	while (n-- > 0)
		if (write(gate[1], "x", 1) != 1)
			failed = 1;
}

static void command(char *line)
{
	line[strcspn(line, "\n")] = 0;
	if (!strncmp(line, "go ", 3)) {
		go(line + 3, threads);
	} else if (!strncmp(line, "start ", 6)) {
		begin(line + 6, threads, LONG_MAX);
		say("started");
	} else if (!strcmp(line, "end")) {
		end();
	} else if (!strncmp(line, "one ", 4)) {
		go(line + 4, 1);
	} else if (!strncmp(line, "block ", 6)) {
		block(line + 6);
	} else if (!strncmp(line, "release ", 8)) {
		release(atol(line + 8));
	} else if (!strcmp(line, "idle")) {
		wait_idle();
		say("idle");
	} else if (!strcmp(line, "tids")) {
		for (int i = 0; i < threads; i++)
			printf("%d ", (int)tids[i]);
		say("");
	}
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	pthread_t handles[THREADS_MAX];
	char line[128];

	threads = argc > 1 ? atoi(argv[1]) : 1;
	if (pipe(gate))
		return 2;
	sigaction(SIGUSR1, &action, NULL);
	action.sa_flags |= SA_ONSTACK;
	sigaction(SIGUSR2, &action, NULL);
	pthread_barrier_init(&started, NULL, (unsigned)threads + 1);
	for (int i = 0; i < threads; i++) {
		controls[i].function = five;
		pthread_create(&handles[i], NULL, thread, &controls[i]);
	}
	pthread_barrier_wait(&started);
	say("ready");
	while (fgets(line, sizeof(line), stdin))
		command(line);
	for (int i = 0; i < threads; i++)
		controls[i].rounds = -1;
	for (int i = 0; i < threads; i++) {
		pthread_join(handles[i], NULL);
		failed |= controls[i].wrong != 0;
	}
	return failed;
}
