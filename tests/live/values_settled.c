/* SPDX-License-Identifier: MIT */
/*
 * values_settled.c - timers that stop while they are read: whatever was running is
 * in the value once, whether it stops between the reading of totals and the looks at what
 * runs or not. What reads totals goes through here, and makes the target stop them.
 */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mutator/request.h"
#include "mutator/values.h"
#include "tests/live/harness_session.h"

enum { THREADS = 4, ROUNDS = 6, STAY_US = 60000, READINGS = 20 };

/* The target whose timers stop at a reading of totals that comes, and whether they are started again. */
static struct harness *stops;
static bool goes_on;
static bool in_front;		/* of that reading, else behind it */
static unsigned ignored;	/* readings before it */
static struct harness *passing; /* one of its threads passes through the function at each of them */

static void tell(struct harness *h, const char *command)
{
	harness_send(h, command);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
}

static void stop_now(void)
{
	struct harness *h = stops;

	stops = NULL;
	tell(h, "leave\n");
	if (goes_on)
		tell(h, "enter\n");
}

static void totals_are_read(bool front)
{
	if (front != in_front)
		return;
	if (passing)
		tell(passing, "pass\n");
	if (stops && !ignored)
		stop_now();
	else if (stops)
		ignored--;
}

uint64_t __real_heap_read_counter(const struct heap *h, taddr_t counter);
uint64_t __wrap_heap_read_counter(const struct heap *h, taddr_t counter);
uint64_t __wrap_heap_read_counter(const struct heap *h, taddr_t counter)
{
	uint64_t value;

	totals_are_read(true);
	value = __real_heap_read_counter(h, counter);
	totals_are_read(false);
	return value;
}

void __real_heap_read_counters(const struct heap *h, taddr_t first, size_t count, uint64_t *values);
void __wrap_heap_read_counters(const struct heap *h, taddr_t first, size_t count, uint64_t *values);
void __wrap_heap_read_counters(const struct heap *h, taddr_t first, size_t count, uint64_t *values)
{
	totals_are_read(true);
	__real_heap_read_counters(h, first, count, values);
	totals_are_read(false);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* By number of the worker; [THREADS]: all together. */
struct times {
	int64_t ns[THREADS + 1];
};

static struct times read_times(struct instance *i)
{
	struct dinst_error e = {0};
	struct times times = {{0}};
	json_t *row, *element;
	int64_t sum = 0;
	size_t n;

	if (values_row(i, false, &row, &e) < 0)
		fail_msg("%s", e.text);
	times.ns[THREADS] = json_integer_value(json_object_get(row, "value"));
	json_array_foreach(json_object_get(row, "elements"), n, element)
	{
		const char *name = json_string_value(json_object_get(element, "name"));
		unsigned worker;

		assert_non_null(name);
		assert_int_equal(sscanf(name, "worker-%u", &worker), 1);
		assert_true(worker < THREADS);
		times.ns[worker] = json_integer_value(json_object_get(element, "value"));
		sum += times.ns[worker];
	}
	if (n)
		assert_int_equal(sum, times.ns[THREADS]);
	json_decref(row);
	return times;
}

/* None goes back, nor further than time did for those who may have been inside. */
static struct times expect_no_less(struct instance *i, const struct times *before, uint64_t since)
{
	const struct times now = read_times(i);

	for (unsigned k = 0; k <= THREADS; k++) {
		const int64_t most = (int64_t)(now_ns() - since) * (k < THREADS ? 1 : THREADS);

		if (now.ns[k] < before->ns[k] || now.ns[k] > most)
			fail_msg("of %u: %ld ns, before %ld, of %ld", k, (long)now.ns[k],
				 (long)before->ns[k], (long)most);
	}
	return now;
}

static struct instance *insert(struct session *s, const char *function, const char *of)
{
	const char *const words[] = {function, of};
	struct insert_result result;
	struct dinst_error e = {0};
	struct instance *i;
	int status = DINST_BUSY;

	for (unsigned tries = 0; status == DINST_BUSY && tries < 50; tries++) {
		dinst_error_clear(&e);
		status = request_insert(s, "wall_inclusive", words, of ? 2 : 1, NULL, &result, &e);
		if (status == DINST_BUSY)
			usleep(20000);
	}
	if (status < 0)
		fail_msg("%s: %s", function, e.text);
	assert_int_equal(result.count, 1);
	i = result.instances[0];
	free(result.instances);
	return i;
}

static void never_back(struct harness *h, const char *of)
{
	struct session *s;
	struct instance *i;
	struct times last;
	uint64_t begun;

	harness_start(h, "values", NULL);
	s = session_begin(h);
	i = insert(s, "/Code/values/resident", of);
	begun = now_ns();
	goes_on = in_front = false;
	stops = passing = NULL;
	/* Each thread has a place from its first stop on. */
	tell(h, "enter\n");
	tell(h, "leave\n");
	last = read_times(i);
	for (unsigned round = 0; round < ROUNDS; round++) {
		if (!goes_on)
			tell(h, "enter\n");
		usleep(STAY_US);
		last = expect_no_less(i, &last, begun);
		goes_on = round % 2 == 0;
		stops = h;
		last = expect_no_less(i, &last, begun);
		assert_null(stops);
		last = expect_no_less(i, &last, begun);
	}
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

static void test_vector(void **state)
{
	never_back(*state, "/Process/*");
}

static void test_scalar(void **state)
{
	never_back(*state, NULL);
}

/* Who asks while they run, and they stop in that moment, has nothing of what they measured before, for good. */
static void test_base(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct instance *first, *later;
	struct session *s;
	uint64_t begun;
	struct times now;

	harness_start(h, "values", NULL);
	s = session_begin(h);
	first = insert(s, "/Code/values/resident", "/Process/*");
	tell(h, "enter\n");
	tell(h, "leave\n");
	goes_on = in_front = false;
	stops = passing = NULL;
	tell(h, "enter\n");
	usleep(STAY_US);
	begun = now_ns();
	later = insert(s, "/Code/values/resident", "/Process/*");
	assert_ptr_equal(instance_source(later), first);
	stops = h;
	if (values_keep_running(later, &e) < 0)
		fail_msg("%s", e.text);
	assert_null(stops);
	now = read_times(later);
	for (unsigned k = 0; k < THREADS; k++)
		assert_in_range(now.ns[k], 0, now_ns() - begun);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* What the thread is worth that stays, or all of them where they are not told apart. */
static int64_t held(struct instance *i)
{
	struct dinst_error e = {0};
	json_t *row, *element;
	int64_t value;
	size_t n;

	if (values_row(i, false, &row, &e) < 0)
		fail_msg("%s", e.text);
	value = json_integer_value(json_object_get(row, "value"));
	json_array_foreach(json_object_get(row, "elements"), n, element)
	{
		const char *name = json_string_value(json_object_get(element, "name"));

		if (name && !strcmp(name, "holder"))
			value = json_integer_value(json_object_get(element, "value"));
	}
	json_decref(row);
	return value;
}

/*
 * Another one stops all the time, so that nothing is ever seen unchanged: what has run for long is in the
 * value once all the same, whichever reading of totals it stops at.
 */
static void beside_another(struct harness *h, const char *of)
{
	/* A vector's are read one by one. */
	const unsigned each = of ? 2 : 1;
	struct instance *i;
	struct session *s;
	int64_t last, now;

	harness_start(h, "settled", NULL);
	s = session_begin(h);
	i = insert(s, "/Code/settled/piece", of);
	goes_on = false;
	in_front = true;
	tell(h, "pass\n");
	tell(h, "enter\n");
	tell(h, "leave\n");
	last = held(i);
	for (unsigned reading = 0; reading < READINGS; reading++) {
		tell(h, "enter\n");
		usleep(STAY_US);
		stops = passing = h;
		ignored = reading * each;
		for (unsigned n = 0; n < 2; n++, last = now) {
			now = held(i);
			if (now < last)
				fail_msg("stopped at reading %u: %ld ns, before %ld", reading,
					 (long)now, (long)last);
		}
		/* There were no more of them. */
		if (stops)
			stop_now();
		passing = NULL;
	}
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

static void test_vector_beside_another(void **state)
{
	beside_another(*state, "/Process/*");
}

static void test_scalar_beside_another(void **state)
{
	beside_another(*state, NULL);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {CASE(test_vector), CASE(test_scalar), CASE(test_base),
					   CASE(test_vector_beside_another),
					   CASE(test_scalar_beside_another)};

	return cmocka_run_group_tests_name("live/values_settled", tests, NULL, NULL);
}
