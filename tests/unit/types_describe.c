/* SPDX-License-Identifier: MIT */
/*
 * types_describe.c - types in words, as those who show values get them: of a program with
 * arguments of every kind, read by the confined child and by ourselves.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mutator/image.h"
#include "mutator/types_describe.h"
#include "mutator/types_reader.h"

static struct image *open_target(const char *name)
{
	const char *build = getenv("DINST_BUILD");
	struct dinst_error e = {0};
	struct image *img = NULL;
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/tests/live/targets/%s", build ? build : "build", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	if (image_open(fd, path, NULL, &img, &e) < 0)
		fail_msg("%s", e.text);
	close(fd);
	return img;
}

static uint32_t index_of(struct image *img, const char *name)
{
	struct dinst_error e = {0};
	uint32_t *found, index;
	size_t count;

	assert_int_equal(image_match(img, name, &found, &count, &e), 0);
	assert_int_equal(count, 1);
	index = found[0];
	free(found);
	return index;
}

static const struct {
	const char *function, *text;
} expected[] = {
	{"takes_node",
	 "{\"result\":{\"name\":\"int64_t\",\"form\":\"int\",\"size\":8},\"arguments\":["
	 "{\"name\":\"n\",\"type\":{\"name\":\"struct node *\",\"form\":\"pointer\",\"size\":8,\"to\":"
	 "{\"name\":\"struct node\",\"form\":\"struct\",\"size\":40,\"members\":["
	 "{\"name\":\"next\",\"offset\":0,\"type\":{\"name\":\"struct node *\",\"form\":\"pointer\",\"size\":8}},"
	 "{\"name\":\"value\",\"offset\":8,\"type\":{\"name\":\"int32_t\",\"form\":\"int\",\"size\":4}},"
	 "{\"name\":\"low\",\"offset\":12,\"type\":{\"name\":\"unsigned int\",\"form\":\"uint\",\"size\":4},"
	 "\"bit_offset\":0,\"bit_size\":3},"
	 "{\"name\":\"high\",\"offset\":12,\"type\":{\"name\":\"unsigned int\",\"form\":\"uint\",\"size\":4},"
	 "\"bit_offset\":3,\"bit_size\":5},"
	 "{\"name\":\"sign\",\"offset\":13,\"type\":{\"name\":\"int\",\"form\":\"int\",\"size\":4},"
	 "\"bit_offset\":0,\"bit_size\":4},"
	 "{\"name\":\"\",\"offset\":16,\"type\":{\"name\":\"union {...}\",\"form\":\"struct\",\"size\":8,\"members\":["
	 "{\"name\":\"wide\",\"offset\":0,\"type\":{\"name\":\"int64_t\",\"form\":\"int\",\"size\":8}},"
	 "{\"name\":\"text\",\"offset\":0,\"type\":{\"name\":\"char []\",\"form\":\"array\",\"size\":8,"
	 "\"to\":{\"name\":\"char\",\"form\":\"char\",\"size\":1}}}]}},"
	 "{\"name\":\"pairs\",\"offset\":24,\"type\":{\"name\":\"struct pair []\",\"form\":\"array\",\"size\":16,\"to\":"
	 "{\"name\":\"struct pair\",\"form\":\"struct\",\"size\":8,\"members\":["
	 "{\"name\":\"x\",\"offset\":0,\"type\":{\"name\":\"int32_t\",\"form\":\"int\",\"size\":4}},"
	 "{\"name\":\"y\",\"offset\":4,\"type\":{\"name\":\"int16_t\",\"form\":\"int\",\"size\":2}},"
	 "{\"name\":\"z\",\"offset\":6,\"type\":{\"name\":\"uint8_t\",\"form\":\"uint\",\"size\":1}}]}}}]}}},"
	 "{\"name\":\"flag\",\"type\":{\"name\":\"_Bool\",\"form\":\"bool\",\"size\":1}},"
	 "{\"name\":\"colour\",\"type\":{\"name\":\"enum colour\",\"form\":\"enum\",\"size\":4,\"names\":"
	 "{\"0\":\"RED\",\"7\":\"GREEN\",\"-3\":\"BLUE\"}}}]}"},
	{"takes_codes",
	 "{\"result\":{\"name\":\"int64_t\",\"form\":\"int\",\"size\":8},\"arguments\":["
	 "{\"name\":\"code\",\"type\":{\"name\":\"enum code\",\"form\":\"enum\",\"size\":4,\"unsigned\":true,"
	 "\"names\":{\"200\":\"CODE_OK\",\"40000\":\"CODE_MANY\",\"2147483648\":\"CODE_LAST\"}}},"
	 "{\"name\":\"small\",\"type\":{\"name\":\"enum small_code\",\"form\":\"enum\",\"size\":1,"
	 "\"unsigned\":true,\"names\":{\"1\":\"SMALL_ONE\",\"200\":\"SMALL_OK\"}}},"
	 "{\"name\":\"balance\",\"type\":{\"name\":\"enum balance\",\"form\":\"enum\",\"size\":4,"
	 "\"names\":{\"-56\":\"BALANCE_LOW\",\"200\":\"BALANCE_HIGH\"}}}]}"},
	{"takes_floats",
	 "{\"result\":{\"name\":\"int64_t\",\"form\":\"int\",\"size\":8},\"arguments\":["
	 "{\"name\":\"a\",\"type\":{\"name\":\"float\",\"form\":\"float\",\"size\":4}},"
	 "{\"name\":\"b\",\"type\":{\"name\":\"int\",\"form\":\"int\",\"size\":4}},"
	 "{\"name\":\"c\",\"type\":{\"name\":\"double\",\"form\":\"float\",\"size\":8}},"
	 "{\"name\":\"d\",\"type\":{\"name\":\"double\",\"form\":\"float\",\"size\":8}}]}"},
	{"gives_nothing",
	 "{\"result\":null,\"arguments\":["
	 "{\"name\":\"a\",\"type\":{\"name\":\"int\",\"form\":\"int\",\"size\":4}}]}"},
	{"takes_long_double",
	 "{\"result\":{\"name\":\"int64_t\",\"form\":\"int\",\"size\":8},\"arguments\":["
	 "{\"name\":\"d\",\"type\":null},"
	 "{\"name\":\"after\",\"type\":{\"name\":\"int\",\"form\":\"int\",\"size\":4}}]}"},
	/* Without a prototype floats are passed as doubles. */
	{"takes_old",
	 "{\"result\":{\"name\":\"int64_t\",\"form\":\"int\",\"size\":8},\"arguments\":["
	 "{\"name\":\"a\",\"type\":{\"name\":\"float\",\"form\":\"float\",\"size\":8}},"
	 "{\"name\":\"b\",\"type\":{\"name\":\"int16_t\",\"form\":\"int\",\"size\":2}},"
	 "{\"name\":\"c\",\"type\":{\"name\":\"float\",\"form\":\"float\",\"size\":8}}]}"},
	{"gives_node", NULL},
};

static void check_all(bool by_child)
{
	struct image *img = open_target("typed");

	types_reader_enable(by_child);
	for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
		json_t *whole = types_describe(img, index_of(img, expected[i].function));
		char *text;

		assert_non_null(whole);
		text = json_dumps(whole, JSON_COMPACT);
		if (expected[i].text)
			assert_string_equal(text, expected[i].text);
		free(text);
		json_decref(whole);
	}
	assert_int_equal(types_reader_pid(img) != 0, by_child);
	types_reader_enable(false);
	image_close(img);
}

static void test_by_ourselves(void **state)
{
	(void)state;
	check_all(false);
}

static void test_by_the_child(void **state)
{
	(void)state;
	check_all(true);
}

/* Nothing is known of a function without debug information, and of all in a program of C++ something is. */
static void test_others(void **state)
{
	struct image *img = open_target("calls-stripped");
	const struct image_function *functions;
	size_t count = image_functions(img, &functions), known = 0;

	(void)state;
	for (uint32_t i = 0; i < count; i++)
		assert_null(types_describe(img, i));
	image_close(img);
	img = open_target("classes");
	count = image_functions(img, &functions);
	types_reader_enable(true);
	for (uint32_t i = 0; i < count; i++) {
		json_t *whole = types_describe(img, i);

		known += whole != NULL;
		json_decref(whole);
	}
	assert_true(known > 3);
	types_reader_enable(false);
	image_close(img);
}

static long peak_kb(pid_t pid)
{
	char path[64], line[256];
	long value = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, "VmHWM:", 6))
			value = strtol(line + 6, NULL, 10);
	fclose(f);
	return value;
}

/* fear L1: a thousand names that are one of 64 KB in the file do not take 64 MB: each is cut */
static void test_long_names(void **state)
{
	enum { MOST_KB = 16 << 10, NAME_BYTES = 200 };
	struct image *img = open_target("typed-hostile");
	const uint32_t function = index_of(img, "takes_long");
	const char *name;
	json_t *whole, *names;
	long before;

	(void)state;
	types_reader_enable(true);
	json_decref(types_describe(img, index_of(img, "main")));
	before = peak_kb(types_reader_pid(img));
	whole = types_describe(img, function);
	assert_in_range(peak_kb(types_reader_pid(img)), before, before + MOST_KB);
	names = json_object_get(
		json_object_get(json_array_get(json_object_get(whole, "arguments"), 3), "type"),
		"names");
	assert_int_equal(json_object_size(names), DESCRIBED_NAMES);
	name = json_string_value(json_object_get(names, "255"));
	assert_non_null(name);
	assert_in_range(strlen(name), 100, NAME_BYTES);
	json_decref(whole);
	types_reader_enable(false);
	image_close(img);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_by_ourselves),
		cmocka_unit_test(test_by_the_child),
		cmocka_unit_test(test_others),
		cmocka_unit_test(test_long_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
