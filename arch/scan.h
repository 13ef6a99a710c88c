/* SPDX-License-Identifier: MIT */
/*
 * scan.h - constants that stand among code. Part of the contract of arch.h.
 */
#ifndef DINST_ARCH_SCAN_H
#define DINST_ARCH_SCAN_H

#include "arch/arch.h"

/*
 * As arch_scan_references(), for memory that an instruction may load or store: `target` is what
 * an operand names relative to the program counter. A superset, too; one operand may be found as
 * several, where it is not known how the instruction ends.
 */
void arch_scan_operands(const uint8_t *bytes, size_t size, taddr_t address, taddr_t lo, taddr_t hi,
			void (*found)(void *arg, taddr_t from, taddr_t target), void *arg);

#endif
