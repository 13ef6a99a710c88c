/* SPDX-License-Identifier: MIT */
/*
 * tables_origin.c - how the address that an indirect jump leads to came about:
 * loaded whole, put together from a table, or computed in another way. Goes
 * back from the jump, along the ways by which control may have come, as far as
 * direct branches tell them.
 */
#include "mutator/flow_private.h"

enum {
	LOOK_BACK = 40, /* instructions before a jump in which its register is computed */
	WAYS_MAX = 32,	/* branches to one place that are gone back along */
	JOINS_MAX = 64, /* places that have been gone back from already */
	LABELS_MIN = 2, /* stored inner addresses that make a function a computed goto's */
};

/* In the order of how little is known. */
enum origin {
	ORIGIN_WHOLE,	   /* loaded or handed over whole: the references know it */
	ORIGIN_TABLE,	   /* a base and an offset that was loaded */
	ORIGIN_ARITHMETIC, /* computed in another way */
	ORIGIN_ODD,	   /* a base and an offset from a table of a form that is not read */
};

/* A place where ways meet is gone back from once for each set of registers. */
struct search {
	const struct flow *f;
	struct join {
		size_t at;
		arch_regset wanted;
	} joins[JOINS_MAX];
	size_t join_count;
	arch_regset added; /* registers of which the address is the sum */
	bool odd;	   /* what was loaded is no entry of a table that tables.c reads */
	bool whole;	   /* ... but as large as an address, and not of a row */
};

enum seen { SEEN_NEW, SEEN_BEFORE, SEEN_TOO_MANY };

static enum seen enter_join(struct search *s, size_t at, arch_regset wanted)
{
	for (size_t i = 0; i < s->join_count; i++)
		if (s->joins[i].at == at && s->joins[i].wanted == wanted)
			return SEEN_BEFORE;
	if (s->join_count == JOINS_MAX)
		return SEEN_TOO_MANY;
	s->joins[s->join_count++] = (struct join){at, wanted};
	return SEEN_NEW;
}

static bool is_call(const struct arch_insn *insn)
{
	return insn->flow == ARCH_FLOW_CALL || insn->flow == ARCH_FLOW_CALL_INDIRECT;
}

static bool is_address_of(const struct arch_insn *insn)
{
	return insn->flags & ARCH_INSN_PC_RELATIVE && insn->flags & ARCH_INSN_ADDRESS_OF;
}

/* True if control comes to insns[at] from the instruction in front of it. */
static bool is_run_into(const struct flow *f, size_t at)
{
	const struct arch_insn *insn = &f->insns.items[at];

	if (at == 0 || insn[-1].address + insn[-1].length != insn->address)
		return false;
	switch (insn[-1].flow) {
	case ARCH_FLOW_JUMP:
	case ARCH_FLOW_JUMP_INDIRECT:
	case ARCH_FLOW_RETURN:
		return false;
	case ARCH_FLOW_STOP:
		return flow_is_breakpoint(f, &insn[-1]);
	default:
		return flow_marks(f, insn[-1].address) & MARK_REACHED;
	}
}

/* The direct branches to insns[at]; fills at most WAYS_MAX, returns how many there are. */
static size_t ways_to(const struct flow *f, size_t at, size_t *from)
{
	vaddr_t v = f->insns.items[at].address;
	size_t n = 0;

	if (!(flow_marks(f, v) & MARK_LOOP))
		return 0;
	for (size_t i = 0; i < f->insns.count; i++) {
		const struct arch_insn *insn = &f->insns.items[i];

		if (insn->target != v || is_call(insn))
			continue;
		if (n < WAYS_MAX)
			from[n] = i;
		n++;
	}
	return n;
}

static arch_regset bit_of(uint8_t reg)
{
	return reg == ARCH_NO_REGISTER ? 0 : (arch_regset)1 << reg;
}

/* The registers that only say where the instruction loads from. */
static arch_regset address_of(const struct arch_insn *insn)
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
static bool loads_from_chosen(const struct search *s, size_t at)
{
	arch_regset regs = address_of(&s->f->insns.items[at]), reads, writes;
	bool loaded = false;

	arch_effects(&s->f->insns.items[at], &reads, &writes);
	if (regs & s->added & ~writes)
		return false;
	for (unsigned steps = 0; regs && steps < LOOK_BACK && is_run_into(s->f, at); steps++) {
		const struct arch_insn *def = &s->f->insns.items[--at];

		if (is_call(def))
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

static bool was_loaded(struct search *s, arch_regset wanted, size_t at, unsigned steps);

/* The same for all the ways by which control comes to insns[at]. */
static bool was_loaded_before(struct search *s, arch_regset wanted, size_t at, unsigned steps)
{
	size_t from[WAYS_MAX], n = ways_to(s->f, at, from);
	enum seen seen = enter_join(s, at, wanted);

	if (seen == SEEN_BEFORE)
		return true;
	if (seen == SEEN_TOO_MANY || n == 0 || n > WAYS_MAX)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!was_loaded(s, wanted, from[i], steps + 1))
			return false;
	return true;
}

/*
 * True if a register of `wanted` was loaded from memory, though perhaps moved
 * and extended since, before insns[at].
 */
static bool was_loaded(struct search *s, arch_regset wanted, size_t at, unsigned steps)
{
	for (; steps < LOOK_BACK; steps++) {
		const struct arch_insn *def;
		arch_regset reads, writes;

		if (!is_run_into(s->f, at))
			return was_loaded_before(s, wanted, at, steps);
		def = &s->f->insns.items[--at];
		if (is_call(def))
			return false;
		arch_effects(def, &reads, &writes);
		if (!(writes & wanted) || is_address_of(def))
			continue;
		if (def->flags & ARCH_INSN_MEMORY) {
			s->odd |= loads_odd_entry(def) || loads_from_chosen(s, at);
			s->whole |= loads_word(def) && !loads_odd_entry(def);
			return true;
		}
		if (__builtin_popcountll(reads) != 1)
			return false;
		wanted = reads;
	}
	return false;
}

static enum origin loaded_or_computed(const struct flow *f, arch_regset wanted, size_t at)
{
	struct search s = {.f = f, .added = wanted};

	if (!was_loaded(&s, wanted, at, 0))
		return s.odd ? ORIGIN_ODD : ORIGIN_ARITHMETIC;
	return s.odd ? ORIGIN_ODD : ORIGIN_TABLE;
}

/*
 * insns[at] adds something in memory to what is in `wanted`: a base that was
 * spilled, or an entry. Or two words are added that are both elsewhere, where a
 * module lies and how far in it something is.
 */
static enum origin added_from_memory(const struct flow *f, arch_regset wanted, size_t at)
{
	const struct arch_insn *insn = &f->insns.items[at];
	struct search s = {.f = f, .added = wanted};

	if (loads_odd_entry(insn))
		return ORIGIN_ODD;
	if (!(insn->flags & ARCH_INSN_STACK_OPERAND) && was_loaded(&s, wanted, at, 0) && s.whole)
		return ORIGIN_WHOLE;
	return loaded_or_computed(f, wanted, at);
}

static enum origin trace(struct search *s, arch_regset wanted, size_t at, unsigned steps);

static enum origin trace_before(struct search *s, arch_regset wanted, size_t at, unsigned steps)
{
	size_t from[WAYS_MAX], n = ways_to(s->f, at, from);
	enum seen seen = enter_join(s, at, wanted);
	enum origin worst = ORIGIN_WHOLE;

	if (seen == SEEN_BEFORE)
		return ORIGIN_WHOLE;
	if (seen == SEEN_TOO_MANY || n > WAYS_MAX)
		return ORIGIN_ARITHMETIC;
	for (size_t i = 0; i < n; i++) {
		enum origin o = trace(s, wanted, from[i], steps + 1);

		worst = o > worst ? o : worst;
	}
	return worst;
}

/* How what is in `wanted` before insns[at] came about. */
static enum origin trace(struct search *s, arch_regset wanted, size_t at, unsigned steps)
{
	for (; steps < LOOK_BACK; steps++) {
		const struct arch_insn *def;
		arch_regset reads, writes;

		if (!is_run_into(s->f, at))
			return trace_before(s, wanted, at, steps);
		def = &s->f->insns.items[--at];
		if (is_call(def))
			return ORIGIN_WHOLE;
		arch_effects(def, &reads, &writes);
		if (!(writes & wanted))
			continue;
		if (def->flags & ARCH_INSN_MEMORY) {
			/* Loaded; or hidden, with a key of the thread or of the file. */
			if (!(reads & wanted & ~address_of(def)) || !address_of(def))
				return ORIGIN_WHOLE;
			return added_from_memory(s->f, wanted, at);
		}
		if (__builtin_popcountll(reads) >= 2)
			return loaded_or_computed(s->f, reads, at);
		if (is_address_of(def))
			return ORIGIN_WHOLE;
		if (reads)
			wanted = reads;
	}
	return ORIGIN_WHOLE;
}

/* How the address that insns[at] jumps to came about. */
static enum origin origin_of(const struct flow *f, size_t at)
{
	struct search s = {.f = f};
	arch_regset wanted, writes;

	if (f->insns.items[at].flags & ARCH_INSN_MEMORY)
		return ORIGIN_WHOLE;
	arch_effects(&f->insns.items[at], &wanted, &writes);
	return trace(&s, wanted & ~arch_always_live, at, 0);
}

bool flow_is_switch(const struct flow *f, size_t at)
{
	const struct arch_insn *jump = &f->insns.items[at];

	if (jump->flags & ARCH_INSN_PC_RELATIVE)
		return false;
	if (jump->flags & ARCH_INSN_NO_TRACK && jump->flags & ARCH_INSN_INDEXED_JUMP)
		return true;
	return f->labels >= LABELS_MIN || origin_of(f, at) != ORIGIN_WHOLE;
}

bool flow_is_riddle(const struct flow *f, size_t at, size_t tables, size_t code_bases)
{
	const struct arch_insn *jump = &f->insns.items[at];

	/* Through memory whole addresses are loaded, and those are known. */
	if (jump->flow != ARCH_FLOW_JUMP_INDIRECT ||
	    jump->flags & (ARCH_INSN_PC_RELATIVE | ARCH_INSN_INDEXED_JUMP))
		return false;
	switch (origin_of(f, at)) {
	case ORIGIN_WHOLE:
		return false;
	case ORIGIN_TABLE:
		return !tables;
	case ORIGIN_ODD:
		return true;
	default:
		return !tables || code_bases;
	}
}
