/* SPDX-License-Identifier: MIT */
/*
 * mdl_running.c - timers of a vector while they run: each thread's part belongs
 * to its own element before it stops.
 */
#include "tests/live/mdl_help.h"

enum { THREADS = 10, NTH = 3, PAUSE_MS = 300 };

static void test_running(void **state)
{
	struct harness *h = *state;
	static const char focus[] = "/Code/mdl_threads/work_3";
	struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000l};
	int64_t mine = 0, others = 0, sum = 0;
	long tids[THREADS];
	const char *names;
	json_t *rows, *element;
	unsigned id;
	size_t n;

	harness_start(h, "mdl_threads", NULL);
	mdl_attach(h, NULL);
	names = mdl_ask(h, "names");
	for (int k = 0; k < THREADS; k++)
		tids[k] = strtol(names, (char **)&names, 10);
	mdl_ask(h, "hold");
	id = mdl_insert(h, "wall_inclusive", focus, "/Process/*");
	nanosleep(&pause, NULL);
	rows = mdl_rows(h, id);
	json_array_foreach(json_object_get(json_array_get(rows, 0), "elements"), n, element)
	{
		const int64_t value = json_integer_value(json_object_get(element, "value"));
		json_t *key = json_object_get(element, "key");

		sum += value;
		if (json_is_string(key) ? strtol(json_string_value(key), NULL, 10) == tids[NTH]
					: json_integer_value(key) == tids[NTH])
			mine = value;
		else
			others += value;
	}
	assert_int_equal(sum,
			 json_integer_value(json_object_get(json_array_get(rows, 0), "value")));
	json_decref(rows);
	assert_int_equal(others, 0);
	assert_true(mine >= PAUSE_MS * 1000000ll);
	mdl_ask(h, "free 0");
	assert_true(mdl_value(h, id) >= mine);
	mdl_end(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_running, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
