/* SPDX-License-Identifier: MIT */
/*
 * stream.c - events of running programs: each call of a known program leaves its
 * record or is counted as dropped, with the fields that it had, and each thread's
 * events come in their order.
 */
#include "tests/live/harness_session.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mutator/evaluate.h"
#include "mutator/stream_private.h"
#include "mutator/variable.h"

static const char text[] =
	"metric steps { name \"steps\"; units events; style EventCounter;\n"
	"	base is stream { foreach f in functions {\n"
	"		append preInsn f.entry (* record(steps, $arg[0], $arg[1]); *)\n"
	"		append preInsn f.return (* record(steps, $return); *) } } }\n"
	"metric entries { name \"entries\"; units events; style EventCounter;\n"
	"	base is stream { foreach f in functions\n"
	"		append preInsn f.entry (* record(entries, $arg[0], $arg[1]); *) } }\n"
	"metric texts { name \"texts\"; units events; style EventCounter;\n"
	"	base is stream { foreach f in functions\n"
	"		append preInsn f.entry (* record(texts, $arg[0], string($arg[2], 24),\n"
	"			$arg[1], bytes($arg[2], 5), string(1, 8)); *) } }\n"
	"metric halves { name \"halves\"; units events; style EventCounter;\n"
	"	base is stream { foreach f in fractions {\n"
	"		append preInsn f.entry (* record(halves, $arg[0], $arg[1]); *)\n"
	"		append preInsn f.return (* record(halves, $return); *) } } }\n"
	"list functions is procedure { items { \"step\" }; }\n"
	"list fractions is procedure { items { \"half\" }; }\n";

static struct session *begin(struct harness *h)
{
	struct dinst_error e = {0};
	struct session *s;

	harness_start(h, "stream", NULL);
	s = session_begin(h);
	if (session_load_mdl(s, "test.mdl", text, strlen(text), &e) < 0)
		fail_msg("%s", e.text);
	return s;
}

static unsigned insert(struct session *s, const char *metric)
{
	struct insert_result result;
	struct dinst_error e = {0};
	struct instance *i;

	if (request_insert(s, metric, NULL, 0, NULL, &result, &e) < 0)
		fail_msg("%s: %s", metric, e.text);
	assert_int_equal(result.count, 1);
	i = result.instances[0];
	free(result.instances);
	stream_name(i->variables[0]->queue, i->id);
	return i->id;
}

/* ------------------------------------------------------------------ events */

struct events {
	uint8_t *data;
	size_t size, count;
	uint64_t dropped, damaged;
};

static void take(struct session *s, struct events *all)
{
	struct stream_taken taken;
	struct dinst_error e = {0};
	json_t *threads;

	do {
		stream_collect(s);
		if (stream_take(s, NULL, 0, 1 << 20, &taken, &threads, &e) < 0)
			fail_msg("%s", e.text);
		json_decref(threads);
		all->data = realloc(all->data, all->size + taken.size + 1);
		assert_non_null(all->data);
		memcpy(all->data + all->size, taken.data, taken.size);
		all->size += taken.size;
		all->dropped = taken.dropped;
		all->damaged = taken.damaged;
		free(taken.data);
	} while (taken.more);
}

static const struct arch_record *next(const struct events *all, size_t *at)
{
	const struct arch_record *r = (const void *)(all->data + *at);

	if (*at >= all->size)
		return NULL;
	assert_true(r->size >= sizeof(*r) && r->size <= all->size - *at);
	*at += r->size;
	return r;
}

static int64_t word(const struct arch_record *r, size_t n)
{
	int64_t value;

	assert_true(sizeof(*r) + 8 * n + 8 <= r->size);
	memcpy(&value, r->fields + 8 * n, sizeof(value));
	return value;
}

static void release(struct events *all)
{
	free(all->data);
	memset(all, 0, sizeof(*all));
}

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

static void test_texts(void **state)
{
	enum { N = 200 };
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned id = insert(s, "texts");
	const struct arch_record *r;
	struct events all = {0};
	size_t at = 0;
	long n = 0;

	session_go(h, N);
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
	assert_int_equal(n, N);
	assert_int_equal(session_value(s, id), N);
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
	assert_string_equal(harness_line(h, 60000), "done");
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

enum { WHO_MOST = 2000 };

/* What events of `entries` and `steps` say of each thread of step(). */
struct told {
	long count;	/* of entries */
	long last;	/* number */
	uint64_t ticks; /* of any of its events */
	uint32_t tid;
};

static struct told told[WHO_MOST];
static struct {
	uint32_t tid;
	uint64_t ticks;
} by_tid[256];

/* Entries of each thread ascend, and so do the times of each tid. Returns how many there are. */
static long check_order(const struct events *all, bool returns)
{
	const struct arch_record *r;
	size_t at = 0;
	long count = 0;

	memset(told, 0, sizeof(told));
	memset(by_tid, 0, sizeof(by_tid));
	while ((r = next(all, &at))) {
		const int64_t who = word(r, 0), number = r->size > 32 ? word(r, 1) : 0;
		size_t t = 0;

		count++;
		while (t < 256 && by_tid[t].tid && by_tid[t].tid != r->tid)
			t++;
		assert_true(t < 256);
		by_tid[t].tid = r->tid;
		assert_true(r->ticks >= by_tid[t].ticks);
		by_tid[t].ticks = r->ticks;
		if (r->size == 32) {
			assert_true(returns);
			continue;
		}
		assert_true(who >= 0 && who < WHO_MOST);
		assert_true(!told[who].count || number > told[who].last);
		assert_true(!told[who].count || told[who].tid == r->tid);
		told[who].last = number;
		told[who].tid = r->tid;
		told[who].count++;
	}
	return count;
}

/* Sends the command and collects until it is done; `lazy`: only then. */
static void collect(struct harness *h, struct session *s, const char *command, bool lazy,
		    struct events *all)
{
	struct pollfd answer = {.fd = h->output, .events = POLLIN};

	harness_send(h, command);
	while (!lazy && poll(&answer, 1, 1) <= 0)
		take(s, all);
}

static void test_threads(void **state)
{
	enum { N = 20000, THREADS = 8 };
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned id = insert(s, "steps");
	struct events all = {0};
	long kept;

	collect(h, s, "threads 8 20000\n", false, &all);
	assert_string_equal(harness_line(h, 60000), "done");
	take(s, &all);
	kept = check_order(&all, true);
	assert_int_equal(all.damaged, 0);
	assert_int_equal(kept + (long)all.dropped, 2 * N * THREADS);
	assert_int_equal(session_value(s, id), 2 * N * THREADS);
	print_message("%ld kept, %lu dropped\n", kept, all.dropped);
	assert_true(kept > N);
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
	assert_string_equal(harness_line(h, 60000), "done");
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
	assert_string_equal(harness_line(h, 60000), "done");
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

/* -------------------------------------------------------------- interruptions */

/* How many handlers there were, by thread. */
static long handled(const char *line)
{
	long a, b;

	if (sscanf(line, "handled %ld %ld", &a, &b) != 2)
		fail_msg("%s", line);
	return a + b;
}

static void test_signals(void **state)
{
	enum { N = 60000 };
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned id = insert(s, "entries");
	struct events all = {0};
	long kept, calls;

	collect(h, s, "signals 60000\n", false, &all);
	calls = 2 * N + handled(harness_line(h, 60000));
	assert_string_equal(harness_line(h, 60000), "done");
	take(s, &all);
	kept = check_order(&all, false);
	print_message("%ld kept, %lu dropped of %ld\n", kept, all.dropped, calls);
	assert_int_equal(session_value(s, id), calls);
	assert_int_equal(kept + (long)all.dropped, calls);
	assert_int_equal(all.damaged, 0);
	assert_true(told[1001].count + told[1002].count > 0);
	release(&all);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* Rings that somebody has taken and does not give back. */
static unsigned taken_rings(const struct session *s)
{
	unsigned count = 0;

	for (unsigned n = 0; n < s->stream->ring_count; n++)
		count += s->stream->rings[n].ring->lock != 0;
	return count;
}

/* A thread that jumps out of a record leaves its ring taken until somebody notices. */
static void test_jumps(void **state)
{
	enum { N = 60000 };
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned id = insert(s, "entries");
	struct events all = {0};
	long kept, calls;
	unsigned left;

	collect(h, s, "jumps 60000\n", false, &all);
	handled(harness_line(h, 60000));
	assert_string_equal(harness_line(h, 60000), "done");
	take(s, &all);
	left = taken_rings(s);
	for (unsigned tries = 0; taken_rings(s) && tries < 100; tries++) {
		usleep(100000);
		take(s, &all);
	}
	assert_int_equal(taken_rings(s), 0);
	kept = check_order(&all, false);
	calls = (long)session_value(s, id);
	print_message("%ld kept, %lu dropped of %ld, %u rings were left\n", kept, all.dropped,
		      calls, left);
	assert_int_equal(all.damaged, 0);
	/* A few may have been interrupted between being counted and having a ring. */
	assert_true(kept + (long)all.dropped <= calls);
	assert_true(kept + (long)all.dropped >= calls - calls / 100 - 10);
	release(&all);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* Threads that end in a record: their rings come back without a stop. */
static void test_exits(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned id = insert(s, "entries");
	struct events all = {0};
	long kept, calls;
	unsigned left;

	collect(h, s, "exits 150\n", false, &all);
	assert_string_equal(harness_line(h, 60000), "done");
	take(s, &all);
	left = taken_rings(s);
	for (unsigned tries = 0; taken_rings(s) && tries < 100; tries++) {
		usleep(50000);
		take(s, &all);
	}
	assert_int_equal(taken_rings(s), 0);
	assert_true(s->stream->stopped_ns == 0);
	release(&all);
	/* There is room as before. */
	take(s, &all);
	release(&all);
	kept = (long)session_value(s, id);
	session_go(h, 100);
	take(s, &all);
	calls = (long)session_value(s, id) - kept;
	assert_int_equal(calls, 100);
	assert_int_equal(check_order(&all, false), 100);
	print_message("%ld calls, %u rings were left\n", kept, left);
	release(&all);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* ------------------------------------------------------------- in and out */

static void tell(struct harness *h, const char *command)
{
	harness_send(h, command);
	assert_string_equal(harness_line(h, 60000), "done");
}

/* While threads write: what is taken out and put in again is whole each time. */
static void test_removed_under_load(void **state)
{
	enum { ROUNDS = 12 };
	struct harness *h = *state;
	struct session *s = begin(h);

	tell(h, "run 4\n");
	for (unsigned round = 0; round < ROUNDS; round++) {
		unsigned id = insert(s, round % 2 ? "steps" : "texts");
		struct events all = {0};

		for (unsigned tries = 0; !all.size && tries < 1000; tries++) {
			usleep(1000);
			take(s, &all);
		}
		assert_true(all.size > 0);
		assert_int_equal(all.damaged, 0);
		session_remove(s, id);
		if (round % 3 == 0)
			session_flush_all(s);
		release(&all);
	}
	session_flush_all(s);
	session_end(s);
	tell(h, "stop\n");
	harness_verify(h);
	harness_end(h, 0);
}

static void test_detached_under_load(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	struct events all = {0};

	insert(s, "texts");
	insert(s, "steps");
	tell(h, "run 4\n");
	usleep(20000);
	take(s, &all);
	session_end(s);
	tell(h, "stop\n");
	assert_true(all.size > 0);
	release(&all);
	harness_verify(h);
	harness_end(h, 0);
}

/* A mutator of its own, which is killed while threads write what it collects. */
static void be_mutator(struct harness *h)
{
	struct dinst_error e = {0};
	struct insert_result result;
	struct session *s;

	if (session_attach(h->pid, "short", &s, &e) < 0 ||
	    session_load_mdl(s, "test.mdl", text, strlen(text), &e) < 0 ||
	    request_insert(s, "texts", NULL, 0, NULL, &result, &e) < 0 ||
	    request_insert(s, "steps", NULL, 0, NULL, &result, &e) < 0)
		_exit(1);
	for (;;) {
		stream_collect(s);
		usleep(500);
	}
}

static void test_deaths(void **state)
{
	enum { ROUNDS = 6, CLEAN_MS = 10000 };
	struct harness *h = *state;

	harness_start(h, "stream", NULL);
	tell(h, "run 4\n");
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct dinst_error e = {0};
		struct leftovers left;
		struct target *t;
		int status;
		pid_t pid = fork();

		assert_true(pid >= 0);
		if (!pid)
			be_mutator(h);
		usleep(100000 + round * 137000);
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		if (target_open(h->pid, &t, &e) < 0 || leftovers_clean(t, CLEAN_MS, &left, &e) < 0)
			fail_msg("round %u: %s", round, e.text);
		target_close(t);
		assert_int_equal(left.arenas_left, 0);
	}
	tell(h, "stop\n");
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

/* Threads whose C library has not registered rseq: their CPU is not known. */
static void test_without_rseq(void **state)
{
	setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0", 1);
	test_threads(state);
	unsetenv("GLIBC_TUNABLES");
}

int main(void)
{
	setenv("DINST_POISON", "1", 1);
#define CASE(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)
	const struct CMUnitTest tests[] = {
		CASE(test_one_thread),
		CASE(test_texts),
		CASE(test_floats),
		CASE(test_threads),
		CASE(test_full),
		CASE(test_fork),
		CASE(test_signals),
		CASE(test_jumps),
		CASE(test_exits),
		CASE(test_removed_under_load),
		CASE(test_detached_under_load),
		CASE(test_deaths),
		CASE(test_two_streams),
		CASE(test_without_rseq),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
