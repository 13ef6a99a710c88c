/* SPDX-License-Identifier: MIT */
/*
 * counter.c - one increment of a counter, exact whatever thread runs where.
 *
 * Per CPU, in a restartable sequence (Documentation of rseq: include/uapi/
 * linux/rseq.h; "Extending restartable sequences", kernel.org). What runs:
 *
 *	where flags may change              where they may not
 *
 *	lea D(%rip),%r                      lea D(%rip),%rcx
 *	mov %r,%fs:rseq_cs                  mov %rcx,%fs:rseq_cs
 *   1: mov %fs:cpu_id,%r                1: movslq %fs:cpu_id,%rcx
 *	cmp $cpus,%r                        mov cpu_table(,%rcx,8),%rcx
 *	jae locked                          jrcxz locked
 *	shl $cpu_shift,%r                   mov counter-1(%rcx),%b
 *	incq counter(%r)                    lea 1(%b),%b
 *   2:                                     mov %b,counter-1(%rcx)
 *                                       2:
 *      movq $0,%fs:rseq_cs (if it `clears`)
 *
 * and what seldom does, apart from it so that it costs no room in the caches:
 *
 *	D: struct rseq_cs {1b, length, locked}, signature
 *	locked, and abort: lock incq; jmp 2b (on the right: between lahf and sahf)
 *
 * An aborted sequence is not tried again: a thread that gets a signal at each of
 * its instructions, as one does that executes itself step by step, would never
 * be through. The locked path needs nothing but what the sequence has not changed.
 *
 * jrcxz reaches no further than 127 bytes, and there need not be a place in
 * that distance where control does not pass: the jump to the locked path lies
 * in the operand of a no-op that follows it.
 */
#include "arch/x86_64/emitter.h"

enum {
	DESCRIPTOR_SIZE = 32,
	SIGNATURE_SIZE = 4,

	/* struct rseq: offsets of its members */
	RSEQ_CPU_ID = 4,
	RSEQ_CS = 8,

	RED_ZONE = 128,
};

void arch_count_needs(const struct arch_counter *spec, struct arch_frame *frame)
{
	unsigned scratch = 0;

	if (spec->mode == ARCH_COUNT_LOCKED || !(frame->live & SET_FLAGS))
		frame->needs |= ARCH_NEED_FLAGS;
	else
		frame->needs |= ARCH_NEED_TEST;
	if (spec->mode == ARCH_COUNT_PER_CPU)
		scratch = frame->live & SET_FLAGS ? 2 : 1;
	if (frame->scratch < scratch)
		frame->scratch = (uint8_t)scratch;
}

static taddr_t locked_slot(const struct arch_counter *spec)
{
	return spec->counter_address + ((uint64_t)spec->cpus << spec->cpu_shift);
}

/* An addition to memory; `locked` among processors. */
static void emit_add(struct arch_buf *out, const struct x86_count *c, bool locked, struct asm_mem m)
{
	const bool byte = c->number == (int8_t)c->number;

	if (locked)
		x86_emit8(out, 0xf0);
	if (c->addend != ARCH_NO_REGISTER) {
		asm_op_mem(out, true, ASM_ADD_STORE, c->addend, m);
	} else if (c->number == 1) {
		asm_op_mem(out, true, 0xff, 0, m);
	} else {
		asm_op_mem(out, true, byte ? 0x83 : 0x81, ASM_IMM_ADD, m);
		if (byte)
			x86_emit8(out, (unsigned)c->number & 0xff);
		else
			x86_emit32(out, (uint32_t)c->number);
	}
}

/*
 * The locked addition: by its absolute address below 2 GiB, else relative to the
 * program counter, or where there is an index by scratch register r.
 */
static void emit_locked_add(struct arch_buf *out, const struct arch_counter *spec,
			    const struct x86_count *c)
{
	static const uint8_t relative[] = {0xf0, 0x48, 0xff, 0x05}; /* lock incq */
	const bool has_index = c->index != ARCH_NO_REGISTER;
	const taddr_t slot = locked_slot(spec);

	if (slot <= INT32_MAX) {
		emit_add(out, c, true,
			 has_index ? asm_at(c->index, (int32_t)slot) : asm_absolute((int32_t)slot));
	} else if (!has_index && c->addend == ARCH_NO_REGISTER && c->number == 1) {
		x86_emit(out, relative, sizeof(relative));
		x86_emit_relative(out, slot);
	} else {
		asm_number64(out, c->r, slot);
		emit_add(out, c, true,
			 has_index ? asm_at_index(c->r, c->index, 1, 0) : asm_at(c->r, 0));
	}
}

/* An instruction with a register and %fs:disp32; `wide`: of 64 bits. */
static void emit_thread_access(struct arch_buf *out, unsigned opcode, bool wide, unsigned reg,
			       int64_t offset)
{
	unsigned rex = (wide ? REX_W : 0) | (reg >= 8 ? REX_R : 0);

	if (!x86_fits32(offset))
		x86_fail(out, ARCH_OUT_OF_RANGE);
	x86_emit8(out, 0x64);
	if (rex)
		x86_emit8(out, REX_PRESENT | rex);
	x86_emit8(out, opcode);
	x86_emit8(out, (reg & 7) << 3 | 4);
	x86_emit8(out, 0x25);
	x86_emit32(out, offset);
}

/* A register instruction whose opcode has its extension or its other register in ModRM.reg. */
static void emit_short_register(struct arch_buf *out, unsigned opcode, unsigned extension,
				unsigned reg)
{
	if (reg >= 8)
		x86_emit8(out, REX_PRESENT | REX_B);
	x86_emit8(out, opcode);
	x86_emit8(out, 0xc0 | extension << 3 | (reg & 7));
}

/* The counter's slot, `base` being the distance of the CPU's block, and `off`. */
static struct asm_mem slot_at(const struct arch_counter *spec, const struct x86_count *c,
			      unsigned base, int32_t off)
{
	const int32_t disp = (int32_t)spec->counter_address + off;

	return c->index != ARCH_NO_REGISTER ? asm_at_index(base, c->index, 1, disp)
					    : asm_at(base, disp);
}

/* From the check of the CPU number to the commit; flags change. */
static void emit_with_flags(struct arch_buf *out, const struct arch_counter *spec,
			    const struct x86_count *c, taddr_t locked)
{
	const unsigned r = c->r;

	emit_thread_access(out, 0x8b, false, r, spec->rseq_offset + RSEQ_CPU_ID);
	/* cmp $cpus,%r32: negative is above, too */
	emit_short_register(out, spec->cpus <= INT8_MAX ? 0x83 : 0x81, 7, r);
	if (spec->cpus <= INT8_MAX)
		x86_emit8(out, spec->cpus);
	else
		x86_emit32(out, spec->cpus);
	x86_emit8(out, 0x0f); /* jae */
	x86_emit8(out, 0x83);
	x86_emit_relative(out, locked);
	emit_short_register(out, 0xc1, 4, r); /* shl $cpu_shift,%r32 */
	x86_emit8(out, spec->cpu_shift);
	emit_add(out, c, false, slot_at(spec, c, r, 0));
}

/* The same without flags. The table's words are one too large, so that none but -1 and -2 has 0. */
static void emit_without_flags(struct arch_buf *out, const struct arch_counter *spec,
			       const struct x86_count *c, taddr_t locked)
{
	static const uint8_t look_up[] = {0x48, 0x8b, 0x0c, 0xcd}; /* mov disp(,%rcx,8),%rcx */
	static const uint8_t branch[] = {0xe3, 3};		   /* jrcxz to the operand's ... */
	static const uint8_t nop[] = {0x0f, 0x1f, 0x84, 0xe9};	   /* ... second byte: jmp */
	const struct asm_mem slot = slot_at(spec, c, RCX, -1);

	if (spec->cpu_table > INT32_MAX || !spec->cpu_table)
		x86_fail(out, ARCH_OUT_OF_RANGE);
	emit_thread_access(out, 0x63, true, RCX, spec->rseq_offset + RSEQ_CPU_ID);
	x86_emit(out, look_up, sizeof(look_up));
	x86_emit32(out, spec->cpu_table);
	x86_emit(out, branch, sizeof(branch));
	x86_emit(out, nop, sizeof(nop));
	x86_emit_relative(out, locked);
	asm_load(out, c->b, slot);
	asm_op_mem(out, true, ASM_LEA, c->b,
		   c->addend != ARCH_NO_REGISTER ? asm_at_index(c->b, c->addend, 1, 0)
						 : asm_at(c->b, c->number));
	asm_store(out, c->b, slot);
}

/* movq $0,%fs:rseq_cs: no flag changes. */
static void emit_clear(struct arch_buf *out, const struct arch_counter *spec)
{
	emit_thread_access(out, 0xc7, true, 0, spec->rseq_offset + RSEQ_CS);
	x86_emit32(out, 0);
}

enum { LOCKED_AT = DESCRIPTOR_SIZE + SIGNATURE_SIZE };

/* Descriptor and signature; behind them is the abort handler, the locked path. */
static void emit_descriptor(struct arch_buf *cold, const struct arch_counter *spec, taddr_t start,
			    taddr_t commit)
{
	taddr_t descriptor = arch_here(cold);

	x86_emit32(cold, 0); /* version */
	x86_emit32(cold, 0); /* flags */
	x86_emit64(cold, start);
	x86_emit64(cold, commit - start);
	x86_emit64(cold, descriptor + LOCKED_AT);
	x86_emit32(cold, spec->rseq_signature);
}

/* The flags are kept in rax, which may be the number or the index. */
static void emit_locked_add_keeping_flags(struct arch_buf *cold, const struct arch_counter *spec,
					  const struct x86_count *c, size_t below)
{
	static const uint8_t own[] = {0x48, 0x8b, 0x44, 0x24, 8}; /* mov 8(%rsp),%rax */
	const bool wanted = c->index == RAX || c->addend == RAX;

	x86_emit8(cold, 0x50 | RAX);
	arch_note_pushed(cold, below + 8);
	x86_emit_keep_flags(cold, true, true);
	if (wanted) {
		x86_emit8(cold, 0x50 | RAX);
		arch_note_pushed(cold, below + 16);
		x86_emit(cold, own, sizeof(own));
	}
	emit_locked_add(cold, spec, c);
	if (wanted) {
		x86_emit8(cold, 0x58 | RAX);
		arch_note_pushed(cold, below + 8);
	}
	x86_emit_restore_flags(cold, true, true);
	x86_emit8(cold, 0x58 | RAX);
	arch_note_pushed(cold, below);
}

static void emit_locked_path(struct arch_buf *cold, const struct arch_counter *spec,
			     const struct x86_count *c, taddr_t commit)
{
	static const uint8_t step_over[] = {0x48, 0x8d, 0x64, 0x24, 0x80};
	static const uint8_t step_back[] = {0x48, 0x8d, 0xa4, 0x24, RED_ZONE, 0, 0, 0};
	bool step = !c->flags && c->red_zone && !c->pushed;
	size_t below = c->pushed + (step ? RED_ZONE : 0);

	if (step) {
		x86_emit(cold, step_over, sizeof(step_over));
		arch_note_pushed(cold, below);
	}
	if (c->flags)
		emit_locked_add(cold, spec, c);
	else
		emit_locked_add_keeping_flags(cold, spec, c, below);
	if (step) {
		x86_emit(cold, step_back, sizeof(step_back));
		arch_note_pushed(cold, c->pushed);
	}
	arch_emit_jump(cold, commit);
}

/* Bytes that are never executed: each of them faults where control gets there by mistake. */
static void emit_unused(struct arch_buf *out)
{
	while (out->status == ARCH_OK && arch_here(out) % ARCH_COUNT_ALIGN)
		x86_emit8(out, 0x06);
}

void x86_emit_count(const struct arch_counter *spec, const struct x86_count *c,
		    struct arch_buf *out, struct arch_buf *cold)
{
	const unsigned r = c->flags ? c->r : RCX;
	taddr_t start, descriptor;

	if (spec->mode == ARCH_COUNT_LOCKED) {
		emit_locked_add(out, spec, c);
		return;
	}
	if (locked_slot(spec) > INT32_MAX)
		x86_fail(out, ARCH_OUT_OF_RANGE);
	emit_unused(cold);
	descriptor = arch_here(cold);
	x86_emit8(out, 0x48 | (r >= 8 ? REX_R : 0)); /* lea descriptor(%rip),%r */
	x86_emit8(out, 0x8d);
	x86_emit8(out, (r & 7) << 3 | 5);
	x86_emit_relative(out, descriptor);
	emit_thread_access(out, 0x89, true, r, spec->rseq_offset + RSEQ_CS);
	start = arch_here(out);
	if (c->flags)
		emit_with_flags(out, spec, c, descriptor + LOCKED_AT);
	else
		emit_without_flags(out, spec, c, descriptor + LOCKED_AT);
	arch_note_pushed(cold, c->pushed);
	emit_descriptor(cold, spec, start, arch_here(out));
	emit_locked_path(cold, spec, c, arch_here(out));
	if (spec->clears)
		emit_clear(out, spec);
	if (cold->status != ARCH_OK)
		x86_fail(out, cold->status);
}

void arch_emit_count(const struct arch_counter *spec, const struct arch_frame *frame,
		     struct arch_buf *out, struct arch_buf *cold)
{
	const struct x86_count c = {
		.r = frame->reg[0],
		.b = frame->reg[1],
		.index = ARCH_NO_REGISTER,
		.addend = ARCH_NO_REGISTER,
		.number = 1,
		.flags = frame->needs & ARCH_NEED_FLAGS,
		.red_zone = frame->red_zone,
		.pushed = frame->pushed,
	};

	x86_emit_count(spec, &c, out, cold);
}
