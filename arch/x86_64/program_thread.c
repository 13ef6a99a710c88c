/* SPDX-License-Identifier: MIT */
/*
 * program_thread.c - operations of programs on the thread: its record and what
 * is paired in it (pairing.c has the code), clocks, ids.
 */
#include <stddef.h>

#include "arch/x86_64/emitter.h"

enum {
	RSEQ_CPU_ID = 4, /* struct rseq */
	RSEQ_CS = 8,
	CPU_OFFSET = offsetof(struct pair_record, cpu_offset),
	MOMENTS = offsetof(struct pair_record, moments),
	MUL = 4, /* of f7 */
	/* Ticks that a system call may take if the clock it has read is to be one with them. */
	CALL_TICKS = 1 << 16,
};

static bool is_cheap_thread_clock(const struct arch_environment *env, const struct arch_op *op)
{
	return op->kind == ARCH_OP_CLOCK && op->number == ARCH_CLOCK_THREAD && op->a &&
	       env->thread_clock_by_rseq;
}

static void wish_clock(const struct arch_environment *env, const struct arch_op *op,
		       struct register_wish *wish)
{
	if (env->undo)
		return;
	if (op->number == ARCH_CLOCK_TICKS || op->number == ARCH_CLOCK_TICKS_ORDERED) {
		wish->destroys = SET(RAX) | SET(RDX);
		wish->result_in = RAX + 1;
	} else if (is_cheap_thread_clock(env, op)) {
		wish->destroys = SET(RAX) | SET(RDX);
		wish->temps = 1;
		wish->early = true;
	}
}

/* Temporaries of the code in pairing_snippets.c: looking for the record takes most of them. */
static unsigned state_temps(const struct arch_op *op)
{
	if (op->kind == ARCH_OP_RECORD)
		return 2;
	if (!op->a)
		return ARCH_STATE_TEMPS;
	return op->kind == ARCH_OP_LEAVE ? 0 : 2;
}

bool thread_wish(const struct x86_plan *plan, const struct arch_op *op, struct register_wish *wish)
{
	switch (op->kind) {
	case ARCH_OP_RECORD:
		if (plan->env->undo)
			wish->input = arch_undo_record + 1;
		else
			wish->temps = state_temps(op);
		wish->early = !plan->env->undo;
		return true;
	case ARCH_OP_ENTER:
	case ARCH_OP_LEAVE:
	case ARCH_OP_LEFT:
		wish->temps = state_temps(op);
		wish->early = true;
		return true;
	case ARCH_OP_CLOCK:
		wish_clock(plan->env, op, wish);
		return true;
	case ARCH_OP_READ:
		wish->temps = op->a && emitter_far(op) ? 2 : 1;
		return true;
	default:
		return op->kind == ARCH_OP_CPU || op->kind == ARCH_OP_THREAD ||
		       op->kind == ARCH_OP_PROCESS;
	}
}

/* An instruction with a register and %fs:offset. */
static void emit_thread_access(struct arch_buf *out, unsigned opcode, bool wide, unsigned reg,
			       int64_t offset)
{
	if (!x86_fits32(offset))
		x86_fail(out, ARCH_OUT_OF_RANGE);
	x86_emit8(out, 0x64);
	asm_op_mem(out, wide, opcode, reg, asm_absolute((int32_t)offset));
}

static void emit_state(struct emitter *e)
{
	struct arch_pairing spec = e->env->pairing;
	const struct arch_op *op = e->op;
	struct arch_state_code code = {
		.result = e->result,
		.second = e->second,
		.record = ARCH_NO_REGISTER,
		.pushed = e->frame->pushed,
		.before = e->frame->before,
	};

	if (op->kind == ARCH_OP_RECORD && e->env->undo) {
		emitter_move(e->out, arch_undo_record, e->result);
		return;
	}
	if (!spec.area || e->env->undo) {
		x86_fail(e->out, ARCH_REFUSED);
		return;
	}
	for (unsigned i = 0; i < ARCH_STATE_TEMPS; i++)
		code.temps[i] = i < state_temps(op) ? e->temps[i] : ARCH_NO_REGISTER;
	spec.function = op->kind == ARCH_OP_RECORD ? 0 : (uint32_t)op->number;
	spec.count = NULL;
	if (op->kind != ARCH_OP_RECORD && op->a)
		code.record = (uint8_t)emitter_a(e);
	if (op->kind == ARCH_OP_RECORD)
		arch_emit_record_op(&spec, &code, e->out, e->cold);
	else if (op->kind == ARCH_OP_ENTER)
		arch_emit_enter_op(&spec, &code, e->out, e->cold);
	else if (op->kind == ARCH_OP_LEAVE)
		arch_emit_leave_op(&spec, &code, e->out, e->cold);
	else
		arch_emit_left_op(&spec, &code, e->out, e->cold);
}

/* Ticks into rax; rdx is changed. Not ordered with what is before and behind. */
static void emit_ticks(struct arch_buf *out)
{
	x86_emit8(out, 0x0f); /* rdtsc */
	x86_emit8(out, 0x31);
	asm_shift(out, true, true, RDX, 32);
	asm_op_reg(out, true, 0x09, RDX, RAX); /* or */
}

/* Ticks in rax, as ns, into rdx; rax is changed, and `temp`. */
static void emit_ns_of_ticks(struct arch_buf *out, const struct arch_environment *env,
			     unsigned temp)
{
	asm_number64(out, temp, env->ticks_multiplier);
	asm_op_reg(out, true, 0xf7, MUL, temp);
	if (env->ticks_shift)
		asm_shift(out, true, true, RDX, env->ticks_shift);
}

/* %fs:rseq_cs against or from the address of the descriptor, which is in `temp` then. */
static void emit_descriptor(struct arch_buf *out, const struct arch_environment *env,
			    unsigned opcode, unsigned temp)
{
	asm_number64(out, temp, env->clock_descriptor);
	emit_thread_access(out, opcode, true, temp, env->counter.rseq_offset + RSEQ_CS);
}

/*
 * CPU time of the thread, from its offset against the ticks that was found by
 * the last system call: good as long as nobody has changed rseq_cs since, as the
 * kernel does when it switches the thread out. The order matters: whatever
 * happened before the clock was read is seen behind it, and a handler that has
 * taken a new offset in between is known by it.
 *
 * Interrupts and hypervisors do not change rseq_cs, and most interrupts that come
 * while the kernel reads the clock are taken on the way back from it. What they
 * took would be missing until the next switch, so ticks are read on both sides of
 * the call, and where it took long nothing is remembered. Nor by a thread that has
 * no rseq registered, for which the kernel never changes rseq_cs: one of a program that
 * has forbidden itself the call since it began.
 */
static void emit_thread_clock(struct emitter *e)
{
	const unsigned record = emitter_a(e), temp = e->temps[0], r = e->result;
	struct asm_label slow = {0}, none = {0}, done = {0}, unregistered = {0}, forget = {0};
	struct arch_buf *out = e->out, *cold = e->cold;

	asm_op_reg(out, true, ASM_TEST, record, record);
	asm_jump(out, ASM_JUMP_E, &none);
	asm_load(out, r, asm_at(record, CPU_OFFSET));
	emit_ticks(out);
	emit_ns_of_ticks(out, e->env, temp);
	emit_descriptor(out, e->env, ASM_CMP_STORE, temp);
	asm_jump(out, ASM_JUMP_NE, &slow);
	asm_op_mem(out, true, ASM_CMP_STORE, r, asm_at(record, CPU_OFFSET));
	asm_jump(out, ASM_JUMP_NE, &slow);
	asm_op_reg(out, true, ASM_TEST, r, r);
	asm_jump(out, ASM_JUMP_E, &slow);
	asm_op_reg(out, true, ASM_ADD_STORE, RDX, r);
	asm_place(out, &done);

	asm_place_at(&slow, arch_here(cold));
	arch_note_pushed(cold, e->frame->pushed);
	x86_emit8(cold, 0x64); /* cmpl $0,%fs:cpu_id */
	asm_compare_number(cold, false, 0,
			   asm_absolute((int32_t)e->env->counter.rseq_offset + RSEQ_CPU_ID));
	asm_jump(cold, 0xc, &unregistered); /* jl */
	emit_descriptor(cold, e->env, ASM_STORE, temp);
	asm_store_number(cold, true, 0, asm_at(record, CPU_OFFSET));
	emit_ticks(cold);
	asm_move(cold, RAX, temp);
	calls_emit_clock(cold, e->env, e->frame->pushed, ARCH_CLOCK_THREAD, r);
	/* Nothing is known from what could not be had. */
	asm_op_reg(cold, true, ASM_TEST, r, r);
	asm_jump(cold, ASM_JUMP_E, &forget);
	emit_ticks(cold);
	asm_op_reg(cold, true, 0x29, RAX, temp); /* sub: less than 0 then */
	asm_immediate(cold, true, ASM_IMM_CMP, -CALL_TICKS, temp);
	asm_jump(cold, 0xc, &forget); /* jl */
	emit_ns_of_ticks(cold, e->env, temp);
	asm_move(cold, r, temp);
	asm_op_reg(cold, true, 0x29, RDX, temp); /* sub */
	asm_exchange_if_zero(cold, false, temp, asm_at(record, CPU_OFFSET));
	asm_jump(cold, ASM_JUMP_ALWAYS, &done);
	/* Whoever was interrupted by this in its call, and switched out, must not find rseq_cs as it left it. */
	asm_place(cold, &forget);
	asm_number64(cold, temp, 0);
	emit_thread_access(cold, ASM_STORE, true, temp, e->env->counter.rseq_offset + RSEQ_CS);
	asm_jump(cold, ASM_JUMP_ALWAYS, &done);
	asm_place(cold, &unregistered);
	asm_place_at(&none, arch_here(cold));
	calls_emit_clock(cold, e->env, e->frame->pushed, ARCH_CLOCK_THREAD, r);
	asm_jump(cold, ASM_JUMP_ALWAYS, &done);
}

static void emit_ticks_to_result(struct emitter *e)
{
	x86_emit8(e->out, 0x0f); /* rdtsc */
	x86_emit8(e->out, 0x31);
	asm_shift(e->out, true, true, RDX, 32);
	asm_op_mem(e->out, true, ASM_LEA, e->result, asm_at_index(RAX, RDX, 1, 0));
}

/* What seldom runs is out of the way. */
static void emit_seldom_call(struct emitter *e)
{
	struct asm_label call = {0}, done = {0};

	asm_jump(e->out, ASM_JUMP_ALWAYS, &call);
	asm_place(e->out, &done);
	asm_place_at(&call, arch_here(e->cold));
	arch_note_pushed(e->cold, e->frame->pushed);
	calls_emit_clock(e->cold, e->env, e->frame->pushed, (unsigned)e->op->number, e->result);
	asm_jump(e->cold, ASM_JUMP_ALWAYS, &done);
}

static void emit_clock(struct emitter *e)
{
	static const uint8_t lfence[] = {0x0f, 0xae, 0xe8};
	const struct arch_op *op = e->op;

	if (op->number > ARCH_CLOCK_TICKS_ORDERED ||
	    (op->number == ARCH_CLOCK_TICKS_ORDERED && e->env->undo)) {
		x86_fail(e->out, ARCH_REFUSED);
	} else if (e->env->undo) {
		asm_load(e->out, e->result,
			 asm_at(arch_undo_record, MOMENTS + 8 * (int32_t)op->number));
	} else if (op->number == ARCH_CLOCK_TICKS) {
		emit_ticks_to_result(e);
	} else if (op->number == ARCH_CLOCK_TICKS_ORDERED) {
		/* Waits for all loads before it (SDM volume 2, LFENCE and RDTSC). */
		x86_emit(e->out, lfence, sizeof(lfence));
		emit_ticks_to_result(e);
	} else if (op->immediate && op->number == ARCH_CLOCK_MONOTONIC) {
		emit_seldom_call(e);
	} else if (is_cheap_thread_clock(e->env, op)) {
		emit_thread_clock(e);
	} else {
		calls_emit_clock(e->out, e->env, e->frame->pushed, (unsigned)op->number, e->result);
	}
}

/* -1 and -2 mean the same. */
static void emit_cpu(struct emitter *e)
{
	const int64_t offset = e->env->counter.rseq_offset;
	const unsigned r = e->result;
	struct asm_label known = {0};

	if (!offset) {
		emitter_number(e, e->out, r, UINT64_MAX);
		return;
	}
	emit_thread_access(e->out, ASM_MOVSXD, true, r, offset + RSEQ_CPU_ID);
	asm_immediate(e->out, true, ASM_IMM_CMP, -1, r);
	asm_jump(e->out, 0xd, &known); /* jge */
	emitter_number(e, e->out, r, UINT64_MAX);
	asm_place(e->out, &known);
}

bool thread_emit(struct emitter *e)
{
	switch (e->op->kind) {
	case ARCH_OP_RECORD:
	case ARCH_OP_ENTER:
	case ARCH_OP_LEAVE:
	case ARCH_OP_LEFT:
		emit_state(e);
		return true;
	case ARCH_OP_CLOCK:
		emit_clock(e);
		return true;
	case ARCH_OP_CPU:
		emit_cpu(e);
		return true;
	case ARCH_OP_THREAD:
		if (!e->env->pairing.tid_offset)
			x86_fail(e->out, ARCH_REFUSED);
		asm_load_thread(e->out, false, e->result, e->env->pairing.tid_offset);
		return true;
	case ARCH_OP_PROCESS:
		calls_emit_process(e);
		return true;
	case ARCH_OP_READ:
		calls_emit_read(e);
		return true;
	default:
		return false;
	}
}
