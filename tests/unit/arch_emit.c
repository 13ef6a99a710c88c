/* SPDX-License-Identifier: MIT */
/*
 * arch_emit.c - relocation, emission, patches, liveness and the raw scan: one
 * line a case, bytes in, bytes out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "arch/x86_64/x86.h"
#include "tests/unit/arch_bytes.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

#define LOW	 0x10000000ull	   /* where the instructions are ... */
#define HIGH	 0x7f0000000000ull /* ... or here, above 4 GiB */
#define DISTANCE 0x1000000ull	   /* their copies lie that much above */

static void print(const uint8_t *bytes, size_t size, char *text)
{
	for (size_t i = 0; i < size; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	text[2 * size] = 0;
}

static struct arch_insn decode(const char *text, taddr_t address)
{
	struct arch_insn insn;
	uint8_t bytes[32];
	size_t size = parse(text, bytes);

	assert_int_equal(arch_decode(bytes, size, address, &insn), ARCH_OK);
	assert_int_equal(insn.length, size);
	return insn;
}

/* -------------------------------------------------------------- relocation */

/* From LOW (or HIGH) to DISTANCE above it; NULL: refused. */
static const struct {
	bool high;
	const char *bytes, *expected;
} relocations[] = {
	/* nothing depends on the place: copied */
	{0, "4889d8", "4889d8"},
	{0, "f3a4", "f3a4"},
	{0, "c3", "c3"},
	{0, "f3c3", "f3c3"},
	{0, "c20800", "c20800"},
	{0, "ffe0", "ffe0"},
	{0, "3effe0", "3effe0"},
	{0, "ff24c500001000", "ff24c500001000"},
	{0, "48a18877665544332211", "48a18877665544332211"},
	{0, "48b88877665544332211", "48b88877665544332211"},
	{0, "67488b00", "67488b00"},
	{0, "64488b042528000000", "64488b042528000000"},
	{0, "f0480fb111", "f0480fb111"},
	{0, "55", "55"},
	/* pc-relative operands go on naming the same place, an immediate may follow */
	{0, "488d0500000002", "488d0500000001"},
	{0, "488b0500000002", "488b0500000001"},
	{0, "833d0000000201", "833d0000000101"},
	{0, "c7050000000211223344", "c7050000000111223344"},
	{0, "66c705000000021122", "66c705000000011122"},
	{0, "48c7050000000211223344", "48c7050000000111223344"},
	{0, "f6050000000201", "f6050000000101"},
	{0, "c5fa6f0500000002", "c5fa6f0500000001"},
	{0, "c4e37d18050000000201", "c4e37d18050000000101"},
	{0, "62f1fe486f0500000002", "62f1fe486f0500000001"},
	{0, "62f36d4825050000000211", "62f36d4825050000000111"},
	{0, "ff2500000002", "ff2500000001"},
	{0, "488d0500000000", "488d05000000ff"},
	/* jumps and branches: 32 bits of displacement */
	{0, "e900000002", "e900000001"},
	{0, "eb10", "e90d0000ff"},
	{0, "f2e900000002", "e901000001"},
	{0, "7410", "0f840c0000ff"},
	{0, "7ff0",
	 "0f8fecffff"
	 "fe"},
	{0, "3e7410", "0f840d0000ff"},
	{0, "0f8500000002", "0f8500000001"},
	{0, "e210", "e202eb05e9090000ff"},
	{0, "e110", "e102eb05e9090000ff"},
	{0, "e010", "e002eb05e9090000ff"},
	{0, "e310", "e302eb05e9090000ff"},
	{0, "67e310", "67e302eb05e9090000ff"},
	/* calls leave the original return address and jump */
	{0, "e800000002", "e8020000000f0b48c7042405000010e9f1ffff00"},
	{0, "e800000000", "e8020000000f0b48c7042405000010e9f1fffffe"},
	{0, "666648e800000002", "e8020000000f0b48c7042408000010e9f4ffff00"},
	{1, "e800000002", "e8020000000f0bc7042405000000c7442404007f0000e9eaffff00"},
	{0, "ffd0", "e8020000000f0b48c7042402000010ffe0"},
	{0, "41ffd4", "e8020000000f0b48c704240300001041ffe4"},
	{0, "3effd0", "e8020000000f0b48c70424030000103effe0"},
	{0, "ff10", "e8020000000f0b48c7042402000010ff20"},
	{0, "ff5008", "e8020000000f0b48c7042403000010ff6008"},
	{0, "ff14c500001000", "e8020000000f0b48c7042407000010ff24c500001000"},
	{0, "64ff142510000000", "e8020000000f0b48c704240800001064ff242510000000"},
	{0, "ff1500000002", "e8020000000f0b48c7042406000010ff25f1ffff00"},
	{1, "ff1500000002", "e8020000000f0bc7042406000000c7442404007f0000ff25eaffff00"},
	/* ... and an operand based on rsp lies 8 further up then */
	{0, "ff1424", "e8020000000f0b48c7042403000010ff642408"},
	{0, "ff542408", "e8020000000f0b48c7042404000010ff642410"},
	{0, "ff542470", "e8020000000f0b48c7042404000010ff642478"},
	{0, "ff542478", "e8020000000f0b48c7042404000010ffa42480000000"},
	{0, "ff5424f8", NULL}, /* the eight bytes that it pushes */
	{0, "ff5424f0", "e8020000000f0b48c7042404000010ff6424f8"},
	{0, "ff942400010000", "e8020000000f0b48c7042407000010ffa42408010000"},
	{0, "ff9424f0ffffff", "e8020000000f0b48c7042407000010ff6424f8"},
	{0, "ff54c410", "e8020000000f0b48c7042404000010ff64c418"},
	{0, "41ff542408", "e8020000000f0b48c704240500001041ff642408"}, /* r12 */
	{0, "41ff1424", "e8020000000f0b48c704240400001041ff2424"},
	/* refused */
	{0, "ffd4", NULL},
	{0, "67488b0500000002", NULL},
	{0, "67ff1500000002", NULL},
	{0, "c7f800000000", NULL},
	{0, "f30f1efa", NULL},
	{0, "0f05", NULL},
	{0, "0f34", NULL},
	{0, "cd80", NULL},
	{0, "cc", NULL},
	{0, "f1", NULL},
	{0, "f4", NULL},
	{0, "0f0b", NULL},
	{0, "0fb9c1", NULL},
	{0, "48cf", NULL},
	{0, "cb", NULL},
	{0, "ff18", NULL},
	{0, "ff28", NULL},
};

/* fear C10: the rules of relocation, a line each */
static void test_relocate(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(relocations); i++) {
		taddr_t from = relocations[i].high ? HIGH : LOW;
		struct arch_insn insn = decode(relocations[i].bytes, from);
		uint8_t bytes[ARCH_RELOCATED_MAX];
		struct arch_buf out = {
			.bytes = bytes, .size = sizeof(bytes), .pc = from + DISTANCE};
		char text[2 * ARCH_RELOCATED_MAX + 1], wanted[100] = "";

		arch_relocate(&insn, &out);
		if (!relocations[i].expected) {
			if (out.status != ARCH_REFUSED || out.used != 0)
				fail_msg("%s is not refused", relocations[i].bytes);
			continue;
		}
		for (const char *p = relocations[i].expected; *p; p++)
			if (*p != ' ')
				strncat(wanted, p, 1);
		print(bytes, out.used, text);
		if (out.status != ARCH_OK || strcmp(text, wanted) != 0)
			fail_msg("%s: status %d, %s instead of %s", relocations[i].bytes,
				 out.status, text, wanted);
	}
}

static void test_relocate_limits(void **state)
{
	static const char *const relative[] = {"e800000000",   "e900000000", "7400",
					       "0f8400000000", "e200",	     "488b0500000000",
					       "ff1500000000"};
	uint8_t bytes[ARCH_RELOCATED_MAX];

	(void)state;
	for (size_t i = 0; i < COUNT(relative); i++) {
		struct arch_insn insn = decode(relative[i], LOW);
		struct arch_buf far = {
			.bytes = bytes, .size = sizeof(bytes), .pc = LOW + 0x80000100ull};
		struct arch_buf full = {
			.bytes = bytes, .size = insn.length - 1u, .pc = LOW + DISTANCE};

		arch_relocate(&insn, &far);
		assert_int_equal(far.status, ARCH_OUT_OF_RANGE);
		arch_relocate(&insn, &full);
		assert_int_equal(full.status, ARCH_NO_ROOM);
		arch_relocate(&insn, &full); /* sticky */
		assert_true(full.used <= full.size);
	}
}

/* ---------------------------------------------------------------- emission */

static void test_jump(void **state)
{
	uint8_t bytes[64];
	struct arch_buf out = {.bytes = bytes, .size = sizeof(bytes), .pc = LOW};

	(void)state;
	arch_emit_jump(&out, LOW + 0x100);
	assert_memory_equal(bytes, "\xe9\xfb\x00\x00\x00", 5);
	arch_emit_jump(&out, HIGH);
	assert_int_equal(out.status, ARCH_OUT_OF_RANGE);
}

static void test_call_tail(void **state)
{
	static const struct {
		const char *call, *expected;
	} cases[] = {
		{"e800000002", "e900000001"},	      {"ff542410", "ff642418"},
		{"ff1500000002", "ff2500000001"},     {"41ff9424f8000000", "41ffa424f8000000"},
		{"ff9424f8000000", "ffa42400010000"},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct arch_insn insn = decode(cases[i].call, LOW);
		uint8_t bytes[32];
		struct arch_buf out = {.bytes = bytes, .size = sizeof(bytes), .pc = LOW + DISTANCE};
		char text[65];

		arch_emit_call_tail(&insn, &out);
		assert_int_equal(out.status, ARCH_OK);
		print(bytes, out.used, text);
		assert_string_equal(text, cases[i].expected);
	}
}

/* ----------------------------------------------------------------- patches */

static void test_patchable(void **state)
{
	static const struct {
		const char *bytes;
		bool retarget, call;
	} cases[] = {
		{"e800000000", 1, 0},
		{"666648e800000000", 1, 0},
		{"67e800000000", 1, 0},
		{"e900000000", 1, 0},
		{"0f8400000000", 1, 0},
		{"eb00", 0, 0},
		{"7400", 0, 0},
		{"e200", 0, 0},
		{"c7f800000000", 0, 0},
		{"ffd0", 0, 0},
		{"ff5008", 0, 0},
		{"ff542408", 0, 0},
		{"41ff542408", 0, 1},
		{"ff1500000000", 0, 1},
		{"67ff1500000000", 0, 0},
		{"ff14c500001000", 0, 1},
		{"64ff142510000000", 0, 1},
		{"ff2500000000", 0, 0},
		{"c3", 0, 0},
		{"488b0500000000", 0, 0},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct arch_insn insn = decode(cases[i].bytes, LOW);

		if (arch_patchable(&insn, ARCH_PATCH_RETARGET) != cases[i].retarget ||
		    arch_patchable(&insn, ARCH_PATCH_CALL) != cases[i].call)
			fail_msg("%s", cases[i].bytes);
		assert_false(arch_patchable(&insn, ARCH_PATCH_JUMP));
	}
}

/* The patch of the bytes at LOW leads to `to`; NULL: out of range. */
static const struct {
	enum arch_patch_kind kind;
	const char *before;
	taddr_t to;
	const char *after;
	size_t first, count;
} patches[] = {
	{ARCH_PATCH_JUMP, "554889e54883ec10", LOW + 0x12345,
	 "e940230100"
	 "83ec10",
	 0, 5},
	{ARCH_PATCH_JUMP, "5548", LOW, NULL, 0, 0},
	{ARCH_PATCH_JUMP, "e900000000", LOW + 5, "e900000000", 0, 0},
	{ARCH_PATCH_JUMP, "e900000000", LOW + 0x100, "e9fb000000", 0, 2},
	{ARCH_PATCH_JUMP, "5548894510", LOW + 0x80000005ull, NULL, 0, 0},
	{ARCH_PATCH_SHORT_JUMP, "554889", LOW + 0x20, "eb1e89", 0, 2},
	{ARCH_PATCH_SHORT_JUMP, "554889", LOW + 0x81, "eb7f89", 0, 2},
	{ARCH_PATCH_SHORT_JUMP, "554889", LOW + 0x82, NULL, 0, 0},
	{ARCH_PATCH_SHORT_JUMP, "554889", LOW - 0x7e, "eb8089", 0, 2},
	{ARCH_PATCH_SHORT_JUMP, "554889", LOW - 0x7f, NULL, 0, 0},
	{ARCH_PATCH_RETARGET, "e811223344", LOW + 0x1000, "e8fb0f0000", 1, 4},
	{ARCH_PATCH_RETARGET, "0f8411223344", LOW + 0x1000, "0f84fa0f0000", 2, 4},
	{ARCH_PATCH_RETARGET, "666648e811223344", LOW + 0x1000, "666648e8f80f0000", 4, 4},
	{ARCH_PATCH_RETARGET, "e811223344", LOW + 0x90000000ull, NULL, 0, 0},
	{ARCH_PATCH_RETARGET, "eb00", LOW + 0x10, NULL, 0, 0},
	{ARCH_PATCH_CALL, "41ff542408", LOW + 0x1000, "e8fb0f0000", 0, 5},
	{ARCH_PATCH_CALL, "ff1511223344", LOW + 0x1000, "67e8fa0f0000", 0, 6},
	{ARCH_PATCH_CALL, "ff14c500001000", LOW + 0x1000, "6767e8f90f0000", 0, 6},
	{ARCH_PATCH_CALL, "64ff142510000000", LOW + 0x1000, "676767e8f80f0000", 0, 6},
};

static void test_patch(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(patches); i++) {
		uint8_t bytes[32] = {0};
		size_t size = parse(patches[i].before, bytes), first = 99, count = 99;
		struct arch_insn insn;
		char text[65];
		int status;

		assert_int_equal(arch_decode(bytes, size, LOW, &insn), ARCH_OK);
		status = arch_patch(patches[i].kind, &insn, LOW, patches[i].to, bytes, size, &first,
				    &count);
		print(bytes, size, text);
		if (!patches[i].after) {
			if (status != ARCH_OUT_OF_RANGE || strcmp(text, patches[i].before) != 0)
				fail_msg("%s: status %d, %s", patches[i].before, status, text);
			continue;
		}
		if (status != ARCH_OK || strcmp(text, patches[i].after) != 0 ||
		    first != patches[i].first || count != patches[i].count)
			fail_msg("%s: status %d, %s, %zu bytes at %zu", patches[i].before, status,
				 text, count, first);
	}
}

/* A patched call or branch decodes to what leads there. */
static void test_patch_leads_there(void **state)
{
	static const char *const calls[] = {"41ff542408",	"ff1511223344", "ff14c500001000",
					    "64ff142510000000", "e811223344",	"666648e811223344"};

	(void)state;
	for (size_t i = 0; i < COUNT(calls); i++) {
		struct arch_insn insn = decode(calls[i], LOW), after;
		enum arch_patch_kind kind =
			insn.flow == ARCH_FLOW_CALL ? ARCH_PATCH_RETARGET : ARCH_PATCH_CALL;
		uint8_t bytes[ARCH_PATCH_MAX];
		size_t first, count;

		memcpy(bytes, insn.bytes, insn.length);
		assert_int_equal(arch_patch(kind, &insn, HIGH, HIGH + 0x1234567, bytes, insn.length,
					    &first, &count),
				 ARCH_OK);
		assert_int_equal(arch_decode(bytes, insn.length, HIGH, &after), ARCH_OK);
		assert_int_equal(after.length, insn.length);
		assert_int_equal(after.flow, ARCH_FLOW_CALL);
		assert_int_equal(after.target, HIGH + 0x1234567);
	}
}

/* A jump into the room of four bytes before a call, to where the call's first byte is its last. */
static void test_shared_jump(void **state)
{
	const taddr_t call = HIGH + 4;
	static const struct {
		taddr_t below;
		const char *after;
		size_t count;
	} cases[] = {
		{0x16ffffff, "e9000000e911223344", 5}, {0x17000000, "e9ffffffe811223344", 4},
		{0x17abcdef, "e9103254e811223344", 4}, {0x17ffffff, "e9000000e811223344", 4},
		{0x18000000, "e9ffffffe711223344", 5},
	};

	(void)state;
	assert_int_equal(arch_shared_jump_least, cases[1].below);
	assert_int_equal(arch_shared_jump_most, cases[3].below);
	for (size_t i = 0; i < COUNT(cases); i++) {
		uint8_t bytes[32] = {0};
		size_t size = parse("4883ec08e811223344", bytes), first = 99, count = 99;
		char text[65];

		assert_int_equal(arch_patch(ARCH_PATCH_JUMP, NULL, HIGH, call - cases[i].below,
					    bytes, size, &first, &count),
				 ARCH_OK);
		print(bytes, size, text);
		assert_string_equal(text, cases[i].after);
		assert_int_equal(first, 0);
		assert_int_equal(count, cases[i].count);
	}
}

/* Over a jump of the file's: who is to be kept from a jump's bytes is told where it begins all the same. */
static void test_jump_over_jump(void **state)
{
	uint8_t bytes[32] = {0};
	size_t size = parse("e911223344", bytes), first = 99, count = 99;

	(void)state;
	assert_int_equal(arch_patch(ARCH_PATCH_JUMP, NULL, HIGH, HIGH + 0x1000000, bytes, size,
				    &first, &count),
			 ARCH_OK);
	assert_int_equal(bytes[0], 0xe9);
	assert_int_equal(first, 0);
	assert_int_equal(count, 5);
}

/* ---------------------------------------------------------------- liveness */

enum { A = 1 << RAX, B = 1 << RBX, C = 1 << RCX, D = 1 << RDX, S = 1 << RSP, DEAD_MAX = 64 };

/* Code at LOW; what is dead before its first instruction, of the registers and flags asked about. */
static const struct {
	const char *code;
	arch_regset asked, live;
} lives[] = {
	{"c3", SET_ALL, SET_ALL},
	{"31c0c3", A | SET_FLAGS, 0},
	{"31c0c3", SET_ALL, SET_ALL & ~(A | SET_FLAGS)},
	{"89c8c3", A | C, C}, /* mov %ecx,%eax */
	{"b005c3", A, A},     /* one byte is not all */
	{"66b80500c3", A, A},
	{"4839c8"
	 "31c0c3",
	 A, A}, /* read before it is written */
	{"4839c8c3", SET_FLAGS, 0},
	{"48ffc0"
	 "c3",
	 SET_FLAGS, FLAG_CF},
	{"48ffc0"
	 "01c0c3",
	 SET_FLAGS, 0},
	{"7302"
	 "31c0"
	 "31c0c3",
	 A | SET_FLAGS, FLAG_CF}, /* both ways write */
	{"7302"
	 "31c0"
	 "90c3",
	 A, A}, /* one of them does not */
	{"e802000000"
	 "31c0"
	 "c3",
	 A, A}, /* whatever is called may look */
	{"0f05"
	 "31c0c3",
	 A, A},
	{"ffe0", A | C, A | C},
	{"eb01"
	 "cc"
	 "31c0c3",
	 A, 0}, /* jump over */
	{"eb7f"
	 "31c0c3",
	 A, A},		/* jump to we do not know where */
	{"ebfe", A, 0}, /* nobody ever looks */
	{"31c0"
	 "ebfc",
	 A | C, 0},
	{"39c8"
	 "75fc"
	 "c3",
	 A | C | SET_FLAGS, A | C},
	{"0f44c1"
	 "b800000000c3",
	 A | C | SET_FLAGS, C | SET_FLAGS},
	{"54"
	 "bc00000000"
	 "c3",
	 S, S}, /* rsp, always */
	{"fc"
	 "c3",
	 FLAG_DF, 0},
	{"31c0", A | C, C}, /* then it ends */
	{"06", A, A},
	{"488b07"
	 "bb00000000"
	 "c3",
	 A | B, B}, /* where the load faults, a landing pad may look at rbx */
};

static size_t decode_all(const char *text, struct arch_insn *insns)
{
	uint8_t bytes[4 * DEAD_MAX];
	size_t size = parse(text, bytes), count = 0;

	for (size_t at = 0; at < size; at += insns[count++].length)
		if (arch_decode(bytes + at, size - at, LOW + at, &insns[count]) != ARCH_OK)
			break;
	return count;
}

static void test_liveness(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(lives); i++) {
		struct arch_insn insns[DEAD_MAX];
		size_t count = decode_all(lives[i].code, insns);
		arch_regset live = arch_live_before(insns, count, 0) & lives[i].asked;

		if (live != lives[i].live)
			fail_msg("%s: %#llx", lives[i].code, (unsigned long long)live);
	}
	assert_int_equal(arch_all_live, SET_ALL);
}

/* A hundred branches in a row: an answer all the same, and a cautious one. */
static void test_liveness_is_bounded(void **state)
{
	struct arch_insn insns[202];
	size_t count = 0;

	(void)state;
	for (size_t i = 0; i < 200; i++) {
		uint8_t bytes[2] = {(uint8_t)(0x70 + i % 16), (uint8_t)(i % 2 ? 2 : 0xfa)};

		assert_int_equal(arch_decode(bytes, 2, LOW + 2 * i, &insns[count++]), ARCH_OK);
	}
	uint8_t end[] = {0x31, 0xc0, 0xc3};
	arch_decode(end, 3, LOW + 400, &insns[count++]);
	arch_decode(end + 2, 1, LOW + 402, &insns[count++]);
	assert_int_equal(arch_live_before(insns, count, 0) & SET_FLAGS, SET_FLAGS);
	assert_int_equal(arch_live_before(insns, count, 0) & SET(RCX), SET(RCX));
	/* A hole between two instructions is the edge of what is known. */
	insns[201].address++;
	assert_int_equal(arch_live_before(insns, count, 200), SET_ALL & ~(SET(RAX) | SET_FLAGS));
	assert_int_equal(arch_live_before(insns, count, count), SET_ALL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_relocate),
		cmocka_unit_test(test_relocate_limits),
		cmocka_unit_test(test_jump),
		cmocka_unit_test(test_call_tail),
		cmocka_unit_test(test_patchable),
		cmocka_unit_test(test_patch),
		cmocka_unit_test(test_patch_leads_there),
		cmocka_unit_test(test_shared_jump),
		cmocka_unit_test(test_jump_over_jump),
		cmocka_unit_test(test_liveness),
		cmocka_unit_test(test_liveness_is_bounded),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
