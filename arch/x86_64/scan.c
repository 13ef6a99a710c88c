/* SPDX-License-Identifier: MIT */
/*
 * scan.c - who might jump where, over a whole section: looks at every offset,
 * decodes nothing. A cheap superset: what is not found is not there (short
 * branches excepted, which reach 128 bytes only); what is found may be chance.
 */
#include <string.h>

#include "arch/common/sums.h"
#include "arch/x86_64/x86.h"

/* Offset of the displacement behind the first byte; 0: cannot start a reference. */
static const uint8_t first_byte[256] = {
	[0xe8] = 1, [0xe9] = 1, /* call, jmp */
	[0x0f] = 2,		/* jcc */
	[0x8d] = 2,		/* lea disp(%rip) */
	[0xc7] = 2,		/* xbegin */
};

static bool is_reference(const uint8_t *at)
{
	switch (at[0]) {
	case 0x0f:
		return (at[1] & 0xf0) == 0x80;
	case 0x8d:
		return (at[1] & 0xc7) == 0x05;
	case 0xc7:
		return at[1] == 0xf8;
	default:
		return true;
	}
}

void arch_scan_references(const uint8_t *bytes, size_t size, taddr_t address, taddr_t lo,
			  taddr_t hi, void (*found)(void *arg, taddr_t from, taddr_t target),
			  void *arg)
{
	for (size_t i = 0; i + 5 <= size; i++) {
		unsigned offset = first_byte[bytes[i]];
		taddr_t target;
		uint32_t displacement;

		if (offset == 0 || (offset == 2 && i + 6 > size) || !is_reference(bytes + i))
			continue;
		memcpy(&displacement, bytes + i + offset, 4);
		target = address + i + offset + 4 + (int64_t)(int32_t)displacement;
		if (target >= lo && target < hi)
			found(arg, address + i, target);
	}
}

/* The displacement counts from the end of the instruction, behind an immediate of some size. */
void arch_scan_operands(const uint8_t *bytes, size_t size, taddr_t address, taddr_t lo, taddr_t hi,
			void (*found)(void *arg, taddr_t from, taddr_t target), void *arg)
{
	static const uint8_t immediates[] = {0, 1, 2, 4};
	enum { LARGEST = 4 };

	for (size_t i = 0; i + 5 <= size; i++) {
		uint32_t displacement;
		taddr_t target;

		if ((bytes[i] & 0xc7) != 0x05) /* ModRM */
			continue;
		memcpy(&displacement, bytes + i + 1, 4);
		target = address + i + 5 + (int64_t)(int32_t)displacement;
		if (target + LARGEST < lo || target >= hi)
			continue;
		for (size_t k = 0; k < sizeof(immediates); k++)
			if (target + immediates[k] >= lo && target + immediates[k] < hi)
				found(arg, address + i, target + immediates[k]);
	}
}

/* True if what begins at `i`, which is not 0, may be a displacement, with registers added or without. */
static bool is_displacement(const uint8_t *bytes, size_t i)
{
	const uint8_t last = bytes[i - 1], modrm = i > 1 ? bytes[i - 2] : 0;

	/* ModRM with a register; SIB without a base, or with one; movabs al, ax, eax, rax. */
	return ((last & 0xc0) == 0x80 && (last & 7) != 4) ||
	       ((modrm & 0xc7) == 0x04 && (last & 7) == 5) || (modrm & 0xc7) == 0x84 ||
	       (last & 0xfc) == 0xa0;
}

void arch_scan_absolute(const uint8_t *bytes, size_t size, taddr_t address, taddr_t lo, taddr_t hi,
			void (*found)(void *arg, taddr_t from, taddr_t target), void *arg)
{
	for (size_t i = 1; i + 4 <= size; i++) {
		int32_t displacement;
		taddr_t target;

		if (!is_displacement(bytes, i))
			continue;
		memcpy(&displacement, bytes + i, 4);
		target = (taddr_t)(int64_t)displacement;
		/* Of movabs all eight bytes count, and what lies that far does for nobody else. */
		if ((bytes[i - 1] & 0xfc) == 0xa0 && i + 8 <= size && (target < lo || target >= hi))
			memcpy(&target, bytes + i, 8);
		if (target >= lo && target < hi)
			found(arg, address + i, target);
	}
}

/* What the opcode may be of. */
enum constant_form {
	CONSTANT_NONE,
	CONSTANT_MOVE, /* mov r32, imm32; with REX.W movabs */
	CONSTANT_PUSH,
	CONSTANT_RAX, /* add, cmp and their like; with REX.W only: rip-relative operands look so */
	CONSTANT_MODRM,
	CONSTANT_LEA,
};

static const uint8_t constant_forms[256] = {
	[0x05] = CONSTANT_RAX,	 [0x0d] = CONSTANT_RAX, [0x15] = CONSTANT_RAX,
	[0x1d] = CONSTANT_RAX,	 [0x25] = CONSTANT_RAX, [0x2d] = CONSTANT_RAX,
	[0x35] = CONSTANT_RAX,	 [0x3d] = CONSTANT_RAX, [0x68] = CONSTANT_PUSH,
	[0x81] = CONSTANT_MODRM, [0x8d] = CONSTANT_LEA, [0xb8 ... 0xbf] = CONSTANT_MOVE,
	[0xc7] = CONSTANT_MODRM,
};

/* Bytes of ModRM, SIB and displacement (Intel SDM volume 2, 2.1.5). */
static unsigned modrm_size(const uint8_t *modrm, bool *wide, bool *relative)
{
	unsigned mod = modrm[0] >> 6, rm = modrm[0] & 7, sib = mod != 3 && rm == 4;

	*relative = mod == 0 && rm == 5;
	*wide = mod == 2 || *relative || (mod == 0 && sib && (modrm[1] & 7) == 5);
	return 1 + sib + (*wide ? 4 : mod == 1);
}

/* Where the constant begins, and its size; 0: there is none. Three bytes are looked at. */
static unsigned constant_at(const uint8_t *at, bool rex_w, unsigned *size)
{
	bool wide, relative;
	unsigned length;

	*size = 4;
	switch ((enum constant_form)constant_forms[at[0]]) {
	case CONSTANT_MOVE:
		*size = rex_w ? 8 : 4;
		return 1;
	case CONSTANT_PUSH:
		return 1;
	case CONSTANT_RAX:
		return rex_w;
	case CONSTANT_MODRM:
		/* c7 has one operation, and xbegin. */
		if (at[0] == 0xc7 && at[1] & 0x38)
			return 0;
		return 1 + modrm_size(at + 1, &wide, &relative);
	case CONSTANT_LEA:
		length = modrm_size(at + 1, &wide, &relative);
		return wide && !relative ? length - 3 : 0;
	default:
		return 0;
	}
}

void arch_scan_constants(const uint8_t *bytes, size_t size, taddr_t address, taddr_t lo, taddr_t hi,
			 void (*found)(void *arg, taddr_t from, taddr_t target), void *arg)
{
	for (size_t i = 0; i + 5 <= size; i++) {
		unsigned width, offset;
		taddr_t value = 0;

		if (!constant_forms[bytes[i]])
			continue;
		offset = constant_at(bytes + i, i && (bytes[i - 1] & 0xf8) == 0x48, &width);
		if (!offset || i + offset + width > size)
			continue;
		memcpy(&value, bytes + i + offset, width);
		if (value >= lo && value < hi)
			found(arg, address + i, value);
	}
}

/* The instruction whose opcode is found at `i` begins in front of it if it has a REX prefix. */
static size_t begin_of(const uint8_t *bytes, size_t i)
{
	return i && (bytes[i - 1] & 0xf0) == 0x40 ? i - 1 : i;
}

/* A constant that is moved to a register. */
static void begin_with_constant(void *arg, taddr_t from, taddr_t target)
{
	const struct sum_scan *s = arg;

	sum_follow(s, begin_of(s->bytes, from - s->address), target);
}

void arch_scan_sums(const uint8_t *bytes, size_t size, taddr_t address, taddr_t lo, taddr_t hi,
		    bool fixed, void (*found)(void *arg, taddr_t from, taddr_t target), void *arg)
{
	struct sum_scan s = {bytes, size, address, lo, hi, found, arg};
	const taddr_t first = lo > SUM_BASE_REACH ? lo - SUM_BASE_REACH : 1;

	for (size_t i = 0; i + 6 <= size; i++) {
		const uint8_t *lea = memchr(bytes + i, 0x8d, size - 5 - i);
		uint32_t displacement;
		taddr_t base;

		if (!lea)
			break;
		i = (size_t)(lea - bytes);
		if (!is_reference(lea))
			continue;
		memcpy(&displacement, lea + 2, 4);
		base = address + i + 6 + (int64_t)(int32_t)displacement;
		if (base >= first && base < hi + SUM_BASE_REACH)
			sum_follow(&s, begin_of(bytes, i), base);
	}
	if (fixed)
		arch_scan_constants(bytes, size, address, first, hi + SUM_BASE_REACH,
				    begin_with_constant, &s);
}

bool arch_ends_in(const struct arch_insn *insn, taddr_t value)
{
	uint64_t wide = 0;
	uint32_t narrow = 0;

	if (insn->length > sizeof(narrow))
		memcpy(&narrow, insn->bytes + insn->length - sizeof(narrow), sizeof(narrow));
	if (insn->length > sizeof(wide))
		memcpy(&wide, insn->bytes + insn->length - sizeof(wide), sizeof(wide));
	return narrow == value || wide == value;
}
