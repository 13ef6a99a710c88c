/* SPDX-License-Identifier: MIT */
/*
 * program.c - programs become code: which registers they want of their frame,
 * operands and results of each operation, control. What the operations do is in
 * program_*.c; what is not there (records, entries and exits, calls) is refused.
 */
#include "arch/aarch64/emitter.h"

#include <string.h>

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

/* Branches that need no comparison. */
static bool is_zero_branch(const struct arch_op *op)
{
	return op->kind == ARCH_OP_IF && !op->b && !op->immediate &&
	       (op->condition == ARCH_TEST_EQ || op->condition == ARCH_TEST_NE);
}

static bool changes_flags(const struct arch_op *op)
{
	return (op->kind == ARCH_OP_IF && !is_zero_branch(op)) || op->kind == ARCH_OP_TEST ||
	       op->kind == ARCH_OP_ATOMIC_MIN || op->kind == ARCH_OP_ATOMIC_MAX ||
	       op->kind == ARCH_OP_FIND;
}

/* The temporaries: first those of the operation itself, then as begin() takes them. */
static void own_wish(const struct arch_op *op, struct register_wish *wish)
{
	if (!arithmetic_wish(op, wish) && !memory_wish(op, wish))
		thread_wish(op, wish);
}

static void wish_for(const void *arg, const struct arch_op *op, struct register_wish *wish)
{
	(void)arg;
	if (registers_skip(op))
		return;
	own_wish(op, wish);
	registers_add_wishes(op, wish);
}

static int make_plan(const struct arch_program *p, struct registers *r)
{
	return registers_assign(p, wish_for, NULL, A64_POOL, 0, r);
}

void arch_program_needs(const struct arch_program *p, const struct arch_environment *env,
			struct arch_frame *frame)
{
	struct arch_counter spec = env->counter;
	const struct arch_op *count;
	struct registers r;

	if (is_plain_count(p, &count)) {
		spec.counter_address = count->number;
		arch_count_needs(&spec, frame);
		return;
	}
	/* What cannot be done is said at emission. */
	if (make_plan(p, &r) != ARCH_OK)
		return;
	if (frame->scratch < r.used)
		frame->scratch = (uint8_t)r.used;
	if (frame->slots < r.slots)
		frame->slots = (uint8_t)r.slots;
	for (unsigned i = 0; i < p->count; i++) {
		struct register_wish wish = {0};

		wish_for(NULL, &p->ops[i], &wish);
		if (wish.input)
			frame->reads |= SET(wish.input - 1u);
		if (!registers_skip(&p->ops[i]) && changes_flags(&p->ops[i]))
			frame->needs |= ARCH_NEED_FLAGS;
	}
}

/* --------------------------------------------------------------- operands */

static unsigned register_of(struct emitter *e, struct register_place place, unsigned shuttle)
{
	switch (place.kind) {
	case REGISTER_POOL:
		return e->frame->reg[place.index];
	case REGISTER_INPUT:
		return place.index;
	case REGISTER_SLOT:
		return e->frame->reg[e->registers.shuttles[shuttle]];
	default:
		a64_fail(e->out, ARCH_REFUSED);
		return 0;
	}
}

static unsigned use(struct emitter *e, unsigned value, unsigned shuttle)
{
	const struct register_place place = e->registers.values[value];
	const unsigned reg = register_of(e, place, shuttle);

	if (place.kind == REGISTER_SLOT)
		a64_emit(e->out, a64_ldr(reg, SP, 8u * place.index));
	return reg;
}

unsigned emitter_a(struct emitter *e)
{
	unsigned zero;

	if (e->op->a)
		return use(e, e->op->a, 0);
	zero = e->temps[e->temp_count - 1];
	emitter_move(e->out, zero, ZR);
	return zero;
}

unsigned emitter_temp(struct emitter *e)
{
	if (e->next >= e->temp_count) {
		a64_fail(e->out, ARCH_NO_ROOM);
		return e->frame->reg[0];
	}
	return e->temps[e->next++];
}

unsigned wish_b(const struct arch_op *op)
{
	return op->b ? 0 : 1;
}

unsigned emitter_b(struct emitter *e)
{
	unsigned temp;

	if (e->op->b)
		return use(e, e->op->b, 1);
	temp = emitter_temp(e);
	a64_emit_constant(e->out, temp, (uint64_t)(int64_t)e->op->immediate);
	return temp;
}

unsigned wish_address(const struct arch_op *op)
{
	return op->a && !op->number ? 0 : 1;
}

unsigned emitter_address(struct emitter *e)
{
	unsigned temp;

	if (!wish_address(e->op))
		return emitter_a(e);
	temp = emitter_temp(e);
	a64_emit_constant(e->out, temp, e->op->number);
	if (e->op->a)
		asm_add(e->out, temp, temp, emitter_a(e), 0);
	return temp;
}

void emitter_move(struct arch_buf *out, unsigned to, unsigned from)
{
	if (to != from)
		asm_move(out, to, from);
}

/* ---------------------------------------------------------------- control */

static void emit_branch(struct emitter *e, uint32_t opcode)
{
	if (e->jump_count == ARCH_PROGRAM_OPS) {
		a64_fail(e->out, ARCH_NO_ROOM);
		return;
	}
	e->jumps[e->jump_count].at = (uint32_t)e->out->used;
	e->jumps[e->jump_count++].label = e->op->label;
	a64_emit(e->out, opcode);
}

static void emit_label(struct emitter *e)
{
	unsigned left = 0;

	for (unsigned i = 0; i < e->jump_count; i++) {
		const uint32_t at = e->jumps[i].at;
		const int64_t distance = (int64_t)(e->out->used - at);
		uint32_t word;

		if (e->jumps[i].label != e->op->label) {
			e->jumps[left++] = e->jumps[i];
			continue;
		}
		if (e->out->status != ARCH_OK)
			continue;
		word = a64_load(e->out->bytes + at);
		word |= word >> 26 == 5 ? a64_field(distance, 0, 26) : a64_field(distance, 5, 19);
		a64_store(e->out->bytes + at, word);
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
		emit_branch(e, 0x14000000);
		return true;
	case ARCH_OP_IF:
		if (is_zero_branch(e->op)) {
			const unsigned a = emitter_a(e);

			emit_branch(e,
				    (e->op->condition == ARCH_TEST_EQ ? 0xb4000000 : 0xb5000000) |
					    a);
			return true;
		}
		arithmetic_compare(e);
		emit_branch(e, 0x54000000 | arithmetic_condition(e->op->condition));
		return true;
	default:
		return false;
	}
}

/* --------------------------------------------------------------- emission */

/* Chooses where the results are left; finish() brings them home. */
static void begin(struct emitter *e, unsigned at)
{
	const struct registers *r = &e->registers;
	const struct arch_op *op = e->op;
	struct register_wish own = {0};

	own_wish(op, &own);
	for (e->temp_count = 0;
	     e->temp_count < REGISTERS_TEMPS && r->temps[at][e->temp_count].kind != REGISTER_NONE;
	     e->temp_count++)
		e->temps[e->temp_count] = (uint8_t)register_of(e, r->temps[at][e->temp_count], 0);
	e->next = 0;
	e->result = e->second = ARCH_NO_REGISTER;
	if ((own.early && registers_overlap(op, registers_result(op))) ||
	    (registers_always_result(op) && !op->result))
		e->result = e->temps[own.temps];
	else if (registers_result(op))
		e->result = (uint8_t)register_of(e, r->values[op->result], 2);
	if (op->kind == ARCH_OP_READ && op->second)
		e->second = (uint8_t)register_of(e, r->values[op->second], 1);
}

static void finish(struct emitter *e, unsigned value, unsigned reg)
{
	const struct register_place place = e->registers.values[value];

	if (!value || reg == ARCH_NO_REGISTER)
		return;
	if (place.kind == REGISTER_SLOT)
		a64_emit(e->out, a64_str(reg, SP, 8u * place.index));
	else
		emitter_move(e->out, register_of(e, place, 0), reg);
}

static void emit_op(struct emitter *e, unsigned at)
{
	const bool has_result = program_class(e->p->ops[at].kind) & PROGRAM_RESULT;

	e->op = &e->p->ops[at];
	if (registers_skip(e->op))
		return;
	if (e->op->result && has_result &&
	    e->registers.values[e->op->result].kind == REGISTER_INPUT)
		return;
	begin(e, at);
	if (control_emit(e))
		return;
	if (!arithmetic_emit(e) && !memory_emit(e) && !thread_emit(e))
		a64_fail(e->out, ARCH_REFUSED);
	if (has_result)
		finish(e, e->op->result, e->result);
	if (e->op->kind == ARCH_OP_READ)
		finish(e, e->op->second, e->second);
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
	e.p = p;
	e.env = env;
	e.frame = frame;
	e.out = out;
	e.cold = cold;
	e.jump_count = 0;
	status = make_plan(p, &e.registers);
	if (status == ARCH_OK &&
	    (e.registers.used > frame->scratch || e.registers.slots > frame->slots))
		status = ARCH_NO_ROOM;
	if (status != ARCH_OK) {
		a64_fail(out, status);
		return;
	}
	arch_note_pushed(cold, frame->pushed);
	for (unsigned i = 0; i < p->count && out->status == ARCH_OK; i++)
		emit_op(&e, i);
	/* A label that is not there, or not behind its jumps. */
	if (e.jump_count)
		a64_fail(out, ARCH_REFUSED);
	if (cold->status != ARCH_OK)
		a64_fail(out, cold->status);
}

void arch_program_sizes(const struct arch_program *p, size_t *hot, size_t *cold)
{
	enum { WORDS_PER_OP = 40, WORDS_OF_CALL = 80 };

	*hot = 0;
	*cold = 2 * ARCH_COUNT_ALIGN;
	for (unsigned i = 0; i < p->count; i++) {
		const bool calls = p->ops[i].kind == ARCH_OP_READ ||
				   p->ops[i].kind == ARCH_OP_CLOCK ||
				   p->ops[i].kind == ARCH_OP_PROCESS;

		*hot += A64_SIZE * (calls ? WORDS_OF_CALL : WORDS_PER_OP);
		if (p->ops[i].kind == ARCH_OP_COUNT)
			*cold += ARCH_COUNT_COLD + ARCH_COUNT_ALIGN;
	}
}

/* ------------------------------------------------------------------ clocks */

/* The generic timer's counter runs at one rate, always (DDI 0487, D11). */
bool arch_clock_is_steady(void)
{
	return true;
}

uint64_t arch_clock_ticks(void)
{
#ifdef __aarch64__
	uint64_t ticks;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
#else
	return 0;
#endif
}
