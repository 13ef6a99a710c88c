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

/* What the program says of `work` is what was counted of it; `first` it does a little. */
static void counts_as_told(struct harness *h, const char *first, const char *work)
{
	unsigned calls, bytes;
	const char *line;

	harness_start(h, "mdl_memory", NULL);
	mdl_attach(h, NULL);
	mdl_ask(h, first);
	calls = mdl_insert(h, "alloc_calls");
	bytes = mdl_insert(h, "alloc_bytes");
	line = mdl_ask(h, work);
	assert_int_equal(mdl_value(h, calls), mdl_number(line, "calls"));
	assert_int_equal(mdl_value(h, bytes), mdl_number(line, "bytes"));
	mdl_end(h);
}

static void test_calls(void **state)
{
	counts_as_told(*state, "go 10", "go 5000");
}

/* fear E5: aligned_alloc jumps to malloc where that does: one call */
static void test_aligned(void **state)
{
	counts_as_told(*state, "align 2", "align 100");
}

/*
 * fear F5: a program with functions of its own in the place of the C library's, and nobody knows
 * their types: what is told of them is right
 */
static void test_own(void **state)
{
	struct harness *h = *state;
	unsigned calls, bytes, ops, of, naps;

	harness_start(h, "mdl_own", NULL);
	mdl_attach(h, NULL);
	mdl_ask(h, "nap 1");
	calls = mdl_insert(h, "alloc_calls");
	bytes = mdl_insert(h, "alloc_bytes");
	ops = mdl_insert(h, "io_ops", "/Code/mdl_own/sync_it");
	of = mdl_insert(h, "io_bytes", "/File/7");
	naps = mdl_insert(h, "syscall_wrappers", "/Code/mdl_own/nap");
	/* realloc of nothing allocates, whoever does it */
	mdl_ask(h, "grow 10");
	assert_int_equal(mdl_value(h, calls), 10 * 2);
	assert_int_equal(mdl_value(h, bytes), 10 * (100 + 200));
	/* an int below 0 is a failure, whatever is above it */
	mdl_ask(h, "sync 10");
	assert_int_equal(mdl_value(h, ops), 0);
	/* a descriptor is an int, whatever is above it */
	mdl_ask(h, "tee 10");
	assert_int_equal(mdl_value(h, of), 10 * 5);
	/* one system call, though one function calls another */
	mdl_ask(h, "nap 10");
	assert_int_equal(mdl_value(h, naps), 10);
	mdl_end(h);
}

/*
 * fear D3: arguments that nobody has declared, and that would be behind the end of the stack, are
 * nothing, and the program goes on
 */
static void test_edge(void **state)
{
	static const char text[] =
		"list edge_func is procedure { items { \"on_edge\" }; }\n"
		"metric far { counter unused; base is counter { foreach f in edge_func append preInsn f.entry "
		"(* far += $arg[0] + $arg[63]; *) } }\n";
	struct harness *h = *state;
	unsigned far;

	harness_start(h, "mdl_own", NULL);
	mdl_attach(h, text);
	far = mdl_insert(h, "far");
	mdl_ask(h, "edge 10");
	assert_int_equal(mdl_value(h, far), 10 * 5);
	mdl_end(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_live, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_calls, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_aligned, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_own, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_edge, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
