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

/* Forms of valid opcodes that do not exist, or that we are not sure of. */
static bool is_undefined(const struct x86_layout *l)
{
	unsigned ext = x86_extension(l);
	bool is_register = x86_mod(l) == 3;

	if (l->encoding != X86_LEGACY)
		return false;
	if (l->map == 0) {
		switch (l->opcode) {
		case 0x8c:
			return ext > 5;
		case 0x8e:
			return ext > 5 || ext == 1;
		case 0x8f:
			return ext != 0; /* also XOP */
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
	if (l->map == 2 && l->opcode == 0xf5)
		return !(l->prefixes & PREFIX_66);
	if (l->map != 1)
		return false;
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

static enum arch_flow flow_one_byte(const struct x86_layout *l, struct arch_insn *insn)
{
	switch (l->opcode) {
	case 0x70 ... 0x7f:
	case 0xe0 ... 0xe3:
		return ARCH_FLOW_BRANCH;
	case 0xc7: /* xbegin: goes on at its target when the transaction aborts */
		if (l->modrm != 0xf8)
			return ARCH_FLOW_NEXT;
		insn->flags |= ARCH_INSN_NO_MOVE;
		return ARCH_FLOW_BRANCH;
	case 0xe8:
		return ARCH_FLOW_CALL;
	case 0xe9:
	case 0xeb:
		return ARCH_FLOW_JUMP;
	case 0xc2:
	case 0xc3:
		return ARCH_FLOW_RETURN;
	case 0xca:
	case 0xcb:
	case 0xcf:
		insn->flags |= ARCH_INSN_NO_MOVE;
		return ARCH_FLOW_RETURN;
	case 0xcc:
		insn->flags |= ARCH_INSN_NO_MOVE | ARCH_INSN_PADDING;
		return ARCH_FLOW_STOP;
	case 0xf1:
	case 0xf4:
		insn->flags |= ARCH_INSN_NO_MOVE;
		return ARCH_FLOW_STOP;
	case 0xcd:
		insn->flags |= ARCH_INSN_NO_MOVE;
		return ARCH_FLOW_SYSCALL;
	case 0xff:
		if (x86_extension(l) == 2)
			return ARCH_FLOW_CALL_INDIRECT;
		if (x86_extension(l) == 4)
			return ARCH_FLOW_JUMP_INDIRECT;
		if (x86_extension(l) != 3 && x86_extension(l) != 5)
			return ARCH_FLOW_NEXT;
		insn->flags |= ARCH_INSN_NO_MOVE; /* far */
		return x86_extension(l) == 3 ? ARCH_FLOW_CALL_INDIRECT : ARCH_FLOW_JUMP_INDIRECT;
	default:
		return ARCH_FLOW_NEXT;
	}
}

static enum arch_flow flow_two_byte(const struct x86_layout *l, struct arch_insn *insn)
{
	switch (l->opcode) {
	case 0x80 ... 0x8f:
		return ARCH_FLOW_BRANCH;
	case 0x05:
	case 0x34: /* syscall, sysenter */
		insn->flags |= ARCH_INSN_NO_MOVE;
		return ARCH_FLOW_SYSCALL;
	case 0x0b:
	case 0xb9:
	case 0xff:
		insn->flags |= ARCH_INSN_NO_MOVE;
		return ARCH_FLOW_STOP;
	default:
		return ARCH_FLOW_NEXT;
	}
}

static bool has_index(const struct x86_layout *l)
{
	return x86_has_sib(l) && ((l->sib >> 3 & 7) != 4 || (l->rex & REX_X));
}

/* Direct targets, pc-relative operands and absolute operands of table look-ups. */
static void references(const struct x86_layout *l, struct arch_insn *insn)
{
	taddr_t after = insn->address + insn->length;
	unsigned kind = l->attributes & OP_IMM_MASK;
	bool is_xbegin = insn->flow == ARCH_FLOW_BRANCH && l->opcode == 0xc7;

	if (l->encoding == X86_LEGACY && (kind == OP_REL8 || kind == OP_REL32 || is_xbegin))
		insn->target = after + x86_read_signed(insn->bytes + l->imm_offset, l->imm_size);
	if (x86_is_pc_relative(l)) {
		insn->flags |= ARCH_INSN_PC_RELATIVE;
		insn->data_ref = after + x86_read_signed(insn->bytes + l->disp_offset, 4);
		if (l->prefixes & PREFIX_67) {
			insn->data_ref = (uint32_t)insn->data_ref;
			insn->flags |= ARCH_INSN_NO_MOVE;
		}
		if (l->encoding == X86_LEGACY && l->map == 0 && l->opcode == 0x8d)
			insn->flags |= ARCH_INSN_ADDRESS_OF;
	}
	if (has_index(l) && x86_mod(l) == 0 && (l->sib & 7) == 5 && !(l->prefixes & PREFIX_FSGS))
		insn->data_ref = x86_read_signed(insn->bytes + l->disp_offset, 4);
	if (insn->flow != ARCH_FLOW_JUMP_INDIRECT && insn->flow != ARCH_FLOW_CALL_INDIRECT)
		return;
	if (l->prefixes & PREFIX_3E)
		insn->flags |= ARCH_INSN_NO_TRACK;
	if (insn->flow == ARCH_FLOW_JUMP_INDIRECT && has_index(l))
		insn->flags |= ARCH_INSN_INDEXED_JUMP;
}

static bool is_nop(const struct x86_layout *l)
{
	if (l->encoding != X86_LEGACY)
		return false;
	if (l->map == 0)
		return l->opcode == 0x90 && !(l->rex & REX_B) && !(l->prefixes & PREFIX_F3);
	return l->map == 1 && l->opcode == 0x1f && x86_extension(l) == 0;
}

/* Instructions that reach memory without a ModRM operand that says so. */
static bool touches_memory(const struct x86_layout *l)
{
	if (x86_is_memory(l) && !(l->attributes & OP_NO_ACCESS))
		return true;
	if (l->encoding != X86_LEGACY)
		return l->map == 1 && l->opcode == 0xf7;
	if (l->map == 1)
		return l->opcode == 0xf7 || (l->opcode & 0xf6) == 0xa0;
	if (l->map != 0)
		return false;
	switch (l->opcode) {
	case 0x50 ... 0x5f:
	case 0x68:
	case 0x6a:
	case 0x6c ... 0x6f:
	case 0x8f:
	case 0x9c ... 0x9d:
	case 0xa0 ... 0xa7:
	case 0xaa ... 0xaf:
	case 0xc2 ... 0xc3:
	case 0xc8 ... 0xcb:
	case 0xcf:
	case 0xd7:
	case 0xe8:
		return true;
	case 0xff:
		return x86_extension(l) == 2 || x86_extension(l) == 6;
	default:
		return false;
	}
}

/* pop, leave, add to rsp, lea or mov into rsp. */
static bool tears_down(const struct x86_layout *l, const uint8_t *bytes)
{
	bool rsp_is_rm = x86_mod(l) == 3 && x86_rm(l) == RSP;

	if (l->encoding != X86_LEGACY || l->map != 0)
		return false;
	switch (l->opcode) {
	case 0x58 ... 0x5f:
	case 0x8f:
	case 0xc9:
		return true;
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

static bool is_landing_pad(const struct x86_layout *l)
{
	return l->encoding == X86_LEGACY && l->map == 1 && l->opcode == 0x1e &&
	       (l->prefixes & PREFIX_F3) && (l->modrm == 0xfa || l->modrm == 0xfb);
}

static void classify(const struct x86_layout *l, struct arch_insn *insn)
{
	insn->flow = ARCH_FLOW_NEXT;
	if (l->encoding == X86_LEGACY && l->map == 0)
		insn->flow = flow_one_byte(l, insn);
	else if (l->encoding == X86_LEGACY && l->map == 1)
		insn->flow = flow_two_byte(l, insn);
	references(l, insn);
	if (is_nop(l))
		insn->flags |= ARCH_INSN_NOP | ARCH_INSN_PADDING;
	if (is_landing_pad(l))
		insn->flags |= ARCH_INSN_LANDING_PAD | ARCH_INSN_NO_MOVE;
	if (l->prefixes & PREFIX_LOCK)
		insn->flags |= ARCH_INSN_LOCKED;
	if (touches_memory(l))
		insn->flags |= ARCH_INSN_MEMORY;
	if (x86_is_stack_based(l))
		insn->flags |= ARCH_INSN_STACK_OPERAND;
	if (tears_down(l, insn->bytes))
		insn->flags |= ARCH_INSN_FRAME;
	/* call *%rsp: the pushed address moves what it reads. */
	if (insn->flow == ARCH_FLOW_CALL_INDIRECT && x86_mod(l) == 3 && x86_rm(l) == RSP)
		insn->flags |= ARCH_INSN_NO_MOVE;
}

int arch_decode(const uint8_t *bytes, size_t size, taddr_t address, struct arch_insn *insn)
{
	struct x86_layout l;
	int status = x86_layout_read(bytes, size, &l);

	if (status == ARCH_OK && is_undefined(&l))
		status = ARCH_UNKNOWN;
	if (status != ARCH_OK)
		return status;
	memset(insn, 0, sizeof(*insn));
	insn->address = address;
	insn->length = l.length;
	memcpy(insn->bytes, bytes, l.length);
	classify(&l, insn);
	return ARCH_OK;
}

bool arch_falls_through(const struct arch_insn *insn)
{
	return insn->flow == ARCH_FLOW_NEXT || insn->flow == ARCH_FLOW_BRANCH ||
	       insn->flow == ARCH_FLOW_SYSCALL;
}
