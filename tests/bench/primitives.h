/* SPDX-License-Identifier: MIT */
/*
 * primitives.h - the target of primitives.c, a fork of it, and what others make of
 * the same function: the kernel's uprobes, bare, and as bpftrace uses them.
 *
 * Not a library: functions of one program, in two files for its length.
 */
#ifndef DINST_TESTS_BENCH_PRIMITIVES_H
#define DINST_TESTS_BENCH_PRIMITIVES_H

#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __clang__
#define PRIMITIVE __attribute__((noinline, used, aligned(16)))
#else
#define PRIMITIVE __attribute__((noinline, noclone, used, aligned(16)))
#endif

PRIMITIVE uint64_t primitive_subject(uint64_t *x);
PRIMITIVE uint64_t primitive_inside(uint64_t calls);
PRIMITIVE uint64_t primitive_outside(uint64_t calls);

uint64_t primitive_subject(uint64_t *x)
{
	__asm__ volatile("" : "+r"(x));
	return (uint64_t)(uintptr_t)x;
}

/* Two of the same, so that a flag can be true in one of them. */
uint64_t primitive_inside(uint64_t calls)
{
	uint64_t word = 1, sum = 0;

	for (uint64_t i = 0; i < calls; i++)
		sum += primitive_subject(&word);
	return sum;
}

uint64_t primitive_outside(uint64_t calls)
{
	uint64_t word = 2, sum = 0;

	for (uint64_t i = 0; i < calls; i++)
		sum += primitive_subject(&word);
	return sum ^ 1;
}

struct primitive_order {
	bool inside;
	unsigned threads;
	uint64_t calls; /* in each of them */
};

struct primitive_runner {
	pthread_t thread;
	const struct primitive_order *order;
	pthread_barrier_t *start;
	unsigned cpu;
	double ns;
};

/* Of the thread's own: others on the same CPU do not count, waiting for a line of memory does. */
static uint64_t primitive_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *primitive_run(void *arg)
{
	struct primitive_runner *r = arg;
	const uint64_t calls = r->order->calls;
	uint64_t begin;
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(r->cpu, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	pthread_barrier_wait(r->start);
	begin = primitive_now();
	if (r->order->inside)
		primitive_inside(calls);
	else
		primitive_outside(calls);
	r->ns = (double)(primitive_now() - begin) / (double)calls;
	return NULL;
}

static double primitive_carry_out(const struct primitive_order *order)
{
	struct primitive_runner runners[2];
	pthread_barrier_t start;
	double ns = 0;

	pthread_barrier_init(&start, NULL, order->threads);
	for (unsigned i = 0; i < order->threads; i++) {
		runners[i] = (struct primitive_runner){.order = order, .start = &start, .cpu = i};
		if (pthread_create(&runners[i].thread, NULL, primitive_run, &runners[i]) != 0)
			_exit(1);
	}
	for (unsigned i = 0; i < order->threads; i++) {
		pthread_join(runners[i].thread, NULL);
		ns += runners[i].ns / order->threads;
	}
	pthread_barrier_destroy(&start);
	return ns;
}

struct primitive_child {
	pid_t pid;
	int in, out;
	uint64_t calls; /* made in all */
};

static void primitive_main(int in, int out)
{
	struct primitive_order order;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(in, &order, sizeof(order)) == (ssize_t)sizeof(order)) {
		double ns = primitive_carry_out(&order);

		if (write(out, &ns, sizeof(ns)) != (ssize_t)sizeof(ns))
			break;
	}
	_exit(0);
}

static inline bool primitive_start(struct primitive_child *c)
{
	int in[2], out[2];

	if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
		return false;
	fflush(stdout);
	c->pid = fork();
	if (c->pid == 0)
		primitive_main(in[0], out[1]);
	c->in = in[1];
	c->out = out[0];
	return c->pid > 0;
}

static inline double primitive_ask(struct primitive_child *c, bool inside, unsigned threads,
				   uint64_t calls)
{
	const struct primitive_order order = {inside, threads, calls};
	double ns;

	if (write(c->in, &order, sizeof(order)) != (ssize_t)sizeof(order) ||
	    read(c->out, &ns, sizeof(ns)) != (ssize_t)sizeof(ns)) {
		fprintf(stderr, "primitives: the child is gone\n");
		exit(1);
	}
	c->calls += calls * threads;
	return ns;
}

/* ------------------------------------------------------------------ peers */

/* Where the file has the function; the kernel wants it so. */
static inline bool primitive_offset(char *path, size_t size, uint64_t *offset)
{
	const uintptr_t address = (uintptr_t)&primitive_subject;
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[1024], name[512];
	bool found = false;

	while (maps && !found && fgets(line, sizeof(line), maps)) {
		unsigned long lo, hi, at;

		if (sscanf(line, "%lx-%lx %*s %lx %*s %*s %511s", &lo, &hi, &at, name) != 4 ||
		    address < lo || address >= hi)
			continue;
		snprintf(path, size, "%s", name);
		*offset = at + (address - lo);
		found = true;
	}
	if (maps)
		fclose(maps);
	return found;
}

/* A counting event on the function, on one CPU; -1 where that cannot be had. */
static inline int primitive_uprobe(int cpu, bool at_return)
{
	struct perf_event_attr attr = {.size = sizeof(attr)};
	int fd = open("/sys/bus/event_source/devices/uprobe/type", O_RDONLY | O_CLOEXEC);
	char path[512], number[32] = "";
	uint64_t offset;

	if (fd < 0)
		return -1;
	if (read(fd, number, sizeof(number) - 1) <= 0)
		number[0] = '\0';
	close(fd);
	if (!number[0] || !primitive_offset(path, sizeof(path), &offset))
		return -1;
	attr.type = (uint32_t)atoi(number);
	attr.config = at_return; /* bit 0: PERF_PROBE_CONFIG_IS_RETPROBE */
	attr.config1 = (uint64_t)(uintptr_t)path;
	attr.config2 = offset;
	return (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

static inline void primitive_show_peer(struct primitive_child *c, const char *title, double plain)
{
	const double ns = primitive_ask(c, false, 1, 20000);

	printf("  %-38s %10.2f %+10.2f\n", title, ns, ns - plain);
	fflush(stdout);
}

static inline void primitive_perf(struct primitive_child *c, bool at_return, double plain)
{
	int fds[2] = {primitive_uprobe(0, at_return), primitive_uprobe(1, at_return)};
	const char *title = at_return ? "uretprobe, counted (perf)" : "uprobe, counted (perf)";

	if (fds[0] < 0)
		printf("  %-38s not to be had here\n", title);
	else
		primitive_show_peer(c, title, plain);
	for (int i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/* Runs bpftrace with a program in which FUNCTION stands for ours. */
static inline void primitive_bpftrace(struct primitive_child *c, const char *title,
				      const char *program, double plain)
{
	char text[2048], function[600], path[512];
	uint64_t offset;
	size_t used = 0;
	int out[2];
	pid_t pid;

	if (!primitive_offset(path, sizeof(path), &offset) || pipe2(out, O_CLOEXEC) != 0)
		return;
	snprintf(function, sizeof(function), "%s:primitive_subject", path);
	for (const char *p = program; *p && used < sizeof(text) - sizeof(function); p++)
		if (*p == '@' && p[1] == '@')
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s",
						 (p++, function));
		else
			text[used++] = *p;
	text[used] = '\0';
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(out[1], 1);
		dup2(out[1], 2);
		execlp("bpftrace", "bpftrace", "-e", text, (char *)NULL);
		_exit(127);
	}
	close(out[1]);
	/* It takes a while to attach, and ends at once where it cannot. */
	if (pid > 0)
		sleep(3);
	if (pid > 0 && waitpid(pid, NULL, WNOHANG) == 0) {
		primitive_show_peer(c, title, plain);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	} else {
		printf("  %-38s not to be had here\n", title);
	}
	close(out[0]);
}

static inline void primitive_peers(struct primitive_child *c)
{
	const double plain = primitive_ask(c, false, 1, 1000000);

	printf("the same function by the kernel's probes\n");
	primitive_show_peer(c, "uninstrumented", plain);
	primitive_perf(c, false, plain);
	primitive_perf(c, true, plain);
	primitive_bpftrace(c, "bpftrace: count", "uprobe:@@ { @ = count(); }", plain);
	primitive_bpftrace(c, "bpftrace: histogram of an argument",
			   "uprobe:@@ { @ = lhist(arg0, 0, 1000, 10); }", plain);
	primitive_bpftrace(c, "bpftrace: latency histogram",
			   "uprobe:@@ { @s[tid] = nsecs; } "
			   "uretprobe:@@ /@s[tid]/ { @ = hist(nsecs - @s[tid]); delete(@s[tid]); }",
			   plain);
}

#endif
