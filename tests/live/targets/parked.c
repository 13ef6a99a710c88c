/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline */
/*
 * parked.c - an interrupted program counter that is on no stack that a thread
 * runs on: what a scheduler inside of a program does that switches between its
 * tasks from a signal handler. The signal is a fault at the second instruction of
 * parked_function(), so that the place is known.
 *
 * parked HOW:
 *   away     the handler gives way to another stack and stays on the thread's own
 *   fiber    the function runs on a stack from the heap; the handler on it gives way
 *   shared   the same on a stack that is mapped shared
 *   mapped   the same on one that is mapped private
 *   painted  the same on one that is a private copy of a file
 *   own      as away, by a switch of the program's own; nothing lies above the other stack's begin
 *   within   as own, by a thread whose stack is the lowest part of a larger mapping
 *   lent     the same, of one that is mapped shared
 *   copied   the same as fiber, but what is interrupted is copied to the heap, and the
 *            handler's frame is wiped out
 * Prints "ready". Commands:
 *   park     calls the function, which gets stuck so; "parked"
 *   step N   the same before the Nth instruction that is not the program's own: the processor's
 *            trap flag stops it there; "not parked" where there are not so many
 *   resume   it goes on and returns; "resumed"
 *   go N     calls it N times without a fault; "done"
 *   fill N   N MiB more of memory that is in use, instead of what there was so far; "filled".
 *            Above 1,024 it is mapped only, and empty.
 *   rights N what may be done with the stack of "shared", "mapped" and "painted" from now on (PROT_READ is 1); "set"
 *   forget   the pages of that stack are given back; "forgotten": where it is shared, what is in it stays
 *   sparse   64 GiB of shared memory more, with a page in the middle; "spread"
 *   readers  200 MiB of shared memory more, full, that can only be read; "mapped"
 *   reserve N  N GiB more of addresses, at which nothing may be; "reserved"
 *   load F   loads the shared object F; "loaded"
 *   code     begins to map code of its own making all the time, each time of a new file in memory; "begun"
 *   guard    a guard that is no mapping, in memory of its own; "guarded", or "none" where the
 *            kernel knows none, or does not tell
 * Exits with 1 if a result was wrong.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "parked.h"

enum { STACK = 65536, VALUE = 41 };

/* Saves where it is in *from, and goes on where `to` was saved. */
void own_switch(void **from, void *to);
__asm__(".text\n"
	"own_switch:\n"
	"	push %rbp\n	push %rbx\n	push %r12\n	push %r13\n	push %r14\n	push %r15\n"
	"	mov %rsp,(%rdi)\n"
	"	mov %rsi,%rsp\n"
	"	pop %r15\n	pop %r14\n	pop %r13\n	pop %r12\n	pop %rbx\n	pop %rbp\n"
	"	ret\n");

static void *own_server, *own_task;
static ucontext_t server, task, in_handler;
static ucontext_t *saved;
static volatile int *page;
static char *mapped; /* a stack */
static char mode;
static volatile int wrong, parked, finished;
static volatile long steps_left; /* until it gives way; 0: it does by a fault, or not at all */
static char step_stack[STACK]; /* one frame lies over the other: none of an earlier step is left */

/* parked_function(page), with a trap behind each instruction. */
static long step(void)
{
	long value;

	__asm__ volatile("	lea -128(%%rsp),%%rsp\n"
			 "	pushf\n	orq $0x100,(%%rsp)\n	popf\n"
			 "	call parked_function\n"
			 "	pushf\n	andq $~0x100,(%%rsp)\n	popf\n"
			 "	lea 128(%%rsp),%%rsp\n"
			 : "=a"(value)
			 : "D"(page)
			 : "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "cc", "memory");
	return value;
}

static void call(void)
{
	if ((steps_left ? step() : parked_function(page)) != VALUE + 1)
		wrong = 1;
	wipe();
	memset(step_stack, 0, sizeof(step_stack));
	memset(&in_handler, 0, sizeof(in_handler)); /* has registers of what was interrupted */
	finished = 1;
	parked = 0;
}

static void give_way(void *context)
{
	parked = 1;
	if (mode == 'o') {
		own_switch(&own_task, own_server);
		return;
	}
	if (mode == 'c') {
		const greg_t sp = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RSP];

		memcpy(saved, context, sizeof(*saved));
		/* On its way out it wipes what is below the interrupted frame: see serve(). */
		in_handler.uc_mcontext.gregs[REG_RSP] = sp;
		setcontext(&server);
	}
	swapcontext(&in_handler, &server);
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	mprotect((void *)page, 4096, PROT_READ | PROT_WRITE);
	give_way(context);
	(void)sig;
	(void)info;
}

static void on_step(int sig, siginfo_t *info, void *context)
{
	enum { TRAP_FLAG = 0x100 };
	extern char __executable_start, etext;
	greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
	const uintptr_t pc = (uintptr_t)regs[REG_RIP];

	if (pc >= (uintptr_t)&__executable_start && pc < (uintptr_t)&etext)
		return;
	if (!--steps_left) {
		regs[REG_EFL] &= ~TRAP_FLAG;
		give_way(context);
	}
	(void)sig;
	(void)info;
}

/* The task that was copied comes back where this handler has interrupted the server. */
static void on_resume(int sig, siginfo_t *info, void *context)
{
	memcpy(((ucontext_t *)context)->uc_mcontext.gregs, saved->uc_mcontext.gregs,
	       sizeof(saved->uc_mcontext.gregs));
	memset(saved, 0, sizeof(*saved));
	(void)sig;
	(void)info;
}

static void run_task(void)
{
	call();
	setcontext(&server);
}

/* Where the task is: on its own stack, or on the thread's while the server is elsewhere. */
static void park(void)
{
	static char *stack;

	finished = 0;
	if (!steps_left)
		mprotect((void *)page, 4096, PROT_NONE);
	if (mode == 'o') {
		own_switch(&own_server, own_task);
		return;
	}
	if (mode == 'a') {
		swapcontext(&server, &task);
		return;
	}
	if (!stack)
		stack = mapped ? mapped : malloc(STACK);
	getcontext(&task);
	task.uc_stack.ss_sp = stack;
	task.uc_stack.ss_size = STACK;
	task.uc_link = NULL;
	makecontext(&task, run_task, 0);
	swapcontext(&server, &task);
	if (mode == 'c' && parked) {
		char *sp = (char *)in_handler.uc_mcontext.gregs[REG_RSP];

		memset(stack, 0, (size_t)(sp - 128 - stack));
		memset(step_stack, 0, sizeof(step_stack));
	}
}

static void resume(void)
{
	if (mode == 'o') {
		own_switch(&own_server, own_task);
		return;
	}
	if (mode != 'c') {
		swapcontext(&server, &in_handler);
		return;
	}
	/* The way back is run_task()'s setcontext(). */
	getcontext(&server);
	if (!finished)
		raise(SIGUSR1);
}

static void fill(size_t bytes)
{
	static void *memory;
	static size_t size;

	if (size)
		munmap(memory, size);
	size = bytes;
	if (size)
		memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS |
				      (size >> 30 ? MAP_NORESERVE : MAP_POPULATE),
			      -1, 0);
	if (size && memory == MAP_FAILED)
		exit(2);
}

/* What the stack of these lies in. */
static char *map_stack(void)
{
	const int rights = PROT_READ | PROT_WRITE;
	int fd;

	if (mode == 's')
		return mmap(NULL, STACK, rights, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (mode == 'm')
		return mmap(NULL, STACK, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mode != 'p')
		return NULL;
	fd = memfd_create("stack", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, STACK))
		exit(2);
	return mmap(NULL, STACK, rights, MAP_PRIVATE, fd, 0);
}

static int share(int readers)
{
	const size_t size = readers ? (size_t)200 << 20 : (size_t)64 << 30;
	int fd = memfd_create("shared", MFD_CLOEXEC), to_map = fd;
	char name[64];
	void *memory;

	if (fd < 0 || ftruncate(fd, (off_t)size) || pwrite(fd, "x", 1, (off_t)size / 2) != 1)
		return 0;
	for (off_t at = 0; readers && at < (off_t)size; at += 4096)
		if (pwrite(fd, "x", 1, at) != 1)
			return 0;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	if (readers)
		to_map = open(name, O_RDONLY | O_CLOEXEC);
	memory = mmap(NULL, size, readers ? PROT_READ : PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_NORESERVE, to_map, 0);
	if (readers)
		close(to_map);
	close(fd);
	return memory != MAP_FAILED;
}

static int reserve(size_t bytes)
{
	return mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) !=
	       MAP_FAILED;
}

static int guard(void)
{
	enum { GUARD_INSTALL = 102 };
	char *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t entry = 0;
	int fd = open("/proc/self/pagemap", O_RDONLY);

	memory[0] = 1;
	if (madvise(memory + 4096, 4096, GUARD_INSTALL) ||
	    pread(fd, &entry, sizeof(entry), (off_t)((uintptr_t)(memory + 4096) / 4096 * 8)) != 8)
		entry = 0;
	close(fd);
	return entry >> 58 & 1;
}

static void *make_code(void *unused)
{
	static void *made[8];

	for (unsigned n = 0;; n = (n + 1) % 8) {
		int fd = memfd_create("code", MFD_CLOEXEC);

		if (fd < 0 || ftruncate(fd, 4096))
			exit(2);
		if (made[n])
			munmap(made[n], 4096);
		made[n] = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
		if (made[n] == MAP_FAILED)
			exit(2);
		close(fd);
		usleep(100);
	}
	return unused;
}

static void serve(void)
{
	char line[1024];

	/* Memory for input and output is there before anybody looks. */
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "park", 4) || !strncmp(line, "step", 4)) {
			steps_left = line[0] == 's' ? atol(line + 5) : 0;
			park();
			puts(parked ? "parked" : "not parked");
		} else if (!strncmp(line, "resume", 6)) {
			resume();
			wipe();
			puts(finished ? "resumed" : "not resumed");
		} else if (!strncmp(line, "fill", 4)) {
			fill((size_t)atol(line + 5) << 20);
			puts("filled");
		} else if (!strncmp(line, "rights", 6)) {
			puts(mprotect(mapped, STACK, atoi(line + 7)) ? "not set" : "set");
		} else if (!strncmp(line, "forget", 6)) {
			puts(madvise(mapped, STACK, MADV_DONTNEED) ? "not forgotten" : "forgotten");
		} else if (!strncmp(line, "sparse", 6)) {
			puts(share(0) ? "spread" : "not spread");
		} else if (!strncmp(line, "readers", 7)) {
			puts(share(1) ? "mapped" : "not mapped");
		} else if (!strncmp(line, "reserve", 7)) {
			puts(reserve((size_t)atol(line + 8) << 30) ? "reserved" : "not reserved");
		} else if (!strncmp(line, "guard", 5)) {
			puts(guard() ? "guarded" : "none");
		} else if (!strncmp(line, "load", 4)) {
			line[strcspn(line, "\n")] = '\0';
			puts(dlopen(line + 5, RTLD_NOW) ? "loaded" : "not loaded");
		} else if (!strncmp(line, "code", 4)) {
			pthread_t thread;

			puts(pthread_create(&thread, NULL, make_code, NULL) ? "not begun"
									    : "begun");
		} else {
			for (long n = atol(line + 3); n > 0; n--)
				if (parked_function(page) != VALUE + 1)
					wrong = 1;
			puts("done");
		}
		fflush(stdout);
	}
	exit(wrong);
}

/* Away: the server runs on a stack from the heap, and the task on the thread's own. */
static void away(void)
{
	char *stack = malloc(STACK);

	getcontext(&server);
	server.uc_stack.ss_sp = stack;
	server.uc_stack.ss_size = STACK;
	server.uc_link = NULL;
	makecontext(&server, serve, 0);
	for (;;) {
		swapcontext(&task, &server);
		call();
	}
}

/* The same; serve() returns to 0. */
static void own_away(void)
{
	void **stack = aligned_alloc(16, STACK);

	memset(stack, 0, STACK);
	own_server = stack + STACK / sizeof(*stack) - 8;
	stack[STACK / sizeof(*stack) - 2] = (void *)serve;
	for (;;) {
		own_switch(&own_task, own_server);
		call();
	}
}

static void *thread(void *arg)
{
	own_away();
	return arg;
}

static void within(int how)
{
	char *memory = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, how | MAP_ANONYMOUS, -1, 0);
	pthread_attr_t attr;
	pthread_t id;

	pthread_attr_init(&attr);
	pthread_attr_setstack(&attr, memory, 1 << 20);
	if (pthread_create(&id, &attr, thread, NULL))
		exit(2);
	pthread_join(id, NULL);
}

int main(int argc, char **argv)
{
	struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
	struct sigaction again = {.sa_sigaction = on_resume, .sa_flags = SA_SIGINFO | SA_NODEFER};
	struct sigaction trap = {.sa_sigaction = on_step,
				 .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
	stack_t alternate = {.ss_sp = step_stack, .ss_size = sizeof(step_stack)};

	mode = argc > 1 ? argv[1][0] : 'f';
	saved = malloc(sizeof(*saved));
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	*page = VALUE;
	mapped = map_stack();
	sigaction(SIGSEGV, &fault, NULL);
	sigaction(SIGUSR1, &again, NULL);
	sigaction(SIGTRAP, &trap, NULL);
	sigaltstack(&alternate, NULL);
	if (mode == 'a')
		away();
	if (mode == 'o')
		own_away();
	if (mode == 'w' || mode == 'l') {
		const int how = mode == 'l' ? MAP_SHARED : MAP_PRIVATE;

		mode = 'o';
		within(how);
	}
	serve();
}
