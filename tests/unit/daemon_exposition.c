/* SPDX-License-Identifier: MIT */
/*
 * daemon_exposition.c - names, labels, buckets and the three formats, byte for byte where
 * that says more than a parser would.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/server/expose.h"
#include "daemon/server/snapshot.h"

static struct sample *add(struct exposition *x, const char *name, enum family_type type,
			  enum family_unit unit, const char *label, struct amount amount)
{
	struct family *f = exposition_family(x, name, type, unit, "help");
	const struct label l = {"focus", label};
	struct sample *s = exposition_sample(x, f, &l, label ? 1 : 0, 7);

	assert_non_null(s);
	s->amount = amount;
	return s;
}

static char *text_of(const struct exposition *x)
{
	struct text t = {0};

	exposition_text(x, &t);
	assert_false(t.failed);
	return t.data;
}

static void expect_text(const struct exposition *x, const char *expected)
{
	char *text = text_of(x);

	assert_string_equal(text, expected);
	free(text);
}

static void text_is_escaped(void **state)
{
	struct exposition *x = exposition_new();

	(void)state;
	add(x, "dinst_calls_total", FAMILY_COUNTER, FAMILY_PLAIN, "a\"b\\c\nd\xff\xc3\xa9",
	    amount_whole(INT64_MAX));
	expect_text(x,
		    "# HELP dinst_calls_total help\n# TYPE dinst_calls_total counter\n"
		    "dinst_calls_total{focus=\"a\\\"b\\\\c\\nd?\xc3\xa9\"} 9223372036854775807\n");
	exposition_free(x);
}

static void numbers_are_exact(void **state)
{
	static const struct {
		struct amount amount;
		const char *text;
	} cases[] = {
		{{AMOUNT_NS, 0, 0}, "0"},
		{{AMOUNT_NS, 421, 0}, "0.000000421"},
		{{AMOUNT_NS, 12500000000, 0}, "12.5"},
		{{AMOUNT_NS, -1, 0}, "-0.000000001"},
		{{AMOUNT_NS, INT64_MIN, 0}, "-9223372036.854775808"},
		{{AMOUNT_WHOLE, INT64_MIN, 0}, "-9223372036854775808"},
		{{AMOUNT_REAL, 0, 0.1}, "0.1"},
		{{AMOUNT_REAL, 0, 1.0 / 3}, "0.3333333333333333"},
		{{AMOUNT_REAL, 0, INFINITY}, "+Inf"},
		{{AMOUNT_REAL, 0, NAN}, "NaN"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct text t = {0};

		text_amount(&t, &cases[i].amount);
		assert_string_equal(t.data, cases[i].text);
		text_release(&t);
	}
}

/* Two of the same labels, and two metrics of one name that are not the same thing. */
static void nothing_collides(void **state)
{
	struct exposition *x = exposition_new();
	char *text;

	(void)state;
	add(x, "dinst_slow", FAMILY_GAUGE, FAMILY_PLAIN, "f", amount_whole(1));
	add(x, "dinst_slow", FAMILY_GAUGE, FAMILY_PLAIN, "f", amount_whole(2));
	add(x, "dinst_slow", FAMILY_GAUGE, FAMILY_PLAIN, "f", amount_whole(3));
	add(x, "dinst_slow", FAMILY_COUNTER, FAMILY_PLAIN, "f", amount_whole(4));
	add(x, "dinst_slow", FAMILY_COUNTER, FAMILY_PLAIN, "g", amount_whole(5));
	add(x, "dinst_slow", FAMILY_GAUGE, FAMILY_SECONDS, "f", amount_ns(6));
	add(x, "9 b\xc3\xa9%", FAMILY_GAUGE, FAMILY_PLAIN, NULL, amount_whole(7));
	text = text_of(x);
	assert_non_null(strstr(text, "\ndinst_slow{focus=\"f\"} 1\n"));
	assert_non_null(strstr(text, "\ndinst_slow{focus=\"f\",id=\"7\"} 2\n"));
	assert_non_null(strstr(text, "\ndinst_slow{focus=\"f\",id=\"8\"} 3\n"));
	assert_non_null(strstr(text, "\ndinst_slow_counted_total{focus=\"f\"} 4\n"));
	assert_non_null(strstr(text, "\ndinst_slow_counted_total{focus=\"g\"} 5\n"));
	assert_non_null(strstr(text, "\ndinst_slow_level{focus=\"f\"} 0.000000006\n"));
	assert_non_null(strstr(text, "\n__b___ 7\n"));
	free(text);
	exposition_free(x);
}

/* A metric of a user that is called as one of ours is none of ours. */
static void what_is_ours_stays_ours(void **state)
{
	struct exposition *x = exposition_new();
	char *text;

	(void)state;
	x->own = true;
	add(x, "dinst_left_out_samples", FAMILY_GAUGE, FAMILY_PLAIN, NULL, amount_whole(1));
	x->own = false;
	add(x, "dinst_left_out_samples", FAMILY_GAUGE, FAMILY_PLAIN, "f", amount_whole(2));
	add(x, "dinst_left_out_samples", FAMILY_GAUGE, FAMILY_PLAIN, "g", amount_whole(3));
	x->own = true;
	add(x, "dinst_left_out_samples", FAMILY_GAUGE, FAMILY_PLAIN, "ours", amount_whole(4));
	text = text_of(x);
	assert_non_null(strstr(text, "\ndinst_left_out_samples 1\n"));
	assert_non_null(strstr(text, "\ndinst_left_out_samples_level{focus=\"f\"} 2\n"));
	assert_non_null(strstr(text, "\ndinst_left_out_samples_level{focus=\"g\"} 3\n"));
	assert_non_null(strstr(text, "\ndinst_left_out_samples{focus=\"ours\"} 4\n"));
	free(text);
	exposition_free(x);
}

static void histograms_reserve_their_series(void **state)
{
	struct exposition *x = exposition_new();
	struct family *f;

	(void)state;
	f = exposition_family(x, "dinst_a", FAMILY_HISTOGRAM, FAMILY_PLAIN, "help");
	assert_string_equal(f->name, "dinst_a");
	f = exposition_family(x, "dinst_a_count", FAMILY_GAUGE, FAMILY_PLAIN, "help");
	assert_string_equal(f->name, "dinst_a_count_level");
	exposition_family(x, "dinst_b_sum", FAMILY_GAUGE, FAMILY_PLAIN, "help");
	f = exposition_family(x, "dinst_b", FAMILY_HISTOGRAM, FAMILY_PLAIN, "help");
	assert_string_equal(f->name, "dinst_b_distribution");
	exposition_free(x);
}

/* Values are counted at a bound and not at the one before, whatever they are. */
static void bounds_are_inclusive(void **state)
{
	(void)state;
	for (unsigned ns = 0; ns < 2; ns++) {
		const uint64_t *bounds;
		const size_t count = distribution_bounds(ns, &bounds);
		uint64_t *cumulative = calloc(count, sizeof(*cumulative));

		for (size_t i = 0; i < count; i++) {
			/* the bucket of ours that ends at the bound */
			struct distribution_bucket b = {bounds[i] - bounds[i] / 64, bounds[i] + 1,
							3};
			struct distribution d = {
				.count = 3, .bucket_count = 1, .buckets = &b, .ns = ns};

			assert_true(i == 0 || bounds[i] > bounds[i - 1]);
			distribution_cumulate(&d, bounds, count, cumulative);
			for (size_t k = 0; k < count; k++)
				assert_int_equal(cumulative[k], k >= i ? 3 : 0);
		}
		free(cumulative);
	}
}

static void exponential_buckets_hold_their_values(void **state)
{
	struct distribution_bucket buckets[] = {{0, 1, 5}, {1000, 1024, 2}, {2048, 2112, 4}};
	struct distribution d = {.count = 11, .bucket_count = 3, .buckets = buckets, .ns = true};
	struct exponential e;
	uint64_t sum = 0;

	(void)state;
	assert_true(distribution_exponential(&d, &e));
	assert_int_equal(e.zero_count, 5);
	for (size_t i = 0; i < e.count; i++) {
		const double high = exp2((e.first + (double)i) / 8),
			     low = exp2((e.first + (double)i - 1) / 8);

		sum += e.counts[i];
		if (e.counts[i] == 2)
			assert_true(low < 1011.5e-9 && 1011.5e-9 <= high);
		if (e.counts[i] == 4)
			assert_true(low < 2079.5e-9 && 2079.5e-9 <= high);
	}
	assert_int_equal(sum, 6);
	assert_true(e.counts[0] && e.counts[e.count - 1]);
	free(e.counts);
}

static void empty_distributions_are_fine(void **state)
{
	struct exposition *x = exposition_new();
	struct distribution d = {.ns = true};
	struct text out = {0};
	size_t length;
	char *json;

	(void)state;
	add(x, "dinst_l_seconds", FAMILY_HISTOGRAM, FAMILY_SECONDS, "f", amount_whole(0))
		->distribution = &d;
	exposition_text(x, &out);
	assert_non_null(strstr(out.data, "dinst_l_seconds_bucket{focus=\"f\",le=\"+Inf\"} 0\n"));
	assert_non_null(strstr(out.data, "dinst_l_seconds_count{focus=\"f\"} 0\n"));
	text_release(&out);
	exposition_protobuf(x, &out);
	assert_false(out.failed);
	text_release(&out);
	json = otlp_json(x, &(struct otlp_resource){NULL, NULL}, 1, 1, &length);
	assert_non_null(strstr(json, "\"bucketCounts\":[]"));
	free(json);
	exposition_free(x);
}

/* Where the clock was set back since it is counted, nothing begins after its end. */
static void clocks_go_back(void **state)
{
	struct exposition *x = exposition_new();
	size_t length;
	char *json;

	(void)state;
	add(x, "dinst_c_total", FAMILY_COUNTER, FAMILY_PLAIN, "f", amount_whole(0))->start_ns = 500;
	json = otlp_json(x, &(struct otlp_resource){NULL, NULL}, 1, 300, &length);
	assert_non_null(strstr(json, "\"startTimeUnixNano\":\"300\""));
	free(json);
	json = otlp_json(x, &(struct otlp_resource){NULL, NULL}, 1, 700, &length);
	assert_non_null(strstr(json, "\"startTimeUnixNano\":\"500\""));
	free(json);
	exposition_free(x);
}

/* MetricFamily {name "a", help "help", type GAUGE, metric {label {"focus", "f"}, gauge {2.0}}} */
static void protobuf_is_as_it_should(void **state)
{
	static const unsigned char expected[] = "\x24\x0a\x01"
						"a"
						"\x12\x04"
						"help"
						"\x18\x01"
						"\x22\x17"
						"\x0a\x0a\x0a\x05"
						"focus"
						"\x12\x01"
						"f"
						"\x12\x09"
						"\x09\0\0\0\0\0\0\0\x40";
	struct exposition *x = exposition_new();
	struct text out = {0};

	(void)state;
	add(x, "a", FAMILY_GAUGE, FAMILY_PLAIN, "f", amount_whole(2));
	exposition_protobuf(x, &out);
	/* the string's own zero is none of it; the length is what the rest has */
	assert_int_equal((unsigned char)out.data[0], out.length - 1);
	assert_memory_equal(out.data + 1, expected + 1, sizeof(expected) - 2);
	assert_int_equal(out.length, sizeof(expected) - 1);
	text_release(&out);
	exposition_free(x);
}

/* What is too much is left out and counted, and what is there stays whole. */
static void there_is_an_end_to_it(void **state)
{
	struct exposition *x = exposition_new();
	struct family *f = exposition_family(x, "a", FAMILY_COUNTER, FAMILY_PLAIN, "help");
	char *focus = malloc(3001);
	size_t kept = 0, tried = 60000;
	char *text;

	(void)state;
	memset(focus, 'x', 3000);
	focus[3000] = '\0';
	for (size_t i = 0; i < tried; i++) {
		const struct label l = {"focus", focus};

		snprintf(focus, 8, "%06zu", i);
		focus[6] = 'x';
		kept += exposition_sample(x, f, &l, 1, (int64_t)i) != NULL;
	}
	assert_true(kept > 10000 && kept < tried);
	assert_int_equal(x->left_out, tried - kept);
	assert_true(x->bytes <= EXPOSITION_BYTES);
	text = text_of(x);
	assert_int_equal(text[strlen(text) - 1], '\n');
	free(text);
	free(focus);
	exposition_free(x);
}

/* So many distributions that there is no place for the last ones. */
static json_t *many_rows(unsigned count)
{
	json_t *rows = json_array(), *buckets = json_array();
	char focus[1024];

	for (unsigned i = 0; i < 400; i++)
		json_array_append_new(buckets, json_pack("[i, i, i]", 2 * i, 2 * i + 2, 1));
	for (unsigned i = 0; i < count; i++) {
		snprintf(focus, sizeof(focus), "/Code/m/%u%*s", i, (int)(i * 37 % 900), "x");
		json_array_append_new(rows, json_pack("{s:i, s:s, s:s, s:s, s:O}", "id", i,
						      "metric", "sizes", "unit", "bytes", "focus",
						      focus, "buckets", buckets));
	}
	json_decref(buckets);
	return rows;
}

/* Where there is no place for its buckets a distribution is left out as a whole, and that is told. */
static void distributions_are_whole(void **state)
{
	enum { ROWS = 6000 };
	struct snapshot snapshot = {.rows = many_rows(ROWS)};
	struct session session = {.name = "a", .process = "a", .pid = 1, .snapshot = &snapshot};
	struct server *server = calloc(1, sizeof(*server));
	struct exposition *x;
	struct text out = {0};
	char told[64];
	size_t kept = 0;

	(void)state;
	server->sessions = &session;
	x = expose(server);
	assert_non_null(x);
	for (const struct family *f = x->families; f; f = f->next)
		for (const struct sample *s = f->samples; s && f->type == FAMILY_HISTOGRAM;
		     s = s->next) {
			assert_non_null(s->distribution);
			assert_int_equal(s->distribution->bucket_count, 400);
			kept++;
		}
	assert_true(kept > 1000);
	assert_int_equal(kept + x->left_out, ROWS);
	exposition_text(x, &out);
	assert_false(out.failed);
	snprintf(told, sizeof(told), "\ndinst_left_out_samples %zu\n", ROWS - kept);
	assert_non_null(strstr(out.data, told));
	text_release(&out);
	exposition_free(x);
	json_decref(snapshot.rows);
	free(server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_is_escaped),
		cmocka_unit_test(numbers_are_exact),
		cmocka_unit_test(nothing_collides),
		cmocka_unit_test(what_is_ours_stays_ours),
		cmocka_unit_test(histograms_reserve_their_series),
		cmocka_unit_test(bounds_are_inclusive),
		cmocka_unit_test(exponential_buckets_hold_their_values),
		cmocka_unit_test(empty_distributions_are_fine),
		cmocka_unit_test(clocks_go_back),
		cmocka_unit_test(protobuf_is_as_it_should),
		cmocka_unit_test(there_is_an_end_to_it),
		cmocka_unit_test(distributions_are_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
