/* SPDX-License-Identifier: MIT */
/*
 * decode.c - bytes to struct arch_insn: where control goes, what is referred
 * to, what may not be moved. Built on the opcode tables; capstone is used for
 * text only (format.c) and judges these tables in the unit tests.
 */
#include <string.h>

#include "arch/common/common.h"
#include "arch/x86_64/x86.h"

const uint16_t arch_elf_machine = 62; /* EM_X86_64 */
const char *const arch_name = "x86-64";

const arch_regset arch_all_live = SET_ALL;
const arch_regset arch_always_live = SET(RSP);
const arch_regset arch_callee_saved =
	SET(RBX) | SET(RBP) | SET(R12) | SET(R13) | SET(R14) | SET(R15);
const arch_regset arch_entry_scratch = SET(RAX) | SET(R10) | SET(R11) | SET_FLAGS;

/* Forms of valid opcodes that do not exist, or that we are not sure of. */
static bool is_undefined(const struct x86_layout *l)
{
	unsigned ext = x86_extension(l);
	bool is_register = x86_mod(l) == 3;

	if (l->map == 0) {
		switch (l->opcode) {
		case 0x8c:
			return ext > 5;
		case 0x8e:
			return ext > 5 || ext == 1;
		case 0x8f:
			return ext != 0;
		case 0xc6:
		case 0xc7:
			return ext != 0 && l->modrm != 0xf8;
		case 0xfe:
			return ext > 1;
		case 0xff:
			return ext == 7 || (is_register && (ext == 3 || ext == 5));
		case 0xc0 ... 0xc1:
		case 0xd0 ... 0xd3:
			return ext == 6;
		default:
			return false;
		}
	}
	if (l->map == 2)
		return l->opcode == 0xf5 && !(l->prefixes & PREFIX_66);
	switch (l->opcode) {
	case 0x00:
		return ext > 5;
	case 0x71 ... 0x73:
		return ext < 2;
	case 0xb8:
		return !(l->prefixes & PREFIX_F3);
	case 0xba:
		return ext < 4;
	case 0xc7:
		return is_register ? ext < 6 : ext == 0 || ext == 2;
	default:
		return false;
	}
}

static bool has_index(const struct x86_layout *l)
{
	return x86_has_sib(l) && ((l->sib >> 3 & 7) != 4 || (l->rex & REX_X));
}

/*
 * call *%rsp, and calls through the eight bytes that the return address takes:
 * with the address pushed first they would go elsewhere.
 */
static bool reads_what_is_pushed(const struct x86_layout *l, const struct arch_insn *insn)
{
	int64_t disp = x86_read_signed(insn->bytes + l->disp_offset, l->disp_size);

	if (x86_mod(l) == 3)
		return x86_rm(l) == RSP;
	return x86_is_stack_based(l) && disp > -16 && disp < 0;
}

/* ff: inc dec call call-far jmp jmp-far push */
static void look_at_group_5(const struct x86_layout *l, struct arch_insn *insn)
{
	unsigned ext = x86_extension(l);

	if (ext == 2 || ext == 6)
		insn->flags |= ARCH_INSN_MEMORY;
	if (ext == 6 && x86_mod(l) == 3)
		insn->flags |= ARCH_INSN_STACK_OPERAND;
	if (ext < 2 || ext > 5)
		return;
	insn->flow = ext < 4 ? ARCH_FLOW_CALL_INDIRECT : ARCH_FLOW_JUMP_INDIRECT;
	if ((ext & 1) || (ext == 2 && reads_what_is_pushed(l, insn)))
		insn->flags |= ARCH_INSN_NO_MOVE; /* far, or not the same once it has pushed */
	if (l->prefixes & PREFIX_3E)
		insn->flags |= ARCH_INSN_NO_TRACK;
	if (ext >= 4 && has_index(l))
		insn->flags |= ARCH_INSN_INDEXED_JUMP;
}

/* Opcodes marked OP_LOOK, all of them in the old encoding. False: undefined. */
static bool look(const struct x86_layout *l, struct arch_insn *insn)
{
	if (is_undefined(l))
		return false;
	/* Returns, stops and system calls so marked are far, trap or enter the kernel. */
	if (insn->flow != ARCH_FLOW_NEXT)
		insn->flags |= ARCH_INSN_NO_MOVE;
	if (l->map == 0 && l->opcode == 0xff) {
		look_at_group_5(l, insn);
	} else if (l->map == 0 && (l->opcode | 1) == 0xf7) {
		if (x86_extension(l) >= 6)
			insn->flags |= ARCH_INSN_DIVIDES;
	} else if (l->map == 0 && l->opcode == 0x90) {
		if (!(l->rex & REX_B) && !(l->prefixes & PREFIX_F3))
			insn->flags |= ARCH_INSN_NOP | ARCH_INSN_PADDING;
	} else if (l->map == 0 && l->opcode == 0xcc) {
		insn->flags |= ARCH_INSN_PADDING;
	} else if (l->map == 0 && l->modrm == 0xf8 && l->opcode == 0xc7) {
		/* xbegin: goes on at its target when the transaction aborts */
		insn->flow = ARCH_FLOW_BRANCH;
		insn->flags |= ARCH_INSN_NO_MOVE;
		insn->target = insn->address + insn->length +
			       x86_read_signed(insn->bytes + l->imm_offset, l->imm_size);
	} else if (l->map == 1 && l->opcode == 0x01) {
		/* enclu: EENTER tells the enclave the address behind, where it leaves to */
		if (l->modrm == 0xd7)
			insn->flags |= ARCH_INSN_NO_MOVE;
	} else if (l->map == 1 && l->opcode == 0x1f) {
		if (x86_extension(l) == 0)
			insn->flags |= ARCH_INSN_NOP | ARCH_INSN_PADDING;
	} else if (l->map == 1 && l->opcode == 0x1e) {
		if ((l->prefixes & PREFIX_F3) && (l->modrm == 0xfa || l->modrm == 0xfb))
			insn->flags |= ARCH_INSN_LANDING_PAD | ARCH_INSN_NO_MOVE;
	}
	return true;
}

/* A memory operand: what it refers to, and what it is based on. */
static void look_at_memory(const struct x86_layout *l, struct arch_insn *insn)
{
	if (!(l->attributes & OP_NO_ACCESS))
		insn->flags |= ARCH_INSN_MEMORY;
	if (x86_is_pc_relative(l)) {
		insn->flags |= ARCH_INSN_PC_RELATIVE;
		insn->data_ref = insn->address + insn->length +
				 x86_read_signed(insn->bytes + l->disp_offset, 4);
		if (l->prefixes & PREFIX_67) {
			insn->data_ref = (uint32_t)insn->data_ref;
			insn->flags |= ARCH_INSN_NO_MOVE;
		}
		if (l->encoding == X86_LEGACY && l->map == 0 && l->opcode == 0x8d)
			insn->flags |= ARCH_INSN_ADDRESS_OF;
	} else if ((l->modrm & 7) == 4) {
		if (x86_is_stack_based(l))
			insn->flags |= ARCH_INSN_STACK_OPERAND;
		/* The operand of a table look-up. */
		if (x86_mod(l) == 0 && (l->sib & 7) == 5 && has_index(l) &&
		    !(l->prefixes & PREFIX_FSGS))
			insn->data_ref = x86_read_signed(insn->bytes + l->disp_offset, 4);
	}
}

/* OP_STACK: add to rsp, lea or mov into rsp. */
static bool tears_down(const struct x86_layout *l, const uint8_t *bytes)
{
	bool rsp_is_rm = x86_mod(l) == 3 && x86_rm(l) == RSP;

	switch (l->opcode) {
	case 0x81:
	case 0x83: {
		int64_t value = x86_read_signed(bytes + l->imm_offset, l->imm_size);

		return rsp_is_rm && ((x86_extension(l) == 0 && value > 0) ||
				     (x86_extension(l) == 5 && value < 0));
	}
	case 0x89:
		return rsp_is_rm;
	case 0x8b:
		return x86_reg(l) == RSP;
	case 0x8d: /* not down: lea -128(%rsp),%rsp makes room */
		return x86_reg(l) == RSP &&
		       (!x86_is_stack_based(l) ||
			x86_read_signed(bytes + l->disp_offset, l->disp_size) >= 0);
	default:
		return false;
	}
}

/* OP_IMPLICIT: push, pop, leave and their kin access the stack and nothing else. */
static bool is_stack_only(const struct x86_layout *l)
{
	if (l->encoding != X86_LEGACY || l->map > 1)
		return false;
	if (l->map == 1) /* segment registers; not VIA, not maskmovq */
		return (l->opcode & 0xf6) == 0xa0;
	switch (l->opcode) {
	case 0x50 ... 0x5f:
	case 0x68:
	case 0x6a:
	case 0x9c ... 0x9d:
	case 0xc8 ... 0xc9:
		return true;
	case 0x8f:
		return x86_mod(l) == 3;
	default:
		return false;
	}
}

/* All 16 bytes: those of the instruction, and zeros. */
static void copy_bytes(struct arch_insn *insn, const uint8_t *bytes, size_t size)
{
	static const uint64_t masks[4] = {UINT64_MAX, UINT64_MAX, 0, 0};
	uint64_t copy[2], mask[2];

	if (size < ARCH_INSN_MAX) {
		memset(insn->bytes, 0, sizeof(insn->bytes));
		memcpy(insn->bytes, bytes, insn->length);
		return;
	}
	memcpy(copy, bytes, sizeof(copy));
	memcpy(mask, (const uint8_t *)masks + ARCH_INSN_MAX - insn->length, sizeof(mask));
	copy[0] &= mask[0];
	copy[1] &= mask[1];
	memcpy(insn->bytes, copy, sizeof(copy));
}

int arch_decode(const uint8_t *bytes, size_t size, taddr_t address, struct arch_insn *insn)
{
	struct x86_layout l;
	uint32_t attributes, branch;
	int status = x86_layout_read(bytes, size, &l);

	if (status != ARCH_OK)
		return status;
	attributes = l.attributes;
	insn->address = address;
	insn->target = 0;
	insn->data_ref = 0;
	insn->length = l.length;
	insn->flow = attributes >> OP_FLOW_SHIFT & 15;
	insn->flags = (attributes & OP_IMPLICIT ? ARCH_INSN_MEMORY : 0) |
		      (attributes & OP_FRAME ? ARCH_INSN_FRAME : 0) |
		      (l.prefixes & PREFIX_LOCK ? ARCH_INSN_LOCKED : 0);
	copy_bytes(insn, bytes, size);
	branch = attributes & OP_IMM_MASK;
	if (branch == OP_REL8)
		insn->target = address + l.length + (int8_t)bytes[l.imm_offset];
	else if (branch == OP_REL32)
		insn->target = address + l.length + x86_read_signed(bytes + l.imm_offset, 4);
	if (x86_is_memory(&l))
		look_at_memory(&l, insn);
	else if ((attributes & OP_IMPLICIT) && is_stack_only(&l))
		insn->flags |= ARCH_INSN_STACK_OPERAND;
	if ((attributes & OP_STACK) && tears_down(&l, insn->bytes))
		insn->flags |= ARCH_INSN_FRAME;
	if ((attributes & OP_LOOK) && !look(&l, insn))
		return ARCH_UNKNOWN;
	return ARCH_OK;
}

bool arch_falls_through(const struct arch_insn *insn)
{
	return insn->flow == ARCH_FLOW_NEXT || insn->flow == ARCH_FLOW_BRANCH ||
	       insn->flow == ARCH_FLOW_SYSCALL;
}
