/* SPDX-License-Identifier: MIT */
/*
 * variable_read.c - what variables are worth now. Reads memory only: shared
 * arenas through our own mapping, private ones and threads' records out of the
 * target. Nothing is stopped, and what the target wrote is never trusted: a
 * table of keys has as many places as we gave it.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/threads.h"
#include "mutator/variable.h"

enum { WORD = sizeof(uint64_t), JITTER_NS = 1000000 };

/* ----------------------------------------------------------------- totals */

/* Adds up elements [first, first + count) of a row over all places. */
static int read_totals(const struct variable *v, size_t first, size_t count, uint64_t *values,
		       struct dinst_error *e)
{
	uint64_t *some = calloc(count, sizeof(*some));

	if (!some)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory for %zu values", count);
	memset(values, 0, count * sizeof(*values));
	for (unsigned i = 0; i < v->place_count; i++) {
		heap_read_counters(v->in[i].place->heap, v->in[i].counter + WORD * first, count,
				   some);
		for (size_t k = 0; k < count; k++)
			values[k] += some[k];
	}
	free(some);
	return 0;
}

static uint64_t read_total(const struct variable *v, size_t number)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < v->place_count; i++)
		value += heap_read_counter(v->in[i].place->heap, v->in[i].counter + WORD * number);
	return value;
}

/* ----------------------------------------------------------------- timers */

static uint64_t in_ns(const struct variable *v, uint64_t units)
{
	return v->clock == ARCH_CLOCK_TICKS ? ticks_to_ns(units) : units;
}

/* True if the target has ended, whether that was noticed already or not. */
static bool is_gone(const struct session *s)
{
	struct pollfd end = {.fd = target_pidfd(s->target), .events = POLLIN};

	return s->state == SESSION_EXITED || s->state == SESSION_EXECED ||
	       s->state == SESSION_TAKEN || poll(&end, 1, 0) > 0;
}

/* A timer and its total. */
struct stopped {
	const struct variable *timer;
	uint64_t units;
};

static int read_stopped(void *arg, struct dinst_error *e)
{
	struct stopped *total = arg;

	(void)e;
	total->units = read_total(total->timer, 0);
	return 0;
}

/*
 * What runs is in memory of the target that goes with it: a timer that was
 * running when it ended has run until it was read last. Likewise one of a target
 * that may not be looked at any more, as far as anybody can tell.
 */
static int read_timer(struct session *s, struct variable *v, int64_t *out, struct dinst_error *e)
{
	const struct threads_timer timer = {v->record_offset, v->clock, v->only_pid, v->only_tid};
	struct stopped total = {.timer = v};
	uint64_t units = 0;
	bool denied;
	int64_t value;
	int status = 0;

	if (v->record_offset)
		status = threads_read_timer(s, &timer, read_stopped, &total, &units, e);
	denied = status == DINST_NOT_PERMITTED;
	if (status < 0 && !denied && !is_gone(s))
		return status;
	if (status < 0)
		dinst_error_clear(e);
	if (status < 0 || !v->record_offset) {
		units = 0;
		read_stopped(&total, e);
	}
	value = (int64_t)in_ns(v, total.units + units);
	/* Clocks of different threads are apart by some ns. Looked at afterwards: if the target is
	 * there now, it was there when the records were read. */
	if (value < v->last && (v->last - value < JITTER_NS || denied || is_gone(s)))
		value = v->last;
	v->last = value;
	*out = value;
	return 0;
}

/* ----------------------------------------------------------------- others */

static void add_word(void *sum, pid_t tid, uint64_t word)
{
	(void)tid;
	*(uint64_t *)sum += word;
}

static int read_flag(struct session *s, struct variable *v, int64_t *out, struct dinst_error *e)
{
	uint64_t sum = 0;
	int status = 0;

	if (v->record_offset)
		status = threads_read_word(s, v->record_offset, add_word, &sum, e);
	if (status == DINST_NOT_PERMITTED)
		dinst_error_clear(e);
	else if (status < 0)
		return status;
	else
		v->last = (int64_t)sum;
	*out = v->last;
	return 0;
}

static uint64_t bucket_end(unsigned bucket)
{
	return bucket + 1 < VARIABLE_BUCKETS ? variable_bucket_start(bucket + 1) : UINT64_MAX;
}

static int fill_buckets(const uint64_t *row, struct variable_value *out, struct dinst_error *e)
{
	size_t count = 0;

	for (unsigned b = 0; b < VARIABLE_BUCKETS; b++)
		count += row[b] != 0;
	out->buckets = calloc(count + 1, sizeof(*out->buckets));
	if (!out->buckets)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory for a distribution");
	for (unsigned b = 0; b < VARIABLE_BUCKETS; b++) {
		if (!row[b])
			continue;
		out->count += row[b];
		out->buckets[out->bucket_count++] =
			(struct variable_bucket){variable_bucket_start(b), bucket_end(b), row[b]};
	}
	return 0;
}

/* Least and greatest lie in the first and the last bucket, whatever was written in between. */
static void settle_extremes(struct variable_value *d, int64_t min, int64_t max)
{
	const struct variable_bucket *first = d->buckets, *last = d->buckets + d->bucket_count - 1;

	if (!d->bucket_count) {
		d->sum = d->min = d->max = 0;
		return;
	}
	d->min = (int64_t)first->lo;
	d->max = last->hi <= INT64_MAX ? (int64_t)last->hi - 1 : INT64_MAX;
	if (min >= d->min && (uint64_t)min < first->hi)
		d->min = min;
	if (max >= 0 && (uint64_t)max >= last->lo && max <= d->max)
		d->max = max;
}

static int read_distribution(const struct variable *v, unsigned element, struct variable_value *out,
			     struct dinst_error *e)
{
	uint64_t extremes[2] = {0, 0};
	uint64_t *row = calloc(VARIABLE_ROW, sizeof(*row));
	int status;

	if (!row)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory for a distribution");
	status = read_totals(v, (size_t)element * VARIABLE_ROW, VARIABLE_ROW, row, e);
	if (status >= 0)
		status = fill_buckets(row, out, e);
	if (status >= 0) {
		if (v->word)
			heap_read_words(v->word_place->heap, v->word + 2ul * WORD * element, 2,
					extremes);
		out->value = (int64_t)out->count;
		out->sum = (int64_t)row[VARIABLE_BUCKETS];
		settle_extremes(out, (int64_t)extremes[0], (int64_t)extremes[1]);
	}
	free(row);
	return status < 0 ? status : 0;
}

/* -------------------------------------------------------------- the whole */

int variable_read_row(struct session *s, struct variable *v, unsigned first, unsigned count,
		      int64_t *values, struct dinst_error *e)
{
	int status = 0;

	if (count > v->elements || first > v->elements - count)
		return dinst_fail(e, DINST_FAILED, "%s has %u elements", v->name, v->elements);
	switch (v->form) {
	case VARIABLE_TOTAL:
	case VARIABLE_STREAM:
		return read_totals(v, first, count, (uint64_t *)values, e);
	case VARIABLE_LEVEL:
		memset(values, 0, count * sizeof(*values));
		if (v->word)
			heap_read_words(v->word_place->heap, v->word + (taddr_t)WORD * first, count,
					(uint64_t *)values);
		return 0;
	case VARIABLE_TIMER:
		if (v->still) {
			memcpy(values, v->still + first, count * sizeof(*values));
			return 0;
		}
		if (v->elements == 1)
			return count ? read_timer(s, v, values, e) : 0;
		status = read_totals(v, first, count, (uint64_t *)values, e);
		for (unsigned k = 0; status >= 0 && k < count; k++)
			values[k] = (int64_t)in_ns(v, (uint64_t)values[k]);
		return status;
	case VARIABLE_FLAG:
		memset(values, 0, count * sizeof(*values));
		return first == 0 && count ? read_flag(s, v, values, e) : 0;
	case VARIABLE_DISTRIBUTION:
	case VARIABLE_TABLE:
		break;
	}
	return dinst_fail(e, DINST_FAILED, "%s is not a row of numbers", v->name);
}

int variable_read(struct session *s, struct variable *v, unsigned element,
		  struct variable_value *out, struct dinst_error *e)
{
	struct variable_value value = {0};
	int status;

	memset(out, 0, sizeof(*out));
	if (v->form != VARIABLE_DISTRIBUTION) {
		status = variable_read_row(s, v, element, 1, &value.value, e);
	} else if (element >= v->elements) {
		status = dinst_fail(e, DINST_FAILED, "%s has %u elements", v->name, v->elements);
	} else {
		status = read_distribution(v, element, &value, e);
	}
	if (status < 0)
		variable_value_release(&value);
	else
		*out = value;
	return status;
}

void variable_value_release(struct variable_value *value)
{
	free(value->buckets);
	value->buckets = NULL;
	value->bucket_count = 0;
}

/* ----------------------------------------------------------- distributions */

/*
 * The value of that rank if all values of a bucket lay in it at even distances:
 * in the same bucket as the true one, so at most 1/32 from it.
 */
int64_t variable_quantile(const struct variable_value *value, double q)
{
	const double rank = q * (double)value->count;
	double before = 0, at;
	size_t b = 0;

	if (!value->count)
		return 0;
	if (q <= 0)
		return value->min;
	if (q >= 1)
		return value->max;
	while (b + 1 < value->bucket_count && before + (double)value->buckets[b].count < rank)
		before += (double)value->buckets[b++].count;
	at = (double)value->buckets[b].lo;
	if (value->buckets[b].hi - value->buckets[b].lo > 1)
		at += (rank - before) / (double)value->buckets[b].count *
		      (double)(value->buckets[b].hi - value->buckets[b].lo);
	if (at < (double)value->min)
		return value->min;
	return at < (double)value->max ? (int64_t)at : value->max;
}

int variable_difference(const struct variable_value *later, const struct variable_value *earlier,
			struct variable_value *value, struct dinst_error *e)
{
	struct variable_value result = {.value = later->value - earlier->value};
	size_t k = 0;

	if (later->buckets) {
		result.buckets = calloc(later->bucket_count + 1, sizeof(*result.buckets));
		if (!result.buckets)
			return dinst_fail(e, DINST_NO_MEMORY, "out of memory for a distribution");
	}
	for (size_t b = 0; result.buckets && b < later->bucket_count; b++) {
		struct variable_bucket bucket = later->buckets[b];

		while (k < earlier->bucket_count && earlier->buckets[k].lo < bucket.lo)
			k++;
		if (k < earlier->bucket_count && earlier->buckets[k].lo == bucket.lo)
			bucket.count -= earlier->buckets[k].count < bucket.count
						? earlier->buckets[k].count
						: bucket.count;
		if (!bucket.count)
			continue;
		result.count += bucket.count;
		result.buckets[result.bucket_count++] = bucket;
	}
	if (result.buckets) {
		result.value = (int64_t)result.count;
		result.sum = later->sum - earlier->sum;
		settle_extremes(&result, later->min, later->max);
	}
	*value = result;
	return 0;
}

/* ------------------------------------------------------------------- keys */

uint64_t variable_full(const struct variable *table)
{
	uint64_t full = 0;

	if (table->word && !table->keys)
		heap_read_words(table->word_place->heap,
				table->word + offsetof(struct arch_table, full), 1, &full);
	return full;
}

int variable_keys(struct session *s, const struct variable *table, uint64_t **keys, bool **used,
		  size_t *count, uint64_t *full, struct dinst_error *e)
{
	const size_t places = table->elements;
	uint64_t *all = calloc(places + 1, sizeof(*all));
	bool *is_used = calloc(places + 1, sizeof(*is_used));

	(void)s;
	if (!all || !is_used) {
		free(all);
		free(is_used);
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory for %zu keys", places);
	}
	*full = variable_full(table);
	if (table->word)
		heap_read_words(table->word_place->heap,
				table->word + offsetof(struct arch_table, keys), places, all);
	for (size_t k = 0; k < places; k++) {
		/* Only where the keys were given is one of them what fills places that nothing has. */
		is_used[k] = all[k] != 0 && !(table->keys && all[k] == VARIABLE_NO_KEY + 1);
		all[k] -= is_used[k];
	}
	*keys = all;
	*used = is_used;
	*count = places;
	return 0;
}
