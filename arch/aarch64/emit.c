/* SPDX-License-Identifier: MIT */
/*
 * emit.c - words into a buffer: constants, addresses, jumps, switches. Knows where
 * code will run (arch_buf.pc) apart from where it is written. Never fails one
 * by one: the buffer's status is sticky. No emitted code touches a flag.
 */
#include <string.h>

#include "arch/aarch64/a64.h"

/* b and bl reach 128 MiB; counted from the end of the jump it is two words less. */
const size_t arch_jump_size = A64_SIZE;
const int64_t arch_jump_reach = (1 << 27) - 2 * A64_SIZE;
/* There is none that is shorter than the longest. */
const size_t arch_short_jump_size = A64_SIZE;
const int64_t arch_short_jump_reach = 0;
/* The return address is in a register. */
const size_t arch_call_pushes = 0;
const taddr_t arch_shared_jump_least = 0;
const taddr_t arch_shared_jump_most = 0;

enum { ADR_REACH = 1 << 20, PAGE = 4096 };

#define A64_NOP 0xd503201fu

void a64_fail(struct arch_buf *out, int status)
{
	if (out->status == ARCH_OK)
		out->status = status;
}

void a64_emit_bytes(struct arch_buf *out, const void *bytes, size_t count)
{
	if (out->status != ARCH_OK)
		return;
	if (out->used > out->size || count > out->size - out->used) {
		a64_fail(out, ARCH_NO_ROOM);
		return;
	}
	/* memcpy() must not be given NULL, not even for nothing. */
	if (count)
		memcpy(out->bytes + out->used, bytes, count);
	out->used += count;
}

void a64_emit(struct arch_buf *out, uint32_t word)
{
	uint8_t bytes[A64_SIZE];

	/* An instruction that is not aligned cannot be executed at all. */
	if (arch_here(out) & 3)
		a64_fail(out, ARCH_REFUSED);
	a64_store(bytes, word);
	a64_emit_bytes(out, bytes, sizeof(bytes));
}

static uint32_t move_wide(uint32_t opcode, unsigned reg, unsigned part, uint64_t value)
{
	return opcode | part << 21 | (uint32_t)(value >> (16 * part) & 0xffff) << 5 | reg;
}

/* Sixteen bits at a time, the rest being zeros (movz) or ones (movn). */
void a64_emit_constant(struct arch_buf *out, unsigned reg, uint64_t value)
{
	unsigned zeros = 0, ones = 0, part;
	uint64_t rest;

	for (part = 0; part < 4; part++) {
		zeros += (value >> (16 * part) & 0xffff) == 0;
		ones += (value >> (16 * part) & 0xffff) == 0xffff;
	}
	rest = ones > zeros ? 0xffff : 0;
	for (part = 0; part < 3 && (value >> (16 * part) & 0xffff) == rest; part++)
		;
	a64_emit(out, rest ? move_wide(0x92800000, reg, part, ~value)
			   : move_wide(0xd2800000, reg, part, value));
	while (++part < 4)
		if ((value >> (16 * part) & 0xffff) != rest)
			a64_emit(out, move_wide(0xf2800000, reg, part, value));
}

static uint32_t adr_word(uint32_t opcode, unsigned reg, int64_t offset)
{
	return opcode | (uint32_t)(offset & 3) << 29 | (uint32_t)(offset >> 2 & 0x7ffff) << 5 | reg;
}

void a64_emit_address(struct arch_buf *out, unsigned reg, taddr_t address)
{
	int64_t near = (int64_t)(address - arch_here(out));
	int64_t pages = (int64_t)((address & ~(taddr_t)(PAGE - 1)) -
				  (arch_here(out) & ~(taddr_t)(PAGE - 1))) /
			PAGE;

	if (near >= -ADR_REACH && near < ADR_REACH) {
		a64_emit(out, adr_word(0x10000000, reg, near));
	} else if (address >> 32 && pages >= -ADR_REACH && pages < ADR_REACH) {
		a64_emit(out, adr_word(0x90000000, reg, pages));
		if (address & (PAGE - 1))
			a64_emit(out, a64_add(reg, reg, address & (PAGE - 1)));
	} else {
		a64_emit_constant(out, reg, address);
	}
}

uint32_t a64_add(unsigned rd, unsigned rn, unsigned imm12)
{
	return 0x91000000 | imm12 << 10 | rn << 5 | rd;
}

uint32_t a64_sub(unsigned rd, unsigned rn, unsigned imm12)
{
	return 0xd1000000 | imm12 << 10 | rn << 5 | rd;
}

uint32_t a64_ldr(unsigned rt, unsigned rn, unsigned offset)
{
	return 0xf9400000 | offset / 8 << 10 | rn << 5 | rt;
}

uint32_t a64_str(unsigned rt, unsigned rn, unsigned offset)
{
	return 0xf9000000 | offset / 8 << 10 | rn << 5 | rt;
}

uint32_t a64_ldr_w(unsigned rt, unsigned rn, unsigned offset)
{
	return 0xb9400000 | offset / 4 << 10 | rn << 5 | rt;
}

uint32_t a64_str_w(unsigned rt, unsigned rn, unsigned offset)
{
	return 0xb9000000 | offset / 4 << 10 | rn << 5 | rt;
}

uint32_t a64_push(unsigned rt, unsigned bytes)
{
	return 0xf8000c00 | (-bytes & 511) << 12 | SP << 5 | rt;
}

uint32_t a64_pop(unsigned rt, unsigned bytes)
{
	return 0xf8400400 | bytes << 12 | SP << 5 | rt;
}

uint32_t a64_cbz_w(unsigned rt, int words)
{
	return 0x34000000 | ((uint32_t)words & 0x7ffff) << 5 | rt;
}

uint32_t a64_cbnz_w(unsigned rt, int words)
{
	return 0x35000000 | ((uint32_t)words & 0x7ffff) << 5 | rt;
}

void arch_emit_jump(struct arch_buf *out, taddr_t target)
{
	int64_t distance = (int64_t)(target - arch_here(out));

	if (!a64_fits(distance, 26))
		a64_fail(out, ARCH_OUT_OF_RANGE);
	a64_emit(out, 0x14000000 | a64_field(distance, 0, 26));
}

/* Two words; the first is a no-op or the jump, and only it ever changes. */
size_t arch_emit_switch(struct arch_buf *out)
{
	uint8_t bytes[ARCH_SWITCH_SIZE];
	uint64_t word = 0;
	size_t at;

	if (arch_here(out) & (ARCH_SWITCH_SIZE - 1))
		a64_emit(out, A64_NOP);
	at = out->used;
	arch_switch_value(arch_here(out), 0, &word);
	memcpy(bytes, &word, sizeof(bytes));
	a64_emit_bytes(out, bytes, sizeof(bytes));
	return at;
}

/* Its first instruction is all that changes, and instructions are fetched whole. */
bool arch_switches_are_whole(void)
{
	return true;
}

int arch_switch_value(taddr_t switch_pc, taddr_t target, uint64_t *value)
{
	uint8_t bytes[ARCH_SWITCH_SIZE];
	int64_t distance = (int64_t)(target - switch_pc);

	if (target && !a64_fits(distance, 26))
		return ARCH_OUT_OF_RANGE;
	a64_store(bytes, target ? 0x14000000 | a64_field(distance, 0, 26) : A64_NOP);
	a64_store(bytes + A64_SIZE, A64_NOP);
	/* As the caller stores it: the bytes in memory are what counts. */
	memcpy(value, bytes, sizeof(*value));
	return ARCH_OK;
}
