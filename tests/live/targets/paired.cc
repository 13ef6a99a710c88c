/* SPDX-License-Identifier: MIT */
/* build: -Wno-infinite-recursion -O2 -fno-inline -fno-ipa-cp -fno-ipa-icf -fno-ipa-ra -fno-ipa-pure-const */
/*
 * paired.cc - a program that enters and leaves functions in every way there is.
 *
 * paired THREADS: prints "ready"; each command is done by all threads at once
 * (those marked * by the main thread alone) and answered with "done":
 *   fib N, mutual N, tail N     recursion, mutual recursion, N tail calls in a row
 *   jump N D, throw N D         N times out of D frames, by longjmp or an exception
 *   signal N, sigjump N         N handlers on an alternate stack, that return, or jump out
 *   nested N                    N handlers on the thread's own stack that are interrupted again
 *   start N *                   N threads after each other that return
 *   exit N D *, cancel N D *    ... that end in the middle of D frames
 *   sit D                       stay in D frames: "sitting"; stand: leave them
 *   fibers N D                  N coroutines, each stopped in D frames: "sitting"; end: they return
 *   fork N *                    N children, made inside of forker(), that return from it and
 *                               call leaf() 10 times
 *   linger *, unlinger *        a child that sits in sitter(3) until told to end
 *   vfork N *                   N children that call leaf() before they end
 *   go N                        all of it that ends by itself, N times
 * Exits with 1 if a result was wrong.
 */
#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define TAIL extern "C" __attribute__((noinline, noclone))
/* Recursion stays recursion. */
#define KEEP TAIL __attribute__((optimize("no-optimize-sibling-calls")))

enum { THREADS_MAX = 16, FIBERS_MAX = 16, FIBER_STACK = 65536, ALTERNATE = 65536 };

static std::atomic<int> wrong, sitting;
static pthread_barrier_t start, finish;
static int gate[2], child_gate[2];
static char job[32];
static long first, second;
static volatile long sink;
static pid_t lingering;

static void expect(bool right)
{
	if (!right)
		wrong = 1;
}

KEEP long leaf(long n)
{
	return sink = n + 1;
}

KEEP long fib(long n)
{
	return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

KEEP long odd(long n);

KEEP long even(long n)
{
	return n == 0 ? 1 : odd(n - 1) + 1;
}

KEEP long odd(long n)
{
	return n == 0 ? 0 : even(n - 1) + 1;
}

/* Each leaves by a jump to the other. */
TAIL long tail_b(long n, long sum);

TAIL long tail_a(long n, long sum)
{
	if (n == 0)
		return sum;
	return tail_b(n - 1, sum + 1);
}

TAIL long tail_b(long n, long sum)
{
	if (n == 0)
		return sum;
	return tail_a(n - 1, sum + 2);
}

/* ------------------------------------------------------ left without exit */

KEEP long jumper(jmp_buf *to, long depth)
{
	if (depth > 1)
		return jumper(to, depth - 1) + 1;
	longjmp(*to, 7);
}

KEEP long jump_base(long depth)
{
	jmp_buf here;
	int how = setjmp(here);

	return how ? how : jumper(&here, depth);
}

struct guard {
	explicit guard(long &n) : count(n) {}
	~guard() { count++; }
	long &count;
};

KEEP long thrower(long depth, long &count)
{
	guard g(count);

	if (depth > 1)
		return thrower(depth - 1, count) + 1;
	throw depth;
}

KEEP long catcher(long depth)
{
	long count = 0;

	try {
		return thrower(depth, count);
	} catch (long) {
		return count;
	}
}

/* -------------------------------------------------------------- handlers */

static thread_local sigjmp_buf out;
static thread_local volatile long handled_sum;

KEEP long handled(long n)
{
	return n == 0 ? 0 : handled(n - 1) + 1;
}

KEEP void on_signal(int)
{
	handled_sum = handled(3);
}

KEEP void on_jump(int)
{
	handled_sum = handled(2);
	siglongjmp(out, 1);
}

KEEP void on_nested(int)
{
	static thread_local int depth;

	handled_sum = handled(1);
	if (++depth < 3)
		pthread_kill(pthread_self(), SIGALRM);
	depth--;
}

KEEP void signal_base(int signal)
{
	if (!sigsetjmp(out, 1))
		pthread_kill(pthread_self(), signal);
}

static void handler(int signal, void (*function)(int), int flags)
{
	struct sigaction action = {};

	action.sa_handler = function;
	action.sa_flags = flags;
	sigaction(signal, &action, nullptr);
}

static void alternate_stack()
{
	stack_t stack = {};

	stack.ss_size = ALTERNATE;
	stack.ss_sp = mmap(nullptr, ALTERNATE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);
	sigaltstack(&stack, nullptr);
}

/* --------------------------------------------------------------- threads */

KEEP void *starter(void *arg)
{
	return reinterpret_cast<void *>(leaf(reinterpret_cast<long>(arg)));
}

KEEP long end_here(long depth)
{
	if (depth > 1)
		return end_here(depth - 1) + 1;
	pthread_exit(nullptr);
}

KEEP void *ender(void *arg)
{
	return reinterpret_cast<void *>(end_here(reinterpret_cast<long>(arg)));
}

KEEP long wait_here(long depth)
{
	if (depth > 1)
		return wait_here(depth - 1) + 1;
	for (;;)
		pause();
}

KEEP void *waiter(void *arg)
{
	return reinterpret_cast<void *>(wait_here(reinterpret_cast<long>(arg)));
}

static void threads(void *(*function)(void *), long count, long depth, bool cancels)
{
	for (long i = 0; i < count; i++) {
		pthread_t t;

		expect(!pthread_create(&t, nullptr, function, reinterpret_cast<void *>(depth)));
		if (cancels) {
			usleep(300);
			pthread_cancel(t);
		}
		pthread_join(t, nullptr);
	}
}

/* --------------------------------------------------------------- sitting */

KEEP long sitter(long depth)
{
	char byte;

	if (depth > 1)
		return sitter(depth - 1) + 1;
	sitting++;
	return read(gate[0], &byte, 1) == 1;
}

struct fibers {
	ucontext_t main, contexts[FIBERS_MAX];
	char *stacks[FIBERS_MAX];
	int current;
};

static thread_local struct fibers *own;

KEEP void fiber_switch()
{
	swapcontext(&own->contexts[own->current], &own->main);
}

KEEP long fiber_deep(long depth)
{
	if (depth > 1)
		return fiber_deep(depth - 1) + 1;
	fiber_switch();
	return 1;
}

KEEP void fiber_start(int depth)
{
	expect(fiber_deep(depth - 1) == depth - 1);
	/* Its exit needs some room in front. */
	sink = depth + sink;
}

static void run_fibers(long count, long depth)
{
	char byte;

	own = static_cast<struct fibers *>(calloc(1, sizeof(*own)));
	for (long i = 0; i < count; i++) {
		own->stacks[i] = static_cast<char *>(malloc(FIBER_STACK));
		getcontext(&own->contexts[i]);
		own->contexts[i].uc_stack.ss_sp = own->stacks[i];
		own->contexts[i].uc_stack.ss_size = FIBER_STACK;
		own->contexts[i].uc_link = &own->main;
		makecontext(&own->contexts[i], reinterpret_cast<void (*)()>(fiber_start), 1,
			    static_cast<int>(depth));
	}
	for (int turn = 0; turn < 2; turn++) {
		for (long i = 0; i < count; i++) {
			own->current = static_cast<int>(i);
			swapcontext(&own->main, &own->contexts[i]);
		}
		if (turn)
			break;
		sitting++;
		expect(read(gate[0], &byte, 1) == 1);
	}
	for (long i = 0; i < count; i++)
		free(own->stacks[i]);
	free(own);
}

/* ------------------------------------------------------------- processes */

KEEP long forker(pid_t *pid)
{
	*pid = fork();
	return sink = *pid == 0;
}

static void forks(long count)
{
	for (long i = 0; i < count; i++) {
		int status = -1;
		pid_t pid;

		if (forker(&pid)) {
			for (long n = 0; n < 10; n++)
				leaf(n);
			_exit(3);
		}
		expect(waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
		       WEXITSTATUS(status) == 3);
	}
}

KEEP void vforker()
{
	int status = -1;
	pid_t pid = vfork();

	if (pid == 0) {
		leaf(1);
		_exit(4);
	}
	expect(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 4);
}

/* ------------------------------------------------------------------- jobs */

static void all_once()
{
	expect(fib(8) == 21);
	expect(even(6) == 7);
	expect(tail_a(5, 0) == 7);
	expect(jump_base(4) == 7);
	expect(catcher(5) == 5);
	signal_base(SIGUSR1);
	signal_base(SIGUSR2);
	signal_base(SIGALRM);
}

static void do_job()
{
	const long n = first, depth = second;

	for (long i = 0; i < n; i++) {
		if (!strcmp(job, "mutual"))
			expect(even(n) == n + 1 - (n & 1)), i = n;
		else if (!strcmp(job, "fib"))
			sink = fib(n), i = n;
		else if (!strcmp(job, "tail"))
			sink = tail_a(n, 0), i = n;
		else if (!strcmp(job, "jump"))
			expect(jump_base(depth) == 7);
		else if (!strcmp(job, "throw"))
			expect(catcher(depth) == depth);
		else if (!strcmp(job, "signal"))
			signal_base(SIGUSR1);
		else if (!strcmp(job, "sigjump"))
			signal_base(SIGUSR2);
		else if (!strcmp(job, "nested"))
			signal_base(SIGALRM);
		else if (!strcmp(job, "go"))
			all_once();
		else if (!strcmp(job, "sit"))
			expect(sitter(n) == n), i = n;
		else if (!strcmp(job, "fibers"))
			run_fibers(n, depth), i = n;
	}
}

static void *thread(void *arg)
{
	alternate_stack();
	all_once();
	pthread_barrier_wait(&finish);
	for (;;) {
		pthread_barrier_wait(&start);
		if (!*job)
			return arg;
		do_job();
		pthread_barrier_wait(&finish);
	}
}

static void say(const char *text)
{
	puts(text);
	fflush(stdout);
}

static void linger()
{
	expect(!pipe(child_gate));
	lingering = fork();
	if (lingering == 0) {
		dup2(child_gate[0], gate[0]);
		close(child_gate[1]);
		sitting = 0;
		_exit(sitter(3) == 3 ? 5 : 6);
	}
	close(child_gate[0]);
	usleep(50000);
}

static void unlinger()
{
	int status = -1;

	expect(write(child_gate[1], "x", 1) == 1);
	expect(waitpid(lingering, &status, 0) == lingering && WIFEXITED(status) &&
	       WEXITSTATUS(status) == 5);
	close(child_gate[1]);
}

static bool alone()
{
	if (!strcmp(job, "start"))
		threads(starter, first, 1, false);
	else if (!strcmp(job, "exit"))
		threads(ender, first, second, false);
	else if (!strcmp(job, "cancel"))
		threads(waiter, first, second, true);
	else if (!strcmp(job, "fork"))
		forks(first);
	else if (!strcmp(job, "linger"))
		linger();
	else if (!strcmp(job, "unlinger"))
		unlinger();
	else if (!strcmp(job, "vfork"))
		for (long i = 0; i < first; i++)
			vforker();
	else
		return false;
	return true;
}

static void command(const char *line, int count)
{
	first = second = 0;
	if (sscanf(line, "%31s %ld %ld", job, &first, &second) < 1)
		return;
	if (!strcmp(job, "stand") || !strcmp(job, "end")) {
		for (int i = 0; i < count; i++)
			expect(write(gate[1], "x", 1) == 1);
		pthread_barrier_wait(&finish);
	} else if (!alone()) {
		bool sits = !strcmp(job, "sit") || !strcmp(job, "fibers");

		sitting = 0;
		pthread_barrier_wait(&start);
		while (sits && sitting < count)
			usleep(1000);
		if (sits) {
			usleep(20000);
			say("sitting");
			return;
		}
		pthread_barrier_wait(&finish);
	}
	say("done");
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 1;
	pthread_t tids[THREADS_MAX];
	char line[64];

	mallopt(M_ARENA_MAX, 1);
	expect(!pipe(gate));
	handler(SIGUSR1, on_signal, SA_ONSTACK);
	handler(SIGUSR2, on_jump, SA_ONSTACK | SA_NODEFER);
	handler(SIGALRM, on_nested, SA_NODEFER);
	pthread_barrier_init(&start, nullptr, count + 1);
	pthread_barrier_init(&finish, nullptr, count + 1);
	for (int i = 0; i < count; i++)
		pthread_create(&tids[i], nullptr, thread, nullptr);
	pthread_barrier_wait(&finish);
	/* What the C library maps, or installs, at the first time and keeps. */
	threads(starter, 2, 1, false);
	threads(ender, 2, 1, false);
	threads(waiter, 2, 1, true);
	forks(1);
	setvbuf(stdin, nullptr, _IONBF, 0);
	say("ready");
	while (fgets(line, sizeof(line), stdin))
		command(line, count);
	*job = '\0';
	pthread_barrier_wait(&start);
	for (int i = 0; i < count; i++)
		pthread_join(tids[i], nullptr);
	return wrong;
}
