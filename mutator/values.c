/* SPDX-License-Identifier: MIT */
/*
 * values.c - rows of values: one instance with its distribution or its vector.
 *
 * Owns how a vector becomes one value (the metric's aggregate operator) and
 * what keys are called. Never decides what is shown.
 */
#include "mutator/values_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inject/proc_open.h"
#include "inject/tasks.h"
#include "mutator/evaluate.h"
#include "mutator/serve.h"

/* ------------------------------------------------------------- the metric */

static const struct mdl_metric *metric_of(const struct instance *i)
{
	const struct instance *source = instance_source(i);

	return source->plan ? source->plan->metric : NULL;
}

static const char *style_of(const struct instance *i)
{
	const struct mdl_metric *m = metric_of(i);

	return m && m->style == MDL_SAMPLED_FUNCTION ? "SampledFunction" : "EventCounter";
}

static enum mdl_aggregate aggregate_of(const struct instance *i)
{
	const struct mdl_metric *m = metric_of(i);

	return m ? m->aggregate : MDL_SUM;
}

static const char *aggregate_name(enum mdl_aggregate aggregate)
{
	switch (aggregate) {
	case MDL_SUM:
		return "sum";
	case MDL_MIN:
		return "min";
	case MDL_MAX:
		return "max";
	case MDL_AVG:
		return "avg";
	}
	return "sum";
}

/* The metric's own variable; NULL for raw instances and those that wait. */
static const struct variable *variable_of(const struct instance *i)
{
	const struct instance *source = instance_source(i);

	return source->variable_count ? source->variables[0] : NULL;
}

bool values_is_vector(const struct instance *i)
{
	const struct variable *v = variable_of(i);

	return v && instance_source(i)->table && v->elements > 1;
}

static json_t *describe(const struct instance *i, int64_t value)
{
	const struct mdl_metric *m = metric_of(i);
	json_t *row = json_pack("{s:I, s:o, s:o, s:I, s:o, s:s, s:s}", "id", (json_int_t)i->id,
				"metric", serve_text(i->metric), "focus", serve_text(i->focus),
				"value", (json_int_t)value, "unit", serve_text(i->unit),
				"aggregate", aggregate_name(aggregate_of(i)), "style", style_of(i));

	if (variable_of(i) && variable_of(i)->form == VARIABLE_DISTRIBUTION)
		json_object_set_new(row, "distribution", json_true());
	if (instance_source(i)->plan && instance_source(i)->plan->own_calls)
		json_object_set_new(row, "own_calls",
				    json_integer((json_int_t)instance_source(i)->plan->own_calls));
	if (m && m->units_type)
		json_object_set_new(row, "units_type", serve_text(m->units_type));
	return row;
}

/* ----------------------------------------------------------- distributions */

static void add_quantiles(json_t *row, const struct variable_value *d)
{
	static const struct {
		const char *name;
		double at;
	} quantiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}};

	for (size_t q = 0; q < sizeof(quantiles) / sizeof(quantiles[0]); q++)
		json_object_set_new(
			row, quantiles[q].name,
			json_integer((json_int_t)variable_quantile(d, quantiles[q].at)));
}

static void add_distribution(json_t *row, const struct variable_value *d)
{
	json_t *buckets = json_array();

	json_object_set_new(row, "count", json_integer((json_int_t)d->count));
	json_object_set_new(row, "sum", json_integer((json_int_t)d->sum));
	json_object_set_new(row, "min", json_integer((json_int_t)d->min));
	json_object_set_new(row, "max", json_integer((json_int_t)d->max));
	add_quantiles(row, d);
	for (size_t b = 0; b < d->bucket_count; b++) {
		/* the last one ends where numbers of JSON do, and not below zero */
		const uint64_t hi = d->buckets[b].hi < INT64_MAX ? d->buckets[b].hi : INT64_MAX;

		json_array_append_new(buckets,
				      json_pack("[I, I, I]", (json_int_t)d->buckets[b].lo,
						(json_int_t)hi, (json_int_t)d->buckets[b].count));
	}
	json_object_set_new(row, "buckets", buckets);
}

/* Adds the buckets of `more` to those of *sum, whose array has room for all there can be. */
static void merge(struct variable_value *sum, const struct variable_value *more,
		  struct variable_bucket *room)
{
	size_t a = 0, b = 0, n = 0;

	if (!more->count)
		return;
	while (a < sum->bucket_count || b < more->bucket_count) {
		const bool first =
			b == more->bucket_count ||
			(a < sum->bucket_count && sum->buckets[a].lo <= more->buckets[b].lo);

		room[n] = first ? sum->buckets[a] : more->buckets[b];
		if (first && b < more->bucket_count && more->buckets[b].lo == room[n].lo)
			room[n].count += more->buckets[b++].count;
		else if (!first)
			b++;
		a += first;
		n++;
	}
	memcpy(sum->buckets, room, n * sizeof(*room));
	sum->bucket_count = n;
	if (!sum->count || more->min < sum->min)
		sum->min = more->min;
	if (!sum->count || more->max > sum->max)
		sum->max = more->max;
	sum->count += more->count;
	sum->sum += more->sum;
	sum->value = (int64_t)sum->count;
}

/* -------------------------------------------------------------------- keys */

bool values_is_of(const struct instance *i, const char *hierarchy)
{
	const struct instance *source = instance_source(i);
	const char *many = source->plan ? source->plan->many_of : NULL;

	return many && !strncmp(many, hierarchy, strlen(hierarchy));
}

/* The name of a thread of the target, as the kernel has it; false if it has ended. */
static bool thread_name(const struct session *s, uint64_t tid, char *text, size_t size)
{
	char path[80];
	FILE *f;
	bool read;

	snprintf(path, sizeof(path), "/proc/%d/task/%llu/comm", (int)s->pid,
		 (unsigned long long)tid);
	f = proc_fopen(path);
	if (!f)
		return false;
	read = fgets(text, (int)size, f) != NULL;
	fclose(f);
	text[strcspn(text, "\n")] = '\0';
	return read;
}

/* "MODULE:FUNCTION+0x12" of an address in a module's code; false if it is none. */
static bool code_name(const struct session *s, taddr_t address, char *text, size_t size)
{
	const struct module *m = module_at(s->modules, address);
	const struct image_function *functions;
	uint64_t offset;
	long index;

	if (!m || !m->image || m->gone)
		return false;
	index = image_function_at(m->image, address - m->bias);
	if (index < 0)
		return false;
	image_functions(m->image, &functions);
	offset = address - m->bias - functions[index].address;
	if (offset)
		snprintf(text, size, "%s:%s+0x%llx", m->name,
			 image_readable_name(m->image, functions[index].name),
			 (unsigned long long)offset);
	else
		snprintf(text, size, "%s:%s", m->name,
			 image_readable_name(m->image, functions[index].name));
	return true;
}

/* Threads and descriptors are numbers, objects addresses. What has a name is told by it, too. */
static void add_key(json_t *row, const struct instance *i, uint64_t key)
{
	char text[512];

	if (values_is_of(i, "/Process") || values_is_of(i, "/File") || values_is_of(i, "/Machine"))
		snprintf(text, sizeof(text), "%llu", (unsigned long long)key);
	else
		snprintf(text, sizeof(text), "0x%llx", (unsigned long long)key);
	json_object_set_new(row, "key", json_string(text));
	if (values_is_of(i, "/Process") ? thread_name(i->session, key, text, sizeof(text))
					: values_is_of(i, "/SyncObject") &&
						  code_name(i->session, key, text, sizeof(text)))
		json_object_set_new(row, "name", serve_text(text));
}

/* ----------------------------------------------------------------- vectors */

static void forget_elements(struct vector *v)
{
	while (v->count)
		variable_value_release(&v->elements[--v->count].value);
}

void values_vector_release(struct vector *v)
{
	forget_elements(v);
	free(v->elements);
}

static int by_value(const void *a, const void *b)
{
	const struct element *x = a, *y = b;

	if (x->value.value != y->value.value)
		return x->value.value < y->value.value ? 1 : -1;
	return (x->number > y->number) - (x->number < y->number);
}

/* What ran when this one began is nobody's where its thread has ended in there. */
static void never_below_zero(struct vector *v)
{
	for (size_t k = 0; k < v->count; k++)
		if (v->elements[k].value.value < 0)
			v->elements[k].value.value = 0;
}

int values_totals(const struct instance *i, struct vector *out, struct dinst_error *e)
{
	const struct instance *source = instance_source(i);
	const struct variable *v = variable_of(i);
	uint64_t *keys = NULL;
	bool *used = NULL;
	size_t places = 0;
	int status;

	forget_elements(out);
	status = variable_keys(i->session, source->table, &keys, &used, &places, &out->full, e);
	if (status >= 0 && !out->elements) {
		out->elements = calloc(places + 1, sizeof(*out->elements));
		out->places = places;
		if (!out->elements)
			status = dinst_fail(e, DINST_NO_MEMORY, "out of memory for a vector");
	}
	for (size_t place = 0; status >= 0 && place <= places; place++) {
		struct element *k = &out->elements[out->count];

		*k = (struct element){.number = (unsigned)place, .other = place == places};
		if (place >= v->elements || (k->other ? !out->full : !used[place]))
			continue;
		k->key = k->other ? 0 : keys[place];
		status = instance_read(i, k->number, &k->value, e);
		out->count += status >= 0;
	}
	free(keys);
	free(used);
	return status;
}

int values_vector(const struct instance *i, struct vector *out, struct dinst_error *e)
{
	const bool timer = variable_of(i)->form == VARIABLE_TIMER;
	int status;

	memset(out, 0, sizeof(*out));
	status = timer ? values_with_running(i, out, e) : values_totals(i, out, e);
	out->unseen = status == DINST_NOT_PERMITTED;
	if (out->unseen) {
		dinst_error_clear(e);
		status = values_totals(i, out, e);
	}
	if (status >= 0 && timer)
		never_below_zero(out);
	if (status < 0)
		values_vector_release(out);
	else if (out->count)
		qsort(out->elements, out->count, sizeof(*out->elements), by_value);
	return status;
}

/* The vector as one value, by the metric's operator. */
static int64_t aggregate(const struct vector *v, enum mdl_aggregate how)
{
	int64_t sum = 0;

	if (!v->count)
		return 0;
	for (size_t k = 0; k < v->count; k++)
		sum += v->elements[k].value.value;
	switch (how) {
	case MDL_SUM:
		break;
	case MDL_MIN:
		return v->elements[v->count - 1].value.value;
	case MDL_MAX:
		return v->elements[0].value.value;
	case MDL_AVG:
		return sum / (int64_t)v->count;
	}
	return sum;
}

static int add_merged(json_t *row, const struct vector *v, struct dinst_error *e)
{
	struct variable_bucket *room = calloc(VARIABLE_BUCKETS, sizeof(*room));
	struct variable_value sum = {.buckets = calloc(VARIABLE_BUCKETS, sizeof(*room))};
	int status = 0;

	if (room && sum.buckets) {
		for (size_t k = 0; k < v->count; k++)
			merge(&sum, &v->elements[k].value, room);
		add_distribution(row, &sum);
	} else {
		status = dinst_fail(e, DINST_NO_MEMORY, "out of memory for a distribution");
	}
	free(room);
	variable_value_release(&sum);
	return status;
}

static json_t *elements_json(const struct instance *i, const struct vector *v, bool distribution)
{
	json_t *list = json_array();

	for (size_t k = 0; k < v->count; k++) {
		const struct element *element = &v->elements[k];
		json_t *row = json_object();

		if (element->other)
			json_object_set_new(row, "key", json_null());
		else
			add_key(row, i, element->key);
		json_object_set_new(row, "value", json_integer((json_int_t)element->value.value));
		if (distribution)
			add_distribution(row, &element->value);
		json_array_append_new(list, row);
	}
	return list;
}

static int vector_row(const struct instance *i, json_t **row, struct dinst_error *e)
{
	const bool distribution = variable_of(i)->form == VARIABLE_DISTRIBUTION;
	const struct instance *source = instance_source(i);
	struct vector v;
	int status = values_vector(i, &v, e);

	if (status < 0)
		return status;
	*row = describe(i, aggregate(&v, aggregate_of(i)));
	if (distribution)
		status = add_merged(*row, &v, e);
	json_object_set_new(*row, "elements", elements_json(i, &v, distribution));
	json_object_set_new(*row, "full", json_integer((json_int_t)(v.full - i->base_full)));
	if (source->plan && source->plan->many_of)
		json_object_set_new(*row, "many_of", serve_text(source->plan->many_of));
	values_vector_release(&v);
	return status;
}

/* --------------------------------------------------------------- the whole */

static int scalar_row(const struct instance *i, json_t **row, struct dinst_error *e)
{
	const struct variable *v = variable_of(i);
	struct variable_value value = {0};
	int status = 0;

	/* What waits for its module is worth nothing yet. */
	if (i->raw)
		value.value = (int64_t)instance_value(i);
	else if (v)
		status = instance_read(i, 0, &value, e);
	if (status < 0)
		return status;
	*row = describe(i, value.value);
	if (v && v->form == VARIABLE_DISTRIBUTION)
		add_distribution(*row, &value);
	variable_value_release(&value);
	return 0;
}

/*
 * What its code is predicted to take, per hit and, since it was inserted, per
 * second. Nothing is said about hits where they are not counted.
 */
static void add_cost(json_t *row, const struct instance *i)
{
	const struct instance *source = instance_source(i);
	const uint64_t now = clock_ns();
	uint64_t hits, switches = 0;

	json_object_set_new(row, "predicted_ns", json_real((double)source->cost_ps / 1000));
	if (!instance_hits(i, &hits))
		return;
	json_object_set_new(row, "hits", json_integer((json_int_t)hits));
	if (source->switch_ps)
		switches = session_switches(i->session, false) - i->since_switches;
	if (now > i->since_ns)
		json_object_set_new(row, "cost_ns_per_s",
				    json_real(instance_predicted_ns(i, hits, switches) * 1e9 /
					      (double)(now - i->since_ns)));
}

int values_row(struct instance *i, bool verbose, json_t **row, struct dinst_error *e)
{
	int status;

	*row = NULL;
	status = values_is_vector(i) ? vector_row(i, row, e) : scalar_row(i, row, e);
	if (status < 0) {
		json_decref(*row);
		return status;
	}
	if (i->waiting)
		json_object_set_new(*row, "waiting", json_true());
	if (i->stopped)
		json_object_set_new(*row, "stopped", json_true());
	if (i->forbidden)
		json_object_set_new(*row, "forbidden", json_true());
	if (verbose)
		add_cost(*row, i);
	return 0;
}

/* ----------------------------------------------------------------- samples */

static int one_value(const struct instance *i, int64_t *out, struct dinst_error *e)
{
	struct variable_value value = {0};
	struct vector v;
	int status = 0;

	*out = 0;
	if (i->raw) {
		*out = (int64_t)instance_value(i);
	} else if (values_is_vector(i)) {
		status = values_vector(i, &v, e);
		if (status >= 0) {
			*out = aggregate(&v, aggregate_of(i));
			status = v.unseen ? DINST_NOT_PERMITTED : 0;
			values_vector_release(&v);
		}
	} else if (variable_of(i)) {
		status = instance_read(i, 0, &value, e);
		if (status >= 0)
			*out = value.value;
		variable_value_release(&value);
	}
	return status;
}

static json_t *new_row(const struct instance *i)
{
	json_t *row = describe(i, 0);

	json_object_del(row, "value");
	return row;
}

int values_sample(struct session *s, struct values_seen *seen, json_t **result,
		  struct dinst_error *e)
{
	json_t *rows = json_array(), *fresh = json_array(), *gone = json_array();
	struct dinst_error ignored = {0};
	struct values_told *told;
	size_t count = 0, n = 0, old = 0;
	int status = 0;

	for (const struct instance *i = s->instances; i; i = i->next)
		count++;
	told = calloc(count + 1, sizeof(*told));
	if (!told)
		status = dinst_fail(e, DINST_NO_MEMORY, "out of memory for a sample");
	/* Both lists go by id. */
	for (const struct instance *i = s->instances; told && i; i = i->next, n++) {
		bool known;

		while (old < seen->count && seen->told[old].id < i->id)
			json_array_append_new(gone, json_integer((json_int_t)seen->told[old++].id));
		known = old < seen->count && seen->told[old].id == i->id;
		told[n].id = i->id;
		/* What cannot be read now has not changed as far as we know. */
		if (one_value(i, &told[n].value, &ignored) < 0)
			told[n].value = known ? seen->told[old].value : 0;
		dinst_error_clear(&ignored);
		if (!known)
			json_array_append_new(fresh, new_row(i));
		if (!known || seen->told[old].value != told[n].value)
			json_array_append_new(rows, json_pack("[I, I]", (json_int_t)i->id,
							      (json_int_t)told[n].value));
		old += known;
	}
	while (told && old < seen->count)
		json_array_append_new(gone, json_integer((json_int_t)seen->told[old++].id));
	if (status < 0) {
		json_decref(rows);
		json_decref(fresh);
		json_decref(gone);
		return status;
	}
	free(seen->told);
	seen->told = told;
	seen->count = count;
	*result = json_pack("{s:o, s:o, s:o, s:I}", "rows", rows, "new", fresh, "gone", gone,
			    "count", (json_int_t)count);
	return 0;
}

void values_seen_release(struct values_seen *seen)
{
	free(seen->told);
	seen->told = NULL;
	seen->count = 0;
}
