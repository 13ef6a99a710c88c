/* SPDX-License-Identifier: MIT */
/*
 * program_jumps.c - where jumps of a program lead, and what is not needed any
 * more. Must never change what is executed with an effect, nor the order.
 */
#include <string.h>

#include "arch/common/program_pass.h"

/* The first operation from `at` on that is none of labels and gaps; p->count if none. */
static unsigned behind_labels(const struct arch_program *p, unsigned at)
{
	while (at < p->count &&
	       (p->ops[at].kind == ARCH_OP_LABEL || p->ops[at].kind == ARCH_OP_NONE))
		at++;
	return at;
}

/* A label directly behind operation `at`, 0 if there is none. */
static unsigned label_behind(const struct arch_program *p, unsigned at)
{
	for (at++; at < p->count; at++) {
		if (p->ops[at].kind == ARCH_OP_LABEL)
			return p->ops[at].label;
		if (p->ops[at].kind != ARCH_OP_NONE)
			break;
	}
	return 0;
}

static bool same_operands(const struct arch_op *x, const struct arch_op *y)
{
	return x->a == y->a && x->b == y->b && (x->b || x->immediate == y->immediate);
}

/* Where `op`, which is taken to its label, could lead at once; 0: nowhere else. */
static unsigned further(const struct arch_program *p, const struct arch_op *op, unsigned target)
{
	const unsigned at = behind_labels(p, target);
	const struct arch_op *next = &p->ops[at];
	unsigned outcomes;

	if (at == p->count)
		return 0;
	if (next->kind == ARCH_OP_JUMP)
		return next->label;
	if (op->kind != ARCH_OP_IF || next->kind != ARCH_OP_IF || !same_operands(op, next))
		return 0;
	outcomes = pass_outcomes(op->condition);
	if (!(outcomes & ~pass_outcomes(next->condition)))
		return next->label;
	if (!(outcomes & pass_outcomes(next->condition)))
		return label_behind(p, at);
	return 0;
}

/* if c -> A; jump -> B; A:  becomes  if not c -> B; A: */
static bool turn_over(struct arch_program *p, unsigned at)
{
	struct arch_op *op = &p->ops[at], *jump;
	unsigned next = at + 1;

	while (next < p->count && p->ops[next].kind == ARCH_OP_NONE)
		next++;
	if (op->kind != ARCH_OP_IF || next >= p->count || p->ops[next].kind != ARCH_OP_JUMP)
		return false;
	jump = &p->ops[next];
	for (unsigned i = next + 1; i < p->count; i++) {
		if (p->ops[i].kind == ARCH_OP_LABEL && p->ops[i].label == op->label) {
			op->condition = (uint8_t)pass_inverse(op->condition);
			op->label = jump->label;
			jump->kind = ARCH_OP_NONE;
			return true;
		}
		if (p->ops[i].kind != ARCH_OP_LABEL && p->ops[i].kind != ARCH_OP_NONE)
			break;
	}
	return false;
}

bool program_thread_jumps(struct arch_program *p)
{
	uint16_t places[ARCH_PROGRAM_LABELS + 1] = {0};
	bool changed = false;

	for (unsigned i = 0; i < p->count; i++)
		if (p->ops[i].kind == ARCH_OP_LABEL)
			places[p->ops[i].label] = (uint16_t)i;
	/* From the end, so that what a jump leads to is done before it. */
	for (unsigned i = p->count; i-- > 0;) {
		struct arch_op *op = &p->ops[i];
		unsigned to;

		if (op->kind != ARCH_OP_JUMP && op->kind != ARCH_OP_IF)
			continue;
		changed |= turn_over(p, i);
		to = further(p, op, places[op->label]);
		if (to && to != op->label) {
			op->label = (uint16_t)to;
			changed = true;
		}
	}
	return changed;
}

/* ---------------------------------------------------------------- what is dead */

struct set {
	uint64_t bits[ARCH_PROGRAM_VALUES / 64 + 1];
};

static void insert(struct set *s, unsigned value)
{
	if (value)
		s->bits[value / 64] |= 1ull << value % 64;
}

static bool take(struct set *s, unsigned value)
{
	const uint64_t bit = 1ull << value % 64;
	const bool was = value && (s->bits[value / 64] & bit);

	s->bits[value / 64] &= ~bit;
	return was;
}

static void unite(struct set *to, const struct set *from)
{
	for (unsigned i = 0; i < sizeof(to->bits) / sizeof(to->bits[0]); i++)
		to->bits[i] |= from->bits[i];
}

static void insert_operands(struct set *s, const struct arch_op *op)
{
	const unsigned class = program_class(op->kind);

	if (class & PROGRAM_FIRST)
		insert(s, op->a);
	if (class & PROGRAM_SECOND)
		insert(s, op->b);
}

/* Labels that nothing leads to, and jumps to what follows anyway. */
static void drop_control(struct arch_program *p)
{
	bool wanted[ARCH_PROGRAM_LABELS + 1] = {0};

	for (unsigned i = 0; i < p->count; i++) {
		struct arch_op *op = &p->ops[i];

		if (op->kind != ARCH_OP_JUMP && op->kind != ARCH_OP_IF)
			continue;
		for (unsigned j = i + 1; j < p->count; j++) {
			if (p->ops[j].kind == ARCH_OP_LABEL && p->ops[j].label == op->label)
				op->kind = ARCH_OP_NONE;
			else if (p->ops[j].kind == ARCH_OP_LABEL || p->ops[j].kind == ARCH_OP_NONE)
				continue;
			break;
		}
		if (op->kind != ARCH_OP_NONE)
			wanted[op->label] = true;
	}
	for (unsigned i = 0; i < p->count; i++)
		if (p->ops[i].kind == ARCH_OP_LABEL && !wanted[p->ops[i].label])
			p->ops[i].kind = ARCH_OP_NONE;
}

static void drop_gaps(struct arch_program *p)
{
	unsigned kept = 0, values = ARCH_VALUE_FIRST - 1, labels = 0;

	for (unsigned i = 0; i < p->count; i++) {
		const struct arch_op *op = &p->ops[i];

		if (op->kind == ARCH_OP_NONE)
			continue;
		if (op->result > values)
			values = op->result;
		if (op->second > values)
			values = op->second;
		if (op->b > values)
			values = op->b;
		if (op->a > values)
			values = op->a;
		if (op->label > labels)
			labels = op->label;
		p->ops[kept++] = *op;
	}
	p->count = (uint16_t)kept;
	if (values < p->values)
		p->values = (uint16_t)values;
	p->labels = (uint16_t)labels;
}

void program_drop_dead(struct arch_program *p)
{
	struct set live = {{0}}, at[ARCH_PROGRAM_LABELS + 1];

	drop_control(p);
	for (unsigned i = p->count; i-- > 0;) {
		struct arch_op *op = &p->ops[i];

		switch (op->kind) {
		case ARCH_OP_NONE:
			continue;
		case ARCH_OP_LABEL:
			at[op->label] = live;
			continue;
		case ARCH_OP_JUMP:
			live = at[op->label];
			continue;
		case ARCH_OP_IF:
			unite(&live, &at[op->label]);
			break;
		default:
			if (!take(&live, op->result))
				op->result = 0;
			if (!take(&live, op->second))
				op->second = 0;
			if (!op->result && !op->second && !arch_op_has_effect(op)) {
				op->kind = ARCH_OP_NONE;
				continue;
			}
		}
		insert_operands(&live, op);
	}
	drop_gaps(p);
}
