/* SPDX-License-Identifier: MIT */
/*
 * daemon_timeline.c - folding: nothing is lost, nothing is invented, and memory
 * stays the same over simulated months.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "daemon/common/timeline.h"

static const uint64_t MS = 1000000, SECOND = 1000000000;

static double sum_of(const struct timeline *h)
{
	double sum = 0;

	for (size_t i = 0; i < h->count; i++)
		sum += timeline_amount(h, i);
	return sum;
}

/* Sampled in time with the bins, each holds what happened in it. */
static void bins_hold_what_happened(void **state)
{
	struct timeline h;
	int64_t value = 7;

	(void)state;
	timeline_init(&h, TIMELINE_TOTAL, 5 * SECOND, value);
	for (unsigned n = 0; n < 500; n++) {
		value += n;
		assert_true(timeline_add(&h, 5 * SECOND + (n + 1) * TIMELINE_WIDTH_NS, value));
	}
	assert_int_equal(h.count, 500);
	assert_int_equal(h.width_ns, TIMELINE_WIDTH_NS);
	for (unsigned n = 0; n < 500; n++)
		assert_true(timeline_amount(&h, n) == n);
	timeline_release(&h);
}

/* Pairs are added up, and only when there is no more room. */
static void folds_pairs(void **state)
{
	struct timeline h;
	int64_t value = 0;

	(void)state;
	timeline_init(&h, TIMELINE_TOTAL, 0, 0);
	for (unsigned n = 0; n < TIMELINE_BINS; n++) {
		value += n * n;
		assert_true(timeline_add(&h, (n + 1) * TIMELINE_WIDTH_NS, value));
	}
	assert_int_equal(h.count, TIMELINE_BINS);
	assert_int_equal(h.width_ns, TIMELINE_WIDTH_NS);
	assert_true(timeline_add(&h, (TIMELINE_BINS + 1) * TIMELINE_WIDTH_NS, value + 5));
	assert_int_equal(h.width_ns, 2 * TIMELINE_WIDTH_NS);
	assert_int_equal(h.count, TIMELINE_BINS / 2 + 1);
	for (unsigned n = 0; n < TIMELINE_BINS / 2; n++)
		assert_true(timeline_amount(&h, n) == 4.0 * n * n + (2 * n + 1) * (2 * n + 1));
	assert_true(timeline_amount(&h, TIMELINE_BINS / 2) == 5);
	assert_int_equal(timeline_covered(&h, TIMELINE_BINS / 2), TIMELINE_WIDTH_NS);
	assert_int_equal(h.room, TIMELINE_BINS);
	timeline_release(&h);
}

/* Three simulated months, sampled at odd times: the sum is exact, room is what it was. */
static void months(void **state)
{
	const uint64_t end = 90ull * 24 * 3600 * SECOND;
	struct timeline h;
	uint64_t now = 123;
	unsigned seed = 1;
	int64_t value = 0;

	(void)state;
	timeline_init(&h, TIMELINE_TOTAL, now, 0);
	while (now < end) {
		/* as the sampler does: no more often than the bins are wide */
		now += h.width_ns / 2 + (uint64_t)rand_r(&seed) % h.width_ns;
		value += rand_r(&seed) % 100000;
		assert_true(timeline_add(&h, now, value));
		assert_true(h.count <= TIMELINE_BINS && h.room <= TIMELINE_BINS);
		if (rand_r(&seed) % 1000 == 0)
			assert_true(sum_of(&h) == (double)value);
	}
	assert_true(sum_of(&h) == (double)value);
	assert_true(h.count > TIMELINE_BINS / 2);
	assert_true(h.start_ns + h.count * h.width_ns >= now);
	assert_int_equal(h.end_ns, now);
	timeline_release(&h);
}

/* A level is what it was on average, whatever was folded and however it was sampled. */
static void levels_are_means(void **state)
{
	struct timeline h;
	uint64_t now = 0;

	(void)state;
	timeline_init(&h, TIMELINE_LEVEL, 0, 3);
	for (unsigned n = 0; n < 100000; n++) {
		now += 70 * MS;
		assert_true(timeline_add(&h, now, 42));
	}
	for (size_t i = 0; i < h.count; i++)
		assert_true(timeline_amount(&h, i) > 41.999 && timeline_amount(&h, i) < 42.001);
	timeline_release(&h);
	/* Half of a bin 10, half of it 20; then a bin with only its first quarter. */
	timeline_init(&h, TIMELINE_LEVEL, 0, 0);
	assert_true(timeline_add(&h, 100 * MS, 10));
	assert_true(timeline_add(&h, 200 * MS, 20));
	assert_true(timeline_add(&h, 250 * MS, -8));
	assert_int_equal(h.count, 2);
	assert_true(timeline_amount(&h, 0) == 15);
	assert_true(timeline_amount(&h, 1) == -8);
	assert_int_equal(timeline_covered(&h, 1), 50 * MS);
	timeline_release(&h);
}

/* What a mutator that was busy could not tell is spread over the time since. */
static void gaps_are_spread(void **state)
{
	struct timeline h;

	(void)state;
	timeline_init(&h, TIMELINE_TOTAL, 0, 0);
	assert_true(timeline_add(&h, 2 * SECOND, 1000));
	assert_int_equal(h.count, 10);
	for (size_t i = 0; i < 10; i++)
		assert_true(timeline_amount(&h, i) >= 99 && timeline_amount(&h, i) <= 101);
	assert_true(sum_of(&h) == 1000);
	/* A machine that slept for a year: bins are few all the same. */
	assert_true(timeline_add(&h, 365ull * 24 * 3600 * SECOND, 5000));
	assert_true(h.count <= TIMELINE_BINS);
	assert_true(sum_of(&h) == 5000);
	timeline_release(&h);
}

/* The same time twice, and totals that go back, do no harm. */
static void odd_samples(void **state)
{
	struct timeline h;

	(void)state;
	timeline_init(&h, TIMELINE_TOTAL, SECOND, 100);
	assert_int_equal(timeline_covered(&h, 0), 0);
	assert_true(timeline_amount(&h, 0) == 0);
	assert_true(timeline_add(&h, SECOND, 150));
	assert_true(timeline_add(&h, SECOND / 2, 150));
	assert_int_equal(h.count, 0);
	assert_true(timeline_add(&h, SECOND + 10, 160));
	assert_true(sum_of(&h) == 60);
	assert_true(timeline_add(&h, SECOND + 20, 130));
	assert_true(sum_of(&h) == 30);
	timeline_release(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bins_hold_what_happened),
		cmocka_unit_test(folds_pairs),
		cmocka_unit_test(months),
		cmocka_unit_test(levels_are_means),
		cmocka_unit_test(gaps_are_spread),
		cmocka_unit_test(odd_samples),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
