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

/* What one jump leads to, while it is looked for. */
struct looking {
	const struct flow *f;
	struct vaddr_list list;
	uint64_t *left; /* steps that it may still take */
	struct dinst_error *e;
};

/* Counts steps; false if there are none left. */
static bool may_look(struct looking *l, uint64_t steps)
{
	*l->left -= steps < *l->left ? steps : *l->left;
	return *l->left;
}

static int add(struct looking *l, vaddr_t v)
{
	/* There are only so many to lead to: with more on the list, most are doubles. */
	if (l->list.count > 2 * l->f->insns.count)
		vaddr_list_sort(&l->list);
	return vaddr_list_add(&l->list, v) < 0
		       ? dinst_fail(l->e, DINST_NO_MEMORY, "no memory for jump targets")
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
		if (!(writes & wanted) && arch_changes(insn) & wanted)
			return 0;
		if (!(writes & wanted))
			continue;
		*adds = at;
		return insn->flags & ARCH_INSN_MEMORY ? 0 : reads;
	}
	return 0;
}

/* An instruction of the function takes v for the start of something. */
static bool is_own_base(struct looking *l, vaddr_t v)
{
	const struct flow *f = l->f;

	if (!freemap_is_base(f->map, v))
		return false;
	may_look(l, f->insns.count);
	for (size_t i = 0; i < f->insns.count; i++)
		if (f->insns.items[i].data_ref == v)
			return true;
	return false;
}

static int add_table(struct looking *l, vaddr_t table, size_t width)
{
	vaddr_t target;
	int r = 0;

	for (size_t i = 0; r == 0 && entry(l->f, table, i, width, &target); i++) {
		if (!may_look(l, 1) || (i && is_own_base(l, table + i * width)))
			break;
		r = add(l, target);
	}
	return r;
}

/*
 * The tables that a register of `bases` may point to: the one that the line
 * before insns[at] says, else all that any instruction of the function does.
 */
static int add_tables(struct looking *l, size_t at, arch_regset bases)
{
	const struct insn_list *insns = &l->f->insns;
	arch_regset reads, writes;
	int r = 0;

	for (size_t i = at; i-- > 0 && insns->items[i].flow == ARCH_FLOW_NEXT && may_look(l, 1);) {
		/* One of several, chosen on a condition. */
		arch_effects(&insns->items[i], &reads, &writes);
		if (!(writes & bases) && arch_changes(&insns->items[i]) & bases)
			break;
		if (writes & bases && is_table(l->f, i))
			return add_table(l, insns->items[i].data_ref, sizeof(int32_t));
	}
	for (size_t i = 0; i < insns->count && r == 0 && may_look(l, 1); i++) {
		if (!is_table(l->f, i))
			continue;
		arch_effects(&insns->items[i], &reads, &writes);
		if (writes & bases)
			r = add_table(l, insns->items[i].data_ref, sizeof(int32_t));
	}
	return r;
}

static int add_marked(struct looking *l, unsigned marks)
{
	const struct flow *f = l->f;
	int r = 0;

	for (size_t i = 0; i < f->insns.count && r == 0 && may_look(l, 1); i++)
		if (flow_marks(f, f->insns.items[i].address) & marks)
			r = add(l, f->insns.items[i].address);
	return r;
}

static int add_stored(struct looking *l)
{
	const struct flow *f = l->f;
	int r = 0;

	for (size_t i = 0; i < f->insns.count && r == 0 && may_look(l, 1); i++) {
		vaddr_t v = f->insns.items[i].address;
		unsigned refs = image_references_at(f->img, v);

		if (refs & REFERENCE_ADDRESS && !(refs & (REFERENCE_SYMBOL | REFERENCE_LANDING)))
			r = add(l, v);
	}
	return r;
}

int flow_jump_targets(const struct flow *f, size_t at, vaddr_t **targets, size_t *count,
		      uint64_t *left, struct dinst_error *e)
{
	struct looking l = {.f = f, .left = left, .e = e};
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
		r = add_table(&l, jump->data_ref, sizeof(vaddr_t));
	else if (bases)
		r = add_tables(&l, adds, bases);
	if (r == 0 && !l.list.count)
		r = add_stored(&l);
	/* Not found out: any table of the function. */
	if (r == 0 && !l.list.count)
		r = add_marked(&l, MARK_TABLE);
	if (r < 0) {
		free(l.list.items);
		return r;
	}
	vaddr_list_sort(&l.list);
	*targets = l.list.items;
	*count = l.list.count;
	return 0;
}
