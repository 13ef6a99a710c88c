/* SPDX-License-Identifier: MIT */
/*
 * stack_places.c - stacks that share a mapping, one that is too deep to be
 * copied whole (then everything counts as found), and a hostile unwind table.
 */
#include <unistd.h>

#include "inject/stack.h"
#include "tests/live/harness_thread.h"
#include "tests/live/inject_help.h"

static struct snapshot *shot;

static int take(struct stop *s, void *arg, struct dinst_error *e)
{
	(void)arg;
	return snapshot_take(s, &shot, e);
}

static taddr_t begin(struct harness *h, const char *mode)
{
	struct target *t;
	taddr_t address;

	harness_start(h, "stack-places", mode, NULL);
	address = strtoull(harness_line(h, HARNESS_ANSWER_MS), NULL, 16);
	t = help_open(h->pid);
	help_stop_well(t, take, NULL);
	/* Only the walk needs the target; these cases scan. */
	target_close(t);
	return address;
}

static void finish(struct harness *h)
{
	snapshot_free(shot);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear C2, H5: stacks that share one mapping */
static void one_mapping_for_many(void **state)
{
	struct stack_range range, other;
	taddr_t address = begin(*state, "shared");

	range = (struct stack_range){address, address + 1, false};
	other = (struct stack_range){address + 1, address + 2, false};
	assert_int_equal(snapshot_scan_stacks(shot, &range, 1), 1);
	/* That there is more in the mapping than is copied makes nobody overcautious. */
	assert_int_equal(snapshot_scan(shot, &other, 1), 0);
	finish(*state);
}

/*
 * fear C2, J7: stacks that share one mapping, with guards between them that are no mappings, as glibc
 * makes them since 2.42: that these cannot be read keeps nobody waiting
 */
static void guards_between(void **state)
{
	struct stack_range range, other;
	taddr_t address = begin(*state, "guards");

	if (!address) {
		print_message("SKIP the kernel knows no such guards, or does not tell\n");
		snapshot_free(shot);
		skip();
	}
	range = (struct stack_range){address, address + 1, false};
	other = (struct stack_range){address + 1, address + 2, false};
	assert_int_equal(snapshot_scan_stacks(shot, &range, 1), 1);
	assert_int_equal(snapshot_scan(shot, &other, 1), 0);
	finish(*state);
}

/* fear C2: a stack that consists of several mappings, since a page of it is treated otherwise */
static void several_mappings(void **state)
{
	struct stack_range range, other;
	taddr_t address = begin(*state, "split");

	range = (struct stack_range){address, address + 1, false};
	other = (struct stack_range){address + 1, address + 2, false};
	assert_int_equal(snapshot_scan_stacks(shot, &range, 1), 1);
	assert_int_equal(snapshot_scan(shot, &other, 1), 0);
	finish(*state);
}

/* fear C2: a stack too deep to be copied: everything counts as found */
static void too_deep(void **state)
{
	struct stack_range ranges[2];
	taddr_t address = begin(*state, "deep");

	ranges[0] = (struct stack_range){1, 2, false};
	ranges[1] = (struct stack_range){address, address + 1, false};
	assert_int_equal(snapshot_scan_stacks(shot, ranges, 2), 2);
	assert_true(ranges[0].hit && ranges[1].hit);
	finish(*state);
}

/* fear C2: deep in the stack of a thread that was given a large one: nothing at its other end is missed */
static void deep_thread(void **state)
{
	struct stack_range range, other;
	taddr_t address = begin(*state, "thread");

	range = (struct stack_range){address, address + 1, false};
	other = (struct stack_range){address + 1, address + 2, false};
	assert_int_equal(snapshot_scan_stacks(shot, &range, 1), 1);
	assert_int_equal(snapshot_scan(shot, &other, 1), 0);
	finish(*state);
}

/*
 * fear J7: a stack that is too deep to be copied because of one array: a walk passes it by, so that
 * what is removed need not wait for the array to go
 */
static void below_an_array(void **state)
{
	struct stack_range range, other;
	struct harness *h = *state;
	taddr_t address;
	struct target *t;

	harness_start(h, "stack-places", "array", NULL);
	address = strtoull(harness_line(h, HARNESS_ANSWER_MS), NULL, 16);
	t = help_open(h->pid);
	help_stop_well(t, take, NULL);
	range = (struct stack_range){address, address + 1, false};
	other = (struct stack_range){address + 1, address + 2, false};
	assert_int_equal(snapshot_scan(shot, &other, 1), 1);
	other.hit = false;
	assert_int_equal(snapshot_walk(shot, NULL, NULL, &range, 1), 1);
	assert_int_equal(snapshot_walk(shot, NULL, NULL, &other, 1), 0);
	target_close(t);
	finish(h);
}

/* Unwind tables are outside input: a walk that would never end does end. */
/* fear L1: an unwind table that never ends */
static void endless_table(void **state)
{
	struct harness *h = *state;
	taddr_t pcs[8];
	bool complete = true;
	struct target *t;

	harness_start(h, "stack-hostile", NULL);
	t = help_open(h->pid);
	help_stop_well(t, take, NULL);
	assert_int_equal(snapshot_backtrace(shot, h->pid, NULL, NULL, pcs, 8, &complete), 1);
	assert_false(complete);
	target_close(t);
	finish(h);
}

static taddr_t top; /* where the thread's stack pointer leads to */

static int take_top(struct stop *s, void *arg, struct dinst_error *e)
{
	const taddr_t sp = arch_sp(&stop_thread(s, 0)->regs);
	int status = target_read(stop_target(s), sp, &top, sizeof(top), e);

	return status < 0 ? status : take(s, arg, e);
}

/* What a table leaves out is found: a walk by it has not come to the start of the thread for sure. */
static void walk_by_lies(struct harness *h, const char *mode, bool may_end)
{
	struct stack_range back = {0};
	bool complete = !may_end;
	struct target *t;
	taddr_t pcs[8];

	harness_start(h, "stack-lies", mode, NULL);
	thread_wait_input(h->pid);
	t = help_open(h->pid);
	help_stop_well(t, take_top, NULL);
	assert_int_equal(snapshot_backtrace(shot, h->pid, NULL, NULL, pcs, 8, &complete), 1);
	assert_int_equal(complete, may_end);
	back = (struct stack_range){top, top + 1, false};
	assert_int_equal(snapshot_walk(shot, NULL, NULL, &back, 1), 1);
	target_close(t);
	finish(h);
}

/* fear C2: a table that leads to a zero: shown as the start of the thread, not taken for it */
static void zero_is_no_end(void **state)
{
	walk_by_lies(*state, "zero", true);
}

/* fear C2: a table that says that the frame pointer is lost: not the start of the thread */
static void lost_pointer_is_no_end(void **state)
{
	walk_by_lies(*state, "pointer", false);
}

static taddr_t interrupted; /* by the signal whose handler the thread is at the begin of */

static int take_interrupted(struct stop *s, void *arg, struct dinst_error *e)
{
	uint8_t frame[ARCH_SIGNAL_FRAME];
	taddr_t sp = arch_sp(&stop_thread(s, 0)->regs);
	int status = target_read(stop_target(s), sp, frame, sizeof(frame), e);

	assert_int_equal(arch_signal_frame(frame, sizeof(frame), &interrupted, &sp), ARCH_OK);
	return status < 0 ? status : take(s, arg, e);
}

/*
 * fear C2: a table that leads from a signal's handler to the caller of what it interrupted, as those do that know of
 * no epilogues: where the handler returns to is found
 */
static void skipped_signal_is_found(void **state)
{
	struct harness *h = *state;
	struct stack_range back, other;
	bool complete = false;
	struct target *t;
	taddr_t pcs[8];

	harness_start(h, "stack-lies", "signal", NULL);
	thread_wait_input(h->pid);
	t = help_open(h->pid);
	help_stop_well(t, take_interrupted, NULL);
	assert_int_equal(snapshot_backtrace(shot, h->pid, NULL, NULL, pcs, 8, &complete), 2);
	assert_true(complete);
	back = (struct stack_range){interrupted, interrupted + 1, false};
	other = (struct stack_range){interrupted + 1, interrupted + 2, false};
	assert_int_equal(snapshot_walk(shot, NULL, NULL, &back, 1), 1);
	assert_int_equal(snapshot_walk(shot, NULL, NULL, &other, 1), 0);
	target_close(t);
	finish(h);
}

/* fear L1: registers that no processor has */
static void strange_register(void **state)
{
	walk_by_lies(*state, "register", false);
}

static void strange_column(void **state)
{
	walk_by_lies(*state, "column", false);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(one_mapping_for_many), CASE(several_mappings), CASE(too_deep),
		CASE(endless_table),	    CASE(zero_is_no_end),   CASE(lost_pointer_is_no_end),
		CASE(strange_register),	    CASE(strange_column),   CASE(deep_thread),
		CASE(below_an_array),	    CASE(guards_between),   CASE(skipped_signal_is_found),
	};

	return cmocka_run_group_tests_name("live/stack_places", tests, NULL, NULL);
}
