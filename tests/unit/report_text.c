/* SPDX-License-Identifier: MIT */
/*
 * report_text.c - events made by hand, as lines, and as JSON: every form of value, calls in calls,
 * what is missing, what is damaged, what a terminal would obey.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/unit/report_help.h"

static struct text out;

static int setup(void **state)
{
	(void)state;
	setenv("TZ", "UTC", 1);
	tzset();
	return 0;
}

static int empty(void **state)
{
	(void)state;
	text_drop(&out);
	return 0;
}

/* ------------------------------------------------------------------- values */

static void check_value(const char *type, const void *bytes, size_t size, const char *text,
			const char *json)
{
	json_t *description = json_loads(type, 0, NULL), *value;
	struct value_type *t = value_type_read(description);
	char *dumped;

	assert_non_null(t);
	text_clear(&out);
	text_add_value(&out, t, bytes, size);
	assert_string_equal(out.data, text);
	value = value_json(t, bytes, size);
	dumped = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
	assert_string_equal(dumped, json);
	free(dumped);
	json_decref(value);
	json_decref(description);
	value_type_free(t);
}

#define NUMBER(type, value, text, json)                               \
	do {                                                          \
		const uint64_t word_ = (uint64_t)(value);             \
                                                                      \
		check_value(type, &word_, sizeof(word_), text, json); \
	} while (0)

static void test_numbers(void **state)
{
	(void)state;
	NUMBER("{\"form\":\"int\",\"size\":4}", 0xffffffff, "-1", "-1");
	NUMBER("{\"form\":\"int\",\"size\":1}", 0x180, "-128", "-128");
	NUMBER("{\"form\":\"int\",\"size\":8}", -5, "-5", "-5");
	NUMBER("{\"form\":\"uint\",\"size\":4}", 0x7ffffffff, "4294967295", "4294967295");
	NUMBER("{\"form\":\"uint\",\"size\":8}", UINT64_MAX, "18446744073709551615",
	       "\"18446744073709551615\"");
	NUMBER("{\"form\":\"bool\",\"size\":1}", 0xff01, "true", "true");
	NUMBER("{\"form\":\"bool\",\"size\":1}", 0xff00, "false", "false");
	NUMBER("{\"form\":\"char\",\"size\":1}", 'x', "'x'", "120");
	NUMBER("{\"form\":\"char\",\"size\":1}", '\'', "'\\''", "39");
	NUMBER("{\"form\":\"char\",\"size\":1}", 27, "'\\x1b'", "27");
	NUMBER("{\"form\":\"pointer\",\"size\":8}", 0, "NULL", "null");
	NUMBER("{\"form\":\"pointer\",\"size\":8}", 0x7fff0010, "0x7fff0010", "\"0x7fff0010\"");
	NUMBER("{\"form\":\"enum\",\"size\":4,\"names\":{\"-1\":\"BAD\",\"2\":\"GOOD\"}}",
	       0xffffffff, "BAD", "\"BAD\"");
	NUMBER("{\"form\":\"enum\",\"size\":4,\"names\":{\"-1\":\"BAD\",\"2\":\"GOOD\"}}", 7, "7",
	       "7");
	NUMBER("{\"form\":\"enum\",\"size\":4,\"names\":{\"1\":\"R\",\"2\":\"W\",\"4\":\"X\"}}", 5,
	       "R|X", "5");
	/* 200 in a byte is -56 only where the enum has a sign. */
	NUMBER("{\"form\":\"enum\",\"size\":1,\"unsigned\":true,\"names\":{\"200\":\"OK\"}}", 200,
	       "OK", "\"OK\"");
	NUMBER("{\"form\":\"enum\",\"size\":1,\"unsigned\":true,\"names\":{\"200\":\"OK\"}}", 201,
	       "201", "201");
	NUMBER("{\"form\":\"enum\",\"size\":8,\"unsigned\":true}", UINT64_MAX,
	       "18446744073709551615", "\"18446744073709551615\"");
	NUMBER("{\"form\":\"enum\",\"size\":4,\"unsigned\":true,\"names\":{\"1\":\"R\",\"2147483648\":\"S\"}}",
	       0x80000001, "R|S", "2147483649");
	NUMBER("{\"form\":\"struct\",\"size\":4,\"members\":[{\"name\":\"e\",\"offset\":0,\"bit_offset\":2,"
	       "\"bit_size\":2,\"type\":{\"form\":\"enum\",\"size\":4,\"names\":{\"-1\":\"NONE\"}}}]}",
	       0xc, "{e=NONE}", "{\"e\":\"NONE\"}");
	/* Names are a target's, too. */
	NUMBER("{\"form\":\"enum\",\"size\":4,\"names\":{\"1\":\"\\u001b[2J\",\"2\":\"\\u009b2J\"}}",
	       1, "?[2J", "\"\\u001B[2J\"");
	NUMBER("{\"form\":\"enum\",\"size\":4,\"names\":{\"1\":\"\\u001b[2J\",\"2\":\"\\u009b2J\"}}",
	       3, "?[2J|??2J", "3");
	NUMBER("{\"form\":\"struct\",\"size\":4,\"members\":[{\"name\":\"\\u001b\",\"offset\":0,"
	       "\"type\":{\"form\":\"int\",\"size\":4}}]}",
	       7, "{?=7}", "{\"\\u001B\":7}");
}

static void test_floats(void **state)
{
	const double third = 1.0 / 3, large = 1e300, one = 1;
	const float tenth = 0.1f;
	uint64_t word = 0;

	(void)state;
	check_value("{\"form\":\"float\",\"size\":8}", &third, 8, "0.3333333333333333",
		    "0.33333333333333331");
	check_value("{\"form\":\"float\",\"size\":8}", &large, 8, "1e+300",
		    "1.0000000000000001e300");
	check_value("{\"form\":\"float\",\"size\":8}", &one, 8, "1", "1.0");
	memcpy(&word, &tenth, sizeof(tenth));
	check_value("{\"form\":\"float\",\"size\":4}", &word, 8, "0.1", "0.10000000149011612");
	/* Sizes that no number has are not read; 4 bytes are enough for one of 4. */
	check_value("{\"form\":\"float\",\"size\":4}", &tenth, 4, "0.1", "0.10000000149011612");
	check_value("{\"form\":\"float\",\"size\":2}", &tenth, 2, "...", "null");
	check_value("{\"form\":\"float\",\"size\":16}", &third, 8, "...", "null");
	text_clear(&out);
}

static const char pair_type[] =
	"{\"form\":\"struct\",\"name\":\"struct pair\",\"size\":24,\"members\":["
	"{\"name\":\"id\",\"offset\":0,\"type\":{\"form\":\"int\",\"size\":4}},"
	"{\"name\":\"low\",\"offset\":4,\"bit_offset\":0,\"bit_size\":3,\"type\":{\"form\":\"uint\",\"size\":4}},"
	"{\"name\":\"high\",\"offset\":4,\"bit_offset\":3,\"bit_size\":5,\"type\":{\"form\":\"int\",\"size\":4}},"
	"{\"name\":\"name\",\"offset\":8,\"type\":{\"form\":\"array\",\"size\":8,\"to\":{\"form\":\"char\",\"size\":1}}},"
	"{\"name\":\"in\",\"offset\":16,\"type\":{\"form\":\"struct\",\"size\":8,\"members\":["
	"{\"name\":\"a\",\"offset\":0,\"type\":{\"form\":\"int\",\"size\":2}},"
	"{\"name\":\"b\",\"offset\":4,\"type\":{\"form\":\"int\",\"size\":4}}]}}]}";

static void test_structs(void **state)
{
	struct {
		int32_t id;
		uint8_t low : 3;
		int8_t high : 5;
		uint8_t pad[3];
		char name[8];
		int16_t a;
		int32_t b;
	} pair = {-3, 5, -2, {0}, "x\"y", 7, 9};
	const int32_t numbers[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};

	(void)state;
	check_value(
		pair_type, &pair, sizeof(pair),
		"{id=-3, low=5, high=-2, name=\"x\\\"y\", in={a=7, b=9}}",
		"{\"id\":-3,\"low\":5,\"high\":-2,\"name\":\"x\\\"y\",\"in\":{\"a\":7,\"b\":9}}");
	/* Only a part of it was recorded. */
	check_value(pair_type, &pair, 20, "{id=-3, low=5, high=-2, name=\"x\\\"y\", in={a=7, ...}}",
		    "{\"id\":-3,\"low\":5,\"high\":-2,\"name\":\"x\\\"y\",\"in\":{\"a\":7}}");
	check_value(pair_type, &pair, 10, "{id=-3, low=5, high=-2, name=\"x\\\"\"..., ...}",
		    "{\"id\":-3,\"low\":5,\"high\":-2,\"name\":\"x\\\"\"}");
	check_value("{\"form\":\"array\",\"size\":40,\"to\":{\"form\":\"int\",\"size\":4}}",
		    numbers, 40, "[1, 2, 3, 4, 5, 6, 7, 8, ...]", "[1,2,3,4,5,6,7,8,9,10]");
	check_value("{\"form\":\"array\",\"size\":40,\"to\":{\"form\":\"int\",\"size\":4}}",
		    numbers, 9, "[1, 2, ...]", "[1,2]");
}

static void test_types_that_are_none(void **state)
{
	static const char *const bad[] = {
		"null", "{}", "{\"form\":\"what\"}", "{\"form\":7}", "[]", "\"int\"",
	};
	char deep[4096] = "";
	json_t *description;
	struct value_type *t;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		description = json_loads(bad[i], JSON_DECODE_ANY, NULL);
		assert_null(value_type_read(description));
		json_decref(description);
	}
	for (int i = 0; i < 60; i++)
		snprintf(deep + strlen(deep), sizeof(deep) - strlen(deep),
			 "{\"form\":\"pointer\",\"to\":");
	snprintf(deep + strlen(deep), sizeof(deep) - strlen(deep), "null");
	for (int i = 0; i < 60; i++)
		snprintf(deep + strlen(deep), sizeof(deep) - strlen(deep), "}");
	description = json_loads(deep, 0, NULL);
	t = value_type_read(description);
	assert_non_null(t);
	value_type_free(t);
	json_decref(description);
}

static void test_quoted(void **state)
{
	static const uint8_t bytes[] =
		"a\"\\\n\033[31m\xc3\xa9\xc2\x9b\xff\xe2\x80\xae\xe2\x82\xac";

	(void)state;
	text_add_quoted(&out, bytes, sizeof(bytes) - 1);
	assert_string_equal(out.data,
			    "\"a\\\"\\\\\\n\\x1b[31m\xc3\xa9\\xc2\\x9b\\xff\\xe2\\x80\\xae"
			    "\xe2\x82\xac\"");
	text_clear(&out);
	text_add_clean(&out, "x\033]0;\xc3\xa9\x07\xff");
	assert_string_equal(out.data, "x?]0;\xc3\xa9??");
}

static void test_durations(void **state)
{
	static const struct {
		uint64_t ns;
		const char *text;
	} cases[] = {{0, "0 ns"},
		     {999, "999 ns"},
		     {1000, "1.000 us"},
		     {12345, "12.35 us"},
		     {123456, "123.5 us"},
		     {1500000, "1.500 ms"},
		     {2000000000, "2.000 s"},
		     {3600000000000, "3600 s"}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		text_clear(&out);
		text_add_duration(&out, cases[i].ns);
		assert_string_equal(out.data, cases[i].text);
	}
}

/* -------------------------------------------------------------------- traces */

static const char kinds[] =
	"[{\"events\":["
	"{\"id\":1,\"function\":\"outer\",\"module\":\"m\",\"kind\":\"entry\",\"address\":\"0x10\",\"fields\":["
	"{\"text\":\"$stack\",\"role\":\"sp\",\"form\":\"value\",\"offset\":24,\"size\":8,\"type\":null},"
	"{\"text\":\"$arg[0]\",\"name\":\"n\",\"role\":\"argument\",\"form\":\"value\",\"offset\":32,\"size\":8,"
	"\"type\":{\"form\":\"int\",\"size\":4}}]},"
	"{\"id\":2,\"function\":\"outer\",\"module\":\"m\",\"kind\":\"return\",\"address\":\"0x20\",\"fields\":["
	"{\"text\":\"$stack\",\"role\":\"sp\",\"form\":\"value\",\"offset\":24,\"size\":8,\"type\":null},"
	"{\"text\":\"$return\",\"name\":\"\",\"role\":\"result\",\"form\":\"value\",\"offset\":32,\"size\":8,"
	"\"type\":{\"form\":\"enum\",\"size\":4,\"names\":{\"0\":\"OK\",\"-1\":\"ERROR\"}}}]},"
	"{\"id\":3,\"function\":\"inner\",\"module\":\"m\",\"kind\":\"entry\",\"address\":\"0x30\",\"fields\":["
	"{\"text\":\"$stack\",\"role\":\"sp\",\"form\":\"value\",\"offset\":24,\"size\":8,\"type\":null},"
	"{\"text\":\"$arg[0]\",\"name\":\"key\",\"role\":\"argument\",\"form\":\"value\",\"offset\":32,\"size\":8,"
	"\"type\":{\"form\":\"string\",\"size\":8}},"
	"{\"text\":\"string($arg[0], 8)\",\"name\":\"key\",\"role\":\"pointee\",\"form\":\"string\",\"offset\":40,"
	"\"size\":16,\"type\":null}]},"
	"{\"id\":4,\"function\":\"inner\",\"module\":\"m\",\"kind\":\"return\",\"address\":\"0x40\",\"fields\":["
	"{\"text\":\"$stack\",\"role\":\"sp\",\"form\":\"value\",\"offset\":24,\"size\":8,\"type\":null}]}]}]";

static struct event_log event_log;
static struct trace trace;

static int trace_setup(void **state)
{
	struct dinst_error e = {0};
	json_t *rows = json_loads(kinds, 0, NULL);

	(void)state;
	event_log_init(&event_log);
	assert_int_equal(event_log_kinds(&event_log, rows, &e), 0);
	json_decref(rows);
	assert_int_equal(event_log_name(&event_log, 77, 70, "wor\033ker", &e), 0);
	event_log.epoch_ns = 1000000000000000000 - 1000;
	trace_init(&trace, &event_log);
	text_clear(&out);
	return 0;
}

static int trace_teardown(void **state)
{
	(void)state;
	trace_release(&trace);
	event_log_release(&event_log);
	text_drop(&out);
	return 0;
}

static int show(void *arg, const struct event *e)
{
	(void)arg;
	trace_event(&trace, e, &out);
	return 0;
}

static void feed(uint32_t id, uint64_t ns, uint64_t sp, uint64_t value, const char *string)
{
	uint8_t record[64];
	const size_t size = record_make(record, id, ns, 77, sp, value, string);

	assert_int_equal(event_log_records(&event_log, record, size, show, NULL), 0);
}

static void test_calls(void **state)
{
	(void)state;
	feed(1, 1000, 0x900, 5, NULL);
	feed(3, 2000, 0x800, 0x1234, "abc");
	feed(4, 3234, 0x800, 0, NULL);
	feed(3, 4000, 0x800, 0x1234, "abcdefgh");
	feed(4, 4500, 0x800, 0, NULL);
	feed(2, 2001000, 0x900, (uint64_t)-1, NULL);
	feed(1, 3001000, 0x900, 6, NULL);
	feed(2, 3002000, 0x900, 0, NULL);
	assert_string_equal(
		out.data,
		"01:46:40.000000  wor?ker/77              outer(n=5) {\n"
		"01:46:40.000001  wor?ker/77                inner(key=\"abc\") [1.234 us]\n"
		"01:46:40.000003  wor?ker/77                inner(key=\"abcdefgh\"...) [500 ns]\n"
		"01:46:40.002000  wor?ker/77              } = ERROR [2.000 ms]  outer\n"
		"01:46:40.003000  wor?ker/77              outer(n=6) = OK [1.000 us]\n");
	assert_int_equal(trace.lines, 5);
}

static void test_what_is_missing(void **state)
{
	(void)state;
	/* The entry was before; the return was dropped; a jump out of two. */
	feed(2, 1000, 0x900, 0, NULL);
	feed(1, 2000, 0x900, 1, NULL);
	feed(3, 3000, 0x800, 0, NULL);
	feed(1, 4000, 0x900, 2, NULL);
	trace_flush(&trace, 4000, &out);
	trace_flush(&trace, 4001, &out);
	feed(2, 5000, 0x900, 0, NULL);
	assert_string_equal(
		out.data, "01:46:40.000000  wor?ker/77              } = OK  outer (began before)\n"
			  "01:46:40.000001  wor?ker/77              outer(n=1) {\n"
			  "01:46:40.000002  wor?ker/77                inner(key=NULL) {\n"
			  "01:46:40.000003  wor?ker/77              outer(n=2) {\n"
			  "01:46:40.000004  wor?ker/77              } = OK [1.000 us]  outer\n");
}

static void test_json(void **state)
{
	(void)state;
	trace.json = true;
	feed(1, 1000, 0x900, 5, NULL);
	feed(3, 2000, 0x800, 0x1234, "abc");
	feed(4, 3234, 0x800, 0, NULL);
	feed(2, 5000, 0x900, 0, NULL);
	assert_string_equal(
		out.data,
		"{\"time\":1000000000000000000,\"pid\":70,\"tid\":77,\"thread\":\"wor\\u001Bker\",\"event\":\"entry\","
		"\"function\":\"outer\",\"module\":\"m\",\"depth\":0,\"args\":{\"n\":5}}\n"
		"{\"time\":1000000000000001000,\"pid\":70,\"tid\":77,\"thread\":\"wor\\u001Bker\",\"event\":\"entry\","
		"\"function\":\"inner\",\"module\":\"m\",\"depth\":1,\"args\":{\"key\":\"abc\"}}\n"
		"{\"time\":1000000000000002234,\"pid\":70,\"tid\":77,\"thread\":\"wor\\u001Bker\",\"event\":\"return\","
		"\"function\":\"inner\",\"module\":\"m\",\"depth\":1,\"elapsed_ns\":1234}\n"
		"{\"time\":1000000000000004000,\"pid\":70,\"tid\":77,\"thread\":\"wor\\u001Bker\",\"event\":\"return\","
		"\"function\":\"outer\",\"module\":\"m\",\"depth\":0,\"return\":\"OK\",\"elapsed_ns\":4000}\n");
}

static void test_colours(void **state)
{
	(void)state;
	trace.colour = true;
	feed(1, 1000, 0x900, 5, NULL);
	feed(2, 2001000, 0x900, 0, NULL);
	assert_non_null(strstr(out.data, "\033[1mouter\033[0m(n=5) = \033[36mOK\033[0m"));
	assert_non_null(strstr(out.data, "\033[33m[2.000 ms]\033[0m"));
}

static int ignore(void *arg, const struct event *e)
{
	uint64_t value;
	const uint8_t *bytes;
	size_t length;

	(void)arg;
	for (size_t i = 0; i < e->kind->field_count; i++) {
		const struct event_field *f = &e->kind->fields[i];

		if (event_value(e, f, &value))
			continue;
		if (event_bytes(e, f, &bytes, &length))
			assert_true(bytes + length <= e->data + e->size);
	}
	trace_event(&trace, e, &out);
	return 0;
}

/* Any bytes are events or damaged, and nothing outside of them is read (a page behind them is not there). */
static void test_damaged(void **state)
{
	uint8_t record[256], *copy;
	size_t size = 0;

	(void)state;
	size += record_make(record, 1, 1000, 77, 0x900, 5, NULL);
	size += record_make(record + size, 3, 2000, 77, 0x800, 0x1234, "abc");
	size += record_make(record + size, 4, 3000, 78, 0x800, 0, NULL);
	srandom(6);
	for (int i = 0; i < 20000; i++) {
		const size_t length = (size_t)random() % (size + 1);

		copy = malloc(length ? length : 1);
		memcpy(copy, record, length);
		for (int k = 0; length && k < i % 8; k++)
			copy[(size_t)random() % length] = (uint8_t)random();
		event_log_records(&event_log, copy, length, ignore, NULL);
		free(copy);
		text_clear(&out);
	}
	assert_true(event_log.damaged > 100);
	assert_true(event_log.events > 100);
}

static void test_kinds_that_are_none(void **state)
{
	static const char *const bad[] = {
		"[{\"events\":[{}]}]",
		"[{\"events\":[{\"id\":0,\"fields\":[]}]}]",
		"[{\"events\":[{\"id\":9,\"fields\":[{\"form\":\"value\",\"offset\":8,\"size\":8}]}]}]",
		"[{\"events\":[{\"id\":9,\"fields\":[{\"form\":\"value\",\"offset\":99999999,\"size\":8}]}]}]",
		"[{\"events\":[{\"id\":9,\"fields\":[{\"form\":\"no\",\"offset\":24,\"size\":8}]}]}]",
		"[{\"events\":[7]}]",
	};
	struct dinst_error e;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		json_t *rows = json_loads(bad[i], 0, NULL);

		dinst_error_clear(&e);
		assert_int_equal(event_log_kinds(&event_log, rows, &e), DINST_PROTOCOL);
		json_decref(rows);
	}
	assert_int_equal(event_log.kind_count, 4);
}

static void test_kinds_kept(void **state)
{
	json_t *ranges = json_pack("[[ii][ii]]", 2, 2, 4, 9), *none = json_array();

	(void)state;
	event_log_keep(&event_log, ranges);
	assert_int_equal(event_log.kind_count, 2);
	assert_null(event_log_kind(&event_log, 1));
	assert_string_equal(event_log_kind(&event_log, 2)->function, "outer");
	assert_null(event_log_kind(&event_log, 3));
	assert_string_equal(event_log_kind(&event_log, 4)->function, "inner");
	event_log_keep(&event_log, none);
	assert_int_equal(event_log.kind_count, 0);
	json_decref(ranges);
	json_decref(none);
}

static void test_base64(void **state)
{
	uint8_t bytes[16];

	(void)state;
	assert_int_equal(base64_decode("", 0, bytes, sizeof(bytes)), 0);
	assert_int_equal(base64_decode("TWFu", 4, bytes, sizeof(bytes)), 3);
	assert_memory_equal(bytes, "Man", 3);
	assert_int_equal(base64_decode("TWFuTWE=", 8, bytes, sizeof(bytes)), 5);
	assert_int_equal(base64_decode("TQ==", 4, bytes, sizeof(bytes)), 1);
	assert_int_equal(base64_decode("TQ==", 4, bytes, 0), SIZE_MAX);
	assert_int_equal(base64_decode("T", 1, bytes, sizeof(bytes)), SIZE_MAX);
	assert_int_equal(base64_decode("T===", 4, bytes, sizeof(bytes)), SIZE_MAX);
	assert_int_equal(base64_decode("TW=u", 4, bytes, sizeof(bytes)), SIZE_MAX);
	assert_int_equal(base64_decode("TW\nu", 4, bytes, sizeof(bytes)), SIZE_MAX);
	assert_int_equal(base64_decode("TWFuTWFu", 8, bytes, 5), SIZE_MAX);
}

/* An answer as it comes. */
static void test_answer(void **state)
{
	struct dinst_error e = {0};
	uint8_t record[64];
	char text[128];
	const size_t size = record_make(record, 1, 1000, 81, 0x900, 5, NULL);
	json_t *answer;

	(void)state;
	base64_make(text, record, size);
	answer = json_pack("{s:s, s:i, s:b, s:[{s:i, s:i, s:s}], s:i, s:i}", "data", text,
			   "dropped", 3, "more", 1, "threads", "tid", 81, "pid", 80, "name", "late",
			   "now_ns", 5, "epoch_ns", 7);
	assert_int_equal(event_log_add(&event_log, answer, show, NULL, &e), 0);
	trace_flush(&trace, UINT64_MAX, &out);
	assert_non_null(strstr(out.data, "late/81 "));
	assert_int_equal(event_log.dropped, 3);
	assert_true(event_log.more);
	assert_int_equal(event_log.epoch_ns, 7);
	json_object_set_new(answer, "data", json_string("###"));
	assert_int_equal(event_log_add(&event_log, answer, show, NULL, &e), DINST_PROTOCOL);
	json_decref(answer);
}

#define TRACE_TEST(name) cmocka_unit_test_setup_teardown(name, trace_setup, trace_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_numbers, empty),
		cmocka_unit_test_teardown(test_floats, empty),
		cmocka_unit_test_teardown(test_structs, empty),
		cmocka_unit_test_teardown(test_types_that_are_none, empty),
		cmocka_unit_test_teardown(test_quoted, empty),
		cmocka_unit_test_teardown(test_durations, empty),
		TRACE_TEST(test_calls),
		TRACE_TEST(test_what_is_missing),
		TRACE_TEST(test_json),
		TRACE_TEST(test_colours),
		TRACE_TEST(test_damaged),
		TRACE_TEST(test_kinds_that_are_none),
		TRACE_TEST(test_kinds_kept),
		TRACE_TEST(test_base64),
		TRACE_TEST(test_answer),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
