/* SPDX-License-Identifier: MIT */
/*
 * mdl_types.c - arguments, results and globals of a running program, of every
 * type that is passed in a way of its own: what compiled code reads must be what
 * the program passed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mutator/image_private.h"
#include "mutator/types.h"
#include "tests/live/harness_session.h"
#include "tests/live/mdl_help.h"

/* A metric that keeps the last value of an expression at a function's entry or exits. */
struct reading {
	const char *name, *function, *point, *expression;
	int64_t want;
};

static const struct reading readings[] = {
	{"small0", "takes_small", "entry", "$arg[0]", -1},
	{"small1", "takes_small", "entry", "$arg[1]", 200},
	{"small2", "takes_small", "entry", "$arg[2]", -300},
	{"small4", "takes_small", "entry", "$arg[4]", -70000},
	{"small5", "takes_small", "entry", "$arg[5]", 4000000000},
	{"many6", "takes_many", "entry", "$arg[6]", -7},
	{"many7", "takes_many", "entry", "$arg[7]", 1LL << 40},
	{"many8", "takes_many", "entry", "$arg[8]", 65535},
	{"floats0", "takes_floats", "entry", "$arg[0]", -2},
	{"floats1", "takes_floats", "entry", "$arg[1]", 3},
	{"floats2", "takes_floats", "entry", "$arg[2]", 10000000000},
	{"pair", "takes_pair", "entry", "$arg[0].x * 1000000 + $arg[0].y * 1000 + $arg[0].z",
	 -9007746},
	{"pair1", "takes_pair", "entry", "$arg[1]", 4},
	{"mixed", "takes_mixed", "entry", "$arg[1].d * 1000 + $arg[1].i", -6066},
	{"mixed2", "takes_mixed", "entry", "$arg[2].a * 100 + $arg[2].b * 10 + $arg[2].c", 83},
	{"mixed3", "takes_mixed", "entry", "$arg[3]", 2},
	{"large", "takes_large", "entry", "$arg[1].words[2] * 1000 + $arg[1].last", 32956},
	{"large2", "takes_large", "entry", "$arg[2] * 10 + $arg[0]", 21},
	{"node", "takes_node", "entry", "$arg[0].value", -77},
	{"bits", "takes_node", "entry", "$arg[0].low * 10000 + $arg[0].high * 100 + $arg[0].sign",
	 51698},
	{"deep", "takes_node", "entry", "$arg[0].pairs[1].z", 250},
	{"nowhere", "takes_node", "entry", "$arg[0].next.value", 0},
	{"truth", "takes_node", "entry", "$arg[1]", 1},
	{"colour", "takes_node", "entry", "$arg[2]", -3},
	{"double", "gives_double", "return", "$return", 7},
	{"byte", "gives_small", "return", "$return", -3},
	{"pairback", "gives_pair", "return", "$return.x * 10000 + $return.y * 100 + $return.z",
	 70809},
	{"mixback", "gives_mixed", "return", "$return.d * 100 + $return.i", 705},
	{"largeback", "gives_large", "return", "$return.last", 9},
	{"nodeback", "gives_node", "return", "$return.wide", 0x1122334455667788},
	{"g1", "gives_nothing", "entry", "readSymbol(\"global_small\")", -5},
	{"g2", "gives_nothing", "entry", "readSymbol(\"typed:global_unsigned\")", 65000},
	{"g3", "gives_nothing", "entry", "readSymbol(\"global_double\")", 1234},
	{"g4", "gives_nothing", "entry", "readSymbol(\"global_node.pairs[1].y\")", -5},
	{"g5", "gives_nothing", "entry", "readSymbol(\"global_pointer.value\")", -77},
	{"g6", "gives_nothing", "entry", "readSymbol(\"global_numbers[3]\")", -40},
	{"cold0", "takes_cold", "entry", "$arg[0]", -2},
	{"cold1", "takes_cold", "entry", "$arg[1]", 17},
	{"tiled", "takes_tiled", "entry", "$arg[0].rows[1][3]", 4},
	{"g9", "gives_nothing", "entry", "readSymbol(\"global_matrix[2][3]\")", -23},
	{"g10", "gives_nothing", "entry", "readSymbol(\"global_matrix[1]\")[2]", 12},
	{"g11", "gives_nothing", "entry", "readSymbol(\"libc.so.6:optind\")", 4321},
#ifdef __x86_64__
	/* Not as the function is called in whose middle it leads. */
	{"inside", "calls_inside", "calls", "$arg[0]", 0xfffffed4},
#endif
	{"g7", "gives_nothing", "entry", "readSymbol(\"global_pointer\").sign", -2},
	{"g8", "gives_nothing", "entry", "readMemory(readSymbol(\"global_pointer\") + 8, 4)",
	 0xffffffb3},
};

enum { READINGS = sizeof(readings) / sizeof(readings[0]) };

static void add(char *text, size_t size, const struct reading *r)
{
	const size_t used = strlen(text);

	snprintf(
		text + used, size - used,
		"list in_%s is procedure { items { \"%s\" }; }\n"
		"metric %s { base is counter { foreach f in in_%s append preInsn f.%s (* %s = %s; *) } }\n",
		r->name, r->function, r->name, r->name, r->point, r->name, r->expression);
}

static void test_readings(void **state)
{
	struct harness *h = *state;
	static char text[32768];
	unsigned ids[READINGS];

	text[0] = 0;
	for (unsigned i = 0; i < READINGS; i++)
		add(text, sizeof(text), &readings[i]);
	harness_start(h, "typed", NULL);
	mdl_attach(h, text);
	for (unsigned i = 0; i < READINGS; i++)
		ids[i] = mdl_insert(h, readings[i].name);
	mdl_ask(h, "round 1");
	for (unsigned i = 0; i < READINGS; i++) {
		const int64_t got = mdl_value(h, ids[i]);

		if (got != readings[i].want)
			fail_msg("%s at %s.%s is %lld, not %lld", readings[i].expression,
				 readings[i].function, readings[i].point, (long long)got,
				 (long long)readings[i].want);
	}
	mdl_end(h);
}

/* Calls of one function that code is inserted at one by one: $arg is as whom it calls has it. */
static void test_calls(void **state)
{
	static const char text[] =
		"list caller is procedure { items { \"puts_both\" }; }\n"
		"metric passed { base is counter { foreach f in caller foreach c in f.calls\n"
		"	append preInsn c (* if (f && $arg[0] > 100) passed += $arg[0]; *) } }\n";
	struct harness *h = *state;
	unsigned passed;

	harness_start(h, "typed", NULL);
	mdl_attach(h, text);
	passed = mdl_insert(h, "passed");
	mdl_ask(h, "round 2");
	assert_int_equal(mdl_value(h, passed), 2 * (200 + 3000));
	mdl_end(h);
}

static void test_mistakes(void **state)
{
	static const struct {
		struct reading reading;
		const char *text;
	} mistakes[] = {
		{{"m1", "takes_pair", "entry", "$arg[0].w", 0}, "no member 'w'"},
		{{"m2", "takes_pair", "entry", "$arg[0]", 0}, "struct"},
		{{"m3", "takes_pair", "entry", "$arg[2]", 0}, "2 arguments"},
		{{"m4", "gives_nothing", "entry", "readSymbol(\"global_smal\")", 0},
		 "did you mean 'global_small'"},
		{{"m5", "gives_nothing", "entry", "readSymbol(\"nowhere.so:x\")", 0}, "no module"},
		{{"m6", "gives_nothing", "entry", "readSymbol(\"global_of_thread\")", 0},
		 "thread-local"},
		{{"m7", "gives_nothing", "entry", "takes_pair(1, 2)", 0},
		 "no integer and no pointer"},
	};
	struct harness *h = *state;
	static char text[8192];

	text[0] = 0;
	for (unsigned i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++)
		add(text, sizeof(text), &mistakes[i].reading);
	harness_start(h, "typed", NULL);
	mdl_attach(h, text);
	for (unsigned i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
		assert_true(harness_dinst(h, NULL, "insert", mistakes[i].reading.name, "-p",
					  harness_number(h->pid)) != 0);
		if (!strstr(h->messages, mistakes[i].text))
			fail_msg("%s: %s", mistakes[i].reading.expression, h->messages);
	}
	mdl_ask(h, "round 1");
	mdl_end(h);
}

/*
 * Of more variables than are looked through for a name that is near, in the file and again in the one
 * with its debug information.
 */
static void test_many_variables(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct data_symbol found;
	struct session *s;
	struct image *img;

	harness_start(h, "variables", NULL);
	s = session_begin(h);
	img = module_named(s->modules, "variables")->image;
	assert_null(img->debug.bytes);
	img->debug = img->file;
	assert_int_equal(data_symbol_find(s->modules, "variable_abcd", &found, &e), 0);
	assert_int_equal(found.size, sizeof(int));
	assert_int_equal(data_symbol_find(s->modules, "varable_abcd", &found, &e),
			 DINST_NO_FUNCTION);
	assert_non_null(strstr(e.text, "did you mean 'variable_"));
	memset(&img->debug, 0, sizeof(img->debug));
	session_end(s);
	harness_end(h, 0);
}

static void copy_file(const char *from, const char *to)
{
	static char buffer[1 << 20];
	FILE *in = fopen(from, "re"), *out = fopen(to, "we");
	size_t n;

	assert_true(in && out);
	n = fread(buffer, 1, sizeof(buffer), in);
	assert_true(n > 0 && feof(in));
	assert_int_equal(fwrite(buffer, 1, n, out), n);
	fclose(in);
	assert_int_equal(fclose(out), 0);
}

static void load(struct harness *h, const char *path)
{
	char command[4096];

	snprintf(command, sizeof(command), "load %s\n", path);
	harness_send(h, command);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "loaded");
}

static void expect_variable(const struct session *s, const char *name, const char *module,
			    int value)
{
	struct dinst_error e = {0};
	struct data_symbol found;
	int memory;

	if (data_symbol_find(s->modules, name, &found, &e))
		fail_msg("%s", e.text);
	assert_string_equal(found.module->name, module);
	assert_int_equal(target_read(s->target, found.address, &memory, sizeof(memory), &e), 0);
	assert_int_equal(memory, value);
}

static void expect_refused(const struct session *s, const char *name, const char *why)
{
	struct dinst_error e = {0};
	struct data_symbol found;

	assert_int_equal(data_symbol_find(s->modules, name, &found, &e), DINST_REFUSED);
	if (!strstr(e.text, why))
		fail_msg("%s", e.text);
}

/* Libraries with variables of one name, and copies of one library: which is meant is told, or not guessed. */
static void test_twins(void **state)
{
	static const char one[] = "libvariables-one.so", two[] = "libvariables-two.so";
	struct harness *h = *state;
	char directory[] = "/tmp/dinst-twins-XXXXXX", copy[64], why[96];
	struct session *s;

	assert_non_null(mkdtemp(directory));
	snprintf(copy, sizeof(copy), "%s/%s", directory, one);
	copy_file(harness_path("tests/live/targets/libvariables-one.so"), copy);
	harness_start(h, "parked", "fiber", NULL);
	load(h, harness_path("tests/live/targets/libvariables-one.so"));
	load(h, harness_path("tests/live/targets/libvariables-two.so"));
	s = session_begin(h);
	expect_refused(s, "twin", "both have a variable named 'twin': MODULE:twin says which");
	expect_variable(s, "libvariables-one.so:twin", one, 1);
	expect_variable(s, "libvariables-two.so:twin", two, 2);
	expect_variable(s, "global_in_one", one, 100);
	expect_variable(s, "global_in_two", two, 20);
	session_end(s);
	load(h, copy);
	s = session_begin(h);
	snprintf(why, sizeof(why), "%s", copy);
	expect_refused(s, "libvariables-one.so:twin", why);
	expect_refused(s, "global_in_one", why);
	snprintf(why, sizeof(why), "%s:twin", copy);
	expect_variable(s, why, one, 1);
	session_end(s);
	harness_end(h, 0);
	unlink(copy);
	rmdir(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_readings, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_calls, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_mistakes, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_many_variables, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_twins, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
