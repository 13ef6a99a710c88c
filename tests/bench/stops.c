/* SPDX-License-Identifier: MIT */
/*
 * stops.c - how long a target stands still while 1, 100 and 10,000 points are
 * put in and taken out again.
 *
 * The target is a child of ours that runs all of them in four threads, one of
 * which sleeps. Prints the median and the worst of some rounds.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mutator/core.h"
#include "tests/bench/many.h"

enum { ROUNDS = 9, THREADS = 4 };

static atomic_uint result;

static void *child_main(void *arg)
{
	bool lazy = arg != NULL;

	for (;;) {
		unsigned x = 1;

		for (size_t i = 0; i < MANY_COUNT; i++)
			x = many[i](x);
		result += x;
		usleep(lazy ? 50000 : 500);
	}
	return NULL;
}

static pid_t start_child(void)
{
	pid_t pid = fork();
	pthread_t thread;

	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(120);
	for (int i = 1; i < THREADS; i++)
		pthread_create(&thread, NULL, child_main, i == 1 ? &thread : NULL);
	child_main(NULL);
	_exit(0);
}

static int by_size(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

struct samples {
	uint64_t ns[ROUNDS];
	size_t count;
};

static void show(const char *what, size_t points, struct samples *s)
{
	qsort(s->ns, s->count, sizeof(s->ns[0]), by_size);
	printf("  %-8s %6zu points  median %8.3f ms  worst %8.3f ms  (%.2f us a point)\n", what,
	       points, (double)s->ns[s->count / 2] / 1e6, (double)s->ns[s->count - 1] / 1e6,
	       (double)s->ns[s->count / 2] / 1e3 / (double)points);
}

static int one_round(struct session *s, const char *focus, size_t *points, struct samples *in,
		     struct samples *out, struct dinst_error *e)
{
	struct insert_result inserted;
	struct flush_result flushed = {0};
	size_t pending;
	int status = request_insert(s, "calls", &focus, 1, NULL, &inserted, e);

	if (status < 0)
		return status;
	instance_points(inserted.instances[0], points, &pending);
	in->ns[in->count++] = inserted.stop_ns;
	free(inserted.instances);
	usleep(20000);
	status = removal_switch_off(s, s->instances, e);
	if (status < 0)
		return status;
	status = removal_flush(s, &flushed, e);
	out->ns[out->count++] = flushed.stop_ns;
	/* What a thread was in is freed later, outside of what is measured. */
	for (int i = 0; status >= 0 && flushed.queued != 0 && i < 100; i++) {
		usleep(10000);
		status = removal_flush(s, &flushed, e);
	}
	return status;
}

static int measure(struct session *s, const char *focus, struct dinst_error *e)
{
	struct samples in = {0}, out = {0};
	size_t points = 0;

	for (int round = 0; round < ROUNDS; round++) {
		int status = one_round(s, focus, &points, &in, &out, e);

		if (status < 0)
			return status;
	}
	show("insert", points, &in);
	show("flush", points, &out);
	return 0;
}

int main(void)
{
	static const char *const foci[] = {"/Code/stops/many_0000", "/Code/stops/many_00*",
					   "/Code/stops/many_*"};
	struct dinst_error e = {0};
	struct detach_result detached;
	struct session *s;
	pid_t child = start_child();
	int status;

	usleep(200000);
	printf("length of the stop, a target of %d threads that runs all of the points:\n",
	       THREADS);
	status = session_attach(child, "bench", &s, &e);
	for (size_t i = 0; status >= 0 && i < sizeof(foci) / sizeof(foci[0]); i++)
		status = measure(s, foci[i], &e);
	if (status >= 0)
		status = session_detach(s, 5, &detached, &e);
	if (status < 0)
		fprintf(stderr, "stops: %s\n", e.text);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return status < 0 ? 1 : 0;
}
