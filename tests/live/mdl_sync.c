/* SPDX-License-Identifier: MIT */
/*
 * mdl_sync.c - calls, sync_ops, sync_wait and locks_held of mutexes: exact counts
 * of 10,000 of them in one vector, whose code does not grow with their number,
 * and known sleeps.
 */
#include "tests/live/mdl_help.h"

enum { MANY = 10000, ROUNDS = 3 };

static void begin(struct harness *h, const char *count)
{
	harness_start(h, "mdl_mutexes", count, NULL);
	mdl_attach(h, NULL);
}

static int64_t heap_bytes(struct harness *h)
{
	json_t *rows = NULL;
	int64_t bytes;

	assert_int_equal(harness_dinst(h, &rows, "ls"), 0);
	bytes = harness_integer(rows, "heap_bytes");
	json_decref(rows);
	return bytes;
}

/* Address of mutex i. */
static uint64_t address(struct harness *h, long i)
{
	const char *line = mdl_ask(h, "where");
	char *end;
	const uint64_t first = strtoull(line, &end, 16);

	return first + (uint64_t)i * strtoul(end, NULL, 10);
}

/* Locks that both threads made on mutex i in `rounds`. */
static int64_t locks(long i, long rounds)
{
	return 2 * (i % 7 + 1) * rounds;
}

static int64_t key_of(const json_t *element)
{
	const json_t *key = json_object_get(element, "key");

	return json_is_string(key) ? (int64_t)strtoull(json_string_value(key), NULL, 0)
				   : json_integer_value(key);
}

/* All elements of the vector are right, and all mutexes are there. */
static void check_all(struct harness *h, unsigned id, long count)
{
	json_t *rows = mdl_rows(h, id), *element;
	const json_t *elements = json_object_get(json_array_get(rows, 0), "elements");
	const uint64_t first = address(h, 0), size = address(h, 1) - first;
	unsigned char *seen = calloc((size_t)count, 1);
	long found = 0;
	size_t i;

	json_array_foreach(elements, i, element)
	{
		const uint64_t key = (uint64_t)key_of(element);
		const int64_t value = json_integer_value(json_object_get(element, "value"));
		const uint64_t number = (key - first) / size;

		if (key < first || number >= (uint64_t)count)
			continue;
		assert_int_equal((key - first) % size, 0);
		assert_int_equal(seen[number], 0);
		seen[number] = 1;
		if (value != locks((long)number, ROUNDS))
			fail_msg("mutex %lu: %ld instead of %ld", (unsigned long)number,
				 (long)value, (long)locks((long)number, ROUNDS));
		found++;
	}
	free(seen);
	json_decref(rows);
	assert_int_equal(found, count);
}

/* Bytes of our own in the target that one request for all mutexes took. */
static int64_t count_all(struct harness *h, const char *text, long count)
{
	int64_t before;
	unsigned id;

	begin(h, text);
	before = heap_bytes(h);
	id = mdl_insert(h, "calls", "/SyncObject/Mutex/*");
	before = heap_bytes(h) - before;
	mdl_ask(h, "go 3");
	check_all(h, id, count);
	mdl_end(h);
	return before;
}

static void test_vector(void **state)
{
	struct harness *h = *state;
	const int64_t few = count_all(h, "10", 10), many = count_all(h, "10000", MANY);

	if (few != many)
		fail_msg("%ld bytes for 10 mutexes, %ld for %d", (long)few, (long)many, MANY);
}

static void test_one(void **state)
{
	struct harness *h = *state;
	char focus[60];
	unsigned calls, ops, guarded;

	begin(h, "100");
	snprintf(focus, sizeof(focus), "/SyncObject/Mutex/0x%lx", (unsigned long)address(h, 20));
	calls = mdl_insert(h, "calls", focus);
	ops = mdl_insert(h, "sync_ops", focus);
	guarded = mdl_insert(h, "sync_ops", focus, "/Code/mdl_mutexes/lock_all");
	mdl_ask(h, "go 50");
	assert_int_equal(mdl_value(h, calls), locks(20, 50));
	assert_int_equal(mdl_value(h, ops), locks(20, 50));
	assert_int_equal(mdl_value(h, guarded), locks(20, 50));
	mdl_end(h);
}

/* The flag's vector: what is measured goes to the place that the flag names. */
static void test_waits(void **state)
{
	struct harness *h = *state;
	char focus[60];
	unsigned one, function, each;
	json_t *rows, *first;
	int64_t waited;

	begin(h, "100");
	snprintf(focus, sizeof(focus), "/SyncObject/Mutex/0x%lx", (unsigned long)address(h, 3));
	one = mdl_insert(h, "sync_wait", focus);
	function = mdl_insert(h, "sync_wait", focus, "/Code/mdl_mutexes/waiter");
	each = mdl_insert(h, "sync_wait", "/SyncObject/Mutex/*");
	waited = mdl_number(mdl_ask(h, "wait 10 30"), "waited");
	assert_true(waited > 200000000);
	mdl_near("sync_wait in waiter", mdl_value(h, function), waited, 5, 0);
	mdl_near("sync_wait", mdl_value(h, one), waited, 5, 5000000);
	rows = mdl_rows(h, each);
	first = json_array_get(json_object_get(json_array_get(rows, 0), "elements"), 0);
	assert_int_equal((uint64_t)key_of(first), address(h, 3));
	mdl_near("the first of all", json_integer_value(json_object_get(first, "value")), waited, 5,
		 5000000);
	json_decref(rows);
	mdl_end(h);
}

/* fear E5: one that waits until a certain time jumps to what waits */
static void test_timed(void **state)
{
	struct harness *h = *state;
	unsigned locks;
	int64_t waited;

	begin(h, "100");
	locks = mdl_insert(h, "lock_wait", "/Code/mdl_mutexes/waiter");
	waited = mdl_number(mdl_ask(h, "wait 10 20"), "waited");
	mdl_near("lock_wait", mdl_value(h, locks), waited, 5, 5000000);
	waited += mdl_number(mdl_ask(h, "timed 10 20"), "waited");
	mdl_near("lock_wait of timed locks", mdl_value(h, locks), waited, 5, 5000000);
	mdl_end(h);
}

static void test_held(void **state)
{
	struct harness *h = *state;
	char focus[60];
	unsigned all, one;

	begin(h, "100");
	mdl_ask(h, "hold 5");
	all = mdl_insert(h, "locks_held");
	snprintf(focus, sizeof(focus), "/SyncObject/Mutex/0x%lx", (unsigned long)address(h, 7));
	one = mdl_insert(h, "locks_held", focus);
	mdl_ask(h, "drop 5");
	/* less those that were locked when the request came */
	assert_int_equal(mdl_value(h, all), -5);
	assert_int_equal(mdl_value(h, one), 0);
	mdl_ask(h, "hold 60");
	assert_int_equal(mdl_value(h, all), 55);
	assert_int_equal(mdl_value(h, one), 1);
	mdl_ask(h, "drop 60");
	assert_int_equal(mdl_value(h, all), -5);
	assert_int_equal(mdl_value(h, one), 0);
	mdl_end(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_vector, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_one, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_waits, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_timed, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_held, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
