/* SPDX-License-Identifier: MIT */
/*
 * pairing.c - entries and exits of a program that leaves its functions in every
 * way there is: at quiet moments, what is said to be alive is what is.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mutator/threads_private.h"
#include "tests/live/harness_session.h"
#include "tests/live/harness_thread.h"

enum { THREADS = 3 };

static const struct raw_metric pairs = {
	.name = "pairs",
	.unit = "activations",
	.constraints = "/Code",
	.kind = POINT_ENTRY,
	.snippet = SNIPPET_ENTER,
};

static struct session *begin(struct harness *h)
{
	harness_start(h, "paired", harness_number(THREADS), NULL);
	return session_begin(h);
}

static void end(struct harness *h, struct session *s)
{
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

static const struct instance *pair(struct session *s, const char *focus)
{
	const struct instance *i = session_insert_raw(s, &pairs, focus);

	if (i->refused_count && !strchr(focus, '*'))
		fail_msg("%s: %s", i->refused[0].where, refusal_name(i->refused[0].refusal));
	for (int turn = 0; turn < 50000 && session_pending(s, i->id); turn++) {
		request_retry_pending(s);
		usleep(2000);
	}
	assert_int_equal(session_pending(s, i->id), 0);
	return i;
}

static void unpair(struct session *s, const struct instance *i)
{
	session_remove(s, i->id);
}

static void tell(struct harness *h, const char *command, const char *answer)
{
	harness_send(h, command);
	harness_send(h, "\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), answer);
}

#define expect_all(s, i, entries, exits, alive) \
	expect_at(__FILE__, __LINE__, s, i, entries, exits, alive)

static void expect_at(const char *file, int line, struct session *s, const struct instance *i,
		      uint64_t entries, uint64_t exits, uint64_t alive)
{
	struct threads_statistics statistics;
	uint64_t found[] = {instance_value(i), instance_exits(i), threads_alive(s, i)};

	/* A thread that has answered may still be on its way to where it waits. */
	for (int turn = 0; turn < 50000 && found[2] != alive; turn++) {
		usleep(2000);
		found[2] = threads_alive(s, i);
	}
	if (found[0] == entries && found[1] == exits && found[2] == alive)
		return;
	threads_statistics(s, &statistics);
	print_error("lost %llu, overflow %llu, orphans %llu\n", (unsigned long long)statistics.lost,
		    (unsigned long long)statistics.overflow,
		    (unsigned long long)statistics.orphans);
	print_error("%s:%d: %s: %llu entries, %llu exits, %llu alive, not %llu, %llu, %llu\n", file,
		    line, i->focus, (unsigned long long)found[0], (unsigned long long)found[1],
		    (unsigned long long)found[2], (unsigned long long)entries,
		    (unsigned long long)exits, (unsigned long long)alive);
	fail();
}

static void expect_statistics(struct session *s, uint64_t lost, uint64_t overflow)
{
	struct threads_statistics found;

	threads_statistics(s, &found);
	assert_int_equal(found.lost, lost);
	assert_int_equal(found.overflow, overflow);
}

/* ------------------------------------------------------- ordinary leaving */

/* fear E4: recursion: each activation is left as often as it was entered */
static void test_recursion(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	const struct instance *fib = pair(s, "fib"), *even = pair(s, "even"), *odd = pair(s, "odd");

	tell(h, "fib 15", "done");
	expect_all(s, fib, THREADS * 1973, THREADS * 1973, 0);
	tell(h, "mutual 101", "done");
	expect_all(s, even, THREADS * 51, THREADS * 51, 0);
	expect_all(s, odd, THREADS * 51, THREADS * 51, 0);
	tell(h, "mutual 6", "done");
	expect_all(s, even, THREADS * 55, THREADS * 55, 0);
	expect_all(s, odd, THREADS * 54, THREADS * 54, 0);
	expect_statistics(s, 0, 0);
	end(h, s);
}

/* Deeper than records are: everything is counted, what is not kept is said. */
static void test_deep_recursion(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	const struct instance *even = pair(s, "even"), *odd = pair(s, "odd");
	const unsigned kept = PAIR_HOME / 2, deep = 1001;

	tell(h, "mutual 2001", "done");
	expect_all(s, even, THREADS * deep, THREADS * kept, 0);
	expect_all(s, odd, THREADS * deep, THREADS * kept, 0);
	expect_statistics(s, 0, THREADS * 2 * (deep - kept));
	end(h, s);
}

/* fear E5: functions that end by jumping to each other: each is left as often as it was entered */
static void test_tail_calls(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	const struct instance *a = pair(s, "tail_a"), *b = pair(s, "tail_b");

	tell(h, "tail 9", "done");
	expect_all(s, a, THREADS * 5, THREADS * 5, 0);
	expect_all(s, b, THREADS * 5, THREADS * 5, 0);
	end(h, s);
}

/* Two requests for one function are two answers. */
static void test_two_requests(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	const struct instance *one = pair(s, "fib"), *two;

	tell(h, "fib 10", "done");
	two = pair(s, "fib");
	tell(h, "fib 10", "done");
	expect_all(s, one, THREADS * 354, THREADS * 354, 0);
	expect_all(s, two, THREADS * 177, THREADS * 177, 0);
	unpair(s, one);
	tell(h, "fib 10", "done");
	expect_all(s, two, THREADS * 354, THREADS * 354, 0);
	end(h, s);
}

/* ------------------------------------------------------ left without exit */

/* fear E3: functions left by longjmp are no longer alive at the next event, and nothing piles up */
static void test_longjmp(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	const struct instance *jumper = pair(s, "jumper"), *base = pair(s, "jump_base"),
			      *leaf = pair(s, "fib");

	tell(h, "jump 100 20", "done");
	expect_all(s, base, THREADS * 100, THREADS * 100, 0);
	expect_all(s, jumper, THREADS * 2000, 0, 0);
	tell(h, "fib 2", "done");
	expect_all(s, leaf, THREADS * 3, THREADS * 3, 0);
	expect_statistics(s, 0, 0);
	end(h, s);
}

/* fear E3: the same for exceptions, 10,000 of them through twelve frames each: nothing piles up */
static void test_exceptions(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	const struct instance *thrower = pair(s, "thrower"), *catcher = pair(s, "catcher");

	tell(h, "throw 50 12", "done");
	expect_all(s, catcher, THREADS * 50, THREADS * 50, 0);
	expect_all(s, thrower, THREADS * 600, 0, 0);
	tell(h, "throw 3400 12", "done");
	expect_all(s, catcher, THREADS * 3450, THREADS * 3450, 0);
	expect_all(s, thrower, THREADS * 3450 * 12, 0, 0);
	expect_statistics(s, 0, 0);
	end(h, s);
}

/* Nobody above is paired: what was left is known by where the thread is. */
/* fear E3: left all the way to where nobody above is measured */
static void test_left_to_the_outermost(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	const struct instance *thrower = pair(s, "thrower"), *jumper = pair(s, "jumper");

	for (int turn = 0; turn < 3; turn++) {
		tell(h, "throw 5 12", "done");
		tell(h, "jump 5 3", "done");
	}
	expect_all(s, thrower, THREADS * 180, 0, 0);
	expect_all(s, jumper, THREADS * 45, 0, 0);
	expect_statistics(s, 0, 0);
	end(h, s);
}

/* -------------------------------------------------------------- handlers */

static void test_handlers(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	const struct instance *handled = pair(s, "handled"), *base = pair(s, "signal_base"),
			      *on_signal = pair(s, "on_signal"), *on_jump = pair(s, "on_jump"),
			      *on_nested = pair(s, "on_nested");

	tell(h, "signal 200", "done");
	expect_all(s, base, THREADS * 200, THREADS * 200, 0);
	expect_all(s, on_signal, THREADS * 200, THREADS * 200, 0);
	expect_all(s, handled, THREADS * 800, THREADS * 800, 0);
	tell(h, "nested 100", "done");
	expect_all(s, on_nested, THREADS * 300, THREADS * 300, 0);
	expect_all(s, handled, THREADS * 1400, THREADS * 1400, 0);
	tell(h, "sigjump 100", "done");
	expect_all(s, base, THREADS * 400, THREADS * 400, 0);
	expect_all(s, handled, THREADS * 1700, THREADS * 1700, 0);
	/* One of each thread may still stand on its alternate stack: nobody can tell. */
	assert_int_equal(instance_value(on_jump), THREADS * 100);
	assert_int_equal(instance_exits(on_jump), 0);
	assert_in_range(threads_alive(s, on_jump), 0, THREADS);
	expect_statistics(s, 0, 0);
	end(h, s);
}

/* ---------------------------------------------------------------- threads */

/* fear E3, D7: threads that end by pthread_exit or cancellation inside of functions */
static void test_threads(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	const struct instance *starter = pair(s, "starter"), *end_here = pair(s, "end_here"),
			      *wait_here = pair(s, "wait_here");
	uint64_t cancelled;

	tell(h, "start 300", "done");
	expect_all(s, starter, 300, 300, 0);
	tell(h, "exit 50 7", "done");
	expect_all(s, end_here, 350, 0, 0);
	tell(h, "cancel 20 6", "done");
	cancelled = instance_value(wait_here);
	/* Some may have been cancelled before they called anything. */
	assert_true(cancelled % 6 == 0 && cancelled <= 120);
	expect_all(s, wait_here, cancelled, 0, 0);
	/* Where those were that ended, new ones begin with nothing. */
	tell(h, "start 50", "done");
	expect_all(s, starter, 350, 350, 0);
	expect_statistics(s, 0, 0);
	end(h, s);
}

static unsigned threads_of(pid_t pid)
{
	return (unsigned)atoi(harness_status(pid, pid, "Threads:"));
}

/* Ten thousand threads, few at a time: the table does not fill. */
/* fear D7: ten thousand threads, few at a time: records are given back */
static void test_many_short_threads(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	const struct instance *starter = pair(s, "starter"), *leaf = pair(s, "leaf");
	struct threads_statistics found;

	tell(h, "start 10000", "done");
	expect_all(s, starter, 10000, 10000, 0);
	expect_all(s, leaf, 10000, 10000, 0);
	threads_statistics(s, &found);
	assert_int_equal(found.lost, 0);
	assert_in_range(found.used, 1, 64);
	unpair(s, leaf);
	/* One that was joined may not have ended yet, for the kernel. */
	harness_until(threads_of(h->pid) == THREADS + 1);
	session_flush_all(s);
	/* Of those that have ended nothing is kept. */
	threads_statistics(s, &found);
	assert_in_range(found.used, 0, THREADS + 1);
	end(h, s);
}

/* ----------------------------------------------------------- quiet moments */

static void test_alive(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	const struct instance *sitter = pair(s, "sitter"), *late;

	tell(h, "sit 5", "sitting");
	expect_all(s, sitter, THREADS * 5, 0, THREADS * 5);
	/* They have been entered without us: their exits change nothing. */
	late = pair(s, "sitter");
	expect_all(s, late, 0, 0, 0);
	tell(h, "stand", "done");
	expect_all(s, sitter, THREADS * 5, THREADS * 5, 0);
	expect_all(s, late, 0, 0, 0);
	tell(h, "sit 3", "sitting");
	expect_all(s, late, THREADS * 3, 0, THREADS * 3);
	unpair(s, sitter);
	expect_all(s, late, THREADS * 3, 0, THREADS * 3);
	tell(h, "stand", "done");
	expect_all(s, late, THREADS * 3, THREADS * 3, 0);
	end(h, s);
}

/* A number that comes back to another request finds nothing of the one before. */
static void test_numbers_are_used_again(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	const struct instance *sitter = pair(s, "sitter"), *again;
	const uint32_t number = sitter->pair_ids[0];

	tell(h, "sit 5", "sitting");
	expect_all(s, sitter, THREADS * 5, 0, THREADS * 5);
	unpair(s, sitter);
	/* As if all others were in use. */
	for (uint32_t id = 1; id <= PAIR_ID_MASK; id++)
		if (s->threads->ids[id] == ID_FREE)
			s->threads->ids[id] = ID_TAKEN;
	again = pair(s, "sitter");
	assert_int_equal(again->pair_ids[0], number);
	expect_all(s, again, 0, 0, 0);
	tell(h, "stand", "done");
	expect_all(s, again, 0, 0, 0);
	tell(h, "sit 2", "sitting");
	expect_all(s, again, THREADS * 2, 0, THREADS * 2);
	tell(h, "stand", "done");
	expect_all(s, again, THREADS * 2, THREADS * 2, 0);
	end(h, s);
}

/* Takes all of the heap. */
static size_t fill(struct heap *heap, taddr_t *pieces, size_t room)
{
	struct dinst_error e = {0};
	size_t count = 0;

	for (size_t size = 1 << 20; size >= 16; size -= size > 4096 ? size / 2 : 16)
		while (count + 1 < room && (!heap_alloc_code(heap, size, &pieces[count], &e) ||
					    !heap_alloc_cold(heap, size, &pieces[count], &e)))
			count++;
	assert_true(count + 1 < room);
	return count;
}

/*
 * fear E3, J7: there is no room for the code without the one that was removed: so long it is entered by
 * its number, which nobody else is given
 */
static void test_numbers_in_a_full_heap(void **state)
{
	enum { ROOM = 1 << 16 };
	struct harness *h = *state;
	taddr_t *pieces = calloc(ROOM, sizeof(*pieces));
	struct session *s = begin(h);
	const struct instance *sitter = pair(s, "sitter");
	struct instance *other = (struct instance *)pair(s, "sitter");
	const uint32_t number = sitter->pair_ids[0];
	struct heap *heap = s->places->heap;
	struct dinst_error e = {0};
	size_t count;
	uint32_t id;

	session_flush_all(s);
	count = fill(heap, pieces, ROOM);
	unpair(s, sitter);
	assert_non_null(s->changed);
	for (uint32_t n = 1; n <= PAIR_ID_MASK; n++)
		if (s->threads->ids[n] == ID_FREE)
			s->threads->ids[n] = ID_TAKEN;
	assert_int_equal(threads_take_id(s, other, &id, &e), DINST_BUSY);
	while (count--)
		heap_free_code(heap, pieces[count]);
	free(pieces);
	assert_int_equal(threads_take_id(s, other, &id, &e), 0);
	assert_int_equal(id, number);
	tell(h, "sit 5", "sitting");
	expect_all(s, other, THREADS * 5, 0, THREADS * 5);
	tell(h, "stand", "done");
	end(h, s);
}

/* fear J7: an arena that is full of what is used: what is inserted next goes into another one */
static void test_full_heap(void **state)
{
	enum { ROOM = 1 << 16 };
	struct harness *h = *state;
	taddr_t *pieces = calloc(ROOM, sizeof(*pieces));
	struct session *s = begin(h);
	const struct instance *even = pair(s, "even"), *fib;
	struct place *old = s->places;
	size_t count = fill(old->heap, pieces, ROOM);

	fib = pair(s, "fib");
	assert_ptr_not_equal(s->places, old);
	assert_ptr_equal(s->places->next, old);
	tell(h, "fib 15", "done");
	expect_all(s, fib, THREADS * 1973, THREADS * 1973, 0);
	unpair(s, fib);
	unpair(s, even);
	while (count--)
		heap_free_code(old->heap, pieces[count]);
	free(pieces);
	end(h, s);
}

/* fear E3, H5: coroutines that are left, gone on with, and abandoned */
static void test_coroutines(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	const struct instance *deep = pair(s, "fiber_deep"), *change = pair(s, "fiber_switch"),
			      *begins = pair(s, "fiber_start"), *sitter = pair(s, "sitter");

	for (unsigned turn = 1; turn < 4; turn++) {
		tell(h, "fibers 8 4", "sitting");
		expect_all(s, deep, turn * THREADS * 24, (turn - 1) * THREADS * 24, THREADS * 24);
		expect_all(s, change, turn * THREADS * 8, (turn - 1) * THREADS * 8, THREADS * 8);
		expect_all(s, begins, turn * THREADS * 8, (turn - 1) * THREADS * 8, THREADS * 8);
		tell(h, "end", "done");
		expect_all(s, deep, turn * THREADS * 24, turn * THREADS * 24, 0);
		expect_all(s, change, turn * THREADS * 8, turn * THREADS * 8, 0);
		expect_all(s, begins, turn * THREADS * 8, turn * THREADS * 8, 0);
	}
	tell(h, "sit 2", "sitting");
	expect_all(s, sitter, THREADS * 2, 0, THREADS * 2);
	tell(h, "stand", "done");
	expect_statistics(s, 0, 0);
	end(h, s);
}

/* --------------------------------------------------------------- processes */

/* Of a child that somebody else traces, as of one that is frozen, it is told, too. */
static void expect_traced_alike(struct session *s, const struct instance *i, uint64_t alive)
{
	pid_t *pids = NULL;
	size_t count = 0;

	assert_true(threads_find_family(s, &pids, &count) && count == 1);
	thread_seize(pids[0]);
	assert_int_equal(threads_alive(s, i), alive);
	thread_let_go(pids[0]);
	free(pids);
}

static void test_children(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	const struct instance *forker = pair(s, "forker"), *leaf = pair(s, "leaf"),
			      *vforker = pair(s, "vforker"), *sitter = pair(s, "sitter");

	/* A child leaves forker() too: the parent has counted it. */
	tell(h, "fork 20", "done");
	expect_all(s, forker, 20, 20, 0);
	expect_all(s, leaf, 200, 200, 0);
	tell(h, "vfork 20", "done");
	expect_all(s, vforker, 20, 20, 0);
	expect_all(s, leaf, 220, 220, 0);
	/* What a child has entered is alive in it. */
	tell(h, "linger", "done");
	expect_all(s, sitter, 3, 0, 3);
	expect_traced_alike(s, sitter, 3);
	tell(h, "sit 2", "sitting");
	expect_all(s, sitter, 3 + THREADS * 2, 0, 3 + THREADS * 2);
	tell(h, "unlinger", "done");
	expect_all(s, sitter, 3 + THREADS * 2, 3, THREADS * 2);
	tell(h, "stand", "done");
	expect_all(s, sitter, 3 + THREADS * 2, 3 + THREADS * 2, 0);
	expect_statistics(s, 0, 0);
	end(h, s);
}

/* -------------------------------------------------------- coming and going */

/* All functions of the program in and out, while one stays. */
static void churn(struct harness *h, struct session *s)
{
	const struct instance *fib = pair(s, "fib"), *jumper = pair(s, "jumper"),
			      *base = pair(s, "jump_base");
	static const char go[] = "go 3000\n";
	unsigned rounds = 3000;

	harness_send(h, go);
	for (int turn = 0; turn < 25; turn++) {
		const struct instance *all = pair(s, "/Code/paired/*");

		usleep(2000);
		unpair(s, all);
		if (turn % 3 == 0)
			session_flush_all(s);
		rounds += 3000 * harness_again(h, go);
	}
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	expect_all(s, fib, THREADS * rounds * 67, THREADS * rounds * 67, 0);
	expect_all(s, jumper, THREADS * rounds * 4, 0, 0);
	expect_all(s, base, THREADS * rounds, THREADS * rounds, 0);
}

static void test_churn(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);

	churn(h, s);
	end(h, s);
}

static void test_churn_in_private_memory(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);

	s->private_arenas = true;
	churn(h, s);
	end(h, s);
}

/* Program and C library, entries and exits of everything. */
static void test_everything(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	const struct instance *program = pair(s, "/Code/paired/*"),
			      *library = pair(s, "/Code/libc.so.6/*"), *fib;

	fib = pair(s, "fib");
	tell(h, "go 200", "done");
	tell(h, "start 50", "done");
	tell(h, "exit 20 5", "done");
	tell(h, "cancel 10 5", "done");
	tell(h, "fork 5", "done");
	tell(h, "vfork 5", "done");
	tell(h, "fibers 4 4", "sitting");
	tell(h, "end", "done");
	expect_all(s, fib, THREADS * 200 * 67, THREADS * 200 * 67, 0);
	assert_true(instance_exits(program) > THREADS * 200 * 100);
	assert_true(instance_exits(library) > THREADS * 200 * 10);
	assert_true(instance_value(program) >= instance_exits(program));
	assert_true(instance_value(library) >= instance_exits(library));
	expect_statistics(s, 0, 0);
	end(h, s);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_recursion),
		CASE(test_deep_recursion),
		CASE(test_tail_calls),
		CASE(test_two_requests),
		CASE(test_longjmp),
		CASE(test_exceptions),
		CASE(test_left_to_the_outermost),
		CASE(test_handlers),
		CASE(test_threads),
		CASE(test_many_short_threads),
		CASE(test_alive),
		CASE(test_numbers_are_used_again),
		CASE(test_numbers_in_a_full_heap),
		CASE(test_full_heap),
		CASE(test_coroutines),
		CASE(test_children),
		CASE(test_churn),
		CASE(test_churn_in_private_memory),
		CASE(test_everything),
	};

	return cmocka_run_group_tests_name("live/pairing", tests, NULL, NULL);
}
