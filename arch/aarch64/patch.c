/* SPDX-License-Identifier: MIT */
/*
 * patch.c - the one word that leads from the target's own code to ours. Works
 * on copies: nothing here writes to a target. A patch is a whole aligned word,
 * always, so that the processor sees the old instruction or the new one.
 */
#include "arch/aarch64/a64.h"

bool arch_patchable(const struct arch_insn *insn, enum arch_patch_kind kind)
{
	if (insn->flags & ARCH_INSN_NO_MOVE)
		return false;
	switch (kind) {
	case ARCH_PATCH_RETARGET: /* conditional branches do not reach far enough */
		return insn->flow == ARCH_FLOW_CALL || insn->flow == ARCH_FLOW_JUMP;
	case ARCH_PATCH_CALL:
		return insn->flow == ARCH_FLOW_CALL_INDIRECT;
	default:
		return false;
	}
}

int arch_patch(enum arch_patch_kind kind, const struct arch_insn *insn, taddr_t address, taddr_t to,
	       uint8_t *bytes, size_t length, size_t *first, size_t *count)
{
	int64_t distance = (int64_t)(to - address);
	uint32_t opcode = 0x14000000, word;

	if (kind == ARCH_PATCH_SHORT_JUMP || length < A64_SIZE || (address & 3) ||
	    !a64_fits(distance, 26))
		return ARCH_OUT_OF_RANGE;
	if (kind != ARCH_PATCH_JUMP) {
		if (!arch_patchable(insn, kind))
			return ARCH_OUT_OF_RANGE;
		if (insn->flow != ARCH_FLOW_JUMP)
			opcode = 0x94000000;
	}
	word = opcode | a64_field(distance, 0, 26);
	*first = 0;
	*count = a64_load(bytes) == word ? 0 : A64_SIZE;
	a64_store(bytes, word);
	return ARCH_OK;
}

size_t arch_breakpoint(const uint8_t *code, size_t size)
{
	return size >= A64_SIZE && (a64_load(code) & 0xffe0001f) == 0xd4200000 ? A64_SIZE : 0;
}
