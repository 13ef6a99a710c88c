/* SPDX-License-Identifier: MIT */
/* build: -O2 -rdynamic -fno-inline -fno-optimize-sibling-calls */
/*
 * threads_inside.c - threads that are inside of functions when somebody looks.
 *
 * Prints "ready". Commands, each answered by a line:
 *   hold N D    N threads go D frames of nest() deep, and into held(); "held"
 *   above D     the same with one thread, whose held() is called by a signal's handler on a stack
 *               that lies above the thread's own; "held"
 *   free        they go back; "done"
 *   spin N      N threads are in outer(), which calls leaf() all the time; "held"
 *   alone       the same with one thread, whose stack is cleared when it has ended; "held"
 *   catch       this one is interrupted in code that is of no file, by a signal whose handler is in
 *               held(); "caught"
 *   stop        they go back; "done N", N being how often leaf() was called in all
 *   leap N      N threads are in leaper(), which calls leaf() all the time; "held"
 *   land        they leave it by longjmp, and go through nest(); "done"
 *   jump N      N times: nest() 5 deep, and out of it by longjmp; "done"
 *   nest        nest() once, and back; "done"
 *   fibers N    two coroutines in turn, N times: each is in fiber_work(), and calls leaf(); "done"
 *   away        a thread in away() is in far_away() and held() on a coroutine's stack, which begins with a
 *               return address of 0; "held"
 *   churn N     N threads one after the other, each through nest(3); "done"
 *   child       inside of nest(2) forks; the child returns first; "done STATUS"
 *   family      the same, and both stay inside, "forked", up to the next line
 * Exits with 1 if a result was wrong.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))

#if defined(__x86_64__)
#define INTERRUPTED(context) ((context)->uc_mcontext.gregs[REG_RIP])
#else
#define INTERRUPTED(context) ((context)->uc_mcontext.pc)
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned inside;
static _Atomic int released;
static _Atomic unsigned long leaves, own_leaves;
static _Atomic int wrong;
static jmp_buf back;
static pthread_t threads[1024];
static unsigned thread_count;
static int deep;
static bool staying;

KEEP unsigned long leaf(unsigned long n)
{
	atomic_fetch_add_explicit(&leaves, 1, memory_order_relaxed);
	return n * 3 + 1;
}

static unsigned long checked_leaf(unsigned long n)
{
	const unsigned long result = leaf(n);

	if (result != n * 3 + 1)
		wrong = 1;
	return result;
}

KEEP void held(void)
{
	pthread_mutex_lock(&lock);
	inside++;
	pthread_cond_broadcast(&changed);
	while (!released)
		pthread_cond_wait(&changed, &lock);
	inside--;
	pthread_mutex_unlock(&lock);
}

enum what { HELD, JUMP, FORK, SIGNAL, NOTHING };

KEEP int nest(int depth, enum what what);

static int fork_inside(void)
{
	char line[128];
	int status = -1, ends[2];
	pid_t pid;

	if (pipe(ends))
		exit(1);
	pid = fork();
	if (pid == 0) {
		close(ends[1]);
		if (read(ends[0], line, 1))
			wrong = 1;
		return -1; /* the child goes back through nest(), and ends in main() */
	}
	if (staying) {
		puts("forked");
		if (!fgets(line, sizeof(line), stdin))
			exit(1);
	}
	close(ends[0]);
	close(ends[1]);
	waitpid(pid, &status, 0);
	return status;
}

KEEP int nest(int depth, enum what what)
{
	int result = 0;

	if (depth > 1)
		result = nest(depth - 1, what);
	else if (what == HELD)
		held();
	else if (what == JUMP)
		longjmp(back, 1);
	else if (what == FORK)
		result = fork_inside();
	else if (what == SIGNAL)
		raise(SIGUSR1);
	__asm__ volatile("" ::: "memory");
	return what == FORK ? result : result + depth;
}

/* Each frame adds its depth. */
static void checked_nest(int depth, enum what what)
{
	if (nest(depth, what) != depth * (depth + 1) / 2)
		wrong = 1;
}

static void *hold_thread(void *arg)
{
	checked_nest(deep, HELD);
	return arg;
}

enum { STACK = 256 * 1024 };

/* The upper half is for signals. */
static char two_stacks[2 * STACK] __attribute__((aligned(4096)));

static void hold_above(int number)
{
	(void)number;
	held();
}

static void *above_thread(void *arg)
{
	const stack_t upper = {.ss_sp = two_stacks + STACK, .ss_size = STACK};
	const struct sigaction action = {.sa_handler = hold_above, .sa_flags = SA_ONSTACK};

	if (sigaltstack(&upper, NULL) || sigaction(SIGUSR1, &action, NULL))
		exit(1);
	checked_nest(deep, SIGNAL);
	return arg;
}

KEEP unsigned long outer(unsigned long n)
{
	unsigned long turns = 0;

	for (; !released; turns++)
		n = checked_leaf(n);
	own_leaves += turns;
	__asm__ volatile("" ::: "memory");
	return n;
}

static void be_inside(void)
{
	pthread_mutex_lock(&lock);
	inside++;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

/* With work of its own: else a thread that is stopped is next to never out of what is inserted into leaf(). */
KEEP unsigned long leaper(unsigned long n, jmp_buf out)
{
	enum { OWN_WORK = 60 };

	while (!released) {
		n = leaf(n);
		for (unsigned i = 0; i < OWN_WORK; i++)
			__asm__ volatile("" ::: "memory");
	}
	if (n)
		longjmp(out, 1);
	return n;
}

static void *leap_thread(void *arg)
{
	jmp_buf out;

	be_inside();
	if (!setjmp(out)) {
		leaper(1, out);
		wrong = 1;
	}
	/* From where leaper() was called, so that it is seen to have been left. */
	if (nest(1, NOTHING) != 1)
		wrong = 1;
	return arg;
}

static void *spin_thread(void *arg)
{
	be_inside();
	return (void *)outer((unsigned long)arg);
}

static void *alone_thread(void *arg)
{
	return spin_thread(arg);
}

static void *churn_thread(void *arg)
{
	checked_nest(3, NOTHING);
	return arg;
}

static void start(unsigned count, void *(*work)(void *))
{
	pthread_attr_t attributes;

	released = 0;
	thread_count = count < 1024 ? count : 1024;
	pthread_attr_init(&attributes);
	if (work == above_thread || work == alone_thread)
		pthread_attr_setstack(&attributes, two_stacks, STACK);
	else
		pthread_attr_setstacksize(&attributes, STACK);
	for (unsigned i = 0; i < thread_count; i++)
		if (pthread_create(&threads[i], &attributes, work, NULL))
			exit(1);
	pthread_mutex_lock(&lock);
	while (inside < thread_count)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	puts("held");
}

/* In no module's code, hence in what somebody has put there. */
static void hold_outside(int number, siginfo_t *info, void *context)
{
	const ucontext_t *interrupted = context;
	Dl_info module;

	(void)number;
	(void)info;
	if (!dladdr((void *)INTERRUPTED(interrupted), &module))
		held();
}

static void catch_outside(void)
{
	const struct sigaction action = {.sa_sigaction = hold_outside, .sa_flags = SA_SIGINFO};
	bool caught = false;

	if (sigaction(SIGUSR1, &action, NULL))
		exit(1);
	while (!caught) {
		pthread_kill(threads[0], SIGUSR1);
		usleep(300);
		pthread_mutex_lock(&lock);
		caught = inside > thread_count;
		pthread_mutex_unlock(&lock);
	}
	puts("caught");
}

static void release(void)
{
	pthread_mutex_lock(&lock);
	released = 1;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	for (unsigned i = 0; i < thread_count; i++)
		pthread_join(threads[i], NULL);
	thread_count = inside = 0;
	/* What a handler has left of where it returns to might be something that is kept to be run. */
	memset(two_stacks, 0, sizeof(two_stacks));
}

/* ---------------------------------------------------------------- fibers */

static ucontext_t main_context, contexts[2];
static char stacks[2][65536];

KEEP void fiber_work(int number, int turns)
{
	for (int i = 0; i < turns; i++) {
		checked_leaf((unsigned long)i);
		own_leaves++;
		swapcontext(&contexts[number], &contexts[!number]);
	}
	__asm__ volatile("" ::: "memory");
}

static int fiber_turns;

static void fiber(int number)
{
	fiber_work(number, fiber_turns);
	if (number == 0)
		setcontext(&contexts[1]);
}

static void fibers(int turns)
{
	fiber_turns = turns;
	leaves = own_leaves = 0;
	for (int i = 0; i < 2; i++) {
		getcontext(&contexts[i]);
		contexts[i].uc_stack.ss_sp = stacks[i];
		contexts[i].uc_stack.ss_size = sizeof(stacks[i]);
		contexts[i].uc_link = &main_context;
		makecontext(&contexts[i], (void (*)(void))fiber, 1, i);
	}
	swapcontext(&main_context, &contexts[0]);
	if (leaves != 2ul * (unsigned long)turns || leaves != own_leaves)
		wrong = 1;
}

KEEP void far_away(void)
{
	held();
	__asm__ volatile("" ::: "memory");
}

/* Nobody has called it, and it never returns. */
KEEP void coroutine(void)
{
	((void *volatile *)__builtin_frame_address(0))[1] = NULL;
	far_away();
	setcontext(&main_context);
}

KEEP int away(int number)
{
	getcontext(&contexts[0]);
	contexts[0].uc_stack.ss_sp = stacks[0];
	contexts[0].uc_stack.ss_size = sizeof(stacks[0]);
	makecontext(&contexts[0], coroutine, 0);
	swapcontext(&main_context, &contexts[0]);
	return number + 1;
}

static void *away_thread(void *arg)
{
	if (away(3) != 4)
		wrong = 1;
	return arg;
}

/* -------------------------------------------------------------- commands */

static volatile int turn;

static void jump(int times)
{
	for (turn = 0; turn < times; turn++)
		if (!setjmp(back)) {
			nest(5, JUMP);
			wrong = 1;
		}
	puts("done");
}

static void churn(int times)
{
	pthread_t thread;

	for (int i = 0; i < times; i++) {
		if (pthread_create(&thread, NULL, churn_thread, NULL))
			exit(1);
		pthread_join(thread, NULL);
	}
	puts("done");
}

static void run(const char *line)
{
	int a = 0, b = 0;

	if (sscanf(line, "hold %d %d", &a, &b) == 2) {
		deep = b;
		start((unsigned)a, hold_thread);
	} else if (sscanf(line, "above %d", &a) == 1) {
		deep = a;
		start(1, above_thread);
	} else if (sscanf(line, "spin %d", &a) == 1) {
		leaves = own_leaves = 0;
		start((unsigned)a, spin_thread);
	} else if (sscanf(line, "leap %d", &a) == 1) {
		start((unsigned)a, leap_thread);
	} else if (!strcmp(line, "alone")) {
		leaves = own_leaves = 0;
		start(1, alone_thread);
	} else if (!strcmp(line, "catch")) {
		catch_outside();
	} else if (!strcmp(line, "away")) {
		start(1, away_thread);
	} else if (!strcmp(line, "free") || !strcmp(line, "land")) {
		release();
		puts("done");
	} else if (!strcmp(line, "stop")) {
		release();
		if (leaves != own_leaves)
			wrong = 1;
		printf("done %lu\n", (unsigned long)leaves);
	} else if (!strcmp(line, "nest")) {
		checked_nest(1, NOTHING);
		puts("done");
	} else if (sscanf(line, "jump %d", &a) == 1) {
		jump(a);
	} else if (sscanf(line, "fibers %d", &a) == 1) {
		fibers(a);
		puts("done");
	} else if (sscanf(line, "churn %d", &a) == 1) {
		churn(a);
	} else if (!strcmp(line, "child") || !strcmp(line, "family")) {
		int status;

		staying = !strcmp(line, "family");
		status = nest(2, FORK);
		if (status == -1)
			_exit(wrong ? 8 : 7);
		printf("done %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	}
}

int main(void)
{
	char line[128];

	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		run(line);
	}
	return wrong;
}
