/* SPDX-License-Identifier: MIT */
/*
 * counter.c - one increment of a counter, exact whatever thread runs where.
 *
 * Per CPU, in a restartable sequence (include/uapi/linux/rseq.h). What runs:
 *
 *	mrs a,tpidr_el0; sub a,a,#pages; adr b,D; str b,[a,#rseq_cs]
 *	c = address of the locked slot (movz, movk)
 *   1:	ldr b,[a,#cpu_id]; sub a,b,#cpus
 *	tbnz a,#63,3f; b locked
 *   3:	add b,c,a,lsl #cpu_shift; ldr a,[b]; add a,a,#1; str a,[b]
 *   2:	mrs a,tpidr_el0; sub a,a,#pages; str xzr,[a,#rseq_cs] (if it `clears`)
 *
 * and what seldom does:
 *
 *	D: struct rseq_cs {1b, length, locked}, signature
 *	locked, and abort: 4: ldxr a,[c]; add a,a,#1; stxr b,a,[c]; cbnz b,4b; b 2b
 *
 * The slot of a CPU is addressed from the locked one, by cpu - cpus, which is
 * negative just where the thread has a CPU id; so c is good for both paths and
 * an aborted sequence may go on in the locked one. No flag is touched.
 */
#include "arch/aarch64/emitter.h"

enum {
	DESCRIPTOR_SIZE = 32,
	SIGNATURE_SIZE = 4,

	/* struct rseq: offsets of its members */
	RSEQ_CPU_ID = 4,
	RSEQ_CS = 8,

	SCRATCH = 3,
	IMMEDIATE_MAX = 4095,
	SHIFTED = 1 << 22, /* add, sub: the number is shifted left by 12 */
};

void arch_count_needs(const struct arch_counter *spec, struct arch_frame *frame)
{
	(void)spec;
	if (frame->scratch < SCRATCH)
		frame->scratch = SCRATCH;
}

static taddr_t locked_slot(const struct arch_counter *spec)
{
	return spec->counter_address + ((uint64_t)spec->cpus << spec->cpu_shift);
}

static void emit64(struct arch_buf *out, uint64_t value)
{
	a64_emit(out, (uint32_t)value);
	a64_emit(out, value >> 32);
}

/* a += what the counter is counted up by */
static void emit_add(struct arch_buf *out, const struct a64_count *count)
{
	const unsigned a = count->reg[0];

	if (count->addend == ARCH_NO_REGISTER)
		a64_emit(out, a64_add(a, a, count->number));
	else
		asm_add(out, a, a, count->addend, 0);
}

static void emit_exclusive(struct arch_buf *out, const struct a64_count *count)
{
	unsigned a = count->reg[0], b = count->reg[1], c = count->reg[2];

	a64_emit(out, 0xc85f7c00 | c << 5 | a); /* ldxr */
	emit_add(out, count);
	a64_emit(out, 0xc8007c00 | b << 16 | c << 5 | a); /* stxr */
	a64_emit(out, a64_cbnz_w(b, -3));
}

/* The counter's index, if it has one. */
static void emit_index(struct arch_buf *out, const struct a64_count *count)
{
	const unsigned c = count->reg[2];

	if (count->index != ARCH_NO_REGISTER)
		asm_add(out, c, c, count->index, 0);
}

/*
 * The pages of an offset into a register, in at most one word; the two accesses
 * carry what is left, which is returned.
 */
static unsigned emit_pages(struct arch_buf *out, unsigned reg, int64_t offset)
{
	unsigned left = (unsigned)(offset & 4095);
	int64_t pages = (offset - left) / 4096;

	if (pages > IMMEDIATE_MAX || pages < -IMMEDIATE_MAX || (left & 7))
		a64_fail(out, ARCH_OUT_OF_RANGE);
	else if (pages > 0)
		a64_emit(out, a64_add(reg, reg, (unsigned)pages) | SHIFTED);
	else if (pages < 0)
		a64_emit(out, a64_sub(reg, reg, (unsigned)-pages) | SHIFTED);
	return left;
}

/* Returns start_ip. */
static taddr_t emit_sequence(struct arch_buf *out, const struct arch_counter *spec,
			     const struct a64_count *count, taddr_t descriptor)
{
	unsigned a = count->reg[0], b = count->reg[1], c = count->reg[2], left;
	taddr_t start;

	if (spec->cpus > IMMEDIATE_MAX || spec->cpu_shift > 31 || locked_slot(spec) > INT32_MAX)
		a64_fail(out, ARCH_OUT_OF_RANGE);
	a64_emit(out, 0xd53bd040 | a); /* mrs a, tpidr_el0 */
	left = emit_pages(out, a, spec->rseq_offset);
	a64_emit_address(out, b, descriptor);
	/* The store is the last: the kernel sees a sequence as soon as the next one is reached. */
	a64_emit_constant(out, c, locked_slot(spec));
	emit_index(out, count);
	a64_emit(out, a64_str(b, a, left + RSEQ_CS));
	start = arch_here(out);
	a64_emit(out, a64_ldr_w(b, a, left + RSEQ_CPU_ID)); /* zero-extended: -1 is large */
	a64_emit(out, a64_sub(a, b, spec->cpus & IMMEDIATE_MAX));
	a64_emit(out, 0xb7f80000 | a64_field(2 * A64_SIZE, 5, 14) | a); /* tbnz a, #63 */
	arch_emit_jump(out, descriptor + DESCRIPTOR_SIZE + SIGNATURE_SIZE);
	a64_emit(out, 0x8b000000 | a << 16 | (spec->cpu_shift & 31) << 10 | c << 5 | b);
	a64_emit(out, a64_ldr(a, b, 0));
	emit_add(out, count);
	a64_emit(out, a64_str(a, b, 0));
	return start;
}

static void emit_clear(struct arch_buf *out, const struct arch_counter *spec, unsigned a)
{
	enum { XZR = 31 };
	unsigned left;

	a64_emit(out, 0xd53bd040 | a); /* mrs a, tpidr_el0 */
	left = emit_pages(out, a, spec->rseq_offset);
	a64_emit(out, a64_str(XZR, a, left + RSEQ_CS));
}

void a64_emit_count(const struct arch_counter *spec, const struct a64_count *count,
		    struct arch_buf *out, struct arch_buf *cold)
{
	taddr_t descriptor, start;

	if (spec->mode == ARCH_COUNT_LOCKED) {
		a64_emit_address(out, count->reg[2], locked_slot(spec));
		emit_index(out, count);
		emit_exclusive(out, count);
		return;
	}
	/* Words that are never executed: each of them is udf. */
	while (cold->status == ARCH_OK && arch_here(cold) % ARCH_COUNT_ALIGN)
		a64_emit(cold, 0);
	descriptor = arch_here(cold);
	start = emit_sequence(out, spec, count, descriptor);
	arch_note_pushed(cold, count->pushed);
	emit64(cold, 0); /* version and flags */
	emit64(cold, start);
	emit64(cold, arch_here(out) - start);
	emit64(cold, descriptor + DESCRIPTOR_SIZE + SIGNATURE_SIZE);
	a64_emit(cold, spec->rseq_signature);
	emit_exclusive(cold, count);
	arch_emit_jump(cold, arch_here(out));
	if (spec->clears)
		emit_clear(out, spec, count->reg[0]);
	if (cold->status != ARCH_OK)
		a64_fail(out, cold->status);
}

void arch_emit_count(const struct arch_counter *spec, const struct arch_frame *frame,
		     struct arch_buf *out, struct arch_buf *cold)
{
	const struct a64_count count = {
		.reg = {frame->reg[0], frame->reg[1], frame->reg[2]},
		.index = ARCH_NO_REGISTER,
		.addend = ARCH_NO_REGISTER,
		.number = 1,
		.pushed = frame->pushed,
	};

	a64_emit_count(spec, &count, out, cold);
}
