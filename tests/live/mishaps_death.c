/* SPDX-License-Identifier: MIT */
/*
 * mishaps_death.c - a mutator was killed at any of its moments, and who takes out what it has left, or comes to use the
 * program next, makes a call that fails: as mishaps.c. What was said to be out is out, in children, too.
 *
 * mishaps_death [CASES]; MISHAPS, MISHAP_FIRST, MISHAP_KIND and MISHAPS_TELL as there.
 */
#include "tests/live/mishaps_lives.h"

enum { REPAIR_MS = 3000, THREADS = 4 };

static unsigned long points; /* of a mutator that is not killed */
static unsigned short chance[3];

static void begin_dying(struct harness *h)
{
	chance[0] = (unsigned short)harness_setting("DINST_SEED", SEED);
	run_whole(h);
	points = account->passed;
	assert_true(points > 20);
}

/* Mostly one that has inserted something. */
static void let_one_die(struct harness *h)
{
	const unsigned long least = points / 4;
	const unsigned long at = least + (unsigned long)nrand48(chance) % (points - least);

	end_mutator(start_mutator(h, at), true);
	memset(account, 0, sizeof(*account));
}

/* `dinst repair`; in the child. */
static void repair(pid_t pid)
{
	const size_t descriptors = count_descriptors();
	struct dinst_error e = {0};
	struct leftovers left = {0};
	struct target *t;
	int status;

	alarm(HANGS_SECONDS);
	stage(8);
	mishap_begin();
	status = told(target_open(pid, &t, &e), &e);
	if (status >= 0) {
		status = told(leftovers_clean(t, REPAIR_MS, &left, &e), &e);
		target_close(t);
	}
	mishap_end();
	expect_descriptors(descriptors);
	_exit(status < 0 || left.arenas_left ? FAILED : ENDED);
}

/* As a mutator that attaches: what was left is taken out first, or nothing is put in. */
static void adopt(struct session *s)
{
	struct leftovers left = {0};
	struct dinst_error e = {0};
	struct counted first = {0};

	stage(8);
	others->left =
		told(leftovers_clean(s->target, REPAIR_MS, &left, &e), &e) < 0 || left.arenas_left;
	if (others->left)
		return;
	stage(1);
	insert(s, "calls", victim, &first);
	expect_counts(&first, 1, "go 20\n", 20 * THREADS);
	stage(3);
	take_away(s, &first);
}

static void sweep_threads(struct harness *h, const struct scene *what,
			  const enum mishap_kind *kinds, size_t count, unsigned long turns)
{
	harness_start(h, "calls", harness_number(THREADS), NULL);
	begin_dying(h);
	sweep_scene(h, what, kinds, count, turns);
	harness_end(h, 0);
}

static const enum mishap_kind usual_kinds[] = {
	MISHAP_OPEN,	    MISHAP_READ,	 MISHAP_MEMORY, MISHAP_MAP,  MISHAP_TASK,
	MISHAP_READ_MEMORY, MISHAP_WRITE_MEMORY, MISHAP_WAIT,	MISHAP_CALL, MISHAP_TRACE,
};
enum { USUAL_KINDS = sizeof(usual_kinds) / sizeof(usual_kinds[0]) };

/* fear J2, J3, I3: who repairs has too little of something, once or from then on */
static void test_repair(void **state)
{
	static const struct scene repaired = {.before = let_one_die, .life = repair};

	sweep_threads(*state, &repaired, usual_kinds, USUAL_KINDS, 1);
}

/* fear J2, J3, I3: who attaches next has too little of something: nothing goes in before the rest is out */
static void test_adoption(void **state)
{
	static const struct scene adopted = {.before = let_one_die, .work = adopt};
	static const enum mishap_kind kinds[] = {MISHAP_OPEN, MISHAP_MEMORY, MISHAP_READ_MEMORY,
						 MISHAP_WRITE_MEMORY, MISHAP_TRACE};

	sweep_threads(*state, &adopted, kinds, sizeof(kinds) / sizeof(kinds[0]), 1);
}

/* ------------------------------------------------------------------ children */

static void die_and_serve(struct harness *h)
{
	const char *line;

	let_one_die(h);
	harness_send(h, "serve 2\n");
	line = harness_line(h, HARNESS_ANSWER_MS);
	others->count = 2;
	assert_int_equal(sscanf(line, "workers %d %d", &others->pids[0], &others->pids[1]), 2);
	harness_send(h, "requests 20\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
}

static void dismiss_workers(struct harness *h)
{
	for (size_t i = 0; i < others->count; i++) {
		/* One that was told about by name: a program of ours may be left where nothing runs. */
		if (strstr(account->text, harness_number(others->pids[i])))
			clean_private(others->pids[i]);
		expect_clean(others->pids[i]);
	}
	harness_send(h, "requests 20\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	harness_send(h, "dismiss\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
}

/* fear J2, G1, J3, I3: the same where the program has forked since: in each of its children, too */
static void test_children(void **state)
{
	static const struct scene inherited = {
		.before = die_and_serve, .life = repair, .after = dismiss_workers};
	const char *const before[] = {victim, all, caller};

	victim = "handle";
	all = "/Code/life-family/*";
	caller = "handle_all";
	harness_start(*state, "life-family", NULL);
	begin_dying(*state);
	sweep_scene(*state, &inherited, usual_kinds, USUAL_KINDS, 1);
	harness_end(*state, 0);
	victim = before[0];
	all = before[1];
	caller = before[2];
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, death_setup, death_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_repair),
		TEST(test_adoption),
		TEST(test_children),
	};

	lives_open();
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("live/mishaps_death", tests, NULL, NULL);
}
