/* SPDX-License-Identifier: MIT */
/*
 * daemon_rpc.c - what comes over the wire: valid, garbage, truncated, nested,
 * flipped. A request is either taken apart rightly or refused with the code
 * that JSON-RPC gives it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/rpc.h"

static const struct {
	const char *text;
	int code;
} requests[] = {
	{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}", 0},
	{"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"ping\",\"params\":{}}", 0},
	{"{\"jsonrpc\":\"2.0\",\"method\":\"ping\",\"params\":{\"a\":[1,2]}}", 0},
	{"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}", 0},
	{" \t{ \"jsonrpc\" : \"2.0\" , \"id\" : 1.5 , \"method\" : \"x\" } ", 0},
	{"", RPC_PARSE},
	{"{", RPC_PARSE},
	{"}", RPC_PARSE},
	{"{]", RPC_PARSE},
	{"nonsense", RPC_PARSE},
	{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"", RPC_PARSE},
	{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"} x", RPC_PARSE},
	{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"p\\u0000g\"}", RPC_PARSE},
	{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\xfe\"}", RPC_PARSE},
	{"{\"jsonrpc\":\"2.0\",\"id\":99999999999999999999,\"method\":\"x\"}", RPC_PARSE},
	{"{'jsonrpc':'2.0','id':1,'method':'ping'}", RPC_PARSE},
	{"[]", RPC_INVALID},
	{"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]", RPC_INVALID},
	{"1", RPC_INVALID},
	{"null", RPC_INVALID},
	{"\"ping\"", RPC_INVALID},
	{"{}", RPC_INVALID},
	{"{\"id\":1,\"method\":\"ping\"}", RPC_INVALID},
	{"{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}", RPC_INVALID},
	{"{\"jsonrpc\":2.0,\"id\":1,\"method\":\"ping\"}", RPC_INVALID},
	{"{\"jsonrpc\":\"2.0\",\"id\":1}", RPC_INVALID},
	{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}", RPC_INVALID},
	{"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}", RPC_INVALID},
	{"{\"jsonrpc\":\"2.0\",\"id\":[1],\"method\":\"ping\"}", RPC_INVALID},
	{"{\"jsonrpc\":\"2.0\",\"id\":true,\"method\":\"ping\"}", RPC_INVALID},
	{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"params\":[1]}", RPC_PARAMS},
	{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"params\":null}", RPC_PARAMS},
	{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"params\":\"y\"}", RPC_PARAMS},
};

static void request_codes(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
		struct dinst_error e = {0, ""};
		struct rpc_request r;
		int code = rpc_request_parse(requests[i].text, strlen(requests[i].text), &r, &e);

		if (code != requests[i].code)
			fail_msg("%s: %d instead of %d", requests[i].text, code, requests[i].code);
		assert_true((code == 0) == (e.code == 0));
		assert_true(code != 0 || r.method != NULL);
		rpc_request_release(&r);
	}
}

/* text[depth brackets] and their ends; malloc'ed. */
static char *nested(char open, char close, size_t depth)
{
	char *text = malloc(2 * depth + 1);

	memset(text, open, depth);
	memset(text + depth, close, depth);
	text[2 * depth] = '\0';
	return text;
}

static void deep_nesting(void **state)
{
	static const struct {
		size_t depth;
		int ok;
	} cases[] = {{1, 1}, {RPC_DEPTH, 1}, {RPC_DEPTH + 1, 0}, {400000, 0}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct dinst_error e = {0, ""};
		char *text = nested('[', ']', cases[i].depth);
		json_t *value = rpc_load(text, strlen(text), &e);

		assert_int_equal(value != NULL, cases[i].ok);
		assert_int_equal(e.code, cases[i].ok ? 0 : DINST_PROTOCOL);
		json_decref(value);
		free(text);
	}
	/* brackets in strings do not nest, whatever is escaped in them */
	assert_true(rpc_depth_ok("\"[[[[\"", 6, 1));
	assert_true(rpc_depth_ok("\"\\\"[[[[\"", 8, 1));
	assert_false(rpc_depth_ok("\"\\\\\"[[", 6, 1));
}

static const struct {
	const char *text;
	const char *id, *method, *result, *error; /* NULL: missing */
	int bad;
} messages[] = {
	{"{\"id\":7,\"result\":{\"rows\":[1,{\"a\":\"}\"}]}}", "7", NULL,
	 "{\"rows\":[1,{\"a\":\"}\"}]}", NULL, 0},
	{"{\"jsonrpc\":\"2.0\",\"id\":7,\"error\":{\"code\":-1}}", "7", NULL, NULL, "{\"code\":-1}",
	 0},
	{"{\"method\":\"armed\"}", NULL, "\"armed\"", NULL, NULL, 0},
	{" { \"id\" : 7 , \"result\" : { } } ", "7", NULL, "{ }", NULL, 0},
	{"{\"id\":7,\"result\":\"\\\"\\\\\"}", "7", NULL, "\"\\\"\\\\\"", NULL, 0},
	{"{}", NULL, NULL, NULL, NULL, 0},
	{"", NULL, NULL, NULL, NULL, 1},
	{"[]", NULL, NULL, NULL, NULL, 1},
	{"7", NULL, NULL, NULL, NULL, 1},
	{"{", NULL, NULL, NULL, NULL, 1},
	{"{\"id\"", NULL, NULL, NULL, NULL, 1},
	{"{\"id\":", NULL, NULL, NULL, NULL, 1},
	{"{\"id\":}", NULL, NULL, NULL, NULL, 1},
	{"{\"id\":7,}", NULL, NULL, NULL, NULL, 1},
	{"{\"id\":7 \"result\":1}", NULL, NULL, NULL, NULL, 1},
	{"{\"id\":7}}", NULL, NULL, NULL, NULL, 1},
	{"{\"id\":7} {}", NULL, NULL, NULL, NULL, 1},
	{"{\"id\":[}]}", NULL, NULL, NULL, NULL, 1},
	{"{\"id\":\"7}", NULL, NULL, NULL, NULL, 1},
	{"{\"id\":\"7\\", NULL, NULL, NULL, NULL, 1},
	{"{id:7}", NULL, NULL, NULL, NULL, 1},
};

static void check_span(struct rpc_span span, const char *expected, const char *text)
{
	if (!expected != !span.text ||
	    (expected &&
	     (strlen(expected) != span.length || memcmp(expected, span.text, span.length) != 0)))
		fail_msg("%s: %.*s instead of %s", text, (int)span.length,
			 span.text ? span.text : "", expected ? expected : "nothing");
}

static void scanning(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
		struct dinst_error e = {0, ""};
		struct rpc_message m;
		int err = rpc_scan(messages[i].text, strlen(messages[i].text), &m, &e);

		if ((err != 0) != messages[i].bad)
			fail_msg("%s: %d", messages[i].text, err);
		check_span(m.id, messages[i].id, messages[i].text);
		check_span(m.method, messages[i].method, messages[i].text);
		check_span(m.result, messages[i].result, messages[i].text);
		check_span(m.error, messages[i].error, messages[i].text);
	}
}

static const char whole[] =
	"{\"jsonrpc\":\"2.0\",\"id\":12,\"method\":\"insert\",\"params\":{\"focus\":"
	"[\"/Code/a\\\"b/\\u00e9\",{\"x\":[null,true,-1.5e3]}],\"each\":false}}";

/* Copies to memory of exactly the size, so that a sanitizer sees reads past the end. */
static void parse_all_ways(const char *text, size_t length)
{
	char *copy = malloc(length ? length : 1);
	struct dinst_error e = {0, ""};
	struct rpc_request r;
	struct rpc_message m;
	int parsed, scanned;

	memcpy(copy, text, length);
	parsed = rpc_request_parse(copy, length, &r, &e);
	dinst_error_clear(&e);
	scanned = rpc_scan(copy, length, &m, &e);
	/* whatever JSON takes as an object, the scanner takes, too */
	if (parsed == 0)
		assert_int_equal(scanned, 0);
	rpc_request_release(&r);
	free(copy);
}

static void truncated(void **state)
{
	(void)state;
	for (size_t n = 0; n < sizeof(whole); n++)
		parse_all_ways(whole, n);
}

static void flipped(void **state)
{
	char text[sizeof(whole)];
	uint32_t seed = 12345;

	(void)state;
	for (int round = 0; round < 50000; round++) {
		memcpy(text, whole, sizeof(whole));
		for (int flips = 0; flips <= round % 4; flips++) {
			seed = seed * 1664525 + 1013904223;
			text[(seed >> 8) % (sizeof(whole) - 1)] ^= (char)(1 << (seed >> 29));
		}
		parse_all_ways(text, sizeof(whole) - 1);
	}
}

static void makers(void **state)
{
	json_t *id = json_string("x\"y"), *params = json_pack("{s:i}", "a", 1);
	struct rpc_span result = {"{\"rows\":[]}", 11};
	struct dinst_error e = {0, ""};
	char *line;

	(void)state;
	line = rpc_make_request(3, "read", params);
	assert_string_equal(
		line, "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"read\",\"params\":{\"a\":1}}\n");
	free(line);
	line = rpc_make_request(3, "read", NULL);
	assert_string_equal(line, "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"read\"}\n");
	free(line);
	line = rpc_make_result_text(id, result);
	assert_string_equal(line,
			    "{\"jsonrpc\":\"2.0\",\"id\":\"x\\\"y\",\"result\":{\"rows\":[]}}\n");
	free(line);
	line = rpc_make_error(NULL, RPC_FAILED, "busy", "a \xff name");
	assert_string_equal(
		line, "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32000,\"message\":"
		      "\"a ? name\",\"data\":{\"code\":\"busy\"}}}\n");
	json_decref(params);
	params = rpc_load(line, strlen(line), &e);
	assert_int_equal(rpc_error_read(json_object_get(params, "error"), &e), DINST_BUSY);
	assert_string_equal(e.text, "a ? name");
	free(line);
	json_decref(id);
	json_decref(params);
}

/* What a terminal would obey is shown as '?', also by itself; the text is as long as it was. */
static void texts_are_cleaned(void **state)
{
	static const char *const cases[][2] = {
		{"a\033[31m\x7f", "a?[31m?"},
		{"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
		{"\xc2\x9b", "??"},
		{"x\x9b"
		 "31m",
		 "x?31m"},
		{"\xc3\xa9\x9b", "\xc3\xa9?"},
		{"\xe2\x82\xac\x90", "\xe2\x82\xac?"},
		{"\xf0\x9f\x98\x80\x85\x85", "\xf0\x9f\x98\x80??"},
		{"\xc3", "\xc3"},
		{"\xff\x9b", "\xff?"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[40];

		snprintf(text, sizeof(text), "%s", cases[i][0]);
		text_clean(text, false);
		assert_string_equal(text, cases[i][1]);
	}
}

/* On a terminal of that character set `text` becomes `clean`, and a string of JSON is shown so. */
static void expect_on(const char *charset, const char *text, const char *clean, const char *shown)
{
	json_t *value = json_string("\xd1\x9b\x33\x31m");
	char *json, copy[40];

	text_for_charset(charset);
	snprintf(copy, sizeof(copy), "%s", text);
	text_clean(copy, false);
	assert_string_equal(copy, clean);
	json = rpc_shown(value, JSON_ENCODE_ANY);
	assert_string_equal(json, shown);
	free(json);
	json_decref(value);
	text_for_charset(NULL);
}

/* Where each byte is a character of its own, none of those that such a terminal obeys is left. */
static void texts_of_other_terminals(void **state)
{
	static const char *const others[] = {"ISO-8859-1", "ISO-8859-15", "KOI8-R", "CP1251"};
	static const char *const ours[] = {NULL, "", "ANSI_X3.4-1968", "UTF-8", "utf-8"};

	(void)state;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		expect_on(others[i], "\xd1\x9b\x33\x31m\xfc", "\xd1?31m\xfc", "\"\\u045B31m\"");
	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		expect_on(ours[i], "\xd1\x9b\x33\x31m", "\xd1\x9b\x33\x31m",
			  "\"\xd1\x9b\x33\x31m\"");
}

static void numbers(void **state)
{
	static const struct {
		const char *text;
		unsigned long long max, value;
		int ok;
	} cases[] = {
		{"0", 9, 0, 1},
		{"9", 9, 9, 1},
		{"10", 9, 0, 0},
		{"", 9, 0, 0},
		{"-1", 9, 0, 0},
		{"+1", 9, 0, 0},
		{" 1", 9, 0, 0},
		{"1 ", 9, 0, 0},
		{"0x1", 99, 0, 0},
		{"0012", 99, 12, 1},
		{"1a", 99, 0, 0},
		{"2147483647", INT32_MAX, INT32_MAX, 1},
		{"2147483648", INT32_MAX, 0, 0},
		{"18446744073709551615", ~0ULL, ~0ULL, 1},
		{"18446744073709551616", ~0ULL, 0, 0},
		{"99999999999999999999999", ~0ULL, 0, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		unsigned long long value = 0;

		if (parse_number(cases[i].text, cases[i].max, &value) != cases[i].ok ||
		    value != cases[i].value)
			fail_msg("'%s'", cases[i].text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(request_codes),
		cmocka_unit_test(deep_nesting),
		cmocka_unit_test(scanning),
		cmocka_unit_test(truncated),
		cmocka_unit_test(flipped),
		cmocka_unit_test(makers),
		cmocka_unit_test(numbers),
		cmocka_unit_test(texts_are_cleaned),
		cmocka_unit_test(texts_of_other_terminals),
	};

	return cmocka_run_group_tests_name("daemon_rpc", tests, NULL, NULL);
}
