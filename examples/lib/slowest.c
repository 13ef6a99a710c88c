/* SPDX-License-Identifier: MIT */
/*
 * slowest.c - which calls of a function took longest, with their arguments?
 *
 *   slowest redis-server processCommand [SECONDS]
 *
 * Records every call and return for some seconds and keeps the ten slowest.
 */
#include <dinst.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TOP = 10 };

struct call {
	uint64_t ns;
	uint32_t tid;
	char text[120];
};

struct calls {
	struct call top[TOP];
	uint64_t seen;
};

static int take(void *arg, const struct dinst_event *e)
{
	struct calls *c = arg;
	struct call *last = &c->top[TOP - 1];
	uint64_t took = 0;
	int i;

	if (strcmp(e->what, "return") != 0)
		return 0;
	c->seen++;
	for (size_t k = 0; k < e->field_count; k++)
		if (e->fields[k].role == DINST_ELAPSED)
			took = e->fields[k].value;
	if (took <= last->ns)
		return 0;
	last->ns = took;
	last->tid = e->tid;
	snprintf(last->text, sizeof(last->text), "%s", e->function);
	for (i = TOP - 1; i > 0 && c->top[i - 1].ns < c->top[i].ns; i--) {
		struct call other = c->top[i];

		c->top[i] = c->top[i - 1];
		c->top[i - 1] = other;
	}
	return 0;
}

int main(int argc, char **argv)
{
	const char *functions[2] = {argc > 2 ? argv[2] : NULL, NULL};
	int rounds = (argc > 3 ? atoi(argv[3]) : 5) * 50;
	const struct timespec pause = {0, 20000000};
	struct dinst_failure f = {0, ""};
	struct calls c = {{{0, 0, ""}}, 0};
	struct dinst_instances *in = NULL;
	struct dinst *d = NULL;
	uint64_t dropped = 0;

	if (argc < 3) {
		fprintf(stderr, "usage: slowest TARGET FUNCTION [SECONDS]\n");
		return 2;
	}
	if (dinst_open(&d, NULL, DINST_START, &f) == 0 &&
	    dinst_attach(d, argv[1], NULL, DINST_HOLD, NULL, &f) == 0 &&
	    dinst_trace(d, argv[1], functions, DINST_RETURNS | DINST_HOLD, &in, &f) == 0)
		while (rounds-- > 0 &&
		       dinst_events(d, argv[1], &in->row[0]->id, 1, take, &c, &dropped, &f) == 0)
			nanosleep(&pause, NULL);
	dinst_instances_free(in);
	dinst_close(d);
	if (f.code) {
		fprintf(stderr, "slowest: %s\n", f.text);
		return 1;
	}
	printf("%llu calls, %llu events dropped\n", (unsigned long long)c.seen,
	       (unsigned long long)dropped);
	for (int i = 0; i < TOP && c.top[i].ns; i++)
		printf("%10.3f ms  thread %u  %s\n", (double)c.top[i].ns / 1e6, c.top[i].tid,
		       c.top[i].text);
	return 0;
}
