/* SPDX-License-Identifier: MIT */
/*
 * heat.c - columns of distributions.
 *
 * Owns what each snapshot added to them. Never keeps more than HEAT_MAX distributions.
 */
#include "daemon/server/heat.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/server/expose.h"
#include "daemon/server/exposition.h"

enum { ROWS_MAX = 81, MS = 1000 * 1000 };

struct column {
	int64_t end_ms; /* CLOCK_REALTIME */
	uint32_t ms;
	uint32_t counts[ROWS_MAX];
};

struct heat {
	struct heat *next;
	json_int_t id;
	bool ns, seen;
	size_t rows;
	uint64_t last_ns;	 /* uv_hrtime() of the last column's end */
	uint64_t last[ROWS_MAX]; /* cumulative, at that time */
	size_t first, count;
	struct column columns[HEAT_COLUMNS];
};

/* Values at most bounds[i], and all of them in the last row. */
static void cumulate(const struct heat *h, const struct distribution *d, uint64_t *to)
{
	const uint64_t *bounds;
	const size_t count = distribution_bounds(h->ns, &bounds);

	distribution_cumulate(d, bounds, count, to);
	to[count] = d->count;
}

static void add_column(struct heat *h, const struct distribution *d, uint64_t now)
{
	uint64_t to[ROWS_MAX], below = 0;
	struct timespec t;
	struct column *c;

	if (now - h->last_ns < HEAT_COLUMN_MS * (uint64_t)MS)
		return;
	clock_gettime(CLOCK_REALTIME, &t);
	cumulate(h, d, to);
	c = &h->columns[(h->first + h->count) % HEAT_COLUMNS];
	if (h->count < HEAT_COLUMNS)
		h->count++;
	else
		h->first = (h->first + 1) % HEAT_COLUMNS;
	c->end_ms = (int64_t)t.tv_sec * 1000 + t.tv_nsec / MS;
	c->ms = (uint32_t)((now - h->last_ns) / MS);
	for (size_t r = 0; r < h->rows; r++) {
		const uint64_t grown = to[r] >= h->last[r] ? to[r] - h->last[r] : 0;

		c->counts[r] = (uint32_t)(grown >= below ? grown - below : 0);
		below = grown;
	}
	memcpy(h->last, to, h->rows * sizeof(to[0]));
	h->last_ns = now;
}

static struct heat *find(const struct session *se, json_int_t id)
{
	struct heat *h = se->heat;

	while (h && h->id != id)
		h = h->next;
	return h;
}

static struct heat *make(struct session *se, json_int_t id, const struct distribution *d,
			 uint64_t now)
{
	const uint64_t *bounds;
	struct heat *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->id = id;
	h->ns = d->ns;
	h->rows = distribution_bounds(d->ns, &bounds) + 1;
	h->last_ns = now;
	cumulate(h, d, h->last);
	h->next = se->heat;
	se->heat = h;
	return h;
}

void heat_take(struct session *se, json_t *rows)
{
	const uint64_t now = uv_hrtime();
	struct heat *h, **at;
	size_t index, count = 0;
	json_t *row;

	for (h = se->heat; h; h = h->next, count++)
		h->seen = false;
	json_array_foreach(rows, index, row)
	{
		const json_int_t id = json_integer_value(json_object_get(row, "id"));
		struct distribution d;

		if (!json_is_array(json_object_get(row, "buckets")) ||
		    !expose_distribution(row, &d))
			continue;
		h = find(se, id);
		if (h)
			add_column(h, &d, now);
		else if (count < HEAT_MAX && (h = make(se, id, &d, now)) != NULL)
			count++;
		if (h)
			h->seen = true;
		free(d.buckets);
	}
	for (at = &se->heat; (h = *at) != NULL;) {
		if (h->seen) {
			at = &h->next;
			continue;
		}
		*at = h->next;
		free(h);
	}
}

static json_t *column_json(const struct heat *h, const struct column *c)
{
	json_t *counts = json_array();

	for (size_t r = 0; r < h->rows; r++)
		if (c->counts[r])
			json_array_append_new(counts, json_pack("[i, I]", (int)r,
								(json_int_t)c->counts[r]));
	return json_pack("{s:I, s:I, s:o}", "time", (json_int_t)c->end_ms, "ms", (json_int_t)c->ms,
			 "counts", counts);
}

json_t *heat_json(const struct session *se, json_int_t id)
{
	const struct heat *h = find(se, id);
	json_t *columns, *list;
	const uint64_t *bounds;

	if (!h)
		return NULL;
	columns = json_array();
	list = json_array();
	for (size_t i = 0; i < h->count; i++)
		json_array_append_new(columns,
				      column_json(h, &h->columns[(h->first + i) % HEAT_COLUMNS]));
	distribution_bounds(h->ns, &bounds);
	for (size_t r = 0; r + 1 < h->rows; r++)
		json_array_append_new(list, json_integer((json_int_t)bounds[r]));
	return json_pack("{s:I, s:b, s:o, s:o}", "id", (json_int_t)id, "ns", h->ns, "bounds", list,
			 "columns", columns);
}

void heat_close(struct session *se)
{
	struct heat *h;

	while ((h = se->heat)) {
		se->heat = h->next;
		free(h);
	}
}
