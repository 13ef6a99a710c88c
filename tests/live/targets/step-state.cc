/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -fno-ipa-icf -fno-ipa-cp */
/*
 * step-state.cc - three threads that work in rounds, each through functions that call each other,
 * recurse, jump to others, are left by longjmp() and by exceptions; and through those of every-step.inc. A
 * signal's handler goes through them as well, on the same stack or another one, returns or jumps out.
 *
 * step-state [alt]: prints "ready". Alt: handlers have stacks of their own. Commands, each answered
 * by a line; T is a thread's number from 0:
 *   where        the threads' ids
 *   start T N    N rounds are to be done; "started"
 *   plain T N    the same, and each throws as well, and is followed by a signal that the thread sends itself,
 *                with no frame of others on its stack; "started"
 *   throw T N    in the first N from now on something throws; "thrown"
 *   signal T L   sends one to the thread; L is 1: its handler jumps out into the round, which ends then
 *                if that is in order at that point; "sent", or "busy" where there are three of them already
 *   leave T      the thread ends, where it next may; "left"
 *   renew T      waits until it has ended, and makes another one: its id
 *   birth        a further thread does one round, and ends; "born"
 *   wait         when all is done, and no signal is left; "done", or "wrong" once a result was
 * Exits with 1 if any result was wrong.
 */
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PREFIX "own_"
#include "every-step.inc"

#define KEEP   extern "C" __attribute__((noinline, noclone))
#define OPAQUE __asm__ volatile("" ::: "memory")

#define DECLARE(name, result) extern "C" long function_##name(long n) __asm__(PREFIX #name);
#define CALL(name, result)                  \
	if (function_##name(n) != (result)) \
		wrong = 1;

FUNCTIONS(DECLARE)

enum { THREADS = 3, DEEPEST = 3, STACK = 65536, BURN_NS = 20000 };

static volatile int wrong;
static const volatile int always = 1;
static bool alt, has_newborn;
static pthread_t newborn;

struct worker {
	pthread_t handle;
	volatile pid_t tid;
	volatile long rounds, plain, throws;
	volatile int leave, ended, in_round, keep; /* keep: no jump out of here */
	volatile int sent, taken, over, leap;
	sigjmp_buf base;
	char stack[STACK];
};

static struct worker workers[THREADS];
static __thread struct worker *own;

/* -------------------------------------------------------------- functions */

KEEP long st_leaf(long n)
{
	OPAQUE;
	return n + 1;
}

/* Only computes: code that is inserted may call it. */
KEEP long st_computed(long n)
{
	return 3 * n + 1;
}

KEEP long st_middle(long n)
{
	OPAQUE;
	return st_leaf(n) + st_leaf(n + 1) + st_computed(1) - 4;
}

KEEP long st_outer(long n)
{
	OPAQUE;
	return st_middle(n) + st_leaf(n) + 1;
}

KEEP long st_recurse(long n)
{
	OPAQUE;
	return n ? st_recurse(n - 1) + st_leaf(n) : 0;
}

/* Ends by a jump. */
KEEP long st_tail(long n)
{
	OPAQUE;
	return st_outer(n + 1);
}

KEEP long st_jump(jmp_buf back, long n)
{
	st_leaf(n);
	if (always)
		longjmp(back, (int)n + 1);
	return n;
}

KEEP long st_jumping(jmp_buf back, long n)
{
	OPAQUE;
	if (n)
		return st_jumping(back, n - 1) + 1;
	return st_jump(back, n + 2) + 1;
}

KEEP long st_lander(long n)
{
	jmp_buf back;

	if (!setjmp(back))
		st_jumping(back, n);
	return st_leaf(n);
}

KEEP long st_throw(long n)
{
	OPAQUE;
	if (n)
		return st_throw(n - 1) + 1;
	throw n + 7;
}

KEEP long st_catch(long n)
{
	try {
		return st_throw(n);
	} catch (long caught) {
		return caught + st_leaf(0);
	}
}

KEEP long st_burn(long n)
{
	struct timespec from, now;

	clock_gettime(CLOCK_MONOTONIC, &from);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - from.tv_sec) * 1000000000 + now.tv_nsec - from.tv_nsec < BURN_NS);
	return st_leaf(n);
}

KEEP long st_handled(long n)
{
	return st_recurse(2) + st_outer(n) + st_leaf(n);
}

/* ---------------------------------------------------------------- threads */

static void check(long result, long expected)
{
	if (result != expected)
		wrong = 1;
}

KEEP void st_round(void)
{
	for (long n = 1; n < 4; n += 2) {
		FUNCTIONS(CALL)
	}
	check(st_outer(4), 17);
	check(st_recurse(3), 9);
	check(st_tail(3), 17);
	check(st_lander(2), 3);
	check(st_burn(1), 2);
}

static void work(struct worker *w)
{
	if (!sigsetjmp(w->base, 1)) {
		w->in_round = 1;
		st_round();
		if (w->throws > 0) {
			/* What throws allocates: nobody may jump out of that. */
			w->throws = w->throws - 1;
			w->keep = 1;
			check(st_catch(2), 8);
			w->keep = 0;
		}
	}
	w->in_round = 0;
}

static void on_signal(int number)
{
	struct worker *w = own;

	(void)number;
	/* One instruction each: between two of them another handler may come. */
	__atomic_fetch_add(&w->taken, 1, __ATOMIC_RELAXED);
	check(st_handled(1), 15);
	if (w->leap && w->in_round && !w->keep && !alt) {
		w->leap = 0;
		w->in_round = 0;
		w->over = w->taken;
		siglongjmp(w->base, 1);
	}
	__atomic_fetch_add(&w->over, 1, __ATOMIC_RELAXED);
}

static void sleep_for(long ns)
{
	const struct timespec time = {0, ns};

	syscall(SYS_nanosleep, &time, nullptr);
}

static void set_stack(struct worker *w, int flags)
{
	stack_t stack = {};

	stack.ss_sp = w->stack;
	stack.ss_size = STACK;
	stack.ss_flags = flags;
	if (sigaltstack(&stack, nullptr))
		wrong = 1;
}

/* Not by a function: the handler's frames must not be deeper than those of any round. */
static inline __attribute__((always_inline)) void send_self(pid_t tid)
{
	long result = SYS_tkill;

	__asm__ volatile("syscall"
			 : "+a"(result)
			 : "D"((long)tid), "S"((long)SIGUSR1)
			 : "rcx", "r11", "memory");
}

static void *worker(void *arg)
{
	struct worker *w = own = static_cast<struct worker *>(arg);

	if (alt)
		set_stack(w, 0);
	w->tid = (pid_t)syscall(SYS_gettid);
	while (!w->leave || w->plain) {
		if (w->rounds > 0) {
			work(w);
			w->rounds = w->rounds - 1;
		} else if (w->plain > 0) {
			w->throws = 1;
			work(w);
			w->sent = w->sent + 1;
			send_self(w->tid);
			w->plain = w->plain - 1;
		} else {
			sleep_for(100000);
		}
	}
	if (alt)
		set_stack(w, SS_DISABLE);
	w->ended = 1;
	return nullptr;
}

static void *short_life(void *)
{
	st_round();
	return nullptr;
}

/* --------------------------------------------------------------- commands */

static void begin(struct worker *w)
{
	w->tid = 0;
	w->leave = w->ended = w->leap = 0;
	w->over = w->taken = w->sent;
	if (pthread_create(&w->handle, nullptr, worker, w))
		exit(2);
	while (!w->tid)
		usleep(100);
}

/* There never is more than one: the next one gets its stack. */
static void end_newborn()
{
	if (has_newborn)
		pthread_join(newborn, nullptr);
	has_newborn = false;
}

static const char *birth()
{
	end_newborn();
	if (pthread_create(&newborn, nullptr, short_life, nullptr))
		exit(2);
	has_newborn = true;
	return "born";
}

static bool is_done(const struct worker *w)
{
	return w->ended || (!w->leave && !w->rounds && !w->plain && w->over == w->sent);
}

static const char *wait_for_all()
{
	for (const struct worker &w : workers)
		while (!is_done(&w))
			usleep(100);
	end_newborn();
	return wrong ? "wrong" : "done";
}

static const char *send(struct worker *w, long leap)
{
	if (w->taken != w->sent || w->taken - w->over >= DEEPEST || w->leave)
		return "busy";
	w->leap = (int)leap;
	w->sent = w->sent + 1;
	syscall(SYS_tgkill, getpid(), w->tid, SIGUSR1);
	return "sent";
}

static void command(const char *line)
{
	char what[16] = "";
	long which = 0, number = 0;

	sscanf(line, "%15s %ld %ld", what, &which, &number);
	struct worker *w = &workers[which];

	if (!strcmp(what, "where")) {
		printf("%d %d %d\n", (int)workers[0].tid, (int)workers[1].tid, (int)workers[2].tid);
	} else if (!strcmp(what, "start")) {
		w->rounds = number;
		puts("started");
	} else if (!strcmp(what, "plain")) {
		w->plain = number;
		puts("started");
	} else if (!strcmp(what, "throw")) {
		w->throws = number;
		puts("thrown");
	} else if (!strcmp(what, "signal")) {
		puts(send(w, number));
	} else if (!strcmp(what, "leave")) {
		w->leave = 1;
		puts("left");
	} else if (!strcmp(what, "renew")) {
		pthread_join(w->handle, nullptr);
		begin(w);
		printf("%d\n", (int)w->tid);
	} else if (!strcmp(what, "birth")) {
		puts(birth());
	} else if (!strcmp(what, "wait")) {
		puts(wait_for_all());
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct sigaction action = {};
	char line[64];

	alt = argc > 1 && !strcmp(argv[1], "alt");
	action.sa_handler = on_signal;
	action.sa_flags = SA_RESTART | SA_NODEFER | (alt ? SA_ONSTACK : 0);
	if (sigaction(SIGUSR1, &action, nullptr))
		return 2;
	for (struct worker &w : workers)
		begin(&w);
	/* The first time takes more: the linker's part of it, stacks, and memory. */
	for (struct worker &w : workers)
		w.plain = 1;
	birth();
	puts(wait_for_all() ? "ready" : "");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		command(line);
	for (struct worker &w : workers)
		w.leave = 1;
	for (struct worker &w : workers)
		pthread_join(w.handle, nullptr);
	return wrong;
}
