/* SPDX-License-Identifier: MIT */
/*
 * aarch64_memory.c - what loads and stores access, and the code that computes
 * their addresses: words in, words out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "arch/aarch64/a64.h"

#define HOME 0x400000ull
#define AWAY 0x500000ull

enum { L = 1, S = 2, LS = 3, NO = ARCH_NO_REGISTER };

/* size, base, index, extend, shift, offset; then its address into x9, nothing pushed. */
static const struct {
	const char *text;
	uint32_t word;
	int access; /* 0: none; 4 added: not computable */
	uint32_t size;
	int base, index;
	unsigned extend, shift;
	int64_t offset;
	uint32_t code[3];
} cases[] = {
	{"ldr x1, [x2]", 0xf9400041, L, 8, 2, NO, 0, 0, 0, {0x91000049}},
	{"ldr x1, [x2, #8]", 0xf9400441, L, 8, 2, NO, 0, 0, 8, {0x91002049}},
	{"str w1, [x2, #4]", 0xb9000441, S, 4, 2, NO, 0, 0, 4, {0x91001049}},
	{"ldrb w1, [x2, #4095]", 0x397ffc41, L, 1, 2, NO, 0, 0, 4095, {0x913ffc49}},
	{"ldrsh x1, [x2, #2]", 0x79800441, L, 2, 2, NO, 0, 0, 2, {0x91000849}},
	{"ldrsw x1, [x2, #4]", 0xb9800441, L, 4, 2, NO, 0, 0, 4, {0x91001049}},
	{"ldr x1, [x2, #32760]", 0xf97ffc41, L, 8, 2, NO, 0, 0, 32760, {0x91401c49, 0x913fe129}},
	{"str q1, [x2, #16]", 0x3d800441, S, 16, 2, NO, 0, 0, 16, {0x91004049}},
	{"ldr d1, [x2, #8]", 0xfd400441, L, 8, 2, NO, 0, 0, 8, {0x91002049}},
	{"ldr b1, [x2]", 0x3d400041, L, 1, 2, NO, 0, 0, 0, {0x91000049}},
	{"ldur x1, [x2, #-8]", 0xf85f8041, L, 8, 2, NO, 0, 0, -8, {0xd1002049}},
	{"sttr x1, [x2, #1]", 0xf8001841, S, 8, 2, NO, 0, 0, 1, {0x91000449}},
	{"str x30, [sp, #-16]!", 0xf81f0ffe, S, 8, 31, NO, 0, 0, -16, {0xd10043e9}},
	{"ldr x30, [sp], #16", 0xf84107fe, L, 8, 31, NO, 0, 0, 0, {0x910003e9}},
	{"ldr x1, [x2, x3]", 0xf8636841, L, 8, 2, 3, 3, 0, 0, {0x8b236049}},
	{"ldr x1, [x2, x3, lsl #3]", 0xf8637841, L, 8, 2, 3, 3, 3, 0, {0x8b236c49}},
	{"ldr w1, [x2, w3, uxtw #2]", 0xb8635841, L, 4, 2, 3, 2, 2, 0, {0x8b234849}},
	{"str w1, [x2, w3, sxtw]", 0xb823c841, S, 4, 2, 3, 6, 0, 0, {0x8b23c049}},
	{"ldr q1, [sp, x3, lsl #4]", 0x3ce37be1, L, 16, 31, 3, 3, 4, 0, {0x8b2373e9}},
	{"ldr x1, [x2, xzr]", 0xf87f6841, L, 8, 2, NO, 3, 0, 0, {0x91000049}},
	{"stp x29, x30, [sp, #-32]!", 0xa9be7bfd, S, 16, 31, NO, 0, 0, -32, {0xd10083e9}},
	{"ldp x29, x30, [sp], #32", 0xa8c27bfd, L, 16, 31, NO, 0, 0, 0, {0x910003e9}},
	{"ldp w1, w2, [x3, #8]", 0x29410861, L, 8, 3, NO, 0, 0, 8, {0x91002069}},
	{"ldpsw x1, x2, [x3, #8]", 0x69410861, L, 8, 3, NO, 0, 0, 8, {0x91002069}},
	{"stp q1, q2, [x3, #32]", 0xad010861, S, 32, 3, NO, 0, 0, 32, {0x91008069}},
	{"ldnp x1, x2, [x3, #16]", 0xa8410861, L, 16, 3, NO, 0, 0, 16, {0x91004069}},
	{"ldr x1, 0x400010", 0x58000081, L, 8, NO, NO, 0, 0, 0x400010, {0x10800089}},
	{"ldr q1, 0x400010", 0x9c000081, L, 16, NO, NO, 0, 0, 0x400010, {0x10800089}},
	{"ldrsw x1, 0x400010", 0x98000081, L, 4, NO, NO, 0, 0, 0x400010, {0x10800089}},
	{"ldxr x1, [x2]", 0xc85f7c41, L, 8, 2, NO, 0, 0, 0, {0x91000049}},
	{"stxr w3, x1, [x2]", 0xc8037c41, S, 8, 2, NO, 0, 0, 0, {0x91000049}},
	{"ldaxp x1, x3, [x2]", 0xc87f8c41, L, 16, 2, NO, 0, 0, 0, {0x91000049}},
	{"ldarb w1, [x2]", 0x08dffc41, L, 1, 2, NO, 0, 0, 0, {0x91000049}},
	{"stlr x1, [x2]", 0xc89ffc41, S, 8, 2, NO, 0, 0, 0, {0x91000049}},
	{"cas x1, x3, [x2]", 0xc8a17c43, LS, 8, 2, NO, 0, 0, 0, {0x91000049}},
	{"casp x0, x1, x4, x5, [x2]", 0x48207c44, LS, 16, 2, NO, 0, 0, 0, {0x91000049}},
	{"ldadd x1, x3, [x2]", 0xf8210043, LS, 8, 2, NO, 0, 0, 0, {0x91000049}},
	{"swpb w1, w3, [x2]", 0x38218043, LS, 1, 2, NO, 0, 0, 0, {0x91000049}},
	{"ldapr x1, [x2]", 0xf8bfc041, L, 8, 2, NO, 0, 0, 0, {0x91000049}},
	{"ldapur x1, [x2, #-8]", 0xd95f8041, L, 8, 2, NO, 0, 0, -8, {0xd1002049}},
	{"stlur w1, [x2, #8]", 0x99008041, S, 4, 2, NO, 0, 0, 8, {0x91002049}},
	{"ld1 {v0.16b}, [x2]", 0x4c407040, L, 16, 2, NO, 0, 0, 0, {0x91000049}},
	{"ld1 {v0.16b-v3.16b}, [x2]", 0x4c402040, L, 64, 2, NO, 0, 0, 0, {0x91000049}},
	{"st3 {v0.8b-v2.8b}, [x2], #24", 0x0c9f4040, S, 24, 2, NO, 0, 0, 0, {0x91000049}},
	{"ld1 {v0.s}[1], [x2]", 0x0d409040, L, 4, 2, NO, 0, 0, 0, {0x91000049}},
	{"ld2 {v0.d, v1.d}[0], [x2]", 0x0d608440, L, 16, 2, NO, 0, 0, 0, {0x91000049}},
	{"ld4r {v0.8h-v3.8h}, [x2]", 0x4d60e440, L, 8, 2, NO, 0, 0, 0, {0x91000049}},
	{"ldraa x1, [x2]", 0xf8200441, L | 4, 8, 0, 0, 0, 0, 0, {0}},
	{"stgp x1, x2, [x3]", 0x69000861, LS | 4, 0, 0, 0, 0, 0, 0, {0}},
	{"prfm pldl1keep, [x2]", 0xf9800040, 0, 0, 0, 0, 0, 0, 0, {0}},
	{"add x1, x2, #3", 0x91000c41, 0, 0, 0, 0, 0, 0, 0, {0}},
	{"nop", 0xd503201f, 0, 0, 0, 0, 0, 0, 0, {0}},
	{"bl 0x400100", 0x94000040, 0, 0, 0, 0, 0, 0, 0, {0}},
};

static struct arch_insn decode(uint32_t word)
{
	struct arch_insn insn;
	uint8_t bytes[A64_SIZE];

	a64_store(bytes, word);
	if (arch_decode(bytes, sizeof(bytes), HOME, &insn) != ARCH_OK)
		fail_msg("%#x is not decoded", word);
	return insn;
}

static void test_accesses(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct arch_insn insn = decode(cases[i].word);
		struct arch_memory m[ARCH_MEMORY_MAX];
		unsigned count = arch_memory_operands(&insn, m);

		if (count != (cases[i].access != 0))
			fail_msg("%s: %u accesses", cases[i].text, count);
		if (count == 0)
			continue;
		if (m[0].load + 2 * m[0].store != (cases[i].access & 3) ||
		    m[0].computable != !(cases[i].access & 4) || m[0].size != cases[i].size ||
		    m[0].thread_relative)
			fail_msg("%s: load %d store %d computable %d size %u", cases[i].text,
				 m[0].load, m[0].store, m[0].computable, m[0].size);
		if (m[0].computable &&
		    (m[0].base != cases[i].base || m[0].index != cases[i].index ||
		     m[0].extend != cases[i].extend || m[0].shift != cases[i].shift ||
		     m[0].offset != cases[i].offset))
			fail_msg("%s: %u + %u extended %u shifted %u + %lld", cases[i].text,
				 m[0].base, m[0].index, m[0].extend, m[0].shift,
				 (long long)m[0].offset);
	}
}

static void test_addresses(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct arch_insn insn = decode(cases[i].word);
		struct arch_memory m[ARCH_MEMORY_MAX];
		uint8_t bytes[ARCH_ADDRESS_MAX];
		struct arch_buf out = {.bytes = bytes, .size = sizeof(bytes), .pc = AWAY};
		size_t words = 0;

		if (arch_memory_operands(&insn, m) == 0)
			continue;
		arch_emit_effective_address(&out, &m[0], SET(9), 0);
		if (!m[0].computable) {
			assert_int_equal(out.status, ARCH_REFUSED);
			continue;
		}
		while (words < 3 && cases[i].code[words])
			words++;
		if (out.status != ARCH_OK || out.used != 4 * words)
			fail_msg("%s: status %d, %zu bytes", cases[i].text, out.status, out.used);
		for (size_t k = 0; k < words; k++)
			if (a64_load(bytes + 4 * k) != cases[i].code[k])
				fail_msg("%s: %#x", cases[i].text, a64_load(bytes + 4 * k));
	}
}

/* What has been pushed moves operands based on the stack pointer, and only those. */
static void test_pushed(void **state)
{
	static const struct {
		uint32_t word;
		arch_regset destination;
		size_t pushed;
		int status;
		uint32_t code[3];
	} moved[] = {
		{0xf94007e1, SET(9), 32, ARCH_OK, {0x9100a3e9}}, /* ldr x1, [sp, #8] */
		{0xf81f0ffe, SET(9), 16, ARCH_OK, {0x910003e9}}, /* str x30, [sp, #-16]! */
		{0xf9400441, SET(9), 32, ARCH_OK, {0x91002049}}, /* ldr x1, [x2, #8] */
		{0x3ce37be1, SET(9), 16, ARCH_OK, {0x910043e9, 0x8b237129}}, /* [sp, x3, lsl #4] */
		{0x3ce37be1, SET(3), 16, ARCH_REFUSED, {0}},
		{0xf8636841, SET(3), 0, ARCH_REFUSED, {0}},
		{0xf8636841, SET(2), 0, ARCH_OK, {0x8b236042}}, /* the base will do */
		{0xf97ffc41, SET(2), 0, ARCH_OK, {0x91401c42, 0x913fe042}},
		{0xf94007e1, SET(9), 1 << 24, ARCH_OUT_OF_RANGE, {0}},
		{0xf9400441, SET_SP, 0, ARCH_REFUSED, {0}},
		{0xf9400441, 0, 0, ARCH_REFUSED, {0}},
		{0xf9400441, SET(1) | SET(9), 0, ARCH_REFUSED, {0}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(moved) / sizeof(moved[0]); i++) {
		struct arch_insn insn = decode(moved[i].word);
		struct arch_memory m[ARCH_MEMORY_MAX];
		uint8_t bytes[ARCH_ADDRESS_MAX];
		struct arch_buf out = {.bytes = bytes, .size = sizeof(bytes), .pc = AWAY};

		assert_int_equal(arch_memory_operands(&insn, m), 1);
		arch_emit_effective_address(&out, &m[0], moved[i].destination, moved[i].pushed);
		if (out.status != moved[i].status)
			fail_msg("case %zu: status %d", i, out.status);
		for (size_t k = 0; out.status == ARCH_OK && k < out.used / 4; k++)
			if (a64_load(bytes + 4 * k) != moved[i].code[k])
				fail_msg("case %zu: %#x", i, a64_load(bytes + 4 * k));
	}
}

/* The address goes into a word, by registers that are neither base nor index. */
static void test_record(void **state)
{
	static const struct {
		uint32_t word;
		taddr_t at;
		uint32_t code[4];
	} recorded[] = {
		/* ldr x1, [x2, #8]: add x17, x2, #8; adr x16, at; str x17, [x16] */
		{0xf9400441, AWAY + 0x100, {0x91002051, 0x100007f0, 0xf9000211}},
		/* ldr x1, [sp, #8], of a stack pointer that is 48 lower */
		{0xf94007e1, AWAY + 0x100, {0x9100e3f1, 0x100007f0, 0xf9000211}},
		/* ldr x1, [x17, x16, lsl #3] */
		{0xf8707a21, AWAY + 0x100, {0x8b306e2f, 0x100007f1, 0xf900022f}},
		/* The word far away: movz, movk */
		{0xf8404c41, 0x12345678, {0x91001051, 0xd28acf10, 0xf2a24690, 0xf9000211}},
		/* ldr x1, 0x400010 */
		{0x58000081, AWAY + 0x100, {0x10800091, 0x100007f0, 0xf9000211}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(recorded) / sizeof(recorded[0]); i++) {
		struct arch_insn insn = decode(recorded[i].word);
		struct arch_frame frame = {.reg = {17, 16, 15}, .pushed = 32};
		struct arch_memory m[ARCH_MEMORY_MAX];
		uint8_t bytes[64];
		struct arch_buf out = {.bytes = bytes, .size = sizeof(bytes), .pc = AWAY};

		assert_int_equal(arch_memory_operands(&insn, m), 1);
		arch_record_needs(&frame);
		assert_int_equal(frame.scratch, 3);
		arch_emit_record_address(&m[0], recorded[i].at, 16, &frame, &out);
		assert_int_equal(out.status, ARCH_OK);
		for (size_t k = 0; k < out.used / 4; k++)
			if (k == 4 || a64_load(bytes + 4 * k) != recorded[i].code[k])
				fail_msg("case %zu, word %zu: %#x", i, k, a64_load(bytes + 4 * k));
	}
}

/* What cannot be computed is not noted down. */
static void test_not_recorded(void **state)
{
	static const uint32_t words[] = {0xf8200441, 0x69000861}; /* ldraa, stgp */

	(void)state;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		struct arch_insn insn = decode(words[i]);
		struct arch_frame frame = {.reg = {17, 16, 15}, .scratch = 3};
		struct arch_memory m[ARCH_MEMORY_MAX];
		uint8_t bytes[64];
		struct arch_buf out = {.bytes = bytes, .size = sizeof(bytes), .pc = AWAY};

		assert_int_equal(arch_memory_operands(&insn, m), 1);
		arch_emit_record_address(&m[0], AWAY + 0x100, 0, &frame, &out);
		assert_int_equal(out.status, ARCH_REFUSED);
	}
}

/* Nothing is asked of the processor for the sake of the flags. */
static void test_flags_are_kept(void **state)
{
	(void)state;
	assert_true(arch_keeps_flags());
	assert_int_equal(arch_try_flags(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_accesses),     cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_pushed),	     cmocka_unit_test(test_record),
		cmocka_unit_test(test_not_recorded), cmocka_unit_test(test_flags_are_kept),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
