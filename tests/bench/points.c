/* SPDX-License-Identifier: MIT */
/*
 * points.c - what a counter costs at each kind of point: entries beside the
 * jump alone, entry and exit together, indirect calls beside their relocated
 * form, every block of a loop, and one counter for two threads.
 *
 * The target is a child of ours, a fork of this program: on request it runs a
 * loop of calls of one function in one thread or in two, each on a CPU of its
 * own, and answers with its CPU time per call. Counts are compared with calls.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/bench/measure.h"

enum { ROUNDS = 11, WINDOW_NS = 20 * 1000 * 1000, THREADS_MAX = 2 };

#ifdef __clang__
#define APART __attribute__((noinline, used, aligned(16)))
#else
#define APART __attribute__((noinline, noclone, used, aligned(16)))
#endif

typedef uint64_t (*subject_function)(uint64_t x);

APART uint64_t points_empty(uint64_t x);
APART uint64_t points_work(uint64_t x);
APART uint64_t points_through_register(uint64_t x);
APART uint64_t points_through_memory(uint64_t x);
APART uint64_t points_at_once(uint64_t x);
APART uint64_t points_loop(uint64_t x);

uint64_t points_empty(uint64_t x)
{
	__asm__ volatile("" : "+r"(x));
	return x;
}

/* Some 10 ns. */
uint64_t points_work(uint64_t x)
{
	for (int i = 0; i < 8; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		__asm__ volatile("" : "+r"(x));
	}
	return x;
}

struct table {
	subject_function before, function;
};

static struct table table = {points_empty, points_empty};

/*
 * Two shapes of an indirect call, both shorter than a near jump. What stands
 * before them is not needed by the entry's window.
 */
uint64_t points_through_register(uint64_t x)
{
	subject_function f = *(subject_function volatile *)&table.function;

	__asm__ volatile("" : "+r"(f), "+r"(x));
	x ^= x >> 7;
	x = f(x + 1);
	return x + 2;
}

uint64_t points_through_memory(uint64_t x)
{
	const struct table *t = &table;

	__asm__ volatile("" : "+r"(t), "+r"(x));
	x ^= x >> 7;
	x = t->function(x + 1);
	__asm__ volatile("" : "+r"(x));
	return x + 2;
}

/* The same, with nothing but the entry's window before the call. */
uint64_t points_at_once(uint64_t x)
{
	subject_function f = *(subject_function volatile *)&table.function;

	__asm__ volatile("" : "+r"(f));
	x = f(x + 1);
	return x + 2;
}

/* Every register holds something that is needed, and the blocks are short. */
uint64_t points_loop(uint64_t x)
{
	uint64_t a = x, b = x * 3, c = x ^ 5, d = x + 7, f = x * 11, g = x ^ 13, h = x + 17,
		 j = x * 19, k = x ^ 23, l = x + 29;

	for (unsigned i = 0; i < 64; i++) {
		a += b ^ (c >> 3);
		d = (d << 5 | d >> 59) + a;
		if (i & 4) {
			f += d * 7;
			g ^= f;
			b += g >> 2;
			k = (k << 9 | k >> 55) ^ b;
		} else {
			h += d ^ l;
			j = (j << 7 | j >> 57) + h;
			c ^= j;
			l += c * 5;
		}
		a ^= k + l;
		if (i & 8)
			g += a ^ h;
		__asm__ volatile(""
				 : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(f), "+r"(g), "+r"(h));
	}
	return a + b + c + d + f + g + h + j + k + l;
}

/* ------------------------------------------------------------- the child */

struct order {
	subject_function function;
	unsigned threads;
	uint64_t calls; /* per thread */
};

struct runner {
	pthread_t thread;
	const struct order *order;
	pthread_barrier_t *start;
	unsigned cpu;
	double ns;
};

/* Of the thread's own: others on the same CPU do not count, waiting for a line of memory does. */
static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *runner_main(void *arg)
{
	struct runner *r = arg;
	subject_function f = r->order->function;
	const uint64_t calls = r->order->calls;
	uint64_t begin, x = 1;
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(r->cpu, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	pthread_barrier_wait(r->start);
	begin = now_ns();
	for (uint64_t i = 0; i < calls; i++)
		x = f(x);
	r->ns = (double)(now_ns() - begin) / (double)calls;
	return NULL;
}

static double run_order(const struct order *order)
{
	struct runner runners[THREADS_MAX];
	pthread_barrier_t start;
	double ns = 0;

	pthread_barrier_init(&start, NULL, order->threads);
	for (unsigned i = 0; i < order->threads; i++) {
		runners[i] = (struct runner){.order = order, .start = &start, .cpu = i};
		if (pthread_create(&runners[i].thread, NULL, runner_main, &runners[i]) != 0)
			_exit(1);
	}
	for (unsigned i = 0; i < order->threads; i++) {
		pthread_join(runners[i].thread, NULL);
		ns += runners[i].ns / order->threads;
	}
	pthread_barrier_destroy(&start);
	return ns;
}

struct child {
	pid_t pid;
	int in, out;
	uint64_t calls; /* made in all */
};

static void child_main(int in, int out)
{
	struct order order;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(in, &order, sizeof(order)) == (ssize_t)sizeof(order)) {
		double ns = run_order(&order);

		if (write(out, &ns, sizeof(ns)) != (ssize_t)sizeof(ns))
			break;
	}
	_exit(0);
}

static bool start_child(struct child *c)
{
	int in[2], out[2];

	if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
		return false;
	fflush(stdout);
	c->pid = fork();
	if (c->pid == 0)
		child_main(in[0], out[1]);
	c->in = in[1];
	c->out = out[0];
	return c->pid > 0;
}

static double ask(struct child *c, subject_function f, unsigned threads, uint64_t calls)
{
	const struct order order = {.function = f, .threads = threads, .calls = calls};
	double ns;

	if (write(c->in, &order, sizeof(order)) != (ssize_t)sizeof(order) ||
	    read(c->out, &ns, sizeof(ns)) != (ssize_t)sizeof(ns)) {
		fprintf(stderr, "points: the child is gone\n");
		exit(1);
	}
	c->calls += calls * threads;
	return ns;
}

/* ---------------------------------------------------------- the subjects */

struct subject {
	const char *title, *focus;
	subject_function function;
	unsigned threads;
	struct measure_state states[MEASURE_STATES_MAX];
};

enum { EMPTY, EMPTY_TWO, WORK, REGISTER, MEMORY, AT_ONCE, LOOP, SUBJECTS };

#define STATE(what, letters, only)                                       \
	{                                                                \
		.title = (what), .kinds = (letters), .jump_only = (only) \
	}

static struct subject subjects[] = {
	[EMPTY] = {"an empty function",
		   "/Code/points/points_empty",
		   points_empty,
		   1,
		   {STATE("uninstrumented", "", false), STATE("jump at entry", "e", true),
		    STATE("counter at entry", "e", false),
		    STATE("counters at entry and exit", "ex", false)}},
	[EMPTY_TWO] = {"the same, two threads",
		       "/Code/points/points_empty",
		       points_empty,
		       2,
		       {STATE("uninstrumented", "", false), STATE("jump at entry", "e", true),
			STATE("counter at entry", "e", false)}},
	[WORK] = {"a function of some 10 ns",
		  "/Code/points/points_work",
		  points_work,
		  1,
		  {STATE("uninstrumented", "", false), STATE("jump at entry", "e", true),
		   STATE("counter at entry", "e", false), STATE("counter at exit", "x", false),
		   STATE("counters at entry and exit", "ex", false)}},
	[REGISTER] = {"a call through a register",
		      "/Code/points/points_through_register",
		      points_through_register,
		      1,
		      {STATE("uninstrumented", "", false), STATE("relocated", "c", true),
		       STATE("counted", "c", false)}},
	[MEMORY] = {"a call through memory",
		    "/Code/points/points_through_memory",
		    points_through_memory,
		    1,
		    {STATE("uninstrumented", "", false), STATE("relocated", "c", true),
		     STATE("counted", "c", false)}},
	[AT_ONCE] = {"a call through a register, right behind the entry",
		     "/Code/points/points_at_once",
		     points_at_once,
		     1,
		     {STATE("uninstrumented", "", false), STATE("relocated", "c", true),
		      STATE("counted", "c", false), STATE("entry and call counted", "ec", false)}},
	[LOOP] = {"a loop that needs all registers",
		  "/Code/points/points_loop",
		  points_loop,
		  1,
		  {STATE("uninstrumented", "", false),
		   STATE("a counter in each block", "b", false)}},
};

static uint64_t counted(const struct session *s)
{
	uint64_t sum = 0;

	for (const struct instance *i = s->instances; i; i = i->next)
		sum += instance_value(i);
	return sum;
}

/* One state, once. Entries, exits and calls are as many as the calls made; blocks only more. */
static int measure_state(struct session *s, struct child *c, const struct subject *subject,
			 struct measure_state *state, uint64_t calls, double *ns,
			 struct dinst_error *e)
{
	size_t points = 0, kinds = strlen(state->kinds);
	uint64_t made, count;
	int status;

	state->foci[0] = subject->focus;
	status = measure_enter(s, state, &points, e);
	if (status < 0)
		return status;
	if (points < kinds)
		return dinst_fail(e, DINST_REFUSED, "%s: %s: only %zu points", subject->title,
				  state->title, points);
	made = c->calls;
	*ns = ask(c, subject->function, subject->threads, calls);
	made = c->calls - made;
	count = counted(s);
	if (kinds && !state->jump_only && count != made * kinds &&
	    !(strchr(state->kinds, 'b') && count > made * kinds))
		return dinst_fail(e, DINST_FAILED, "%s: %s: counted %llu, not %llu", subject->title,
				  state->title, (unsigned long long)count,
				  (unsigned long long)(made * kinds));
	return measure_leave(s, e);
}

static int measure_subject(struct session *s, struct child *c, struct subject *subject,
			   struct measure_table *t, struct dinst_error *e)
{
	uint64_t calls = (uint64_t)(WINDOW_NS / ask(c, subject->function, 1, 20000));
	unsigned states = 0;
	int status = 0;

	while (states < MEASURE_STATES_MAX && subject->states[states].title)
		states++;
	t->rounds = ROUNDS;
	for (unsigned round = 0; status >= 0 && round < ROUNDS; round++)
		for (unsigned i = 0; status >= 0 && i < states; i++)
			status = measure_state(s, c, subject, &subject->states[i], calls,
					       &t->value[i][round], e);
	if (status < 0)
		return status;
	printf("%s\n", subject->title);
	for (unsigned i = 0; i < states; i++)
		printf("  %-34s %8.2f ns %+8.2f  %6.3fx\n", subject->states[i].title,
		       measure_of(t, i), i ? measure_more(t, i, 0) : 0.0, measure_ratio(t, i, 0));
	fflush(stdout);
	return 0;
}

int main(void)
{
	static struct measure_table t[SUBJECTS];
	bool known[SUBJECTS] = {false};
	struct dinst_error e = {0};
	struct detach_result detached;
	struct child child = {0};
	struct session *s;
	bool good = true;

	alarm(110);
	if (!start_child(&child))
		return 1;
	if (session_attach(child.pid, "points", &s, &e) < 0) {
		fprintf(stderr, "points: %s\n", e.text);
		return 1;
	}
	for (int i = 0; i < SUBJECTS; i++) {
		known[i] = measure_subject(s, &child, &subjects[i], &t[i], &e) >= 0;
		if (known[i])
			continue;
		printf("%s\n  not measured: %s\n", subjects[i].title, e.text);
		good = false;
		dinst_error_clear(&e);
		if (measure_leave(s, &e) < 0)
			break;
	}
	printf("what is wanted (medians of differences and ratios within a round)\n");
	if (known[EMPTY])
		measure_want("a counter at entry, above the jump alone",
			     measure_more(&t[EMPTY], 2, 1), 0.5, "ns");
	if (known[WORK]) {
		measure_want("the same, at a function of 10 ns, above uninstrumented",
			     measure_more(&t[WORK], 2, 0), 0.4, "ns");
		measure_want("counters at its entry and exit, above uninstrumented",
			     measure_more(&t[WORK], 4, 0), 1.0, "ns");
	}
	if (known[EMPTY] && known[EMPTY_TWO])
		measure_want("one counter, two threads, above one thread",
			     measure_more(&t[EMPTY_TWO], 2, 0) - measure_more(&t[EMPTY], 2, 0), 0.5,
			     "ns");
	if (known[REGISTER])
		measure_want("a call through a register, counted, above relocated",
			     measure_more(&t[REGISTER], 2, 1), 2.0, "ns");
	if (known[MEMORY])
		measure_want("a call through memory, counted, above relocated",
			     measure_more(&t[MEMORY], 2, 1), 2.0, "ns");
	if (known[AT_ONCE])
		measure_want("the same right behind the entry", measure_more(&t[AT_ONCE], 2, 1),
			     2.0, "ns");
	if (known[LOOP])
		measure_want("a counter in each block of a loop", measure_ratio(&t[LOOP], 1, 0),
			     1.5, "x");
	if (session_detach(s, 5, &detached, &e) < 0)
		good = false;
	session_free(s);
	kill(child.pid, SIGKILL);
	waitpid(child.pid, NULL, 0);
	return good ? 0 : 1;
}
