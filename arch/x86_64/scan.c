/* SPDX-License-Identifier: MIT */
/*
 * scan.c - who might jump where, over a whole section: looks at every offset,
 * decodes nothing. A cheap superset: what is not found is not there (short
 * branches excepted, which reach 128 bytes only); what is found may be chance.
 */
#include <string.h>

#include "arch/scan.h"
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
