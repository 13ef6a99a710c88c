/* SPDX-License-Identifier: MIT */
/*
 * program_optimise.c - the way through a program on which everything is
 * computed once: value numbering, forwards, over ways that meet at labels.
 * Must never allocate, and never make a program longer. What exceeds its
 * limits, or is not as program.h says, is left as it is.
 */
#include <string.h>

#include "arch/common/program_pass.h"

enum { ROUNDS_MAX = 6 };

/* True if the program is within the limits, and control goes forward only. */
static bool is_sound(const struct arch_program *p)
{
	bool passed[ARCH_PROGRAM_LABELS + 1] = {0};

	if (p->count > ARCH_PROGRAM_OPS || p->values > ARCH_PROGRAM_VALUES ||
	    p->labels > ARCH_PROGRAM_LABELS)
		return false;
	for (unsigned i = p->count; i-- > 0;) {
		const struct arch_op *op = &p->ops[i];

		if (op->kind >= ARCH_OP_KINDS || op->result > p->values || op->second > p->values ||
		    op->a > p->values || op->b > p->values || op->label > p->labels)
			return false;
		if (!(program_class(op->kind) & PROGRAM_CONTROL))
			continue;
		/* Seen from the end: labels come before those who jump to them. */
		if (!op->label || passed[op->label] != (op->kind != ARCH_OP_LABEL))
			return false;
		passed[op->label] = true;
	}
	return true;
}

/* The way goes on at `label`, too. */
static void branch(struct pass *s, unsigned label)
{
	struct pass_way *to = &s->at[label];

	if (to->open) {
		pass_meet(to, &s->now, s->p->values);
		return;
	}
	to->open = true;
	to->fact_count = s->now.fact_count;
	to->known_count = s->now.known_count;
	memcpy(to->holds, s->now.holds, (s->p->values + 1) * sizeof(to->holds[0]));
	memcpy(to->facts, s->now.facts, s->now.fact_count * sizeof(to->facts[0]));
	memcpy(to->known, s->now.known, s->now.known_count * sizeof(to->known[0]));
}

static void visit_label(struct pass *s, struct arch_op *op)
{
	struct pass_way *from = &s->at[op->label];

	if (!from->open) {
		op->kind = ARCH_OP_NONE;
		return;
	}
	if (s->now.open) {
		pass_meet(&s->now, from, s->p->values);
		return;
	}
	s->now.open = true;
	s->now.fact_count = from->fact_count;
	s->now.known_count = from->known_count;
	memcpy(s->now.holds, from->holds, (s->p->values + 1) * sizeof(from->holds[0]));
	memcpy(s->now.facts, from->facts, from->fact_count * sizeof(from->facts[0]));
	memcpy(s->now.known, from->known, from->known_count * sizeof(from->known[0]));
}

static void visit_jump(struct pass *s, struct arch_op *op)
{
	branch(s, op->label);
	s->now.open = false;
}

/* Whether a condition of operands that have been folded holds; -1: not known. */
static int decide(struct pass *s, const struct arch_op *op)
{
	const uint16_t a = pass_number_of(s, op->a), b = op->b ? pass_number_of(s, op->b) : 0;
	uint64_t x, y = (uint64_t)(int64_t)op->immediate;

	if (pass_is_constant(s, a, &x) && (!b || pass_is_constant(s, b, &y)))
		return program_holds(op->condition, x, y);
	if (a == b)
		return program_holds(op->condition, 0, 0);
	return pass_decide(s, op->condition, a, b, op->immediate);
}

static void visit_if(struct pass *s, struct arch_op *op)
{
	struct pass_known known[PASS_KNOWN];
	uint16_t a, b;
	uint8_t count;
	int holds;

	pass_fold_condition(s, op);
	holds = decide(s, op);
	if (holds == 0) {
		op->kind = ARCH_OP_NONE;
		return;
	}
	if (holds == 1) {
		*op = (struct arch_op){.kind = ARCH_OP_JUMP, .label = op->label};
		visit_jump(s, op);
		return;
	}
	a = pass_number_of(s, op->a);
	b = op->b ? pass_number_of(s, op->b) : 0;
	count = s->now.known_count;
	memcpy(known, s->now.known, sizeof(known));
	pass_learn(s, op->condition, a, b, op->immediate);
	branch(s, op->label);
	memcpy(s->now.known, known, sizeof(known));
	s->now.known_count = count;
	pass_learn(s, pass_inverse(op->condition), a, b, op->immediate);
}

static struct pass_key key_of(struct pass *s, const struct arch_op *op)
{
	const unsigned class = program_class(op->kind);
	struct pass_key k = {
		.kind = op->kind,
		.size = op->size,
		.condition = op->kind == ARCH_OP_TEST ? op->condition : 0,
		.is_signed = op->is_signed,
		.number = class & PROGRAM_PURE && op->kind != ARCH_OP_CONST ? 0 : op->number,
	};

	if (k.size == 8 && (class & PROGRAM_ADDRESS))
		k.is_signed = false;
	if ((class & PROGRAM_FIRST) && !((class & PROGRAM_ADDRESS) && !op->a))
		k.a = pass_number_of(s, op->a);
	if (!(class & PROGRAM_SECOND))
		return k;
	if (op->b)
		k.b = pass_number_of(s, op->b);
	else
		k.immediate = op->immediate;
	if ((class & PROGRAM_COMMUTES) && k.b && k.b < k.a) {
		const uint16_t a = k.a;

		k.a = k.b;
		k.b = a;
	}
	return k;
}

/* The operation gives what a value holds already. */
static bool reuse(struct pass *s, struct arch_op *op, uint16_t number)
{
	const unsigned holder = pass_holder(s, number);

	if (!holder || op->second)
		return false;
	*op = (struct arch_op){.kind = ARCH_OP_COPY, .result = op->result, .a = (uint16_t)holder};
	if (holder == op->result)
		op->kind = ARCH_OP_NONE;
	pass_set(s, op->result, number);
	return true;
}

/* Depends on nothing but its operands and the point. */
static void visit_pure(struct pass *s, struct arch_op *op)
{
	struct pass_key k;
	uint16_t number;

	if (program_class(op->kind) & PROGRAM_PURE)
		pass_fold(s, op);
	if (op->kind == ARCH_OP_TEST) {
		const int holds = decide(s, op);

		if (holds >= 0)
			*op = (struct arch_op){.kind = ARCH_OP_CONST,
					       .result = op->result,
					       .number = (uint64_t)holds};
	}
	if (op->kind == ARCH_OP_COPY) {
		number = pass_number_of(s, op->a);
		if (op->a == op->result)
			op->kind = ARCH_OP_NONE;
		pass_set(s, op->result, number);
		return;
	}
	k = key_of(s, op);
	number = pass_number(s, &k);
	if (op->kind == ARCH_OP_CONST || !reuse(s, op, number))
		pass_set(s, op->result, number);
}

/* Loads, reads, clocks, searches: the same again while nothing comes in between. */
static void visit_load(struct pass *s, struct arch_op *op)
{
	struct pass_key k;
	uint64_t constant;
	uint16_t number;

	if (program_class(op->kind) & PROGRAM_ADDRESS)
		pass_fold_address(s, op);
	k = key_of(s, op);
	if (op->fresh) {
		/* It is like nothing else, and nothing else is like it. */
		pass_set(s, op->result, pass_fresh(s, &k));
		return;
	}
	number = pass_find_fact(s, &k);
	if (pass_is_constant(s, number, &constant) && !op->second) {
		*op = (struct arch_op){
			.kind = ARCH_OP_CONST, .result = op->result, .number = constant};
		pass_set(s, op->result, number);
		return;
	}
	if (number && reuse(s, op, number))
		return;
	pass_forget(s, &k);
	number = pass_fresh(s, &k);
	pass_set(s, op->second, 0);
	pass_set(s, op->result, number);
	pass_add_fact(s, &k, number);
}

static void visit_effect(struct pass *s, struct arch_op *op)
{
	const unsigned class = program_class(op->kind);
	struct pass_key k;

	if (class & PROGRAM_ADDRESS)
		pass_fold_address(s, op);
	if ((class & PROGRAM_SECOND) && op->kind != ARCH_OP_ATOMIC_MIN &&
	    op->kind != ARCH_OP_ATOMIC_MAX && op->kind != ARCH_OP_RING_BYTES)
		pass_fold_second(s, op);
	if (op->kind == ARCH_OP_COUNT && !op->b && op->immediate == 0) {
		op->kind = ARCH_OP_NONE;
		return;
	}
	k = key_of(s, op);
	if (op->kind != ARCH_OP_STORE || !k.size)
		k.size = 8;
	if (op->kind != ARCH_OP_COUNT)
		pass_forget(s, &k);
	if (op->kind == ARCH_OP_STORE && k.size == 8) {
		const struct pass_key load = {
			.kind = ARCH_OP_LOAD, .size = 8, .a = k.a, .number = k.number};

		pass_add_fact(s, &load,
			      op->b ? k.b : pass_constant(s, (uint64_t)(int64_t)op->immediate));
	}
	pass_set(s, op->second, 0);
	pass_set(s, op->result, op->result ? pass_fresh(s, &k) : 0);
}

/* Operands are taken from who held them first, so that copies come to be unused. */
static void take_holders(struct pass *s, struct arch_op *op)
{
	const unsigned class = program_class(op->kind);
	unsigned holder;

	if (op->a && (class & PROGRAM_FIRST)) {
		holder = pass_holder(s, pass_number_of(s, op->a));
		op->a = holder ? (uint16_t)holder : op->a;
	}
	if (op->b && (class & PROGRAM_SECOND)) {
		holder = pass_holder(s, pass_number_of(s, op->b));
		op->b = holder ? (uint16_t)holder : op->b;
	}
}

static void visit(struct pass *s, struct arch_op *op)
{
	const unsigned class = program_class(op->kind);

	if (op->kind == ARCH_OP_LABEL) {
		visit_label(s, op);
		return;
	}
	if (!s->now.open)
		op->kind = ARCH_OP_NONE;
	if (op->kind == ARCH_OP_NONE)
		return;
	take_holders(s, op);
	if (op->kind == ARCH_OP_JUMP)
		visit_jump(s, op);
	else if (op->kind == ARCH_OP_IF)
		visit_if(s, op);
	else if (class & (PROGRAM_PURE | PROGRAM_FIXED))
		visit_pure(s, op);
	else if (!(class & PROGRAM_EFFECT) || op->kind == ARCH_OP_FIND)
		visit_load(s, op);
	else
		visit_effect(s, op);
}

void arch_program_optimise(struct arch_program *p)
{
	struct pass s;
	unsigned at;
	bool whole;

	if (!is_sound(p))
		return;
	for (unsigned round = 0; round < ROUNDS_MAX; round++) {
		pass_begin(&s, p);
		for (at = 0; at < p->count && s.count + PASS_STEP < PASS_NUMBERS; at++)
			visit(&s, &p->ops[at]);
		whole = at == p->count;
		program_drop_dead(p);
		if (!whole || !program_thread_jumps(p))
			break;
	}
	program_drop_dead(p);
}
