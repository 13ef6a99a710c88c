/* SPDX-License-Identifier: MIT */
/*
 * tables_private.h - what the files that find jump tables share; see flow_private.h.
 *
 *   tables.c          reads the tables of one function, and settles its jumps
 *   tables_jumps.c    which instructions are indirect jumps
 *   tables_origin.c   how the address that one jumps to came about
 *   tables_entries.c  whether what is loaded for it is an entry of a table that was read
 *   tables_bases.c    whether the table's address is in a register as it was computed
 *   tables_stores.c   what it puts aside in its frame
 *   tables_strides.c  jumps into rows of equal pieces of code
 *   tables_whole.c    tables of whole addresses that are operands
 *   tables_bounds.c   where one of those ends
 *   tables_targets.c  the tables of a finished flow, a jump at a time
 *   tables_image.c    those of the whole image (freemap_tables.h)
 */
#ifndef DINST_MUTATOR_TABLES_PRIVATE_H
#define DINST_MUTATOR_TABLES_PRIVATE_H

#include "mutator/flow_private.h"

/* tables.c: the addresses of a function at which tables may start, and those where one has been read. */
enum table_form {
	TABLE_OFFSETS = 1 << 0,	     /* whole addresses, or offsets of 32 bits from anything */
	TABLE_LONG_OFFSETS = 1 << 1, /* offsets of 64 bits from the table itself */
};
struct table_bases;
/* True if, in one of the forms, an entry of the table's own has been read that begins `displacement` bytes in it. */
bool flow_has_read(const struct flow *f, const struct table_bases *b, vaddr_t table,
		   int64_t displacement, unsigned forms);
/* How many tables have been. */
size_t flow_tables_read(const struct flow *f, const struct table_bases *b);

/* A jump to a sum: the instruction that makes it, and the registers that it adds. */
struct addition {
	const struct flow *f;
	const struct table_bases *tables; /* NULL: none have been read yet */
	size_t at;
	arch_regset added;
};

/* tables_entries.c: what an instruction loads that a sum is made of. */
enum loaded_flag {
	LOADED_WHOLE = 1 << 0,	/* as large as an address, and not of a row */
	LOADED_ODD = 1 << 1,	/* of a table that is not read: offsets of one byte, two or eight */
	LOADED_LONG = 1 << 2,	/* of eight bytes, and the table has been read */
	LOADED_CHOSEN = 1 << 3, /* of a table whose address was loaded itself */
	LOADED_KNOWN = 1 << 4,	/* of a table that has been read in the form of this entry */
};
unsigned flow_entry(const struct addition *sum, size_t at);

/* True if a register has what another had: nothing is added, and nothing multiplied. */
bool flow_is_copy(const struct arch_insn *insn);
/* The registers that only say where the instruction loads from. */
arch_regset flow_address_registers(const struct arch_insn *insn);

/*
 * tables_bases.c: true if register `reg` (one bit) has an address before insns[at] that was computed whole, by
 * whatever way control has come, and nothing was added to it since.
 */
bool flow_has_address(const struct flow *f, arch_regset reg, size_t at);

/* tables_stores.c: true for a place in the frame that holds as much as an address. */
bool flow_frame_place(const struct arch_memory *m);
/* Finds all stores to such places, if that has not been done: after flow_ways_find(). */
int flow_stores_find(struct flow *f, struct dinst_error *e);
/* Those to the place that m is; how many. */
struct frame_store;
size_t flow_stores_to(const struct flow *f, const struct arch_memory *m,
		      const struct frame_store **stores);

/* tables_origin.c: true if control comes to insns[at] from the instruction in front of it. */
bool flow_is_run_into(const struct flow *f, size_t at);

/*
 * tables_origin.c: true if the tables that have been read cannot be all that the
 * jump insns[at] leads to, if it is an indirect one.
 */
bool flow_is_riddle(const struct flow *f, size_t at, const struct table_bases *tables);

/*
 * tables_origin.c: the same for an instruction that overlaps others, which is not among
 * insns[]: nobody knows what is in registers there, or in the frame.
 */
bool flow_odd_is_riddle(const struct arch_insn *insn);

/*
 * tables_whole.c: counts in f->labels the inner instructions whose address is stored, unless
 * only tables have it that are jumped by and used for nothing else. They must be in order.
 */
int flow_count_labels(struct flow *f, struct dinst_error *e);
/* True if the jump leads to an entry, of the function's own, of a table whose address is an operand. */
bool flow_jumps_by_table(const struct flow *f, const struct indirect *jump);

/*
 * tables_bounds.c: how many entries a switch's table has at least, of which insns[at] takes the one that register
 * `index` (one bit) counts, as the comparison in front of it tells; 0: nobody knows.
 */
uint64_t flow_entries_bound(const struct flow *f, size_t at, arch_regset index);

/*
 * tables_strides.c: follows where the indirect jump insns[at] may lead if that is
 * an address in the function plus a multiple of something; *known if it is.
 */
int flow_row(struct flow *f, size_t at, bool *known, struct dinst_error *e);

static inline bool is_address_of(const struct arch_insn *insn)
{
	return insn->flags & ARCH_INSN_PC_RELATIVE && insn->flags & ARCH_INSN_ADDRESS_OF;
}

static inline arch_regset bit_of(uint8_t reg)
{
	return reg == ARCH_NO_REGISTER ? 0 : (arch_regset)1 << reg;
}

#endif
