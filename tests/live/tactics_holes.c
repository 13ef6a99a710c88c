/* SPDX-License-Identifier: MIT */
/*
 * tactics_holes.c - threads in bytes that are overwritten: by a window's jump, by another
 * window's near jump in its tail (a hole), and those in front of it; processes and libraries
 * in which these bytes are something else. See tactics.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mutator/request.h"
#include "tests/live/harness_session.h"
#include "tests/live/harness_thread.h"

static const char PROGRAM[] = "tests/live/targets/tactics";

enum { RUNGS = 5, ROOMS = 7 };

static const char *say(struct harness *h, const char *command)
{
	char text[64];

	snprintf(text, sizeof(text), "%s\n", command);
	harness_send(h, text);
	return harness_line(h, HARNESS_ANSWER_MS);
}

/* Holds the thread before the rung, as if the worker had called: so many are behind it. */
static taddr_t put_on_rung(struct harness *h, pid_t tid, unsigned rung, taddr_t bias)
{
	enum { ROUNDS = 0, EXPECTED = 24, RUNG_BYTES = 3 };
	struct user_regs_struct r;
	uint64_t back = harness_symbol(PROGRAM, "back") + bias, rounds = 1, expected = 107;

	thread_seize_at(tid, harness_symbol(PROGRAM, "park") + bias,
			harness_symbol(PROGRAM, "park_end") + bias, &r);
	r.rbp = 1;
	r.rax = rung + 1;
	r.rsp -= 8;
	thread_poke(h->pid, r.rsp, &back, sizeof(back));
	r.rsp -= 8;
	thread_poke(h->pid, r.rsp, &r.r12, sizeof(r.r12));
	thread_poke(h->pid, r.rbx + ROUNDS, &rounds, sizeof(rounds));
	thread_poke(h->pid, r.rbx + EXPECTED, &expected, sizeof(expected));
	r.rip = harness_symbol(PROGRAM, "ladder_in") + bias + rung * RUNG_BYTES;
	thread_set(tid, &r);
	return r.rbx;
}

/* The second to fourth rung are overwritten: by the host's jump, and by the near jump in its tail. */
/* fear C1: threads in bytes that get another function's near jump */
static void test_threads_in_the_hole(void **state)
{
	struct harness *h = *state;
	taddr_t controls[RUNGS], bias;
	pid_t tids[RUNGS];
	struct session *s;
	unsigned id;

	harness_start(h, "tactics", harness_number(RUNGS), NULL);
	s = session_begin(h);
	bias = session_address(s, "ladder") - harness_symbol(PROGRAM, "ladder");
	assert_int_equal(harness_numbers(say(h, "tids"), tids, RUNGS), RUNGS);
	for (unsigned i = 0; i < RUNGS; i++)
		controls[i] = put_on_rung(h, tids[i], i, bias);
	thread_freeze_all(h->pid, tids, RUNGS);
	id = session_insert_kind(s, "ladder", POINT_EXIT);
	assert_int_equal(session_pending(s, id), 0);
	thread_thaw(h->pid);
	for (unsigned i = 0; i < RUNGS; i++)
		for (uint64_t rounds = 1; rounds; usleep(1000))
			thread_peek(h->pid, controls[i], &rounds, sizeof(rounds));
	assert_int_equal(session_value(s, id), RUNGS);
	assert_string_equal(say(h, "go 1000"), "done");
	assert_int_equal(session_value(s, id), RUNGS + RUNGS * 1000);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* Holds the thread at an instruction of `roomy`, as if the worker had called it. */
static taddr_t put_in_room(struct harness *h, pid_t tid, unsigned insn, taddr_t bias)
{
	enum { ROUNDS = 0, EXPECTED = 24 };
	static const uint8_t insns[ROOMS] = {0, 3, 6, 9, 12, 19, 22};
	struct user_regs_struct r;
	uint64_t back = harness_symbol(PROGRAM, "back") + bias, rounds = 1, expected = ROOMS;

	thread_seize_at(tid, harness_symbol(PROGRAM, "park") + bias,
			harness_symbol(PROGRAM, "park_end") + bias, &r);
	r.rbp = 1;
	r.rax = insn;
	r.rsp -= 8;
	thread_poke(h->pid, r.rsp, &back, sizeof(back));
	thread_poke(h->pid, r.rbx + ROUNDS, &rounds, sizeof(rounds));
	thread_poke(h->pid, r.rbx + EXPECTED, &expected, sizeof(expected));
	r.rip = harness_symbol(PROGRAM, "roomy") + bias + insns[insn];
	thread_set(tid, &r);
	return r.rbx;
}

/* The near jump of one of its windows lies there. */
static void assert_hole_at(const struct session *s, unsigned id, taddr_t at)
{
	taddr_t hole = 0;

	for (const struct link *l = session_instance(s, id)->links; l; l = l->next_instance)
		if (l->site->host)
			hole = l->site->patches[0].address;
	assert_int_equal(hole, at);
}

/* The target stands still, a thread at each instruction of `roomy`. */
static void fill_room(struct harness *h, taddr_t bias, taddr_t controls[ROOMS])
{
	pid_t tids[ROOMS];

	assert_int_equal(harness_numbers(say(h, "tids"), tids, ROOMS), ROOMS);
	for (unsigned i = 0; i < ROOMS; i++)
		controls[i] = put_in_room(h, tids[i], i, bias);
	thread_freeze_all(h->pid, tids, ROOMS);
}

static void empty_room(struct harness *h, const taddr_t controls[ROOMS])
{
	thread_thaw(h->pid);
	for (unsigned i = 0; i < ROOMS; i++)
		for (uint64_t rounds = 1; rounds; usleep(1000))
			thread_peek(h->pid, controls[i], &rounds, sizeof(rounds));
}

/* One of the instructions is between the host's jump and the hole, and runs on into that. */
static void assert_gap(const struct session *s, unsigned id, taddr_t insn)
{
	const struct site *host = NULL;
	taddr_t hole = 0;

	for (const struct link *l = session_instance(s, id)->links; l; l = l->next_instance)
		if (l->site->host) {
			host = l->site->host;
			hole = l->site->patches[0].address;
		}
	assert_non_null(host);
	assert_true(host->patches[0].address + host->patches[0].length <= insn);
	assert_true(insn < hole);
}

/*
 * fear C1: a thread that stands behind a window's jump, in front of bytes that get another
 * function's near jump, does not run into that; nor when somebody has written back what was there
 */
static void test_threads_before_the_hole(void **state)
{
	enum { GAP = 12, TEXT = 64 };
	struct harness *h = *state;
	taddr_t controls[ROOMS], bias;
	uint8_t text[TEXT];
	struct session *s;
	unsigned id, next;

	harness_start(h, "tactics", harness_number(ROOMS), NULL);
	s = session_begin(h);
	bias = session_address(s, "roomy") - harness_symbol(PROGRAM, "roomy");
	thread_peek(h->pid, harness_symbol(PROGRAM, "roomy") + bias, text, TEXT);
	fill_room(h, bias, controls);
	id = session_insert_kind(s, "narrow", POINT_ENTRY);
	assert_gap(s, id, harness_symbol(PROGRAM, "roomy") + bias + GAP);
	empty_room(h, controls);
	request_retry_pending(s);
	assert_int_equal(session_pending(s, id), 0);
	assert_string_equal(say(h, "go 1000"), "done");
	assert_int_equal(session_value(s, id), ROOMS * 1000);

	thread_poke(h->pid, harness_symbol(PROGRAM, "roomy") + bias, text, TEXT);
	fill_room(h, bias, controls);
	next = session_insert_kind(s, "narrow", POINT_ENTRY);
	request_retry_pending(s);
	empty_room(h, controls);
	request_retry_pending(s);
	assert_int_equal(session_pending(s, id), 0);
	assert_int_equal(session_pending(s, next), 0);
	assert_string_equal(say(h, "go 1000"), "done");
	assert_int_equal(session_value(s, id), 2 * ROOMS * 1000);
	assert_int_equal(session_value(s, next), ROOMS * 1000);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear C1: a hole in the target is live code in a process that was forked before it was written:
 * who is there when the hole is taken out stays there
 */
static void test_hole_that_a_child_has_not(void **state)
{
	enum { TURNS = 100 };
	struct harness *h = *state;
	struct session *s;

	harness_start(h, "tactics", "1", NULL);
	s = session_begin(h);
	session_insert_kind(s, "ladder", POINT_ENTRY);
	assert_string_equal(say(h, "part"), "parted");
	for (unsigned n = 0; n < TURNS; n++) {
		const unsigned id = session_insert_kind(s, "thin", POINT_ENTRY);

		if (!n)
			assert_hole_at(s, id, session_address(s, "evened") + 11);
		session_remove(s, id);
		session_flush_all(s);
	}
	assert_string_equal(say(h, "join"), "right");
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear C1: a thread in a window whose bytes are somebody else's by now goes on in those: what was
 * copied of the window is not what it would execute
 */
static void test_thread_in_foreign_bytes(void **state)
{
	enum { ROUNDS = 0, EXPECTED = 24, SECOND = 3, NUMBER = 5, OTHER = 5, RESULT = 10 };
	const uint8_t other = OTHER, own = 1;
	struct harness *h = *state;
	struct user_regs_struct r;
	struct dinst_error e = {0};
	uint64_t rounds = 1, expected = RESULT, back;
	struct session *s;
	taddr_t at, bias;
	unsigned id;
	pid_t tid;

	harness_start(h, "tactics", "1", NULL);
	s = session_begin(h);
	at = session_address(s, "evened");
	bias = at - harness_symbol(PROGRAM, "evened");
	back = harness_symbol(PROGRAM, "back") + bias;
	assert_int_equal(harness_numbers(say(h, "tids"), &tid, 1), 1);
	thread_seize_at(tid, harness_symbol(PROGRAM, "park") + bias,
			harness_symbol(PROGRAM, "park_end") + bias, &r);
	r.rbp = r.rax = 1;
	r.rsp -= 8;
	thread_poke(h->pid, r.rsp, &back, sizeof(back));
	thread_poke(h->pid, r.rbx + ROUNDS, &rounds, sizeof(rounds));
	thread_poke(h->pid, r.rbx + EXPECTED, &expected, sizeof(expected));
	r.rip = at + SECOND;
	thread_set(tid, &r);
	thread_poke(h->pid, at + NUMBER, &other, 1);
	thread_freeze_all(h->pid, &tid, 1);
	assert_int_equal(session_try_insert_kind(s, "evened", POINT_ENTRY, &id, &e), DINST_REFUSED);
	thread_thaw(h->pid);
	while (rounds) {
		usleep(1000);
		thread_peek(h->pid, r.rbx + ROUNDS, &rounds, sizeof(rounds));
	}
	thread_poke(h->pid, at + NUMBER, &own, 1);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_threads_in_the_hole),
		CASE(test_threads_before_the_hole),
		CASE(test_hole_that_a_child_has_not),
		CASE(test_thread_in_foreign_bytes),
	};

	return cmocka_run_group_tests_name("live/tactics_holes", tests, NULL, NULL);
}
