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
 *
 * and what seldom does, apart from it so that it costs no room in the caches:
 *
 *	D: struct rseq_cs {1b, length, abort}, signature
 *	abort: jmp to the lea
 *	locked: lock incq; jmp 2b           (with the flags pushed, on the right)
 *
 * jrcxz reaches no further than 127 bytes, and there need not be a place in
 * that distance where control does not pass: the jump to the locked path lies
 * in the operand of a no-op that follows it.
 */
#include <string.h>

#include "arch/x86_64/x86.h"

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

/* lock incq: by its absolute address below 2 GiB, else relative to the program counter. */
static void emit_locked_increment(struct arch_buf *out, const struct arch_counter *spec)
{
	static const uint8_t absolute[] = {0xf0, 0x48, 0xff, 0x04, 0x25};
	static const uint8_t relative[] = {0xf0, 0x48, 0xff, 0x05};
	taddr_t slot = locked_slot(spec);

	if (slot <= INT32_MAX) {
		x86_emit(out, absolute, sizeof(absolute));
		x86_emit32(out, slot);
	} else {
		x86_emit(out, relative, sizeof(relative));
		x86_emit_relative(out, slot);
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

/* From the check of the CPU number to the commit; flags change. */
static void emit_with_flags(struct arch_buf *out, const struct arch_counter *spec, unsigned r,
			    taddr_t locked)
{
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
	x86_emit8(out, 0x48 | (r >= 8 ? REX_B : 0)); /* incq counter(%r) */
	x86_emit8(out, 0xff);
	x86_emit8(out, 0x80 | (r & 7));
	x86_emit32(out, spec->counter_address);
}

/* mov or lea between %reg and disp(%rcx). */
static void emit_access(struct arch_buf *out, unsigned opcode, unsigned reg, uint32_t disp)
{
	x86_emit8(out, 0x48 | (reg >= 8 ? REX_R : 0));
	x86_emit8(out, opcode);
	x86_emit8(out, 0x81 | (reg & 7) << 3);
	x86_emit32(out, disp);
}

/* The same without flags. The table's words are one too large, so that none but -1 and -2 has 0. */
static void emit_without_flags(struct arch_buf *out, const struct arch_counter *spec, unsigned b,
			       taddr_t locked)
{
	static const uint8_t look_up[] = {0x48, 0x8b, 0x0c, 0xcd}; /* mov disp(,%rcx,8),%rcx */
	static const uint8_t branch[] = {0xe3, 3};		   /* jrcxz to the operand's ... */
	static const uint8_t nop[] = {0x0f, 0x1f, 0x84, 0xe9};	   /* ... second byte: jmp */

	if (spec->cpu_table > INT32_MAX || !spec->cpu_table)
		x86_fail(out, ARCH_OUT_OF_RANGE);
	emit_thread_access(out, 0x63, true, RCX, spec->rseq_offset + RSEQ_CPU_ID);
	x86_emit(out, look_up, sizeof(look_up));
	x86_emit32(out, spec->cpu_table);
	x86_emit(out, branch, sizeof(branch));
	x86_emit(out, nop, sizeof(nop));
	x86_emit_relative(out, locked);
	emit_access(out, 0x8b, b, spec->counter_address - 1);
	x86_emit8(out, 0x48 | (b >= 8 ? REX_R | REX_B : 0)); /* lea 1(%b),%b */
	x86_emit8(out, 0x8d);
	x86_emit8(out, 0x40 | (b & 7) << 3 | (b & 7));
	x86_emit8(out, 1);
	emit_access(out, 0x89, b, spec->counter_address - 1);
}

/* Descriptor, signature and abort handler: the last of it is at an address that the rest is made of. */
static void emit_descriptor(struct arch_buf *cold, const struct arch_counter *spec, taddr_t restart,
			    taddr_t start, taddr_t commit)
{
	taddr_t descriptor = arch_here(cold);

	x86_emit32(cold, 0); /* version */
	x86_emit32(cold, 0); /* flags */
	x86_emit64(cold, start);
	x86_emit64(cold, commit - start);
	x86_emit64(cold, descriptor + DESCRIPTOR_SIZE + SIGNATURE_SIZE);
	x86_emit32(cold, spec->rseq_signature);
	arch_emit_jump(cold, restart);
}

enum { ABORT_JUMP = 5, LOCKED_AT = DESCRIPTOR_SIZE + SIGNATURE_SIZE + ABORT_JUMP };

static void emit_locked_path(struct arch_buf *cold, const struct arch_counter *spec,
			     const struct arch_frame *frame, bool keep_flags, taddr_t commit)
{
	static const uint8_t step_over[] = {0x48, 0x8d, 0x64, 0x24, 0x80};
	static const uint8_t step_back[] = {0x48, 0x8d, 0xa4, 0x24, RED_ZONE, 0, 0, 0};
	bool step = keep_flags && frame->red_zone && !frame->pushed;
	size_t below = frame->pushed + (step ? RED_ZONE : 0);

	if (step) {
		x86_emit(cold, step_over, sizeof(step_over));
		arch_note_pushed(cold, below);
	}
	if (keep_flags) {
		x86_emit8(cold, 0x9c); /* pushf */
		arch_note_pushed(cold, below + 8);
	}
	emit_locked_increment(cold, spec);
	if (keep_flags) {
		x86_emit8(cold, 0x9d); /* popf */
		arch_note_pushed(cold, below);
	}
	if (step) {
		x86_emit(cold, step_back, sizeof(step_back));
		arch_note_pushed(cold, frame->pushed);
	}
	arch_emit_jump(cold, commit);
}

/* Bytes that are never executed: each of them faults where control gets there by mistake. */
static void emit_unused(struct arch_buf *out)
{
	while (out->status == ARCH_OK && arch_here(out) % ARCH_COUNT_ALIGN)
		x86_emit8(out, 0x06);
}

void arch_emit_count(const struct arch_counter *spec, const struct arch_frame *frame,
		     struct arch_buf *out, struct arch_buf *cold)
{
	const bool flags = frame->needs & ARCH_NEED_FLAGS;
	const unsigned r = frame->reg[0];
	taddr_t restart = arch_here(out), start, descriptor;

	if (spec->mode == ARCH_COUNT_LOCKED) {
		emit_locked_increment(out, spec);
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
	if (flags)
		emit_with_flags(out, spec, r, descriptor + LOCKED_AT);
	else
		emit_without_flags(out, spec, frame->reg[1], descriptor + LOCKED_AT);
	arch_note_pushed(cold, frame->pushed);
	emit_descriptor(cold, spec, restart, start, arch_here(out));
	emit_locked_path(cold, spec, frame, !flags, arch_here(out));
	if (cold->status != ARCH_OK)
		x86_fail(out, cold->status);
}
