/* SPDX-License-Identifier: MIT */
/*
 * daemon_words.c - script lines cut into words, names of sessions, and names
 * that were meant. One line a case.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "daemon/client/nearest.h"
#include "daemon/common/process.h"
#include "daemon/common/words.h"

static const struct {
	const char *line;
	const char *words; /* each one followed by '|'; NULL: an error */
} cases[] = {
	{"", ""},
	{"   \t ", ""},
	{"# only a comment", ""},
	{"read", "read|"},
	{"  read  1\t2 \r\n", "read|1|2|"},
	{"read 1 # the first", "read|1|"},
	{"read a#b", "read|a#b|"},
	{"insert calls '/Code/x y/*'", "insert|calls|/Code/x y/*|"},
	{"a \"b c\" d", "a|b c|d|"},
	{"a 'b \"c' d", "a|b \"c|d|"},
	{"a \"b 'c\" d", "a|b 'c|d|"},
	{"a\\ b", "a b|"},
	{"a\\\\b", "a\\b|"},
	{"\\#x", "#x|"},
	{"'a\\b'", "a\\b|"},
	{"\"a\\b\"", "a\\b|"},
	{"\"a\\\"b\"", "a\"b|"},
	{"\"a\\\\\"", "a\\|"},
	{"''", "|"},
	{"a '' b", "a||b|"},
	{"a'b c'd", "ab cd|"},
	{"a\"b\"'c'", "abc|"},
	{"$HOME `x` *?", "$HOME|`x`|*?|"},
	{"std::vector<int>::push_back(int&&)", "std::vector<int>::push_back(int&&)|"},
	{"'open", NULL},
	{"\"open", NULL},
	{"a 'b\" c", NULL},
	{"end\\", NULL},
};

static void splitting(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct dinst_error e = {0, ""};
		char got[200] = "";
		struct words w;
		int err = words_split(cases[i].line, &w, &e);

		if ((err != 0) != (cases[i].words == NULL))
			fail_msg("%s: %d %s", cases[i].line, err, e.text);
		if (err) {
			assert_int_equal(err, DINST_USAGE);
			continue;
		}
		for (int n = 0; n < w.count; n++)
			snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s|", w.word[n]);
		assert_null(w.word[w.count]);
		if (strcmp(got, cases[i].words) != 0)
			fail_msg("%s: %s instead of %s", cases[i].line, got, cases[i].words);
		words_release(&w);
	}
}

static void session_names(void **state)
{
	static const struct {
		const char *name, *clean;
	} names[] = {
		{"redis-server", "redis-server"},
		{"nginx: worker", "nginx:_worker"},
		{"1234", "p-1234"},
		{"", "p-"},
		{"-x", "p--x"},
		{"#x", "p-#x"},
		{"a'b\"c\\d", "a_b_c_d"},
		{"\xc3\xa9", "__"},
		{"12a", "12a"},
		{"0123456789012345678901234567890123456789012345678901234567890123x",
		 "p-0123456789012345678901234567890123456789012345678901234567890"},
	};

	(void)state;
	for (size_t i = 0; i + 1 < sizeof(names) / sizeof(names[0]); i++) {
		char name[PROCESS_NAME_MAX];

		snprintf(name, sizeof(name), "%s", names[i].name);
		session_name_clean(name);
		assert_string_equal(name, names[i].clean);
		assert_int_equal(session_name_ok(names[i].name),
				 strcmp(names[i].name, names[i].clean) == 0);
		assert_true(session_name_ok(name));
	}
	assert_false(session_name_ok(names[9].name));
}

static void longest_number(void **state)
{
	char name[PROCESS_NAME_MAX];

	(void)state;
	memset(name, '7', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	session_name_clean(name);
	assert_true(session_name_ok(name));
}

static void distances(void **state)
{
	static const struct {
		const char *a, *b;
		unsigned distance;
	} pairs[] = {
		{"", "", 0},
		{"insert", "insert", 0},
		{"inset", "insert", 1},
		{"insrt", "insert", 1},
		{"isnert", "insert", 1},
		{"reed", "read", 1},
		{"ls", "run", 3},
		{"x", "", 1},
		{"", "abc", 3},
		{"ab", "ba", 1},
		{"abc", "cab", 2},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		assert_int_equal(name_distance(pairs[i].a, pairs[i].b), pairs[i].distance);
		assert_int_equal(name_distance(pairs[i].b, pairs[i].a), pairs[i].distance);
	}
	assert_true(name_distance("a very long name that is longer than all the commands", "x") >
		    3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(splitting),
		cmocka_unit_test(session_names),
		cmocka_unit_test(longest_number),
		cmocka_unit_test(distances),
	};

	return cmocka_run_group_tests_name("daemon_words", tests, NULL, NULL);
}
