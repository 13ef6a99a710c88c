/* SPDX-License-Identifier: MIT */
/*
 * arch_forms.h - which instructions the differential test does not execute,
 * and why; and forms that it executes besides those found in libraries.
 */
#ifndef DINST_TESTS_ARCH_FORMS_H
#define DINST_TESTS_ARCH_FORMS_H

#include "arch/x86_64/x86.h"

/* Why an instruction is not executed. Everything else is. */
enum exclusion {
	RUN_IT,
	EX_REFUSED,	 /* arch_relocate refuses it by rule */
	EX_PRIVILEGED,	 /* in, out, cli, sti, system registers, virtualization, enclaves */
	EX_UNREPEATABLE, /* time stamps, random numbers, processor numbers */
	EX_CONTROL,	 /* loads control state: popf, fldcw, ldmxcsr, fldenv, xrstor, segments */
	EX_STATE,	 /* xsave and its kin: alignment, header, masks */
	EX_SEGMENT,	 /* fs or gs with an absolute operand: our own thread block */
	EX_GATHER,	 /* addresses from a vector */
	EX_ABSENT,	 /* SIGILL at its own place: not on this processor */
	EX_COUNT,
};

static const char *const exclusion_names[EX_COUNT] = {
	[RUN_IT] = "executed",
	[EX_REFUSED] = "refused by rule",
	[EX_PRIVILEGED] = "privileged",
	[EX_UNREPEATABLE] = "not repeatable",
	[EX_CONTROL] = "control state",
	[EX_STATE] = "saved state",
	[EX_SEGMENT] = "thread block",
	[EX_GATHER] = "vector addresses",
	[EX_ABSENT] = "not on this processor",
};

static enum exclusion exclude_two_byte(const struct x86_layout *l)
{
	unsigned ext = x86_extension(l);

	switch (l->opcode) {
	case 0x00:
		return EX_PRIVILEGED;
	case 0x01:
		return l->modrm == 0xd0 || l->modrm == 0xf9 ? EX_UNREPEATABLE : EX_PRIVILEGED;
	case 0x02:
	case 0x03:
		return EX_PRIVILEGED;
	case 0x31:
	case 0xa2:
		return EX_UNREPEATABLE;
	case 0xa0:
	case 0xa1:
	case 0xa8:
	case 0xa9:
		return EX_CONTROL;
	case 0xae:
		if (x86_is_memory(l))
			return ext == 7 || ext == 3 || ext == 0 ? RUN_IT
			       : ext == 4 || ext == 6		? EX_STATE
								: EX_CONTROL;
		return l->prefixes ? EX_CONTROL : RUN_IT;
	case 0xc7:
		if (!x86_is_memory(l))
			return EX_UNREPEATABLE;
		return ext == 1 ? RUN_IT : ext == 4 ? EX_STATE : EX_PRIVILEGED;
	default:
		return RUN_IT;
	}
}

static enum exclusion exclude_one_byte(const struct x86_layout *l)
{
	unsigned ext = x86_extension(l);

	switch (l->opcode) {
	case 0x6c ... 0x6f:
	case 0xe4 ... 0xe7:
	case 0xec ... 0xef:
	case 0xfa ... 0xfb:
		return EX_PRIVILEGED;
	case 0x8e:
	case 0x9d:
		return EX_CONTROL;
	case 0xd9:
		if (x86_is_memory(l))
			return ext == 4 || ext == 5 ? EX_CONTROL : RUN_IT;
		return RUN_IT;
	case 0xdd:
		if (x86_is_memory(l))
			return ext == 4 ? EX_CONTROL : RUN_IT;
		return RUN_IT;
	default:
		return RUN_IT;
	}
}

static enum exclusion exclude(const struct arch_insn *insn, const struct x86_layout *l)
{
	bool gathers = l->map == 2 && ((l->opcode >= 0x90 && l->opcode <= 0x93) ||
				       (l->opcode >= 0xa0 && l->opcode <= 0xa3) ||
				       l->opcode == 0xc6 || l->opcode == 0xc7);
	bool absolute = x86_is_memory(l) && x86_has_sib(l) && x86_mod(l) == 0 &&
			(l->sib & 7) == 5 && (l->sib >> 3 & 7) == 4 && !(l->rex & REX_X);

	if (insn->flags & ARCH_INSN_NO_MOVE)
		return EX_REFUSED;
	if ((l->prefixes & PREFIX_FSGS) && (absolute || (l->attributes & OP_IMM_MASK) == OP_MOFFS))
		return EX_SEGMENT;
	if (l->encoding == X86_LEGACY && l->map == 0)
		return exclude_one_byte(l);
	if (l->encoding == X86_LEGACY && l->map == 1)
		return exclude_two_byte(l);
	if (l->encoding != X86_LEGACY && gathers)
		return EX_GATHER;
	if (l->encoding == X86_VEX && l->map == 1 && l->opcode == 0xae)
		return x86_extension(l) == 2 ? EX_CONTROL : RUN_IT;
	if (l->encoding == X86_VEX && l->map == 2 && (l->opcode == 0x49 || l->opcode == 0x4b))
		return EX_CONTROL; /* tiles */
	return RUN_IT;
}

/*
 * Forms that compilers write and forms that they hardly write, by what has to
 * be minded when they are moved. Displacements are set by localize(). Each must
 * have been executed to its end at both places, or refused, as it says here.
 */
enum outcome {
	MOVED_ALIKE, /* executed to the end at both places, with the same result */
	REFUSED,     /* arch_relocate() refuses it */
	LEFT_OUT,    /* moved, but not for execution in a test: exclude() says why */
	MAY_LACK,    /* MOVED_ALIKE on processors that have it */
};

static const struct {
	const char *rule;
	enum outcome outcome;
	const char *forms[20];
} rare[] = {
	{"nothing depends on the place: copied",
	 MOVED_ALIKE,
	 {"4889d8", "31c0", "480fafc3", "f3a4", "f348a5", "f3aa", "f2ae", "f3a6", "ac", "48a7",
	  "d7", "f00fb10b", "660f6fc1", "c5fd6f07", "f30fb8c3", "0f44c3", "0f94c0", "d9c1"}},
	{"... AVX-512, mask registers, GFNI, VAES",
	 MAY_LACK,
	 {"62f1fe486f03", "c5f892c0", "62f17d48eec9", "c4e1f898c1", "66440f3acfda31",
	  "62f2f548cfc2", "62f27548dcc2", "62f3f54844c211", "f3480f1ec8"}},
	{"... XOP, FMA4, VIA",
	 MAY_LACK,
	 {"8fe878c2c80e", "c4e3f969c213", "f30fa7c8", "8fe9789bc1"}},
	{"an operand relative to the program counter names the same place",
	 MOVED_ALIKE,
	 {"488b0500000000", "488d0500000000", "f30fb80500000000", "0f440500000000",
	  "0f940500000000", "480fc70d00000000", "f00fb10d00000000", "d90500000000", "dd1d00000000",
	  "0fae1d00000000", "d32500000000", "f71500000000", "ff3500000000", "8f0500000000",
	  "0fc30500000000"}},
	{"... an immediate of 1, 2 or 4 bytes behind it",
	 MOVED_ALIKE,
	 {"f6050000000055", "c6050000000055", "c7050000000055667788", "66c705000000005566",
	  "48c7050000000055667788", "6905000000000a000000", "6b050000000007", "48832d0000000001",
	  "c1250000000003", "0fba250000000003", "0fa40500000000ff", "660f3a0f050000000003",
	  "833d0000000001", "66813d000000001122", "f7050000000011223344"}},
	{"... VEX and EVEX",
	 MAY_LACK,
	 {"c5fa6f0500000000", "c5f9c60500000000ff", "c4e37d06050000000001", "c4e3fbf0050000000007",
	  "62f1fe486f0500000000", "62f3fd48250500000000ff", "62f17d487005000000001b",
	  "62e1fe486f0500000000"}},
	{"... XOP", LEFT_OUT, {"8fe878c20500000000ec", "8fe9789b0500000000"}},
	{"... refused with 32-bit addresses",
	 REFUSED,
	 {"678b0500000000", "678d0500000000", "67ff1500000000", "67ff2500000000"}},
	{"32-bit addresses otherwise: copied", LEFT_OUT, {"6667488b00", "67488b4010"}},
	{"call: pushes the address behind the original",
	 MOVED_ALIKE,
	 {"e800000000", "67e800000000", "666648e800000000", "48e800000000", "f2e800000000"}},
	{"call through a register or memory",
	 MOVED_ALIKE,
	 {"ffd0", "41ffd4", "3effd0", "f2ffd0", "ff10", "41ff13", "ff5500", "ff9300010000",
	  "41ff542408", "41ff1424", "ff14c8", "ff1500000000", "3eff1500000000"}},
	{"... based on rsp: 8 further up",
	 MOVED_ALIKE,
	 {"ff1424", "ff542408", "ff542470", "ff542478", "ff542480", "ff942400010000",
	  "ff9424f0ffffff", "ff54c408", "ff14c4"}},
	{"... refused where it reads what it pushes",
	 REFUSED,
	 {"ffd4", "ff5424f8", "ff5424f1", "ff5424ff", "ff9424f8ffffff", "ff54c4f8"}},
	{"jump: 32 bits of displacement, prefixes dropped",
	 MOVED_ALIKE,
	 {"eb00", "e900000000", "f2eb00", "f2e900000000", "3eeb00", "48e900000000"}},
	{"branch hints and bnd before conditional jumps are dropped",
	 MOVED_ALIKE,
	 {"3e7400", "2e7500", "f27400", "3e0f8400000000", "f20f8500000000"}},
	{"loop and jrcxz, with and without 67",
	 MOVED_ALIKE,
	 {"e000", "e100", "e200", "e300", "67e000", "67e100", "67e200", "67e300"}},
	{"jump through a register, memory or a table",
	 MOVED_ALIKE,
	 {"ffe0", "3effe0", "41ffe3", "ff20", "3eff2500000000", "ff2500000000", "ff2424",
	  "ff642440", "f2ffe0", "ff24c8"}},
	{"return", MOVED_ALIKE, {"c3", "f3c3", "f2c3", "c21000", "48c3"}},
	{"enclaves, which are told the address behind: refused", REFUSED, {"0f01d7"}},
	{"transactions: refused", REFUSED, {"c7f800000000", "c7f810000000"}},
	{"landing pads: refused", REFUSED, {"f30f1efa", "f30f1efb"}},
	{"system calls: refused", REFUSED, {"0f05", "0f34", "cd80"}},
	{"traps, halts, undefined: refused",
	 REFUSED,
	 {"cc", "f1", "f4", "0f0b", "0fb9c1", "0fffc1", "0fb90500000000"}},
	{"far transfers: refused",
	 REFUSED,
	 {"cb", "ca1000", "48cf", "ff18", "ff28", "48ff2d00000000"}},
	{"an address or constant of 64 bits is no displacement",
	 MOVED_ALIKE,
	 {"48b88877665544332211", "48a18877665544332211", "a28877665544332211",
	  "66a38877665544332211"}},
	{"push, pop and other users of the stack",
	 MOVED_ALIKE,
	 {"50", "54", "58", "5c", "6650", "68ffffffff", "6a80", "ff742408", "8f442408", "8f0424",
	  "9c", "c9", "c8100000", "c8100003", "48894424f8", "488b442480", "488d642480",
	  "4883ec18"}},
	{"the x87 instruction pointer is saved as it is",
	 MOVED_ALIKE,
	 {"d93500000000", "d97500", "dd3500000000", "0fae0500000000", "480fae0500000000"}},
};

/* 66 before a near branch is no instruction that we know. */
static const char *const unknown[] = {
	"66e800000000",	  "66e900000000", "66eb00",	  "667400", "660f8400000000",
	"66e200",	  "66e300",	  "66ffd0",	  "66ffe0", "66c3",
	"66c7f800000000", "d50000",	  "62f47c1801c8", "0f04",
};

#endif
