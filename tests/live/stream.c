/* SPDX-License-Identifier: MIT */
/*
 * stream.c - events of running programs: each call of a known program leaves its
 * record or is counted as dropped, with the fields that it had, and each thread's
 * events come in their order.
 */
#include "tests/live/stream_help.h"

/* ------------------------------------------------------------------- cases */

static void test_one_thread(void **state)
{
	enum { N = 1000 };
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned id = insert(s, "steps");
	const struct arch_record *r;
	struct events all = {0};
	uint64_t last = 0;
	int64_t n = 0;
	size_t at = 0;

	session_go(h, N);
	take(s, &all);
	assert_int_equal(all.dropped, 0);
	assert_int_equal(all.damaged, 0);
	for (; (r = next(&all, &at)); n++) {
		assert_true(r->ticks >= last);
		last = r->ticks;
		assert_int_equal(r->tid, h->pid);
		assert_int_equal(r->flags, 0);
		if (n % 2) {
			assert_int_equal(r->size, sizeof(*r) + 8);
			assert_int_equal(word(r, 0), n / 2 * 2);
		} else {
			assert_int_equal(r->size, sizeof(*r) + 16);
			assert_int_equal(word(r, 0), 0);
			assert_int_equal(word(r, 1), n / 2);
		}
	}
	assert_int_equal(n, 2 * N);
	assert_int_equal(session_value(s, id), 2 * N);
	release(&all);
	session_remove(s, id);
	session_flush_all(s);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* ----------------------------------------------------------------- fields */

static uint64_t length_at(const struct arch_record *r, uint32_t offset)
{
	uint64_t length;

	memcpy(&length, (const uint8_t *)r + offset, sizeof(length));
	return length;
}

/* All that is there are N events of `texts`, each with all its fields. */
static void expect_texts(struct session *s, long count)
{
	const struct arch_record *r;
	struct events all = {0};
	size_t at = 0;
	long n = 0;

	take(s, &all);
	assert_int_equal(all.dropped, 0);
	for (; (r = next(&all, &at)); n++) {
		const uint8_t *bytes = (const void *)r;
		char expected[64];

		snprintf(expected, sizeof(expected), "text %ld", n);
		assert_int_equal(r->size, 24 + 8 + 32 + 8 + 16 + 16);
		assert_int_equal(length_at(r, 32), strlen(expected));
		assert_memory_equal(bytes + 40, expected, strlen(expected));
		/* What was behind it in memory is not handed out. */
		for (size_t k = strlen(expected); k < 24; k++)
			assert_int_equal(bytes[40 + k], 0);
		assert_int_equal(length_at(r, 64), n);
		assert_int_equal(length_at(r, 72), 5);
		assert_memory_equal(bytes + 80, expected, 5);
		assert_int_equal(length_at(r, 88), 0);
	}
	assert_int_equal(n, count);
	release(&all);
}

static void test_texts(void **state)
{
	enum { N = 200 };
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned id = insert(s, "texts");

	session_go(h, N);
	expect_texts(s, N);
	assert_int_equal(session_value(s, id), N);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

static void do_aligned(struct harness *h, long n)
{
	char command[64];

	snprintf(command, sizeof(command), "aligned %ld\n", n);
	harness_send(h, command);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
}

/*
 * fear D2: a program that has the processor check alignment (the AC flag): nothing of ours is not aligned, whatever
 * is counted, timed or recorded, texts at odd addresses too
 */
static void test_alignment(void **state)
{
	static const char *const timed[] = {"latency", "wall", "cpu", "wall_inclusive", "active"};
	enum { N = 500 };
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned steps;

	do_aligned(h, 20);
	for (int kind = POINT_ENTRY; kind <= POINT_STORE; kind++)
		session_insert_kind(s, "/Code/stream/do_aligned", (enum point_kind)kind);
	steps = session_insert(s, "step");
	session_insert_kind(s, "step", POINT_EXIT);
	for (size_t i = 0; i < sizeof(timed) / sizeof(*timed); i++)
		session_insert_metric(s, timed[i], "/Code/stream/*", NULL);
	do_aligned(h, N);
	assert_int_equal(session_value(s, steps), N);
	insert(s, "texts");
	do_aligned(h, N);
	expect_texts(s, N);
	insert(s, "halves");
	do_aligned(h, N);
	assert_int_equal(session_value(s, steps), 3 * N);
	session_end(s);
	do_aligned(h, 20);
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear D2: the same where variables are read that lie at odd addresses, in packed structs, by name, by a function of
 * the program's own, or by an index that only that moment tells
 */
static void test_odd_variables(void **state)
{
	static const char packed[] =
		"metric packed { name \"packed\"; units events; style EventCounter;\n"
		"	base is stream { foreach f in functions append preInsn f.entry (*\n"
		"		record(packed, readSymbol(\"odd.two\"), readSymbol(\"odd.four\"),\n"
		"			readSymbol(\"odd.eight\"), readSymbol(\"odd.real\"),\n"
		"			readSymbol(\"odd.halfway\"), odd_sum(),\n"
		"			odd_row(1 + ($thread & 0)), odd_row(2 + ($thread & 0))); *) } }\n";
	static const int64_t expected[] = {-2,	-4,  -8, 0x401e000000000000, 0x123456789abcdef0,
					   -10, -11, -12};
	enum { N = 100 };
	struct harness *h = *state;
	struct session *s = begin(h);
	const struct arch_record *r;
	struct dinst_error e = {0};
	struct events all = {0};
	size_t at = 0;
	long n = 0;

	if (session_load_mdl(s, "packed.mdl", packed, strlen(packed), &e) < 0)
		fail_msg("%s", e.text);
	insert(s, "packed");
	do_aligned(h, N);
	take(s, &all);
	for (; (r = next(&all, &at)); n++)
		for (size_t i = 0; i < sizeof(expected) / sizeof(*expected); i++)
			assert_int_equal(word(r, i), expected[i]);
	assert_int_equal(n, N);
	release(&all);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* Events at calls of one function that code is inserted at one by one: each call has its own. */
static void test_calls(void **state)
{
	static const char calls[] =
		"list aligned is procedure { items { \"do_aligned\" }; }\n"
		"metric called { name \"called\"; units events; style EventCounter;\n"
		"	base is stream { foreach f in aligned foreach c in f.calls\n"
		"		append preInsn c (* record(called, f); *) } }\n";
	enum { N = 100, CALLS = 3 };
	struct harness *h = *state;
	struct session *s = begin(h);
	const struct arch_record *r;
	struct dinst_error e = {0};
	struct events all = {0};
	uint32_t ids[CALLS];
	size_t at = 0;
	long n = 0;

	if (session_load_mdl(s, "calls.mdl", calls, strlen(calls), &e) < 0)
		fail_msg("%s", e.text);
	insert(s, "called");
	do_aligned(h, N);
	take(s, &all);
	for (; (r = next(&all, &at)); n++) {
		if (n < CALLS)
			ids[n] = r->id;
		assert_int_equal(r->id, ids[n % CALLS]);
	}
	assert_int_equal(n, CALLS * N);
	assert_true(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
	release(&all);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* Of floating point the bits are stored. */
static void test_floats(void **state)
{
	enum { N = 50 };
	struct harness *h = *state;
	struct session *s = begin(h);
	const struct arch_record *r;
	struct events all = {0};
	size_t at = 0;
	long n = 0;

	insert(s, "halves");
	harness_send(h, "floats 50\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	take(s, &all);
	for (; (r = next(&all, &at)); n++) {
		const double x = (double)(n / 2) + 0.5;
		double d;
		float f;

		memcpy(&d, r->fields, sizeof(d));
		if (n % 2) {
			assert_true(d == x / 2 + (double)(float)(n / 2));
			continue;
		}
		assert_true(d == x);
		memcpy(&f, r->fields + 8, sizeof(f));
		assert_true(f == (float)(n / 2));
	}
	assert_int_equal(n, 2 * N);
	release(&all);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* ----------------------------------------------------------------- threads */

static void test_threads(void **state)
{
	enum { N = 20000, THREADS = 8 };
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned id = insert(s, "steps");
	struct events all = {0};
	long kept;

	collect(h, s, "threads 8 20000\n", false, &all);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	take(s, &all);
	kept = check_order(&all, true);
	assert_int_equal(all.damaged, 0);
	assert_int_equal(kept + (long)all.dropped, 2 * N * THREADS);
	assert_int_equal(session_value(s, id), 2 * N * THREADS);
	print_message("%ld kept, %lu dropped\n", kept, all.dropped);
	assert_true(kept > 1000);
	release(&all);
	session_remove(s, id);
	session_flush_all(s);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* Nobody reads: the rings hold what came first. */
static void test_full(void **state)
{
	enum { N = 100000, THREADS = 4 };
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned id = insert(s, "entries");
	struct events all = {0};
	long kept;

	collect(h, s, "threads 4 100000\n", true, &all);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	take(s, &all);
	kept = check_order(&all, false);
	assert_int_equal(all.damaged, 0);
	assert_true(all.dropped > 0 && kept > 1000);
	assert_int_equal(kept + (long)all.dropped, N * THREADS);
	assert_int_equal(session_value(s, id), N * THREADS);
	/* There is room again. */
	release(&all);
	session_go(h, 100);
	take(s, &all);
	assert_int_equal(check_order(&all, false), 100);
	release(&all);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

static void test_fork(void **state)
{
	enum { N = 3000 };
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned id = insert(s, "steps");
	struct events all = {0};

	session_go(h, N);
	harness_send(h, "fork 3000\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	take(s, &all);
	assert_int_equal(check_order(&all, true) + (long)all.dropped, 4 * N);
	assert_int_equal(all.dropped, 0);
	assert_int_equal(told[0].tid, h->pid);
	assert_int_equal(told[77].count, N);
	assert_int_not_equal(told[77].tid, h->pid);
	assert_int_equal(session_value(s, id), 4 * N);
	release(&all);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* Two streams at one point: each has its own events, and is asked for them alone. */
static void test_two_streams(void **state)
{
	enum { N = 500 };
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned first = insert(s, "entries"), second = insert(s, "texts"), third;
	struct dinst_error e = {0};
	struct stream_taken taken;
	json_t *threads;

	third = insert(s, "entries");
	session_go(h, N);
	for (unsigned n = 0; n < 3; n++) {
		const unsigned id = n == 0 ? second : n == 1 ? first : third;
		struct stream_queue *q = session_instance(s, id)->variables[0]->queue;
		struct events all;

		stream_collect(s);
		assert_int_equal(stream_take(s, &q, 1, 1 << 20, &taken, &threads, &e), 0);
		assert_int_equal(json_array_size(threads), 1);
		assert_int_equal(
			json_integer_value(json_object_get(json_array_get(threads, 0), "tid")),
			h->pid);
		json_decref(threads);
		json_decref(taken.places);
		all = (struct events){.data = taken.data, .size = taken.size};
		assert_int_equal(taken.size, (id == second ? 104 : 40) * N);
		if (id != second)
			assert_int_equal(check_order(&all, false), N);
		release(&all);
		assert_int_equal(session_value(s, id), N);
	}
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear I3: a program whose container has hardly any memory left records as fast as it can: rings are
 * not its own memory, and it is not killed for them.
 */
static void test_little_memory(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	char directory[64];
	unsigned id;

	if (!harness_confine(h->pid, HARNESS_LIMIT_MEMORY, "1572864", directory,
			     sizeof(directory))) {
		print_message("skipped: no memory control group can be made here\n");
		skip();
	}
	id = insert(s, "entries");
	tell(h, "threads 4 100000\n");
	assert_int_equal(session_value(s, id), 400000);
	session_end(s);
	harness_end(h, 0);
	for (int i = 0; i < 100 && rmdir(directory); i++)
		usleep(20000);
}

/* Threads whose C library has not registered rseq: their CPU is not known. */
static void test_without_rseq(void **state)
{
	setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0", 1);
	test_threads(state);
	unsetenv("GLIBC_TUNABLES");
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_one_thread),	 CASE(test_texts),	   CASE(test_alignment),
		CASE(test_floats),	 CASE(test_calls),	   CASE(test_threads),
		CASE(test_full),	 CASE(test_fork),	   CASE(test_two_streams),
		CASE(test_without_rseq), CASE(test_little_memory), CASE(test_odd_variables),
	};

	setenv("DINST_POISON", "1", 1);
	if (!harness_has_clock(true))
		return 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
