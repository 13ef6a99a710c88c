/* SPDX-License-Identifier: MIT */
/*
 * calls.c - what a call costs with nothing, with a jump, with counters (the
 * table of "Dynamic Program Instrumentation for Scalable Performance Tools",
 * figure 6), and with a kernel uprobe, in one thread, in two, and in 64.
 *
 * The target is a child of ours: it runs a loop of calls of an empty function
 * or of one of some 10 ns on request, each thread on one of two CPUs. Every
 * cost is CPU time, the median of some windows; counts are compared with the
 * calls made.
 */
#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mutator/core.h"

enum { WINDOWS = 9, WINDOW_NS = 40000000, CPUS = 2, THREADS_MAX = 64 };

static const unsigned thread_counts[] = {1, CPUS, THREADS_MAX};

enum { COUNTS = sizeof(thread_counts) / sizeof(thread_counts[0]) };

/* Functions of their own, aligned like a compiler's, that no compiler looks into. */
#ifdef __clang__
#define APART __attribute__((noinline, aligned(16)))
#else
#define APART __attribute__((noinline, noclone, aligned(16)))
#endif

APART uint64_t bench_empty(uint64_t x);
APART uint64_t bench_work(uint64_t x);

uint64_t bench_empty(uint64_t x)
{
	__asm__ volatile("" : "+r"(x));
	return x;
}

uint64_t bench_work(uint64_t x)
{
	for (int i = 0; i < 8; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		__asm__ volatile("" : "+r"(x));
	}
	return x;
}

/* ------------------------------------------------------------- the child */

struct order {
	bool work;
	unsigned threads;
	uint64_t calls; /* per thread */
};

struct answer {
	double ns;	/* per call, the mean of the threads */
	uint64_t calls; /* of all threads */
};

struct runner {
	pthread_t thread;
	const struct order *order;
	pthread_barrier_t *start;
	int cpu;
	double ns;
};

/* Of the thread's own: others on the same CPU do not count, waiting for a lock or a line does. */
static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *runner_main(void *arg)
{
	struct runner *r = arg;
	const uint64_t calls = r->order->calls;
	uint64_t begin, x = 1;
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET((unsigned)r->cpu, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	pthread_barrier_wait(r->start);
	begin = now_ns();
	if (r->order->work)
		for (uint64_t i = 0; i < calls; i++)
			x = bench_work(x);
	else
		for (uint64_t i = 0; i < calls; i++)
			x = bench_empty(x);
	r->ns = (double)(now_ns() - begin) / (double)calls;
	return NULL;
}

static struct answer run_order(const struct order *order)
{
	struct runner runners[THREADS_MAX];
	struct answer answer = {.calls = order->calls * order->threads};
	pthread_barrier_t start;

	pthread_barrier_init(&start, NULL, order->threads);
	for (unsigned i = 0; i < order->threads; i++) {
		runners[i] =
			(struct runner){.order = order, .start = &start, .cpu = (int)(i % CPUS)};
		if (pthread_create(&runners[i].thread, NULL, runner_main, &runners[i]) != 0)
			_exit(1);
	}
	for (unsigned i = 0; i < order->threads; i++) {
		pthread_join(runners[i].thread, NULL);
		answer.ns += runners[i].ns / order->threads;
	}
	pthread_barrier_destroy(&start);
	return answer;
}

struct child {
	pid_t pid;
	int in, out;
};

static void child_main(int in, int out)
{
	struct order order;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(in, &order, sizeof(order)) == (ssize_t)sizeof(order)) {
		struct answer answer = run_order(&order);

		if (write(out, &answer, sizeof(answer)) != (ssize_t)sizeof(answer))
			break;
	}
	_exit(0);
}

static bool start_child(struct child *c)
{
	int in[2], out[2];

	if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
		return false;
	c->pid = fork();
	if (c->pid == 0)
		child_main(in[0], out[1]);
	c->in = in[1];
	c->out = out[0];
	return c->pid > 0;
}

static uint64_t calls_made;

static double ask(const struct child *c, bool work, unsigned threads, uint64_t calls)
{
	const struct order order = {.work = work, .threads = threads, .calls = calls};
	struct answer answer;

	if (write(c->in, &order, sizeof(order)) != (ssize_t)sizeof(order) ||
	    read(c->out, &answer, sizeof(answer)) != (ssize_t)sizeof(answer)) {
		fprintf(stderr, "calls: the child is gone\n");
		exit(1);
	}
	calls_made += answer.calls;
	return answer.ns;
}

static int by_size(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* ns per call: the median of windows of equal length. */
static double measure(const struct child *c, bool work, unsigned threads)
{
	double ns[WINDOWS], once = ask(c, work, threads, 20000);
	const unsigned each = threads > CPUS ? threads / CPUS : 1;
	uint64_t calls = (uint64_t)(WINDOW_NS / once / each);

	for (int i = 0; i < WINDOWS; i++)
		ns[i] = ask(c, work, threads, calls);
	qsort(ns, WINDOWS, sizeof(ns[0]), by_size);
	return ns[WINDOWS / 2];
}

/* ------------------------------------------------------------ the states */

struct bench {
	struct child child;
	struct session *session;
	bool work;
	const char *focus;
	double plain[COUNTS];
};

static void show(struct bench *b, const char *what, const char *remark)
{
	printf("  %-34s", what);
	for (unsigned n = 0; n < COUNTS; n++) {
		double ns = measure(&b->child, b->work, thread_counts[n]);

		if (b->plain[n] == 0)
			b->plain[n] = ns;
		printf("  %9.2f %+9.2f %7.2fx", ns, ns - b->plain[n], ns / b->plain[n]);
	}
	printf("  %s\n", remark);
	fflush(stdout);
}

static struct instance *insert(struct bench *b, struct dinst_error *e)
{
	struct insert_result r;
	struct instance *instance = NULL;
	size_t points, pending;

	if (request_insert(b->session, "calls", &b->focus, 1, NULL, &r, e) < 0)
		return NULL;
	instance = r.instances[0];
	free(r.instances);
	instance_points(instance, &points, &pending);
	if (points != 1) {
		dinst_fail(e, DINST_FAILED, "%zu points counted in %s, not 1", points, b->focus);
		return NULL;
	}
	return instance;
}

/* Measures with the instance counting, and says whether it counted every call. */
static bool show_counted(struct bench *b, const char *what, const struct instance *instance)
{
	uint64_t before = instance_value(instance), made = calls_made;
	char remark[96];
	bool exact;

	printf("  %-34s", what);
	for (unsigned n = 0; n < COUNTS; n++) {
		double ns = measure(&b->child, b->work, thread_counts[n]);

		printf("  %9.2f %+9.2f %7.2fx", ns, ns - b->plain[n], ns / b->plain[n]);
	}
	exact = instance_value(instance) - before == calls_made - made;
	if (exact)
		snprintf(remark, sizeof(remark), "exact: %llu",
			 (unsigned long long)(calls_made - made));
	else
		snprintf(remark, sizeof(remark), "WRONG: %llu of %llu",
			 (unsigned long long)(instance_value(instance) - before),
			 (unsigned long long)(calls_made - made));
	printf("  %s\n", remark);
	fflush(stdout);
	return exact;
}

/* The one site of the session: there is one point. */
static struct site *only_site(struct bench *b)
{
	for (size_t i = 0; i < b->session->site_buckets; i++)
		if (b->session->site_hash[i] != NULL)
			return b->session->site_hash[i];
	return NULL;
}

/*
 * A mini trampoline as others write them: every general register and the flags
 * are saved and put back around one locked increment. Linked by hand, because
 * dinst itself never makes such a thing.
 */
static bool link_full_saves(struct bench *b, uint64_t **value, struct dinst_error *e)
{
	static const uint8_t save[] = {
		0x48, 0x8d, 0x64, 0x24, 0x80,			/* lea -128(%rsp),%rsp */
		0x9c,						/* pushf */
		0x50, 0x51, 0x52, 0x53, 0x55, 0x56, 0x57,	/* push rax .. rdi */
		0x41, 0x50, 0x41, 0x51, 0x41, 0x52, 0x41, 0x53, /* push r8 .. r11 */
		0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57, /* push r12 .. r15 */
	};
	static const uint8_t restore[] = {
		0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, /* pop r15 .. r12 */
		0x41, 0x5b, 0x41, 0x5a, 0x41, 0x59, 0x41, 0x58, /* pop r11 .. r8 */
		0x5f, 0x5e, 0x5d, 0x5b, 0x5a, 0x59, 0x58,	/* pop rdi .. rax */
		0x9d,						/* popf */
		0x48, 0x8d, 0xa4, 0x24, 0x80, 0x00, 0x00, 0x00, /* lea 128(%rsp),%rsp */
	};
	uint8_t code[128], increment[] = {0xf0, 0x48, 0xff, 0x04, 0x25, 0, 0, 0, 0};
	struct site *site = only_site(b);
	struct arch_buf out = {.bytes = code, .size = sizeof(code)};
	taddr_t at, counter;
	uint32_t low;

	if (heap_alloc_code(site->place->heap, sizeof(code), &at, e) < 0 ||
	    heap_alloc_counter(site->place->heap, &counter, e) < 0)
		return false;
	if (counter >= 0x80000000u || !site->place->arena->low_data) {
		dinst_fail(e, DINST_FAILED, "the data half does not lie below 2 GiB");
		return false;
	}
	low = (uint32_t)counter;
	memcpy(increment + 5, &low, sizeof(low));
	memcpy(code, save, sizeof(save));
	memcpy(code + sizeof(save), increment, sizeof(increment));
	memcpy(code + sizeof(save) + sizeof(increment), restore, sizeof(restore));
	out.used = sizeof(save) + sizeof(increment) + sizeof(restore);
	out.pc = at;
	arch_emit_jump(&out, site->base);
	memcpy(heap_map(site->place->heap, at, sizeof(code)), code, out.used);
	/* The way of a gate, which is nobody else's. */
	site->gate = at;
	site->gated = true;
	site_turn(site);
	*value = heap_map(site->place->heap, counter, sizeof(**value));
	return out.status == ARCH_OK && *value != NULL;
}

static bool show_full_saves(struct bench *b, struct dinst_error *e)
{
	uint64_t *value, made = calls_made;
	struct site *site = only_site(b);
	char remark[96];

	if (!link_full_saves(b, &value, e))
		return false;
	snprintf(remark, sizeof(remark), "lock inc");
	show(b, "a counter behind full saves", remark);
	site->gated = false;
	site_turn(site);
	if (*value != calls_made - made)
		dinst_fail(e, DINST_FAILED, "full saves counted %llu of %llu",
			   (unsigned long long)*value, (unsigned long long)(calls_made - made));
	return *value == calls_made - made;
}

static bool remove_instance(struct bench *b, struct instance *instance, struct dinst_error *e)
{
	return removal_switch_off(b->session, instance, e) >= 0;
}

static bool run_states(struct bench *b, struct dinst_error *e)
{
	struct detach_result detached;
	struct instance *one, *two;
	struct site *site;
	bool good;

	show(b, "uninstrumented", "");
	if (session_attach(b->child.pid, "bench", &b->session, e) < 0 ||
	    (one = insert(b, e)) == NULL)
		return false;
	good = show_counted(b, "a counter", one);
	two = insert(b, e);
	if (two == NULL)
		return false;
	good &= show_counted(b, "two counters", two);
	/* Switched off and not yet flushed: the window leads to an empty base trampoline. */
	if (!remove_instance(b, one, e) || !remove_instance(b, two, e))
		return false;
	show(b, "jump only", "");
	site = only_site(b);
	if (site == NULL)
		return dinst_fail(e, DINST_FAILED, "the site is gone") == 0;
	one = insert(b, e);
	if (one == NULL)
		return false;
	one->links->live = arch_all_live;
	if (site_update(b->session, site, e) < 0)
		return false;
	good &= show_counted(b, "a counter, all registers in use", one);
	if (!remove_instance(b, one, e) || !show_full_saves(b, e))
		return false;
	if (session_detach(b->session, 5, &detached, e) < 0)
		return false;
	session_free(b->session);
	show(b, "after detach", "");
	return good;
}

/* ---------------------------------------------------------------- uprobe */

/* File offset of a function of ours: what the kernel wants to know. */
static bool file_offset(taddr_t address, char *path, size_t size, uint64_t *offset)
{
	char line[1024];
	FILE *maps = fopen("/proc/self/maps", "re");
	bool found = false;

	while (maps != NULL && !found && fgets(line, sizeof(line), maps) != NULL) {
		unsigned long lo, hi, at;
		char name[512];

		if (sscanf(line, "%lx-%lx %*s %lx %*s %*s %511s", &lo, &hi, &at, name) != 4 ||
		    address < lo || address >= hi)
			continue;
		snprintf(path, size, "%s", name);
		*offset = at + (address - lo);
		found = true;
	}
	if (maps != NULL)
		fclose(maps);
	return found;
}

/* On one CPU, in whatever runs this file: an event that threads inherit makes clone(2) fail at times. */
static int open_uprobe(int cpu, taddr_t address)
{
	struct perf_event_attr attr = {.size = sizeof(attr)};
	char path[512], text[32] = "";
	uint64_t offset;
	int fd = open("/sys/bus/event_source/devices/uprobe/type", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	if (read(fd, text, sizeof(text) - 1) <= 0)
		text[0] = '\0';
	close(fd);
	if (text[0] == '\0' || !file_offset(address, path, sizeof(path), &offset))
		return -1;
	attr.type = (uint32_t)atoi(text);
	attr.config1 = (uint64_t)(uintptr_t)path;
	attr.config2 = offset;
	return (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

static void show_uprobe(struct bench *b)
{
	taddr_t address = (taddr_t)(uintptr_t)(b->work ? &bench_work : &bench_empty);
	int fds[CPUS] = {-1, -1};

	for (int i = 0; i < CPUS; i++)
		fds[i] = open_uprobe(i, address);
	if (fds[0] < 0)
		printf("  %-34s  not available here\n", "kernel uprobe");
	else
		show(b, "kernel uprobe (perf)", "");
	for (int i = 0; i < CPUS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/*
 * fear D8: what a counter costs a call, and what more where two threads on CPUs of their own, and 64
 * on both, count at the same place, by CPU time; the counts are compared with the calls
 */
int main(void)
{
	static const struct {
		const char *focus, *title;
	} functions[] = {{"/Code/calls/bench_empty", "an empty function"},
			 {"/Code/calls/bench_work", "a function of some 10 ns"}};
	struct dinst_error e = {0};
	bool good = true;

	alarm(110);
	for (size_t i = 0; i < 2; i++) {
		struct bench b = {.work = i == 1, .focus = functions[i].focus};

		if (!start_child(&b.child))
			return 1;
		printf("%-36s  %27s  %29s  %29s\n", functions[i].title,
		       "1 thread: ns     more   ratio", "2 threads: ns     more   ratio",
		       "64 threads: ns    more   ratio");
		if (!run_states(&b, &e)) {
			fprintf(stderr, "calls: %s\n", e.code != 0 ? e.text : "a count was wrong");
			good = false;
		}
		show_uprobe(&b);
		kill(b.child.pid, SIGKILL);
		waitpid(b.child.pid, NULL, 0);
		dinst_error_clear(&e);
	}
	return good ? 0 : 1;
}
