/* SPDX-License-Identifier: MIT */
/*
 * prometheus.c - an exposition as Prometheus reads it: text format 0.0.4, and the
 * delimited protobuf messages that can hold native histograms.
 *
 * Pure. The text format is that of Prometheus' "Exposition formats"; the messages
 * are io.prometheus.client's (client_model, metrics.proto), of which only the fields
 * named here are written.
 */
#include "daemon/server/exposition.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------- the text */

static bool make_room(struct text *t, size_t more)
{
	size_t room = t->room ? t->room : 4096;
	char *data;

	if (t->failed)
		return false;
	while (room - t->length <= more)
		room *= 2;
	if (room == t->room)
		return true;
	data = realloc(t->data, room);
	if (!data) {
		t->failed = true;
		return false;
	}
	t->data = data;
	t->room = room;
	return true;
}

void text_add(struct text *t, const void *bytes, size_t length)
{
	if (!length || !make_room(t, length + 1))
		return;
	memcpy(t->data + t->length, bytes, length);
	t->length += length;
	t->data[t->length] = '\0';
}

void text_say(struct text *t, const char *format, ...)
{
	char line[512];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (n > 0)
		text_add(t, line, (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1);
}

void text_release(struct text *t)
{
	free(t->data);
	*t = (struct text){0};
}

/* The shortest of the usual precisions that reads back as the same number. */
void text_real(struct text *t, double value)
{
	char number[40];

	if (isnan(value)) {
		text_say(t, "NaN");
		return;
	}
	if (isinf(value)) {
		text_say(t, value > 0 ? "+Inf" : "-Inf");
		return;
	}
	for (int digits = 6; digits <= 17; digits++) {
		snprintf(number, sizeof(number), "%.*g", digits, value);
		if (strtod(number, NULL) == value)
			break;
	}
	text_say(t, "%s", number);
}

/* ns as seconds, exactly: "0.000000421", "12.5". */
static void say_seconds(struct text *t, int64_t ns)
{
	const uint64_t size = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
	char number[40];
	int n = snprintf(number, sizeof(number), "%s%" PRIu64 ".%09" PRIu64, ns < 0 ? "-" : "",
			 size / 1000000000, size % 1000000000);

	while (n > 0 && number[n - 1] == '0')
		n--;
	if (n > 0 && number[n - 1] == '.')
		n--;
	text_add(t, number, (size_t)n);
}

void text_amount(struct text *t, const struct amount *a)
{
	if (a->kind == AMOUNT_WHOLE)
		text_say(t, "%" PRId64, a->whole);
	else if (a->kind == AMOUNT_NS)
		say_seconds(t, a->whole);
	else
		text_real(t, a->real);
}

/* Backslash, newline and, in values of labels, the quote are escaped. */
static void say_escaped(struct text *t, const char *text, bool quoted)
{
	const char *from = text;

	for (const char *p = text; *p; p++) {
		const char *as = *p == '\\'   ? "\\\\"
				 : *p == '\n' ? "\\n"
				 : *p == '"'  ? "\\\""
					      : NULL;

		if (!as || (*p == '"' && !quoted))
			continue;
		text_add(t, from, (size_t)(p - from));
		text_add(t, as, 2);
		from = p + 1;
	}
	text_add(t, from, strlen(from));
}

/* NAMEsuffix{labels,le="..."} and a blank. */
static void say_series(struct text *t, const struct family *f, const char *suffix,
		       const struct sample *s, const char *le)
{
	const char *between = "{";

	text_add(t, f->name, strlen(f->name));
	text_add(t, suffix, strlen(suffix));
	for (unsigned i = 0; i < s->label_count; i++) {
		text_add(t, between, 1);
		text_add(t, s->labels[i].name, strlen(s->labels[i].name));
		text_add(t, "=\"", 2);
		say_escaped(t, s->labels[i].value, true);
		text_add(t, "\"", 1);
		between = ",";
	}
	if (le)
		text_say(t, "%sle=\"%s\"", between, le);
	text_add(t, !le && !s->label_count ? " " : "} ", !le && !s->label_count ? 1 : 2);
}

static void say_histogram(struct text *t, const struct family *f, const struct sample *s)
{
	const struct distribution *d = s->distribution;
	const uint64_t *bounds;
	const size_t count = distribution_bounds(d->ns, &bounds);
	uint64_t *cumulative = calloc(count, sizeof(*cumulative));
	struct text le = {0};

	if (!cumulative) {
		t->failed = true;
		return;
	}
	distribution_cumulate(d, bounds, count, cumulative);
	for (size_t i = 0; i < count; i++) {
		le.length = 0;
		text_amount(&le, &(struct amount){d->ns ? AMOUNT_NS : AMOUNT_WHOLE,
						  (int64_t)bounds[i], 0});
		say_series(t, f, "_bucket", s, le.failed ? "" : le.data);
		text_say(t, "%" PRIu64 "\n", cumulative[i]);
	}
	t->failed = t->failed || le.failed;
	say_series(t, f, "_bucket", s, "+Inf");
	text_say(t, "%" PRIu64 "\n", d->count);
	say_series(t, f, "_sum", s, NULL);
	text_amount(t, &d->sum);
	text_add(t, "\n", 1);
	say_series(t, f, "_count", s, NULL);
	text_say(t, "%" PRIu64 "\n", d->count);
	text_release(&le);
	free(cumulative);
}

void exposition_text(const struct exposition *x, struct text *out)
{
	static const char *const types[] = {
		[FAMILY_COUNTER] = "counter",
		[FAMILY_GAUGE] = "gauge",
		[FAMILY_HISTOGRAM] = "histogram",
	};

	for (const struct family *f = x->families; f; f = f->next) {
		if (!f->samples)
			continue;
		text_say(out, "# HELP %s ", f->name);
		say_escaped(out, f->help, false);
		text_say(out, "\n# TYPE %s %s\n", f->name, types[f->type]);
		for (const struct sample *s = f->samples; s; s = s->next) {
			if (f->type == FAMILY_HISTOGRAM) {
				say_histogram(out, f, s);
				continue;
			}
			say_series(out, f, "", s, NULL);
			text_amount(out, &s->amount);
			text_add(out, "\n", 1);
		}
	}
}

/* ------------------------------------------------------------- the messages */

/* Protocol buffers' encoding: a field is number << 3 | type; types 0 varint, 1 64 bits, 2 bytes. */
enum wire { WIRE_VARINT = 0, WIRE_DOUBLE = 1, WIRE_BYTES = 2 };

static void put_varint(struct text *t, uint64_t value)
{
	unsigned char bytes[10];
	size_t n = 0;

	do {
		bytes[n++] = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
		value >>= 7;
	} while (value);
	text_add(t, bytes, n);
}

static uint64_t zigzag(int64_t value)
{
	return ((uint64_t)value << 1) ^ (value < 0 ? ~(uint64_t)0 : 0);
}

static void put_number(struct text *t, unsigned field, uint64_t value)
{
	put_varint(t, field << 3 | WIRE_VARINT);
	put_varint(t, value);
}

/* Little endian, as on every machine that this is built for. */
static void put_double(struct text *t, unsigned field, double value)
{
	put_varint(t, field << 3 | WIRE_DOUBLE);
	text_add(t, &value, sizeof(value));
}

static void put_bytes(struct text *t, unsigned field, const void *bytes, size_t length)
{
	put_varint(t, field << 3 | WIRE_BYTES);
	put_varint(t, length);
	text_add(t, bytes, length);
}

/* A message that was made in `part`, which is emptied. */
static void put_message(struct text *t, unsigned field, struct text *part)
{
	t->failed = t->failed || part->failed;
	put_bytes(t, field, part->data, part->length);
	part->length = 0;
}

static void put_labels(struct text *t, const struct sample *s, struct text *scratch)
{
	for (unsigned i = 0; i < s->label_count; i++) {
		put_bytes(scratch, 1, s->labels[i].name, strlen(s->labels[i].name));
		put_bytes(scratch, 2, s->labels[i].value, strlen(s->labels[i].value));
		put_message(t, 1, scratch);
	}
}

/*
 * Native: spans of buckets that follow each other, offsets from the end of the span
 * before, and counts as differences. A histogram without values has one empty span,
 * by which readers know it for native.
 */
static void put_native(struct text *t, const struct distribution *d, struct text *scratch)
{
	struct exponential e;
	int64_t before = 0;
	int end = 0;

	if (!distribution_exponential(d, &e)) {
		t->failed = true;
		return;
	}
	put_number(t, 5, zigzag(EXPOSITION_SCHEMA));
	put_double(t, 6, 0x1p-128);
	put_number(t, 7, e.zero_count);
	for (size_t i = 0; i < e.count;) {
		size_t length = 0;

		if (!e.counts[i]) {
			i++;
			continue;
		}
		while (i + length < e.count && e.counts[i + length])
			length++;
		put_number(scratch, 1, zigzag(e.first + (int)i - end));
		put_number(scratch, 2, length);
		put_message(t, 12, scratch);
		end = e.first + (int)(i + length);
		i += length;
	}
	if (!e.count) {
		put_number(scratch, 1, 0);
		put_number(scratch, 2, 0);
		put_message(t, 12, scratch);
	}
	for (size_t i = 0; i < e.count; i++)
		if (e.counts[i]) {
			put_number(t, 13, zigzag((int64_t)e.counts[i] - before));
			before = (int64_t)e.counts[i];
		}
	free(e.counts);
}

static void put_histogram(struct text *t, const struct distribution *d, struct text *scratch)
{
	const uint64_t *bounds;
	const size_t count = distribution_bounds(d->ns, &bounds);
	uint64_t *cumulative = calloc(count, sizeof(*cumulative));

	if (!cumulative) {
		t->failed = true;
		return;
	}
	distribution_cumulate(d, bounds, count, cumulative);
	put_number(t, 1, d->count);
	put_double(t, 2, amount_double(&d->sum));
	for (size_t i = 0; i < count; i++) {
		put_number(scratch, 1, cumulative[i]);
		put_double(scratch, 2, (double)bounds[i] / (d->ns ? 1e9 : 1));
		put_message(t, 3, scratch);
	}
	put_native(t, d, scratch);
	free(cumulative);
}

static void put_metric(struct text *t, const struct family *f, const struct sample *s,
		       struct text scratch[2])
{
	put_labels(t, s, &scratch[0]);
	switch (f->type) {
	case FAMILY_GAUGE:
		put_double(&scratch[0], 1, amount_double(&s->amount));
		put_message(t, 2, &scratch[0]);
		break;
	case FAMILY_COUNTER:
		put_double(&scratch[0], 1, amount_double(&s->amount));
		put_message(t, 3, &scratch[0]);
		break;
	case FAMILY_HISTOGRAM:
		put_histogram(&scratch[0], s->distribution, &scratch[1]);
		put_message(t, 7, &scratch[0]);
		break;
	}
}

void exposition_protobuf(const struct exposition *x, struct text *out)
{
	static const unsigned types[] = {
		[FAMILY_COUNTER] = 0, [FAMILY_GAUGE] = 1, [FAMILY_HISTOGRAM] = 4};
	struct text family = {0}, metric = {0}, scratch[2] = {{0}, {0}};

	for (const struct family *f = x->families; f; f = f->next) {
		if (!f->samples)
			continue;
		put_bytes(&family, 1, f->name, strlen(f->name));
		put_bytes(&family, 2, f->help, strlen(f->help));
		put_number(&family, 3, types[f->type]);
		for (const struct sample *s = f->samples; s; s = s->next) {
			put_metric(&metric, f, s, scratch);
			put_message(&family, 4, &metric);
		}
		put_varint(out, family.length);
		text_add(out, family.data, family.length);
		out->failed =
			out->failed || family.failed || scratch[0].failed || scratch[1].failed;
		family.length = 0;
	}
	text_release(&family);
	text_release(&metric);
	text_release(&scratch[0]);
	text_release(&scratch[1]);
}
