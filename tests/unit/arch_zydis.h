/* SPDX-License-Identifier: MIT */
/*
 * arch_zydis.h - Zydis as the judge of one instruction: whether it is one, its
 * length, where its parts lie, what it does to the flow of control, what it
 * refers to, reads, overwrites, loads and stores. For the arch tests only.
 *
 * Every difference is looked up in the list of known ones (arch_known.h) and
 * counted there with its reason; what is not in the list fails the test.
 */
#ifndef DINST_TESTS_ARCH_ZYDIS_H
#define DINST_TESTS_ARCH_ZYDIS_H

#include <stdio.h>
#include <string.h>

#include "tests/unit/arch_known.h"

static const char *const difference_names[DIFFERENCES] = {
	"only Zydis knows",
	"only we know",
	"length",
	"parts",
	"flow",
	"target",
	"pc-relative",
	"lock",
	"registers read",
	"registers overwritten",
	"flags read",
	"flags overwritten",
	"registers changed",
	"memory",
};

enum { TALLIES_MAX = 4000 };

static struct judge {
	ZydisDecoder decoder;
	long total, both, neither, listed[DIFFERENCES], unlisted;
	struct tally {
		enum difference kind;
		ZydisMnemonic mnemonic;
		const char *why;
		long count;
		uint8_t example[ARCH_INSN_MAX];
		char text[48];
	} tallies[TALLIES_MAX];
	size_t tally_count;
} judge;

static void judge_begin(void)
{
	memset(&judge, 0, sizeof(judge));
	ZydisDecoderInit(&judge.decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
}

static void differ(const struct opinion *o, enum difference kind, const char *text)
{
	const char *why = why_different(o, kind);
	ZydisMnemonic mnemonic = o->known ? o->theirs.mnemonic : ZYDIS_MNEMONIC_INVALID;
	struct tally *t = judge.tallies, *end = t + judge.tally_count;

	judge.listed[kind] += why != NULL;
	judge.unlisted += why == NULL;
	while (t < end && (t->kind != kind || t->mnemonic != mnemonic || t->why != why))
		t++;
	if (t == end) {
		if (judge.tally_count == TALLIES_MAX)
			return;
		judge.tally_count++;
		t->kind = kind;
		t->mnemonic = mnemonic;
		t->why = why;
		memcpy(t->example, o->bytes,
		       o->size < sizeof(t->example) ? o->size : sizeof(t->example));
		snprintf(t->text, sizeof(t->text), "%s", text);
	}
	t->count++;
}

/* Bit of a general register in an arch_regset; 0 if it is none. */
static arch_regset general_register(ZydisRegister reg)
{
	ZydisRegister whole = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg);

	return whole >= ZYDIS_REGISTER_RAX && whole <= ZYDIS_REGISTER_R15
		       ? SET(whole - ZYDIS_REGISTER_RAX)
		       : 0;
}

static arch_regset flags_of(ZydisAccessedFlagsMask mask)
{
	static const struct {
		ZydisAccessedFlagsMask theirs;
		arch_regset ours;
	} table[] = {
		{ZYDIS_CPUFLAG_CF, FLAG_CF}, {ZYDIS_CPUFLAG_PF, FLAG_PF},
		{ZYDIS_CPUFLAG_AF, FLAG_AF}, {ZYDIS_CPUFLAG_ZF, FLAG_ZF},
		{ZYDIS_CPUFLAG_SF, FLAG_SF}, {ZYDIS_CPUFLAG_OF, FLAG_OF},
		{ZYDIS_CPUFLAG_DF, FLAG_DF},
	};
	arch_regset set = 0;

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (mask & table[i].theirs)
			set |= table[i].ours;
	return set;
}

static void judge_parts(const struct opinion *o)
{
	const struct x86_layout *l = &o->layout;
	const ZydisDecodedInstruction *z = &o->theirs;
	/* Immediates are side by side: enter, and the selector byte of some AVX forms. */
	unsigned imm_size = (z->raw.imm[0].size + z->raw.imm[1].size) / 8;

	if (!(z->attributes & ZYDIS_ATTRIB_HAS_MODRM) != !l->modrm_offset ||
	    (l->modrm_offset && z->raw.modrm.offset != l->modrm_offset))
		differ(o, PARTS, "modrm");
	else if (z->raw.disp.size / 8 != l->disp_size ||
		 (l->disp_size && z->raw.disp.offset != l->disp_offset)) {
		/* An address without ModRM is an immediate to us. */
		if ((l->attributes & OP_IMM_MASK) != OP_MOFFS)
			differ(o, PARTS, "displacement");
	} else if (imm_size != l->imm_size ||
		   (l->imm_size && z->raw.imm[0].offset != l->imm_offset))
		differ(o, PARTS, "immediate");
	if (z->opcode != l->opcode || (l->map == 0 && l->encoding == X86_LEGACY) !=
					      (z->opcode_map == ZYDIS_OPCODE_MAP_DEFAULT))
		differ(o, PARTS, "opcode");
	if (((z->attributes & ZYDIS_ATTRIB_HAS_LOCK) != 0) != ((l->prefixes & PREFIX_LOCK) != 0) ||
	    ((z->attributes & ZYDIS_ATTRIB_HAS_LOCK) != 0) !=
		    ((o->insn.flags & ARCH_INSN_LOCKED) != 0))
		differ(o, LOCKED, "");
}

static enum arch_flow their_flow(const ZydisDecodedInstruction *z,
				 const ZydisDecodedOperand *operand)
{
	bool direct = operand->type == ZYDIS_OPERAND_TYPE_IMMEDIATE;

	switch (z->mnemonic) {
	case ZYDIS_MNEMONIC_INT3:
	case ZYDIS_MNEMONIC_INT1:
	case ZYDIS_MNEMONIC_HLT:
	case ZYDIS_MNEMONIC_UD0:
	case ZYDIS_MNEMONIC_UD1:
	case ZYDIS_MNEMONIC_UD2:
		return ARCH_FLOW_STOP;
	case ZYDIS_MNEMONIC_INT:
	case ZYDIS_MNEMONIC_SYSCALL:
	case ZYDIS_MNEMONIC_SYSENTER:
		return ARCH_FLOW_SYSCALL;
	case ZYDIS_MNEMONIC_XABORT: /* goes nowhere outside of a transaction */
		return ARCH_FLOW_NEXT;
	default:
		break;
	}
	switch (z->meta.category) {
	case ZYDIS_CATEGORY_CALL:
		return direct ? ARCH_FLOW_CALL : ARCH_FLOW_CALL_INDIRECT;
	case ZYDIS_CATEGORY_UNCOND_BR:
		return direct ? ARCH_FLOW_JUMP : ARCH_FLOW_JUMP_INDIRECT;
	case ZYDIS_CATEGORY_COND_BR:
		return ARCH_FLOW_BRANCH;
	case ZYDIS_CATEGORY_RET:
		return ARCH_FLOW_RETURN;
	default:
		return ARCH_FLOW_NEXT;
	}
}

static void judge_flow(const struct opinion *o)
{
	uint64_t target = 0, reference = 0;

	if (their_flow(&o->theirs, &o->operands[0]) != o->insn.flow)
		differ(o, FLOW, "");
	for (int i = 0; i < o->theirs.operand_count; i++) {
		const ZydisDecodedOperand *op = &o->operands[i];

		if (op->type == ZYDIS_OPERAND_TYPE_IMMEDIATE && op->imm.is_relative)
			ZydisCalcAbsoluteAddress(&o->theirs, op, o->address, &target);
		if (op->type == ZYDIS_OPERAND_TYPE_MEMORY &&
		    (op->mem.base == ZYDIS_REGISTER_RIP || op->mem.base == ZYDIS_REGISTER_EIP))
			ZydisCalcAbsoluteAddress(&o->theirs, op, o->address, &reference);
	}
	if (target != o->insn.target)
		differ(o, TARGET, "");
	if ((reference != 0) != ((o->insn.flags & ARCH_INSN_PC_RELATIVE) != 0) ||
	    (reference && reference != o->insn.data_ref))
		differ(o, REFERENCE, "");
}

/* A write that leaves nothing of the old value: 32 or 64 bits, on all conditions. */
static bool is_whole(const ZydisDecodedOperand *op)
{
	return (op->actions & ZYDIS_OPERAND_ACTION_WRITE) && op->size >= 32;
}

static void judge_effects(const struct opinion *o)
{
	arch_regset reads, writes, read = 0, written = 0, touched = 0, tested = 0, changed = 0;
	char text[48];

	arch_effects(&o->insn, &reads, &writes);
	for (int i = 0; i < o->theirs.operand_count; i++) {
		const ZydisDecodedOperand *op = &o->operands[i];

		if (op->type == ZYDIS_OPERAND_TYPE_REGISTER) {
			arch_regset reg = general_register(op->reg.value);

			if (op->actions & ZYDIS_OPERAND_ACTION_MASK_READ)
				read |= reg;
			if (is_whole(op))
				written |= reg;
			if (op->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE)
				touched |= reg;
		} else if (op->type == ZYDIS_OPERAND_TYPE_MEMORY) {
			read |= general_register(op->mem.base) | general_register(op->mem.index);
		}
	}
	if (o->theirs.cpu_flags) {
		tested = flags_of(o->theirs.cpu_flags->tested);
		changed = flags_of(o->theirs.cpu_flags->modified | o->theirs.cpu_flags->set_0 |
				   o->theirs.cpu_flags->set_1 | o->theirs.cpu_flags->undefined);
	}
	snprintf(text, sizeof(text), "%#llx %#llx", (unsigned long long)reads,
		 (unsigned long long)writes);
	writes &= ~reads;
	if (read & ~reads)
		differ(o, READ, text);
	if (writes & SET_REGISTERS & ~written)
		differ(o, WRITTEN, text);
	if (tested & ~reads)
		differ(o, FLAGS_READ, text);
	if (writes & ~SET_REGISTERS & ~changed)
		differ(o, FLAGS_WRITTEN, text);
	if (touched & ~arch_changes(&o->insn))
		differ(o, CHANGED, text);
}

static uint8_t register_number(ZydisRegister reg)
{
	return reg == ZYDIS_REGISTER_NONE ? ARCH_NO_REGISTER : (uint8_t)(ZydisRegisterGetId(reg));
}

/* True if both mean the same access. */
static bool same_access(const struct opinion *o, const struct arch_memory *m,
			const ZydisDecodedOperand *op)
{
	bool relative = op->mem.base == ZYDIS_REGISTER_RIP || op->mem.base == ZYDIS_REGISTER_EIP;
	int64_t offset = op->mem.disp.value;
	uint8_t index = register_number(op->mem.index);

	if (m->load != ((op->actions & ZYDIS_OPERAND_ACTION_MASK_READ) != 0) ||
	    m->store != ((op->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0))
		return false;
	if (m->size != 0 && m->size != op->size / 8)
		return false;
	if (!m->computable)
		return true;
	if (op->mem.type == ZYDIS_MEMOP_TYPE_VSIB || op->mem.segment == ZYDIS_REGISTER_GS)
		return false;
	if (relative)
		offset = (int64_t)o->insn.data_ref;
	/* A push has moved the stack pointer when it stores; Zydis means the same. */
	if (op->visibility == ZYDIS_OPERAND_VISIBILITY_HIDDEN && m->store && op->size <= 64 &&
	    op->mem.base == ZYDIS_REGISTER_RSP)
		offset -= op->size / 8;
	return m->base == (relative ? ARCH_NO_REGISTER : register_number(op->mem.base)) &&
	       m->index == index && (index == ARCH_NO_REGISTER || 1 << m->shift == op->mem.scale) &&
	       m->offset == offset && m->thread_relative == (op->mem.segment == ZYDIS_REGISTER_FS);
}

static void describe(const struct arch_memory *m, unsigned count, char *text, size_t size)
{
	size_t used = (size_t)snprintf(text, size, "%u", count);

	for (unsigned i = 0; i < count && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, " %s%s%u%s%d,%d,%d%+lld",
					 m[i].load ? "l" : "", m[i].store ? "s" : "", m[i].size,
					 m[i].computable ? "@" : "?", m[i].base, m[i].index,
					 m[i].shift, (long long)m[i].offset);
}

/* Each of ours must be one of theirs, each of theirs one of ours. */
static void judge_memory(const struct opinion *o)
{
	struct arch_memory ours[ARCH_MEMORY_MAX];
	unsigned count = arch_memory_operands(&o->insn, ours), matched = 0, theirs = 0;
	char text[48];

	for (int i = 0; i < o->theirs.operand_count; i++) {
		const ZydisDecodedOperand *op = &o->operands[i];
		unsigned k = 0;

		if (op->type != ZYDIS_OPERAND_TYPE_MEMORY ||
		    op->mem.type == ZYDIS_MEMOP_TYPE_AGEN || op->actions == 0)
			continue;
		theirs++;
		while (k < count && ((matched >> k & 1) || !same_access(o, &ours[k], op)))
			k++;
		if (k < count)
			matched |= 1u << k;
	}
	if (theirs != count || matched != (1u << count) - 1) {
		describe(ours, count, text, sizeof(text));
		differ(o, MEMORY, text);
	}
}

/* Judges the instruction at `bytes`; returns how far to go on from there. */
static size_t judge_one(const uint8_t *bytes, size_t size, uint64_t address)
{
	static struct opinion o;

	o.bytes = bytes;
	o.size = size;
	o.address = address;
	o.status = arch_decode(bytes, size, address, &o.insn);
	o.known = ZYAN_SUCCESS(
		ZydisDecoderDecodeFull(&judge.decoder, bytes, size, &o.theirs, o.operands));
	judge.total++;
	if (o.status != ARCH_OK || !o.known) {
		judge.neither += o.status != ARCH_OK && !o.known;
		if (o.status != ARCH_OK && o.known)
			differ(&o, WE_REFUSE, "");
		if (o.status == ARCH_OK && !o.known)
			differ(&o, THEY_REFUSE, "");
		return o.status == ARCH_OK ? o.insn.length : o.known ? o.theirs.length : 1;
	}
	judge.both++;
	if (x86_layout_read(bytes, size, &o.layout) != ARCH_OK ||
	    o.insn.length != o.theirs.length) {
		differ(&o, LENGTH, "");
		return o.theirs.length;
	}
	judge_parts(&o);
	judge_flow(&o);
	judge_effects(&o);
	judge_memory(&o);
	return o.insn.length;
}

/* Prints what differed and why, what is not explained first. */
static void judge_report(bool explained)
{
	for (int pass = 0; pass < (explained ? 2 : 1); pass++) {
		for (size_t i = 0; i < judge.tally_count; i++) {
			const struct tally *t = &judge.tallies[i];

			if ((t->why != NULL) != pass)
				continue;
			printf("  %s%s %s: %ld", pass ? "" : "UNEXPLAINED ",
			       difference_names[t->kind],
			       t->mnemonic ? ZydisMnemonicGetString(t->mnemonic) : "", t->count);
			printf(" (");
			for (unsigned k = 0; k < ARCH_INSN_MAX; k++)
				printf("%02x", t->example[k]);
			printf(" %s) %s\n", t->text, t->why ? t->why : "");
		}
	}
}

#endif
