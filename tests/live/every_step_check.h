/* SPDX-License-Identifier: MIT */
/*
 * every_step_check.h - what must be true of every_step_state.c's metrics and of the threads' records,
 * at any time (check_bounds()), when all threads have done all their work (check_values()), and when
 * nothing is inserted any more (check_nothing_left()).
 */
#ifndef DINST_TESTS_LIVE_EVERY_STEP_CHECK_H
#define DINST_TESTS_LIVE_EVERY_STEP_CHECK_H

#include <sys/syscall.h>

#include "mutator/leftovers.h"
#include "mutator/threads_private.h"
#include "mutator/variable.h"
#include "tests/live/every_step_workers.h"

enum { ROUNDS = 2, SLACK_NS = 2000000, BURN_NS = 20000, LEFT_MOST = 64, PROCESSORS_MOST = 1024 };

/* Of a plain round of all threads; -1: refused. */
static int64_t reference[METRICS][FOCI];

static inline int64_t value_of(struct scene *c, const struct measured *m)
{
	struct variable_value value;
	struct dinst_error e = {0};

	if (instance_read(session_instance(c->s, m->id), 0, &value, &e) < 0)
		fail_msg("%s of %s: %s", metrics[m->metric].name, functions[m->function], e.text);
	variable_value_release(&value);
	return value.value;
}

static inline void fail_of(const struct measured *m, const char *what, int64_t is, int64_t expected)
{
	fail_msg("%s of %s (%d): %s: %lld, and not %lld", metrics[m->metric].name,
		 functions[m->function], m->only, what, (long long)is, (long long)expected);
}

/* ------------------------------------------------------------ at any time */

static inline int64_t most_of(const struct scene *c, const struct measured *m, uint64_t ns)
{
	const int64_t threads = m->only >= 0 ? 1 : WORKERS + 1;
	const int64_t processors = strcmp(metrics[m->metric].name, "s_process") ? 1 : 8;

	(void)c;
	return (int64_t)ns * threads * processors + SLACK_NS;
}

static inline void check_bounds(struct scene *c)
{
	for (unsigned n = 0; n < INSTANCES && c->s; n++) {
		struct measured *m = &c->measured[n];
		const enum measure measure = metrics[m->metric].measure;
		int64_t value, most;

		if (!m->id || measure == LEVEL)
			continue;
		value = value_of(c, m);
		most = most_of(c, m, now_ns() - m->since_ns);
		/* A timer's last part is what it was when the thread read the clock, not when it adds it. */
		if (value < (measure == TIMER ? 0 : m->last))
			fail_of(m, "less than before", value, m->last);
		if (measure == TIMER && value > most)
			fail_of(m, "more than can be", value, most);
		m->last = value;
	}
}

/* -------------------------------------------------------------- at the end */

static inline bool is_alive(const pid_t *tids, size_t count, uint32_t tid)
{
	for (size_t i = 0; i < count; i++)
		if ((uint32_t)tids[i] == tid)
			return true;
	return false;
}

/* Of a thread that is in none of them: nothing is entered, nothing is on. */
static inline void check_record(const struct threads *t, const struct pair_record *r)
{
	for (size_t i = 0; i < r->depth / sizeof(struct pair_entry); i++) {
		const uint32_t id = r->home[i].tag & PAIR_ID_MASK;

		if (id && t->paired[id].references)
			fail_msg("thread %u is kept as inside of function %u at %llx", r->tid, id,
				 (unsigned long long)(r->home[i].tag >> PAIR_ID_BITS));
	}
	for (size_t i = 0; i < PAIR_OTHER; i++) {
		const uint32_t id = r->other[i].tag & PAIR_ID_MASK;

		if (id && t->paired[id].references)
			fail_msg("thread %u is kept as inside of function %u elsewhere", r->tid,
				 id);
	}
}

/* A head keeps words of what was removed as long as its site is in use: they are looked at by nobody. */
static inline void check_words(const struct instance *list, const struct pair_record *r)
{
	for (const struct instance *i = list; i; i = i->next)
		for (size_t k = 0; k < i->variable_count; k++) {
			const struct variable *v = i->variables[k];
			const size_t at = (v->record_offset - offsetof(struct pair_record, words)) /
					  sizeof(uint64_t);

			/* Below 0: what was left when it came (docs/mdl.md, limits). */
			if (v->record_offset &&
			    (v->form == VARIABLE_TIMER ? (uint32_t)r->words[at] != 0
						       : (int64_t)r->words[at] > 0))
				fail_msg("thread %u: %s of %s is %llx", r->tid, v->name, i->focus,
					 (unsigned long long)r->words[at]);
		}
}

/* What is given out again must be 0. */
static inline void check_free_words(const struct threads *t, const struct pair_record *r)
{
	const size_t used = (t->used - offsetof(struct pair_record, words)) / sizeof(uint64_t);

	for (size_t i = 0; i < used; i++)
		if (t->words[i] == WORD_FREE && r->words[i])
			fail_msg("thread %u: word %zu is free, and %llx", r->tid, i,
				 (unsigned long long)r->words[i]);
}

static inline void check_records(struct scene *c)
{
	const struct threads *t = c->s->threads;
	struct threads_statistics statistics;
	pid_t tids[WORKERS];
	struct tables tables;

	if (!t || !t->area)
		return;
	for (unsigned i = 0; i < WORKERS; i++)
		tids[i] = c->p[i].tid;
	assert_true(threads_tables_read(&tables, t, c->s->target));
	for (size_t i = 0; i < (size_t)1 << t->shift; i++) {
		if (!tables.keys[i] || !is_alive(tids, WORKERS, tables.owners[i]))
			continue;
		assert_true(threads_record_read(&tables, i));
		check_record(t, tables.record);
		check_words(c->s->instances, tables.record);
		check_words(c->s->hidden, tables.record);
		check_free_words(t, tables.record);
	}
	threads_tables_release(&tables);
	threads_statistics(c->s, &statistics);
	assert_int_equal(statistics.lost, 0);
	assert_int_equal(statistics.overflow, 0);
}

/* In each round; by handlers any may be. */
static inline bool is_left_by_jumps(const char *name)
{
	return !strncmp(name, "st_jump", 7) || !strcmp(name, "st_throw") || !strcmp(name, "st_*");
}

/*
 * Counts of st_leaf inside of what a jump has left: until the thread comes by a function that is paired, for
 * whatever metric, it still is inside (docs/mdl.md, limits).
 */
static inline bool is_until_noticed(const struct measured *m, int64_t counted, int64_t expected)
{
	/* All its calls: of `calls` and `st_leaf`, which are first in their lists. */
	const int64_t most = ROUNDS * reference[0][0];

	return !strcmp(metrics[m->metric].name, "s_leafs") &&
	       is_left_by_jumps(functions[m->function]) && counted >= expected && counted <= most;
}

static inline void check_one(struct scene *c, const struct measured *m, int64_t before,
			     uint64_t elapsed_ns)
{
	const int64_t now = value_of(c, m), all = reference[m->metric][m->function];
	const int64_t expected = ROUNDS * (m->only >= 0 ? all / WORKERS : all);
	const char *name = functions[m->function];

	switch (metrics[m->metric].measure) {
	case EXACT:
	case RECORD:
		if (now - before != expected && !m->strangers &&
		    !is_until_noticed(m, now - before, expected) &&
		    !(metrics[m->metric].jumps && (c->leaps || is_left_by_jumps(name))))
			fail_of(m, "so many in the end", now - before, expected);
		break;
	case LEVEL:
		if (now > 0 || now < (c->leaps || is_left_by_jumps(name) ? -LEFT_MOST : 0))
			fail_of(m, "still inside", now, 0);
		break;
	case TIMER:
		if (now - before > most_of(c, m, elapsed_ns))
			fail_of(m, "more in the end than can be", now - before,
				most_of(c, m, elapsed_ns));
		if (!strcmp(name, "st_burn") &&
		    !strcmp(metrics[m->metric].name, "wall_inclusive") && !m->strangers &&
		    now - before < ROUNDS * BURN_NS * (m->only >= 0 ? 1 : WORKERS))
			fail_of(m, "less in the end than can be", now - before, ROUNDS * BURN_NS);
		usleep(200);
		if (value_of(c, m) != now)
			fail_of(m, "goes on", value_of(c, m), now);
		break;
	}
}

static inline void wait_for_rest(struct scene *c)
{
	for (unsigned i = 0; i < WORKERS; i++)
		thread_wait_syscall(c->h->pid, c->p[i].tid, SYS_nanosleep);
}

/* As whoever serves the session does: what was kept elsewhere, since its thread was in code of ours, comes home. */
static inline void bring_home(struct scene *c)
{
	const uint64_t until = now_ns() + 10000000000;

	while (c->s->threads && c->s->threads->strayed && now_ns() < until) {
		usleep(1000);
		threads_poll(c->s);
	}
}

/* Nobody is held any more: all counts, and when it is done nothing runs. */
static inline void check_values(struct scene *c)
{
	int64_t before[INSTANCES] = {0};
	uint64_t from;

	request_retry_pending(c->s);
	/* Words of what was removed are nobody's any more. */
	session_flush_all(c->s);
	/* What was left by jumps is noticed now. */
	for (unsigned round = 0; round < 2; round++) {
		from = now_ns();
		for (unsigned n = 0; n < INSTANCES; n++)
			if (c->measured[n].id) {
				assert_int_equal(session_pending(c->s, c->measured[n].id), 0);
				before[n] = value_of(c, &c->measured[n]);
			}
		for (unsigned i = 0; i < WORKERS; i++)
			say_to(c, "plain", i, ROUNDS);
		assert_string_equal(say(c, "wait"), "done");
		/* Until they are out of their handlers. */
		wait_for_rest(c);
		bring_home(c);
	}
	for (unsigned n = 0; n < INSTANCES; n++)
		if (c->measured[n].id)
			check_one(c, &c->measured[n], before[n], now_ns() - from);
	check_records(c);
}

static inline void check_nothing_left(struct scene *c)
{
	const struct threads *t = c->s->threads;

	assert_int_equal(c->s->queue_length, 0);
	assert_null(c->s->hidden);
	for (uint32_t id = 1; t && t->paired && id <= PAIR_ID_MASK; id++)
		if (t->paired[id].undo || t->paired[id].references)
			fail_msg("function %u has an undo routine, or is paired", id);
	fprintf(c->log, "left: %zu bytes of code\n", session_heap_bytes(c->s));
}

#endif
