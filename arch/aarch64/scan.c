/* SPDX-License-Identifier: MIT */
/*
 * scan.c - who might jump where, over a whole section: looks at every word,
 * decodes nothing. A cheap superset: what is not found is not there; what is
 * found may be chance. The address that adrp begins to make is completed by
 * the first add to the same register among the words that follow.
 */
#include "arch/aarch64/a64.h"
#include "arch/common/sums.h"

enum { ADD_WITHIN = 16 };

/* Calls found() for each add of the low bits to the page that the adrp at `i` makes. */
static taddr_t complete(const uint8_t *bytes, size_t size, size_t i, taddr_t page)
{
	unsigned reg = a64_rd(a64_load(bytes + i));

	for (size_t n = 1; n <= ADD_WITHIN && i + 4 * n + 4 <= size; n++) {
		uint32_t w = a64_load(bytes + i + 4 * n);

		if ((w & 0xffc00000) == 0x91000000 && a64_rn(w) == reg)
			return page + (w >> 10 & 0xfff);
		if ((w & 0x9f00001f) == (0x90000000 | reg))
			break;
	}
	return page;
}

static bool reference(const uint8_t *bytes, size_t size, size_t i, taddr_t pc, taddr_t *target)
{
	uint32_t w = a64_load(bytes + i);
	int64_t adr = a64_signed(w, 5, 19) * 4 + (w >> 29 & 3);

	if ((w & 0x7c000000) == 0x14000000) /* b, bl */
		*target = pc + 4 * a64_signed(w, 0, 26);
	else if ((w & 0xff000000) == 0x54000000 || (w & 0x7e000000) == 0x34000000)
		*target = pc + 4 * a64_signed(w, 5, 19); /* b.cond, cbz, cbnz */
	else if ((w & 0x7e000000) == 0x36000000)
		*target = pc + 4 * a64_signed(w, 5, 14); /* tbz, tbnz */
	else if (a64_is_compare_branch(w))
		*target = pc + 4 * a64_signed(w, 5, 9);
	else if ((w & 0x9f000000) == 0x10000000)
		*target = pc + adr;
	else if ((w & 0x9f000000) == 0x90000000)
		*target = complete(bytes, size, i, (pc & ~4095ull) + (uint64_t)adr * 4096);
	else
		return false;
	return true;
}

void arch_scan_references(const uint8_t *bytes, size_t size, taddr_t address, taddr_t lo,
			  taddr_t hi, void (*found)(void *arg, taddr_t from, taddr_t target),
			  void *arg)
{
	taddr_t target;

	for (size_t i = -address & 3; i + A64_SIZE <= size; i += A64_SIZE)
		if (reference(bytes, size, i, address + i, &target) && target >= lo && target < hi)
			found(arg, address + i, target);
}

/* ldr, ldrsw, prfm (literal); what adr and adrp make is a reference. */
void arch_scan_operands(const uint8_t *bytes, size_t size, taddr_t address, taddr_t lo, taddr_t hi,
			void (*found)(void *arg, taddr_t from, taddr_t target), void *arg)
{
	for (size_t i = -address & 3; i + A64_SIZE <= size; i += A64_SIZE) {
		uint32_t w = a64_load(bytes + i);
		taddr_t target = address + i + 4 * a64_signed(w, 5, 19);

		if ((w & 0x3b000000) == 0x18000000 && target >= lo && target < hi)
			found(arg, address + i, target);
	}
}

/* Whole addresses are no constants of instructions: adrp makes them, or a literal is loaded. */
void arch_scan_constants(const uint8_t *bytes, size_t size, taddr_t address, taddr_t lo, taddr_t hi,
			 void (*found)(void *arg, taddr_t from, taddr_t target), void *arg)
{
	(void)bytes;
	(void)size;
	(void)address;
	(void)lo;
	(void)hi;
	(void)found;
	(void)arg;
}

void arch_scan_sums(const uint8_t *bytes, size_t size, taddr_t address, taddr_t lo, taddr_t hi,
		    bool fixed, void (*found)(void *arg, taddr_t from, taddr_t target), void *arg)
{
	struct sum_scan s = {bytes, size, address, lo, hi, found, arg};
	const taddr_t first = lo > SUM_BASE_REACH ? lo - SUM_BASE_REACH : 1;

	(void)fixed;
	for (size_t i = -address & 3; i + A64_SIZE <= size; i += A64_SIZE) {
		const uint32_t w = a64_load(bytes + i);
		taddr_t target;

		/* What is added to a page is found by arch_scan_references(), too. */
		if ((w & 0x1f000000) != 0x10000000 ||
		    !reference(bytes, size, i, address + i, &target) || target < first ||
		    target >= hi + SUM_BASE_REACH)
			continue;
		sum_follow(&s, i, w >> 31 ? target & ~4095ull : target);
	}
}

/* No operand has room for one either. */
void arch_scan_absolute(const uint8_t *bytes, size_t size, taddr_t address, taddr_t lo, taddr_t hi,
			void (*found)(void *arg, taddr_t from, taddr_t target), void *arg)
{
	arch_scan_constants(bytes, size, address, lo, hi, found, arg);
}

bool arch_ends_in(const struct arch_insn *insn, taddr_t value)
{
	(void)insn;
	(void)value;
	return false;
}
