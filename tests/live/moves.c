/* SPDX-License-Identifier: MIT */
/*
 * moves.c - bodies and heads move together where that takes more than a jump in
 * one process: in forked children, whose text is a copy of its own each; in arenas
 * that have to be sent; and at functions so short that the way leads through a
 * hole in the padding. compact.c has the plain case. All that is freed is poisoned.
 */
#include "tests/live/harness_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 3, CHILDREN = 3, MOST = 2048, SEED = 41 };

/* One case: which functions, how many there are, and who runs through them. */
struct scene {
	const char *focus;
	unsigned count;
	bool holes, children, private;
};

static void ask(struct harness *h, const char *command, const char *answer)
{
	harness_send(h, command);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), answer);
}

static unsigned long rest(struct harness *h, const char *command)
{
	const char *line;

	harness_send(h, command);
	line = harness_line(h, HARNESS_ANSWER_MS);
	assert_memory_equal(line, "done ", 5);
	return strtoul(line + 5, NULL, 10);
}

static size_t pages_used(const struct session *s)
{
	struct heap_stats stats;
	size_t used = 0;

	for (const struct place *p = s->places; p; p = p->next) {
		heap_get_stats(p->heap, &stats);
		used += stats.used;
	}
	return used;
}

/* Where the heads of all sites are; returns how many there are. */
static size_t note_heads(const struct session *s, taddr_t (*heads)[2])
{
	size_t n = 0;

	for (size_t b = 0; b < s->site_buckets; b++)
		for (const struct site *site = s->site_hash[b]; site; site = site->next_hash) {
			if (!site->links || !site->head)
				continue;
			assert_true(n < 2 * MOST);
			heads[n][0] = site->key.start;
			heads[n++][1] = site->head->code;
		}
	return n;
}

/* Sites whose way leads through a near jump in a hole. */
static size_t count_holes(const struct session *s)
{
	size_t holes = 0;

	for (size_t b = 0; b < s->site_buckets; b++)
		for (const struct site *site = s->site_hash[b]; site; site = site->next_hash)
			holes += site->links && site->patch_count == 2;
	return holes;
}

static size_t count_moved(const struct session *s, taddr_t (*before)[2], size_t count)
{
	static taddr_t now[2 * MOST][2];
	const size_t left = note_heads(s, now);
	size_t moved = 0;

	for (size_t i = 0; i < left; i++)
		for (size_t k = 0; k < count; k++)
			moved += before[k][0] == now[i][0] && before[k][1] != now[i][1];
	return moved;
}

static unsigned insert_all(struct session *s, const struct scene *scene)
{
	struct dinst_error e = {0};
	unsigned first;
	size_t count;

	if (session_try_insert(s, scene->focus, true, &count, &first, &e) < 0)
		fail_msg("insert: %s", e.text);
	assert_int_equal(count, scene->count);
	return first;
}

static void remove_one(struct session *s, unsigned id)
{
	struct flush_result result;
	struct dinst_error e = {0};
	unsigned tries = 0;
	int status;

	/* A process of the family may not stop in time on a machine that is busy. */
	do {
		dinst_error_clear(&e);
		status = removal_remove(s, session_instance(s, id), &result, &e);
	} while (status == DINST_BUSY && session_instance(s, id) && ++tries < 50);
	if (status < 0 && status != DINST_BUSY)
		fail_msg("remove: %s", e.text);
}

static unsigned long end_rounds(struct harness *h, const struct scene *scene)
{
	return scene->children ? rest(h, "reap\n") : rest(h, "stop\n");
}

static void begin_rounds(struct harness *h, const struct scene *scene)
{
	char text[32];

	snprintf(text, sizeof(text), "children %d\n", CHILDREN);
	if (scene->children)
		ask(h, text, "born");
	else
		ask(h, "run\n", "running");
}

/* Few of many are left; who runs through them meanwhile counts each of them exactly. */
static void play(struct harness *h, const struct scene *scene)
{
	static taddr_t heads[2 * MOST][2];
	unsigned short seed[3] = {SEED, 0, 0};
	static bool kept[MOST];
	size_t full, thin, moved, noted, left = 0;
	unsigned long rounds;
	struct session *s;
	unsigned first;

	harness_start(h, "moves", harness_number(THREADS), NULL);
	s = session_begin(h);
	s->private_arenas = scene->private;
	first = insert_all(s, scene);
	begin_rounds(h, scene);
	full = pages_used(s);
	noted = note_heads(s, heads);
	assert_int_equal(count_holes(s), scene->holes ? scene->count : 0);
	for (unsigned i = 0; i < scene->count; i++) {
		kept[i] = nrand48(seed) % 24 == 0;
		left += kept[i];
		if (!kept[i])
			remove_one(s, first + i);
	}
	session_flush_all(s);
	session_flush_all(s);
	thin = pages_used(s);
	moved = count_moved(s, heads, noted);
	rounds = end_rounds(h, scene);
	print_message(
		"%s: %zu KiB for %u functions, %zu KiB for %zu, %zu heads moved, %lu rounds\n",
		scene->focus, full >> 10, scene->count, thin >> 10, left, moved, rounds);
	assert_true(left > 5 && rounds > 0);
	assert_true(thin * 2 < full);
	assert_true(moved > left / 4);
	for (unsigned i = 0; i < scene->count; i++)
		if (kept[i])
			assert_int_equal(session_value(s, first + i), rounds);
	if (scene->private)
		assert_int_equal(s->places->arena->mode, ARENA_PRIVATE);
	session_end(s);
	session_go(h, 10);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear J7, G1: bodies move while forked children run through them: each child's text follows */
static void test_family(void **state)
{
	play(*state, &(struct scene){.focus = "part_*", .count = MOST, .children = true});
}

/* fear J7, C5: short functions, whose way leads through a hole: the jump in the hole follows */
static void test_holes(void **state)
{
	play(*state, &(struct scene){.focus = "tiny_*", .holes = true, .count = MOST});
}

/* fear J7, C5, G1: both: holes in the text of forked children */
static void test_holes_in_family(void **state)
{
	play(*state,
	     &(struct scene){.focus = "tiny_*", .holes = true, .count = MOST, .children = true});
}

/* fear J7, B8: arenas that are private memory: what moved is there before anybody is led to it */
static void test_private(void **state)
{
	play(*state, &(struct scene){.focus = "part_*", .count = MOST, .private = true});
}

/* fear J7, B8, C5: private arenas and holes */
static void test_holes_private(void **state)
{
	play(*state,
	     &(struct scene){.focus = "tiny_*", .holes = true, .count = MOST, .private = true});
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_family),  CASE(test_holes),	      CASE(test_holes_in_family),
		CASE(test_private), CASE(test_holes_private),
	};

	return cmocka_run_group_tests_name("live/moves", tests, NULL, NULL);
}
