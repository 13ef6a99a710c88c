/* SPDX-License-Identifier: MIT */
/*
 * otlp_json.c - an exposition as OpenTelemetry's collectors take it.
 *
 * Pure. The shape is that of opentelemetry/proto/collector/metrics/v1 in the JSON mapping
 * of OTLP (OpenTelemetry Protocol specification, "JSON Protobuf Encoding"): names in
 * lowerCamelCase, 64-bit numbers as strings, enumerations as numbers.
 */
#include "daemon/server/exposition.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/paths.h"

enum { CUMULATIVE = 2 }; /* AGGREGATION_TEMPORALITY_CUMULATIVE */

static json_t *string_of(uint64_t value)
{
	char number[24];

	snprintf(number, sizeof(number), "%" PRIu64, value);
	return json_string(number);
}

static json_t *attribute(const char *key, json_t *value)
{
	const char *kind = json_is_integer(value)			 ? "intValue"
			   : json_is_true(value) || json_is_false(value) ? "boolValue"
									 : "stringValue";

	/* 64-bit numbers are strings */
	if (json_is_integer(value))
		return json_pack("{s:s, s:{s:o}}", "key", key, "value", kind,
				 string_of((uint64_t)json_integer_value(value)));
	return json_pack("{s:s, s:{s:O}}", "key", key, "value", kind, value);
}

static json_t *attributes_of(const struct sample *s)
{
	json_t *list = json_array();

	/* whose it is says the resource */
	for (unsigned i = 0; i < s->label_count; i++)
		if (strcmp(s->labels[i].name, "session") != 0 &&
		    strcmp(s->labels[i].name, "pid") != 0)
			json_array_append_new(list, json_pack("{s:s, s:{s:s}}", "key",
							      s->labels[i].name, "value",
							      "stringValue", s->labels[i].value));
	return list;
}

static json_t *point_of(const struct sample *s, uint64_t now_ns)
{
	json_t *point = json_object();

	json_object_set_new(point, "attributes", attributes_of(s));
	/* the clock may have been set back since: nothing begins after its end */
	if (s->start_ns)
		json_object_set_new(point, "startTimeUnixNano",
				    string_of(s->start_ns < now_ns ? s->start_ns : now_ns));
	json_object_set_new(point, "timeUnixNano", string_of(now_ns));
	return point;
}

static void set_amount(json_t *point, const struct amount *a)
{
	char number[24];

	if (a->kind != AMOUNT_WHOLE) {
		json_object_set_new(point, "asDouble", json_real(amount_double(a)));
		return;
	}
	snprintf(number, sizeof(number), "%" PRId64, a->whole);
	json_object_set_new(point, "asInt", json_string(number));
}

/* Index of OTLP's buckets: B^i < v <= B^(i + 1), one less than Prometheus'. */
static bool set_distribution(json_t *point, const struct distribution *d)
{
	struct exponential e;
	json_t *counts;

	if (!distribution_exponential(d, &e))
		return false;
	counts = json_array();
	for (size_t i = 0; i < e.count; i++)
		json_array_append_new(counts, string_of(e.counts[i]));
	json_object_set_new(point, "count", string_of(d->count));
	json_object_set_new(point, "sum", json_real(amount_double(&d->sum)));
	json_object_set_new(point, "scale", json_integer(EXPOSITION_SCHEMA));
	json_object_set_new(point, "zeroCount", string_of(e.zero_count));
	json_object_set_new(point, "positive",
			    json_pack("{s:i, s:o}", "offset", e.count ? e.first - 1 : 0,
				      "bucketCounts", counts));
	if (d->count) {
		json_object_set_new(point, "min", json_real(amount_double(&d->min)));
		json_object_set_new(point, "max", json_real(amount_double(&d->max)));
	}
	free(e.counts);
	return true;
}

static bool is_of(const struct sample *s, const struct otlp_resource *r)
{
	return r->session ? s->session && strcmp(s->session, r->session) == 0 : !s->session;
}

/* NULL: none of its samples is of this resource, or no memory. */
static json_t *metric_of(const struct family *f, const struct otlp_resource *r, uint64_t now_ns)
{
	static const char *const units[] = {
		[FAMILY_PLAIN] = "1", [FAMILY_SECONDS] = "s", [FAMILY_BYTES] = "By"};
	json_t *points = json_array(), *data;

	for (const struct sample *s = f->samples; s; s = s->next) {
		json_t *point;

		if (!is_of(s, r))
			continue;
		point = point_of(s, now_ns);
		if (f->type != FAMILY_HISTOGRAM)
			set_amount(point, &s->amount);
		else if (!set_distribution(point, s->distribution)) {
			json_decref(point);
			continue;
		}
		json_array_append_new(points, point);
	}
	if (!json_array_size(points)) {
		json_decref(points);
		return NULL;
	}
	data = json_pack("{s:o}", "dataPoints", points);
	if (f->type != FAMILY_GAUGE)
		json_object_set_new(data, "aggregationTemporality", json_integer(CUMULATIVE));
	if (f->type == FAMILY_COUNTER)
		json_object_set_new(data, "isMonotonic", json_true());
	return json_pack("{s:s, s:s, s:s, s:o}", "name", f->name, "description", f->help, "unit",
			 units[f->unit],
			 f->type == FAMILY_COUNTER ? "sum"
			 : f->type == FAMILY_GAUGE ? "gauge"
						   : "exponentialHistogram",
			 data);
}

char *otlp_json(const struct exposition *x, const struct otlp_resource *resources, size_t count,
		uint64_t now_ns, size_t *length)
{
	json_t *list = json_array(), *root;
	char *text;

	for (size_t i = 0; i < count; i++) {
		json_t *metrics = json_array(), *attributes = json_array(), *metric, *value;
		const char *key;

		json_object_foreach(resources[i].attributes, key, value)
			json_array_append_new(attributes, attribute(key, value));
		for (const struct family *f = x->families; f; f = f->next)
			if ((metric = metric_of(f, &resources[i], now_ns)) != NULL)
				json_array_append_new(metrics, metric);
		json_array_append_new(
			list, json_pack("{s:{s:o}, s:[{s:{s:s, s:s}, s:o}]}", "resource",
					"attributes", attributes, "scopeMetrics", "scope", "name",
					"dinst", "version", DINST_VERSION, "metrics", metrics));
	}
	root = json_pack("{s:o}", "resourceMetrics", list);
	text = root ? json_dumps(root, JSON_COMPACT) : NULL;
	json_decref(root);
	*length = text ? strlen(text) : 0;
	return text;
}
