/* SPDX-License-Identifier: MIT */
/*
 * program.c - programs become code: which registers they want of their frame,
 * operands and results of each operation, control. What the operations do is in
 * program_*.c. Both passes, needs and emission, make the same plan.
 *
 * Plain programs change no flag; what they need for that is in the plan.
 */
#include "arch/x86_64/emitter.h"

#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <x86intrin.h>
#endif

/* ------------------------------------------------------------------- plans */

/* A program that does nothing but what arch_emit_count() does. */
static bool is_plain_count(const struct arch_program *p, const struct arch_op **count)
{
	*count = NULL;
	for (unsigned i = 0; i < p->count; i++) {
		const struct arch_op *op = &p->ops[i];

		if (op->kind == ARCH_OP_NONE)
			continue;
		if (op->kind != ARCH_OP_COUNT || *count || op->a || op->b || op->immediate != 1)
			return false;
		*count = op;
	}
	return *count;
}

/* True if the operation's code can do without touching flags. */
static bool keeps_flags(const struct arch_environment *env, const struct arch_op *op)
{
	switch (op->kind) {
	case ARCH_OP_SUB:
		return !op->b && op->immediate != INT32_MIN;
	case ARCH_OP_EXTEND:
		return op->size == 1 || op->size == 2 || op->size == 4 || op->size == 8;
	case ARCH_OP_CLOCK:
		return env->undo;
	case ARCH_OP_RECORD:
		return env->undo;
	case ARCH_OP_COUNT:
		return env->counter.mode == ARCH_COUNT_PER_CPU;
	case ARCH_OP_NONE:
	case ARCH_OP_CONST:
	case ARCH_OP_COPY:
	case ARCH_OP_ADD:
	case ARCH_OP_NOT:
	case ARCH_OP_ARGUMENT:
	case ARCH_OP_FLOAT_ARGUMENT:
	case ARCH_OP_RESULT:
	case ARCH_OP_FLOAT_RESULT:
	case ARCH_OP_STACK:
	case ARCH_OP_STACK_POINTER:
	case ARCH_OP_CALLER:
	case ARCH_OP_PRESERVED:
	case ARCH_OP_LOAD:
	case ARCH_OP_STORE:
	case ARCH_OP_ATOMIC_STORE:
	case ARCH_OP_THREAD:
	case ARCH_OP_LABEL:
	case ARCH_OP_JUMP:
		return true;
	default:
		return false;
	}
}

/* What writes below the stack pointer; the ways through routines look after that themselves. */
static bool wants_stack(const struct arch_environment *env, const struct arch_op *op)
{
	if (op->kind == ARCH_OP_CLOCK)
		return !env->undo && op->number != ARCH_CLOCK_TICKS &&
		       op->number != ARCH_CLOCK_TICKS_ORDERED;
	return op->kind == ARCH_OP_READ || op->kind == ARCH_OP_PROCESS ||
	       op->kind == ARCH_OP_RING_BYTES;
}

static void own_wish(const struct x86_plan *plan, const struct arch_op *op,
		     struct register_wish *wish)
{
	if (!arithmetic_wish(plan, op, wish) && !memory_wish(plan, op, wish) &&
	    !thread_wish(plan, op, wish))
		ring_wish(plan, op, wish);
}

/* The temporaries: first those of the operation itself, then as begin() takes them. */
static void wish_for(const void *arg, const struct arch_op *op, struct register_wish *wish)
{
	const struct x86_plan *plan = arg;

	if (registers_skip(op))
		return;
	own_wish(plan, op, wish);
	registers_add_wishes(op, wish);
}

/* Registers whose contents at the place the program wants. */
static arch_regset reads_of(const struct arch_op *op)
{
	static const uint8_t arguments[] = {RDI, RSI, RDX, RCX, R8, R9};

	if (op->kind == ARCH_OP_ARGUMENT && op->number < sizeof(arguments))
		return SET(arguments[op->number]);
	if (op->kind == ARCH_OP_RESULT)
		return op->number ? SET(RDX) : SET(RAX);
	return 0;
}

/*
 * Registers that the program wants besides: where the frame takes one of them it must push it,
 * as if it were live. Were they in `reads` there would be too few for a frame.
 */
static arch_regset preserved_of(const struct arch_program *p)
{
	arch_regset set = 0;

	for (unsigned i = 0; i < p->count; i++)
		if (p->ops[i].kind == ARCH_OP_PRESERVED && p->ops[i].number < X86_PRESERVED)
			set |= SET(x86_preserved[p->ops[i].number]);
	return set;
}

static int make_plan(struct x86_plan *plan, const struct arch_program *p,
		     const struct arch_environment *env, arch_regset live)
{
	plan->p = p;
	plan->env = env;
	plan->flags = !(live & SET_FLAGS);
	plan->reads = env->undo ? SET(arch_undo_record) : 0;
	plan->named = 0;
	for (unsigned i = 0; i < p->count; i++) {
		plan->flags = plan->flags || !keeps_flags(env, &p->ops[i]);
		plan->reads |= registers_skip(&p->ops[i]) ? 0 : reads_of(&p->ops[i]);
	}
	for (unsigned i = 0; i < p->count; i++) {
		struct register_wish wish = {0};

		wish_for(plan, &p->ops[i], &wish);
		plan->named |= wish.destroys;
	}
	return registers_assign(p, wish_for, plan, X86_POOL, plan->named, &plan->registers);
}

static bool changes_flags(const struct x86_plan *plan)
{
	for (unsigned i = 0; i < plan->p->count; i++)
		if (plan->p->ops[i].kind != ARCH_OP_NONE)
			return plan->flags;
	return false;
}

void arch_program_needs(const struct arch_program *p, const struct arch_environment *env,
			struct arch_frame *frame)
{
	struct arch_counter spec = env->counter;
	const struct arch_op *count;
	struct x86_plan plan;

	if (is_plain_count(p, &count)) {
		spec.counter_address = count->number;
		arch_count_needs(&spec, frame);
		return;
	}
	/* What cannot be done is said at emission. */
	if (make_plan(&plan, p, env, frame->live) != ARCH_OK)
		return;
	frame->reads |= plan.reads;
	frame->live |= preserved_of(p);
	frame->fixed |= plan.named;
	if (frame->scratch < plan.registers.used)
		frame->scratch = (uint8_t)plan.registers.used;
	if (frame->slots < plan.registers.slots)
		frame->slots = (uint8_t)plan.registers.slots;
	if (changes_flags(&plan))
		frame->needs |= ARCH_NEED_FLAGS;
	for (unsigned i = 0; i < p->count; i++)
		if (wants_stack(env, &p->ops[i]))
			frame->needs |= ARCH_NEED_STACK;
}

/* --------------------------------------------------------------- operands */

static unsigned register_of(struct emitter *e, struct register_place place, unsigned shuttle)
{
	unsigned at = 0;

	switch (place.kind) {
	case REGISTER_POOL:
		return e->pool[place.index];
	case REGISTER_NAMED:
		return place.index;
	case REGISTER_INPUT:
		if (!x86_frame_find(e->frame, place.index, &at))
			x86_fail(e->out, ARCH_REFUSED);
		return at;
	case REGISTER_SLOT:
		return e->pool[e->plan.registers.shuttles[shuttle]];
	default:
		x86_fail(e->out, ARCH_REFUSED);
		return 0;
	}
}

unsigned emitter_use(struct emitter *e, unsigned value, unsigned shuttle)
{
	const struct register_place place = e->plan.registers.values[value];
	const unsigned reg = register_of(e, place, shuttle);

	if (place.kind == REGISTER_SLOT)
		asm_load(e->out, reg, asm_at(RSP, 8 * place.index));
	return reg;
}

unsigned emitter_a(struct emitter *e)
{
	unsigned zero;

	if (e->op->a)
		return emitter_use(e, e->op->a, 0);
	zero = e->temps[e->temp_count - 1];
	emitter_number(e, e->out, zero, 0);
	return zero;
}

unsigned emitter_b(struct emitter *e)
{
	return emitter_use(e, e->op->b, 1);
}

unsigned emitter_b_or(struct emitter *e, unsigned temp)
{
	if (e->op->b)
		return emitter_b(e);
	emitter_number(e, e->out, temp, (uint64_t)(int64_t)e->op->immediate);
	return temp;
}

bool emitter_far(const struct arch_op *op)
{
	return !x86_fits32((int64_t)op->number);
}

struct asm_mem emitter_address(struct emitter *e, unsigned temp)
{
	const uint64_t number = e->op->number;
	const bool far = emitter_far(e->op);

	if (far)
		emitter_number(e, e->out, temp, number);
	if (e->op->a && far)
		return asm_at_index(temp, emitter_a(e), 1, 0);
	if (e->op->a)
		return asm_at(emitter_a(e), (int32_t)number);
	return far ? asm_at(temp, 0) : asm_absolute((int32_t)number);
}

void emitter_move(struct arch_buf *out, unsigned from, unsigned to)
{
	if (from != to)
		asm_move(out, from, to);
}

void emitter_number(struct emitter *e, struct arch_buf *out, unsigned reg, uint64_t number)
{
	if (!number && e->plan.flags)
		asm_op_reg(out, false, ASM_XOR_STORE, reg, reg);
	else if (number <= UINT32_MAX)
		asm_number32(out, reg, (uint32_t)number);
	else if (x86_fits32((int64_t)number)) {
		asm_op_reg(out, true, 0xc7, 0, reg);
		x86_emit32(out, (uint32_t)number);
	} else {
		asm_number64(out, reg, number);
	}
}

/* ---------------------------------------------------------------- control */

static void emit_jump(struct emitter *e, unsigned opcode)
{
	if (e->jump_count == ARCH_PROGRAM_OPS) {
		x86_fail(e->out, ARCH_NO_ROOM);
		return;
	}
	if (opcode > 0xff)
		x86_emit8(e->out, opcode >> 8);
	x86_emit8(e->out, opcode & 0xff);
	e->jumps[e->jump_count].at = (uint32_t)e->out->used;
	e->jumps[e->jump_count++].label = e->op->label;
	x86_emit32(e->out, 0);
}

static void emit_label(struct emitter *e)
{
	unsigned left = 0;

	for (unsigned i = 0; i < e->jump_count; i++) {
		const uint32_t at = e->jumps[i].at;
		const uint32_t distance = (uint32_t)e->out->used - (at + 4);

		if (e->jumps[i].label != e->op->label) {
			e->jumps[left++] = e->jumps[i];
			continue;
		}
		for (unsigned n = 0; n < 4 && e->out->status == ARCH_OK; n++)
			e->out->bytes[at + n] = distance >> (8 * n) & 0xff;
	}
	e->jump_count = left;
}

static bool control_emit(struct emitter *e)
{
	switch (e->op->kind) {
	case ARCH_OP_LABEL:
		emit_label(e);
		return true;
	case ARCH_OP_JUMP:
		emit_jump(e, 0xe9);
		return true;
	case ARCH_OP_IF:
		arithmetic_compare(e);
		if (e->op->a != e->tested || e->op->b || e->op->immediate)
			e->tested = 0;
		emit_jump(e, 0x0f80 | arithmetic_condition(e->op->condition));
		return true;
	default:
		return false;
	}
}

/* --------------------------------------------------------------- emission */

static bool has_second(const struct arch_op *op)
{
	return op->kind == ARCH_OP_LEAVE || op->kind == ARCH_OP_READ ||
	       op->kind == ARCH_OP_RING_OPEN;
}

/* Chooses where the results are left; finish() brings them home. */
static void begin(struct emitter *e, unsigned at)
{
	struct register_wish own = {0};
	const struct arch_op *op = e->op;
	const struct registers *r = &e->plan.registers;
	unsigned next;

	own_wish(&e->plan, op, &own);
	for (e->temp_count = 0;
	     e->temp_count < REGISTERS_TEMPS && r->temps[at][e->temp_count].kind != REGISTER_NONE;
	     e->temp_count++)
		e->temps[e->temp_count] = (uint8_t)register_of(e, r->temps[at][e->temp_count], 0);
	next = own.temps;
	e->result = e->second = ARCH_NO_REGISTER;
	if ((own.early && registers_overlap(op, registers_result(op))) ||
	    (registers_always_result(op) && !op->result))
		e->result = e->temps[next++];
	else if (registers_result(op))
		e->result = (uint8_t)register_of(e, r->values[op->result], 2);
	if (op->kind == ARCH_OP_LEAVE && (registers_overlap(op, op->second) || !op->second))
		e->second = e->temps[next++];
	else if (has_second(op) && op->second)
		e->second = (uint8_t)register_of(e, r->values[op->second], 1);
}

static void finish(struct emitter *e, unsigned value, unsigned reg)
{
	const struct register_place place = e->plan.registers.values[value];

	if (!value || reg == ARCH_NO_REGISTER)
		return;
	if (place.kind == REGISTER_SLOT)
		asm_store(e->out, reg, asm_at(RSP, 8 * place.index));
	else
		emitter_move(e->out, reg, register_of(e, place, 0));
}

static void emit_op(struct emitter *e, unsigned at)
{
	e->op = &e->plan.p->ops[at];
	if (registers_skip(e->op))
		return;
	if (e->op->result && (program_class(e->op->kind) & PROGRAM_RESULT) &&
	    e->plan.registers.values[e->op->result].kind == REGISTER_INPUT)
		return;
	begin(e, at);
	if (e->op->kind != ARCH_OP_IF)
		e->tested = 0;
	if (control_emit(e))
		return;
	if (!arithmetic_emit(e) && !memory_emit(e) && !thread_emit(e) && !ring_emit(e))
		x86_fail(e->out, ARCH_REFUSED);
	if (program_class(e->op->kind) & PROGRAM_RESULT)
		finish(e, e->op->result, e->result);
	if (has_second(e->op))
		finish(e, e->op->second, e->second);
}

/* The frame's registers that the program does not want by name anyway. */
static void take_pool(struct emitter *e)
{
	unsigned n = 0;

	for (unsigned i = 0; i < e->frame->scratch && n < X86_POOL; i++)
		if (!(e->plan.named & SET(e->frame->reg[i])))
			e->pool[n++] = e->frame->reg[i];
	if (n < e->plan.registers.used || e->plan.registers.slots > e->frame->slots ||
	    (e->plan.named & ~e->frame->fixed))
		x86_fail(e->out, ARCH_NO_ROOM);
}

void arch_emit_program(const struct arch_program *p, const struct arch_environment *env,
		       const struct arch_frame *frame, struct arch_buf *out, struct arch_buf *cold)
{
	struct arch_counter spec = env->counter;
	const struct arch_op *count;
	struct emitter e;
	int status;

	if (is_plain_count(p, &count)) {
		spec.counter_address = count->number;
		arch_emit_count(&spec, frame, out, cold);
		return;
	}
	/* Field by field: zeros for all of it would cost more than a short program. */
	e.env = env;
	e.frame = frame;
	e.out = out;
	e.cold = cold;
	e.jump_count = 0;
	e.tested = 0;
	status = make_plan(&e.plan, p, env, frame->live);
	if (status != ARCH_OK) {
		x86_fail(out, status);
		return;
	}
	take_pool(&e);
	arch_note_pushed(cold, frame->pushed);
	for (unsigned i = 0; i < p->count && out->status == ARCH_OK; i++)
		emit_op(&e, i);
	/* A label that is not there, or not behind its jumps. */
	if (e.jump_count)
		x86_fail(out, ARCH_REFUSED);
	if (cold->status != ARCH_OK)
		x86_fail(out, cold->status);
}

/* ------------------------------------------------------------------ bounds */

/* Bytes of one operation in each part, operands that are on the stack included. */
static void op_sizes(const struct arch_op *op, size_t *hot, size_t *cold)
{
	*hot = 64;
	*cold = 0;
	switch (op->kind) {
	case ARCH_OP_RECORD:
	case ARCH_OP_ENTER:
	case ARCH_OP_LEAVE:
	case ARCH_OP_LEFT:
		*hot += ARCH_STATE_HOT;
		*cold = ARCH_STATE_COLD;
		break;
	case ARCH_OP_COUNT:
		*hot += ARCH_COUNT_HOT;
		*cold = ARCH_COUNT_COLD + ARCH_COUNT_ALIGN;
		break;
	case ARCH_OP_READ:
	case ARCH_OP_RING_BYTES:
		*hot += 288;
		break;
	case ARCH_OP_RING_OPEN:
		*hot += 192;
		*cold = 512;
		break;
	case ARCH_OP_CLOCK:
	case ARCH_OP_PROCESS:
		*hot += 160;
		*cold = 400;
		break;
	case ARCH_OP_FIND:
		*hot += 64;
		*cold = 128;
		break;
	default:
		*cold = 64;
	}
}

void arch_program_sizes(const struct arch_program *p, size_t *hot, size_t *cold)
{
	*hot = 0;
	*cold = (size_t)2 * ARCH_COUNT_ALIGN;
	for (unsigned i = 0; i < p->count; i++) {
		size_t in_hot, in_cold;

		op_sizes(&p->ops[i], &in_hot, &in_cold);
		*hot += in_hot;
		*cold += in_cold;
	}
}

/* ------------------------------------------------------------------ clocks */

/* Invariant TSC: CPUID 80000007h, EDX bit 8 (SDM volume 3, 18.17.1). */
bool arch_clock_is_steady(void)
{
#ifdef __x86_64__
	unsigned a, b, c, d;

	return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d >> 8 & 1);
#else
	return false;
#endif
}

uint64_t arch_clock_ticks(void)
{
#ifdef __x86_64__
	return __rdtsc();
#else
	return 0;
#endif
}
