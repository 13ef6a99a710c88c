/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline */
/*
 * traps.c - a program with traps and undefined instructions of its own, handled
 * on an alternate stack, and threads that are cancelled wherever they are.
 *
 * traps: prints "ready". Commands:
 *   traps N    executes int3 and ud2 N times each in two threads, and raises
 *              SIGTRAP; "done": each handler was called for its own address, as often
 *   cancel N   N threads that may be cancelled at any instruction are; "done": each
 *              cleanup has run, each thread was told to be cancelled
 *   probe N    tries N times whether something can be read, as JVMs do: by a function in which a
 *              fault is known by its address; "done": each time the answer was right
 * Exits with 1 if anything was not as it should be.
 */
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

enum { THREADS = 2, STACK = 256 * 1024 };

extern char trap_at[], undefined_at[];
long trap_function(long n), undefined_function(long n);
__asm__(".text\n"
	".globl trap_function, undefined_function, trap_at, undefined_at\n"
	".type trap_function,@function\n"
	"trap_function:\n"
	".cfi_startproc\n"
	"	lea 1(%rdi),%rax\n"
	"	int3\n"
	"trap_at:\n"
	"	lea (%rax,%rax,2),%rax\n"
	"	ret\n"
	".cfi_endproc\n"
	".size trap_function,.-trap_function\n"
	".type undefined_function,@function\n"
	"undefined_function:\n"
	".cfi_startproc\n"
	"	lea 2(%rdi),%rax\n"
	"undefined_at:\n"
	"	ud2\n"
	"	lea (%rax,%rax,4),%rax\n"
	"	ret\n"
	".cfi_endproc\n"
	".size undefined_function,.-undefined_function\n");

extern char _SafeFetchN_fault[], _SafeFetchN_continuation[];
long SafeFetchN_impl(const long *address, long otherwise);
__asm__(".text\n"
	".type SafeFetchN_impl,@function\n"
	".type _SafeFetchN_continuation,@function\n"
	"SafeFetchN_impl:\n"
	"_SafeFetchN_fault:\n"
	"	mov (%rdi),%rax\n"
	"	ret\n"
	"_SafeFetchN_continuation:\n"
	"	mov %rsi,%rax\n"
	"	ret\n");

static atomic_long traps, raised, undefined, wrong, cleanups;
static long count;

static void on_trap(int sig, siginfo_t *info, void *context)
{
	uintptr_t pc = (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	stack_t stack;

	sigaltstack(NULL, &stack);
	if (!(stack.ss_flags & SS_ONSTACK))
		wrong++;
	if (info->si_code == SI_TKILL)
		raised++;
	else if (pc == (uintptr_t)trap_at)
		traps++;
	else
		wrong++;
	(void)sig;
}

static void on_undefined(int sig, siginfo_t *info, void *context)
{
	greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;

	if ((uintptr_t)r[REG_RIP] == (uintptr_t)undefined_at &&
	    (uintptr_t)info->si_addr == (uintptr_t)undefined_at)
		undefined++;
	else
		wrong++;
	r[REG_RIP] += 2;
	(void)sig;
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;

	(void)info;
	if ((uintptr_t)r[REG_RIP] == (uintptr_t)_SafeFetchN_fault)
		r[REG_RIP] = (greg_t)(uintptr_t)_SafeFetchN_continuation;
	else
		signal(sig, SIG_DFL);
}

static void do_probe(long n)
{
	static const long *const nowhere = (const long *)16;
	const long here = 7;

	for (long i = 0; i < n; i++)
		if (SafeFetchN_impl(nowhere, i) != i || SafeFetchN_impl(&here, i) != here)
			wrong++;
}

static void *trap_thread(void *arg)
{
	stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};

	sigaltstack(&stack, NULL);
	for (long i = 0; i < count; i++) {
		if (trap_function(i) != (i + 1) * 3 || undefined_function(i) != (i + 2) * 5)
			wrong++;
		if (i % 16 == 0)
			raise(SIGTRAP);
	}
	stack.ss_flags = SS_DISABLE;
	sigaltstack(&stack, NULL);
	free(stack.ss_sp);
	return arg;
}

__attribute__((noinline)) long traps_spin(long n)
{
	for (int i = 0; i < 50; i++)
		n = n * 3 + 1;
	return n;
}

static void cleanup(void *arg)
{
	cleanups++;
	(void)arg;
}

static void *cancelled_thread(void *arg)
{
	volatile long n = 0;

	pthread_cleanup_push(cleanup, NULL);
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	*(atomic_int *)arg = 1;
	for (;;)
		n = traps_spin(n);
	pthread_cleanup_pop(0);
	return NULL;
}

static void cancel_once(void *stack, unsigned seed)
{
	atomic_int running = 0;
	pthread_attr_t attributes;
	void *result = NULL;
	pthread_t t;

	pthread_attr_init(&attributes);
	pthread_attr_setstack(&attributes, stack, STACK);
	pthread_create(&t, &attributes, cancelled_thread, &running);
	while (!running)
		usleep(20);
	usleep(seed % 150);
	pthread_cancel(t);
	pthread_join(t, &result);
	if (result != PTHREAD_CANCELED)
		wrong++;
	pthread_attr_destroy(&attributes);
}

static void do_traps(long n)
{
	static void *stacks[THREADS];
	pthread_t t[THREADS];
	pthread_attr_t attributes;

	count = n;
	traps = raised = undefined = 0;
	for (int i = 0; i < THREADS; i++) {
		if (!stacks[i])
			stacks[i] = aligned_alloc(4096, STACK);
		pthread_attr_init(&attributes);
		pthread_attr_setstack(&attributes, stacks[i], STACK);
		pthread_create(&t[i], &attributes, trap_thread, NULL);
		pthread_attr_destroy(&attributes);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	if (traps != THREADS * n || undefined != THREADS * n || raised != THREADS * ((n + 15) / 16))
		wrong++;
}

static void do_cancel(long n)
{
	static void *stack;

	if (!stack)
		stack = aligned_alloc(4096, STACK);
	cleanups = 0;
	for (long i = 0; i < n; i++)
		cancel_once(stack, (unsigned)i * 37);
	if (cleanups != n)
		wrong++;
}

int main(void)
{
	struct sigaction trap = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	struct sigaction ud = {.sa_sigaction = on_undefined, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
	char line[64];

	mallopt(M_ARENA_MAX, 1);
	sigaction(SIGTRAP, &trap, NULL);
	sigaction(SIGILL, &ud, NULL);
	sigaction(SIGSEGV, &fault, NULL);
	/* What happens once: a handler of the C library, memory, libgcc_s. */
	do_traps(1);
	do_cancel(2);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "traps ", 6))
			do_traps(atol(line + 6));
		else if (!strncmp(line, "cancel ", 7))
			do_cancel(atol(line + 7));
		else if (!strncmp(line, "probe ", 6))
			do_probe(atol(line + 6));
		puts(wrong ? "wrong" : "done");
		fflush(stdout);
	}
	return wrong != 0;
}
