/* SPDX-License-Identifier: MIT */
/*
 * calls.c - how often is a function called, each second?
 *
 *   calls redis-server processCommand [SECONDS]
 *
 * Everything is held: if this program is killed, dinstd takes out what it inserted.
 */
#include <dinst.h>
#include <stdio.h>
#include <stdlib.h>

static int show(void *arg, const struct dinst_values *now, const struct dinst_values *before)
{
	int *left = arg;
	double seconds;

	if (!before)
		return 0;
	seconds = (double)(now->time_ns - before->time_ns) / 1e9;
	printf("%.0f calls, %.1f per second\n", now->row[0]->value,
	       (now->row[0]->value - before->row[0]->value) / seconds);
	fflush(stdout);
	return --*left <= 0;
}

int main(int argc, char **argv)
{
	int seconds = argc > 3 ? atoi(argv[3]) : 5;
	struct dinst_instances *in = NULL;
	struct dinst_failure f = {0, ""};
	const char *foci[2] = {NULL, NULL};
	char focus[300];
	struct dinst *d = NULL;

	if (argc < 3) {
		fprintf(stderr, "usage: calls TARGET FUNCTION [SECONDS]\n");
		return 2;
	}
	snprintf(focus, sizeof(focus), "/Code/*/%s", argv[2]);
	foci[0] = focus;
	if (dinst_open(&d, NULL, DINST_START, &f) == 0 &&
	    dinst_attach(d, argv[1], NULL, DINST_HOLD, NULL, &f) == 0 &&
	    dinst_insert(d, argv[1], "calls", foci, DINST_HOLD, 0, &in, &f) == 0)
		dinst_watch(d, argv[1], &in->row[0]->id, 1, 1000000000, show, &seconds, &f);
	if (f.code)
		fprintf(stderr, "calls: %s\n", f.text);
	dinst_instances_free(in);
	dinst_close(d);
	return f.code ? 1 : 0;
}
