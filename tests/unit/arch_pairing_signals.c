/* SPDX-License-Identifier: MIT */
/*
 * arch_pairing_signals.c - signal handlers at every single instruction of the
 * code that pairs entries with exits: they run it themselves, and return, leave
 * things behind, or never return.
 */
#include <ucontext.h>

#include "tests/unit/arch_pairing.h"

enum { PLACES = 512 };

/* ------------------------------------- handlers at every single instruction */

/*
 * First the instructions are found out that an event executes, by the trap
 * flag; then each of them in turn is made to trap when it is reached first.
 */
static struct {
	unsigned function;
	uint64_t sp;
	size_t places[PLACES], count; /* offsets in `code`, of an event that was traced */
	bool tracing;
	uint8_t *planted, original;
	unsigned what; /* the handler does */
	bool leaves_all;
	sigjmp_buf out;
	size_t untrue; /* runs in which something was lost though the handler returned */
} trap;

static void note_place(size_t place)
{
	for (size_t i = 0; i < trap.count; i++)
		if (trap.places[i] == place)
			return;
	assert_true(trap.count < PLACES);
	trap.places[trap.count++] = place;
}

/* Events of a handler, at stack pointers below the interrupted one or on another stack. */
static void nested_events(uint64_t sp, unsigned what)
{
	const uint64_t other = (uint64_t)(uintptr_t)stacks[2] + 8192;
	const unsigned same = trap.function, another = 1 + same % FUNCTIONS;

	if (what & 1) {
		assert_true(enter(another, sp));
		assert_true(enter(same, sp - 48));
		if (what & 2)
			assert_true(leave(same, sp - 48));
		assert_true(leave(another, sp));
	}
	if (what & 4)
		enter(same, sp - 96); /* and never left */
	if (what & 8) {
		assert_true(enter(same, other));
		assert_true(enter(another, other - 32));
		assert_true(leave(another, other - 32));
		assert_true(leave(same, other));
	}
	if (what & 16)
		assert_false(leave(another, sp - 160));
}

static void on_trap(int signal, siginfo_t *info, void *context)
{
	ucontext_t *u = context;
	const uint64_t pc = (uint64_t)u->uc_mcontext.gregs[REG_RIP];
	uint64_t here = (uint64_t)(uintptr_t)__builtin_frame_address(0);

	(void)signal;
	(void)info;
	if (trap.tracing && pc - (uint64_t)(uintptr_t)code < CODE_SIZE)
		note_place(pc - (uint64_t)(uintptr_t)code);
	if (trap.tracing)
		return;
	assert_ptr_equal(trap.planted, (uint8_t *)(uintptr_t)pc - 1);
	*trap.planted = trap.original;
	trap.planted = NULL;
	u->uc_mcontext.gregs[REG_RIP]--;
	if (here > trap.sp || trap.sp - here > STACK_BYTES / 2)
		here = trap.sp - 16384; /* the handler runs elsewhere */
	nested_events((here - 4096) & ~15ull, trap.what);
	if (trap.leaves_all)
		siglongjmp(trap.out, 1);
}

static void set_trap_handler(bool on_other_stack)
{
	struct sigaction action = {.sa_flags = SA_SIGINFO | (on_other_stack ? SA_ONSTACK : 0)};

	action.sa_sigaction = on_trap;
	sigaction(SIGTRAP, &action, NULL);
}

/* One event with a handler at that instruction; true if it came to its end. */
static bool interrupted(bool is_leave, unsigned function, uint64_t sp, size_t place, bool *counted)
{
	trap.function = function;
	trap.sp = sp;
	if (trap.tracing) {
		*counted = event(is_leave, function, sp, TRAP_FLAG);
		return true;
	}
	trap.planted = code + place;
	trap.original = *trap.planted;
	if (sigsetjmp(trap.out, 1))
		return false;
	*trap.planted = 0xcc;
	*counted = event(is_leave, function, sp, 0);
	assert_null(trap.planted);
	return true;
}

struct scene {
	const char *name;
	bool fresh;	/* no record yet */
	bool stale;	/* something dead is on top */
	bool elsewhere; /* not on the thread's own stack */
};

static const struct scene scenes[] = {
	{"usual", false, false, false},		{"stale", false, true, false},
	{"fresh", true, false, false},		{"elsewhere", false, false, true},
	{"fresh elsewhere", true, false, true},
};

/*
 * Every activation that was kept ends once: by its exit, or by being undone. Two
 * things may go wrong, both by one: the event itself, or what it was about to
 * drop, where the handler never came back; and what the handler left behind by
 * a jump of its own, if it came between a few instructions that change the depth.
 * What a new thread's handlers do before it has its record is forgotten with it.
 */
static void check_ends(const struct scene *scene, bool whole)
{
	const uint64_t untrue = count_untrue();

	if (scene->fresh || !untrue)
		return;
	assert_int_equal(untrue, 1);
	assert_true(!whole || (trap.what & 4));
	trap.untrue += whole;
}

/*
 * What a handler has jumped out of while it was left has ended at least once, by its exit, by being undone, or by
 * both: nothing of it stays. The handler's own is told above.
 */
static void check_left(unsigned function)
{
	assert_true((trap.what & 4) ||
		    truth[function].found + truth[function].undone + in_record(function) >=
			    truth[function].kept);
}

/* An entry or an exit is interrupted; whatever a handler does, they find each other. */
static void one_interruption(const struct scene *scene, bool is_leave, size_t place)
{
	const uint64_t top = (uint64_t)(uintptr_t)stacks[0] + STACK_BYTES - 64;
	const uint64_t sp =
		scene->elsewhere ? (uint64_t)(uintptr_t)stacks[1] + STACK_BYTES / 2 : top - 256;
	bool counted = true, whole;

	clear_area();
	claim_stack(stacks[0], STACK_BYTES);
	if (!scene->fresh) {
		assert_true(enter(7, top));
		assert_true(enter(1, top - 128));
	}
	if (scene->stale)
		for (unsigned i = 0; i < 3; i++)
			assert_true(enter(8, sp - 64 * i));
	if (is_leave) {
		assert_true(enter(5, sp));
		if (scene->stale)
			assert_true(enter(9, sp - 512));
	}
	whole = interrupted(is_leave, 5, sp, place, &counted);
	assert_true(counted);
	if (!is_leave && whole) {
		/* Alive, whatever the handler left. */
		assert_true(enter(6, sp - 640));
		assert_true(leave(6, sp - 640));
		assert_true(leave(5, sp));
	}
	if (whole)
		assert_false(leave(5, sp));
	if (!scene->fresh) {
		assert_true(leave(1, top - 128));
		assert_true(leave(7, top));
		assert_int_equal(own_record()->depth, 0);
	}
	assert_int_equal(statistics[1], 0);
	check_ends(scene, whole);
	if (is_leave)
		check_left(5);
}

static void all_interruptions(bool is_leave, bool leaves_all, bool on_other_stack)
{
	size_t runs = 0;

	trap.untrue = 0;
	set_trap_handler(on_other_stack);
	trap.leaves_all = leaves_all;
	for (size_t s = 0; s < sizeof(scenes) / sizeof(scenes[0]); s++) {
		trap.count = 0;
		trap.tracing = true;
		one_interruption(&scenes[s], is_leave, 0);
		trap.tracing = false;
		assert_true(trap.count > 20);
		for (trap.what = 0; trap.what < 32; trap.what++)
			for (size_t i = 0; i < trap.count; i++, runs++)
				one_interruption(&scenes[s], is_leave, trap.places[i]);
	}
	signal(SIGTRAP, SIG_DFL);
	assert_true(trap.untrue < runs / 25);
	print_message("%zu interruptions, %zu lost something\n", runs, trap.untrue);
}

static void test_handlers_in_entries(void **state)
{
	(void)state;
	all_interruptions(false, false, false);
}

static void test_handlers_in_exits(void **state)
{
	(void)state;
	all_interruptions(true, false, false);
}

static void test_handlers_on_their_own_stack(void **state)
{
	stack_t alternate = {.ss_size = 1 << 18};

	(void)state;
	alternate.ss_sp = stacks[3] + STACK_BYTES / 2;
	assert_int_equal(sigaltstack(&alternate, NULL), 0);
	all_interruptions(false, false, true);
	all_interruptions(true, false, true);
	alternate.ss_flags = SS_DISABLE;
	sigaltstack(&alternate, NULL);
}

static void test_handlers_that_do_not_return(void **state)
{
	(void)state;
	all_interruptions(false, true, false);
	all_interruptions(true, true, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_handlers_in_entries),
		cmocka_unit_test(test_handlers_in_exits),
		cmocka_unit_test(test_handlers_on_their_own_stack),
		cmocka_unit_test(test_handlers_that_do_not_return),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
