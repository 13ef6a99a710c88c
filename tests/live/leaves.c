/* SPDX-License-Identifier: MIT */
/*
 * leaves.c - nothing is left after detach, as the program itself sees it, and
 * the harness, which says so after each case of all live tests, notices every
 * kind of thing that could be left: it is shown each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/live/harness_session.h"

enum { LINES_MAX = 64 };

struct picture {
	char lines[LINES_MAX][128];
	size_t count;
};

static void take(struct harness *h, struct picture *p)
{
	const char *line;

	p->count = 0;
	harness_send(h, "picture\n");
	while (strcmp(line = harness_line(h, HARNESS_ANSWER_MS), "end")) {
		assert_true(p->count < LINES_MAX);
		snprintf(p->lines[p->count++], sizeof(p->lines[0]), "%s", line);
	}
	assert_true(p->count > 20);
}

static void compare(const struct picture *before, const struct picture *after, bool attached)
{
	assert_int_equal(before->count, after->count);
	for (size_t i = 0; i < before->count; i++)
		/* The last sequence of ours that a thread ran may be known to it until we leave. */
		if (strcmp(before->lines[i], after->lines[i]) &&
		    !(attached && strstr(before->lines[i], "-sequence")))
			fail_msg("%s: '%s' was '%s'", attached ? "attached" : "detached",
				 after->lines[i], before->lines[i]);
}

static void work(struct harness *h)
{
	harness_send(h, "work 2000\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
}

static void run(struct harness *h, bool private)
{
	struct insert_result result;
	struct dinst_error e = {0};
	struct picture before, after;
	const char *const words[] = {"residue_tree"};
	struct session *s;

	harness_start(h, "residue", NULL);
	take(h, &before);
	for (int turn = 0; turn < 3; turn++) {
		s = session_begin(h);
		s->private_arenas = private;
		/* They have no loops, for one. */
		for (int kind = POINT_ENTRY; kind <= POINT_STORE; kind++)
			if (kind < POINT_LOOP_ENTRY || kind > POINT_LOOP_EXIT)
				session_insert_kind(s, "/Code/residue/residue_*",
						    (enum point_kind)kind);
		/* Activations and timers of threads, and the C library around them. */
		if (request_insert(s, "cpu_inclusive", words, 1, NULL, &result, &e) < 0)
			fail_msg("%s", e.text);
		free(result.instances);
		session_insert(s, "/Code/libc.so.6/*read*");
		work(h);
		take(h, &after);
		/* While we are there memory of ours may be, and nothing else. */
		compare(&before, &after, true);
		harness_verify_what(h, HARNESS_THREADS | HARNESS_SIGNALS | HARNESS_FDS);
		session_end(s);
		work(h);
		take(h, &after);
		compare(&before, &after, false);
		harness_verify(h);
	}
	harness_end(h, 0);
}

/*
 * fear J3: limits, timers, thread-local storage byte by byte, rseq, alternate stacks, robust lists,
 * scheduling, umask, environment, loaded objects, brk: the same while attached and after detach
 */
static void test_picture(void **state)
{
	run(*state, false);
}

/* fear B8, J3: the same with private memory instead of a memfd */
static void test_picture_private(void **state)
{
	run(*state, true);
}

/*
 * fear J3: the proof can fail: a mapping, a hole, a protection, a descriptor, another file behind
 * one, a mask, a handler, an ignored and a pending signal, a thread: each is noticed
 */
static void test_everything_is_noticed(void **state)
{
	static const struct {
		const char *what, *says;
	} cases[] = {
		{"map", "mapping new"},	      {"hole", "mapping gone"},
		{"protection", "mapping"},    {"descriptor", "descriptor"},
		{"other-file", "descriptor"}, {"mask", "SigBlk"},
		{"handler", "SigCgt"},	      {"ignored", "SigIgn"},
		{"pending", "SigPnd"},	      {"thread", "thread"},
	};
	struct harness *h = *state;
	char text[4096], command[64];

	harness_start(h, "residue", NULL);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		snprintf(command, sizeof(command), "change %s\n", cases[i].what);
		harness_send(h, command);
		assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "changed");
		text[0] = '\0';
		if (!harness_differences(h->before, HARNESS_ALL, text, sizeof(text)))
			fail_msg("%s is not noticed", cases[i].what);
		if (!strstr(text, cases[i].says))
			fail_msg("%s: %s", cases[i].what, text);
		snprintf(command, sizeof(command), "undo %s\n", cases[i].what);
		harness_send(h, command);
		assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "undone");
		harness_verify(h);
	}
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_picture),
		CASE(test_picture_private),
		CASE(test_everything_is_noticed),
	};

	return cmocka_run_group_tests_name("live/leaves", tests, NULL, NULL);
}
