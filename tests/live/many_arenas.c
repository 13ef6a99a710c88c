/* SPDX-License-Identifier: MIT */
/*
 * many_arenas.c - a session that has more arenas than one: which of them is used, how many there
 * may be, and that all go together after our death. Arenas are said to be full for that.
 */
#include "tests/live/harness_session.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 2, ROUNDS = 3, DIES_AT = 20, DEATHS = 2 };

/* Events of a function each: both use the rings, which are in the arena of whoever came first. */
static int load_streams(struct session *s, const char *first, const char *second,
			struct dinst_error *e)
{
	static const char *const names[] = {"first", "second"};
	const char *const functions[] = {first, second};
	char text[400];
	int status = 0;

	for (int i = 0; i < 2 && status >= 0; i++) {
		snprintf(text, sizeof(text),
			 "metric %s { name \"%s\"; units events; style EventCounter;\n"
			 "	base is stream { foreach f in of_%s\n"
			 "		append preInsn f.entry (* record(%s, $arg[0]); *) } }\n"
			 "list of_%s is procedure { items { \"%s\" }; }\n",
			 names[i], names[i], names[i], names[i], names[i], functions[i]);
		status = session_load_mdl(s, names[i], text, strlen(text), e);
	}
	return status;
}

static void fill(struct session *s, bool full)
{
	for (struct place *p = s->places; p; p = p->next)
		p->full = full;
}

static size_t count_places(const struct session *s)
{
	size_t count = 0;

	for (const struct place *p = s->places; p; p = p->next)
		count++;
	return count;
}

/* The place of a site of that instance. */
static const struct place *place_of(struct session *s, unsigned id)
{
	const struct instance *i = session_instance(s, id);

	assert_non_null(i);
	assert_non_null(i->links);
	return i->links->site->place;
}

static const char *part(unsigned number)
{
	static char name[16];

	snprintf(name, sizeof(name), "part_%03x", number);
	return name;
}

static struct session *begin(struct harness *h)
{
	harness_start(h, "fragments", harness_number(THREADS), NULL);
	session_go(h, 1);
	return session_begin(h);
}

static void end(struct harness *h, struct session *s)
{
	session_end(s);
	harness_verify(h);
	session_go(h, 1);
	harness_end(h, 0);
}

/* fear J7: what has room in the first arena goes there, also when there are others by then */
static void test_oldest_first(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned ids[3];

	ids[0] = session_insert(s, part(0));
	fill(s, true);
	ids[1] = session_insert(s, part(1));
	fill(s, false);
	ids[2] = session_insert(s, part(2));
	assert_int_equal(count_places(s), 2);
	assert_ptr_equal(place_of(s, ids[1]), s->places);
	assert_ptr_equal(place_of(s, ids[0]), s->places->next);
	assert_ptr_equal(place_of(s, ids[2]), s->places->next);
	session_go(h, ROUNDS);
	for (int i = 0; i < 3; i++)
		assert_int_equal(session_value(s, ids[i]), THREADS * ROUNDS);
	end(h, s);
}

/*
 * fear J7: a small module that comes first gets an arena in which there is no room for a large one that comes
 * next: libcrypto's functions could have one metric with state, and the second was refused for want of memory
 */
static void test_small_first(void **state)
{
	struct harness *h = *state;
	const struct module *libc, *loader;
	unsigned small, large;
	struct session *s;

	harness_start(h, "confined", harness_number(THREADS), NULL);
	s = session_begin(h);
	small = session_insert(s, "/Code/ld-linux-x86-64.so.2/_dl_allocate_tls");
	large = session_insert(s, "/Code/libc.so.6/qsort*");
	libc = module_named(s->modules, "libc.so.6");
	loader = module_named(s->modules, "ld-linux-x86-64.so.2");
	assert_non_null(libc);
	assert_non_null(loader);
	assert_true(libc->hi - libc->lo > 4 * (loader->hi - loader->lo));
	assert_ptr_equal(place_of(s, small), place_of(s, large));
	assert_int_equal(s->places->arena->mode, ARENA_SHARED);
	assert_true(s->places->arena->code_size > ((size_t)64 << 20));
	end(h, s);
}

/* fear J7: the most that was in use at a time is told for all arenas together, not for each by itself */
static void test_most_at_a_time(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	struct heap_stats one, both, after;
	unsigned first = session_insert(s, "part_0*"), second;

	session_heap(s, &one);
	assert_int_equal(one.high_water, one.used);
	assert_int_equal(one.counter_most, one.counter_bytes);
	session_remove(s, first);
	session_flush_all(s);
	fill(s, true);
	second = session_insert(s, "part_0*");
	session_heap(s, &both);
	assert_int_equal(count_places(s), 2);
	/* The first one's routines and tables stay. */
	assert_true(both.used < 2 * one.used);
	assert_int_equal(both.high_water, both.used > one.used ? both.used : one.used);
	session_remove(s, second);
	session_flush_all(s);
	session_heap(s, &after);
	assert_true(after.used < both.used);
	assert_int_equal(after.high_water, both.high_water);
	assert_int_equal(after.counter_most, both.counter_most);
	end(h, s);
}

/* fear J7, B7: there are no more arenas than are taken out together after a death; then it is refused */
static void test_no_more(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned ids[ARENAS_MOST], count = 0;
	struct dinst_error e = {0};
	int status = 0;

	while (count < ARENAS_MOST) {
		fill(s, true);
		status = session_insert_patiently(s, part(count), &ids[count], &e);
		if (status < 0)
			break;
		count++;
	}
	assert_int_equal(status, DINST_NO_MEMORY);
	assert_non_null(strstr(e.text, "arenas of ours"));
	assert_in_range(count, ARENAS_MOST / 2, ARENAS_MOST - 1);
	assert_int_equal(count_places(s), count);
	session_go(h, ROUNDS);
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(session_value(s, ids[i]), THREADS * ROUNDS);
	/* There is room again once something is free. */
	session_remove(s, ids[0]);
	session_flush_all(s);
	session_insert(s, part(count));
	end(h, s);
}

/* Takes all of the heap but `spare` pieces of what pages are handed out in for small ones. */
static size_t fill_heap(struct heap *heap, taddr_t *pieces, size_t room, size_t spare)
{
	enum { SLAB = 4 * 4096 };
	struct dinst_error e = {0};
	size_t count = 0;

	for (size_t size = SLAB; size >= 16; size -= size > 4096 ? 4096 : 16) {
		while (count + 1 < room && !heap_alloc_code(heap, size, &pieces[count], &e))
			count++;
		while (count + 1 < room && !heap_alloc_cold(heap, size, &pieces[count], &e))
			count++;
	}
	assert_true(count + 1 < room && count > spare);
	for (size_t i = 0; i < spare; i++) {
		heap_free_code(heap, pieces[i]);
		pieces[i] = pieces[--count];
	}
	return count;
}

/*
 * fear J7: an arena is full but for a few pages: what a request adds to what is there goes in, and what is new goes to
 * another arena, whichever comes first. Where not even what is added has room that is said, and nothing is changed.
 */
static void test_crowded(void **state)
{
	enum { ROOM = 1 << 16, OTHERS = 2047, SPARE = 3 };
	taddr_t *pieces = calloc(ROOM, sizeof(*pieces));
	struct harness *h = *state;
	struct session *s = begin(h);
	struct dinst_error e = {0};
	unsigned first = session_insert(s, part(0)), all;
	struct heap *heap = s->places->heap;
	size_t count = fill_heap(heap, pieces, ROOM, 0);

	assert_int_equal(session_insert_patiently(s, "part_*", &all, &e), DINST_NO_MEMORY);
	assert_non_null(strstr(e.text, "is full, and what is inserted in some of these functions"));
	session_go(h, ROUNDS);
	while (count)
		heap_free_code(heap, pieces[--count]);
	count = fill_heap(heap, pieces, ROOM, SPARE);
	all = session_insert(s, "part_*");
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, first), 2 * THREADS * ROUNDS);
	assert_int_equal(session_value(s, all), (OTHERS + 1) * THREADS * ROUNDS);
	while (count)
		heap_free_code(heap, pieces[--count]);
	free(pieces);
	end(h, s);
}

static int insert_patiently(struct session *s, const char *metric, const char *focus,
			    struct dinst_error *e)
{
	struct insert_result result;
	int status;

	do {
		dinst_error_clear(e);
		status = request_insert(s, metric, focus ? &focus : NULL, focus != NULL, NULL,
					&result, e);
	} while (status == DINST_BUSY);
	if (status >= 0)
		free(result.instances);
	return status;
}

/* The rings are in the second arena, and the first one's code uses them. */
static int insert_streams(struct session *s, const char *in_the_first, struct dinst_error *e)
{
	int status = insert_patiently(s, "calls", in_the_first, e);

	fill(s, true);
	if (status >= 0)
		status = insert_patiently(s, "first", NULL, e);
	fill(s, false);
	return status < 0 ? status : insert_patiently(s, "second", NULL, e);
}

static void stream_and_die(pid_t pid)
{
	struct dinst_error e = {0};
	struct session *s;

	alarm(600);
	if (session_attach(pid, "doomed", &s, &e) < 0)
		_exit(3);
	if (load_streams(s, "part_001", "part_000", &e) < 0 ||
	    insert_streams(s, "part_000", &e) < 0 || count_places(s) != 2)
		_exit(4);
	kill(getpid(), SIGKILL);
}

static void live_and_die(pid_t pid)
{
	struct dinst_error e = {0};
	struct session *s;

	alarm(600);
	if (session_attach(pid, "doomed", &s, &e) < 0)
		_exit(3);
	for (unsigned i = 0; i < DIES_AT; i++) {
		fill(s, true);
		if (insert_patiently(s, "latency", part(i), &e) < 0)
			_exit(4);
	}
	kill(getpid(), SIGKILL);
}

/* A mutator dies so while the program runs in all that it has inserted, and all of that goes. */
static void die_and_clean(struct harness *h, void (*die)(pid_t pid), size_t least)
{
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;
	int status;
	pid_t child;

	harness_start(h, "fragments", harness_number(THREADS), NULL);
	session_go(h, 1);
	harness_send(h, "run\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "running");
	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (!child)
		die(h->pid);
	assert_int_equal(waitpid(child, &status, 0), child);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		fail_msg("the mutator ended with %x", (unsigned)status);
	if (target_open(h->pid, &t, &e) < 0 || leftovers_clean(t, 60000, &left, &e) < 0)
		fail_msg("%s", e.text);
	target_close(t);
	assert_in_range(left.arenas, least, ARENAS_MOST);
	assert_int_equal(left.arenas_left, 0);
	harness_send(h, "stop\n");
	assert_memory_equal(harness_line(h, HARNESS_ANSWER_MS), "done", 4);
	harness_verify(h);
	session_go(h, 1);
	harness_end(h, 0);
}

/* fear J2, J7: killed with twenty arenas, whose code uses the state of threads in one of them */
static void test_death(void **state)
{
	die_and_clean(*state, live_and_die, DIES_AT);
}

/* fear J2: killed with two arenas, where code in one writes events into rings in the other */
static void test_death_of_streams(void **state)
{
	if (!harness_has_clock(false))
		skip();
	for (int i = 0; i < DEATHS; i++)
		die_and_clean(*state, stream_and_die, 2);
}

/*
 * fear G1: a child that has the arena of a function, and not the one with the rings that the function's code
 * is to write to: it would run into nothing, so that is refused
 */
static void test_child_without_rings(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct session *s;

	if (!harness_has_clock(false))
		skip();
	harness_start(h, "confined", harness_number(THREADS), NULL);
	s = session_begin(h);
	assert_int_equal(load_streams(s, "other", "step", &e), 0);
	session_insert(s, "step");
	harness_send(h, "child plain\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "taken");
	assert_int_equal(insert_streams(s, "step", &e), DINST_REFUSED);
	assert_non_null(strstr(e.text, "was forked from"));
	session_go(h, ROUNDS);
	session_end(s);
	harness_verify(h);
	session_go(h, ROUNDS);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_oldest_first),     CASE(test_small_first),
		CASE(test_most_at_a_time),   CASE(test_no_more),
		CASE(test_crowded),	     CASE(test_death),
		CASE(test_death_of_streams), CASE(test_child_without_rings),
	};

	return cmocka_run_group_tests_name("live/many_arenas", tests, NULL, NULL);
}
