/* SPDX-License-Identifier: MIT */
/*
 * daemon_values.c - what people see of values, character by character: units,
 * bars of distributions, tops of vectors, charts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/client/command.h"
#include "daemon/client/values.h"
#include "daemon/client/why.h"

static char printed[1 << 16];

/* Standard output goes to a file meanwhile. */
static int begin(FILE **f)
{
	int before;

	fflush(stdout);
	before = dup(STDOUT_FILENO);
	*f = tmpfile();
	assert_true(before >= 0 && *f);
	assert_true(dup2(fileno(*f), STDOUT_FILENO) >= 0);
	return before;
}

static void end(FILE *f, int before)
{
	size_t n;

	fflush(stdout);
	assert_true(dup2(before, STDOUT_FILENO) >= 0);
	close(before);
	rewind(f);
	n = fread(printed, 1, sizeof(printed) - 1, f);
	printed[n] = '\0';
	fclose(f);
}

static json_t *load(const char *text)
{
	json_error_t why;
	json_t *value = json_loads(text, 0, &why);

	if (!value)
		fail_msg("%s at %d", why.text, why.position);
	return value;
}

static void expect_values(const char *rows, bool verbose, const char *expected)
{
	json_t *list = load(rows);
	FILE *f;
	int before = begin(&f);

	values_print(list, verbose);
	end(f, before);
	json_decref(list);
	assert_string_equal(printed, expected);
}

static void expect_chart(const char *row, size_t columns, bool fine, const char *expected)
{
	json_t *object = load(row);
	FILE *f;
	int before = begin(&f);

	chart_print(object, columns, fine);
	end(f, before);
	json_decref(object);
	assert_string_equal(printed, expected);
}

/* ------------------------------------------------------------------- units */

static void units(void **state)
{
	static const struct {
		double value;
		const char *unit, *text, *rate;
	} cases[] = {
		{0, "ns", "0 ns", "0 ns/s"},
		{999, "ns", "999 ns", "999 ns/s"},
		{1000, "ns", "1 us", "1 us/s"},
		{1234, "ns", "1.23 us", "1.23 us/s"},
		{12345678, "ns", "12.3 ms", "12.3 ms/s"},
		{-12345678, "ns", "-12.3 ms", "-12.3 ms/s"},
		{987654321, "ns", "988 ms", "988 ms/s"},
		{90e9, "ns", "1.50 min", "1.50 min/s"},
		{7200e9, "ns", "2 h", "2 h/s"},
		{0, "bytes", "0 B", "0 B/s"},
		{1536, "bytes", "1.50 KiB", "1.50 KiB/s"},
		{5 * 1048576.0, "bytes", "5 MiB", "5 MiB/s"},
		{123456, "calls", "123456 calls", "123456 calls/s"},
		{12.34, "calls", "12.3 calls", "12.3 calls/s"},
		{7, "callsPerSecond", "7 callsPerSecond", "7 calls/s"},
		{7, "", "7", "7/s"},
		{7, NULL, "7", "7/s"},
		{3, "a-unit-with-a-very-long-name", "3 a-unit-with-a-ve", "3 a-unit-with-a-ve/s"},
	};
	char text[VALUE_TEXT];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		value_with_unit(cases[i].value, cases[i].unit, text);
		assert_string_equal(text, cases[i].text);
		rate_with_unit(cases[i].value, cases[i].unit, text);
		assert_string_equal(text, cases[i].rate);
	}
	/* Whatever comes, it stays in its room. */
	value_with_unit(1e300, "bytes", text);
	assert_true(strlen(text) < VALUE_TEXT);
	rate_with_unit(-1e300, "sixteen-letters-", text);
	assert_true(strlen(text) < VALUE_TEXT);
}

/* ------------------------------------------------------------------ tables */

static void plain_values(void **state)
{
	(void)state;
	expect_values(
		"[{\"id\":1,\"metric\":\"calls\",\"focus\":\"/Code/a/f\",\"value\":1234,\"unit\":"
		"\"calls\"},"
		"{\"id\":12,\"metric\":\"wall\",\"focus\":\"/Code/a/g\",\"value\":1234567890,"
		"\"unit\":\"ns\"},"
		"{\"id\":13,\"metric\":\"alloc_live\",\"focus\":\"/Code\",\"value\":-4096,"
		"\"unit\":\"bytes\",\"stopped\":true}]",
		false,
		"ID  METRIC           VALUE  UNIT       IS  NOTE     FOCUS\n"
		" 1  calls             1234  calls       -  -        /Code/a/f\n"
		"12  wall        1234567890  ns     1.23 s  -        /Code/a/g\n"
		"13  alloc_live       -4096  bytes  -4 KiB  stopped  /Code\n");
	expect_values("[]", false, "");
}

static void costs(void **state)
{
	(void)state;
	expect_values(
		"[{\"id\":1,\"metric\":\"calls\",\"focus\":\"/Code/a/f\",\"value\":10,\"unit\":"
		"\"calls\",\"predicted_ns\":1.25,\"hits\":10,\"cost_ns_per_s\":25000000}]",
		true,
		"ID  METRIC  VALUE  UNIT   NS/HIT  HITS    COST  FOCUS\n"
		" 1  calls      10  calls     1.2    10  2.50 %  /Code/a/f\n");
}

#define LATENCY                                                                                            \
	"\"id\":3,\"metric\":\"latency\",\"focus\":\"/Code/a/f\",\"value\":8,\"unit\":\"ns\",\"count\":8," \
	"\"sum\":9000,\"min\":100,\"max\":4200,\"p50\":500,\"p90\":4100,\"p99\":4190,\"p999\":4200,"       \
	"\"buckets\":[[100,102,1],[500,504,5],[4096,4224,2]]"

static void distributions(void **state)
{
	(void)state;
	unsetenv("LC_ALL");
	unsetenv("LC_CTYPE");
	setenv("LANG", "C", 1);
	expect_values(
		"[{" LATENCY "}]", false,
		"ID  METRIC   VALUE  UNIT    FOCUS\n"
		" 3  latency      8  values  /Code/a/f\n"
		"\n"
		"3: latency /Code/a/f\n"
		"  8 values, sum 9 us, mean 1.12 us\n"
		"  min 100 ns   p50 500 ns   p90 4.10 us   p99 4.19 us   p99.9 4.20 us   max 4.20 "
		"us\n"
		"       64 ns - 128 ns              1  12.5 % |########\n"
		"      128 ns - 256 ns              0   0.0 % |\n"
		"      256 ns - 512 ns              5  62.5 % "
		"|########################################\n"
		"      512 ns - 1.02 us             0   0.0 % |\n"
		"     1.02 us - 2.05 us             0   0.0 % |\n"
		"     2.05 us - 4.10 us             0   0.0 % |\n"
		"     4.10 us - 8.19 us             2  25.0 % |################\n");
	setenv("LANG", "de_DE.UTF-8", 1);
	expect_values(
		"[{\"id\":3,\"metric\":\"sizes\",\"focus\":\"/Code\",\"value\":1001,\"unit\":\"bytes\","
		"\"count\":1001,\"sum\":1000,\"min\":0,\"max\":1000,\"p50\":0,\"p90\":0,\"p99\":0,"
		"\"p999\":0,\"buckets\":[[0,1,1000],[1,2,1]]}]",
		false,
		"ID  METRIC  VALUE  UNIT    FOCUS\n"
		" 3  sizes    1001  values  /Code\n"
		"\n"
		"3: sizes /Code\n"
		"  1001 values, sum 1000 B, mean 1.00 B\n"
		"  min 0 B   p50 0 B   p90 0 B   p99 0 B   p99.9 0 B   max 1000 B\n"
		"         0 B - 1 B              1000  99.9 % "
		"│████████████████████████████████████████\n"
		"         1 B - 2 B                 1   0.1 % │▏\n");
	setenv("LANG", "C", 1);
	/* Nothing was recorded yet. */
	expect_values(
		"[{\"id\":3,\"metric\":\"latency\",\"focus\":\"/Code\",\"value\":0,\"unit\":\"ns\","
		"\"count\":0,\"sum\":0,\"min\":0,\"max\":0,\"p50\":0,\"p90\":0,\"p99\":0,\"p999\":0,"
		"\"buckets\":[]}]",
		false,
		"ID  METRIC   VALUE  UNIT    FOCUS\n"
		" 3  latency      0  values  /Code\n"
		"\n"
		"3: latency /Code\n"
		"  0 values, sum 0 ns\n");
}

static void vectors(void **state)
{
	char rows[8192];
	size_t used;

	(void)state;
	setenv("LANG", "C", 1);
	used = (size_t)snprintf(rows, sizeof(rows),
				"[{\"id\":4,\"metric\":\"calls\",\"focus\":\"/SyncObject/Mutex/*\","
				"\"value\":780,\"unit\":\"calls\",\"full\":7,\"elements\":[");
	for (int k = 0; k < 12; k++)
		used += (size_t)snprintf(rows + used, sizeof(rows) - used,
					 "%s{\"key\":\"0x%x\",\"value\":%d}", k ? "," : "",
					 0x1000 + k, 120 - 10 * k);
	snprintf(rows + used, sizeof(rows) - used, ",{\"key\":null,\"value\":0}]}]");
	expect_values(rows, false,
		      "ID  METRIC  VALUE  UNIT   FOCUS\n"
		      " 4  calls     780  calls  /SyncObject/Mutex/*\n"
		      "\n"
		      "4: calls /SyncObject/Mutex/*\n"
		      "KEY     VALUE   SHARE\n"
		      "0x1000    120  15.4 %\n"
		      "0x1001    110  14.1 %\n"
		      "0x1002    100  12.8 %\n"
		      "0x1003     90  11.5 %\n"
		      "0x1004     80  10.3 %\n"
		      "0x1005     70   9.0 %\n"
		      "0x1006     60   7.7 %\n"
		      "0x1007     50   6.4 %\n"
		      "0x1008     40   5.1 %\n"
		      "0x1009     30   3.8 %\n"
		      "... and 3 more with 30 calls (-v shows them)\n"
		      "for 7 more there was no room: they are (others)\n");
	expect_values(
		"[{\"id\":5,\"metric\":\"cpu\",\"focus\":\"/Process/*\",\"value\":3000000,\"unit\":\"ns\","
		"\"full\":0,\"elements\":[{\"key\":\"12\",\"name\":\"main\",\"value\":2000000},"
		"{\"key\":\"13\",\"name\":\"io\",\"value\":1000000}]}]",
		true,
		"ID  METRIC    VALUE  UNIT    IS  FOCUS\n"
		" 5  cpu     3000000  ns    3 ms  /Process/*\n"
		"\n"
		"5: cpu /Process/*\n"
		"KEY  NAME    VALUE    IS   SHARE\n"
		"12   main  2000000  2 ms  66.7 %\n"
		"13   io    1000000  1 ms  33.3 %\n");
}

/* ------------------------------------------------------------------ charts */

static void charts(void **state)
{
	(void)state;
	setenv("TZ", "UTC", 1);
	expect_chart(
		"{\"id\":1,\"metric\":\"calls\",\"focus\":\"/Code/a/f\",\"unit\":\"calls\",\"style\":"
		"\"EventCounter\",\"value\":100,\"start\":1000000000,\"width_ns\":200000000,"
		"\"last_ns\":100000000,\"ended\":false,\"bins\":[10,20,40,5,20,5]}",
		80, false,
		"1: calls /Code/a/f\n"
		"  100 calls in all; lowest 25 calls/s, mean 90.9 calls/s, highest 200 calls/s\n"
		"   200 calls/s |  #   \n"
		"               |  #   \n"
		"               |  #   \n"
		"               |  #   \n"
		"   100 calls/s | ## # \n"
		"               | ## # \n"
		"               |### ##\n"
		"               |######\n"
		"             0 +------\n"
		"                00:00:01 +1.10 s\n");
	expect_chart(
		"{\"id\":2,\"metric\":\"active\",\"focus\":\"/Code\",\"unit\":\"calls\",\"style\":"
		"\"SampledFunction\",\"value\":3,\"start\":0,\"width_ns\":200000000,\"last_ns\":"
		"200000000,\"ended\":true,\"bins\":[0,1.5,3]}",
		40, true,
		"2: active /Code\n"
		"  3 calls now\n"
		"  lowest 0 calls\n"
		"  mean 1.5 calls\n"
		"  highest 3 calls\n"
		"       3 calls ┤  █\n"
		"               ┤  █\n"
		"               ┤  █\n"
		"               ┤  █\n"
		"     1.5 calls ┤ ██\n"
		"               ┤ ██\n"
		"               ┤ ██\n"
		"               ┤ ██\n"
		"             0 └───\n"
		"                00:00:00 +600 ms (ended)\n");
	expect_chart(
		"{\"id\":2,\"metric\":\"active\",\"focus\":\"/Code\",\"unit\":\"calls\",\"style\":"
		"\"SampledFunction\",\"value\":3,\"start\":0,\"width_ns\":200000000,\"last_ns\":0,"
		"\"ended\":false,\"bins\":[]}",
		40, true, "2: active /Code\n  no samples yet\n");
}

/* However many bins, no line is wider than was asked for. */
static void charts_fit(void **state)
{
	json_t *row = load(
		"{\"id\":1,\"metric\":\"calls\",\"focus\":\"/Code\",\"unit\":\"calls\",\"style\":"
		"\"EventCounter\",\"value\":1,\"start\":0,\"width_ns\":200000000,\"last_ns\":"
		"200000000,\"ended\":false}");
	json_t *bins = json_array();

	(void)state;
	json_object_set_new(row, "bins", bins);
	for (int i = 0; i < 1000; i++)
		json_array_append_new(bins, json_integer(i));
	for (size_t columns = 40; columns < 200; columns += 13) {
		FILE *f;
		int before = begin(&f);

		chart_print(row, columns, false);
		end(f, before);
		for (char *line = strchr(printed, '|'); line; line = strchr(line + 1, '|')) {
			char *start = line;

			while (start > printed && start[-1] != '\n')
				start--;
			assert_true(strcspn(start, "\n") <= columns + 1);
		}
	}
	json_decref(row);
}

/* -------------------------------------------------------------- intervals */

static void buckets_between_readings(void **state)
{
	json_t *before = load("[[5,6,10],[100,102,3]]");
	json_t *now = load("[[5,6,10],[7,8,1],[100,102,5],[4096,4224,10]]");
	json_t *since = buckets_since(now, before);
	char *text = json_dumps(since, JSON_COMPACT);

	(void)state;
	assert_string_equal(text, "[[7,8,1],[100,102,2],[4096,4224,10]]");
	assert_true(buckets_quantile(since, 5, 4200, 0.01) == 7);
	assert_true(buckets_quantile(since, 5, 4200, 0.2) >= 100);
	assert_true(buckets_quantile(since, 5, 4200, 0.2) <= 102);
	assert_true(buckets_quantile(since, 5, 4200, 0.5) >= 4096);
	assert_true(buckets_quantile(since, 5, 4200, 1) == 4200);
	free(text);
	json_decref(since);
	since = buckets_since(now, now);
	assert_int_equal(json_array_size(since), 0);
	assert_true(buckets_quantile(since, 5, 6, 0.5) == 0);
	json_decref(since);
	json_decref(now);
	json_decref(before);
}

/* For programs whole numbers are what they were; all others have nine digits. */
static void numbers_for_programs(void **state)
{
	static const char text[] = "{\"a\":123456789012345.0,\"b\":[9007199254740994.0,0.5]}\n";
	json_t *value = json_pack("{s:f,s:[f,f]}", "a", 123456789012345.0, "b", 0x1p53 + 2, 0.5);
	FILE *f;
	int before = begin(&f);
	json_t *again;

	(void)state;
	print_json(value);
	end(f, before);
	assert_string_equal(printed, text);
	again = load(printed);
	assert_true(json_equal(again, value));
	json_decref(again);
	json_decref(value);
	value = json_pack("{s:f}", "rate", 0.1);
	before = begin(&f);
	print_json(value);
	end(f, before);
	assert_string_equal(printed, "{\"rate\":0.1}\n");
	json_decref(value);
	value = json_pack("{s:[f,f]}", "rates", 0.1, 2.0 / 3);
	before = begin(&f);
	print_json(value);
	end(f, before);
	assert_string_equal(printed, "{\"rates\":[0.1,0.666666667]}\n");
	json_decref(value);
}

/* Names of the program in the text of a metric are names there, whatever they have in them. */
static void names_in_metrics_are_quoted(void **state)
{
	struct search_test t = {.what = MEASURE_BLOCKS, .module = "a\"b", .symbol = "x\\y\nz\"; }"};
	struct why_plan plan;

	(void)state;
	assert_true(why_plan_make(&t, &plan));
	assert_non_null(strstr(plan.text, "{ \"a\\042b:x\\134y\\012z\\042; }\" }; }"));
	free(plan.text);
}

/* A number of a thread that is another one's by now: what that one has used, and no more than there was. */
static void thread_numbers_come_again(void **state)
{
	const uint64_t much = UINT64_C(1) << 62;
	struct why_thread then = {.tid = getpid(), .run_ns = much, .wait_ns = much};
	struct why_facts facts;
	struct search_facts sum;

	(void)state;
	why_facts_begin(&facts, getpid());
	free(facts.threads);
	facts.threads = &then;
	facts.thread_count = 1;
	facts.user = facts.system = facts.major_faults = much;
	facts.disk_read = facts.disk_written = much;
	usleep(50000);
	why_facts_sum(&facts, &sum);
	assert_int_equal(sum.busiest_count, 1);
	assert_true(sum.busiest[0].cpu < 1000 && sum.busiest[0].waiting < 1e6);
	assert_true(sum.starved < 1e6 && sum.user <= sum.cpu && sum.system <= sum.cpu);
	assert_true(sum.major_faults < 1e9 && sum.disk_read < 1e15 && sum.disk_written < 1e15);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_for_programs),
		cmocka_unit_test(names_in_metrics_are_quoted),
		cmocka_unit_test(thread_numbers_come_again),
		cmocka_unit_test(units),
		cmocka_unit_test(plain_values),
		cmocka_unit_test(costs),
		cmocka_unit_test(distributions),
		cmocka_unit_test(vectors),
		cmocka_unit_test(charts),
		cmocka_unit_test(charts_fit),
		cmocka_unit_test(buckets_between_readings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
