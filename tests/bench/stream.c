/* SPDX-License-Identifier: MIT */
/*
 * stream.c - what an event costs where events come a million times a second: two
 * threads of a child of ours call a function of about a microsecond, with nothing
 * inserted, with an event at each entry and each return, and with a string in it, while we
 * collect as a mutator does. CPU time per call, and how much was kept.
 */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mutator/stream.h"
#include "mutator/variable.h"
#include "tests/bench/measure.h"

enum { THREADS = 2, CALLS = 100000, ROUNDS = 5, SPIN = 900 };

static const char text[] =
	"list subject is procedure { items { \"stream:bench_subject\" }; }\n"
	"metric one { base is stream { foreach f in subject\n"
	"	append preInsn f.entry (* record(one, $arg[0], $arg[1]); *) } }\n"
	"metric both { base is stream { foreach f in subject {\n"
	"	append preInsn f.entry (* record(both, $arg[0], $arg[1]); *)\n"
	"	append preInsn f.return (* record(both, $return); *) } } }\n"
	"metric string { base is stream { foreach f in subject\n"
	"	append preInsn f.entry (* record(string, $arg[0], string($arg[1], 32)); *) } }\n";

__attribute__((noinline)) uint64_t bench_subject(uint64_t x, const char *name);

uint64_t bench_subject(uint64_t x, const char *name)
{
	__asm__ volatile("" : "+r"(name));
	for (int i = 0; i < SPIN; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		__asm__ volatile("" : "+r"(x));
	}
	return x;
}

/* --------------------------------------------------------------- the child */

static void *work(void *arg)
{
	const char *volatile name = "a name of somebody"; /* no reason for a clone of its own */
	struct timespec before, after;
	uint64_t x = 1;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
	for (int i = 0; i < CALLS; i++)
		x = bench_subject(x, name);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
	*(double *)arg = (double)(after.tv_sec - before.tv_sec) * 1e9 +
			 (double)(after.tv_nsec - before.tv_nsec) + (x == 0);
	return NULL;
}

static void child(int orders, int answers)
{
	char order;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(orders, &order, 1) == 1) {
		pthread_t threads[THREADS];
		double ns[THREADS], sum = 0;

		for (unsigned i = 0; i < THREADS; i++)
			if (pthread_create(&threads[i], NULL, work, &ns[i]))
				_exit(1);
		for (unsigned i = 0; i < THREADS; i++) {
			pthread_join(threads[i], NULL);
			sum += ns[i];
		}
		sum /= (double)THREADS * CALLS;
		if (write(answers, &sum, sizeof(sum)) != sizeof(sum))
			break;
	}
	_exit(0);
}

/* -------------------------------------------------------------- the parent */

struct bench {
	struct session *session;
	int orders, answers;
	uint64_t kept, dropped;
};

static void collect(struct bench *b)
{
	struct dinst_error e = {0};
	struct stream_taken taken;
	json_t *threads;

	stream_collect(b->session);
	if (stream_take(b->session, NULL, 0, 8 << 20, &taken, &threads, &e) < 0)
		return;
	json_decref(threads);
	json_decref(taken.places);
	for (size_t at = 0; at < taken.size; b->kept++)
		at += ((const struct arch_record *)(const void *)(taken.data + at))->size;
	if (taken.data)
		b->dropped = taken.dropped;
	free(taken.data);
}

/* CPU time per call while we collect every millisecond. */
static double measure(struct bench *b)
{
	struct timespec pause = {0, 1000000};
	fd_set set;
	double ns = 0;

	if (write(b->orders, "x", 1) != 1)
		exit(1);
	for (;;) {
		struct timeval none = {0, 0};

		FD_ZERO(&set);
		FD_SET(b->answers, &set);
		if (select(b->answers + 1, &set, NULL, NULL, &none) > 0)
			break;
		collect(b);
		nanosleep(&pause, NULL);
	}
	if (read(b->answers, &ns, sizeof(ns)) != sizeof(ns))
		exit(1);
	collect(b);
	return ns;
}

static double with_metric(struct bench *b, const char *metric, struct dinst_error *e)
{
	struct insert_result r = {0};
	double ns;

	if (metric && request_insert(b->session, metric, NULL, 0, NULL, &r, e) < 0) {
		fprintf(stderr, "%s: %s\n", metric, e->text);
		exit(1);
	}
	free(r.instances);
	ns = measure(b);
	if (measure_leave(b->session, e) < 0) {
		fprintf(stderr, "%s\n", e->text);
		exit(1);
	}
	return ns;
}

int main(void)
{
	static const char *const metrics[] = {NULL, "one", "both", "string"};
	static const char *const titles[] = {"nothing", "an event at the entry",
					     "events at entry and return",
					     "an event with a string"};
	enum { STATES = sizeof(metrics) / sizeof(*metrics) };
	double ns[STATES][ROUNDS];
	uint64_t kept[STATES] = {0}, dropped[STATES] = {0};
	struct dinst_error e = {0};
	int orders[2], answers[2];
	struct bench b = {0};
	pid_t pid;

	if (pipe(orders) || pipe(answers))
		return 1;
	pid = fork();
	if (!pid)
		child(orders[0], answers[1]);
	b.orders = orders[1];
	b.answers = answers[0];
	if (pid < 0 || session_attach(pid, "stream", &b.session, &e) < 0 ||
	    session_load_mdl(b.session, "bench.mdl", text, strlen(text), &e) < 0) {
		fprintf(stderr, "%s\n", e.text);
		return 1;
	}
	for (unsigned round = 0; round < ROUNDS; round++)
		for (unsigned n = 0; n < STATES; n++) {
			const uint64_t had = b.dropped;

			b.kept = 0;
			ns[n][round] = with_metric(&b, metrics[n], &e);
			kept[n] += b.kept;
			dropped[n] += b.dropped - had;
		}
	printf("events of a function in two threads       ns a call   more   kept of\n");
	for (unsigned n = 0; n < STATES; n++)
		printf("  %-38s %9.0f %6.0f %6.1f %%\n", titles[n], measure_median(ns[n], ROUNDS),
		       measure_median(ns[n], ROUNDS) - measure_median(ns[0], ROUNDS),
		       kept[n] + dropped[n]
			       ? 100.0 * (double)kept[n] / (double)(kept[n] + dropped[n])
			       : 100.0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	session_free(b.session);
	return 0;
}
