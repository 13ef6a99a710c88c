/* SPDX-License-Identifier: MIT */
/*
 * buckets.c - distributions in the buckets that others want.
 *
 * Pure. Ours have 32 buckets to each power of two, with whole numbers as bounds.
 */
#include "daemon/server/exposition.h"

#include <math.h>
#include <stdlib.h>

enum { NS_FIRST = 8, NS_LAST = 34, PLAIN_LAST = 32, BOUNDS_MAX = 80 };

/* 2^k - 1 and 3 * 2^k / 2 - 1: largest values of buckets of ours, so nothing is split. */
static size_t make_bounds(uint64_t *to, unsigned first, unsigned last)
{
	size_t n = 0;

	for (unsigned k = first; k <= last; k++) {
		to[n++] = ((uint64_t)1 << k) - 1;
		if (k > 0 && k < last)
			to[n++] = ((uint64_t)3 << (k - 1)) - 1;
	}
	return n;
}

size_t distribution_bounds(bool ns, const uint64_t **bounds)
{
	static uint64_t made[2][BOUNDS_MAX];
	static size_t count[2];

	if (!count[ns])
		count[ns] = ns ? make_bounds(made[1], NS_FIRST, NS_LAST)
			       : make_bounds(made[0], 0, PLAIN_LAST);
	*bounds = made[ns];
	return count[ns];
}

void distribution_cumulate(const struct distribution *d, const uint64_t *bounds, size_t count,
			   uint64_t *cumulative)
{
	uint64_t sum = 0;
	size_t b = 0;

	for (size_t i = 0; i < count; i++) {
		while (b < d->bucket_count && d->buckets[b].hi - 1 <= bounds[i])
			sum += d->buckets[b++].count;
		cumulative[i] = sum;
	}
}

/* Index i with B^(i - 1) < middle <= B^i. */
static int index_of(const struct distribution *d, const struct distribution_bucket *b)
{
	const double middle = ((double)b->lo + (double)(b->hi - 1)) / 2 / (d->ns ? 1e9 : 1);

	return (int)ceil(log2(middle) * (1 << EXPOSITION_SCHEMA));
}

bool distribution_exponential(const struct distribution *d, struct exponential *out)
{
	size_t first = 0;
	int last;

	*out = (struct exponential){0};
	while (first < d->bucket_count && d->buckets[first].hi <= 1)
		out->zero_count += d->buckets[first++].count;
	if (first == d->bucket_count)
		return true;
	out->first = index_of(d, &d->buckets[first]);
	last = index_of(d, &d->buckets[d->bucket_count - 1]);
	out->count = (size_t)(last - out->first) + 1;
	out->counts = calloc(out->count, sizeof(*out->counts));
	if (!out->counts)
		return false;
	for (size_t b = first; b < d->bucket_count; b++)
		out->counts[index_of(d, &d->buckets[b]) - out->first] += d->buckets[b].count;
	return true;
}
