/* SPDX-License-Identifier: MIT */
/*
 * evaluate_counts.c - what constraints tell apart is counted apart, in a program
 * that says how often it did what: callees, callers, blocks, threads by name,
 * processes of a family, starts and ends of threads.
 */
#include "tests/live/mdl_help.h"

enum { ROUNDS = 300 };

static const char text[] =
	"list leaf_only is procedure { items { \"evaluate-counts:leaf\" }; }\n"
	"constraint alone exclusive /Code/*/* is counter {\n"
	"  append preInsn $constraint[0].entry (* alone++; *)\n"
	"  prepend preInsn $constraint[0].return (* alone--; *)\n"
	"}\n"
	"constraint within inclusive /Code/*/* is counter {\n"
	"  append preInsn $constraint[0].entry (* within++; *)\n"
	"  prepend preInsn $constraint[0].return (* within--; *)\n"
	"}\n"
	"constraint byHand /Code/*/* is counter {\n"
	"  append preInsn $constraint[0].entry (* byHand = 1; *)\n"
	"  foreach c in $constraint[0].calls if (c.callee.name != \"rare\") {\n"
	"    append preInsn c (* byHand = 0; *)\n"
	"    prepend postInsn c (* byHand = 1; *)\n"
	"  }\n"
	"  prepend preInsn $constraint[0].return (* byHand = 0; *)\n"
	"}\n"
	"metric alone_leaf { name \"alone_leaf\"; units calls; aggregateOperator sum;\n"
	"  style EventCounter; constraint alone;\n"
	"  base is counter { foreach f in leaf_only append preInsn f.entry (* alone_leaf++; *) } }\n"
	"metric within_leaf { name \"within_leaf\"; units calls; aggregateOperator sum;\n"
	"  style EventCounter; constraint within;\n"
	"  base is counter { foreach f in leaf_only append preInsn f.entry (* within_leaf++; *) } }\n"
	"metric hand_leaf { name \"hand_leaf\"; units calls; aggregateOperator sum;\n"
	"  style EventCounter; constraint byHand;\n"
	"  base is counter { foreach f in leaf_only append preInsn f.entry (* hand_leaf++; *) } }\n"
	"metric called { name \"called\"; units calls; aggregateOperator sum; style EventCounter;\n"
	"  constraint rarely /Code/*/* is replace counter {\n"
	"    foreach c in $constraint[0].calls if (c.callee.name == \"rare\")\n"
	"      append preInsn c (* called++; *)\n"
	"    else if (c.callee.name == \"middle\") append postInsn c (* called += 1000; *)\n"
	"  }\n"
	"  base is counter { append preInsn $exit.entry (* called++; *) } }\n"
	"metric callers { name \"callers\"; units calls; aggregateOperator sum; style EventCounter;\n"
	"  base is counter { foreach f in leaf_only foreach c in f.callers\n"
	"    if (c.name == \"outer\" || c.name == \"middle\") append preInsn c.entry (* callers++; *) } }\n"
	"metric blocks { name \"blocks\"; units calls; aggregateOperator sum; style EventCounter;\n"
	"  constraint block /Code/*/*/* is replace counter { append preInsn $constraint[0] (* blocks++; *) }\n"
	"  base is counter { append preInsn $exit.entry (* blocks++; *) } }\n";

static void setup(struct harness *h)
{
	harness_start(h, "evaluate-counts", NULL);
	mdl_attach(h, text);
}

static void test_callees(void **state)
{
	struct harness *h = *state;
	unsigned alone, within, hand, called, callers;

	setup(h);
	alone = mdl_insert(h, "alone_leaf", "/Code/evaluate-counts/outer");
	within = mdl_insert(h, "within_leaf", "/Code/evaluate-counts/outer");
	hand = mdl_insert(h, "hand_leaf", "/Code/evaluate-counts/outer");
	called = mdl_insert(h, "called", "/Code/evaluate-counts/outer");
	callers = mdl_insert(h, "callers");
	mdl_ask(h, "go %d", ROUNDS);
	/* Calls of leaf() itself are outer()'s own; those of middle() are not. */
	assert_int_equal(mdl_value(h, alone), 2 * ROUNDS);
	assert_int_equal(mdl_value(h, within), 5 * ROUNDS);
	assert_int_equal(mdl_value(h, hand), 2 * ROUNDS);
	assert_int_equal(mdl_value(h, called), ROUNDS / 3 + 1000 * ROUNDS);
	assert_int_equal(mdl_value(h, callers), 2 * ROUNDS);
	/* Elsewhere leaf() is called without any of it. */
	mdl_ask(h, "work %d", ROUNDS);
	assert_int_equal(mdl_value(h, alone), 2 * ROUNDS);
	assert_int_equal(mdl_value(h, within), 5 * ROUNDS);
	mdl_end(h);
}

/* The blocks of outer(): the way that every third call takes is one of its own. */
static void test_blocks(void **state)
{
	struct harness *h = *state;
	unsigned all, ids[32], count = 0, thirds = 0, full = 0;
	int64_t sum = 0;
	json_t *rows = NULL, *row;
	size_t index;

	setup(h);
	all = mdl_insert(h, "blocks", "/Code/evaluate-counts/outer/*");
	assert_int_equal(harness_dinst(h, &rows, "points", "--kinds", "block",
				       "evaluate-counts:outer", "-p", harness_number(h->pid)),
			 0);
	json_array_foreach(rows, index, row)
	{
		char focus[128];
		const char *address = json_string_value(json_object_get(row, "address"));

		assert_non_null(address);
		snprintf(focus, sizeof(focus), "/Code/evaluate-counts/outer/%s", address);
		assert_true(count < 32);
		ids[count++] = mdl_insert(h, "blocks", focus);
	}
	json_decref(rows);
	assert_true(count >= 3);
	mdl_ask(h, "go %d", ROUNDS);
	for (unsigned i = 0; i < count; i++) {
		const int64_t value = mdl_value(h, ids[i]);

		sum += value;
		full += value == ROUNDS;
		thirds += value == ROUNDS / 3;
	}
	assert_true(full >= 2);
	assert_int_equal(thirds, 1);
	assert_int_equal(mdl_value(h, all), sum);
	mdl_end(h);
}

/* The element of a vector whose key is `key`; -1: there is none. */
static int64_t element(struct harness *h, unsigned id, size_t *count, int64_t key)
{
	json_t *rows = mdl_rows(h, id);
	json_t *elements = json_object_get(json_array_get(rows, 0), "elements"), *e;
	int64_t value = -1;
	size_t index;

	*count = json_array_size(elements);
	json_array_foreach(elements, index, e)
	{
		const char *name = json_string_value(json_object_get(e, "key"));

		/* What found no place has no key. */
		*count -= !name;
		if (name && strtoll(name, NULL, 0) == key)
			value = json_integer_value(json_object_get(e, "value"));
	}
	json_decref(rows);
	return value;
}

static void test_threads(void **state)
{
	struct harness *h = *state;
	unsigned one, both, every, kind;
	size_t count;

	setup(h);
	/* Named as what is a kind of files is. */
	kind = mdl_insert(h, "calls", "/Code/evaluate-counts/leaf", "/Process/Socket");
	one = mdl_insert(h, "calls", "/Code/evaluate-counts/leaf", "/Process/long-1");
	both = mdl_insert(h, "calls", "/Code/evaluate-counts/leaf", "/Process/long-*");
	every = mdl_insert(h, "calls", "/Code/evaluate-counts/leaf", "/Process/*");
	mdl_ask(h, "work %d", ROUNDS);
	mdl_ask(h, "go %d", ROUNDS);
	assert_int_equal(mdl_value(h, kind), 4 * ROUNDS);
	assert_int_equal(mdl_value(h, one), 2 * ROUNDS);
	assert_int_equal(mdl_value(h, both), 3 * ROUNDS);
	element(h, both, &count, 0);
	assert_int_equal(count, 2);
	assert_int_equal(mdl_value(h, every), 7 * ROUNDS + 5 * ROUNDS);
	assert_int_equal(element(h, every, &count, h->pid), 5 * ROUNDS);
	assert_int_equal(count, 4);
	mdl_end(h);
}

static void test_processes(void **state)
{
	struct harness *h = *state;
	unsigned parent, family;
	char own[64];
	size_t count;

	setup(h);
	snprintf(own, sizeof(own), "/Machine/%d", (int)h->pid);
	parent = mdl_insert(h, "calls", "/Code/evaluate-counts/leaf", own);
	family = mdl_insert(h, "calls", "/Code/evaluate-counts/leaf", "/Machine/*");
	mdl_ask(h, "fork %d", ROUNDS);
	mdl_ask(h, "go %d", ROUNDS);
	assert_int_equal(mdl_value(h, parent), 5 * ROUNDS);
	assert_int_equal(mdl_value(h, family), 6 * ROUNDS);
	assert_int_equal(element(h, family, &count, h->pid), 5 * ROUNDS);
	assert_int_equal(count, 2);
	mdl_end(h);
}

/* fear G1: who runs through what is inserted can be named, though its parent has ended and others have adopted it */
static void test_orphan(void **state)
{
	static const char focus[] = "/Code/evaluate-counts/leaf";
	struct harness *h = *state;
	unsigned family, by_number, by_name;
	char number[64];
	size_t count;
	int orphan;

	setup(h);
	family = mdl_insert(h, "calls", focus, "/Machine/*");
	assert_int_equal(sscanf(mdl_ask(h, "orphan"), "orphan %d", &orphan), 1);
	snprintf(number, sizeof(number), "/Machine/%d", orphan);
	by_number = mdl_insert(h, "calls", focus, number);
	by_name = mdl_insert(h, "calls", focus, "/Machine/orph*");
	mdl_ask(h, "let %d", ROUNDS);
	mdl_ask(h, "go %d", ROUNDS);
	assert_int_equal(element(h, family, &count, orphan), ROUNDS);
	assert_int_equal(mdl_value(h, by_number), ROUNDS);
	assert_int_equal(mdl_value(h, by_name), ROUNDS);
	mdl_ask(h, "let 0");
	mdl_end(h);
}

/* Threads that come and go, by returning and by pthread_exit(), leave nothing behind. */
static void test_starts(void **state)
{
	struct harness *h = *state;
	unsigned active, cpu;

	setup(h);
	active = mdl_insert(h, "active");
	cpu = mdl_insert(h, "cpu");
	assert_int_equal(mdl_value(h, active), 4);
	mdl_ask(h, "short 50");
	assert_int_equal(mdl_value(h, active), 4);
	assert_true(mdl_value(h, cpu) > 0);
	mdl_end(h);
}

/* A list that names a library, and a focus that does, wait for it. */
static void test_awaited(void **state)
{
	static const char awaiting[] =
		"list plugged is procedure { items { \"libplugin.so:plugin_leaf\" }; }\n"
		"metric leaves { name \"leaves\"; units calls; aggregateOperator sum;\n"
		"  style EventCounter; constraint within;\n"
		"  base is counter { append preInsn plugged.entry (* leaves++; *) } }\n"
		"constraint within /Code/*/* is counter {\n"
		"  append preInsn $constraint[0].entry (* within++; *)\n"
		"  prepend preInsn $constraint[0].return (* within--; *) }\n";
	struct harness *h = *state;
	unsigned ids[3];
	json_t *rows;

	harness_start(h, "loads", NULL);
	mdl_attach(h, awaiting);
	for (unsigned i = 0; i < 3; i++) {
		const char *const words[3][3] = {{"leaves", NULL},
						 {"calls", "/Code/libplugin.so/plugin_work", NULL},
						 {"leaves", "/Code/libplugin.so/plugin_work",
						  NULL}};

		rows = mdl_insert_rows(h, true, words[i]);
		assert_int_equal(harness_integer(rows, "pending"), 1);
		assert_int_equal(harness_integer(rows, "points"), 0);
		ids[i] = (unsigned)harness_integer(rows, "id");
		json_decref(rows);
	}
	mdl_ask(h, "open");
	/* It is noticed by looking now and then. */
	for (unsigned tries = 0; tries < 1200; tries++) {
		mdl_ask(h, "call 10");
		if (mdl_value(h, ids[0]) && mdl_value(h, ids[1]) && mdl_value(h, ids[2]))
			break;
		usleep(100000);
	}
	{
		const int64_t before = mdl_value(h, ids[0]), inside = mdl_value(h, ids[2]);

		mdl_ask(h, "call %d", ROUNDS);
		assert_int_equal(mdl_value(h, ids[0]), before + ROUNDS);
		assert_int_equal(mdl_value(h, ids[2]), inside + ROUNDS);
	}
	if (harness_dinst(h, NULL, "detach", harness_number(h->pid)) != 0)
		fail_msg("detach: %s", h->messages);
	harness_end(h, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_callees, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_blocks, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_threads, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_processes, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_orphan, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_awaited, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_starts, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
