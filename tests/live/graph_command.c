/* SPDX-License-Identifier: MIT */
/*
 * graph_command.c - `dinst graph` on a program whose call tree is known (targets/call_tree.c):
 * every count is exact for the calls that were followed, whether all of them are or one of some, and
 * the program is left as it was.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/live/harness_session.h"
#include "tests/live/harness.h"

/* The node with that path ("work/middle"), else NULL. */
static json_t *node_at(json_t *rows, const char *path)
{
	size_t index, at;
	json_t *row, *name;

	json_array_foreach(rows, index, row)
	{
		char text[400] = "";
		size_t used = 0;

		json_array_foreach(json_object_get(row, "path"), at, name) used +=
			(size_t)snprintf(text + used, sizeof(text) - used, "%s%s", at ? "/" : "",
					 json_string_value(name));
		if (strcmp(text, path) == 0)
			return row;
	}
	return NULL;
}

static int64_t number(json_t *row, const char *key)
{
	json_t *value = json_object_get(row, key);

	if (!json_is_integer(value))
		fail_msg("%s is no integer", key);
	return json_integer_value(value);
}

static int64_t calls_at(json_t *rows, const char *path)
{
	json_t *row = node_at(rows, path);

	if (!row) {
		char *text = json_dumps(rows, JSON_INDENT(1));

		print_error("%.6000s\n", text);
		free(text);
		fail_msg("there is no %s", path);
	}
	return number(row, "calls");
}

/* What is running when the counting ends has done a part of its calls only. */
static void expect_calls(json_t *rows, const char *path, int64_t each)
{
	const int64_t work = calls_at(rows, "work"), calls = calls_at(rows, path);
	const int64_t running = number(node_at(rows, "work"), "running");

	if (calls < (work - running) * each || calls > work * each)
		fail_msg("%s was called %lld times in %lld calls of work, %lld running", path,
			 (long long)calls, (long long)work, (long long)running);
}

static void expect_tree(json_t *rows)
{
	static const char *const once[] = {"work/jumper", "work/recurse",
					   "work/recurse/recurse/recurse/recurse/recurse", NULL};
	const int64_t work = calls_at(rows, "work");
	const int64_t running = number(node_at(rows, "work"), "running");
	int64_t targets;

	expect_calls(rows, "work/middle", 3);
	expect_calls(rows, "work/middle/leaf", 12);
	expect_calls(rows, "work/jumper/jumped", 2);
	for (size_t i = 0; once[i]; i++)
		expect_calls(rows, once[i], 1);
	/* through a pointer, by turns */
	targets = calls_at(rows, "work/target_a") + calls_at(rows, "work/target_b");
	assert_in_range(targets, work - running, work);
	assert_int_equal(calls_at(rows, "work/target_a"), calls_at(rows, "work/target_a/leaf"));
	/* what was never called, and what is called outside of work only */
	assert_null(node_at(rows, "work/never"));
	assert_null(node_at(rows, "work/leaf"));
	assert_null(node_at(rows, "leaf"));
	assert_null(node_at(rows, "work/recurse/recurse/recurse/recurse/recurse/recurse"));
}

static void expect_times(json_t *rows)
{
	size_t index;
	json_t *row;

	json_array_foreach(rows, index, row)
	{
		if (strcmp(json_string_value(json_object_get(row, "kind")), "node") != 0)
			continue;
		assert_true(number(row, "self_ns") <= number(row, "total_ns"));
		assert_true(number(row, "longest_ns") <= number(row, "total_ns"));
		assert_true(number(row, "calls") > 0);
		assert_true(number(row, "total_ns") <=
			    number(row, "longest_ns") * number(row, "calls"));
	}
	assert_true(number(node_at(rows, "work"), "self_ns") > 0);
	assert_in_range(number(node_at(rows, "work/middle"), "total_ns"), 1,
			number(node_at(rows, "work"), "total_ns") - 1);
}

/* The comparing function is called by libc, deep in what sorts. */
static bool has_function(json_t *rows, const char *name)
{
	size_t index;
	json_t *row;

	json_array_foreach(rows, index, row)
	{
		const char *function = json_string_value(json_object_get(row, "function"));

		if (function && node_at(rows, "work") && strcmp(function, name) == 0)
			return true;
	}
	return false;
}

static json_t *graph(struct harness *h, const char *depth, const char *budget)
{
	json_t *rows = NULL;
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", (int)h->pid);
	if (harness_dinst(h, &rows, "graph", "-p", pid, "call_tree:work", "-d", "2", "--depth",
			  depth, "--budget", budget) != 0)
		fail_msg("%s", h->messages);
	return rows;
}

static void every_call(void **state)
{
	struct harness *h = *state;
	json_t *rows;

	harness_start(h, "call_tree", "5000", NULL);
	rows = graph(h, "8", "100000000");
	assert_int_equal(number(json_array_get(rows, 0), "every"), 1);
	expect_tree(rows);
	expect_times(rows);
	assert_true(has_function(rows, "compare"));
	/* the root's own counter says the same; it was read a moment before and after */
	assert_true(number(json_array_get(rows, 0), "followed") <=
		    number(json_array_get(rows, 0), "calls") + 4);
	assert_true(number(json_array_get(rows, 0), "followed") > 10);
	json_decref(rows);
	harness_verify(h);
	harness_end(h, 0);
}

static void one_of_some(void **state)
{
	struct harness *h = *state;
	json_t *rows;

	harness_start(h, "call_tree", "1000", NULL);
	rows = graph(h, "8", "4000");
	assert_true(number(json_array_get(rows, 0), "every") > 1);
	expect_tree(rows);
	expect_times(rows);
	assert_true(number(json_array_get(rows, 0), "calls") >
		    number(json_array_get(rows, 0), "followed"));
	json_decref(rows);
	harness_verify(h);
	harness_end(h, 0);
}

static void not_deeper_than_asked(void **state)
{
	struct harness *h = *state;
	json_t *rows, *row;
	size_t index;

	harness_start(h, "call_tree", "5000", NULL);
	rows = graph(h, "1", "100000000");
	json_array_foreach(rows, index, row)
	{
		if (json_object_get(row, "path"))
			assert_true(number(row, "depth") <= 1);
	}
	expect_calls(rows, "work/middle", 3);
	assert_null(node_at(rows, "work/middle/leaf"));
	json_decref(rows);
	rows = graph(h, "0", "100000000");
	assert_int_equal(json_array_size(rows), 2);
	json_decref(rows);
	harness_verify(h);
	harness_end(h, 0);
}

/* Their contents are looked at in tests/unit/report_export.c. */
static void all_files(void **state)
{
	static const char *const options[] = {"--flame",  "--chrome",	 "--perfetto",
					      "--folded", "--callgrind", "--pprof"};
	struct harness *h = *state;
	const char *words[20] = {"graph", "-p", NULL, "work", "-d", "1"};
	char paths[6][100], pid[16];
	json_t *rows = NULL;
	struct stat st;
	size_t n = 6;

	harness_start(h, "call_tree", "5000", NULL);
	snprintf(pid, sizeof(pid), "%d", (int)h->pid);
	words[2] = pid;
	for (size_t i = 0; i < 6; i++) {
		snprintf(paths[i], sizeof(paths[i]), "%s/out%zu", h->directory, i);
		words[n++] = options[i];
		words[n++] = paths[i];
	}
	if (harness_dinst_argv(h, &rows, words) != 0)
		fail_msg("%s", h->messages);
	json_decref(rows);
	for (size_t i = 0; i < 6; i++) {
		assert_int_equal(stat(paths[i], &st), 0);
		assert_true(st.st_size > 100);
		assert_non_null(strstr(h->messages, paths[i]));
		unlink(paths[i]);
	}
	harness_verify(h);
	harness_end(h, 0);
}

static void what_cannot_be_asked(void **state)
{
	char before[100], none[100], pid[16];
	struct harness *h = *state;
	json_t *rows = NULL;
	struct stat st;
	FILE *file;

	harness_start(h, "call_tree", "5000", NULL);
	snprintf(pid, sizeof(pid), "%d", (int)h->pid);
	snprintf(before, sizeof(before), "%s/before", h->directory);
	snprintf(none, sizeof(none), "%s/none", h->directory);
	file = fopen(before, "we");
	assert_non_null(file);
	fputs("of before\n", file);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(harness_dinst(h, &rows, "graph", "-p", pid, "wrok", "--folded", before,
				       "--chrome", none),
			 1);
	assert_non_null(strstr(h->messages, "did you mean"));
	json_decref(rows);
	/* Where there is no result the file is as it was, and none is left. */
	assert_int_equal(stat(before, &st), 0);
	assert_int_equal(st.st_size, strlen("of before\n"));
	assert_int_equal(stat(none, &st), -1);
	unlink(before);
	assert_int_equal(harness_dinst(h, &rows, "graph", "-p", pid, "target_*"), 2);
	assert_non_null(strstr(h->messages, "call_tree:target_b"));
	json_decref(rows);
	assert_int_equal(harness_dinst(h, &rows, "graph", "-p", pid, "work", "--flame",
				       "/nowhere/at/all.svg"),
			 1);
	assert_non_null(strstr(h->messages, "/nowhere/at/all.svg"));
	json_decref(rows);
	assert_int_equal(harness_dinst(h, &rows, "graph", "-p", pid, "work", "--depth", "x"), 2);
	json_decref(rows);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear E5: what is jumped to through a pointer is called, too: no call in the code leads there */
static void jumps_through_pointers(void **state)
{
	struct harness *h = *state;
	json_t *rows = NULL;
	int64_t calls;
	char pid[16];

	harness_start(h, "call_tree", "5000", NULL);
	snprintf(pid, sizeof(pid), "%d", (int)h->pid);
	assert_int_equal(harness_dinst(h, &rows, "graph", "-p", pid, "relay", "-d", "1"), 0);
	calls = calls_at(rows, "relay");
	assert_true(calls > 10);
	assert_in_range(calls_at(rows, "relay/passer"), calls - 2, calls);
	assert_in_range(calls_at(rows, "relay/sender"), calls - 2, calls);
	json_decref(rows);
	harness_verify(h);
	harness_end(h, 0);
}

/* Nobody calls it: what the code says is believed, and nothing is counted. */
static void never_called(void **state)
{
	struct harness *h = *state;
	json_t *rows = NULL;
	char pid[16];

	harness_start(h, "call_tree", "5000", NULL);
	snprintf(pid, sizeof(pid), "%d", (int)h->pid);
	assert_int_equal(harness_dinst(h, &rows, "graph", "-p", pid, "never", "-d", "0.5"), 0);
	assert_int_equal(number(json_array_get(rows, 0), "followed"), 0);
	assert_int_equal(json_array_size(rows), 1);
	json_decref(rows);
	harness_verify(h);
	harness_end(h, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(every_call, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(one_of_some, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(not_deeper_than_asked, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(all_files, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(what_cannot_be_asked, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(jumps_through_pointers, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(never_called, harness_setup, harness_teardown),
	};

	if (!harness_has_clock(true))
		return 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
