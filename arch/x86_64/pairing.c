/* SPDX-License-Identifier: MIT */
/*
 * pairing.c - code that keeps per-thread records: what a function's entry and
 * exit execute. What it does, and why it may be interrupted anywhere, is told
 * in arch/pairing.h. Uses integer registers and plain moves; the only locked
 * instructions are in ways that are seldom gone.
 *
 * Snippets do the usual case: the thread has its record, runs on its own
 * stack, and enters below or leaves what it entered last. All else is done by
 * the routines, which find everything anew:
 *
 *	rdx  tag			r9   where to go on, in the snippet
 *	rdi  area, later bounds		rcx  thread pointer, later temporary
 *	rsi  record number, offset	r8   thread id, later bounds
 *	r10  record			rax  temporary
 *
 * A routine returns with CF set where the event is to be counted.
 */
#include "arch/pairing.h"

#include <stddef.h>

#include "arch/x86_64/x86.h"

/* glibc's and musl's struct pthread begins at the thread pointer; TLS lies below. */
const int64_t arch_thread_block_lo = 0, arch_thread_block_hi = 4096;

bool arch_thread_pointer_is_sane(taddr_t pointer, uint64_t first)
{
	return pointer && first == pointer;
}

enum {
	USES = 12, /* jumps to one label */
	SAVED = 8, /* registers that a routine changes */
	RED_ZONE = 128,
	ENTRY = sizeof(struct pair_entry),
	HOME = offsetof(struct pair_record, home),
	OTHER = offsetof(struct pair_record, other),
	WORDS = offsetof(struct pair_record, words),
	LO = offsetof(struct pair_record, lo),
	SIZE = offsetof(struct pair_record, size),
	DEPTH = offsetof(struct pair_record, depth),
	TID = offsetof(struct pair_record, tid),
	START = offsetof(struct pair_entry, start),
	OTHER_BYTES = PAIR_OTHER * ENTRY,
};

/* Opcodes of the form OP r, r/m (Intel SDM volume 2). */
enum {
	ADD_LOAD = 0x03,
	AND_STORE = 0x21,
	SUB_LOAD = 0x2b,
	XOR_STORE = 0x31,
	CMP_STORE = 0x39, /* memory - register */
	CMP_LOAD = 0x3b,  /* register - memory */
	MOVSXD = 0x63,
	TEST = 0x85,
	STORE = 0x89,
	LOAD = 0x8b,
	LEA = 0x8d,
};

/* Opcode extensions of 81 and 83, and condition codes of 0f 80. */
enum { IMM_ADD = 0, IMM_OR = 1, IMM_AND = 4, IMM_SUB = 5, IMM_CMP = 7 };
enum { JUMP_C = 2, JUMP_NC = 3, JUMP_E = 4, JUMP_NE = 5, JUMP_A = 7, JUMP_ALWAYS = 16 };

struct mem {
	unsigned base;
	int index; /* -1: none */
	unsigned scale;
	int32_t disp;
};

static struct mem at(unsigned base, int32_t disp)
{
	return (struct mem){base, -1, 1, disp};
}

static struct mem at_index(unsigned base, unsigned index, unsigned scale, int32_t disp)
{
	return (struct mem){base, (int)index, scale, disp};
}

/* ------------------------------------------------------------- instructions */

static unsigned log2_of(unsigned scale)
{
	return scale == 8 ? 3 : scale / 2;
}

/* One instruction with a memory operand, always with a 32-bit displacement. */
static void op_mem(struct arch_buf *out, bool wide, unsigned opcode, unsigned reg, struct mem m)
{
	const bool sib = m.index >= 0 || (m.base & 7) == RSP;
	const unsigned rex = (wide ? REX_W : 0) | (reg >= 8 ? REX_R : 0) |
			     (m.index >= 8 ? REX_X : 0) | (m.base >= 8 ? REX_B : 0);

	if (rex)
		x86_emit8(out, 0x40 | rex);
	if (opcode > 0xff)
		x86_emit8(out, opcode >> 8);
	x86_emit8(out, opcode & 0xff);
	x86_emit8(out, 0x80 | (reg & 7) << 3 | (sib ? RSP : m.base & 7));
	if (sib)
		x86_emit8(out, log2_of(m.scale) << 6 |
				       (m.index >= 0 ? (unsigned)m.index & 7 : RSP) << 3 |
				       (m.base & 7));
	x86_emit32(out, (uint32_t)m.disp);
}

/* OP with two registers: `reg` is the ModRM.reg one. */
static void op_reg(struct arch_buf *out, bool wide, unsigned opcode, unsigned reg, unsigned rm)
{
	const unsigned rex = (wide ? REX_W : 0) | (reg >= 8 ? REX_R : 0) | (rm >= 8 ? REX_B : 0);

	if (rex)
		x86_emit8(out, 0x40 | rex);
	x86_emit8(out, opcode);
	x86_emit8(out, 0xc0 | (reg & 7) << 3 | (rm & 7));
}

static void load(struct arch_buf *out, unsigned reg, struct mem m)
{
	op_mem(out, true, LOAD, reg, m);
}

static void load32(struct arch_buf *out, unsigned reg, struct mem m)
{
	op_mem(out, false, LOAD, reg, m);
}

static void store(struct arch_buf *out, unsigned reg, struct mem m)
{
	op_mem(out, true, STORE, reg, m);
}

static void store32(struct arch_buf *out, unsigned reg, struct mem m)
{
	op_mem(out, false, STORE, reg, m);
}

static void move(struct arch_buf *out, unsigned from, unsigned to)
{
	op_reg(out, true, STORE, from, to);
}

static void move32(struct arch_buf *out, unsigned from, unsigned to)
{
	op_reg(out, false, STORE, from, to);
}

/* A number, sign-extended from 32 bits, into memory. */
static void store_number(struct arch_buf *out, bool wide, int32_t value, struct mem m)
{
	op_mem(out, wide, 0xc7, 0, m);
	x86_emit32(out, (uint32_t)value);
}

static void immediate(struct arch_buf *out, bool wide, unsigned operation, int32_t value,
		      unsigned reg)
{
	const bool byte = value == (int8_t)value;

	op_reg(out, wide, byte ? 0x83 : 0x81, operation, reg);
	if (byte)
		x86_emit8(out, (unsigned)value & 0xff);
	else
		x86_emit32(out, (uint32_t)value);
}

static void compare_number(struct arch_buf *out, bool wide, int8_t value, struct mem m)
{
	op_mem(out, wide, 0x83, IMM_CMP, m);
	x86_emit8(out, (unsigned)value & 0xff);
}

static void number32(struct arch_buf *out, unsigned reg, uint32_t value)
{
	if (reg >= 8)
		x86_emit8(out, 0x41);
	x86_emit8(out, 0xb8 | (reg & 7));
	x86_emit32(out, value);
}

static void number64(struct arch_buf *out, unsigned reg, uint64_t value)
{
	x86_emit8(out, 0x48 | (reg >= 8 ? REX_B : 0));
	x86_emit8(out, 0xb8 | (reg & 7));
	x86_emit64(out, value);
}

static void shift(struct arch_buf *out, bool wide, bool left, unsigned reg, unsigned count)
{
	op_reg(out, wide, 0xc1, left ? 4 : 5, reg);
	x86_emit8(out, count);
}

/* from * number, both 32 bits, into `to`. */
static void multiply(struct arch_buf *out, uint32_t number, unsigned from, unsigned to)
{
	op_reg(out, false, 0x69, to, from);
	x86_emit32(out, number);
}

/* cmpxchg: the accumulator is 0; ZF where it was stored. */
static void exchange_if_zero(struct arch_buf *out, bool locked, unsigned reg, struct mem m)
{
	op_reg(out, false, XOR_STORE, RAX, RAX);
	if (locked)
		x86_emit8(out, 0xf0);
	op_mem(out, true, 0x0fb1, reg, m);
}

/* mov %fs:0,%reg: the psABI has the thread pointer there. */
static void thread_pointer(struct arch_buf *out, unsigned reg)
{
	x86_emit8(out, 0x64);
	x86_emit8(out, 0x48 | (reg >= 8 ? REX_R : 0));
	x86_emit8(out, LOAD);
	x86_emit8(out, (reg & 7) << 3 | 4);
	x86_emit8(out, 0x25);
	x86_emit32(out, 0);
}

static void push_pop(struct arch_buf *out, unsigned opcode, unsigned reg)
{
	if (reg >= 8)
		x86_emit8(out, 0x41);
	x86_emit8(out, opcode | (reg & 7));
}

/* ------------------------------------------------------------------- labels */

/* A place in a buffer; jumps to it may come before it is known. */
struct label {
	struct arch_buf *out; /* where the jumps are */
	size_t uses[USES];
	unsigned count;
	bool known;
	taddr_t address;
};

static void patch_use(struct label *l, size_t use)
{
	const uint64_t distance = l->address - (l->out->pc + use + 4);

	if (l->out->status != ARCH_OK)
		return;
	if (!x86_fits32((int64_t)distance)) {
		x86_fail(l->out, ARCH_OUT_OF_RANGE);
		return;
	}
	for (unsigned i = 0; i < 4; i++)
		l->out->bytes[use + i] = distance >> (8 * i);
}

static void jump(struct arch_buf *out, unsigned condition, struct label *l)
{
	if (condition == JUMP_ALWAYS) {
		x86_emit8(out, 0xe9);
	} else {
		x86_emit8(out, 0x0f);
		x86_emit8(out, 0x80 | condition);
	}
	l->out = out;
	x86_emit32(out, 0);
	if (l->known)
		patch_use(l, out->used - 4);
	else if (l->count < USES)
		l->uses[l->count++] = out->used - 4;
	else
		x86_fail(out, ARCH_NO_ROOM);
}

static void place_at(struct label *l, taddr_t address)
{
	l->known = true;
	l->address = address;
	for (unsigned i = 0; i < l->count; i++)
		patch_use(l, l->uses[i]);
}

static void place(struct arch_buf *out, struct label *l)
{
	place_at(l, arch_here(out));
}

/* ----------------------------------------------------------- the records */

static struct mem key_at(unsigned area, unsigned number)
{
	return at_index(area, number, 8, (int32_t)pair_keys());
}

static struct mem owner_at(const struct arch_pairing *spec, unsigned area, unsigned number)
{
	return at_index(area, number, 4, (int32_t)pair_owners(spec->shift));
}

/* The next of 2^shift places. */
static void emit_next(struct arch_buf *out, const struct arch_pairing *spec, unsigned reg,
		      int32_t step)
{
	immediate(out, false, IMM_ADD, step, reg);
	immediate(out, false, IMM_AND, (1 << spec->shift) - 1, reg);
}

static void emit_hash(struct arch_buf *out, const struct arch_pairing *spec, unsigned from,
		      unsigned to)
{
	multiply(out, PAIR_HASH, from, to);
	shift(out, false, false, to, 32 - spec->shift);
}

static void emit_count_down(struct arch_buf *out, unsigned reg, struct label *again)
{
	immediate(out, false, IMM_SUB, 1, reg);
	jump(out, JUMP_NE, again);
}

/* Sets r10 to the record number rsi. */
static void emit_record(struct arch_buf *out, const struct arch_pairing *spec)
{
	move32(out, RSI, R10);
	shift(out, true, true, R10, PAIR_RECORD_SHIFT);
	op_mem(out, true, LEA, R10, at_index(RDI, R10, 1, (int32_t)pair_records(spec->shift)));
}

/*
 * Claims a record that nobody has: rcx is written as its key. A handler may
 * have claimed another one for the same thread since we looked: then ours goes
 * back, and `found` goes on with that one. Ends in `fresh`, `found` or `none`.
 */
static void emit_claim(struct arch_buf *out, const struct arch_pairing *spec, struct label *fresh,
		       struct label *found, struct label *none)
{
	struct label again = {0}, next = {0}, claimed = {0}, look = {0}, skip = {0}, twice = {0};

	number32(out, R10, PAIR_PROBE);
	place(out, &again);
	compare_number(out, true, 0, key_at(RDI, RSI));
	jump(out, JUMP_NE, &next);
	exchange_if_zero(out, true, RCX, key_at(RDI, RSI));
	jump(out, JUMP_E, &claimed);
	op_reg(out, true, CMP_STORE, RCX, RAX);
	jump(out, JUMP_E, found);
	place(out, &next);
	emit_next(out, spec, RSI, 1);
	emit_count_down(out, R10, &again);
	jump(out, JUMP_ALWAYS, none);

	place(out, &claimed);
	move32(out, RSI, RAX);
	emit_hash(out, spec, RCX, RSI);
	number32(out, R10, PAIR_PROBE);
	place(out, &look);
	op_reg(out, false, CMP_STORE, RSI, RAX);
	jump(out, JUMP_E, &skip);
	op_mem(out, true, CMP_STORE, RCX, key_at(RDI, RSI));
	jump(out, JUMP_E, &twice);
	place(out, &skip);
	emit_next(out, spec, RSI, 1);
	emit_count_down(out, R10, &look);
	move32(out, RAX, RSI);
	jump(out, JUMP_ALWAYS, fresh);

	place(out, &twice);
	move32(out, RAX, R10);
	shift(out, true, true, R10, PAIR_RECORD_SHIFT);
	store_number(out, false, 0,
		     at_index(RDI, R10, 1, (int32_t)pair_records(spec->shift) + TID));
	store_number(out, true, 0, key_at(RDI, RAX));
	jump(out, JUMP_ALWAYS, found);
}

/* A forked child: the parent counts what is in the record (r10). */
static void emit_inherit(struct arch_buf *out, const struct arch_pairing *spec)
{
	struct label home = {0}, empty = {0}, other = {0};

	load32(out, RAX, at(R10, DEPTH));
	place(out, &home);
	op_reg(out, false, TEST, RAX, RAX);
	jump(out, JUMP_E, &empty);
	store_number(out, true, -1, at_index(R10, RAX, 1, HOME - ENTRY + START));
	immediate(out, false, IMM_SUB, ENTRY, RAX);
	jump(out, JUMP_ALWAYS, &home);
	place(out, &empty);
	number32(out, RAX, OTHER_BYTES);
	place(out, &other);
	store_number(out, true, -1, at_index(R10, RAX, 1, OTHER - ENTRY + START));
	immediate(out, false, IMM_SUB, ENTRY, RAX);
	jump(out, JUMP_NE, &other);
	store32(out, R8, at(R10, TID));
	store32(out, R8, owner_at(spec, RDI, RSI));
}

/* Where the thread's own stack is. Destroys rax and rcx. */
static void emit_bounds(struct arch_buf *out)
{
	struct label main = {0}, done = {0};

	store_number(out, true, 0, at(R10, SIZE));
	op_mem(out, true, CMP_STORE, RCX, at(RDI, offsetof(struct pair_config, main_pointer)));
	jump(out, JUMP_E, &main);
	op_mem(out, true, MOVSXD, RAX, at(RDI, offsetof(struct pair_config, stack_offset)));
	op_reg(out, true, TEST, RAX, RAX);
	jump(out, JUMP_E, &done);
	op_reg(out, true, ADD_LOAD, RAX, RCX);
	load(out, RCX, at(RAX, 0));
	op_reg(out, true, TEST, RCX, RCX);
	jump(out, JUMP_E, &main);
	load(out, RAX, at(RAX, 8));
	shift(out, true, true, RCX, PAIR_ID_BITS);
	shift(out, true, true, RAX, PAIR_ID_BITS);
	store(out, RCX, at(R10, LO));
	store(out, RAX, at(R10, SIZE));
	jump(out, JUMP_ALWAYS, &done);
	place(out, &main);
	load(out, RAX, at(RDI, offsetof(struct pair_config, main_lo)));
	store(out, RAX, at(R10, LO));
	load(out, RAX, at(RDI, offsetof(struct pair_config, main_size)));
	store(out, RAX, at(R10, SIZE));
	place(out, &done);
}

/* Clears `bytes` of the record from `offset` on, `step` at a time, the last ones first. */
static void emit_clear(struct arch_buf *out, uint32_t offset, uint32_t bytes, uint32_t step)
{
	struct label again = {0};

	number32(out, RAX, bytes);
	place(out, &again);
	store_number(out, true, 0, at_index(R10, RAX, 1, (int32_t)(offset - step)));
	immediate(out, false, IMM_SUB, (int32_t)step, RAX);
	jump(out, JUMP_NE, &again);
}

/* Nothing of the thread that had the record before stays in it. */
static void emit_reset(struct arch_buf *out, const struct arch_pairing *spec)
{
	store_number(out, false, 0, at(R10, TID));
	store_number(out, false, 0, at(R10, DEPTH));
	store_number(out, true, -1, at(R10, HOME - ENTRY));
	emit_clear(out, OTHER, OTHER_BYTES, ENTRY);
	emit_clear(out, WORDS, PAIR_WORDS * 8, 8);
	emit_bounds(out);
	store32(out, R8, owner_at(spec, RDI, RSI));
	store32(out, R8, at(R10, TID));
}

/* Sets r10 to the thread's record, made if need be; goes to `none` if there is none. */
static void emit_find(struct arch_buf *out, const struct arch_pairing *spec, struct label *none)
{
	struct label again = {0}, found = {0}, fresh = {0}, reset = {0}, ready = {0};

	number64(out, RDI, spec->area);
	thread_pointer(out, RCX);
	load32(out, R8, at(RCX, spec->tid_offset));
	op_reg(out, false, TEST, R8, R8);
	jump(out, JUMP_E, none);
	emit_hash(out, spec, RCX, RSI);
	number32(out, R10, PAIR_PROBE);
	place(out, &again);
	op_mem(out, true, CMP_STORE, RCX, key_at(RDI, RSI));
	jump(out, JUMP_E, &found);
	emit_next(out, spec, RSI, 1);
	emit_count_down(out, R10, &again);
	emit_next(out, spec, RSI, -PAIR_PROBE);
	emit_claim(out, spec, &fresh, &found, none);

	place(out, &found);
	load32(out, RAX, owner_at(spec, RDI, RSI));
	emit_record(out, spec);
	op_reg(out, false, CMP_STORE, R8, RAX);
	jump(out, JUMP_E, &ready);
	op_reg(out, false, TEST, RAX, RAX);
	jump(out, JUMP_NE, &reset);
	compare_number(out, false, 0, at(R10, TID));
	jump(out, JUMP_E, &reset);
	emit_inherit(out, spec);
	jump(out, JUMP_ALWAYS, &ready);
	place(out, &fresh);
	emit_record(out, spec);
	place(out, &reset);
	emit_reset(out, spec);
	place(out, &ready);
}

/* ------------------------------------------------------------- the routines */

/* Goes to `elsewhere` unless the tag is on the thread's own stack. Destroys rax. */
static void emit_is_home(struct arch_buf *out, struct label *elsewhere)
{
	move(out, RDX, RAX);
	op_mem(out, true, SUB_LOAD, RAX, at(R10, LO));
	op_mem(out, true, CMP_LOAD, RAX, at(R10, SIZE));
	jump(out, JUMP_NC, elsewhere);
}

/* r8: the highest tag of this stack pointer, rdi: the lowest, which is no function's. */
static void emit_limits(struct arch_buf *out)
{
	move(out, RDX, R8);
	immediate(out, true, IMM_OR, (int32_t)PAIR_ID_MASK, R8);
	move(out, RDX, RDI);
	immediate(out, true, IMM_AND, (int32_t)~PAIR_ID_MASK, RDI);
}

/* rsi: offset of the first place of the tag in `other`; rcx: how many there are. */
static void emit_other(struct arch_buf *out)
{
	move(out, RDX, RAX);
	shift(out, true, false, RAX, PAIR_ID_BITS + 3);
	multiply(out, PAIR_HASH, RAX, RSI);
	shift(out, false, false, RSI, 32 - 7);
	shift(out, false, true, RSI, 4);
	number32(out, RCX, PAIR_OTHER_PROBE);
}

static void emit_other_next(struct arch_buf *out, int32_t step)
{
	immediate(out, false, IMM_ADD, step * ENTRY, RSI);
	immediate(out, false, IMM_AND, OTHER_BYTES - ENTRY, RSI);
}

static void emit_statistic(struct arch_buf *out, const struct arch_pairing *spec, size_t offset)
{
	number64(out, RDI, spec->area);
	load(out, RCX, at(RDI, (int32_t)offset));
	x86_emit8(out, 0xf0);
	op_mem(out, true, 0xff, 0, at(RCX, 0)); /* lock incq */
}

static void emit_return(struct arch_buf *out, bool count)
{
	static const uint8_t notrack_jump_r9[] = {0x3e, 0x41, 0xff, 0xe1};

	x86_emit8(out, count ? 0xf9 : 0xf8); /* stc, clc */
	x86_emit(out, notrack_jump_r9, sizeof(notrack_jump_r9));
}

/*
 * rax: the depth without what is dead, rcx and rsi destroyed. Dead is what was
 * entered below, and at the same stack pointer the same function with all that
 * came after it. (Others there may be alive: two requests for one function.)
 */
static void emit_drop(struct arch_buf *out)
{
	struct label next = {0}, cut = {0}, done = {0};

	load32(out, RSI, at(R10, DEPTH));
	move32(out, RSI, RAX);
	place(out, &next);
	load(out, RCX, at_index(R10, RSI, 1, HOME - ENTRY));
	op_reg(out, true, CMP_STORE, R8, RCX);
	jump(out, JUMP_A, &done);
	immediate(out, false, IMM_SUB, ENTRY, RSI);
	op_reg(out, true, CMP_STORE, RDX, RCX);
	jump(out, JUMP_E, &cut);
	op_reg(out, true, CMP_STORE, RDI, RCX);
	jump(out, JUMP_C, &cut);
	jump(out, JUMP_NE, &next);
	/* A gap that an exit left: dead if all above it is. */
	op_mem(out, false, LEA, RCX, at(RSI, ENTRY));
	op_reg(out, false, CMP_STORE, RAX, RCX);
	jump(out, JUMP_NE, &next);
	place(out, &cut);
	move32(out, RSI, RAX);
	jump(out, JUMP_ALWAYS, &next);
	place(out, &done);
}

static void emit_enter_routine(struct arch_buf *out, const struct arch_pairing *spec)
{
	struct label none = {0}, elsewhere = {0}, again = {0}, full = {0}, look = {0}, take = {0},
		     set = {0};

	emit_find(out, spec, &none);
	emit_is_home(out, &elsewhere);
	emit_limits(out);
	place(out, &again);
	emit_drop(out);
	immediate(out, false, IMM_CMP, PAIR_HOME * ENTRY, RAX);
	jump(out, JUMP_NC, &full);
	store(out, RDX, at_index(R10, RAX, 1, HOME));
	immediate(out, false, IMM_ADD, ENTRY, RAX);
	store32(out, RAX, at(R10, DEPTH));
	/* A handler in between may have had the place for itself. */
	op_mem(out, false, CMP_STORE, RAX, at(R10, DEPTH));
	jump(out, JUMP_NE, &again);
	op_mem(out, true, CMP_STORE, RDX, at_index(R10, RAX, 1, HOME - ENTRY));
	jump(out, JUMP_NE, &again);
	store_number(out, true, 0, at_index(R10, RAX, 1, HOME - ENTRY + START));
	emit_return(out, true);

	place(out, &elsewhere);
	emit_other(out);
	place(out, &look);
	op_mem(out, true, CMP_STORE, RDX, at_index(R10, RSI, 1, OTHER));
	jump(out, JUMP_E, &set);
	emit_other_next(out, 1);
	emit_count_down(out, RCX, &look);
	emit_other_next(out, -PAIR_OTHER_PROBE);
	number32(out, RCX, PAIR_OTHER_PROBE);
	place(out, &take);
	exchange_if_zero(out, false, RDX, at_index(R10, RSI, 1, OTHER));
	jump(out, JUMP_E, &set);
	emit_other_next(out, 1);
	emit_count_down(out, RCX, &take);
	place(out, &full);
	emit_statistic(out, spec, offsetof(struct pair_config, overflow));
	emit_return(out, true);
	place(out, &set);
	store_number(out, true, 0, at_index(R10, RSI, 1, OTHER + START));
	emit_return(out, true);
	place(out, &none);
	emit_statistic(out, spec, offsetof(struct pair_config, lost));
	emit_return(out, true);
}

/*
 * Finds the activation and takes it out with all that was entered below. What
 * another request entered at the same stack pointer afterwards stays; then a
 * gap is left. Leaves its start in rcx, or goes to `orphan`.
 */
static void emit_pop(struct arch_buf *out, struct label *orphan, struct label *judge)
{
	struct label next = {0}, hit = {0}, pop = {0};

	load32(out, RSI, at(R10, DEPTH));
	op_reg(out, false, XOR_STORE, RAX, RAX);
	place(out, &next);
	load(out, RCX, at_index(R10, RSI, 1, HOME - ENTRY));
	op_reg(out, true, CMP_STORE, R8, RCX);
	jump(out, JUMP_A, orphan);
	immediate(out, false, IMM_SUB, ENTRY, RSI);
	op_reg(out, true, CMP_STORE, RDX, RCX);
	jump(out, JUMP_E, &hit);
	op_reg(out, true, CMP_STORE, RDI, RCX);
	jump(out, JUMP_C, &next); /* below */
	jump(out, JUMP_E, &next); /* a gap */
	op_reg(out, false, TEST, RAX, RAX);
	jump(out, JUMP_NE, &next);
	op_mem(out, false, LEA, RAX, at(RSI, ENTRY));
	jump(out, JUMP_ALWAYS, &next);
	place(out, &hit);
	load(out, RCX, at_index(R10, RSI, 1, HOME + START));
	op_reg(out, false, TEST, RAX, RAX);
	jump(out, JUMP_E, &pop);
	store(out, RDI, at_index(R10, RSI, 1, HOME));
	store32(out, RAX, at(R10, DEPTH));
	jump(out, JUMP_ALWAYS, judge);
	place(out, &pop);
	store_number(out, true, 0, at_index(R10, RSI, 1, HOME));
	store32(out, RSI, at(R10, DEPTH));
	jump(out, JUMP_ALWAYS, judge);
}

static void emit_leave_routine(struct arch_buf *out, const struct arch_pairing *spec)
{
	struct label orphan = {0}, elsewhere = {0}, look = {0}, hit = {0}, judge = {0},
		     inherited = {0};

	emit_find(out, spec, &orphan);
	emit_is_home(out, &elsewhere);
	emit_limits(out);
	emit_pop(out, &orphan, &judge);

	place(out, &elsewhere);
	emit_other(out);
	place(out, &look);
	op_mem(out, true, CMP_STORE, RDX, at_index(R10, RSI, 1, OTHER));
	jump(out, JUMP_E, &hit);
	emit_other_next(out, 1);
	emit_count_down(out, RCX, &look);
	place(out, &orphan);
	emit_statistic(out, spec, offsetof(struct pair_config, orphans));
	emit_return(out, false);
	place(out, &hit);
	load(out, RCX, at_index(R10, RSI, 1, OTHER + START));
	store_number(out, true, 0, at_index(R10, RSI, 1, OTHER));
	place(out, &judge);
	immediate(out, true, IMM_CMP, -1, RCX);
	jump(out, JUMP_E, &inherited);
	emit_return(out, true);
	place(out, &inherited);
	emit_return(out, false);
}

void arch_emit_pairing_routines(struct arch_buf *out, const struct arch_pairing *spec,
				size_t *enter, size_t *leave)
{
	if (spec->shift < PAIR_SHIFT_MIN || spec->shift > PAIR_SHIFT_MAX)
		x86_fail(out, ARCH_OUT_OF_RANGE);
	*enter = out->used;
	emit_enter_routine(out, spec);
	*leave = out->used;
	emit_leave_routine(out, spec);
}

/* ------------------------------------------------------------- the snippets */

void arch_pairing_needs(const struct arch_pairing *spec, struct arch_frame *frame)
{
	frame->needs |= ARCH_NEED_FLAGS;
	if (frame->scratch < 4)
		frame->scratch = 4;
	if (spec->count)
		arch_count_needs(spec->count, frame);
}

/* The thread's tag in reg[0] and its record in reg[2]; all others are changed. */
static void emit_usual_record(struct arch_buf *out, const struct arch_pairing *spec,
			      const struct arch_frame *frame, struct label *unusual)
{
	const uint8_t *r = frame->reg;

	op_mem(out, true, LEA, r[0], at(RSP, frame->pushed + frame->before));
	shift(out, true, true, r[0], PAIR_ID_BITS);
	immediate(out, true, IMM_OR, (int32_t)spec->function, r[0]);
	thread_pointer(out, r[1]);
	number64(out, r[3], spec->area);
	emit_hash(out, spec, r[1], r[2]);
	op_mem(out, true, CMP_STORE, r[1], key_at(r[3], r[2]));
	jump(out, JUMP_NE, unusual);
	load32(out, r[1], at(r[1], spec->tid_offset));
	op_mem(out, false, CMP_STORE, r[1], owner_at(spec, r[3], r[2]));
	jump(out, JUMP_NE, unusual);
	shift(out, false, true, r[2], PAIR_RECORD_SHIFT);
	op_mem(out, true, LEA, r[2], at_index(r[3], r[2], 1, (int32_t)pair_records(spec->shift)));
}

/*
 * The way through a routine, in the cold part: it puts every register back.
 * Returns where it begins; it ends at `counted` or `uncounted`.
 */
static void emit_unusual(struct arch_buf *cold, const struct arch_frame *frame, taddr_t routine,
			 struct label *counted, struct label *uncounted)
{
	static const uint8_t saved[SAVED] = {RAX, RCX, RDX, RSI, RDI, R8, R9, R10};
	const size_t extra = RED_ZONE + sizeof(saved) * 8;
	size_t back;

	arch_note_pushed(cold, frame->pushed);
	op_mem(cold, true, LEA, RSP, at(RSP, -RED_ZONE));
	for (size_t i = 0; i < sizeof(saved); i++) {
		arch_note_pushed(cold, frame->pushed + RED_ZONE + 8 * i);
		push_pop(cold, 0x50, saved[i]);
	}
	arch_note_pushed(cold, frame->pushed + extra);
	move(cold, frame->reg[0], RDX);
	x86_emit8(cold, 0x4c); /* lea back(%rip),%r9 */
	x86_emit8(cold, LEA);
	x86_emit8(cold, 0x0d);
	back = cold->used;
	x86_emit_relative(cold, arch_here(cold) + 9);
	arch_emit_jump(cold, routine);
	if (cold->status == ARCH_OK && cold->used != back + 9)
		x86_fail(cold, ARCH_REFUSED);
	for (size_t i = sizeof(saved); i-- > 0;) {
		push_pop(cold, 0x58, saved[i]);
		arch_note_pushed(cold, frame->pushed + RED_ZONE + 8 * i);
	}
	op_mem(cold, true, LEA, RSP, at(RSP, RED_ZONE));
	arch_note_pushed(cold, frame->pushed);
	jump(cold, JUMP_NC, uncounted);
	jump(cold, JUMP_ALWAYS, counted);
}

void arch_emit_enter(const struct arch_pairing *spec, const struct arch_frame *frame,
		     struct arch_buf *out, struct arch_buf *cold)
{
	const unsigned tag = frame->reg[0], a = frame->reg[1], record = frame->reg[2],
		       depth = frame->reg[3];
	struct label unusual = {0}, counted = {0};

	emit_usual_record(out, spec, frame, &unusual);
	move(out, tag, a);
	op_mem(out, true, SUB_LOAD, a, at(record, LO));
	op_mem(out, true, CMP_LOAD, a, at(record, SIZE));
	jump(out, JUMP_NC, &unusual);
	load32(out, depth, at(record, DEPTH));
	op_mem(out, true, CMP_LOAD, tag, at_index(record, depth, 1, HOME - ENTRY));
	jump(out, JUMP_NC, &unusual);
	immediate(out, false, IMM_CMP, PAIR_HOME * ENTRY, depth);
	jump(out, JUMP_NC, &unusual);
	store(out, tag, at_index(record, depth, 1, HOME));
	immediate(out, false, IMM_ADD, ENTRY, depth);
	store32(out, depth, at(record, DEPTH));
	op_mem(out, false, CMP_STORE, depth, at(record, DEPTH));
	jump(out, JUMP_NE, &unusual);
	op_mem(out, true, CMP_STORE, tag, at_index(record, depth, 1, HOME - ENTRY));
	jump(out, JUMP_NE, &unusual);
	store_number(out, true, 0, at_index(record, depth, 1, HOME - ENTRY + START));

	place_at(&unusual, arch_here(cold));
	place_at(&counted, arch_here(out));
	emit_unusual(cold, frame, spec->enter, &counted, &counted);
	if (spec->count)
		arch_emit_count(spec->count, frame, out, cold);
}

void arch_emit_leave(const struct arch_pairing *spec, const struct arch_frame *frame,
		     struct arch_buf *out, struct arch_buf *cold)
{
	const unsigned tag = frame->reg[0], record = frame->reg[2], depth = frame->reg[3];
	struct label unusual = {0}, counted = {0}, uncounted = {0};

	emit_usual_record(out, spec, frame, &unusual);
	load32(out, depth, at(record, DEPTH));
	op_mem(out, true, CMP_STORE, tag, at_index(record, depth, 1, HOME - ENTRY));
	jump(out, JUMP_NE, &unusual);
	compare_number(out, true, -1, at_index(record, depth, 1, HOME - ENTRY + START));
	jump(out, JUMP_E, &unusual);
	store_number(out, true, 0, at_index(record, depth, 1, HOME - ENTRY));
	immediate(out, false, IMM_SUB, ENTRY, depth);
	store32(out, depth, at(record, DEPTH));

	place_at(&unusual, arch_here(cold));
	place_at(&counted, arch_here(out));
	emit_unusual(cold, frame, spec->leave, &counted, &uncounted);
	if (spec->count)
		arch_emit_count(spec->count, frame, out, cold);
	place_at(&uncounted, arch_here(out));
}
