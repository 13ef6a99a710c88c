/* SPDX-License-Identifier: MIT */
/*
 * signals.c - signals, masks, handlers and blocking calls of a target that is
 * instrumented all the time: none lost, none cut short, everything as before.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/live/harness_session.h"

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void say(struct harness *h, const char *format, long n)
{
	char text[64];

	snprintf(text, sizeof(text), format, n);
	harness_send(h, text);
}

static void cycle(struct session *s, const char *focus, enum point_kind kind)
{
	unsigned id = session_insert_kind(s, focus, kind);

	session_remove(s, id);
	session_flush_all(s);
}

/* ----------------------------------------------------------- unchanged */

/*
 * What the kernel knows of the target is the same with everything inserted as without.
 *
 * fear A5, J3: every disposition, mask, alternate stack and pending signal, descriptors and threads are
 * the same with the program and the C library's signal functions instrumented, and afterwards
 */
static void test_nothing_installed(void **state)
{
	struct harness *h = *state;
	struct session *s;

	harness_start(h, "signalled", NULL);
	s = session_begin(h);
	harness_verify_what(h, HARNESS_ATTACHED);
	for (int kind = POINT_ENTRY; kind <= POINT_CALL; kind++)
		session_insert_kind(s, "/Code/signalled/*", (enum point_kind)kind);
	session_insert(s, "/Code/libc.so.6/*sig*");
	harness_verify_what(h, HARNESS_ATTACHED);
	harness_send(h, "check\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "same");
	session_end(s);
	harness_verify(h);
	harness_send(h, "check\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "same");
	harness_end(h, 0);
}

/* --------------------------------------------------------------- storm */

/* One change of what is in: in the session, or where there is none by one of its own. */
static void storm_cycle(struct harness *h, struct session *s, int n)
{
	static const char *const foci[] = {"/Code/signalled/*", "leaf", "on_tick",
					   "/Code/libc.so.6/*sig*"};
	struct session *own = s ? s : session_begin(h);

	cycle(own, foci[n % 4], n % 3 == 1 ? POINT_EXIT : POINT_ENTRY);
	if (!s)
		session_end(own);
}

/* As many cycles as there is time for, and at least 200; a storm may need another one. */
static void storm(struct harness *h, bool attached)
{
	enum { CYCLES = 200 / SLOWER, STORM_MS = 4000 };
	struct session *s;
	uint64_t end;
	int cycles = 0;

	harness_limit(600);
	harness_start(h, "signalled", NULL);
	s = attached ? session_begin(h) : NULL;
	do {
		end = now_ms() + STORM_MS;
		say(h, "storm %ld\n", STORM_MS);
		while (now_ms() + 300 < end)
			storm_cycle(h, s, cycles++);
		assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	} while (cycles < CYCLES);
	if (s)
		session_end(s);
	harness_verify(h);
	harness_send(h, "check\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "same");
	harness_end(h, 0);
}

/*
 * fear A4: timers and threads send signals all the time through 200 insertions and removals in the
 * handlers themselves: as many arrive as were sent, realtime ones, children's and timers'.
 */
static void test_storm(void **state)
{
	storm(*state, true);
}

/* fear A4: the same through 200 sessions, each with an arena of its own that comes and goes */
static void test_storm_of_sessions(void **state)
{
	storm(*state, false);
}

/* fear E6: a profiler's handler walks the stack wherever it interrupts */
static void test_profiler(void **state)
{
	struct harness *h = *state;
	unsigned long handlers = 0, all = 0;
	struct session *s;
	uint64_t end;

	harness_start(h, "signalled", NULL);
	s = session_begin(h);
	for (int kind = POINT_ENTRY; kind <= POINT_CALL; kind++)
		session_insert_kind(s, "/Code/signalled/*", (enum point_kind)kind);
	/* Signals come by the CPU time that it gets: on a busy machine once is not enough. */
	for (int turn = 0; turn < 20 && all <= 50; turn++) {
		say(h, "profile %ld\n", 1500);
		end = now_ms() + 1200;
		while (now_ms() < end) {
			cycle(s, "/Code/signalled/*", POINT_ENTRY);
			cycle(s, "middle", POINT_EXIT);
		}
		assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "done %lu", &handlers),
				 1);
		all += handlers;
	}
	assert_true(all > 50);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* ------------------------------------------------------ blocking calls */

struct outcome {
	char name[32];
	long result;
	int error;
	double ms;
	char kind;
};

/* Reads one line of the report, which begins within `wait` ms and a bit; false at its end. */
static bool next_outcome(struct harness *h, double wait, struct outcome *o)
{
	const char *line = harness_line(h, (unsigned)wait + 30000);

	if (!strcmp(line, "done"))
		return false;
	if (sscanf(line, "%31s %ld %d %lf %c", o->name, &o->result, &o->error, &o->ms, &o->kind) !=
	    5)
		fail_msg("not an outcome: %s", line);
	return true;
}

static bool ended_in_time(const struct outcome *o)
{
	static const struct {
		const char *name;
		int error;
	} timed[] = {{"futex-timeout", ETIMEDOUT},
		     {"sigtimedwait", EAGAIN},
		     {"semtimedop", EAGAIN},
		     {"recv-timeout", EAGAIN},
		     {"accept-timeout", EAGAIN}};

	for (size_t i = 0; i < sizeof(timed) / sizeof(timed[0]); i++)
		if (!strcmp(o->name, timed[i].name))
			return o->result == -1 && o->error == timed[i].error;
	return o->result >= 0 && (o->kind == 'c' || o->result == 0);
}

/*
 * Reads the outcomes of calls that wait for `wait` ms and were stopped until `last_stop`.
 * A session remembers since when a call waits; to a new one it begins with its first stop.
 * `longest`: what one cycle took on this machine at worst; threads come late likewise.
 */
static void expect_whole(struct harness *h, double wait, double last_stop, double longest,
			 bool remembered)
{
	double slack = 400 + wait / 10 + 20 * longest;
	size_t outcomes = 0;
	struct outcome o;

	while (next_outcome(h, wait + last_stop, &o)) {
		double late = o.kind == 'r' ? last_stop : o.kind == 'c' ? 100 : 0;

		if (!remembered && !strncmp(o.name, "epoll", 5))
			late = last_stop;
		if (!ended_in_time(&o))
			fail_msg("%s returned %ld (%s) after %.0f ms", o.name, o.result,
				 strerror(o.error), o.ms);
		if (o.ms < wait - 2 || o.ms > wait + late + slack)
			fail_msg("%s took %.0f ms, not %.0f (last stop after %.0f ms)", o.name,
				 o.ms, wait, last_stop);
		outcomes++;
	}
	assert_true(outcomes >= 20);
}

static void attach_cycle(struct harness *h, struct session *unused)
{
	struct session *s = session_begin(h);

	(void)unused;
	session_insert(s, "/Code/libc.so.6/*poll*");
	session_end(s);
}

static void insert_cycle(struct harness *h, struct session *s)
{
	(void)h;
	cycle(s, "/Code/libc.so.6/*poll*", POINT_ENTRY);
}

/* One wait with as many cycles in it as there is time for; how many. */
static int wait_once(struct harness *h, struct session *s, double wait, int most,
		     void (*run_cycle)(struct harness *, struct session *))
{
	const uint64_t start = now_ms();
	double last_stop, longest = 0;
	uint64_t begun;
	int cycles = 0;

	say(h, "wait %ld\n", (long)wait);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "begun");
	for (; cycles < most && (double)(now_ms() - start) + 5 * longest < wait / 2; cycles++) {
		begun = now_ms();
		run_cycle(h, s);
		if ((double)(now_ms() - begun) > longest)
			longest = (double)(now_ms() - begun);
		usleep(2000);
	}
	last_stop = (double)(now_ms() - start);
	print_message("%d cycles in %.0f ms, the longest %.0f ms\n", cycles, wait, longest);
	assert_true(cycles > 0 && last_stop < wait);
	expect_whole(h, wait, last_stop, longest, s != NULL);
	return cycles;
}

/*
 * A hundred cycles, in one wait where there is time for them, ten in one at least: no call ends before its time or
 * with EINTR. A timeout in the target's memory begins anew with each stop (or, poll and select,
 * with what the kernel wrote there when the stop began), so those calls may take longer by as
 * much as had passed at the last one, and no more.
 */
static void run_blocking(struct harness *h, struct session *s,
			 void (*run_cycle)(struct harness *, struct session *))
{
	enum { CYCLES = 100 / SLOWER, FIRST = 10, WAIT_MS_MAX = 30000 };
	const double least = (double)harness_setting("BLOCKING_MS", 2500);
	uint64_t start;
	double wait;

	/* All cycles must have their place while the calls wait, on a slow machine too. */
	harness_limit(600);
	start = now_ms();
	for (int i = 0; i < FIRST; i++)
		run_cycle(h, s);
	wait = least + (double)(now_ms() - start) * 6 * CYCLES / FIRST;
	if (wait > WAIT_MS_MAX)
		wait = WAIT_MS_MAX;
	for (int cycles = 0, most = 0; cycles < CYCLES || most < FIRST;) {
		const int left = cycles < CYCLES ? CYCLES - cycles : FIRST;
		const int now = wait_once(h, s, wait, left, run_cycle);

		cycles += now;
		most = now > most ? now : most;
	}
}

/*
 * fear A6, A7: a thread in each of some 25 blocking calls while points come and go a hundred times
 * (hostile/longer.sh: in calls of 25 s): none returns early or with EINTR, timeouts last as long as
 * they should.
 */
static void test_blocking_calls(void **state)
{
	struct harness *h = *state;
	struct session *s;

	harness_start(h, "blocking", NULL);
	s = session_begin(h);
	session_insert(s, "/Code/blocking/*");
	run_blocking(h, s, insert_cycle);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * The same with an arena made and taken out each time, by threads that are in these calls.
 *
 * fear A6, A7: the same with as many sessions, each of which makes system calls in the target
 */
static void test_blocking_attached(void **state)
{
	struct harness *h = *state;

	harness_start(h, "blocking", NULL);
	run_blocking(h, NULL, attach_cycle);
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * A handler that runs still makes every one of them return EINTR, at once.
 *
 * fear A6, A4: a signal with a handler still interrupts each of them, at once, stops or not
 */
static void test_handlers_still_interrupt(void **state)
{
	enum { CYCLES = 20, WAIT_MS = 100000 };
	struct harness *h = *state;
	struct outcome o;
	struct session *s;
	size_t outcomes = 0;
	double passed;
	uint64_t start;

	harness_start(h, "blocking", NULL);
	s = session_begin(h);
	start = now_ms();
	say(h, "interrupt %ld\n", WAIT_MS);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "begun");
	for (int i = 0; i < CYCLES; i++)
		cycle(s, "/Code/blocking/*", POINT_ENTRY);
	harness_send(h, "kill\n");
	session_insert(s, "/Code/blocking/*");
	passed = (double)(now_ms() - start);
	while (next_outcome(h, WAIT_MS, &o)) {
		if (o.result != -1 || o.error != EINTR)
			fail_msg(
				"%s returned %ld (%s) after %.0f ms, not EINTR after %.0f ms at most",
				o.name, o.result, strerror(o.error), o.ms, passed);
		assert_true(o.ms < passed + 1000);
		outcomes++;
	}
	assert_true(outcomes >= 20);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

/* signals [CASES]: those whose names it fits */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(test_nothing_installed),	     CASE(test_storm),
		CASE(test_storm_of_sessions),	     CASE(test_profiler),
		CASE(test_blocking_calls),	     CASE(test_blocking_attached),
		CASE(test_handlers_still_interrupt),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("live/signals", tests, NULL, NULL);
}
