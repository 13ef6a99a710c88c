/* SPDX-License-Identifier: MIT */
/*
 * pairing_private.h - what pairing*.c share: places in a record, and finding it.
 *
 * Registers of the routines, all of which are changed but rdx and r9:
 *
 *	rdx  tag			r9   where to go on, in the snippet
 *	rdi  area, later bounds		rcx  thread pointer, later temporary
 *	rsi  record number, offset	r8   thread id, later bounds
 *	r10  record			r11  the moment of what is dropped
 *	rax  temporary
 *
 * A routine returns with its results in rax and rdx, and with CF set where the
 * event is to be counted.
 */
#ifndef DINST_ARCH_X86_64_PAIRING_PRIVATE_H
#define DINST_ARCH_X86_64_PAIRING_PRIVATE_H

#include "arch/pairing.h"
#include "arch/x86_64/assembler.h"

enum {
	PAIR_SAVED = 9, /* registers that a routine changes */
	ENTRY = sizeof(struct pair_entry),
	HOME = offsetof(struct pair_record, home),
	OTHER = offsetof(struct pair_record, other),
	WORDS = offsetof(struct pair_record, words),
	LO = offsetof(struct pair_record, lo),
	SIZE = offsetof(struct pair_record, size),
	DEPTH = offsetof(struct pair_record, depth),
	TID = offsetof(struct pair_record, tid),
	START = offsetof(struct pair_entry, start),
	HOME_BYTES = PAIR_HOME * ENTRY,
	OTHER_BYTES = PAIR_OTHER * ENTRY,
};

static inline struct asm_mem pairing_key_at(unsigned area, unsigned number)
{
	return asm_at_index(area, number, 8, (int32_t)pair_keys());
}

static inline struct asm_mem pairing_owner_at(const struct arch_pairing *spec, unsigned area,
					      unsigned number)
{
	return asm_at_index(area, number, 4, (int32_t)pair_owners(spec->shift));
}

void pairing_emit_hash(struct arch_buf *out, const struct arch_pairing *spec, unsigned from,
		       unsigned to);

/* Sets r10 to the thread's record, made if need be; goes to `none` if there is none. */
void pairing_emit_find(struct arch_buf *out, const struct arch_pairing *spec,
		       struct asm_label *none);

#endif
