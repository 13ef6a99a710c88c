/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -fno-ipa-icf -rdynamic -Wno-infinite-recursion -fexceptions -x c tests/live/targets/throws-cleanup.inc */
/*
 * throws.cc - functions that are left otherwise than by returning.
 *
 * throws THREADS: prints "ready". Commands:
 *   go N     every thread does N rounds: exceptions caught in the same frame, in
 *            the next, far away, thrown again, through callbacks and virtual
 *            calls; longjmp; pthread_exit and pthread_cancel; "done"
 *   static N every thread asks for static object N, which begins to live with the third try; "done"
 *   trace    "trace" and the offsets of a backtrace from deep inside
 *   abort    an exception out of a noexcept function, in a child; "done"
 *   sit      every thread waits below a few frames; "sitting"
 *   stand    they return; "done"
 * Exits with 1 if anything was not as it should be.
 */
#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <execinfo.h>
#include <malloc.h>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))

static std::atomic<int> wrong, sitting;
static int gate[2];
static pthread_barrier_t start, finish;
static const char *volatile job = "";
static volatile long rounds;
static volatile int zero;

static void expect(bool right)
{
	if (!right)
		wrong = 1;
}

/* Counts constructions and destructions: every frame must be unwound once. */
struct guard {
	explicit guard(long &n) : count(n) { count++; }
	~guard() { count += 1000; }
	long &count;
};

struct failure {
	explicit failure(long n) : value(n) {}
	long value;
};

/* ------------------------------------------------------------ exceptions */

extern "C" KEEP long thrower(long n)
{
	if (n >= zero)
		throw failure(n);
	return n;
}

extern "C" KEEP long same_frame(long n)
{
	try {
		throw failure(n);
	} catch (const failure &f) {
		return f.value + 1;
	}
}

extern "C" KEEP long next_frame(long n)
{
	try {
		return thrower(n) * 2;
	} catch (const failure &f) {
		return f.value + 2;
	}
}

extern "C" KEEP long passing(long n, long &count)
{
	guard g(count);

	if (n > 0)
		return passing(n - 1, count) + 1;
	return thrower(77) + 1;
}

/* Its window is four bytes long: the fifth is the call's. */
extern "C" long narrow(long depth, long &count);
__asm__(".text\n"
	".globl narrow\n"
	".type narrow,@function\n"
	"narrow:\n"
	"	.cfi_startproc\n"
	"	sub $8,%rsp\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	call passing\n"
	"	add $8,%rsp\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size narrow,.-narrow\n");

extern "C" KEEP long far_away(long depth)
{
	long count = 0;

	try {
		narrow(depth, count);
	} catch (const failure &f) {
		return f.value + count;
	}
	return -1;
}

extern "C" KEEP long again(long n)
{
	try {
		return thrower(n);
	} catch (failure &f) {
		f.value += 10;
		throw;
	}
}

extern "C" KEEP long other_type(long n)
{
	try {
		return again(n);
	} catch (const std::string &) {
		return -1;
	} catch (const failure &f) {
		throw std::runtime_error(std::to_string(f.value));
	}
}

extern "C" KEEP long caught_again(long n)
{
	try {
		return other_type(n);
	} catch (const std::exception &e) {
		return std::atol(e.what());
	}
}

extern "C" KEEP long kept(long n)
{
	std::exception_ptr p;

	try {
		thrower(n);
	} catch (...) {
		p = std::current_exception();
	}
	try {
		std::rethrow_exception(p);
	} catch (const failure &f) {
		return f.value;
	}
	return -1;
}

/* In C, with cleanups (throws-cleanup.inc). */
extern "C" long cleaned(long n, long *count);

extern "C" KEEP long thrown_through_c(long n)
{
	if (n >= zero)
		throw failure(n);
	return n;
}

extern "C" KEEP long through_c(long n)
{
	long count = 0;

	try {
		return cleaned(n, &count);
	} catch (const failure &f) {
		return f.value + count;
	}
}

/* ------------------------------------------------------- static objects */

enum { STATICS = 32 };

struct stubborn {
	explicit stubborn(std::atomic<int> &tries) : value(7)
	{
		if (++tries < 3)
			throw failure(value);
	}
	long value;
};

static std::atomic<int> tries[STATICS];

/* The threads wait for each other in there (__cxa_guard_acquire). */
template <int N> KEEP long static_object()
{
	static stubborn only(tries[N]);

	return only.value;
}

template <int N> static void ask_static(int n)
{
	for (long value = 0; N == n && !value;) {
		try {
			value = static_object<N>();
			expect(value == 7 && tries[N] == 3);
		} catch (const failure &f) {
			expect(f.value == 7);
		}
	}
	if constexpr (N + 1 < STATICS)
		ask_static<N + 1>(n);
}

/* ----------------------------------------- callbacks and indirect calls */

extern "C" KEEP int compare(const void *a, const void *b)
{
	if (*static_cast<const int *>(a) == 3)
		throw failure(3);
	return *static_cast<const int *>(a) - *static_cast<const int *>(b);
}

extern "C" KEEP long through_libc()
{
	int numbers[] = { 5, 4, 3, 2, 1 };

	try {
		qsort(numbers, 5, sizeof(numbers[0]), compare);
	} catch (const failure &f) {
		return f.value;
	}
	return 3;
}

struct base {
	virtual ~base() {}
	virtual long act(long n) = 0;
};

struct derived : base {
	long act(long n) override { return thrower(n) + 1; }
};

static base *volatile object = new derived;

extern "C" KEEP long through_virtual(long n)
{
	try {
		return object->act(n) + 1;
	} catch (const failure &f) {
		return f.value;
	}
}

extern "C" KEEP long tail(long n)
{
	return thrower(n + 1);
}

extern "C" KEEP long through_tail(long n)
{
	try {
		return tail(n) + 1;
	} catch (const failure &f) {
		return f.value;
	}
}

/* ------------------------------------------------- longjmp and threads */

extern "C" KEEP void jumper(jmp_buf to, long depth)
{
	if (depth > 0) {
		jumper(to, depth - 1);
		zero = 0;
	}
	longjmp(to, 9);
}

extern "C" KEEP long jumped(long depth)
{
	jmp_buf here;
	int how = setjmp(here);

	if (how)
		return how;
	jumper(here, depth);
	return -1;
}

extern "C" KEEP void leave_thread(long &count, long depth)
{
	guard g(count);

	if (depth > 0)
		leave_thread(count, depth - 1);
	pthread_exit(reinterpret_cast<void *>(55));
}

extern "C" KEEP void *exiting_thread(void *arg)
{
	leave_thread(*static_cast<long *>(arg), 3);
	return nullptr;
}

extern "C" KEEP void wait_for_ever(long &count)
{
	guard g(count);

	for (;;)
		pause();
}

extern "C" KEEP void *cancelled_thread(void *arg)
{
	try {
		wait_for_ever(*static_cast<long *>(arg));
	} catch (...) {
		*static_cast<long *>(arg) += 1000000;
		throw;
	}
	return nullptr;
}

extern "C" KEEP void threads_once()
{
	/* A stack of our own, so that mappings do not come and go with the threads. */
	static thread_local void *stack = aligned_alloc(4096, 256 * 1024);
	long exited = 0, cancelled = 0;
	void *result = nullptr;
	pthread_attr_t own;
	pthread_t t;

	pthread_attr_init(&own);
	pthread_attr_setstack(&own, stack, 256 * 1024);
	pthread_create(&t, &own, exiting_thread, &exited);
	pthread_join(t, &result);
	expect(result == reinterpret_cast<void *>(55) && exited == 4004);
	pthread_create(&t, &own, cancelled_thread, &cancelled);
	pthread_cancel(t);
	pthread_join(t, &result);
	/* It may have been cancelled before it called anything. */
	expect(result == PTHREAD_CANCELED && (cancelled == 1001001 || cancelled == 0 ||
					      cancelled == 1000000));
	pthread_attr_destroy(&own);
}

static void all_once(long i)
{
	expect(same_frame(i) == i + 1);
	expect(next_frame(i) == i + 2);
	expect(far_away(6) == 77 + 7 * 1001);
	expect(caught_again(i) == i + 10);
	expect(kept(i) == i);
	expect(through_libc() == 3);
	expect(through_virtual(i) == i);
	expect(through_tail(i) == i + 1);
	expect(jumped(5) == 9);
	expect(through_c(4) == 1 + 4 * 1001);
	if (i % 16 == 0)
		threads_once();
}

/* ------------------------------------------------------------ backtraces */

extern "C" KEEP int trace_end(void **pcs, int max)
{
	int count = backtrace(pcs, max);

	zero = 0;
	return count;
}

extern "C" KEEP int trace_middle(void **pcs, int max, long depth)
{
	int count = depth > 0 ? trace_middle(pcs, max, depth - 1) : trace_end(pcs, max);

	zero = 0;
	return count;
}

extern "C" KEEP int trace_start(void **pcs, int max)
{
	int count = trace_middle(pcs, max, 4);

	zero = 0;
	return count;
}

static void trace()
{
	void *pcs[64];
	int count = trace_start(pcs, 64);

	printf("trace");
	for (int i = 0; i < count; i++)
		printf(" %lx", static_cast<unsigned long>(reinterpret_cast<uintptr_t>(pcs[i])));
	puts("");
}

/* -------------------------------------------------------------- the rest */

extern "C" KEEP long promised(long n) noexcept
{
	return thrower(n) + 1;
}

extern "C" KEEP void abort_child()
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		struct rlimit none = { 0, 0 };

		setrlimit(RLIMIT_CORE, &none);
		if (!freopen("/dev/null", "w", stderr))
			_exit(2);
		try {
			promised(1);
		} catch (...) {
		}
		_exit(1);
	}
	expect(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) &&
	       WTERMSIG(status) == SIGABRT);
}

extern "C" KEEP long sit_down(long n)
{
	char byte = 0;

	sitting++;
	return read(gate[0], &byte, 1) == 1 ? n + 1 : -1;
}

extern "C" KEEP long sit_middle(long n)
{
	return sit_down(n + 1) + 1;
}

extern "C" KEEP long sit(long n)
{
	return sit_middle(n + 1) + 1;
}

extern "C" KEEP void do_job()
{
	if (!strcmp(job, "go"))
		for (long i = 0; i < rounds; i++)
			all_once(i);
	else if (!strcmp(job, "static"))
		ask_static<0>(static_cast<int>(rounds));
	else
		expect(sit(1) == 6);
}

static void *thread(void *arg)
{
	all_once(0);
	pthread_barrier_wait(&finish);
	for (;;) {
		pthread_barrier_wait(&start);
		if (!*job)
			return arg;
		do_job();
		pthread_barrier_wait(&finish);
	}
}

static void command(const char *line, int threads)
{
	static const char *const go = "go", *const sits = "sit", *const statics = "static";

	if (!strncmp(line, "go ", 3) || !strncmp(line, "static ", 7)) {
		job = *line == 'g' ? go : statics;
		rounds = atol(strchr(line, ' '));
		pthread_barrier_wait(&start);
		pthread_barrier_wait(&finish);
		puts(wrong ? "wrong" : "done");
	} else if (!strncmp(line, "trace", 5)) {
		trace();
	} else if (!strncmp(line, "abort", 5)) {
		abort_child();
		puts(wrong ? "wrong" : "done");
	} else if (!strncmp(line, "sit", 3)) {
		job = sits;
		sitting = 0;
		pthread_barrier_wait(&start);
		while (sitting < threads)
			usleep(1000);
		usleep(20000);
		puts("sitting");
	} else if (!strncmp(line, "stand", 5)) {
		for (int i = 0; i < threads; i++)
			expect(write(gate[1], "x", 1) == 1);
		pthread_barrier_wait(&finish);
		puts(wrong ? "wrong" : "done");
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 1;
	pthread_t tids[64];
	void *warm[4];
	char line[64];

	/* All of what maps memory happens before we say that we are ready. */
	mallopt(M_ARENA_MAX, 1);
	if (pipe(gate))
		return 2;
	backtrace(warm, 4);
	pthread_barrier_init(&start, nullptr, threads + 1);
	pthread_barrier_init(&finish, nullptr, threads + 1);
	for (int i = 0; i < threads; i++)
		pthread_create(&tids[i], nullptr, thread, nullptr);
	pthread_barrier_wait(&finish);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		command(line, threads);
	job = "";
	pthread_barrier_wait(&start);
	for (int i = 0; i < threads; i++)
		pthread_join(tids[i], nullptr);
	return wrong;
}
