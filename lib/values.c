/* SPDX-License-Identifier: MIT */
/*
 * values.c - libdinst: what has been counted, now and again and again.
 *
 * Owns the results of read: the rows, their distributions and elements, in one block each,
 * beside the answer whose strings they point to.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/library.h"

enum { WATCH_SLICE_NS = 50 * 1000 * 1000 }; /* an interrupt from another thread is seen so soon */

struct kept_values {
	struct dinst_values v;
	json_t *answer;
	const struct dinst_value **rows;
};

/* A row and what belongs to it. */
struct kept_value {
	struct dinst_value v;
	struct dinst_distribution distribution;
	struct dinst_bucket *buckets;
	struct dinst_element *elements;
};

DINST_PUBLIC void dinst_values_free(struct dinst_values *values)
{
	struct kept_values *kept = (struct kept_values *)values;

	if (!kept)
		return;
	for (size_t i = 0; kept->rows && i < kept->v.count; i++) {
		struct kept_value *row = (struct kept_value *)(uintptr_t)kept->rows[i];

		if (row) {
			free(row->buckets);
			free(row->elements);
			free(row);
		}
	}
	free(kept->rows);
	json_decref(kept->answer);
	free(kept);
}

static bool take_distribution(struct kept_value *k, const json_t *row)
{
	json_t *buckets = json_object_get(row, "buckets");
	size_t total = json_array_size(buckets);

	k->distribution = (struct dinst_distribution){
		.count = row_count(row, "count"),
		.sum = row_number(row, "sum"),
		.min = row_number(row, "min"),
		.max = row_number(row, "max"),
		.p50 = row_number(row, "p50"),
		.p90 = row_number(row, "p90"),
		.p99 = row_number(row, "p99"),
		.p999 = row_number(row, "p999"),
	};
	k->buckets = calloc(total + 1, sizeof(*k->buckets));
	if (!k->buckets)
		return false;
	for (size_t i = 0; i < total; i++) {
		json_t *bucket = json_array_get(buckets, i);

		k->buckets[i].low = json_number_value(json_array_get(bucket, 0));
		k->buckets[i].high = json_number_value(json_array_get(bucket, 1));
		k->buckets[i].count = (uint64_t)json_integer_value(json_array_get(bucket, 2));
	}
	k->distribution.buckets = k->buckets;
	k->distribution.bucket_count = total;
	k->v.distribution = &k->distribution;
	return true;
}

static bool take_elements(struct kept_value *k, const json_t *row)
{
	json_t *elements = json_object_get(row, "elements");
	size_t total = json_array_size(elements);

	k->elements = calloc(total + 1, sizeof(*k->elements));
	if (!k->elements)
		return false;
	for (size_t i = 0; i < total; i++) {
		json_t *element = json_array_get(elements, i);

		k->elements[i].key = row_text(element, "key");
		k->elements[i].name = row_text(element, "name");
		k->elements[i].value = row_number(element, "value");
	}
	k->v.elements = k->elements;
	k->v.element_count = total;
	return true;
}

/* NULL without memory. */
static struct kept_value *take_value(const json_t *row)
{
	struct kept_value *k = calloc(1, sizeof(*k));
	const char *style = row_text(row, "style");

	if (!k)
		return NULL;
	k->v.id = row_count(row, "id");
	k->v.metric = row_text(row, "metric");
	k->v.focus = row_text(row, "focus");
	k->v.unit = row_text(row, "unit");
	k->v.value = row_number(row, "value");
	k->v.is_level = style && strcmp(style, "SampledFunction") == 0;
	k->v.waiting = json_is_true(json_object_get(row, "waiting"));
	k->v.stopped = json_is_true(json_object_get(row, "stopped"));
	if ((json_object_get(row, "buckets") && !take_distribution(k, row)) ||
	    (json_object_get(row, "elements") && !take_elements(k, row))) {
		free(k->buckets);
		free(k);
		return NULL;
	}
	return k;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Takes over `answer`; NULL without memory. */
static struct dinst_values *unpack_values(json_t *answer)
{
	json_t *rows = json_object_get(answer, "rows");
	struct kept_values *kept = calloc(1, sizeof(*kept));

	if (!kept) {
		json_decref(answer);
		return NULL;
	}
	kept->answer = answer;
	kept->v.time_ns = now_ns();
	kept->rows = calloc(json_array_size(rows) + 1, sizeof(*kept->rows));
	kept->v.row = kept->rows;
	for (size_t i = 0; kept->rows && i < json_array_size(rows); i++) {
		struct kept_value *row = take_value(json_array_get(rows, i));

		if (!row)
			break;
		kept->rows[kept->v.count++] = &row->v;
	}
	if (kept->rows && kept->v.count == json_array_size(rows))
		return &kept->v;
	dinst_values_free(&kept->v);
	return NULL;
}

DINST_PUBLIC int dinst_read(struct dinst *d, const char *session, const uint64_t *ids, size_t count,
			    struct dinst_values **values, struct dinst_failure *f)
{
	json_t *params, *answer = NULL;
	int err;

	if (!values || (count && !ids))
		return failure_missing(f, values ? "the list of ids" : "the place for the values");
	params = session_params(session);
	json_object_set_new(params, "ids", ids_array(ids, count));
	err = library_call(d, "read", params, &answer, f);
	if (err)
		return err;
	*values = unpack_values(answer);
	return *values ? 0 : failure_memory(f);
}

/* Sleeps until `until`; false if somebody asked to end it. */
static bool sleep_until(struct dinst *d, uint64_t until)
{
	for (;;) {
		uint64_t now = now_ns(), left = until > now ? until - now : 0;
		struct timespec pause = {0, left < WATCH_SLICE_NS ? (long)left : WATCH_SLICE_NS};

		if (d->interrupted)
			return false;
		if (!left)
			return true;
		nanosleep(&pause, NULL);
	}
}

DINST_PUBLIC int dinst_watch(struct dinst *d, const char *session, const uint64_t *ids,
			     size_t count, uint64_t interval_ns, dinst_watcher watcher, void *arg,
			     struct dinst_failure *f)
{
	struct dinst_values *before = NULL, *now = NULL;
	uint64_t next = now_ns();
	int err;

	if (!d || !watcher)
		return failure_missing(f, d ? "the watcher" : "the connection");
	do {
		err = dinst_read(d, session, ids, count, &now, f);
		if (err)
			break;
		if (watcher(arg, now, before) != 0) {
			dinst_values_free(now);
			break;
		}
		dinst_values_free(before);
		before = now;
		/* a reading that took long is not made up for */
		next = next + interval_ns > now_ns() ? next + interval_ns : now_ns();
	} while (sleep_until(d, next));
	if (!err)
		d->interrupted = 0;
	else if (d->was_interrupted)
		err = 0;
	dinst_values_free(before);
	return err;
}
