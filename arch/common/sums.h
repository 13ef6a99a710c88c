/* SPDX-License-Identifier: MIT */
/*
 * sums.h - how an address that an instruction puts into a register is changed by those behind it: what the
 * architectures' arch_scan_sums() share. Nothing outside arch/ may include it.
 */
#ifndef DINST_ARCH_COMMON_SUMS_H
#define DINST_ARCH_COMMON_SUMS_H

#include "arch/scan.h"

/* As arch_scan_sums() was asked. */
struct sum_scan {
	const uint8_t *bytes;
	size_t size;
	taddr_t address; /* of bytes[0] */
	taddr_t lo, hi;
	void (*found)(void *arg, taddr_t from, taddr_t target);
	void *arg;
};

/*
 * The instruction at bytes[at] may put `base` into the one register that it changes, whatever that held.
 * Calls `found` for all that is made of it and lies in [lo, hi).
 */
void sum_follow(const struct sum_scan *s, size_t at, taddr_t base);

#endif
