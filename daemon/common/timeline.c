/* SPDX-License-Identifier: MIT */
/*
 * timeline.c - folding.
 */
#include "daemon/common/timeline.h"

#include <stdlib.h>
#include <string.h>

enum { ROOM_FIRST = 50 };

void timeline_init(struct timeline *h, enum timeline_style style, uint64_t now_ns, int64_t value)
{
	*h = (struct timeline){
		.style = style,
		.start_ns = now_ns,
		.end_ns = now_ns,
		.width_ns = TIMELINE_WIDTH_NS,
		.value = value,
	};
}

void timeline_release(struct timeline *h)
{
	free(h->bins);
	h->bins = NULL;
	h->count = h->room = 0;
}

/* Pairs become one; an odd last one stands alone. */
static void fold(struct timeline *h)
{
	for (size_t i = 0; i < h->count; i++)
		if (i % 2)
			h->bins[i / 2] += h->bins[i];
		else
			h->bins[i / 2] = h->bins[i];
	h->count = (h->count + 1) / 2;
	h->width_ns *= 2;
}

/* Bins up to the one in which `last_ns` lies exist; false: no memory. */
static bool make_bins(struct timeline *h, uint64_t last_ns)
{
	size_t need;

	while ((last_ns - h->start_ns) / h->width_ns >= TIMELINE_BINS)
		fold(h);
	need = (size_t)((last_ns - h->start_ns) / h->width_ns) + 1;
	if (need > h->room) {
		size_t room = h->room ? h->room * 2 : ROOM_FIRST;
		double *bins;

		if (room < need)
			room = need;
		if (room > TIMELINE_BINS)
			room = TIMELINE_BINS;
		bins = realloc(h->bins, room * sizeof(*bins));
		if (!bins)
			return false;
		h->bins = bins;
		h->room = room;
	}
	while (h->count < need)
		h->bins[h->count++] = 0;
	return true;
}

bool timeline_add(struct timeline *h, uint64_t now_ns, int64_t value)
{
	uint64_t left = now_ns - h->end_ns;
	int64_t growth = value - h->value;

	/* Nothing can be said of no time; what grew meanwhile is the next sample's. */
	if (now_ns <= h->end_ns)
		return true;
	if (!make_bins(h, now_ns - 1))
		return false;
	while (left) {
		const uint64_t from = now_ns - left;
		const size_t bin = (size_t)((from - h->start_ns) / h->width_ns);
		const uint64_t end = h->start_ns + (bin + 1) * h->width_ns;
		const uint64_t span = end - from < left ? end - from : left;

		if (h->style == TIMELINE_LEVEL) {
			h->bins[bin] += (double)value * (double)span;
		} else {
			/* In whole numbers, so that their sum stays exact. */
			const int64_t part =
				span == left
					? growth
					: (int64_t)((double)growth * ((double)span / (double)left));

			h->bins[bin] += (double)part;
			growth -= part;
		}
		left -= span;
	}
	h->end_ns = now_ns;
	h->value = value;
	return true;
}

uint64_t timeline_covered(const struct timeline *h, size_t bin)
{
	const uint64_t from = h->start_ns + bin * h->width_ns;

	if (bin >= h->count || h->end_ns <= from)
		return 0;
	return h->end_ns - from < h->width_ns ? h->end_ns - from : h->width_ns;
}

double timeline_amount(const struct timeline *h, size_t bin)
{
	const uint64_t covered = timeline_covered(h, bin);

	if (!covered)
		return 0;
	return h->style == TIMELINE_LEVEL ? h->bins[bin] / (double)covered : h->bins[bin];
}
