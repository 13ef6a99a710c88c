/* SPDX-License-Identifier: MIT */
/*
 * expose.c - names, units and labels of values.
 *
 * Owns how a metric becomes a family and a focus becomes labels.
 */
#include "daemon/server/expose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/server/expose_self.h"
#include "daemon/server/snapshot.h"

enum { NAME_MAX_BYTES = 128, PART_MAX = 1024 };

/* ----------------------------------------------------------- distributions */

bool expose_distribution(json_t *row, struct distribution *d)
{
	json_t *list = json_object_get(row, "buckets"), *bucket;
	const char *unit = json_string_value(json_object_get(row, "unit"));
	const size_t most = json_array_size(list);
	size_t index;

	*d = (struct distribution){.ns = unit && strcmp(unit, "ns") == 0};
	if (!json_is_array(list))
		return false;
	d->buckets = calloc(most + 1, sizeof(*d->buckets));
	if (!d->buckets)
		return false;
	json_array_foreach(list, index, bucket)
	{
		struct distribution_bucket b = {
			(uint64_t)json_integer_value(json_array_get(bucket, 0)),
			(uint64_t)json_integer_value(json_array_get(bucket, 1)),
			(uint64_t)json_integer_value(json_array_get(bucket, 2)),
		};
		const uint64_t end = d->bucket_count ? d->buckets[d->bucket_count - 1].hi : 0;

		/* a mutator is not believed: ascending, none empty */
		if (b.hi <= b.lo || b.lo < end || !b.count)
			continue;
		d->buckets[d->bucket_count++] = b;
		d->count += b.count;
	}
	return true;
}

static void set_sums(json_t *row, struct distribution *d)
{
	const json_int_t sum = json_integer_value(json_object_get(row, "sum"));
	const json_int_t min = json_integer_value(json_object_get(row, "min"));
	const json_int_t max = json_integer_value(json_object_get(row, "max"));

	d->sum = d->ns ? amount_ns(sum) : amount_whole(sum);
	d->min = d->ns ? amount_ns(min) : amount_whole(min);
	d->max = d->ns ? amount_ns(max) : amount_whole(max);
}

/* ------------------------------------------------------------------ labels */

struct labels {
	struct label list[EXPOSITION_LABELS];
	unsigned count;
	char pid[16];
	char module[PART_MAX], function[PART_MAX], thread[32];
};

static void set(struct labels *l, const char *name, const char *value)
{
	if (value && value[0] && l->count < EXPOSITION_LABELS - 1)
		l->list[l->count++] = (struct label){name, value};
}

static void set_session(struct labels *l, const struct session *se)
{
	l->count = 0;
	snprintf(l->pid, sizeof(l->pid), "%d", (int)se->pid);
	set(l, "session", se->name);
	set(l, "pid", l->pid);
	set(l, "process", se->process);
}

/* One resource of a focus: "/Code/MODULE/FUNCTION", "/Process/THREAD", or a function's name. */
static void set_part(struct labels *l, const char *part, size_t length)
{
	const char *end = part + length, *slash;

	if (length > 6 && !strncmp(part, "/Code/", 6)) {
		part += 6;
		slash = memchr(part, '/', (size_t)(end - part));
		snprintf(l->module, sizeof(l->module), "%.*s", (int)((slash ? slash : end) - part),
			 part);
		if (slash)
			snprintf(l->function, sizeof(l->function), "%.*s", (int)(end - slash - 1),
				 slash + 1);
	} else if (length > 9 && !strncmp(part, "/Process/", 9)) {
		snprintf(l->thread, sizeof(l->thread), "%.*s", (int)(end - part - 9), part + 9);
	} else if (length && part[0] != '/') {
		snprintf(l->function, sizeof(l->function), "%.*s", (int)length, part);
	}
}

/* Resources stand side by side, a blank between; names of functions may have blanks, too. */
static void set_focus(struct labels *l, const char *focus)
{
	const char *from = focus, *next;

	l->module[0] = l->function[0] = l->thread[0] = '\0';
	while ((next = strstr(from, " /")) != NULL) {
		set_part(l, from, (size_t)(next - from));
		from = next + 1;
	}
	set_part(l, from, strlen(from));
	set(l, "focus", focus);
	/* what stands for many is told by the key */
	if (!strchr(l->module, '*'))
		set(l, "module", l->module);
	if (!strchr(l->function, '*'))
		set(l, "function", l->function);
	if (!strchr(l->thread, '*'))
		set(l, "thread", l->thread);
}

/* ---------------------------------------------------------------- families */

static bool ends_with(const char *text, const char *end)
{
	const size_t a = strlen(text), b = strlen(end);

	return a >= b && !strcmp(text + a - b, end);
}

static void add_end(char *name, size_t size, const char *end)
{
	const size_t length = strlen(name);

	if (!ends_with(name, end))
		snprintf(name + length, size - length, "%s", end);
}

/*
 * dinst_METRIC with the base unit behind it, and _total for what only grows (Prometheus,
 * "Metric and label naming"). What is counted is said by the metric's name.
 */
static struct family *family_of(struct exposition *x, json_t *row, bool distribution)
{
	const char *metric = json_string_value(json_object_get(row, "metric"));
	const char *unit = json_string_value(json_object_get(row, "unit"));
	const char *style = json_string_value(json_object_get(row, "style"));
	const enum family_unit u = unit && !strcmp(unit, "ns")	    ? FAMILY_SECONDS
				   : unit && !strcmp(unit, "bytes") ? FAMILY_BYTES
								    : FAMILY_PLAIN;
	const enum family_type type = distribution ? FAMILY_HISTOGRAM
				      : style && !strcmp(style, "SampledFunction") ? FAMILY_GAUGE
										   : FAMILY_COUNTER;
	char name[NAME_MAX_BYTES], help[400];

	if (!metric)
		return NULL;
	snprintf(name, sizeof(name) - 20, "dinst_%.100s", metric);
	if (u == FAMILY_SECONDS)
		add_end(name, sizeof(name), "_seconds");
	if (u == FAMILY_BYTES)
		add_end(name, sizeof(name), "_bytes");
	if (type == FAMILY_COUNTER)
		add_end(name, sizeof(name), "_total");
	snprintf(help, sizeof(help), "%s of dinst's metric %.100s, in %.60s.",
		 type == FAMILY_HISTOGRAM ? "Distribution"
		 : type == FAMILY_GAUGE	  ? "Level"
					  : "Total",
		 metric,
		 u == FAMILY_SECONDS ? "seconds"
		 : u == FAMILY_BYTES ? "bytes"
		 : unit && unit[0]   ? unit
				     : "units");
	return exposition_family(x, name, type, u, help);
}

/* ------------------------------------------------------------------ values */

struct exposing {
	struct exposition *x;
	struct session *session;
	struct labels *labels;
	uint64_t start_ns;
};

/* NULL: no place for all of it. `ns`: the unit of the row, which its elements do not repeat. */
static struct distribution *take_distribution(struct exposition *x, json_t *value, bool ns)
{
	struct distribution made, *d = exposition_take(x, sizeof(*d));

	if (d)
		d->ns = ns;
	if (!expose_distribution(value, &made))
		return d;
	made.ns = ns;
	set_sums(value, &made);
	if (d) {
		*d = made;
		d->buckets = exposition_take(x, made.bucket_count * sizeof(*d->buckets) + 1);
	}
	if (d && d->buckets)
		memcpy(d->buckets, made.buckets, made.bucket_count * sizeof(*d->buckets));
	else
		d = NULL;
	free(made.buckets);
	return d;
}

/* `value` is a row, or an element of it; labels are set. */
static void add_value(struct exposing *g, json_t *row, json_t *value, bool distribution)
{
	struct family *f = family_of(g->x, row, distribution);
	const json_int_t id = json_integer_value(json_object_get(row, "id"));
	const json_int_t whole = json_integer_value(json_object_get(value, "value"));
	struct distribution *d =
		distribution ? take_distribution(g->x, value, f && f->unit == FAMILY_SECONDS)
			     : NULL;
	struct sample *s;

	/* one without it would be none, and is in the family for good once it is made */
	if (distribution && !d) {
		g->x->left_out++;
		return;
	}
	s = exposition_sample(g->x, f, g->labels->list, g->labels->count, id);
	if (!s)
		return;
	s->session = exposition_string(g->x, g->session->name);
	s->start_ns = g->start_ns;
	s->distribution = d;
	if (!d)
		s->amount = f->unit == FAMILY_SECONDS ? amount_ns(whole) : amount_whole(whole);
}

static void add_row(struct exposing *g, json_t *row)
{
	const bool distribution = json_is_array(json_object_get(row, "buckets")) ||
				  json_is_true(json_object_get(row, "distribution"));
	json_t *elements = json_object_get(row, "elements"), *element;
	const char *focus = json_string_value(json_object_get(row, "focus"));
	unsigned count;
	size_t index;

	set_session(g->labels, g->session);
	set_focus(g->labels, focus ? focus : "");
	if (!json_is_array(elements)) {
		add_value(g, row, row, distribution);
		return;
	}
	count = g->labels->count;
	json_array_foreach(elements, index, element)
	{
		const char *key = json_string_value(json_object_get(element, "key"));

		g->labels->count = count;
		set(g->labels, "key", key ? key : "other");
		set(g->labels, "key_name", json_string_value(json_object_get(element, "name")));
		add_value(g, row, element, distribution);
	}
}

static void add_rows(struct exposing *g, const struct snapshot *sn)
{
	json_t *row;
	size_t index;
	char id[24];

	json_array_foreach(sn->rows, index, row)
	{
		snprintf(id, sizeof(id), "%lld",
			 (long long)json_integer_value(json_object_get(row, "id")));
		g->start_ns = (uint64_t)json_integer_value(json_object_get(sn->starts, id));
		add_row(g, row);
	}
}

struct exposition *expose(struct server *s)
{
	struct exposition *x = exposition_new();
	struct labels *labels = calloc(1, sizeof(*labels));
	struct exposing g = {.x = x, .labels = labels};

	if (!x || !labels) {
		exposition_free(x);
		free(labels);
		return NULL;
	}
	/* ours first: nobody's metric takes their names, or is taken for one of them */
	x->own = true;
	expose_daemon(x, s);
	for (struct session *se = s->sessions; se; se = se->next) {
		set_session(labels, se);
		expose_session(x, se, labels->list, labels->count);
	}
	x->own = false;
	for (struct session *se = s->sessions; se; se = se->next) {
		g.session = se;
		if (se->snapshot && se->snapshot->rows)
			add_rows(&g, se->snapshot);
	}
	expose_end(x);
	free(labels);
	return x;
}
