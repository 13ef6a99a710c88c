/* SPDX-License-Identifier: MIT */
/*
 * arch_pairing_undo.c - activations that end without an exit: when their undo
 * routines run, and which moment they are told; timers of a forked child.
 */
#include <sys/wait.h>
#include <time.h>

#include "arch/program.h"
#include "tests/unit/arch_pairing.h"

#ifdef __aarch64__
int main(void)
{
	return 0;
}
#else

static uint64_t mark_time; /* that the next mark gets */
static taddr_t mark_code;

/* As the hooks do it: a mark, and the time in it. */
static void emit_mark_code(void)
{
	struct arch_pairing spec = {
		.area = (taddr_t)(uintptr_t)area,
		.shift = SHIFT,
		.tid_offset = tid_offset,
		.enter = enter_routine,
		.leave = leave_routine,
	};
	const struct arch_state_code state = {
		.result = RSI, .record = ARCH_NO_REGISTER, .temps = {RAX, RCX, RDX}, .pushed = 128};
	struct arch_buf out = {.bytes = code, .size = COLD_AT, .pc = (taddr_t)(uintptr_t)code};
	struct arch_buf cold = {.bytes = code, .size = CODE_SIZE, .pc = out.pc};
	struct arch_frame frame = {.red_zone = true};
	struct asm_label none = {0};

	out.used = code_used;
	cold.used = cold_used;
	mark_code = arch_here(&out);
	asm_op_mem(&out, true, ASM_LEA, RSP, asm_at(RSP, -128));
	arch_emit_enter_op(&spec, &state, &out, &cold);
	asm_op_reg(&out, true, ASM_TEST, RSI, RSI);
	asm_jump(&out, ASM_JUMP_E, &none);
	asm_load(&out, RAX, at_address(&out, RCX, &mark_time));
	asm_store(&out, RAX, asm_at(RSI, offsetof(struct pair_entry, start)));
	asm_place(&out, &none);
	asm_op_mem(&out, true, ASM_LEA, RSP, asm_at(RSP, 128));
	end_run(&frame, &out);
	assert_int_equal(out.status | cold.status, ARCH_OK);
	code_used = out.used;
	cold_used = cold.used;
}

static void mark(uint64_t sp, uint64_t time)
{
	mark_time = time;
	run_at(mark_code, sp, 0);
}

static uint64_t begin(void)
{
	clear_area();
	claim_stack(stacks[0], STACK_BYTES);
	return (uint64_t)(uintptr_t)stacks[0] + STACK_BYTES - 64;
}

/* Sets the start word of the last entry of home, as a program does. */
static void started(uint64_t time)
{
	struct pair_record *r = own_record();

	r->home[r->depth / sizeof(struct pair_entry) - 1].start = time;
}

static void expect(unsigned function, uint64_t times, uint64_t at, uint64_t start)
{
	assert_int_equal(truth[function].undone, times);
	if (times) {
		assert_int_equal(truth[function].dropped_at, at);
		assert_int_equal(truth[function].dropped_start, start);
	}
}

/* A longjmp over two activations, seen at the next entry: they ended when it was called. */
static void test_longjmp(void **state)
{
	const uint64_t top = begin();

	(void)state;
	assert_true(enter(1, top));
	assert_true(enter(3, top - 64));
	started(70);
	assert_true(enter(5, top - 128));
	started(90);
	mark(top - 256, 1000);
	assert_int_equal(truth[5].undone, 0);
	assert_true(enter(7, top - 64));
	expect(5, 1, 1000, 90);
	expect(3, 1, 1000, 70);
	assert_true(leave(7, top - 64));
	assert_true(leave(1, top));
	expect(1, 0, 0, 0);
	assert_int_equal(own_record()->depth, 0);
}

/* ... and at an exit. What is left normally is not undone. */
static void test_seen_at_an_exit(void **state)
{
	const uint64_t top = begin();

	(void)state;
	assert_true(enter(1, top));
	assert_true(enter(3, top - 64));
	mark(top - 256, 2000);
	assert_true(leave(1, top));
	expect(3, 1, 2000, 0);
	expect(1, 0, 0, 0);
	assert_int_equal(own_record()->depth, 0);
}

/* Without a hook there is no moment: now. */
static void test_no_hook(void **state)
{
	const uint64_t top = begin();

	(void)state;
	assert_true(enter(1, top));
	assert_true(enter(3, top - 64));
	assert_true(enter(1, top));
	expect(3, 1, 0, 0);
	expect(1, 1, 0, 0);
	assert_true(leave(1, top));
}

/* What was entered behind the mark did not end with it; each ends with its own. */
static void test_several_marks(void **state)
{
	const uint64_t top = begin();

	(void)state;
	assert_true(enter(1, top));
	assert_true(enter(3, top - 64));
	mark(top - 128, 1000);
	/* A handler, or what was called before it landed. */
	assert_true(enter(5, top - 512));
	mark(top - 600, 2000);
	assert_true(enter(9, top - 700));
	assert_true(leave(1, top));
	expect(9, 1, 0, 0);
	expect(5, 1, 2000, 0);
	expect(3, 1, 1000, 0);
}

/* An event below what is dead sees only a part of it: the moment is kept for the rest. */
static void test_moment_is_kept(void **state)
{
	const uint64_t top = begin();

	(void)state;
	assert_true(enter(1, top));
	assert_true(enter(3, top - 64));
	assert_true(enter(5, top - 256));
	mark(top - 300, 3000);
	assert_true(enter(7, top - 128));
	expect(5, 1, 3000, 0);
	expect(3, 0, 0, 0);
	assert_true(leave(7, top - 128));
	assert_true(leave(1, top));
	expect(3, 1, 3000, 0);
	expect(1, 0, 0, 0);
	assert_int_equal(own_record()->depth, 0);
}

/* One that jumps out again and again leaves one mark, with the latest time. */
static void test_marks_do_not_pile_up(void **state)
{
	const uint64_t top = begin();
	unsigned most = 0;

	(void)state;
	assert_true(enter(1, top));
	for (unsigned i = 0; i < 5000; i++) {
		assert_true(enter(3 + i % 2 * 2, top - 64));
		mark(top - 300, 1000 + i);
		assert_int_equal(truth[3].undone + truth[5].undone, i);
		if (own_record()->depth / sizeof(struct pair_entry) > most)
			most = own_record()->depth / sizeof(struct pair_entry);
	}
	assert_true(most <= 8);
	assert_true(leave(1, top));
	expect(3, 2500, 5998, 0);
	expect(5, 2500, 5999, 0);
	assert_int_equal(own_record()->depth, 0);
	assert_int_equal(statistics[1], 0);
}

/* A jump from an alternate stack is one of the thread's own. */
static void test_from_another_stack(void **state)
{
	const uint64_t top = begin();

	(void)state;
	mark((uint64_t)(uintptr_t)stacks[1] + 4096, 500); /* nothing to be marked */
	assert_true(enter(1, top));
	assert_true(enter(3, top - 64));
	mark((uint64_t)(uintptr_t)stacks[1] + 4096, 4000);
	assert_true(leave(1, top));
	expect(3, 1, 4000, 0);
	for (unsigned i = 0; i < PAIR_OTHER; i++)
		assert_int_equal(own_record()->other[i].tag, 0);
}

/* On other stacks: what is entered again at the same place, and what has to make room. */
static void test_elsewhere(void **state)
{
	const uint64_t other = (uint64_t)(uintptr_t)stacks[1] + STACK_BYTES / 2;
	uint64_t undone = 0, there = 0;

	(void)state;
	begin();
	assert_true(enter(1, other));
	assert_true(enter(1, other));
	expect(1, 1, 0, 0);
	assert_true(leave(1, other));
	assert_false(leave(1, other));
	for (unsigned i = 0; i < 1000; i++)
		assert_true(enter(1 + 2 * (i % 5), other - 16 * i));
	for (unsigned f = 1; f < 11; f += 2) {
		undone += truth[f].undone;
		there += in_record(f);
	}
	assert_int_equal(undone + there, 1000 + 1);
	assert_int_equal(count_untrue(), 0);
}

/* A hundred deep at once. */
static void test_deep(void **state)
{
	const uint64_t top = begin();

	(void)state;
	for (unsigned turn = 0; turn < 100; turn++) {
		assert_true(enter(1, top));
		for (unsigned i = 0; i < 600; i++)
			assert_true(enter(3, top - 32 - 32 * i));
		mark(top - 32 * 700, 10 + turn);
		assert_true(leave(1, top));
		expect(3, 600ull * (turn + 1), 10 + turn, 0);
	}
}

/* ------------------------------------------------------------------- fork */

enum { FLAG = 0, WALL = PAIR_CHUNK, SECONDS = 2 * PAIR_CHUNK, CPU = 3 * PAIR_CHUNK };

static uint64_t ticks(void)
{
	return __builtin_ia32_rdtsc();
}

static uint64_t nanoseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int child_timers(uint64_t top, uint64_t before, uint64_t before_ns)
{
	struct pair_record *r = own_record();

	/* The exit is found, and told that the entry was another process's. */
	run_at(leave_code[1], top, 0);
	if (truth[1].result != 1 || truth[1].second != PAIR_INHERITED)
		return 1;
	if (r->words[FLAG] != 3 || r->words[FLAG + 1] != 77)
		return 2;
	if (r->words[WALL] != 1 || r->words[WALL + 1] < before || r->words[WALL + 1] > ticks())
		return 3;
	if (r->words[WALL + 2] != 5ull << 32 || r->words[WALL + 3] != 44)
		return 4;
	if (r->words[WALL + 62] != 2 || r->words[WALL + 63] < before)
		return 5;
	if (r->words[SECONDS + 1] < before_ns || r->words[SECONDS + 1] > nanoseconds())
		return 6;
	if (r->words[CPU] != 1 || r->words[CPU + 1] != 0)
		return 7;
	return r->cpu_offset == 0 && r->out_ticks == 0 ? 0 : 8;
}

static void test_timers_of_a_child(void **state)
{
	const uint64_t top = begin();
	struct pair_record *r;
	uint64_t before, before_ns;
	int status;
	pid_t pid;

	(void)state;
	shared->words = 4 * PAIR_CHUNK * 8;
	shared->clocks[1] = 1 + ARCH_CLOCK_TICKS;
	shared->clocks[2] = 1 + ARCH_CLOCK_MONOTONIC;
	shared->clocks[3] = 1 + ARCH_CLOCK_THREAD;
	assert_true(enter(1, top));
	r = own_record();
	r->words[FLAG] = 3;
	r->words[FLAG + 1] = 77;
	r->words[WALL] = r->words[SECONDS] = r->words[CPU] = 1;
	r->words[WALL + 1] = r->words[SECONDS + 1] = r->words[CPU + 1] = 99;
	r->words[WALL + 2] = 5ull << 32; /* not running */
	r->words[WALL + 3] = 44;
	r->words[WALL + 62] = 2;
	r->words[WALL + 63] = 99;
	r->cpu_offset = r->out_ticks = 5;
	before = ticks();
	before_ns = nanoseconds();
	pid = fork();
	if (!pid)
		_exit(child_timers(top, before, before_ns));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(r->words[WALL + 1], 99);
	assert_true(leave(1, top));
	memset(shared->clocks, 0, sizeof(shared->clocks));
	shared->words = 0;
}

static int setup_marks(void **state)
{
	const int status = setup(state);

	if (!status)
		emit_mark_code();
	return status;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_longjmp),
		cmocka_unit_test(test_seen_at_an_exit),
		cmocka_unit_test(test_no_hook),
		cmocka_unit_test(test_several_marks),
		cmocka_unit_test(test_moment_is_kept),
		cmocka_unit_test(test_marks_do_not_pile_up),
		cmocka_unit_test(test_from_another_stack),
		cmocka_unit_test(test_elsewhere),
		cmocka_unit_test(test_deep),
		cmocka_unit_test(test_timers_of_a_child),
	};

	return cmocka_run_group_tests(tests, setup_marks, NULL);
}
#endif
