/* SPDX-License-Identifier: MIT */
/*
 * cost.c - keeping limits: what instances cost is what their code is predicted
 * to take each time, times how often it was reached. Looked at once a second;
 * what is above its limit is switched off, and its values stay.
 */
#include "mutator/request.h"

static const uint64_t PERIOD_NS = 1000 * 1000 * 1000;

/* Percent of one CPU since the last look; negative: too early to say. */
static double percent_of(struct instance *i)
{
	const uint64_t now = clock_ns(), since = i->seen_ns ? i->seen_ns : i->since_ns;
	uint64_t hits;
	double cost;

	if (now - since < PERIOD_NS || !instance_hits(i, &hits))
		return -1;
	cost = (double)(hits - i->seen_hits) * ((double)i->cost_ps / 1000);
	i->seen_ns = now;
	i->seen_hits = hits;
	return cost * 100 / (double)(now - since);
}

void session_poll(struct session *s,
		  void (*told)(void *arg, const struct instance *i, double percent), void *arg)
{
	for (struct instance *i = s->instances; i; i = i->next) {
		double percent;

		if (i->limit <= 0 || i->stopped || i->waiting || i->source)
			continue;
		percent = percent_of(i);
		if (percent <= i->limit)
			continue;
		i->stopped = true;
		removal_unlink(s, i);
		if (told)
			told(arg, i, percent);
	}
}
