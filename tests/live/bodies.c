/* SPDX-License-Identifier: MIT */
/*
 * bodies.c - the code of a site is written anew at each change, while threads
 * run through it: what is given back is used again at once, and descriptors of
 * sequences with it; and what happens when there is no room for a new body.
 */
#include "tests/live/harness_session.h"

#include <linux/rseq.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "tests/live/harness_thread.h"

enum { THREADS = 6 };

/* What has been freed is filled with what is neither code nor a descriptor. */
static void spoil(struct heap *heap)
{
	enum { PIECES = 24 };
	struct dinst_error e = {0};
	taddr_t pieces[PIECES];

	for (size_t size = 64; size <= 160; size += 32)
		for (unsigned cold = 0; cold < 2; cold++) {
			size_t count = 0;

			while (count < PIECES &&
			       !(cold ? heap_alloc_cold(heap, size, &pieces[count], &e)
				      : heap_alloc_code(heap, size, &pieces[count], &e)))
				memset(heap_map(heap, pieces[count++], size), 0xff, size);
			while (count--)
				heap_free_code(heap, pieces[count]);
		}
}

/*
 * fear B6, J7: each turn leaves a body behind and flushes it; then something else is written
 * there. A thread whose rseq_cs still led there would be killed by the kernel
 * when it is next preempted, and so would one that is inside.
 */
static void test_freed_under_threads(void **state)
{
	enum { TURNS = 600, CALLS = 300000 };
	static const char go[] = "go 300000\n";
	struct harness *h = *state;
	struct session *s;
	struct flush_result flushed;
	struct dinst_error e = {0};
	size_t freed = 0, heap_early = 0;
	unsigned kept, other, rounds = 1;

	harness_limit(600);
	harness_start(h, "calls", harness_number(THREADS), NULL);
	s = session_begin(h);
	kept = session_insert_kind(s, "tiny", POINT_ENTRY);
	other = session_insert_kind(s, "leaf", POINT_ENTRY);
	harness_send(h, go);
	for (int turn = 0; turn < TURNS; turn++) {
		unsigned id = session_insert_kind(s, turn % 2 ? "tiny" : "leaf", POINT_ENTRY);

		session_remove(s, id);
		assert_int_equal(removal_flush(s, &flushed, &e), 0);
		freed += flushed.freed;
		spoil(s->places->heap);
		if (turn == 50)
			heap_early = session_heap_bytes(s);
		rounds += harness_again(h, go);
	}
	session_flush_all(s);
	/* Each turn left bodies, and the heap has not grown by them. */
	assert_true(freed > TURNS);
	assert_true(session_heap_bytes(s) <= heap_early);
	assert_string_equal(harness_line(h, 150000), "done");
	assert_int_equal(session_value(s, kept), (uint64_t)rounds * THREADS * CALLS);
	assert_true(session_value(s, other) > 0);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* Descriptors in the arena, of sequences that a thread has left, and that it stands in. */
struct pointing {
	taddr_t left, inside;
	taddr_t words
		[2]; /* rseq_cs of one thread that points to the former, and of one to the latter */
};

static taddr_t describe(struct heap *heap, taddr_t start)
{
	struct rseq_cs *cs;
	struct dinst_error e = {0};
	taddr_t at;

	assert_int_equal(heap_alloc_code(heap, sizeof(*cs), &at, &e), 0);
	cs = heap_map(heap, at, sizeof(*cs));
	*cs = (struct rseq_cs){.start_ip = start, .post_commit_offset = 16, .abort_ip = start + 64};
	return at;
}

static int point_to_descriptors(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct session *s = ((void **)arg)[0];
	struct pointing *p = ((void **)arg)[1];
	size_t n = 0;

	for (size_t i = 0; i < stop_thread_count(stop) && n < 2; i++) {
		const struct stop_thread *t = stop_thread(stop, i);
		taddr_t *at = n ? &p->inside : &p->left;

		if (!t->rseq)
			continue;
		*at = describe(s->places->heap, n ? arch_pc(&t->regs) : s->places->arena->code);
		p->words[n] = t->rseq + offsetof(struct rseq, rseq_cs);
		if (stop_write(stop, p->words[n++], at, sizeof(*at), e))
			return e->code;
	}
	return 0;
}

/*
 * fear B6: nobody's rseq_cs leads into what a flush may give back, but of who stands in the sequence:
 * the process is stopped all the while, so that the kernel does not look before we do
 */
static void test_descriptors_let_go(void **state)
{
	const struct stop_options patient = {.tries = 100};
	struct harness *h = *state;
	struct pointing p = {0};
	struct flush_result flushed;
	struct dinst_error e = {0};
	uint64_t words[2] = {1, 1}, none = 0;
	struct session *s;
	unsigned id;

	harness_start(h, "calls", "3", NULL);
	s = session_begin(h);
	id = session_insert_kind(s, "many", POINT_ENTRY);
	thread_seize(h->pid);
	thread_freeze(h->pid, h->pid);
	assert_int_equal(target_stop(s->target, &patient, point_to_descriptors, (void *[]){s, &p},
				     NULL, &e),
			 0);
	session_remove(s, id);
	assert_int_equal(removal_flush(s, &flushed, &e), 0);
	for (int i = 0; i < 2 && p.words[i]; i++) {
		thread_peek(h->pid, p.words[i], &words[i], sizeof(words[i]));
		thread_poke(h->pid, p.words[i], &none, sizeof(none));
	}
	thread_thaw(h->pid);
	if (p.left) {
		heap_free_code(s->places->heap, p.left);
		heap_free_code(s->places->heap, p.inside);
	}
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
	if (!p.words[1]) {
		print_message("SKIP: no restartable sequences here\n");
		skip();
	}
	assert_int_equal(words[0], 0);
	assert_int_equal(words[1], p.inside);
}

/* Takes all of the heap, in pieces of all sizes, hot and cold. */
static size_t fill(struct heap *heap, taddr_t *pieces, size_t room)
{
	struct dinst_error e = {0};
	size_t count = 0;

	for (size_t size = 1 << 20; size >= 4096; size /= 2)
		while (count + 1 < room && !heap_alloc_code(heap, size, &pieces[count], &e))
			count++;
	for (size_t size = 4096; size >= 16; size -= 16) {
		while (count + 1 < room && !heap_alloc_code(heap, size, &pieces[count], &e))
			count++;
		while (count + 1 < room && !heap_alloc_cold(heap, size, &pieces[count], &e))
			count++;
	}
	assert_true(count + 1 < room);
	return count;
}

/* fear J7: with a heap that is full something can still be removed, and the rest counts on */
static void test_no_room_at_removal(void **state)
{
	enum { ROOM = 1 << 16, ROUNDS = 5000 };
	struct harness *h = *state;
	taddr_t *pieces = calloc(ROOM, sizeof(*pieces));
	struct session *s;
	unsigned first, second, third;
	struct heap *heap;
	size_t count;

	harness_start(h, "calls", "3", NULL);
	s = session_begin(h);
	first = session_insert_kind(s, "many", POINT_ENTRY);
	second = session_insert_kind(s, "many", POINT_ENTRY);
	third = session_insert_kind(s, "many", POINT_ENTRY);
	heap = s->places->heap;
	count = fill(heap, pieces, ROOM);
	session_go(h, ROUNDS);
	/* There is no room for a body with the two that stay. */
	session_remove(s, second);
	assert_non_null(s->changed);
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, first), 2 * 3 * ROUNDS);
	assert_int_equal(session_value(s, third), 2 * 3 * ROUNDS);
	while (count--)
		heap_free_code(heap, pieces[count]);
	session_flush_all(s);
	assert_null(s->changed);
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, first), 3 * 3 * ROUNDS);
	/* With nothing left to count no body is needed. */
	count = fill(heap, pieces, ROOM);
	session_remove(s, first);
	session_remove(s, third);
	assert_null(s->changed);
	session_go(h, ROUNDS);
	while (count--)
		heap_free_code(heap, pieces[count]);
	session_end(s);
	harness_verify(h);
	session_go(h, 10);
	harness_end(h, 0);
	free(pieces);
}

/* fear J7: bodies that nothing leads to any more are given back before a request fails */
static void test_room_by_a_flush(void **state)
{
	enum { ROOM = 1 << 16, ROUNDS = 1000, OLD = 40 };
	struct harness *h = *state;
	taddr_t *pieces = calloc(ROOM, sizeof(*pieces));
	unsigned ids[OLD + 1];
	struct session *s;
	struct heap *heap;
	size_t count;

	harness_start(h, "calls", "2", NULL);
	s = session_begin(h);
	ids[0] = session_insert_kind(s, "many", POINT_ENTRY);
	heap = s->places->heap;
	/* A growing body, so that no old one has the size of the next. */
	for (unsigned i = 1; i < OLD; i++)
		ids[i] = session_insert_kind(s, "many", POINT_ENTRY);
	assert_true(s->queue_length >= OLD - 2);
	for (unsigned i = OLD - 1; i > 4; i--)
		session_remove(s, ids[i]);
	count = fill(heap, pieces, ROOM);
	ids[OLD] = session_insert_kind(s, "many", POINT_ENTRY);
	assert_true(s->queue_length < OLD);
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, ids[0]), 2 * ROUNDS);
	assert_int_equal(session_value(s, ids[OLD]), 2 * ROUNDS);
	while (count--)
		heap_free_code(heap, pieces[count]);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
	free(pieces);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_freed_under_threads),
		CASE(test_no_room_at_removal),
		CASE(test_room_by_a_flush),
		CASE(test_descriptors_let_go),
	};

	return cmocka_run_group_tests_name("live/bodies", tests, NULL, NULL);
}
