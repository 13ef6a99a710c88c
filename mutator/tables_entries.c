/* SPDX-License-Identifier: MIT */
/*
 * tables_entries.c - whether what is loaded, to be added to something and jumped
 * to, is an entry of a table that has been read, and of which form it is.
 */
#include "mutator/flow_ways.h"
#include "mutator/tables_private.h"

enum { LOOK_BACK = 40 }; /* instructions before a load in which its address is computed */

arch_regset flow_address_registers(const struct arch_insn *insn)
{
	struct arch_memory m[ARCH_MEMORY_MAX];
	unsigned n = arch_memory_operands(insn, m);
	arch_regset set = 0;

	for (unsigned i = 0; i < n; i++)
		set |= bit_of(m[i].base) | bit_of(m[i].index);
	return set;
}

/*
 * Offsets of 32 bits are read. Others (differences of labels, kept in one byte,
 * in two or in eight) are not.
 */
static bool loads_odd_entry(const struct arch_insn *insn)
{
	struct arch_memory m[ARCH_MEMORY_MAX];
	unsigned n = arch_memory_operands(insn, m);

	for (unsigned i = 0; i < n; i++)
		if (m[i].load &&
		    (m[i].size < 4 || (m[i].size > 4 && bit_of(m[i].index) & ~arch_always_live)))
			return true;
	return false;
}

/* Something as large as an address. */
static bool loads_word(const struct arch_insn *insn)
{
	struct arch_memory m[ARCH_MEMORY_MAX];

	return arch_memory_operands(insn, m) && m[0].load && m[0].size > 4;
}

/*
 * True if the table that insns[at] loads an entry of is one that is chosen while
 * the program runs: its address was loaded itself, just before. A switch adds
 * that address again to what it has loaded; then it is at most a base that was
 * spilled.
 */
static bool loads_from_chosen(const struct addition *s, size_t at)
{
	arch_regset regs = flow_address_registers(&s->f->insns.items[at]), reads, writes;
	bool loaded = false;

	arch_effects(&s->f->insns.items[at], &reads, &writes);
	if (regs & s->added & ~writes)
		return false;
	for (unsigned steps = 0;
	     regs && steps < LOOK_BACK && flow_look(s->f, 1) && flow_is_run_into(s->f, at);
	     steps++) {
		const struct arch_insn *def = &s->f->insns.items[--at];

		if (arch_is_call(def))
			break;
		arch_effects(def, &reads, &writes);
		if (!(writes & regs))
			continue;
		if (is_address_of(def))
			return false;
		loaded |= def->flags & ARCH_INSN_MEMORY &&
			  !(def->flags & ARCH_INSN_STACK_OPERAND) && loads_word(def);
		regs &= ~writes;
	}
	return loaded;
}

bool flow_is_copy(const struct arch_insn *insn)
{
	uint64_t factor;

	return arch_multiplies(insn, &factor) && factor == 1;
}

/* The address that register `reg` has before insns[at], as its line says; 0 if that does not. */
static vaddr_t computed_in(const struct addition *s, arch_regset reg, size_t at)
{
	arch_regset reads, writes;

	for (unsigned steps = 0;
	     steps < LOOK_BACK && flow_look(s->f, 1) && flow_is_run_into(s->f, at); steps++) {
		const struct arch_insn *def;

		if (flow_marks(s->f, s->f->insns.items[at].address) &
		    (MARK_LOOP | MARK_REFERRED | MARK_FOREIGN))
			return 0;
		def = &s->f->insns.items[--at];
		if (arch_is_call(def) && !(reg & arch_callee_saved))
			return 0;
		arch_effects(def, &reads, &writes);
		if (!(writes & reg) && arch_changes(def) & reg)
			return 0;
		if (!(writes & reg))
			continue;
		if (is_address_of(def))
			return def->data_ref;
		if (!flow_is_copy(def))
			return 0;
		reg = reads;
	}
	return 0;
}

/* How far from what its registers say insns[at] loads, in bytes. */
static int64_t displacement_of(const struct addition *s, size_t at)
{
	struct arch_memory m[ARCH_MEMORY_MAX];

	return arch_memory_operands(&s->f->insns.items[at], m) ? m[0].offset : 0;
}

/* True if another function may lead to one of the function's instructions but its first. */
static bool is_led_into(const struct flow *f)
{
	for (size_t i = 0; i < f->insns.count; i++) {
		const vaddr_t v = f->insns.items[i].address;

		if (flow_marks(f, v) & MARK_FOREIGN && !flow_starts_at(f, v))
			return true;
	}
	return false;
}

/* True if all that the function ever puts into register `reg` are addresses of tables that are read so far in. */
static bool only_has_tables(const struct addition *s, arch_regset reg, int64_t displacement,
			    unsigned forms)
{
	bool any = false;

	if (!flow_look(s->f, s->f->insns.count) || is_led_into(s->f))
		return false;
	for (size_t i = 0; i < s->f->insns.count; i++) {
		const struct arch_insn *insn = &s->f->insns.items[i];
		arch_regset reads, writes;

		if (insn->flags & ARCH_INSN_FRAME)
			continue;
		arch_effects(insn, &reads, &writes);
		if (!((writes | arch_changes(insn)) & reg))
			continue;
		if (!is_address_of(insn) ||
		    !flow_has_read(s->f, s->tables, insn->data_ref, displacement, forms))
			return false;
		any = true;
	}
	return any;
}

/* True if the entry that insns[at] loads is one of a table that has been read in one of `forms`. */
static bool loads_read_entry(const struct addition *s, size_t at, unsigned forms)
{
	const struct arch_insn *insn = &s->f->insns.items[at];
	const int64_t displacement = displacement_of(s, at);

	if (!s->tables)
		return false;
	if (insn->data_ref && flow_has_read(s->f, s->tables, insn->data_ref, 0, forms))
		return true;
	for (arch_regset rest = flow_address_registers(insn); rest; rest &= rest - 1) {
		arch_regset reg = rest & -rest;
		vaddr_t table = computed_in(s, reg, at);

		if (table ? flow_has_read(s->f, s->tables, table, displacement, forms)
			  : only_has_tables(s, reg, displacement, forms))
			return true;
	}
	return false;
}

/* True if an instruction in between writes the register. */
static bool is_written_between(const struct flow *f, size_t lo, size_t hi, arch_regset reg)
{
	arch_regset reads, writes;

	if (!flow_look(f, hi - lo))
		return true;
	for (size_t i = lo + 1; i < hi; i++) {
		arch_effects(&f->insns.items[i], &reads, &writes);
		if ((writes | arch_changes(&f->insns.items[i])) & reg)
			return true;
	}
	return false;
}

/*
 * True if what insns[at] loads with the help of `base` (0: unknown) is an entry of the table that begins
 * there: hand-written code finds tables by their distance from a place in the code, or from another table.
 */
static bool begins_there(const struct addition *s, size_t at, vaddr_t base)
{
	const int64_t displacement = displacement_of(s, at);
	unsigned forms = TABLE_OFFSETS;
	size_t size;

	if (!displacement)
		return true;
	if (loads_word(&s->f->insns.items[at]))
		forms |= TABLE_LONG_OFFSETS;
	return base && s->tables && !image_code(s->f->img, base, &size) &&
	       flow_has_read(s->f, s->tables, base, displacement, forms);
}

/*
 * True if the address is the sum of what insns[at] loads and of where it loads
 * from: a switch. The register is the same, or two have the same address.
 */
static bool adds_its_table(const struct addition *s, size_t at)
{
	const struct arch_insn *insn = &s->f->insns.items[at];
	arch_regset regs = flow_address_registers(insn), reads, writes;

	arch_effects(insn, &reads, &writes);
	for (arch_regset rest = regs; rest; rest &= rest - 1) {
		arch_regset reg = rest & -rest;
		vaddr_t table = computed_in(s, reg, at);

		if (!begins_there(s, at, table))
			continue;
		if (reg & s->added && (at == s->at || (at < s->at && !(reg & writes) &&
						       !is_written_between(s->f, at, s->at, reg))))
			return true;
		for (arch_regset other = table ? s->added : 0; other; other &= other - 1)
			if (computed_in(s, other & -other, s->at) == table)
				return true;
	}
	return false;
}

/* True if the register has an address before insns[at] that an instruction computes, and nothing came to it since. */
static bool has_address(const struct addition *s, arch_regset reg, size_t at)
{
	return computed_in(s, reg, at) || flow_has_address(s->f, reg, at);
}

/*
 * True if the address that insns[at] loads from, and that is added to what it loads, may have come about from
 * another one: hand-written code finds a table by its distance from the one before, or a row by its number.
 */
static bool is_led_on(const struct addition *s, size_t at)
{
	arch_regset bases = flow_address_registers(&s->f->insns.items[at]) & s->added, reads,
		    writes;

	arch_effects(&s->f->insns.items[at], &reads, &writes);
	if (at != s->at)
		bases &= ~writes;
	for (; bases; bases &= bases - 1)
		if (!has_address(s, bases & -bases, at))
			return true;
	return false;
}

/* A sum may count from anything in the code, or from a place that was found from another one: of which table is the entry? */
static bool is_known(const struct addition *s, size_t at, bool odd, bool word)
{
	if (odd)
		return word && adds_its_table(s, at) && loads_read_entry(s, at, TABLE_LONG_OFFSETS);
	/* Before tables are read none is. */
	if (!s->tables)
		return false;
	return (adds_its_table(s, at) && !is_led_on(s, at)) ||
	       loads_read_entry(s, at, TABLE_OFFSETS);
}

unsigned flow_entry(const struct addition *sum, size_t at)
{
	const struct arch_insn *insn = &sum->f->insns.items[at];
	bool odd = loads_odd_entry(insn), word = loads_word(insn);
	bool known = is_known(sum, at, odd, word);

	unsigned form = odd ? (known ? LOADED_LONG : LOADED_ODD) : word ? LOADED_WHOLE : 0;

	return form | (known ? LOADED_KNOWN : 0) | (loads_from_chosen(sum, at) ? LOADED_CHOSEN : 0);
}
