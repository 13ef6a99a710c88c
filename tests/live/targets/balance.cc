/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -fno-ipa-icf -fno-ipa-cp -fno-ipa-sra -rdynamic */
/*
 * balance.cc - functions that are entered and left in every way, and a record
 * of those that were not left: how many activations of each were thrown over,
 * or live on where no stack walk finds them.
 *
 * Prints "ready". Commands:
 *   go N     N rounds of everything, "thrown FUNCTION COUNT" for each function, "done"
 *   sit N    waits on the standard input below N activations of sits(); "sitting"
 *   stand    they return; "done"
 */
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone, used))

struct record {
	const char *name;
	long count;
};

/* Filled in by the rounds: how often the function was entered and not left. */
static struct record records[] = {
	{"throws", 0},	  {"passes", 0},	  {"cleans", 0},      {"jumps", 0},
	{"jumped", 0},	  {"handles", 0},	  {"interrupted", 0}, {"ends_thread", 0},
	{"thread", 0},	  {"parks", 0},		  {"ends_child", 0},  {"child", 0},
	{"cancelled", 0}, {"canceled_thread", 0},
};

static void thrown(const char *name, long count)
{
	for (auto &r : records)
		if (strcmp(r.name, name) == 0) {
			r.count += count;
			return;
		}
	abort();
}

static volatile long sink;
static volatile int zero;

extern "C" {

/* ---------------------------------------------------- calls that return */

KEEP long recurses(long n)
{
	return n <= 0 ? zero : 1 + recurses(n - 1) + (n % 5 == 0 ? recurses(n / 5) : 0);
}

KEEP long odd(long n);
KEEP long even(long n)
{
	return n == 0 ? 1 : odd(n - 1);
}

KEEP long odd(long n)
{
	return n == 0 ? 0 : even(n - 1);
}

KEEP long leaf(long n)
{
	return n * 3 + zero;
}

static long (*volatile chosen)(long) = leaf;

/* Leaves by a direct and by an indirect tail call, and by a conditional one. */
KEEP long tails(long n)
{
	if (n & 1)
		return leaf(n);
	return chosen(n);
}

KEEP long switches(long n)
{
	switch (n & 15) {
	case 0:
		return leaf(1);
	case 1:
		return n;
	case 2:
		return even(n & 6);
	case 3:
		sink = sink + n;
		return 3;
	case 4:
		return chosen(4);
	case 5:
		return sink;
	case 6:
		sink = sink - n;
		break;
	case 7:
		return tails(n);
	case 8:
		return -n;
	case 9:
		sink = 9;
		return n / 9;
	case 10:
		return recurses(10);
	default:
		sink = n;
		break;
	}
	return n + 1;
}

/* ---------------------------------------------------------- exceptions */

struct guard {
	~guard()
	{
		sink = sink + 1;
	}
};

KEEP void throws(long n)
{
	if (n >= 0)
		throw n;
}

KEEP void passes(long n)
{
	throws(n);
	sink = sink + 1;
}

KEEP void cleans(long n)
{
	guard g;

	passes(n);
	sink = sink + 1;
}

/* Catches in the frame above; what is thrown over is not left. */
KEEP void catches(long n)
{
	try {
		cleans(n);
	} catch (long value) {
		sink = value;
	}
}

/* Thrown and caught again on the way. */
KEEP void rethrows(long n)
{
	try {
		catches(-1);
		try {
			cleans(n);
		} catch (long) {
			throw;
		}
	} catch (long value) {
		sink = value;
	}
}

/* ------------------------------------------------------------- longjmp */

static jmp_buf back;
static sigjmp_buf back_from_signal;

KEEP void jumps(long n)
{
	sink = n;
	longjmp(back, 1);
}

KEEP void jumped(long n)
{
	jumps(n);
	sink = sink + 1;
}

KEEP long returns_twice(long n)
{
	if (setjmp(back) == 0)
		jumped(n);
	return sink;
}

KEEP void handles(int sig)
{
	siglongjmp(back_from_signal, sig);
}

KEEP void interrupted(long n)
{
	sink = n;
	raise(SIGUSR1);
	sink = sink + 1;
}

KEEP long returns_from_signal(long n)
{
	if (sigsetjmp(back_from_signal, 1) == 0)
		interrupted(n);
	return sink;
}

/* A handler that returns. */
KEEP void handles_and_returns(int sig)
{
	sink = leaf(sig);
}

/* -------------------------------------------- threads, contexts, children */

KEEP void ends_thread(long n)
{
	sink = n;
	pthread_exit(nullptr);
}

KEEP void *thread(void *arg)
{
	ends_thread(reinterpret_cast<long>(arg));
	return nullptr;
}

KEEP void *plain_thread(void *arg)
{
	sink = recurses(reinterpret_cast<long>(arg));
	return arg;
}

static volatile int waiting;

KEEP void cancelled()
{
	waiting = 1;
	pause();
	sink = sink + 1;
}

KEEP void *canceled_thread(void *arg)
{
	cancelled();
	return arg;
}

static ucontext_t here, there;
static char other_stack[65536];

/* Switches to and fro, and at the end it is left standing. */
KEEP void parks(int n)
{
	for (int i = 0; i < n; i++) {
		sink = leaf(i);
		swapcontext(&there, &here);
	}
	abort();
}

KEEP void ends_child(int n)
{
	_exit(n);
}

KEEP void child(int n)
{
	ends_child(n);
	sink = sink + 1;
}

} /* extern "C" */

static void expect(bool right)
{
	if (!right)
		abort();
}

static void one_round(long n)
{
	pthread_t t;
	int status;
	pid_t pid;

	sink = recurses(n % 30) + even(n % 100) + switches(n) + tails(n);
	catches(n);
	rethrows(n);
	returns_twice(n);
	returns_from_signal(n);
	raise(SIGUSR2);
	thrown("throws", 2);
	thrown("passes", 2);
	thrown("cleans", 2);
	thrown("jumps", 1);
	thrown("jumped", 1);
	thrown("handles", 1);
	thrown("interrupted", 1);
	if (n % 10 != 0)
		return;
	expect(pthread_create(&t, nullptr, thread, reinterpret_cast<void *>(n)) == 0);
	expect(pthread_join(t, nullptr) == 0);
	expect(pthread_create(&t, nullptr, plain_thread, reinterpret_cast<void *>(n % 50)) == 0);
	expect(pthread_join(t, nullptr) == 0);
	waiting = 0;
	expect(pthread_create(&t, nullptr, canceled_thread, nullptr) == 0);
	while (!waiting)
		usleep(100);
	expect(pthread_cancel(t) == 0 && pthread_join(t, nullptr) == 0);
	getcontext(&there);
	there.uc_stack.ss_sp = other_stack;
	there.uc_stack.ss_size = sizeof(other_stack);
	makecontext(&there, reinterpret_cast<void (*)()>(parks), 1, 100);
	for (int i = 0; i < 7; i++)
		swapcontext(&here, &there);
	/* It counts in the same memory, and never leaves what it was forked in either. */
	pid = fork();
	if (pid == 0)
		child(42);
	expect(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 42);
	thrown("ends_thread", 1);
	thrown("thread", 1);
	thrown("cancelled", 1);
	thrown("canceled_thread", 1);
	thrown("parks", 1);
	thrown("child", 1);
	thrown("ends_child", 1);
}

static char line[64];

extern "C" KEEP long sits(long n)
{
	if (n > 0) {
		long below = sits(n - 1);

		sink = below; /* not to become a loop */
		return below;
	}
	puts("sitting");
	return fgets(line, sizeof(line), stdin) != nullptr;
}

int main()
{
	setvbuf(stdout, nullptr, _IOLBF, 0);
	signal(SIGUSR1, handles);
	signal(SIGUSR2, handles_and_returns);
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		long n = atol(strchr(line, ' ') ? strchr(line, ' ') : "0");

		if (strncmp(line, "sit ", 4) == 0) {
			sits(n);
		} else {
			for (long i = 1; i <= n; i++)
				one_round(i);
			for (auto &r : records)
				printf("thrown %s %ld\n", r.name, r.count);
		}
		puts("done");
	}
	return 0;
}
