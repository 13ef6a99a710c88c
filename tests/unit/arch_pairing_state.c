/* SPDX-License-Identifier: MIT */
/*
 * arch_pairing_state.c - what entries and exits leave of a function's state:
 * every live register and flag, the vector state, the stack and its red zone,
 * in the usual case and through the routines, with random liveness.
 */
#include "tests/unit/arch_pairing.h"
#include "tests/unit/arch_run.h"

enum { TURNS = 6000, DEEP = 2048 };

static struct run_state in, out;
static uint8_t before[DEEP + 4096];

/* One snippet in a frame of its own; what follows it ends the run. */
static taddr_t emit_framed(struct arch_pairing *spec, bool is_leave, struct arch_frame *frame)
{
	const struct arch_counter counter = {
		.mode = ARCH_COUNT_LOCKED,
		.counter_address = (taddr_t)(uintptr_t)&counters[spec->function][is_leave],
	};
	struct arch_buf hot = {.bytes = code, .size = COLD_AT, .pc = (taddr_t)(uintptr_t)code};
	struct arch_buf cold = {.bytes = code, .size = CODE_SIZE, .pc = hot.pc};
	taddr_t entry;

	hot.used = code_used;
	cold.used = cold_used;
	entry = arch_here(&hot);
	spec->count = &counter;
	arch_pairing_needs(spec, frame);
	arch_frame_open(&hot, frame);
	if (is_leave)
		arch_emit_leave(spec, frame, &hot, &cold);
	else
		arch_emit_enter(spec, frame, &hot, &cold);
	arch_frame_close(&hot, frame);
	x86_emit8(&hot, RUN_END);
	assert_int_equal(hot.status | cold.status, ARCH_OK);
	spec->count = NULL;
	return entry;
}

static const char *differs(const struct arch_frame *frame, uint64_t sp)
{
	static const struct {
		arch_regset set;
		uint64_t flag;
	} flags[] = {{FLAG_CF, 0x001}, {FLAG_PF, 0x004}, {FLAG_AF, 0x010},
		     {FLAG_ZF, 0x040}, {FLAG_SF, 0x080}, {FLAG_OF, 0x800}};
	const uint8_t *low = (const uint8_t *)(uintptr_t)sp - DEEP;

	for (unsigned i = 0; i < 16; i++)
		if ((frame->live & SET(i) || i == RSP) && in.r[i] != out.r[i])
			return "register";
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		if ((frame->live & flags[i].set) && ((in.flags ^ out.flags) & flags[i].flag))
			return "flag";
	if ((in.flags ^ out.flags) & 0x400)
		return "direction";
	if (memcmp(low + DEEP - 128, before + DEEP - 128, 128 + 4096) != 0)
		return "stack or red zone";
	return memcmp(in.extended, out.extended, 464) ? "vector state" : NULL;
}

static void run_framed(bool is_leave, unsigned function, uint64_t sp)
{
	struct arch_pairing spec = {.area = (taddr_t)(uintptr_t)area,
				    .shift = SHIFT,
				    .tid_offset = tid_offset,
				    .function = function,
				    .enter = enter_routine,
				    .leave = leave_routine};
	struct arch_frame frame = {.live = next_random() & SET_ALL, .red_zone = true};
	const char *what;

	if (next_random() % 4 == 0)
		frame.live = SET_ALL;
	frame.live |= SET(RSP);
	for (unsigned i = 0; i < 16; i++)
		in.r[i] = next_random();
	in.r[RSP] = sp;
	in.flags = next_random() & RUN_FLAGS;
	in.pc = emit_framed(&spec, is_leave, &frame);
	run_random_extended(&in);
	for (size_t i = 0; i < sizeof(before); i += 8) {
		uint64_t value = next_random();

		memcpy(before + i, &value, 8);
	}
	memcpy((uint8_t *)(uintptr_t)sp - DEEP, before, sizeof(before));
	run_code(&in, &out);
	assert_int_equal(out.signal, SIGILL);
	what = differs(&frame, sp);
	if (what)
		fail_msg("%s is not kept by %s: live %#llx", what, is_leave ? "exit" : "entry",
			 (unsigned long long)frame.live);
}

/* No room is left: all that is there seems to be alive. */
static void fill_home(struct pair_record *r)
{
	const uint64_t end = (uint64_t)(uintptr_t)stacks[0] + STACK_BYTES - 8;

	for (unsigned i = 0; i < PAIR_HOME; i++)
		r->home[i].tag = pair_tag(end, 100);
	r->depth = sizeof(r->home);
}

/* Entries and exits in all of the ways that they go, in no order that makes sense. */
/* fear D1, D2, D4: entries and exits keep registers, flags, vector state and red zone */
static void test_state_is_kept(void **state)
{
	const uint64_t top = (uint64_t)(uintptr_t)stacks[0] + STACK_BYTES - 8192;
	const uint64_t other = (uint64_t)(uintptr_t)stacks[1] + STACK_BYTES / 2;

	uint64_t orphans = 0, overflow = 0, sp = top;
	unsigned function = 1;

	(void)state;
	run_init();
	clear_area();
	claim_stack(stacks[0], STACK_BYTES);
	for (unsigned i = 0; i < TURNS; i++) {
		if (i % 2 == 0 || next_random() % 5 == 0) {
			function = 1 + next_random() % 3;
			sp = next_random() % 4 == 0 ? other : top;
			sp -= next_random() % 16 * 16 + (next_random() % 8 ? 0 : 8);
		}
		if (i % 500 == 0) {
			orphans += statistics[2];
			overflow += statistics[1];
			clear_area();
		}
		if (i % 500 == 250)
			owners()[own_record() - records()] ^= 1;
		if (i % 500 >= 375 && i % 500 < 380)
			fill_home(own_record());
		run_framed(i % 2, function, sp);
	}
	assert_true(counters[1][0] > 100 && counters[1][1] > 100);
	assert_true(orphans > 100);
	assert_true(overflow > 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_state_is_kept),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
