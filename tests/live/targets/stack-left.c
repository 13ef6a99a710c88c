/* SPDX-License-Identifier: MIT */
/* build: -O2 -no-pie */
/*
 * stack-left.c - a thread is interrupted at stuck_at by a fault, and its handler goes on elsewhere, so
 * that the interrupted stack is to be found only by what is known of it. stack-left MODE:
 *
 *   guard   on a stack of the program's own making; the handler on it runs into the guard below, and the
 *           handler of that fault, on an alternate stack, is about to make the guard usable
 *   above   on the thread's own stack; the handler goes on on a small one directly above it
 *   deep    the same, 4 MiB deep in the thread's stack
 *   forked  the same, and there it forks; the process "ready ID" is the child
 *
 * Prints "ready" there, goes on when its input ends, and comes back to stuck_at. Exits with 1 if
 * a result was wrong.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GUARD = 65536, SMALL = 48 << 10, LARGE = 256 << 10, LEVELS = 64, LEVEL = 65536, VALUE = 41 };

/* The second instruction reads *p, which faults. */
long stuck(volatile long *p);
/* Calls the function on the stack that ends at `top`. */
void on_stack(void (*function)(void), char *top);
/* Uses a page that is four pages below its stack pointer. */
void reach_down(void);
__asm__(".text\n"
	".globl stuck, stuck_at\n"
	".type stuck,@function\n"
	"stuck:\n"
	"	nop\n"
	"stuck_at:\n"
	"	mov (%rdi),%rax\n"
	"	add $1,%rax\n"
	"	ret\n"
	".size stuck,.-stuck\n"
	"on_stack:\n"
	"	push %rbp\n	mov %rsp,%rbp\n"
	"	mov %rsi,%rsp\n	call *%rdi\n"
	"	mov %rbp,%rsp\n	pop %rbp\n	ret\n"
	"reach_down:\n"
	"	sub $16384,%rsp\n	movq $1,(%rsp)\n	add $16384,%rsp\n"
	"	ret\n");

static const char *mode;
static volatile long *page;	      /* of a file that is empty: SIGBUS */
static char *own, *other, *other_end; /* stacks; `own` begins with a guard */
static size_t own_size;
static int to_child[2]; /* its end tells that the parent is ready */
static volatile pid_t child = -1;
static volatile int wrong;

static void say_ready(void)
{
	printf("ready\n%d\n", (int)getpid());
	fflush(stdout);
}

static void wait_for_end(void)
{
	char byte;

	while (read(STDIN_FILENO, &byte, 1) > 0)
		continue;
}

static void make_page(void)
{
	if (mmap((void *)page, 4096, PROT_READ | PROT_WRITE,
		 MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
		_exit(2);
	*page = VALUE;
}

static void wait_elsewhere(void)
{
	char byte;

	if (!strcmp(mode, "forked")) {
		child = fork();
		if (child) {
			make_page();
			return;
		}
		close(to_child[1]);
		while (read(to_child[0], &byte, 1) > 0)
			continue;
	}
	say_ready();
	wait_for_end();
	make_page();
}

__attribute__((noinline, noclone)) static void run_down(void)
{
	volatile char frame[2048];

	frame[0] = 1;
	if ((uintptr_t)frame > (uintptr_t)other + GUARD + 8192)
		run_down();
	else
		reach_down();
	frame[1] = frame[0];
}

static void on_bus(int number)
{
	(void)number;
	if (strcmp(mode, "guard") != 0) {
		on_stack(wait_elsewhere, other_end);
		return;
	}
	run_down();
	make_page();
}

static void on_segv(int number)
{
	(void)number;
	say_ready();
	wait_for_end();
	mprotect(other, GUARD, PROT_READ | PROT_WRITE);
}

static void call_stuck(void)
{
	if (stuck(page) != VALUE + 1)
		wrong = 1;
}

__attribute__((noinline, noclone)) static int descend(int levels)
{
	volatile char frame[LEVEL];

	frame[0] = (char)levels;
	if (levels)
		return descend(levels - 1) + (frame[0] == (char)levels);
	call_stuck();
	return 0;
}

static void *run(void *arg)
{
	stack_t alternate = {.ss_sp = malloc(LARGE), .ss_size = LARGE};

	sigaltstack(&alternate, NULL);
	if (!strcmp(mode, "guard"))
		on_stack(call_stuck, other_end);
	else if (!strcmp(mode, "deep"))
		wrong |= descend(LEVELS) != LEVELS;
	else
		call_stuck();
	if (!child)
		_exit(wrong);
	return arg;
}

/* The two stacks side by side, as the kernel puts them; the other one with a guard where it is to have one. */
static void map_stacks(void)
{
	const int is_guard = !strcmp(mode, "guard");
	const size_t size = strcmp(mode, "deep") != 0 ? SMALL : LARGE;

	own_size = !strcmp(mode, "deep") ? 8 << 20 : 1 << 20;
	own = mmap(NULL, own_size + GUARD + size + 4096, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	other = own + own_size;
	other_end = other + size + (is_guard ? GUARD : 0) - 64;
	mprotect(other + size + (is_guard ? GUARD : 0), 4096, PROT_NONE);
	if (is_guard)
		mprotect(other, GUARD, PROT_NONE);
}

int main(int argc, char **argv)
{
	struct sigaction bus = {.sa_handler = on_bus};
	struct sigaction segv = {.sa_handler = on_segv, .sa_flags = SA_ONSTACK};
	int fd = memfd_create("empty", MFD_CLOEXEC), status = 0;
	pthread_attr_t attr;
	pthread_t thread;

	mode = argc > 1 ? argv[1] : "above";
	sigaction(SIGBUS, &bus, NULL);
	sigaction(SIGSEGV, &segv, NULL);
	page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	map_stacks();
	pthread_attr_init(&attr);
	pthread_attr_setstack(&attr, own, own_size);
	if (pipe(to_child) || pthread_create(&thread, &attr, run, NULL))
		return 2;
	pthread_join(thread, NULL);
	close(to_child[1]);
	if (child > 0 && (waitpid(child, &status, 0) != child || status))
		return 1;
	return wrong;
}
