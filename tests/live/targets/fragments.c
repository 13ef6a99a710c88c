/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -fno-ipa-cp -fno-ipa-icf */
/*
 * fragments.c - two thousand functions, for a heap in fragments, and threads
 * that are in the middle of something: blocked in a call, in handlers on other
 * stacks, deep in a recursion, in coroutines that stand still.
 *
 * fragments THREADS: prints "ready". A round calls each of part_000 to part_7ff
 * once, dive() 21 times, and linger() in two coroutines.
 *   go N     N rounds of every thread; prints "done"
 *   run      rounds without end, signals too; prints "running"
 *   stop     ends that; prints "done ROUNDS TICKS": rounds of all threads since
 *            "run", and calls of ticked() by the signal handler
 *   wake     a byte for the thread that waits in wait_for_byte(), which waits for
 *            the next one then; prints "awake N": bytes so far
 *   hold     between "run" and "stop": a signal for one of those that work, whose
 *            handler waits on another stack; prints "held TID"
 *   unhold   ends that; prints "unheld"
 * Ends with its input; says "wrong" instead of "done", and has status 1, once a result was wrong.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define OPAQUE	 __asm__ volatile("" ::: "memory")

enum { THREADS_MAX = 16, FIBERS = 2, STACK = 65536, PARTS = 2048, DEPTH = 20 };

static volatile int wrong, running, ending;
static volatile long ticks, awake;
static long rounds;
static int bytes[2], releases[2];
static volatile pid_t held; /* the thread that is */
static pthread_t handles[THREADS_MAX], waiting;

struct runner {
	ucontext_t main, fibers[FIBERS];
	char stacks[FIBERS][STACK], signals[STACK];
	long lingered[FIBERS], done;
	int quit;
};

static struct runner runners[THREADS_MAX];
static __thread struct runner *own;
static pthread_barrier_t start, finish;

/* ------------------------------------------------------------------ parts */

#define PART(n)                                \
	NOINLINE unsigned part_##n(unsigned x) \
	{                                      \
		OPAQUE;                        \
		return x * 3 + 0x##n;          \
	}
#define PARTS_16(n) \
	PART(n##0)  \
	PART(n##1)  \
	PART(n##2)  \
	PART(n##3)  \
	PART(n##4)  \
	PART(n##5)  \
	PART(n##6)  \
	PART(n##7)  \
	PART(n##8) PART(n##9) PART(n##a) PART(n##b) PART(n##c) PART(n##d) PART(n##e) PART(n##f)
#define PARTS_256(n)   \
	PARTS_16(n##0) \
	PARTS_16(n##1) \
	PARTS_16(n##2) \
	PARTS_16(n##3) \
	PARTS_16(n##4) \
	PARTS_16(n##5) \
	PARTS_16(n##6) \
	PARTS_16(n##7) \
	PARTS_16(n##8) \
	PARTS_16(n##9) \
	PARTS_16(n##a) \
	PARTS_16(n##b) PARTS_16(n##c) PARTS_16(n##d) PARTS_16(n##e) PARTS_16(n##f)

PARTS_256(0)
PARTS_256(1)
PARTS_256(2)
PARTS_256(3)
PARTS_256(4)
PARTS_256(5)
PARTS_256(6)
PARTS_256(7)

#define NAME_16(n)                                                                                 \
	part_##n##0, part_##n##1, part_##n##2, part_##n##3, part_##n##4, part_##n##5, part_##n##6, \
		part_##n##7, part_##n##8, part_##n##9, part_##n##a, part_##n##b, part_##n##c,      \
		part_##n##d, part_##n##e, part_##n##f
#define NAME_256(n)                                                                               \
	NAME_16(n##0), NAME_16(n##1), NAME_16(n##2), NAME_16(n##3), NAME_16(n##4), NAME_16(n##5), \
		NAME_16(n##6), NAME_16(n##7), NAME_16(n##8), NAME_16(n##9), NAME_16(n##a),        \
		NAME_16(n##b), NAME_16(n##c), NAME_16(n##d), NAME_16(n##e), NAME_16(n##f)

static unsigned (*const volatile parts[PARTS])(unsigned) = {
	NAME_256(0), NAME_256(1), NAME_256(2), NAME_256(3),
	NAME_256(4), NAME_256(5), NAME_256(6), NAME_256(7),
};

/* ------------------------------------------------------- other situations */

NOINLINE long dive(long n)
{
	OPAQUE;
	return n ? dive(n - 1) + 1 : 0;
}

/* Stands still in here while the thread does something else. */
NOINLINE void linger(int index)
{
	struct runner *r = own;

	r->lingered[index]++;
	swapcontext(&r->fibers[index], &r->main);
	if (own != r)
		wrong = 1;
}

static void fiber(int index)
{
	while (!own->quit)
		linger(index);
}

NOINLINE void ticked(void)
{
	OPAQUE;
	__atomic_add_fetch(&ticks, 1, __ATOMIC_RELAXED);
}

NOINLINE void on_tick(int sig)
{
	OPAQUE;
	ticked();
	(void)sig;
}

NOINLINE int wait_for_byte(int fd)
{
	char byte = 0;
	long got;

	OPAQUE;
	do
		got = read(fd, &byte, 1);
	while (got < 0);
	return got == 1 ? byte : -1;
}

/* On the other stack of a thread that works, until "unhold". */
static void on_user(int sig)
{
	char byte;

	held = gettid();
	while (read(releases[0], &byte, 1) != 1)
		;
	held = 0;
	(void)sig;
}

static void *sleeper(void *arg)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	pthread_barrier_wait(&finish);
	while (wait_for_byte(bytes[0]) == 'b')
		__atomic_add_fetch(&awake, 1, __ATOMIC_RELAXED);
	return arg;
}

/* ------------------------------------------------------------------- work */

static void once(struct runner *r)
{
	for (unsigned i = 0; i < PARTS; i++)
		if (parts[i](i) != i * 3 + i)
			wrong = 1;
	if (dive(DEPTH) != DEPTH)
		wrong = 1;
	r->done++;
	for (int i = 0; i < FIBERS; i++) {
		swapcontext(&r->main, &r->fibers[i]);
		if (r->lingered[i] != r->done + 1)
			wrong = 1;
	}
}

static void *work(void *arg)
{
	struct runner *r = own = arg;
	const stack_t stack = {.ss_sp = r->signals, .ss_size = STACK};

	sigaltstack(&stack, NULL);
	for (int i = 0; i < FIBERS; i++) {
		getcontext(&r->fibers[i]);
		r->fibers[i].uc_stack.ss_sp = r->stacks[i];
		r->fibers[i].uc_stack.ss_size = STACK;
		r->fibers[i].uc_link = &r->main;
		makecontext(&r->fibers[i], (void (*)(void))fiber, 1, i);
		swapcontext(&r->main, &r->fibers[i]);
	}
	pthread_barrier_wait(&finish);
	for (;;) {
		pthread_barrier_wait(&start);
		if (ending)
			break;
		for (long n = 0; rounds ? n < rounds : running; n++)
			once(r);
		/* Old signal frames look like tasks that are parked: inject/stack_parked.c. */
		memset(r->signals, 0, sizeof(r->signals));
		pthread_barrier_wait(&finish);
	}
	r->quit = 1;
	for (int i = 0; i < FIBERS; i++)
		swapcontext(&r->main, &r->fibers[i]);
	return NULL;
}

static long all_rounds(int threads)
{
	long sum = 0;

	for (int i = 0; i < threads; i++)
		sum += runners[i].done;
	return sum;
}

static void set_timer(long us)
{
	const struct itimerval timer = {.it_interval.tv_usec = us, .it_value.tv_usec = us};

	setitimer(ITIMER_REAL, &timer, NULL);
}

static void answer(const char *line, int threads)
{
	static long before;

	if (!strncmp(line, "go ", 3)) {
		rounds = strtol(line + 3, NULL, 10);
		pthread_barrier_wait(&start);
		pthread_barrier_wait(&finish);
		puts(wrong ? "wrong" : "done");
	} else if (!strncmp(line, "run", 3)) {
		before = all_rounds(threads);
		ticks = 0;
		rounds = 0;
		running = 1;
		pthread_barrier_wait(&start);
		set_timer(1000);
		puts("running");
	} else if (!strncmp(line, "stop", 4)) {
		set_timer(0);
		running = 0;
		pthread_barrier_wait(&finish);
		printf("%s %ld %ld\n", wrong ? "wrong" : "done", all_rounds(threads) - before,
		       ticks);
	} else if (!strncmp(line, "wake", 4)) {
		const long was = awake;

		if (write(bytes[1], "b", 1) != 1)
			wrong = 1;
		while (awake == was)
			usleep(100);
		printf("awake %ld\n", awake);
	} else if (!strncmp(line, "hold", 4)) {
		pthread_kill(handles[0], SIGUSR1);
		while (!held)
			usleep(100);
		printf("held %d\n", (int)held);
	} else if (!strncmp(line, "unhold", 6)) {
		if (write(releases[1], "b", 1) != 1)
			wrong = 1;
		while (held)
			usleep(100);
		puts("unheld");
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	const struct sigaction action = {.sa_handler = on_tick,
					 .sa_flags = SA_ONSTACK | SA_RESTART};
	const int threads = argc > 1 ? atoi(argv[1]) : 1;
	const struct sigaction user = {.sa_handler = on_user, .sa_flags = SA_ONSTACK | SA_RESTART};
	sigset_t alarm;
	char line[64];

	if (threads < 1 || threads > THREADS_MAX || pipe(bytes) || pipe(releases))
		return 2;
	pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
	pthread_barrier_init(&finish, NULL, (unsigned)threads + 2);
	sigaction(SIGALRM, &action, NULL);
	sigaction(SIGUSR1, &user, NULL);
	pthread_create(&waiting, NULL, sleeper, NULL);
	for (int i = 0; i < threads; i++)
		pthread_create(&handles[i], NULL, work, &runners[i]);
	/* Signals are for those that work. */
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, NULL);
	pthread_barrier_wait(&finish);
	pthread_barrier_destroy(&finish);
	pthread_barrier_init(&finish, NULL, (unsigned)threads + 1);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		answer(line, threads);
	if (running)
		answer("stop", threads);
	ending = 1;
	pthread_barrier_wait(&start);
	for (int i = 0; i < threads; i++)
		pthread_join(handles[i], NULL);
	close(bytes[1]);
	pthread_join(waiting, NULL);
	return wrong;
}
