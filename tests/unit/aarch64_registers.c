/* SPDX-License-Identifier: MIT */
/*
 * aarch64_registers.c - the state of a stopped thread of AArch64, on any host: what its registers
 * tell, and what they tell of a call that the kernel has forgotten.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "arch/aarch64/a64.h"

static void test_registers(void **state)
{
	struct arch_regs r;
	uint64_t value;

	(void)state;
	memset(&r, 0, sizeof(r));
	for (unsigned i = 0; i < 31; i++)
		r.user.regs[i] = 100 + i;
	r.user.sp = 200;
	r.user.pc = 300;
	r.system_call = -1;
	for (unsigned i = 0; i < 31; i++) {
		assert_true(arch_dwarf_register(&r, i, &value));
		assert_true(value == 100 + i);
	}
	assert_true(arch_dwarf_register(&r, 31, &value) && value == 200);
	assert_true(arch_dwarf_register(&r, 32, &value) && value == 300);
	assert_false(arch_dwarf_register(&r, 33, &value));
	assert_true(arch_is_native(&r));
	r.user.pstate = 1 << 4;
	assert_false(arch_is_native(&r));
	assert_int_equal(arch_syscall_number(&r), -1);
	r.system_call = 63;
	assert_int_equal(arch_syscall_number(&r), 63);
	assert_int_equal(arch_syscall_argument(&r, 5), 105);
	arch_set_syscall_argument(&r, 5, 7);
	assert_int_equal(arch_syscall_argument(&r, 5), 7);
	/* Stopped behind an indirect jump: in a guarded page only landing pads may follow. */
	r.user.pstate = 3 << 10 | 1 << 12;
	arch_begin_remote(&r, 0x1000);
	assert_true(arch_pc(&r) == 0x1000 && !arch_in_syscall(&r));
	assert_int_equal(r.user.pstate, 1 << 12);
	r.user.pstate = 2 << 10 | 1 << 12;
	arch_set_pc(&r, 0x2000);
	assert_true(arch_pc(&r) == 0x2000);
	assert_int_equal(r.user.pstate, 1 << 12);
}

/*
 * fear A7: one that was stopped in a sleep, which the kernel has forgotten, is known by the call in front of which
 * it stands, as far as it can be
 */
static void test_ahead(void **state)
{
	static const struct {
		uint32_t word;
		uint64_t x8;
		enum arch_ahead ahead;
	} cases[] = {
		{0xd4000001, 101, ARCH_AHEAD_SLEEP}, /* svc #0: nanosleep */
		{0xd4000001, 115, ARCH_AHEAD_SLEEP}, /* clock_nanosleep */
		{0xd4000001, 98, ARCH_AHEAD_SLEEP},  /* futex */
		{0xd4000001, 128, ARCH_AHEAD_SLEEP}, /* restart_syscall */
		{0xd4000001, 63, ARCH_AHEAD_CALL},   /* read */
		{0xd4000001, 1ull << 32 | 101, ARCH_AHEAD_CALL},
		{0xd4000021, 101, ARCH_AHEAD_CODE}, /* svc #1 */
		{0xd503201f, 101, ARCH_AHEAD_CODE}, /* nop */
		{0xb140047f, 63, ARCH_AHEAD_CODE},  /* cmn x3, #1, lsl #12: behind the call */
	};
	struct arch_regs r = {.system_call = -1};
	uint8_t next[ARCH_SYSCALL_MAX];

	(void)state;
	assert_true(arch_forgets_calls());
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		a64_store(next, cases[i].word);
		r.user.regs[8] = cases[i].x8;
		if (arch_ahead(&r, next) != cases[i].ahead)
			fail_msg("case %zu: %d", i, (int)arch_ahead(&r, next));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_registers),
		cmocka_unit_test(test_ahead),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
