/* SPDX-License-Identifier: MIT */
/*
 * program_facts.c - what is known of memory, clocks and conditions at a place in
 * a program. When in doubt, nothing is known.
 *
 * Two accesses do not touch each other where they have the same base and lie
 * apart, or where one is in the thread's record (only ever reached through
 * ARCH_OP_RECORD and ARCH_OP_ENTER) and the other is not. Counters (ARCH_OP_COUNT) are
 * read by no program.
 */
#include "arch/common/program_pass.h"

enum { DEPTH_MAX = 8 };

/* ---------------------------------------------------------------- memory */

static bool same_key(const struct pass_key *x, const struct pass_key *y)
{
	return x->kind == y->kind && x->size == y->size && x->is_signed == y->is_signed &&
	       x->a == y->a && x->number == y->number;
}

uint16_t pass_find_fact(const struct pass *s, const struct pass_key *key)
{
	for (unsigned i = 0; i < s->now.fact_count; i++)
		if (same_key(&s->now.facts[i].key, key))
			return s->now.facts[i].number;
	return 0;
}

static void remove_fact(struct pass_way *w, unsigned i)
{
	w->facts[i] = w->facts[--w->fact_count];
}

void pass_add_fact(struct pass *s, const struct pass_key *key, uint16_t number)
{
	struct pass_way *w = &s->now;

	if (!number)
		return;
	if (w->fact_count == PASS_FACTS)
		remove_fact(w, 0);
	w->facts[w->fact_count++] = (struct pass_fact){.key = *key, .number = number};
}

/* The address lies in the record: what is added to that is a number. */
static bool is_record(const struct pass *s, uint16_t base)
{
	while (base && s->numbers[base].key.kind == ARCH_OP_ADD && !s->numbers[base].key.b)
		base = s->numbers[base].key.a;
	return base && s->numbers[base].key.kind == ARCH_OP_RECORD;
}

/* It may lie there: it is computed from such an address, or nothing is known of it. */
static bool may_be_record(const struct pass *s, uint16_t base, unsigned depth)
{
	const struct pass_key *k = &s->numbers[base].key;
	const unsigned class = program_class(k->kind);

	if (!base)
		return false;
	if (k->kind == ARCH_OP_NONE || k->kind == ARCH_OP_RECORD || k->kind == ARCH_OP_ENTER ||
	    !depth)
		return true;
	if (!(class & PROGRAM_PURE))
		return false;
	return ((class & PROGRAM_FIRST) && may_be_record(s, k->a, depth - 1)) ||
	       ((class & PROGRAM_SECOND) && may_be_record(s, k->b, depth - 1));
}

static bool apart(const struct pass *s, const struct pass_key *fact, const struct pass_key *write)
{
	/* An address near the upper end may go round: a difference is taken modulo 2^64. */
	if (fact->a == write->a)
		return write->number - fact->number >= fact->size &&
		       fact->number - write->number >= write->size;
	return (is_record(s, fact->a) && !may_be_record(s, write->a, DEPTH_MAX)) ||
	       (is_record(s, write->a) && !may_be_record(s, fact->a, DEPTH_MAX));
}

static bool is_memory(const struct pass_key *k)
{
	return k->kind == ARCH_OP_LOAD || k->kind == ARCH_OP_READ;
}

void pass_forget(struct pass *s, const struct pass_key *key)
{
	struct pass_way *w = &s->now;

	for (unsigned i = w->fact_count; i-- > 0;) {
		const struct pass_key *fact = &w->facts[i].key;
		bool gone = false;

		switch (key->kind) {
		case ARCH_OP_ENTER: /* may run what stands for activations that were dropped */
		case ARCH_OP_LEAVE:
		case ARCH_OP_LEFT:
			gone = is_memory(fact) || fact->kind == ARCH_OP_CLOCK;
			break;
		case ARCH_OP_READ: /* takes its time */
		case ARCH_OP_RING_OPEN:
		case ARCH_OP_RING_BYTES:
		case ARCH_OP_RING_CLOSE: /* no program reads rings */
		case ARCH_OP_FIND:
		case ARCH_OP_CLOCK:
			gone = fact->kind == ARCH_OP_CLOCK;
			break;
		default:
			gone = is_memory(fact) && !apart(s, fact, key);
		}
		if (gone)
			remove_fact(w, i);
	}
}

/* ------------------------------------------------------------- conditions */

/*
 * Two words compare in one of five ways: equal; less or greater by sign, and
 * with each of them less or greater without.
 */
enum {
	EQUAL = 1,
	LESS_BELOW = 2,
	LESS_ABOVE = 4,
	GREATER_BELOW = 8,
	GREATER_ABOVE = 16,
	ALL = 31,
};

unsigned pass_outcomes(unsigned condition)
{
	static const uint8_t outcomes[] = {
		[ARCH_TEST_EQ] = EQUAL,
		[ARCH_TEST_NE] = ALL & ~EQUAL,
		[ARCH_TEST_LT] = LESS_BELOW | LESS_ABOVE,
		[ARCH_TEST_LE] = LESS_BELOW | LESS_ABOVE | EQUAL,
		[ARCH_TEST_GT] = GREATER_BELOW | GREATER_ABOVE,
		[ARCH_TEST_GE] = GREATER_BELOW | GREATER_ABOVE | EQUAL,
		[ARCH_TEST_BELOW] = LESS_BELOW | GREATER_BELOW,
		[ARCH_TEST_BELOW_EQUAL] = LESS_BELOW | GREATER_BELOW | EQUAL,
		[ARCH_TEST_ABOVE] = LESS_ABOVE | GREATER_ABOVE,
		[ARCH_TEST_ABOVE_EQUAL] = LESS_ABOVE | GREATER_ABOVE | EQUAL,
	};

	return condition < sizeof(outcomes) ? outcomes[condition] : ALL;
}

unsigned pass_inverse(unsigned condition)
{
	static const uint8_t inverse[] = {
		[ARCH_TEST_EQ] = ARCH_TEST_NE,
		[ARCH_TEST_NE] = ARCH_TEST_EQ,
		[ARCH_TEST_LT] = ARCH_TEST_GE,
		[ARCH_TEST_LE] = ARCH_TEST_GT,
		[ARCH_TEST_GT] = ARCH_TEST_LE,
		[ARCH_TEST_GE] = ARCH_TEST_LT,
		[ARCH_TEST_BELOW] = ARCH_TEST_ABOVE_EQUAL,
		[ARCH_TEST_BELOW_EQUAL] = ARCH_TEST_ABOVE,
		[ARCH_TEST_ABOVE] = ARCH_TEST_BELOW_EQUAL,
		[ARCH_TEST_ABOVE_EQUAL] = ARCH_TEST_BELOW,
	};

	return inverse[condition];
}

unsigned pass_mirrored(unsigned condition)
{
	static const uint8_t mirrored[] = {
		[ARCH_TEST_EQ] = ARCH_TEST_EQ,
		[ARCH_TEST_NE] = ARCH_TEST_NE,
		[ARCH_TEST_LT] = ARCH_TEST_GT,
		[ARCH_TEST_LE] = ARCH_TEST_GE,
		[ARCH_TEST_GT] = ARCH_TEST_LT,
		[ARCH_TEST_GE] = ARCH_TEST_LE,
		[ARCH_TEST_BELOW] = ARCH_TEST_ABOVE,
		[ARCH_TEST_BELOW_EQUAL] = ARCH_TEST_ABOVE_EQUAL,
		[ARCH_TEST_ABOVE] = ARCH_TEST_BELOW,
		[ARCH_TEST_ABOVE_EQUAL] = ARCH_TEST_BELOW_EQUAL,
	};

	return mirrored[condition];
}

int pass_decide(const struct pass *s, unsigned condition, uint16_t a, uint16_t b, int32_t immediate)
{
	const unsigned wanted = pass_outcomes(condition);

	for (unsigned i = 0; i < s->now.known_count; i++) {
		const struct pass_known *k = &s->now.known[i];

		if (k->a != a || k->b != b)
			continue;
		if (!b && k->outcomes == EQUAL)
			return program_holds(condition, (uint64_t)(int64_t)k->immediate,
					     (uint64_t)(int64_t)immediate);
		if (k->immediate != immediate)
			continue;
		if (!(k->outcomes & ~wanted))
			return 1;
		if (!(k->outcomes & wanted))
			return 0;
	}
	return -1;
}

void pass_learn(struct pass *s, unsigned condition, uint16_t a, uint16_t b, int32_t immediate)
{
	struct pass_way *w = &s->now;
	const uint8_t outcomes = (uint8_t)pass_outcomes(condition);

	for (unsigned i = 0; i < w->known_count; i++) {
		struct pass_known *k = &w->known[i];

		if (k->a == a && k->b == b && k->immediate == immediate) {
			k->outcomes &= outcomes;
			return;
		}
	}
	if (w->known_count == PASS_KNOWN)
		w->known[0] = w->known[--w->known_count];
	w->known[w->known_count++] = (struct pass_known){a, b, immediate, outcomes};
}
