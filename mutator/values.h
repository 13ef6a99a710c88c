/* SPDX-License-Identifier: MIT */
/*
 * values.h - what instances are worth, as JSON for the daemon.
 *
 *   values_row()     all there is to know of one instance now, for `read`
 *   values_sample()  the few numbers that change, for histories
 *
 * Nothing here stops the target, nor changes more there than which keys have a place in a vector's table.
 */
#ifndef DINST_MUTATOR_VALUES_H
#define DINST_MUTATOR_VALUES_H

#include <jansson.h>

#include "mutator/core.h"

/*
 * A new object: id, metric, focus, value, unit, aggregate, style, units_type;
 * of distributions count, sum, min, max, p50, p90, p99, p999, buckets (lists of
 * lo, hi, count, with lo <= v < hi); of vectors elements, the largest first,
 * and full; `verbose`: predicted_ns, hits, cost_ns_per_s.
 */
int values_row(struct instance *i, bool verbose, json_t **row, struct dinst_error *e);

/*
 * For one that has only just begun, as one more name for what is there: what runs
 * already in a vector of timers is none of its business either.
 */
int values_keep_running(struct instance *i, struct dinst_error *e);

/*
 * For one whose code was switched off just now, perhaps in the middle of what it measures: its timers are
 * never stopped any more, and are worth from then on what they are worth now.
 */
void values_stand_still(struct instance *i);

/* What was told last, for values_sample(). All zeros at first. */
struct values_seen {
	struct values_told {
		unsigned id;
		int64_t value;
	} * told; /* by id */
	size_t count;
};

/*
 * A new object for histories: `rows`, [id, value] of each instance whose value is
 * not what was told last, and before its first one an object in `new` with id,
 * metric, focus, unit, style, units_type; in `gone` the ids of those that were
 * told and are no more; `count`: how many instances there are.
 */
int values_sample(struct session *s, struct values_seen *seen, json_t **result,
		  struct dinst_error *e);
void values_seen_release(struct values_seen *seen);

#endif
