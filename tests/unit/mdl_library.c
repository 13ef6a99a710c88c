/* SPDX-License-Identifier: MIT */
/*
 * mdl_library.c - what is loaded: newer definitions in the place of older ones,
 * names that are looked up late, files of directories, the library that ships,
 * and what no honest text needs is refused before it costs much.
 */
#include <errno.h>
#include <glob.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/mdl_text.h"

static int load(struct mdl_library *l, const char *file, const char *text, struct dinst_error *e)
{
	dinst_error_clear(e);
	return mdl_load_text(l, file, text, strlen(text), e);
}

/* --------------------------------------------------------------- replacing */

static void test_replaced(void **state)
{
	struct mdl_library *l = test_library();
	const struct mdl_metric *old, *m;
	const struct mdl_constraint *c;
	struct dinst_error e = {0};

	(void)state;
	test_load(l, "metric b { base is counter { } }\n"
		     "metric a { units old; constraint c; base is counter { } }\n"
		     "constraint c /Code is default;\nlist l is int { items { 1 }; }\n");
	old = mdl_find_metric(l, "a");
	c = mdl_used_constraint(l, old->uses);
	assert_string_equal(c->path[0], "Code");
	test_load(l, "metric a { units new; base is counter { } }\n"
		     "constraint c /Process is default;\nlist l is int { }\n");
	m = mdl_find_metric(l, "a");
	assert_string_equal(m->units, "new");
	/* who has the older one still has it, and its names are those of today */
	assert_string_equal(old->units, "old");
	assert_string_equal(mdl_used_constraint(l, old->uses)->path[0], "Process");
	assert_int_equal(mdl_find_list(l, "l")->item_count, 0);
	/* each name once, in order */
	m = mdl_metrics(l);
	assert_string_equal(m->id, "a");
	assert_string_equal(m->next->id, "b");
	assert_null(m->next->next);
	assert_null(mdl_constraints(l)->next);
	/* nothing of a text with an error, and the older ones stay */
	assert_int_equal(load(l, "f", "metric a { units newer; base is counter { } }\nmetric d { }",
			      &e),
			 DINST_USAGE);
	assert_string_equal(mdl_find_metric(l, "a")->units, "new");
	assert_null(mdl_find_metric(l, "d"));
	mdl_library_free(l);
}

/* A session is asked for days, each time with a text of that name: what was replaced and nobody reads is gone. */
static void test_given_back(void **state)
{
	static const char text[] =
		"metric a { units old; base is counter { } }\n"
		"constraint c /Code is default;\nlist l is int { items { 1 }; }\n";
	struct mdl_library *l = test_library();
	const struct mdl_metric *old;
	struct mdl_reader reader, later;
	size_t used = 0;

	(void)state;
	test_load(l, text);
	mdl_reader_enter(l, &reader);
	old = mdl_find_metric(l, "a");
	for (int i = 0; i < 1000; i++) {
		test_load(l, text);
		mdl_reader_enter(l, &later);
		assert_ptr_not_equal(mdl_find_metric(l, "a"), old);
		test_load(l, "\n");
		mdl_library_sweep(l);
		mdl_reader_leave(&later);
		if (i == 10)
			used = mallinfo2().uordblks;
	}
	assert_in_range(mallinfo2().uordblks, 0, used + 64 * 1024);
	/* it began before the first of them was replaced, and has not ended */
	assert_string_equal(old->units, "old");
	assert_string_equal(mdl_find_metric(l, "a")->units, "old");
	/* a text of which one definition still counts stays as a whole */
	test_load(l, "metric a { units new; base is counter { } }\n");
	mdl_reader_leave(&reader);
	mdl_library_sweep(l);
	assert_int_equal(mdl_find_list(l, "l")->item_count, 1);
	assert_string_equal(mdl_find_metric(l, "a")->units, "new");
	mdl_library_free(l);
}

static void test_names(void **state)
{
	struct mdl_library *l = test_library();

	(void)state;
	test_load(l, "metric one { name \"two\"; base is counter { } }\n"
		     "metric two { name \"three\"; base is counter { } }\n");
	assert_string_equal(mdl_find_metric(l, "two")->id, "two");
	assert_string_equal(mdl_find_metric(l, "three")->id, "two");
	assert_null(mdl_find_metric(l, "four"));
	assert_null(mdl_find_constraint(l, "one"));
	assert_null(mdl_find_list(l, "one"));
	mdl_library_free(l);
	mdl_library_free(NULL);
}

static void test_fail(void **state)
{
	struct mdl_library *l = test_library();
	struct dinst_error e = {0};
	struct mdl_place nowhere = {"other.mdl", 7, 3};

	(void)state;
	test_load(l, "\nmetric m { base is counter { } }\n");
	assert_int_equal(mdl_fail(l, &e, DINST_NO_FUNCTION, &mdl_find_metric(l, "m")->place,
				  "no %s", "function"),
			 DINST_NO_FUNCTION);
	assert_int_equal(e.code, DINST_NO_FUNCTION);
	assert_string_equal(e.text, "test.mdl:2:8: no function\n"
				    "    metric m { base is counter { } }\n"
				    "           ^");
	/* the first message wins; what is not ours has no line */
	mdl_fail(l, &e, DINST_USAGE, &nowhere, "later");
	assert_int_equal(e.code, DINST_NO_FUNCTION);
	dinst_error_clear(&e);
	mdl_fail(l, &e, DINST_USAGE, &nowhere, "later");
	assert_string_equal(e.text, "other.mdl:7:3: later");
	mdl_library_free(l);
}

/* ------------------------------------------------------------------- files */

static char directory[64], shipped[96], users[96];

static void write_file(const char *folder, const char *name, const char *text)
{
	char path[160];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static void remove_file(const char *folder, const char *name)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	assert_int_equal(unlink(path), 0);
}

static int make_directories(void **state)
{
	(void)state;
	snprintf(directory, sizeof(directory), "/tmp/mdl-library-XXXXXX");
	if (!mkdtemp(directory))
		return -1;
	snprintf(shipped, sizeof(shipped), "%s/shipped", directory);
	snprintf(users, sizeof(users), "%s/dinst", directory);
	setenv("DINST_METRICS", shipped, 1);
	setenv("XDG_CONFIG_HOME", directory, 1);
	return mkdir(shipped, 0755) || mkdir(users, 0755);
}

static int remove_directories(void **state)
{
	(void)state;
	unsetenv("DINST_METRICS");
	unsetenv("XDG_CONFIG_HOME");
	return rmdir(shipped) || rmdir(users) || rmdir(directory);
}

static const char uses_list[] = "metric m { base is counter {\n"
				"foreach f in l append preInsn f.entry (* m++; *) } }\n";

static void test_installed(void **state)
{
	struct mdl_library *l = test_library();
	struct dinst_error e = {0};
	char *warnings = NULL;

	(void)state;
	/* files know of each other's lists, whatever their order, and the user's replace ours */
	write_file(shipped, "a.mdl", uses_list);
	write_file(shipped, "b.mdl",
		   "list l is procedure { items { \"f\" }; }\n"
		   "metric n { units ours; base is counter { } }\n");
	write_file(shipped, "c.txt", "this is none");
	write_file(users, "good.mdl", "metric n { units mine; base is counter { } }\n");
	write_file(users, "bad.mdl", "metric o { }\nmetric p { base is counter { } }\n");
	if (mdl_library_load_installed(l, &warnings, &e))
		fail_msg("%s", e.text);
	assert_string_equal(mdl_find_metric(l, "n")->units, "mine");
	assert_non_null(mdl_find_metric(l, "m"));
	assert_null(mdl_find_metric(l, "p"));
	assert_non_null(warnings);
	assert_non_null(strstr(warnings, "bad.mdl:1:8: metric 'o' has no base"));
	assert_null(strstr(warnings, "good.mdl"));
	free(warnings);
	mdl_library_free(l);
	remove_file(shipped, "c.txt");
	remove_file(users, "good.mdl");
	remove_file(users, "bad.mdl");
	/* without the list, which is no more, a shipped file is wrong: that is an error */
	remove_file(shipped, "b.mdl");
	l = test_library();
	assert_int_equal(mdl_library_load_installed(l, &warnings, &e), DINST_USAGE);
	assert_null(warnings);
	assert_non_null(strstr(e.text, "a.mdl:2:14: there is no list"));
	mdl_library_free(l);
	remove_file(shipped, "a.mdl");
}

/* What others can write is not used, and what is no file does not hold us up. */
static void test_others(void **state)
{
	struct mdl_library *l = test_library();
	struct dinst_error e = {0};
	char *warnings = NULL;
	char path[160];

	(void)state;
	write_file(users, "open.mdl", "metric m { base is counter { } }\n");
	snprintf(path, sizeof(path), "%s/open.mdl", users);
	assert_int_equal(chmod(path, 0666), 0);
	snprintf(path, sizeof(path), "%s/pipe.mdl", users);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(mdl_library_load_installed(l, &warnings, &e), 0);
	assert_null(mdl_metrics(l));
	assert_non_null(strstr(warnings, "open.mdl can be written by others"));
	assert_non_null(strstr(warnings, "pipe.mdl is no ordinary file"));
	free(warnings);
	mdl_library_free(l);
	remove_file(users, "open.mdl");
	remove_file(users, "pipe.mdl");
}

/* Of too many files some are left out, and that is said. */
static void test_too_many(void **state)
{
	struct mdl_library *l = test_library();
	struct dinst_error e = {0};
	char *warnings = NULL, name[32];

	(void)state;
	for (int i = 0; i < 514; i++) {
		snprintf(name, sizeof(name), "%03d.mdl", i);
		write_file(users, name, i == 511 ? "metric last { base is counter { } }" : "");
	}
	assert_int_equal(mdl_library_load_installed(l, &warnings, &e), 0);
	assert_non_null(mdl_find_metric(l, "last"));
	assert_non_null(warnings);
	assert_non_null(strstr(warnings, "has more than 512 files"));
	assert_null(strchr(warnings, '\n'));
	free(warnings);
	mdl_library_free(l);
	for (int i = 0; i < 514; i++) {
		snprintf(name, sizeof(name), "%03d.mdl", i);
		remove_file(users, name);
	}
}

static void test_missing(void **state)
{
	struct mdl_library *l = test_library();
	struct dinst_error e = {0};
	char *warnings = NULL;

	(void)state;
	setenv("DINST_METRICS", "/no/such/directory", 1);
	assert_int_equal(mdl_library_load_installed(l, &warnings, &e), DINST_BAD_FILE);
	assert_non_null(strstr(e.text, "/no/such/directory"));
	setenv("DINST_METRICS", shipped, 1);
	dinst_error_clear(&e);
	assert_int_equal(mdl_load_file(l, "/no/such/file", &e), DINST_BAD_FILE);
	assert_string_equal(e.text, "cannot open /no/such/file: No such file or directory");
	dinst_error_clear(&e);
	assert_int_equal(mdl_load_file(l, "/", &e), DINST_BAD_FILE);
	mdl_library_free(l);
}

static void test_together(void **state)
{
	char paths[4][160];
	const char *const names[] = {"1.mdl", "2.mdl", "3.mdl", "none.mdl"};
	const char *list[4];
	struct mdl_verdict verdicts[4];
	struct mdl_library *l = test_library();
	struct dinst_error e = {0};

	(void)state;
	write_file(directory, names[0], uses_list);
	write_file(directory, names[1],
		   "list l is procedure { items { \"f\" }; }\n"
		   "metric x { constraint procedur; constraint other;\n"
		   "base is counter { } }\n");
	write_file(directory, names[2], "metric m {");
	for (int i = 0; i < 4; i++) {
		snprintf(paths[i], sizeof(paths[i]), "%s/%s", directory, names[i]);
		list[i] = paths[i];
	}
	test_load(l, "constraint procedure /Code is default;");
	assert_int_equal(mdl_load_files(l, list, 4, verdicts, &e), 0);
	assert_false(verdicts[0].bad);
	assert_null(verdicts[0].text);
	assert_false(verdicts[1].bad);
	assert_non_null(strstr(verdicts[1].text, "2.mdl:2:23: warning: no constraint 'procedur' is "
						 "loaded; did you mean 'procedure'?"));
	assert_non_null(strstr(verdicts[1].text, "2.mdl:2:44: warning: no constraint 'other'"));
	assert_true(verdicts[2].bad);
	assert_non_null(strstr(verdicts[2].text, "3.mdl:1:11: the text ends here"));
	assert_true(verdicts[3].bad);
	assert_non_null(strstr(verdicts[3].text, "No such file"));
	assert_non_null(mdl_find_metric(l, "m"));
	for (int i = 0; i < 4; i++)
		free(verdicts[i].text);
	mdl_library_free(l);
	for (int i = 0; i < 3; i++)
		remove_file(directory, names[i]);
}

/* Loads them together, in this order; true if the one that is called after its use of the list is good. */
static bool is_user_good(const char *const *names, size_t count)
{
	struct mdl_library *l = test_library();
	struct mdl_verdict verdicts[3];
	struct dinst_error e = {0};
	char paths[3][160];
	const char *list[3];
	bool good = false;

	for (size_t i = 0; i < count; i++) {
		snprintf(paths[i], sizeof(paths[i]), "%s/%s", directory, names[i]);
		list[i] = paths[i];
	}
	assert_int_equal(mdl_load_files(l, list, count, verdicts, &e), 0);
	for (size_t i = 0; i < count; i++) {
		if (strstr(names[i], "user"))
			good = !verdicts[i].bad;
		free(verdicts[i].text);
	}
	mdl_library_free(l);
	return good;
}

/* Of a list that several have, the one that is loaded last is there: it is what the others are checked with. */
static void test_same_list(void **state)
{
	static const char uses[] = "metric m { base is counter {\n"
				   "foreach f in shared append preInsn f.entry (* m++; *) } }\n";
	static const struct {
		const char *names[3];
		size_t count;
		bool good;
	} orders[] = {
		{{"numbers.mdl", "functions.mdl", "user.mdl"}, 3, true},
		{{"functions.mdl", "numbers.mdl", "user.mdl"}, 3, false},
		{{"user.mdl", "numbers.mdl", "functions.mdl"}, 3, true},
		{{"numbers.mdl", "user_of_its_own.mdl"}, 2, true},
		{{"user_of_its_own.mdl", "numbers.mdl"}, 2, false},
	};
	const char functions[] = "list shared is procedure { items { \"main\" }; }\n";
	char own[256];

	(void)state;
	snprintf(own, sizeof(own), "%s%s", functions, uses);
	write_file(directory, "numbers.mdl", "list shared is int { items { 1 }; }\n");
	write_file(directory, "functions.mdl", functions);
	write_file(directory, "user.mdl", uses);
	write_file(directory, "user_of_its_own.mdl", own);
	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
		if (is_user_good(orders[i].names, orders[i].count) != orders[i].good)
			fail_msg("%s, %s, ...: it is %s", orders[i].names[0], orders[i].names[1],
				 orders[i].good ? "refused" : "accepted");
	remove_file(directory, "numbers.mdl");
	remove_file(directory, "functions.mdl");
	remove_file(directory, "user.mdl");
	remove_file(directory, "user_of_its_own.mdl");
}

/* The library that ships has no error and no doubt in it. */
static void test_shipped(void **state)
{
	static const char *const metrics[] = {
		"calls",	  "call_rate",	      "cpu",	    "cpu_inclusive", "wall",
		"wall_inclusive", "latency",	      "active",	    "io_ops",	     "io_bytes",
		"io_wait",	  "sync_ops",	      "sync_wait",  "alloc_calls",   "alloc_bytes",
		"alloc_live",	  "syscall_wrappers", "exceptions", "locks_held",
	};
	static const char *const constraints[] = {"module", "procedure", "thread",
						  "mutex",  "file",	 "socket"};
	struct mdl_library *l = test_library();
	struct dinst_error e = {0};
	char *warnings = NULL;

	(void)state;
	setenv("DINST_METRICS", "data/metrics", 1);
	if (mdl_library_load_installed(l, &warnings, &e))
		fail_msg("%s", e.text);
	setenv("DINST_METRICS", shipped, 1);
	assert_null(warnings);
	for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
		const struct mdl_metric *m = mdl_find_metric(l, metrics[i]);

		if (!m || !m->description || !m->units)
			fail_msg("%s", metrics[i]);
		for (const struct mdl_use *u = m->uses; u; u = u->next)
			if (!mdl_used_constraint(l, u))
				fail_msg("%s: no %s", m->id, u->name);
	}
	for (size_t i = 0; i < sizeof(constraints) / sizeof(constraints[0]); i++)
		assert_non_null(mdl_find_constraint(l, constraints[i]));
	mdl_library_free(l);
}

/* Nor have the examples. */
static void test_examples(void **state)
{
	struct mdl_library *l = test_library();
	struct dinst_error e = {0};
	struct mdl_verdict verdicts[64];
	char *warnings = NULL;
	glob_t found;

	(void)state;
	setenv("DINST_METRICS", "data/metrics", 1);
	assert_int_equal(mdl_library_load_installed(l, &warnings, &e), 0);
	setenv("DINST_METRICS", shipped, 1);
	assert_int_equal(glob("examples/mdl/*.mdl", 0, NULL, &found), 0);
	assert_in_range(found.gl_pathc, 6, 64);
	assert_int_equal(mdl_load_files(l, (const char *const *)found.gl_pathv, found.gl_pathc,
					verdicts, &e),
			 0);
	for (size_t i = 0; i < found.gl_pathc; i++)
		if (verdicts[i].bad || verdicts[i].text)
			fail_msg("%s", verdicts[i].text);
	globfree(&found);
	mdl_library_free(l);
}

/* ------------------------------------------------------------------ limits */

/* head, then `piece` `count` times, then tail. */
static char *repeat(const char *head, const char *piece, size_t count, const char *tail)
{
	size_t size = strlen(head) + strlen(piece) * count + strlen(tail) + 1, used;
	char *text = malloc(size);

	assert_non_null(text);
	used = (size_t)snprintf(text, size, "%s", head);
	for (size_t i = 0; i < count; i++) {
		memcpy(text + used, piece, strlen(piece));
		used += strlen(piece);
	}
	memcpy(text + used, tail, strlen(tail) + 1);
	return text;
}

static void expect_limit(const char *head, const char *piece, size_t fits, size_t most,
			 const char *tail, const char *told)
{
	struct mdl_library *l = test_library();
	struct dinst_error e = {0};
	char *text = repeat(head, piece, fits, tail);

	if (load(l, "f", text, &e))
		fail_msg("%zu times '%s': %s", fits, piece, e.text);
	free(text);
	text = repeat(head, piece, most, tail);
	assert_int_equal(load(l, "f", text, &e), DINST_USAGE);
	if (!strstr(e.text, told))
		fail_msg("%zu times '%s': %s", most, piece, e.text);
	free(text);
	mdl_library_free(l);
}

#define IN_METRIC "metric m { base is counter { "
#define IN_CODE	  IN_METRIC "append preInsn $start.entry (* m = "

static void test_limits(void **state)
{
	(void)state;
	expect_limit(IN_CODE, "(", 0, 100000, "1; *) } }", "nested too deeply");
	expect_limit(IN_CODE, "!", 150, 1000, "1; *) } }", "nested too deeply");
	expect_limit(IN_CODE "1", " + 1", 150, 100000, "; *) } }", "nested too deeply");
	expect_limit(IN_CODE, "1 ? 1 : ", 100, 100000, "1; *) } }", "nested too deeply");
	expect_limit(IN_CODE, "m = ", 100, 100000, "1; *) } }", "nested too deeply");
	expect_limit(IN_CODE "1; ", "if (m) ", 100, 100000, "m++; *) } }", "nested too deeply");
	expect_limit(IN_CODE "1; ", "if (m) m++; else ", 100, 50000, "m++; *) } }",
		     "nested too deeply");
	expect_limit(IN_METRIC, "if (1) ", 100, 100000, "{ } } }", "nested too deeply");
	expect_limit(IN_METRIC, "{ } ", 1000, 200001, "} }", "more than 200000 parts");
	expect_limit("", "// a comment\n", 10, 100000, "", "more than 1048576 bytes");
	expect_limit("metric m { ", "constraint c /Code is default; ", 1, 3000,
		     "base is counter { } }", "definitions");
	expect_limit("metric m { description ", "\"0123456789\" ", 300, 500,
		     "; base is counter { } }", "the longest has 4096 bytes");
}

/* What a text keeps is a few times as large as it is, however its parts are joined. */
static void expect_kept(const char *head, const char *piece, size_t count, const char *tail)
{
	enum { BYTES_FOR_ONE = 128, LEAST = 64 * 1024 };
	struct mdl_library *l = test_library();
	char *text = repeat(head, piece, count, tail);
	const struct mallinfo2 before = mallinfo2();
	struct mallinfo2 after;
	size_t kept;

	test_load(l, text);
	after = mallinfo2();
	kept = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
	if (kept > LEAST + BYTES_FOR_ONE * strlen(text))
		fail_msg("%zu times '%s': %zu bytes for a text of %zu", count, piece, kept,
			 strlen(text));
	free(text);
	mdl_library_free(l);
}

static void test_memory(void **state)
{
	(void)state;
	expect_kept("list l is int { ", "items{1};", 10000, "}");
	expect_kept("list l is int { items{1", ",1", 50000, "}; }");
	expect_kept("metric m { description ", "\"a\"", 4096, "; base is counter { } }");
	expect_kept("metric m { ", "flavor f;", 10000, "base is counter { } }");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_replaced), cmocka_unit_test(test_names),
		cmocka_unit_test(test_fail),	 cmocka_unit_test(test_installed),
		cmocka_unit_test(test_others),	 cmocka_unit_test(test_too_many),
		cmocka_unit_test(test_missing),	 cmocka_unit_test(test_together),
		cmocka_unit_test(test_shipped),	 cmocka_unit_test(test_examples),
		cmocka_unit_test(test_limits),	 cmocka_unit_test(test_given_back),
		cmocka_unit_test(test_memory),	 cmocka_unit_test(test_same_list),
	};

	return cmocka_run_group_tests(tests, make_directories, remove_directories);
}
