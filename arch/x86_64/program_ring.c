/* SPDX-License-Identifier: MIT */
/*
 * program_ring.c - operations of programs that write events (arch/ring.h).
 *
 *     hot                                        cold
 *     r = ring 0 of the CPU's block              CPU not known: of a block by thread id
 *     lock cmpxchg: 0 -> thread id               no id: dropped
 *                                                taken: the other rings; none: dropped
 *     no room? ->                                free it, the other rings
 *     lfence, rdtsc -> opened
 *     does not fit in this lap? ->               filler, and the next lap; no room: dropped
 *     the record's header
 *     ... fields ...
 *     head += size; lock = 0                     not its holder: nothing
 *
 * The fence keeps the clock from being read before the ring is taken, and so
 * before the thread's last record can be seen. Stores are seen in their order.
 * The one who is interrupted anywhere in here keeps the ring taken: nobody
 * touches it, and nobody waits for it.
 *
 * Must never write outside of the ring, whatever is in it: positions are cut to
 * its size before they are used.
 */
#include "arch/x86_64/emitter.h"

#include <stddef.h>

enum {
	LOCK = 0xf0,
	CMPXCHG = 0x0fb1,
	RSEQ_CPU_ID = 4, /* struct rseq */
	AT_LOCK = offsetof(struct arch_ring, lock),
	AT_DROPPED = offsetof(struct arch_ring, dropped),
	AT_HEAD = offsetof(struct arch_ring, head),
	AT_OPENED = offsetof(struct arch_ring, opened),
	AT_TAIL = offsetof(struct arch_ring, tail),
	AT_RECORDS = offsetof(struct arch_ring, records),
	ID = offsetof(struct arch_record, id),
	SIZE = offsetof(struct arch_record, size),
	TICKS = offsetof(struct arch_record, ticks),
	TID = offsetof(struct arch_record, tid),
	RECORD_FLAGS = offsetof(struct arch_record, flags),
};

/* One opening: registers, and where its ways meet. */
struct opening {
	unsigned ring, record, tid, other;
	int32_t bytes, size; /* of the ring, of the record */
	struct asm_label index, roomy, placed, done, dropped, no_id, full, full_next;
};

bool ring_wish(const struct x86_plan *plan, const struct arch_op *op, struct register_wish *wish)
{
	(void)plan;
	switch (op->kind) {
	case ARCH_OP_RING_OPEN:
		wish->temps = 2;
		wish->destroys = SET(RAX) | SET(RDX);
		wish->early = true;
		return true;
	case ARCH_OP_RING_BYTES:
		wish->temps = 1;
		return true;
	case ARCH_OP_RING_CLOSE:
		wish->temps = 1;
		return true;
	default:
		return false;
	}
}

/* An addition of 1 among processors. */
static void emit_count_up(struct arch_buf *out, struct asm_mem m)
{
	x86_emit8(out, LOCK);
	asm_op_mem(out, true, 0xff, 0, m);
}

static void emit_address(struct arch_buf *out, unsigned reg, taddr_t address)
{
	if (address <= INT32_MAX)
		asm_number32(out, reg, (uint32_t)address);
	else
		asm_number64(out, reg, address);
}

/* ZF is set where the ring was free; it is ours then. rax is changed. */
static void emit_take(struct arch_buf *out, const struct opening *o)
{
	asm_op_reg(out, false, ASM_XOR_STORE, RAX, RAX);
	x86_emit8(out, LOCK);
	asm_op_mem(out, true, CMPXCHG, o->tid, asm_at(o->ring, AT_LOCK));
}

/* The first ring of the block that `ring` is the number of. */
static void emit_ring_of_block(struct emitter *e, const struct opening *o)
{
	const struct arch_stream *s = &e->env->stream;

	asm_shift(e->out, true, true, o->ring, s->cpu_shift);
	if (s->rings <= INT32_MAX) {
		asm_op_mem(e->out, true, ASM_LEA, o->ring, asm_at(o->ring, (int32_t)s->rings));
	} else {
		asm_number64(e->out, o->other, s->rings);
		asm_op_reg(e->out, true, ASM_ADD_STORE, o->other, o->ring);
	}
}

/* arch_ring_block() */
static void emit_block_of_thread(struct arch_buf *out, const struct opening *o,
				 const struct arch_stream *s)
{
	if (!s->spread) {
		asm_number32(out, o->ring, s->cpus);
		return;
	}
	asm_multiply(out, 0x9e3779b1u, o->tid, o->ring);
	asm_op_reg(out, true, 0x69, o->ring, o->ring);
	x86_emit32(out, s->spread);
	asm_shift(out, true, false, o->ring, 32);
}

/* Number of the block into `ring`. */
static void emit_block(struct emitter *e, struct opening *o)
{
	const int64_t offset = e->env->counter.rseq_offset;
	const struct arch_stream *s = &e->env->stream;
	struct asm_label unknown = {0};

	if (!offset) {
		emit_block_of_thread(e->out, o, s);
		return;
	}
	asm_load_thread(e->out, false, o->ring, (int32_t)offset + RSEQ_CPU_ID);
	asm_immediate(e->out, false, ASM_IMM_CMP, (int32_t)s->cpus, o->ring);
	asm_jump(e->out, ASM_JUMP_NC, &unknown);
	asm_place(e->out, &o->index);
	/* -1 and -2, and what was written there by mistake. */
	asm_place_at(&unknown, arch_here(e->cold));
	emit_block_of_thread(e->cold, o, s);
	asm_jump(e->cold, ASM_JUMP_ALWAYS, &o->index);
}

static void emit_free(struct arch_buf *out, const struct opening *o)
{
	asm_store_number(out, true, 0, asm_at(o->ring, AT_LOCK));
}

/* The ring's head into `record`. "Above" holds where the record has no room behind it. */
static void emit_look(struct arch_buf *out, const struct opening *o)
{
	asm_load(out, o->record, asm_at(o->ring, AT_HEAD));
	asm_op_mem(out, true, ASM_LEA, o->other, asm_at(o->record, o->size));
	asm_op_mem(out, true, ASM_SUB_LOAD, o->other, asm_at(o->ring, AT_TAIL));
	asm_immediate(out, true, ASM_IMM_CMP, o->bytes, o->other);
}

/* One of the other rings, if it is free and has room. */
static void emit_other(struct arch_buf *cold, struct opening *o)
{
	struct asm_label busy = {0};

	emit_take(cold, o);
	asm_jump(cold, ASM_JUMP_NE, &busy);
	emit_look(cold, o);
	asm_jump(cold, ASM_JUMP_BE, &o->roomy);
	emit_free(cold, o);
	asm_place(cold, &busy);
}

/* The first ring is taken, or full: the others, one after the other. */
static void emit_others(struct emitter *e, struct opening *o, struct asm_label *busy)
{
	const struct arch_stream *s = &e->env->stream;
	struct arch_buf *cold = e->cold;

	asm_place_at(&o->full, arch_here(cold));
	emit_free(cold, o);
	asm_place_at(busy, arch_here(cold));
	asm_op_mem(cold, true, ASM_LEA, o->ring, asm_at(o->ring, (int32_t)arch_ring_stride(s)));
	emit_other(cold, o);
	for (unsigned n = 0; n < ARCH_RINGS_EACH; n++) {
		emit_address(cold, o->ring, arch_ring_at(s, s->cpus, n));
		emit_other(cold, o);
	}
	asm_jump(cold, ASM_JUMP_ALWAYS, &o->dropped);
}

/* The record does not fit in what is left of this lap, from offset `record` on. */
static void emit_next_lap(struct emitter *e, struct opening *o, struct asm_label *wrap)
{
	struct arch_buf *cold = e->cold;
	const struct asm_mem filler = asm_at_index(o->ring, o->record, 1, AT_RECORDS + ID);
	const struct asm_mem size = asm_at_index(o->ring, o->record, 1, AT_RECORDS + SIZE);

	asm_place_at(wrap, arch_here(cold));
	asm_load(cold, o->other, asm_at(o->ring, AT_HEAD));
	asm_op_reg(cold, true, 0x29, o->record, o->other); /* sub */
	asm_immediate(cold, true, ASM_IMM_ADD, o->bytes, o->other);
	asm_op_mem(cold, true, ASM_LEA, RDX, asm_at(o->other, o->size));
	asm_op_mem(cold, true, ASM_SUB_LOAD, RDX, asm_at(o->ring, AT_TAIL));
	asm_immediate(cold, true, ASM_IMM_CMP, o->bytes, RDX);
	asm_jump(cold, ASM_JUMP_A, &o->full_next);
	asm_number32(cold, RDX, (uint32_t)o->bytes);
	asm_op_reg(cold, false, 0x29, o->record, RDX);
	asm_store_number(cold, false, 0, filler);
	asm_store32(cold, RDX, size);
	asm_store(cold, o->other, asm_at(o->ring, AT_HEAD));
	asm_op_reg(cold, false, ASM_XOR_STORE, o->record, o->record);
	asm_jump(cold, ASM_JUMP_ALWAYS, &o->placed);
}

static void emit_dropped(struct emitter *e, struct opening *o)
{
	struct arch_buf *cold = e->cold;

	asm_place_at(&o->full_next, arch_here(cold));
	emit_free(cold, o);
	asm_place_at(&o->dropped, arch_here(cold));
	asm_place_at(&o->no_id, arch_here(cold));
	emit_count_up(cold, asm_at(o->ring, AT_DROPPED));
	asm_op_reg(cold, false, ASM_XOR_STORE, o->record, o->record);
	asm_jump(cold, ASM_JUMP_ALWAYS, &o->done);
}

/* The ring is ours: the time into rax, where the record begins into `record`. */
static void emit_place(struct emitter *e, struct opening *o)
{
	struct arch_buf *out = e->out;
	struct asm_label wrap = {0};

	emit_look(out, o);
	asm_jump(out, ASM_JUMP_A, &o->full);
	asm_place(out, &o->roomy);
	x86_emit8(out, 0x0f); /* lfence */
	x86_emit8(out, 0xae);
	x86_emit8(out, 0xe8);
	x86_emit8(out, 0x0f); /* rdtsc */
	x86_emit8(out, 0x31);
	asm_shift(out, true, true, RDX, 32);
	asm_op_reg(out, true, ASM_OR_STORE, RDX, RAX);
	asm_store(out, RAX, asm_at(o->ring, AT_OPENED));
	asm_immediate(out, true, ASM_IMM_AND, o->bytes - ARCH_RING_ALIGN, o->record);
	asm_immediate(out, true, ASM_IMM_CMP, o->bytes - o->size, o->record);
	asm_jump(out, ASM_JUMP_A, &wrap);
	asm_place(out, &o->placed);
	emit_next_lap(e, o, &wrap);
}

static void emit_header(struct emitter *e, const struct opening *o)
{
	struct arch_buf *out = e->out;

	asm_op_mem(out, true, ASM_LEA, o->record, asm_at_index(o->ring, o->record, 1, AT_RECORDS));
	asm_store_number(out, false, (int32_t)e->op->number, asm_at(o->record, ID));
	asm_store_number(out, false, o->size, asm_at(o->record, SIZE));
	asm_store(out, RAX, asm_at(o->record, TICKS));
	asm_store32(out, o->tid, asm_at(o->record, TID));
	asm_store_number(out, false, 0, asm_at(o->record, RECORD_FLAGS));
}

static bool is_sound(const struct emitter *e)
{
	const struct arch_stream *s = &e->env->stream;
	const int32_t size = e->op->immediate;

	return s->rings && e->env->pairing.tid_offset && !e->env->undo && s->spread <= s->cpus &&
	       s->shift >= ARCH_RING_SHIFT_MIN && s->shift <= ARCH_RING_SHIFT_MAX &&
	       size >= (int32_t)sizeof(struct arch_record) && size % ARCH_RING_ALIGN == 0 &&
	       size <= ARCH_RECORD_MAX && size <= 1 << (s->shift - 2) && e->op->number &&
	       e->op->number <= UINT32_MAX && e->result != ARCH_NO_REGISTER &&
	       e->second != ARCH_NO_REGISTER;
}

static void emit_open(struct emitter *e)
{
	struct opening o = {
		.ring = e->second,
		.record = e->result,
		.tid = e->temps[0],
		.other = e->temps[1],
		.bytes = 1 << e->env->stream.shift,
		.size = e->op->immediate,
	};
	struct asm_label busy = {0};

	if (!is_sound(e)) {
		x86_fail(e->out, ARCH_REFUSED);
		return;
	}
	asm_load_thread(e->out, false, o.tid, e->env->pairing.tid_offset);
	emit_block(e, &o);
	emit_ring_of_block(e, &o);
	/* Without an id it could not be held: musl takes it from a thread that ends. */
	asm_op_reg(e->out, false, ASM_TEST, o.tid, o.tid);
	asm_jump(e->out, ASM_JUMP_E, &o.no_id);
	emit_take(e->out, &o);
	asm_jump(e->out, ASM_JUMP_NE, &busy);
	emit_place(e, &o);
	emit_header(e, &o);
	asm_place(e->out, &o.done);
	emit_others(e, &o, &busy);
	emit_dropped(e, &o);
}

/*
 * Who was forked in a handler that interrupted this has another id than who holds the ring, and must not
 * end the other's record once more.
 */
static void emit_close(struct emitter *e)
{
	const unsigned ring = emitter_a(e), tid = e->temps[0];
	struct asm_label not_held = {0};

	asm_load_thread(e->out, false, tid, e->env->pairing.tid_offset);
	asm_op_mem(e->out, true, ASM_CMP_STORE, tid, asm_at(ring, AT_LOCK));
	asm_jump(e->out, ASM_JUMP_NE, &not_held);
	asm_op_mem(e->out, true, 0x81, ASM_IMM_ADD, asm_at(ring, AT_HEAD));
	x86_emit32(e->out, (uint32_t)e->op->immediate);
	asm_store_number(e->out, true, 0, asm_at(ring, AT_LOCK));
	asm_place(e->out, &not_held);
}

bool ring_emit(struct emitter *e)
{
	switch (e->op->kind) {
	case ARCH_OP_RING_OPEN:
		emit_open(e);
		return true;
	case ARCH_OP_RING_BYTES:
		calls_emit_ring_bytes(e);
		return true;
	case ARCH_OP_RING_CLOSE:
		emit_close(e);
		return true;
	default:
		return false;
	}
}
