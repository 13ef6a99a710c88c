/* SPDX-License-Identifier: MIT */
/*
 * stack_left.c - stacks that a thread was interrupted on, and has left: what a handler comes back to is
 * found, by the scan and by the walk.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "inject/stack_snapshot.h"
#include "tests/live/harness_thread.h"
#include "tests/live/inject_help.h"

enum { PAGE = 4096, MAPPED = 4 << 20, LOOKED_AT = 1 << 20 };

static struct snapshot *shot;

static int take(struct stop *s, void *arg, struct dinst_error *e)
{
	(void)arg;
	return snapshot_take_threads(s, &shot, e);
}

static void expect(taddr_t address, bool hit)
{
	struct stack_range range = {address, address + 1, false};

	assert_int_equal(snapshot_scan_stacks(shot, &range, 1), hit);
	range.hit = false;
	assert_int_equal(snapshot_walk(shot, NULL, NULL, &range, 1), hit);
}

/* `precise`: what nobody comes back to is not found. */
static void run(struct harness *h, const char *mode, bool precise)
{
	const taddr_t stuck = harness_symbol("tests/live/targets/stack-left", "stuck_at");
	struct target *t;

	harness_start(h, "stack-left", mode, NULL);
	t = help_open((pid_t)strtol(harness_line(h, HARNESS_ANSWER_MS), NULL, 10));
	help_stop_well(t, take, NULL);
	expect(stuck, true);
	if (precise)
		expect(stuck + 1, false);
	snapshot_free(shot);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear C2, H5, J1: the handler of a fault is about to make the guard usable that the interrupted stack pointer leads into,
 * as of a stack that grows: nothing can be a stack there yet, and it is followed all the same
 */
static void guard_is_about_to_go(void **state)
{
	run(*state, "guard", false);
}

/* fear C2, H5, J1: the handler goes on on a small stack directly above the thread's, in one mapping with it */
static void other_stack_above(void **state)
{
	run(*state, "above", true);
}

/* fear C2, H5, J1: the same in a child that another thread than the first has forked there */
static void forked_by_a_thread(void **state)
{
	run(*state, "forked", true);
}

/* fear C2, H5, J1: the same where the thread's stack is in use for some MiB */
static void deep_in_its_stack(void **state)
{
	run(*state, "deep", true);
}

/* Where what is used of a stack in `home` begins; its last page is used by half. */
static taddr_t begin_of(const struct target *t, const struct maps_entry *home, bool *beyond)
{
	const struct snapshot in = {.target = t};

	return snapshot_home_begin(&in, home, home->hi - LOOKED_AT, home->hi - PAGE / 2, beyond);
}

/*
 * fear C2, H5: of a stack that is looked at no page may be there, in memory that is shared as in private one, and where it
 * begins is told all the same, at once; what lies below is in use if it is, and not behind a guard
 */
static void nothing_is_there(void **state)
{
	const int kinds[] = {MAP_PRIVATE, MAP_SHARED};
	struct dinst_error e = {0};
	struct target *t;
	bool beyond;

	(void)state;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		uint8_t *at =
			mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, kinds[i] | MAP_ANONYMOUS, -1, 0);
		struct maps_entry home = {.lo = (uintptr_t)at,
					  .hi = (uintptr_t)at + MAPPED,
					  .shared = kinds[i] == MAP_SHARED};
		const taddr_t none = home.shared ? home.hi - LOOKED_AT : home.hi - PAGE / 2;

		assert_true(at != MAP_FAILED);
		alarm(10);
		assert_int_equal(target_open(getpid(), &t, &e), 0);
		assert_int_equal(begin_of(t, &home, &beyond), none);
		assert_false(beyond);
		at[MAPPED - LOOKED_AT + PAGE] = 1;
		assert_int_equal(begin_of(t, &home, &beyond),
				 home.hi - LOOKED_AT + (home.shared ? 0 : PAGE));
		assert_false(beyond);
		at[0] = 1;
		begin_of(t, &home, &beyond);
		assert_true(beyond);
		/* Linux 6.13: MADV_GUARD_INSTALL */
		if (!home.shared && !madvise(at + MAPPED - LOOKED_AT, PAGE, 102)) {
			assert_int_equal(begin_of(t, &home, &beyond), home.hi - LOOKED_AT + PAGE);
			assert_false(beyond);
		}
		target_close(t);
		munmap(at, MAPPED);
		alarm(0);
	}
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(guard_is_about_to_go), CASE(other_stack_above), CASE(forked_by_a_thread),
		CASE(deep_in_its_stack),    CASE(nothing_is_there),
	};

	return cmocka_run_group_tests_name("live/stack_left", tests, NULL, NULL);
}
