/* SPDX-License-Identifier: MIT */
/*
 * values_joined.c - who asks for what is there already, or beside it: values,
 * hits and keys are those since then, and of what this one has met.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/request.h"
#include "mutator/values.h"
#include "tests/live/harness_session.h"

/* Threads of the target, calls of each: of so many that each key is met, and of a few. */
enum { THREADS = 4, MANY = 20000, FEW = 2, KEYS = 64 };

static const char text[] =
	"list seen_in is procedure { items { \"observe\" }; }\n"
	"constraint keyed /SyncObject/Mutex/* is counter { foreach f in seen_in {\n"
	"	append preInsn f.entry (* keyed = ($arg[1] == $constraint[0]); *)\n"
	"	prepend preInsn f.return (* keyed = 0; *) } }\n"
	"constraint valued /SyncObject/Value/* is counter { foreach f in seen_in {\n"
	"	append preInsn f.entry (* valued = ($arg[0] == $constraint[0]); *)\n"
	"	prepend preInsn f.return (* valued = 0; *) } }\n"
	"metric times { units calls; aggregateOperator sum; constraint keyed; constraint valued;\n"
	"	base is counter { foreach f in seen_in append preInsn f.entry (* times++; *) } }\n"
	"metric others { units calls; aggregateOperator sum; constraint valued;\n"
	"	base is counter { foreach f in seen_in append preInsn f.entry (* others++; *) } }\n"
	"metric least { units calls; aggregateOperator min; constraint keyed;\n"
	"	base is counter { foreach f in seen_in append preInsn f.entry (* least++; *) } }\n"
	"metric mean { units calls; aggregateOperator avg; constraint keyed;\n"
	"	base is counter { foreach f in seen_in append preInsn f.entry (* mean++; *) } }\n"
	"metric fewest { units calls; aggregateOperator max; constraint keyed;\n"
	"	base is counter { foreach f in seen_in append preInsn f.entry (* fewest--; *) } }\n";

static void feed(struct harness *h, unsigned count)
{
	char command[32];

	snprintf(command, sizeof(command), "feed %u\n", count);
	harness_send(h, command);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
}

static struct session *begin(struct harness *h)
{
	struct dinst_error e = {0};
	struct session *s;

	harness_start(h, "values", NULL);
	s = session_begin(h);
	if (session_load_mdl(s, "joined.mdl", text, strlen(text), &e) < 0)
		fail_msg("%s", e.text);
	return s;
}

static void end(struct harness *h, struct session *s)
{
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

static struct instance *insert(struct session *s, const char *metric, const char *focus)
{
	return (struct instance *)session_insert_metric(s, metric, focus, NULL);
}

static json_t *row_of(struct instance *i)
{
	struct dinst_error e = {0};
	json_t *row;

	if (values_row(i, true, &row, &e) < 0)
		fail_msg("%s", e.text);
	return row;
}

static int64_t told(struct instance *i, const char *what)
{
	json_t *row = row_of(i);
	int64_t value = json_integer_value(json_object_get(row, what));

	assert_non_null(json_object_get(row, what));
	json_decref(row);
	return value;
}

/* ------------------------------------------------------------------ hits */

static void test_hits(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	struct instance *first = insert(s, "times", "/Code"), *second;
	const int64_t many = (int64_t)THREADS * MANY, few = (int64_t)THREADS * FEW;

	feed(h, MANY);
	second = insert(s, "times", "/Code");
	assert_ptr_equal(instance_source(second), first);
	assert_int_equal(told(second, "hits"), 0);
	feed(h, FEW);
	assert_int_equal(told(second, "value"), few);
	assert_int_equal(told(second, "hits"), few);
	assert_int_equal(told(first, "hits"), many + few);
	/* Whoever was there first may go. */
	session_remove(s, first->id);
	feed(h, FEW);
	assert_int_equal(told(second, "hits"), 2 * few);
	end(h, s);
}

/* ------------------------------------------------------------------ keys */

/* How many keys it has; *least and *sum are those of their values. */
static size_t elements_of(struct instance *i, int64_t *least, int64_t *sum)
{
	json_t *row = row_of(i), *elements = json_object_get(row, "elements"), *element;
	const size_t count = json_array_size(elements);
	size_t n;

	*least = INT64_MAX;
	*sum = 0;
	json_array_foreach(elements, n, element)
	{
		const int64_t value = json_integer_value(json_object_get(element, "value"));

		*least = value < *least ? value : *least;
		*sum += value;
	}
	json_decref(row);
	return count;
}

/* It has met a few keys, each of its elements. */
static void expect_few(struct instance *least, struct instance *mean)
{
	int64_t smallest, sum;
	size_t count = elements_of(least, &smallest, &sum);

	assert_in_range(count, 1, (uintmax_t)THREADS * FEW);
	assert_true(smallest > 0);
	assert_int_equal(sum, THREADS * FEW);
	assert_int_equal(told(least, "value"), smallest);
	assert_int_equal(elements_of(mean, &smallest, &sum), count);
	assert_int_equal(told(mean, "value"), sum / (int64_t)count);
}

/* The smallest and the mean are those of the keys that it has met, not of those that others had met before. */
static void test_keys(void **state)
{
	const char *focus = "/SyncObject/Mutex/*";
	struct harness *h = *state;
	struct session *s = begin(h);
	struct instance *first = insert(s, "times", focus), *least, *mean;
	int64_t smallest, sum;

	feed(h, MANY);
	assert_int_equal(elements_of(first, &smallest, &sum), KEYS);
	least = insert(s, "least", focus);
	mean = insert(s, "mean", focus);
	feed(h, FEW);
	expect_few(least, mean);
	feed(h, MANY);
	assert_int_equal(elements_of(least, &smallest, &sum), KEYS);
	/* The same for one more of each, as for one of something else that comes behind them. */
	least = insert(s, "least", focus);
	mean = insert(s, "mean", focus);
	feed(h, FEW);
	expect_few(least, mean);
	end(h, s);
}

/* The largest is likewise: where all are below 0, a key that others have met is not the largest of them. */
static void test_largest(void **state)
{
	const char *focus = "/SyncObject/Mutex/*";
	struct harness *h = *state;
	struct session *s = begin(h);
	struct instance *first = insert(s, "times", focus), *fewest;
	json_t *row, *elements;
	int64_t least, sum, largest;

	feed(h, MANY);
	assert_int_equal(elements_of(first, &least, &sum), KEYS);
	fewest = insert(s, "fewest", focus);
	feed(h, FEW);
	row = row_of(fewest);
	elements = json_object_get(row, "elements");
	assert_in_range(json_array_size(elements), 1, (uintmax_t)THREADS * FEW);
	/* the largest comes first */
	largest = json_integer_value(json_object_get(json_array_get(elements, 0), "value"));
	assert_true(largest < 0);
	assert_int_equal(json_integer_value(json_object_get(row, "value")), largest);
	json_decref(row);
	end(h, s);
}

/* ------------------------------------------------------------------ full */

/* Keys that had no place before it came were none of its own. */
static void test_full(void **state)
{
	const char *focus = "/SyncObject/Value/*";
	struct harness *h = *state;
	struct session *s = begin(h);
	struct instance *first = insert(s, "times", focus), *same, *beside;
	int64_t full;

	feed(h, MANY);
	full = told(first, "full");
	assert_true(full > 0);
	same = insert(s, "times", focus);
	beside = insert(s, "others", focus);
	assert_ptr_equal(instance_source(same), first);
	assert_int_equal(told(same, "full"), 0);
	assert_int_equal(told(beside, "full"), 0);
	feed(h, MANY);
	assert_true(told(first, "full") > full);
	assert_int_equal(told(same, "full"), told(first, "full") - full);
	assert_int_equal(told(beside, "full"), told(first, "full") - full);
	end(h, s);
}

/* ---------------------------------------------------------------- points */

static int try_insert(struct session *s, const char *const *words, size_t count)
{
	struct insert_result result = {0};
	struct dinst_error e = {0};
	int status = request_insert(s, "calls", words, count, NULL, &result, &e);

	free(result.instances);
	return status;
}

/* What is refused alone is so too when it is there already, without a point, as one of many. */
static void test_no_point(void **state)
{
	/* The second is what a resolver chooses by. */
	static const char *const words[] = {"/Code/values/observe", "/Code/libc.so.6/memset"};
	struct harness *h = *state;
	struct session *s = begin(h);

	assert_int_equal(try_insert(s, words + 1, 1), DINST_REFUSED);
	assert_true(try_insert(s, words, 2) >= 0);
	assert_int_equal(try_insert(s, words + 1, 1), DINST_REFUSED);
	end(h, s);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {CASE(test_hits), CASE(test_keys), CASE(test_largest),
					   CASE(test_full), CASE(test_no_point)};

	return cmocka_run_group_tests_name("live/values_joined", tests, NULL, NULL);
}
