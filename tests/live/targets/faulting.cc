/* SPDX-License-Identifier: MIT */
/* build: -O2 -fnon-call-exceptions -fno-ipa-icf */
/*
 * faulting.cc - a program that makes exceptions of its faults: the handler of
 * SIGSEGV and SIGFPE throws, through the instruction that faulted.
 *
 * faulting: prints "ready". Command:
 *   go N   N times uses a null pointer in each of its functions, or divides by
 *          zero, and as often does not; "done"
 * Exits with 1 if anything was not as it should be.
 */
#include <csignal>
#include <cstdio>
#include <cstdlib>

#define KEEP __attribute__((noinline, noclone))

struct fault {
	long value;
};

static void on_fault(int)
{
	throw fault{7};
}

/* Caught by its caller: it has no table of its own. */
extern "C" KEEP long fault_in_leaf(const long *from, long n)
{
	return *from + n * 3;
}

extern "C" KEEP long fault_around(const long *from, long n)
{
	try {
		return fault_in_leaf(from, n);
	} catch (const fault &f) {
		return -f.value;
	}
}

extern "C" KEEP long fault_within(const long *from, long n)
{
	long kept = n;

	try {
		kept = n + 5;
		kept += *from;
		__asm__ volatile("" : "+r"(kept));
		kept *= *from;
	} catch (const fault &f) {
		return kept + f.value;
	}
	return kept;
}

/* What only the handler looks at is in a register that the way without a fault soon overwrites. */
extern "C" KEEP long fault_keeps(volatile long *to, long n)
{
	long kept = n * 7, result = n * 3;

	/* A block that begins with an instruction that can be moved. */
	__asm__ volatile("test $1, %%sil\n"
			 "jz 1f\n"
			 "nop\n"
			 "1: .byte 0x0f, 0x1f, 0x80, 0, 0, 0, 0" /* nopl 0(%%rax) */
			 : "+r"(kept), "+a"(result)
			 : "S"(n));
	try {
		*to = n;
		__asm__ volatile("" : "+a"(result));
	} catch (const fault &) {
		return kept;
	}
	return result;
}

struct table {
	long (*first)(long);
	long (*second)(long);
};

extern "C" KEEP long fault_calls(long n, const table *table)
{
	try {
		return table->second(n) + 1;
	} catch (const fault &) {
		return -n;
	}
}

extern "C" KEEP long fault_goes_on(long n, const table *table)
{
	return table->second(n);
}

static long twice(long n)
{
	return n * 2;
}

static long goes_on(long n, const table *table)
{
	try {
		return fault_goes_on(n, table);
	} catch (const fault &) {
		return -n;
	}
}

extern "C" KEEP long fault_divides(long n, long by)
{
	return n / by;
}

static long divides(long n, long by)
{
	try {
		return fault_divides(n, by);
	} catch (const fault &) {
		return -n;
	}
}

static bool go(long n)
{
	static const long four = 4;
	static const table functions = {nullptr, twice};
	volatile long other;
	bool right = true;

	for (long i = 0; i < n && right; i++)
		right = fault_around(&four, i) == 4 + i * 3 && fault_around(nullptr, i) == -7 &&
			fault_within(&four, i) == (i + 9) * 4 &&
			fault_within(nullptr, i) == i + 5 + 7 &&
			fault_keeps(&other, i) == i * 3 && fault_keeps(nullptr, i) == i * 7 &&
			fault_calls(i, &functions) == i * 2 + 1 && fault_calls(i, nullptr) == -i &&
			goes_on(i, &functions) == i * 2 && goes_on(i, nullptr) == -i &&
			divides(i, 3) == i / 3 && divides(i, 0) == -i;
	return right;
}

int main()
{
	struct sigaction action = {};
	char line[64];
	bool right = true;

	action.sa_handler = on_fault;
	action.sa_flags = SA_NODEFER;
	sigaction(SIGSEGV, &action, nullptr);
	sigaction(SIGFPE, &action, nullptr);
	setvbuf(stdin, nullptr, _IONBF, 0);
	printf("ready\n");
	fflush(stdout);
	while (right && fgets(line, sizeof(line), stdin)) {
		right = go(strtol(line + 3, nullptr, 10));
		printf("%s\n", right ? "done" : "wrong");
		fflush(stdout);
	}
	return right ? 0 : 1;
}
