/* SPDX-License-Identifier: MIT */
/*
 * daemon_options.c - command lines taken apart, one line a case, and values
 * made into text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "daemon/client/command.h"
#include "daemon/common/words.h"

static const struct option_spec specs[] = {
	{'n', "name", "NAME", ""},
	{'e', "execute", "COMMAND", ""},
	{OPTION_EACH, "each", NULL, ""},
	{0, NULL, NULL, NULL},
};

static const struct {
	const char *line;
	bool first_word_ends;
	const char *expected; /* options as letter=value (~ for --each, J for --json), then words */
} cases[] = {
	{"a b", false, ": a b"},
	{"-n x a", false, "n=x : a"},
	{"-nx a", false, "n=x : a"},
	{"a -n x", false, "n=x : a"},
	{"--name x a", false, "n=x : a"},
	{"--name=x a", false, "n=x : a"},
	{"--name= a", false, "n= : a"},
	{"--each a", false, "~= : a"},
	{"--json a", false, "J= : a"},
	{"a --json -q", false, "J= q= : a"},
	{"-qv a", false, "q= v= : a"},
	{"-qn x a", false, "q= n=x : a"},
	{"-qnx a", false, "q= n=x : a"},
	{"-p t a", false, "p=t : a"},
	{"a -p t b", false, "p=t : a b"},
	{"-n -x a", false, "n=-x : a"},
	{"-- -n x", false, ": -n x"},
	{"a -- -n", false, ": a -n"},
	{"-", false, ": -"},
	{"-e 'a b' -e c", false, "e=a b e=c :"},
	{"-n x -- ls -l", true, "n=x : ls -l"},
	{"-n x ls -l -n y", true, "n=x : ls -l -n y"},
	{"ls -- -l", true, ": ls -- -l"},
	{"'' b", false, ":  b"},
	{"-x", false, NULL},
	{"--nam x", false, NULL},
	{"--named x", false, NULL},
	{"-n", false, NULL},
	{"--name", false, NULL},
	{"--each=1", false, NULL},
	{"--json=1", false, NULL},
	{"-nqx -y", false, NULL},
	{"--", false, ":"},
	{"", false, ":"},
	{"--=x", false, NULL},
};

static char letter_of(char letter)
{
	return letter == OPTION_EACH ? '~' : letter == OPTION_JSON ? 'J' : letter;
}

static void describe(const struct arguments *a, char *text, size_t size)
{
	text[0] = '\0';
	for (int i = 0; i < a->given_count; i++)
		snprintf(text + strlen(text), size - strlen(text), "%c=%s ",
			 letter_of(a->given[i].letter), a->given[i].value);
	snprintf(text + strlen(text), size - strlen(text), ":");
	for (int i = 0; i < a->word_count; i++)
		snprintf(text + strlen(text), size - strlen(text), " %s", a->word[i]);
}

static void parsing(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct dinst_error e = {0, ""};
		char *argv[32], got[300];
		struct arguments a;
		struct words w;
		int err;

		assert_int_equal(words_split(cases[i].line, &w, &e), 0);
		memcpy(argv, w.word, ((size_t)w.count + 1) * sizeof(*argv));
		err = arguments_parse(&a, w.count, argv, specs, cases[i].first_word_ends, &e);
		if ((err != 0) != (cases[i].expected == NULL))
			fail_msg("%s: %d %s", cases[i].line, err, e.text);
		if (err) {
			assert_int_equal(err, DINST_USAGE);
		} else {
			describe(&a, got, sizeof(got));
			if (strcmp(got, cases[i].expected) != 0)
				fail_msg("%s: '%s' instead of '%s'", cases[i].line, got,
					 cases[i].expected);
			assert_null(a.word[a.word_count]);
		}
		words_release(&w);
	}
}

static void too_many(void **state)
{
	struct dinst_error e = {0, ""};
	char *argv[OPTIONS_MAX + 2];
	static char quiet[] = "-q";
	struct arguments a;

	(void)state;
	for (int count = OPTIONS_MAX; count <= OPTIONS_MAX + 1; count++) {
		for (int i = 0; i < count; i++)
			argv[i] = quiet;
		argv[count] = NULL;
		assert_int_equal(arguments_parse(&a, count, argv, NULL, false, &e),
				 count > OPTIONS_MAX ? DINST_USAGE : 0);
	}
}

static void values(void **state)
{
	static const struct {
		const char *json;
		enum column_form form;
		const char *text;
	} table[] = {
		{"null", COLUMN_TEXT, "-"},
		{"\"\"", COLUMN_TEXT, "-"},
		{"\"a\\nb\"", COLUMN_TEXT, "a b"},
		{"\"a\\u001bb\"", COLUMN_TEXT, "a?b"},
		{"12", COLUMN_NUMBER, "12"},
		{"65536", COLUMN_ADDRESS, "0x10000"},
		{"\"0x1f\"", COLUMN_ADDRESS, "0x1f"},
		{"1.26", COLUMN_NUMBER, "1.3"},
		{"true", COLUMN_TEXT, "yes"},
		{"[\"a\",\"b\"]", COLUMN_TEXT, "a b"},
		{"[]", COLUMN_TEXT, "-"},
		{"{}", COLUMN_TEXT, "-"},
		{"{\"jump\":2,\"call\":1}", COLUMN_TEXT, "jump 2, call 1"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		json_t *value = json_loads(table[i].json, JSON_DECODE_ANY, NULL);
		char text[100];

		assert_non_null(value);
		value_text(value, table[i].form, text, sizeof(text));
		assert_string_equal(text, table[i].text);
		json_decref(value);
	}
}

/* A value that is longer than its cell is cut, not written past it. */
static void long_values(void **state)
{
	json_t *object = json_object();
	char text[64], key[32];

	(void)state;
	for (int i = 0; i < 100; i++) {
		snprintf(key, sizeof(key), "reason number %d", i);
		json_object_set_new(object, key, json_integer(i));
	}
	for (size_t size = 1; size <= sizeof(text); size++) {
		value_text(object, COLUMN_TEXT, text, size);
		assert_true(strlen(text) < size);
	}
	json_decref(object);
}

/* Every command explains itself, with an example; tests/help.sh looks whether it fits a screen. */
static void helps(void **state)
{
	(void)state;
	for (const struct command *c = commands; c->name; c++) {
		assert_non_null(c->example);
		assert_non_null(strstr(c->example, c->name));
		assert_true(strlen(c->summary) < 70);
		assert_ptr_equal(command_named(c->name), c);
	}
	assert_null(command_named("nothing"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parsing),     cmocka_unit_test(too_many), cmocka_unit_test(values),
		cmocka_unit_test(long_values), cmocka_unit_test(helps),
	};

	return cmocka_run_group_tests_name("daemon_options", tests, NULL, NULL);
}
