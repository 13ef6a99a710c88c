/* SPDX-License-Identifier: MIT */
/*
 * mishaps_compact.c - trampolines are moved together, or lie in memory of the target alone, and a call that the mutator
 * makes fails: as mishaps.c. All that is freed is poisoned (harness_setup()).
 *
 * mishaps_compact [CASES]; MISHAPS, MISHAP_FIRST, MISHAP_KIND and MISHAPS_TELL as there.
 */
#include "tests/live/mishaps_lives.h"

enum { THREADS = 4, KEPT_EVERY = 16, WATCHED = 3 };

/* As in compact.c: of fewer functions nothing moves. */
static struct insert_result insert_parts(struct session *s)
{
	const struct insert_options options = {.each = true};
	const char *const foci[] = {"part_0*", "part_1*", "part_2*"};
	struct insert_result result = {0};
	struct dinst_error e = {0};
	int status = DINST_BUSY;

	for (int tries = 0; tries < 50 && status == DINST_BUSY; tries++)
		status = told(request_insert(s, "calls", foci, 3, &options, &result, &e), &e);
	if (status < 0)
		bad("inserting: %s", account->text);
	return result;
}

/* Few are left of many, so that a flush moves them, while threads run through them. */
static void work_with_parts(struct session *s)
{
	struct counted watched[WATCHED] = {0};
	struct insert_result parts = insert_parts(s);
	struct dinst_error e = {0};

	say("go 30\n");
	for (size_t i = 0; i < parts.count; i++)
		if (i % KEPT_EVERY)
			told(removal_switch_off(s, parts.instances[i], &e), &e);
	for (size_t i = 0; i < WATCHED; i++)
		watched[i].instance = parts.instances[(2 + 5 * i) * KEPT_EVERY];
	free(parts.instances);
	stage(4);
	mishap_begin();
	flush(s);
	flush(s);
	mishap_end();
	expect_done();
	expect_counts(watched, WATCHED, "go 20\n", 20 * THREADS);
	/* What could not be moved is moved now, and the second of the three is taken out. */
	take_away(s, &watched[1]);
	flush(s);
	expect_counts(watched, WATCHED, "go 20\n", 20 * THREADS);
	mishap_begin();
}

/* fear J7, J3, I3: something is lacking in the middle of moving: counts stay exact, nobody is in what was freed */
static void test_compaction(void **state)
{
	static const struct scene moved = {.work = work_with_parts, .late = true};

	harness_start(*state, "fragments", harness_number(THREADS), NULL);
	SWEEP_SCENE(&moved, 1, MISHAP_OPEN, MISHAP_MEMORY, MISHAP_READ_MEMORY, MISHAP_WRITE_MEMORY,
		    MISHAP_TRACE);
	harness_end(*state, 0);
}

static void work_in_private(struct session *s)
{
	struct counted first = {0}, exits = {0}, timed = {0}, second = {0};

	s->private_arenas = true;
	say("go 2000\n");
	stage(1);
	insert(s, "calls", "many", &first);
	insert_kind(s, all, POINT_EXIT, &exits);
	stage(2);
	insert(s, "latency", "many", &timed);
	stage(3);
	take_away(s, &exits);
	stage(4);
	flush(s);
	expect_done();
	expect_counts(&first, 1, "go 30\n", 30 * THREADS);
	expect_counts(&timed, 1, "go 30\n", 30 * THREADS);
	stage(5);
	insert(s, "calls", "strange", &second);
	take_away(s, &timed);
	say("go 1000\n");
	flush(s);
	expect_done();
	expect_counts(&second, 1, "go 30\n", 30 * THREADS);
	take_away(s, &first);
	expect_counts(&second, 1, "go 30\n", 30 * THREADS);
}

/* fear B8, C7, I3, J3: what is written has to be sent, and the call that sends it fails, or a part of it */
static void test_private(void **state)
{
	static const struct scene sent = {.work = work_in_private};

	harness_start(*state, "calls", harness_number(THREADS), NULL);
	SWEEP_SCENE(&sent, 1, MISHAP_MEMORY, MISHAP_MAP, MISHAP_READ_MEMORY, MISHAP_WRITE_MEMORY,
		    MISHAP_TRACE);
	harness_end(*state, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, death_setup, death_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_compaction),
		TEST(test_private),
	};

	lives_open();
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("live/mishaps_compact", tests, NULL, NULL);
}
