/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -rdynamic -fno-omit-frame-pointer */
/*
 * signalled.c - a program that lives on signals, and one with every kind of
 * disposition, mask, alternate stack and pending signal.
 *
 * Prints "ready". Commands:
 *   storm MS     timers and threads send signals all the time while others work;
 *                "done" when all that was sent has arrived, "lost ..." otherwise. In the first half
 *                children end side by side; in the second there is one at a time, and another one only
 *                when the handler has seen it end: no later SIGCHLD makes up for one that is lost
 *   profile MS   SIGPROF every millisecond of CPU time, its handler calls
 *                backtrace(); "done N" with the number of handlers that ran
 *   check        compares actions, masks and alternate stacks with what was set
 *                up at the start; "same" or what differs
 */
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 4, SENDERS = 2, STACK = 65536, CHILD_MS = 5000 };

static volatile int running, wrong;
static volatile unsigned long queued_sent, queued_seen, ticks, overruns, profiled, frames;
static volatile unsigned long children_made, children_seen;
static pthread_t workers[WORKERS];
static void *stacks[WORKERS];

/* ------------------------------------------------------------ work to do */

__attribute__((noinline, noclone)) long leaf(long n)
{
	return n * 7 + 3;
}

__attribute__((noinline, noclone)) long middle(long n)
{
	return leaf(n) + leaf(n + 1);
}

__attribute__((noinline, noclone)) long outer(long n)
{
	return middle(n) - 1 + (n & 1 ? middle(n + 1) : 0);
}

static void check_once(long n)
{
	long even = (n * 7 + 3) + (n * 7 + 10), next = ((n + 1) * 7 + 3) + ((n + 1) * 7 + 10);

	if (outer(n) != even - 1 + (n & 1 ? next : 0))
		wrong = 1;
}

static void *work(void *arg)
{
	size_t index = (size_t)(uintptr_t)arg;
	stack_t stack = {.ss_sp = stacks[index], .ss_size = STACK};
	sigset_t set;

	if (index & 1)
		sigaltstack(&stack, NULL);
	/* One thread blocks most signals, and one has a pending one. */
	if (index == 3) {
		sigfillset(&set);
		sigdelset(&set, SIGPROF);
		pthread_sigmask(SIG_SETMASK, &set, NULL);
		pthread_kill(pthread_self(), SIGURG);
	}
	while (running >= 0) {
		if (running)
			for (long i = 0; i < 1000; i++)
				check_once(i);
		else
			usleep(500);
	}
	stack.ss_flags = SS_DISABLE;
	sigaltstack(&stack, NULL);
	return NULL;
}

/* ------------------------------------------------------------- handlers */

static void on_queued(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	if (info->si_code != SI_QUEUE)
		wrong = 1;
	__atomic_add_fetch(&queued_seen, 1, __ATOMIC_RELAXED);
}

static void on_tick(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	__atomic_add_fetch(&ticks, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&overruns, (unsigned long)info->si_overrun, __ATOMIC_RELAXED);
	check_once((long)ticks);
}

static void on_child(int sig)
{
	int error = errno;

	(void)sig;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		__atomic_add_fetch(&children_seen, 1, __ATOMIC_RELAXED);
	errno = error;
}

static void on_profile(int sig)
{
	void *pcs[64];
	int count = backtrace(pcs, 64);

	(void)sig;
	if (count <= 0)
		wrong = 1;
	__atomic_add_fetch(&profiled, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&frames, (unsigned long)count, __ATOMIC_RELAXED);
}

static void on_other(int sig)
{
	(void)sig;
}

/* ---------------------------------------------------------------- storm */

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1000 + (double)t.tv_nsec / 1e6;
}

static void make_child(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	if (pid > 0)
		__atomic_add_fetch(&children_made, 1, __ATOMIC_RELAXED);
}

static bool all_are_seen(void)
{
	const double until = now_ms() + CHILD_MS;

	while (children_seen != children_made && now_ms() < until)
		usleep(500);
	return children_seen == children_made;
}

/* arg: from when on, and until when. Leaves the one that was lost: nobody else makes children any more. */
static void *make_children(void *arg)
{
	const double *times = arg;
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	while (now_ms() < times[0])
		usleep(1000);
	for (; now_ms() < times[1] && all_are_seen(); usleep(3000))
		make_child();
	return NULL;
}

/* arg: until when children are made as well, and until when. */
static void *send_queued(void *arg)
{
	union sigval value = {.sival_int = 1};
	const double *times = arg;
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	for (int i = 0; now_ms() < times[1]; i++) {
		/* Workers 0 to 2 do not block it. */
		if (!pthread_sigqueue(workers[i % 3], SIGRTMIN + 5, value))
			queued_sent++;
		if (i % 20 == 0 && now_ms() < times[0])
			make_child();
		usleep(900);
	}
	return NULL;
}

static void storm(long ms)
{
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 6};
	struct itimerspec every = {{0, 1000000}, {0, 1000000}}, off = {0};
	double start = now_ms(), took, until;
	double times[2] = {start + (double)ms / 2, start + (double)ms};
	unsigned long before;
	pthread_t sender, maker;
	timer_t timer;

	queued_sent = queued_seen = ticks = overruns = children_made = children_seen = 0;
	running = 1;
	timer_create(CLOCK_MONOTONIC, &event, &timer);
	timer_settime(timer, 0, &every, NULL);
	pthread_create(&sender, NULL, send_queued, times);
	pthread_create(&maker, NULL, make_children, times);
	pthread_join(sender, NULL);
	pthread_join(maker, NULL);
	/*
	 * An expiration is accounted for when a later signal is taken. Each thread may be in the
	 * middle of one that was taken before; one more than there are threads is surely later.
	 */
	took = now_ms() - start;
	before = ticks;
	for (int i = 0; i < 5000 && ticks < before + WORKERS + 3; i++)
		usleep(2000);
	timer_settime(timer, 0, &off, NULL);
	until = now_ms() - start;
	running = 0;
	for (int i = 0; i < 1000 && (queued_seen != queued_sent || children_seen != children_made);
	     i++)
		usleep(2000);
	timer_delete(timer);
	/* Every expiration was delivered or counted as an overrun. */
	if (queued_seen != queued_sent || children_seen != children_made ||
	    (double)(ticks + overruns) > until + 2 || (double)(ticks + overruns) < took - 2)
		printf("lost: %lu of %lu queued, %lu of %lu children, %lu ticks and %lu overruns in "
		       "%.0f to %.0f ms\n",
		       queued_seen, queued_sent, children_seen, children_made, ticks, overruns,
		       took, until);
	else
		puts("done");
	fflush(stdout);
}

static void profile(long ms)
{
	struct itimerval every = {{0, 1000}, {0, 1000}}, off = {0};

	profiled = frames = 0;
	running = 1;
	setitimer(ITIMER_PROF, &every, NULL);
	for (double end = now_ms() + (double)ms; now_ms() < end;)
		usleep(1000);
	setitimer(ITIMER_PROF, &off, NULL);
	running = 0;
	usleep(5000);
	printf("done %lu\n", profiled);
	fflush(stdout);
}

/* ---------------------------------------------------------------- check */

/* As the kernel has it, not as libc shows it. */
struct kernel_action {
	uint64_t handler, flags, restorer, mask;
};

static struct kernel_action actions[65];

static void read_actions(struct kernel_action *to)
{
	for (int sig = 1; sig <= 64; sig++)
		syscall(SYS_rt_sigaction, sig, NULL, &to[sig], 8);
}

static void check(void)
{
	struct kernel_action current[65] = {0};

	read_actions(current);
	for (int sig = 1; sig <= 64; sig++)
		if (memcmp(&current[sig], &actions[sig], sizeof(current[sig]))) {
			printf("the action of signal %d differs\n", sig);
			fflush(stdout);
			return;
		}
	puts("same");
	fflush(stdout);
}

static void install(void)
{
	struct sigaction a = {.sa_sigaction = on_queued, .sa_flags = SA_SIGINFO | SA_RESTART};

	sigaction(SIGRTMIN + 5, &a, NULL);
	a.sa_sigaction = on_tick;
	a.sa_flags |= SA_ONSTACK;
	sigaction(SIGRTMIN + 6, &a, NULL);
	a = (struct sigaction){.sa_handler = on_child, .sa_flags = SA_RESTART | SA_NOCLDSTOP};
	sigaction(SIGCHLD, &a, NULL);
	a = (struct sigaction){.sa_handler = on_profile, .sa_flags = SA_RESTART};
	sigaction(SIGPROF, &a, NULL);
	a = (struct sigaction){.sa_handler = on_other, .sa_flags = SA_RESETHAND | SA_NODEFER};
	sigfillset(&a.sa_mask);
	sigaction(SIGTRAP, &a, NULL);
	sigaction(SIGSEGV, &a, NULL);
	sigaction(SIGILL, &a, NULL);
	sigaction(SIGURG, &a, NULL);
	signal(SIGHUP, SIG_IGN);
	signal(SIGSTOP, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
}

static void *wait_for_all(void *arg)
{
	pthread_barrier_wait(arg);
	return NULL;
}

int main(void)
{
	void *warm[4];
	char line[64];
	pthread_barrier_t all;
	pthread_t idle[SENDERS];

	backtrace(warm, 4);
	install();
	for (size_t i = 0; i < WORKERS; i++) {
		stacks[i] = malloc(STACK);
		pthread_create(&workers[i], NULL, work, (void *)(uintptr_t)i);
	}
	usleep(20000);
	/* The senders' stacks stay mapped from now on. */
	pthread_barrier_init(&all, NULL, SENDERS);
	for (int i = 0; i < SENDERS; i++)
		pthread_create(&idle[i], NULL, wait_for_all, &all);
	for (int i = 0; i < SENDERS; i++)
		pthread_join(idle[i], NULL);
	read_actions(actions);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "storm ", 6))
			storm(atol(line + 6));
		else if (!strncmp(line, "profile ", 8))
			profile(atol(line + 8));
		else
			check();
	}
	running = -1;
	for (size_t i = 0; i < WORKERS; i++)
		pthread_join(workers[i], NULL);
	return wrong;
}
