/* SPDX-License-Identifier: MIT */
/*
 * evaluate_match.c - which foci a constraint is for, by its path and its body,
 * and what code does to a flag. No target is needed for either.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "mutator/evaluate_private.h"

static struct mdl_library *library(const char *text)
{
	struct dinst_error e = {0};
	struct mdl_library *l;

	assert_int_equal(mdl_library_create(&l, &e), 0);
	if (mdl_load_text(l, "test", text, strlen(text), &e) < 0)
		fail_msg("%s", e.text);
	return l;
}

/* ---------------------------------------------------------------- paths */

static const struct {
	const char *path, *body;
	int depth; /* of the foci that it takes */
} paths[] = {
	/* As deep as it is written. */
	{"/Code/*", "foreach f in $constraint[0].funcs append preInsn f.entry (* c = 1; *)", 1},
	{"/Code/*/*", "append preInsn $constraint[0].entry (* c = 1; *)", 2},
	{"/Code/*/*/*", "append preInsn $constraint[0] (* c = 1; *)", 3},
	{"/Process/*", "(* c = ($thread == $constraint[0]); *)", 1},
	{"/SyncObject/Mutex/*", "append preInsn $exit.entry (* c = ($arg[0] == $constraint[0]); *)",
	 2},
	{"/SyncObject/Mutex", "append preInsn $exit.entry (* c = 1; *)", 1},
	/* The paper's, and the older form: the resource is below what is written. */
	{"/Code", "foreach f in $constraint[1].funcs append preInsn f.entry (* c = 1; *)", 1},
	{"/Code", "append preInsn $constraint[0].entry (* c = 1; *)", 2},
	{"/Code", "foreach k in $constraint[0].calls append preInsn k (* c = 1; *)", 2},
	{"/Code", "foreach f in $constraint[0].funcs append preInsn f.entry (* c = 1; *)", 1},
	{"/Code",
	 "if ($constraint[1].name == \"a\") append preInsn $constraint[0].entry (* c = 1; *)", 2},
	{"/SyncObject/MsgTag", "append preInsn $exit.entry (* c = ($arg[1] == $constraint[0]); *)",
	 2},
	{"/Process", "(* c = ($thread == $constraint[0]); *)", 1},
	/* Any. */
	{"/SyncObject", "append preInsn $exit.entry (* c = 1; *)", -1},
};

static void test_depths(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		struct mdl_library *l;
		char text[512];

		snprintf(text, sizeof(text), "constraint c %s is counter { %s }", paths[i].path,
			 paths[i].body);
		l = library(text);
		if (constraint_depth(mdl_find_constraint(l, "c")) != paths[i].depth)
			fail_msg("%s: depth %d, not %d", text,
				 constraint_depth(mdl_find_constraint(l, "c")), paths[i].depth);
		mdl_library_free(l);
	}
}

static void expect_match(const struct mdl_constraint *c, bool yes, const char *hierarchy,
			 size_t count, const char *first, const char *second)
{
	const struct mdl_resource r = {
		.hierarchy = hierarchy, .parts = {first, second}, .part_count = count};

	assert_int_equal(constraint_matches(c, &r), yes);
}

static void test_matches(void **state)
{
	struct mdl_library *l = library("constraint m /SyncObject/Mutex/* is counter {"
					"  append preInsn $exit.entry (* m = 1; *) }"
					"constraint any /SyncObject is default;"
					"constraint kind /SyncObject/* is default;");
	const struct mdl_constraint *m = mdl_find_constraint(l, "m");

	(void)state;
	expect_match(m, true, "SyncObject", 2, "Mutex", "0x1234");
	expect_match(m, false, "SyncObject", 2, "RwLock", "0x1234");
	expect_match(m, false, "SyncObject", 1, "Mutex", NULL);
	expect_match(m, false, "Code", 2, "Mutex", "0x1234");
	expect_match(mdl_find_constraint(l, "any"), true, "SyncObject", 2, "Mutex", "0x1234");
	expect_match(mdl_find_constraint(l, "any"), true, "SyncObject", 1, "Mutex", NULL);
	expect_match(mdl_find_constraint(l, "any"), false, "SyncObject", 0, NULL, NULL);
	expect_match(mdl_find_constraint(l, "kind"), true, "SyncObject", 1, "Barrier", NULL);
	expect_match(mdl_find_constraint(l, "kind"), false, "SyncObject", 2, "Barrier", "1");
	mdl_library_free(l);
}

static void test_list_of_constraints(void **state)
{
	struct mdl_library *l = library(
		"constraint module /Code is counter {"
		"  foreach f in $constraint[1].funcs append preInsn f.entry (* module = 1; *) }"
		"constraint procedure /Code is counter {"
		"  append preInsn $constraint[0].entry (* procedure = 1; *) }"
		"constraint any /SyncObject is default;"
		"metric m { name \"m\"; units n; aggregateOperator sum; style EventCounter;"
		"  constraint module; constraint procedure; constraint any;"
		"  constraint own /Code/*/* is default;"
		"  base is counter { append preInsn $exit.entry (* m++; *) } }"
		"metric bare { name \"bare\"; units n; aggregateOperator sum; style EventCounter;"
		"  base is counter { append preInsn $exit.entry (* bare++; *) } }");
	char text[128], tiny[10];

	(void)state;
	mdl_metric_constraints(l, mdl_find_metric(l, "m"), text, sizeof(text));
	assert_string_equal(text, "/Code/*, /Code/*/*, /SyncObject/...");
	mdl_metric_constraints(l, mdl_find_metric(l, "m"), tiny, sizeof(tiny));
	assert_string_equal(tiny, "/Code/*");
	mdl_metric_constraints(l, mdl_find_metric(l, "bare"), text, sizeof(text));
	assert_string_equal(text, "");
	mdl_library_free(l);
}

/* ---------------------------------------------------------------- roles */

static const struct {
	const char *code;
	bool clears;
} codes[] = {
	{"c = 0;", true},
	{"c--;", true},
	{"c -= 1;", true},
	{"if ($arg[0]) { c = 0; } else c--;", true},
	{"c = 1;", false},
	{"c++;", false},
	{"c += 1;", false},
	{"c = ($arg[0] == 3);", false},
	{"if ($arg[0]) c = 0; else c = 1;", false},
	{"if (c == 0) c++;", false},
	{"c = 0 + 1;", false},
};

static void test_roles(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		const struct mdl_constraint *c;
		struct mdl_library *l;
		char text[512];

		snprintf(text, sizeof(text),
			 "constraint c /Code/*/* is counter { append preInsn $constraint[0].entry "
			 "(* %s *) }",
			 codes[i].code);
		l = library(text);
		c = mdl_find_constraint(l, "c");
		if (code_clears(c->body->first->code, "c") != codes[i].clears)
			fail_msg("%s", codes[i].code);
		assert_false(code_clears(c->body->first->code, "other"));
		mdl_library_free(l);
	}
}

/* --------------------------------------------------------------- memory */

static void test_memory(void **state)
{
	struct dinst_error e = {0};
	struct mdl_memory *m = mdl_memory_new(&e);
	char *texts[2000];

	(void)state;
	assert_ptr_equal(mdl_memory_ref(m), m);
	for (int i = 0; i < 2000; i++) {
		uint64_t *words = mdl_alloc(m, (size_t)i % 50, sizeof(*words), &e);

		assert_non_null(words);
		assert_int_equal((uintptr_t)words % sizeof(max_align_t) % 8, 0);
		for (int k = 0; k < i % 50; k++) {
			assert_int_equal(words[k], 0);
			words[k] = UINT64_MAX;
		}
		texts[i] = mdl_print(m, &e, "text %d", i);
	}
	mdl_memory_unref(m);
	for (int i = 0; i < 2000; i++) {
		char want[32];

		snprintf(want, sizeof(want), "text %d", i);
		assert_string_equal(texts[i], want);
	}
	assert_null(mdl_alloc(m, SIZE_MAX / 4, 8, &e));
	assert_int_equal(e.code, DINST_NO_MEMORY);
	mdl_memory_unref(m);
	mdl_memory_unref(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_depths),
		cmocka_unit_test(test_matches),
		cmocka_unit_test(test_list_of_constraints),
		cmocka_unit_test(test_roles),
		cmocka_unit_test(test_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
