/* SPDX-License-Identifier: MIT */
/*
 * mishaps_reload.c - a plugin is unloaded, built anew and loaded again to where it was, and a call that the mutator
 * makes fails: as mishaps.c, for the plugin's code and for that of a child that has the older one.
 *
 * mishaps_reload [CASES]; MISHAPS, MISHAP_FIRST, MISHAP_KIND and MISHAPS_TELL as there.
 */
#include "tests/live/mishaps_lives.h"

static void start_reloads(struct harness *h)
{
	harness_start(h, "reloads", NULL);
}

static void ask_done(const char *command)
{
	say("%s\n", command);
	expect_done();
}

enum { WORK, TINY, TURN, PLUGIN_COUNTED };

/* What is asked for while the plugin is loaded counts in that one, whatever was in the one before. */
static void insert_all(struct session *s, struct counted *now)
{
	memset(now, 0, PLUGIN_COUNTED * sizeof(*now));
	insert(s, "calls", "reload_work", &now[WORK]);
	insert(s, "calls", "reload_tiny", &now[TINY]);
	insert_kind(s, "reload_wide", POINT_EXIT, &now[TURN]);
	expect_counts(now, TURN, "call 10\n", 10);
	expect_counts(&now[TURN], 1, "wide 20\n", 20);
	ask_done("round 10");
}

static void load_again(struct session *s, const char *between, bool looked_at)
{
	ask_done("close");
	if (between)
		ask_done(between);
	if (looked_at)
		request_retry_pending(s);
	ask_done("open");
	ask_done("call 10");
	request_retry_pending(s);
	ask_done("call 10");
}

static void work_with_reloads(struct session *s)
{
	struct counted now[PLUGIN_COUNTED] = {0}, timed = {0};

	stage(1);
	ask_done("open");
	insert_all(s, now);
	load_again(s, NULL, true);
	take_away(s, &now[TINY]);
	stage(2);
	insert_all(s, now);
	load_again(s, "touch", false);
	take_away(s, &now[WORK]);
	stage(3);
	insert_all(s, now);
	say("keep\n");
	if (sscanf(hear(), "%d", &others->pids[0]) != 1)
		bad("no child");
	others->count = 1;
	note_private(s);
	stage(4);
	load_again(s, "replace", false);
	ask_done("kept 10");
	flush(s);
	stage(5);
	insert_all(s, now);
	insert(s, "latency", "reload_round", &timed);
	ask_done("round 10");
	ask_done("kept 10");
	take_away(s, &timed);
	flush(s);
	ask_done("kept 10");
	expect_counts(now, TURN, "call 10\n", 10);
}

static void order_done(struct harness *h, const char *command)
{
	harness_send(h, command);
	if (strcmp(harness_line(h, HARNESS_ANSWER_MS), "done") != 0)
		fail_msg("%s", command);
}

static void unload(struct harness *h)
{
	expect_clean(h->pid);
	if (others->private)
		clean_private(others->pids[0]);
	expect_clean(others->pids[0]);
	order_done(h, "call 10\n");
	order_done(h, "kept 10\n");
	order_done(h, "leave\n");
	order_done(h, "wide 10\n");
	order_done(h, "round 10\n");
	order_done(h, "close\n");
}

static const struct scene with_reloads = {.begin = start_reloads,
					  .work = work_with_reloads,
					  .after = unload,
					  .executes = true,
					  .reloads = true};

/* fear G4, I2, J3: a plugin comes and goes, and no file can be opened, read or written: told, nothing left */
static void test_files(void **state)
{
	SWEEP_SCENE(&with_reloads, 1, MISHAP_OPEN, MISHAP_READ, MISHAP_STORE);
}

/* fear G4, I3, J3: the same of memory of ours, and of threads, processes and timers */
static void test_memory(void **state)
{
	SWEEP_SCENE(&with_reloads, 1, MISHAP_MEMORY, MISHAP_MAP, MISHAP_TASK);
}

/* fear G4, C7, J3: the same of reading and writing the target's memory, and of what interrupts us or is refused */
static void test_targets(void **state)
{
	SWEEP_SCENE(&with_reloads, 1, MISHAP_READ_MEMORY, MISHAP_WRITE_MEMORY, MISHAP_WAIT,
		    MISHAP_CALL, MISHAP_TRACE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, death_setup, death_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_files),
		TEST(test_memory),
		TEST(test_targets),
	};

	lives_open();
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("live/mishaps_reload", tests, NULL, NULL);
}
