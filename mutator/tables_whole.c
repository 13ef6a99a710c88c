/* SPDX-License-Identifier: MIT */
/*
 * tables_whole.c - tables of whole addresses that instructions have as an operand, where
 * addresses are fixed: those that a switch is compiled to.
 *
 * Stored addresses of a function's inside make it one with computed gotos, of whose
 * jumps nobody knows which are gotos. What a switch's table has is not meant: only the
 * jump by it reads that. But a table of which the function does anything else, or whose
 * address it has in another way, may be where a goto's labels come from. So may what lies behind
 * a switch's table, where nobody knows that it has ended, if a jump takes entries from somewhere else.
 */
#include "mutator/freemap_tables.h"
#include "mutator/tables_private.h"

#include <stdlib.h>
#include <string.h>

enum {
	LOOK_AWAY = 24,	    /* instructions between what loads an entry and the jump to it */
	FIRST_ENTRIES = 16, /* of which one leads inside, if it is a table of the function's */
	NAMES_MAX = 3 + ARCH_MEMORY_MAX,
};

static bool own_entry(const struct flow *f, vaddr_t at, vaddr_t *target)
{
	size_t size = 0;
	const uint8_t *bytes = image_data(f->img, at, &size);

	if (!bytes || size < sizeof(*target))
		return false;
	memcpy(target, bytes, sizeof(*target));
	return flow_insn_at(f, *target) >= 0;
}

/* A table of functions may have this one, too. */
static bool is_own_table(const struct flow *f, vaddr_t table)
{
	vaddr_t target;

	for (unsigned i = 0; i < FIRST_ENTRIES; i++) {
		if (!own_entry(f, table + i * sizeof(target), &target))
			return false;
		if (!flow_starts_at(f, target))
			return true;
	}
	return false;
}

/* The table that the instruction takes an entry from, by an index that counts entries; 0: it does not. */
static vaddr_t taken_from(const struct arch_insn *insn)
{
	struct arch_memory m[ARCH_MEMORY_MAX];

	return insn->data_ref && !(insn->flags & ARCH_INSN_PC_RELATIVE) &&
			       arch_memory_operands(insn, m) == 1 && m[0].load && m[0].computable &&
			       m[0].size == sizeof(vaddr_t) && m[0].base == ARCH_NO_REGISTER &&
			       m[0].index != ARCH_NO_REGISTER &&
			       (vaddr_t)m[0].offset == insn->data_ref &&
			       (size_t)1 << m[0].shift == sizeof(vaddr_t)
		       ? insn->data_ref
		       : 0;
}

/* True if control goes on from insns[at] to the next one, and nowhere else. */
static bool goes_on(const struct flow *f, size_t at)
{
	const struct arch_insn *insn = &f->insns.items[at];

	return insn->flow == ARCH_FLOW_NEXT && at + 1 < f->insns.count &&
	       insn->address + insn->length == insn[1].address;
}

/* The instruction that takes what the jump leads to from a table, for nothing else; NULL: there is none. */
static const struct arch_insn *takes_entry(const struct flow *f, const struct indirect *jump)
{
	const struct arch_insn *insn = &f->insns.items[jump->before];
	arch_regset reads, writes;

	if (!jump->wanted)
		return taken_from(insn) ? insn : NULL;
	for (size_t at = jump->before;
	     at > 0 && goes_on(f, at - 1) && jump->before - at < LOOK_AWAY;) {
		insn = &f->insns.items[--at];
		arch_effects(insn, &reads, &writes);
		if (writes == jump->wanted)
			return taken_from(insn) ? insn : NULL;
		if ((reads | writes | arch_changes(insn)) & jump->wanted)
			return NULL;
	}
	return NULL;
}

bool flow_jumps_by_table(const struct flow *f, const struct indirect *jump)
{
	const struct arch_insn *taking = takes_entry(f, jump);

	return taking && is_own_table(f, taken_from(taking));
}

/* True if insns[at] takes an entry that is jumped to, and nothing else. */
static bool takes_for_jump(const struct flow *f, size_t at)
{
	const struct arch_insn *taking = &f->insns.items[at];
	struct indirect jump;

	if (!taken_from(taking))
		return false;
	for (size_t i = at; i < f->insns.count && i <= at + LOOK_AWAY; i++) {
		if (flow_jumps_indirectly(f, i, &jump))
			return takes_entry(f, &jump) == taking;
		if (!goes_on(f, i))
			return false;
	}
	return false;
}

/* True if the instruction takes an entry from a table whose address is in a register. */
static bool takes_from_register(const struct arch_insn *insn)
{
	struct arch_memory m[ARCH_MEMORY_MAX];

	return arch_memory_operands(insn, m) == 1 && m[0].load && m[0].computable &&
	       m[0].size == sizeof(vaddr_t) && m[0].base != ARCH_NO_REGISTER &&
	       m[0].index != ARCH_NO_REGISTER && (size_t)1 << m[0].shift == sizeof(vaddr_t);
}

/* True if what insns[at] loads, or has as its operand, is jumped to. */
static bool is_jumped_to(const struct flow *f, size_t at)
{
	struct indirect jump;
	arch_regset reads, writes, loaded;

	if (flow_jumps_indirectly(f, at, &jump))
		return true;
	arch_effects(&f->insns.items[at], &reads, &loaded);
	for (unsigned steps = 0; steps < LOOK_AWAY; steps++) {
		const bool on = goes_on(f, at);
		const long to = f->insns.items[at].flow == ARCH_FLOW_JUMP
					? flow_insn_at(f, f->insns.items[at].target)
					: -1;

		if (!on && to < 0)
			return false;
		at = on ? at + 1 : (size_t)to;
		if (flow_jumps_indirectly(f, at, &jump))
			return jump.wanted & loaded;
		arch_effects(&f->insns.items[at], &reads, &writes);
		if ((writes | arch_changes(&f->insns.items[at])) & loaded)
			return false;
	}
	return false;
}

/* True if a jump of the function takes where it leads from a table whose address is in a register. */
static bool jumps_by_register(const struct flow *f)
{
	for (size_t i = 0; i < f->insns.count; i++)
		if (takes_from_register(&f->insns.items[i]) && is_jumped_to(f, i))
			return true;
	return false;
}

/* What may be addresses among the operands of an instruction. */
static unsigned find_names(const struct arch_insn *insn, vaddr_t names[NAMES_MAX])
{
	struct arch_memory m[ARCH_MEMORY_MAX];
	unsigned operands = arch_memory_operands(insn, m), n = 0;
	uint32_t value;
	uint64_t wide;

	if (insn->data_ref)
		names[n++] = insn->data_ref;
	for (unsigned i = 0; i < operands; i++)
		if (m[i].computable && m[i].offset)
			names[n++] = (vaddr_t)m[i].offset;
	if (insn->length > sizeof(value)) {
		memcpy(&value, insn->bytes + insn->length - sizeof(value), sizeof(value));
		names[n++] = value;
	}
	if (insn->length > sizeof(wide)) {
		memcpy(&wide, insn->bytes + insn->length - sizeof(wide), sizeof(wide));
		names[n++] = wide;
	}
	return n;
}

static bool names_table(const struct flow *f, const struct arch_insn *insn)
{
	vaddr_t names[NAMES_MAX];
	unsigned n = find_names(insn, names);

	for (unsigned i = 0; i < n; i++)
		if (is_own_table(f, names[i]))
			return true;
	return false;
}

/* Right behind the entries that the switch has whose jump insns[at] takes one for; 0: nobody knows. */
static vaddr_t end_of_table(const struct flow *f, size_t at)
{
	const struct arch_insn *taking = &f->insns.items[at];
	const uint64_t count = flow_entries_bound(f, at, flow_address_registers(taking));

	return count ? taken_from(taking) + count * sizeof(vaddr_t) : 0;
}

static bool is_listed(const struct vaddr_list *list, vaddr_t v)
{
	for (size_t i = 0; i < list->count; i++)
		if (list->items[i] == v)
			return true;
	return false;
}

/* True if behind the tables that the function jumps by, and has by nothing else, there may be more of its own. */
static bool may_go_on(const struct flow *f, const struct vaddr_list *tables)
{
	for (size_t i = 0; i < f->insns.count; i++) {
		vaddr_t end, target;

		if (!names_table(f, &f->insns.items[i]))
			continue;
		end = end_of_table(f, i);
		if (!end || (own_entry(f, end, &target) && !is_listed(tables, end)))
			return true;
	}
	return false;
}

/*
 * Adds the tables that the function jumps by. *only is false if a table is used for anything
 * else, or others may be jumped by. Negative without memory.
 */
static int find_tables(const struct flow *f, struct vaddr_list *tables, bool *only)
{
	int r = 0;

	*only = image_is_fixed(f->img);
	for (size_t i = 0; i < f->odd.count && *only; i++)
		*only = !names_table(f, &f->odd.items[i]);
	for (size_t i = 0; i < f->insns.count && *only && r == 0; i++) {
		if (!names_table(f, &f->insns.items[i]))
			continue;
		*only = takes_for_jump(f, i);
		if (*only)
			r = vaddr_list_add(tables, taken_from(&f->insns.items[i]));
	}
	*only = *only && !(tables->count && jumps_by_register(f) && may_go_on(f, tables));
	return r;
}

/* Where the tables lead to; each ends where another one begins. */
static int find_targets(const struct flow *f, const struct vaddr_list *tables,
			struct vaddr_list *targets)
{
	int r = 0;

	for (size_t i = 0; i < tables->count; i++) {
		const vaddr_t end = i + 1 < tables->count ? tables->items[i + 1] : UINT64_MAX;
		vaddr_t target;

		for (vaddr_t at = tables->items[i]; r == 0 && at < end && own_entry(f, at, &target);
		     at += sizeof(target))
			r = vaddr_list_add(targets, target);
	}
	return r;
}

static void count_labels(struct flow *f, const struct vaddr_list *targets)
{
	size_t next = 0;

	for (size_t i = 0; i < f->insns.count; i++) {
		const vaddr_t v = f->insns.items[i].address;
		unsigned refs = image_references_at(f->img, v);

		while (next < targets->count && targets->items[next] < v)
			next++;
		if (next < targets->count && targets->items[next] == v)
			continue;
		if (refs & REFERENCE_ADDRESS && !(refs & (REFERENCE_LANDING | REFERENCE_SYMBOL)))
			f->labels++;
	}
}

int flow_count_labels(struct flow *f, struct dinst_error *e)
{
	struct vaddr_list tables = {0}, targets = {0};
	bool only;
	int r = find_tables(f, &tables, &only);

	vaddr_list_sort(&tables);
	if (r == 0 && only)
		r = find_targets(f, &tables, &targets);
	vaddr_list_sort(&targets);
	if (r == 0)
		count_labels(f, &targets);
	free(tables.items);
	free(targets.items);
	return r < 0 ? dinst_fail(e, DINST_NO_MEMORY, "no memory for jump tables") : 0;
}
