/* SPDX-License-Identifier: MIT */
/*
 * arch_memory.c - the addresses of loads and stores, by execution: registers
 * are chosen so that the access goes to where nothing is mapped, and the
 * address at which the processor faults is compared with what the emitted code
 * computed from the same registers; which must have changed nothing else.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "arch/scan.h"
#include "arch/x86_64/x86.h"
#include "tests/unit/arch_run.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

#define CODE	0x200000000000ull
#define EMITTED 0x200040000000ull
#define SCRATCH 0x200060000000ull
/* Nothing is mapped here, for a TiB. */
#define NOWHERE 0x300000000000ull

enum { PAGES = 16384, PUSHED = 0x88 };

static uint8_t *code, *emitted;
static long runs, refusals, absent;

static uint8_t *map_at(uint64_t address)
{
	void *p = mmap((void *)address, PAGES, PROT_READ | PROT_WRITE | PROT_EXEC,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	assert_true(p == (void *)address);
	memset(p, RUN_END, PAGES);
	return p;
}

static uint64_t thread_pointer(void)
{
	uint64_t fs;

	__asm__("mov %%fs:0,%0" : "=r"(fs));
	return fs;
}

static struct arch_insn decode(const uint8_t *bytes, size_t size)
{
	struct arch_insn insn;
	uint8_t padded[32] = {0};

	memcpy(padded, bytes, size);
	if (arch_decode(padded, sizeof(padded), CODE, &insn) != ARCH_OK)
		fail_msg("%02x %02x %02x %02x is not decoded", padded[0], padded[1], padded[2],
			 padded[3]);
	assert_int_equal(insn.length, size);
	return insn;
}

/* May `reg` be the destination? By the contract. */
static bool is_allowed(const struct arch_memory *m, unsigned reg)
{
	return reg != RSP && reg != m->index && !(m->thread_relative && reg == m->base);
}

/* The emitted code with destination `reg`, `pushed` bytes having been pushed. */
static void check_emitted(const struct arch_insn *insn, const struct arch_memory *m, unsigned reg,
			  size_t pushed, const struct run_state *in, uint64_t address)
{
	static struct run_state before, after;
	struct arch_buf out = {.bytes = emitted, .size = ARCH_ADDRESS_MAX, .pc = EMITTED};

	arch_emit_effective_address(&out, m, SET(reg), pushed);
	if (!is_allowed(m, reg)) {
		assert_int_equal(out.status, ARCH_REFUSED);
		assert_int_equal(out.used, 0);
		refusals++;
		return;
	}
	assert_int_equal(out.status, ARCH_OK);
	before = *in;
	before.pc = EMITTED;
	before.r[RSP] -= pushed;
	run_code(&before, &after);
	runs++;
	before.r[reg] = address;
	if (after.signal != SIGILL || after.pc != EMITTED + out.used ||
	    memcmp(before.r, after.r, sizeof(before.r)) != 0 || before.flags != after.flags) {
		char text[ARCH_OPERAND_NAME_MAX];

		arch_format(insn, text, sizeof(text));
		fail_msg("%s into %u: signal %d, %#llx instead of %#llx", text, reg, after.signal,
			 (unsigned long long)after.r[reg], (unsigned long long)address);
	}
	memset(emitted, RUN_END, out.used);
}

/*
 * Runs the instruction until it faults, and the code for access `number`.
 * False: it is not on this processor.
 */
static bool check_access(const struct arch_insn *insn, unsigned number, struct run_state *in)
{
	static struct run_state out;
	struct arch_memory memory[ARCH_MEMORY_MAX];
	unsigned count = arch_memory_operands(insn, memory);

	assert_true(number < count);
	assert_true(memory[number].computable);
	in->flags = run_random() & RUN_FLAGS & ~0x400ull;
	in->pc = CODE;
	memcpy(code, insn->bytes, insn->length);
	run_code(in, &out);
	in->flags = out.flags;
	memset(code, RUN_END, insn->length);
	if (out.signal == SIGILL && out.pc == CODE)
		return false;
	if (out.signal != SIGSEGV || out.pc != CODE) {
		char text[ARCH_OPERAND_NAME_MAX];

		arch_format(insn, text, sizeof(text));
		fail_msg("%s does not fault: signal %d at %#llx", text, out.signal,
			 (unsigned long long)out.pc);
	}
	for (unsigned reg = 0; reg < 16; reg++)
		check_emitted(insn, &memory[number], reg, reg & 1 ? PUSHED : 0, in, out.fault);
	return true;
}

/* Aligned as movdir64b wants it. */
static void random_registers(struct run_state *in)
{
	run_random_extended(in);
	for (unsigned i = 0; i < 16; i++)
		in->r[i] = NOWHERE + (run_random() & 0xfffffffc0ull);
}

/* -------------------------------------------------------- addressing forms */

/*
 * mov and its like with a ModRM operand: base and index from the whole file of
 * registers; where both are there the index is small.
 */
static void check_form(const uint8_t *bytes, size_t size)
{
	static struct run_state in;
	struct arch_insn insn = decode(bytes, size);
	struct arch_memory m[ARCH_MEMORY_MAX];

	assert_int_equal(arch_memory_operands(&insn, m), 1);
	random_registers(&in);
	if (m[0].index != ARCH_NO_REGISTER) {
		if (m[0].base == m[0].index)
			in.r[m[0].base] = NOWHERE / 4 + (run_random() & 0xfffffff0ull);
		else if (m[0].base != ARCH_NO_REGISTER)
			in.r[m[0].index] = run_random() & 0xfffff0;
		else
			in.r[m[0].index] = (NOWHERE >> m[0].shift) + (run_random() & 0xfffff0);
	}
	/* Beside the thread block. */
	if (m[0].thread_relative && m[0].base != ARCH_NO_REGISTER)
		in.r[m[0].base] -= thread_pointer();
	else if (m[0].thread_relative && m[0].index != ARCH_NO_REGISTER)
		in.r[m[0].index] = (NOWHERE - thread_pointer()) >> m[0].shift;
	if (!check_access(&insn, 0, &in))
		absent++;
}

/* prefix REX opcode ModRM SIB displacement */
static void check_modrm(bool fs, unsigned rex, unsigned opcode, unsigned modrm, int sib,
			const uint8_t *disp)
{
	uint8_t bytes[16];
	size_t n = 0, disp_size = modrm >> 6 == 1 ? 1 : modrm >> 6 == 2 ? 4 : 0;

	if (modrm >> 6 == 0 && ((modrm & 7) == 5 || ((modrm & 7) == 4 && (sib & 7) == 5)))
		disp_size = 4;
	if (fs)
		bytes[n++] = 0x64;
	bytes[n++] = 0x40 | (uint8_t)rex;
	bytes[n++] = (uint8_t)opcode;
	bytes[n++] = (uint8_t)modrm;
	if ((modrm & 7) == 4)
		bytes[n++] = (uint8_t)sib;
	memcpy(bytes + n, disp, disp_size);
	check_form(bytes, n + disp_size);
}

/* fear C10: addresses of accesses against where the processor faults */
static void test_plain_forms(void **state)
{
	static const uint8_t disps[][4] = {{0x10, 0x32, 0x54, 0x36}, {0xf0, 0xde, 0xbc, 0xda}};

	(void)state;
	run_init();
	for (unsigned i = 0; i < 2 * 3 * 16 * COUNT(disps); i++) {
		unsigned rm = i & 7, rex_b = i >> 3 & 1, mod = (i >> 4) % 3;
		unsigned opcode = i / 48 & 1 ? 0x89 : 0x8b;

		if (rm != 4 && !(rm == 5 && mod == 0))
			check_modrm(false, REX_W | rex_b, opcode, mod << 6 | rm, 0, disps[i / 96]);
	}
}

static void test_sib_forms(void **state)
{
	static const uint8_t disps[][4] = {{0x10, 0x32, 0x54, 0x36}, {0xf0, 0xde, 0xbc, 0xda}};

	(void)state;
	run_init();
	for (unsigned rex = 0; rex < 4; rex++) /* B, X */
		for (unsigned mod = 0; mod < 3; mod++)
			for (unsigned sib = 0; sib < 256; sib++) {
				bool no_index = (sib >> 3 & 7) == 4 && !(rex & REX_X);
				bool no_base = (sib & 7) == 5 && mod == 0;

				if (no_base && no_index)
					continue; /* absolute: near 0, mapped or not */
				check_modrm(false, REX_W | rex, 0x8b, mod << 6 | 4, (int)sib,
					    disps[run_random() & 1]);
			}
}

static void test_thread_relative(void **state)
{
	static const uint8_t disps[][4] = {{0x10, 0x32, 0x54, 0x36}, {0xf0, 0xde, 0xbc, 0xda}};

	(void)state;
	run_init();
	for (unsigned i = 0; i < 400; i++) {
		unsigned sib = run_random() & 255, rex = run_random() & 3;
		unsigned mod = run_random() % 3;
		bool no_index = (sib >> 3 & 7) == 4 && !(rex & REX_X);
		bool no_base = (sib & 7) == 5 && mod == 0;
		bool same = ((sib & 7) | (rex & REX_B ? 8 : 0)) ==
			    ((sib >> 3 & 7) | (rex & REX_X ? 8 : 0));

		if ((no_base && no_index) || (same && !no_base && !no_index))
			continue;
		check_modrm(true, REX_W | rex, 0x8b, mod << 6 | 4, (int)sib, disps[i & 1]);
	}
	for (unsigned rm = 0; rm < 8; rm++)
		if (rm != 4)
			check_modrm(true, REX_W, 0x8b, 0x80 | rm, 0, disps[rm & 1]);
	/* An absolute one, far from the block. */
	check_form((const uint8_t[]){0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0x80}, 9);
}

static void test_other_encodings(void **state)
{
	static const struct {
		uint8_t bytes[14];
		size_t size;
	} cases[] = {
		/* relative to the program counter, an immediate behind */
		{{0x48, 0x8b, 0x05, 0, 0, 0, 0x70}, 7},
		{{0xc7, 0x05, 0, 0, 0, 0x70, 1, 2, 3, 4}, 10},
		{{0x80, 0x3d, 0, 0, 0, 0x8f, 1}, 7},
		{{0x0f, 0xb6, 0x15, 0, 0, 0, 0x70}, 7},
		/* an address in the instruction */
		{{0x48, 0xa1, 0, 0x10, 0, 0, 0, 0x30, 0, 0}, 10},
		{{0xa2, 0, 0x10, 0, 0, 0, 0x30, 0, 0}, 9},
		{{0x48, 0x8b, 0x04, 0x25, 0x10, 0, 0, 0xff}, 8}, /* sign-extended: the kernel's */
		{{0x48, 0x8b, 0x04, 0x25, 0x10, 0, 0, 0x7f}, 8},
		/* read and written */
		{{0xf0, 0x48, 0x0f, 0xb1, 0x4b, 0x10}, 6},
		{{0x48, 0x87, 0x43, 0x10}, 4},
		{{0x48, 0x83, 0x43, 0x10, 0x05}, 5},
		{{0xd1, 0x63, 0x10}, 3},
		{{0xf0, 0x48, 0x0f, 0xc7, 0x4b, 0x10}, 6},
		{{0x0f, 0xba, 0x6b, 0x10, 0x45}, 5},
		/* other instructions */
		{{0x0f, 0x94, 0x43, 0x10}, 4},
		{{0x48, 0x63, 0x43, 0x10}, 4},
		{{0xdb, 0x6b, 0x10}, 3},
		{{0xd9, 0x7b, 0x10}, 3},
		{{0x0f, 0xae, 0x5b, 0x10}, 4},
		{{0x0f, 0x11, 0x43, 0x10}, 4},
		{{0xf3, 0x0f, 0x10, 0x43, 0x10}, 5},
		{{0x48, 0x0f, 0x44, 0x43, 0x10}, 5}, /* cmov loads whatever the condition */
		{{0xff, 0x63, 0x10}, 3},
		/* AVX, AVX-512 with displacements that count operands */
		{{0xc5, 0xfa, 0x6f, 0x43, 0x10}, 5},
		{{0xc4, 0xc1, 0x7e, 0x6f, 0x43, 0x10}, 6},
		{{0xc5, 0xf8, 0x11, 0x43, 0xf0}, 5},
		{{0x62, 0xf1, 0xfe, 0x48, 0x6f, 0x43, 0x02}, 7},
		{{0x62, 0xf1, 0xfe, 0x28, 0x6f, 0x43, 0xfe}, 7},
		{{0x62, 0xf1, 0xfe, 0x08, 0x7f, 0x43, 0x02}, 7},
		{{0x62, 0xd1, 0xfe, 0x48, 0x6f, 0x43, 0x02}, 7},
		{{0x62, 0xf1, 0x7d, 0x58, 0xfe, 0x43, 0x02}, 7},    /* vpaddd {1to16} */
		{{0x62, 0xf1, 0xfd, 0x58, 0xd4, 0x43, 0x02}, 7},    /* vpaddq {1to8} */
		{{0x62, 0xf1, 0x7e, 0x08, 0x10, 0x43, 0x02}, 7},    /* vmovss */
		{{0x62, 0xf1, 0xff, 0x08, 0x10, 0x43, 0x02}, 7},    /* vmovsd */
		{{0x62, 0xf1, 0x7c, 0x48, 0x5a, 0x43, 0x02}, 7},    /* vcvtps2pd */
		{{0x62, 0xf2, 0x7d, 0x48, 0x31, 0x43, 0x02}, 7},    /* vpmovzxbd */
		{{0x62, 0xf2, 0x7d, 0x48, 0x18, 0x43, 0x02}, 7},    /* vbroadcastss */
		{{0x62, 0xf2, 0x7d, 0x48, 0x5a, 0x43, 0x02}, 7},    /* vbroadcasti32x4 */
		{{0x62, 0xf2, 0xfd, 0x48, 0x5b, 0x43, 0x02}, 7},    /* vbroadcasti64x4 */
		{{0x62, 0xf3, 0x7d, 0x48, 0x39, 0x43, 0x02, 1}, 8}, /* vextracti32x4 */
		{{0x62, 0xf2, 0x7d, 0x48, 0x8a, 0x43, 0x02}, 7},    /* vcompressps */
		{{0x62, 0xf1, 0x7d, 0x48, 0xd2, 0x43, 0x02}, 7},    /* vpsrld */
		{{0x62, 0xf1, 0xff, 0x48, 0x12, 0x43, 0x02}, 7},    /* vmovddup */
	};

	(void)state;
	run_init();
	for (size_t i = 0; i < COUNT(cases); i++)
		check_form(cases[i].bytes, cases[i].size);
}

/* ----------------------------------------------- what is done by the way */

/* Which registers point to memory that is there; which access faults then. */
static const struct {
	const char *bytes;
	arch_regset mapped;
	unsigned count, number, size;
	bool load, store;
} implicit[] = {
	{"50", 0, 1, 0, 8, false, true},
	{"4154", 0, 1, 0, 8, false, true},
	{"54", 0, 1, 0, 8, false, true},
	{"6650", 0, 1, 0, 2, false, true},
	{"6a05", 0, 1, 0, 8, false, true},
	{"6811223344", 0, 1, 0, 8, false, true},
	{"9c", 0, 1, 0, 8, false, true},
	{"58", 0, 1, 0, 8, true, false},
	{"5c", 0, 1, 0, 8, true, false},
	{"6658", 0, 1, 0, 2, true, false},
	{"9d", 0, 1, 0, 8, true, false},
	{"c9", 0, 1, 0, 8, true, false},
	{"c8100000", 0, 1, 0, 8, false, true},
	{"c3", 0, 1, 0, 8, true, false},
	{"c21000", 0, 1, 0, 8, true, false},
	{"f3c3", 0, 1, 0, 8, true, false},
	{"e810000000", 0, 1, 0, 8, false, true},
	{"ffd3", SET(RBX), 1, 0, 8, false, true},
	{"ff5310", 0, 2, 0, 8, true, false},
	{"ff5310", SET(RBX), 2, 1, 8, false, true},
	{"ff7310", 0, 2, 0, 8, true, false},
	{"ff7310", SET(RBX), 2, 1, 8, false, true},
	{"ff742410", 0, 2, 0, 8, true, false},
	{"ff542410", 0, 2, 0, 8, true, false},
	{"8f4310", 0, 2, 0, 8, true, false},
	{"8f4310", SET(RSP), 2, 1, 8, false, true},
	{"8f842400000070", SET(RSP), 2, 1, 8, false, true}, /* counts from the new rsp */
	{"8f84cc00000070", SET(RSP) | SET(RCX), 2, 1, 8, false, true},
	{"a4", 0, 2, 0, 1, true, false},
	{"a4", SET(RSI), 2, 1, 1, false, true},
	{"48a5", 0, 2, 0, 8, true, false},
	{"48a5", SET(RSI), 2, 1, 8, false, true},
	{"f3a4", SET(RSI), 2, 1, 0, false, true},
	{"f348ab", 0, 1, 0, 0, false, true},
	{"aa", 0, 1, 0, 1, false, true},
	{"66ab", 0, 1, 0, 2, false, true},
	{"ac", 0, 1, 0, 1, true, false},
	{"ad", 0, 1, 0, 4, true, false},
	{"64ad", 0, 1, 0, 4, true, false},
	{"ae", 0, 1, 0, 1, true, false},
	{"f2ae", 0, 1, 0, 0, true, false},
	{"a6", SET(RDI), 2, 0, 1, true, false},
	{"a6", SET(RSI), 2, 1, 1, true, false},
	{"660f38f803", 0, 2, 0, 64, true, false},
	{"660f38f803", SET(RBX), 2, 1, 64, false, true},
};

static void test_implicit(void **state)
{
	static struct run_state in;

	(void)state;
	run_init();
	for (size_t i = 0; i < COUNT(implicit); i++) {
		struct arch_memory m[ARCH_MEMORY_MAX];
		struct arch_insn insn;
		uint8_t bytes[16];
		size_t size = strlen(implicit[i].bytes) / 2;

		for (size_t k = 0; k < size; k++) {
			unsigned byte;

			assert_int_equal(sscanf(implicit[i].bytes + 2 * k, "%2x", &byte), 1);
			bytes[k] = (uint8_t)byte;
		}
		insn = decode(bytes, size);
		assert_int_equal(arch_memory_operands(&insn, m), implicit[i].count);
		m[0] = m[implicit[i].number];
		if (m[0].size != implicit[i].size || m[0].load != implicit[i].load ||
		    m[0].store != implicit[i].store)
			fail_msg("%s: %u bytes, %d %d", implicit[i].bytes, m[0].size, m[0].load,
				 m[0].store);
		random_registers(&in);
		for (unsigned reg = 0; reg < 16; reg++)
			if (implicit[i].mapped & SET(reg))
				in.r[reg] = SCRATCH + 4096;
		if (implicit[i].mapped & SET(RCX))
			in.r[RCX] = 16;
		if (m[0].thread_relative)
			in.r[RSI] -= thread_pointer();
		if (!check_access(&insn, implicit[i].number, &in))
			absent++;
	}
}

/* ----------------------------------------------------- what is not computed */

static void test_refused(void **state)
{
	/* NULL for no access at all, else not computable. */
	static const struct {
		const char *bytes;
		int accesses;
	} cases[] = {
		{"67488b03", 1},
		{"65488b03", 1},
		{"480fa303", 1},
		{"480fab03", 1},
		{"d7", 1},
		{"c4e27d900c08", 1},
		{"64263e488b03", 1},
		{"67488b0500000002", 1},
		{"62f27d49900c08", 1},
		{"488d03", 0},
		{"0f1f00", 0},
		{"0f0d08", 0},
		{"0f1803", 0},
		{"4889d8", 0},
		{"0fae3b", 0},
		{"0fb903", 0},
		{"f30f1efa", 0},
		{"ffe0", 0},
		{"67480fc70b", 1},
		{"67a4", 2},
		{"67a100000010", 1},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct arch_memory m[ARCH_MEMORY_MAX];
		uint8_t bytes[16], room[ARCH_ADDRESS_MAX];
		size_t size = strlen(cases[i].bytes) / 2;
		struct arch_insn insn;
		unsigned count;

		for (size_t k = 0; k < size; k++) {
			unsigned byte;

			assert_int_equal(sscanf(cases[i].bytes + 2 * k, "%2x", &byte), 1);
			bytes[k] = (uint8_t)byte;
		}
		insn = decode(bytes, size);
		count = arch_memory_operands(&insn, m);
		if ((int)count != cases[i].accesses)
			fail_msg("%s: %u accesses", cases[i].bytes, count);
		for (unsigned k = 0; k < count; k++) {
			struct arch_buf out = {.bytes = room, .size = sizeof(room), .pc = EMITTED};

			if (m[k].computable)
				fail_msg("%s is computable", cases[i].bytes);
			arch_emit_effective_address(&out, &m[k], SET(R9), 0);
			assert_int_equal(out.status, ARCH_REFUSED);
			assert_int_equal(out.used, 0);
		}
	}
}

static void test_destinations(void **state)
{
	static const arch_regset wrong[] = {0, SET(RAX) | SET(RCX), FLAG_CF, SET_ALL, SET(RSP)};
	const struct arch_memory m = {.base = RBX, .index = ARCH_NO_REGISTER, .computable = true};
	const struct arch_memory far = {
		.base = RSP, .index = ARCH_NO_REGISTER, .computable = true, .offset = INT32_MAX};
	uint8_t room[ARCH_ADDRESS_MAX];

	(void)state;
	for (size_t i = 0; i < COUNT(wrong); i++) {
		struct arch_buf out = {.bytes = room, .size = sizeof(room), .pc = EMITTED};

		arch_emit_effective_address(&out, &m, wrong[i], 0);
		assert_int_equal(out.status, ARCH_REFUSED);
	}
	struct arch_buf out = {.bytes = room, .size = sizeof(room), .pc = EMITTED};
	arch_emit_effective_address(&out, &far, SET(RAX), 8);
	assert_int_equal(out.status, ARCH_OUT_OF_RANGE);
}

static void on_operand(void *arg, taddr_t from, taddr_t target)
{
	taddr_t *sum = arg;

	assert_true(from >= CODE);
	*sum += target - CODE;
}

/* What is named relative to the program counter is found by looking, however the instruction ends. */
static void test_scan(void **state)
{
	static const struct {
		uint8_t bytes[12], size;
	} cases[] = {
		{{0x48, 0x8b, 0x05, 0, 1, 0, 0}, 7}, /* mov 0x100(%rip),%rax */
		{{0x66, 0x0f, 0x6f, 0x0d, 0, 1, 0, 0}, 8},
		{{0x80, 0x3d, 0, 1, 0, 0, 1}, 7}, /* cmpb $1,0x100(%rip) */
		{{0x66, 0x81, 0x3d, 0, 1, 0, 0, 1, 1}, 9},
		{{0x81, 0x3d, 0, 1, 0, 0, 1, 1, 1, 1}, 10},
		{{0x62, 0xf1, 0x7c, 0x48, 0x28, 0x05, 0, 1, 0, 0}, 10}, /* vmovaps */
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		const taddr_t target = CODE + 0x100 + cases[i].size;
		taddr_t sum = 0;

		assert_int_equal(decode(cases[i].bytes, cases[i].size).data_ref, target);
		arch_scan_operands(cases[i].bytes, cases[i].size, CODE, target, target + 1,
				   on_operand, &sum);
		assert_int_equal(sum, 0x100 + cases[i].size);
		/* Cut off, or outside of what is asked for: nothing. */
		arch_scan_operands(cases[i].bytes, 5, CODE, 0, UINT64_MAX, on_operand, &sum);
		arch_scan_operands(cases[i].bytes, cases[i].size, CODE, 0, CODE + 0x100, on_operand,
				   &sum);
		assert_int_equal(sum, 0x100 + cases[i].size);
	}
}

static void test_summary(void **state)
{
	(void)state;
	print_message("%ld runs, %ld refusals, %ld not on this processor\n", runs, refusals,
		      absent);
	assert_true(runs > 10000);
}

/* Each test that executes calls run_init(): cmocka sets handlers of its own before it. */
int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain_forms),	cmocka_unit_test(test_sib_forms),
		cmocka_unit_test(test_thread_relative), cmocka_unit_test(test_other_encodings),
		cmocka_unit_test(test_implicit),	cmocka_unit_test(test_refused),
		cmocka_unit_test(test_destinations),	cmocka_unit_test(test_scan),
		cmocka_unit_test(test_summary),
	};

	alarm(120);
	code = map_at(CODE);
	emitted = map_at(EMITTED);
	map_at(SCRATCH);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
