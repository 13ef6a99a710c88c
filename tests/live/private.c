/* SPDX-License-Identifier: MIT */
/*
 * private.c - arenas where no executable memfd is to be had: what we write is
 * in the target only when it has been sent, so everything that may be reached
 * must have been, and what is switched off must be so before it is used anew.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/fault.h"
#include "mutator/threads_private.h"
#include "tests/live/harness_session.h"

enum { THREADS = 4, ROUNDS = 5000 };

static struct session *begin(struct harness *h, const char *threads)
{
	struct session *s;

	harness_start(h, "calls", threads, NULL);
	s = session_begin(h);
	s->private_arenas = true;
	return s;
}

static void end(struct harness *h, struct session *s)
{
	assert_true(s->places && s->places->arena->mode == ARENA_PRIVATE);
	session_end(s);
	harness_verify(h);
	session_go(h, 10);
	harness_end(h, 0);
}

/* fear B8: executable memfds are forbidden: private memory, exact counts */
static void test_exact_counts(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h, harness_number(THREADS));
	unsigned first = session_insert(s, "many"), all = session_insert(s, "/Code/calls/*");

	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, first), (uint64_t)THREADS * ROUNDS);
	assert_true(session_value(s, all) > 5ull * THREADS * ROUNDS);
	end(h, s);
}

static bool emulated;
static unsigned asked;

bool __real_arch_switches_are_whole(void);
bool __wrap_arch_switches_are_whole(void);

bool __wrap_arch_switches_are_whole(void)
{
	asked++;
	return !emulated && __real_arch_switches_are_whole();
}

/* ---------------------------------------------------------- what undoes */

static struct session *watched; /* each write to it is looked at */
static unsigned words_seen;

int __real_stop_write(struct stop *s, taddr_t address, const void *from, size_t size,
		      struct dinst_error *e);
int __wrap_stop_write(struct stop *s, taddr_t address, const void *from, size_t size,
		      struct dinst_error *e);

/* The word of a function leads to its routine only when that is there, as it was written here. */
static void expect_routine(const struct threads *t, uint32_t id)
{
	const struct paired *p = &t->paired[id];
	const taddr_t table = t->tables[id >> PAIR_UNDO_SHIFT];
	uint8_t there[512];
	uint64_t word = 0;

	if (!p->undo || !table ||
	    target_read_some(watched->target, table + id % (1u << PAIR_UNDO_SHIFT) * sizeof(word),
			     &word, sizeof(word)) != sizeof(word) ||
	    word != p->undo)
		return;
	words_seen++;
	assert_true(p->undo_size <= sizeof(there));
	assert_int_equal(target_read_some(watched->target, word, there, p->undo_size),
			 p->undo_size);
	assert_memory_equal(there, heap_map(p->place->heap, p->undo, p->undo_size), p->undo_size);
}

int __wrap_stop_write(struct stop *s, taddr_t address, const void *from, size_t size,
		      struct dinst_error *e)
{
	const int status = __real_stop_write(s, address, from, size, e);

	for (uint32_t id = 0; watched && watched->threads && id < watched->threads->next_id; id++)
		expect_routine(watched->threads, id);
	return status;
}

static unsigned insert_timer(struct session *s, const char *metric, const char *focus)
{
	struct insert_result result;
	struct dinst_error e = {0};
	unsigned id;

	if (request_insert(s, metric, &focus, 1, &(struct insert_options){0}, &result, &e) < 0)
		fail_msg("%s of %s: %s", metric, focus, e.text);
	id = result.instances[0]->id;
	free(result.instances);
	return id;
}

/* fear B8, G1: what undoes an activation is in the target before anything leads there, also where it is another arena */
static void test_undo_comes_first(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h, "1");
	unsigned second;

	session_insert(s, "tiny");
	/* The state of threads is in the arena of the library. */
	insert_timer(s, "latency", "/Code/libc.so.6/puts");
	assert_non_null(s->places->next);
	words_seen = 0;
	watched = s;
	insert_timer(s, "latency", "many");
	second = insert_timer(s, "wall_inclusive", "many");
	session_go(h, ROUNDS);
	session_remove(s, second);
	session_flush_all(s);
	watched = NULL;
	assert_true(words_seen > 0);
	session_go(h, ROUNDS);
	end(h, s);
}

/* fear C7: an emulated processor may execute half of a changed jump: code is changed in stops only, and it is noted why */
static void test_emulated(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned first, second;

	emulated = true;
	asked = 0;
	harness_start(h, "calls", harness_number(THREADS), NULL);
	s = session_begin(h);
	first = session_insert(s, "many");
	session_go(h, ROUNDS);
	second = session_insert(s, "many");
	session_insert(s, "/Code/calls/*");
	emulated = false;
	/* Once for the arena, not once for each function. */
	assert_int_equal(asked, 1);
	assert_int_equal(s->places->store_count, 0);
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, first), 2ull * THREADS * ROUNDS);
	assert_int_equal(session_value(s, second), (uint64_t)THREADS * ROUNDS);
	assert_non_null(strstr(s->places->arena->note, "emulated"));
	end(h, s);
}

static bool busy;

int __real_target_stop(struct target *t, const struct stop_options *options, stop_work work,
		       void *arg, struct stop_report *report, struct dinst_error *e);
int __wrap_target_stop(struct target *t, const struct stop_options *options, stop_work work,
		       void *arg, struct stop_report *report, struct dinst_error *e);

int __wrap_target_stop(struct target *t, const struct stop_options *options, stop_work work,
		       void *arg, struct stop_report *report, struct dinst_error *e)
{
	if (!busy)
		return __real_target_stop(t, options, work, arg, report, e);
	if (report)
		*report = (struct stop_report){0};
	return dinst_fail(e, DINST_BUSY, "as on a machine that is busy");
}

/* Two at one place in one request: what is left when one goes is new, and nothing is queued for it. */
static void test_one_of_two(void **state)
{
	static const struct raw_metric counts = {
		.name = "counts", .constraints = "/Code", .kind = POINT_ENTRY};
	static const char *const foci[] = {"many", "many"};
	struct harness *h = *state;
	struct session *s = begin(h, harness_number(THREADS));
	struct insert_result result;
	struct dinst_error e = {0};
	unsigned kept;

	if (request_insert_raw(s, &counts, foci, 2, false, &result, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(result.count, 2);
	kept = result.instances[1]->id;
	session_go(h, ROUNDS);
	session_remove(s, result.instances[0]->id);
	free(result.instances);
	assert_int_equal(s->queue_length, 0);
	assert_false(place_has_unsent(s));
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, kept), 2ull * THREADS * ROUNDS);
	end(h, s);
}

static void told(void *arg, const struct instance *i, double percent)
{
	assert_true(percent > i->limit);
	++*(unsigned *)arg;
}

static const struct instance *insert_limited(struct session *s, const char *focus)
{
	static const struct insert_options tight = {.limit = 1e-7};

	return session_insert_metric(s, "calls", focus, &tight);
}

static void poll_until_told(struct session *s)
{
	unsigned times = 0;

	for (int n = 0; n < 2400 && !times; n++) {
		assert_true(session_needs_poll(s));
		usleep(50000);
		session_poll(s, told, &times);
	}
	assert_int_equal(times, 1);
}

static void expect_off(struct harness *h, struct session *s, const struct instance *i)
{
	uint64_t value = instance_value(i);

	assert_true(i->stopped);
	assert_true(value > 0);
	assert_false(place_has_unsent(s));
	assert_false(session_needs_poll(s));
	session_go(h, ROUNDS);
	assert_int_equal(instance_value(i), value);
}

/*
 * fear B8, K3: what is above its limit runs no longer once that is told, and if the target cannot be stopped just
 * then it is tried until it can
 */
static void test_limit(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h, "2");
	const struct instance *i = insert_limited(s, "/Code/calls/tiny");
	unsigned times = 0;

	session_go(h, ROUNDS);
	poll_until_told(s);
	expect_off(h, s, i);
	i = insert_limited(s, "/Code/calls/strange");
	session_go(h, ROUNDS);
	busy = true;
	poll_until_told(s);
	busy = false;
	assert_true(place_has_unsent(s));
	assert_true(session_needs_poll(s));
	session_poll(s, told, &times);
	assert_int_equal(times, 0);
	expect_off(h, s, i);
	end(h, s);
}

/* At a point that is instrumented already: nothing is patched, and it counts all the same. */
static void test_second_snippet(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h, harness_number(THREADS));
	unsigned first = session_insert(s, "many"), second, third;

	session_go(h, ROUNDS);
	second = session_insert(s, "many");
	session_go(h, ROUNDS);
	session_remove(s, first);
	third = session_insert(s, "many");
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, second), 2ull * THREADS * ROUNDS);
	assert_int_equal(session_value(s, third), (uint64_t)THREADS * ROUNDS);
	end(h, s);
}

/* fear B8: the same under churn */
static void test_churn(void **state)
{
	static const char *const names[] = {"tiny", "leaf", "branchy", "recursive", "tail"};
	struct harness *h = *state;
	static const char go[] = "go 300000\n";
	struct session *s = begin(h, "4");
	unsigned kept = session_insert(s, "strange"), rounds = 1, id;

	harness_send(h, go);
	for (int turn = 0; turn < 300; turn++) {
		id = session_insert(s, names[turn % 5]);
		session_remove(s, id);
		rounds += harness_again(h, go);
	}
	session_flush_all(s);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	assert_int_equal(session_value(s, kept), rounds * 4 * 300000ull);
	end(h, s);
}

static void live_and_die(pid_t pid, unsigned long countdown)
{
	struct dinst_error e = {0};
	struct detach_result detached;
	struct flush_result flush;
	struct session *s;
	unsigned id, first;

	alarm(600);
	fault_countdown = countdown;
	if (session_attach(pid, "doomed", &s, &e) < 0)
		_exit(3);
	s->private_arenas = true;
	for (int turn = 0; turn < 2; turn++) {
		if (session_insert_patiently(s, "many", &first, &e) < 0 ||
		    session_insert_patiently(s, "/Code/calls/*", &id, &e) < 0 ||
		    session_insert_patiently(s, "many", &id, &e) < 0 ||
		    removal_remove(s, session_instance(s, first), &flush, &e) < 0 ||
		    session_insert_patiently(s, "leaf", &id, &e) < 0)
			_exit(4);
	}
	_exit(session_detach(s, 100, &detached, &e) < 0 || detached.left ? 5 : 0);
}

/* Killed at all kinds of moments: the target goes on, and its text comes back. */
/* fear B8, J2: the same, and the mutator is killed */
static void test_deaths(void **state)
{
	enum { STEP = 7, MOST = 4000 };
	struct harness *h = *state;
	bool killed = true;

	harness_limit(600);
	harness_start(h, "calls", "2", NULL);
	for (unsigned long at = 1; killed && at < MOST; at += at < 200 ? STEP : 10 * STEP) {
		struct dinst_error e = {0};
		struct leftovers left;
		struct target *t;
		char text[4096];
		int status = 0;
		pid_t child;

		harness_send(h, "go 3000\n");
		fflush(NULL);
		child = fork();
		if (child == 0)
			live_and_die(h->pid, at);
		assert_int_equal(waitpid(child, &status, 0), child);
		killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
		if (!killed && status)
			fail_msg("the mutator ended with %x at %lu", (unsigned)status, at);
		assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
		if (target_open(h->pid, &t, &e) < 0 || leftovers_clean(t, 60000, &left, &e) < 0)
			fail_msg("after death at %lu: %s", at, e.text);
		target_close(t);
		assert_int_equal(left.arenas_left, 0);
		if (harness_differences(h->before, HARNESS_TEXT | HARNESS_THREADS | HARNESS_FDS,
					text, sizeof(text)))
			fail_msg("not as before after death at %lu:\n%s", at, text);
	}
	session_go(h, 100);
	harness_end(h, 0);
}

/* As a mutator that dies: so many arenas are found, and none stays. */
static void die_and_clean(struct harness *h, struct session *s, size_t arenas)
{
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;

	session_free(s);
	if (target_open(h->pid, &t, &e) < 0 || leftovers_clean(t, 60000, &left, &e) < 0)
		fail_msg("%s", e.text);
	target_close(t);
	assert_int_equal(left.arenas, arenas);
	assert_int_equal(left.arenas_left, 0);
}

/*
 * fear B8, J2: the mutator is killed when a private arena is there and nothing has been written into it yet,
 * which may be long: that is found, and goes
 */
static void test_death_before_anything_is_written(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct session *s;
	struct place *p;
	char text[4096];

	harness_start(h, "calls", "2", NULL);
	s = session_begin(h);
	s->private_arenas = true;
	if (place_for(s, module_get(s->modules, 0), &p, NULL, &e) < 0)
		fail_msg("%s", e.text);
	die_and_clean(h, s, 1);
	if (harness_differences(h->before, HARNESS_ALL, text, sizeof(text)))
		fail_msg("not as before:\n%s", text);
	harness_end(h, 0);
}

/*
 * fear B8, J2: the mutator is killed when there are many private arenas, which the kernel shows as one mapping where
 * they touch: each is found, and nothing leads to any of them when they go
 */
static void test_death_with_many(void **state)
{
	enum { MANY = 12 };
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct session *s;
	struct place *p;
	char text[4096];

	harness_start(h, "calls", "2", NULL);
	s = session_begin(h);
	s->private_arenas = true;
	for (int i = 0; i < MANY; i++) {
		if (place_for(s, module_get(s->modules, 0), &p, NULL, &e) < 0)
			fail_msg("%s", e.text);
		session_insert(s, i % 2 ? "many" : "/Code/calls/*");
		p->full = i + 1 < MANY;
	}
	session_insert_kind(s, "/Code/calls/*", POINT_EXIT);
	harness_send(h, "go 100000\n");
	die_and_clean(h, s, MANY);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	if (harness_differences(h->before, HARNESS_ALL, text, sizeof(text)))
		fail_msg("not as before:\n%s", text);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_exact_counts),
		CASE(test_undo_comes_first),
		CASE(test_emulated),
		CASE(test_second_snippet),
		CASE(test_churn),
		CASE(test_one_of_two),
		CASE(test_limit),
		CASE(test_deaths),
		CASE(test_death_before_anything_is_written),
		CASE(test_death_with_many),
	};

	return cmocka_run_group_tests_name("live/private", tests, NULL, NULL);
}
