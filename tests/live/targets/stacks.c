/* SPDX-License-Identifier: MIT */
/*
 * stacks.c - a target whose stacks are known: leaf() is called with a number that says by which
 * way; all ways one after the other, for ever.
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <ucontext.h>
#include <unistd.h>

#define KEEP __attribute__((noipa, used))

enum { PAGE = 4096, BIG = 20000, SMALL = 4 * PAGE };

int KEEP leaf(int way);
int KEEP one(int way);
int KEEP two(int way);
int KEEP three(int way);
int KEEP down(int n, int way);
int KEEP compare(const void *a, const void *b);
int KEEP by_sorting(int way);
int KEEP big(int way);
int KEEP varying(int n, int way);
int KEEP by_memory(int way);
void KEEP on_signal(int sig);
int KEEP interrupted(int sig);
void KEEP fiber(void);
int KEEP on_fiber(void);
void *KEEP thread(void *arg);
int KEEP last(int way);
void KEEP round_of_all(void);

static volatile int sum;
static ucontext_t here, there;
static int (*volatile in_memory)(int (*)(int), int);

int leaf(int way)
{
	sum += way;
	return way;
}

/* A call that is followed by something, or it would be a jump. */
#define CALLS(call)                                  \
	do {                                         \
		int result = (call);                 \
		__asm__ volatile("" : "+r"(result)); \
		return result + 1;                   \
	} while (0)

int three(int way)
{
	CALLS(leaf(way));
}

int two(int way)
{
	CALLS(three(way));
}

int one(int way)
{
	CALLS(two(way));
}

int down(int n, int way)
{
	CALLS(n ? down(n - 1, way) : leaf(way));
}

int compare(const void *a, const void *b)
{
	leaf(3);
	return *(const int *)a - *(const int *)b;
}

/* Out of the program through its PLT, and back. */
int by_sorting(int way)
{
	int list[2] = {way, 1};

	qsort(list, 2, sizeof(list[0]), compare);
	CALLS(list[0]);
}

/* What called it lies behind more than is copied. */
int big(int way)
{
	volatile char room[BIG];

	memset((char *)room, way, sizeof(room));
	CALLS(leaf(way) + room[way]);
}

/* The frame's size is not known before: its own begin is in a register. */
int varying(int n, int way)
{
	volatile char *room = __builtin_alloca((size_t)n);

	room[0] = 1;
	CALLS(leaf(way) + room[0]);
}

/* Code that nobody describes, with a frame pointer: push rbp; mov rbp, rsp; xchg edi, esi ... */
static void make_memory(void)
{
	static const uint8_t code[] = {
		0x55,		  /* push %rbp */
		0x48, 0x89, 0xe5, /* mov %rsp, %rbp */
		0x48, 0x89, 0xf8, /* mov %rdi, %rax */
		0x89, 0xf7,	  /* mov %esi, %edi */
		0xff, 0xd0,	  /* call *%rax */
		0x5d,		  /* pop %rbp */
		0xc3,		  /* ret */
	};
	void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memcpy(page, code, sizeof(code));
	mprotect(page, PAGE, PROT_READ | PROT_EXEC);
	in_memory = (int (*)(int (*)(int), int))(uintptr_t)page;
}

int by_memory(int way)
{
	CALLS(in_memory(leaf, way));
}

void on_signal(int sig)
{
	leaf(sig == SIGUSR1 ? 7 : 8);
	sum++;
}

int interrupted(int sig)
{
	CALLS(raise(sig));
}

void fiber(void)
{
	for (;;) {
		leaf(9);
		swapcontext(&there, &here);
	}
}

int on_fiber(void)
{
	CALLS(swapcontext(&here, &there));
}

/* Its stack ends where nothing is mapped, a page behind its first frame. */
static void make_fiber(void)
{
	uint8_t *room = mmap(NULL, SMALL + PAGE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	mprotect(room + SMALL, PAGE, PROT_NONE);
	getcontext(&there);
	there.uc_stack = (stack_t){.ss_sp = room, .ss_size = SMALL};
	makecontext(&there, fiber, 0);
}

void *thread(void *arg)
{
	one((int)(intptr_t)arg);
	return arg;
}

/* Called last, so that what was seen before it is all of a round. */
int last(int way)
{
	CALLS(leaf(way));
}

void round_of_all(void)
{
	pthread_t id;

	one(1);
	down(4, 2);
	by_sorting(3);
	big(4);
	varying((sum & 511) + 1, 5);
	by_memory(6);
	interrupted(SIGUSR1);
	interrupted(SIGUSR2);
	on_fiber();
	pthread_create(&id, NULL, thread, (void *)10);
	pthread_join(id, NULL);
	last(11);
}

int main(void)
{
	static uint8_t alternate[1 << 16];
	const stack_t stack = {.ss_sp = alternate, .ss_size = sizeof(alternate)};
	struct sigaction action = {.sa_handler = on_signal};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigaltstack(&stack, NULL);
	sigaction(SIGUSR1, &action, NULL);
	action.sa_flags = SA_ONSTACK;
	sigaction(SIGUSR2, &action, NULL);
	make_memory();
	make_fiber();
	printf("ready\n");
	fflush(stdout);
	for (;;) {
		round_of_all();
		usleep(2000);
	}
}
