/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -fno-optimize-sibling-calls */
/*
 * life-threads.c - a program whose life is in its threads.
 *
 * Prints "ready". Commands, each answered by a line:
 *   chain N MS     N threads; each lives MS ms and then starts its successor; "begun"
 *   stop           ends what "chain", "ring", "traps" and "crowd" began; "done BORN" where
 *                  as many have ended, "wrong ..." otherwise
 *   ring N         N threads send real-time signals to their neighbours as fast as these take
 *                  them, each with its number; "begun"; wrong if one is lost, doubled or out of order
 *   traps N        N threads run into breakpoints of the program's own, by the ten thousand in a second, which
 *                  its handler of SIGTRAP counts; "begun"; wrong if one is lost, doubled, or not the
 *                  processor's; "stop" tells behind BORN how many there were
 *   short N        N threads that live as long as one call of outer(), 8 at a time; "done"
 *   fresh N        the same one after the other, each on a stack that no thread has had before; "done"
 *   work N M       N threads call outer() M times each, all at once; "done"
 *   crowd N        N threads wait; then some are replaced all the time; "begun"
 *   exhaust        becomes an ordinary user who may have 200 threads, and makes threads until
 *                  there can be no more of them; "done N"
 * outer() calls leaf() three times.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))

enum {
	RING_MAX = 256,
	AHEAD = 4,
	WIDTH = 8,
	SMALL_STACK = 65536,
	CROWD_CHANGING = 16,
	NOBODY = 65534
};

static atomic_int ended, wrong;
static atomic_long born, dead, traps;
static long life_ms;

KEEP long leaf(long n)
{
	return n * 5 + 2;
}

KEEP long outer(long n)
{
	return leaf(n) + leaf(n + 1) + leaf(n + 2);
}

static void check(long n)
{
	if (outer(n) != 15 * n + 21)
		wrong = 1;
}

static void pause_ms(long ms)
{
	struct timespec left = {ms / 1000, ms % 1000 * 1000000};

	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

static int start(void *(*function)(void *), void *arg, pthread_t *joined)
{
	pthread_attr_t attributes;
	pthread_t thread;
	int error;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, SMALL_STACK);
	if (!joined)
		pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	error = pthread_create(joined ? joined : &thread, &attributes, function, arg);
	pthread_attr_destroy(&attributes);
	return error;
}

/* ------------------------------------------------------------- successors */

static void *generation(void *arg)
{
	check((long)born);
	pause_ms(life_ms);
	if (!ended) {
		born++;
		if (start(generation, arg, NULL))
			abort();
	}
	dead++;
	return NULL;
}

/* ------------------------------------------------------------------- ring */

static struct {
	pthread_t thread;
	atomic_int tid;
	atomic_long sent, got; /* to this one, by this one */
} ring[RING_MAX];
static int ring_size;
static __thread int own;

static void on_signal(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	if (info->si_code != SI_QUEUE || info->si_value.sival_int != (int)ring[own].got + 1)
		wrong = 2;
	ring[own].got++;
}

static void *member(void *arg)
{
	int next, number;
	siginfo_t info;

	own = (int)(long)arg;
	next = (own + 1) % ring_size;
	ring[own].tid = gettid();
	while (!ring[next].tid)
		usleep(100);
	while (!ended) {
		if (ring[next].sent - ring[next].got >= AHEAD) {
			sched_yield();
			continue;
		}
		number = (int)++ring[next].sent;
		memset(&info, 0, sizeof(info));
		info.si_code = SI_QUEUE;
		info.si_pid = getpid();
		info.si_uid = getuid();
		info.si_value.sival_int = number;
		while (syscall(SYS_rt_tgsigqueueinfo, getpid(), (int)ring[next].tid, SIGRTMIN + 2,
			       &info)) {
			if (errno != EAGAIN)
				wrong = 3;
			sched_yield();
		}
	}
	/* Each must be there until nobody sends to it any more. */
	dead++;
	while (dead < ring_size || ring[own].got != ring[own].sent)
		usleep(1000);
	return NULL;
}

static void begin_ring(int n)
{
	ring_size = n < RING_MAX ? n : RING_MAX;
	for (long i = 0; i < ring_size; i++) {
		born++;
		if (start(member, (void *)i, &ring[i].thread))
			abort();
	}
}

static void end_ring(void)
{
	long sent = 0;

	for (int i = 0; i < ring_size; i++)
		pthread_join(ring[i].thread, NULL);
	for (int i = 0; i < ring_size; i++)
		sent += ring[i].sent;
	if (sent < ring_size)
		wrong = 4;
	ring_size = 0;
}

/* ------------------------------------------------------------------ traps */

static __thread volatile long hits;

static void on_trap(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	if (info->si_code != SI_KERNEL)
		wrong = 5;
	hits++;
}

static void *trapped(void *arg)
{
	long runs = 0;

	while (!ended) {
		check(runs);
		__asm__ volatile("int3" : : : "memory");
		if (hits != ++runs)
			wrong = 6;
		/* A breath: all of them at once would otherwise wait for a CPU most of the time. */
		if (runs % 4 == 0)
			usleep(50);
	}
	traps += runs;
	dead++;
	return arg;
}

static void begin_traps(long n)
{
	for (long i = 0; i < n; i++) {
		born++;
		if (start(trapped, NULL, NULL))
			abort();
	}
}

/* ------------------------------------------------------------------ short */

static void *once(void *arg)
{
	check((long)arg);
	return NULL;
}

static void run_short(long n)
{
	pthread_t rows[WIDTH];

	for (long i = 0; i < n; i += WIDTH) {
		for (long k = 0; k < WIDTH; k++)
			if (start(once, (void *)(i + k), &rows[k]))
				abort();
		for (int k = 0; k < WIDTH; k++)
			pthread_join(rows[k], NULL);
	}
}

static void run_fresh(long n)
{
	pthread_attr_t attributes;
	pthread_t thread;

	pthread_attr_init(&attributes);
	for (long i = 0; i < n; i++) {
		char *stack = mmap(NULL, SMALL_STACK, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (stack == MAP_FAILED || pthread_attr_setstack(&attributes, stack, SMALL_STACK) ||
		    pthread_create(&thread, &attributes, once, (void *)i))
			abort();
		pthread_join(thread, NULL);
		/* Its place stays taken. */
		madvise(stack, SMALL_STACK, MADV_DONTNEED);
	}
	pthread_attr_destroy(&attributes);
}

/* ------------------------------------------------------------------- work */

static long calls;
static pthread_barrier_t gate;

static void *worker(void *arg)
{
	pthread_barrier_wait(&gate);
	for (long i = 0; i < calls; i++)
		check(i);
	return arg;
}

static void work(int n, long m)
{
	pthread_t threads[RING_MAX];

	calls = m;
	pthread_barrier_init(&gate, NULL, (unsigned)n);
	for (int i = 0; i < n; i++)
		if (start(worker, NULL, &threads[i]))
			abort();
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&gate);
}

/* ------------------------------------------------------------------ crowd */

static atomic_long waiting; /* have called all that they call */

static void *wait_here(void *arg)
{
	check((long)arg);
	waiting++;
	while (!ended)
		pause_ms(50);
	dead++;
	return NULL;
}

static int crowd(long n)
{
	for (long i = 0; i < n; i++) {
		if (start(wait_here, (void *)i, NULL))
			return -1;
		born++;
	}
	life_ms = 2;
	for (long i = 0; i < CROWD_CHANGING; i++) {
		born++;
		if (start(generation, NULL, NULL))
			abort();
	}
	return 0;
}

static long exhaust(void)
{
	struct rlimit limit = {200, 200};
	long made = 0;

	/* Root has no such limit. The one thread that there is, and those to come. */
	if (setrlimit(RLIMIT_NPROC, &limit) ||
	    (!getuid() && syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY)))
		return -1;
	for (; made < 100000; made++) {
		if (start(wait_here, (void *)made, NULL))
			break;
		born++;
	}
	while (waiting < made)
		usleep(1000);
	return made;
}

/* ------------------------------------------------------------------- main */

static void stop(void)
{
	ended = 1;
	if (ring_size)
		end_ring();
	for (int i = 0; i < 20000 && born != dead; i++)
		usleep(1000);
	/* Detached threads have counted themselves before they are gone. */
	usleep(20000);
	if (born != dead || wrong)
		printf("wrong %d: %ld born, %ld ended\n", (int)wrong, (long)born, (long)dead);
	else
		printf("done %ld %ld\n", (long)born, (long)traps);
	born = dead = traps = 0;
	ended = 0;
}

static void obey(const char *line)
{
	long n, m;

	if (sscanf(line, "chain %ld %ld", &n, &life_ms) == 2) {
		for (long i = 0; i < n; i++) {
			born++;
			if (start(generation, NULL, NULL))
				abort();
		}
		puts("begun");
	} else if (sscanf(line, "ring %ld", &n) == 1) {
		begin_ring((int)n);
		puts("begun");
	} else if (sscanf(line, "traps %ld", &n) == 1) {
		begin_traps(n);
		puts("begun");
	} else if (sscanf(line, "short %ld", &n) == 1) {
		run_short(n);
		puts(wrong ? "wrong" : "done");
	} else if (sscanf(line, "fresh %ld", &n) == 1) {
		run_fresh(n);
		puts(wrong ? "wrong" : "done");
	} else if (sscanf(line, "work %ld %ld", &n, &m) == 2) {
		work((int)n, m);
		puts(wrong ? "wrong" : "done");
	} else if (sscanf(line, "crowd %ld", &n) == 1) {
		puts(crowd(n) ? "too many" : "begun");
	} else if (!strcmp(line, "exhaust\n")) {
		printf("done %ld\n", exhaust());
	} else if (!strcmp(line, "stop\n")) {
		stop();
	}
	fflush(stdout);
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
	char line[64];

	sigaction(SIGRTMIN + 2, &action, NULL);
	action.sa_sigaction = on_trap;
	sigaction(SIGTRAP, &action, NULL);
	setvbuf(stdin, NULL, _IONBF, 0);
	/* libc installs a handler of its own with the first thread. */
	run_short(WIDTH);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		obey(line);
	return wrong;
}
