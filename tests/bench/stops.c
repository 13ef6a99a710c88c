/* SPDX-License-Identifier: MIT */
/*
 * stops.c - how long a target stands still: the distribution over a thousand
 * stops that do nothing, and over as many that put 10,000 points in or take
 * them out again, with 4, 16 and 500 threads.
 *
 * The target is a child of ours whose threads run all of the points, three of
 * them most of the time, the others every now and then. Empty stops and those
 * that work take turns, since the machine is never the same for long.
 *
 * A virtual machine's processors are taken away now and then, for longer than most stops take. Where
 * the kernel tells of it (steal in /proc/stat, in steps of 10 ms), a second line is about those stops
 * for whose rounds it told of none.
 *
 *   stops [--judge] [ROUNDS]
 *
 * With --judge, for a machine with two processors and nothing else to do, the exit
 * status is 1 if a stop of 500 threads with 10,000 points takes longer than 80 ms,
 * or coming and going with 16 threads longer than 5 ms more often than once in a hundred
 * times, disturbed or not.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mutator/core.h"
#include "tests/bench/many.h"

enum { STOPS = 1000, BUSY = 3, STACK = 65536, LAZY_US = 200000, BUSY_US = 500 };

/* What is judged: stops of MANY_THREADS with all points, and of coming and going with FEW_THREADS. */
enum { MANY_THREADS = 500, MANY_MS = 80, FEW_THREADS = 16, FEW_MS = 5 };

static unsigned too_long; /* lines of the table that break these */

static atomic_uint result;
static atomic_int begun;

static void *child_main(void *arg)
{
	bool lazy = arg != NULL;

	begun++;
	for (;;) {
		unsigned x = 1;

		if (lazy)
			usleep(LAZY_US);
		for (size_t i = 0; i < MANY_COUNT; i++)
			x = many[i](x);
		result += x;
		if (!lazy)
			usleep(BUSY_US);
	}
	return NULL;
}

/* Returns when all threads are there. */
static pid_t start_child(int threads, int busy)
{
	pthread_attr_t attributes;
	pthread_t thread;
	char byte = 0;
	int fds[2];
	pid_t pid;

	if (pipe(fds))
		return -1;
	fflush(NULL);
	pid = fork();
	if (pid != 0) {
		close(fds[1]);
		if (read(fds[0], &byte, 1) != 1)
			fprintf(stderr, "stops: the target does not start\n");
		close(fds[0]);
		return pid;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(1800);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK);
	for (int i = 1; i < threads; i++)
		if (pthread_create(&thread, &attributes, child_main, i < busy ? NULL : &thread))
			_exit(2);
	while (begun < threads - 1)
		usleep(1000);
	if (write(fds[1], &byte, 1) != 1)
		_exit(2);
	child_main(NULL);
	_exit(0);
}

static int by_size(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

struct lengths {
	uint64_t ns[STOPS];
	size_t count;
};

struct samples {
	struct lengths all, undisturbed;
};

/* Ticks for which this machine's processors were somebody else's: proc_stat(5), the eighth of "cpu". */
static unsigned long long stolen_ticks(void)
{
	unsigned long long stolen = 0;
	FILE *stat = fopen("/proc/stat", "re");

	if (stat && fscanf(stat, "cpu %*u %*u %*u %*u %*u %*u %*u %llu", &stolen) != 1)
		stolen = 0;
	if (stat)
		fclose(stat);
	return stolen;
}

static double part(const struct lengths *l, size_t percent)
{
	return (double)l->ns[(l->count - 1) * percent / 100] / 1e6;
}

static void show_line(const char *what, int threads, struct lengths *l)
{
	if (!l->count)
		return;
	qsort(l->ns, l->count, sizeof(l->ns[0]), by_size);
	printf("  %4d threads  %-26s %5zu stops  %8.2f %8.2f %8.2f %8.2f %8.2f\n", threads, what,
	       l->count, part(l, 0), part(l, 50), part(l, 90), part(l, 99), part(l, 100));
}

static void show(const char *what, int threads, struct samples *s)
{
	const bool disturbed = s->undisturbed.count != s->all.count;

	show_line(what, threads, &s->all);
	if (disturbed)
		show_line("  undisturbed", threads, &s->undisturbed);
}

/* Says so if a percentage of them took longer than it should. */
static void judge(const char *what, const struct samples *s, size_t percent, unsigned ms)
{
	const struct lengths *l = &s->all;

	if (l->count && part(l, percent) <= ms)
		return;
	too_long++;
	printf("  TOO LONG: %s, %zu %% of %zu stops: at most %u ms wanted\n", what, percent,
	       l->count, ms);
}

static void append(struct lengths *l, uint64_t ns)
{
	if (l->count < STOPS)
		l->ns[l->count++] = ns;
}

static void clear(struct samples *s)
{
	s->all.count = s->undisturbed.count = 0;
}

/* A stop since the last call. */
static void add(struct samples *s, uint64_t ns)
{
	static unsigned long long before;
	const unsigned long long stolen = stolen_ticks();

	append(&s->all, ns);
	if (stolen == before)
		append(&s->undisturbed, ns);
	before = stolen;
}

static int nothing(struct stop *stop, void *arg, struct dinst_error *e)
{
	(void)stop;
	(void)arg;
	(void)e;
	return 0;
}

/* Another stop where one was not had in time is none of ours: it is told as it took. */
static int empty_stop(struct session *s, struct samples *empty, struct dinst_error *e)
{
	struct stop_report report = {0};
	int status = target_stop(s->target, NULL, nothing, NULL, &report, e);

	if (status >= 0)
		add(empty, report.stop_ns);
	return status;
}

/* All of it in and out; the lengths of both stops. */
static int in_and_out(struct session *s, const char *focus, struct samples *in, struct samples *out,
		      struct dinst_error *e)
{
	struct insert_result inserted;
	struct flush_result flushed = {0};
	int status = request_insert(s, "calls", &focus, 1, NULL, &inserted, e);

	if (status < 0)
		return status;
	free(inserted.instances);
	add(in, inserted.stop_ns);
	status = removal_switch_off(s, s->instances, e);
	if (status < 0)
		return status;
	status = removal_flush(s, &flushed, e);
	if (status >= 0)
		add(out, flushed.stop_ns);
	/* What a thread was in is freed later, outside of what is measured. */
	for (int i = 0; status >= 0 && flushed.queued != 0 && i < 100; i++) {
		usleep(10000);
		status = removal_flush(s, &flushed, e);
	}
	return status;
}

/* Rounds of an empty stop, points in, points out. */
static int measure(int threads, int busy, const char *focus, const char *points, size_t rounds,
		   struct dinst_error *e)
{
	static struct samples empty, in, out;
	struct detach_result detached;
	struct session *s;
	pid_t child = start_child(threads, busy);
	char title[64];
	int status;

	clear(&empty);
	clear(&in);
	clear(&out);
	usleep(200000);
	status = session_attach(child, "bench", &s, e);
	for (size_t i = 0; status >= 0 && i < rounds; i++) {
		status = empty_stop(s, &empty, e);
		if (status >= 0)
			status = in_and_out(s, focus, &in, &out, e);
	}
	if (status >= 0)
		status = session_detach(s, 5, &detached, e);
	show("nothing", threads, &empty);
	snprintf(title, sizeof(title), "%s points in", points);
	show(title, threads, &in);
	snprintf(title, sizeof(title), "%s points out", points);
	show(title, threads, &out);
	if (threads == MANY_THREADS && busy == BUSY) {
		judge("points in", &in, 100, MANY_MS);
		judge("points out", &out, 100, MANY_MS);
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return status;
}

/*
 * What coming and going costs the target: a session of its own each time. One
 * that asks for nothing never stops it; a first point makes an arena, and
 * detaching takes it out: the longest stop of all these is what counts.
 */
static int measure_attach(int threads, size_t rounds, struct dinst_error *e)
{
	static struct samples stops;
	const char *focus = "/Code/stops/many_0000";
	struct insert_result inserted;
	struct detach_result detached;
	pid_t child = start_child(threads, BUSY);
	struct session *s;
	int status = 0;

	clear(&stops);
	usleep(200000);
	for (size_t i = 0; status >= 0 && i < rounds; i++) {
		status = session_attach(child, "bench", &s, e);
		if (status < 0)
			break;
		if (s->longest_stop_ns)
			fprintf(stderr, "stops: attaching alone has stopped the target\n");
		status = request_insert(s, "calls", &focus, 1, NULL, &inserted, e);
		if (status >= 0)
			free(inserted.instances);
		if (status >= 0)
			status = session_detach(s, 5, &detached, e);
		add(&stops, s->longest_stop_ns);
		session_free(s);
	}
	show("attach, 1 point, detach", threads, &stops);
	if (threads == FEW_THREADS)
		judge("attach, detach", &stops, 99, FEW_MS);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return status;
}

/*
 * fear K2: the distribution over 1,000 stops with 500 threads and 10,000 points, beside that of as many
 * empty stops, and of attaching and detaching alone with 16 threads; over fewer with other numbers
 */
int main(int argc, char **argv)
{
	const bool judged = argc > 1 && strcmp(argv[1], "--judge") == 0;
	const size_t wanted = argc > 1 + judged ? strtoul(argv[1 + judged], NULL, 10) : STOPS;
	const size_t rounds = wanted < STOPS ? wanted : STOPS;
	static const char *const all = "/Code/stops/many_*";
	struct dinst_error e = {0};
	int status;

	printf("length of stops in ms:                                     min      p50      p90      "
	       "p99      max\n");
	status = measure(4, BUSY, "/Code/stops/many_0000", "1", rounds, &e);
	if (status >= 0)
		status = measure(4, BUSY, "/Code/stops/many_00*", "100", rounds, &e);
	if (status >= 0)
		status = measure(4, BUSY, all, "10,000", rounds / 10, &e);
	if (status >= 0)
		status = measure_attach(FEW_THREADS, rounds, &e);
	if (status >= 0)
		status = measure(FEW_THREADS, BUSY, all, "10,000", rounds / 2, &e);
	if (status >= 0)
		status = measure_attach(MANY_THREADS, rounds / 10, &e);
	if (status >= 0)
		status = measure(MANY_THREADS, BUSY, all, "10,000", rounds, &e);
	/* As bad as it gets: everybody waits for a CPU, and has to get one to stop. */
	printf("the same where all threads run all the time:\n");
	if (status >= 0)
		status = measure(MANY_THREADS, MANY_THREADS, all, "10,000", rounds / 20, &e);
	if (status < 0)
		fprintf(stderr, "stops: %s\n", e.text);
	return status < 0 || (judged && too_long) ? 1 : 0;
}
