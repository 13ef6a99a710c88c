/* SPDX-License-Identifier: MIT */
/* build: -mno-red-zone */
/*
 * stack-shapes.c - threads whose stacks have every shape that a walk meets.
 *
 *   plain    blocked some calls deep
 *   alt      blocked in a signal handler on an alternate stack, which interrupted spin()
 *   nested   the same, and there in the handler of a second signal, on its first handler's stack
 *   deep     blocked under 5000 calls
 *   called   calls *function all the time; a SIGUSR1 to it blocks in the handler
 *
 * Commands: "show NAME" prints the thread's id and what backtrace(3) said just
 * before it blocked, innermost first, without the frame that called it;
 * "addresses" prints spin()'s loop (begin and end), `function` and nothing();
 * "signal" sends SIGUSR1 to "called" and answers when its handler blocks.
 */
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PLAIN, ALT, NESTED, DEEP, CALLED, WORKERS, FRAMES = 64, DEPTH = 5000, ALT_SIZE = 65536 };

static const char *const names[WORKERS] = {"plain", "alt", "nested", "deep", "called"};

struct worker {
	pthread_t thread;
	pid_t tid;
	void *frames[FRAMES];
	int count;
	int wake[2];
	atomic_int running, blocked, first_handler;
	volatile int go_on; /* ends spin() */
};

static struct worker workers[WORKERS];
static __thread struct worker *self;
static volatile int stop;

#define NOINLINE __attribute__((noinline, noclone))
#define KEEP	 __asm__ volatile("" ::: "memory") /* no tail call */

/* Two instructions that are interrupted, and known by address. */
void spin(volatile int *flag);
extern char spin_begin[], spin_end[];
__asm__(".text\n"
	".globl spin\n"
	".type spin, @function\n"
	"spin:\n"
	".cfi_startproc\n"
	"nop\n"
	"spin_begin:\n"
	"cmpl $0, (%rdi)\n"
	"je spin_begin\n"
	"spin_end:\n"
	"nop\n"
	"ret\n"
	".cfi_endproc\n"
	".size spin, . - spin\n");

static NOINLINE void nothing(void)
{
	KEEP;
}

static void (*volatile function)(void) = nothing;

static NOINLINE void block(struct worker *w)
{
	char byte;

	w->count = backtrace(w->frames, FRAMES);
	w->blocked = 1;
	while (read(w->wake[0], &byte, 1) < 0)
		continue;
	w->blocked = 0;
}

static NOINLINE int three(struct worker *w)
{
	block(w);
	KEEP;
	return 3;
}

static NOINLINE int two(struct worker *w)
{
	int n = three(w);

	KEEP;
	return n + 2;
}

static NOINLINE int one(struct worker *w)
{
	int n = two(w);

	KEEP;
	return n + 1;
}

static NOINLINE int deep(struct worker *w, int depth)
{
	int n = depth ? deep(w, depth - 1) : one(w);

	KEEP;
	return n + 1;
}

static NOINLINE void spin_here(struct worker *w)
{
	spin(&w->go_on);
	KEEP;
}

static void on_second(int number)
{
	(void)number;
	block(self);
	KEEP;
}

static void on_first(int number)
{
	(void)number;
	if (self != &workers[NESTED]) {
		block(self);
		KEEP;
		return;
	}
	self->first_handler = 1;
	while (!self->blocked && !stop)
		KEEP;
	KEEP;
}

static int work(struct worker *w)
{
	switch (w - workers) {
	case PLAIN:
		return one(w) == 6;
	case ALT:
	case NESTED:
		spin_here(w);
		return 1;
	case DEEP:
		return deep(w, DEPTH) == 6 + DEPTH + 1;
	default:
		while (!stop)
			__asm__ volatile("call *%0"
					 :
					 : "m"(function)
					 : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10",
					   "r11", "memory");
		return 1;
	}
}

static void *start(void *arg)
{
	struct worker *w = arg;
	stack_t alt = {.ss_sp = malloc(ALT_SIZE), .ss_size = ALT_SIZE};

	self = w;
	w->tid = (pid_t)syscall(SYS_gettid);
	sigaltstack(&alt, NULL);
	w->running = 1;
	return work(w) ? NULL : arg;
}

static void await(atomic_int *what)
{
	while (!*what)
		usleep(100);
}

static void set_up(void)
{
	struct sigaction first = {.sa_handler = on_first, .sa_flags = SA_ONSTACK};
	struct sigaction second = {.sa_handler = on_second};
	void *ignored[1];

	backtrace(ignored, 1); /* loads the unwinder, which a handler could not */
	sigaction(SIGUSR1, &first, NULL);
	sigaction(SIGUSR2, &second, NULL);
	for (int i = 0; i < WORKERS; i++) {
		if (pipe(workers[i].wake) ||
		    pthread_create(&workers[i].thread, NULL, start, &workers[i]))
			exit(2);
		await(&workers[i].running);
	}
	usleep(20000);
	pthread_kill(workers[ALT].thread, SIGUSR1);
	pthread_kill(workers[NESTED].thread, SIGUSR1);
	await(&workers[NESTED].first_handler);
	pthread_kill(workers[NESTED].thread, SIGUSR2);
	for (int i = 0; i < WORKERS; i++)
		if (i != CALLED)
			await(&workers[i].blocked);
}

static void answer(const char *line)
{
	if (!strncmp(line, "addresses", 9)) {
		printf("%lx %lx %lx %lx\n", (unsigned long)(uintptr_t)spin_begin,
		       (unsigned long)(uintptr_t)spin_end, (unsigned long)(uintptr_t)&function,
		       (unsigned long)(uintptr_t)nothing);
	} else if (!strncmp(line, "signal", 6)) {
		pthread_kill(workers[CALLED].thread, SIGUSR1);
		await(&workers[CALLED].blocked);
		printf("blocked\n");
	}
	for (int i = 0; i < WORKERS; i++) {
		if (strncmp(line, "show ", 5) || strncmp(line + 5, names[i], strlen(names[i])))
			continue;
		printf("%d", (int)workers[i].tid);
		for (int f = 1; f < workers[i].count; f++)
			printf(" %lx", (unsigned long)(uintptr_t)workers[i].frames[f]);
		printf("\n");
	}
	fflush(stdout);
}

int main(void)
{
	char line[128];
	void *result;
	int status = 0;

	setvbuf(stdin, NULL, _IONBF, 0);
	set_up();
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		answer(line);
	stop = 1;
	for (int i = 0; i < WORKERS; i++) {
		workers[i].go_on = 1;
		if (write(workers[i].wake[1], "", 1) != 1)
			status = 1;
	}
	for (int i = 0; i < WORKERS; i++) {
		pthread_join(workers[i].thread, &result);
		if (result)
			status = 1;
	}
	return status;
}
