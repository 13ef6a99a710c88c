/* SPDX-License-Identifier: MIT */
/*
 * driver.c - the tortured target: threads that call every case again and
 * again and compare.
 *
 *   torture THREADS [storm] [ends]
 *
 * prints "ready" when every thread knows what every case does uninstrumented.
 * storm: every thread is interrupted all the time; the handler walks its stack.
 * ends: a thread more makes threads and processes that end in a function.
 *
 * Commands, one a line:
 *   run N     every thread does N rounds, the first a slow one too; "done"
 *   start     rounds without end; "running"
 *   pause     until every thread is at the end of a round; "paused ROUNDS SLOW ENDS SIGNALS INSIDE",
 *             all since the program was started
 *   truth     "truth LOW SIZE COUNTS EDGES SLOWCOUNTS SLOWEDGES": addresses, see driver.h
 *   cases     a line "case NAME FLAGS RUNS" for each, then "end"
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "tests/live/asm/driver.h"

enum { WORKERS_MAX = 16, SLOW_EVERY = 40 };

extern long x_ending(void (*function)(void *), void *arg);

static struct worker workers[WORKERS_MAX], tracer;
static int worker_count;
static bool with_storm, with_ends;
static uint64_t ends;
static long left; /* rounds that each thread is to do yet, -1: without end */
static int parked;
static int noticed; /* threads that know of the present turn */
static bool over;
static uint64_t turn; /* counts commands that let the threads go */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* ------------------------------------------------------------ the threads */

static void give_stack(stack_t *stack)
{
	stack->ss_size = 1 << 17;
	stack->ss_sp = malloc(stack->ss_size);
	stack->ss_flags = 0;
	sigaltstack(stack, NULL);
}

/* Waits for something to do; how many rounds, -1 without end, 0: the program is over. */
static long wait_for_work(uint64_t *seen)
{
	long n;

	pthread_mutex_lock(&lock);
	parked++;
	pthread_cond_broadcast(&changed);
	while (*seen == turn && !over)
		pthread_cond_wait(&changed, &lock);
	parked--;
	if (*seen != turn)
		noticed++;
	*seen = turn;
	pthread_cond_broadcast(&changed);
	n = over ? 0 : left;
	pthread_mutex_unlock(&lock);
	return n;
}

__attribute__((noinline)) static void work(struct worker *w)
{
	uint64_t seen = 0;
	long n;

	storm_base = __builtin_return_address(0);
	if (with_storm)
		storm_begin();
	while ((n = wait_for_work(&seen)))
		for (long i = 0; n < 0 ? __atomic_load_n(&left, __ATOMIC_ACQUIRE) : i < n; i++) {
			run_round(w, false);
			w->rounds++;
			if (w->number == 0 && i % SLOW_EVERY == 0) {
				run_round(w, true);
				w->slow_rounds++;
			}
		}
	if (with_storm)
		storm_end();
	__asm__ volatile("" ::: "memory");
}

/* What every case does when nothing is instrumented, and that it does it again. */
static void learn(struct worker *w, int number)
{
	worker_setup(w, number);
	for (size_t i = 0; i < case_count(); i++)
		for (unsigned input = 0; input < INPUTS; input++)
			if (case_runs(&__start_torture_cases[i]))
				case_run(w, i, input, false);
	run_round(w, false);
	run_round(w, true);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	stack_t stack;

	/* In its own thread: thread-local storage is part of what is learnt. */
	learn(w, w->number);
	/* Every second one takes its signals where it stands. */
	if (w->number & 1)
		give_stack(&stack);
	work(w);
	__asm__ volatile("" ::: "memory");
	return NULL;
}

/* --------------------------------------------------- what does not come back */

static void *exits_thread(void *arg)
{
	x_ending(pthread_exit, arg);
	wrong("pthread_exit() returned");
}

static void sleeps(void *arg)
{
	for (;;)
		usleep(1000);
	(void)arg;
}

static void *cancelled_thread(void *arg)
{
	x_ending(sleeps, arg);
	return NULL;
}

static void ends_process(void *arg)
{
	_exit((int)(intptr_t)arg);
}

static void one_ending(void)
{
	pthread_t thread;
	void *value = NULL;
	int status = 0;
	pid_t child;

	if (pthread_create(&thread, NULL, exits_thread, &value) || pthread_join(thread, &value) ||
	    !value)
		wrong("a thread that exits did not");
	pthread_create(&thread, NULL, cancelled_thread, NULL);
	usleep(500);
	pthread_cancel(thread);
	if (pthread_join(thread, &value) || value != PTHREAD_CANCELED)
		wrong("a thread that is cancelled was not");
	child = fork();
	if (child == 0)
		x_ending(ends_process, (void *)7);
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
		wrong("a child that exits with 7 did not: %#x", (unsigned)status);
}

static void *ender_main(void *arg)
{
	uint64_t seen = 0;
	long n;

	/* The first ones leave things behind: a handler, a heap, a stack that is kept. */
	one_ending();
	while ((n = wait_for_work(&seen)))
		for (; n && !(n < 0 && !__atomic_load_n(&left, __ATOMIC_ACQUIRE)); n--) {
			one_ending();
			ends += 3;
		}
	return arg;
}

/* --------------------------------------------------------------- commands */

static void say(const char *text)
{
	puts(text);
	fflush(stdout);
}

static int threads(void)
{
	return worker_count + with_ends;
}

static void let_go(long n)
{
	pthread_mutex_lock(&lock);
	while (parked < threads())
		pthread_cond_wait(&changed, &lock);
	left = n;
	turn++;
	noticed = 0;
	pthread_cond_broadcast(&changed);
	/* Until all have noticed, though they may have done it by now: a pause must not come before. */
	while (noticed < threads())
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static void wait_parked(void)
{
	pthread_mutex_lock(&lock);
	while (parked < threads())
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static void pause_all(void)
{
	uint64_t rounds = 0;

	__atomic_store_n(&left, 0, __ATOMIC_RELEASE);
	wait_parked();
	for (int i = 0; i < worker_count; i++)
		rounds += workers[i].rounds;
	printf("paused %llu %llu %llu %llu %llu\n", (unsigned long long)rounds,
	       (unsigned long long)workers[0].slow_rounds, (unsigned long long)ends,
	       (unsigned long long)storm_signals, (unsigned long long)storm_inside);
	fflush(stdout);
}

static void list_cases(void)
{
	for (size_t i = 0; i < case_count(); i++)
		printf("case %s %#llx %d\n", __start_torture_cases[i].name,
		       (unsigned long long)__start_torture_cases[i].flags,
		       case_runs(&__start_torture_cases[i]));
	say("end");
}

static void command(const char *line)
{
	if (!strncmp(line, "run ", 4)) {
		let_go(atol(line + 4));
		wait_parked();
		say("done");
	} else if (!strncmp(line, "start", 5)) {
		let_go(-1);
		say("running");
	} else if (!strncmp(line, "pause", 5)) {
		pause_all();
	} else if (!strncmp(line, "truth", 5)) {
		printf("truth %#llx %#llx %p %p %p %p\n", (unsigned long long)trace_low,
		       (unsigned long long)(trace_high - trace_low), (void *)traces[0].counts,
		       (void *)traces[0].edges, (void *)traces[1].counts, (void *)traces[1].edges);
		fflush(stdout);
	} else if (!strncmp(line, "cases", 5)) {
		list_cases();
	}
}

/* ------------------------------------------------------------------ set-up */

static void on_crash(int sig, siginfo_t *info, void *context)
{
	const greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
	Dl_info where = {0};

	signal(sig, SIG_DFL);
	dladdr((void *)r[REG_RIP], &where);
	wrong("signal %d (%d) at pc %#llx, %s+%#llx (%s), address %p, sp %#llx", sig, info->si_code,
	      r[REG_RIP], where.dli_fname ? where.dli_fname : "nothing",
	      r[REG_RIP] - (long long)(uintptr_t)where.dli_fbase,
	      where.dli_sname ? where.dli_sname : "", info->si_addr, r[REG_RSP]);
}

static void catch_crashes(void)
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};
	struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	struct rlimit none = {0, 0};
	static stack_t stack;

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaction(signals[i], &action, NULL);
	setrlimit(RLIMIT_CORE, &none);
	give_stack(&stack);
}

int main(int argc, char **argv)
{
	pthread_t handles[WORKERS_MAX + 1];
	char line[128];

	worker_count = argc > 1 ? atoi(argv[1]) : 1;
	for (int i = 2; i < argc; i++) {
		with_storm |= !strcmp(argv[i], "storm");
		with_ends |= !strcmp(argv[i], "ends");
	}
	if (worker_count < 1 || worker_count > WORKERS_MAX)
		return 2;
	catch_crashes();
	cases_setup();
	storm_setup();
	learn(&tracer, -1);
	trace_rounds(&tracer);
	for (int i = 0; i < worker_count; i++) {
		workers[i].number = i;
		pthread_create(&handles[i], NULL, worker_main, &workers[i]);
	}
	if (with_ends)
		pthread_create(&handles[worker_count], NULL, ender_main, NULL);
	wait_parked();
	say("ready");
	while (fgets(line, sizeof(line), stdin))
		command(line);
	__atomic_store_n(&left, 0, __ATOMIC_RELEASE);
	wait_parked();
	pthread_mutex_lock(&lock);
	over = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	for (int i = 0; i < threads(); i++)
		pthread_join(handles[i], NULL);
	return 0;
}
