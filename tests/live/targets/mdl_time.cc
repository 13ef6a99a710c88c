/* SPDX-License-Identifier: MIT */
/* build: -O2 -rdynamic -fno-inline */
/*
 * mdl_time.cc - timed functions whose time the program knows itself, by clocks
 * that are placed by hand: recursion, mutual recursion, tail calls, functions
 * that are left by exceptions and longjmp, and what a caller does beside them.
 *
 * Prints "ready". Commands are "NAME ROUNDS [MS]"; each answers with one line
 * of "key value" pairs, times in ns:
 *   fib R N      fib(N) R times            calls, wall, cpu (of the outermost)
 *   mutual R N   even(N) and odd           calls, wall, cpu
 *   share R MS   outer: own work, then inner's      outer_wall, outer_own, inner_wall, cpu ones
 *   tight R MS   tight() calls itself and inner, with no room for a jump behind that   inner_wall
 *   ender R MS   ender() ends in calls of a function that never returns (it is left by longjmp)   inner_wall
 *   tail R MS    first -> second -> third by jumps  first, second, third: until the jump
 *   throw R MS   left by an exception; the catcher works on    left, left_cpu
 *   jump R MS    left by longjmp; the lander works on          left, left_cpu
 *   request R    works and sleeps for random times             spent, p50, p99
 *   wait MS      stays inside of held() while its caller is asked for more: "inside",
 *                then on the command "on": the rest of its time   rest
 *   rings MS     around() calls amid(), that within(), that is as "wait"
 *   again R MS   again(): calls itself once, and then spins       cpu
 *   leave R MS   threads, one after the other: each is in leaver() for MS, returns, and is in
 *                there again for MS, where it ends              returned: all of the first times
 */
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <pthread.h>
#include <unistd.h>

#define KEEP extern "C" __attribute__((noinline, noclone))

static int64_t wall()
{
	timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static int64_t cpu()
{
	timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* Computes for that long. Not instrumented by anybody. */
KEEP void spin(int64_t ns)
{
	const int64_t end = cpu() + ns;

	while (cpu() < end)
		;
}

static volatile unsigned long fib_calls, mutual_calls;

/* No compiler makes a loop of this. */
KEEP unsigned long fib(unsigned n)
{
	volatile unsigned long sum;

	fib_calls = fib_calls + 1;
	if (n < 2) {
		for (volatile int i = 0; i < 30; i = i + 1)
			;
		return n;
	}
	sum = fib(n - 1);
	sum = sum + fib(n - 2);
	return sum;
}

KEEP bool odd(unsigned n);

KEEP bool even(unsigned n)
{
	volatile bool result;

	mutual_calls = mutual_calls + 1;
	for (volatile int i = 0; i < 10000; i = i + 1)
		;
	result = n == 0 || odd(n - 1);
	return result;
}

KEEP bool odd(unsigned n)
{
	volatile bool result;

	mutual_calls = mutual_calls + 1;
	for (volatile int i = 0; i < 10000; i = i + 1)
		;
	result = n != 0 && even(n - 1);
	return result;
}

/* What a caller does itself and what it has done for it. */
static int64_t outer_own, outer_cpu, inner_wall, inner_cpu;

KEEP void inner(int64_t ns)
{
	spin(ns);
	asm volatile(""); /* no tail call */
}

KEEP void outer(int64_t ns)
{
	int64_t t0 = wall(), c0 = cpu(), t1, c1;

	for (volatile long i = 0; i < ns / 4; i = i + 1)
		;
	t1 = wall();
	c1 = cpu();
	inner(ns);
	inner_cpu += cpu() - c1;
	inner_wall += wall() - t1;
	outer_own += t1 - t0;
	outer_cpu += c1 - c0;
}

/* Calls itself, then inner. A jump leads to close behind the first call, and another function to behind the second. */
asm(".text\n.globl tight\n.type tight, @function\ntight:\n\tpushq %rbx\n\tmovl %edi, %ebx\n"
    "\ttestl %edi, %edi\n\tje 2f\n\tleal -1(%rdi), %edi\n\tcall tight\n\taddl $1, %eax\n"
    "1:\tpopq %rbx\n\tret\n2:\tmovq %rsi, %rdi\n\tcall inner@PLT\n\tmovl %ebx, %eax\n\tjmp 1b\n"
    ".size tight, .-tight\n.type behind_tight, @function\nbehind_tight:\n\tret\n"
    ".size behind_tight, .-behind_tight\n");
extern "C" int tight(int depth, int64_t ns);

static jmp_buf ended;

/* Never returns, and that is to be seen in its code. */
KEEP [[noreturn]] void no_end(int64_t ns)
{
	const int64_t t = wall();

	spin(ns);
	inner_wall += wall() - t;
	longjmp(ended, 1);
}

KEEP void ender(int64_t ns)
{
	asm volatile("");
	no_end(ns);
}

KEEP void end(int64_t ns)
{
	if (!setjmp(ended))
		ender(ns);
}

/* Jumps, not calls: the time until the jump is the function's own. */
static int64_t chain[3], chain_since;

static void until_here(int i)
{
	const int64_t now = wall();

	chain[i] += now - chain_since;
	chain_since = now;
}

KEEP long third(int64_t ns)
{
	spin(ns);
	until_here(2);
	return ns;
}

KEEP long second(int64_t ns)
{
	spin(ns);
	until_here(1);
	return third(ns);
}

KEEP long first(int64_t ns)
{
	spin(ns);
	until_here(0);
	return second(ns);
}

/* Left without a return, from three levels below. */
static int64_t left_at, left_cpu, left_begun;
static jmp_buf back;

KEEP void thrower(int64_t ns, int levels)
{
	if (levels < 0) {
		asm volatile("");
		return;
	}
	if (levels > 0) {
		thrower(ns, levels - 1);
		asm volatile("");
		return;
	}
	spin(ns);
	left_at = wall();
	left_cpu += cpu() - left_begun;
	throw 1;
}

volatile bool never;

KEEP void jumper(int64_t ns, int levels)
{
	if (levels < 0) {
		asm volatile("");
		return;
	}
	if (levels > 0) {
		jumper(ns, levels - 1);
		asm volatile("");
		return;
	}
	spin(ns);
	left_at = wall();
	left_cpu += cpu() - left_begun;
	if (!never)
		longjmp(back, 1);
}

KEEP int64_t catcher(int64_t ns)
{
	const int64_t start = wall();

	left_begun = cpu();
	try {
		thrower(ns, 3);
	} catch (int) {
		spin(2 * ns);
	}
	return left_at - start;
}

KEEP int64_t lander(int64_t ns)
{
	static int64_t start;

	start = wall();
	left_begun = cpu();
	if (setjmp(back) == 0)
		jumper(ns, 3);
	else
		spin(2 * ns);
	return left_at - start;
}

KEEP void request(int64_t ns)
{
	if (ns % 3 == 0)
		usleep(ns / 1000);
	else
		spin(ns);
	asm volatile("");
}

/* Inside when the request comes. */
KEEP void held(int64_t ns)
{
	char line[100];

	puts("inside");
	if (!fgets(line, sizeof(line), stdin))
		exit(1);
	const int64_t start = wall(), c = cpu();
	spin(ns);
	printf("rest %ld cpu %ld\n", (long)(wall() - start), (long)(cpu() - c));
}

/* The same, three functions further in. */
KEEP void within(int64_t ns)
{
	held(ns);
	asm volatile("");
}

KEEP void amid(int64_t ns)
{
	within(ns);
	asm volatile("");
}

KEEP void around(int64_t ns)
{
	amid(ns);
	asm volatile("");
}

/* What is called before is over before it begins. */
KEEP void again(int64_t ns, bool more)
{
	if (more)
		again(0, false);
	spin(ns);
	asm volatile("");
}

static int64_t returned;

KEEP void leaver(int64_t ns, bool ends)
{
	spin(ns);
	if (ends)
		pthread_exit(nullptr);
	asm volatile("");
}

static void *leave(void *arg)
{
	const int64_t ns = *static_cast<int64_t *>(arg), start = wall();

	leaver(ns, false);
	returned += wall() - start;
	leaver(ns, true);
	return nullptr;
}

static void leave_in_thread(int64_t ns)
{
	pthread_t thread;

	if (pthread_create(&thread, nullptr, leave, &ns) || pthread_join(thread, nullptr))
		exit(1);
}

/* What requests took, for percentiles. */
static int64_t took[100000];

static int by_size(const void *a, const void *b)
{
	const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static void answer(const char *name, long rounds, long more)
{
	const int64_t w = wall(), c = cpu(), ns = more * 1000000;
	int64_t left = 0, spent = 0;
	unsigned long sum = 0;

	fib_calls = mutual_calls = 0;
	outer_own = outer_cpu = inner_wall = inner_cpu = 0;
	left_cpu = returned = 0;
	memset(chain, 0, sizeof(chain));
	for (long i = 0; i < rounds; i++) {
		if (!strcmp(name, "fib"))
			sum += fib(more);
		else if (!strcmp(name, "mutual"))
			sum += even(more);
		else if (!strcmp(name, "share"))
			outer(ns);
		else if (!strcmp(name, "tight")) {
			const int64_t t = wall();

			tight(3, ns);
			inner_wall += wall() - t;
		} else if (!strcmp(name, "ender"))
			end(ns);
		else if (!strcmp(name, "tail")) {
			chain_since = wall();
			first(ns);
		} else if (!strcmp(name, "throw"))
			left += catcher(ns);
		else if (!strcmp(name, "jump"))
			left += lander(ns);
		else if (!strcmp(name, "again"))
			again(ns, true);
		else if (!strcmp(name, "leave"))
			leave_in_thread(ns);
		else if (!strcmp(name, "request")) {
			const int64_t t = wall();

			request(50000 + (i * 7919) % 100 * 10000);
			took[i % 100000] = wall() - t;
			spent += took[i % 100000];
		}
	}
	const int64_t end = wall(), cpu_end = cpu();

	/* What was left is noticed by the next call, at the latest. */
	if (!strcmp(name, "throw"))
		thrower(0, -1);
	if (!strcmp(name, "jump"))
		jumper(0, -1);

	qsort(took, rounds < 100000 ? rounds : 100000, sizeof(took[0]), by_size);
	printf("calls %lu wall %ld cpu %ld own %ld own_cpu %ld inner_wall %ld inner_cpu %ld first %ld second %ld third %ld "
	       "left %ld left_cpu %ld spent %ld p50 %ld p99 %ld returned %ld sum %lu\n",
	       fib_calls + mutual_calls, (long)(end - w), (long)(cpu_end - c), (long)outer_own, (long)outer_cpu,
	       (long)inner_wall, (long)inner_cpu, (long)chain[0], (long)chain[1], (long)chain[2],
	       (long)left, (long)left_cpu, (long)spent, (long)took[rounds / 2], (long)took[rounds * 99 / 100], (long)returned, sum);
}

int main()
{
	char line[100], name[32];
	long rounds, more;

	setvbuf(stdout, nullptr, _IOLBF, 0);
	/* What the first thread leaves behind (its stack is kept) is there from the beginning. */
	leave_in_thread(0);
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		rounds = 1;
		more = 1;
		if (sscanf(line, "%31s %ld %ld", name, &rounds, &more) < 1)
			continue;
		if (!strcmp(name, "wait"))
			held(rounds * 1000000);
		else if (!strcmp(name, "rings"))
			around(rounds * 1000000);
		else
			answer(name, rounds, more);
	}
	return 0;
}
