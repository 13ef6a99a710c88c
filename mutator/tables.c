/* SPDX-License-Identifier: MIT */
/*
 * tables.c - where indirect jumps may lead: jump tables.
 *
 * Reading too much of a table costs a point here and there; reading too little
 * would break the target. So every address that the function computes and that
 * holds readable constants is taken for a table, and is read until an entry
 * leaves the text. Whole code addresses (computed gotos, 8-byte tables of
 * position-independent code) are in the image's references already.
 */
#include "mutator/flow_ways.h"
#include "mutator/tables_private.h"

#include <stdlib.h>
#include <string.h>

enum {
	TABLE_ENTRIES_MAX = 65536,
	JUMP_WITHIN = 12,
	/*
	 * Looks at one entry or one base, for all tables of one function: a second or so. A pass
	 * of gcc's that is made of tables takes 15 million; what is made to take hours is
	 * unresolved.
	 */
	LOOKS_MOST = 1 << 28,
	/* What decoding an instruction of another function counts. */
	DECODED_LOOKS = 4,
	SWEPT_KNOWN = 16, /* half as many as are kept: see freemap.c */
};

struct base {
	vaddr_t address;
	bool jumped; /* a jump right behind takes an entry and adds this address to it */
	/* Behind the last of its own entries that has been read, by form; 0: it has none. */
	vaddr_t offsets_end, long_offsets_end;
};

struct table_bases {
	struct base *items;
	size_t count, room;
	size_t insns, odd; /* instructions of either kind that they were collected from */
	uint64_t looks;
	uint32_t swept[SWEPT_KNOWN]; /* 1 + the other functions that were decoded last */
	unsigned swept_next;
};

static bool is_given_up(const struct table_bases *b)
{
	return b->looks > LOOKS_MOST;
}

static bool in_text(const struct flow *f, vaddr_t v)
{
	const struct image_range *text;
	size_t n = image_text(f->img, &text);

	for (size_t i = 0; i < n; i++)
		if (v >= text[i].lo && v < text[i].hi)
			return true;
	return false;
}

/* The addresses at which a table may start: computed ones and absolute operands. */
static bool is_base(const struct flow *f, const struct arch_insn *insn)
{
	if (!insn->data_ref)
		return false;
	if (is_address_of(insn))
		return true;
	return image_is_fixed(f->img) && !(insn->flags & ARCH_INSN_PC_RELATIVE);
}

/* True if v is inside, and not the start of, an instruction that is executed for sure. */
static bool splits_known(const struct flow *f, vaddr_t v)
{
	long at = flow_covering(f, v);
	const struct arch_insn *insn = at < 0 ? NULL : &f->insns.items[at];

	return insn && insn->address != v && flow_marks(f, insn->address) & MARK_REACHED &&
	       !(flow_marks(f, v) & MARK_CONFLICT);
}

static struct base *base_at(const struct table_bases *b, vaddr_t base)
{
	for (size_t i = 0; i < b->count; i++)
		if (b->items[i].address == base)
			return &b->items[i];
	return NULL;
}

static int add_base(struct table_bases *b, vaddr_t base, bool jumped, struct dinst_error *e)
{
	struct base *known = base_at(b, base);

	b->looks += b->count;
	if (known) {
		known->jumped |= jumped;
		return 0;
	}
	if (b->count == b->room) {
		size_t room = b->room ? b->room * 2 : 32;
		void *more = reallocarray(b->items, room, sizeof(*b->items));

		if (!more)
			return dinst_fail(e, DINST_NO_MEMORY, "no memory for jump tables");
		b->items = more;
		b->room = room;
	}
	b->items[b->count++] = (struct base){.address = base, .jumped = jumped};
	return 0;
}

/*
 * What the function does with its registers, to know a base that is computed
 * far above its jump.
 */
struct usage {
	uint32_t writers[64]; /* instructions that write it, restoring apart */
	arch_regset switched; /* bases of jump tables for sure */
};

/*
 * The registers that hold the start of a jump table when control comes to the
 * indirect jump insns[at]: right before it, an entry is loaded with the help of
 * one, that one is added, and the sum is jumped to.
 */
static arch_regset switch_bases(const struct insn_list *list, size_t at)
{
	arch_regset added = 0, loaded = 0, reads, writes;

	if (list->items[at].flags & ARCH_INSN_MEMORY)
		return 0;
	for (unsigned steps = 0; at-- > 0 && steps < JUMP_WITHIN && !loaded; steps++) {
		const struct arch_insn *insn = &list->items[at];

		if (insn->flow != ARCH_FLOW_NEXT)
			return 0;
		arch_effects(insn, &reads, &writes);
		if (insn->flags & ARCH_INSN_MEMORY)
			loaded = reads & added;
		else if (!added && __builtin_popcountll(reads) >= 2)
			added = reads;
		else
			added &= ~writes;
	}
	return loaded;
}

static void find_usage(const struct insn_list *list, struct usage *u)
{
	*u = (struct usage){.switched = 0};
	for (size_t i = 0; i < list->count; i++) {
		const struct arch_insn *insn = &list->items[i];
		arch_regset reads, writes;

		if (insn->flow == ARCH_FLOW_JUMP_INDIRECT)
			u->switched |= switch_bases(list, i);
		if (insn->flags & ARCH_INSN_FRAME)
			continue;
		arch_effects(insn, &reads, &writes);
		for (writes |= arch_changes(insn); writes; writes &= writes - 1)
			u->writers[__builtin_ctzll(writes)]++;
	}
}

/*
 * True if what insns[at] computes is the start of a jump table and nothing else:
 * the jump is right behind, or the register is never used for anything else.
 */
static bool is_jumped(const struct insn_list *list, const struct usage *u, size_t at)
{
	arch_regset base, reads, writes;

	if (list->items[at].flags & ARCH_INSN_INDEXED_JUMP)
		return true;
	arch_effects(&list->items[at], &reads, &base);
	if (!(base & u->switched))
		return false;
	if (u->writers[__builtin_ctzll(base)] == 1)
		return true;
	for (size_t i = at + 1; i < list->count && i < at + JUMP_WITHIN; i++) {
		const struct arch_insn *insn = &list->items[i];

		if (insn->flow == ARCH_FLOW_JUMP_INDIRECT)
			return switch_bases(list, i) & base;
		if (insn->flow != ARCH_FLOW_NEXT)
			return false;
		arch_effects(insn, &reads, &writes);
		if ((writes | arch_changes(insn)) & base && !(reads & base))
			return false;
	}
	return false;
}

static int collect_bases(const struct flow *f, const struct insn_list *list, const struct usage *u,
			 struct table_bases *b, struct dinst_error *e)
{
	int r = 0;

	for (size_t i = 0; i < list->count && r == 0 && !is_given_up(b); i++)
		if (is_base(f, &list->items[i]))
			r = add_base(b, list->items[i].data_ref, u && is_jumped(list, u, i), e);
	return r;
}

enum entry_form { ENTRY_RELATIVE, ENTRY_WORD, ENTRY_HALF, ENTRY_LONG };

static vaddr_t entry_target(const uint8_t *at, vaddr_t base, enum entry_form form)
{
	int32_t relative;
	uint32_t half;
	uint64_t word;

	switch (form) {
	case ENTRY_RELATIVE:
		memcpy(&relative, at, sizeof(relative));
		return base + (vaddr_t)(int64_t)relative;
	case ENTRY_HALF:
		memcpy(&half, at, sizeof(half));
		return half;
	default:
		memcpy(&word, at, sizeof(word));
		return form == ENTRY_LONG ? base + word : word;
	}
}

/*
 * The sweep of another function; NULL without memory. What decoding it costs counts unless it is one
 * of the last that were, though it may be known from before: whether all is too much must not depend
 * on that.
 */
static const struct sweep *sweep_of(const struct flow *f, struct table_bases *b, uint32_t other)
{
	const struct sweep *s;

	if (freemap_sweep(f->map, other, &s, NULL) < 0)
		return NULL;
	for (unsigned i = 0; i < SWEPT_KNOWN; i++)
		if (b->swept[i] == other + 1)
			return s;
	b->looks += (uint64_t)s->count * DECODED_LOOKS;
	b->swept[b->swept_next++ % SWEPT_KNOWN] = other + 1;
	return s;
}

/*
 * True if an entry that leads to `target` shows that the table has ended: what
 * is there is the inside of an instruction. Only where the code is decoded from
 * end to end is that known.
 */
static bool ends_table(const struct flow *f, struct table_bases *b, vaddr_t target)
{
	const struct sweep *s;
	long other;
	size_t at;

	if (flow_contains(f, target))
		return f->linear && splits_known(f, target);
	other = freemap_before(f->map, target);
	s = other < 0 ? NULL : sweep_of(f, b, (uint32_t)other);
	if (!s || target >= s->hi || s->end < s->hi)
		return false;
	at = freemap_first(s, target);
	return at < s->count && s->insns[at].address != target;
}

/*
 * An entry is data, for good, whatever else it looks like: a table may lie in the function itself. But four
 * bytes of code, whose address somebody computes, may look like one.
 */
static void mark_entry(struct flow *f, vaddr_t at, size_t width)
{
	for (size_t i = 0; i < width; i++)
		flow_mark(f, at + i, MARK_CONFLICT);
}

/* The table's own entries have been read up to `end`. */
static void note_read(struct base *table, vaddr_t end, enum entry_form form)
{
	vaddr_t *known = form == ENTRY_LONG ? &table->long_offsets_end : &table->offsets_end;

	if (end > *known)
		*known = end;
}

/*
 * Reads the table at base number `index`, whose offsets count from `base`, and follows the
 * entries that lead into the function. Its own entries end where one leads
 * elsewhere or where somebody takes another table to start, at the latest; if
 * the first is one, it is really a table. What is behind is more
 * likely than not another table, read from the wrong base. But somebody may
 * compute an address inside a table for his own reasons, so what is behind
 * counts, too, up to the first entry that cannot be one, or up to where another
 * table is known to start. It is read in a second round, `behind`, after all
 * that is sure, and what it leads to may be no code unless it looks like a block.
 */
static int read_table(struct flow *f, struct table_bases *b, size_t index, vaddr_t base,
		      enum entry_form form, bool behind, struct dinst_error *e)
{
	size_t size = 0, width = form == ENTRY_WORD || form == ENTRY_LONG ? 8 : 4;
	const vaddr_t table = b->items[index].address;
	const uint8_t *bytes = image_data(f->img, table, &size);
	bool own = true;

	for (size_t i = 0; bytes && i < TABLE_ENTRIES_MAX && (i + 1) * width <= size; i++) {
		vaddr_t target = entry_target(bytes + i * width, base, form),
			at = table + i * width;
		const struct base *other = i ? base_at(b, at) : NULL;
		bool mine = flow_contains(f, target);
		int r;

		b->looks += 1 + b->count;
		if (is_given_up(b))
			break;
		own &= mine && !other && (i == 0 || !freemap_is_base(f->map, at));
		/* No entry leads into its table; half of a wider one may. */
		if ((other && other->jumped) || !in_text(f, target) || (!own && !behind) ||
		    target - table < (i + 1) * width || ends_table(f, b, target))
			break;
		if (form == ENTRY_LONG || b->items[index].jumped)
			mark_entry(f, at, width);
		if (!mine || (!own && splits_known(f, target)))
			continue;
		if (own && !behind)
			note_read(&b->items[index], at + width, form);
		flow_mark(f, target, MARK_LOOP | MARK_TABLE);
		f->unsure = !own && !flow_begins_block(f, target);
		r = flow_follow(f, target, e);
		f->unsure = false;
		if (r < 0)
			return r;
	}
	return 0;
}

/*
 * All that a table at `table` can be. The offsets mostly count from the table
 * itself, but also from a label in the code (tables of label differences).
 */
static int read_forms(struct flow *f, struct table_bases *b, size_t index, bool behind,
		      struct dinst_error *e)
{
	vaddr_t table = b->items[index].address;
	bool fixed = image_is_fixed(f->img);
	int r = read_table(f, b, index, table, ENTRY_RELATIVE, behind, e);

	if (r == 0)
		r = read_table(f, b, index, table, ENTRY_LONG, behind, e);
	if (r == 0 && fixed)
		r = read_table(f, b, index, 0, ENTRY_WORD, behind, e);
	if (r == 0 && fixed)
		r = read_table(f, b, index, 0, ENTRY_HALF, behind, e);
	b->looks += b->count;
	for (size_t i = 0; i < b->count && r == 0 && !is_given_up(b); i++)
		if (b->items[i].address != table && flow_contains(f, b->items[i].address))
			r = read_table(f, b, index, b->items[i].address, ENTRY_RELATIVE, behind, e);
	return r;
}

/* Instructions are only ever added: with none more there is nothing more to collect. */
static int collect(const struct flow *f, struct table_bases *b, struct dinst_error *e)
{
	struct usage u;
	int r;

	if (b->insns == f->insns.count && b->odd == f->odd.count)
		return 0;
	b->insns = f->insns.count;
	b->odd = f->odd.count;
	find_usage(&f->insns, &u);
	r = collect_bases(f, &f->insns, &u, b, e);
	return r < 0 ? r : collect_bases(f, &f->odd, NULL, b, e);
}

/* Reads the tables of all bases until no new code, and so no new base, turns up, or enough is. */
static int read_tables(struct flow *f, struct table_bases *b, struct dinst_error *e)
{
	size_t known;
	int r;

	do {
		r = collect(f, b, e);
		do {
			known = b->count;
			for (size_t i = 0; i < known && r == 0 && !is_given_up(b); i++)
				r = read_forms(f, b, i, false, e);
			if (r == 0)
				r = collect(f, b, e);
		} while (r == 0 && b->count > known);
		for (size_t i = 0; i < known && r == 0 && !is_given_up(b); i++)
			r = read_forms(f, b, i, true, e);
		if (r == 0)
			r = collect(f, b, e);
	} while (r == 0 && b->count > known);
	return r;
}

bool flow_has_read(const struct flow *f, const struct table_bases *b, vaddr_t table,
		   int64_t displacement, unsigned forms)
{
	const struct base *base = flow_look(f, b->count) ? base_at(b, table) : NULL;
	const vaddr_t v = table + (vaddr_t)displacement;

	if (!base || v < table || displacement % 4)
		return false;
	return (forms & TABLE_OFFSETS && v < base->offsets_end) ||
	       (forms & TABLE_LONG_OFFSETS && v < base->long_offsets_end && displacement % 8 == 0);
}

size_t flow_tables_read(const struct flow *f, const struct table_bases *b)
{
	size_t n = 0;

	flow_look(f, b->count);
	for (size_t i = 0; i < b->count; i++)
		n += b->items[i].offsets_end || b->items[i].long_offsets_end;
	return n;
}

bool flow_starts_at(const struct flow *f, vaddr_t v)
{
	const struct image_function *functions;

	image_functions(f->img, &functions);
	return functions[f->function].address == v;
}

/* From instruction `from` on of either list. */
static void mark_labels(struct flow *f, size_t from, size_t odd)
{
	vaddr_t labels[LABELS_MOST];
	struct label_search search;

	flow_label_search(f, &search);
	for (size_t i = from; i < f->insns.count; i++)
		flow_mark_labels(f, &search, &f->insns.items[i], labels);
	for (size_t i = odd; i < f->odd.count; i++)
		flow_mark_labels(f, &search, &f->odd.items[i], labels);
}

/* insns[at] is a call within the function of what takes its return address off the stack at once. */
static bool takes_own_address(const struct flow *f, size_t at)
{
	const struct arch_insn *call = &f->insns.items[at];
	struct arch_memory m[ARCH_MEMORY_MAX];
	long to = call->flow == ARCH_FLOW_CALL ? flow_insn_at(f, call->target) : -1;

	return to >= 0 && arch_memory_operands(&f->insns.items[to], m) && m[0].load &&
	       m[0].computable && !m[0].offset && m[0].index == ARCH_NO_REGISTER &&
	       flow_frame_place(&m[0]);
}

/*
 * How code learns where it is without an operand for that: by a call, mostly of the next
 * instruction. What it adds may lead to any of its own.
 */
static void count_called_bases(struct flow *f)
{
	for (size_t i = 0; i < f->insns.count; i++)
		if (takes_own_address(f, i))
			flow_count_base(f, f->insns.items[i].address + f->insns.items[i].length);
}

static bool has_indirect_jump(const struct insn_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		if (list->items[i].flow == ARCH_FLOW_JUMP_INDIRECT)
			return true;
	return false;
}

static bool jumps_indirectly(const struct flow *f)
{
	struct indirect jump;

	for (size_t i = 0; i < f->insns.count; i++)
		if (flow_jumps_indirectly(f, i, &jump))
			return true;
	return false;
}

/* What ways jumps are come to by, and what is put aside where that may matter. */
static int prepare(struct flow *f, struct dinst_error *e)
{
	int r = flow_ways_find(f, e);

	return r == 0 ? flow_stores_find(f, e) : r;
}

/*
 * All of them, even if one is unresolved: what others lead to inside of instructions is
 * known all the same. Only what asks for too much ends it.
 */
static int settle_jumps(struct flow *f, const struct table_bases *b, struct dinst_error *e)
{
	int r = prepare(f, e);

	for (size_t i = 0; i < f->insns.count && r == 0 && !flow_looked_too_often(f); i++) {
		bool known;

		if (!flow_is_riddle(f, i, b))
			continue;
		r = flow_row(f, i, &known, e);
		f->unresolved |= !known;
	}
	f->unresolved |= r == 0 && flow_looked_too_often(f);
	return r;
}

int flow_tables(struct flow *f, struct dinst_error *e)
{
	struct table_bases bases = {0};
	bool any = has_indirect_jump(&f->odd) || jumps_indirectly(f);
	size_t insns = f->insns.count, odd = f->odd.count;
	int r = 0;

	mark_labels(f, 0, 0);
	if (any)
		r = read_tables(f, &bases, e);
	mark_labels(f, insns, odd);
	flow_sort(f);
	if (r == 0 && any) {
		f->unresolved |= has_indirect_jump(&f->odd) || is_given_up(&bases);
		r = flow_count_labels(f, e);
		for (size_t i = 0; i < bases.count; i++)
			flow_count_base(f, bases.items[i].address);
		count_called_bases(f);
		if (r == 0)
			r = settle_jumps(f, &bases, e);
		flow_sort(f);
	}
	free(bases.items);
	return r;
}

/*
 * Whatever more has been decoded is code for all that is known, and its tables have not
 * been read: with it no indirect jump is understood, since it may lead to an old one, too.
 */
int flow_tables_late(struct flow *f, size_t settled, struct dinst_error *e)
{
	bool jumps = f->ways;

	flow_sort(f);
	if (f->insns.count > settled) {
		jumps = jumps_indirectly(f);
		f->unresolved |= jumps;
	}
	for (size_t i = 0; i < f->odd.count; i++)
		f->unresolved |= flow_odd_is_riddle(&f->odd.items[i]);
	return jumps ? prepare(f, e) : 0;
}
