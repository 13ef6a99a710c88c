/* SPDX-License-Identifier: MIT */
/*
 * instrument.c - instruments a running process by hand, for trying things out:
 * every entry, exit and call point of the given resources, in and out in turn.
 *
 *   instrument PID KINDS ROUNDS MILLISECONDS RESOURCE...
 *
 * KINDS is any of the letters e (entry), x (exit), c (call). Each round inserts,
 * waits (until the process ends, at the longest), prints what was counted, and
 * removes; at the end everything is detached.
 * Exits with 1 if anything failed or was left.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mutator/core.h"

static const struct metric metrics[] = {
	{.name = "e", .unit = "entries", .constraints = "/Code", .kind = POINT_ENTRY},
	{.name = "x", .unit = "exits", .constraints = "/Code", .kind = POINT_EXIT},
	{.name = "c", .unit = "calls", .constraints = "/Code", .kind = POINT_CALL},
};

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int insert_kind(struct session *s, const struct metric *m, char **foci, size_t count,
		       struct dinst_error *e)
{
	struct insert_result r;
	double start = now_ms();
	int status = request_insert_metric(s, m, (const char *const *)foci, count, false, &r, e);

	for (size_t i = 0; status >= 0 && i < r.count; i++) {
		size_t points, pending;

		instance_points(r.instances[i], &points, &pending);
		printf("%s %s: %zu points, %zu refused, %zu pending, %.0f ms, stopped %.3f ms\n",
		       m->name, r.instances[i]->focus, points, r.instances[i]->refused_count,
		       pending, now_ms() - start, (double)r.stop_ns / 1e6);
	}
	if (status >= 0)
		free(r.instances);
	return status;
}

static int one_round(struct session *s, const char *kinds, unsigned ms, char **foci, size_t count,
		     struct dinst_error *e)
{
	struct flush_result flush = {0};
	int status = 0;

	for (size_t k = 0; status >= 0 && k < sizeof(metrics) / sizeof(metrics[0]); k++)
		if (strchr(kinds, metrics[k].name[0]))
			status = insert_kind(s, &metrics[k], foci, count, e);
	for (unsigned t = 0; status >= 0 && t < ms && kill(s->pid, 0) == 0; t += 50) {
		usleep(50000);
		request_retry_pending(s);
	}
	for (const struct instance *i = s->instances; i; i = i->next)
		printf("  %s %s = %llu\n", i->metric->name, i->focus,
		       (unsigned long long)instance_value(i));
	while (status >= 0 && s->instances)
		status = removal_switch_off(s, s->instances, e);
	if (status >= 0)
		status = removal_flush(s, &flush, e);
	printf("removed: %zu freed, %zu queued, stopped %.3f ms\n", flush.freed, flush.queued,
	       (double)flush.stop_ns / 1e6);
	return status;
}

int main(int argc, char **argv)
{
	struct dinst_error e = {0};
	struct detach_result detached = {0};
	struct session *s;
	int status;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 6) {
		fprintf(stderr, "usage: instrument PID KINDS ROUNDS MILLISECONDS RESOURCE...\n");
		return 2;
	}
	status = session_attach(atoi(argv[1]), "instrument", &s, &e);
	if (status < 0) {
		fprintf(stderr, "instrument: %s\n", e.text);
		return 1;
	}
	for (int round = 0; status >= 0 && round < atoi(argv[3]); round++)
		status = one_round(s, argv[2], (unsigned)atoi(argv[4]), argv + 5,
				   (size_t)(argc - 5), &e);
	if (status < 0)
		fprintf(stderr, "instrument: %s\n", e.text);
	e.code = 0;
	if (s->state != SESSION_EXITED && session_detach(s, 10, &detached, &e) < 0)
		fprintf(stderr, "instrument: %s\n", e.text);
	printf("detached: %zu left, stopped %.3f ms\n", detached.left,
	       (double)detached.stop_ns / 1e6);
	session_free(s);
	return status < 0 || detached.left ? 1 : 0;
}
