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

/*
 * As arch_scan_operands(), for memory that is named by its whole address, with registers added or without,
 * as code may that runs where it was linked to. `from` is where the address stands.
 */
void arch_scan_absolute(const uint8_t *bytes, size_t size, taddr_t address, taddr_t lo, taddr_t hi,
			void (*found)(void *arg, taddr_t from, taddr_t target), void *arg);

/*
 * As arch_scan_references(), for whole addresses that are constants of instructions, as code has
 * them that runs where it was linked to: what is moved, pushed, stored, added or compared, and what
 * lea adds to registers. `from` is the first byte of the instruction, prefixes not included, and the
 * constant is the last that it has (arch_ends_in()).
 */
void arch_scan_constants(const uint8_t *bytes, size_t size, taddr_t address, taddr_t lo, taddr_t hi,
			 void (*found)(void *arg, taddr_t from, taddr_t target), void *arg);

/*
 * As arch_scan_references(), for addresses that are made in steps: of one that an instruction names
 * (where `fixed` also as a whole), which lies in [lo, hi) or within SUM_BASE_REACH bytes of that, and of
 * what the instructions behind it add, as far as control is sure to come from one to the other. `from`
 * is the instruction that makes the last step. To be given more bytes than another piece of a section
 * begins with: SUM_BYTES.
 */
enum { SUM_BASE_REACH = 4096, SUM_STEPS = 16, SUM_BYTES = (SUM_STEPS + 1) * ARCH_INSN_MAX };
void arch_scan_sums(const uint8_t *bytes, size_t size, taddr_t address, taddr_t lo, taddr_t hi,
		    bool fixed, void (*found)(void *arg, taddr_t from, taddr_t target), void *arg);

/* True if the instruction may have been found by arch_scan_constants(): its last bytes are `value`. */
bool arch_ends_in(const struct arch_insn *insn, taddr_t value);

#endif
