/* SPDX-License-Identifier: MIT */
/*
 * measure.h - measuring a target in several states in turn, for the programs of
 * tests/bench.
 *
 * The machine is never the same for long. So states are not measured one after
 * the other but in rounds: each round goes through all states, and what is
 * shown is the median of the rounds, of costs and of differences within a round.
 */
#ifndef DINST_TESTS_BENCH_MEASURE_H
#define DINST_TESTS_BENCH_MEASURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mutator/core.h"

enum { MEASURE_ROUNDS_MAX = 32, MEASURE_STATES_MAX = 8 };

/* What is inserted: one letter a kind, e x c a b as in tests/tools/instrument.c. */
struct measure_state {
	const char *title;
	const char *kinds; /* "" for nothing */
	bool jump_only;	   /* inserted and switched off again: only the way there and back */
	const char *foci[4];
};

struct measure_table {
	double value[MEASURE_STATES_MAX][MEASURE_ROUNDS_MAX];
	unsigned rounds;
};

static const struct raw_metric measure_metrics[] = {
	{.name = "e", .unit = "", .constraints = "/Code", .kind = POINT_ENTRY},
	{.name = "x", .unit = "", .constraints = "/Code", .kind = POINT_EXIT},
	{.name = "c", .unit = "", .constraints = "/Code", .kind = POINT_CALL},
	{.name = "a", .unit = "", .constraints = "/Code", .kind = POINT_AFTER},
	{.name = "b", .unit = "", .constraints = "/Code", .kind = POINT_BLOCK},
};

static inline size_t measure_foci(const struct measure_state *state)
{
	size_t count = 0;

	while (count < 4 && state->foci[count])
		count++;
	return count;
}

/* Puts the state in. *points is the number of points that are counted now. */
static inline int measure_enter(struct session *s, const struct measure_state *state,
				size_t *points, struct dinst_error *e)
{
	struct insert_result r;
	int status = 0;

	*points = 0;
	for (size_t k = 0; status >= 0 && k < sizeof(measure_metrics) / sizeof(measure_metrics[0]);
	     k++) {
		if (!strchr(state->kinds, measure_metrics[k].name[0]))
			continue;
		status = request_insert_raw(s, &measure_metrics[k], state->foci,
					    measure_foci(state), false, &r, e);
		for (size_t i = 0; status >= 0 && i < r.count; i++) {
			size_t counting, pending;

			instance_points(r.instances[i], &counting, &pending);
			*points += counting;
		}
		if (status >= 0)
			free(r.instances);
	}
	while (status >= 0 && state->jump_only && s->instances)
		status = removal_switch_off(s, s->instances, e);
	return status;
}

/* All out again, and the original code runs. */
static inline int measure_leave(struct session *s, struct dinst_error *e)
{
	struct flush_result flush = {0};
	int status = 0;

	while (status >= 0 && s->instances)
		status = removal_switch_off(s, s->instances, e);
	for (int tries = 0; status >= 0 && tries < 100; tries++) {
		status = removal_flush(s, &flush, e);
		if (!flush.queued)
			break;
		usleep(2000);
	}
	if (status >= 0 && flush.queued)
		status = dinst_fail(e, DINST_FAILED, "%zu things stay queued", flush.queued);
	return status;
}

static inline int measure_by_size(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static inline double measure_median(const double *values, unsigned count)
{
	double sorted[MEASURE_ROUNDS_MAX];

	memcpy(sorted, values, count * sizeof(double));
	qsort(sorted, count, sizeof(double), measure_by_size);
	return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

static inline double measure_of(const struct measure_table *t, unsigned state)
{
	return measure_median(t->value[state], t->rounds);
}

/* The median over the rounds of one state minus another, or divided by it. */
static inline double measure_more(const struct measure_table *t, unsigned state, unsigned than)
{
	double values[MEASURE_ROUNDS_MAX];

	for (unsigned i = 0; i < t->rounds; i++)
		values[i] = t->value[state][i] - t->value[than][i];
	return measure_median(values, t->rounds);
}

static inline double measure_ratio(const struct measure_table *t, unsigned state, unsigned to)
{
	double values[MEASURE_ROUNDS_MAX];

	for (unsigned i = 0; i < t->rounds; i++)
		values[i] = t->value[state][i] / t->value[to][i];
	return measure_median(values, t->rounds);
}

/* A line for what is wanted: "at most". */
static inline void measure_want(const char *what, double is, double at_most, const char *unit)
{
	printf("  %-62s %6.2f %s, wanted at most %.2f: %s\n", what, is, unit, at_most,
	       is <= at_most ? "yes" : "NO");
}

#endif
