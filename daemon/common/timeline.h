/* SPDX-License-Identifier: MIT */
/*
 * timeline.h - one value over time in constant memory.
 *
 * A fixed number of bins of equal width. When they are full, pairs of them are
 * added up and the width doubles (papers on long-running measurement call it
 * folding). What is kept of a total is how much it grew in each bin; of a level
 * its integral over time, so that both fold alike and nothing is lost but
 * resolution.
 *
 *   1. timeline_init() with the time and value at the beginning;
 *   2. timeline_add() for each sample, times ascending;
 *   3. timeline_amount(); timeline_release().
 *
 * (Names that begin with history_ are taken: libedit exports them.)
 *
 * Knows no clock: times are ns of whatever clock the caller takes.
 */
#ifndef DINST_DAEMON_TIMELINE_H
#define DINST_DAEMON_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TIMELINE_BINS = 1000 };
#define TIMELINE_WIDTH_NS ((uint64_t)200 * 1000 * 1000)

enum timeline_style { TIMELINE_TOTAL, TIMELINE_LEVEL };

struct timeline {
	enum timeline_style style;
	uint64_t start_ns; /* of bin 0 */
	uint64_t width_ns; /* of a bin */
	uint64_t end_ns;   /* time of the last sample: the last bin is filled up to here */
	int64_t value;	   /* at that time */
	size_t count;	   /* bins in use */
	size_t room;	   /* allocated, TIMELINE_BINS at most */
	double *bins;	   /* growth in it; or integral in ns */
};

/* A total grows from `value` on; a level was `value`. */
void timeline_init(struct timeline *h, enum timeline_style style, uint64_t now_ns, int64_t value);
/*
 * The value is `value` now: what a total grew by since the last sample is spread
 * evenly over the time since then, a level counts for that time. A total that
 * became less takes it off. False: no memory, the sample is dropped.
 */
bool timeline_add(struct timeline *h, uint64_t now_ns, int64_t value);
/* ns of a bin that are over: its width, less for the last one. */
uint64_t timeline_covered(const struct timeline *h, size_t bin);
/* What the value grew by in a bin (totals), or was on average (levels). */
double timeline_amount(const struct timeline *h, size_t bin);
void timeline_release(struct timeline *h);

#endif
