/* SPDX-License-Identifier: MIT */
/*
 * arch_known.h - where our decoder and Zydis differ for good, and why. For
 * arch_zydis.h, which does the comparing.
 */
#ifndef DINST_TESTS_ARCH_KNOWN_H
#define DINST_TESTS_ARCH_KNOWN_H

#include <Zydis/Zydis.h>
#include <stdbool.h>

#include "arch/x86_64/x86.h"

enum difference {
	WE_REFUSE,
	THEY_REFUSE,
	LENGTH,
	PARTS,
	FLOW,
	TARGET,
	REFERENCE,
	LOCKED,
	READ,
	WRITTEN,
	FLAGS_READ,
	FLAGS_WRITTEN,
	CHANGED,
	MEMORY,
	DIFFERENCES,
};

/* Everything about the two opinions. */
struct opinion {
	const uint8_t *bytes;
	size_t size;
	uint64_t address;
	int status;
	struct arch_insn insn;
	struct x86_layout layout;
	bool known; /* to Zydis */
	ZydisDecodedInstruction theirs;
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
};

/* Instructions that we do not know, by the extension they came with. */
static const struct {
	ZydisISAExt extension;
	const char *why;
} unknown_extensions[] = {
	{ZYDIS_ISA_EXT_AMD3DNOW, "3DNow!: no processor of today has it"},
	{ZYDIS_ISA_EXT_KNC, "Knights Corner: its encodings mean other things now"},
	{ZYDIS_ISA_EXT_KNCE, "Knights Corner: its encodings mean other things now"},
	{ZYDIS_ISA_EXT_KNCV, "Knights Corner: its encodings mean other things now"},
	{ZYDIS_ISA_EXT_SSE4A, "SSE4a: two immediates, on AMD's processors only"},
	{ZYDIS_ISA_EXT_KEYLOCKER, "key locker: implicit registers; no program found that has it"},
	{ZYDIS_ISA_EXT_KEYLOCKER_WIDE,
	 "key locker: implicit registers; no program found that has it"},
	{ZYDIS_ISA_EXT_VTX, "of virtual machine monitors"},
	{ZYDIS_ISA_EXT_SMX, "of virtual machine monitors"},
	{ZYDIS_ISA_EXT_INVPCID, "privileged"},
	{ZYDIS_ISA_EXT_HRESET, "privileged"},
};

/* Instructions that we do not know, by name. */
static const struct {
	ZydisMnemonic mnemonic;
	const char *why;
} unknown_names[] = {
	{ZYDIS_MNEMONIC_CLTS, "privileged"},
	{ZYDIS_MNEMONIC_INVD, "privileged"},
	{ZYDIS_MNEMONIC_WBINVD, "privileged"},
	{ZYDIS_MNEMONIC_RDMSR, "privileged"},
	{ZYDIS_MNEMONIC_WRMSR, "privileged"},
	{ZYDIS_MNEMONIC_RDPMC, "privileged"},
	{ZYDIS_MNEMONIC_RSM, "privileged"},
	{ZYDIS_MNEMONIC_SYSRET, "privileged"},
	{ZYDIS_MNEMONIC_SYSEXIT, "privileged"},
	{ZYDIS_MNEMONIC_MOV, "privileged: control and debug registers"},
	{ZYDIS_MNEMONIC_LSS, "far pointers into segment registers: no compiler of 64-bit code"},
	{ZYDIS_MNEMONIC_LFS, "far pointers into segment registers: no compiler of 64-bit code"},
	{ZYDIS_MNEMONIC_LGS, "far pointers into segment registers: no compiler of 64-bit code"},
	{ZYDIS_MNEMONIC_SHL, "the undocumented form /6 of shl"},
	{ZYDIS_MNEMONIC_NOP, "prefetch of a register, undocumented"},
	{ZYDIS_MNEMONIC_FEMMS, "3DNow!: no processor of today has it"},
};

static bool has_66(const struct opinion *o)
{
	return o->theirs.attributes & ZYDIS_ATTRIB_HAS_OPERANDSIZE;
}

static const char *why_unknown(const struct opinion *o)
{
	const ZydisDecodedInstruction *z = &o->theirs;

	switch (z->meta.category) {
	case ZYDIS_CATEGORY_CALL:
	case ZYDIS_CATEGORY_COND_BR:
	case ZYDIS_CATEGORY_UNCOND_BR:
	case ZYDIS_CATEGORY_RET:
		if (has_66(o))
			return "66 before a near branch: Intel ignores it, AMD takes 16 bits";
		break;
	default:
		break;
	}
	for (size_t i = 0; i < sizeof(unknown_extensions) / sizeof(unknown_extensions[0]); i++)
		if (unknown_extensions[i].extension == z->meta.isa_ext)
			return unknown_extensions[i].why;
	for (size_t i = 0; i < sizeof(unknown_names) / sizeof(unknown_names[0]); i++)
		if (unknown_names[i].mnemonic == z->mnemonic)
			return unknown_names[i].why;
	return NULL;
}

/*
 * Encodings that fault or will mean something one day. Where the length is
 * beyond doubt we take them as they are: the copy faults like the original.
 */
static const char *why_known_to_us_alone(const struct opinion *o)
{
	struct x86_layout l;

	if (x86_layout_read(o->bytes, o->size, &l) != ARCH_OK)
		return NULL;
	if (l.encoding == X86_EVEX)
		return "EVEX: the length follows one rule a map, whatever the opcode";
	if (l.encoding == X86_VEX)
		return l.map >= 8
			       ? "XOP: the length follows one rule a map"
			       : "VEX: a prefix, length or register that the opcode does not have";
	if (l.map == 0)
		return (l.opcode & 0xf8) == 0xd8 ? "x87: reserved forms" : NULL;
	if (l.map >= 2)
		return "0f 38, 0f 3a: a prefix or form that the opcode does not have";
	switch (l.opcode) {
	case 0x01:
	case 0xae:
	case 0xc7:
		return "0f 01, 0f ae, 0f c7: reserved forms";
	case 0xa6 ... 0xa7:
		return "VIA: reserved forms, and xsha512, which Zydis does not know";
	case 0x10 ... 0x1b:
	case 0x28 ... 0x2f:
	case 0x50 ... 0x7f:
	case 0xc3 ... 0xc6:
	case 0xd0 ... 0xfe:
		return "MMX, SSE: a prefix or form that the opcode does not have";
	default:
		return NULL;
	}
}

static const char *why_other_flow(const struct opinion *o)
{
	return o->theirs.mnemonic == ZYDIS_MNEMONIC_XEND ? "xend goes on behind itself" : NULL;
}

/* With 67 and no base. */
static bool lacks_base(const struct opinion *o)
{
	const struct x86_layout *l = &o->layout;

	return (l->prefixes & PREFIX_67) && x86_has_sib(l) && x86_mod(l) == 0 && (l->sib & 7) == 5;
}

static const char *why_other_read(const struct opinion *o)
{
	if (lacks_base(o))
		return "Zydis takes r13 for a base where there is none";
	switch (o->theirs.mnemonic) {
	case ZYDIS_MNEMONIC_XOR:
		return "xor with itself reads nothing";
	case ZYDIS_MNEMONIC_NOP:
		return "a nop's operand is not read";
	default:
		return NULL;
	}
}

static const char *why_other_flags_read(const struct opinion *o)
{
	if (o->theirs.attributes &
	    (ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE | ZYDIS_ATTRIB_HAS_REP |
	     ZYDIS_ATTRIB_HAS_REPZ | ZYDIS_ATTRIB_HAS_REPNZ))
		return "repe and repne look at the ZF of their own comparisons only";
	return NULL;
}

static const char *why_other_flags_written(const struct opinion *o)
{
	switch (o->theirs.mnemonic) {
	case ZYDIS_MNEMONIC_VPTEST:
	case ZYDIS_MNEMONIC_VTESTPS:
	case ZYDIS_MNEMONIC_VTESTPD:
		return "clears the other flags; Zydis leaves them out (arch_differential executes it)";
	default:
		return NULL;
	}
}

static const char *why_other_memory(const struct opinion *o)
{
	const ZydisDecodedInstruction *z = &o->theirs;

	if (lacks_base(o))
		return "Zydis takes r13 for a base where there is none";
	if (z->meta.isa_ext == ZYDIS_ISA_EXT_MPX)
		return "bounds: nothing is accessed, or a table";
	if (z->meta.isa_ext == ZYDIS_ISA_EXT_PADLOCK)
		return "VIA: implicit operands, not listed";
	if (z->meta.branch_type == ZYDIS_BRANCH_TYPE_FAR)
		return "far transfers: what they do to the stack is not listed";
	if (z->meta.category == ZYDIS_CATEGORY_XSAVE || z->meta.category == ZYDIS_CATEGORY_XSAVEOPT)
		return "saved state: of any size, a store; Zydis adds that its header is read";
	switch (z->mnemonic) {
	case ZYDIS_MNEMONIC_NOP:
	case ZYDIS_MNEMONIC_UD0:
	case ZYDIS_MNEMONIC_UD1:
		return "the operand is not accessed";
	case ZYDIS_MNEMONIC_PREFETCH:
	case ZYDIS_MNEMONIC_PREFETCHW:
	case ZYDIS_MNEMONIC_PREFETCHWT1:
	case ZYDIS_MNEMONIC_PREFETCHT0:
	case ZYDIS_MNEMONIC_PREFETCHT1:
	case ZYDIS_MNEMONIC_PREFETCHT2:
	case ZYDIS_MNEMONIC_PREFETCHNTA:
	case ZYDIS_MNEMONIC_CLFLUSH:
	case ZYDIS_MNEMONIC_CLFLUSHOPT:
	case ZYDIS_MNEMONIC_CLWB:
	case ZYDIS_MNEMONIC_CLDEMOTE:
	case ZYDIS_MNEMONIC_CLEVICT0:
	case ZYDIS_MNEMONIC_CLEVICT1:
	case ZYDIS_MNEMONIC_INVLPG:
		return "cache lines and pages are no loads and stores";
	case ZYDIS_MNEMONIC_POP:
		return "a popped operand based on rsp lies 8 further up (arch_memory executes it)";
	case ZYDIS_MNEMONIC_ENTER:
		return "nested frames: several loads and stores";
	case ZYDIS_MNEMONIC_ENQCMD:
	case ZYDIS_MNEMONIC_ENQCMDS:
		return "what goes to the queue is a store, too";
	case ZYDIS_MNEMONIC_MOVSXD:
		return "with 66 Intel reads 16 bits, AMD 32";
	default:
		return NULL;
	}
}

static const char *why_different(const struct opinion *o, enum difference kind)
{
	switch (kind) {
	case WE_REFUSE:
		return why_unknown(o);
	case THEY_REFUSE:
		return why_known_to_us_alone(o);
	case FLOW:
		return why_other_flow(o);
	case READ:
		return why_other_read(o);
	case FLAGS_READ:
		return why_other_flags_read(o);
	case FLAGS_WRITTEN:
		return why_other_flags_written(o);
	case MEMORY:
		return why_other_memory(o);
	default: /* lengths, parts, targets, references, locks, registers overwritten */
		return NULL;
	}
}

#endif
