/* SPDX-License-Identifier: MIT */
/*
 * pairing_snippets.c - what stands in the target's way: the usual case of
 * finding a record, entering and leaving. The thread has its record, runs on
 * its own stack, and enters below or leaves what it entered last. All else is
 * done by the routines (pairing.c), which find everything anew.
 */
#include "arch/x86_64/pairing_private.h"

enum { RED_ZONE = 128 };

/* What one of these works with. */
struct work {
	const struct arch_pairing *spec;
	struct arch_buf *out, *cold;
	unsigned record, pointer, area; /* area may be the tag's register */
	unsigned tag, depth;
	size_t pushed, before; /* as in struct arch_state_code */
	bool red_zone;	       /* is not stepped over yet */
	/* Where results of a routine go; -1: not wanted. */
	int result, second;
	struct asm_label unusual;
};

/* ----------------------------------------------------------- the usual case */

/* The thread's record; pointer and area are changed. */
static void emit_find(struct work *w)
{
	const struct arch_pairing *spec = w->spec;

	asm_load_thread(w->out, true, w->pointer, 0);
	asm_number64(w->out, w->area, spec->area);
	pairing_emit_hash(w->out, spec, w->pointer, w->record);
	asm_op_mem(w->out, true, ASM_CMP_STORE, w->pointer, pairing_key_at(w->area, w->record));
	asm_jump(w->out, ASM_JUMP_NE, &w->unusual);
	asm_load_thread(w->out, false, w->pointer, spec->tid_offset);
	asm_op_mem(w->out, false, ASM_CMP_STORE, w->pointer,
		   pairing_owner_at(spec, w->area, w->record));
	asm_jump(w->out, ASM_JUMP_NE, &w->unusual);
	asm_shift(w->out, false, true, w->record, PAIR_RECORD_SHIFT);
	asm_op_mem(w->out, true, ASM_LEA, w->record,
		   asm_at_index(w->area, w->record, 1, (int32_t)pair_records(spec->shift)));
}

static void emit_tag(struct arch_buf *out, const struct work *w, unsigned to, size_t more,
		     uint32_t function)
{
	asm_op_mem(out, true, ASM_LEA, to, asm_at(RSP, (int32_t)(w->pushed + more + w->before)));
	asm_shift(out, true, true, to, PAIR_ID_BITS);
	asm_immediate(out, true, ASM_IMM_OR, (int32_t)function, to);
}

/*
 * Ends with the end of the new entry in w->depth. The tag is the highest of its
 * stack pointer at first: what was entered last must be above all of these.
 * That the tag is where it was written is looked at behind the depth: a handler
 * may have had the place.
 */
static void emit_push(struct work *w)
{
	struct arch_buf *out = w->out;

	emit_tag(out, w, w->tag, 0, (uint32_t)PAIR_ID_MASK);
	asm_move(out, w->tag, w->depth);
	asm_op_mem(out, true, ASM_SUB_LOAD, w->depth, asm_at(w->record, LO));
	asm_op_mem(out, true, ASM_CMP_LOAD, w->depth, asm_at(w->record, SIZE));
	asm_jump(out, ASM_JUMP_NC, &w->unusual);
	asm_load32(out, w->depth, asm_at(w->record, DEPTH));
	asm_op_mem(out, true, ASM_CMP_LOAD, w->tag,
		   asm_at_index(w->record, w->depth, 1, HOME - ENTRY));
	asm_jump(out, ASM_JUMP_NC, &w->unusual);
	asm_immediate(out, true, ASM_IMM_SUB, (int32_t)(PAIR_ID_MASK - w->spec->function), w->tag);
	asm_immediate(out, false, ASM_IMM_CMP, HOME_BYTES, w->depth);
	asm_jump(out, ASM_JUMP_NC, &w->unusual);
	asm_store(out, w->tag, asm_at_index(w->record, w->depth, 1, HOME));
	asm_immediate(out, false, ASM_IMM_ADD, ENTRY, w->depth);
	asm_store32(out, w->depth, asm_at(w->record, DEPTH));
	asm_op_mem(out, true, ASM_CMP_STORE, w->tag,
		   asm_at_index(w->record, w->depth, 1, HOME - ENTRY));
	asm_jump(out, ASM_JUMP_NE, &w->unusual);
	asm_store_number(out, true, 0, asm_at_index(w->record, w->depth, 1, HOME - ENTRY + START));
}

/* The entry that is left lies at w->depth - ENTRY; nothing is changed yet. */
static void emit_is_last(struct work *w)
{
	emit_tag(w->out, w, w->tag, 0, w->spec->function);
	asm_load32(w->out, w->depth, asm_at(w->record, DEPTH));
	asm_op_mem(w->out, true, ASM_CMP_STORE, w->tag,
		   asm_at_index(w->record, w->depth, 1, HOME - ENTRY));
	asm_jump(w->out, ASM_JUMP_NE, &w->unusual);
}

static void emit_pop(struct work *w)
{
	asm_store_number(w->out, true, 0, asm_at_index(w->record, w->depth, 1, HOME - ENTRY));
	asm_immediate(w->out, false, ASM_IMM_SUB, ENTRY, w->depth);
	asm_store32(w->out, w->depth, asm_at(w->record, DEPTH));
}

/* -------------------------------------------------------------- all else */

static const uint8_t saved[PAIR_SAVED] = {RAX, RCX, RDX, RSI, RDI, R8, R9, R10, R11};

/* A result that is in `from` goes where the pops below put it into its register. */
static void emit_result(struct arch_buf *cold, unsigned from, int to)
{
	if (to < 0)
		return;
	for (size_t i = 0; i < PAIR_SAVED; i++)
		if (saved[i] == to) {
			asm_store(cold, from, asm_at(RSP, (int32_t)(8 * (PAIR_SAVED - 1 - i))));
			return;
		}
	asm_move(cold, from, (unsigned)to);
}

/*
 * The way through a routine, in the cold part: it puts back every register that
 * has no result. What follows it finds CF as the routine left it.
 */
static void emit_unusual(struct work *w, taddr_t routine)
{
	const size_t zone = w->red_zone ? RED_ZONE : 0;
	const size_t extra = zone + (size_t)PAIR_SAVED * 8;
	struct arch_buf *cold = w->cold;
	size_t back;

	asm_place_at(&w->unusual, arch_here(cold));
	arch_note_pushed(cold, w->pushed);
	if (zone)
		asm_op_mem(cold, true, ASM_LEA, RSP, asm_at(RSP, -RED_ZONE));
	for (size_t i = 0; i < PAIR_SAVED; i++) {
		arch_note_pushed(cold, w->pushed + zone + 8 * i);
		asm_push_pop(cold, 0x50, saved[i]);
	}
	arch_note_pushed(cold, w->pushed + extra);
	emit_tag(cold, w, RDX, extra, w->spec->function);
	x86_emit8(cold, 0x4c); /* lea back(%rip),%r9 */
	x86_emit8(cold, ASM_LEA);
	x86_emit8(cold, 0x0d);
	back = cold->used;
	x86_emit_relative(cold, arch_here(cold) + 9);
	arch_emit_jump(cold, routine);
	if (cold->status == ARCH_OK && cold->used != back + 9)
		x86_fail(cold, ARCH_REFUSED);
	emit_result(cold, RAX, w->result);
	emit_result(cold, RDX, w->second);
	for (size_t i = PAIR_SAVED; i-- > 0;) {
		asm_push_pop(cold, 0x58, saved[i]);
		arch_note_pushed(cold, w->pushed + zone + 8 * i);
	}
	if (zone)
		asm_op_mem(cold, true, ASM_LEA, RSP, asm_at(RSP, RED_ZONE));
	arch_note_pushed(cold, w->pushed);
}

/* -------------------------------------------------- operations of programs */

/* `tag` and `depth`: registers for these, each may be a result's. */
static struct work work_of(const struct arch_pairing *spec, const struct arch_state_code *code,
			   unsigned tag, struct arch_buf *out, struct arch_buf *cold)
{
	return (struct work){
		.spec = spec,
		.out = out,
		.cold = cold,
		.record = code->record == ARCH_NO_REGISTER ? code->temps[2] : code->record,
		.pointer = code->temps[0],
		.area = code->temps[1],
		.tag = tag,
		.depth = code->result,
		.pushed = code->pushed,
		.before = code->before,
		.red_zone = true,
		.result = code->result,
		.second = -1,
	};
}

/* Finds the record, or goes to `none` where it is known that there is none. */
static void emit_record(struct work *w, const struct arch_state_code *code, struct asm_label *none)
{
	if (code->record == ARCH_NO_REGISTER) {
		emit_find(w);
		return;
	}
	asm_op_reg(w->out, true, ASM_TEST, w->record, w->record);
	asm_jump(w->out, ASM_JUMP_E, none);
}

/* What happens without a record. */
static void emit_none(struct work *w, const struct arch_state_code *code, struct asm_label *none,
		      struct asm_label *end)
{
	if (code->record == ARCH_NO_REGISTER)
		return;
	asm_place_at(none, arch_here(w->cold));
	arch_note_pushed(w->cold, w->pushed);
	asm_op_reg(w->cold, false, ASM_XOR_STORE, (unsigned)w->result, (unsigned)w->result);
	if (w->second >= 0)
		asm_op_reg(w->cold, false, ASM_XOR_STORE, (unsigned)w->second, (unsigned)w->second);
	asm_jump(w->cold, ASM_JUMP_ALWAYS, end);
}

void arch_emit_record_op(const struct arch_pairing *spec, const struct arch_state_code *code,
			 struct arch_buf *out, struct arch_buf *cold)
{
	struct work w = work_of(spec, code, code->temps[0], out, cold);
	struct asm_label end = {0};

	w.record = code->result;
	emit_find(&w);
	asm_place_at(&end, arch_here(out));
	emit_unusual(&w, spec->record);
	asm_jump(cold, ASM_JUMP_ALWAYS, &end);
}

void arch_emit_enter_op(const struct arch_pairing *spec, const struct arch_state_code *code,
			struct arch_buf *out, struct arch_buf *cold)
{
	struct work w = work_of(spec, code, code->temps[0], out, cold);
	struct asm_label end = {0}, none = {0};

	if (spec->function) {
		emit_record(&w, code, &none);
		emit_push(&w);
		asm_op_mem(out, true, ASM_LEA, w.depth,
			   asm_at_index(w.record, w.depth, 1, HOME - ENTRY));
	} else {
		/* A mark is never in a hurry. */
		asm_jump(out, ASM_JUMP_ALWAYS, &w.unusual);
	}
	asm_place_at(&end, arch_here(out));
	emit_unusual(&w, spec->enter);
	asm_jump(cold, ASM_JUMP_ALWAYS, &end);
	if (spec->function)
		emit_none(&w, code, &none, &end);
}

void arch_emit_leave_op(const struct arch_pairing *spec, const struct arch_state_code *code,
			struct arch_buf *out, struct arch_buf *cold)
{
	struct work w = work_of(spec, code, code->second, out, cold);
	struct asm_label end = {0}, none = {0};

	w.second = code->second;
	emit_record(&w, code, &none);
	emit_is_last(&w);
	asm_load(out, code->second, asm_at_index(w.record, w.depth, 1, HOME - ENTRY + START));
	asm_number32(out, code->result, 1);
	asm_place_at(&end, arch_here(out));
	emit_unusual(&w, spec->leaving);
	asm_jump(cold, ASM_JUMP_ALWAYS, &end);
	emit_none(&w, code, &none, &end);
}

void arch_emit_left_op(const struct arch_pairing *spec, const struct arch_state_code *code,
		       struct arch_buf *out, struct arch_buf *cold)
{
	struct work w = work_of(spec, code, code->temps[0], out, cold);
	struct asm_label end = {0};

	w.depth = code->temps[1];
	w.result = -1;
	emit_record(&w, code, &end);
	emit_is_last(&w);
	emit_pop(&w);
	asm_place_at(&end, arch_here(out));
	emit_unusual(&w, spec->leave);
	asm_jump(cold, ASM_JUMP_ALWAYS, &end);
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

static struct work work_in(const struct arch_pairing *spec, const struct arch_frame *frame,
			   struct arch_buf *out, struct arch_buf *cold)
{
	return (struct work){
		.spec = spec,
		.out = out,
		.cold = cold,
		.record = frame->reg[2],
		.pointer = frame->reg[1],
		.area = frame->reg[3],
		.tag = frame->reg[0],
		.depth = frame->reg[3],
		.pushed = frame->pushed,
		.before = frame->before,
		.red_zone = true,
		.result = -1,
		.second = -1,
	};
}

void arch_emit_enter(const struct arch_pairing *spec, const struct arch_frame *frame,
		     struct arch_buf *out, struct arch_buf *cold)
{
	struct work w = work_in(spec, frame, out, cold);
	struct asm_label counted = {0};

	emit_find(&w);
	emit_push(&w);
	asm_place_at(&counted, arch_here(out));
	emit_unusual(&w, spec->enter);
	asm_jump(cold, ASM_JUMP_ALWAYS, &counted);
	if (spec->count)
		arch_emit_count(spec->count, frame, out, cold);
}

void arch_emit_leave(const struct arch_pairing *spec, const struct arch_frame *frame,
		     struct arch_buf *out, struct arch_buf *cold)
{
	struct work w = work_in(spec, frame, out, cold);
	struct asm_label counted = {0}, uncounted = {0};

	emit_find(&w);
	emit_is_last(&w);
	asm_compare_number(out, true, -1, asm_at_index(w.record, w.depth, 1, HOME - ENTRY + START));
	asm_jump(out, ASM_JUMP_E, &w.unusual);
	emit_pop(&w);
	asm_place_at(&counted, arch_here(out));
	emit_unusual(&w, spec->leave);
	asm_jump(cold, ASM_JUMP_NC, &uncounted);
	asm_jump(cold, ASM_JUMP_ALWAYS, &counted);
	if (spec->count)
		arch_emit_count(spec->count, frame, out, cold);
	asm_place_at(&uncounted, arch_here(out));
}
