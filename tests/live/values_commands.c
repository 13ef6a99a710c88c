/* SPDX-License-Identifier: MIT */
/*
 * values_commands.c - files of metrics, their values and histories by the
 * command line, before and after the target was killed.
 */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/live/harness.h"

enum { THREADS = 4, CALLS = 20000 };

static const char text[] =
	"list seen_in is procedure { items { \"observe\" }; }\n"
	"constraint keyed /SyncObject/Mutex/* is counter {\n"
	"	foreach f in seen_in {\n"
	"		append preInsn f.entry (* keyed = ($arg[1] == $constraint[0]); *)\n"
	"		prepend preInsn f.return (* keyed = 0; *)\n"
	"	}\n"
	"}\n"
	"metric seen { name \"seen\"; units ns; aggregateOperator sum; style EventCounter;\n"
	"	constraint keyed;\n"
	"	base is distribution { foreach f in seen_in\n"
	"		append preInsn f.entry constrained (* record(seen, $arg[0]); *) } }\n"
	"metric added { name \"added\"; units bytes; aggregateOperator sum; style EventCounter;\n"
	"	constraint keyed;\n"
	"	base is counter { foreach f in seen_in\n"
	"		append preInsn f.entry constrained (* added += $arg[0]; *) } }\n";

static int64_t member(json_t *row, const char *key)
{
	json_t *value = json_object_get(row, key);

	if (!json_is_integer(value))
		fail_msg("%s is no integer", key);
	return json_integer_value(value);
}

static void feed(struct harness *h)
{
	char command[32];

	snprintf(command, sizeof(command), "feed %d\n", CALLS);
	harness_send(h, command);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
}

/* The target ends at once, and is reaped: nothing of it is left to ask. */
static void kill_target(struct harness *h)
{
	kill(h->pid, SIGKILL);
	assert_int_equal(harness_wait(h, HARNESS_ANSWER_MS), SIGKILL);
}

static bool has_keys(const json_t *row, const char *keys)
{
	char list[160], *rest = NULL;

	snprintf(list, sizeof(list), "%s", keys);
	for (char *key = strtok_r(list, " ", &rest); key; key = strtok_r(NULL, " ", &rest))
		if (!json_object_get(row, key))
			return false;
	return true;
}

static json_t *ask(struct harness *h, const char *command, const char *id, int64_t status)
{
	json_t *rows = NULL;

	assert_int_equal(harness_dinst(h, &rows, command, id), status);
	assert_int_equal(json_array_size(rows), 1);
	return rows;
}

static bool lists_metric(const json_t *rows, const char *name)
{
	size_t index;
	json_t *row;

	json_array_foreach(rows, index, row)
	{
		const char *metric = json_string_value(json_object_get(row, "metric"));

		if (metric && !strcmp(metric, name))
			return true;
	}
	return false;
}

static double bins_of(const json_t *row)
{
	json_t *bin;
	size_t index;
	double sum = 0;

	json_array_foreach(json_object_get(row, "bins"), index, bin) sum += json_number_value(bin);
	return sum;
}

static void write_file(const struct harness *h, const char *name, const char *contents, char *path,
		       size_t size)
{
	FILE *f;

	snprintf(path, size, "%s/%s", h->directory, name);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_true(fputs(contents, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

/* A file of metrics, its values, their history, before and after the target is killed. */
static void test_commands(void **state)
{
	struct harness *h = *state;
	json_t *rows = NULL, *row;
	char path[160], wrong[160];
	double value;

	harness_start(h, "values", NULL);
	write_file(h, "mine.mdl", text, path, sizeof(path));
	write_file(h, "wrong.mdl", "metric x {\n  nonsense 3;\n}\nmetric y { nosuch; }\n", wrong,
		   sizeof(wrong));
	/* Files with errors: all of their lines come back, and nothing of them is loaded. */
	assert_int_not_equal(harness_dinst(h, NULL, "attach", harness_number(h->pid), "-n", "v",
					   "-M", wrong),
			     0);
	assert_non_null(strstr(h->messages, "wrong.mdl:2:"));
	assert_non_null(strstr(h->messages, "nonsense 3"));
	assert_int_equal(harness_dinst(h, NULL, "attach", harness_number(h->pid), "-M", path), 0);
	assert_int_equal(harness_dinst(h, &rows, "metrics"), 0);
	assert_true(lists_metric(rows, "seen") && lists_metric(rows, "calls"));
	assert_false(lists_metric(rows, "x"));
	json_decref(rows);
	assert_int_equal(harness_dinst(h, NULL, "insert", "seen"), 0);
	assert_int_equal(harness_dinst(h, NULL, "insert", "added", "/SyncObject/Mutex/*"), 0);
	feed(h);
	rows = ask(h, "read", "1", 0);
	row = json_array_get(rows, 0);
	assert_true(has_keys(row, "id metric focus value unit count sum min max buckets p50 p99"));
	value = (double)member(row, "value");
	assert_true(value == THREADS * CALLS);
	json_decref(rows);
	rows = ask(h, "read", "2", 0);
	assert_true(has_keys(json_array_get(rows, 0), "id metric focus value unit elements full"));
	json_decref(rows);
	rows = ask(h, "history", "1", 0);
	row = json_array_get(rows, 0);
	assert_true(has_keys(row, "id metric focus unit style value start width_ns bins"));
	assert_true(bins_of(row) == value);
	json_decref(rows);
	kill_target(h);
	rows = ask(h, "history", "1", 0);
	assert_true(bins_of(json_array_get(rows, 0)) == value);
	json_decref(rows);
	rows = ask(h, "read", "1", 0);
	assert_true((double)member(json_array_get(rows, 0), "value") == value);
	json_decref(rows);
}

/* A session in which nothing is inserted is not asked for anything. */
static void test_no_sampling_for_nothing(void **state)
{
	struct harness *h = *state;
	json_t *rows = NULL;
	int64_t pause;

	harness_start(h, "values", NULL);
	assert_int_equal(harness_dinst(h, NULL, "attach", harness_number(h->pid), "-n", "v"), 0);
	assert_int_equal(harness_dinst(h, &rows, "ls"), 0);
	assert_null(json_object_get(json_array_get(rows, 0), "sampled_ms"));
	json_decref(rows);
	assert_int_equal(harness_dinst(h, NULL, "insert", "calls", "/Code/values/observe"), 0);
	for (int ms = 0; ms < HARNESS_ANSWER_MS; ms += 100) {
		assert_int_equal(harness_dinst(h, &rows, "ls"), 0);
		if (json_object_get(json_array_get(rows, 0), "sampled_ms"))
			break;
		json_decref(rows);
		usleep(100000);
	}
	/* Less often where the machine is slow: 1 % of the time at most. */
	pause = member(json_array_get(rows, 0), "sampled_ms");
	assert_true(pause >= 200);
	json_decref(rows);
	assert_int_equal(harness_dinst(h, NULL, "remove", "--all"), 0);
	/* The last sample is the one that finds nothing: the longer one takes, the later it comes. */
	for (int64_t waited = 0;; waited += 100) {
		usleep(100000);
		assert_int_equal(harness_dinst(h, &rows, "ls"), 0);
		if (!json_object_get(json_array_get(rows, 0), "sampled_ms"))
			break;
		if (member(json_array_get(rows, 0), "sampled_ms") > pause)
			pause = member(json_array_get(rows, 0), "sampled_ms");
		assert_true(waited < 500 + 2 * pause);
		json_decref(rows);
	}
	json_decref(rows);
	/* What was there is told all the same. */
	rows = ask(h, "history", "1", 0);
	assert_true(json_is_true(json_object_get(json_array_get(rows, 0), "ended")));
	json_decref(rows);
	assert_int_equal(harness_dinst(h, NULL, "detach"), 0);
	harness_verify(h);
	harness_end(h, 0);
}

/* Somebody else begins anew under the same name and number, while it is watched. */
static pid_t begin_anew_later(struct harness *h)
{
	const pid_t child = fork();

	assert_true(child >= 0);
	if (child)
		return child;
	usleep(1500 * 1000);
	_exit(harness_dinst(h, NULL, "detach") ||
	      harness_dinst(h, NULL, "attach", harness_number(h->pid), "-n", "v") ||
	      harness_dinst(h, NULL, "insert", "calls", "/Code/values/observe"));
}

/* Numbers begin anew with a session: what two of them counted is no rate. */
static void test_watch_of_another(void **state)
{
	struct harness *h = *state;
	json_t *rows = NULL;
	pid_t child;
	int status;

	harness_start(h, "values", NULL);
	assert_int_equal(harness_dinst(h, NULL, "attach", harness_number(h->pid), "-n", "v"), 0);
	assert_int_equal(harness_dinst(h, NULL, "insert", "calls", "/Code/values/observe"), 0);
	feed(h);
	child = begin_anew_later(h);
	assert_int_equal(harness_dinst(h, &rows, "watch", "1", "-i", "5", "-c", "2"), 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(json_array_size(rows), 2);
	assert_true(member(json_array_get(rows, 0), "value") == THREADS * CALLS);
	assert_true(member(json_array_get(rows, 1), "value") == 0);
	assert_true(json_is_null(json_object_get(json_array_get(rows, 1), "rate")));
	json_decref(rows);
	assert_int_equal(harness_dinst(h, NULL, "detach"), 0);
	harness_verify(h);
	harness_end(h, 0);
}

/* Of a page of code the target has one copy, however often something went in there and out. */
static void test_text_memory(void **state)
{
	static const char *const foci[] = {"/Code/values/observe", "/Code/libc.so.6/getppid"};
	struct harness *h = *state;
	json_t *rows = NULL;

	harness_start(h, "values", NULL);
	assert_int_equal(harness_dinst(h, NULL, "attach", harness_number(h->pid), "-n", "v"), 0);
	for (unsigned n = 0; n < 20; n++) {
		assert_int_equal(harness_dinst(h, NULL, "insert", "calls", foci[n % 2]), 0);
		assert_int_equal(harness_dinst(h, NULL, "remove", "--all"), 0);
		assert_int_equal(harness_dinst(h, NULL, "flush"), 0);
	}
	assert_int_equal(harness_dinst(h, &rows, "ls"), 0);
	assert_in_range(member(json_array_get(rows, 0), "text_memory"), 4096, 4 * 4096);
	json_decref(rows);
	assert_int_equal(harness_dinst(h, NULL, "detach"), 0);
	harness_verify(h);
	harness_end(h, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_commands, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_no_sampling_for_nothing, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_watch_of_another, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_text_memory, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
