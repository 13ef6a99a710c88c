/* SPDX-License-Identifier: MIT */
/*
 * tables_origin.c - how the address that an indirect jump leads to came about:
 * loaded whole, put together from a table, or computed in another way. Goes
 * back from the jump, along the ways by which control may have come, as far as
 * direct branches tell them.
 */
#include "mutator/flow_ways.h"
#include "mutator/tables_private.h"

#include <string.h>

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
	const struct table_bases *tables; /* NULL: none have been read yet */
	const struct addition *sum;	  /* what was_loaded() looks for the parts of */
	unsigned entries;		  /* enum loaded_flag of all that it has found */
	bool unread;			  /* one may be of no table that has been read */
	bool changed;			  /* what was loaded has been made something else since */
	bool parted; /* on some way what was found was not loaded whole, or is no more what it was, or is a base */
	bool lost; /* the address may be anything: the way back ends too early */
	bool mild; /* what has no part of an address of the function's own leads out of it */
	struct join {
		size_t at;
		arch_regset wanted;
	} joins[JOINS_MAX];
	size_t join_count;
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

bool flow_is_run_into(const struct flow *f, size_t at)
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

/*
 * The direct branches to insns[at]; fills at most WAYS_MAX, returns how many there
 * are, or WAYS_MAX + 1: too many, or it has been looked too often. A call whose return
 * address is overwritten at once is a branch, too.
 */
static size_t ways_to(const struct flow *f, size_t at, size_t *from)
{
	struct indirect jump;
	bool calls = at + 1 < f->insns.count && flow_jumps_indirectly(f, at + 1, &jump) &&
		     jump.before == at;
	vaddr_t v = f->insns.items[at].address;
	size_t n = 0;

	if (!calls && !(flow_marks(f, v) & MARK_LOOP))
		return 0;
	for (long i = flow_ways_first(f, v); i >= 0; i = flow_ways_next(f, i)) {
		if (!flow_look(f, 1))
			return WAYS_MAX + 1;
		if (arch_is_call(&f->insns.items[i]) && !calls)
			continue;
		if (n == WAYS_MAX)
			return WAYS_MAX + 1;
		from[n++] = (size_t)i;
	}
	return n;
}

static bool was_loaded(struct search *s, arch_regset wanted, size_t at, unsigned steps);

static bool is_led_to_by_table(const struct flow *f, size_t at)
{
	return flow_marks(f, f->insns.items[at].address) & MARK_TABLE;
}

/* The same for all the branches by which control comes to insns[at]: false if a table may lead there, too. */
static bool was_loaded_before(struct search *s, arch_regset wanted, size_t at, unsigned steps)
{
	size_t from[WAYS_MAX], n = ways_to(s->f, at, from);
	enum seen seen = enter_join(s, at, wanted);
	const bool changed = s->changed;

	/* Then unchanged, perhaps. */
	if (seen == SEEN_BEFORE && s->changed) {
		s->entries |= LOADED_ODD;
		s->parted = true;
	}
	if (seen == SEEN_BEFORE)
		return true;
	if (seen == SEEN_TOO_MANY || n == 0 || n > WAYS_MAX || is_led_to_by_table(s->f, at))
		return false;
	for (size_t i = 0; i < n; i++) {
		if (!was_loaded(s, wanted, from[i], steps + 1))
			return false;
		s->changed = changed;
	}
	return true;
}

/*
 * True if a register of `wanted` was loaded from memory, though perhaps moved
 * and extended since, before insns[at].
 */
static bool was_loaded(struct search *s, arch_regset wanted, size_t at, unsigned steps)
{
	for (; steps < LOOK_BACK && flow_look(s->f, 1); steps++) {
		const struct arch_insn *def;
		arch_regset reads, writes;

		if (!flow_is_run_into(s->f, at))
			return was_loaded_before(s, wanted, at, steps);
		if ((is_led_to_by_table(s->f, at) || ways_to(s->f, at, (size_t[WAYS_MAX]){0})) &&
		    !was_loaded_before(s, wanted, at, steps))
			return false;
		def = &s->f->insns.items[--at];
		if (arch_is_call(def))
			return false;
		arch_effects(def, &reads, &writes);
		if (!(writes & wanted) && arch_changes(def) & wanted)
			return false;
		s->parted |= writes & wanted && is_address_of(def);
		if (!(writes & wanted) || is_address_of(def))
			continue;
		/* Then the other part alone is the sum. */
		if (arch_clears(def)) {
			wanted &= ~writes;
			if (!wanted)
				return true;
			continue;
		}
		if (def->flags & ARCH_INSN_MEMORY) {
			unsigned entry = flow_entry(s->sum, at);

			s->entries |= entry | (s->changed ? LOADED_ODD : 0);
			s->unread |= !(entry & LOADED_KNOWN);
			s->parted |= !(entry & LOADED_WHOLE) || s->changed;
			return true;
		}
		if (__builtin_popcountll(reads) != 1)
			return false;
		s->changed |= !flow_is_copy(def) && !arch_extends(def);
		wanted = reads;
	}
	return false;
}

/* The sum is made of parts, of which one was loaded; or of what else? */
static enum origin loaded_or_computed(struct search *s, const struct addition *sum)
{
	struct search parts = {.f = s->f, .sum = sum};
	bool loaded;

	/* Entries count from a base: what is subtracted from one, or multiplied by the way, leads elsewhere. */
	parts.changed = !arch_adds(&s->f->insns.items[sum->at]);
	loaded = was_loaded(&parts, sum->added, sum->at, 0);

	s->unread |= parts.unread;
	if (parts.entries & (LOADED_ODD | LOADED_CHOSEN))
		return ORIGIN_ODD;
	return loaded ? ORIGIN_TABLE : ORIGIN_ARITHMETIC;
}

/*
 * What is added is in memory: a base that was spilled, or an entry. Or two words
 * are added that are both elsewhere, where a module lies and how far in it
 * something is: if that is so by whatever way control has come.
 */
static enum origin added_from_memory(struct search *s, const struct addition *sum)
{
	const struct arch_insn *insn = &s->f->insns.items[sum->at];
	struct search parts = {.f = s->f, .sum = sum};
	unsigned entry = flow_entry(sum, sum->at);

	if (entry & (LOADED_ODD | LOADED_LONG))
		return entry & LOADED_ODD ? ORIGIN_ODD : ORIGIN_TABLE;
	if (!(insn->flags & ARCH_INSN_STACK_OPERAND) &&
	    was_loaded(&parts, sum->added, sum->at, 0) && parts.entries & LOADED_WHOLE &&
	    !parts.parted)
		return ORIGIN_WHOLE;
	return loaded_or_computed(s, sum);
}

static enum origin trace(struct search *s, arch_regset wanted, size_t at, unsigned steps);

static enum origin worse(enum origin a, enum origin b)
{
	return a > b ? a : b;
}

/* True if all that the function ever puts into register `reg` are addresses that it computes. */
static bool only_has_addresses(const struct search *s, arch_regset reg)
{
	arch_regset reads, writes;

	if (!flow_look(s->f, s->f->insns.count))
		return false;
	for (size_t i = 0; i < s->f->insns.count; i++) {
		const struct arch_insn *insn = &s->f->insns.items[i];

		if (insn->flags & ARCH_INSN_FRAME || is_address_of(insn))
			continue;
		arch_effects(insn, &reads, &writes);
		if ((writes | arch_changes(insn)) & reg)
			return false;
	}
	return true;
}

/*
 * Nothing more can be found out, of registers `wanted` or (0) of memory: no sum, as far as is known. The
 * address of the function's start is computed for other reasons, too: handed over, compared.
 */
static enum origin give_up(struct search *s, arch_regset wanted)
{
	s->lost |= s->f->inner_bases && !(wanted && only_has_addresses(s, wanted));
	return ORIGIN_WHOLE;
}

/* By any of the function's indirect jumps, in whatever guise. */
static enum origin trace_before_tables(struct search *s, arch_regset wanted, unsigned steps)
{
	const struct flow *f = s->f;
	enum origin worst = ORIGIN_WHOLE;
	struct indirect jump;

	if (!flow_look(f, f->insns.count))
		return ORIGIN_ARITHMETIC;
	for (size_t i = 0; i < f->insns.count; i++)
		if (flow_jumps_indirectly(f, i, &jump))
			worst = worse(worst, trace(s, wanted, jump.before, steps + 1));
	return worst;
}

static enum origin trace_before(struct search *s, arch_regset wanted, size_t at, unsigned steps)
{
	size_t from[WAYS_MAX], n = ways_to(s->f, at, from);
	const bool by_table = is_led_to_by_table(s->f, at);
	enum seen seen = enter_join(s, at, wanted);
	enum origin worst = ORIGIN_WHOLE;

	if (seen == SEEN_BEFORE)
		return ORIGIN_WHOLE;
	if (seen == SEEN_TOO_MANY || n > WAYS_MAX)
		return ORIGIN_ARITHMETIC;
	/* An argument is handed over whole. By a table others may lead here, too, than what is known to jump. */
	if (n == 0 && !flow_starts_at(s->f, s->f->insns.items[at].address))
		worst = give_up(s, wanted);
	if (by_table)
		worst = trace_before_tables(s, wanted, steps);
	for (size_t i = 0; i < n; i++)
		worst = worse(worst, trace(s, wanted, from[i], steps + 1));
	return worst;
}

/* Fills *m with where in the frame insn loads an address from; false if that is elsewhere. */
static bool loads_from_frame(const struct arch_insn *insn, struct arch_memory *m)
{
	struct arch_memory all[ARCH_MEMORY_MAX];

	if (!arch_memory_operands(insn, all))
		return false;
	*m = all[0];
	return m->load && m->computable && flow_frame_place(m);
}

/*
 * insns[at] loads the address whole. If that is from the function's own frame, it
 * came about as what was put there did: the stores to the place of the same name
 * tell. Where there is none it is an argument, or has another name there.
 */
static enum origin loaded_whole(struct search *s, size_t at)
{
	enum origin worst = ORIGIN_WHOLE;
	const struct frame_store *stores;
	struct arch_memory m;
	enum seen seen;
	size_t found;

	if (!loads_from_frame(&s->f->insns.items[at], &m))
		return ORIGIN_WHOLE;
	if (s->f->insns.items[at].flags & ARCH_INSN_FRAME)
		return give_up(s, 0);
	seen = enter_join(s, at, 0);
	if (seen != SEEN_NEW)
		return seen == SEEN_BEFORE ? ORIGIN_WHOLE : ORIGIN_ARITHMETIC;
	found = flow_stores_to(s->f, &m, &stores);
	for (size_t i = 0; i < found && flow_look(s->f, 1); i++)
		worst = worse(worst, trace(s, stores[i].stored, stores[i].at, 0));
	return found || !(bit_of(m.base) & arch_always_live) ? worst : give_up(s, 0);
}

/* True if insn only loads a register: what it held before, and the flags, have no part. */
static bool only_loads(const struct arch_insn *insn, arch_regset wanted)
{
	arch_regset reads, writes, address = flow_address_registers(insn);

	arch_effects(insn, &reads, &writes);
	return !(reads & wanted & ~address) && !(writes & ~(wanted | arch_always_live));
}

/* insns[at] makes what is in `wanted`, and reads memory for that. */
static enum origin made_with_memory(struct search *s, arch_regset wanted, size_t at)
{
	const struct arch_insn *insn = &s->f->insns.items[at];

	if (only_loads(insn, wanted))
		return loaded_whole(s, at);
	/* Hidden, with a key of the thread or of the file; or a base that is a variable. */
	if (!flow_address_registers(insn))
		return give_up(s, 0);
	return added_from_memory(s, &(struct addition){s->f, s->tables, at, wanted});
}

/* The last bytes of the instruction, where addresses are fixed, are one of the function. */
static bool names_code(const struct flow *f, const struct arch_insn *insn)
{
	uint32_t value;
	uint64_t wide;

	if (!image_is_fixed(f->img) || insn->length <= sizeof(value))
		return false;
	memcpy(&value, insn->bytes + insn->length - sizeof(value), sizeof(value));
	if (flow_contains(f, value) || insn->length <= sizeof(wide))
		return flow_contains(f, value);
	memcpy(&wide, insn->bytes + insn->length - sizeof(wide), sizeof(wide));
	return flow_contains(f, wide);
}

/*
 * insns[at] leaves what is in `wanted`, or makes it something else: on a condition, or in part. Goes
 * back along what it may have become; the caller does along what it was.
 */
static enum origin made_perhaps(struct search *s, arch_regset wanted, size_t at, unsigned steps)
{
	arch_regset from;
	enum seen seen;

	if (!arch_may_copy(&s->f->insns.items[at], &from))
		return ORIGIN_ARITHMETIC;
	if (!from)
		return made_with_memory(s, wanted, at);
	/* Not as ways meet at insns[at]. */
	seen = enter_join(s, ~at, from);
	if (seen != SEEN_NEW)
		return seen == SEEN_BEFORE ? ORIGIN_WHOLE : ORIGIN_ARITHMETIC;
	return trace(s, from, at, steps + 1);
}

/* How what is in `wanted` before insns[at] came about. */
static enum origin trace(struct search *s, arch_regset wanted, size_t at, unsigned steps)
{
	enum origin others = ORIGIN_WHOLE;

	for (; steps < LOOK_BACK && flow_look(s->f, 1); steps++) {
		const struct arch_insn *def;
		arch_regset reads, writes;

		if (!flow_is_run_into(s->f, at))
			return worse(others, trace_before(s, wanted, at, steps));
		if (is_led_to_by_table(s->f, at) || ways_to(s->f, at, (size_t[WAYS_MAX]){0}))
			others = worse(others, trace_before(s, wanted, at, steps));
		def = &s->f->insns.items[--at];
		if (arch_is_call(def)) {
			/* What the call returns, or what it leaves as it was. */
			if (wanted & ~arch_callee_saved)
				return others;
			continue;
		}
		arch_effects(def, &reads, &writes);
		if (!(writes & wanted) && arch_changes(def) & wanted)
			others = worse(others, made_perhaps(s, wanted, at, steps));
		if (!(writes & wanted))
			continue;
		if (def->flags & ARCH_INSN_MEMORY)
			return worse(others, made_with_memory(s, wanted, at));
		if (__builtin_popcountll(reads) >= 2)
			return worse(others,
				     loaded_or_computed(s, &(struct addition){s->f, s->tables, at,
									      reads}));
		if (!reads || is_address_of(def))
			return others;
		if (names_code(s->f, def))
			return ORIGIN_ARITHMETIC;
		/* An address that something is added to is another one. */
		if (!s->mild && !flow_is_copy(def))
			others = worse(others, ORIGIN_ARITHMETIC);
		wanted = reads;
	}
	return worse(others, give_up(s, wanted));
}

/* How the address that the indirect jump insns[at] jumps to came about. */
static enum origin origin_of(struct search *s, const struct indirect *jump)
{
	return jump->wanted ? trace(s, jump->wanted, jump->before, 0)
			    : loaded_whole(s, jump->before);
}

/*
 * The way back was lost where the address may be one of the function's own plus
 * something. But what a return has from nobody knows where is its return address,
 * that was out of the way for a while.
 */
static bool is_lost(const struct flow *f, size_t at, const struct search *s)
{
	return s->lost && f->insns.items[at].flow != ARCH_FLOW_RETURN;
}

/*
 * Where no address of code is computed, or learnt, a pointer that was put aside, or untagged, is somebody
 * else's: a tail call. That windows must do without knowing where it leads is flow_is_riddle()'s business.
 */
static bool is_switch(const struct flow *f, size_t at, const struct indirect *jump)
{
	struct search s = {.f = f, .mild = !f->code_bases};

	return origin_of(&s, jump) != ORIGIN_WHOLE || is_lost(f, at, &s);
}

static bool looks_like_switch(const struct flow *f, size_t at)
{
	const struct arch_insn *insn = &f->insns.items[at];
	struct indirect jump;

	if (insn->flags & ARCH_INSN_PC_RELATIVE || !flow_jumps_indirectly(f, at, &jump))
		return false;
	if (insn->flags & ARCH_INSN_NO_TRACK && insn->flags & ARCH_INSN_INDEXED_JUMP)
		return true;
	return f->labels >= LABELS_MIN || flow_looked_too_often(f) ||
	       flow_jumps_by_table(f, &jump) || is_switch(f, at, &jump);
}

/*
 * All are judged at once, so that what too many looks leave out is the same for whoever
 * asks, in whatever order. Where the jumps could not be settled nothing is looked at again.
 */
bool flow_is_switch(const struct flow *f, size_t at)
{
	struct flow_ways *w = f->ways;

	/* Nothing in it jumps indirectly. */
	if (!w)
		return false;
	if (!w->judged) {
		w->judged = true;
		if (!flow_looked_too_often(f))
			w->looks = 0;
		for (size_t i = 0; i < f->insns.count; i++)
			w->switches[i] = looks_like_switch(f, i);
	}
	return w->switches[at];
}

static bool is_riddle(const struct flow *f, size_t at, const struct indirect *jump,
		      const struct table_bases *tables)
{
	struct search s = {.f = f, .tables = tables};
	enum origin origin = origin_of(&s, jump);

	if (is_lost(f, at, &s) || flow_looked_too_often(f))
		return true;
	switch (origin) {
	case ORIGIN_WHOLE:
		return false;
	case ORIGIN_TABLE:
		/* An address plus something that nobody has read leads anywhere. */
		return s.unread || !flow_tables_read(f, tables);
	default:
		return true;
	}
}

bool flow_is_riddle(const struct flow *f, size_t at, const struct table_bases *tables)
{
	struct indirect jump;

	/* Through other memory whole addresses are loaded, and those are known. */
	return flow_jumps_indirectly(f, at, &jump) &&
	       !(f->insns.items[at].flags & (ARCH_INSN_PC_RELATIVE | ARCH_INSN_INDEXED_JUMP)) &&
	       is_riddle(f, at, &jump, tables);
}

bool flow_odd_is_riddle(const struct arch_insn *insn)
{
	struct arch_memory m;

	return insn->flow == ARCH_FLOW_JUMP_INDIRECT &&
	       (!(insn->flags & ARCH_INSN_MEMORY) || loads_from_frame(insn, &m));
}
