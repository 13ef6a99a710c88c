/* SPDX-License-Identifier: MIT */
/*
 * aarch64_emit.c - what arch/aarch64 emits, word for word, on any host: one
 * line a case for relocation; counters, switches, patches, limits of reach.
 * What is expected was made by the GNU assembler and linker for those
 * addresses. It is executed by aarch64_run.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "arch/aarch64/a64.h"

#define REACH (1ll << 27)

static struct arch_insn decode(uint32_t word, taddr_t address)
{
	struct arch_insn insn;
	uint8_t bytes[A64_SIZE];

	a64_store(bytes, word);
	if (arch_decode(bytes, sizeof(bytes), address, &insn) != ARCH_OK)
		fail_msg("%#x is not decoded", word);
	return insn;
}

static const struct {
	const char *text;
	taddr_t from;
	uint32_t word;
	taddr_t to;
	int status;
	uint32_t expected[5];
} moves[] = {
	{"add x1, x2, #3", 0x400000ull, 0x91000c41, 0x4400000ull, ARCH_OK, {0x91000c41}},
	{"b 0x400010", 0x400000ull, 0x14000004, 0x4400000ull, ARCH_OK, {0x17000004}},
	{"b 0x400010", 0x400000ull, 0x14000004, 0xaaaa00000000ull, ARCH_OUT_OF_RANGE, {0}},
	{"bl 0x400100", 0x400000ull, 0x94000040, 0x500000ull, ARCH_OK, {0x1080003e, 0x17fc003f}},
	{"bl 0x400100",
	 0x400000ull,
	 0x94000040,
	 0x4400000ull,
	 ARCH_OK,
	 {0xd280009e, 0xf2a0081e, 0x1700003e}},
	{"bl 0x400100", 0x400000ull, 0x94000040, 0xaaaa00000000ull, ARCH_OUT_OF_RANGE, {0}},
	{"blr x8",
	 0x400000ull,
	 0xd63f0100,
	 0x4400000ull,
	 ARCH_OK,
	 {0xd280009e, 0xf2a0081e, 0xd61f0100}},
	{"blraa x1, x2",
	 0x400000ull,
	 0xd73f0822,
	 0x4400000ull,
	 ARCH_OK,
	 {0xd280009e, 0xf2a0081e, 0xd71f0822}},
	{"blrabz x9",
	 0x400000ull,
	 0xd63f0d3f,
	 0x4400000ull,
	 ARCH_OK,
	 {0xd280009e, 0xf2a0081e, 0xd61f0d3f}},
	{"blr x30", 0x400000ull, 0xd63f03c0, 0x4400000ull, ARCH_REFUSED, {0}},
	{"svc #0", 0x400000ull, 0xd4000001, 0x4400000ull, ARCH_REFUSED, {0}},
	{"ldxr x1, [x2]", 0x400000ull, 0xc85f7c41, 0x4400000ull, ARCH_REFUSED, {0}},
	{"paciasp", 0x400000ull, 0xd503233f, 0x4400000ull, ARCH_REFUSED, {0}},
	{"bti c", 0x400000ull, 0xd503245f, 0x4400000ull, ARCH_REFUSED, {0}},
	{"br x8", 0x400000ull, 0xd61f0100, 0xaaaa00000000ull, ARCH_OK, {0xd61f0100}},
	{"ret", 0x400000ull, 0xd65f03c0, 0xaaaa00000000ull, ARCH_OK, {0xd65f03c0}},
	{"retaa", 0x400000ull, 0xd65f0bff, 0xaaaa00000000ull, ARCH_OK, {0xd65f0bff}},
	{"b.eq 0x400010", 0x400000ull, 0x54000080, 0x410000ull, ARCH_OK, {0x54f80080}},
	{"b.eq 0x400010", 0x400000ull, 0x54000080, 0x4400000ull, ARCH_OK, {0x54000041, 0x17000003}},
	{"b.al 0x400010", 0x400000ull, 0x5400008e, 0x4400000ull, ARCH_OK, {0x17000004}},
	{"bc.lt 0x400010",
	 0x400000ull,
	 0x5400009b,
	 0x4400000ull,
	 ARCH_OK,
	 {0x5400005a, 0x17000003}},
	{"cbz x3, 0x400020",
	 0x400000ull,
	 0xb4000103,
	 0x4400000ull,
	 ARCH_OK,
	 {0xb5000043, 0x17000007}},
	{"cbnz w3, 0x400020",
	 0x400000ull,
	 0x35000103,
	 0x4400000ull,
	 ARCH_OK,
	 {0x34000043, 0x17000007}},
	{"cbnz w3, 0x400020", 0x400000ull, 0x35000103, 0x410000ull, ARCH_OK, {0x35f80103}},
	{"tbz x7, #40, 0x400020",
	 0x400000ull,
	 0xb6400107,
	 0x4400000ull,
	 ARCH_OK,
	 {0xb7400047, 0x17000007}},
	{"tbz x7, #40, 0x400020", 0x400000ull, 0xb6400107, 0x404000ull, ARCH_OK, {0xb6460107}},
	{"tbz x7, #40, 0x400020",
	 0x400000ull,
	 0xb6400107,
	 0x410000ull,
	 ARCH_OK,
	 {0xb7400047, 0x17ffc007}},
	{"adr x0, 0x400101", 0x400000ull, 0x30000800, 0x410000ull, ARCH_OK, {0x30f80800}},
	{"adr x0, 0x400101",
	 0x400000ull,
	 0x30000800,
	 0x4400000ull,
	 ARCH_OK,
	 {0xd2802020, 0xf2a00800}},
	{"adrp x2, 0x403000",
	 0x400000ull,
	 0xf0000002,
	 0xaaaa00000000ull,
	 ARCH_OK,
	 {0xd2860002, 0xf2a00802}},
	{"ldr x0, 0x400008", 0x400000ull, 0x58000040, 0x410000ull, ARCH_OK, {0x58f80040}},
	{"ldr x0, 0x400008",
	 0x400000ull,
	 0x58000040,
	 0x4400000ull,
	 ARCH_OK,
	 {0xd2800100, 0xf2a00800, 0xf9400000}},
	{"ldr w0, 0x400008",
	 0x400000ull,
	 0x18000040,
	 0x4400000ull,
	 ARCH_OK,
	 {0xd2800100, 0xf2a00800, 0xb9400000}},
	{"ldrsw x4, 0x400008",
	 0x400000ull,
	 0x98000044,
	 0x4400000ull,
	 ARCH_OK,
	 {0xd2800104, 0xf2a00804, 0xb9800084}},
	{"ldr xzr, 0x400008", 0x400000ull, 0x5800005f, 0x4400000ull, ARCH_OUT_OF_RANGE, {0}},
	{"prfm pldl1keep, 0x400008", 0x400000ull, 0xd8000040, 0x4400000ull, ARCH_OK, {0xd503201f}},
	{"prfm pldl1keep, 0x400008", 0x400000ull, 0xd8000040, 0x410000ull, ARCH_OK, {0xd8f80040}},
	{"ldr q3, 0x400008", 0x400000ull, 0x9c000043, 0x410000ull, ARCH_OK, {0x9cf80043}},
	{"ldr q3, 0x400008",
	 0x400000ull,
	 0x9c000043,
	 0x4400000ull,
	 ARCH_OK,
	 {0xf81f0ff0, 0xd2800110, 0xf2a00810, 0x3dc00203, 0xf84107f0}},
	{"ldr d3, 0x400008",
	 0x400000ull,
	 0x5c000043,
	 0x4400000ull,
	 ARCH_OK,
	 {0xf81f0ff0, 0xd2800110, 0xf2a00810, 0xfd400203, 0xf84107f0}},
	{"ldr s3, 0x400008",
	 0x400000ull,
	 0x1c000043,
	 0x4400000ull,
	 ARCH_OK,
	 {0xf81f0ff0, 0xd2800110, 0xf2a00810, 0xbd400203, 0xf84107f0}},
	{"bl 0xaaaa00400100",
	 0xaaaa00400000ull,
	 0x94000040,
	 0xaaaa04400000ull,
	 ARCH_OK,
	 {0x90fe001e, 0x910013de, 0x1700003e}},
	{"adr x0, 0xaaaa00400101",
	 0xaaaa00400000ull,
	 0x30000800,
	 0xaaaa04400000ull,
	 ARCH_OK,
	 {0x90fe0000, 0x91040400}},
	{"adrp x0, 0xaaaa00403000",
	 0xaaaa00400000ull,
	 0xf0000000,
	 0xaaaa04400000ull,
	 ARCH_OK,
	 {0xf0fe0000}},
	{"adrp x0, 0xaaaa00403000",
	 0xaaaa00400000ull,
	 0xf0000000,
	 0x500000ull,
	 ARCH_OK,
	 {0xd2860000, 0xf2a00800, 0xf2d55540}},
	{"ldr x0, 0xaaaa00400008",
	 0xaaaa00400000ull,
	 0x58000040,
	 0xaaaa04400000ull,
	 ARCH_OK,
	 {0x90fe0000, 0x91002000, 0xf9400000}},
};

static void test_relocation(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(moves) / sizeof(moves[0]); i++) {
		struct arch_insn insn = decode(moves[i].word, moves[i].from);
		uint8_t bytes[ARCH_RELOCATED_MAX];
		struct arch_buf out = {.bytes = bytes, .size = sizeof(bytes), .pc = moves[i].to};
		size_t count = 0;

		arch_relocate(&insn, &out);
		if (out.status != moves[i].status)
			fail_msg("%s: status %d", moves[i].text, out.status);
		if (out.status != ARCH_OK)
			continue;
		while (count < 5 && moves[i].expected[count])
			count++;
		if (out.used != 4 * count)
			fail_msg("%s: %zu bytes", moves[i].text, out.used);
		for (size_t n = 0; n < count; n++)
			if (a64_load(bytes + 4 * n) != moves[i].expected[n])
				fail_msg("%s: word %zu is %#x", moves[i].text, n,
					 a64_load(bytes + 4 * n));
	}
}

/* A register on the stack for the time of a copy: noted on top of what is there already. */
static void test_copy_pushes(void **state)
{
	const struct arch_insn insn = decode(0x9c000043, 0x400000); /* ldr q3 */
	struct arch_mark marks[4];
	struct arch_trace trace = {marks, 0, 4};
	uint8_t bytes[2 * ARCH_RELOCATED_MAX];
	struct arch_buf out = {
		.bytes = bytes, .size = sizeof(bytes), .pc = 0x4400000, .trace = &trace};

	(void)state;
	arch_relocate(&insn, &out);
	assert_int_equal(arch_pushed_at(&trace, 0), 0);
	assert_int_equal(arch_pushed_at(&trace, 4), 16);
	assert_int_equal(arch_pushed_at(&trace, out.used - 4), 16);
	assert_int_equal(arch_pushed_at(&trace, out.used), 0);
	out.used = trace.count = 0;
	arch_note_pushed(&out, 32);
	arch_relocate(&insn, &out);
	assert_int_equal(out.status, ARCH_OK);
	assert_int_equal(arch_pushed_at(&trace, 4), 48);
	assert_int_equal(arch_pushed_at(&trace, out.used), 32);
}

/* Every size of buffer: nothing is written behind its end. */
static void test_no_room(void **state)
{
	struct arch_insn insn = decode(0x9c000043, 0x400000); /* ldr q3 */

	(void)state;
	for (size_t size = 0; size < 20; size++) {
		uint8_t bytes[24];
		struct arch_buf out = {.bytes = bytes, .size = size, .pc = 0x4400000};

		memset(bytes, 0xa5, sizeof(bytes));
		arch_relocate(&insn, &out);
		assert_int_equal(out.status, ARCH_NO_ROOM);
		for (size_t i = size; i < sizeof(bytes); i++)
			assert_int_equal(bytes[i], 0xa5);
	}
}

static struct arch_counter counter(void)
{
	return (struct arch_counter){.mode = ARCH_COUNT_PER_CPU,
				     .counter_address = 0x20000040,
				     .cpu_shift = 12,
				     .cpus = 6,
				     .rseq_offset = -0x6e0,
				     .rseq_signature = 0xd428bc00};
}

/* One counter in its frame; hot code at 0x500000, cold at 0x510000. */
static int emit_counter(const struct arch_counter *spec, struct arch_frame *frame, uint8_t *hot,
			size_t *hot_size, uint8_t *cold, size_t *cold_size)
{
	struct arch_buf out = {.bytes = hot, .size = 256, .pc = 0x500000};
	struct arch_buf apart = {.bytes = cold, .size = 256, .pc = 0x510000};

	arch_count_needs(spec, frame);
	arch_frame_open(&out, frame);
	arch_emit_count(spec, frame, &out, &apart);
	arch_frame_close(&out, frame);
	*hot_size = out.used;
	*cold_size = apart.used;
	return out.status;
}

static void test_counter(void **state)
{
	static const uint32_t hot[] = {
		0xa9be43f1,			    /* stp x17, x16, [sp, #-32]! */
		0xf9000bef,			    /* str x15, [sp, #16] */
		0xd53bd051,			    /* mrs x17, tpidr_el0 */
		0xd1400631,			    /* sub x17, x17, #1, lsl 12 */
		0x1007ff90,			    /* adr x16, 0x510000 */
		0xd28c080f, 0xf2a4000f,		    /* x15 = 0x20006040 */
		0xf9049630,			    /* str x16, [x17, #0x928] */
		0xb9492630,			    /* ldr w16, [x17, #0x924] */
		0xd1001a11,			    /* sub x17, x16, #6 */
		0xb7f80051,			    /* tbnz x17, #63, over the next */
		0x14003ffe,			    /* b 0x510024 */
		0x8b1131f0,			    /* add x16, x15, x17, lsl #12 */
		0xf9400211, 0x91000631, 0xf9000211, /* ldr, add, str x17 */
		0xf9400bef, 0xa8c243f1,
	};
	static const uint32_t cold[] = {
		0, 0,	       0x500020,   0,	       0x20,	   0,	       0x510024,
		0, 0xd428bc00, 0xc85f7df1, 0x91000631, 0xc8107df1, 0x35ffffb0, 0x17ffc003,
	};
	struct arch_counter spec = counter();
	struct arch_frame frame = {.live = arch_all_live};
	uint8_t bytes[256], apart[256];
	size_t size, cold_size;

	(void)state;
	assert_int_equal(emit_counter(&spec, &frame, bytes, &size, apart, &cold_size), ARCH_OK);
	assert_int_equal(size, sizeof(hot));
	assert_int_equal(cold_size, sizeof(cold));
	for (size_t i = 0; i < size / 4; i++)
		if (a64_load(bytes + 4 * i) != hot[i])
			fail_msg("word %zu is %#x", i, a64_load(bytes + 4 * i));
	for (size_t i = 0; i < cold_size / 4; i++)
		if (a64_load(apart + 4 * i) != cold[i])
			fail_msg("cold word %zu is %#x", i, a64_load(apart + 4 * i));
	assert_int_equal(frame.pushed, 32);
}

/* Flags that another snippet changes are kept in a register of their own. */
static void test_frame_keeps_flags(void **state)
{
	struct arch_counter spec = counter();
	struct arch_frame frame = {.live = arch_all_live, .needs = ARCH_NEED_FLAGS};
	uint8_t bytes[256], apart[256];
	size_t size, cold_size;

	(void)state;
	assert_int_equal(emit_counter(&spec, &frame, bytes, &size, apart, &cold_size), ARCH_OK);
	assert_int_equal(a64_load(bytes + 8), 0xd53b420e);	   /* mrs x14, nzcv */
	assert_int_equal(a64_load(bytes + size - 12), 0xd51b420e); /* msr nzcv, x14 */
	frame = (struct arch_frame){.live = 0, .needs = ARCH_NEED_FLAGS};
	assert_int_equal(emit_counter(&spec, &frame, bytes, &size, apart, &cold_size), ARCH_OK);
	assert_int_equal(frame.pushed, 0);
	assert_int_equal(a64_load(bytes), 0xd53bd051);
}

static void test_counter_limits(void **state)
{
	static const struct {
		taddr_t counter;
		unsigned cpus;
		int64_t offset;
		int status;
	} cases[] = {
		{0x20000040, 6, -0xfff000, ARCH_OK},
		{0x20000040, 6, 0xfffff8, ARCH_OK},
		{0x20000040, 6, 0x1000000, ARCH_OUT_OF_RANGE},
		{0x20000040, 6, -0x1000000, ARCH_OUT_OF_RANGE},
		{0x20000040, 6, 4, ARCH_OUT_OF_RANGE},
		{0x20000040, 4095, 0, ARCH_OK},
		{0x20000040, 4096, 0, ARCH_OUT_OF_RANGE},
		{0x7ffff000, 6, 0, ARCH_OUT_OF_RANGE},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct arch_counter spec = counter();
		struct arch_frame frame = {.live = arch_all_live};
		uint8_t bytes[256], apart[256];
		size_t size, cold_size;
		int status;

		spec.counter_address = cases[i].counter;
		spec.cpus = cases[i].cpus;
		spec.rseq_offset = cases[i].offset;
		status = emit_counter(&spec, &frame, bytes, &size, apart, &cold_size);
		if (status != cases[i].status)
			fail_msg("case %zu: status %d", i, status);
	}
}

/* From 0x400000 to `from`, with another target. */
static void test_branches(void **state)
{
	static const struct {
		uint32_t word;
		taddr_t from, taken;
		int status;
		uint32_t expected[3];
	} cases[] = {
		{0x14000004, 0x500000, 0x500040, ARCH_OK, {0x14000010}},	     /* b */
		{0x54000080, 0x500000, 0x500040, ARCH_OK, {0x54000200}},	     /* b.eq */
		{0x54000080, 0x500000, 0x900040, ARCH_OK, {0x54000041, 0x1410000f}}, /* far */
		{0x5400008e, 0x500000, 0x900040, ARCH_OK, {0x14100010}},	     /* b.al */
		{0x54000090, 0x500000, 0x500040, ARCH_OK, {0x54000210}},	     /* bc.eq */
		{0xb4000085, 0x500000, 0x500040, ARCH_OK, {0xb4000205}},	     /* cbz x5 */
		{0x35000085, 0x500000, 0x900040, ARCH_OK, {0x34000045, 0x1410000f}}, /* cbnz w5 */
		{0xb7080083, 0x500000, 0x4fff00, ARCH_OK, {0xb70ff803}}, /* tbnz x3,#33 */
		{0x36080083, 0x500000, 0x600000, ARCH_OK, {0x37080043, 0x1403ffff}}, /* tbz */
		{0x74020201, 0x500000, 0x4fff00, ARCH_OK, {0x74023801}}, /* cbgt w1,w2 */
		{0x74020201, 0x500000, 0x500400, ARCH_OK, {0x74020041, 0x14000002, 0x140000fe}},
		{0xf51fa005, 0x500000, 0x5003fc, ARCH_OK, {0xf51f9fe5}}, /* cbgt x5,#63 */
		{0xf51fa005, 0x500000, 0x900040, ARCH_OK, {0xf51f8045, 0x14000002, 0x1410000e}},
		{0x54000080, 0x500000, 0xaaaa00000000, ARCH_OUT_OF_RANGE, {0}},
		{0x94000040, 0x500000, 0x500040, ARCH_REFUSED, {0}}, /* bl */
		{0xd61f0100, 0x500000, 0x500040, ARCH_REFUSED, {0}}, /* br */
		{0xd65f03c0, 0x500000, 0x500040, ARCH_REFUSED, {0}}, /* ret */
		{0xd503201f, 0x500000, 0x500040, ARCH_REFUSED, {0}}, /* nop */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct arch_insn insn = decode(cases[i].word, 0x400000);
		uint8_t bytes[12] = {0};
		struct arch_buf out = {.bytes = bytes, .size = sizeof(bytes), .pc = cases[i].from};

		arch_relocate_branch(&insn, cases[i].taken, &out);
		if (out.status != cases[i].status)
			fail_msg("case %zu: status %d", i, out.status);
		for (unsigned k = 0; k < 3 && out.status == ARCH_OK; k++)
			if (a64_load(bytes + 4 * k) != cases[i].expected[k])
				fail_msg("case %zu: word %u is %#x", i, k, a64_load(bytes + 4 * k));
	}
}

static void test_switches(void **state)
{
	static const struct {
		int64_t distance;
		int status;
		uint32_t word;
	} cases[] = {
		{4, ARCH_OK, 0x14000001},	  {-4, ARCH_OK, 0x17ffffff},
		{REACH - 4, ARCH_OK, 0x15ffffff}, {-REACH, ARCH_OK, 0x16000000},
		{REACH, ARCH_OUT_OF_RANGE, 0},	  {-REACH - 4, ARCH_OUT_OF_RANGE, 0},
		{2, ARCH_OUT_OF_RANGE, 0},
	};
	const taddr_t at = 0xaaaa12345678;
	uint8_t bytes[16];
	struct arch_buf out = {.bytes = bytes, .size = sizeof(bytes), .pc = at - 4};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t value;
		int status = arch_switch_value(at, at + (taddr_t)cases[i].distance, &value);

		assert_int_equal(status, cases[i].status);
		if (status != ARCH_OK)
			continue;
		memcpy(bytes, &value, 8);
		assert_int_equal(a64_load(bytes), cases[i].word);
		assert_int_equal(a64_load(bytes + 4), 0xd503201f);
	}
	assert_int_equal(arch_emit_switch(&out), 4);
	assert_int_equal(out.used, 4 + ARCH_SWITCH_SIZE);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(a64_load(bytes + 4 * i), 0xd503201f);
}

static void test_patches(void **state)
{
	static const struct {
		uint32_t word;
		enum arch_patch_kind kind;
		int64_t distance;
		int status;
		uint32_t expected;
	} cases[] = {
		{0xd65f03c0, ARCH_PATCH_JUMP, 0x100, ARCH_OK, 0x14000040},
		{0xd65f03c0, ARCH_PATCH_JUMP, -0x100, ARCH_OK, 0x17ffffc0},
		{0xd65f03c0, ARCH_PATCH_JUMP, REACH, ARCH_OUT_OF_RANGE, 0},
		{0xd65f03c0, ARCH_PATCH_SHORT_JUMP, 0x100, ARCH_OUT_OF_RANGE, 0},
		{0xd65f03c0, ARCH_PATCH_CALL, 0x100, ARCH_OUT_OF_RANGE, 0},
		{0x94000040, ARCH_PATCH_RETARGET, 0x200, ARCH_OK, 0x94000080},
		{0x14000040, ARCH_PATCH_RETARGET, 0x200, ARCH_OK, 0x14000080},
		{0x54000080, ARCH_PATCH_RETARGET, 0x200, ARCH_OUT_OF_RANGE, 0},
		{0xd63f0100, ARCH_PATCH_CALL, 0x200, ARCH_OK, 0x94000080},
		{0xd63f03c0, ARCH_PATCH_CALL, 0x200, ARCH_OUT_OF_RANGE, 0}, /* blr x30 */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct arch_insn insn = decode(cases[i].word, 0x400000);
		uint8_t bytes[8] = {0};
		size_t first, count;
		int status;

		a64_store(bytes, cases[i].word);
		status =
			arch_patch(cases[i].kind, &insn, 0x400000,
				   0x400000 + (taddr_t)cases[i].distance, bytes, 8, &first, &count);
		if (status != cases[i].status)
			fail_msg("case %zu: status %d", i, status);
		if (status != ARCH_OK) {
			assert_int_equal(a64_load(bytes), cases[i].word);
			continue;
		}
		assert_int_equal(a64_load(bytes), cases[i].expected);
		assert_int_equal(a64_load(bytes + 4), 0);
		assert_true(first == 0 && count == A64_SIZE);
	}
}

/* The jump back is direct: a thread that stands too far away cannot be used. */
static void test_remote_reach(void **state)
{
	static const struct arch_remote_call call = {.number = 172};
	static const struct arch_remote_program program = {.calls = &call, .count = 1};
	struct arch_regs r;
	uint8_t bytes[ARCH_REMOTE_MAX];

	(void)state;
	memset(&r, 0, sizeof(r));
	for (int far = 0; far < 2; far++) {
		struct arch_buf out = {.bytes = bytes, .size = sizeof(bytes), .pc = 0x10000000};

		r.user.pc = far ? 0x10000000 + 2 * REACH : 0x10000000 + REACH / 2;
		arch_emit_remote(&program, &r, &out);
		assert_int_equal(out.status, far ? ARCH_OUT_OF_RANGE : ARCH_OK);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_branches),       cmocka_unit_test(test_relocation),
		cmocka_unit_test(test_copy_pushes),    cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_counter),	       cmocka_unit_test(test_frame_keeps_flags),
		cmocka_unit_test(test_counter_limits), cmocka_unit_test(test_switches),
		cmocka_unit_test(test_patches),	       cmocka_unit_test(test_remote_reach),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
