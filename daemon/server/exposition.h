/* SPDX-License-Identifier: MIT */
/*
 * exposition.h - values as others want them: families of samples with labels,
 * and their writers.
 *
 * Pure: it asks nobody and knows no session (expose.h fills it). Calling sequence:
 *
 *   1. exposition_new();
 *   2. exposition_family(), then for each of its samples exposition_sample() with
 *      labels, then exposition_amount() or exposition_distribution();
 *   3. exposition_text(), exposition_protobuf() or otlp_json(), as often as wanted;
 *   4. exposition_free(), which frees all that it has given out.
 *
 * Bounded: beyond EXPOSITION_LINES lines or EXPOSITION_BYTES bytes samples are left
 * out and counted. No two samples of a family have the same labels: the second one
 * is told apart by the label `id`.
 */
#ifndef DINST_DAEMON_EXPOSITION_H
#define DINST_DAEMON_EXPOSITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>

enum {
	EXPOSITION_LINES = 200 * 1000, /* lines of text */
	EXPOSITION_BYTES = 32 << 20,   /* of what is kept for them */
	EXPOSITION_LABELS = 12,	       /* of a sample */
	EXPOSITION_LABEL_MAX = 1024,   /* bytes of a value; the rest is cut off */
	EXPOSITION_SCHEMA = 3,	       /* of exponential buckets: 8 to each power of two */
};

enum family_type { FAMILY_COUNTER, FAMILY_GAUGE, FAMILY_HISTOGRAM };
enum family_unit { FAMILY_PLAIN, FAMILY_SECONDS, FAMILY_BYTES };

/* A number: whole, or ns that are told in seconds, or a real one. */
struct amount {
	enum amount_kind { AMOUNT_WHOLE, AMOUNT_NS, AMOUNT_REAL } kind;
	int64_t whole;
	double real;
};

/* Values v with lo <= v < hi, counted. */
struct distribution_bucket {
	uint64_t lo, hi, count;
};

struct distribution {
	uint64_t count;
	struct amount sum, min, max;
	size_t bucket_count; /* ascending, none empty */
	struct distribution_bucket *buckets;
	bool ns; /* they are ns, told in seconds */
};

struct label {
	const char *name; /* lives as long as the program */
	const char *value;
};

struct sample {
	struct label labels[EXPOSITION_LABELS];
	unsigned label_count;
	struct amount amount; /* unless the family is one of histograms */
	struct distribution *distribution;
	uint64_t start_ns; /* CLOCK_REALTIME: since when it is counted; 0: unknown */
	uint64_t hash;
	const char *session; /* whose it is; NULL: the daemon's own */
	struct sample *next;
};

struct family {
	const char *name; /* as exposed, without _bucket and the like */
	const char *help;
	enum family_type type;
	enum family_unit unit;
	bool own; /* what dinst says of itself, which no metric is added to */
	struct sample *samples, **end;
	struct family *next;
};

struct exposition {
	struct family *families, **end;
	struct chunk *chunks; /* of memory; private */
	bool own;	      /* families and samples are dinst's own from here on */
	size_t bytes, lines;
	size_t left_out;	      /* samples */
	struct sample *told_left_out; /* which tells it; NULL: none does */
	struct sample **table;
	size_t table_size, table_used;
};

/* NULL: no memory. */
struct exposition *exposition_new(void);
void exposition_free(struct exposition *x);

/*
 * The family of that name, type and unit, and of what is added now (x->own), made if there is none. `name` is cleaned to what
 * Prometheus allows; where another type or dinst itself has it, or a series of a histogram would have
 * the same name, the type is added. NULL: no memory.
 */
struct family *exposition_family(struct exposition *x, const char *name, enum family_type type,
				 enum family_unit unit, const char *help);
/* A sample whose labels come next; `id` tells it from another one with the same labels. NULL: no
 * place for it, which is counted. */
struct sample *exposition_sample(struct exposition *x, struct family *f, const struct label *labels,
				 unsigned count, int64_t id);
struct amount amount_whole(int64_t value);
struct amount amount_ns(int64_t ns);
struct amount amount_real(double value);
double amount_double(const struct amount *a);
/* Memory of the exposition, zeroed; NULL: none, or beyond what it may have. */
void *exposition_take(struct exposition *x, size_t size);
/* A copy; what is no UTF-8 is '?', and too long a one is cut at a character's end. */
const char *exposition_string(struct exposition *x, const char *text);

/* ------------------------------------------------------------------ buckets */

/*
 * Bounds of classic buckets, the same in every process and on every host so that
 * they can be added up: two to each power of two, inclusive upper bounds.
 * Of ns from 255 ns to 17 s; of others from 0 to 2^32 - 1.
 */
size_t distribution_bounds(bool ns, const uint64_t **bounds);
/* How many values are at most bounds[i], for each of them; exact. */
void distribution_cumulate(const struct distribution *d, const uint64_t *bounds, size_t count,
			   uint64_t *cumulative);

struct exponential {
	uint64_t zero_count;
	int first; /* index of counts[0]: values v with B^(index - 1) < v <= B^index, B = 2^(1/8) */
	size_t count;
	uint64_t *counts; /* malloc'ed */
};

/* Sorts into exponential buckets, each of ours by its middle. False: no memory. */
bool distribution_exponential(const struct distribution *d, struct exponential *out);

/* ------------------------------------------------------------------ writers */

/* A growing text; `failed` without memory, and then nothing is added any more. */
struct text {
	char *data;
	size_t length, room;
	bool failed;
};

void text_add(struct text *t, const void *bytes, size_t length);
void text_say(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_amount(struct text *t, const struct amount *a);
void text_real(struct text *t, double value);
void text_release(struct text *t);

/* Prometheus' text format 0.0.4, histograms in classic buckets. */
void exposition_text(const struct exposition *x, struct text *out);
/* Its protobuf format (io.prometheus.client.MetricFamily, delimited), with native histograms. */
void exposition_protobuf(const struct exposition *x, struct text *out);

/* What OTLP says of where values come from. */
struct otlp_resource {
	const char *session; /* NULL: the daemon itself */
	json_t *attributes;  /* {key: value}; borrowed */
};

/*
 * An ExportMetricsServiceRequest in OTLP's JSON mapping, cumulative, with exponential
 * histograms. `now_ns` is CLOCK_REALTIME. malloc'ed; NULL: no memory.
 */
char *otlp_json(const struct exposition *x, const struct otlp_resource *resources, size_t count,
		uint64_t now_ns, size_t *length);

#endif
