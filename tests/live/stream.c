/* SPDX-License-Identifier: MIT */
/*
 * stream.c - events of running programs: each call of a known program leaves its
 * record or is counted as dropped, with the fields that it had, and each thread's
 * events come in their order.
 */
#include "tests/live/harness_session.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mutator/evaluate.h"
#include "mutator/stream.h"
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_one_thread, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
