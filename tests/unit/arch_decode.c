/* SPDX-License-Identifier: MIT */
/*
 * arch_decode.c - the decoder, a line a case; and garbage, never read beyond its end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "arch/arch.h"
#include "tests/unit/arch_bytes.h"

#define ADDRESS 0x400000ull

/* As in arch/x86_64/x86.h, in few letters. */
#define R(n) (1ull << (n))
#define CF   (1ull << 16)
#define PF   (1ull << 17)
#define AF   (1ull << 18)
#define ZF   (1ull << 19)
#define SF   (1ull << 20)
#define OF   (1ull << 21)
#define DF   (1ull << 22)
#define F6   (CF | PF | AF | ZF | SF | OF)
#define ALL  (R(23) - 1)
enum { AX, CX, DX, BX, SP, BP, SI, DI, R8, R9, R10, R11, R12, R13, R14, R15 };

enum {
	RIP = ARCH_INSN_PC_RELATIVE,
	LEA = ARCH_INSN_ADDRESS_OF,
	NOP = ARCH_INSN_NOP | ARCH_INSN_PADDING,
	PAD = ARCH_INSN_PADDING,
	PADDED = ARCH_INSN_LANDING_PAD | ARCH_INSN_NO_MOVE,
	STAY = ARCH_INSN_NO_MOVE,
	LOCK = ARCH_INSN_LOCKED,
	MEM = ARCH_INSN_MEMORY,
	INDEXED = ARCH_INSN_INDEXED_JUMP,
	NOTRACK = ARCH_INSN_NO_TRACK,
	STACK = ARCH_INSN_STACK_OPERAND,
	FRAME = ARCH_INSN_FRAME,
	DIVIDES = ARCH_INSN_DIVIDES,
};

#define NEXT  ARCH_FLOW_NEXT
#define CALL  ARCH_FLOW_CALL
#define CALLI ARCH_FLOW_CALL_INDIRECT
#define JUMP  ARCH_FLOW_JUMP
#define JUMPI ARCH_FLOW_JUMP_INDIRECT
#define JCC   ARCH_FLOW_BRANCH
#define RET   ARCH_FLOW_RETURN
#define SYS   ARCH_FLOW_SYSCALL
#define STOP  ARCH_FLOW_STOP

/* Bytes in hexadecimal; target and data_ref relative to ADDRESS, 0 for none. */
static const struct {
	const char *bytes;
	int flow;
	unsigned flags;
	int64_t target, data_ref;
} kinds[] = {
	{"90", NEXT, NOP, 0, 0},
	{"6690", NEXT, NOP, 0, 0},
	{"f390", NEXT, 0, 0, 0}, /* pause */
	{"4190", NEXT, 0, 0, 0}, /* xchg %r8,%rax */
	{"0f1f00", NEXT, NOP, 0, 0},
	{"662e0f1f840000000000", NEXT, NOP, 0, 0},
	{"66662e0f1f840000000000", NEXT, NOP, 0, 0},
	{"f30f1efa", NEXT, PADDED, 0, 0}, /* endbr64 */
	{"f30f1efb", NEXT, PADDED, 0, 0}, /* endbr32 */
	{"f3480f1ec8", NEXT, 0, 0, 0},	  /* rdsspq */
	{"f3480faee8", NEXT, 0, 0, 0},	  /* incsspq */
	{"e800000000", CALL, MEM, 5, 0},
	{"e8fbffffff", CALL, MEM, 0, 0},
	{"666648e810000000", CALL, MEM, 0x18, 0}, /* as the linker writes for TLS */
	{"67e810000000", CALL, MEM, 0x16, 0},
	{"e910000000", JUMP, 0, 0x15, 0},
	{"eb10", JUMP, 0, 0x12, 0},
	{"f2e910000000", JUMP, 0, 0x16, 0}, /* bnd jmp */
	{"7410", JCC, 0, 0x12, 0},
	{"3e7410", JCC, 0, 0x13, 0}, /* branch hint */
	{"0f8510000000", JCC, 0, 0x16, 0},
	{"e210", JCC, 0, 0x12, 0},
	{"67e310", JCC, 0, 0x13, 0},	      /* jecxz */
	{"c7f810000000", JCC, STAY, 0x16, 0}, /* xbegin */
	{"c6f801", NEXT, 0, 0, 0},	      /* xabort */
	{"0f01d5", NEXT, 0, 0, 0},	      /* xend */
	{"0f01d7", NEXT, STAY, 0, 0},	      /* enclu */
	{"ffd0", CALLI, 0 | MEM, 0, 0},
	{"ffd4", CALLI, STAY | MEM, 0, 0}, /* call *%rsp */
	{"41ffd4", CALLI, MEM, 0, 0},	   /* call *%r12 */
	{"ff1510000000", CALLI, RIP | MEM, 0, 0x16},
	{"67ff1510000000", CALLI, RIP | MEM | STAY, 0, 0x17},
	{"ff5008", CALLI, MEM, 0, 0},
	{"ff542408", CALLI, MEM | STACK, 0, 0},
	{"ff5424f8", CALLI, MEM | STACK | STAY, 0, 0}, /* where it pushes */
	{"ff5424f1", CALLI, MEM | STACK | STAY, 0, 0},
	{"ff54c4f8", CALLI, MEM | STACK | STAY, 0, 0},
	{"ff9424ffffffff", CALLI, MEM | STACK | STAY, 0, 0},
	{"ff5424f0", CALLI, MEM | STACK, 0, 0},
	{"ff6424f8", JUMPI, MEM | STACK, 0, 0}, /* a jump pushes nothing */
	{"41ff5424f8", CALLI, MEM, 0, 0},
	{"41ff542408", CALLI, MEM, 0, 0},  /* r12 is no stack pointer */
	{"ff18", CALLI, MEM | STAY, 0, 0}, /* far */
	{"ffe0", JUMPI, 0, 0, 0},
	{"3effe0", JUMPI, NOTRACK, 0, 0},
	{"ff2510000000", JUMPI, RIP | MEM, 0, 0x16},
	{"ff24c500001000", JUMPI, MEM | INDEXED, 0, 0x100000 - (int64_t)ADDRESS},
	{"42ff24e500001000", JUMPI, MEM | INDEXED, 0, 0x100000 - (int64_t)ADDRESS},
	{"ff24c6", JUMPI, MEM | INDEXED, 0, 0},
	{"ff2424", JUMPI, MEM | STACK, 0, 0},
	{"488b04c500001000", NEXT, MEM, 0, 0x100000 - (int64_t)ADDRESS},
	{"64488b042528000000", NEXT, MEM, 0, 0},
	{"c3", RET, MEM, 0, 0},
	{"f3c3", RET, MEM, 0, 0},
	{"f2c3", RET, MEM, 0, 0},
	{"c21000", RET, MEM, 0, 0},
	{"cb", RET, MEM | STAY, 0, 0},
	{"48cf", RET, MEM | STAY, 0, 0},
	{"0f05", SYS, STAY, 0, 0},
	{"0f34", SYS, STAY, 0, 0},
	{"cd80", SYS, STAY, 0, 0},
	{"cc", STOP, PAD | STAY, 0, 0},
	{"f1", STOP, STAY, 0, 0},
	{"f4", STOP, STAY, 0, 0},
	{"0f0b", STOP, STAY, 0, 0},
	{"0fb9c1", STOP, STAY, 0, 0}, /* ud1 has an operand */
	{"0fffc1", STOP, STAY, 0, 0}, /* ud0, too */
	{"488d0510000000", NEXT, RIP | LEA, 0, 0x17},
	{"678d0510000000", NEXT, RIP | LEA | STAY, 0, 0x17},
	{"488b0510000000", NEXT, RIP | MEM, 0, 0x17},
	{"c7051000000001000000", NEXT, RIP | MEM, 0, 0x1a},
	{"66c705100000000100", NEXT, RIP | MEM, 0, 0x19},
	{"833d1000000001", NEXT, RIP | MEM, 0, 0x17},
	{"f6051000000001", NEXT, RIP | MEM, 0, 0x17}, /* test with an immediate */
	{"f71510000000", NEXT, RIP | MEM, 0, 0x16},   /* not, without */
	{"c5fa6f0510000000", NEXT, RIP | MEM, 0, 0x18},
	{"c4e37d18051000000001", NEXT, RIP | MEM, 0, 0x1a},
	{"62f1fe486f0510000000", NEXT, RIP | MEM, 0, 0x1a},
	{"62f36d4825051000000011", NEXT, RIP | MEM, 0, 0x1b},
	{"f0480fb111", NEXT, LOCK | MEM, 0, 0},
	{"55", NEXT, MEM | STACK, 0, 0},
	{"5d", NEXT, MEM | STACK | FRAME, 0, 0},
	{"c9", NEXT, MEM | STACK | FRAME, 0, 0},
	{"6a01", NEXT, MEM | STACK, 0, 0},
	{"9c", NEXT, MEM | STACK, 0, 0},
	{"fff0", NEXT, MEM | STACK, 0, 0},
	{"8fc0", NEXT, MEM | STACK | FRAME, 0, 0},
	{"0fa0", NEXT, MEM | STACK, 0, 0},
	{"ff30", NEXT, MEM, 0, 0},
	{"ff3424", NEXT, MEM | STACK, 0, 0},
	{"8f00", NEXT, MEM | FRAME, 0, 0},
	{"a4", NEXT, MEM, 0, 0},
	{"0ff7c1", NEXT, MEM, 0, 0},
	{"d7", NEXT, MEM, 0, 0},
	{"4883c408", NEXT, FRAME, 0, 0},
	{"4883ec80", NEXT, FRAME, 0, 0}, /* sub $-128,%rsp */
	{"4883ec08", NEXT, 0, 0, 0},
	{"488d642408", NEXT, FRAME | STACK, 0, 0},
	{"488d6424f8", NEXT, STACK, 0, 0},
	{"4889ec", NEXT, FRAME, 0, 0},
	{"4889e5", NEXT, 0, 0, 0},
	{"488d65d8", NEXT, FRAME, 0, 0}, /* lea -40(%rbp),%rsp */
	{"48f7fe", NEXT, DIVIDES, 0, 0}, /* idiv %rsi */
	{"f6f1", NEXT, DIVIDES, 0, 0},	 /* div %cl */
	{"48f73f", NEXT, MEM | DIVIDES, 0, 0},
	{"48f7ee", NEXT, 0, 0, 0}, /* imul, neg */
	{"48f7de", NEXT, 0, 0, 0},
	{"48b88877665544332211", NEXT, 0, 0, 0},
	{"48a18877665544332211", NEXT, MEM, 0, 0},
	{"c8100001", NEXT, MEM | STACK, 0, 0},
	{"0f0d08", NEXT, 0, 0, 0},   /* prefetchw */
	{"f30fc7f8", NEXT, 0, 0, 0}, /* rdpid */
};

static const struct {
	const char *bytes;
	int status;
} failures[] = {
	{"", ARCH_TRUNCATED},
	{"48", ARCH_TRUNCATED},
	{"0f", ARCH_TRUNCATED},
	{"e8000000", ARCH_TRUNCATED},
	{"8b05000000", ARCH_TRUNCATED},
	{"62f1fe486f05100000", ARCH_TRUNCATED},
	{"c5", ARCH_TRUNCATED},
	{"06", ARCH_UNKNOWN},
	{"d6", ARCH_UNKNOWN},
	{"d500", ARCH_UNKNOWN}, /* APX */
	{"82c001", ARCH_UNKNOWN},
	{"66e800000000", ARCH_UNKNOWN}, /* 16 bits on AMD, 32 on Intel */
	{"667400", ARCH_UNKNOWN},
	{"660f8400000000", ARCH_UNKNOWN},
	{"66ffd0", ARCH_UNKNOWN},
	{"66c3", ARCH_UNKNOWN},
	{"8dc0", ARCH_UNKNOWN}, /* lea of a register */
	{"f090", ARCH_UNKNOWN}, /* lock where it faults */
	{"f0488b00", ARCH_UNKNOWN},
	{"f001c0", ARCH_UNKNOWN},
	{"fec8fe", ARCH_OK},
	{"fef0", ARCH_UNKNOWN},
	{"fff8", ARCH_UNKNOWN},
	{"0f0fc000", ARCH_UNKNOWN}, /* 3DNow! */
	{"0fa6c0", ARCH_OK},	    /* VIA */
	{"0fa600", ARCH_UNKNOWN},
	{"0f20c0", ARCH_UNKNOWN},
	{"8fe878c2ec0e", ARCH_OK}, /* XOP: 6 bytes */
	{"8fe878c2ec", ARCH_TRUNCATED},
	{"8fe979c2ec", ARCH_UNKNOWN}, /* pp is not 0 */
	{"8fd0000000", ARCH_UNKNOWN}, /* neither XOP nor pop */
	{"66c5f877", ARCH_UNKNOWN},   /* prefix before VEX */
	{"40c5f877", ARCH_UNKNOWN},
	{"62f07c48100000", ARCH_UNKNOWN},
	{"66666666666666666666666666669090", ARCH_OK},
	{"6666666666666666666666666666669090", ARCH_UNKNOWN}, /* 16 bytes */
};

static const struct {
	const char *bytes;
	arch_regset reads, writes;
} effects[] = {
	{"4889d8", R(BX), R(AX)}, /* mov %rbx,%rax */
	{"89d8", R(BX), R(AX)},
	{"6689d8", R(BX), 0},
	{"88d8", R(BX), 0},
	{"88e3", R(AX), 0},   /* mov %ah,%bl */
	{"4088e3", R(SP), 0}, /* mov %spl,%bl */
	{"488b4308", R(BX), R(AX)},
	{"488b04cb", R(BX) | R(CX), R(AX)},
	{"4a8b04e3", R(BX) | R(R12), R(AX)},
	{"488d0510000000", 0, R(AX)},
	{"488903", R(AX) | R(BX), 0},
	{"31c0", 0, R(AX) | F6}, /* xor %eax,%eax */
	{"6631c0", R(AX), F6},
	{"31d8", R(AX) | R(BX), R(AX) | F6},
	{"29c0", R(AX), R(AX) | F6},
	{"19c0", R(AX) | CF, R(AX) | F6},
	{"4839d8", R(AX) | R(BX), F6},
	{"48ffc0", R(AX), R(AX) | (F6 & ~CF)},
	{"48f7d0", R(AX), R(AX)},
	{"48f7d8", R(AX), R(AX) | F6},
	{"48f7e3", R(AX) | R(BX), R(AX) | R(DX) | CF | OF},
	{"48f7f3", R(AX) | R(DX) | R(BX), R(AX) | R(DX)},
	{"f6e3", R(AX) | R(BX), CF | OF},
	{"480fafc3", R(AX) | R(BX), R(AX) | CF | OF},
	{"486bc305", R(BX), R(AX) | CF | OF},
	{"f3480fbcc3", R(BX), ZF},
	{"f30fbdc3", R(BX), ZF},
	{"48c1e005", R(AX), R(AX) | F6},
	{"48c1e000", R(AX), R(AX)},
	{"48d3e0", R(AX) | R(CX), R(AX)},
	{"48c1c005", R(AX), R(AX) | CF},
	{"d1d0", R(AX) | CF, R(AX) | CF | OF},
	{"480f44c3", R(BX) | ZF, 0}, /* cmove: rax is kept, or not */
	{"0f94c0", ZF, 0},
	{"0f94c4", ZF, 0},	    /* sete %ah */
	{"0fb6c4", R(AX), R(AX)},   /* movzbl %ah,%eax */
	{"400fb6c4", R(SP), R(AX)}, /* movzbl %spl,%eax */
	{"0fb6c6", R(DX), R(AX)},
	{"0fbec7", R(BX), R(AX)},
	{"85ff", R(DI), F6},
	{"3405", R(AX), F6},
	{"3511223344", R(AX), R(AX) | F6},
	{"f30f1efa", 0, 0},
	{"f3480f1ec8", R(AX), 0},
	{"0fb7c3", R(BX), R(AX)},
	{"4863c3", R(BX), R(AX)},
	{"480fbcc3", R(BX), ZF}, /* bsf: rax is kept if zero, flags that are undefined too */
	{"f3480fb8c3", R(BX), R(AX) | F6},
	{"480fa3c3", R(AX) | R(BX), CF},
	{"480fc8", R(AX), 0},
	{"55", R(BP) | R(SP), 0},
	{"5d", R(SP), R(BP)},
	{"c9", R(SP) | R(BP), 0},
	{"9c", F6 | DF | R(SP), 0},
	{"9d", R(SP), F6 | DF},
	{"9f", F6 & ~OF, 0},
	{"62f16d48fec1", 0, 0}, /* vpaddd %zmm1,%zmm2,%zmm0 */
	{"62f16d48fe4101", R(CX), 0},
	{"62f16e082ac1", R(AX) | R(CX), 0}, /* vcvtsi2ss: either may be the one */
	{"62f26c08f2c1", ALL, 0},	    /* andn of APX */
	{"62f57c4858c1", ALL, 0},	    /* vaddph */
	{"9e", R(AX), F6 & ~OF},
	{"fc", 0, DF},
	{"f8", 0, CF},
	{"f5", CF, CF},
	{"98", R(AX), R(AX)},
	{"4899", R(AX), R(DX)},
	{"f3a4", R(SI) | R(DI) | R(CX) | DF, 0},
	{"a4", R(SI) | R(DI) | DF, 0},
	{"f348ab", R(DI) | R(CX) | R(AX) | DF, 0},
	{"f2ae", R(DI) | R(CX) | R(AX) | DF, 0}, /* rcx 0: no flag is written */
	{"a6", R(SI) | R(DI) | DF, F6},
	{"48ad", R(SI) | DF, R(AX)},
	{"93", R(AX) | R(BX), 0},
	{"4887c3", R(AX) | R(BX), R(AX) | R(BX)},
	{"480fb1cb", R(AX) | R(BX) | R(CX), R(BX) | F6},
	{"480fc1c3", R(AX) | R(BX), R(AX) | R(BX) | F6},
	{"0fc70b", R(AX) | R(BX) | R(CX) | R(DX), 0},
	{"0fa2", R(AX) | R(CX), R(AX) | R(BX) | R(CX) | R(DX)},
	{"0f31", 0, R(AX) | R(DX)},
	{"0f01d0", R(CX), R(AX) | R(DX)},
	{"7410", ZF, 0},
	{"7710", CF | ZF, 0},
	{"7f10", ZF | SF | OF, 0},
	{"e210", R(CX), 0},
	{"e110", R(CX) | ZF, 0},
	{"e800000000", R(SP), 0},
	{"ffd0", R(AX) | R(SP), 0},
	{"c3", ALL, 0},
	{"c7f800000000", ALL, 0}, /* xbegin writes eax on the way back only */
	{"c6f801", ALL, 0},
	{"0f05", ALL, 0},
	{"0f10c1", 0, 0},
	{"0f1003", R(BX), 0},
	{"660fd7c1", 0, R(AX)}, /* pmovmskb */
	{"66480f7ec0", 0, R(AX)},
	{"f30f7ec0", 0, 0},
	{"66480f6ec0", R(AX), 0},
	{"f2480f2cc1", 0, R(AX)},
	{"f2480f2ac3", R(BX), 0},
	{"660f2ec1", 0, F6},
	{"660f3a63c11a", 0, R(CX) | F6},
	{"dff1", 0, CF | PF | ZF}, /* fcomip */
	{"dac1", CF | PF | ZF, 0}, /* fcmovb */
	{"48b88877665544332211", 0, R(AX)},
	{"b005", 0, 0},
	{"c5fd6f07", R(DI), 0},
	{"c4e2e0f2c1", R(CX) | R(BX), R(AX) | F6}, /* andn %rcx,%rbx,%rax */
	{"c4e2e1f7c1", R(CX) | R(BX), R(AX)},	   /* shlx %rbx,%rcx,%rax */
	{"c4e2e8f3c9", R(CX), R(DX) | F6},	   /* blsr %rcx,%rdx */
	{"c4e2fbf6c3", R(DX) | R(BX), R(AX)},	   /* mulx %rbx,%rax,%rax */
};

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static void test_kinds(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(kinds); i++) {
		struct arch_insn insn;
		uint8_t bytes[32];
		size_t size = parse(kinds[i].bytes, bytes);
		taddr_t target = kinds[i].target ? ADDRESS + (uint64_t)kinds[i].target : 0;
		taddr_t data = kinds[i].data_ref ? ADDRESS + (uint64_t)kinds[i].data_ref : 0;
		int status = arch_decode(bytes, size, ADDRESS, &insn);

		if (kinds[i].flow == CALL && kinds[i].target == 0)
			target = ADDRESS;
		if (status != ARCH_OK || insn.length != size || insn.flow != kinds[i].flow ||
		    insn.flags != kinds[i].flags || insn.target != target || insn.data_ref != data)
			fail_msg(
				"%s: status %d length %u flow %u flags %#x target %#llx data %#llx",
				kinds[i].bytes, status, insn.length, insn.flow, insn.flags,
				(unsigned long long)insn.target, (unsigned long long)insn.data_ref);
	}
}

static void test_failures(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(failures); i++) {
		struct arch_insn insn;
		uint8_t bytes[32];
		int status = arch_decode(bytes, parse(failures[i].bytes, bytes), ADDRESS, &insn);

		if (status != failures[i].status)
			fail_msg("%s: status %d", failures[i].bytes, status);
	}
}

static void test_effects(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(effects); i++) {
		struct arch_insn insn;
		uint8_t bytes[32];
		arch_regset reads, writes;
		int status = arch_decode(bytes, parse(effects[i].bytes, bytes), ADDRESS, &insn);

		assert_int_equal(status, ARCH_OK);
		arch_effects(&insn, &reads, &writes);
		if (reads != effects[i].reads ||
		    (writes & ~reads) != (effects[i].writes & ~effects[i].reads))
			fail_msg("%s: reads %#llx writes %#llx", effects[i].bytes,
				 (unsigned long long)reads, (unsigned long long)writes);
	}
}

/* Comparisons with a constant; reg is NONE where it is none. */
#define NONE 0xffffffffffull

static void test_compares(void **state)
{
	static const struct {
		const char *bytes;
		arch_regset reg;
		uint64_t limit;
	} cases[] = {
		{"83ff5c", R(DI), 92},
		{"4883ff5c", R(DI), 92},
		{"4183f85c", R(R8), 92},
		{"83ffff", R(DI), 0xffffffff},
		{"6683ffff", R(DI), 0xffff},
		{"4883ffff", R(DI), UINT64_MAX},
		{"81ff00010000", R(DI), 256},
		{"6681ff0001", R(DI), 256},
		{"3c80", R(AX), 128},
		{"3d00010000", R(AX), 256},
		{"483d000000ff", R(AX), 0xffffffffff000000},
		{"80fb80", R(BX), 128},
		{"4080ff80", R(DI), 128},
		{"80ff80", NONE, 0}, /* bh */
		{"803f80", 0, 128},
		{"837c240805", 0, 5},
		{"83ef5c", NONE, 0},
		{"83e71f", NONE, 0},
		{"4839f8", NONE, 0},
		{"85ff", NONE, 0},
		{"a801", NONE, 0},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct arch_insn insn;
		uint8_t bytes[32];
		arch_regset reg = NONE;
		uint64_t limit = 0;

		assert_int_equal(arch_decode(bytes, parse(cases[i].bytes, bytes), ADDRESS, &insn),
				 ARCH_OK);
		if (arch_compares(&insn, &reg, &limit) != (cases[i].reg != NONE) ||
		    reg != cases[i].reg || limit != cases[i].limit)
			fail_msg("%s: %#llx, %#llx", cases[i].bytes, (unsigned long long)reg,
				 (unsigned long long)limit);
	}
}

static void test_factors(void **state)
{
	static const struct {
		const char *bytes;
		uint64_t factor; /* 0: no multiplication of one register */
	} cases[] = {
		{"c1e106", 64},	       {"48c1e120", 1ull << 32},
		{"c1e121", 2},	       {"d1e0", 2},
		{"49d1e4", 2},	       {"66c1e106", 0},
		{"c0e106", 0},	       {"d3e1", 0},
		{"c1e906", 0},	       {"c12106", 0},
		{"8d0c8d00000000", 4}, {"8d0c8d01000000", 0},
		{"448d0449", 3},       {"488d04c0", 9},
		{"488d0440", 3},       {"488d0400", 2},
		{"488d440000", 2},     {"488d440001", 0},
		{"488d0408", 0},       {"488d00", 1},
		{"488d0424", 1},       {"488d0500000000", 0},
		{"8d042500000000", 0}, {"67488d00", 0},
		{"438d0424", 2},       {"6bc103", 3},
		{"69c100010000", 256}, {"6bc1ff", 0},
		{"6bc100", 0},	       {"6b0103", 0},
		{"4889d8", 1},	       {"89d8", 1},
		{"8bd8", 1},	       {"8b18", 0},
		{"6689d8", 0},	       {"01c0", 0},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct arch_insn insn;
		uint8_t bytes[32];
		uint64_t factor = 0;
		bool is;

		assert_int_equal(arch_decode(bytes, parse(cases[i].bytes, bytes), ADDRESS, &insn),
				 ARCH_OK);
		is = arch_multiplies(&insn, &factor);
		if (is != (cases[i].factor != 0) || factor != cases[i].factor)
			fail_msg("%s: %llu", cases[i].bytes, (unsigned long long)factor);
	}
}

static void test_conditions(void **state)
{
	static const struct {
		const char *bytes;
		enum arch_condition condition;
	} cases[] = {
		{"7710", ARCH_CONDITION_ABOVE},
		{"0f8710000000", ARCH_CONDITION_ABOVE},
		{"7310", ARCH_CONDITION_ABOVE_EQUAL},
		{"0f8210000000", ARCH_CONDITION_BELOW},
		{"7610", ARCH_CONDITION_BELOW_EQUAL},
		{"7410", ARCH_CONDITION_EQUAL},
		{"0f8510000000", ARCH_CONDITION_NOT_EQUAL},
		{"7f10", ARCH_CONDITION_OTHER},
		{"e310", ARCH_CONDITION_OTHER},
		{"c7f810000000", ARCH_CONDITION_OTHER},
		{"eb10", ARCH_CONDITION_OTHER},
		{"0f97c0", ARCH_CONDITION_OTHER},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct arch_insn insn;
		uint8_t bytes[32];

		assert_int_equal(arch_decode(bytes, parse(cases[i].bytes, bytes), ADDRESS, &insn),
				 ARCH_OK);
		if (arch_condition(&insn) != cases[i].condition)
			fail_msg("%s: %d", cases[i].bytes, (int)arch_condition(&insn));
	}
}

/* ----------------------------------------------------------------- garbage */

/* Whatever was decoded is refused or moved, and is no larger than promised. */
static void check_relocation(const struct arch_insn *insn)
{
	uint8_t bytes[ARCH_RELOCATED_MAX];
	struct arch_buf out = {.bytes = bytes, .size = sizeof(bytes), .pc = ADDRESS + 0x100000};
	struct arch_insn first;

	arch_relocate(insn, &out);
	if (insn->flags & ARCH_INSN_NO_MOVE) {
		assert_int_equal(out.status, ARCH_REFUSED);
		return;
	}
	/* A displacement at the edge may no longer reach, and then only that. */
	if (out.status == ARCH_OUT_OF_RANGE)
		return;
	assert_int_equal(out.status, ARCH_OK);
	assert_int_equal(arch_decode(bytes, out.used, out.pc, &first), ARCH_OK);
	if (insn->flags & ARCH_INSN_PC_RELATIVE && insn->flow != ARCH_FLOW_CALL_INDIRECT)
		assert_int_equal(first.data_ref, insn->data_ref);
}

/* The bytes end where the page ends: reading on would fault. */
static void test_garbage(void **state)
{
	uint8_t *pages =
		mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t seed = 88172645463325252ull;

	(void)state;
	assert_ptr_not_equal(pages, MAP_FAILED);
	assert_int_equal(mprotect(pages + 4096, 4096, PROT_NONE), 0);
	for (unsigned i = 0; i < 400000; i++) {
		struct arch_insn insn, again;
		size_t size = i % 18;
		uint8_t *at = pages + 4096 - size;
		char text[ARCH_OPERAND_NAME_MAX];

		for (size_t k = 0; k < size; k++) {
			seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
			at[k] = (uint8_t)(seed >> 24);
		}
		if (arch_decode(at, size, ADDRESS, &insn) != ARCH_OK)
			continue;
		assert_in_range(insn.length, 1, size < 15 ? size : 15);
		/* Exactly its bytes are enough, and one less is not. */
		assert_int_equal(arch_decode(insn.bytes, insn.length, ADDRESS, &again), ARCH_OK);
		assert_memory_equal(&insn, &again,
				    offsetof(struct arch_insn, bytes) + ARCH_INSN_MAX);
		assert_int_equal(arch_decode(at, insn.length - 1u, ADDRESS, &again),
				 ARCH_TRUNCATED);
		check_relocation(&insn);
		if (i % 16 == 0) {
			arch_format(&insn, text, sizeof(text));
			assert_true(text[0] != 0 && strlen(text) < sizeof(text));
			arch_format(&insn, text, 5);
			assert_true(strlen(text) < 5);
		}
	}
	munmap(pages, 8192);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kinds),	   cmocka_unit_test(test_failures),
		cmocka_unit_test(test_effects),	   cmocka_unit_test(test_compares),
		cmocka_unit_test(test_conditions), cmocka_unit_test(test_factors),
		cmocka_unit_test(test_garbage),
	};
	alarm(100);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
