/* SPDX-License-Identifier: MIT */
/*
 * emit.c - bytes into a buffer: jumps, switches, nops. Knows where code will run
 * (arch_buf.pc) apart from where it is written. Never fails one by one: the
 * buffer's status is sticky.
 */
#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <string.h>

#include "arch/x86_64/x86.h"

const size_t arch_jump_size = 5;
const size_t arch_short_jump_size = 2;
const int64_t arch_jump_reach = INT32_MAX;
const int64_t arch_short_jump_reach = INT8_MAX;
const size_t arch_call_pushes = 8;
/* With e8 in front a displacement is from -0x18000000 to -0x17000001, from one byte behind it. */
const taddr_t arch_shared_jump_least = 0x17000000;
const taddr_t arch_shared_jump_most = 0x17ffffff;

void x86_fail(struct arch_buf *out, int status)
{
	if (out->status == ARCH_OK)
		out->status = status;
}

void x86_emit(struct arch_buf *out, const void *bytes, size_t count)
{
	if (out->status != ARCH_OK)
		return;
	if (out->used > out->size || count > out->size - out->used) {
		x86_fail(out, ARCH_NO_ROOM);
		return;
	}
	/* memcpy() must not be given NULL, not even for nothing. */
	if (count)
		memcpy(out->bytes + out->used, bytes, count);
	out->used += count;
}

void x86_emit8(struct arch_buf *out, unsigned value)
{
	uint8_t byte = value;

	x86_emit(out, &byte, 1);
}

static void emit_little_endian(struct arch_buf *out, uint64_t value, size_t size)
{
	uint8_t bytes[8];

	for (size_t i = 0; i < size; i++)
		bytes[i] = value >> (8 * i);
	x86_emit(out, bytes, size);
}

void x86_emit32(struct arch_buf *out, uint32_t value)
{
	emit_little_endian(out, value, 4);
}

void x86_emit64(struct arch_buf *out, uint64_t value)
{
	emit_little_endian(out, value, 8);
}

void x86_emit_relative(struct arch_buf *out, taddr_t target)
{
	int64_t distance = target - (arch_here(out) + 4);

	if (!x86_fits32(distance))
		x86_fail(out, ARCH_OUT_OF_RANGE);
	x86_emit32(out, distance);
}

void x86_emit_nops(struct arch_buf *out, size_t count)
{
	/* The recommended sequences (Intel SDM volume 2, NOP, table 4-12). */
	static const uint8_t nops[9][9] = {
		{0x90},
		{0x66, 0x90},
		{0x0f, 0x1f, 0x00},
		{0x0f, 0x1f, 0x40, 0x00},
		{0x0f, 0x1f, 0x44, 0x00, 0x00},
		{0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00},
		{0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00},
		{0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00},
		{0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00},
	};

	while (count > 0) {
		size_t size = count < 9 ? count : 9;

		x86_emit(out, nops[size - 1], size);
		count -= size;
	}
}

void arch_emit_jump(struct arch_buf *out, taddr_t target)
{
	x86_emit8(out, 0xe9);
	x86_emit_relative(out, target);
}

size_t arch_emit_switch(struct arch_buf *out)
{
	uint8_t bytes[ARCH_SWITCH_SIZE];
	uint64_t word = 0;
	size_t at;

	x86_emit_nops(out, -arch_here(out) & (ARCH_SWITCH_SIZE - 1));
	at = out->used;
	arch_switch_value(arch_here(out), 0, &word);
	memcpy(bytes, &word, sizeof(bytes));
	x86_emit(out, bytes, sizeof(bytes));
	return at;
}

bool arch_switches_are_whole(void)
{
#ifdef __x86_64__
	enum { HYPERVISOR = 1u << 31, NAME_LEAF = 0x40000000 };
	static const char emulator[] = "TCGTCGTCGTCG";
	unsigned a, b, c, d, name[3];

	/* Beyond what the processor itself has: __get_cpuid() would not ask for it. */
	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & HYPERVISOR))
		return true;
	__cpuid(NAME_LEAF, a, name[0], name[1], name[2]);
	return memcmp(name, emulator, sizeof(name)) != 0;
#else
	return true;
#endif
}

int arch_switch_value(taddr_t switch_pc, taddr_t target, uint64_t *value)
{
	uint8_t bytes[ARCH_SWITCH_SIZE];
	struct arch_buf out = {.bytes = bytes, .size = sizeof(bytes), .pc = switch_pc};

	if (target) {
		arch_emit_jump(&out, target);
		/* Never executed: a fault where control gets there by mistake. */
		while (out.status == ARCH_OK && out.used < sizeof(bytes))
			x86_emit8(&out, 0x06);
	} else {
		x86_emit_nops(&out, sizeof(bytes));
	}
	if (out.status == ARCH_OK)
		memcpy(value, bytes, sizeof(*value));
	return out.status;
}
