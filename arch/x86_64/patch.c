/* SPDX-License-Identifier: MIT */
/*
 * patch.c - the few bytes that lead from the target's own code to ours. Works
 * on copies: nothing here writes to a target.
 */
#include <string.h>

#include "arch/x86_64/x86.h"

enum { NEAR_CALL_SIZE = 5 };

/* True for direct branches, calls and jumps whose last four bytes are the displacement. */
static bool has_rel32(const struct arch_insn *insn)
{
	struct x86_layout l;

	if (insn->flow != ARCH_FLOW_CALL && insn->flow != ARCH_FLOW_JUMP &&
	    insn->flow != ARCH_FLOW_BRANCH)
		return false;
	return x86_layout_read(insn->bytes, insn->length, &l) == ARCH_OK && l.imm_size == 4;
}

bool arch_patchable(const struct arch_insn *insn, enum arch_patch_kind kind)
{
	if (insn->flags & ARCH_INSN_NO_MOVE)
		return false;
	switch (kind) {
	case ARCH_PATCH_RETARGET:
		return has_rel32(insn);
	case ARCH_PATCH_CALL:
		return insn->flow == ARCH_FLOW_CALL_INDIRECT && insn->length >= NEAR_CALL_SIZE;
	default:
		return false;
	}
}

static int write_jump(taddr_t address, taddr_t to, bool is_short, uint8_t *bytes, size_t length)
{
	size_t size = is_short ? arch_short_jump_size : arch_jump_size;
	int64_t distance = to - (address + size);

	if (length < size || (is_short ? distance != (int8_t)distance : !x86_fits32(distance)))
		return ARCH_OUT_OF_RANGE;
	bytes[0] = is_short ? 0xeb : 0xe9;
	for (size_t i = 1; i < size; i++)
		bytes[i] = (uint64_t)distance >> (8 * (i - 1));
	return ARCH_OK;
}

/*
 * A displacement in the last four bytes. An indirect call becomes a near call
 * of the same length by address-size prefixes, which mean nothing there (the
 * linker writes the same when it relaxes a call through the GOT).
 */
static int write_displacement(const struct arch_insn *insn, enum arch_patch_kind kind,
			      taddr_t address, taddr_t to, uint8_t *bytes, size_t length)
{
	int64_t distance = to - (address + insn->length);

	if (length < insn->length || !arch_patchable(insn, kind) || !x86_fits32(distance))
		return ARCH_OUT_OF_RANGE;
	memcpy(bytes, insn->bytes, insn->length);
	if (kind == ARCH_PATCH_CALL) {
		memset(bytes, 0x67, insn->length - NEAR_CALL_SIZE);
		bytes[insn->length - NEAR_CALL_SIZE] = 0xe8;
	}
	for (unsigned i = 0; i < 4; i++)
		bytes[insn->length - 4 + i] = (uint64_t)distance >> (8 * i);
	return ARCH_OK;
}

int arch_patch(enum arch_patch_kind kind, const struct arch_insn *insn, taddr_t address, taddr_t to,
	       uint8_t *bytes, size_t length, size_t *first, size_t *count)
{
	uint8_t before[ARCH_PATCH_MAX], after[ARCH_PATCH_MAX];
	size_t lo = 0, hi;
	int status;

	if (length > ARCH_PATCH_MAX)
		length = ARCH_PATCH_MAX;
	memcpy(before, bytes, length);
	memcpy(after, bytes, length);
	if (kind == ARCH_PATCH_JUMP || kind == ARCH_PATCH_SHORT_JUMP)
		status = write_jump(address, to, kind == ARCH_PATCH_SHORT_JUMP, after, length);
	else
		status = write_displacement(insn, kind, address, to, after, length);
	if (status != ARCH_OK)
		return status;
	/* Whoever stands at a jump, or comes to it, is looked for by where that begins. */
	while (kind != ARCH_PATCH_JUMP && kind != ARCH_PATCH_SHORT_JUMP && lo < length &&
	       before[lo] == after[lo])
		lo++;
	for (hi = length; hi > lo && before[hi - 1] == after[hi - 1]; hi--)
		;
	memcpy(bytes, after, length);
	*first = hi > lo ? lo : 0;
	*count = hi - lo;
	return ARCH_OK;
}

size_t arch_breakpoint(const uint8_t *code, size_t size)
{
	return size && code[0] == 0xcc;
}
