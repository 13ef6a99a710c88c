/* SPDX-License-Identifier: MIT */
/*
 * mdl_memory.c - alloc_calls and alloc_bytes against the program's own count,
 * alloc_live against mallinfo2().
 */
#include "tests/live/mdl_help.h"

static int64_t used(struct harness *h)
{
	return mdl_number(mdl_ask(h, "info"), "used");
}

static void test_live(void **state)
{
	struct harness *h = *state;
	unsigned id;
	int64_t before;

	harness_start(h, "mdl_memory", NULL);
	mdl_attach(h, NULL);
	mdl_ask(h, "go 1000");
	id = mdl_insert(h, "alloc_live");
	/* some is there already, and goes back later */
	before = used(h) - mdl_value(h, id);
	for (int i = 0; i < 5; i++) {
		mdl_ask(h, "go 2000");
		assert_int_equal(used(h) - before, mdl_value(h, id));
	}
	mdl_ask(h, "drop");
	assert_int_equal(used(h) - before, mdl_value(h, id));
	mdl_end(h);
}

static void test_calls(void **state)
{
	struct harness *h = *state;
	unsigned calls, bytes;
	const char *line;

	harness_start(h, "mdl_memory", NULL);
	mdl_attach(h, NULL);
	mdl_ask(h, "go 10");
	calls = mdl_insert(h, "alloc_calls");
	bytes = mdl_insert(h, "alloc_bytes");
	line = mdl_ask(h, "go 5000");
	assert_int_equal(mdl_value(h, calls), mdl_number(line, "calls"));
	assert_int_equal(mdl_value(h, bytes), mdl_number(line, "bytes"));
	mdl_end(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_live, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_calls, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
