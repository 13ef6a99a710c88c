/* SPDX-License-Identifier: MIT */
/*
 * tables_targets.c - the jump tables of a finished flow, one jump at a time:
 * for those who draw edges. Nothing is decided on what it says.
 */
#include "mutator/flow_private.h"
#include "mutator/freemap_tables.h"

#include <stdlib.h>
#include <string.h>

enum { LOOK_BACK = 40 };

static int add(struct vaddr_list *list, vaddr_t v, struct dinst_error *e)
{
	return vaddr_list_add(list, v) < 0
		       ? dinst_fail(e, DINST_NO_MEMORY, "no memory for jump targets")
		       : 0;
}

static bool entry(const struct flow *f, vaddr_t table, size_t i, size_t width, vaddr_t *target)
{
	size_t size = 0;
	const uint8_t *bytes = image_data(f->img, table + i * width, &size);
	int32_t relative;

	if (!bytes || size < width)
		return false;
	if (width == sizeof(*target)) {
		memcpy(target, bytes, width);
	} else {
		memcpy(&relative, bytes, sizeof(relative));
		*target = table + (vaddr_t)(int64_t)relative;
	}
	return flow_insn_at(f, *target) >= 0 && flow_marks(f, *target) & MARK_TABLE;
}

static bool is_table(const struct flow *f, size_t i)
{
	const struct arch_insn *insn = &f->insns.items[i];
	vaddr_t first;

	return insn->flags & ARCH_INSN_ADDRESS_OF && insn->data_ref &&
	       entry(f, insn->data_ref, 0, sizeof(int32_t), &first);
}

/* The registers whose sum insns[at] jumps to, and the index of what adds them; 0 if there is none. */
static arch_regset added(const struct flow *f, size_t at, size_t *adds)
{
	arch_regset wanted, reads, writes;

	arch_effects(&f->insns.items[at], &wanted, &writes);
	wanted &= ~arch_always_live;
	for (unsigned steps = 0; at-- > 0 && steps < LOOK_BACK; steps++) {
		const struct arch_insn *insn = &f->insns.items[at];

		if (insn->flow != ARCH_FLOW_NEXT)
			return 0;
		arch_effects(insn, &reads, &writes);
		if (!(writes & wanted))
			continue;
		*adds = at;
		return insn->flags & ARCH_INSN_MEMORY ? 0 : reads;
	}
	return 0;
}

static int add_table(const struct flow *f, vaddr_t table, size_t width, struct vaddr_list *list,
		     struct dinst_error *e);

/*
 * The tables that a register of `bases` may point to: the one that the line
 * before insns[at] says, else all that any instruction of the function does.
 */
static int add_tables(const struct flow *f, size_t at, arch_regset bases, struct vaddr_list *list,
		      struct dinst_error *e)
{
	arch_regset reads, writes;
	int r = 0;

	for (size_t i = at; i-- > 0 && f->insns.items[i].flow == ARCH_FLOW_NEXT;) {
		if (!is_table(f, i))
			continue;
		arch_effects(&f->insns.items[i], &reads, &writes);
		if (writes & bases)
			return add_table(f, f->insns.items[i].data_ref, sizeof(int32_t), list, e);
	}
	for (size_t i = 0; i < f->insns.count && r == 0; i++) {
		if (!is_table(f, i))
			continue;
		arch_effects(&f->insns.items[i], &reads, &writes);
		if (writes & bases)
			r = add_table(f, f->insns.items[i].data_ref, sizeof(int32_t), list, e);
	}
	return r;
}

/* An instruction of the function takes v for the start of something. */
static bool is_own_base(const struct flow *f, vaddr_t v)
{
	if (!freemap_is_base(f->map, v))
		return false;
	for (size_t i = 0; i < f->insns.count; i++)
		if (f->insns.items[i].data_ref == v)
			return true;
	return false;
}

static int add_table(const struct flow *f, vaddr_t table, size_t width, struct vaddr_list *list,
		     struct dinst_error *e)
{
	vaddr_t target;
	int r = 0;

	for (size_t i = 0; r == 0 && entry(f, table, i, width, &target); i++) {
		if (i && is_own_base(f, table + i * width))
			break;
		r = add(list, target, e);
	}
	return r;
}

static int add_marked(const struct flow *f, unsigned marks, struct vaddr_list *list,
		      struct dinst_error *e)
{
	int r = 0;

	for (size_t i = 0; i < f->insns.count && r == 0; i++)
		if (flow_marks(f, f->insns.items[i].address) & marks)
			r = add(list, f->insns.items[i].address, e);
	return r;
}

static int add_stored(const struct flow *f, struct vaddr_list *list, struct dinst_error *e)
{
	int r = 0;

	for (size_t i = 0; i < f->insns.count && r == 0; i++) {
		vaddr_t v = f->insns.items[i].address;
		unsigned refs = image_references_at(f->img, v);

		if (refs & REFERENCE_ADDRESS && !(refs & (REFERENCE_SYMBOL | REFERENCE_LANDING)))
			r = add(list, v, e);
	}
	return r;
}

int flow_jump_targets(const struct flow *f, size_t at, vaddr_t **targets, size_t *count,
		      struct dinst_error *e)
{
	struct vaddr_list list = {0};
	const struct arch_insn *jump = &f->insns.items[at];
	arch_regset bases;
	size_t adds = at;
	int r = 0;

	*targets = NULL;
	*count = 0;
	if (jump->flow != ARCH_FLOW_JUMP_INDIRECT || !flow_is_switch(f, at))
		return 0;
	bases = jump->flags & ARCH_INSN_MEMORY ? 0 : added(f, at, &adds);
	if (jump->data_ref)
		r = add_table(f, jump->data_ref, sizeof(vaddr_t), &list, e);
	else if (bases)
		r = add_tables(f, adds, bases, &list, e);
	if (r == 0 && !list.count)
		r = add_stored(f, &list, e);
	/* Not found out: any table of the function. */
	if (r == 0 && !list.count)
		r = add_marked(f, MARK_TABLE, &list, e);
	if (r < 0) {
		free(list.items);
		return r;
	}
	vaddr_list_sort(&list);
	*targets = list.items;
	*count = list.count;
	return 0;
}
