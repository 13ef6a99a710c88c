/* SPDX-License-Identifier: MIT */
/*
 * stream.c - a target whose calls a test knows, for events: who calls what with
 * which number, in which order.
 *
 *   go N          the main thread calls step(thread 0, 0 .. N-1, text)
 *   threads T N   T threads do so at once, each with its own number, and end
 *   run T         T threads do so, again and again from 0, until
 *   stop          ... now
 *   fork N        a child does so, as thread 77, and ends
 *   signals N     two threads do so and are interrupted by a handler that does it, too
 *   jumps N       ... by one that jumps out of the function
 *   exits N       N times two threads do so until the handler ends them
 *   below         a child is made that calls itself 1, in a namespace of its own, and waits, until
 *   ended         ... now
 *   more N        it calls step(thread 78, 0 .. N-1, text) before it goes on waiting
 *   again T       thread T does so as after "run", by the id that the one before had which was made so, where
 *                 that can be had
 *   aligned N     the main thread does steps and halves while the processor checks alignment (the
 *                 AC flag), with texts that begin anywhere; exits with 9 if that flag is lost
 *
 * Each is answered with "done". step() says what it did by its result: 2 * number.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	THREADS_MOST = 64,
	THREADS_USUAL = 8,
	STACK = 256 << 10,
	HANDLER = 1000,
	CHILD = 77,
	BELOW = 78
};

static long rounds;
static long handled[THREADS_MOST + 1];
static enum ways { RETURNS, JUMPS, EXITS } jumps; /* how a handler ends */
static pthread_t runners[THREADS_MOST];
static long running_count;
static int running;
static __thread int own = -1; /* of a thread that is interrupted */
static __thread sigjmp_buf out;
static __thread volatile sig_atomic_t may_jump;
static pid_t again;	     /* the id of who was made by that command */
static pthread_attr_t small; /* stacks that the C library keeps */

__attribute__((noinline, noclone)) long step(long thread, long number, const char *text)
{
	__asm__ volatile("" : "+r"(thread), "+r"(number), "+r"(text));
	return 2 * number + thread - thread;
}

__attribute__((noinline, noclone)) double half(double x, float y)
{
	__asm__ volatile("" : "+x"(x), "+x"(y));
	return x / 2 + y;
}

static void text_of(char text[32], long number)
{
	snprintf(text, 32, "text %ld", number);
}

static void do_steps(long thread, long count)
{
	char text[32];

	for (long i = 0; i < count; i++) {
		text_of(text, i & 1023);
		step(thread, i, text);
	}
}

/* Members at odd addresses, and one at half of what it needs. */
struct __attribute__((packed)) odd {
	char first;
	short two;
	int four;
	long eight;
	double real;
	char between[5];
	long halfway;
};
struct odd odd __attribute__((aligned(16))) = {
	.two = -2, .four = -4, .eight = -8, .real = 7.5, .halfway = 0x123456789abcdef0};

__attribute__((noinline)) long odd_sum(void)
{
	return odd.eight + odd.two;
}

/* Of five bytes each: what an index leads to may be anywhere. */
struct __attribute__((packed)) {
	char first;
	int number;
} rows[256] = {[1] = {.number = -11}, [2] = {.number = -12}};

__attribute__((noinline)) long odd_row(unsigned char i)
{
	return rows[i].number;
}

enum { ALIGNMENT_CHECK = 1 << 18 }; /* EFLAGS.AC: data that is not aligned is SIGBUS */

#define CHANGE_FLAGS(instruction)                                                          \
	__asm__ volatile("lea -128(%%rsp),%%rsp; pushfq;" instruction                      \
			 " %0,(%%rsp); popfq; lea 128(%%rsp),%%rsp"                        \
			 :                                                                 \
			 : "i"(instruction[0] == 'a' ? ~ALIGNMENT_CHECK : ALIGNMENT_CHECK) \
			 : "memory", "cc")

__attribute__((noinline)) static void do_aligned(long count)
{
	char text[48];
	unsigned long flags;

	for (long i = 0; i < count; i++) {
		char *const at = text + i % 9;

		/* The C library's own code is not aligned. */
		text_of(at, i & 1023);
		CHANGE_FLAGS("orq");
		step(0, i, at);
		half((double)i + 0.5, (float)i);
		__asm__ volatile("lea -128(%%rsp),%%rsp; pushfq; pop %0; lea 128(%%rsp),%%rsp"
				 : "=r"(flags)
				 :
				 : "memory");
		CHANGE_FLAGS("andq");
		if (!(flags & ALIGNMENT_CHECK))
			exit(9);
	}
}

static void *worker(void *arg)
{
	char name[16];

	snprintf(name, sizeof(name), "stepper-%ld", (long)(intptr_t)arg);
	pthread_setname_np(pthread_self(), name);
	do_steps((intptr_t)arg, rounds);
	return NULL;
}

static void do_threads(long threads, long count)
{
	pthread_t all[THREADS_MOST];

	if (threads > THREADS_MOST)
		exit(4);
	rounds = count;
	for (long i = 0; i < threads; i++)
		if (pthread_create(&all[i], &small, worker, (void *)(intptr_t)(i + 1)))
			exit(5);
	for (long i = 0; i < threads; i++)
		pthread_join(all[i], NULL);
}

static void *runner(void *arg)
{
	while (__atomic_load_n(&running, __ATOMIC_RELAXED))
		do_steps((intptr_t)arg, 1000);
	return NULL;
}

static void *runner_again(void *arg)
{
	again = gettid();
	return runner(arg);
}

static void do_run(long threads)
{
	if (threads > THREADS_MOST)
		exit(4);
	__atomic_store_n(&running, 1, __ATOMIC_RELAXED);
	for (running_count = 0; running_count < threads; running_count++)
		if (pthread_create(&runners[running_count], &small, runner,
				   (void *)(intptr_t)(running_count + 1)))
			exit(5);
}

/* The last id that was given out, in the target's own namespace, is the one before. */
static void do_again(long thread)
{
	FILE *last = again ? fopen("/proc/sys/kernel/ns_last_pid", "w") : NULL;

	if (last) {
		fprintf(last, "%d", (int)again - 1);
		fclose(last);
	}
	__atomic_store_n(&running, 1, __ATOMIC_RELAXED);
	if (pthread_create(&runners[running_count++], &small, runner_again,
			   (void *)(intptr_t)thread))
		exit(5);
}

static void do_stop(void)
{
	__atomic_store_n(&running, 0, __ATOMIC_RELAXED);
	while (running_count)
		pthread_join(runners[--running_count], NULL);
}

static void do_fork(long count)
{
	int status = 0;
	pid_t child = fork();

	if (!child) {
		do_steps(CHILD, count);
		_exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || status)
		exit(6);
}

static pid_t below;
static int orders[2], answers[2];

static void do_below(void)
{
	long count;

	if (pipe(orders) || pipe(answers) || unshare(CLONE_NEWPID) || (below = fork()) < 0)
		exit(7);
	if (below)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(orders[0], &count, sizeof(count)) == sizeof(count)) {
		do_steps(BELOW, count);
		if (write(answers[1], &count, sizeof(count)) != sizeof(count))
			break;
	}
	_exit(0);
}

static void do_more(long count)
{
	if (write(orders[1], &count, sizeof(count)) != sizeof(count) ||
	    read(answers[0], &count, sizeof(count)) != sizeof(count))
		exit(8);
}

static void do_ended(void)
{
	if (kill(below, SIGKILL) || waitpid(below, NULL, 0) != below)
		exit(8);
	for (int end = 0; end < 2; end++)
		if (close(orders[end]) || close(answers[end]))
			exit(8);
}

static void on_signal(int signal)
{
	(void)signal;
	if (own < 0)
		return;
	step(HANDLER + own, handled[own]++, "handler");
	if (jumps == EXITS)
		syscall(SYS_exit, 0);
	if (jumps && may_jump)
		siglongjmp(out, 1);
}

static void *interrupted(void *arg)
{
	const long thread = (intptr_t)arg;
	volatile long i = 0;

	own = (int)thread;
	if (jumps)
		sigsetjmp(out, 1);
	may_jump = 1;
	while (i < rounds) {
		const long now = i;

		/* Counted first: whoever jumps out of it has begun it. */
		i = now + 1;
		step(thread, now, "interrupted");
	}
	may_jump = 0;
	own = -1;
	return NULL;
}

static void do_interrupted(long count, enum ways how)
{
	struct timespec pause = {0, 50000};
	pthread_t all[2];
	int left = 2;

	jumps = how;
	rounds = count;
	memset(handled, 0, sizeof(handled));
	for (long i = 0; i < 2; i++)
		if (pthread_create(&all[i], &small, interrupted, (void *)(intptr_t)(i + 1)))
			exit(7);
	while (left) {
		left = 2;
		for (int i = 0; i < 2; i++)
			if (all[i] && pthread_tryjoin_np(all[i], NULL) == 0)
				all[i] = 0;
		for (int i = 0; i < 2; i++) {
			if (!all[i])
				left--;
			else
				pthread_kill(all[i], SIGUSR1);
		}
		nanosleep(&pause, NULL);
	}
	if (how != EXITS)
		printf("handled %ld %ld\n", handled[1], handled[2]);
}

int main(void)
{
	const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	char line[128];
	long a, b;

	setvbuf(stdout, NULL, _IOLBF, 0);
	/* What a process has once it had threads is there from the beginning. */
	sigaction(SIGUSR1, &action, NULL);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, STACK);
	do_threads(THREADS_USUAL, 1);
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "go %ld", &a) == 1)
			do_steps(0, a);
		else if (sscanf(line, "threads %ld %ld", &a, &b) == 2)
			do_threads(a, b);
		else if (sscanf(line, "run %ld", &a) == 1)
			do_run(a);
		else if (!strcmp(line, "stop\n"))
			do_stop();
		else if (sscanf(line, "fork %ld", &a) == 1)
			do_fork(a);
		else if (!strcmp(line, "below\n"))
			do_below();
		else if (!strcmp(line, "ended\n"))
			do_ended();
		else if (sscanf(line, "more %ld", &a) == 1)
			do_more(a);
		else if (sscanf(line, "again %ld", &a) == 1)
			do_again(a);
		else if (sscanf(line, "signals %ld", &a) == 1)
			do_interrupted(a, RETURNS);
		else if (sscanf(line, "jumps %ld", &a) == 1)
			do_interrupted(a, JUMPS);
		else if (sscanf(line, "exits %ld", &a) == 1)
			for (long i = 0; i < a; i++)
				do_interrupted(1L << 40, EXITS);
		else if (sscanf(line, "aligned %ld", &a) == 1)
			do_aligned(a);
		else if (sscanf(line, "floats %ld", &a) == 1)
			for (long i = 0; i < a; i++)
				half((double)i + 0.5, (float)i);
		else
			return 3;
		puts("done");
	}
	return 0;
}
