/* SPDX-License-Identifier: MIT */
/*
 * tactics.c - points that need more than the bytes around them, on a running
 * program: near jumps in the tails of other windows, points on the ways that
 * lead to them, entries that loops go round, jumps that share a byte with a call,
 * exits that are counted before they restore registers. Counted exactly, inserted and
 * removed under threads, and with a mutator that is killed at each step. Threads
 * that stand in the bytes: tactics_holes.c.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/fault.h"
#include "mutator/request.h"
#include "tests/live/harness_session.h"
#include "tests/live/harness_thread.h"

static const char PROGRAM[] = "tests/live/targets/tactics";

enum { THREADS = 4, SEED = 7, CLEAN_MS = 60000 };

static const char *const names[] = {"ladder",	  "ways",    "looped",	 "spun",   "tight",
				    "tight_door", "shared",  "restored", "landed", "rewound",
				    "wound",	  "parting", "circling"};
static const enum point_kind kinds[] = {POINT_ENTRY, POINT_EXIT};

enum { NAMES = sizeof(names) / sizeof(*names) };

static const char *say(struct harness *h, const char *command)
{
	char text[64];

	snprintf(text, sizeof(text), "%s\n", command);
	harness_send(h, text);
	return harness_line(h, HARNESS_ANSWER_MS);
}

/* ---------------------------------------------------------------- counts */

/* The target is what it is for: the tactics are used. */
static void test_tactics_are_used(void **state)
{
	static const struct {
		const char *name;
		enum point_kind kind;
		enum tactic tactic;
	} cases[] = {
		{"ladder", POINT_EXIT, TACTIC_EVICTED}, {"ways", POINT_EXIT, TACTIC_EDGES},
		{"looped", POINT_ENTRY, TACTIC_BYPASS}, {"spun", POINT_ENTRY, TACTIC_BYPASS},
		{"tight", POINT_ENTRY, TACTIC_EVICTED}, {"landed", POINT_ENTRY, TACTIC_BYPASS},
	};
	struct harness *h = *state;
	struct session *s;

	harness_start(h, "tactics", "1", NULL);
	s = session_begin(h);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct function_plan *plan = NULL;
		struct function_ref *functions = NULL;
		struct dinst_error e = {0};
		bool found = false;
		size_t count;

		assert_true(request_find(s, cases[i].name, &functions, &count, &e) >= 0);
		assert_true(session_plan(s, functions[0].module, functions[0].index, &plan, &e) >=
			    0);
		for (size_t k = 0; k < plan->point_count; k++)
			found |= plan->points[k].kind == cases[i].kind &&
				 plan->points[k].tactic == cases[i].tactic;
		if (!found)
			fail_msg("%s: no %s %s", cases[i].name, tactic_name(cases[i].tactic),
				 point_kind_name(cases[i].kind));
		free(functions);
	}
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear C3, C5: points that need bytes of neighbours: exits of one byte, entries that loops go
 * round
 */
static void test_exact(void **state)
{
	struct harness *h = *state;
	unsigned ids[NAMES][2];
	struct session *s;

	harness_start(h, "tactics", harness_number(THREADS), NULL);
	s = session_begin(h);
	for (unsigned i = 0; i < NAMES; i++)
		for (unsigned k = 0; k < 2; k++)
			ids[i][k] = session_insert_kind(s, names[i], kinds[k]);
	assert_string_equal(say(h, "go 2000"), "done");
	for (unsigned i = 0; i < NAMES; i++)
		for (unsigned k = 0; k < 2; k++)
			if (session_value(s, ids[i][k]) != THREADS * 2000ull)
				fail_msg("%s %s: %llu", names[i], point_kind_name(kinds[k]),
					 (unsigned long long)session_value(s, ids[i][k]));
	/* What is left counts on, though a host may have no points of its own any more. */
	for (unsigned i = 0; i < NAMES; i++)
		session_remove(s, ids[i][0]);
	session_flush_all(s);
	assert_string_equal(say(h, "go 2000"), "done");
	for (unsigned i = 0; i < NAMES; i++)
		if (session_value(s, ids[i][1]) != THREADS * 4000ull)
			fail_msg("%s: %llu", names[i],
				 (unsigned long long)session_value(s, ids[i][1]));
	session_end(s);
	assert_string_equal(say(h, "go 100"), "done");
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear C3: what is gone round is the entry's alone: an exit that would be in its window is had
 * elsewhere or not at all, and not counted now and then
 */
static void test_gone_round(void **state)
{
	const uint64_t calls = THREADS * 2000ull;
	struct harness *h = *state;
	struct dinst_error e = {0};
	unsigned outer, inner, exit;
	struct session *s;

	harness_start(h, "tactics", harness_number(THREADS), NULL);
	s = session_begin(h);
	outer = session_insert_kind(s, "woven", POINT_ENTRY);
	exit = session_insert_kind(s, "woven", POINT_EXIT);
	inner = session_insert_kind(s, "woven_in", POINT_ENTRY);
	assert_string_equal(say(h, "go 2000"), "done");
	assert_int_equal(session_value(s, outer), calls);
	assert_int_equal(session_value(s, exit), calls);
	assert_int_equal(session_value(s, inner), calls);
	assert_int_equal(session_try_insert_kind(s, "woven_in", POINT_EXIT, &exit, &e),
			 DINST_REFUSED);
	dinst_error_clear(&e);
	/* Refused is refused, also where a neighbour helps its exit. */
	session_insert_kind(s, "laced", POINT_EXIT);
	assert_int_equal(session_try_insert_kind(s, "laced", POINT_ENTRY, &exit, &e),
			 DINST_REFUSED);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* ---------------------------------------------------------- shared bytes */

enum { CALL_AT = 4, CALL_END = 9 };

/* Counts `shared` and says what its first bytes are meanwhile. */
static void count_shared(struct harness *h, uint8_t now[CALL_END])
{
	struct session *s = session_begin(h);
	const taddr_t at = session_address(s, "shared");
	unsigned entry = session_insert_kind(s, "shared", POINT_ENTRY), call;

	thread_peek(h->pid, at, now, CALL_END);
	assert_string_equal(say(h, "go 2000"), "done");
	assert_int_equal(session_value(s, entry), THREADS * 2000);
	call = session_insert_kind(s, "shared", POINT_CALL);
	assert_string_equal(say(h, "go 2000"), "done");
	assert_int_equal(session_value(s, call), THREADS * 2000);
	session_end(s);
	harness_verify(h);
}

/* fear C3: an entry whose fifth byte is a call's first one: the call is not touched */
static void test_shared_call(void **state)
{
	uint8_t before[CALL_END], now[CALL_END];
	struct harness *h = *state;
	struct session *s;

	harness_start(h, "tactics", harness_number(THREADS), NULL);
	s = session_begin(h);
	thread_peek(h->pid, session_address(s, "shared"), before, CALL_END);
	session_end(s);
	count_shared(h, now);
	assert_int_equal(now[0], 0xe9);
	assert_int_equal(before[CALL_AT], 0xe8);
	assert_memory_equal(now + CALL_AT, before + CALL_AT, CALL_END - CALL_AT);
	harness_end(h, 0);
}

/* fear C3: the same where such a jump leads to memory of the program's: the call moves */
static void test_shared_call_crowded(void **state)
{
	struct harness *h = *state;
	uint8_t now[CALL_END];

	harness_start(h, "tactics", harness_number(THREADS), "crowded", NULL);
	count_shared(h, now);
	assert_int_equal(now[0], 0xe9);
	assert_int_not_equal(now[CALL_AT], 0xe8);
	harness_end(h, 0);
}

/*
 * fear C1, J3: a thread in the code of an entry that was removed is about to come back to the call that
 * stayed in its place: who inserts anew where no such jump is to be had waits with the call
 */
static void test_shared_call_is_come_back_to(void **state)
{
	enum { ROUNDS = 0, EXPECTED = 24, RESULT = 101 };
	struct harness *h = *state;
	struct flush_result flushed;
	struct dinst_error e = {0};
	struct user_regs_struct r;
	uint64_t rounds = 1, expected = RESULT, back;
	const struct site *site;
	struct session *s;
	taddr_t at, bias;
	unsigned id;
	pid_t tid;

	harness_start(h, "tactics", "1", NULL);
	s = session_begin(h);
	at = session_address(s, "shared");
	bias = at - harness_symbol(PROGRAM, "shared");
	back = harness_symbol(PROGRAM, "back") + bias;
	id = session_insert_kind(s, "shared", POINT_ENTRY);
	site = session_instance(s, id)->links->site;
	assert_true(site->shares_call);
	assert_int_equal(harness_numbers(say(h, "tids"), &tid, 1), 1);
	thread_seize_at(tid, harness_symbol(PROGRAM, "park") + bias,
			harness_symbol(PROGRAM, "park_end") + bias, &r);
	r.rbp = 1;
	r.rax = 0;
	r.rsp -= 8;
	thread_poke(h->pid, r.rsp, &back, sizeof(back));
	r.rsp -= 8;
	thread_poke(h->pid, r.rbx + ROUNDS, &rounds, sizeof(rounds));
	thread_poke(h->pid, r.rbx + EXPECTED, &expected, sizeof(expected));
	assert_true(site_copy_of(s, site, at + CALL_AT, (taddr_t *)&r.rip));
	thread_set(tid, &r);
	thread_freeze_all(h->pid, &tid, 1);
	session_remove(s, id);
	assert_int_equal(removal_flush(s, &flushed, &e), 0);
	assert_int_equal(site->state, SITE_DRAINING);
	s->places->full = true;
	id = session_insert_kind(s, "shared", POINT_ENTRY);
	assert_int_equal(session_pending(s, id), 1);
	thread_thaw(h->pid);
	while (rounds) {
		usleep(1000);
		thread_peek(h->pid, r.rbx + ROUNDS, &rounds, sizeof(rounds));
	}
	while (session_pending(s, id)) {
		usleep(1000);
		request_retry_pending(s);
	}
	assert_false(session_instance(s, id)->links->site->shares_call);
	assert_string_equal(say(h, "go 1000"), "done");
	assert_int_equal(session_value(s, id), 1000);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* ------------------------------------------------------------- once more */

/*
 * fear C1: what waited is tried again, and that fails before anything is written: it waits, and counts once it
 * is in, and is not taken to be there meanwhile
 */
static void test_fails_once_more(void **state)
{
	struct harness *h = *state;
	struct session *s;
	struct site *site;
	struct patch good;
	unsigned id;

	harness_start(h, "tactics", "1", NULL);
	s = session_begin(h);
	id = session_insert_kind(s, "shared", POINT_ENTRY);
	site = session_instance(s, id)->links->site;
	assert_int_equal(site->patch_count, 1);
	good = site->patches[0];
	/* As a module that was loaded anew has it. */
	thread_poke(h->pid, good.address, good.before, good.length);
	assert_false(site_is_in_place(s, site));
	site_revert(s, site);
	assert_int_equal(session_pending(s, id), 1);
	site->patches[0].length = 0;
	assert_int_equal(request_retry_pending(s), 0);
	site->patches[0] = good;
	assert_int_equal(session_pending(s, id), 1);
	assert_true(request_has_pending(s));
	assert_int_equal(request_retry_pending(s), 1);
	assert_int_equal(session_pending(s, id), 0);
	assert_string_equal(say(h, "go 1000"), "done");
	assert_int_equal(session_value(s, id), 1000);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* ------------------------------------------------------- counted earlier */

/* Holds the thread at a byte of the exit's window, as if the worker had called. */
static taddr_t put_at_exit(struct harness *h, pid_t tid, unsigned byte, taddr_t bias)
{
	enum { ROUNDS = 0, EXPECTED = 24 };
	static const uint8_t popped[] = {[0] = 3, [4] = 2, [6] = 1, [7] = 0};
	struct user_regs_struct r;
	uint64_t words[4], rounds = 1, expected = 101;

	thread_seize_at(tid, harness_symbol(PROGRAM, "park") + bias,
			harness_symbol(PROGRAM, "park_end") + bias, &r);
	words[0] = harness_symbol(PROGRAM, "back") + bias;
	words[1] = r.rbx;
	words[2] = r.r12;
	words[3] = 0;
	r.rbp = 1;
	r.rax = expected;
	for (unsigned i = 0; i <= popped[byte]; i++) {
		r.rsp -= sizeof(words[i]);
		thread_poke(h->pid, r.rsp, &words[i], sizeof(words[i]));
	}
	thread_poke(h->pid, words[1] + ROUNDS, &rounds, sizeof(rounds));
	thread_poke(h->pid, words[1] + EXPECTED, &expected, sizeof(expected));
	r.rip = harness_symbol(PROGRAM, "restored_out") + bias + byte;
	if (popped[byte] > 0)
		r.rbx = 1;
	if (popped[byte] > 1)
		r.r12 = 2;
	thread_set(tid, &r);
	return words[1];
}

/*
 * fear C1: an exit is counted three instructions early: threads in the bytes that are overwritten
 * are counted as they would be right before it, those behind are as little as ever
 */
static void test_threads_behind_the_count(void **state)
{
	static const unsigned bytes[] = {0, 4, 6, 7};
	enum { AT = sizeof(bytes) / sizeof(*bytes), OVERWRITTEN = 2 };
	struct harness *h = *state;
	taddr_t controls[AT], bias;
	const struct link *l;
	pid_t tids[AT];
	struct session *s;
	unsigned id;

	harness_start(h, "tactics", harness_number(AT), NULL);
	s = session_begin(h);
	bias = session_address(s, "restored") - harness_symbol(PROGRAM, "restored");
	assert_int_equal(harness_numbers(say(h, "tids"), tids, AT), AT);
	for (unsigned i = 0; i < AT; i++)
		controls[i] = put_at_exit(h, tids[i], bytes[i], bias);
	thread_freeze_all(h->pid, tids, AT);
	id = session_insert_kind(s, "restored", POINT_EXIT);
	assert_int_equal(session_pending(s, id), 0);
	l = session_instance(s, id)->links;
	assert_int_equal(l->point_insn, 3);
	assert_int_equal(l->insn, 0);
	thread_thaw(h->pid);
	for (unsigned i = 0; i < AT; i++)
		for (uint64_t rounds = 1; rounds; usleep(1000))
			thread_peek(h->pid, controls[i], &rounds, sizeof(rounds));
	assert_int_equal(session_value(s, id), OVERWRITTEN);
	assert_string_equal(say(h, "go 1000"), "done");
	assert_int_equal(session_value(s, id), OVERWRITTEN + AT * 1000);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* In any order, under threads that execute all of it all the time. */
/* fear C1, C5: the same in and out in any order under four threads */
static void test_churn(void **state)
{
	enum { TURNS = 400, ALL = NAMES * 2 };
	unsigned short seed[3] = {SEED, 0, 0};
	struct harness *h = *state;
	unsigned ids[ALL] = {0};
	struct session *s;

	harness_limit(600);
	harness_start(h, "tactics", harness_number(THREADS), NULL);
	s = session_begin(h);
	assert_string_equal(say(h, "start"), "started");
	for (unsigned turn = 0; turn < TURNS; turn++) {
		unsigned i = (unsigned)(nrand48(seed) % ALL);

		if (ids[i]) {
			session_remove(s, ids[i]);
			ids[i] = 0;
		} else {
			ids[i] = session_insert_kind(s, names[i / 2], kinds[i % 2]);
		}
		if (turn % 5 == 0) {
			struct flush_result flushed;
			struct dinst_error e = {0};

			removal_flush(s, &flushed, &e);
		}
		request_retry_pending(s);
	}
	session_end(s);
	assert_true(atol(say(h, "end")) > 0);
	harness_verify(h);
	harness_end(h, 0);
}

/* ---------------------------------------------------------------- deaths */

/* A mutator's life; in the child. Dies at the chosen fault point, or tells how many there are. */
static void live_and_die(pid_t pid, unsigned long countdown, int report)
{
	static struct raw_metric metrics[2];
	const char *const foci[] = {"/Code/tactics/*"};
	struct dinst_error e = {0};
	struct detach_result detached;
	struct insert_result result;
	struct session *s;
	int status;

	fault_passed = 0;
	fault_countdown = countdown;
	status = session_attach(pid, "doomed", &s, &e);
	for (unsigned k = 0; k < 2 && status >= 0; k++) {
		metrics[k] = (struct raw_metric){.name = "points",
						 .unit = "",
						 .constraints = "/Code",
						 .kind = kinds[k],
						 .snippet = SNIPPET_COUNT};
		status = request_insert_raw(s, &metrics[k], foci, 1, false, &result, &e);
	}
	if (status >= 0)
		status = session_detach(s, 100, &detached, &e);
	if (write(report, &fault_passed, sizeof(fault_passed)) != sizeof(fault_passed))
		status = -1;
	_exit(status >= 0 || status == DINST_BUSY ? 0 : 3);
}

/* True if it was killed; *points: how many fault points there are, if it was not. */
static bool run_mutator(struct harness *h, unsigned long countdown, unsigned long *points)
{
	int pipes[2], status = 0;
	pid_t child;

	assert_int_equal(pipe(pipes), 0);
	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		live_and_die(h->pid, countdown, pipes[1]);
	close(pipes[1]);
	if (read(pipes[0], points, sizeof(*points)) != sizeof(*points))
		*points = 0;
	close(pipes[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		return true;
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail_msg("the mutator failed (%x) before it died at %lu", (unsigned)status,
			 countdown);
	return false;
}

static void clean_up(struct harness *h, unsigned long countdown)
{
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;

	if (target_open(h->pid, &t, &e) < 0 || leftovers_clean(t, CLEAN_MS, &left, &e) < 0)
		fail_msg("after death at %lu: %s", countdown, e.text);
	target_close(t);
	if (left.arenas_left)
		fail_msg("%zu arenas are left after death at %lu", left.arenas_left, countdown);
}

/* Killed between any two writes, with threads in all of it: each state is right for them. */
/* fear C7, J2: killed between any two of the writes that such a point needs */
static void test_deaths(void **state)
{
	enum { DEATHS = 40 };
	struct harness *h = *state;
	unsigned long points, ignored, step, lives = 0, deaths = 0;

	harness_limit(600);
	harness_start(h, "tactics", harness_number(THREADS), NULL);
	assert_string_equal(say(h, "start"), "started");
	assert_false(run_mutator(h, 0, &points));
	assert_true(points > 20);
	step = points / DEATHS + 1;
	for (unsigned long at = 1; at <= points; at += step) {
		deaths += run_mutator(h, at, &ignored);
		lives++;
		usleep(2000);
		clean_up(h, at);
	}
	/* On a busy machine one may give up before it comes so far. */
	assert_true(2 * deaths > lives);
	assert_true(atol(say(h, "end")) > 0);
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_tactics_are_used),
		CASE(test_exact),
		CASE(test_gone_round),
		CASE(test_shared_call),
		CASE(test_shared_call_crowded),
		CASE(test_shared_call_is_come_back_to),
		CASE(test_fails_once_more),
		CASE(test_threads_behind_the_count),
		CASE(test_churn),
		CASE(test_deaths),
	};

	return cmocka_run_group_tests_name("live/tactics", tests, NULL, NULL);
}
