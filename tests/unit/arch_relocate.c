/* SPDX-License-Identifier: MIT */
/*
 * arch_relocate.c - branches that are given another target: what is emitted,
 * and, by execution, where control goes. The rules of whole relocation are
 * executed in arch_differential.c and arch_rules.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "arch/x86_64/x86.h"
#include "tests/unit/arch_run.h"
#include "tests/unit/arch_bytes.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

#define HOME  0x10000000ull /* where the branch is */
#define AWAY  0x11000000ull /* where its copy is */
#define TAKEN 0x12000000ull

static struct arch_insn decode(const char *text, taddr_t address)
{
	struct arch_insn insn;
	uint8_t bytes[32];
	size_t size = parse(text, bytes);

	assert_int_equal(arch_decode(bytes, size, address, &insn), ARCH_OK);
	assert_int_equal(insn.length, size);
	return insn;
}

/* NULL: refused, and nothing emitted. */
static const struct {
	const char *bytes, *expected;
} branches[] = {
	{"7410", "0f84faffff00"},
	{"7ff0", "0f8ffaffff00"},
	{"3e7410", "0f84faffff00"},
	{"0f8500000002", "0f85faffff00"},
	{"e210", "e202eb05e9f7ffff00"},
	{"e110", "e102eb05e9f7ffff00"},
	{"e010", "e002eb05e9f7ffff00"},
	{"e310", "e302eb05e9f7ffff00"},
	{"67e310", "67e302eb05e9f6ffff00"},
	{"67e210", "67e202eb05e9f6ffff00"},
	{"eb10", "e9fbffff00"},
	{"e910000000", "e9fbffff00"},
	{"f2e910000000", "e9fbffff00"},
	{"e800000000", NULL},
	{"c3", NULL},
	{"ffe0", NULL},
	{"ffd0", NULL},
	{"90", NULL},
	{"0f05", NULL},
	{"0f0b", NULL},
	{"f30f1efa", NULL},
	{"c7f810000000", NULL}, /* xbegin */
};

static void test_words(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(branches); i++) {
		struct arch_insn insn = decode(branches[i].bytes, HOME);
		uint8_t bytes[ARCH_RELOCATED_MAX], wanted[ARCH_RELOCATED_MAX];
		struct arch_buf out = {.bytes = bytes, .size = sizeof(bytes), .pc = AWAY};
		size_t size;

		arch_relocate_branch(&insn, TAKEN, &out);
		if (!branches[i].expected) {
			if (out.status != ARCH_REFUSED || out.used != 0)
				fail_msg("%s is not refused", branches[i].bytes);
			continue;
		}
		size = parse(branches[i].expected, wanted);
		if (out.status != ARCH_OK || out.used != size || memcmp(bytes, wanted, size) != 0)
			fail_msg("%s: status %d", branches[i].bytes, out.status);
	}
}

static void test_limits(void **state)
{
	static const char *const texts[] = {"7410", "e310", "eb10", "0f8500000002"};
	uint8_t bytes[ARCH_RELOCATED_MAX];

	(void)state;
	for (size_t i = 0; i < COUNT(texts); i++) {
		struct arch_insn insn = decode(texts[i], HOME);
		struct arch_buf far = {.bytes = bytes, .size = sizeof(bytes), .pc = AWAY};
		struct arch_buf full = {.bytes = bytes, .size = 4, .pc = AWAY};

		arch_relocate_branch(&insn, AWAY + 0x80000100ull, &far);
		assert_int_equal(far.status, ARCH_OUT_OF_RANGE);
		arch_relocate_branch(&insn, TAKEN, &full);
		assert_int_equal(full.status, ARCH_NO_ROOM);
	}
}

#define HIGH 0x5500000000ull /* added to all of these: a return address of more than 31 bits */

/*
 * A call that moves is a call for the processor, too, and not to what follows it,
 * which is none: or every return that is under way would be predicted wrong. It
 * leaves the original return address.
 */
static const struct {
	uint64_t above;
	const char *bytes, *expected;
} calls[] = {
	{0, "e8fbffff01", "e8020000000f0b48c7042405000010e9ecffff00"},
	{HIGH, "e8fbffff01", "e8020000000f0bc7042405000010c744240455000000e9e5ffff00"},
	{0, "ff10", "e8020000000f0b48c7042402000010ff20"},
	{HIGH, "41ffd3", "e8020000000f0bc7042403000010c74424045500000041ffe3"},
	{0, "ff542408", "e8020000000f0b48c7042404000010ff642410"},
};

static void test_calls(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(calls); i++) {
		struct arch_insn insn = decode(calls[i].bytes, HOME + calls[i].above);
		uint8_t bytes[ARCH_RELOCATED_MAX], wanted[ARCH_RELOCATED_MAX];
		struct arch_buf out = {
			.bytes = bytes, .size = sizeof(bytes), .pc = AWAY + calls[i].above};
		size_t size = parse(calls[i].expected, wanted);

		arch_relocate(&insn, &out);
		if (out.status != ARCH_OK || out.used != size || memcmp(bytes, wanted, size) != 0)
			fail_msg("%s: status %d", calls[i].bytes, out.status);
	}
}

static uint8_t *map_at(uint64_t address)
{
	void *p = mmap((void *)address, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	assert_true(p == (void *)address);
	memset(p, RUN_END, 4096);
	return p;
}

/*
 * The branch at HOME + 256 goes 16 bytes on; its copy goes to TAKEN, in the
 * same states, leaving the same registers and flags.
 */
static void run_both(const char *text, uint8_t *home, uint8_t *away)
{
	static struct run_state in, a, b;
	struct arch_insn insn = decode(text, HOME + 256);
	struct arch_buf out = {.bytes = away, .size = ARCH_RELOCATED_MAX, .pc = AWAY};
	unsigned taken = 0, attempts = 64;

	memcpy(home + 256, insn.bytes, insn.length);
	arch_relocate_branch(&insn, TAKEN, &out);
	assert_int_equal(out.status, ARCH_OK);
	for (unsigned i = 0; i < attempts; i++) {
		run_random_extended(&in);
		for (unsigned k = 0; k < 16; k++)
			in.r[k] = run_random();
		in.r[RSP] = run_stack_pointer(in.r[RSP]);
		in.r[RCX] = (run_random() & 1 ? 1ull << 32 : 0) | (run_random() & 1);
		in.flags = run_random() & ~0x400ull;
		in.pc = HOME + 256;
		run_code(&in, &a);
		in.pc = AWAY;
		run_code(&in, &b);
		assert_int_equal(a.signal, SIGILL);
		assert_int_equal(b.signal, SIGILL);
		assert_memory_equal(a.r, b.r, sizeof(a.r));
		assert_int_equal(a.flags, b.flags);
		assert_true(a.pc == insn.target || a.pc == insn.address + insn.length);
		assert_true(b.pc == (a.pc == insn.target ? TAKEN : AWAY + out.used));
		taken += a.pc == insn.target;
	}
	/* Both ways were gone. */
	if (insn.flow == ARCH_FLOW_BRANCH && (taken == 0 || taken == attempts))
		fail_msg("%s: %u of %u taken", text, taken, attempts);
	memset(home + 256, RUN_END, insn.length);
	memset(away, RUN_END, out.used);
}

/* fear C10: branches with another target, executed */
static void test_execution(void **state)
{
	uint8_t *home = map_at(HOME), *away = map_at(AWAY);

	(void)state;
	map_at(TAKEN);
	run_init();
	for (unsigned condition = 0; condition < 16; condition++) {
		char text[16];

		snprintf(text, sizeof(text), "%02x10", 0x70 + condition);
		run_both(text, home, away);
		snprintf(text, sizeof(text), "0f%02x10000000", 0x80 + condition);
		run_both(text, home, away);
	}
	for (unsigned opcode = 0xe0; opcode < 0xe4; opcode++) {
		char text[16];

		snprintf(text, sizeof(text), "%02x10", opcode);
		run_both(text, home, away);
		snprintf(text, sizeof(text), "67%02x10", opcode);
		run_both(text, home, away);
	}
	run_both("eb10", home, away);
	run_both("e910000000", home, away);
}

/* Of two registers, or of one and memory; not what is stored, subtracted, multiplied or moved on. */
static void test_sums(void **state)
{
	static const struct {
		const char *text;
		bool adds;
	} cases[] = {
		{"4801d0", true},
		{"4803d0", true},
		{"480302", true},
		{"488d0410", true},
		{"488d441000", true},
		{"480102", false},
		{"4829d0", false},
		{"4831d0", false},
		{"488d0450", false},
		{"488d441001", false},
		{"488d00", false},
		{"4883c005", false},
		{"488d041500000000", false},
		{"488b0410", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct arch_insn insn = decode(cases[i].text, 0x1000);

		if (arch_adds(&insn) != cases[i].adds)
			fail_msg("%s: not %d", cases[i].text, cases[i].adds);
	}
}

/* What is made of a register and constants, of 0x401005; of nothing else. */
static void test_made(void **state)
{
	enum { HELD = 0x401005 };
	static const uint64_t none = UINT64_MAX;
	static const struct {
		const char *text;
		uint64_t made;
	} cases[] = {
		{"4d8d5b04", HELD + 4},
		{"488d8000010000", HELD + 256},
		{"488d40fe", HELD - 2},
		{"488d442005", HELD + 5},	    /* 5(%rax) by SIB, no index */
		{"488d048502000000", HELD * 4 + 2}, /* 2(,%rax,4) */
		{"488d00", HELD},
		{"4883c008", HELD + 8},
		{"4883e808", HELD - 8},
		{"4883e0f0", HELD & ~15},
		{"4883c802", HELD | 2},
		{"4883f003", HELD ^ 3},
		{"4805feffffff", HELD - 2},
		{"482d02000000", HELD - 2},
		{"4825f0ffffff", HELD & ~15},
		{"480d02000000", HELD | 2},
		{"483503000000", HELD ^ 3},
		{"4881c000010000", HELD + 256},
		{"48ffc0", HELD + 1},
		{"48ffc8", HELD - 1},
		{"4889c2", HELD},
		{"488bd0", HELD},
		{"83e806", HELD - 6},
		{"81e806104000", UINT32_MAX}, /* of 32 bits */
		{"488d0410", none},	      /* a second register */
		{"488d0500010000", none},
		{"4801d0", none},
		{"48030500010000", none},
		{"4883d000", none}, /* adc */
		{"4883f805", none}, /* cmp */
		{"0405", none},
		{"6683c005", none}, /* parts of it */
		{"48830005", none},
		{"488b00", none},
		{"48ff00", none}, /* memory */
		{"ffd0", none},
		{"48f7d0", none},
		{"48c1e004", none},
		{"678d4005", none},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct arch_insn insn = decode(cases[i].text, 0x1000);
		uint64_t made = none;

		if (!arch_makes(&insn, HELD, &made) && made != none)
			made = none;
		if (made != cases[i].made)
			fail_msg("%s: %llx", cases[i].text, (unsigned long long)made);
	}
}

/* The lower part of a register; not of memory, of the same size, or in the lower part of one only. */
static void test_extensions(void **state)
{
	static const struct {
		const char *text;
		bool extends;
	} cases[] = {
		{"4863c0", true},  {"4863d0", true},	{"4898", true},	     {"98", true},
		{"0fb6c0", true},  {"0fb7d0", true},	{"480fbec0", true},  {"0fbfc0", true},
		{"6698", false},   {"660fb6c0", false}, {"4863042a", false}, {"0fb600", false},
		{"4889d0", false}, {"48f7d0", false},	{"488d4005", false}, {"0fafc0", false},
		{"0fbcc0", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct arch_insn insn = decode(cases[i].text, 0x1000);

		if (arch_extends(&insn) != cases[i].extends)
			fail_msg("%s: not %d", cases[i].text, cases[i].extends);
	}
}

/* What makes a register 0, all of it. */
static void test_zeros(void **state)
{
	static const struct {
		const char *text;
		bool clears;
	} cases[] = {
		{"31d2", true},
		{"33c0", true},
		{"4831c0", true},
		{"4d31e4", true},
		{"31c2", false},
		{"4131c0", false},
		{"6631c0", false},
		{"3112", false},
		{"30c0", false},
		{"29c0", false},
		{"09c0", false},
		/* mov of 0: eax, r8d, rax, r8, also with both prefixes; eax, rax, r15 by the other form */
		{"b800000000", true},
		{"41b800000000", true},
		{"48b80000000000000000", true},
		{"49b80000000000000000", true},
		{"6649b80000000000000000", true},
		{"c7c000000000", true},
		{"48c7c000000000", true},
		{"49c7c700000000", true},
		/* of other numbers, of a part, to memory; xbegin */
		{"b801000000", false},
		{"b800000080", false},
		{"48b80000000001000000", false},
		{"48c7c000000080", false},
		{"b000", false},
		{"41b000", false},
		{"c6c000", false},
		{"66b80000", false},
		{"66c7c00000", false},
		{"c70000000000", false},
		{"48c7450800000000", false},
		{"c7f800000000", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct arch_insn insn = decode(cases[i].text, 0x1000);

		if (arch_clears(&insn) != cases[i].clears)
			fail_msg("%s: not %d", cases[i].text, cases[i].clears);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_zeros),	   cmocka_unit_test(test_made),
		cmocka_unit_test(test_extensions), cmocka_unit_test(test_sums),
		cmocka_unit_test(test_words),	   cmocka_unit_test(test_limits),
		cmocka_unit_test(test_calls),	   cmocka_unit_test(test_execution),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
