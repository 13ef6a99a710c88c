/* SPDX-License-Identifier: MIT */
/*
 * stream_help.h - what stream.c and stream_storms.c share: streams put into the program
 * targets/stream.c, the events that they leave, and whether those are in order.
 *
 *   1. begin(), insert() of a metric of `text`;
 *   2. collect() while the program does what it is told, or take() afterwards;
 *   3. check_order(), next() and word(); release().
 */
#ifndef DINST_TESTS_STREAM_HELP_H
#define DINST_TESTS_STREAM_HELP_H

#include "tests/live/harness_session.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
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

/* To a target that has been started. */
static inline struct session *begin_with(struct harness *h)
{
	struct dinst_error e = {0};
	struct session *s = session_begin(h);

	if (session_load_mdl(s, "test.mdl", text, strlen(text), &e) < 0)
		fail_msg("%s", e.text);
	return s;
}

static inline struct session *begin(struct harness *h)
{
	harness_start(h, "stream", NULL);
	return begin_with(h);
}

static inline unsigned insert(struct session *s, const char *metric)
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
	size_t size, room, count;
	uint64_t dropped, damaged;
};

/* Twice the room each time: sanitizers copy all of it whenever it grows. */
static inline void add(struct events *all, const void *data, size_t size)
{
	if (all->size + size > all->room) {
		all->room = 2 * (all->size + size);
		all->data = realloc(all->data, all->room);
		assert_non_null(all->data);
	}
	if (size)
		memcpy(all->data + all->size, data, size);
	all->size += size;
}

/* A mebibyte at most of what is there; true if there is more. */
static inline bool take_part(struct session *s, struct events *all)
{
	struct stream_taken taken;
	struct dinst_error e = {0};
	json_t *threads;

	stream_collect(s);
	if (stream_take(s, NULL, 0, 1 << 20, &taken, &threads, &e) < 0)
		fail_msg("%s", e.text);
	json_decref(threads);
	json_decref(taken.places);
	add(all, taken.data, taken.size);
	all->dropped = taken.dropped;
	all->damaged = taken.damaged;
	free(taken.data);
	return taken.more;
}

/*
 * All that is there; of what writes on and on, more than queues and rings hold together: it may
 * come faster than it is taken.
 */
static inline void take(struct session *s, struct events *all)
{
	enum { PARTS = 100 };

	for (unsigned parts = 0; take_part(s, all) && parts < PARTS - 1; parts++)
		continue;
}

static inline const struct arch_record *next(const struct events *all, size_t *at)
{
	const struct arch_record *r = (const void *)(all->data + *at);

	if (*at >= all->size)
		return NULL;
	assert_true(r->size >= sizeof(*r) && r->size <= all->size - *at);
	*at += r->size;
	return r;
}

static inline int64_t word(const struct arch_record *r, size_t n)
{
	int64_t value;

	assert_true(sizeof(*r) + 8 * n + 8 <= r->size);
	memcpy(&value, r->fields + 8 * n, sizeof(value));
	return value;
}

static inline void release(struct events *all)
{
	free(all->data);
	memset(all, 0, sizeof(*all));
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
static inline long check_order(const struct events *all, bool returns)
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
static inline void collect(struct harness *h, struct session *s, const char *command, bool lazy,
			   struct events *all)
{
	struct pollfd answer = {.fd = h->output, .events = POLLIN};

	harness_send(h, command);
	while (!lazy && poll(&answer, 1, 1) <= 0)
		take(s, all);
}

static inline void tell(struct harness *h, const char *command)
{
	harness_send(h, command);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
}

#endif
