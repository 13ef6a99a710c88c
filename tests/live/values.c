/* SPDX-License-Identifier: MIT */
/*
 * values.c - what users see of values, against a program whose every call is
 * known: distributions bucket by bucket, vectors key by key, timers while they
 * run, and all of it after the target was killed; with shared and with private
 * arenas. By the core; the command line is in values_commands.c.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mutator/values.h"
#include "mutator/variable.h"
#include "tests/live/harness_session.h"

enum { THREADS = 4, CALLS = 20000, KEYS = 64 };

static const char text[] =
	"list seen_in is procedure { items { \"observe\" }; }\n"
	"list stays_in is procedure { items { \"resident\" }; }\n"
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
	"		append preInsn f.entry constrained (* added += $arg[0]; *) } }\n"
	"metric most { name \"most\"; units bytes; aggregateOperator max; style EventCounter;\n"
	"	constraint keyed;\n"
	"	base is counter { foreach f in seen_in\n"
	"		append preInsn f.entry constrained (* most += $arg[0]; *) } }\n"
	"metric stay { name \"stay\"; units ns; unitsType normalized; aggregateOperator sum;\n"
	"	style EventCounter;\n"
	"	base is wallTimer { foreach f in stays_in {\n"
	"		append preInsn f.entry (* startWallTimer(stay); *)\n"
	"		prepend preInsn f.return (* stopWallTimer(stay); *) } } }\n"
	"metric aside { name \"aside\"; units calls; aggregateOperator sum; style EventCounter;\n"
	"	counter scratch;\n"
	"	base is counter { foreach f in seen_in\n"
	"		append preInsn f.entry (* scratch++; *) } }\n"
	"metric times { name \"times\"; units calls; aggregateOperator sum; style EventCounter;\n"
	"	base is counter { foreach f in seen_in\n"
	"		append preInsn f.entry (* times++; *) } }\n";

/* What the target calls observe() with: each value and its key, of all threads. */
struct call {
	uint64_t value, key;
};

static size_t calls_of(unsigned long count, struct call *calls)
{
	size_t n = 0;

	for (unsigned thread = 0; thread < THREADS; thread++) {
		uint64_t x = thread + 1;

		for (unsigned long i = 0; i < count; i++) {
			x = x * 6364136223846793005u + 1442695040888963407u;
			calls[n++] = (struct call){x >> 33 >> (x >> 5 & 31), (x >> 40 & 63) * 64};
		}
	}
	return n;
}

static int by_value(const void *a, const void *b)
{
	const struct call *x = a, *y = b;

	return (x->value > y->value) - (x->value < y->value);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void tell(struct harness *h, const char *command)
{
	harness_send(h, command);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
}

static void feed(struct harness *h)
{
	char command[32];

	snprintf(command, sizeof(command), "feed %d\n", CALLS);
	tell(h, command);
}

/* ---------------------------------------------------------------- sessions */

static struct session *begin(struct harness *h, bool private)
{
	struct dinst_error e = {0};
	struct session *s;

	harness_start(h, "values", NULL);
	s = session_begin(h);
	s->private_arenas = private;
	if (session_load_mdl(s, "values.mdl", text, strlen(text), &e) < 0)
		fail_msg("%s", e.text);
	return s;
}

static struct instance *insert(struct session *s, const char *metric, const char *focus)
{
	struct insert_result result;
	struct dinst_error e = {0};
	struct instance *i;
	const char *second = focus ? strstr(focus, " /") : NULL;
	char first[160];
	const char *words[2] = {focus, second ? second + 1 : NULL};
	int status = DINST_BUSY;

	if (second) {
		snprintf(first, sizeof(first), "%.*s", (int)(second - focus), focus);
		words[0] = first;
	}
	for (unsigned tries = 0; status == DINST_BUSY && tries < 50; tries++) {
		dinst_error_clear(&e);
		status = request_insert(s, metric, words,
					!focus	 ? 0
					: second ? 2
						 : 1,
					NULL, &result, &e);
		if (status == DINST_BUSY)
			usleep(20000);
	}
	if (status < 0)
		fail_msg("%s %s: %s", metric, focus ? focus : "", e.text);
	assert_int_equal(result.count, 1);
	i = result.instances[0];
	free(result.instances);
	return i;
}

static json_t *row_of(struct instance *i)
{
	struct dinst_error e = {0};
	json_t *row = NULL;

	if (values_row(i, true, &row, &e) < 0)
		fail_msg("%s", e.text);
	return row;
}

static int64_t member(json_t *row, const char *key)
{
	json_t *value = json_object_get(row, key);

	if (!json_is_integer(value))
		fail_msg("%s is no integer", key);
	return json_integer_value(value);
}

/* The target ends at once, and is reaped: nothing of it is left to ask. */
static void kill_target(struct harness *h)
{
	kill(h->pid, SIGKILL);
	assert_int_equal(harness_wait(h, HARNESS_ANSWER_MS), SIGKILL);
}

/* ------------------------------------------------------------ distributions */

/* Each bucket has just the values that belong there; quantiles are in the bucket of the true ones. */
static void expect_distribution(json_t *row, const struct call *calls, size_t count)
{
	static const struct {
		const char *key;
		double at;
	} quantiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}};
	json_t *buckets = json_object_get(row, "buckets"), *bucket;
	uint64_t sum = 0;
	size_t index, n = 0;

	for (size_t i = 0; i < count; i++)
		sum += calls[i].value;
	assert_int_equal(member(row, "value"), count);
	assert_int_equal(member(row, "count"), count);
	assert_int_equal(member(row, "sum"), sum);
	assert_int_equal(member(row, "min"), calls[0].value);
	assert_int_equal(member(row, "max"), calls[count - 1].value);
	json_array_foreach(buckets, index, bucket)
	{
		const json_int_t lo = json_integer_value(json_array_get(bucket, 0));
		const json_int_t hi = json_integer_value(json_array_get(bucket, 1));
		json_int_t in = json_integer_value(json_array_get(bucket, 2));

		assert_true(lo < hi && in > 0);
		assert_true(lo < 64 ? hi == lo + 1 : (hi - lo) * 32 <= lo);
		for (; in; in--, n++)
			assert_true(n < count && (json_int_t)calls[n].value >= lo &&
				    (json_int_t)calls[n].value < hi);
	}
	assert_int_equal(n, count);
	for (size_t q = 0; q < sizeof(quantiles) / sizeof(quantiles[0]); q++) {
		const int64_t exact =
			(int64_t)calls[(size_t)(quantiles[q].at * (double)count + 0.999) - 1].value;
		const int64_t got = member(row, quantiles[q].key);

		assert_true(llabs(got - exact) * 32 <= exact);
	}
}

static void distributions(struct harness *h, bool private)
{
	struct call *calls = calloc(THREADS * CALLS, sizeof(*calls));
	const size_t count = calls_of(CALLS, calls);
	struct session *s = begin(h, private);
	struct instance *i = insert(s, "seen", NULL);
	json_t *row = row_of(i);

	assert_int_equal(member(row, "count"), 0);
	assert_int_equal(member(row, "max"), 0);
	json_decref(row);
	qsort(calls, count, sizeof(*calls), by_value);
	feed(h);
	row = row_of(i);
	expect_distribution(row, calls, count);
	json_decref(row);
	/* Last values. */
	kill_target(h);
	for (unsigned n = 0; n < 2; n++) {
		row = row_of(i);
		expect_distribution(row, calls, count);
		json_decref(row);
	}
	session_free(s);
	free(calls);
}

static void test_distributions(void **state)
{
	distributions(*state, false);
}

static void test_distributions_private(void **state)
{
	distributions(*state, true);
}

/* Where the counters of an arena are all in use, the next one has them. */
static void test_full_arena(void **state)
{
	struct harness *h = *state;
	struct call *calls = calloc(THREADS * CALLS, sizeof(*calls));
	const size_t count = calls_of(CALLS, calls);
	struct session *s = begin(h, false);
	struct dinst_error ignored = {0};
	struct instance *i;
	taddr_t row;
	json_t *json;

	insert(s, "calls", "/Code/values/resident");
	assert_non_null(s->places);
	assert_null(s->places->next);
	for (size_t size = (size_t)1 << 20; size >= 1000; size /= 2)
		while (heap_alloc_counters(s->places->heap, size, &row, &ignored) == 0)
			;
	i = insert(s, "seen", NULL);
	assert_non_null(s->places->next);
	feed(h);
	qsort(calls, count, sizeof(*calls), by_value);
	json = row_of(i);
	expect_distribution(json, calls, count);
	json_decref(json);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
	free(calls);
}

/* ----------------------------------------------------------------- vectors */

/* Sums and numbers of calls by key, as the program made them. */
static void by_key(uint64_t *sums, uint64_t *numbers)
{
	struct call *calls = calloc(THREADS * CALLS, sizeof(*calls));
	const size_t count = calls_of(CALLS, calls);

	memset(sums, 0, KEYS * sizeof(*sums));
	memset(numbers, 0, KEYS * sizeof(*numbers));
	for (size_t i = 0; i < count; i++) {
		sums[calls[i].key / 64] += calls[i].value;
		numbers[calls[i].key / 64]++;
	}
	free(calls);
}

/* Every key once, largest first, each with its own value. */
static int64_t expect_elements(json_t *row, const uint64_t *expected)
{
	json_t *elements = json_object_get(row, "elements"), *element;
	bool seen[KEYS] = {false};
	int64_t last = INT64_MAX, sum = 0;
	size_t index;

	assert_int_equal(json_array_size(elements), KEYS);
	assert_int_equal(member(row, "full"), 0);
	json_array_foreach(elements, index, element)
	{
		const char *key = json_string_value(json_object_get(element, "key"));
		const unsigned long n = strtoul(key, NULL, 16) / 64;

		assert_int_equal(strncmp(key, "0x", 2), 0);
		assert_true(n < KEYS && !seen[n]);
		seen[n] = true;
		assert_int_equal(member(element, "value"), expected[n]);
		assert_true(member(element, "value") <= last);
		last = member(element, "value");
		sum += last;
	}
	return sum;
}

static void vectors(struct harness *h, bool private)
{
	struct call *calls = calloc(THREADS * CALLS, sizeof(*calls));
	const size_t count = calls_of(CALLS, calls);
	uint64_t sums[KEYS], numbers[KEYS], most = 0;
	struct session *s = begin(h, private);
	struct instance *added = insert(s, "added", "/SyncObject/Mutex/*");
	struct instance *largest = insert(s, "most", "/SyncObject/Mutex/*");
	struct instance *seen = insert(s, "seen", "/SyncObject/Mutex/*");
	json_t *row;

	by_key(sums, numbers);
	qsort(calls, count, sizeof(*calls), by_value);
	feed(h);
	for (unsigned round = 0; round < 2; round++) {
		row = row_of(added);
		assert_int_equal(expect_elements(row, sums), member(row, "value"));
		json_decref(row);
		row = row_of(largest);
		expect_elements(row, sums);
		for (unsigned k = 0; k < KEYS; k++)
			most = sums[k] > most ? sums[k] : most;
		assert_int_equal(member(row, "value"), most);
		json_decref(row);
		row = row_of(seen);
		expect_elements(row, numbers);
		assert_int_equal(member(row, "value"), THREADS * CALLS);
		assert_int_equal(member(row, "count"), THREADS * CALLS);
		/* All of them together, as of one that knows no keys. */
		expect_distribution(row, calls, count);
		json_decref(row);
		if (round == 0)
			kill_target(h);
	}
	session_free(s);
	free(calls);
}

static void test_vectors(void **state)
{
	vectors(*state, false);
}

static void test_vectors_private(void **state)
{
	vectors(*state, true);
}

/* What was not asked for is not shown: neither as an element nor as a lack of room. */
static void test_some_threads(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h, false);
	struct instance *i = insert(s, "calls", "/Code/values/observe /Process/worker-[12]");
	json_t *row, *element;
	size_t index;

	feed(h);
	row = row_of(i);
	assert_int_equal(member(row, "value"), 2 * CALLS);
	assert_int_equal(member(row, "full"), 0);
	assert_int_equal(json_array_size(json_object_get(row, "elements")), 2);
	json_array_foreach(json_object_get(row, "elements"), index, element)
	{
		assert_int_equal(member(element, "value"), CALLS);
		assert_int_equal(strncmp(json_string_value(json_object_get(element, "name")),
					 "worker-", 7),
				 0);
	}
	json_decref(row);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* ------------------------------------------------------------------ timers */

static int64_t value_of(struct instance *i)
{
	json_t *row = row_of(i);
	const int64_t value = member(row, "value");

	json_decref(row);
	return value;
}

/*
 * Read while four threads are inside: it never goes back, is never more than
 * the time since they were let in, and never less than since they were there.
 */
static void test_running_timer(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h, false);
	struct instance *i = insert(s, "stay", NULL);
	uint64_t before, inside, told, left;
	int64_t last = 0, value;

	assert_int_equal(value_of(i), 0);
	before = now_ns();
	tell(h, "enter\n");
	inside = now_ns();
	for (unsigned n = 0; n < 300; n++) {
		const uint64_t start = now_ns();

		value = value_of(i);
		assert_true(value >= last);
		assert_true(value <= (int64_t)(THREADS * (now_ns() - before)));
		assert_true(value >= (int64_t)(THREADS * (start - inside)) - 1000000);
		last = value;
		usleep(500);
	}
	told = now_ns();
	tell(h, "leave\n");
	left = now_ns();
	value = value_of(i);
	assert_true(value >= last);
	assert_true(value >= (int64_t)(THREADS * (told - inside)) - 1000000);
	assert_true(value <= (int64_t)(THREADS * (left - before)));
	/* Nobody is inside: it stands still. */
	usleep(20000);
	assert_int_equal(value_of(i), value);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* A timer that runs when the target is killed has run until it was read last. */
static void test_killed_timer(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h, false);
	struct instance *i = insert(s, "stay", NULL);
	uint64_t before = now_ns(), killed;
	int64_t value, last;

	tell(h, "enter\n");
	usleep(100000);
	last = value_of(i);
	assert_true(last >= (int64_t)THREADS * 100000000 - 1000000);
	kill_target(h);
	killed = now_ns();
	value = value_of(i);
	assert_true(value >= last);
	assert_true(value <= (int64_t)(THREADS * (killed - before)));
	usleep(50000);
	assert_int_equal(value_of(i), value);
	session_free(s);
}

/* A metric that counts only what is its own aside does not tell by its value how often its code ran. */
static void test_counted_aside(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h, false);
	struct instance *aside = insert(s, "aside", NULL), *times = insert(s, "times", NULL);
	uint64_t hits;

	feed(h);
	assert_int_equal(value_of(aside), 0);
	assert_int_equal(value_of(times), THREADS * CALLS);
	assert_true(instance_hits(times, &hits));
	assert_int_equal(hits, THREADS * CALLS);
	assert_false(instance_hits(aside, &hits));
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_distributions, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_distributions_private, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_full_arena, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_vectors, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_vectors_private, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_some_threads, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_running_timer, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_killed_timer, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_counted_aside, harness_setup,
						harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
