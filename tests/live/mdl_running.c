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

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* Of processes that have one memory (CLONE_VM, as a child of vfork has) what runs is measured once. */
static void test_same_memory(void **state)
{
	struct harness *h = *state;
	struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000l};
	int64_t begun, value;
	unsigned id;

	harness_start(h, "mdl_threads", NULL);
	mdl_attach(h, NULL);
	id = mdl_insert(h, "wall_inclusive", "/Code/mdl_threads/work_3");
	begun = now_ns();
	assert_string_equal(mdl_ask(h, "hold"), "held");
	assert_string_equal(mdl_ask(h, "share"), "done");
	nanosleep(&pause, NULL);
	value = mdl_value(h, id);
	if (value < PAUSE_MS * 1000000ll || value > now_ns() - begun)
		fail_msg("%ld ns of %ld", (long)value, (long)(now_ns() - begun));
	mdl_ask(h, "free 0");
	assert_string_equal(mdl_ask(h, "alone"), "done");
	mdl_end(h);
}

static bool is_off(struct harness *h, unsigned id)
{
	json_t *rows = mdl_rows(h, id);
	const bool off = json_is_true(json_object_get(json_array_get(rows, 0), "stopped"));

	json_decref(rows);
	return off;
}

/* The sum of a vector's elements must be the same, too. */
static int64_t sum_of(struct harness *h, unsigned id)
{
	json_t *rows = mdl_rows(h, id), *element;
	const json_t *row = json_array_get(rows, 0);
	int64_t sum = 0;
	size_t n;

	json_array_foreach(json_object_get(row, "elements"), n, element) sum +=
		json_integer_value(json_object_get(element, "value"));
	if (n)
		assert_int_equal(sum, json_integer_value(json_object_get(row, "value")));
	else
		sum = json_integer_value(json_object_get(row, "value"));
	json_decref(rows);
	return sum;
}

/* fear K3: what is above its limit is switched off within an activation: that measures nothing from then on. */
static void test_limit(void **state)
{
	struct harness *h = *state;
	static const char focus[] = "/Code/mdl_threads/work_3";
	struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000l};
	int64_t value[2];
	unsigned id[2];

	harness_start(h, "mdl_threads", NULL);
	mdl_attach(h, NULL);
	id[0] = mdl_insert(h, "wall_inclusive", focus, "--limit", "0.0000001");
	id[1] = mdl_insert(h, "wall_inclusive", focus, "/Process/*", "--limit", "0.0000001");
	mdl_ask(h, "hold");
	for (int n = 0; n < 400 && !(is_off(h, id[0]) && is_off(h, id[1])); n++)
		nanosleep(&pause, NULL);
	for (int k = 0; k < 2; k++) {
		assert_true(is_off(h, id[k]));
		value[k] = sum_of(h, id[k]);
		assert_true(value[k] > 0);
	}
	nanosleep(&pause, NULL);
	for (int k = 0; k < 2; k++)
		assert_int_equal(sum_of(h, id[k]), value[k]);
	mdl_ask(h, "free 0");
	for (int k = 0; k < 2; k++)
		assert_int_equal(sum_of(h, id[k]), value[k]);
	mdl_end(h);
}

/* Hits beside a thread timer, which all threads count at once on whatever processor they are: each of them once. */
static void test_hits(void **state)
{
	enum { ROUNDS = 2000, LEAVES = THREADS * (THREADS + 1) / 2 };
	struct harness *h = *state;
	json_t *rows = NULL;
	unsigned id;

	harness_start(h, "mdl_threads", NULL);
	mdl_attach(h, NULL);
	id = mdl_insert(h, "cpu_inclusive", "/Code/mdl_threads/leaf", "--cost");
	assert_string_equal(mdl_ask(h, "go %d", ROUNDS), "done");
	assert_int_equal(harness_dinst(h, &rows, "read", "-v", harness_number(id), "-p",
				       harness_number(h->pid)),
			 0);
	/* Its entry and its exit. */
	assert_int_equal(harness_integer(rows, "hits"), 2 * ROUNDS * LEAVES);
	json_decref(rows);
	mdl_end(h);
}

/*
 * fear K3: what was switched off is asked for again: who entered in between, which nobody saw, is in there,
 * and who has left is not.
 */
static void test_again(void **state)
{
	struct harness *h = *state;
	static const char focus[] = "/Code/mdl_threads/work_3";
	struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000l};
	unsigned first, second;

	harness_start(h, "mdl_threads", NULL);
	mdl_attach(h, NULL);
	first = mdl_insert(h, "wall_inclusive", focus, "--limit", "0.0000001");
	mdl_ask(h, "hold");
	mdl_ask(h, "free 0");
	for (int n = 0; n < 400 && !is_off(h, first); n++)
		nanosleep(&pause, NULL);
	assert_true(is_off(h, first));
	mdl_ask(h, "hold");
	second = mdl_insert(h, "wall_inclusive", focus);
	nanosleep(&pause, NULL);
	assert_true(mdl_value(h, second) >= PAUSE_MS * 1000000ll);
	mdl_ask(h, "free 0");
	mdl_end(h);
}

/*
 * Who asks for what is measured already has nothing of before; nor less than nothing where that ends with its
 * thread, nor does what comes then make up for that first.
 */
static void test_ends(void **state)
{
	static const char focus[] = "/Code/mdl_threads/work_3";
	struct harness *h = *state;
	struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000l};
	unsigned ids[2], first;
	int64_t value;

	harness_start(h, "mdl_threads", NULL);
	mdl_attach(h, NULL);
	first = mdl_insert(h, "wall_inclusive", focus);
	mdl_insert(h, "wall_inclusive", focus, "/Process/*");
	assert_string_equal(mdl_ask(h, "visit"), "done");
	nanosleep(&pause, NULL);
	ids[0] = mdl_insert(h, "wall_inclusive", focus);
	ids[1] = mdl_insert(h, "wall_inclusive", focus, "/Process/*");
	for (int k = 0; k < 2; k++)
		assert_true(sum_of(h, ids[k]) >= 0);
	assert_string_equal(mdl_ask(h, "leave"), "done");
	for (int k = 0; k < 2; k++)
		assert_true(sum_of(h, ids[k]) >= 0);
	value = mdl_value(h, first);
	assert_string_equal(mdl_ask(h, "go 100"), "done");
	value = mdl_value(h, first) - value;
	assert_true(value > 0);
	assert_int_equal(mdl_value(h, ids[0]), value);
	mdl_end(h);
}

/* What the element of `key` is worth; 0: there is none. */
static int64_t part_of(struct harness *h, unsigned id, long key)
{
	json_t *rows = mdl_rows(h, id), *element;
	int64_t value = 0;
	size_t n;

	json_array_foreach(json_object_get(json_array_get(rows, 0), "elements"), n,
			   element) if (atol(json_string_value(json_object_get(element, "key"))) ==
					key) value =
		json_integer_value(json_object_get(element, "value"));
	json_decref(rows);
	return value;
}

/* The elements are together what is measured without telling them apart, which is read before and after. */
static void expect_whole(struct harness *h, const char *what, unsigned whole, unsigned vector)
{
	const int64_t before = mdl_value(h, whole), sum = sum_of(h, vector),
		      after = mdl_value(h, whole);

	/* Their clocks are read one after the other. */
	if (sum < before - 1000000 || sum > after + 1000000)
		fail_msg("%s: %ld ns, of %ld to %ld", what, (long)sum, (long)before, (long)after);
}

/* A scalar, vectors of threads and of processes, and the scalar once more, inserted one after the other. */
struct later {
	unsigned first, threads, processes, last;
};

static struct later insert_later(struct harness *h, const char *focus)
{
	struct later l;

	l.first = mdl_insert(h, "wall_inclusive", focus);
	l.threads = mdl_insert(h, "wall_inclusive", focus, "/Process/*");
	l.processes = mdl_insert(h, "wall_inclusive", focus, "/Machine/*");
	l.last = mdl_insert(h, "wall_inclusive", focus);
	return l;
}

/* What was inserted in between has measured for less time than the first, and for more than the last. */
static void expect_later(struct harness *h, const char *what, const struct later *l)
{
	const unsigned vectors[] = {l->threads, l->processes};

	for (int k = 0; k < 2; k++) {
		const int64_t least = mdl_value(h, l->last), sum = sum_of(h, vectors[k]),
			      most = mdl_value(h, l->first);

		if (sum < least - 1000000 || sum > most + 1000000)
			fail_msg("%s, vector %d: %ld ns, of %ld to %ld", what, k, (long)sum,
				 (long)least, (long)most);
	}
}

static const char *process_of(long pid)
{
	static char text[40];

	snprintf(text, sizeof(text), "/Machine/%ld", pid);
	return text;
}

/*
 * Of one process or thread nothing counts that a child inherited, nor of a child what its parent
 * does: the same as the vector's element, which is read before and after.
 */
static void expect_alone(struct harness *h, const char *what, unsigned one, unsigned vector,
			 long key)
{
	const int64_t before = part_of(h, vector, key), value = mdl_value(h, one),
		      after = part_of(h, vector, key);

	if (value < before - 1000000 || value > after + 1000000)
		fail_msg("%s: %ld ns, of %ld to %ld", what, (long)value, (long)before, (long)after);
}

/*
 * fear G1: a thread forks within a function, and both stay there: what runs by now is told for each process and
 * each thread, also of those that have not stopped anything yet; what is inserted then has nothing of before.
 */
static void test_forked(void **state)
{
	static const char focus[] = "/Code/mdl_threads/work_3";
	struct harness *h = *state;
	struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000l};
	unsigned whole, threads, processes, one;
	struct later later;
	const char *line;
	long child;

	harness_start(h, "mdl_threads", NULL);
	mdl_attach(h, NULL);
	whole = mdl_insert(h, "wall_inclusive", focus);
	threads = mdl_insert(h, "wall_inclusive", focus, "/Process/*");
	processes = mdl_insert(h, "wall_inclusive", focus, "/Machine/*");
	one = mdl_insert(h, "wall_inclusive", focus, process_of(h->pid));
	/* With its first event the child measures for itself. */
	mdl_insert(h, "wall_inclusive", "/Code/mdl_threads/leaf");
	line = mdl_ask(h, "fork");
	assert_int_equal(sscanf(line, "child %ld", &child), 1);
	nanosleep(&pause, NULL);
	expect_whole(h, "threads", whole, threads);
	expect_whole(h, "processes", whole, processes);
	expect_alone(h, "the process", one, processes, h->pid);
	assert_true(part_of(h, threads, child) >= PAUSE_MS * 1000000ll);
	assert_true(part_of(h, processes, child) >= PAUSE_MS * 1000000ll);
	assert_true(part_of(h, processes, h->pid) >= PAUSE_MS * 1000000ll);
	later = insert_later(h, focus);
	expect_later(h, "inserted later", &later);
	assert_string_equal(mdl_ask(h, "join"), "done");
	expect_later(h, "inserted later, in the end", &later);
	expect_whole(h, "threads in the end", whole, threads);
	expect_whole(h, "processes in the end", whole, processes);
	expect_alone(h, "the process in the end", one, processes, h->pid);
	mdl_end(h);
}

/*
 * fear K3: what is above its limit is switched off while a forked child runs what it inherited: what that had
 * measured by then stays in the value, and nothing is added when it stops.
 */
static void test_forked_limit(void **state)
{
	static const char *const of[] = {"/Process/*", "/Machine/*"};
	static const char focus[] = "/Code/mdl_threads/work_3";
	struct harness *h = *state;
	struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000l};
	int64_t value[2] = {0}, part[2] = {0};
	unsigned id[2];
	long child;

	harness_start(h, "mdl_threads", NULL);
	mdl_attach(h, NULL);
	for (int k = 0; k < 2; k++)
		id[k] = mdl_insert(h, "wall_inclusive", focus, of[k], "--limit", "0.01");
	mdl_insert(h, "wall_inclusive", "/Code/mdl_threads/leaf");
	assert_int_equal(sscanf(mdl_ask(h, "fork"), "child %ld", &child), 1);
	nanosleep(&pause, NULL);
	for (int k = 0; k < 2; k++) {
		assert_false(is_off(h, id[k]));
		value[k] = sum_of(h, id[k]);
		part[k] = part_of(h, id[k], child);
	}
	for (int n = 0; n < 400 && !(is_off(h, id[0]) && is_off(h, id[1])); n++)
		assert_string_equal(mdl_ask(h, "go 20000"), "done");
	for (int k = 0; k < 2; k++) {
		assert_true(is_off(h, id[k]));
		assert_true(part[k] >= PAUSE_MS * 1000000ll);
		assert_true(sum_of(h, id[k]) >= value[k]);
		assert_true(part_of(h, id[k], child) >= part[k]);
		value[k] = sum_of(h, id[k]);
	}
	assert_string_equal(mdl_ask(h, "join"), "done");
	for (int k = 0; k < 2; k++)
		assert_int_equal(sum_of(h, id[k]), value[k]);
	mdl_end(h);
}

enum { IN_PROCESS, IN_THREAD, THREAD_OF_PROCESSES, PROCESS_OF_THREADS, ONES };

/* Whom it lets begin is not what it asks at the end. */
static const char everybody[] =
	"metric everybody { units ns; aggregateOperator sum; style EventCounter;\n"
	"constraint ofFunction /Code/*/* is replace wallTimer {\n"
	"append preInsn $constraint[0].entry unconstrained (* startWallTimer(everybody); *)\n"
	"prepend preInsn $constraint[0].return (* stopWallTimer(everybody); *) }\n"
	"constraint process; base is wallTimer { } }\n";

/*
 * fear G1: of one thread or one process nothing counts that a forked child inherits of its timers and never
 * stops; of the child its own time counts and nothing else; where anybody begins, all do.
 */
static void test_forked_of_one(void **state)
{
	static const char focus[] = "/Code/mdl_threads/work_3";
	struct harness *h = *state;
	struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000l};
	unsigned threads, processes, ids[ONES], of_child, active, all;
	const char *names;
	char thread[40];
	int64_t value;
	long tid = 0, child;

	harness_start(h, "mdl_threads", NULL);
	mdl_attach(h, everybody);
	names = mdl_ask(h, "names");
	for (int k = 0; k <= NTH; k++)
		tid = strtol(names, (char **)&names, 10);
	snprintf(thread, sizeof(thread), "/Process/%ld", tid);
	threads = mdl_insert(h, "wall_inclusive", focus, "/Process/*");
	processes = mdl_insert(h, "wall_inclusive", focus, "/Machine/*");
	ids[IN_PROCESS] = mdl_insert(h, "wall_inclusive", focus, process_of(h->pid));
	ids[IN_THREAD] = mdl_insert(h, "wall_inclusive", focus, thread);
	ids[THREAD_OF_PROCESSES] = mdl_insert(h, "wall_inclusive", focus, thread, "/Machine/*");
	ids[PROCESS_OF_THREADS] =
		mdl_insert(h, "wall_inclusive", focus, process_of(h->pid), "/Process/*");
	all = mdl_insert(h, "everybody", focus, process_of(h->pid));
	active = mdl_insert(h, "active", focus, process_of(h->pid));
	mdl_insert(h, "wall_inclusive", "/Code/mdl_threads/leaf");
	assert_string_equal(mdl_ask(h, "hold"), "held");
	assert_int_equal(sscanf(mdl_ask(h, "split"), "child %ld", &child), 1);
	of_child = mdl_insert(h, "wall_inclusive", focus, process_of(child));
	nanosleep(&pause, NULL);
	for (int k = 0; k < ONES; k++)
		expect_alone(h, "one of a process or a thread", ids[k], threads, tid);
	expect_alone(h, "the process", ids[IN_PROCESS], processes, h->pid);
	expect_whole(h, "where anybody begins", all, threads);
	assert_int_equal(part_of(h, ids[THREAD_OF_PROCESSES], child), 0);
	assert_int_equal(part_of(h, ids[PROCESS_OF_THREADS], child), 0);
	value = mdl_value(h, of_child);
	assert_true(value >= PAUSE_MS * 1000000ll);
	assert_true(value <= part_of(h, processes, child) + 1000000);
	assert_int_equal(mdl_value(h, active), 1);
	assert_string_equal(mdl_ask(h, "free 0"), "done");
	assert_int_equal(mdl_value(h, active), 0);
	assert_string_equal(mdl_ask(h, "meet"), "done");
	for (int k = 0; k < ONES; k++)
		expect_alone(h, "in the end", ids[k], threads, tid);
	mdl_end(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_running, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_same_memory, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_limit, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_hits, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_again, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_forked, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_forked_limit, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_forked_of_one, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_ends, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
