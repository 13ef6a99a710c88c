/* SPDX-License-Identifier: MIT */
/*
 * tactics_holes.c - threads in bytes that are overwritten: by a window's jump, by another
 * window's near jump in its tail (a hole), and those in front of it; processes and libraries
 * in which these bytes are something else. See tactics.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inject/remote.h"
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

/*
 * fear C1: a thread that stands at a jump round the entry's window, in a window of its own, goes
 * through that one's instructions, not behind them
 */
static void test_thread_at_a_jump_around(void **state)
{
	enum { ROUNDS = 0, EXPECTED = 24, JUMP = 17, RESULT = 52 };
	struct harness *h = *state;
	struct user_regs_struct r;
	uint64_t rounds = 1, expected = RESULT, back;
	struct session *s;
	taddr_t bias;
	unsigned id;
	pid_t tid;

	harness_start(h, "tactics", "1", NULL);
	s = session_begin(h);
	bias = session_address(s, "rewound") - harness_symbol(PROGRAM, "rewound");
	back = harness_symbol(PROGRAM, "back") + bias;
	assert_int_equal(harness_numbers(say(h, "tids"), &tid, 1), 1);
	thread_seize_at(tid, harness_symbol(PROGRAM, "park") + bias,
			harness_symbol(PROGRAM, "park_end") + bias, &r);
	r.rbp = 1;
	r.rax = r.rcx = 17;
	r.rsp -= 8;
	thread_poke(h->pid, r.rsp, &back, sizeof(back));
	thread_poke(h->pid, r.rbx + ROUNDS, &rounds, sizeof(rounds));
	thread_poke(h->pid, r.rbx + EXPECTED, &expected, sizeof(expected));
	r.rip = session_address(s, "rewound") + JUMP;
	thread_set(tid, &r);
	thread_freeze_all(h->pid, &tid, 1);
	id = session_insert_kind(s, "rewound", POINT_ENTRY);
	assert_int_equal(session_pending(s, id), 0);
	thread_thaw(h->pid);
	while (rounds) {
		usleep(1000);
		thread_peek(h->pid, r.rbx + ROUNDS, &rounds, sizeof(rounds));
	}
	/* It was inside already. */
	assert_int_equal(session_value(s, id), 0);
	assert_string_equal(say(h, "go 1000"), "done");
	assert_int_equal(session_value(s, id), 1000);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* ------------------------------------------------- calls that take too long */

/* Where the worker is taken from, and what it is to come to. */
struct losing {
	taddr_t bias, at, control;
	uint64_t rax, expected;
};

/* As if the worker, which waits for work, had called a function there. */
static void move_worker(struct stop *stop, struct stop_thread *t, struct losing *l)
{
	enum { ROUNDS = 0, EXPECTED = 24 };
	const pid_t pid = target_pid(stop_target(stop));
	const uint64_t back = harness_symbol(PROGRAM, "back") + l->bias, rounds = 1;

	l->control = t->regs.user.rbx;
	t->regs.user.rbp = 1;
	t->regs.user.rax = l->rax;
	t->regs.user.rsp -= 8;
	t->regs.user.rip = l->at;
	t->changed = true;
	thread_poke(pid, t->regs.user.rsp, &back, sizeof(back));
	thread_poke(pid, l->control + ROUNDS, &rounds, sizeof(rounds));
	thread_poke(pid, l->control + EXPECTED, &l->expected, sizeof(l->expected));
}

/* A call that takes longer than anybody waits for one. */
static int lose(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct losing *l = arg;
	const taddr_t park = harness_symbol(PROGRAM, "park") + l->bias,
		      park_end = harness_symbol(PROGRAM, "park_end") + l->bias;
	struct arch_remote_call call = {.number = SYS_poll};
	struct arch_remote_program program = {.calls = &call, .count = 1};
	long result;

	for (size_t i = 0; !l->control && i < stop_thread_count(stop); i++) {
		struct stop_thread *t = stop_thread(stop, i);

		if (arch_pc(&t->regs) >= park && arch_pc(&t->regs) < park_end)
			move_worker(stop, t, l);
	}
	assert_int_not_equal(l->control, 0);
	assert_int_equal(stop_store_regs(stop, e), 0);
	call.args[2].value = 4000;
	return remote_run(stop, &program, 0, NULL, NULL, NULL, &result, e);
}

/*
 * The worker is lost in a call of ours: it goes on at `at` by itself, later, and nothing but the
 * call's own code says so. Returns its control block.
 */
static taddr_t lose_at(struct session *s, taddr_t at, uint64_t rax, uint64_t expected)
{
	struct losing l = {.bias = session_address(s, "evened") - harness_symbol(PROGRAM, "evened"),
			   .at = at,
			   .rax = rax,
			   .expected = expected};
	const struct stop_options once = {.tries = 1};
	struct dinst_error e = {0};
	int status;

	/* On a busy machine the stop itself may fail: then it is where it was. */
	do {
		dinst_error_clear(&e);
		status = target_stop(s->target, &once, lose, &l, NULL, &e);
	} while (status == DINST_BUSY && !l.control);
	assert_int_equal(status, DINST_BUSY);
	assert_int_not_equal(target_left_program(s->target), 0);
	return l.control;
}

static void let_come_back(struct harness *h, taddr_t control)
{
	for (uint64_t rounds = 1; rounds; usleep(1000))
		thread_peek(h->pid, control, &rounds, sizeof(rounds));
}

/* fear C1, J3: a thread that is late with a call of ours was taken from what is to be patched */
static void test_late_in_a_window(void **state)
{
	enum { SECOND = 3, RESULT = 6 };
	struct harness *h = *state;
	taddr_t control;
	struct session *s;
	unsigned id;

	harness_start(h, "tactics", "1", NULL);
	s = session_begin(h);
	session_insert(s, "ways");
	control = lose_at(s, session_address(s, "evened") + SECOND, 1, RESULT);
	id = session_insert(s, "evened");
	assert_int_equal(session_pending(s, id), 1);
	let_come_back(h, control);
	while (session_pending(s, id)) {
		usleep(1000);
		request_retry_pending(s);
	}
	assert_int_equal(session_value(s, id), 0);
	assert_string_equal(say(h, "go 1000"), "done");
	assert_int_equal(session_value(s, id), 1000);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear C1, J3: the same from a near jump in a hole, which is taken out */
static void test_late_in_a_hole(void **state)
{
	enum { HOLE = 11, RESULT = 7 };
	struct flush_result flushed;
	struct harness *h = *state;
	struct dinst_error e = {0};
	taddr_t control;
	struct session *s;
	unsigned id;

	harness_start(h, "tactics", "1", NULL);
	s = session_begin(h);
	id = session_insert_kind(s, "thin", POINT_ENTRY);
	assert_hole_at(s, id, session_address(s, "evened") + HOLE);
	control = lose_at(s, session_address(s, "evened") + HOLE, 0, RESULT);
	session_remove(s, id);
	assert_int_equal(removal_flush(s, &flushed, &e), 0);
	assert_int_not_equal(flushed.late, 0);
	let_come_back(h, control);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* The worker stands there, as if it had called a function that is to return `expected`. */
static taddr_t freeze_at(struct harness *h, taddr_t bias, taddr_t at, uint64_t expected)
{
	enum { ROUNDS = 0, EXPECTED = 24 };
	const uint64_t back = harness_symbol(PROGRAM, "back") + bias, rounds = 1;
	struct user_regs_struct r;
	pid_t tid;

	assert_int_equal(harness_numbers(say(h, "tids"), &tid, 1), 1);
	thread_seize_at(tid, harness_symbol(PROGRAM, "park") + bias,
			harness_symbol(PROGRAM, "park_end") + bias, &r);
	r.rbp = 1;
	r.rax = 0;
	r.rsp -= 8;
	thread_poke(h->pid, r.rsp, &back, sizeof(back));
	thread_poke(h->pid, r.rbx + ROUNDS, &rounds, sizeof(rounds));
	thread_poke(h->pid, r.rbx + EXPECTED, &expected, sizeof(expected));
	r.rip = at;
	thread_set(tid, &r);
	thread_freeze_all(h->pid, &tid, 1);
	return r.rbx;
}

/* fear C1, J3: the same from a trampoline, which is not given back before it has left that */
static void test_late_in_a_trampoline(void **state)
{
	enum { RESULT = 6 };
	struct flush_result flushed;
	struct harness *h = *state;
	struct dinst_error e = {0};
	taddr_t control;
	struct session *s;
	unsigned id;

	harness_start(h, "tactics", "1", NULL);
	s = session_begin(h);
	id = session_insert(s, "evened");
	control = lose_at(s, session_instance(s, id)->links->site->base, 0, RESULT);
	session_remove(s, id);
	assert_int_equal(removal_flush(s, &flushed, &e), 0);
	assert_int_not_equal(flushed.late, 0);
	assert_int_equal(flushed.freed, 0);
	let_come_back(h, control);
	session_flush_all(s);
	assert_int_equal(session_heap_bytes(s), 0);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear C1: what was removed comes back before its hole was taken out: a thread in front of the near
 * jump there is in front of that, and not of what the host had there
 */
static void test_hole_that_is_there_still(void **state)
{
	enum { HOLE = 11, RESULT = 7 };
	struct flush_result flushed;
	struct harness *h = *state;
	struct dinst_error e = {0};
	taddr_t hole, bias, control;
	struct session *s;
	unsigned id;

	harness_start(h, "tactics", "1", NULL);
	s = session_begin(h);
	id = session_insert_kind(s, "thin", POINT_ENTRY);
	hole = session_address(s, "evened") + HOLE;
	assert_hole_at(s, id, hole);
	bias = hole - HOLE - harness_symbol(PROGRAM, "evened");
	lose_at(s, hole, 0, RESULT);
	session_remove(s, id);
	assert_int_equal(removal_flush(s, &flushed, &e), 0);
	control = freeze_at(h, bias, hole, RESULT);
	id = session_insert_kind(s, "thin", POINT_ENTRY);
	assert_int_equal(session_pending(s, id), 0);
	thread_thaw(h->pid);
	let_come_back(h, control);
	assert_string_equal(say(h, "go 1000"), "done");
	assert_int_equal(session_value(s, id), 1001);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear C1: a thread in front of the near jump in a hole goes on where that leads when it is taken
 * out, and not in the host's bytes that come back
 */
static void test_hole_taken_out(void **state)
{
	enum { HOLE = 11, RESULT = 7, WRONG = 32 };
	struct flush_result flushed;
	struct harness *h = *state;
	struct dinst_error e = {0};
	taddr_t hole, bias, control;
	uint64_t wrong = 1;
	struct session *s;
	uint8_t now = 0;
	unsigned id;

	harness_start(h, "tactics", "1", NULL);
	s = session_begin(h);
	id = session_insert_kind(s, "thin", POINT_ENTRY);
	hole = session_address(s, "evened") + HOLE;
	assert_hole_at(s, id, hole);
	bias = hole - HOLE - harness_symbol(PROGRAM, "evened");
	control = freeze_at(h, bias, hole, RESULT);
	session_remove(s, id);
	assert_int_equal(removal_flush(s, &flushed, &e), 0);
	thread_peek(h->pid, hole, &now, sizeof(now));
	assert_int_not_equal(now, 0xe9);
	thread_thaw(h->pid);
	let_come_back(h, control);
	thread_peek(h->pid, control + WRONG, &wrong, sizeof(wrong));
	assert_int_equal(wrong, 0);
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
		CASE(test_late_in_a_window),
		CASE(test_late_in_a_hole),
		CASE(test_hole_that_is_there_still),
		CASE(test_thread_at_a_jump_around),
		CASE(test_hole_taken_out),
		CASE(test_late_in_a_trampoline),
	};

	return cmocka_run_group_tests_name("live/tactics_holes", tests, NULL, NULL);
}
