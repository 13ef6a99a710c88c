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
	EX_SAVES_PC,	 /* stores the x87 instruction pointer: fnstenv, fnsave, fxsave, xsave */
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
	[EX_SAVES_PC] = "stores the x87 pc",
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
			return ext == 7				  ? RUN_IT
			       : ext == 3			  ? RUN_IT
			       : ext == 0 || ext == 4 || ext == 6 ? EX_SAVES_PC
								  : EX_CONTROL;
		return l->prefixes ? EX_CONTROL : RUN_IT;
	case 0xc7:
		if (!x86_is_memory(l))
			return EX_UNREPEATABLE;
		return ext == 1 ? RUN_IT : ext == 4 ? EX_SAVES_PC : EX_PRIVILEGED;
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
			return ext == 4 || ext == 5 ? EX_CONTROL : ext == 6 ? EX_SAVES_PC : RUN_IT;
		return RUN_IT;
	case 0xdd:
		if (x86_is_memory(l))
			return ext == 4 ? EX_CONTROL : ext == 6 ? EX_SAVES_PC : RUN_IT;
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

/* Forms that a compiler hardly writes. Displacements are set by localize(). */
static const char *const rare[] = {
	"e000",
	"e100",
	"e200",
	"e300",
	"67e300",
	"67e200",
	"3e7400",
	"2e7500",
	"e800000000",
	"666648e800000000",
	"67e800000000",
	"eb00",
	"f2eb00",
	"ff1500000000",
	"ff2500000000",
	"ff1424",
	"ff542408",
	"ff542478",
	"ff542480",
	"ff942400010000",
	"ff9424f0ffffff",
	"ff54c408",
	"41ff1424",
	"41ff542408",
	"ff14c8",
	"ff5500",
	"ff10",
	"ff9300010000",
	"ffd0",
	"41ffd4",
	"3effd0",
	"ffe0",
	"3effe0",
	"ff2424",
	"ff642440",
	"c3",
	"f3c3",
	"f2c3",
	"c21000",
	"ff742408",
	"8f442408",
	"68ffffffff",
	"6a80",
	"c9",
	"c8100000",
	"c8100003",
	"d7",
	"f3a4",
	"f348a5",
	"f3aa",
	"f2ae",
	"f3a6",
	"ac",
	"48a7",
	"6667488b00",
	"67488b4010",
	"f6050000000055",
	"f71500000000",
	"c6050000000055",
	"c7050000000055667788",
	"66c705000000005566",
	"48c7050000000055667788",
	"6905000000000a000000",
	"6b050000000007",
	"48832d0000000001",
	"c1250000000003",
	"d32500000000",
	"0fba250000000003",
	"0fa40500000000ff",
	"660f3a0f050000000003",
	"c5f9c60500000000ff",
	"c4e37d06050000000001",
	"c4e3fbf0050000000007",
	"62f1fe486f0500000000",
	"62f3fd48250500000000ff",
	"62f17d487005000000001b",
	"f00fb10d00000000",
	"480fc70d00000000",
	"0fae0500000000",
	"d90500000000",
	"dd1d00000000",
	"f30fb80500000000",
	"0f440500000000",
	"0f940500000000",
};

#endif
