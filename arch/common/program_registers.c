/* SPDX-License-Identifier: MIT */
/*
 * program_registers.c - gives the values of a program their places: a linear
 * scan over the row of operations (Poletto and Sarkar, "Linear scan register
 * allocation"). Time is counted in half operations: operation i uses its
 * operands at 2i and sets its results at 2i + 1, so that a result may have the
 * register of an operand that ends there; what it changes for itself lasts from
 * 2i to 2i + 1. Where the pool is too small the value that lasts longest goes to
 * the stack, for all its time. Must never know an architecture.
 */
#include "arch/common/program_registers.h"

#include <string.h>

enum { NEVER = UINT16_MAX, TEMP = UINT16_MAX };

struct interval {
	uint16_t start, end;
	uint16_t set; /* how many operations set it */
};

/* A register that is given out: to whom, and until when. */
struct owner {
	uint16_t value; /* or TEMP; 0: free */
	uint16_t end;
};

struct scan {
	const struct arch_program *p;
	struct register_wish wishes[ARCH_PROGRAM_OPS];
	struct interval intervals[ARCH_PROGRAM_VALUES + 1];
	struct owner pool[REGISTERS_POOL], named[REGISTERS_NAMED];
	unsigned pool_size, named_set;
	bool overflow; /* something had to go to the stack */
	struct registers *out;
};

static bool uses_first(const struct arch_op *op)
{
	return program_class(op->kind) & PROGRAM_FIRST;
}

static unsigned operand_a(const struct arch_op *op)
{
	return uses_first(op) ? op->a : 0;
}

static unsigned operand_b(const struct arch_op *op)
{
	return program_class(op->kind) & PROGRAM_SECOND ? op->b : 0;
}

unsigned registers_result(const struct arch_op *op)
{
	return program_class(op->kind) & PROGRAM_RESULT ? op->result : 0;
}

static unsigned second(const struct arch_op *op)
{
	return op->kind == ARCH_OP_LEAVE || op->kind == ARCH_OP_READ ||
			       op->kind == ARCH_OP_RING_OPEN
		       ? op->second
		       : 0;
}

bool registers_skip(const struct arch_op *op)
{
	return op->kind == ARCH_OP_NONE ||
	       (!(program_class(op->kind) & PROGRAM_EFFECT) && !op->result &&
		(op->kind != ARCH_OP_READ || !op->second));
}

bool registers_overlap(const struct arch_op *op, unsigned result)
{
	return result && (result == operand_a(op) || result == operand_b(op));
}

bool registers_always_result(const struct arch_op *op)
{
	return op->kind == ARCH_OP_ENTER || op->kind == ARCH_OP_LEAVE || op->kind == ARCH_OP_FIND;
}

bool registers_want_zero(const struct arch_op *op)
{
	const unsigned class = program_class(op->kind);

	return (class & PROGRAM_FIRST) && !(class & PROGRAM_ADDRESS) && !op->a &&
	       op->kind != ARCH_OP_CLOCK && op->kind != ARCH_OP_ENTER &&
	       op->kind != ARCH_OP_LEAVE && op->kind != ARCH_OP_LEFT;
}

void registers_add_wishes(const struct arch_op *op, struct register_wish *wish)
{
	if ((wish->early && registers_overlap(op, registers_result(op))) ||
	    (registers_always_result(op) && !op->result))
		wish->temps++;
	if (op->kind == ARCH_OP_LEAVE && (registers_overlap(op, op->second) || !op->second))
		wish->temps++;
	if (registers_want_zero(op))
		wish->temps++;
}

/* ------------------------------------------------------------- intervals */

static int touch(struct scan *s, unsigned value, unsigned time)
{
	struct interval *i;

	if (value > s->p->values || value > ARCH_PROGRAM_VALUES)
		return ARCH_REFUSED;
	if (!value)
		return ARCH_OK;
	i = &s->intervals[value];
	if (time < i->start)
		i->start = (uint16_t)time;
	if (time > i->end)
		i->end = (uint16_t)time;
	return ARCH_OK;
}

static int touch_results(struct scan *s, unsigned at)
{
	const struct arch_op *op = &s->p->ops[at];
	const unsigned time = 2 * at + (s->wishes[at].early ? 0 : 1);
	int status = touch(s, registers_result(op), time);

	if (status == ARCH_OK)
		status = touch(s, second(op), time);
	/* Both last until the end of the operation, used or not. */
	if (status == ARCH_OK)
		status = touch(s, registers_result(op), 2 * at + 1);
	if (status == ARCH_OK)
		status = touch(s, second(op), 2 * at + 1);
	if (status != ARCH_OK)
		return status;
	s->intervals[registers_result(op)].set++;
	s->intervals[second(op)].set++;
	return ARCH_OK;
}

static int find_intervals(struct scan *s)
{
	const struct arch_program *p = s->p;

	for (unsigned v = 0; v <= p->values; v++)
		s->intervals[v] = (struct interval){.start = NEVER};
	for (unsigned i = 0; i < p->count; i++) {
		const struct arch_op *op = &p->ops[i];
		int status = touch(s, operand_a(op), 2 * i);

		if (status == ARCH_OK)
			status = touch(s, operand_b(op), 2 * i);
		if (status == ARCH_OK)
			status = touch_results(s, i);
		if (status != ARCH_OK)
			return status;
	}
	for (unsigned v = 1; v <= p->values; v++)
		if (s->intervals[v].start != NEVER && !s->intervals[v].set)
			return ARCH_REFUSED;
	return ARCH_OK;
}

/* ----------------------------------------------------------- named registers */

/* True if operation `at` leaves named register n to the value, though it destroys what is in it. */
static bool agrees(const struct scan *s, unsigned at, unsigned n, unsigned value)
{
	const struct arch_op *op = &s->p->ops[at];
	const struct register_wish *w = &s->wishes[at];
	const struct interval *i;

	if (value == TEMP)
		return false;
	i = &s->intervals[value];
	if (i->start == 2 * at + 1)
		return (registers_result(op) == value && w->result_in == n + 1) ||
		       (second(op) == value && w->second_in == n + 1);
	/* A last use, and the only one here. */
	if (i->end == 2 * at && i->start < 2 * at && operand_a(op) != operand_b(op))
		return (operand_a(op) == value && w->a_in == n + 1) ||
		       (operand_b(op) == value && w->b_in == n + 1);
	return false;
}

/* True if nobody else has or destroys named register n in that time. */
static bool is_named_free(const struct scan *s, unsigned n, unsigned value, unsigned start,
			  unsigned end)
{
	if (!(s->named_set & 1u << n))
		return false;
	if (s->named[n].value && s->named[n].end >= start)
		return false;
	for (unsigned at = start / 2; at <= end / 2 && at < s->p->count; at++)
		if ((s->wishes[at].destroys & 1u << n) && !agrees(s, at, n, value))
			return false;
	return true;
}

/* ------------------------------------------------------------- allocation */

static bool is_free(const struct scan *s, unsigned r, unsigned start)
{
	return !s->pool[r].value || s->pool[r].end < start;
}

static struct register_place give_pool(struct scan *s, unsigned r, unsigned value, unsigned end)
{
	s->pool[r] = (struct owner){(uint16_t)value, (uint16_t)end};
	if (s->out->used <= r)
		s->out->used = r + 1;
	return (struct register_place){REGISTER_POOL, (uint8_t)r};
}

static struct register_place give_named(struct scan *s, unsigned n, unsigned value, unsigned end)
{
	s->named[n] = (struct owner){(uint16_t)value, (uint16_t)end};
	return (struct register_place){REGISTER_NAMED, (uint8_t)n};
}

/* The pool's register whose value lasts longest, until `least` at least; pool_size: none. */
static unsigned victim(const struct scan *s, unsigned least)
{
	unsigned found = s->pool_size;

	for (unsigned r = 0; r < s->pool_size; r++)
		if (s->pool[r].value && s->pool[r].value != TEMP && s->pool[r].end >= least) {
			found = r;
			least = s->pool[r].end + 1u;
		}
	return found;
}

/*
 * A place for a value (or TEMP) from start to end. Registers with a name come
 * first: the frame keeps them anyway.
 */
static struct register_place place(struct scan *s, unsigned value, unsigned start, unsigned end,
				   struct register_place hint, unsigned named_hint)
{
	unsigned r;

	if (named_hint && is_named_free(s, named_hint - 1, value, start, end))
		return give_named(s, named_hint - 1, value, end);
	if (hint.kind == REGISTER_POOL && is_free(s, hint.index, start))
		return give_pool(s, hint.index, value, end);
	for (unsigned n = 0; n < REGISTERS_NAMED; n++)
		if (is_named_free(s, n, value, start, end))
			return give_named(s, n, value, end);
	for (r = 0; r < s->pool_size; r++)
		if (is_free(s, r, start))
			return give_pool(s, r, value, end);
	s->overflow = true;
	/* Temporaries must have one, so operands that are used here for the last time give way, too. */
	r = victim(s, value == TEMP ? start : end + 1);
	if (r == s->pool_size)
		return (struct register_place){REGISTER_SLOT, 0};
	s->out->values[s->pool[r].value] = (struct register_place){REGISTER_SLOT, 0};
	return give_pool(s, r, value, end);
}

/* Where an operand that ends at operation `at` is: its register may become the result's. */
static struct register_place hint_of(const struct scan *s, unsigned at)
{
	const struct arch_op *op = &s->p->ops[at];
	const unsigned a = operand_a(op), b = operand_b(op);

	if (a && s->intervals[a].end == 2 * at)
		return s->out->values[a];
	if (b && s->intervals[b].end == 2 * at && (program_class(op->kind) & PROGRAM_COMMUTES))
		return s->out->values[b];
	return (struct register_place){REGISTER_NONE, 0};
}

/* The named register in which somebody later wants the value, if that is its last use. */
static unsigned wanted_in(const struct scan *s, unsigned value)
{
	const unsigned at = s->intervals[value].end / 2;

	if (s->intervals[value].end % 2 || at >= s->p->count)
		return 0;
	if (operand_a(&s->p->ops[at]) == value)
		return s->wishes[at].a_in;
	return operand_b(&s->p->ops[at]) == value ? s->wishes[at].b_in : 0;
}

static void place_value(struct scan *s, unsigned at, unsigned value, unsigned arises_in,
			unsigned time)
{
	const struct interval *i = &s->intervals[value];
	const struct register_wish *w = &s->wishes[at];
	const struct register_place hint = hint_of(s, at);

	if (!value || i->start != time)
		return;
	if (w->input && i->set == 1)
		s->out->values[value] =
			(struct register_place){REGISTER_INPUT, (uint8_t)(w->input - 1)};
	else
		s->out->values[value] = place(s, value, i->start, i->end, hint,
					      arises_in ? arises_in : wanted_in(s, value));
}

/* Values that are used before anything in the row has set them. */
static void place_early_uses(struct scan *s, unsigned at)
{
	for (unsigned v = 1; v <= s->p->values; v++)
		if (s->intervals[v].start == 2 * at && s->out->values[v].kind == REGISTER_NONE &&
		    registers_result(&s->p->ops[at]) != v && second(&s->p->ops[at]) != v)
			s->out->values[v] = place(s, v, 2 * at, s->intervals[v].end,
						  (struct register_place){REGISTER_NONE, 0}, 0);
}

static int scan(struct scan *s)
{
	/* Not all of it: most programs are short. */
	s->out->used = s->out->slots = 0;
	s->out->spills = false;
	memset(s->out->values, 0, (s->p->values + 1u) * sizeof(s->out->values[0]));
	memset(s->out->temps, 0, s->p->count * sizeof(s->out->temps[0]));
	memset(s->pool, 0, sizeof(s->pool));
	memset(s->named, 0, sizeof(s->named));
	s->overflow = false;
	for (unsigned at = 0; at < s->p->count; at++) {
		const struct arch_op *op = &s->p->ops[at];
		const struct register_wish *w = &s->wishes[at];

		place_early_uses(s, at);
		place_value(s, at, registers_result(op), w->result_in, 2 * at);
		place_value(s, at, second(op), w->second_in, 2 * at);
		for (unsigned t = 0; t < w->temps; t++) {
			s->out->temps[at][t] = place(s, TEMP, 2 * at, 2 * at + 1,
						     (struct register_place){REGISTER_NONE, 0}, 0);
			if (s->out->temps[at][t].kind == REGISTER_SLOT)
				return ARCH_NO_ROOM;
		}
		place_value(s, at, registers_result(op), w->result_in, 2 * at + 1);
		place_value(s, at, second(op), w->second_in, 2 * at + 1);
	}
	return ARCH_OK;
}

/* Words on the stack for those without a register; two share one if they are never both alive. */
static int give_slots(struct scan *s)
{
	struct registers *out = s->out;

	for (unsigned v = 1; v <= s->p->values; v++) {
		bool taken[ARCH_SLOTS_MAX] = {false};
		unsigned slot = 0;

		if (out->values[v].kind != REGISTER_SLOT)
			continue;
		for (unsigned w = 1; w < v; w++)
			if (out->values[w].kind == REGISTER_SLOT &&
			    s->intervals[w].start <= s->intervals[v].end &&
			    s->intervals[v].start <= s->intervals[w].end)
				taken[out->values[w].index] = true;
		while (slot < ARCH_SLOTS_MAX && taken[slot])
			slot++;
		if (slot == ARCH_SLOTS_MAX)
			return ARCH_NO_ROOM;
		out->values[v].index = (uint8_t)slot;
		if (out->slots <= slot)
			out->slots = slot + 1;
	}
	return ARCH_OK;
}

int registers_assign(const struct arch_program *p, register_wishes *wishes, const void *arg,
		     unsigned pool, unsigned named, struct registers *out)
{
	struct scan s;
	int status;

	if (p->count > ARCH_PROGRAM_OPS || p->values > ARCH_PROGRAM_VALUES)
		return ARCH_REFUSED;
	s.p = p;
	s.out = out;
	s.pool_size = pool;
	s.named_set = named;
	for (unsigned i = 0; i < p->count; i++) {
		s.wishes[i] = (struct register_wish){0};
		wishes(arg, &p->ops[i], &s.wishes[i]);
	}
	status = find_intervals(&s);
	if (status != ARCH_OK)
		return status;
	status = scan(&s);
	if (status != ARCH_OK || !s.overflow)
		return status;
	/* Once more, with registers set aside that carry what is on the stack. */
	s.pool_size = pool - REGISTERS_SHUTTLES;
	status = scan(&s);
	if (status != ARCH_OK)
		return status;
	out->spills = true;
	for (unsigned i = 0; i < REGISTERS_SHUTTLES; i++)
		out->shuttles[i] = (uint8_t)(s.pool_size + i);
	out->used = pool;
	return give_slots(&s);
}
